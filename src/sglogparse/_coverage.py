"""What the lines of a log are: how many of each kind, and which nobody can name.

lines (kind) --> counts by file and kind --> Coverage
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from sglogparse._cheap import dataclass

if TYPE_CHECKING:
    from sglogparse._log import Log

#: Unparsed lines of a file that are kept as examples, each of another shape.
_EXAMPLES = 5


@dataclass(frozen=True)
class Unnamed:
    """An unparsed line, and how many of its file have the same shape (digits aside)."""

    line: int
    text: str
    like_it: int


@dataclass(frozen=True)
class FileCoverage:
    """The lines of one file by kind."""

    path: str
    lines: int
    unparsed: int
    #: kind -> lines, most frequent first; without the unparsed ones
    families: Mapping[str, int]
    examples: tuple[Unnamed, ...]

    @property
    def share(self) -> float:
        """Return the share of lines that have a name; 1 for an empty file."""
        return (self.lines - self.unparsed) / self.lines if self.lines else 1.0


def coverage(log: Log) -> tuple[FileCoverage, ...]:
    """Count the lines of each file by kind."""
    counts = log.lines.group_by("file", "kind").len().sort("len", "kind", descending=[True, False])
    shape = pl.col("text").str.strip_chars().str.replace_all("[0-9]+", "0").str.head(80)
    shapes = (
        log.unparsed.group_by("file", shape.alias("shape"))
        .agg(pl.col("line").first(), pl.col("text").first(), pl.len())
        .sort("len", "line", descending=[True, False])
    )
    by_file = {
        int(file): part
        for (file,), part in counts.partition_by("file", as_dict=True, include_key=True).items()
    }
    examples = {int(file): part for (file,), part in shapes.partition_by("file", as_dict=True).items()}
    return tuple(
        _file(source.path, source.lines, by_file.get(index), examples.get(index))
        for index, source in enumerate(log.files)
    )


def _file(path: str, lines: int, counts: pl.DataFrame | None, shapes: pl.DataFrame | None) -> FileCoverage:
    rows = [] if counts is None else list(counts.select("kind", "len").iter_rows())
    families = {kind: number for kind, number in rows if kind is not None}
    found = [] if shapes is None else shapes.head(_EXAMPLES).select("line", "text", "len").iter_rows()
    examples = tuple(Unnamed(line, text, number) for line, text, number in found)
    return FileCoverage(path, lines, lines - sum(families.values()), families, examples)
