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
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from sglogparse._grammar import grammar_text
from sglogparse._records import RECORD_SCHEMA

if TYPE_CHECKING:
    from lark import Lark

_BEGIN = "Traceback (most recent call last):"
_CHAIN = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_FRAME = r'^[ \t]*File "[^"]+", line [0-9]+'
#: The beginning of one thread's stack in what faulthandler prints.
_DUMP = r"^(?:Current thread|Thread) 0x[^(]*\(most recent call first\):$"
_WORD = "[A-Za-z_][A-Za-z0-9_]*"
_SUFFIX = "(?:Error|Exception|Interrupt|Exit|Timeout|Failure|Aborted|ExceptionGroup|Iteration)"
#: An exception by its name alone: what a class is called that is dotted, or begins with a capital.
_EXCEPTION = (
    rf"^(?:(?:{_WORD}\.)+[A-Za-z0-9_]*{_SUFFIX}|[A-Z_][A-Za-z0-9_]*{_SUFFIX}|Exception|ExceptionGroup)"
    r"(?:\([A-Za-z0-9_.]*\))?(?:: |:?$)"
)
_EXCEPTION_LINE = re.compile(_EXCEPTION)
#: After stack frames, any `name: text` or `dotted.name` at the margin is the exception, whatever its class.
_RAISED = re.compile(rf"[A-Za-z_][A-Za-z0-9_.]*(?:\([A-Za-z0-9_.]*\))?:(?: |$)|(?:{_WORD}\.)+{_WORD}$")
_FRAME_LINE = re.compile(_FRAME)
_DUMP_LINE = re.compile(_DUMP)
#: A frame as faulthandler prints it; its stack stands innermost first.
_DUMP_FRAME = re.compile(_FRAME + " in ")
#: A record of another logger, a shell's word or a ruler, which cannot be part of an exception's message.
_FOREIGN = re.compile(
    r"[IWEF][0-9]{4} |\[|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|[0-9]{4}-[0-9]{2}-[0-9]{2}[ T]"
    r"|/[^ ]+:[0-9]+: |[^ ]+:[0-9]+:[0-9]+ \[|Process [A-Za-z]*Process-"
    r"|Fatal Python error: |terminate called |[=-]{10,}$"
    r"|(?:Killed|Aborted|Terminated|Segmentation fault)(?: \(core dumped\))?$"
)
_BAR = re.compile(r"[0-9]{1,3}%\|")
#: What the logging module prints after the traceback of an error of its own.
_LOGGING = re.compile(r"Call stack:$|Message: |Arguments: ")
_CARETS = re.compile(r"[ ~^]+$")
#: Lines of an exception's message, at the most.
_LONGEST = 500

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
    """The rows of one traceback, and its lines as the grammar reads them."""

    rows: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    #: a stack frame stands in the traceback that the block ends with
    framed: bool = False
    #: the frames are faulthandler's
    dumped: bool = False

    def add(self, row: int, text: str) -> None:
        """Append a line."""
        self.rows.append(row)
        self.texts.append(text)


def read_blocks(
    records: pl.DataFrame, kinds: pl.Series, reports: pl.DataFrame
) -> tuple[list[list[int]], pl.DataFrame]:
    """Return the rows of each traceback, in order, and the traceback frame.

    `reports` are the rows of the exception reports (`row`, `process_name`) which open blocks and stay events.
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
    message, opener, row = pl.col("message"), pl.col("opener"), pl.col("row")
    report = pl.repeat(False, records.height, eager=True).scatter(reports, True)
    table = (
        records.select("file", "message", "headed", report.alias("report"), kinds.is_null().alias("free"))
        .with_row_index("row")
        .filter(pl.col("free") | pl.col("report"))
        .with_columns(bare=pl.col("free") & ~pl.col("headed"), frame=message.str.contains(_FRAME))
        .with_columns(
            # a stack frame behind a header is a copy that another program has printed
            opener=pl.col("report")
            | message.str.ends_with(_BEGIN)
            | message.str.contains(_EXCEPTION)
            | (pl.col("bare") & (pl.col("frame") | message.str.contains(_DUMP))),
            code=pl.col("bare") & message.str.starts_with("    "),
            # rows between which no event stands
            stretch=row - pl.int_range(pl.len(), dtype=pl.UInt32),
        )
    )
    near = ("file", "stretch")
    # a bare line goes on with what the last opener has begun, unless a record stands between
    last = (
        pl.when(opener)
        .then(row.cast(pl.Int64))
        .when(~pl.col("bare"))
        .then(-_LONGEST)
        .forward_fill()
        .over(near)
    )
    goes_on = pl.col("bare") & (row - last.fill_null(-_LONGEST) < _LONGEST)
    # code above the first frame that is left of a traceback
    ahead = pl.when(opener | ~pl.col("code")).then("frame").backward_fill().over(near).fill_null(False)
    members = table.filter(opener | goes_on | (pl.col("code") & ahead))
    runs: list[list[tuple[int, str, bool]]] = []
    previous: tuple[int, int] | None = None
    for index, file, text, headed in members.select("row", "file", "message", "headed").iter_rows():
        if previous != (file, index - 1) or headed:
            runs.append([])
        runs[-1].append((index, text, headed))
        previous = (file, index)
    return runs


class _Shape(Enum):
    """What a line looks like, seen from inside a traceback."""

    BEGIN = auto()
    DUMP = auto()
    FRAME = auto()
    CHAIN = auto()
    EXCEPTION = auto()
    LOGGING = auto()
    BLANK = auto()
    INDENTED = auto()
    BAR = auto()
    FOREIGN = auto()
    PLAIN = auto()


_CODE = (_Shape.INDENTED,)
_OPENERS = (_Shape.BEGIN, _Shape.DUMP, _Shape.FRAME, _Shape.EXCEPTION)


def _shape(text: str) -> _Shape:
    if text.endswith(_BEGIN):
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
    if _DUMP_LINE.match(text):
        return _Shape.DUMP
    if _EXCEPTION_LINE.match(text):
        return _Shape.EXCEPTION
    if _LOGGING.match(text):
        return _Shape.LOGGING
    return _Shape.FOREIGN if _FOREIGN.match(text) else _Shape.PLAIN


class _State(Enum):
    OUT = auto()  # in no block
    STACK = auto()  # frames have begun, the exception is to come
    RAISED = auto()  # the exception was raised; lines of its message may follow
    GAP = auto()  # a blank line after it; only a chain goes on
    CHAINED = auto()  # the next traceback of the chain is to begin
    LOGGING = auto()  # the stack of the logging call whose error the traceback was


def _ends(state: _State, shape: _Shape, block: Block) -> bool:
    """Tell whether a line ends the block before it; the line itself may begin another one."""
    if state is _State.STACK and block.dumped:
        return shape not in (_Shape.FRAME, _Shape.INDENTED)
    if state is _State.STACK:
        return shape is _Shape.DUMP or (shape is _Shape.BEGIN and block.framed)
    if state is _State.RAISED:
        # an exception without a message on its line has one below, whatever it looks like
        return shape in _OPENERS or (shape is _Shape.FOREIGN and not re.match(r"[^\t].*:$", block.texts[-1]))
    if state is _State.GAP:
        return shape not in (_Shape.CHAIN, _Shape.BLANK)
    if state is _State.CHAINED:
        return shape not in (_Shape.BEGIN, _Shape.BLANK)
    return shape not in (_Shape.FRAME, _Shape.INDENTED, _Shape.LOGGING)


def _split(run: list[tuple[int, str, bool]]) -> list[Block]:
    """Split a run into tracebacks: where each begins, goes on (a chain), and ends."""
    blocks: list[Block] = []
    state = _State.OUT
    lines = [(_shape(text), text) for _, text, _ in run]
    for index, (row, _, headed) in enumerate(run):
        shape = lines[index][0]
        if shape is _Shape.BAR and state is not _State.OUT:
            continue  # a progress bar wrote between the lines
        if state is not _State.OUT and _ends(state, shape, blocks[-1]):
            state = _State.OUT
        if state is _State.OUT:
            if not (
                shape in _OPENERS or headed or (shape is _Shape.INDENTED and _leads(lines, index, _CODE))
            ):
                continue
            blocks.append(Block(dumped=shape is _Shape.DUMP))
        state, text = _step(state, blocks[-1], lines, index)
        if state is _State.LOGGING:
            blocks[-1].rows.append(row)
        elif text is not None:
            blocks[-1].add(row, text)
    for block in blocks:
        while len(block.texts) > 1 and not block.texts[-1]:
            block.rows.pop()
            block.texts.pop()
    return blocks


def _step(
    state: _State, block: Block, lines: list[tuple[_Shape, str]], index: int
) -> tuple[_State, str | None]:
    """Return the state after a line, and the line as the grammar reads it; None when the block lacks it."""
    shape, text = lines[index]
    if state is _State.OUT:
        state = _State.STACK  # the line opens the block, whatever it looks like
    elif shape in (_Shape.FOREIGN, _Shape.PLAIN, _Shape.LOGGING) and state is _State.STACK:
        return _step_at_margin(block, lines, index)
    elif shape is _Shape.BLANK and state is _State.STACK and not _leads(lines, index, (_Shape.BLANK, *_CODE)):
        return _State.OUT, None
    if shape is _Shape.CHAIN:
        return _State.CHAINED, text
    if state is _State.RAISED and shape is _Shape.LOGGING and text.startswith("Call"):
        return _State.LOGGING, None
    if state is _State.RAISED:
        return (_State.GAP, text) if shape is _Shape.BLANK else (_State.RAISED, "\t" + text)
    if shape is _Shape.EXCEPTION:
        return _State.RAISED, text
    if shape is _Shape.BEGIN:
        block.framed = False
        return _State.STACK, text
    if shape is _Shape.FRAME and state is _State.STACK:
        block.dumped = block.dumped or (not block.framed and bool(_DUMP_FRAME.match(text)))
        block.framed = True
    return state, text


def _step_at_margin(block: Block, lines: list[tuple[_Shape, str]], index: int) -> tuple[_State, str | None]:
    """Return the same for a line at the margin within a stack: an exception, code, or something else."""
    shape, text = lines[index]
    after = index + 1
    while after < len(lines) and _CARETS.match(lines[after][1]):
        after += 1
    next_shape, next_text = lines[after] if after < len(lines) else (_Shape.BLANK, "")
    if shape is _Shape.LOGGING:
        return (_State.LOGGING, None) if block.framed else (_State.OUT, None)
    if shape is _Shape.FOREIGN:
        # another process wrote between the lines
        known = (_Shape.FOREIGN, _Shape.BAR, *_CODE)
        return (_State.STACK if _leads(lines, index, known) else _State.OUT), None
    if next_shape is _Shape.FRAME and next_text.startswith("File"):
        return _State.STACK, "\t" + text  # code that has lost its indentation, as all the block has
    if _RAISED.match(text):
        return _State.RAISED, text
    return (_State.STACK, "\t" + text) if next_shape is _Shape.EXCEPTION else (_State.OUT, None)


def _leads(lines: list[tuple[_Shape, str]], index: int, through: tuple[_Shape, ...]) -> bool:
    """Tell whether the lines lead on to a frame or an exception, through lines of some shapes alone."""
    found = next((shape for shape, _ in islice(lines, index, None) if shape not in through), None)
    return found in (_Shape.FRAME, _Shape.EXCEPTION)


def _describe(block: Block, names: dict[int, str], records: pl.DataFrame) -> dict[str, Any]:
    texts = block.texts
    if block.rows[0] in names and not texts[0].endswith(_BEGIN):
        texts = [_BEGIN, *texts[1:]]  # a report that names no exception stands for the beginning
    parsed = _parse("\n".join(texts) + "\n")
    last = parsed.raised[-1] if parsed.raised else None
    lines = records["line"]
    return {
        "last_line": lines[block.rows[-1]],
        "process_name": names.get(block.rows[0]),
        "exception": last[0] if last else None,
        "message": last[1] if last else None,
        "exception_line": lines[block.rows[last[2]]] if last else None,
        "exceptions": [f"{name}: {message}" if message else name for name, message, _ in parsed.raised],
        "stack": parsed.stack,
        "complete": parsed.complete,
    }


class _Parsed(NamedTuple):
    #: type, message and line (within the block) of each exception of the chain
    raised: list[tuple[str, str, int]]
    stack: list[dict[str, Any]]
    complete: bool


@cache
def _lark() -> Lark:
    from lark import Lark

    return Lark(grammar_text("traceback.lark"), parser="lalr", lexer="basic", start="block")


@lru_cache(maxsize=1024)
def _parse(text: str) -> _Parsed:
    """Parse a block with Lark; equal blocks (the same fault on many ranks) are parsed once."""
    from lark import Tree

    raised: list[tuple[str, str, int]] = []
    stack: list[dict[str, Any]] = []
    begun, open_end, dumped, fresh = text.partition("\n")[0].endswith(_BEGIN), False, False, False
    for part in _lark().parse(text).children:
        child: Any = part.children[0] if isinstance(part, Tree) else part  # else code above the first frame
        if not isinstance(child, Tree):
            fresh = fresh or child.type in ("BEGIN", "CHAIN")
            open_end = open_end or child.type in ("BEGIN", "CHAIN")
            continue
        nodes: list[Any] = child.children
        first, *rest = nodes
        if child.data == "frame":
            stack = [] if fresh and raised else stack
            stack.append(_stack_frame(first, rest))
            dumped = dumped or bool(_DUMP_FRAME.match(first))
            open_end, fresh = True, False
        else:
            name, _, message = first.rstrip("\n").partition(":")
            message = "\n".join([message.strip(), *(str(line)[1:].rstrip("\n") for line in rest)]).strip()
            raised.append((name, message, first.line - 1))
            open_end = False
    return _Parsed(raised, stack[::-1] if dumped else stack, begun and bool(raised) and not open_end)


def _stack_frame(first: str, code: list[str]) -> dict[str, Any]:
    match = re.match(r'[ \t]*File "([^"]+)", line ([0-9]{1,9})[0-9]*(?:,? in (.*))?', first)
    # carets mark a place in the code above them; dots stand for more frames in a dump
    source = next((line.strip() for line in code if set(line.strip()) - set("~^.")), None)
    return {
        "path": match[1] if match else None,
        "line": int(match[2]) if match else None,
        "function": match[3].strip() if match and match[3] else None,
        "code": source,
    }
