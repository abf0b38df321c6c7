"""A server that cannot answer its own health check."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sglogparse._faults import faults, last_served, stopped_at
from sglogparse._launches import Launch
from sglogparse._ranks import on_ranks, rank_list
from sglogparse._report import Finding, Severity
from sglogparse._serving import statuses

#: So many prefill batches without a decode batch hold up all that decodes.
_PREFILLS = 4


def health_check_failed(launch: Launch) -> Iterator[Finding]:
    """Report health checks that the server could not answer in time.

    What it finds:
        "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds", and the
        later wordings of it.

    Why it matters:
        The HTTP process lives, but the scheduler or the detokenizer gives no token. When nothing is served
        after the last one, the server hangs. When it goes on, something held it up: a long prefill, a
        weight update, a full queue.

    Evidence:
        The first failed check after which nothing is served, else the first one; how many there were.

    Does not match:
        Checks that fail after a process has died (P001), or after somebody asked the server to stop.

    What to do:
        Look what the scheduler did when the last heartbeat came: its last batch, its queue, the ranks that
        stopped. A longer --watchdog-timeout does not help.
    """
    frame = launch.frames["health_check_failed"]
    stop = stopped_at(launch)
    frame = frame if stop is None else frame.filter(pl.col("line") < stop)
    if frame.is_empty() or faults(launch):
        return
    behind = frame.filter(pl.col("line") > last_served(launch))
    shown = (frame if behind.is_empty() else behind).row(0, named=True)
    times = f"{frame.height} times" if frame.height > 1 else "once"
    waited = f" for {shown['waited']:g} s" if shown["waited"] is not None else ""
    heartbeat = f", last heartbeat {shown['heartbeat_time']}" if shown["heartbeat_time"] else ""
    yield Finding(
        Severity.WARNING if behind.is_empty() else Severity.ERROR,
        f"The health check failed {times}{on_ranks(frame['rank'])}: no answer{waited}{heartbeat}"
        f"{_long_prefill(launch, int(shown['line']))}; "
        + ("the server served again" if behind.is_empty() else "the log shows nothing served since"),
        launch.evidences([int(shown["line"]), int(frame["line"][-1])]),
        cause=None if behind.is_empty() else "hang.health_check",
        fix="look what the scheduler did at that time: its last batch, its queue, a rank that stopped",
        ranks=rank_list(frame["rank"]),
        root=None if behind.is_empty() else launch.evidence(int(shown["line"])),
        weight=1,
    )


def _long_prefill(launch: Launch, line: int) -> str:
    """Say how many prefill batches came one behind the other, without a decode batch, before a failed check.

    The token of a health check is made in a decode batch: prefills hold it up.
    """
    before = statuses(launch).filter(pl.col("line") < line)
    decoded = before.filter("decode")["line"].max()
    prefills = before.filter(~pl.col("decode") & (pl.col("line") > (decoded or 0)))
    if prefills.height < _PREFILLS:
        return ""
    tokens = int(prefills["new_token"].sum())
    return f"; before it {prefills.height} prefill batches ({tokens} tokens) ran without a decode batch"
