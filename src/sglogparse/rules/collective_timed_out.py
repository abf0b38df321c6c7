"""A collective that did not end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sglogparse._echoes import Role
from sglogparse._faults import faults, last_served
from sglogparse._hang import Collective, collectives, last_state, queued
from sglogparse._launches import Launch
from sglogparse._ranks import rank_spread
from sglogparse._report import Finding, Severity

_CAUGHT = "collective operation timeout"


def collective_timed_out(launch: Launch) -> Iterator[Finding]:
    """Report a collective of NCCL that timed out: which one, on which ranks, and who did not arrive.

    What it finds:
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=..., OpType=...)", with what the same
        watchdog prints of the work that each rank had enqueued and done.

    Why it matters:
        A collective waits for all its ranks. The ones that report the timeout are those that arrived; the
        fault is on the one that did not: it died, it stands in another collective, or it is still computing.

    Evidence:
        The first report of each rank (at most four).

    Does not match:
        Notices that a watchdog was set up. When a rank died before, that is the fault (P001), and the timeout
        is only a warning.

    What to do:
        Look at the rank that did not arrive: its last lines, and its stack if one was dumped.
    """
    found = collectives(launch)
    if not found or last_served(launch) > found[-1].line:
        return
    first = found[0]
    earlier = [
        fault
        for fault in faults(launch)
        if fault.role is Role.ROOT
        and fault.line < first.line
        and "collective operation timeout" not in fault.headline
    ]
    size = f", NumelIn={first.elements}" if first.elements is not None else ""
    limit = f" within {first.limit} ms" if first.limit is not None else ""
    ranks = _named(one.rank for one in found)
    notes = [_absent(launch, found), last_state(launch, first.line)]
    if earlier:
        notes.append(f"a process had died before, at line {earlier[0].root_line}")
    message = (
        f"{first.operation} (SeqNum={first.number}{size}) did not end{limit}{f' on {ranks}' if ranks else ''}"
        + "".join(f"; {note}" for note in notes if note)
        + "."
    )
    yield Finding(
        Severity.WARNING if earlier else Severity.ERROR,
        message,
        launch.evidences(one.line for one in found[:4]),
        cause=None if earlier else "dist.collective_timeout",
        fix="look at the rank that did not arrive: its last lines, and its stack if one was dumped",
        root=None if earlier else launch.evidence(first.line),
        weight=2,
    )


def _absent(launch: Launch, found: list[Collective]) -> str | None:
    """Say which ranks did not come to the collective, as far as the log tells."""
    behind = [
        rank for rank, (last, _) in queued(launch).items() if rank is not None and last < found[0].number
    ]
    if behind:
        return f"{_named(behind)} had not come to it"
    numbers = {one.number for one in found}
    if len(numbers) > 1:
        least = min(found, key=lambda one: one.number)
        return f"rank {least.rank} stands at another one, {least.operation} (SeqNum={least.number})"
    size = launch.argument("tp_size")
    reported = {int(one.rank) for one in found if one.rank is not None}
    if not isinstance(size, int) or len(reported) < 2 or not size - 2 <= len(reported) < size:
        return None
    missing = _named(str(rank) for rank in range(size) if rank not in reported)
    return f"no report from {missing}: it did not arrive, or its lines are missing"


def _named(ranks: Iterable[str | None]) -> str:
    """Name ranks by their numbers; nothing when none is known."""
    known = [rank for rank in ranks if rank is not None]
    return f"rank{'s' if len(known) > 1 else ''} {rank_spread(known)}" if known else ""
