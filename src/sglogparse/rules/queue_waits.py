"""Requests that wait though the KV pool has room."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sglogparse._launches import Launch, most
from sglogparse._ranks import on_ranks, rank_list
from sglogparse._report import Finding, Severity
from sglogparse._serving import Run, lasting, number, runs, statuses, within

#: Below this share of the pool in use memory does not hold requests back.
_IDLE = 0.5
#: A queue that matters: a few requests that arrive together are in the next batch.
_QUEUE = 16
#: How long it must last: a burst is taken into batches within seconds.
_LASTS = 10.0
#: And stay: of a burst that is taken in, the queue gets shorter and shorter.
_STAYS = 0.75
#: How many batches must show it where no stamps tell the time.
_BATCHES = 5


def queue_waits(launch: Launch) -> Iterator[Finding]:
    """Report requests that wait in the queue though the KV pool is not half full.

    What it finds:
        Batch after batch with at least 16 requests queued, more than run, and less than half of the pool in
        use, for 10 s or longer; a decode batch among them.

    Why it matters:
        Something else than memory holds requests back: a limit of running requests, prefills that are slow, a
        grammar that is compiled. Latency rises by the time in the queue.

    Evidence:
        The decode batch with the longest queue, and the first and last batch of that state.

    Does not match:
        A burst that is taken in (the queue gets shorter), an episode of seconds in a long log, a queue behind
        a full pool (K001, K002), and a server that runs as many requests as it was told to at the most
        (--max-running-requests).

    What to do:
        Raise --max-running-requests when the running ones stay at a limit; else look how long prefills take.
    """
    frame = statuses(launch)
    if (most(frame, "queue_req") or 0.0) < _QUEUE:
        return
    waits = (pl.col("queue_req") >= _QUEUE) & (pl.col("queue_req") > pl.col("running_req"))
    found = lasting(frame, runs(frame, waits & (pl.col("usage") < _IDLE)))
    found = [run for run in found if _lasts(frame, run)]
    if not found:
        return
    run = found[0]
    rows = within(frame, run)
    worst = rows.filter("decode").sort("queue_req", descending=True).row(0, named=True)
    limit, running = _limit(launch), most(rows, "running_req")
    if limit is not None and running is not None and running >= limit:
        return
    speed = f" at {number(worst['gen_throughput'])} tokens/s" if worst["gen_throughput"] is not None else ""
    lasted = f" for {run.span:.0f} s" if run.span else f" in {run.batches} batches"
    yield Finding(
        Severity.WARNING,
        f"Requests wait though the KV pool is idle{on_ranks([run.rank])}{lasted}: "
        f"#queue-req: {number(worst['queue_req'])} while {number(worst['running_req'])} run{speed}, "
        f"usage {worst['usage']:.2f}.",
        launch.evidences([run.first, worst["line"], run.last]),
        cause="perf.degraded",
        fix="raise --max-running-requests if those that run stay at a limit; else see how long prefills take",
        ranks=rank_list([run.rank]),
        root=launch.evidence(worst["line"]),
        fatal=False,
    )


def _lasts(frame: pl.DataFrame, run: Run) -> bool:
    """Tell whether a queue stays: for some time, in decode batches too, and without getting shorter."""
    long = run.span >= _LASTS if run.span is not None else run.batches >= _BATCHES
    if not long or not run.decodes:
        return False
    queue = within(frame, run)["queue_req"].drop_nulls()
    return bool(queue[-1] >= _STAYS * queue[0])


def _limit(launch: Launch) -> int | None:
    """Return how many requests may run at once, as the server or its arguments say."""
    given = launch.argument("max_running_requests")
    shown = launch.frames["capacity"]["max_running_requests"].drop_nulls()
    return int(shown[0]) if not shown.is_empty() else given if isinstance(given, int) else None
