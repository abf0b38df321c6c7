"""What spans lines and is no traceback: thread dumps, native stacks, device asserts, compilers, long records.

    rows that nothing takes --> a literal of a kind stands in it --> its pattern --> the lines that go with it

Patterns run over all rows that are left; only rows near what they find meet Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from sglogparse._cheap import lazy

#: Lines that can follow the opening one of a span before they are looked at again.
_NEAR = 400
#: Lines of a bracketed text, at the most.
_LONGEST_BODY = 400

#: By kind: literals of which one stands in every opening line, what it looks like, and what follows it.
_DEVICE_ASSERT = r": block: \[[0-9]+,[0-9]+,[0-9]+\], thread: \[[0-9]+,[0-9]+,[0-9]+\],? Assertion"
_THREAD = r"(?:Current thread|Thread) 0x[^(]*\(most recent call first\):"
_PYSPY_THREAD = r'Thread (?:0x[0-9A-Fa-f]+|[0-9]+) \([a-z+]+\)(?:: ".*")?$'


#: Kind and rows of a span.
Span = tuple[str, pl.Series]


class _Kind(NamedTuple):
    name: str
    literals: tuple[str, ...]
    opens: str
    #: None where every line opens
    follows: re.Pattern[str] | None


_KINDS = (
    _Kind("device_assert", ("Assertion",), rf"{_DEVICE_ASSERT}|\] Assertion `.*failed", None),
    _Kind(
        "thread_dump",
        (
            "Fatal Python error: ", "most recent call first", "C stack trace", "Extension modules: ",
            "Python runtime state: ", "(idle)", "(active", "Process ", "Python v",
        ),
        rf"^(?:Fatal Python error: |{_THREAD}|Current thread's C stack trace|Extension modules: "
        rf"|Python runtime state: |{_PYSPY_THREAD}|Process [0-9]+: |Python v[0-9.]+ \()",
        lazy(
            r'  (?:File "|Binary file "|\.\.\.$|<)| {4}[^ ].* \([^()]+(?::[0-9]+)?\)$'
            r"| {8}(?:Arguments|Locals):$| {12}[^ ]+: "
        ),
    ),
    _Kind(
        "native_stack",
        (
            "most recent call first", "frame #", "backtrace", "CapturedTraceback", "terminate called ",
            "what():", "Caught signal ", "***", "] Signal", "] Failing at", "0x", "#",
            "Segfault encountered",
        ),
        r"^(?:Exception raised from .*most recent call first|frame #[0-9]+: |C\+\+ CapturedTraceback:"
        r"|#[0-9]+ .+ from [^ ]+:[0-9]+$|#[0-9]+ +0x[0-9a-f]+ in |={2,} ?backtrace ?\(tid: *[0-9]+\) ?={2,}$"
        r"| *[0-9]+ +(?:0x[0-9a-f]+ .+ .*:[0-9]+$|/[^ ]+\([^()]*\) ?\[0x[0-9a-f]+\])"
        r"|terminate called (?:after throwing|without an active|recursively)| *what\(\): "
        r"|\[[^ \]]+:[0-9]+(?::[0-9]+)*\] (?:Caught signal [0-9]+|\*\*\* |Signal(?: code)?: |Failing at "
        r"|\[ *[0-9]+\] )"
        r"|\*\*\* (?:SIG[A-Z]+|Aborted at|Process received signal|.* \*\*\*: )|PC: @ | +@ +0x[0-9a-f]+ "
        r"|[^ ]*\.so[^ ]* ?(?:\([^()]*\) ?)?\[0x[0-9a-f]+\]$"
        r"|[/.][^ ]*\([^()]*\+0x[0-9a-f]+\) ?\[0x[0-9a-f]+\]$"
        r"|!{5,} Segfault encountered !{5,}$)",
        lazy(
            r"={4,}$| *[0-9]+ +(?:0x[0-9a-f]+|/)|CUDA kernel errors might|For debugging consider"
            r"|Compile with `TORCH|Device-side assert|Search for `|nccl[A-Z][A-Za-z]+Error: |Last error:$"
            r"|    @ "
        ),
    ),
    _Kind(
        "compiler_output",
        (
            "error: ", "warning: ", "note: ", "remark: ", "error #", "warning #", "remark #",
            ": undefined ref", "ld: ", "ld.", ": In ", "In file included from ", "generated", "detected in",
            "Error limit reached", "ompilation terminated", "FAILED: ", "ninja: ", "***", "ptxas ", "nvcc",
            "nvlink ", "CMake ", "module ", "IR Dump", "{-#", "c++", "g++", "gcc", "clang", "hipcc",
            "ccache", ": &&",
        ),
        r"^(?:[^ :]+:[0-9]+:[0-9]+: (?:fatal error|error|warning|note|remark): "
        r"|[^ :]+:[0-9]+: (?:error: |undefined ref)"
        r"|[^ :]+: In (?:[a-z]+ )*function |In file included from "
        r"|[^ ()]+\([0-9]+\): (?:catastrophic error|error|warning|note|remark)(?: #|: )"
        r"|[0-9]+ (?:errors?|warnings?)(?: and [0-9]+ (?:errors?|warnings?))? (?:generated|detected in)"
        r"|Error limit reached\.$|[Cc]ompilation terminated\.$"
        r"|(?:ptxas|nvcc|nvlink) (?:error|warning|info|fatal) *: |collect2: (?:error|fatal)"
        r"|(?:/[^ ]*/)?ld(?:\.[a-z]+)?: |FAILED: |ninja: "
        r"|g?make(?:\[[0-9]+\])?: \*\*\* |CMake (?:Error|Warning)\b"
        r"|\[[0-9]+/[0-9]+\] (?:(?:/[^ ]*/)?(?:c\+\+|g\+\+|gcc|clang(?:\+\+)?|nvcc|hipcc|ccache)[ :]|: &&)"
        r"|module (?:attributes \{.*\} )?\{$|// -----// IR Dump |\{-#$)",
        lazy(
            r" +\S|\t|[ ~^|]+$|(?:[^ ]*/)?(?:c\+\+|g\+\+|gcc|clang(?:\+\+)?|nvcc|hipcc|cc|ccache) "
            r"|\}(?: loc\(.*\))?$|#-\}$|#[a-z][A-Za-z0-9_]* = "
        ),
    ),
)  # fmt: skip

#: Events whose records can go on in further lines.
GO_ON = ("watchdog_state", "pool_exhausted", "memory_leak", "memory_check", "stack_dump")
#: Records that SGLang prints with line ends in them: how the first line looks, and the others.
_CONTINUED: tuple[tuple[str, re.Pattern[str]], ...] = (
    (r"^Possible solutions:|failed: .*Possible solutions:", lazy(r"[0-9]\. |Open an issue on GitHub")),
    (r"PD-Multiplexing may experience", lazy(r"  (?:Current torch version|Please manually)")),
    (r"following memory limit for calibration:$", lazy(r"\{.*\}$|If you hit GPU OOM")),
    (
        r" out of memory\. Try to lower your batch size\.$",
        lazy(r"Try to allocate |Avail?able tokens: |self\."),
    ),
    (r"^i=[0-9]+, req=", lazy(r"(?:self\.)?(?:accept(?:ed)?_(?:index|indices)|predict)=")),
    (r" debug info:$", lazy(r"(?:self\.)?[a-z_][A-Za-z0-9_.()]*=")),
)
_OPENING, _CLOSING = r"[\[({]", r"[\])}]"
#: A record of another logger: no part of what stands above it.
_FOREIGN = lazy(
    r"\[[0-9]{4}-|[0-9]{4}-[0-9]{2}-[0-9]{2}[ T]|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|[IWEF][0-9]{4} "
)


def read_spans(table: pl.DataFrame, taken: pl.Series) -> list[Span]:
    """Return the spans as (kind, rows), in order.

    `table` has the rows that no event takes (`row`, `file`, `message`, `bare`, `report`), `taken` those among
    them that tracebacks take.
    """
    left = table.filter(~pl.col("row").is_in(taken.implode()) & ~pl.col("report"))
    spans = [*_of_kinds(left.filter("bare")), *_continuations(left)]
    return sorted(spans, key=lambda span: span[1][0])


def indented(records: pl.DataFrame, kinds: pl.Series) -> pl.Series:
    """Return the rows that nothing has named and that are indented below a record, whose message goes on."""
    free = kinds.is_null().arg_true()
    rows = free.filter(records["message"].gather(free).str.contains(r"^[ \t]"))
    # the line above the first one of a file, or of a piece that was cut, is none of its
    rows = rows.filter((records["line"].gather(rows) > 1) & (rows > 0))
    first = (rows.diff() != 1).fill_null(True)
    above = records["headed"].gather(rows.filter(first) - 1)
    runs = pl.DataFrame({"row": rows, "run": first.cum_sum() - 1})
    return runs.filter(above.gather(runs["run"]))["row"]


def _of_kinds(bare: pl.DataFrame) -> Iterator[Span]:
    """Yield the spans that lines of certain forms open, up to the lines that can still be a part of them."""
    pieces = []
    for one in _KINDS:
        gated = bare["message"].str.contains_any(list(one.literals)).arg_true()
        found = gated.filter(bare["message"].gather(gated).str.contains(one.opens))
        pieces.append(pl.DataFrame({"at": found}).with_columns(kind=pl.lit(one.name)))
    # of two kinds the first one counts
    opened = pl.concat(pieces).unique("at", keep="first")
    if opened.is_empty():
        return
    kinds = pl.Series("kind", [None], dtype=pl.String).new_from_index(0, bare.height)
    kinds = kinds.scatter(opened["at"], opened["kind"])
    row = pl.col("row")
    near = (
        bare.select("row", "file", "message", "tag", kinds)
        # the next file cannot be part of it, but that is seen when the rows are walked
        .filter(row - pl.when(pl.col("kind").is_not_null()).then(row).forward_fill() < _NEAR)
        .with_columns(place=pl.concat_str("file", pl.lit(" "), "tag", ignore_nulls=True))
    )
    # a flood of asserts is bulk
    flood = near.filter(kind="device_assert")
    for rows in _stretches(flood):
        yield "device_assert", rows
    follows = {one.name: one.follows for one in _KINDS if one.follows}
    current: tuple[str, list[int]] | None = None
    blanks: list[int] = []
    previous: tuple[object, int] = (None, -1)
    rest = near.filter(pl.col("kind").ne_missing("device_assert"))
    for row, place, text, opener in rest.select("row", "place", "message", "kind").iter_rows():
        if current and (previous != (place, row - 1) or (opener and opener != current[0])):
            yield current[0], _rows(current[1])
            current, blanks = None, []
        previous = (place, row)
        if current is None:
            if opener:
                current = opener, [row]
        elif opener or follows[current[0]].match(text):
            current[1].extend([*blanks, row])
            blanks = []
        elif not text:
            blanks.append(row)
        else:
            yield current[0], _rows(current[1])
            current, blanks = None, []
    if current:
        yield current[0], _rows(current[1])


def _rows(rows: list[int]) -> pl.Series:
    return pl.Series("row", rows, dtype=pl.UInt32)


def _stretches(rows: pl.DataFrame) -> list[pl.Series]:
    """Return the rows, those of one file that follow each other together."""
    stretch = (pl.col("row") - pl.int_range(pl.len(), dtype=pl.UInt32)).alias("stretch")
    found = rows.select("file", "row", stretch).group_by("file", "stretch", maintain_order=True).agg("row")
    return list(found["row"])


def _continuations(left: pl.DataFrame) -> Iterator[Span]:
    """Yield the bare lines behind a record whose message certainly goes on in them."""
    message = pl.col("message")
    following = (
        (pl.col("row").shift(-1) == pl.col("row") + 1)
        & pl.col("bare").shift(-1)
        & pl.col("file").eq(pl.col("file").shift(-1))
    )
    heads = left.with_columns(goes_on=following).filter(~pl.col("bare") & pl.col("goes_on").fill_null(False))
    known = pl.coalesce(
        pl.when(message.str.contains(head)).then(pl.lit(index)) for index, (head, _) in enumerate(_CONTINUED)
    )
    opened = message.str.count_matches(_OPENING).cast(pl.Int64) - message.str.count_matches(_CLOSING)
    heads = heads.select("row", known.alias("known"), opened.alias("opened")).filter(
        pl.col("known").is_not_null() | (pl.col("opened") > 0)
    )
    if heads.is_empty():
        return
    near = (
        left.select("row", "file", "message", "bare")
        .join(heads, on="row", how="left", maintain_order="left")
        .with_columns(last=pl.when(pl.col("opened").is_not_null()).then("row").forward_fill().over("file"))
        .filter(pl.col("row") - pl.col("last") <= _LONGEST_BODY)
    )
    lines = {row: (text, bare) for row, text, bare in near.select("row", "message", "bare").iter_rows()}
    for row, index, depth in heads.iter_rows():
        body = _body(lines, row, index, depth)
        if body:
            yield "continuation", _rows(body)


def _body(lines: dict[int, tuple[str, bool]], row: int, index: int | None, depth: int) -> list[int]:
    """Return the rows of a record's other lines: those of a known wording, or up to the closing bracket."""
    rows: list[int] = []
    for at in range(row + 1, row + 1 + _LONGEST_BODY):
        text, bare = lines.get(at, ("", False))
        if not bare or _FOREIGN.match(text):
            break
        if index is not None and _CONTINUED[index][1].match(text):
            rows.append(at)
            continue
        if index is not None and depth <= 0:
            break
        rows.append(at)
        depth += len(re.findall(_OPENING, text)) - len(re.findall(_CLOSING, text))
        if depth <= 0:
            return rows
    return rows if index is not None and depth <= 0 else []
