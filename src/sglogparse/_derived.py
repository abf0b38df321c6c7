"""What is derived of launches, once: rules share it.

once        a function of a launch
throughout  a function of the lines of all launches, of which each has its rows
telling     the same, for what is looked for in texts: a long log keeps what it finds
each        a function of the lines of all launches, of which each has a value
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, update_wrapper, wraps
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

import polars as pl

from sglogparse._nothing import Nothing
from sglogparse._records import places_of

if TYPE_CHECKING:
    from sglogparse._events import Frames
    from sglogparse._launches import Launch

_Derived = TypeVar("_Derived")
_Asked = ParamSpec("_Asked")


@dataclass(frozen=True)
class Whole:
    """The lines that were split into launches: what each is asked is looked for in all of them at once."""

    lines: pl.DataFrame
    records: pl.DataFrame
    frames: Frames
    #: the first row of each launch, and behind the last one
    rows: list[int]
    memo: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def launch(self) -> pl.Series:
        """Return the number of the launch of each row."""
        sizes = pl.Series([end - begin for begin, end in pairwise(self.rows)], dtype=pl.UInt32)
        numbers = pl.select(pl.int_range(len(sizes), dtype=pl.UInt32).repeat_by(sizes).explode())
        return numbers.to_series().alias("launch")

    def rows_of(self, frame: pl.DataFrame) -> pl.Series:
        """Return the rows of the lines of a frame, which are in their order."""
        return places_of(self.lines).search_sorted(places_of(frame)).cast(pl.UInt32).alias("row")


class throughout:
    """Makes a function work once on the lines of all launches, and each launch have its own rows of it.

    The function returns a frame with the column `row`, the row in `lines`, in its order.
    """

    def __init__(self, derive: Callable[[Whole], pl.DataFrame]) -> None:
        self.derive = derive
        self.key = f"{derive.__module__}.{derive.__qualname__}"
        self.__doc__ = derive.__doc__

    def _found(self, whole: Whole) -> tuple[pl.DataFrame, list[int], Nothing]:
        if self.key not in whole.memo:
            found = self.derive(whole)
            cuts = found["row"].search_sorted(pl.Series(whole.rows, dtype=pl.UInt32)).to_list()
            whole.memo[self.key] = found, cuts, Nothing(found.clear())
        kept: tuple[pl.DataFrame, list[int], Nothing] = whole.memo[self.key]
        return kept

    def of(self, whole: Whole) -> pl.DataFrame:
        """Return what is found in the lines of all launches."""
        return self._found(whole)[0]

    def __call__(self, launch: Launch) -> pl.DataFrame:
        found, cuts, nothing = self._found(launch.whole)
        begin, end = cuts[launch.number], cuts[launch.number + 1]
        return found[begin:end] if begin < end else nothing


#: What is looked for in texts: of a long log lines are kept that any of these find.
TELLING: list[throughout] = []


class telling(throughout):
    """Makes a function that looks for texts work as `throughout` does; a long log keeps what it finds.

    Columns of truth values tell its lines apart.
    """

    def __init__(self, derive: Callable[[Whole], pl.DataFrame]) -> None:
        super().__init__(derive)
        TELLING.append(self)


class each(Generic[_Derived]):
    """Makes a function work once on the lines of all launches, and each launch have its own value."""

    def __init__(self, derive: Callable[[Whole], Mapping[int, _Derived]]) -> None:
        self.derive = derive
        self.key = f"{derive.__module__}.{derive.__qualname__}"
        self.__doc__ = derive.__doc__

    def __call__(self, launch: Launch) -> _Derived | None:
        if self.key not in launch.whole.memo:
            launch.whole.memo[self.key] = self.derive(launch.whole)
        found: Mapping[int, _Derived] = launch.whole.memo[self.key]
        return found.get(launch.number)


def once_each(
    derive: Callable[Concatenate[Launch, _Asked], _Derived],
) -> Callable[Concatenate[Launch, _Asked], _Derived]:
    """Make a function of a launch and of something in it work once for each of them."""

    def derived(launch: Launch, /, *asked: _Asked.args, **named: _Asked.kwargs) -> _Derived:
        key = (derive.__module__, derive.__qualname__, asked, *named.items())
        if key not in launch.memo:
            launch.memo[key] = derive(launch, *asked, **named)
        found: _Derived = launch.memo[key]
        return found

    return update_wrapper(derived, derive)


def once(derive: Callable[[Launch], _Derived]) -> Callable[[Launch], _Derived]:
    """Make a function of a launch work once a launch: rules share what it returns, and must not change it."""

    @wraps(derive)
    def derived(launch: Launch) -> _Derived:
        key = f"{derive.__module__}.{derive.__qualname__}"
        if key not in launch.memo:
            launch.memo[key] = derive(launch)
        found: _Derived = launch.memo[key]
        return found

    return derived
