"""Tables for a terminal: of frames (query) and of short lists (rules, frames)."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sglogparse._safe import plain

if TYPE_CHECKING:
    import polars as pl

#: Rows and characters a cell that a terminal shows; the other formats give all.
_MOST_ROWS = 50
_MOST_CELL = 60


def render_frame(frame: pl.DataFrame, width: int) -> tuple[str, list[str]]:
    """Return a frame as a table that fits a width, and notes on what it leaves out."""
    notes = []
    empty = [name for name in frame.columns if frame.height and frame[name].null_count() == frame.height]
    if empty and len(empty) < len(frame.columns):
        frame = frame.drop(empty)
        notes.append(f"left out {len(empty)} columns without a value in this result")
    shown = frame.head(_MOST_ROWS)
    if shown.height < frame.height:
        notes.append(f"shown: the first {shown.height} of {frame.height} rows; --output-format csv gives all")
    columns: list[list[str]] = []
    used = 0
    for index, name in enumerate(shown.columns):
        cells = [_cell(value) for value in shown[name].to_list()]
        size = max(map(len, [plain(name), *cells]))
        if index and used + 2 + size > width:
            rest = ", ".join(shown.columns[index:])
            notes.append(f"not shown for width: {plain(rest)}")
            break
        number = shown.schema[name].is_numeric()
        columns.append([cell.rjust(size) if number else cell.ljust(size) for cell in [plain(name), *cells]])
        used += size + (2 if index else 0)
    lines = ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
    if lines:
        lines.insert(1, "-" * min(used, width))
    return "\n".join(lines), notes


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = f"{value:g}" if isinstance(value, float) else plain(str(value))
    return text if len(text) <= _MOST_CELL else text[: _MOST_CELL - 3] + "..."


def render_rows(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """Return a table whose last column wraps at the width."""
    sizes = [max(len(row[index]) for row in [head, *rows]) for index in range(len(head) - 1)]
    left = sum(sizes) + 2 * len(sizes)
    out = []
    for row in [head, *rows]:
        start = "".join(cell.ljust(size) + "  " for cell, size in zip(row, sizes, strict=False))
        last = textwrap.wrap(row[-1], max(width - left, 30)) or [""]
        out.append((start + last[0]).rstrip())
        out += [" " * left + line for line in last[1:]]
    return "\n".join(out)
