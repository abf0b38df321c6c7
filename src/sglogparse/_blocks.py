"""From records to blocks: what spans lines.

    opener (a record or a bare "Traceback ...") + the bare lines that continue it --> one block --> Lark

Lines that name their process ("[rank3]: ", "(Worker pid=7) ") are read process by process. Blocks are few, so
Python walks their lines (and only theirs). A block that was cut at its head or its tail is still a block, and
says that it is not complete. Lines that are not certainly part of a block stay outside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

import polars as pl

from sglogparse._cheap import lazy
from sglogparse._compiler import compiled_plan
from sglogparse._records import RANKS, RECORD_SCHEMA, read_records
from sglogparse._spans import GO_ON, Span, read_spans
from sglogparse._tangles import untangle
from sglogparse._tracebacks import (
    BEGIN,
    DUMP,
    EXCEPTION,
    FRAME,
    GROUP_FRAME,
    LONGEST,
    Block,
    Line,
    read_traceback,
    split,
    stack_frame,
)

#: What torch's excepthook, and Ray, print before each line of one process.
_TAG = (
    r"^((?:\[rank[0-9]+\]:)+|\((?:[A-Za-z_][A-Za-z0-9_.:]* )?pid=[0-9]+(?:, ip=[0-9A-Za-z.:_-]+)?\))(?: |$)"
)
_TORCH_TAG = lazy(r"\[rank([0-9]+)\]:")
#: A traceback that an exporter has put on one line, with its line ends escaped.
_ONE_LINE = r'Traceback \(most recent call last\):\\n +File \\?"[^"]+", line [0-9]+'
#: The rest of a string, and quotes with what is escaped.
_UP_TO = {quote: re.compile(rf"(?:[^{quote}\\]|\\.)*") for quote in "\"'"}
_QUOTE = lazy(r"\\.|'")
_ESCAPED = lazy(r"\\(.)")
_HIT = lazy(r"\] (?:[A-Z]+: )?([A-Za-z]+) hit an exception: ")

STACK_FRAME = pl.Struct({"path": pl.String, "line": pl.Int64, "function": pl.String, "code": pl.String})
SUB_EXCEPTION = pl.Struct(
    {"exception": pl.String, "message": pl.String, "line": pl.UInt32, "stack": pl.List(STACK_FRAME)}
)

TRACEBACK_SCHEMA: dict[str, pl.DataType] = {
    **RECORD_SCHEMA,
    "last_line": pl.UInt32(),
    "process_name": pl.String(),
    "exception": pl.String(),
    "message": pl.String(),
    "exception_line": pl.UInt32(),
    "exceptions": pl.List(pl.String),
    "stack": pl.List(STACK_FRAME),
    "complete": pl.Boolean(),
    "ambiguous": pl.Boolean(),
    "loose_frames": pl.List(STACK_FRAME),
    "sub_exceptions": pl.List(SUB_EXCEPTION),
}

#: What the columns of the traceback frame mean (the events' are documented in the grammar).
TRACEBACK_DOCS = {
    "last_line": "last line of the block",
    "process_name": "process that reported it, as printed",
    "exception": "type of the exception that was raised at the end",
    "message": "its message, all lines",
    "exception_line": "line of that exception",
    "exceptions": "the whole chain as `type: message`, first cause first; members stand before their group",
    "stack": "frames of the last traceback, outermost first",
    "complete": "false when the head or the tail of the block is missing",
    "ambiguous": "true when lines of several tracebacks are mixed and cannot all be told apart",
    "loose_frames": "frames of those that no stack can be made of, in the order of the lines",
    "sub_exceptions": "members of an exception group, in the order of the lines, with their stacks",
}


class _Run(NamedTuple):
    """Neighbouring rows, of one process where lines name it, that may hold tracebacks."""

    #: what its lines begin with; None where they name no process, or a carrier does
    tag: str | None
    #: what their carrier names
    origin: str | None
    #: runs of one stretch have no event between them
    stretch: tuple[int, int]
    #: row, text without the tag, whether the line has a header
    lines: list[Line]


def read_blocks(
    records: pl.DataFrame, kinds: pl.Series, reports: pl.DataFrame, carried: pl.DataFrame
) -> tuple[list[Span], pl.DataFrame]:
    """Return the kind and the rows of each block, in order, and the traceback frame.

    `reports` are the rows of the exception reports (`row`, `process_name`) which open blocks and stay events;
    `carried` tells of rows that something has carried what wrote them (`row`, `origin`), and whether they
    stand for several (`repeated`).
    """
    table = _table(records, kinds, reports["row"], carried)
    found: list[tuple[Block, str | None, str]] = []
    for (tag, *_), stretch in groupby(_runs(table), key=lambda run: run[:3]):
        lines: list[Line] = []
        blocks: list[Block] = []
        for run in stretch:
            lines += run.lines
            blocks += split(run.lines, sure=tag is not None and tag.startswith("[rank"))
        texts = {row: text for row, text, _ in lines}
        if tag is None:
            blocks = untangle(blocks, lines)
        found += [(block, tag, texts[block.rows[0]]) for block in blocks]
    found += [(block, None, "") for block in _one_liners(table)]
    found.sort(key=lambda one: one[0].rows[0])
    blocks = [block for block, _, _ in found]
    names: dict[int, str | None] = dict(reports.iter_rows())
    for block, tagged, head in found:
        if tagged is not None and (match := _HIT.search(head)):
            names[block.rows[0]] = match[1]
    rows = [_describe(block, names, records) for block in blocks]
    frame = pl.DataFrame(
        rows, schema={key: kind for key, kind in TRACEBACK_SCHEMA.items() if key not in RECORD_SCHEMA}
    )
    heads = records.select(RECORD_SCHEMA.keys())[[block.rows[0] for block in blocks]]
    heads = _tagged_heads(heads, [tag for _, tag, _ in found], [head for _, _, head in found])
    # whose exception it is, of several that are mixed, is not known
    mixed = [index for index, block in enumerate(blocks) if block.loose]
    heads = heads.with_columns(heads[name].scatter(mixed, None) for name in ("rank", *RANKS))
    frame = pl.concat([heads, frame], how="horizontal").select(TRACEBACK_SCHEMA.keys())
    tracebacks = [
        ("thread_dump" if block.dumped else "traceback", pl.Series("row", block.rows, dtype=pl.UInt32))
        for block in blocks
    ]
    taken = pl.Series([row for block in blocks for row in block.rows], dtype=pl.UInt32)
    return [*tracebacks, *read_spans(table, taken)], frame


def _tagged_heads(heads: pl.DataFrame, tags: list[str | None], texts: list[str]) -> pl.DataFrame:
    """Return the heads of blocks with the rank that a tag names, or the header that stands behind it."""
    rows = [index for index, tag in enumerate(tags) if tag is not None]
    if not rows:
        return heads
    told = read_records(
        heads[rows].select("file", "line").with_columns(text=pl.Series([texts[row] for row in rows])),
        compiled_plan(),
    )[0].select(heads.columns)
    ranks = [_TORCH_TAG.match(tags[row] or "") for row in rows]
    rank = pl.Series([match[1] if match else None for match in ranks], dtype=pl.String)
    told = told.with_columns(
        rank=pl.coalesce("rank", rank), gpu_id=pl.coalesce("gpu_id", rank.cast(pl.Int16, strict=False))
    )
    columns = ("time", "clock", "rank", *RANKS)
    return heads.with_columns(heads[name].scatter(rows, told[name]) for name in columns)


def _table(
    records: pl.DataFrame, kinds: pl.Series, reports: pl.Series, carried: pl.DataFrame
) -> pl.DataFrame:
    """Return the rows that no event takes, the reports, and the events that go on in lines below them.

    The tag of their process is taken off. `turn` counts the lines of a process that a carrier names, events
    too. A line that stands for several processes is part of no block.
    """
    free = kinds.is_null()
    rows = pl.concat([(free | kinds.is_in(GO_ON)).arg_true(), reports]).unique().sort()
    own = carried.filter(pl.col("repeated").is_null() & pl.col("origin").is_not_null())
    own = own.select("row", "origin", turn=pl.int_range(pl.len(), dtype=pl.UInt32).over("origin"))
    table = (
        records.select("file", "message", "headed")[rows]
        .with_columns(row=rows, free=free.gather(rows), report=rows.is_in(reports.implode()))
        .with_columns(bare=pl.col("free") & ~pl.col("headed"), tag=pl.lit(None, dtype=pl.String))
        .join(carried.filter(pl.col("repeated").is_not_null()), on="row", how="anti", maintain_order="left")
        .join(own, on="row", how="left", maintain_order="left")
    )
    message = table["message"]
    some = (table["bare"] & (message.str.starts_with("(") | message.str.starts_with("[rank"))).arg_true()
    tags = message.gather(some).str.extract(_TAG)
    some, tags = some.filter(tags.is_not_null()), tags.drop_nulls()
    if some.is_empty():
        return table
    said = pl.select(
        pl.lit(message.gather(some)).str.slice(pl.lit(tags).str.len_chars() + 1).alias("message")
    )["message"]
    return table.with_columns(message.scatter(some, said), table["tag"].scatter(some, tags))


def _runs(table: pl.DataFrame) -> Iterator[_Run]:
    """Yield the runs of neighbouring rows that may hold tracebacks."""
    untagged = pl.col("tag").is_null() & pl.col("origin").is_null()
    # rows between which no event stands; what names its process is not there for those that do not
    place = pl.col("row") - (~untagged).cum_sum()
    plain = table.with_columns(place=place).filter(untagged)
    plain = plain.with_columns(stretch=pl.col("place") - pl.int_range(pl.len(), dtype=pl.UInt32))
    # and what others print is not there for those that do
    named = pl.col("tag").is_not_null()
    tagged = table.filter(named).sort("tag", "row").with_columns(place=pl.col("row"), stretch=pl.lit(0))
    told = table.filter(~named & ~untagged).sort("origin", "row")
    since = pl.col("turn") - pl.int_range(pl.len(), dtype=pl.UInt32).over("origin")
    told = told.with_columns(place=pl.col("turn"), stretch=since)
    for some, step, near in ((plain, 1, "stretch"), (tagged, LONGEST, "tag"), (told, 1, "origin")):
        if some.is_empty():
            continue
        run: _Run | None = None
        previous: tuple[int, str | None, int] | None = None
        columns = ("row", "file", "tag", "origin", "place", "stretch", "message", "headed")
        for row, file, tag, origin, at, stretch, text, headed in (
            _members(some, near).select(columns).iter_rows()
        ):
            who = tag or origin
            close = previous is not None and previous[:2] == (file, who) and at - previous[2] <= step
            if run is None or not close or headed:
                if run is not None:
                    yield run
                run = _Run(tag, origin, (file, stretch), [])
            run.lines.append((row, text, headed))
            previous = (file, who, at)
        if run is not None:
            yield run


def _members(table: pl.DataFrame, near: str) -> pl.DataFrame:
    """Return the rows that may be part of a traceback, among those of one file that are equal in `near`."""
    message, opener, place = pl.col("message"), pl.col("opener"), pl.col("place").cast(pl.Int64)
    table = table.with_columns(frame=message.str.contains(FRAME)).with_columns(
        # a stack frame behind a header is a copy that another program has printed
        opener=pl.col("report")
        | message.str.ends_with(BEGIN)
        | message.str.contains(EXCEPTION)
        | (pl.col("bare") & (pl.col("frame") | message.str.contains(DUMP)))
        | (pl.col("bare") & message.str.contains(GROUP_FRAME)),
        code=pl.col("bare") & message.str.starts_with("    "),
    )
    # a bare line goes on with what the last opener has begun, unless a record stands between
    last = pl.when(opener).then(place).when(~pl.col("bare")).then(-LONGEST).forward_fill().over("file", near)
    goes_on = pl.col("bare") & (place - last.fill_null(-LONGEST) < LONGEST)
    # code above the first frame that is left of a traceback
    ahead = (
        pl.when(opener | ~pl.col("code")).then("frame").backward_fill().over("file", near).fill_null(False)
    )
    return table.filter(opener | goes_on | (pl.col("code") & ahead))


def _one_liners(table: pl.DataFrame) -> Iterator[Block]:
    """Yield the tracebacks that stand on one line, with their line ends escaped."""
    message = pl.col("message")
    some = table.filter(pl.col("bare") & message.str.contains(BEGIN + "\\n", literal=True))
    if some.is_empty():
        return
    for row, text in some.filter(message.str.contains(_ONE_LINE)).select("row", "message").iter_rows():
        start = text.index(BEGIN)
        body = text[start:]
        # it ends with the string it stands in: JSON's, which escapes the quotes within, or Python's
        if re.search(r'\\n +File \\"', body):
            body = _up_to('"', body)
        elif _QUOTE.findall(text[:start]).count("'") % 2:
            body = _up_to("'", body)
        lines = _ESCAPED.sub(_unescaped, body).rstrip("\n").split("\n")
        block = split([(index, line, index == 0) for index, line in enumerate(lines)], sure=True)[0]
        yield Block([row], block.texts)


def _up_to(quote: str, text: str) -> str:
    match = _UP_TO[quote].match(text)
    return match[0] if match else text


def _unescaped(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "r": ""}.get(match[1], match[1] if match[1] in "\"'\\/" else match[0])


def _describe(block: Block, names: dict[int, str | None], records: pl.DataFrame) -> dict[str, Any]:
    texts = block.texts
    if block.rows[0] in names and not texts[0].endswith(BEGIN):
        texts = [BEGIN, *texts[1:]]  # a report that names no exception stands for the beginning
    parsed = read_traceback(texts, block.margins)
    last = parsed.raised[-1] if parsed.raised else None
    numbers = records["line"]

    def line_of(place: int) -> int:
        rows = block.origin or block.rows
        return int(numbers[rows[min(place, len(rows) - 1)]])

    return {
        "last_line": numbers[max(block.rows)],
        "process_name": None if block.loose else names.get(block.rows[0]),
        "exception": last[0] if last else None,
        "message": last[1] if last else None,
        "exception_line": line_of(last[2]) if last else None,
        "exceptions": [f"{name}: {message}" if message else name for name, message, _ in parsed.raised],
        "stack": parsed.stack,
        "complete": parsed.begun and bool(parsed.raised) and not parsed.open_end and not block.ambiguous,
        "ambiguous": block.ambiguous,
        "loose_frames": [stack_frame(text, []) for text in block.loose],
        "sub_exceptions": [
            {"exception": one[0], "message": one[1], "line": line_of(one[2]), "stack": stack}
            for one, stack in parsed.members
        ],
    }
