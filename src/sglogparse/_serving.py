"""The state of a server that serves, batch by batch: what the rules of serving health look at.

decode and prefill batches --> one status a line (rank, running, queued, usage, ...) --> runs of a condition
"""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl

from sglogparse._derived import Whole, throughout
from sglogparse._phases import all_seconds

#: How full the pool is that holds what running requests have. Pools of states and of windows keep what they
#: can get for the prefix cache: that they are full says nothing.
_USAGE = ("token_usage", "full_token_usage")


@throughout
def statuses(whole: Whole) -> pl.DataFrame:
    """Return one row a batch line, in the order of the lines: its state, its time (s), and its kind.

    `usage` is that of the KV pool, from 0 to 1.
    """
    parts = []
    for kind in ("decode_batch", "prefill_batch"):
        frame = whole.frames[kind]
        parts.append(
            frame.select(
                "line",
                "rank",
                pl.lit(kind == "decode_batch").alias("decode"),
                pl.max_horizontal(pl.col(name).cast(pl.Float64) for name in _USAGE).alias("usage"),
                *(
                    pl.col(name).cast(pl.Float64)
                    for name in ("running_req", "queue_req", "gen_throughput", "accept_len", "new_token")
                ),
                waiting=pl.max_horizontal("inflight_req", "transferring_req").cast(pl.Float64),
                graphs=pl.col("cuda_graph").cast(pl.String).str.to_lowercase() == "true",
                row=whole.rows_of(frame),
            )
        )
    found = pl.concat(parts).sort("row")
    at = all_seconds(whole).gather(found["row"]).alias("at")
    return found.with_columns(at)


@throughout
def decodes(whole: Whole) -> pl.DataFrame:
    """Return the statuses of decode batches."""
    return statuses.of(whole).filter("decode")


class Run(NamedTuple):
    """Statuses of one rank, one behind the other, in which a condition holds."""

    rank: str | None
    first: int
    last: int
    batches: int
    decodes: int
    #: from the first to the last, s; None without stamps
    span: float | None


def runs(frame: pl.DataFrame, condition: pl.Expr) -> list[Run]:
    """Return the runs of statuses in which a condition holds, the longest first."""
    if frame.filter(condition).is_empty():
        return []
    found = (
        frame.lazy()
        .with_columns(held=condition.fill_null(False))
        .with_columns(run=pl.col("held").rle_id().over("rank", order_by="line"))
        .filter("held")
        .group_by("rank", "run", maintain_order=True)
        .agg(
            first=pl.col("line").min(),
            last=pl.col("line").max(),
            batches=pl.len(),
            decodes=pl.col("decode").sum(),
            span=pl.col("at").max() - pl.col("at").min(),
        )
        .sort("batches", "first", descending=[True, False])
        .drop("run")
        .collect()
    )
    return [Run(*row) for row in found.iter_rows()]


#: An episode matters when it is this long, s, and no small share of the time, or when it is this part of what
#: a rank's log shows.
_LONG = 60.0
_SHARE = 0.05
_PART = 0.25
#: Batches without which nobody knows what was between them.
_MANY = 10


def lasting(frame: pl.DataFrame, found: list[Run]) -> list[Run]:
    """Return the runs that are more than an episode: a minute long, or a good part of the rank's batches."""
    if not found:
        return []
    at = pl.col("at").cast(pl.Float64)
    ranks = frame.group_by("rank").agg((at.max() - at.min()).fill_null(0.0), pl.len().alias("batches"))
    own = {rank: (whole, batches) for rank, whole, batches in ranks.iter_rows()}
    return [run for run in found if _matters(run, *own.get(run.rank, (0.0, 0)))]


def _matters(run: Run, whole: float, batches: int) -> bool:
    long = (run.span or 0.0) >= max(_LONG, _SHARE * whole) and run.batches >= _MANY
    return long or run.batches >= _PART * batches


def within(frame: pl.DataFrame, run: Run) -> pl.DataFrame:
    """Return the statuses of a run."""
    mine = pl.col("rank").eq_missing(run.rank) & pl.col("line").is_between(run.first, run.last)
    return frame.filter(mine)


def number(value: Any) -> str:  # noqa: ANN401 - what an aggregation of polars returns
    """Return a number as it would be printed: without a fraction of nothing.

    >>> number(32.0), number(38.78)
    ('32', '38.78')
    """
    return f"{value:g}" if float(value).is_integer() else f"{value:.2f}"
