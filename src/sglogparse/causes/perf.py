"""A server that serves, and not as it could."""

from __future__ import annotations

from sglogparse.causes._base import TOLD, Cause, Sign

CAUSES = (
    Cause(
        "perf.degraded",
        "degraded performance",
        means="The server serves without a fault, and its numbers show trouble: a queue that grows, a pool "
        "that "
        "is nearly full, graphs that are off, one rank that is slower, drafts that are not accepted.",
        differs="Requests that were retracted are kv.pool_exhausted; progress that stopped is hang.watchdog.",
        change="see the numbers in the finding: the queue, the usage of the pool, the slowest rank",
        signs=(
            Sign(
                TOLD,
                (
                    "performance might be sub-optimal",
                    "performance may be sub-optimal",
                    "performance may be suboptimal",
                    "huge performance loss",
                    "significantly slower",
                    "throughput dropped",
                ),
                unless=("possible solutions", "failed", "exception"),
            ),
        ),
    ),
)
