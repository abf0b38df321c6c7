r"""From lines to records: who spoke, when, and what was said.

    text --> visible part --> header (time, ranks, level) + message

The header's pattern comes from grammars/header.lark. Rank tags repeat, so the distinct ones are read once and
joined. No rank is null, never 0; no time is null; times carry no zone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from sglogparse._compiler import Plan

#: The rank columns of every frame, as the tags name them.
RANKS = ("dp", "pp", "tp", "ep", "attn_cp", "attn_dp", "attn_tp", "moe_dp", "moe_ep", "moe_tp", "gpu_id")

#: The columns that every frame has before its own.
RECORD_SCHEMA: dict[str, pl.DataType] = {
    "file": pl.UInt16(),
    "line": pl.UInt32(),
    "time": pl.Datetime("ms"),
    "clock": pl.Time(),
    "rank": pl.String(),
    **{name: pl.Int16() for name in RANKS},
}


def read_records(lines: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    """Add the columns of the header and `message`, the rest of the line without blanks at its end.

    `headed` tells whether the line has a header; `level` is null where none is printed.
    """
    text = _visible(lines["text"])
    # a header without a message has lost the blank at its end in many editors
    alone = (text.str.starts_with("[") & text.str.ends_with("]")).arg_true()
    if not alone.is_empty():
        text = text.scatter(alone, text.gather(alone) + " ")
    pattern = "^(?P<header>" + plan.header.removeprefix("^") + ")"
    grouped = (
        pl.LazyFrame({"text": text})
        .with_columns(pl.col("text").str.extract_groups(pattern).alias("group"))
        .with_columns(pl.col("group").struct.field("header").alias("header"))
        .with_columns(
            pl.col("text")
            .str.slice(pl.col("header").str.len_bytes().fill_null(0))
            .str.strip_chars_end()
            .alias("message"),
            *(_field(plan, name).alias(name) for name in ("stamp", "tags", "level", "gpu_id", "world_rank")),
        )
        .select("header", "message", "stamp", "tags", "level", "gpu_id", "world_rank")
        .collect(engine="streaming")
    )
    ranks = _ranks(grouped["tags"], plan)
    named = grouped.select(
        pl.coalesce("tags", "gpu_id", "world_rank").alias("rank"),
        # the oldest releases print the index of the device, or of the rank, alone
        pl.coalesce("gpu_id", "world_rank").cast(pl.Int16).alias("gpu_id"),
    )
    return pl.concat(
        [
            lines,
            _times(grouped["stamp"]),
            named.select("rank"),
            ranks,
            named.select("gpu_id"),
            grouped.select("level", "message", pl.col("header").is_not_null().alias("headed")),
        ],
        how="horizontal",
    )


def _field(plan: Plan, name: str) -> pl.Expr:
    groups = [group for group, field in plan.header_groups.items() if field == name]
    return pl.coalesce([pl.col("group").struct.field(group) for group in groups])


def _visible(text: pl.Series) -> pl.Series:
    r"""Return what a terminal would show: of a line with lone \r, its last part that is not blank."""
    rows = text.str.contains("\r", literal=True).arg_true()
    if rows.is_empty():
        return text
    parts = (
        text.gather(rows).str.split("\r").list.eval(pl.element().filter(pl.element().str.strip_chars() != ""))
    )
    return text.scatter(rows, parts.list.last().fill_null(""))


def _times(stamp: pl.Series) -> pl.DataFrame:
    """Return `time` for stamps with a date, and `clock` for those that print the time of day alone."""
    lengths = set(stamp.str.len_bytes().unique().drop_nulls())
    if lengths <= {19}:
        time = stamp.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="ms", strict=False)
        return pl.DataFrame(
            {"time": time, "clock": pl.Series("clock", [None], dtype=pl.Time).new_from_index(0, len(time))}
        )
    dotted = stamp.str.replace(",", ".", literal=True)
    size = pl.col("stamp").str.len_bytes()
    return pl.DataFrame({"stamp": dotted}).select(
        pl.when(size >= 19)
        .then(pl.col("stamp"))
        .str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="ms", strict=False)
        .alias("time"),
        pl.when(size < 19).then(pl.col("stamp")).str.to_time("%H:%M:%S%.f", strict=False).alias("clock"),
    )


def _ranks(tags: pl.Series, plan: Plan) -> pl.DataFrame:
    """Return a column a kind of rank, reading each distinct tag string once."""
    names = [name for name in RANKS if name != "gpu_id"]
    schema = {"tags": pl.String, **dict.fromkeys(names, pl.Int16)}
    rows: list[dict[str, str | int | None]] = []
    for tag in tags.unique().drop_nulls():
        row: dict[str, str | int | None] = {"tags": tag}
        for word in tag.split(" "):
            match = re.fullmatch(r"([A-Z_]+)([0-9]+)", word)
            if match:
                row[plan.tags[match[1]]] = int(match[2])
        rows.append(row)
    table = pl.DataFrame(rows, schema=schema)
    return tags.to_frame("tags").join(table, on="tags", how="left", maintain_order="left").select(names)
