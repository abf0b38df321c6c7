"""The timeline of a log: for each job the phases of its ranks on one axis, the slowest ones, and the gaps.

launches --> jobs (files joined, clocks corrected) --> phases of all ranks since the job's first stamp
                                                   --> gaps: times without a line, of a rank or of all
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import polars as pl

from sglogparse._cheap import dataclass
from sglogparse._deployment import read_groups
from sglogparse._launches import first_line
from sglogparse._phases import PHASE_SCHEMA, START_PHASES, phases, seconds
from sglogparse._split import read_launches

if TYPE_CHECKING:
    from sglogparse._deployment import Group
    from sglogparse._launches import Launch
    from sglogparse._log import Log

#: The phases that a rank goes through before the server is ready, each by its own process.
RANK_PHASES = tuple(name for name in START_PHASES if name not in ("warm-up", "ready"))

TIMELINE_SCHEMA: dict[str, pl.DataType] = {
    **PHASE_SCHEMA,
    "from_s": pl.Float64(),
    "until_s": pl.Float64(),
    "slowest": pl.Boolean(),
    "last": pl.Boolean(),
}
GAP_SCHEMA: dict[str, pl.DataType] = {
    "file": pl.String(),
    "rank": pl.String(),
    "after": pl.String(),
    "begin_line": pl.UInt32(),
    "end_line": pl.UInt32(),
    "begin": pl.Datetime("ms"),
    "end": pl.Datetime("ms"),
    "seconds": pl.Float64(),
    "unstamped": pl.UInt32(),
}
#: How far apart the ends of a phase are when the ranks leave it together, s.
_TOGETHER = 2.0
#: How much of a line names it.
_MOST_WORDS = 48


@dataclass(frozen=True)
class Timeline:
    """A job on one axis of time."""

    group: Group
    #: of each part its file, first and last line
    members: tuple[tuple[str, int, int], ...]
    ranks: tuple[str, ...]
    #: how the lines without a rank are called, by file
    servers: dict[str, str]
    #: the first stamp by the clock of the first file; None without dated stamps
    begin: dt.datetime | None
    #: when the server was ready, s since `begin`; None when the log does not show it
    ready_s: float | None
    #: the last stamp that is looked at, s since `begin`; None without stamps
    until_s: float | None
    #: the phases with their place on the common axis: `from_s` to `until_s`
    phases: pl.DataFrame
    gaps: pl.DataFrame


def read_timelines(log: Log, gap: float, *, everything: bool = False) -> list[Timeline]:
    """Return the timeline of each job of a log, with the gaps of `gap` seconds and more.

    Serving and shutdown are left out unless everything is asked for.
    """
    launches = read_launches(log)
    return [
        _timeline([launches[number] for number in group.members], group, gap, everything=everything)
        for group in read_groups(launches)
    ]


def _timeline(parts: list[Launch], group: Group, gap: float, *, everything: bool) -> Timeline:
    origins = [_origin(part, group.offset_of(part.path)) for part in parts]
    known = [one for one in origins if one is not None]
    begin = min(known, default=None)
    rows, untils, readies = [], [], []
    for part, origin in zip(parts, origins, strict=True):
        shift = (origin - begin).total_seconds() if origin is not None and begin is not None else 0.0
        end = part.last_line if everything else _bound(part)
        until = seconds(part)[: part.row(end) + 1].max()
        found = phases(part)
        if not everything:
            found = found.filter(pl.col("phase").is_in(START_PHASES))
        ready = found.filter(pl.col("phase") == "ready")["begin_s"].drop_nulls()
        readies += [float(ready[0]) + shift] if not ready.is_empty() else []
        if isinstance(until, float):
            untils.append(until + shift)
        # a phase without an end goes on to the last stamp, unless its rank or the server has gone further:
        # then only the line is missing
        open_still = pl.col("end_line").is_null() & pl.col("begin_line").shift(-1).over("rank").is_null()
        last = pl.lit(until if isinstance(until, float) and part.serves is None else None, dtype=pl.Float64)
        goes = pl.coalesce("end_s", pl.when(open_still).then(pl.max_horizontal(last, "begin_s")))
        goes = pl.when(last.is_null()).then("end_s").otherwise(goes)
        rows.append(
            found.with_columns(
                (pl.coalesce("begin_s", pl.col("end_s") - pl.col("duration")) + shift).alias("from_s"),
                (pl.coalesce(goes, pl.col("begin_s") + pl.col("duration")) + shift).alias("until_s"),
                pl.lit(_resolution(part)).alias("resolution"),
            )
        )
    return Timeline(
        group=group,
        members=tuple((part.path, part.first_line, part.last_line) for part in parts),
        ranks=tuple(rank for part in parts for rank in part.ranks),
        servers=_servers(parts, group),
        begin=begin,
        ready_s=min(readies, default=None),
        until_s=max(untils, default=None),
        phases=_marked(pl.concat(rows)).select(TIMELINE_SCHEMA.keys()),
        gaps=pl.concat([gaps(part, gap, everything=everything) for part in parts]),
    )


def _origin(launch: Launch, ahead: float) -> dt.datetime | None:
    """Return the first dated stamp of a launch by the clock of the job's first file."""
    times = launch.lines["time"].drop_nulls()
    return None if times.is_empty() else times[0] - dt.timedelta(seconds=ahead)


def _resolution(launch: Launch) -> float:
    """Return how far apart two stamps of a launch are that differ at all, s."""
    fine = launch.lines["time"].drop_nulls().dt.millisecond() != 0
    return 0.001 if fine.any() else 1.0


def _bound(launch: Launch) -> int:
    """Return the line at which a start has ended: ready, else the first service, else the last line."""
    return first_line(launch.frames["ready"]) or launch.serves or launch.last_line


def _servers(parts: list[Launch], group: Group) -> dict[str, str]:
    """Return how to call the lines without a rank, file by file."""
    if group.kind == "nodes":
        return {part.path: f"node {part.argument('node_rank')}" for part in parts}
    return {part.path: "server" if len(parts) == 1 else f"server {n}" for n, part in enumerate(parts)}


def _marked(rows: pl.DataFrame) -> pl.DataFrame:
    """Mark what the start waited for in each phase: the slowest rank (or several alike), or the last to come.

    Ranks leave some phases together, having waited for one another: there it is not the longest time that
    tells, but who began last. A phase without an end counts for as long as it is known to have gone on, if it
    has ended on another rank. What is less than the stamps can show (two of them make a duration) is no
    difference; durations that the server prints have decimals.
    """
    mine = ("phase", "file", "rank")
    took = pl.coalesce("duration", pl.col("until_s") - pl.col("from_s"))
    counts = pl.col("phase").is_in(RANK_PHASES) & took.is_not_null()
    total = pl.when(counts).then(took.sum().over(mine))
    begun = pl.when(counts).then(pl.col("from_s").min().over(mine))
    ended = pl.when(counts).then(pl.col("until_s").max().over(mine))
    whole = pl.col("complete").all().over("phase")
    ends, begins = (_spread(one).over("phase") for one in (ended, begun))
    together = (whole & (ends <= _TOGETHER) & (begins > ends)).fill_null(False)
    blur = pl.when((pl.col("source") == "printed").fill_null(False)).then(0.0).otherwise("resolution")
    shown = 2 * pl.when(counts).then(blur.sum().over(mine)).max().over("phase")
    stamped = 2 * pl.col("resolution").max()
    known = pl.col("duration").is_not_null().any().over("phase")
    apart = _spread(total).over("phase")
    told = (apart >= shown) | ~pl.col("complete")  # one that others have ended is slower, by whatever time
    slowest = ~together & known & (total == total.max().over("phase")) & (apart > 0) & told
    last = together & (begins >= stamped) & (begun == begun.max().over("phase"))
    return rows.with_columns(slowest.fill_null(False).alias("slowest"), last.fill_null(False).alias("last"))


def _spread(value: pl.Expr) -> pl.Expr:
    return value.max() - value.min()


# ------------------------------------------------------------------ gaps


def gaps(launch: Launch, least: float, *, everything: bool = False) -> pl.DataFrame:
    """Return the times of `least` seconds and more without a line: of a rank, or (rank null) of all.

    Looks at the start only unless everything is asked for. A rank whose last phase has no end is silent until
    the last stamp (`end_line` null). Where all are silent, the rank that spoke last is not listed twice.
    """
    at = seconds(launch)
    end = launch.last_line if everything else _bound(launch)
    lines = pl.DataFrame(
        {"line": launch.lines["line"], "rank": launch.lines["rank"], "time": launch.lines["time"], "at": at}
    ).filter(pl.col("line") <= end)
    bare = lines["at"].is_null().cast(pl.UInt32).cum_sum()
    stamped = lines.with_columns(bare.alias("bare")).drop_nulls("at")
    if stamped.is_empty():
        return pl.DataFrame(schema=GAP_SCHEMA)
    found = _rank_gaps(launch, stamped, least)
    if launch.ranks:
        common = _common_gaps(stamped, least).join(found.select("line"), on="line", how="anti")
        found = pl.concat([found, common])
    found = found.sort("seconds", "line", descending=[True, False])
    message = launch.records["message"].gather([launch.row(line) for line in found["line"]])
    return found.select(
        pl.lit(launch.path).alias("file"),
        "rank",
        _words(message).alias("after"),
        pl.col("line").alias("begin_line"),
        pl.col("next_line").alias("end_line"),
        pl.col("time").alias("begin"),
        pl.col("next_time").alias("end"),
        "seconds",
        (pl.col("next_bare") - pl.col("bare")).alias("unstamped"),
    ).cast(GAP_SCHEMA)  # type: ignore[arg-type]


def _rank_gaps(launch: Launch, stamped: pl.DataFrame, least: float) -> pl.DataFrame:
    """Return the gaps between the lines of each rank, and after the last one of a rank amid a phase."""
    mine = stamped.drop_nulls("rank") if launch.ranks else stamped
    nexts = [
        pl.col(name).shift(-1).over("rank").alias(f"next_{name}") for name in ("line", "time", "at", "bare")
    ]
    mine = mine.with_columns(nexts)
    last = (
        phases(launch)
        .filter(pl.col("phase").is_in(RANK_PHASES))
        .group_by("rank", maintain_order=True)
        .agg(pl.col("complete").last())
    )
    amid = last.filter(~pl.col("complete")).select("rank", pl.lit(True).alias("amid"))
    mine = mine.join(amid, on="rank", how="left", nulls_equal=True, maintain_order="left")
    final = stamped.select(pl.col("at").max(), pl.col("time").max(), pl.col("bare").max())
    silent = pl.col("next_line").is_null() & pl.col("amid").fill_null(False)
    until = [
        pl.when(silent).then(pl.lit(final[name][0])).otherwise(f"next_{name}").alias(f"next_{name}")
        for name in ("at", "time", "bare")
    ]
    return _long(mine.with_columns(until), least)


def _common_gaps(stamped: pl.DataFrame, least: float) -> pl.DataFrame:
    """Return the gaps between the lines of all ranks. Stamps of several processes are not quite in order."""
    latest = stamped.with_columns(pl.col("at").cum_max())
    nexts = [pl.col(name).shift(-1).alias(f"next_{name}") for name in ("line", "time", "bare")]
    common = latest.with_columns(*nexts, stamped["at"].shift(-1).alias("next_at"))
    return _long(common.with_columns(pl.lit(None, dtype=pl.String).alias("rank")), least)


def _long(rows: pl.DataFrame, least: float) -> pl.DataFrame:
    rows = rows.with_columns((pl.col("next_at") - pl.col("at")).alias("seconds"))
    return rows.filter(pl.col("seconds") >= least).select(
        "line", "rank", "time", "bare", "next_line", "next_time", "next_bare", "seconds"
    )


def _words(message: pl.Series) -> pl.Series:
    """Return the first words of messages, by which a person knows them: up to the figures."""
    words = message.str.extract(r"^(.*?)(?:[.,;] |\s*[\[({=]|\.*\s*$)").fill_null("").str.strip_chars()
    words = words.zip_with(words != "", message.str.strip_chars())
    long = words.str.len_chars() > _MOST_WORDS
    cut = words.str.head(_MOST_WORDS) + "..."
    return cut.zip_with(long, words)
