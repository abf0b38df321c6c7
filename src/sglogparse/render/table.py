"""Tables for a terminal: of frames (query) and of short lists (rules, frames)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from sglogparse._safe import plain, tame
from sglogparse.render._wrap import wrap

if TYPE_CHECKING:
    import polars as pl

#: How many rows a terminal shows; the other formats give all.
_MOST_ROWS = 50
#: How wide a column of texts may be, and how narrow it is made before columns are left out, in cells.
_MOST_CELL = 60
_LEAST_CELL = 24
#: The narrowest last column of a list that stands beside the others.
_LEAST_LAST = 24


def render_frame(frame: pl.DataFrame, width: int) -> tuple[str, list[str]]:
    """Return a frame as a table that fits a width, and notes on what it leaves out."""
    notes = []
    empty = [name for name in frame.columns if frame.height and frame[name].null_count() == frame.height]
    if empty and len(empty) < len(frame.columns):
        frame = frame.drop(empty)
        notes.append(
            f"left out {len(empty)} column{'s' if len(empty) > 1 else ''} without a value in this result"
        )
    shown = frame.head(_MOST_ROWS)
    if shown.height < frame.height:
        notes.append(f"shown: the first {shown.height} of {frame.height} rows; --output-format csv gives all")
    columns = [[_cell(name), *map(_cell, shown[name].to_list())] for name in shown.columns]
    numeric = [kind.is_numeric() for kind in shown.schema.values()]
    sizes = _sizes(columns, numeric, width)
    if len(sizes) < len(columns):
        notes.append(f"not shown for width: {plain(', '.join(shown.columns[len(sizes) :]))}")
    lines = [
        "  ".join(
            _fit(cell, size, right) for cell, size, right in zip(row, sizes, numeric, strict=False)
        ).rstrip()
        for row in zip(*columns, strict=True)
    ]
    if lines:
        lines.insert(1, "-" * (sum(sizes) + 2 * len(sizes) - 2))
    return "\n".join(lines), notes


def _sizes(columns: list[list[str]], numeric: list[bool], width: int) -> list[int]:
    """Return the widths of the columns that fit: texts are narrowed first, then columns are left out."""
    sizes = [min(max(map(cell_len, cells)), _MOST_CELL) for cells in columns]
    least = [
        size if number else min(size, max(_LEAST_CELL, cell_len(cells[0])))
        for cells, size, number in zip(columns, sizes, numeric, strict=True)
    ]
    while sum(sizes) + 2 * len(sizes) - 2 > width:
        spare = [size - low for size, low in zip(sizes, least, strict=True)]
        if any(spare):
            widest = max(range(len(sizes)), key=lambda index: (spare[index] > 0, sizes[index]))
            sizes[widest] -= 1
        elif len(sizes) > 1:
            sizes.pop()
            least.pop()
        else:
            return [max(width, 1)]
    return sizes


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = f"{value:.8g}" if isinstance(value, float) else str(value)[: 2 * _MOST_CELL]
    return tame(plain(text))


def _fit(cell: str, size: int, right: bool) -> str:
    used = cell_len(cell)
    if used > size:
        return set_cell_size(cell, size - 3) + "..." if size > 3 else set_cell_size(cell, size)
    return " " * (size - used) + cell if right else cell + " " * (size - used)


def render_rows(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """Return a list whose last column is wrapped, or below the others where there is no room beside them."""
    sizes = [max(len(row[index]) for row in [head, *rows]) for index in range(len(head) - 1)]
    left = sum(sizes) + 2 * len(sizes)
    lines = []
    for row in [head, *rows]:
        start = "".join(cell.ljust(size) + "  " for cell, size in zip(row, sizes, strict=False))
        if width - left >= _LEAST_LAST:
            lines += wrap(row[-1], width, first=start, rest=" " * left)
        else:
            lines += [*wrap("  ".join(row[:-1]), width), *wrap(row[-1], width, first="  ", rest="  ")]
    return "\n".join(lines)
