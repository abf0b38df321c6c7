"""Lines that speak of failure and that no rule explains."""

from __future__ import annotations

from collections.abc import Iterator

from sglogparse._faults import faults, trouble
from sglogparse._launches import Launch, first_line
from sglogparse._report import Finding, Severity
from sglogparse.rules.router_without_workers import router_without_workers
from sglogparse.rules.transfer_devices_failed import transfer_devices_failed


def unexplained_failures(launch: Launch) -> Iterator[Finding]:
    """Report lines that speak of a failure which no other rule explains.

    What it finds:
        Records and foreign lines with words of failure (error, failed, exception, timed out, ...), in a
        launch without a fault that explains them.

    Why it matters:
        Silence of the rules is not health. Words that mean the end of a process (a segmentation fault, a CUDA
        error) are a warning; other words of failure are mostly harmless (an optional import, a retry), but
        may be the fault itself in words that no rule knows yet.

    Evidence:
        The first and the last of these lines, and how many there are.

    Does not match:
        Words before the ready line, and those of other programs (test runners, package managers, kubectl).
        Launches in which a process died: there the words of failure follow from it. Warnings, and notices of
        a feature that is disabled or falls back.

    What to do:
        Read them.
    """
    if faults(launch):
        return
    grave = trouble(launch, grave=True)
    ready = first_line(launch.frames["ready"]) or 0
    # what was said before the server came up did not keep it from that
    lines = grave or [line for line in trouble(launch, grave=False) if line > ready]
    lines = _left(launch, lines)
    if not lines:
        return
    several = len(lines) > 1
    what = "a grave failure" if grave else "failures"
    yield Finding(
        Severity.WARNING if grave else Severity.INFO,
        f"{len(lines)} line{'s' if several else ''} speak{'' if several else 's'} of {what}, "
        f"and no rule explains {'them' if several else 'it'}; the first is line {lines[0]}.",
        launch.evidences([lines[0], lines[-1]]),
        root=launch.evidence(lines[0]),
        fatal=False,
    )


def _left(launch: Launch, lines: list[int]) -> list[int]:
    """Return the lines that are not of a family whose failures another rule has told."""
    told: tuple[str, ...] = ()
    for rule, names in (
        (router_without_workers, ("router",)),
        (transfer_devices_failed, ("mooncake", "nixl", "ucx", "rdma")),
    ):
        told += names if next(rule(launch), None) is not None else ()
    if not told:
        return lines
    kinds = launch.lines["kind"].gather([launch.row(line) for line in lines])
    return [line for line, own in zip(lines, kinds.is_in(told).fill_null(False), strict=True) if not own]
