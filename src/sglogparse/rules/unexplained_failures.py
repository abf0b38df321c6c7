"""Lines that speak of failure and that no rule explains."""

from __future__ import annotations

from collections.abc import Iterator

from sglogparse._faults import faults, trouble
from sglogparse._launches import Launch
from sglogparse._report import Finding, Severity


def unexplained_failures(launch: Launch) -> Iterator[Finding]:
    """Report lines that speak of a failure which no other rule explains.

    What it finds:
        Records and foreign lines with words of failure (error, failed, exception, timed out, ...), in a launch
        without a fault that explains them.

    Why it matters:
        Silence of the rules is not health. Many such lines are harmless (an optional import, a retry); some are
        the fault itself, in words that no rule knows yet.

    Evidence:
        The first and the last of these lines, and how many there are.

    Does not match:
        Launches in which a process died: there the words of failure follow from it. Warnings, and notices of a
        feature that is disabled or falls back.

    What to do:
        Read them.
    """
    if faults(launch):
        return
    lines = trouble(launch, grave=False)
    if not lines:
        return
    several = len(lines) > 1
    yield Finding(
        Severity.INFO,
        f"{len(lines)} line{'s' if several else ''} speak{'' if several else 's'} of failures that no rule explains, "
        f"the first at line {lines[0]}.",
        launch.evidences([lines[0], lines[-1]]),
    )
