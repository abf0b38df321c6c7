"""What the lines of a log are: how many of each kind, and which nobody can name.

lines (kind) --> counts by file and kind --> Coverage
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from sglogparse._cheap import dataclass

if TYPE_CHECKING:
    from sglogparse._log import Log
    from sglogparse._source import Source, SourceFile

#: Unparsed lines of a file that are kept as examples, each of another shape.
_EXAMPLES = 5
#: Shapes of unparsed lines that are told apart at a time.
_MOST_SHAPES = 100_000
_COUNTS: dict[str, pl.DataType] = {"file": pl.UInt16(), "kind": pl.String(), "len": pl.UInt32()}
_SHAPES: dict[str, pl.DataType] = {
    "file": pl.UInt16(),
    "shape": pl.String(),
    "line": pl.UInt32(),
    "text": pl.String(),
    "len": pl.UInt32(),
}


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
    return _of(_counts(log), _shapes(log), log.files)


def coverage_of(pieces: Iterable[Log], sources: Sequence[Source]) -> tuple[FileCoverage, ...]:
    """Count the lines of each file by kind, piece by piece: a log may be larger than memory."""
    counts, shapes = pl.DataFrame(schema=_COUNTS), pl.DataFrame(schema=_SHAPES)
    for piece in pieces:
        counts = pl.concat([counts, _counts(piece)]).group_by("file", "kind").agg(pl.col("len").sum())
        shapes = (
            pl.concat([shapes, _shapes(piece)])
            .group_by("file", "shape", maintain_order=True)
            .agg(pl.col("line", "text").first(), pl.col("len").sum())
        )
        if shapes.height > _MOST_SHAPES:  # what is rare by then is no example
            shapes = shapes.sort("len", "line", descending=[True, False]).head(_MOST_SHAPES // 2).sort("line")
    return _of(counts, shapes, [source.summary() for source in sources])


def _counts(log: Log) -> pl.DataFrame:
    return log.lines.group_by("file", pl.col("kind").cast(pl.String)).len().cast(pl.Schema(_COUNTS))


def _shapes(log: Log) -> pl.DataFrame:
    """Return the shapes of unparsed lines, with the first line of each and how many there are."""
    shape = pl.col("text").str.strip_chars().str.replace_all("[0-9]+", "0").str.head(80)
    shapes = log.unparsed.group_by("file", shape.alias("shape"), maintain_order=True)
    return shapes.agg(pl.col("line", "text").first(), pl.len()).cast(pl.Schema(_SHAPES))


def _of(counts: pl.DataFrame, shapes: pl.DataFrame, files: Sequence[SourceFile]) -> tuple[FileCoverage, ...]:
    counts = counts.sort("len", "kind", descending=[True, False])
    shapes = shapes.sort("len", "line", descending=[True, False])
    by_file = {
        int(file): part
        for (file,), part in counts.partition_by("file", as_dict=True, include_key=True).items()
    }
    examples = {int(file): part for (file,), part in shapes.partition_by("file", as_dict=True).items()}
    return tuple(
        _file(source.path, source.lines, by_file.get(index), examples.get(index))
        for index, source in enumerate(files)
    )


def _file(path: str, lines: int, counts: pl.DataFrame | None, shapes: pl.DataFrame | None) -> FileCoverage:
    rows = [] if counts is None else list(counts.select("kind", "len").iter_rows())
    families = {kind: number for kind, number in rows if kind is not None}
    found = [] if shapes is None else shapes.head(_EXAMPLES).select("line", "text", "len").iter_rows()
    examples = tuple(Unnamed(line, text, number) for line, text, number in found)
    return FileCoverage(path, lines, lines - sum(families.values()), families, examples)
