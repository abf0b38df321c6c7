"""A KV pool that is full."""

from __future__ import annotations

from collections.abc import Iterator

from sglogparse._launches import Launch, rank_spread
from sglogparse._report import Finding, Severity


def kv_pool_full(launch: Launch) -> Iterator[Finding]:
    """Report requests that were taken back because the KV pool was full.

    What it finds:
        "KV cache pool is full. Retract requests." and its older form "Decode out of memory happened.".

    Why it matters:
        A retracted request loses its KV cache and is computed again: throughput falls, latency rises. Nothing is
        lost, unless a request was aborted for it (the line counts those).

    Evidence:
        The first and the last retraction, how many there were, and on which ranks.

    Does not match:
        Allocation failures that end the server (P001).

    What to do:
        Admit fewer requests (--max-running-requests), be more careful (--schedule-conservativeness above 1), or
        give the pool more memory (--mem-fraction-static, --kv-cache-dtype).
    """
    frame = launch.frames["retraction"]
    if frame.is_empty():
        return
    ranks = rank_spread(frame["rank"])
    requests = frame["retracted"].sum()
    aborted = frame["aborted"].sum()
    plural = "s" if frame.height > 1 else ""
    yield Finding(
        Severity.WARNING,
        f"The KV pool was full {frame.height} time{plural}: #retracted_reqs: {frame['retracted'][0]} at first, "
        f"{requests} requests in all" + (f" on {ranks}" if ranks else "") + (f", {aborted} aborted" if aborted else "") + ".",
        launch.evidences([frame["line"][0], frame["line"][-1]]),
        cause="kv.pool_exhausted",
        fix="lower --max-running-requests, raise --schedule-conservativeness, or give the pool more memory",
        ranks=tuple(one for one in ranks.split(", ") if one),
        root=launch.evidence(int(frame["line"][0])),
    )
