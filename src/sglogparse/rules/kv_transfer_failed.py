"""KV caches that did not get from prefill to decode."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sglogparse._launches import Launch
from sglogparse._ranks import on_ranks, rank_list
from sglogparse._report import Finding, Severity

#: Steps of a request that come before its transfer: the two sides do not find each other.
_MEETING = ("Prefill bootstrap", "Decode handshake")
#: What follows from another rank, or from a client that went away.
_ECHOES = r"Aborted by AbortReq|unknown reason from another rank"


def kv_transfer_failed(launch: Launch) -> Iterator[Finding]:
    """Report requests that were lost between prefill and decode (PD disaggregation).

    What it finds:
        "Prefill transfer failed for request", "Decode transfer failed for request", and the same of the
        bootstrap and the handshake that come before a transfer.

    Why it matters:
        The request fails, and the server goes on. When nothing is served after the last failure, the other
        side is gone, or cannot be reached any more: then every request fails.

    Evidence:
        The first failure whose reason is its own, and the last failure; how many there were, on which ranks.

    Does not match:
        A transfer that the client aborted is counted, but never more than a warning. A scheduler that ends
        with KVTransferError is P001.

    What to do:
        Look in the log of the other side at the time of the first failure: whether it ended, and whether its
        bootstrap port and its transfer devices (InfiniBand, TCP) can be reached from here.
    """
    frame = launch.frames["kv_transfer_failed"]
    if frame.is_empty():
        return
    own = frame.filter(~pl.col("detail").fill_null("").str.contains(_ECHOES))
    first = (own if not own.is_empty() else frame).row(0, named=True)
    last = int(frame["line"][-1])
    requests = max(frame["room"].n_unique(), 1)  # both sides name the room, each with its own request id
    gone = not own.is_empty() and not _serves_since(launch, frame)
    reason = f": {first['detail']}" if first["detail"] else ""
    more = "more than " if launch.dropped(pl.col("kind") == "kv_transfer_failed") else ""
    yield Finding(
        Severity.ERROR if gone else Severity.WARNING,
        f"{more}{requests} request{'s' if requests > 1 else ''} lost between prefill and decode"
        f"{on_ranks(frame['rank'])}{', and the log shows nothing served since' if gone else ''}; "
        f"{first['pd_step']} failed{reason}",
        launch.evidences([int(first["line"]), last]),
        cause="pd.bootstrap" if first["pd_step"] in _MEETING else "pd.transfer",
        fix="look in the log of the other side at that time: whether it ended, and whether its bootstrap "
        "port and its transfer devices can be reached from here",
        ranks=rank_list(frame["rank"]),
        root=launch.evidence(int(first["line"])),
        fatal=False,
    )


def _serves_since(launch: Launch, failures: pl.DataFrame) -> bool:
    """Tell whether a batch or an answer is later than all failures: by the stamps, else by the lines."""
    frames = launch.frames
    good = pl.concat(
        [
            frames["decode_batch"].select("line", "time"),
            frames["prefill_batch"].select("line", "time"),
            frames["http_access"].filter(pl.col("status") < 300).select("line", "time"),
        ]
    )
    last = failures["time"].max()
    later = pl.col("line") > failures["line"].max()
    if last is not None:
        later = pl.when(pl.col("time").is_null()).then(later).otherwise(pl.col("time") > last)
    return not good.filter(later).is_empty()
