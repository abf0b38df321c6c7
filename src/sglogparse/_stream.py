"""A log that grows: lines come in, block by block, and at any time what they say so far is a Log.

    lines (file, line, text) --> feed --> Reader --> log() --> Log
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from sglogparse._log import Log
from sglogparse._source import SourceFile


class Reader:
    """Reads lines as they come; what has been read is not read again."""

    def __init__(self) -> None:
        self._blocks: list[pl.DataFrame] = []

    def feed(self, lines: pl.DataFrame) -> None:
        """Take the next whole lines: `file` (UInt16), `line` (UInt32, from 1, without holes) and `text`."""
        self._blocks.append(lines)

    def log(self, files: Iterable[SourceFile]) -> Log:
        """Return what the lines so far say; `files` are the sources that their `file` counts from 0."""
        return Log(list(files), pl.concat(self._blocks))
