"""From records to events: each line by the one grammar rule that takes it, as typed frames.

    message --> head (its first characters; few are distinct) --> candidate rules
            --> patterns, rule by rule, on the lines of that bucket only --> typed columns

Bulk lines never meet Python: it sees the distinct heads, one line a shape of a bag, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import polars as pl

from sglogparse._compiler import Bag, Fixed
from sglogparse._families import family_names
from sglogparse._records import RECORD_SCHEMA

if TYPE_CHECKING:
    from sglogparse._compiler import EventPlan, FieldType, Plan

#: Characters of a message by which its candidate rules are found.
_HEAD = 12
#: Lines whose beginnings are looked at one by one before a pattern is tried, at the most.
_FEW = 256
#: Orders of items that a bag learns from lines of one log before it reads the rest line by line.
_MOST_SHAPES = 64

#: What the lines of a block are.
BLOCKS = ("traceback", "thread_dump", "native_stack", "device_assert", "compiler_output", "continuation")

#: Name under which the frames of a log that is not kept whole hold the sizes of its groups of lines.
COUNTS = "counts"

DTYPES: dict[FieldType, pl.DataType] = {
    "int": pl.Int64(),
    "float": pl.Float64(),
    "bool": pl.Boolean(),
    "str": pl.String(),
}


def event_schema(event: EventPlan) -> dict[str, pl.DataType]:
    """Return the schema of an event's frame: the record's columns, then its fields."""
    return {**RECORD_SCHEMA, **{name: DTYPES[kind] for name, kind in event.fields.items()}}


@cache
def event_schemas(plan: Plan) -> dict[str, dict[str, pl.DataType]]:
    """Return the schema of each event's frame."""
    return {event.name: event_schema(event) for event in plan.events}


class Frames(Mapping[str, pl.DataFrame]):
    """Frames by name, with a schema each: those without rows are made when they are asked for."""

    def __init__(
        self,
        found: Mapping[str, pl.DataFrame],
        schemas: Mapping[str, dict[str, pl.DataType]],
        empty: dict[str, pl.DataFrame] | None = None,
        late: Mapping[str, Callable[[], pl.DataFrame]] | None = None,
    ) -> None:
        self.found = dict(found)
        #: those that are made when they are asked for, and no part of parts
        self._late = dict(late or {})
        self._schemas = schemas
        #: those that were made; parts of the same frames share them
        self._empty = {} if empty is None else empty

    def __getitem__(self, name: str) -> pl.DataFrame:
        if name in self._late:
            self.found[name] = self._late.pop(name)()
        if name in self.found:
            return self.found[name]
        if name not in self._empty:
            self._empty[name] = pl.DataFrame(schema=self._schemas[name])
        return self._empty[name]

    def cut(self, rows: Mapping[str, tuple[int, int]]) -> Frames:
        """Return a part of each frame: from a row up to, and without, another."""
        return self._part({name: self.found[name][begin:end] for name, (begin, end) in rows.items()})

    def where(self, some: Callable[[pl.DataFrame], pl.DataFrame]) -> Frames:
        """Return some rows of each frame."""
        return self._part({name: some(frame) for name, frame in self.found.items()})

    def _part(self, parts: Mapping[str, pl.DataFrame]) -> Frames:
        found = {name: part for name, part in parts.items() if part.height}
        return Frames(found, self._schemas, self._empty)

    def __iter__(self) -> Iterator[str]:
        return iter(self._schemas)

    def __len__(self) -> int:
        return len(self._schemas)

    def __contains__(self, name: object) -> bool:
        return name in self._schemas


def read_events(records: pl.DataFrame, plan: Plan) -> tuple[pl.Series, Frames]:
    """Return the kind of each record (null where no rule takes it) and a frame an event."""
    pieces: dict[str, list[pl.DataFrame]] = {event.name: [] for event in plan.events}
    for candidates, rows in _buckets(records["message"], plan):
        left = pl.DataFrame({"row": rows, "message": records["message"].gather(rows)})
        for event in candidates:
            taken, left = _taken(left, event)
            pieces[event.name] += taken
    kinds = pl.Series("kind", [None], dtype=pl.UInt16).new_from_index(0, records.height)
    heads = records.select(RECORD_SCHEMA.keys())
    frames: dict[str, pl.DataFrame] = {}
    for code, event in enumerate(plan.events):
        if not pieces[event.name]:
            continue
        found, *more = pieces[event.name]
        if more:
            found = pl.concat([found, *more]).sort("row")
        rows, *fields = found.get_columns()
        kinds = kinds.scatter(rows, code)
        frames[event.name] = heads[rows].hstack(fields)
    kind = kind_type(plan)
    return kinds.cast(pl.Series(dtype=kind).to_physical().dtype).cat.to(kind), Frames(
        frames, event_schemas(plan)
    )


def read_event(messages: pl.Series, plan: Plan, event: EventPlan) -> pl.DataFrame:
    """Return the rows of the messages that are of one kind, and the fields that `event` has.

    `event` is one of the plan's, or one of that name with fewer fields. A message belongs to the first rule
    of the plan that takes it, so those before it are tried too.
    """
    fields = {name: DTYPES[kind] for name, kind in event.fields.items()}
    pieces = [pl.DataFrame(schema={"row": pl.UInt32, **fields})]
    prefixes = tuple(prefix for one in event.wordings for prefix in one.prefixes)
    some = messages.to_frame("message").with_row_index("row").filter(_starts_with(prefixes))
    for candidates, rows in _buckets(some["message"], plan):
        left = some[rows]
        for one in candidates[: [one.name for one in candidates].index(event.name)]:
            left = _taken(left, one)[1]
        pieces += _taken(left, event)[0]
    return pl.concat(pieces, how="diagonal").sort("row")


def kind_type(plan: Plan) -> pl.Enum:
    """Return the type of a line's kind: the events, in the order of the plan, and what lines are besides."""
    return pl.Enum([*(event.name for event in plan.events), "message", *BLOCKS, *family_names()])


def _buckets(messages: pl.Series, plan: Plan) -> Iterator[tuple[list[EventPlan], pl.Series]]:
    """Yield the rows that share their candidate rules; rows without a candidate are left out."""
    heads = messages.str.head(_HEAD).to_frame("head").with_row_index("row").group_by("head").agg("row")
    # one look-up a length of prefix, however many rules there are
    candidates = [
        pl.col("head")
        .str.head(length)
        .replace_strict(list(rules), list(rules.values()), default=None, return_dtype=pl.String)
        .alias(str(length))
        for length, rules in _prefixes(plan).items()
    ]
    table = heads.with_columns(
        pl.concat_str(candidates, separator=",", ignore_nulls=True).alias("bucket")
    ).filter(pl.col("bucket") != "")
    for (bucket,), part in table.partition_by("bucket", as_dict=True).items():
        rows = part["row"][0] if part.height == 1 else part["row"].explode().sort()
        yield [plan.events[index] for index in sorted(set(map(int, str(bucket).split(","))))], rows


@cache
def _prefixes(plan: Plan) -> dict[int, dict[str, str]]:
    """Return, by their length, the heads with which wordings start, each with the indices of its rules."""
    found: dict[int, dict[str, str]] = {}
    for index, event in enumerate(plan.events):
        for prefix in dict.fromkeys(prefix[:_HEAD] for one in event.wordings for prefix in one.prefixes):
            rules = found.setdefault(len(prefix), {})
            rules[prefix] = f"{rules[prefix]},{index}" if prefix in rules else str(index)
    return found


def _taken(left: pl.DataFrame, event: EventPlan) -> tuple[list[pl.DataFrame], pl.DataFrame]:
    """Return typed rows of the messages that an event's wordings take, and the messages that are left."""
    pieces = []
    for wording in event.wordings:
        for found in _matches(left, wording, event):
            pieces.append(found)
            left = _without(left, found)
        if left.is_empty():
            break
    return pieces, left


def _matches(left: pl.DataFrame, wording: Fixed | Bag, event: EventPlan) -> Iterator[pl.DataFrame]:
    """Yield typed rows of the messages that a wording takes."""
    # of few lines, to make a pattern ready costs more than to look for its beginning
    if left.height <= _FEW and not any(text.startswith(wording.prefixes) for text in left["message"]):
        return
    if wording.rivals:
        left = left.filter(~_starts_with(wording.rivals))
    if isinstance(wording, Fixed):
        found = _extract(left, wording.pattern, wording.groups, event)
        if not found.is_empty():
            yield found
        return
    left = left.filter(_starts_with(wording.prefixes))
    for _ in range(_MOST_SHAPES):
        if left.is_empty():
            return
        shape = wording.shape(left["message"][0])
        if shape is None:
            left = left[1:]
            continue
        found = _extract(left, *shape, event)
        yield found
        left = _without(left, found)
    yield from _one_by_one(left, wording, event)


def _without(left: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """Return the messages that were not found (what is found is part of what is left)."""
    if found.height == left.height:
        return left.clear()
    return left.join(found.select("row"), on="row", how="anti", maintain_order="left")


def _starts_with(prefixes: tuple[str, ...]) -> pl.Expr:
    return pl.any_horizontal([pl.col("message").str.starts_with(prefix) for prefix in prefixes])


def _one_by_one(left: pl.DataFrame, bag: Bag, event: EventPlan) -> Iterator[pl.DataFrame]:
    """Read what is left of a bag whose items come in ever new orders."""
    rows: list[dict[str, object]] = []
    for row, message in left.iter_rows():
        shape = bag.shape(message)
        match = re.match(shape[0], message) if shape else None
        if shape and match:
            rows.append({"row": row, **{group: match[group] for group in shape[1]}})
    if rows:
        groups = {group: group.partition("__")[0] for row in rows for group in row if group != "row"}
        texts = pl.DataFrame(rows, schema={"row": pl.UInt32, **dict.fromkeys(groups, pl.String)})
        yield texts.select("row", *_fields(groups, event))


def _extract(left: pl.DataFrame, pattern: str, groups: dict[str, str], event: EventPlan) -> pl.DataFrame:
    """Return typed rows of the messages that a pattern takes."""
    # eager: to plan a query costs more than to run one over the few lines of most events
    texts = left["message"].str.extract_groups("(?P<matched>)" + pattern).struct.unnest()
    matched = texts["matched"].is_not_null()
    texts = texts.hstack([left["row"]])
    return (texts if matched.all() else texts.filter(matched)).select("row", *_fields(groups, event))


def _fields(groups: dict[str, str], event: EventPlan) -> list[pl.Expr]:
    """Return the columns of an event's fields, made from the texts of its groups.

    Those without a group have no value, and take no memory as long as they are not looked at.
    """
    columns = []
    found = set(groups.values())
    for name, kind in event.fields.items():
        if name not in found:
            columns.append(_none(name, kind))
            continue
        sources = [group for group, field in groups.items() if field == name]
        if name == "extra":
            # rows of different shapes can meet here: the number in a group's name is its place in the line
            sources.sort(key=lambda group: int(group.rpartition("__")[2]))
            columns.append(
                pl.concat_str(sources, separator=", ", ignore_nulls=True).replace("", None).alias(name)
            )
            continue
        text = pl.coalesce(sources) if len(sources) > 1 else pl.col(sources[0])
        if kind == "bool":
            columns.append((text == "True").alias(name))
        else:
            columns.append(text.cast(DTYPES[kind], strict=False).alias(name))
    return columns


@cache
def _none(name: str, kind: FieldType) -> pl.Expr:
    return pl.lit(None, dtype=DTYPES[kind]).alias(name)


def printed(records: pl.DataFrame, event: EventPlan, rows: Iterable[int]) -> list[dict[str, Any]]:
    """Return the fields of an event's rows as text, digit for digit: what was printed, not what it means."""
    numbers = list(rows)
    messages = records["message"].gather(numbers)
    if len(numbers) <= _FEW:
        absent = dict.fromkeys(event.fields)
        read = zip(numbers, (_texts(message, event) for message in messages), strict=True)
        return [{"row": row, **absent, **texts} for row, texts in read if texts is not None]
    left = pl.DataFrame({"row": numbers, "message": messages}, schema_overrides={"row": pl.UInt32})
    text_event = replace(event, fields=dict.fromkeys(event.fields, "str"))
    found, _ = _taken(left, text_event)
    schema = {"row": pl.UInt32, **dict.fromkeys(event.fields, pl.String)}
    return pl.concat([pl.DataFrame(schema=schema), *found], how="diagonal").sort("row").to_dicts()


def _texts(message: str, event: EventPlan) -> dict[str, str | None] | None:
    """Read one message as an event's wordings do: for few lines, polars costs more than this."""
    for wording in event.wordings:
        if not message.startswith(wording.prefixes) or (
            wording.rivals and message.startswith(wording.rivals)
        ):
            continue
        read = (wording.pattern, wording.groups) if isinstance(wording, Fixed) else wording.shape(message)
        match = re.match(read[0], message) if read else None
        if read is None or match is None:
            continue
        texts: dict[str, str | None] = {}
        extra = []
        for group, field in read[1].items():
            if field != "extra":
                texts[field] = texts.get(field) if texts.get(field) is not None else match[group]
            elif match[group] is not None:
                extra.append((int(group.rpartition("__")[2]), match[group]))
        if "extra" in read[1].values():
            texts["extra"] = ", ".join(text for _, text in sorted(extra)) or None
        return texts
    return None
