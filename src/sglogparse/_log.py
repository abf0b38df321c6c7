"""A log as frames: the Python API over the first stages of the road.

read_log(paths) --> Log --> .lines .unparsed .frames .decode_batch ... .diagnose()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from sglogparse._bare import bare_messages
from sglogparse._blocks import TRACEBACK_DOCS, TRACEBACK_SCHEMA, read_blocks
from sglogparse._compiler import compiled_plan
from sglogparse._events import BLOCKS, COUNTS, Frames, event_schemas, read_events
from sglogparse._families import FOREIGN_DOCS, foreign_schema, read_families
from sglogparse._grammar import docs
from sglogparse._records import (
    MESSAGE_SCHEMA,
    RANKS,
    RECORD_SCHEMA,
    messages_of,
    place_of,
    places_of,
    read_records,
)
from sglogparse._server_args import SERVER_ARG_SCHEMA, read_server_args
from sglogparse._source import SourceFile
from sglogparse._spans import Span, indented
from sglogparse._stacks import (
    FAULT_DOCS,
    FAULT_SCHEMA,
    STACK_FRAMES_DOCS,
    STACK_FRAMES_SCHEMA,
    read_faults,
    stack_frames,
)
from sglogparse._wrappers import CARRIER_DOCS, CARRIER_SCHEMA, goes_on

if TYPE_CHECKING:
    from sglogparse._report import Diagnosis
    from sglogparse._wrappers import Accepted


RECORD_DOCS = {
    "file": "index of the file in `Log.files`",
    "line": "physical line of the file, from 1",
    "time": "time as printed, without a zone; null where none is printed",
    "clock": "time of day, where the release prints no date",
    "rank": "rank tags as printed; null where none are",
    **dict.fromkeys(RANKS, ""),
}


class Log:
    """The lines of one or several logs, each in exactly one place.

    `lines` has a row a physical line, in order, with its `kind`: the name of the event frame that holds it,
    `message` (a record that no event rule takes), the kind of a block (`traceback`, `thread_dump`...), the
    name of a family (of other software, in `foreign`), or null (in `unparsed`).
    """

    def __init__(
        self,
        files: Iterable[SourceFile],
        rows: pl.DataFrame,
        frames: Mapping[str, pl.DataFrame],
        counts: pl.DataFrame | None = None,
        *,
        late: Mapping[str, Callable[[], pl.DataFrame]] | None = None,
        blocks: Sequence[Span] = (),
    ) -> None:
        self.files: tuple[SourceFile, ...] = tuple(files)
        self.records = rows.drop("kind")
        self.lines: pl.DataFrame = rows.select(*RECORD_SCHEMA, "kind", "text")
        #: how many rows each group of lines has, and how many of them are not kept; None where all are
        self.counts = counts
        #: kind and rows (in `lines`) of each block
        self.blocks = blocks
        found = frames if counts is None else {**frames, COUNTS: counts}
        self.frames = Frames(found, frame_schemas(), late=late)

    @cached_property
    def unparsed(self) -> pl.DataFrame:
        """The lines that no rule, no block and no family takes."""
        return self.lines.filter(pl.col("kind").is_null())

    def unparsed_counts(self) -> dict[int, int]:
        """Return how many unparsed lines each file has, those included that are not kept."""
        counts = self.unparsed.group_by("file").len()
        if self.counts is not None:
            more = self.counts.filter(pl.col("kind").is_null())
            more = more.group_by("file").agg(pl.col("dropped").sum().alias("len"))
            counts = pl.concat([counts, more.cast(counts.schema)]).group_by("file").agg(pl.col("len").sum())
        return dict(counts.iter_rows())

    def __getattr__(self, name: str) -> pl.DataFrame:
        """Return a frame by its name, as `log.decode_batch`."""
        frames: Mapping[str, pl.DataFrame] = self.__dict__.get("frames", {})
        if name in frames:
            return frames[name]
        raise AttributeError(f"no frame is called {name!r}")

    def __repr__(self) -> str:
        return (
            f"<Log of {len(self.files)} file(s), {self.lines.height} lines, {self.unparsed.height} unparsed>"
        )

    def diagnose(self, *, processes: int = 1) -> Diagnosis:
        """Judge the log: outcome, cause, first fault, findings.

        Hundreds of launches, in many files, are judged sooner by several processes.
        """
        from sglogparse._verdict import diagnose

        return diagnose(self, processes)


class Read(NamedTuple):
    """What lines say one by one: the first half of the road, which does not depend on their neighbours."""

    records: pl.DataFrame
    #: kind of each record; null where no event rule takes it
    kinds: pl.Series
    carried: pl.DataFrame
    frames: Frames

    def part(self, start: int, stop: int) -> Read:
        """Return what was read of the rows from one up to, and without, another."""
        if start == 0 and stop >= self.records.height:
            return self
        edges = [_place(self.records, start), _place(self.records, stop)]
        cuts = {name: _positions(frame, edges) for name, frame in self.frames.found.items()}
        first, last = _positions(self.carried, edges)
        return Read(
            self.records[start:stop], self.kinds[start:stop], self.carried[first:last], self.frames.cut(cuts)
        )


def read_lines(lines: pl.DataFrame, accepted: Accepted) -> Read:
    """Read lines one by one, in one piece."""
    plan = compiled_plan()
    records, carried = read_records(lines, plan, accepted)
    places = lines.select("file", "line")[carried["row"]]
    carried = pl.concat([places, carried.select(CARRIER_SCHEMA.keys())], how="horizontal")
    kinds, frames = read_events(records, plan)
    return Read(records, kinds, carried, frames)


def joined_reads(reads: Sequence[Read], accepted: Accepted) -> Read:
    """Put together what was read of neighbouring lines: the parts are the whole."""
    if len(reads) == 1:
        return reads[0]
    reads = list(_mended(reads, accepted))
    names = dict.fromkeys(name for one in reads for name in one.frames.found)
    frames = {
        name: pl.concat([one.frames.found[name] for one in reads if name in one.frames.found])
        for name in names
    }
    return Read(
        pl.concat([one.records for one in reads]),
        pl.concat([one.kinds for one in reads]),
        pl.concat([one.carried for one in reads]),
        Frames(frames, event_schemas(compiled_plan())),
    )


def _mended(reads: Sequence[Read], accepted: Accepted) -> Iterator[Read]:
    """Yield the parts, with lines that a container runtime has cut, and that two parts share, read again."""
    last = reads[0]
    for read in reads[1:]:
        open_, rest = _cut_lines(last), _cut_lines(read, first=True)
        if open_ and rest:
            height = last.records.height - open_
            whole = pl.concat([last.records[height:], read.records[:rest]]).select("file", "line", "text")
            yield last.part(0, height)
            yield read_lines(whole, accepted)
            read = read.part(rest, read.records.height)
        else:
            yield last
        last = read
    yield last


def _cut_lines(read: Read, *, first: bool = False) -> int:
    """Return how many lines at the end go on in the next one; at the beginning, with the last one of them."""
    if read.records.is_empty() or read.carried.is_empty():
        return 0
    places = read.records.select("file", "line")
    places = places if first else places.reverse()
    cut = read.carried.filter(pl.col("partial")).select("file", "line", pl.lit(True).alias("cut"))
    found = places.join(cut, on=["file", "line"], how="left", maintain_order="left")["cut"]
    whole = found.is_null().arg_max()
    number = len(found) if whole is None or not found.has_nulls() else whole
    return min(number + 1, len(found)) if first else number


def _place(records: pl.DataFrame, row: int) -> int | None:
    """Return a key of the line at a row; None behind the last one."""
    if row >= records.height:
        return None
    file, line = records.select("file", "line").row(row)
    return place_of(file, line)


def _positions(frame: pl.DataFrame, edges: Sequence[int | None]) -> tuple[int, int]:
    """Return where lines (by their keys; None is behind the last one) stand in a frame that is in order."""
    if frame.is_empty():
        return 0, 0
    own = places_of(frame)
    first, last = (frame.height if edge is None else int(own.search_sorted(edge)) for edge in edges)
    return first, last


def assembled(files: Iterable[SourceFile], read: Read) -> Log:
    """Return the log that lines are together: blocks, families, and all that neighbours tell."""
    records, kinds, carried, frames = read
    reports = _rows_of(kinds, records, frames, "exception_report", "process_name")
    warmups = _rows_of(kinds, records, frames, "warmup_failed", None)
    reports = pl.concat([reports, warmups]).sort("row")
    rests = carried.filter(goes_on(carried.with_columns(row="line")))
    kinds = kinds.scatter(_carried_rows(records, rests)["row"], "continuation")
    blocks, tracebacks = read_blocks(records, kinds, reports, _carried_rows(records, carried))
    kind = kinds
    for name in BLOCKS:
        own = pl.concat([pl.Series("row", [], pl.UInt32), *(span for one, span in blocks if one == name)])
        kind = kind.scatter(own.filter(kinds.gather(own).is_null()), name)
    kind = kind.scatter((kind.is_null() & records["headed"]).arg_true(), "message")
    others, foreign = read_families(records, kind.is_null())
    kind = kind.scatter(others, foreign["family"].cast(kind.dtype))
    kind = kind.scatter(bare_messages(records, kind), "message")
    kind = kind.scatter(indented(records, kind), "continuation")
    rows = records.with_columns(kind)
    more = {
        "message": messages_of(rows),
        "traceback": tracebacks,
        "foreign": foreign,
        "server_arg": read_server_args(frames["server_args"]),
        "carried": carried,
    }
    late = {
        "faults": lambda: read_faults(records, blocks, tracebacks),
        "stack_frames": lambda: stack_frames(tracebacks),
    }
    return Log(files, rows, {**frames.found, **more}, late=late, blocks=blocks)


def read_log(paths: str | Path | Iterable[str | Path]) -> Log:
    """Read one log or several; "-" is standard input, gzip is unpacked.

    Raises SourceError for a path that cannot be read as text.
    """
    from sglogparse._stream import read_whole

    return read_whole([paths] if isinstance(paths, str | Path) else paths)


def frame_schemas() -> dict[str, dict[str, pl.DataType]]:
    """Return the fixed schema of each frame that a log has."""
    return {
        **event_schemas(compiled_plan()),
        "message": MESSAGE_SCHEMA,
        "traceback": TRACEBACK_SCHEMA,
        "foreign": foreign_schema(),
        "server_arg": SERVER_ARG_SCHEMA,
        "carried": {"file": RECORD_SCHEMA["file"], "line": RECORD_SCHEMA["line"], **CARRIER_SCHEMA},
        "faults": FAULT_SCHEMA,
        "stack_frames": STACK_FRAMES_SCHEMA,
    }


def column_docs(frame: str) -> dict[str, str]:
    """Return what each column of a frame means."""
    fields = {**docs(), **RECORD_DOCS, **{name: docs().get(name, "") for name in RANKS}}
    own = {
        "traceback": TRACEBACK_DOCS,
        "foreign": FOREIGN_DOCS,
        "message": {"level": docs()["level"], "message": "the record without its header"},
        "faults": FAULT_DOCS,
        "stack_frames": STACK_FRAMES_DOCS,
        "server_arg": {"name": "name of the argument", "value": "its value as JSON"},
        "carried": CARRIER_DOCS,
    }.get(frame, {})
    return {column: own.get(column) or fields.get(column, "") for column in frame_schemas()[frame]}


def _carried_rows(records: pl.DataFrame, carried: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the carried lines, with what names their process."""
    if carried.is_empty():
        return carried.select(pl.lit(None, dtype=pl.UInt32).alias("row"), "origin", "repeated")
    places = records.select("file", "line").with_row_index("row")
    return carried.join(places, on=["file", "line"], how="left", maintain_order="left").select(
        "row", "origin", "repeated"
    )


def _rows_of(
    kinds: pl.Series, records: pl.DataFrame, frames: Mapping[str, pl.DataFrame], kind: str, column: str | None
) -> pl.DataFrame:
    rows = (kinds == kind).fill_null(False).arg_true()
    names: Any = frames[kind][column] if column else pl.repeat(None, len(rows), dtype=pl.String, eager=True)
    return pl.DataFrame(
        {"row": rows, "process_name": names}, schema={"row": pl.UInt32, "process_name": pl.String}
    )
