"""A KV pool that is full."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import polars as pl

from sglogparse._launches import Launch
from sglogparse._ranks import on_ranks, rank_list
from sglogparse._report import Finding, Severity
from sglogparse.causes._evidence import advice

#: So many retractions a minute are a storm: what is computed is taken back before it is done.
_STORM = 6


def kv_pool_full(launch: Launch) -> Iterator[Finding]:
    """Report requests that were taken back because the KV pool was full.

    What it finds:
        "KV cache pool is full. Retract requests." and its older form "Decode out of memory happened.".

    Why it matters:
        A retracted request loses its KV cache and is computed again: throughput falls, latency rises. Nothing
        is lost, unless a request was aborted for it (the line counts those).

    Evidence:
        The first and the last retraction, how many there were, and on which ranks.

    Does not match:
        Allocation failures that end the server (P001), and pool usage that is high without a retraction.

    What to do:
        Admit fewer requests (--max-running-requests), be more careful (--schedule-conservativeness above 1),
        or give the pool more memory (--mem-fraction-static, --kv-cache-dtype).
    """
    frame = launch.frames["retraction"]
    if frame.is_empty():
        return
    # all ranks of a DP group print the same retractions: the rank that prints most of them has them all
    ranks = frame.group_by("dp", "rank").agg(pl.len(), pl.col("retracted", "aborted").sum())
    fullest = ranks.sort("len", "rank").group_by("dp").last()
    total = fullest.select(pl.col("len", "retracted", "aborted").sum()).row(0, named=True)
    times = f"{total['len']} times" if total["len"] > 1 else "once"
    if launch.dropped(pl.col("kind") == "retraction"):  # some of them were counted only
        times = f"more than {times}"
    requests = f"{total['retracted']} request{'s' if total['retracted'] != 1 else ''}"
    yield Finding(
        Severity.WARNING,
        f"The KV pool was full {times}{on_ranks(frame['rank'])}: {requests} retracted"
        + (f", {total['aborted']} aborted" if total["aborted"] else "")
        + _storm(frame)
        + f" (#retracted_reqs: {frame['retracted'][0]} the first time).",
        launch.evidences([frame["line"][0], frame["line"][-1]]),
        cause="kv.pool_exhausted",
        fix=advice(launch, "kv.pool_exhausted"),
        ranks=rank_list(frame["rank"]),
        root=launch.evidence(int(frame["line"][0])),
    )


def _storm(frame: pl.DataFrame) -> str:
    """Say how many retractions came within one minute, where that is a storm: the same requests, again."""
    times = frame["time"].drop_nulls().unique().sort()
    if len(times) < _STORM:
        return ""
    last = times.search_sorted(times + dt.timedelta(minutes=1), side="right")
    most = (last - pl.int_range(len(times), eager=True)).max()
    return f", up to {most} times within one minute" if isinstance(most, int) and most >= _STORM else ""
