"""A watchdog that fired."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sglogparse._launches import Launch, rank_spread
from sglogparse._report import Finding, Severity


def watchdog_fired(launch: Launch) -> Iterator[Finding]:
    """Report a watchdog that saw no progress for longer than its limit.

    What it finds:
        "Watchdog timeout (self.watchdog_timeout=300)" of the scheduler, tokenizer or detokenizer.

    Why it matters:
        A forward pass, a collective or a transfer is stuck. The process is then killed, so what follows is echo.

    Evidence:
        The first watchdog line and the ranks that print one.

    Does not match:
        Soft watchdogs (they only report: a warning), and the watchdog of a process group.

    What to do:
        Find the rank that stopped first (its stack is in the dump that follows) and what it waits for.
    """
    frame = launch.frames["watchdog_timeout"]
    if frame.is_empty():
        return
    hard = frame.filter(~pl.col("soft").fill_null(False))
    shown = hard if not hard.is_empty() else frame
    ranks = rank_spread(shown["rank"])
    line = int(shown["line"][0])
    limit = shown["watchdog_limit"][0]
    yield Finding(
        Severity.ERROR if not hard.is_empty() else Severity.WARNING,
        f"No progress for {limit:g} s: the watchdog fired" + (f" on {ranks}." if ranks else "."),
        launch.evidences([line]),
        cause="hang.watchdog",
        fix="find the rank that stopped first; its stack is in the dump that follows the line",
        ranks=tuple(one for one in ranks.split(", ") if one),
        root=launch.evidence(line) if not hard.is_empty() else None,
        weight=2,
    )
