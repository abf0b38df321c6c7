r"""From lines to records: who spoke, when, and what was said.

    text --> visible part --> header (time, ranks, level) + message

The header's pattern comes from grammars/header.lark. Rank tags repeat, so the distinct ones are read once and
joined. No rank is null, never 0; no time is null; times carry no zone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import polars as pl

from sglogparse._wrappers import HARNESS, joined, peel

if TYPE_CHECKING:
    from sglogparse._compiler import Header, Plan
    from sglogparse._wrappers import Accepted

#: Fields of the header that records keep, as text.
_FIELDS = ("stamp", "clock", "tags", "gpu_id", "world_rank")

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


#: The columns of the frame of the records that no event rule takes.
MESSAGE_SCHEMA: dict[str, pl.DataType] = {**RECORD_SCHEMA, "level": pl.String(), "message": pl.String()}


def messages_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Return that frame, of records with their kind."""
    return rows.filter(pl.col("kind") == "message").select(MESSAGE_SCHEMA.keys())


def place_of(file: int, line: int) -> int:
    """Return a number by which the lines of several files are in order."""
    return (file << 32) + line


def places_of(frame: pl.DataFrame) -> pl.Series:
    """Return the same of each row of a frame."""
    return (frame["file"].cast(pl.UInt64) * place_of(1, 0)) + frame["line"]


def read_records(
    lines: pl.DataFrame, plan: Plan, accepted: Accepted | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Add the columns of the header and `message`, the rest of the line without blanks at its end.

    `headed` tells whether the line has a header; `level` is null where none is printed. The second frame has
    a row a line that something has carried, as far as that is certain or its file is `accepted`.
    """
    text, found, carried = read_headers(lines, plan, accepted)
    message, level = read_messages(text, found, plan)
    records = pl.concat(
        [
            lines,
            head_columns(found, plan),
            level,
            pl.DataFrame([message, found["header"].is_not_null().alias("headed")]),
        ],
        how="horizontal",
    )
    return records, carried


def read_headers(
    lines: pl.DataFrame, plan: Plan, accepted: Accepted | None = None
) -> tuple[pl.Series, pl.DataFrame, pl.DataFrame]:
    """Return the text of each line without its carrier, its header with the fields as text, and the carried.

    What is carried, and accepted, is what it is to read_records.
    """
    text = _visible(lines["text"])
    found = _headers(text, plan)
    carried = _carried(lines["file"], text, found, plan, accepted or {})
    if not carried.is_empty():
        carried = joined(carried)
        carried = carried.with_columns(_visible(carried["rest"]).alias("rest"))
        rows, more = carried["row"], _headers(carried["rest"], plan)
        found = found.with_columns(found[name].scatter(rows, more[name]) for name in found.columns)
        text = text.scatter(rows, carried["rest"])
    return text, found, carried


def read_messages(text: pl.Series, found: pl.DataFrame, plan: Plan) -> tuple[pl.Series, pl.DataFrame]:
    """Return what stands behind each header, without blanks at its end, and the level that is printed."""
    message, level = _levels(_after(text, found["header"]), found["located"], plan)
    return _stripped(message), level


def head_columns(found: pl.DataFrame, plan: Plan, names: Collection[str] = RECORD_SCHEMA) -> pl.DataFrame:
    """Return the columns that headers give, times and ranks; at least those of them that are in `names`."""
    parts = []
    if not {"time", "clock"}.isdisjoint(names):
        parts.append(_times(found["stamp"], found["clock"]))
    if "rank" in names:
        parts.append(_named(found))
    if not set(RANKS).isdisjoint(names):
        # the oldest releases print the index of the device, or of the rank, alone
        parts += [_ranks(found["tags"], plan), _numbers(found)]
    return pl.concat(parts, how="horizontal")


def _absent(names: Iterable[str], dtype: pl.DataType, height: int) -> pl.DataFrame:
    """Return columns without a value, which take no memory as long as they are not looked at."""
    columns = [pl.lit(None, dtype=dtype).alias(name) for name in names]
    return pl.DataFrame(height=height).with_columns(columns)


def _named(found: pl.DataFrame) -> pl.DataFrame:
    """Return `rank`, what a header says of who speaks, as printed."""
    names = [name for name in ("tags", "gpu_id", "world_rank") if found[name].null_count() < found.height]
    if not names:
        return _absent(["rank"], pl.String(), found.height)
    return found.select(rank=pl.coalesce(names))


def _numbers(found: pl.DataFrame) -> pl.DataFrame:
    names = [name for name in ("gpu_id", "world_rank") if found[name].null_count() < found.height]
    if not names:
        return _absent(["gpu_id"], pl.Int16(), found.height)
    return found.select(gpu_id=pl.coalesce(names).cast(pl.Int16))


def _carried(
    files: pl.Series, text: pl.Series, found: pl.DataFrame, plan: Plan, accepted: Accepted
) -> pl.DataFrame:
    """Return the lines that something has carried, by their rows."""
    bare = found["header"].is_null()
    if HARNESS in accepted:  # its records look like SGLang's
        bare = bare | files.is_in(accepted[HARNESS])
    rows = bare.arg_true()
    some = pl.DataFrame({"file": files.gather(rows), "text": text.gather(rows)})
    carried = peel(some, plan, accepted)
    return carried.with_columns(rows.gather(carried["row"]).alias("row"))


def _headers(text: pl.Series, plan: Plan) -> pl.DataFrame:
    """Return the header of each line and its fields as text, dialect by dialect.

    `located` tells where a location can follow. The first dialect is that of nearly all lines; the others
    look at what it leaves.
    """
    found = _dialect(text, plan.headers[0])
    rows = found["header"].is_null().arg_true()
    left = text.gather(rows)
    # a header without a message has lost the blank at its end in many editors
    alone = pl.col("text").str.starts_with("[") & pl.col("text").str.ends_with("]")
    left = left.to_frame("text").select(pl.when(alone).then(pl.col("text") + " ").otherwise("text"))["text"]
    for dialect in plan.headers:
        some = left.str.starts_with(dialect.prefixes[0] if dialect.prefixes else "").arg_true()
        if some.is_empty():
            continue
        more = _dialect(left.gather(some), dialect)
        more = more.with_columns(rows.gather(some).alias("row")).filter(pl.col("header").is_not_null())
        found = found.with_columns(found[name].scatter(more["row"], more[name]) for name in found.columns)
    return found


def _dialect(text: pl.Series, dialect: Header) -> pl.DataFrame:
    group = pl.col("group").struct
    fields = {field: [name for name, known in dialect.groups.items() if known == field] for field in _FIELDS}
    columns = [
        pl.coalesce([group.field(name) for name in names]).alias(field)
        if names
        else pl.lit(None, dtype=pl.String).alias(field)
        for field, names in fields.items()
    ]
    header = group.field("header").alias("header")
    return (
        pl.LazyFrame({"text": text})
        .select(pl.col("text").str.extract_groups(dialect.pattern).alias("group"))
        .select(header, *columns, (header.is_not_null() & dialect.located).alias("located"))
        .collect()
    )


def _levels(message: pl.Series, located: pl.Series, plan: Plan) -> tuple[pl.Series, pl.DataFrame]:
    """Return the messages without the location that can end a header, and the level that it names."""
    none = _absent(["level"], pl.String(), len(message))
    if plan.location is None:
        return message, none
    words = plan.location.prefixes
    size = min(map(len, words))
    rows = (message.str.head(size).is_in([word[:size] for word in words]) & located).arg_true()
    found = message.gather(rows).str.extract_groups(plan.location.pattern).struct.unnest()
    rows, found = rows.filter(found["header"].is_not_null()), found.drop_nulls("header")
    if rows.is_empty():
        return message, none
    ends = pl.Series([None], dtype=pl.String).new_from_index(0, len(message)).scatter(rows, found["header"])
    level = none["level"].scatter(rows, found["level"]).to_frame()
    return _after(message, ends), level


def _after(text: pl.Series, header: pl.Series) -> pl.Series:
    """Return what follows the header (ASCII); all of the text where there is none."""
    return pl.select(pl.lit(text).str.slice(pl.lit(header).str.len_bytes().fill_null(0)).alias("message"))[
        "message"
    ]


def _stripped(message: pl.Series) -> pl.Series:
    """Return the messages without blanks at their end, leaving alone (and uncopied) those that have none."""
    rows = (message.str.tail(1).str.strip_chars_end() == "").arg_true()
    length = message.gather(rows).str.strip_chars_end().str.len_chars()
    if rows.is_empty():
        return message
    lengths = pl.Series([None], dtype=pl.UInt32).new_from_index(0, len(message)).scatter(rows, length)
    return pl.select(pl.lit(message).str.slice(0, pl.lit(lengths)))["message"]


def _visible(text: pl.Series) -> pl.Series:
    r"""Return what a terminal would show: of a line with lone \r, its last part that is not blank."""
    rows = text.str.contains("\r", literal=True).arg_true()
    if rows.is_empty():
        return text
    parts = (
        text.gather(rows).str.split("\r").list.eval(pl.element().filter(pl.element().str.strip_chars() != ""))
    )
    return text.scatter(rows, parts.list.last().fill_null(""))


def _times(stamp: pl.Series, clock: pl.Series) -> pl.DataFrame:
    """Return `time` for stamps with a date, and `clock` for those that print the time of day alone."""
    whole = set(stamp.str.len_bytes().unique().drop_nulls()) <= {19}
    dotted = stamp if whole else stamp.str.replace(",", ".", literal=True)
    form = "%Y-%m-%d %H:%M:%S" + ("" if whole else "%.f")
    time = dotted.str.to_datetime(form, time_unit="ms", strict=False).alias("time").to_frame()
    if clock.null_count() == len(clock):
        return time.hstack(_absent(["clock"], pl.Time(), len(clock)))
    dotted = clock.str.replace(",", ".", literal=True)
    return time.with_columns(dotted.str.to_time("%H:%M:%S%.f", strict=False).alias("clock"))


def _ranks(tags: pl.Series, plan: Plan) -> pl.DataFrame:
    """Return a column a kind of rank, reading each distinct tag string once."""
    names = [name for name in RANKS if name != "gpu_id"]
    distinct = tags.unique().drop_nulls()
    columns: dict[str, list[int | None]] = {}
    for place, tag in enumerate(distinct):
        for word in tag.split(" "):
            match = re.fullmatch(r"([A-Z_]+)([0-9]+)", word)
            if match:
                column = columns.setdefault(plan.tags[match[1]], [None] * len(distinct))
                column[place] = int(match[2])
    found = _absent([name for name in names if name not in columns], pl.Int16(), len(tags))
    if columns:
        codes = tags.cast(pl.Enum(distinct)).to_physical()
        found = found.hstack(
            [pl.Series(name, values, dtype=pl.Int16).gather(codes) for name, values in columns.items()]
        )
    return found.select(names)
