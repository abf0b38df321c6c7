"""One rank that is slower than the others."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import polars as pl

from sglogparse._derived import Whole, throughout
from sglogparse._launches import Launch
from sglogparse._ranks import rank_list
from sglogparse._report import Finding, Severity
from sglogparse._serving import decodes, number

#: A rank is slow when it makes less than half the tokens of the median of the others.
_SLOW = 0.5
#: Beyond this nobody need compute it as exactly.
_CLEARLY = 1.01
#: And when it runs about as many requests as they do.
_ALIKE = 0.25
#: With fewer ranks nobody can say which one is odd.
_RANKS = 3
#: Batches a rank, without which a slow one is chance: the first after a pause counts the pause too.
_BATCHES = 8
#: The accept length does not count pauses: so far below the others' it explains even one slow batch.
_ACCEPTS = 0.6


def rank_slower(launch: Launch) -> Iterator[Finding]:
    """Report a data-parallel rank that decodes at under half the speed of the others.

    What it finds:
        Of three or more ranks that print decode batches, one whose median generation throughput is under half
        of the others' median at about the same number of requests, in eight batches or more; or in fewer,
        when its accept length explains it.

    Why it matters:
        Ranks that meet in collectives (DP attention, expert parallelism) wait for the slowest. An accept
        length that differs on one rank means that its draft model works on other data or weights.

    Evidence:
        A batch of the slow rank (the one nearest to its median), and one of another rank.

    Does not match:
        Ranks with fewer requests than the others, and a few slow batches.

    What to do:
        See that rank's device (clocks, temperature, other processes, its link), and its accept length.
    """
    own = _medians(launch)
    if own.height < _RANKS or _alike(own["gen_throughput"].to_list()):
        return
    frame = _running(launch)
    for rank in own.sort("gen_throughput").head(1).iter_rows(named=True):
        others = own.filter(pl.col("rank") != rank["rank"])
        speed, running, accepts = (
            others[name].median() for name in ("gen_throughput", "running_req", "accept_len")
        )
        if not isinstance(speed, float) or not isinstance(running, float) or rank["running_req"] is None:
            return
        alike = abs(rank["running_req"] - running) <= _ALIKE * running
        short = (
            isinstance(accepts, float)
            and rank["accept_len"] is not None
            and rank["accept_len"] < _ACCEPTS * accepts
        )
        sure = min(rank["batches"], others["batches"].min() or 0) >= _BATCHES
        if rank["gen_throughput"] >= _SLOW * speed or not alike or not (sure or short):
            return
        line = _typical(frame, rank["rank"], rank["gen_throughput"])
        other = _typical(frame, others["rank"][0], speed)
        because = (
            f"; its accept length is {number(rank['accept_len'])}, theirs {number(accepts)}" if short else ""
        )
        yield Finding(
            Severity.WARNING,
            f"{rank['rank']} decodes at {number(rank['gen_throughput'])} tokens/s, the other {others.height} "
            f"ranks at {number(speed)}, with about as many requests{because}.",
            launch.evidences([line, other]),
            cause="perf.degraded",
            fix=f"see the device of {rank['rank']} (clocks, other processes, its link)"
            + (", and why its draft tokens are refused" if short else ""),
            ranks=rank_list([rank["rank"]]),
            root=launch.evidence(line),
            fatal=False,
        )


def _typical(frame: pl.DataFrame, rank: str, speed: float) -> int:
    mine = frame.filter(pl.col("rank") == rank)
    return int(mine.sort((pl.col("gen_throughput") - speed).abs(), "line")["line"][0])


def _alike(speeds: list[float]) -> bool:
    """Tell whether the slowest rank is clearly not slow, so that nobody need look closer."""
    least, *others = sorted(speeds)
    return least > _CLEARLY * _SLOW * statistics.median(others)


@throughout
def _running(whole: Whole) -> pl.DataFrame:
    """Return the decode batches of ranks that made something."""
    return decodes.of(whole).filter(pl.col("rank").is_not_null() & (pl.col("gen_throughput") > 0))


@throughout
def _medians(whole: Whole) -> pl.DataFrame:
    """Return how many batches each rank of a launch ran, and their medians."""
    frame = _running.of(whole)
    frame = frame.with_columns(whole.launch.gather(frame["row"]))
    return (
        frame.group_by("launch", "rank", maintain_order=True)
        .agg(
            pl.len().alias("batches"),
            pl.col("gen_throughput", "running_req", "accept_len").median(),
            pl.col("row").first(),
        )
        .sort("row")
    )
