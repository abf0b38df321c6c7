"""From blocks to what is asked of them: a row a fault, and a row a stack frame.

    traceback frame + spans --> faults (equal ones together)      traceback frame --> stack_frames

Both frames repeat what lines in blocks say; they take no part in the sum of the lines.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl

from sglogparse._cheap import lazy
from sglogparse._records import RECORD_SCHEMA

if TYPE_CHECKING:
    from sglogparse._spans import Span

FAULT_SCHEMA: dict[str, pl.DataType] = {
    **RECORD_SCHEMA,
    "last_line": pl.UInt32(),
    "kind": pl.String(),
    "exception": pl.String(),
    "message": pl.String(),
    "process_name": pl.String(),
    "sglang_frame": pl.String(),
    "complete": pl.Boolean(),
    "repeats": pl.UInt32(),
    "repeat_ranks": pl.List(pl.String),
    "repeat_lines": pl.List(pl.UInt32),
}

FAULT_DOCS = {
    "last_line": "last line of the block",
    "kind": "`exception`, `thread_dump`, `native_stack`, `device_assert` or `compiler_output`",
    "exception": "type of the exception, of Python or C++; null where none is named",
    "message": "what it says: the exception's message, a signal, an assertion, a compiler's error",
    "process_name": "process that reported it, as printed",
    "sglang_frame": "innermost stack frame in sglang, as `path:line function`",
    "complete": "false when a part of a traceback is missing; null for other kinds",
    "repeats": "faults of the same kind, exception, message and sglang frame that follow it in any file",
    "repeat_ranks": "rank tags of those, each once, where they are known",
    "repeat_lines": "first lines of those",
}

STACK_FRAMES_SCHEMA: dict[str, pl.DataType] = {
    "file": pl.UInt16(),
    "line": pl.UInt32(),
    "member": pl.UInt32(),
    "depth": pl.UInt32(),
    "path": pl.String(),
    "path_line": pl.Int64(),
    "function": pl.String(),
    "code": pl.String(),
    "is_sglang": pl.Boolean(),
}

STACK_FRAMES_DOCS = {
    "line": "first line of the block",
    "member": "place in `sub_exceptions`, from 0, of a group's member; null for the block's own stack",
    "depth": "place in the stack, from 0, outermost first; null for a frame whose stack is ambiguous",
    "path": "source file, as printed",
    "path_line": "line in that source file",
    "function": "function, as printed",
    "code": "its line of code, where one is printed",
    "is_sglang": "the source file is part of sglang",
}

#: A path within the sglang package: a folder of that name can also be a checkout or an environment.
_SGLANG = r"^(?:.*/)?(sglang/(?:[A-Za-z0-9_]+/)*[A-Za-z0-9_]+\.py)$"
_SGLANG_PATH = lazy(_SGLANG)
#: Lines between two parts of one dump.
_GAP = 3
#: What a line of a span says, by kind: the type of an exception and its message.
_SAYS: dict[str, tuple[re.Pattern[str], ...]] = {
    "thread_dump": (re.compile(r"Fatal Python error: (?P<message>.*)"),),
    "native_stack": (
        re.compile(r"terminate called after throwing an instance of '(?P<exception>[^']*)'"),
        re.compile(r" *what\(\): +(?P<message>.*)"),
        re.compile(r"(?:\[[^\]]*\] )?(?P<message>Caught signal .*|Signal: .*|SIG[A-Z]+ .*)"),
        re.compile(r"(?P<message>Exception raised from .*)"),
    ),
    "device_assert": (re.compile(r"(?P<message>.*)"),),
    "compiler_output": (re.compile(r"(?P<message>.*(?:\berror(?: #|:)| \*\*\* |^FAILED: ).*)"),),
}
#: The thread of a device assert.
_PLACE = lazy(r" block: \[[0-9,]+\], thread: \[[0-9,]+\],?")
#: A frame of py-spy.
_PYSPY_FRAME = lazy(r" {4}(\S.*) \(([^()]+\.py):([0-9]+)\)$")


def stack_frames(tracebacks: pl.DataFrame) -> pl.DataFrame:
    """Return a row a stack frame of the traceback frame, ordered by block and depth."""
    frame = pl.col("frame").struct
    base = tracebacks.with_row_index("block").with_columns(member=pl.lit(None, dtype=pl.UInt32))
    member = (
        base.select("block", "file", "line", "sub_exceptions")
        .explode("sub_exceptions", empty_as_null=False)
        .with_columns(member=pl.int_range(pl.len(), dtype=pl.UInt32).over("block"))
        .with_columns(stack=pl.col("sub_exceptions").struct.field("stack"))
    )
    columns = ("block", "file", "line", "member", "stack", "known")
    stacks = pl.concat(
        [
            base.with_columns(known=True).select(columns),
            member.with_columns(known=True).select(columns),
            base.with_columns(known=False, stack="loose_frames").select(columns),
        ]
    ).with_row_index("source")
    return (
        stacks.filter(pl.col("stack").list.len() > 0)
        .explode("stack")
        .rename({"stack": "frame"})
        .with_columns(place=pl.int_range(pl.len(), dtype=pl.UInt32).over("source"))
        .sort("block", "source", "place")
        .select(
            "file",
            "line",
            "member",
            pl.when("known").then("place").alias("depth"),
            frame.field("path"),
            frame.field("line").alias("path_line"),
            frame.field("function"),
            frame.field("code"),
            frame.field("path").str.contains(_SGLANG).fill_null(False).alias("is_sglang"),
        )
        .cast(pl.Schema(STACK_FRAMES_SCHEMA))
    )


def read_faults(records: pl.DataFrame, blocks: list[Span], tracebacks: pl.DataFrame) -> pl.DataFrame:
    """Return a row a fault, in the order of the lines; what repeats an earlier one is counted there.

    `blocks` are the blocks, of which the first are those of the traceback frame, in its order.
    """
    rows: list[dict[str, Any]] = []
    dumps: list[dict[str, Any]] = []
    for (kind, found), row in zip(blocks, tracebacks.iter_rows(named=True), strict=False):
        fault = {
            **{name: row[name] for name in ("last_line", "exception", "message", "process_name")},
            "row": found[0],
            "kind": kind,
            "sglang_frame": _innermost(row["stack"]),
        }
        if kind == "thread_dump":
            dumps.append({**fault, "complete": None})
        else:
            rows.append({**fault, "kind": "exception", "complete": row["complete"]})
    for kind, found in blocks[tracebacks.height :]:
        said = _of_span(kind, found, records) if kind in _SAYS else None
        if said:
            (dumps if kind == "thread_dump" else rows).append(said)
    rows += _joined(dumps, records)
    heads = records.select(RECORD_SCHEMA.keys())
    own = {name: dtype for name, dtype in FAULT_SCHEMA.items() if name not in RECORD_SCHEMA}
    faults = pl.DataFrame(
        rows,
        schema={"row": pl.UInt32, **{name: own[name] for name in own if not name.startswith("repeat")}},
    ).sort("row")
    faults = pl.concat([heads[faults["row"]], faults], how="horizontal")
    # a traceback can know its rank from the tag that stands before its lines
    told = tracebacks.select("file", "line", told="rank").filter(pl.col("told").is_not_null())
    faults = faults.join(told, on=["file", "line"], how="left", maintain_order="left").with_columns(
        rank=pl.coalesce("rank", "told")
    )
    return _counted(faults)


def _counted(faults: pl.DataFrame) -> pl.DataFrame:
    """Return the first of equal faults, with how often and where it repeats."""
    key = ["kind", "exception", "message", "sglang_frame"]
    # a fault of which nothing is known equals no other
    nameless = pl.all_horizontal(pl.col(name).is_null() for name in key[1:])
    alone = pl.when(nameless).then(pl.col("row")).alias("alone")
    grouped = (
        faults.with_columns(alone)
        .group_by([*key, "alone"], maintain_order=True)
        .agg(
            pl.all().first(),
            repeats=pl.len() - 1,
            repeat_ranks=pl.col("rank").slice(1).drop_nulls().unique(maintain_order=True),
            repeat_lines=pl.col("line").slice(1),
        )
    )
    return grouped.select(FAULT_SCHEMA.keys()).cast(pl.Schema(FAULT_SCHEMA))


def merged_faults(faults: pl.DataFrame) -> pl.DataFrame:
    """Return the faults of pieces of a log, one behind the other, as those of the whole: counted once."""
    key = ["kind", "exception", "message", "sglang_frame"]
    nameless = pl.all_horizontal(pl.col(name).is_null() for name in key[1:])
    grouped = (
        faults.with_columns(
            pl.when(nameless).then(pl.int_range(pl.len())).alias("alone"),
            lines=pl.concat_list("line", "repeat_lines"),
            ranks=pl.concat_list("rank", "repeat_ranks"),
        )
        .group_by([*key, "alone"], maintain_order=True)
        .agg(
            pl.exclude("repeats", "repeat_ranks", "repeat_lines").first(),
            repeats=pl.col("repeats").sum() + pl.len() - 1,
            repeat_ranks=pl.col("ranks").explode().slice(1).drop_nulls().unique(maintain_order=True),
            repeat_lines=pl.col("lines").explode().slice(1),
        )
    )
    return grouped.select(FAULT_SCHEMA.keys()).cast(pl.Schema(FAULT_SCHEMA))


def _innermost(stack: list[dict[str, Any]]) -> str | None:
    """Return the innermost frame of a stack that is in sglang."""
    for frame in reversed(stack):
        if match := _SGLANG_PATH.search(frame["path"] or ""):
            return f"{match[1]}:{frame['line']} {frame['function'] or ''}".rstrip()
    return None


def _of_span(kind: str, rows: pl.Series, records: pl.DataFrame) -> dict[str, Any] | None:
    """Return what a span says; nothing for a compiler's output without an error."""
    texts = records["message"].gather(rows[:1] if kind == "device_assert" else rows).to_list()
    said: dict[str, str] = {}
    for text in texts:
        for pattern in _SAYS[kind]:
            if match := pattern.search(text):
                said = {**match.groupdict(), **said}
                break
    if kind == "compiler_output" and not said:
        return None
    message = said.get("message")
    frames = [
        {"path": match[2], "line": match[3], "function": match[1]}
        for text in texts
        if (match := _PYSPY_FRAME.match(text))
    ]
    return {
        "row": rows[0],
        "last_line": records["line"][rows[-1]],
        "kind": kind,
        "exception": said.get("exception"),
        "message": _PLACE.sub("", message) if message and kind == "device_assert" else message,
        "process_name": None,
        "sglang_frame": _innermost(frames[::-1]),
        "complete": None,
    }


def _joined(dumps: list[dict[str, Any]], records: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the dumps, those of one process (close to each other) as one."""
    files, lines = records["file"], records["line"]
    joined: list[dict[str, Any]] = []
    for dump in sorted(dumps, key=lambda one: int(one["row"])):
        row = dump["row"]
        last = joined[-1] if joined else None
        if last and files[last["row"]] == files[row] and lines[row] - last["last_line"] <= _GAP:
            last["last_line"] = dump["last_line"]
            last["message"] = last["message"] or dump["message"]
            last["sglang_frame"] = last["sglang_frame"] or dump["sglang_frame"]
        else:
            joined.append(dict(dump))
    return joined
