"""SGLang's messages that have no header: lost on the way, or printed before the logging was set up.

free lines --> their first characters, among those of all messages of all releases --> message
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import polars as pl

#: Characters by which a message is known; shorter beginnings could be anybody's.
HEAD = 16


@cache
def message_heads() -> pl.Series:
    """Return how SGLang's messages begin (releases 0.1.5 to 0.5.23, read from their wheels)."""
    text = (Path(__file__).parent / "data" / "message_heads.txt").read_text(encoding="utf-8")
    return pl.Series("head", [line for line in text.splitlines() if not line.startswith("# ")])


def bare_messages(records: pl.DataFrame, kinds: pl.Series) -> pl.Series:
    """Return the rows that nothing has named and that begin as a message of SGLang does."""
    free = kinds.is_null().arg_true()
    if free.is_empty():
        return free
    return free.filter(records["message"].gather(free).str.head(HEAD).is_in(message_heads().implode()))
