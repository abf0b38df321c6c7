"""Python tracebacks: where each begins, goes on (a chain, a group) and ends, and what it says.

lines (shapes) --> split (a state a line) --> Block --> read (Lark) --> exceptions, stack
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache, lru_cache
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from sglogparse._cheap import lazy
from sglogparse._stored import parser

if TYPE_CHECKING:
    from lark import Lark

#: A row, its text (without the tag of its process), and whether it has a header.
Line = tuple[int, str, bool]

BEGIN = "Traceback (most recent call last):"
_CHAIN = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
FRAME = r'^[ \t]*File "[^"]+", line [0-9]+'
#: The beginning of one thread's stack in what faulthandler prints.
DUMP = r"^(?:Current thread|Thread) 0x[^(]*\(most recent call first\):$"
_WORD = "[A-Za-z_][A-Za-z0-9_]*"
_SUFFIX = "(?:Error|Exception|Interrupt|Exit|Timeout|Failure|Aborted|ExceptionGroup|Iteration|OutOfResources)"
#: An exception by its name alone: what a class is called that is dotted, or begins with a capital.
EXCEPTION = (
    rf"^(?:(?:{_WORD}\.)+[A-Za-z0-9_]*{_SUFFIX}|[A-Z_][A-Za-z0-9_]*{_SUFFIX}|Exception|ExceptionGroup)"
    r"(?:\([A-Za-z0-9_.]*\))?(?:: |:?$)"
)
_EXCEPTION_LINE = lazy(EXCEPTION)
#: After stack frames, any `name: text` or `dotted.name` at the margin is the exception, whatever its class.
RAISED = lazy(rf"[A-Za-z_][A-Za-z0-9_.]*(?:\([A-Za-z0-9_.]*\))?:(?: |$)|(?:{_WORD}\.)+{_WORD}$")
_FRAME_LINE = lazy(FRAME)
_DUMP_LINE = lazy(DUMP)
#: A frame as faulthandler prints it; its stack stands innermost first.
_DUMP_FRAME = lazy(FRAME + " in ")
#: A record of another logger, a shell's word or a ruler, which cannot be part of an exception's message.
_FOREIGN = lazy(
    r"[IWEF][0-9]{4} |\[|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|[0-9]{4}-[0-9]{2}-[0-9]{2}[ T]"
    r"|/[^ ]+:[0-9]+: |[^ ]+:[0-9]+:[0-9]+ \[|Process [A-Za-z]*Process-"
    r"|Fatal Python error: |terminate called |[=-]{10,}$"
    r"|(?:Killed|Aborted|Terminated|Segmentation fault)(?: \(core dumped\))?$"
)
_BAR = lazy(r"[0-9]{1,3}%\|")
#: What the logging module prints after the traceback of an error of its own.
_LOGGING = lazy(r"Call stack:$|Message: |Arguments: ")
_CARETS = lazy(r"[ ~^]+$")
#: Lines of an exception's message, at the most.
LONGEST = 500
#: A line that Ray prints once for many workers, and later than they did: it has no place in a stack.
_REPEATED = lazy(r"\[repeated [0-9]+x across cluster\]")
#: The margin of what an exception group holds, and the rulers between its members.
_MARGIN = r"^ *(?:\|(?: |$)|\+-)"
_MARGIN_LINE = lazy(_MARGIN)
_RULER = lazy(r" *(\+-\+|\+)-+(?: (?:[0-9]+|\.\.\.) -+)?$")
_GROUP = "Exception Group Traceback (most recent call last):"
#: A frame within a group.
GROUP_FRAME = r'^ *\|  +File "[^"]+", line [0-9]+'
#: What the messages of PyTorch, SGLang and Triton go on with after a blank line.
_AFTER_BLANK = lazy(
    r"Possible solutions:|[0-9]\. |Open an issue on GitHub|Set TORCH_LOGS=|Set TORCHDYNAMO_VERBOSE=1"
    r"|You can suppress this exception|from user code:|The above operation failed|Last error:$"
    r"|CUDA kernel errors might|For debugging consider|Compile with `TORCH_USE_CUDA_DSA`"
    r"|Device-side assertion|Exception raised from |frame #[0-9]+: |C\+\+ CapturedTraceback:"
)
#: The place in a listing of code that Triton's compiler complains about; the listing ends with a caret.
_LISTING = lazy(r"\bat [0-9]+:[0-9]+:$")


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
    #: the rows on which exceptions stand
    raised: list[int] = field(default_factory=list)
    #: the exception is still to come
    open: bool = True
    #: lines of several tracebacks are mixed here, and cannot be told apart
    ambiguous: bool = False
    #: frames of those, as printed
    loose: list[str] = field(default_factory=list)
    #: the rows of the texts, where the block has other rows too
    origin: list[int] = field(default_factory=list)

    def add(self, row: int, text: str) -> None:
        """Append a line."""
        self.rows.append(row)
        self.texts.append(text)


class Shape(Enum):
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


_CODE = (Shape.INDENTED,)
_OPENERS = (Shape.BEGIN, Shape.DUMP, Shape.FRAME, Shape.EXCEPTION)


def shape_of(text: str) -> Shape:
    if text.endswith(BEGIN) and not _MARGIN_LINE.match(text):
        return Shape.BEGIN
    if not text:
        return Shape.BLANK
    if _REPEATED.search(text):
        return Shape.FOREIGN
    if _MARGIN_LINE.match(text):
        return Shape.MARGIN
    if _BAR.search(text):
        return Shape.BAR
    if _FRAME_LINE.match(text):
        return Shape.FRAME
    if text[0] in " \t":
        return Shape.INDENTED
    if text.startswith(_CHAIN):
        return Shape.CHAIN
    if _DUMP_LINE.match(text):
        return Shape.DUMP
    if _EXCEPTION_LINE.match(text):
        return Shape.EXCEPTION
    if _LOGGING.match(text):
        return Shape.LOGGING
    return Shape.FOREIGN if _FOREIGN.match(text) else Shape.PLAIN


class _State(Enum):
    OUT = auto()  # in no block
    STACK = auto()  # frames have begun, the exception is to come
    RAISED = auto()  # the exception was raised; lines of its message may follow
    GAP = auto()  # a blank line after it; only a chain goes on
    GROUP = auto()  # lines of an exception group, behind their margin
    CHAINED = auto()  # the next traceback of the chain is to begin
    LOGGING = auto()  # the stack of the logging call whose error the traceback was


def _ends(state: _State, shape: Shape, block: Block) -> bool:
    """Tell whether a line ends the block before it; the line itself may begin another one."""
    if state is _State.GROUP:
        return shape not in (Shape.MARGIN, Shape.BLANK, Shape.CHAIN)
    if state is _State.STACK and block.dumped:
        return shape not in (Shape.FRAME, Shape.INDENTED)
    if state is _State.STACK:
        return shape is Shape.DUMP or (
            shape is Shape.BEGIN and (block.framed or block.texts[-1].endswith(BEGIN))
        )
    if state is _State.RAISED:
        # an exception without a message on its line has one below, whatever it looks like
        if shape is Shape.EXCEPTION and block.texts[-1].endswith(" raised:"):
            return False
        return shape in _OPENERS or (shape is Shape.FOREIGN and not re.match(r"[^\t].*:$", block.texts[-1]))
    if state is _State.GAP:
        return shape not in (Shape.CHAIN, Shape.BLANK)
    if state is _State.CHAINED:
        return shape not in (Shape.BEGIN, Shape.BLANK)
    return shape not in (Shape.FRAME, Shape.INDENTED, Shape.LOGGING)


def split(run: list[tuple[int, str, bool]], *, sure: bool = False) -> list[Block]:
    """Split a run into tracebacks: where each begins, goes on (a chain), and ends.

    `sure` when nothing but tracebacks can stand in the run: then a message goes on after a blank line.
    """
    blocks: list[Block] = []
    state = _State.OUT
    lines = [(shape_of(text), text) for _, text, _ in run]
    for index, (row, _, headed) in enumerate(run):
        shape, raw = lines[index]
        if shape is Shape.BAR and state is not _State.OUT:
            continue  # a progress bar wrote between the lines
        if state is not _State.OUT and _ends(state, shape, blocks[-1]):
            state = _State.OUT
        before = state
        if state is _State.OUT:
            if not (
                shape in _OPENERS
                or headed
                or (shape is Shape.INDENTED and _leads(lines, index, _CODE))
                or (shape is Shape.MARGIN and re.match(GROUP_FRAME, raw))
            ):
                continue
            blocks.append(Block(dumped=shape is Shape.DUMP))
        if (
            state is _State.RAISED
            and shape is Shape.BLANK
            and _message_goes_on(blocks[-1], lines, index, sure)
        ):
            blocks[-1].add(row, "\t")
            continue
        state, text = _step(state, blocks[-1], lines, index)
        if state is _State.RAISED and before is not state:
            blocks[-1].raised.append(row)
        if state is not _State.OUT:
            blocks[-1].open = state in (_State.STACK, _State.CHAINED)
        if state is _State.LOGGING:
            blocks[-1].rows.append(row)
        elif text is not None:
            blocks[-1].add(row, text)
    for block in blocks:
        while len(block.texts) > 1 and not block.texts[-1]:
            block.rows.pop()
            block.texts.pop()
    return blocks


def _message_goes_on(block: Block, lines: list[tuple[Shape, str]], index: int, sure: bool) -> bool:
    """Tell whether an exception's message certainly goes on after the blank line that stands here."""
    ahead = list(islice(lines, index, index + LONGEST))
    shape, text = next((one for one in ahead if one[0] is not Shape.BLANK), (Shape.BLANK, ""))
    if shape not in (Shape.PLAIN, Shape.INDENTED, Shape.MARGIN):
        return sure and shape is Shape.FOREIGN
    if sure or _AFTER_BLANK.match(text):
        return True
    # the code that Triton lists up to its caret, and what stands before the next traceback of a chain
    body = (Shape.BLANK, Shape.PLAIN, Shape.INDENTED)
    end, last = next((one for one in ahead if one[0] not in body or _CARETS.fullmatch(one[1])), (None, ""))
    if end is Shape.CHAIN:
        return True
    return bool(last and _CARETS.fullmatch(last)) and any(_LISTING.search(one) for one in block.texts)


def _step(
    state: _State, block: Block, lines: list[tuple[Shape, str]], index: int
) -> tuple[_State, str | None]:
    """Return the state after a line, and the line as the grammar reads it; None when the block lacks it."""
    shape, text = lines[index]
    if shape is Shape.MARGIN and state in (_State.OUT, _State.GROUP):
        block.margins.append(len(block.texts))
        return _State.GROUP, text
    if state is _State.GROUP and shape is Shape.BLANK:
        return _State.GAP, text
    if state is _State.OUT:
        state = _State.STACK  # the line opens the block, whatever it looks like
    elif shape in (Shape.FOREIGN, Shape.PLAIN, Shape.LOGGING, Shape.MARGIN) and state is _State.STACK:
        return _step_at_margin(block, lines, index)
    elif shape is Shape.BLANK and state is _State.STACK and not _leads(lines, index, (Shape.BLANK, *_CODE)):
        return _State.OUT, None
    if shape is Shape.CHAIN:
        return _State.CHAINED, text
    if state is _State.RAISED and shape is Shape.LOGGING and text.startswith("Call"):
        return _State.LOGGING, None
    if state is _State.RAISED:
        return (_State.GAP, text) if shape is Shape.BLANK else (_State.RAISED, "\t" + text)
    if shape is Shape.EXCEPTION:
        return _State.RAISED, text
    if shape is Shape.BEGIN:
        block.framed = False
        if text.endswith(_GROUP):
            block.margins.append(len(block.texts))
            return _State.GROUP, text
        return _State.STACK, text
    if shape is Shape.FRAME and state is _State.STACK:
        block.dumped = block.dumped or (not block.framed and bool(_DUMP_FRAME.match(text)))
        block.framed = True
    return state, text


def _step_at_margin(block: Block, lines: list[tuple[Shape, str]], index: int) -> tuple[_State, str | None]:
    """Return the same for a line at the margin within a stack: an exception, code, or something else."""
    shape, text = lines[index]
    after = index + 1
    while after < len(lines) and _CARETS.match(lines[after][1]):
        after += 1
    next_shape, next_text = lines[after] if after < len(lines) else (Shape.BLANK, "")
    if shape is Shape.LOGGING:
        return (_State.LOGGING, None) if block.framed else (_State.OUT, None)
    if shape is Shape.FOREIGN:
        # another process wrote between the lines
        known = (Shape.FOREIGN, Shape.BAR, *_CODE)
        return (_State.STACK if _leads(lines, index, known) else _State.OUT), None
    if next_shape is Shape.FRAME and next_text.startswith("File"):
        return _State.STACK, "\t" + text  # code that has lost its indentation, as all the block has
    if RAISED.match(text):
        return _State.RAISED, text
    if _leads(lines, index + 1, _CODE) and next_shape is not Shape.EXCEPTION:
        return _State.STACK, None  # another process wrote between the lines
    return (_State.STACK, "\t" + text) if next_shape is Shape.EXCEPTION else (_State.OUT, None)


def _leads(lines: list[tuple[Shape, str]], index: int, through: tuple[Shape, ...]) -> bool:
    """Tell whether the lines lead on to a frame or an exception, through lines of some shapes alone."""
    found = next((shape for shape, _ in islice(lines, index, None) if shape not in through), None)
    return found in (Shape.FRAME, Shape.EXCEPTION)


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


def read_traceback(texts: list[str], margins: list[int]) -> _Parsed:
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
            text = BEGIN if line.endswith(_GROUP) else re.sub(r"^ *\| ?", "", line, count=1)
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
    mine = next(iter(split(own, sure=True)), Block())
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
    return parser("traceback.lark")


@lru_cache(maxsize=1024)
def _parse(text: str) -> _Parsed:
    """Parse a block with Lark; equal blocks (the same fault on many ranks) are parsed once."""
    from lark import Tree

    raised: list[tuple[str, str, int]] = []
    stack: list[dict[str, Any]] = []
    begun, open_end, dumped, fresh = text.partition("\n")[0].endswith(BEGIN), False, False, False
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
            stack.append(stack_frame(first, rest))
            dumped = dumped or bool(_DUMP_FRAME.match(first))
            open_end, fresh = True, False
        else:
            name, _, message = first.rstrip("\n").partition(":")
            message = "\n".join([message.strip(), *(str(line)[1:].rstrip("\n") for line in rest)]).strip()
            raised.append((name, message, first.line - 1))
            open_end = False
    return _Parsed(raised, stack[::-1] if dumped else stack, begun, open_end, [])


def stack_frame(first: str, code: list[str]) -> dict[str, Any]:
    match = re.match(r'[ \t]*File "([^"]+)", line ([0-9]{1,9})[0-9]*(?:,? in (.*))?', first)
    # carets mark a place in the code above them; dots stand for more frames in a dump
    source = next((line.strip() for line in code if set(line.strip()) - set("~^.")), None)
    return {
        "path": match[1] if match else None,
        "line": int(match[2]) if match else None,
        "function": match[3].strip() if match and match[3] else None,
        "code": source,
    }
