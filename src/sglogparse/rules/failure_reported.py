"""Failures that the server reports of itself and lives on with."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sglogparse._derived import Whole, telling
from sglogparse._faults import faults, stopped_at
from sglogparse._launches import Launch, serves_again
from sglogparse._ranks import on_ranks, rank_list
from sglogparse._report import Finding, Severity

#: Event -> what it is called, the cause it names, and what to look at.
_REPORTS: dict[str, tuple[str, str, str]] = {
    "pool_exhausted": (
        "a batch found no room in the KV pool",
        "kv.pool_exhausted",
        "lower --max-running-requests, or give the pool more memory (--mem-fraction-static)",
    ),
    "memory_leak": (
        "tokens or slots of the pools were not given back",
        "memory.leak",
        "report it as a bug of the server, with the numbers in the line; a restart helps for a time",
    ),
    "prefill_lost": (
        "a prefill server was lost",
        "pd.transfer",
        "look in the log of that prefill server at this time: whether it ended, or cannot be reached",
    ),
    "pd_timeout": (
        "requests waited too long for the other side",
        "pd.transfer",
        "look in the log of the other side at this time: is it overloaded, has it ended, can it be reached",
    ),
    "room_failed": (
        "the transfer of a KV cache failed",
        "pd.transfer",
        "look in the log of the other side at this time, and at the transfer devices",
    ),
    "bootstrap_failed": (
        "the bootstrap server could not be reached",
        "pd.bootstrap",
        "see that the prefill server is up, and that its bootstrap port can be reached from here",
    ),
}
#: What is looked for when nothing runs, and ends nothing unless an exception says so.
_MILD = ("memory_leak",)
#: The same as a warning of Python's, and in the answer that a client has printed.
_QUOTED = {
    "memory_leak": r"UserWarning: .*pool.* leak detected!",
    "room_failed": r"\"type\": ?\"abort\", ?\"message\": ?\"(?:Prefill|Decode) transfer failed",
}


def failure_reported(launch: Launch) -> Iterator[Finding]:
    """Report failures that the server itself reports, and does not end with.

    What it finds:
        "Prefill out of memory", a pool that leaks, a prefill server that was lost, requests that waited too
        long for the other side of a PD deployment, transfers that failed, a bootstrap server that cannot be
        reached.

    Why it matters:
        Requests fail or wait. When the server serves on, it is a warning; when nothing is served after it, it
        is the last that is known.

    Evidence:
        The first and the last line of each kind, and how many there are.

    Does not match:
        Launches in which a process died (P001): there the exception says the same. What comes after the
        server was asked to stop.

    What to do:
        What the finding says of its kind.
    """
    if faults(launch):
        return
    stop = stopped_at(launch) or launch.last_line + 1
    for kind, (what, cause, fix) in _REPORTS.items():
        quoted = _quoted(launch).filter(pl.col("kind") == kind)
        if launch.frames[kind].is_empty() and quoted.is_empty():
            continue
        frames = [launch.frames[kind].select("line", "rank"), quoted.select("line", "rank")]
        frame = pl.concat(frames).sort("line").filter(pl.col("line") < stop)
        if frame.is_empty():
            continue
        last = int(frame["line"][-1])
        goes_on = serves_again(launch, last)
        times = f" {frame.height} times" if frame.height > 1 else ""
        yield Finding(
            Severity.WARNING if goes_on or kind in _MILD else Severity.ERROR,
            f"The server reports{times} that {what}{on_ranks(frame['rank'])}"
            + ("." if goes_on else "; the log shows nothing served since."),
            launch.evidences([int(frame["line"][0]), last]),
            cause=cause,
            fix=fix,
            ranks=rank_list(frame["rank"]),
            root=launch.evidence(int(frame["line"][0])),
            fatal=False,
        )


@telling
def _quoted(whole: Whole) -> pl.DataFrame:
    """Return the lines, taken by no event, in which a report stands."""
    foreign = whole.frames["foreign"]
    some = foreign.select("line", "rank", "message").with_columns(whole.rows_of(foreign))
    parts = [
        some.filter(pl.col("message").str.contains(pattern)).select(
            "row", "line", "rank", pl.lit(kind).alias("kind")
        )
        for kind, pattern in _QUOTED.items()
    ]
    return pl.concat(parts).sort("row")
