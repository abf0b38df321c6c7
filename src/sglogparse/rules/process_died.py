"""A process of the server died."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from sglogparse._cheap import lazy
from sglogparse._derived import Whole, once, telling
from sglogparse._echoes import Role
from sglogparse._faults import Fault, faults, last_progress, last_served, stopped_at
from sglogparse._launches import STANDS, Launch, between, first_line
from sglogparse._nothing import Nothing
from sglogparse._ranks import on_ranks, rank_list, rank_spread
from sglogparse._report import Finding, Severity
from sglogparse.causes import Confidence, Decision
from sglogparse.causes._evidence import advice, deciding_lines, judged, told_above
from sglogparse.ledger.window import lower_fraction, unknown_step
from sglogparse.rules.negative_kv_budget import negative_kv_budget
from sglogparse.rules.not_enough_memory import not_enough_memory

#: Shortages of device memory behind the pools: a smaller fraction leaves more.
_SHORTAGES = ("memory.runtime", "memory.graph_capture")
#: Exit codes without a fault, or which somebody asked for: SIGTERM, SIGINT.
_HARMLESS = (0, -15, -2)
#: Signals that tell why: what they are called, and the cause.
_SIGNALS = {
    -9: ("SIGKILL, as the host's out-of-memory killer sends it", "memory.host"),
    -11: ("SIGSEGV", "process.segfault"),
    -6: ("SIGABRT", "process.segfault"),
    -7: ("SIGBUS, as a full /dev/shm gives it", "process.segfault"),
    -4: ("SIGILL", "process.segfault"),
    -8: ("SIGFPE", "process.segfault"),
}
#: An exit code behind a header that is not SGLang's.
_EXIT_LINE = r"^\[[0-9-]+ [0-9:]+\] Exit code: (-?[0-9]{1,4})$"
#: How far above a fault stands what led to it, lines.
_JUST_ABOVE = 5
#: Beginnings of a block that say nothing: a bare traceback, or a frame of one whose beginning is cut off.
_NOISE = lazy(r"^(?:Exception Group )?Traceback \(most recent call last\):$|^ *File \"")
#: Numbers and addresses in a text.
_NUMBERS = lazy(r"0x[0-9a-f]+|[0-9]+(?:\.[0-9]+)*")


def process_died(launch: Launch) -> Iterator[Finding]:
    """Report that a process of the server died: the first fault, and how many lines only echo it.

    What it finds:
        An exception that a scheduler, tokenizer, detokenizer or controller reports, a failed warm-up, a
        traceback through the server's code or a crash of native code after which nothing is served, and
        signals and exit codes of child processes.

    Why it matters:
        One rank's death takes the others with it, and all of them print. The first root candidate over all
        ranks is the fault; the rest is echo.

    Evidence:
        The line of the first fault's exception. When only echoes are in the log, that is said, and nothing is
        guessed.

    Does not match:
        An exception in one request, what happens after a SIGTERM, exit code -15, another program's traceback,
        and helper processes that fail while the server goes on to serve.

    What to do:
        Look at the first fault alone. When only echoes are shown, look in the log of the rank, node or
        process that is missing here.
    """
    found = faults(launch)
    active = [fault for fault in found if fault.role is not Role.TEARDOWN]
    whole = [fault for fault in active if fault.exceptions]
    roots = (
        [fault for fault in whole if fault.role is Role.ROOT]
        or [
            fault
            for fault in active
            if fault.role is Role.ROOT and not fault.exceptions and not (whole and whole[0].line < fault.line)
        ]
        # that a process aborted is the fault itself when nothing says why
        or [fault for fault in whole if fault.role is Role.CONFIRMATION]
    )
    signal = _signal(launch)
    if roots and not (signal and signal[0] < roots[0].line):
        yield _root(launch, roots[0], [fault for fault in found if fault is not roots[0]])
    elif signal:
        yield _signalled(launch, *signal)
    elif active:
        yield _only_echo(launch, whole or active)
    else:
        yield from _parent_only(launch)


def _root(launch: Launch, first: Fault, rest: list[Fault]) -> Finding:
    more = [fault for fault in rest if fault.role is Role.ROOT]
    same = [fault for fault in more if fault.exceptions and fault.exceptions[-1:] == first.exceptions[-1:]]
    others = len({_kind(fault) for fault in more if fault.exceptions} - {_kind(first)})
    echoes = sum(fault.role is not Role.ROOT for fault in rest) + launch.frames["sigquit"].height
    notes = []
    if same:
        notes.append(f"the same on {rank_spread(fault.rank for fault in same) or f'{len(same)} more'}")
    if others:
        notes.append(f"{others} other fault{'s' if others > 1 else ''}")
    if echoes:
        notes.append(f"{echoes} echo{'es' if echoes > 1 else ''} of it")
    where = f" {STANDS[first.phase]}" if first.phase else ""
    decided = _decided(launch, first)
    return Finding(
        Severity.ERROR,
        f"{first.process or 'The server'}{on_ranks([first.rank])} died{where}: {first.headline}"
        + (f" ({', '.join(notes)})" if notes else ""),
        launch.evidences(_proof(launch, first, decided.cause)),
        cause=decided.cause,
        fix=_numbered(launch, decided.cause) or _advice(launch, decided.cause, first),
        confidence=decided.confidence,
        runner_up=decided.runner_up,
        phase=first.phase,
        ranks=rank_list([first.rank, *(fault.rank for fault in same)]),
        root=launch.evidence(first.root_line),
        weight=1,
    )


def _numbered(launch: Launch, cause: str) -> str | None:
    """Return the fix of a shortage of device memory that has the numbers; None without them."""
    if cause in _SHORTAGES:
        return lower_fraction(launch)
    if cause != "memory.kv_budget":
        return None
    budgets = (*negative_kv_budget(launch), *not_enough_memory(launch))
    return next((one.fix for one in budgets if one.fix), None)


def _advice(launch: Launch, cause: str, fault: Fault) -> str | None:
    """Return what to change, and for a shortage of device memory which number is missing to say how far."""
    told = advice(launch, cause, fault)
    lacking = unknown_step(launch, fault.root_line) if cause in _SHORTAGES else None
    return f"{told}; {lacking}" if told and lacking else told


def _proof(launch: Launch, fault: Fault, cause: str) -> list[int]:
    """Return the lines that show a fault: its exception, what else of it decides, and the report of it."""
    head = launch.evidence(fault.line).message
    lines = [fault.root_line, *deciding_lines(launch, cause, fault)]
    return lines if _NOISE.search(head) else [*lines, fault.line]


def _decided(launch: Launch, fault: Fault) -> Decision:
    """Return the cause of a fault; of one that is cut off, that of what was reported just above it."""
    near = between(launch.frames["bootstrap_failed"], fault.line - _JUST_ABOVE, fault.line)
    if not fault.exceptions and not near.is_empty():
        reason = "the bootstrap failed just above the exception that is cut off"
        return Decision("pd.bootstrap", Confidence("likely", reason), None)
    return judged(launch, fault)


def _kind(fault: Fault) -> str:
    """Return what a fault is, whichever rank, address or number it names: faults that differ in it differ."""
    return _NUMBERS.sub("#", fault.headline)


def _only_echo(launch: Launch, echoes: list[Fault]) -> Finding:
    first = echoes[0]
    decided = judged(launch, first)
    if decided.cause == "unknown":
        decided = Decision("process.killed", Confidence("likely", "only echoes are in this log"), None)
    ranks = [fault.rank for fault in echoes]
    return Finding(
        Severity.ERROR,
        f"Only echoes of a fault are in this log: {first.headline} ({first.why}){on_ranks(ranks)}.",
        launch.evidences(fault.root_line for fault in echoes[:4]),
        cause=decided.cause,
        confidence=decided.confidence and replace(decided.confidence, word="likely"),
        runner_up=decided.runner_up,
        fix=f"{_LOOK}{_peers(echoes)}",
        ranks=rank_list(ranks),
        phase=first.phase,
        root=launch.evidence(first.root_line),
        weight=1,
    )


_LOOK = "look for the first exception in the logs of the other ranks, nodes and processes"
#: How gloo and NCCL name the peer that they have lost.
_PEER = lazy(
    r"(?:[Pp]eer|[Pp]air|[Rr]emote|from|to) ?(?:\[([0-9a-fA-F.:]{3,45})\]:[0-9]"
    r"|([0-9]{1,3}(?:\.[0-9]{1,3}){3})[:<][0-9])"
)
_MOST_PEERS = 4


def _peers(echoes: list[Fault]) -> str:
    """Return which hosts are gone, as far as the echoes name them."""
    texts = [text for fault in echoes for text in fault.exceptions]
    hosts = list(dict.fromkeys(found[1] or found[2] for text in texts for found in _PEER.finditer(text)))
    if not hosts:
        return ""
    more = f" and {len(hosts) - _MOST_PEERS} more" if len(hosts) > _MOST_PEERS else ""
    return f", first of all at {', '.join(hosts[:_MOST_PEERS])}{more}: the peer that is gone"


@once
def _exits(launch: Launch) -> pl.DataFrame:
    """Return the exit codes that the parent prints before it was asked to stop, and where they count.

    The wording of 0.4.4 to 0.4.9 prints the status of waitpid (the signal in the low bits, the exit code
    above) for any child, helpers too: it counts only when nothing is served after it, and an exit code only
    when the start does not go on either.
    """
    frame = launch.frames["process_exit"].select("line", "exit_code", "pid", "process")
    told = _told(launch)
    if frame.is_empty() and told.is_empty():
        return Nothing({"line": frame["line"], "code": frame["exit_code"]})
    known = told.select("line", pl.col("code").cast(frame["exit_code"].dtype).alias("exit_code"))
    frame = pl.concat([frame, known], how="diagonal").sort("line")
    status = pl.col("pid").is_not_null() & pl.col("process").is_null()
    code = pl.col("exit_code")
    signal = code.mod(128)
    decoded = pl.when(signal > 0).then(-signal).otherwise(code // 256)
    stop = stopped_at(launch) or launch.last_line + 1
    behind = pl.when(signal > 0).then(last_served(launch)).otherwise(last_progress(launch))
    return frame.filter((pl.col("line") < stop) & (~status | (pl.col("line") > behind))).select(
        "line", pl.when(status).then(decoded).otherwise(code).alias("code")
    )


@telling
def _told(whole: Whole) -> pl.DataFrame:
    """Return the exit codes of the diffusion server, whose logger stamps its records in a way of its own."""
    said = pl.col("message").str.extract(_EXIT_LINE).cast(pl.Int64, strict=False)
    rows = whole.lines["kind"].is_null().arg_true()
    other = whole.records.select("line", "message")[rows].with_columns(rows.alias("row"))
    return other.select("row", "line", code=said).drop_nulls("code")


def _signal(launch: Launch) -> tuple[int, int] | None:
    """Return the first exit code that tells why a child ended, as (line, code).

    After a SIGQUIT the parent kills its children with SIGKILL itself.
    """
    exits = _exits(launch)
    if exits.is_empty():
        return None
    asked = first_line(launch.frames["sigquit"]) or launch.last_line
    by_parent = (pl.col("code") == -9) & (pl.col("line") > asked)
    telling = exits.filter(pl.col("code").is_in(list(_SIGNALS)) & ~by_parent)
    return None if telling.is_empty() else telling.row(0)


def _signalled(launch: Launch, line: int, code: int) -> Finding:
    name, cause = _SIGNALS[code]
    where = "at the host: `dmesg -T | grep -i oom`" if code == -9 else "for a native stack or a core dump"
    return Finding(
        Severity.ERROR,
        f"A child process ended with exit code {code} ({name}), and the log shows no earlier fault.",
        launch.evidences([line]),
        cause=cause,
        confidence=Confidence("likely", f"it is {name}, and nothing else explains the end"),
        fix=f"look {where}",
        root=launch.evidence(line),
        weight=1,
    )


def _parent_only(launch: Launch) -> Iterator[Finding]:
    """Yield what the parent says of a child's end, when nothing says why."""
    stop = stopped_at(launch) or launch.last_line + 1
    exits = _exits(launch)
    if exits.is_empty() and launch.frames["sigquit"].is_empty():
        return
    exits = exits.filter(~pl.col("code").is_in(_HARMLESS) | pl.col("code").is_null())
    quits = launch.frames["sigquit"].filter(pl.col("line") < stop)
    lines = [first for frame in (quits, exits) if (first := first_line(frame)) is not None]
    if not lines:
        return
    line = min(lines)
    coded = exits.filter(pl.col("code").is_not_null())
    decided = told_above(launch, line)
    named = decided.cause not in ("unknown", "process.killed", "code.assertion")
    said = f" (exit code {coded['code'][0]})" if not coded.is_empty() else ""
    yield Finding(
        Severity.ERROR,
        f"A child process failed{said}, and this log shows only the parent's echo of it, not the reason.",
        launch.evidences([line, *coded["line"][:1]]),
        cause=decided.cause if named else "process.killed",
        confidence=decided.confidence if named else None,
        fix=(advice(launch, decided.cause) if named else None)
        or "look for the first exception in the logs of the ranks and child processes",
        root=launch.evidence(line),
        weight=1,
    )
