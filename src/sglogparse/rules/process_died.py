"""A process of the server died."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sglogparse._causes import cause_of
from sglogparse._echoes import Role
from sglogparse._faults import Fault, faults, stopped_at
from sglogparse._launches import STANDS, Launch, rank_spread
from sglogparse._report import Finding, Severity

#: Exit codes that a shutdown or another process's death explains: SIGTERM, SIGQUIT, SIGINT.
_EXPLAINED = (0, -15, -3, -2)


def process_died(launch: Launch) -> Iterator[Finding]:
    """Report that a process of the server died: the first fault, and how many lines only echo it.

    What it finds:
        An exception that a scheduler, tokenizer, detokenizer or controller reports, a failed warm-up, a traceback
        through the server's code after which nothing is served, and signals and exit codes of child processes.

    Why it matters:
        One rank's death takes the others with it, and all of them print. The first root candidate over all ranks
        is the fault; the rest is echo.

    Evidence:
        The line of the first fault's exception. When only echoes are in the log, that is said, and nothing is
        guessed.

    Does not match:
        An exception in one request, exceptions after a SIGTERM, exit code -15, another program's traceback.

    What to do:
        Look at the first fault alone. When only echoes are shown, look in the log of the rank, node or process
        that is missing here.
    """
    found = faults(launch)
    active = [fault for fault in found if fault.role is not Role.TEARDOWN]
    whole = [fault for fault in active if fault.exceptions]
    roots = [fault for fault in whole if fault.role is Role.ROOT] or [
        fault for fault in active if not fault.exceptions and not (whole and whole[0].line < fault.line)
    ]
    if roots:
        first = roots[0]
        rest = [fault for fault in found if fault is not first]
        more = [fault for fault in rest if fault.role is Role.ROOT]
        yield _root(launch, first, more, [fault for fault in rest if fault.role is not Role.ROOT])
    elif whole:
        yield _only_echo(launch, whole)
    else:
        yield from _signals(launch)


def _root(launch: Launch, first: Fault, more: list[Fault], echoes: list[Fault]) -> Finding:
    same = [fault for fault in more if fault.exceptions and fault.exceptions[-1:] == first.exceptions[-1:]]
    others = len(more) - len(same)
    who = f"{first.process or 'The server'}{' on ' + first.rank if first.rank else ''}"
    where = f" {STANDS[first.phase]}" if first.phase else ""
    rest = []
    if same:
        rest.append(f"the same on {rank_spread(fault.rank for fault in same) or f'{len(same)} more'}")
    if others:
        rest.append(f"{others} other exception{'s' if others > 1 else ''} after it")
    signals = launch.frames["sigquit"].height
    repeated = len(echoes) + signals
    if repeated:
        rest.append(f"{repeated} echo{'es' if repeated > 1 else ''} of it")
    return Finding(
        Severity.ERROR,
        f"{who} died{where}: {first.headline}" + (f" ({', '.join(rest)})" if rest else ""),
        launch.evidences([first.line, first.root_line]),
        cause=cause_of(list(first.exceptions), first.phase),
        ranks=tuple(one for one in rank_spread([first.rank, *(fault.rank for fault in same)]).split(", ") if one),
        root=launch.evidence(first.root_line),
        weight=1,
    )


def _only_echo(launch: Launch, echoes: list[Fault]) -> Finding:
    first = echoes[0]
    ranks = rank_spread(fault.rank for fault in echoes)
    return Finding(
        Severity.ERROR,
        f"Only echoes of a fault are in this log: {first.headline} ({first.why})"
        + (f", on {ranks}" if ranks else "")
        + ".",
        launch.evidences(fault.root_line for fault in echoes[:4]),
        cause=cause_of(list(first.exceptions), first.phase),
        fix="look for the first exception in the logs of the other ranks, nodes and processes",
        ranks=tuple(one for one in ranks.split(", ") if one),
        root=launch.evidence(first.root_line),
        weight=1,
    )


def _signals(launch: Launch) -> Iterator[Finding]:
    if stopped_at(launch) is not None:
        return
    exits = launch.frames["process_exit"].filter(~pl.col("exit_code").is_in(_EXPLAINED) & pl.col("exit_code").is_not_null())
    dead = launch.frames["process_exit"].filter(pl.col("exit_code").is_null() | (pl.col("exit_code") == -3))
    quits = launch.frames["sigquit"]
    if not exits.is_empty():
        line, code = exits.select("line", "exit_code").row(0)
        killed = code == -9
        yield Finding(
            Severity.ERROR,
            f"A child process ended with exit code {code}"
            + (" (SIGKILL, as the host's out-of-memory killer sends it)" if killed else "")
            + ", and the log shows no earlier fault.",
            launch.evidences([line]),
            cause="memory.host" if killed else "process.killed",
            fix="look at the host: `dmesg -T | grep -i oom`" if killed else "look in the log of the child process",
            root=launch.evidence(line),
            weight=1,
        )
    elif not quits.is_empty() or not dead.is_empty():
        line = (quits if not quits.is_empty() else dead)["line"][0]
        yield Finding(
            Severity.ERROR,
            "A child process failed, and this log shows only the parent's echo of it, not the reason.",
            launch.evidences([line]),
            cause="process.killed",
            fix="look for the first exception in the logs of the ranks and child processes",
            root=launch.evidence(line),
            weight=1,
        )
