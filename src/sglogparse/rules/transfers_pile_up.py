"""Requests whose KV cache waits for its transfer."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sglogparse._launches import Launch, most
from sglogparse._ranks import on_ranks, rank_list
from sglogparse._report import Finding, Severity
from sglogparse._serving import number, runs, statuses, within

#: The pool is held by them when it is this full.
_FULL = 0.9
#: And when so many wait for their transfer: a few batches' worth always do.
_WAITING = 64
#: Prefill batches that must show it one behind the other.
_BATCHES = 3


def transfers_pile_up(launch: Launch) -> Iterator[Finding]:
    """Report a prefill server whose pool is held by requests that wait for the transfer of their KV cache.

    What it finds:
        Three prefill batches one behind the other with 64 requests or more in transfer, 0.9 or more of the
        pool in use, and requests queued (PD disaggregation).

    Why it matters:
        The decode side takes KV caches more slowly than this side makes them: prefill stops when the pool is
        full, and the time to the first token grows.

    Evidence:
        The first and the last of these batches, and the numbers of the last.

    Does not match:
        A pool that is full of running requests, and transfers that are many while the pool has room.

    What to do:
        Add decode servers, or give the transfer more bandwidth (--disaggregation-ib-device).
    """
    if (most(statuses(launch), "waiting") or 0.0) < _WAITING:
        return
    frame = statuses(launch).filter(~pl.col("decode"))
    piled = (pl.col("waiting") >= _WAITING) & (pl.col("usage") >= _FULL) & (pl.col("queue_req") > 0)
    found = [run for run in runs(frame, piled) if run.batches >= _BATCHES]
    if not found:
        return
    run = found[0]
    last = within(frame, run).row(-1, named=True)
    yield Finding(
        Severity.WARNING,
        f"{number(last['waiting'])} requests wait for the transfer of their KV cache{on_ranks([run.rank])} "
        f"and hold the pool: usage {last['usage']:.2f}, {number(last['queue_req'])} more queued.",
        launch.evidences([run.first, run.last]),
        cause="perf.degraded",
        fix="add decode servers, or give the transfer more bandwidth (--disaggregation-ib-device)",
        ranks=rank_list([run.rank]),
        root=launch.evidence(run.last),
        fatal=False,
    )
