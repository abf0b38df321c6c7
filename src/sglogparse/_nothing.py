"""A frame without rows of which nothing is asked of polars.

Of the two hundred kinds of frames a launch has a dozen. Rules filter and pick columns from the others all the
same, and each such call costs polars a query, however empty the frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import polars as pl

if TYPE_CHECKING:
    from sglogparse._events import Frames


@cache
def _column(kind: pl.DataType) -> pl.Series:
    return pl.Series([], dtype=kind)


@cache
def _schemas() -> dict[str, dict[str, pl.DataType]]:
    from sglogparse._log import frame_schemas

    return frame_schemas()


class Nothing(pl.DataFrame):
    """A frame without rows: any choice, order or part of them is the frame itself."""

    @classmethod
    def of(cls, schema: Mapping[str, pl.DataType]) -> Self:
        """Return a frame without rows: of columns that are there, which costs a quarter of a new schema."""
        return cls([_column(kind).alias(name) for name, kind in schema.items()])

    def filter(self, *_: Any, **__: Any) -> Self:  # noqa: ANN401 - whatever polars takes
        """Return the frame: none of its rows is left out."""
        return self

    def drop_nulls(self, *_: Any, **__: Any) -> Self:  # noqa: ANN401 - whatever polars takes
        """Return the frame."""
        return self

    def sort(self, *_: Any, **__: Any) -> Self:  # noqa: ANN401 - whatever polars takes
        """Return the frame."""
        return self

    def unique(self, *_: Any, **__: Any) -> Self:  # noqa: ANN401 - whatever polars takes
        """Return the frame."""
        return self

    def iter_rows(self, *_: Any, **__: Any) -> Any:  # noqa: ANN401 - whatever polars takes
        """Return an iterator without a row."""
        return iter(())

    def select(self, *columns: Any, **named: Any) -> pl.DataFrame:  # noqa: ANN401 - whatever polars takes
        """Return columns of the frame; those that are computed have a value, perhaps, and ask polars."""
        names = [one for one in columns if isinstance(one, str)]
        if named or len(names) < len(columns):
            return super().select(*columns, **named)
        return Nothing(self.get_columns_of(names))

    def get_columns_of(self, names: list[str]) -> list[pl.Series]:
        """Return some of the columns."""
        return [self.get_column(name) for name in names]


class LaunchFrames(Mapping[str, pl.DataFrame]):
    """The frames of a launch by name; those without rows cost nothing to look at."""

    def __init__(self, frames: Frames, nothing: dict[str, pl.DataFrame]) -> None:
        #: those that have rows
        self.present = {name: frame for name, frame in frames.found.items() if frame.height}
        self._frames = frames
        #: launches of one log share them
        self._nothing = nothing

    def __getitem__(self, name: str) -> pl.DataFrame:
        frame = self.present.get(name)
        if frame is None:
            frame = self._nothing.get(name)
        if frame is None:
            frame = self._nothing[name] = Nothing.of(_schemas()[name])
        return frame

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def __contains__(self, name: object) -> bool:
        return name in self._frames
