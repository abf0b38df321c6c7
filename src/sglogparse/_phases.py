"""The phases of a launch, rank by rank: when each began, ended, and how long it took.

    start-up events --> marks (phase, begin or end) in the order of a rank's lines
                    --> runs of marks of one phase = one row of the frame

    dist init | weights | pools | capture | (draft worker: the same) | warm-up | ready | serving | shutdown

A phase whose end (or begin) is not in the log has a null there, and a reason where its duration is not known.
Phases of a rank follow one another: no line is in two of them but the one at which the next phase begins.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl

from sglogparse._derived import once
from sglogparse._faults import stopped_at
from sglogparse._launches import first_line
from sglogparse._split import read_launches

if TYPE_CHECKING:
    from sglogparse._derived import Whole
    from sglogparse._launches import Launch
    from sglogparse._log import Log

#: The phases of a rank's start, in their order; those of a draft worker have "draft " before them.
WORKER_PHASES = ("dist init", "weights", "pools", "capture")
START_PHASES = (
    *WORKER_PHASES,
    *(f"draft {name}" for name in WORKER_PHASES),
    "weights commit",
    "warm-up",
    "ready",
)
#: All phases, in their order.
ALL_PHASES = (*START_PHASES, "serving", "shutdown")

PHASE_SCHEMA: dict[str, pl.DataType] = {
    "file": pl.String(),
    "rank": pl.String(),
    "phase": pl.String(),
    "graph": pl.String(),
    "begin_line": pl.UInt32(),
    "end_line": pl.UInt32(),
    "begin": pl.Datetime("ms"),
    "end": pl.Datetime("ms"),
    "begin_s": pl.Float64(),
    "end_s": pl.Float64(),
    "duration": pl.Float64(),
    "source": pl.String(),
    "complete": pl.Boolean(),
    "reason": pl.String(),
}
PHASE_DOCS = {
    "file": "path of the file",
    "rank": "rank tags as printed; null for lines without them (the HTTP process, a server of one rank)",
    "phase": "the phase",
    "graph": "which graphs are captured, as printed",
    "begin_line": "line at which it begins; null when the log does not have it",
    "end_line": "line at which it ends; null when the log does not have it",
    "begin": "time of the first line; null without a dated stamp",
    "end": "time of the last line; null without a dated stamp",
    "begin_s": "time of the first line since the first stamp of the launch, s",
    "end_s": "time of the last line since the first stamp of the launch, s",
    "duration": "how long it took, s",
    "source": "where the duration is from: stamps, or printed by the server",
    "complete": "the line that ends the phase is there",
    "reason": "why the duration is not known",
}
#: Event -> (phase, which edge of it). The pools have no line at which they begin: they follow the weights.
_EDGES = {
    "dist_init_begin": ("dist init", "begin"),
    "dist_init_end": ("dist init", "end"),
    "load_weight_begin": ("weights", "begin"),
    "load_weight_end": ("weights", "end"),
    "profile_max_num_token": ("pools", "within"),
    "max_total_tokens_capped": ("pools", "within"),
    "kv_cache": ("pools", "within"),
    "swa_pool": ("pools", "within"),
    "swa_split": ("pools", "within"),
    "mamba_cache": ("pools", "within"),
    "memory_pool_end": ("pools", "end"),
    "graph_capture_begin": ("capture", "begin"),
    "graph_capture_end": ("capture", "end"),
}
#: One edge of a phase; `order` sorts those that stand in one line.
_MARK_SCHEMA: dict[str, pl.DataType] = {
    "line": pl.UInt32(),
    "rank": pl.String(),
    "phase": pl.String(),
    "edge": pl.String(),
    "order": pl.Int8(),
    "graph": pl.String(),
    "elapsed": pl.Float64(),
    "commit": pl.Boolean(),
}
#: What the names of graphs say of whose they are.
_TARGET_GRAPH = r"\btarget\b"
_DRAFT_GRAPH = r"\b(?:draft|extend|MTP)\b"
#: Steps of the HTTP server at which the warm-up begins, and at which a shutdown has ended.
_UP = ("Started server process", "Waiting for application startup", "Application startup complete")
_DOWN = ("Application shutdown complete", "Finished server process")

_DAY = 86_400.0
#: Lines among which the first stamp of a launch is looked for one by one.
_SOON = 20


def read_phases(log: Log) -> pl.DataFrame:
    """Return the phases of all launches of a log, with the number of the launch (from 0) before them."""
    parts = [
        phases(launch).select(pl.lit(number, dtype=pl.UInt32).alias("launch"), *PHASE_SCHEMA)
        for number, launch in enumerate(read_launches(log))
    ]
    return pl.concat([pl.DataFrame(schema={"launch": pl.UInt32(), **PHASE_SCHEMA}), *parts])


def seconds(launch: Launch) -> pl.Series:
    """Return the time of each line since the first stamp of the launch, s; null without a stamp.

    Where releases print the time of day alone, the day is taken to be the next one when it wraps.
    """
    whole = launch.whole
    return all_seconds(whole)[whole.rows[launch.number] : whole.rows[launch.number + 1]]


def all_seconds(whole: Whole) -> pl.Series:
    """Return the time of each line of all launches, each since the first stamp of its own launch, s."""
    if "seconds" not in whole.memo:
        whole.memo["seconds"] = _all_seconds(whole)
    found: pl.Series = whole.memo["seconds"]
    return found


def _all_seconds(whole: Whole) -> pl.Series:
    at = (whole.lines["time"].dt.epoch("ms") / 1000).alias("at")
    parts = []
    for begin, end in pairwise(whole.rows):
        own = at[begin:end]
        if own.null_count() == len(own):
            own = _of_clock(whole.lines["clock"][begin:end]).alias("at")
        first = 0
        while first < min(len(own), _SOON) and own[first] is None:
            first += 1
        stamped = own[first:] if first < _SOON else own.drop_nulls()
        parts.append(own if stamped.is_empty() else own - stamped[0])
    return pl.concat(parts)


def _of_clock(clock: pl.Series) -> pl.Series:
    rows = clock.is_not_null().arg_true()
    if rows.is_empty():
        return pl.Series("at", [None], dtype=pl.Float64).new_from_index(0, len(clock))
    day = clock.gather(rows).cast(pl.Int64) / 1e9
    step = day.diff().fill_null(0.0)
    wraps = (step < -_DAY / 2).cast(pl.Int64) - (step > _DAY / 2).cast(pl.Int64)
    none = pl.Series("at", [None], dtype=pl.Float64).new_from_index(0, len(clock))
    return none.scatter(rows, day + wraps.cum_sum() * _DAY)


@once
def phases(launch: Launch) -> pl.DataFrame:
    marks = pl.concat([_start_marks(launch), _server_marks(launch), _serving_marks(launch)])
    marks = marks.sort("line", "order", maintain_order=True)
    at = pl.DataFrame({"line": launch.lines["line"], "time": launch.lines["time"], "at": seconds(launch)})
    marks = _named(marks).join(at, on="line", how="left", maintain_order="left")
    edge, before = pl.col("edge"), pl.col("edge").shift().over("rank")
    same = pl.struct("phase", "graph")
    opens = (
        before.is_null()
        | (same != same.shift().over("rank"))
        | (edge == "begin")
        | before.is_in(["end", "point"])
    )
    runs = marks.with_columns(opens.cum_sum().over("rank").alias("run"))
    first, last = pl.col("edge").first(), pl.col("edge").last()
    begun, ended = first.is_in(["begin", "within", "point"]), last.is_in(["end", "last", "point"])
    rows = runs.group_by("rank", "run", maintain_order=True).agg(
        pl.col("phase", "graph", "mixed").first(),
        pl.col("line").first().alias("at_line"),
        *(
            pl.when(known).then(pick(column)).alias(f"{name}_{column}")
            for name, known, pick in (("begin", begun, pl.first), ("end", ended, pl.last))
            for column in ("line", "time", "at")
        ),
        pl.col("elapsed").last(),
        ended.alias("complete"),
    )
    return _timed(_after_weights(rows), launch)


def _start_marks(launch: Launch) -> pl.DataFrame:
    """Return the lines at which ranks begin and end the phases of their start."""
    parts = []
    for kind, (phase, edge) in _EDGES.items():
        frame = launch.frames[kind]
        columns = frame.columns
        parts.append(
            frame.select(
                "line",
                "rank",
                pl.lit(phase).alias("phase"),
                pl.lit(edge).alias("edge"),
                pl.lit(0 if edge == "end" else 1, dtype=pl.Int8).alias("order"),
                (pl.col("graph") if "graph" in columns else pl.lit(None, dtype=pl.String)).alias("graph"),
                (pl.col("elapsed") if "elapsed" in columns else pl.lit(None, dtype=pl.Float64)).alias(
                    "elapsed"
                ),
                # weights that are loaded beside the capture are committed after it
                (pl.col("overlap").is_not_null() if "overlap" in columns else pl.lit(False)).alias("commit"),
            )
        )
    return pl.concat(parts).with_columns(
        pl.when("commit").then(pl.lit("weights commit")).otherwise("phase").alias("phase")
    )


def _mark(line: int, phase: str, edge: str, order: int, rank: str | None = None) -> pl.DataFrame:
    return pl.DataFrame(
        {"line": [line], "rank": [rank], "phase": [phase], "edge": [edge], "order": [order]},
        schema={
            "line": pl.UInt32,
            "rank": pl.String,
            "phase": pl.String,
            "edge": pl.String,
            "order": pl.Int8,
        },
    ).with_columns(
        pl.lit(None, dtype=pl.String).alias("graph"),
        pl.lit(None, dtype=pl.Float64).alias("elapsed"),
        pl.lit(False).alias("commit"),
    )


def _server_marks(launch: Launch) -> pl.DataFrame:
    """Return the lines of the HTTP process: warm-up, ready, shutdown.

    With several tokenizer workers each prints its own: the first of them count.
    """
    steps = launch.frames["http_lifecycle"]
    up = first_line(steps.filter(pl.col("lifecycle").is_in(_UP) | pl.col("url").is_not_null()))
    ready, stop = first_line(launch.frames["ready"]), stopped_at(launch)
    out = [pl.DataFrame(schema=_MARK_SCHEMA)]
    if up is not None and (ready is None or up < ready):
        out.append(_mark(up, "warm-up", "begin", 1))
    if ready is not None:
        out += [_mark(ready, "warm-up", "end", 0), _mark(ready, "ready", "point", 1)]
    if stop is not None:
        down = steps.filter(pl.col("lifecycle").is_in(_DOWN))["line"].to_list()
        ends = [line for line in [*down, *launch.frames["graceful_exit"]["line"]] if line > stop]
        out.append(_mark(stop, "shutdown", "begin", 1))
        out += [_mark(max(ends), "shutdown", "end", 0)] if ends else []
    return pl.concat(out)


def _serving_marks(launch: Launch) -> pl.DataFrame:
    """Return the first and the last batch of each rank behind the ready line and before a shutdown."""
    after = first_line(launch.frames["ready"]) or 0
    stop = stopped_at(launch)
    before = launch.last_line + 1 if stop is None else stop
    within = pl.col("line").is_between(after, before, closed="none")
    frames = [launch.frames[kind].filter(within) for kind in ("prefill_batch", "decode_batch")]
    batches = pl.concat([frame.select("line", "rank") for frame in frames])
    lines = batches.group_by("rank").agg(
        pl.col("line").min().alias("begin"), pl.col("line").max().alias("last")
    )
    marks = lines.unpivot(["begin", "last"], index="rank", variable_name="edge", value_name="line")
    first = pl.col("edge") == "begin"
    return marks.select(
        "line",
        "rank",
        pl.lit("serving").alias("phase"),
        "edge",
        pl.when(first).then(1).otherwise(2).cast(pl.Int8).alias("order"),
        pl.lit(None, dtype=pl.String).alias("graph"),
        pl.lit(None, dtype=pl.Float64).alias("elapsed"),
        pl.lit(False).alias("commit"),
    )


def _named(marks: pl.DataFrame) -> pl.DataFrame:
    """Tell the draft worker's phases from the target's: what a rank begins after its weights are loaded.

    Where two processes print under one tag (none, say), their lines cannot be told apart: `mixed`.
    """
    weights = pl.col("phase") == "weights"
    ended = (weights & (pl.col("edge") == "end")).cast(pl.Int32).cum_sum().over("rank")
    ended = ended - (weights & (pl.col("edge") == "end")).cast(pl.Int32)
    last = pl.when(weights).then(pl.col("edge"))
    twice = weights & (pl.col("edge") == last.forward_fill().shift().over("rank"))
    marks = marks.with_columns(
        ended.alias("loaded"),
        twice.fill_null(False).any().over("rank").alias("mixed"),
    )
    graph = pl.col("graph").fill_null("")
    draft = (
        pl.when(pl.col("phase").is_in(["dist init", "weights"]))
        .then(pl.col("loaded") >= 1)
        .when(pl.col("phase") == "pools")
        .then(pl.col("loaded") >= 2)
        .when(pl.col("phase") == "capture")
        .then(
            ~graph.str.contains(_TARGET_GRAPH)
            & (graph.str.contains(_DRAFT_GRAPH) | ((pl.col("loaded") >= 2) & ~pl.col("mixed")))
        )
        .otherwise(False)
    ) & (~pl.col("mixed") | (pl.col("phase") == "capture"))
    return marks.with_columns(
        pl.when(draft).then("draft " + pl.col("phase")).otherwise("phase").alias("phase")
    )


def _after_weights(rows: pl.DataFrame) -> pl.DataFrame:
    """Let pools begin where the weights of the same worker end: the budget is computed there."""
    weights = pl.col("phase").str.replace("pools", "weights", literal=True)
    follows = (
        pl.col("phase").str.ends_with("pools")
        & (pl.col("phase").shift().over("rank") == weights)
        & pl.col("end_line").shift().over("rank").is_not_null()
    )
    return rows.with_columns(
        pl.when(follows)
        .then(pl.col(f"end_{name}").shift().over("rank"))
        .otherwise(f"begin_{name}")
        .alias(f"begin_{name}")
        for name in ("line", "time", "at")
    )


def _timed(rows: pl.DataFrame, launch: Launch) -> pl.DataFrame:
    """Add the durations: from the stamps, else as printed; else the reason why there is none."""
    span = pl.col("end_at") - pl.col("begin_at")
    backwards = (span < 0).fill_null(False)
    stamps = (span >= 0).fill_null(False) & ~pl.col("mixed")
    printed = ~stamps & pl.col("elapsed").is_not_null()
    reason = (
        pl.when(stamps | printed)
        .then(None)
        .when("mixed")
        .then(pl.lit("several processes print under one tag"))
        .when(pl.col("end_line").is_null())
        .then(pl.lit("the line that ends it is missing"))
        .when(pl.col("begin_line").is_null())
        .then(pl.lit("the line that begins it is missing"))
        .when(backwards)
        .then(pl.lit("the stamps go backwards"))
        .otherwise(pl.lit("no time stamps"))
    )
    rows = rows.sort("at_line", maintain_order=True).with_columns(
        pl.lit(launch.path).alias("file"),
        pl.when(stamps).then(span).when(printed).then("elapsed").alias("duration"),
        pl.when(stamps).then(pl.lit("stamps")).when(printed).then(pl.lit("printed")).alias("source"),
        reason.alias("reason"),
        pl.when(~backwards).then("end_time").alias("end"),
        pl.when(~backwards).then("end_at").alias("end_s"),
        # nothing says that serving has ended but the shutdown that follows
        pl.col("complete") & ((pl.col("phase") != "serving") | pl.lit(stopped_at(launch) is not None)),
    )
    rows = rows.rename({"begin_time": "begin", "begin_at": "begin_s"})
    return rows.select(pl.col(name).cast(kind) for name, kind in PHASE_SCHEMA.items())
