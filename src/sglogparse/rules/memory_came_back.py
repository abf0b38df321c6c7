"""Free memory that rises during a start."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any

import polars as pl

from sglogparse._cheap import dataclass
from sglogparse._launches import Launch, least
from sglogparse._ranks import on_ranks, rank_list
from sglogparse._report import Finding, Severity
from sglogparse.ledger.readings import Rank, read_ranks
from sglogparse.ledger.window import free_lines, middle, short_of_memory

#: A start gives little back: buffers of loading, and on an NPU up to 3.4 GiB behind a draft's pool and its
#: captures; on a machine with unified memory other programs come and go. More than this is a program's.
_BACK_GIB = Fraction(5)
#: The same as a share of the most that was free: the machines with the largest drift are the large ones.
_BACK_SHARE = Fraction(6, 100)
#: A usage is a difference of two measurements: unified memory drifts by tenths of a GiB, not by more than
#: this.
_NEGATIVE = -1.0
#: Events that print a usage.
_USAGES = ("dist_init_end", "load_weight_end", "graph_capture_end")


def memory_came_back(launch: Launch) -> Iterator[Finding]:
    """Report free memory that rises during a start, and a usage below zero.

    What it finds:
        On one rank, a line with far more free memory than the line before it, or a "mem usage" that is
        clearly negative.

    Why it matters:
        A start only takes memory. What came back was another process's, which ended meanwhile: the numbers
        before it, and the budget that rests on them, are too small. Or the lines are of two processes.

    Evidence:
        The line before and the line after the rise, or the line with the negative usage.

    Does not match:
        What a start itself gives back: buffers of loading, and on an NPU some GiB behind a draft's pool. The
        drift of machines whose memory is shared with the host, and a usage of -0.01.

    What to do:
        Start again when the other process is gone (`nvidia-smi` shows it): the pools become larger. If two
        processes write to this log, read their lines apart.
    """
    rises = [rise for rank in read_ranks(launch) if (rise := _largest(rank)) is not None]
    severity = Severity.WARNING if short_of_memory(launch) else Severity.INFO
    if rises:
        first = max(rises, key=lambda rise: rise.size)
        ranks = rank_list(rise.rank for rise in rises)
        more = f" ({len(rises)} ranks in all)" if len(rises) > 1 else ""
        yield Finding(
            severity,
            f"Free memory{on_ranks([first.rank])} rises from {first.before} to {first.after} GiB "
            f"between line "
            f"{first.lines[0]} and line {first.lines[1]}{more}: another process left the device "
            f"meanwhile, or "
            "these are lines of two processes.",
            launch.evidences(line for rise in rises[:4] for line in rise.lines),
            fix="see with `nvidia-smi` what else uses the device, and start again when it is alone",
            ranks=ranks,
        )
    yield from _negative(launch, severity, {rise.lines[1] for rise in rises})


@dataclass(frozen=True)
class _Rise:
    rank: str | None
    before: str
    after: str
    size: Fraction
    lines: tuple[int, int]


def _largest(rank: Rank) -> _Rise | None:
    """Return the largest rise of a rank that no start explains."""
    lines = sorted((number for _, number in free_lines(rank)), key=lambda number: number.line)
    if len(lines) < 2:
        return None
    least = max(_BACK_GIB, _BACK_SHARE * max(middle(one) for one in lines))
    rises = [
        _Rise(rank.name, one.text, two.text, middle(two) - middle(one), (one.line, two.line))
        for one, two in pairwise(lines)
        if one.line < two.line
    ]
    largest = max(rises, key=lambda rise: rise.size, default=None)
    return largest if largest and largest.size > least else None


def _negative(launch: Launch, severity: Severity, told: set[int]) -> Iterator[Finding]:
    found = [
        (row["line"], row["rank"], row["mem_usage"])
        for kind in _USAGES
        for row in _below_zero(launch, kind)
        if row["line"] not in told
    ]
    if not found:
        return
    line, rank, usage = min(found, key=lambda one: one[0])
    more = f", and {len(found) - 1} more like it" if len(found) > 1 else ""
    yield Finding(
        severity,
        f"A step{on_ranks([rank])} took {usage} GiB (line {line}{more}): a step cannot give "
        "memory back, so another process left the device meanwhile.",
        launch.evidences(line for line, _, _ in found[:4]),
        fix="see with `nvidia-smi` what else uses the device, and start again when it is alone",
        ranks=rank_list(rank for _, rank, _ in found),
    )


def _below_zero(launch: Launch, kind: str) -> list[dict[str, Any]]:
    frame = launch.frames[kind]
    if (least(frame, "mem_usage") or 0.0) >= _NEGATIVE:
        return []
    return launch.printed(kind, frame.filter(pl.col("mem_usage") < _NEGATIVE)["line"])
