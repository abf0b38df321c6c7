"""What batch lines say over a whole log, for Prometheus: per rank, as families of samples.

    logs --> pieces --> rows (log, rank, value) --> Family (summary or gauge) --> Sample ...

A log samples its batches: a decode line comes every so many steps. Distributions are over lines, not over
time. What no line of a rank prints has no sample: absent is not 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from sglogparse._cheap import dataclass
from sglogparse._source import open_sources
from sglogparse._stream import read_pieces

if TYPE_CHECKING:
    from sglogparse._log import Log

#: Of a distribution, beside its sum and how many values it has: the least, the middle, nine of ten, the most.
QUANTILES = (0.0, 0.5, 0.9, 1.0)


@dataclass(frozen=True)
class Sample:
    """A value of a family: of a log, of one of its ranks (None: the line names none)."""

    log: str
    rank: str | None
    #: nothing, `_sum` or `_count`
    suffix: str
    quantile: float | None
    value: float


@dataclass(frozen=True)
class Family:
    """Values of one meaning and unit."""

    name: str
    #: summary or gauge
    kind: str
    #: the end of the name that is a unit; None for a number of things
    unit: str | None
    help: str
    samples: tuple[Sample, ...]


class _Summary(NamedTuple):
    """A family of distributions: over which column, or columns of which each line prints one."""

    name: str
    unit: str | None
    frame: str
    columns: tuple[str, ...]
    help: str


_SUMMARIES = (
    _Summary(
        "sglogparse_decode_throughput_tokens_per_second",
        "tokens_per_second",
        "decode_batch",
        ("gen_throughput",),
        "Generation throughput as decode lines print it.",
    ),
    _Summary(
        "sglogparse_decode_running_requests",
        None,
        "decode_batch",
        ("running_req",),
        "Running requests as decode lines print them.",
    ),
    _Summary(
        "sglogparse_decode_queued_requests",
        None,
        "decode_batch",
        ("queue_req",),
        "Waiting requests as decode lines print them.",
    ),
    _Summary(
        "sglogparse_decode_kv_usage_ratio",
        "ratio",
        "decode_batch",
        ("token_usage", "full_token_usage"),
        "Share of the KV pool in use as decode lines print it.",
    ),
    _Summary(
        "sglogparse_decode_accept_length_tokens",
        "tokens",
        "decode_batch",
        ("accept_len",),
        "Mean accepted tokens a step of speculative decoding as decode lines print it.",
    ),
    _Summary(
        "sglogparse_prefill_new_tokens",
        "tokens",
        "prefill_batch",
        ("new_token",),
        "New tokens of a prefill batch.",
    ),
    _Summary(
        "sglogparse_prefill_cached_tokens",
        "tokens",
        "prefill_batch",
        ("cached_token",),
        "Tokens of a prefill batch that the prefix cache had.",
    ),
    _Summary(
        "sglogparse_prefill_queued_requests",
        None,
        "prefill_batch",
        ("queue_req",),
        "Waiting requests as prefill lines print them.",
    ),
)
#: Frame, column, what is made of the values of a log and a rank, name, unit, help.
_GAUGES = (
    (
        "retraction",
        "retracted",
        pl.Expr.sum,
        "sglogparse_retracted_requests",
        None,
        "Requests that were put back in the queue because the KV pool was full.",
    ),
    (
        "capacity",
        "max_total_num_tokens",
        pl.Expr.last,
        "sglogparse_kv_capacity_tokens",
        "tokens",
        "Capacity of the KV pool that the last start printed.",
    ),
)
_COLUMNS = {
    "decode_batch": [column for one in _SUMMARIES if one.frame == "decode_batch" for column in one.columns],
    "prefill_batch": [column for one in _SUMMARIES if one.frame == "prefill_batch" for column in one.columns],
    **{frame: [column] for frame, column, *_ in _GAUGES},
}


def metrics(paths: Iterable[str | Path]) -> list[Family]:
    """Return what the batch lines of logs say, family by family; those without a sample are left out.

    Raises SourceError for a path that cannot be read as text.
    """
    sources = open_sources(paths)
    parts: dict[str, list[pl.DataFrame]] = {name: [] for name in _COLUMNS}
    for log in read_pieces(sources):
        for name, found in _of(log).items():
            parts[name].append(found)
    files = [source.summary() for source in sources]
    names = [file.path for file in files]
    frames = {name: pl.concat(found) if found else None for name, found in parts.items()}
    read = tuple(Sample(file.path, None, "", None, file.lines) for file in files)
    families = [Family("sglogparse_log_lines", "gauge", None, "Lines of the log.", read)]
    for name, what in (("decode_batch", "Decode"), ("prefill_batch", "Prefill")):
        frame = frames[name]
        lines = () if frame is None else _gauge(frame, pl.len(), names)
        families.append(
            Family(f"sglogparse_{name}_lines", "gauge", None, f"{what} batch lines of the log.", lines)
        )
    for one in _SUMMARIES:
        frame = frames[one.frame]
        samples = () if frame is None else _distributions(frame, one.columns, names)
        families.append(Family(one.name, "summary", one.unit, one.help, samples))
    for name, column, make, title, unit, told in _GAUGES:
        frame = frames[name]
        samples = () if frame is None else _gauge(frame.drop_nulls(column), make(pl.col(column)), names)
        families.append(Family(title, "gauge", unit, told, samples))
    return [one for one in families if one.samples]


def _of(log: Log) -> dict[str, pl.DataFrame]:
    return {
        name: log.frames[name].select("file", pl.col("rank").cast(pl.String), *columns)
        for name, columns in _COLUMNS.items()
    }


def _gauge(frame: pl.DataFrame, value: pl.Expr, names: Sequence[str]) -> tuple[Sample, ...]:
    found = frame.group_by("file", "rank").agg(value.alias("value")).sort("file", "rank")
    return tuple(Sample(names[file], rank, "", None, number) for file, rank, number in found.iter_rows())


def _distributions(frame: pl.DataFrame, columns: Sequence[str], names: Sequence[str]) -> tuple[Sample, ...]:
    value = pl.max_horizontal(pl.col(name).cast(pl.Float64) for name in columns)
    found = (
        frame.select("file", "rank", value=value)
        .drop_nulls("value")
        .group_by("file", "rank")
        .agg(
            *(pl.col("value").quantile(at, "linear").alias(f"{at}") for at in QUANTILES),
            sum=pl.col("value").sum(),
            count=pl.len(),
        )
        .sort("file", "rank")
    )
    samples = []
    for file, rank, *values, total, count in found.iter_rows():
        samples += [Sample(names[file], rank, "", at, one) for at, one in zip(QUANTILES, values, strict=True)]
        samples += [
            Sample(names[file], rank, "_sum", None, total),
            Sample(names[file], rank, "_count", None, count),
        ]
    return tuple(samples)
