"""A log as frames: the Python API over the first stages of the road.

read_log(paths) --> Log --> .lines .unparsed .frames .decode_batch ... .diagnose()
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from sglogparse._blocks import TRACEBACK_DOCS, TRACEBACK_SCHEMA, read_blocks
from sglogparse._compiler import compiled_plan
from sglogparse._events import BLOCKS, event_schema, read_events
from sglogparse._grammar import docs
from sglogparse._records import RANKS, RECORD_SCHEMA, read_records
from sglogparse._server_args import SERVER_ARG_SCHEMA, read_server_args
from sglogparse._source import SourceFile, read_sources
from sglogparse._stacks import (
    FAULT_DOCS,
    FAULT_SCHEMA,
    STACK_FRAMES_DOCS,
    STACK_FRAMES_SCHEMA,
    read_faults,
    stack_frames,
)

if TYPE_CHECKING:
    from sglogparse._compiler import Plan
    from sglogparse._report import Diagnosis

#: Lines that are read in one piece: few enough for the caches, enough to pay for the calls.
_PART = 250_000

RECORD_DOCS = {
    "file": "index of the file in `Log.files`",
    "line": "physical line of the file, from 1",
    "time": "time as printed, without a zone; null where none is printed",
    "clock": "time of day, where the release prints no date",
    "rank": "rank tags as printed; null where none are",
    **dict.fromkeys(RANKS, ""),
}
MESSAGE_SCHEMA: dict[str, pl.DataType] = {**RECORD_SCHEMA, "level": pl.String(), "message": pl.String()}


class Log:
    """The lines of one or several logs, each in exactly one place.

    `lines` has a row a physical line, in order, with its `kind`: the name of the event frame that holds it,
    `message` (a record that no event rule takes), the kind of a block (`traceback`, `thread_dump`...), or
    null (in `unparsed`).
    """

    def __init__(self, files: list[SourceFile], lines: pl.DataFrame) -> None:
        plan = compiled_plan()
        records, kinds, frames = _read(lines, plan)
        self.files: tuple[SourceFile, ...] = tuple(files)
        self.records = records
        reports = _rows_of(kinds, records, frames, "exception_report", "process_name")
        warmups = _rows_of(kinds, records, frames, "warmup_failed", None)
        blocks, tracebacks = read_blocks(records, kinds, pl.concat([reports, warmups]).sort("row"))
        kind = kinds
        for name in BLOCKS:
            rows = pl.concat(
                [pl.Series("row", [], pl.UInt32), *(rows for one, rows in blocks if one == name)]
            )
            kind = kind.scatter(rows.filter(kinds.gather(rows).is_null()), name)
        kind = kind.scatter((kind.is_null() & records["headed"]).arg_true(), "message")
        self.lines: pl.DataFrame = records.with_columns(kind).select(*RECORD_SCHEMA, "kind", "text")
        other = records.filter(self.lines["kind"] == "message").select(MESSAGE_SCHEMA.keys())
        arguments = read_server_args(frames["server_args"])
        self.frames: Mapping[str, pl.DataFrame] = {
            **frames,
            "message": other,
            "traceback": tracebacks,
            "server_arg": arguments,
            "faults": read_faults(records, blocks, tracebacks),
            "stack_frames": stack_frames(tracebacks),
        }

    @cached_property
    def unparsed(self) -> pl.DataFrame:
        """The lines that no rule and no block takes."""
        return self.lines.filter(pl.col("kind").is_null())

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

    def diagnose(self) -> Diagnosis:
        """Judge the log: outcome, cause, first fault, findings."""
        from sglogparse._verdict import diagnose

        return diagnose(self)


def _read(lines: pl.DataFrame, plan: Plan) -> tuple[pl.DataFrame, pl.Series, dict[str, pl.DataFrame]]:
    """Return records, kinds and event frames, reading parts of the lines side by side.

    What a line says does not depend on other lines, so the parts put together are the whole.
    """
    parts = [lines.slice(start, _PART) for start in range(0, max(lines.height, 1), _PART)]

    def read(part: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series, dict[str, pl.DataFrame]]:
        records = read_records(part, plan)
        return records, *read_events(records, plan)

    if len(parts) == 1:
        return read(lines)
    with ThreadPoolExecutor(pl.thread_pool_size()) as pool:
        done = list(pool.map(read, parts))
    frames = {name: pl.concat([frames[name] for _, _, frames in done]) for name in done[0][2]}
    return pl.concat([records for records, _, _ in done]), pl.concat([kinds for _, kinds, _ in done]), frames


def read_log(paths: str | Path | Iterable[str | Path]) -> Log:
    """Read one log or several; "-" is standard input, gzip is unpacked.

    Raises SourceError for a path that cannot be read as text.
    """
    return Log(*read_sources([paths] if isinstance(paths, str | Path) else paths))


def frame_schemas() -> dict[str, dict[str, pl.DataType]]:
    """Return the fixed schema of each frame that a log has."""
    events = {event.name: event_schema(event) for event in compiled_plan().events}
    return {
        **events,
        "message": MESSAGE_SCHEMA,
        "traceback": TRACEBACK_SCHEMA,
        "server_arg": SERVER_ARG_SCHEMA,
        "faults": FAULT_SCHEMA,
        "stack_frames": STACK_FRAMES_SCHEMA,
    }


def column_docs(frame: str) -> dict[str, str]:
    """Return what each column of a frame means."""
    fields = {**docs(), **RECORD_DOCS, **{name: docs().get(name, "") for name in RANKS}}
    own = {
        "traceback": TRACEBACK_DOCS,
        "message": {"level": docs()["level"], "message": "the record without its header"},
        "faults": FAULT_DOCS,
        "stack_frames": STACK_FRAMES_DOCS,
        "server_arg": {"name": "name of the argument", "value": "its value as JSON"},
    }.get(frame, {})
    return {column: own.get(column) or fields.get(column, "") for column in frame_schemas()[frame]}


def _rows_of(
    kinds: pl.Series, records: pl.DataFrame, frames: Mapping[str, pl.DataFrame], kind: str, column: str | None
) -> pl.DataFrame:
    rows = (kinds == kind).fill_null(False).arg_true()
    names: Any = frames[kind][column] if column else pl.repeat(None, len(rows), dtype=pl.String, eager=True)
    return pl.DataFrame(
        {"row": rows, "process_name": names}, schema={"row": pl.UInt32, "process_name": pl.String}
    )
