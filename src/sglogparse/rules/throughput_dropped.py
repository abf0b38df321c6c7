"""Throughput that fell and stayed low."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sglogparse._launches import Launch, least, most
from sglogparse._phases import seconds
from sglogparse._ranks import on_ranks, rank_list
from sglogparse._report import Finding, Severity
from sglogparse._serving import Run, decodes, number, runs, within

#: A drop is to less than this share of what the same rank made before with as many requests.
_SHARE = 0.4
#: It must last: a checkpoint, a profile or a burst of prefills is over sooner.
_LASTS = 60.0
_BATCHES = 10
#: How many batches tell what is usual.
_USUAL = 20


def throughput_dropped(launch: Launch) -> Iterator[Finding]:
    """Report decode throughput that fell far below what the same server made before, and stayed there.

    What it finds:
        Ten decode batches or more, over a minute or longer, each under 0.4 of the rank's own median at a like
        number of requests (within a factor of two), with no prefill between them.

    Why it matters:
        The load has not changed and the server has: clocks that fell, another process on the device, a pool
        that is full, a peer that is slow.

    Evidence:
        The first and the last batch of the drop, with its time; what else changed then: retractions, usage,
        graphs, accept length.

    Does not match:
        Slower batches while prefills are mixed in, with fewer requests, or for a few seconds.

    What to do:
        Look at what changed at that time; `nvidia-smi -q -d CLOCK,PERFORMANCE` tells whether clocks fell.
    """
    every = decodes(launch)
    if every.height < _USUAL + _BATCHES or (most(every, "at") or 0.0) - (least(every, "at") or 0.0) < _LASTS:
        return
    frame = every.filter((pl.col("gen_throughput") > 0) & (pl.col("running_req") > 0))
    if frame.height < _USUAL + _BATCHES or frame["at"].null_count() == frame.height:
        return
    bucket = pl.col("running_req").log(2).round()
    usual = pl.col("gen_throughput").median().over("rank", bucket)
    known = pl.len().over("rank", bucket) >= _USUAL
    frame = frame.with_columns(usual=usual, known=known)
    low = pl.col("known") & (pl.col("gen_throughput") < _SHARE * pl.col("usual"))
    prefills = launch.frames["prefill_batch"]["line"]
    for run in runs(frame, low):
        if run.batches < _BATCHES or (run.span or 0.0) < _LASTS:
            continue
        if prefills.is_between(run.first, run.last).any():
            continue
        yield _dropped(launch, frame, run)
        return


def _dropped(launch: Launch, frame: pl.DataFrame, run: Run) -> Finding:
    rows = within(frame, run)
    speed, before = rows["gen_throughput"].median(), rows["usual"].median()
    begun = seconds(launch)[launch.row(run.first)]
    return Finding(
        Severity.WARNING,
        f"Decode throughput fell to {number(speed)} tokens/s{on_ranks([run.rank])} for {run.span:.0f} s, "
        f"against a median of {number(before)} with as many requests, {begun:.0f} s after the first line"
        f"{_changes(frame, rows)}.",
        launch.evidences([run.first, run.last]),
        cause="perf.degraded",
        fix="look at what changed then; `nvidia-smi -q -d CLOCK,PERFORMANCE` tells whether clocks fell",
        ranks=rank_list([run.rank]),
        root=launch.evidence(run.first),
        fatal=False,
    )


def _changes(frame: pl.DataFrame, rows: pl.DataFrame) -> str:
    """Return what else was different in the batches of a drop."""
    told = []
    usage, accepts, usual = rows["usage"].max(), rows["accept_len"].median(), frame["accept_len"].median()
    if isinstance(usage, float) and usage >= 0.95:
        told.append(f"usage up to {usage:.2f}")
    if isinstance(accepts, float) and isinstance(usual, float) and accepts < 0.8 * usual:
        told.append(f"accept length {accepts:.2f} instead of {usual:.2f}")
    if rows["graphs"].any() is False and frame["graphs"].any():
        told.append("without graphs")
    return f"; at that time: {', '.join(told)}" if told else ""
