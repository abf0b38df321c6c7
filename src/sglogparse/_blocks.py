"""From records to blocks: what spans lines.

    opener (a record or a bare "Traceback ...") + the bare lines that continue it --> one block --> Lark

Blocks are few, so Python walks their lines (and only theirs). A block that was cut at its head or its tail is
still a block, and says that it is not complete. Lines that are not certainly part of a block stay outside it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import polars as pl

from sglogparse._grammar import grammar_text
from sglogparse._records import RECORD_SCHEMA

if TYPE_CHECKING:
    from lark import Lark, Token

_BEGIN = "Traceback (most recent call last):"
_CHAIN = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_FRAME = r'^[ \t]*File "[^"]+", line [0-9]+'
_EXCEPTION = (
    r"^(?:[A-Za-z_][A-Za-z0-9_]*\.)*[A-Za-z_][A-Za-z0-9_]*"
    r"(?:Error|Exception|Interrupt|Exit|Timeout|Failure|Abort|Aborted|Group)(?:: |:?$)"
)
#: After stack frames, any `name: text` at the margin is the exception, whatever its class is called.
_RAISED = re.compile(r"^[A-Za-z_][A-Za-z0-9_.]*(?:: |:?$)")
_FRAME_LINE = re.compile(_FRAME)
_EXCEPTION_LINE = re.compile(_EXCEPTION)
#: A record of another logger, which cannot be part of an exception's message.
_FOREIGN = re.compile(
    r"^(?:[IWEF][0-9]{4} |\[|(?:DEBUG|INFO|WARNING|ERROR)\b|[0-9]{4}-[0-9]{2}-[0-9]{2}[ T]|/[^ ]+:[0-9]+: )"
)
_BAR = re.compile(r"[0-9]{1,3}%\|")

STACK_FRAME = pl.Struct({"path": pl.String, "line": pl.Int64, "function": pl.String, "code": pl.String})

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
}

#: What the columns of the traceback frame mean (the events' are documented in the grammar).
TRACEBACK_DOCS = {
    "last_line": "last line of the block",
    "process_name": "process that reported it, as printed",
    "exception": "type of the exception that was raised at the end",
    "message": "its message, all lines",
    "exception_line": "line of that exception",
    "exceptions": "the whole chain as `type: message`, first cause first",
    "stack": "frames of the last traceback, outermost first",
    "complete": "false when the head or the tail of the block is missing",
}


@dataclass
class Block:
    """The rows and texts of one traceback."""

    rows: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def add(self, row: int, text: str) -> None:
        """Append a line."""
        self.rows.append(row)
        self.texts.append(text)


def read_blocks(
    records: pl.DataFrame, kinds: pl.Series, reports: pl.DataFrame
) -> tuple[list[list[int]], pl.DataFrame]:
    """Return the rows of each traceback, in order, and the traceback frame.

    `reports` are the rows of the exception reports (`row`, `process_name`), which open a block but stay events.
    """
    blocks = [block for run in _runs(records, kinds, reports["row"]) for block in _split(run)]
    names = dict(reports.iter_rows())
    rows = [_describe(block, names, records) for block in blocks]
    frame = pl.DataFrame(
        rows, schema={key: kind for key, kind in TRACEBACK_SCHEMA.items() if key not in RECORD_SCHEMA}
    )
    head = records.select(RECORD_SCHEMA.keys())[[block.rows[0] for block in blocks]]
    frame = pl.concat([head, frame], how="horizontal").select(TRACEBACK_SCHEMA.keys())
    return [block.rows for block in blocks], frame


def _runs(records: pl.DataFrame, kinds: pl.Series, reports: pl.Series) -> list[list[tuple[int, str, bool]]]:
    """Return runs of neighbouring rows that may hold tracebacks, as (row, text, headed)."""
    message = pl.col("message")
    report = pl.repeat(False, records.height, eager=True).scatter(reports, True)
    table = records.select(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"),
        "file",
        "message",
        "headed",
        (report | (message.str.contains(_BEGIN, literal=True))).alias("opener"),
        kinds.is_null().alias("free"),
    )
    bare = pl.col("free") & ~pl.col("headed")
    shaped = table.filter(pl.col("free") & (message.str.contains(_FRAME) | message.str.contains(_EXCEPTION)))[
        "row"
    ]
    opener = table["opener"].scatter(shaped, True)
    table = table.with_columns(opener.alias("opener"))
    anchor = pl.when(~bare | pl.col("opener")).then(pl.col("opener")).forward_fill().fill_null(False)
    members = table.filter(pl.col("opener") | (bare & anchor.over("file")))
    runs: list[list[tuple[int, str, bool]]] = []
    previous: tuple[int, int] | None = None
    for row, file, text, headed in members.select("row", "file", "message", "headed").iter_rows():
        if previous != (file, row - 1) or headed:
            runs.append([])
        runs[-1].append((row, text, headed))
        previous = (file, row)
    return runs


class _Shape(Enum):
    """What a line looks like, seen from inside a traceback."""

    BEGIN = auto()
    FRAME = auto()
    CHAIN = auto()
    EXCEPTION = auto()
    BLANK = auto()
    INDENTED = auto()
    BAR = auto()
    FOREIGN = auto()
    PLAIN = auto()


def _shape(text: str) -> _Shape:
    if _BEGIN in text:
        return _Shape.BEGIN
    if not text:
        return _Shape.BLANK
    if _BAR.search(text):
        return _Shape.BAR
    if _FRAME_LINE.match(text):
        return _Shape.FRAME
    if text[0] in " \t":
        return _Shape.INDENTED
    if text.startswith(_CHAIN):
        return _Shape.CHAIN
    if _EXCEPTION_LINE.match(text):
        return _Shape.EXCEPTION
    return _Shape.FOREIGN if _FOREIGN.match(text) else _Shape.PLAIN


class _State(Enum):
    OUT = auto()  # in no block
    STACK = auto()  # frames have begun, the exception is to come
    RAISED = auto()  # the exception was raised; lines of its message may follow
    GAP = auto()  # a blank line after it; only a chain goes on


def _split(run: list[tuple[int, str, bool]]) -> list[Block]:
    """Split a run into tracebacks: where each begins, goes on (a chain), and ends."""
    blocks: list[Block] = []
    state = _State.OUT
    framed = False  # the traceback that is open has frames
    for index, (row, text, headed) in enumerate(run):
        shape = _shape(text)
        if shape is _Shape.BAR and state is not _State.OUT:
            continue  # a progress bar wrote between the lines
        if state is _State.GAP and shape not in (_Shape.CHAIN, _Shape.BLANK):
            state = _State.OUT
        if state is _State.RAISED and shape in (_Shape.BEGIN, _Shape.FRAME, _Shape.EXCEPTION, _Shape.FOREIGN):
            state = _State.OUT
        if state is _State.STACK and shape is _Shape.BEGIN and framed:
            state = _State.OUT
        opens = shape in (_Shape.BEGIN, _Shape.FRAME, _Shape.EXCEPTION) or (headed and index == 0)
        if state is _State.OUT:
            if not opens:
                continue
            blocks.append(Block())
            framed = False
            state = _State.RAISED if shape is _Shape.EXCEPTION else _State.STACK
        elif shape is _Shape.CHAIN:
            state, framed = _State.STACK, False
        elif state is _State.STACK:
            if shape is _Shape.EXCEPTION or (shape is _Shape.PLAIN and _RAISED.match(text)):
                state = _State.RAISED
            elif shape in (_Shape.PLAIN, _Shape.FOREIGN):
                state = _State.OUT
                continue
        elif shape is _Shape.BLANK:
            state = _State.GAP
        framed |= shape is _Shape.FRAME
        blocks[-1].add(row, text)
    for block in blocks:
        while len(block.texts) > 1 and not block.texts[-1]:
            block.rows.pop()
            block.texts.pop()
    return blocks


def _describe(block: Block, names: dict[int, str], records: pl.DataFrame) -> dict[str, Any]:
    texts = block.texts
    if block.rows[0] in names and _BEGIN not in texts[0]:
        texts = [_BEGIN, *texts[1:]]  # a report that names no exception stands for the beginning
    tree = _parse("\n".join(texts) + "\n")
    raised = tree["raised"]
    last = raised[-1] if raised else None
    lines = records["line"]
    return {
        "last_line": lines[block.rows[-1]],
        "process_name": names.get(block.rows[0]),
        "exception": last[0] if last else None,
        "message": last[1] if last else None,
        "exception_line": lines[block.rows[last[2]]] if last else None,
        "exceptions": [f"{name}: {message}" if message else name for name, message, _ in raised],
        "stack": tree["stack"],
        "complete": tree["begun"] and last is not None,
    }


@cache
def _lark() -> Lark:
    from lark import Lark

    return Lark(grammar_text("traceback.lark"), parser="lalr", lexer="basic", start="block")


@lru_cache(maxsize=1024)
def _parse(text: str) -> dict[str, Any]:
    """Parse a block with Lark; equal blocks (the same fault on many ranks) are parsed once."""
    from lark import Token, Tree
    from lark.exceptions import UnexpectedInput

    begun = _BEGIN in text.split("\n", 1)[0]
    raised: list[tuple[str, str, int]] = []
    stack: list[dict[str, Any]] = []
    try:
        parts = _lark().parse(text).children
    except UnexpectedInput:
        return {"begun": begun, "raised": [], "stack": []}
    for part in parts:
        for child in part.children if isinstance(part, Tree) else ():
            if not isinstance(child, Tree):
                if child.type == "BEGIN" and raised:
                    stack = []
                continue
            first, *rest = [token for token in child.children if isinstance(token, Token)]
            if child.data == "frame":
                stack.append(_stack_frame(first, rest))
            else:
                name, _, message = str(first).rstrip("\n").partition(":")
                message = "\n".join([message.strip(), *(str(line).rstrip("\n") for line in rest)]).strip()
                raised.append((name, message, (first.line or 1) - 1))
    return {"begun": begun, "raised": raised, "stack": stack}


def _stack_frame(first: Token, code: list[Token]) -> dict[str, Any]:
    match = re.match(r'[ \t]*File "([^"]+)", line ([0-9]{1,9})(?:, in (.*))?', str(first))
    source = next((str(line).strip() for line in code if set(str(line).strip()) - {"^", "~"}), None)
    return {
        "path": match[1] if match else None,
        "line": int(match[2]) if match else None,
        "function": match[3].strip() if match and match[3] else None,
        "code": source,
    }
