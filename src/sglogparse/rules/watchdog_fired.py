"""A watchdog that fired."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sglogparse._cheap import lazy
from sglogparse._echoes import Role
from sglogparse._faults import faults, last_served, stopped_at
from sglogparse._hang import Stack, last_state, silent_first, stacks, stuck, stuck_batch
from sglogparse._launches import Launch
from sglogparse._ranks import on_ranks, rank_list
from sglogparse._report import Finding, Severity

#: Files of SGLang in which a rank's threads run.
_OWN = lazy(r"sglang/|(?:scheduler|tp_worker|pynccl|model_runner|tp_worker_overlap_thread)[a-z_]*\.py")


def watchdog_fired(launch: Launch) -> Iterator[Finding]:
    """Report a watchdog that saw no progress for longer than its limit.

    What it finds:
        "Watchdog timeout (self.watchdog_timeout=300)" of the scheduler, tokenizer or detokenizer; without
        that line, the state or the stacks that only a watchdog prints, when nothing is served after them.

    Why it matters:
        A forward pass, a collective or a transfer is stuck. The process is then killed, so what follows is
        echo. A soft watchdog only reports, and when an exception came first the watchdog only follows from
        it: those are warnings.

    Evidence:
        The first watchdog line and the ranks that print one.

    Does not match:
        Notices of a watchdog that is set up, the limit among the arguments, and the watchdog of a process
        group (P001).

    What to do:
        Find the rank that stopped first (its stack is in the dump beside the line, where one was made) and
        what it waits for.
    """
    frame = launch.frames["watchdog_timeout"]
    if frame.is_empty():
        yield from _dumped(launch)
        return
    hard = frame.filter(~pl.col("soft").fill_null(False))
    shown = hard if not hard.is_empty() else frame
    line, limit = int(shown["line"][0]), shown["watchdog_limit"][0]
    earlier = any(fault.role is Role.ROOT and fault.line < line for fault in faults(launch))
    fatal = not hard.is_empty() and not earlier
    which, note = ("a soft", "; it only reports") if hard.is_empty() else ("the", "")
    if earlier:
        note = " after the first fault"
    goes_on = hard.is_empty() and launch.serves_after(int(shown["line"][-1])) is not None
    yield Finding(
        Severity.ERROR if fatal else Severity.WARNING,
        f"No progress for {limit:g} s: {which} watchdog fired (watchdog_timeout={limit:g})"
        f"{on_ranks(shown['rank'])}{note}{_state(launch, line)}.",
        launch.evidences([line]),
        cause=None if earlier or goes_on else "hang.watchdog",
        fix="find the rank that stopped first: its stack is in the dump beside this line, where one was made",
        ranks=rank_list(shown["rank"]),
        root=launch.evidence(line) if fatal else None,
        weight=2,
    )


def _dumped(launch: Launch) -> Iterator[Finding]:
    """Yield what a watchdog dumped, where the line that says how long it waited is missing."""
    told = [launch.frames[kind].select("line", "rank") for kind in ("watchdog_state", "stack_dump")]
    if not stacks(launch) and all(frame.is_empty() for frame in told):
        return
    # a dump of a whole process that nobody announces: the line of the watchdog was cut off, or filtered out
    spied = pl.DataFrame(
        [(one.line, None) for one in stacks(launch) if _is_own(one)],
        schema=told[0].schema,
        orient="row",
    )
    dumps = pl.concat([*told, spied]).filter(pl.col("line") > last_served(launch)).sort("line")
    if dumps.is_empty() or stopped_at(launch) is not None or faults(launch):
        return
    yield Finding(
        Severity.ERROR,
        f"A watchdog dumped what its process was doing{on_ranks(dumps['rank'])}; the line that says for how "
        f"long nothing moved is not in this log{_state(launch, int(dumps['line'][0]))}.",
        launch.evidences([int(dumps["line"][0])]),
        cause="hang.watchdog",
        fix="find the rank that stopped first, in the dump and in what the ranks said last",
        ranks=rank_list(dumps["rank"]),
        root=launch.evidence(int(dumps["line"][0])),
        weight=2,
    )


def _state(launch: Launch, line: int) -> str:
    """Return what the log shows of the hang: the last batch, the ranks that fell silent, the stacks."""
    where = stuck(launch)
    batch = stuck_batch(launch, line)
    notes = (batch, last_state(launch, line), silent_first(launch, line), where and f"main threads: {where}")
    return "".join(f"; {note}" for note in notes if note)


def _is_own(stack: Stack) -> bool:
    """Tell whether a dumped process is SGLang's: by its name, and without one by where it stands."""
    return stack.process.startswith("sglang::") or bool(stack.place and _OWN.search(stack.place))
