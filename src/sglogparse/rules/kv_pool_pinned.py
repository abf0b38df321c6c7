"""A KV pool that stays full."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sglogparse._launches import Launch, most
from sglogparse._ranks import on_ranks, rank_list
from sglogparse._report import Finding, Severity
from sglogparse._serving import decodes, lasting, number, runs, within

#: A pool is full when not one page in a hundred is free: the next long prompt does not fit.
_FULL = 0.99
#: Batches that must show it one behind the other with requests queued, and without.
_WITH_QUEUE = 2
_WITHOUT_QUEUE = 10


def kv_pool_pinned(launch: Launch) -> Iterator[Finding]:
    """Report a KV pool that stays full while requests wait, or that never empties.

    What it finds:
        Decode batches one behind the other with 0.99 or more of a pool in use: two with requests queued, or
        ten without.

    Why it matters:
        What is queued waits until a running request ends, and the prefix cache keeps nothing. Of a hybrid
        model one pool can be full while the other is idle: the split is wrong for this traffic.

    Evidence:
        The first and the last batch of the longest such run.

    Does not match:
        High usage below 0.99, as a busy server has it, a single full batch, and a few in a long log.

    What to do:
        Admit fewer requests (--max-running-requests), give the pool more memory (--mem-fraction-static,
        --kv-cache-dtype), or change the split of the pools (--swa-full-tokens-ratio).
    """
    frame = decodes(launch)
    if (most(frame, "usage") or 0.0) < _FULL:
        return
    full = pl.col("usage") >= _FULL
    queued = full & (pl.col("queue_req") > 0)
    found = [run for run in runs(frame, queued) if run.batches >= _WITH_QUEUE] or [
        run for run in runs(frame, full) if run.batches >= _WITHOUT_QUEUE
    ]
    found = lasting(frame, found)
    if not found or not launch.frames["retraction"].is_empty():  # K001 speaks of it
        return
    run = found[0]
    rows = within(frame, run)
    queue, running = most(rows, "queue_req"), most(rows, "running_req")
    lasted = f" over {run.span:.0f} s" if run.span else ""
    yield Finding(
        Severity.WARNING,
        f"The KV pool stays full{on_ranks([run.rank])}: usage {most(rows, 'usage'):.2f} "
        f"in {run.batches} decode batches{lasted}"
        + (f", {number(running)} running" if running is not None else "")
        + (f", up to {number(queue)} queued" if queue else "")
        + ".",
        launch.evidences([run.first, run.last]),
        cause="kv.pool_exhausted",
        fix="lower --max-running-requests, or give the pool more memory (--mem-fraction-static)",
        ranks=rank_list([run.rank]),
        root=launch.evidence(run.first),
        fatal=False,
    )
