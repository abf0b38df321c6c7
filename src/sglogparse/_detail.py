"""What the log says of a fault beyond its line: its exceptions, where it was raised, the lines around it.

root line --> its traceback (or the thread dump behind a native crash) --> innermost frame of SGLang's code
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl

from sglogparse._cheap import lazy
from sglogparse._report import Detail

if TYPE_CHECKING:
    from sglogparse._launches import Launch
    from sglogparse._report import Evidence

#: Lines around the fault that are shown: what led to it, and what it went on to say.
_BEFORE = 6
_AFTER = 10
#: How far below a native crash its thread dumps begin, lines: the dumps of other threads come first.
_DUMPS = 400
#: Code of SGLang itself: a package, a checkout, or its kernels.
_SGLANG = lazy(r"(?:^|/)(?:sglang|sgl_kernel|sglang_router)/")
#: What stands before the part of a path that tells where code is.
_ROOT = lazy(r"^.*?(?:(?:site|dist)-packages/|/python/(?=sglang/)|(?=sglang/srt/))")
#: A value that a message names, without the objects it is an attribute of.
_VALUE = lazy(r"(?<![A-Za-z0-9_.])(?:[A-Za-z_][A-Za-z0-9_]*\.)*([A-Za-z_][A-Za-z0-9_]*(?:\(\))?=[^\s,;()]+)")
_BEGIN = "Traceback (most recent call last):"
_FRAME = lazy(r'^ *File "([^"]+)", line ([0-9]{1,9}), in ([^ ]+)$')
#: A number with more digits than anybody reads.
_LONG = lazy(r"=-?[0-9]+\.[0-9]{4,}$")


def detail_of(launch: Launch, root: Evidence) -> Detail:
    """Return what is known of the fault at a line."""
    block = _block_at(launch, root.line)
    stack: list[dict[str, Any]] = (block["stack"] or block["loose_frames"] or []) if block else []
    exceptions = tuple(block["exceptions"] or ()) if block else ()
    if block and block["exception_line"] and root.line < block["exception_line"]:
        stack = _stack_above(launch, block["line"], root.line) or stack
    stack = stack or _native_stack(launch, root.line)
    frame = _innermost_own(stack)
    last = stack[-1] if stack else None
    text = "\n".join(exceptions) or root.message
    first, end = max(root.line - _BEFORE, launch.first_line), min(root.line + _AFTER, launch.last_line)
    around = launch.lines.filter(pl.col("line").is_between(first, end))["line"]
    return Detail(
        exceptions,
        place(frame) if frame else None,
        frame["code"] if frame else None,
        place(last) if last and last is not frame else None,
        tuple(dict.fromkeys(_LONG.sub(_rounded, value) for value in _VALUE.findall(text))),
        launch.evidences(around.to_list()),
    )


def _rounded(match: re.Match[str]) -> str:
    return f"={float(match[0][1:]):.2f}"


def _block_at(launch: Launch, line: int) -> dict[str, Any] | None:
    """Return the traceback that a line is part of."""
    found = launch.frames["traceback"].filter((pl.col("line") <= line) & (pl.col("last_line") >= line))
    exact = found.filter(pl.col("exception_line") == line)
    found = exact if not exact.is_empty() else found
    return None if found.is_empty() else found.row(0, named=True)


def _stack_above(launch: Launch, first: int, line: int) -> list[dict[str, Any]]:
    """Return the stack of the traceback that ends at a line, within a chain that begins at another."""
    stack: list[dict[str, Any]] = []
    texts = launch.records.filter(pl.col("line").is_between(first, line, closed="left"))["message"]
    for text in texts:
        if text.rstrip().endswith(_BEGIN):
            stack = []
        elif found := _FRAME.match(text):
            stack.append({"path": found[1], "line": int(found[2]), "function": found[3], "code": None})
        elif stack and stack[-1]["code"] is None:
            stack[-1]["code"] = text.strip()
    return stack


def _native_stack(launch: Launch, line: int) -> list[dict[str, Any]]:
    """Return the Python stack that faulthandler dumps behind a native crash: the current thread's."""
    frame = launch.frames["traceback"]
    dumps = frame.filter(pl.col("line").is_between(line, line + _DUMPS, closed="right")).filter(
        pl.col("stack").list.len() > 0
    )
    if dumps.is_empty():
        return []
    heads = [one.message for one in launch.evidences(dumps["line"].to_list())]
    rows = [row for row, head in enumerate(heads) if head.startswith("Current thread")]
    known = any("(most recent call first)" in head for head in heads)
    return dumps["stack"][rows[0]].to_list() if rows else dumps["stack"][0].to_list() if known else []


def _innermost_own(stack: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the innermost frame of SGLang's code."""
    return next((frame for frame in reversed(stack) if _SGLANG.search(frame["path"] or "")), None)


def place(frame: dict[str, Any]) -> str:
    """Return where a frame stands, as `path:line function`, without the folders above the package.

    >>> place({"path": "/opt/lib/site-packages/sglang/srt/utils.py", "line": 5, "function": "run"})
    'sglang/srt/utils.py:5 run'
    """
    path = _ROOT.sub("", frame["path"] or "?")
    return f"{path}:{frame['line']}" + (f" {frame['function']}" if frame["function"] else "")
