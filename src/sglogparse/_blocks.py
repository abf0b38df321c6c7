"""From records to blocks: what spans lines.

    opener (a record or a bare "Traceback ...") + the bare lines that continue it --> one block --> Lark

Lines that name their process ("[rank3]: ", "(Worker pid=7) ") are read process by process. Blocks are few, so
Python walks their lines (and only theirs). A block that was cut at its head or its tail is still a block, and
says that it is not complete. Lines that are not certainly part of a block stay outside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache, lru_cache
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from sglogparse._compiler import compiled_plan
from sglogparse._grammar import grammar_text
from sglogparse._records import RANKS, RECORD_SCHEMA, read_records

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
#: What torch's excepthook, and Ray, print before each line of one process.
_TAG = (
    r"^((?:\[rank[0-9]+\]:)+|\((?:[A-Za-z_][A-Za-z0-9_.:]* )?pid=[0-9]+(?:, ip=[0-9A-Za-z.:_-]+)?\))(?: |$)"
)
_TORCH_TAG = re.compile(r"\[rank([0-9]+)\]:")
#: A line that Ray prints once for many workers, and later than they did: it has no place in a stack.
_REPEATED = re.compile(r"\[repeated [0-9]+x across cluster\]")
#: The margin of what an exception group holds, and the rulers between its members.
_MARGIN = r"^ *(?:\|(?: |$)|\+-)"
_MARGIN_LINE = re.compile(_MARGIN)
_RULER = re.compile(r" *(\+-\+|\+)-+(?: (?:[0-9]+|\.\.\.) -+)?$")
_GROUP = "Exception Group Traceback (most recent call last):"
#: A frame within a group.
_GROUP_FRAME = r'^ *\|  +File "[^"]+", line [0-9]+'
#: A traceback that an exporter has put on one line, with its line ends escaped.
_ONE_LINE = r'Traceback \(most recent call last\):\\n +File \\?"[^"]+", line [0-9]+'
_CLOSING = r"(?<!\\)(?:\\\\)*%s"
_ESCAPED = re.compile(r"\\(.)")
#: What the messages of PyTorch, SGLang and Triton go on with after a blank line.
_AFTER_BLANK = re.compile(
    r"Possible solutions:|[0-9]\. |Open an issue on GitHub|Set TORCH_LOGS=|Set TORCHDYNAMO_VERBOSE=1"
    r"|You can suppress this exception|from user code:|The above operation failed|Last error:$"
    r"|CUDA kernel errors might|For debugging consider|Compile with `TORCH_USE_CUDA_DSA`"
    r"|Device-side assertion|Exception raised from |frame #[0-9]+: |C\+\+ CapturedTraceback:"
)
#: The place in a listing of code that Triton's compiler complains about; the listing ends with a caret.
_LISTING = re.compile(r"\bat [0-9]+:[0-9]+:$")
_HIT = re.compile(r"\] (?:[A-Z]+: )?([A-Za-z]+) hit an exception: ")

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
    "sub_exceptions": "members of an exception group, in the order of the lines, with their stacks",
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
    #: the places, among the texts, of the lines of exception groups
    margins: list[int] = field(default_factory=list)

    def add(self, row: int, text: str) -> None:
        """Append a line."""
        self.rows.append(row)
        self.texts.append(text)


class _Run(NamedTuple):
    """Neighbouring rows, of one process where lines name it, that may hold tracebacks."""

    tag: str | None
    #: row, text without the tag, whether the line has a header
    lines: list[tuple[int, str, bool]]


def read_blocks(
    records: pl.DataFrame, kinds: pl.Series, reports: pl.DataFrame
) -> tuple[list[list[int]], pl.DataFrame]:
    """Return the rows of each traceback, in order, and the traceback frame.

    `reports` are the rows of the exception reports (`row`, `process_name`) which open blocks and stay events.
    """
    table = _table(records, kinds, reports["row"])
    found: list[tuple[Block, str | None, str]] = []
    for run in _runs(table):
        texts = {row: text for row, text, _ in run.lines}
        sure = run.tag is not None and run.tag.startswith("[rank")
        found += [(block, run.tag, texts[block.rows[0]]) for block in _split(run.lines, sure=sure)]
    found += [(block, None, "") for block in _one_liners(table)]
    found.sort(key=lambda one: one[0].rows[0])
    blocks = [block for block, _, _ in found]
    names: dict[int, str | None] = dict(reports.iter_rows())
    for block, tag, head in found:
        if tag is not None and (match := _HIT.search(head)):
            names[block.rows[0]] = match[1]
    rows = [_describe(block, names, records) for block in blocks]
    frame = pl.DataFrame(
        rows, schema={key: kind for key, kind in TRACEBACK_SCHEMA.items() if key not in RECORD_SCHEMA}
    )
    heads = records.select(RECORD_SCHEMA.keys())[[block.rows[0] for block in blocks]]
    heads = _tagged_heads(heads, [tag for _, tag, _ in found], [head for _, _, head in found])
    frame = pl.concat([heads, frame], how="horizontal").select(TRACEBACK_SCHEMA.keys())
    return [block.rows for block in blocks], frame


def _tagged_heads(heads: pl.DataFrame, tags: list[str | None], texts: list[str]) -> pl.DataFrame:
    """Return the heads of blocks with the rank that a tag names, or the header that stands behind it."""
    rows = [index for index, tag in enumerate(tags) if tag is not None]
    if not rows:
        return heads
    told = read_records(
        heads[rows].select("file", "line").with_columns(text=pl.Series([texts[row] for row in rows])),
        compiled_plan(),
    ).select(heads.columns)
    ranks = [_TORCH_TAG.match(tags[row] or "") for row in rows]
    rank = pl.Series([match[1] if match else None for match in ranks], dtype=pl.String)
    told = told.with_columns(
        rank=pl.coalesce("rank", rank), gpu_id=pl.coalesce("gpu_id", rank.cast(pl.Int16))
    )
    columns = ("time", "clock", "rank", *RANKS)
    return heads.with_columns(heads[name].scatter(rows, told[name]) for name in columns)


def _table(records: pl.DataFrame, kinds: pl.Series, reports: pl.Series) -> pl.DataFrame:
    """Return the rows that no event takes, and the reports, with the tag of their process taken off."""
    report = pl.repeat(False, records.height, eager=True).scatter(reports, True)
    table = (
        records.select("file", "message", "headed", report.alias("report"), kinds.is_null().alias("free"))
        .with_row_index("row")
        .filter(pl.col("free") | pl.col("report"))
        .with_columns(bare=pl.col("free") & ~pl.col("headed"), tag=pl.lit(None, dtype=pl.String))
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
    untagged = pl.col("tag").is_null()
    # rows between which no event stands; what names its process is not there for those that do not
    place = pl.col("row") - pl.col("tag").is_not_null().cum_sum()
    plain = table.with_columns(place=place).filter(untagged)
    plain = plain.with_columns(stretch=pl.col("place") - pl.int_range(pl.len(), dtype=pl.UInt32))
    # and what others print is not there for those that do
    tagged = table.filter(~untagged).sort("tag", "row").with_columns(place=pl.col("row"), stretch=pl.lit(0))
    for some, step in ((plain, 1), (tagged, _LONGEST)):
        if some.is_empty():
            continue
        run: _Run | None = None
        previous: tuple[int, str | None, int] | None = None
        columns = ("row", "file", "tag", "place", "message", "headed")
        for row, file, tag, at, text, headed in _members(some).select(columns).iter_rows():
            near = previous is not None and previous[:2] == (file, tag) and at - previous[2] <= step
            if run is None or not near or headed:
                if run is not None:
                    yield run
                run = _Run(tag, [])
            run.lines.append((row, text, headed))
            previous = (file, tag, at)
        if run is not None:
            yield run


def _members(table: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that may be part of a traceback."""
    message, opener, place = pl.col("message"), pl.col("opener"), pl.col("place").cast(pl.Int64)
    table = table.with_columns(frame=message.str.contains(_FRAME)).with_columns(
        # a stack frame behind a header is a copy that another program has printed
        opener=pl.col("report")
        | message.str.ends_with(_BEGIN)
        | message.str.contains(_EXCEPTION)
        | (pl.col("bare") & (pl.col("frame") | message.str.contains(_DUMP)))
        | (pl.col("bare") & message.str.contains(_GROUP_FRAME)),
        code=pl.col("bare") & message.str.starts_with("    "),
    )
    near = ("file", "tag", "stretch")
    # a bare line goes on with what the last opener has begun, unless a record stands between
    last = pl.when(opener).then(place).when(~pl.col("bare")).then(-_LONGEST).forward_fill().over(near)
    goes_on = pl.col("bare") & (place - last.fill_null(-_LONGEST) < _LONGEST)
    # code above the first frame that is left of a traceback
    ahead = pl.when(opener | ~pl.col("code")).then("frame").backward_fill().over(near).fill_null(False)
    return table.filter(opener | goes_on | (pl.col("code") & ahead))


def _one_liners(table: pl.DataFrame) -> Iterator[Block]:
    """Yield the tracebacks that stand on one line, with their line ends escaped."""
    message = pl.col("message")
    some = table.filter(pl.col("bare") & message.str.contains(_BEGIN + "\\n", literal=True))
    for row, text in some.filter(message.str.contains(_ONE_LINE)).select("row", "message").iter_rows():
        start = text.index(_BEGIN)
        body = text[start:]
        # it ends with the string it stands in: JSON's, which escapes the quotes within, or Python's
        if re.search(r'\\n +File \\"', body):
            body = re.split(_CLOSING % '"', body, maxsplit=1)[0]
        elif len(re.findall(_CLOSING % "'", text[:start])) % 2:
            body = re.split(_CLOSING % "'", body, maxsplit=1)[0]
        lines = _ESCAPED.sub(_unescaped, body).rstrip("\n").split("\n")
        block = _split([(index, line, index == 0) for index, line in enumerate(lines)], sure=True)[0]
        yield Block([row], block.texts)


def _unescaped(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "r": ""}.get(match[1], match[1] if match[1] in "\"'\\/" else match[0])


class _Shape(Enum):
    """What a line looks like, seen from inside a traceback."""

    BEGIN = auto()
    DUMP = auto()
    FRAME = auto()
    CHAIN = auto()
    EXCEPTION = auto()
    LOGGING = auto()
    MARGIN = auto()
    BLANK = auto()
    INDENTED = auto()
    BAR = auto()
    FOREIGN = auto()
    PLAIN = auto()


_CODE = (_Shape.INDENTED,)
_OPENERS = (_Shape.BEGIN, _Shape.DUMP, _Shape.FRAME, _Shape.EXCEPTION)


def _shape(text: str) -> _Shape:
    if text.endswith(_BEGIN) and not _MARGIN_LINE.match(text):
        return _Shape.BEGIN
    if not text:
        return _Shape.BLANK
    if _REPEATED.search(text):
        return _Shape.FOREIGN
    if _MARGIN_LINE.match(text):
        return _Shape.MARGIN
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
    GROUP = auto()  # lines of an exception group, behind their margin
    CHAINED = auto()  # the next traceback of the chain is to begin
    LOGGING = auto()  # the stack of the logging call whose error the traceback was


def _ends(state: _State, shape: _Shape, block: Block) -> bool:
    """Tell whether a line ends the block before it; the line itself may begin another one."""
    if state is _State.GROUP:
        return shape not in (_Shape.MARGIN, _Shape.BLANK, _Shape.CHAIN)
    if state is _State.STACK and block.dumped:
        return shape not in (_Shape.FRAME, _Shape.INDENTED)
    if state is _State.STACK:
        return shape is _Shape.DUMP or (shape is _Shape.BEGIN and block.framed)
    if state is _State.RAISED:
        # an exception without a message on its line has one below, whatever it looks like
        if shape is _Shape.EXCEPTION and block.texts[-1].endswith(" raised:"):
            return False
        return shape in _OPENERS or (shape is _Shape.FOREIGN and not re.match(r"[^\t].*:$", block.texts[-1]))
    if state is _State.GAP:
        return shape not in (_Shape.CHAIN, _Shape.BLANK)
    if state is _State.CHAINED:
        return shape not in (_Shape.BEGIN, _Shape.BLANK)
    return shape not in (_Shape.FRAME, _Shape.INDENTED, _Shape.LOGGING)


def _split(run: list[tuple[int, str, bool]], *, sure: bool = False) -> list[Block]:
    """Split a run into tracebacks: where each begins, goes on (a chain), and ends.

    `sure` when nothing but tracebacks can stand in the run: then a message goes on after a blank line.
    """
    blocks: list[Block] = []
    state = _State.OUT
    lines = [(_shape(text), text) for _, text, _ in run]
    for index, (row, _, headed) in enumerate(run):
        shape, raw = lines[index]
        if shape is _Shape.BAR and state is not _State.OUT:
            continue  # a progress bar wrote between the lines
        if state is not _State.OUT and _ends(state, shape, blocks[-1]):
            state = _State.OUT
        if state is _State.OUT:
            if not (
                shape in _OPENERS
                or headed
                or (shape is _Shape.INDENTED and _leads(lines, index, _CODE))
                or (shape is _Shape.MARGIN and re.match(_GROUP_FRAME, raw))
            ):
                continue
            blocks.append(Block(dumped=shape is _Shape.DUMP))
        if (
            state is _State.RAISED
            and shape is _Shape.BLANK
            and _message_goes_on(blocks[-1], lines, index, sure)
        ):
            blocks[-1].add(row, "\t")
            continue
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


def _message_goes_on(block: Block, lines: list[tuple[_Shape, str]], index: int, sure: bool) -> bool:
    """Tell whether an exception's message certainly goes on after the blank line that stands here."""
    ahead = list(islice(lines, index, index + _LONGEST))
    shape, text = next((one for one in ahead if one[0] is not _Shape.BLANK), (_Shape.BLANK, ""))
    if shape not in (_Shape.PLAIN, _Shape.INDENTED, _Shape.MARGIN):
        return sure and shape is _Shape.FOREIGN
    if sure or _AFTER_BLANK.match(text):
        return True
    # the code that Triton lists up to its caret, and what stands before the next traceback of a chain
    body = (_Shape.BLANK, _Shape.PLAIN, _Shape.INDENTED)
    end, last = next((one for one in ahead if one[0] not in body or _CARETS.fullmatch(one[1])), (None, ""))
    if end is _Shape.CHAIN:
        return True
    return bool(last and _CARETS.fullmatch(last)) and any(_LISTING.search(one) for one in block.texts)


def _step(
    state: _State, block: Block, lines: list[tuple[_Shape, str]], index: int
) -> tuple[_State, str | None]:
    """Return the state after a line, and the line as the grammar reads it; None when the block lacks it."""
    shape, text = lines[index]
    if shape is _Shape.MARGIN and state in (_State.OUT, _State.GROUP):
        block.margins.append(len(block.texts))
        return _State.GROUP, text
    if state is _State.GROUP and shape is _Shape.BLANK:
        return _State.GAP, text
    if state is _State.OUT:
        state = _State.STACK  # the line opens the block, whatever it looks like
    elif shape in (_Shape.FOREIGN, _Shape.PLAIN, _Shape.LOGGING, _Shape.MARGIN) and state is _State.STACK:
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
        if text.endswith(_GROUP):
            block.margins.append(len(block.texts))
            return _State.GROUP, text
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


def _describe(block: Block, names: dict[int, str | None], records: pl.DataFrame) -> dict[str, Any]:
    texts = block.texts
    if block.rows[0] in names and not texts[0].endswith(_BEGIN):
        texts = [_BEGIN, *texts[1:]]  # a report that names no exception stands for the beginning
    parsed = _read(texts, block.margins)
    last = parsed.raised[-1] if parsed.raised else None
    numbers = records["line"]

    def line_of(place: int) -> int:
        return int(numbers[block.rows[min(place, len(block.rows) - 1)]])

    return {
        "last_line": numbers[block.rows[-1]],
        "process_name": names.get(block.rows[0]),
        "exception": last[0] if last else None,
        "message": last[1] if last else None,
        "exception_line": line_of(last[2]) if last else None,
        "exceptions": [f"{name}: {message}" if message else name for name, message, _ in parsed.raised],
        "stack": parsed.stack,
        "complete": parsed.begun and bool(parsed.raised) and not parsed.open_end,
        "sub_exceptions": [
            {"exception": one[0], "message": one[1], "line": line_of(one[2]), "stack": stack}
            for one, stack in parsed.members
        ],
    }


#: Type, message and place (among the lines of its block) of an exception.
_Raised = tuple[str, str, int]
_Stack = list[dict[str, Any]]


class _Parsed(NamedTuple):
    #: each exception of the chain
    raised: list[_Raised]
    stack: _Stack
    begun: bool
    #: frames or a chain stand at the end, and no exception after them
    open_end: bool
    #: what exception groups hold, with their stacks
    members: list[tuple[_Raised, _Stack]]


def _read(texts: list[str], margins: list[int]) -> _Parsed:
    """Parse a block: what stands at the margin with Lark, and what exception groups hold member by member."""
    if not margins:
        return _parse("\n".join(texts) + "\n")
    parts: list[tuple[int, _Parsed]] = []
    inside = set(margins)
    for grouped, places in groupby(range(len(texts)), key=inside.__contains__):
        span = list(places)
        lines = [texts[place] for place in span]
        parts.append((span[0], _read_group(lines) if grouped else _parse("\n".join(lines) + "\n")))
    return _Parsed(
        [(name, text, start + at) for start, part in parts for name, text, at in part.raised],
        next((part.stack for _, part in reversed(parts) if part.stack), []),
        parts[0][1].begun,
        parts[-1][1].open_end,
        [
            ((name, text, start + at), stack)
            for start, one in parts
            for (name, text, at), stack in one.members
        ],
    )


def _read_group(lines: list[str]) -> _Parsed:
    """Parse the lines of an exception group: its own traceback, and its members, which can be groups too."""
    own: list[tuple[int, str, bool]] = []
    members: list[list[int]] = []
    column: int | None = None  # of the margin of the members, while they go on
    closed = not lines[0].endswith(_GROUP)
    for place, line in enumerate(lines):
        here = len(line) - len(line.lstrip(" "))
        ruler = _RULER.match(line)
        if column is not None and here < column:
            column = None
        if column is None and ruler:
            column, closed = here + 2, False  # "+-+---- 1 ----" opens the members
            members.append([])
        elif column is None:
            text = _BEGIN if line.endswith(_GROUP) else re.sub(r"^ *\| ?", "", line, count=1)
            own.append((place, text, not own))
        elif ruler and here == column and ruler[1] == "+":
            members.append([])  # "+---- 2 ----", or the ruler below the last one
            closed = line.endswith("-" * 20)
        else:
            members[-1].append(place)
    found: list[tuple[_Raised, _Stack]] = []
    open_end = False
    for places in filter(None, members):
        one = _read_group([lines[place] for place in places])
        found += [((name, text, places[at]), stack) for (name, text, at), stack in one.members]
        found += [((name, text, places[at]), one.stack) for name, text, at in one.raised[-1:]]
        open_end = open_end or one.open_end or not one.raised
        closed = closed or bool(one.members)  # a group that is the last member closes both
    mine = next(iter(_split(own, sure=True)), Block())
    parsed = _parse("\n".join(mine.texts) + "\n") if mine.texts else _Parsed([], [], False, True, [])
    raised = [(name, text, mine.rows[at]) for name, text, at in parsed.raised]
    chain = [*raised[:-1], *(one for one, _ in found), *raised[-1:]]
    return _Parsed(
        # what a group holds stands before it; without the group itself nothing is known to be the last
        chain,
        parsed.stack,
        parsed.begun,
        parsed.open_end or open_end or not closed,
        found,
    )


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
    return _Parsed(raised, stack[::-1] if dumped else stack, begun, open_end, [])


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
