"""Which of many patterns can take a text, by its first characters: patterns that cannot are not made ready.

texts --> their first characters (few are distinct) --> patterns with an opening like that
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import contains
from typing import TYPE_CHECKING

import polars as pl

from sglogparse._stored import stored_openings

if TYPE_CHECKING:
    from sglogparse._compiler import Openings

#: Characters that are looked at, and how many beginnings of texts are told apart.
_LOOKED_AT, _MOST = 3, 256


class Beginnings:
    """Patterns by how texts that match them can begin."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._openings: list[Openings | None] = [stored_openings(pattern) for pattern in patterns]
        self._known: dict[str, frozenset[int]] = {}

    def candidates(self, texts: pl.Series) -> list[int]:
        """Return the places of the patterns that can take some of the texts, in order."""
        begins = texts.str.head(_LOOKED_AT).unique().drop_nulls()
        if len(begins) > _MOST:
            begins = begins.str.head(1).unique()
        return sorted({place for begin in begins for place in self.of(begin)})

    def of(self, begin: str) -> frozenset[int]:
        """Return the places of the patterns that can take a text that begins like this."""
        if begin not in self._known:
            if len(self._known) > _MOST:
                self._known.clear()
            self._known[begin] = frozenset(
                place
                for place, openings in enumerate(self._openings)
                if openings is None or any(all(map(contains, one, begin)) for one in openings)
            )
        return self._known[begin]
