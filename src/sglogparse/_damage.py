"""What has happened to a log on its way here: turned upside down, or broken at a margin.

records --> order of the stamps, lengths of the lines --> sentences

Nothing is put right here: what cannot be read for certain is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from sglogparse._log import Log

#: Steps back in time without which an order is no order, and how many more than forward.
_FEWEST_STEPS = 5
_STEPS_RATIO = 5
#: Steps back that are enough where there is none forward.
_FEWEST_ALONE = 2
#: Lines that end at the same column without a longer one, at least; their share; and the columns of margins.
_FEWEST_FULL = 8
_SHARE_FULL = 0.2
_MARGINS = (60, 260)
#: A text of several lines in a JSON object, under a name that exporters use.
_LINES_IN_JSON = r'"(?:log|message|msg|textPayload|line|MESSAGE)": *"(?:[^"\\]|\\.)*\\n(?:[^"\\]|\\[^n])'
#: Bytes of a character, at most.
_MOST_BYTES = 4


def newest_first(log: Log) -> set[int]:
    """Return the files whose records stand in the reverse order of their stamps, as exporters give them.

    Records of several processes are a little out of order in any log; here hardly any stands behind its
    predecessor in time.
    """
    step = pl.col("time").diff().over("file")
    stamps = log.records.select("file", "time").drop_nulls("time")
    found = (
        stamps.select("file", step.alias("step"))
        .group_by("file")
        .agg(
            (pl.col("step") < pl.duration()).sum().alias("back"),
            (pl.col("step") > pl.duration()).sum().alias("on"),
        )
        .filter(
            ((pl.col("back") >= _FEWEST_STEPS) & (pl.col("back") > _STEPS_RATIO * pl.col("on")))
            | ((pl.col("back") >= _FEWEST_ALONE) & (pl.col("on") == 0))
        )
    )
    return set(found["file"].to_list())


def broken_at(log: Log) -> dict[int, tuple[int, int]]:
    """Return the files whose lines a terminal or an editor has broken, with the column and how many are.

    No line is longer than the margin, many records that end at it are none that is known, and what follows
    those has no header of its own.
    """
    longest = log.records.group_by("file").agg(pl.col("text").str.len_bytes().max().alias("bytes"))
    files = longest.filter(pl.col("bytes") <= _MOST_BYTES * _MARGINS[1])["file"].to_list()
    if not files:  # as nearly always: the arguments alone are longer
        return {}
    full = (pl.col("size") == pl.col("size").max().over("file")) & (pl.col("kind") == "message")
    follows = (~pl.col("headed")).shift(-1).over("file").fill_null(False)
    found = (
        log.records.select("file", "headed", pl.col("text").str.len_chars().alias("size"))
        .with_columns(log.lines["kind"])
        .filter(pl.col("file").is_in(files))
        .with_columns((full & follows).alias("broken"))
        .group_by("file")
        .agg(pl.col("size").max(), pl.col("broken").sum(), pl.len())
        .filter(
            (pl.col("broken") >= _FEWEST_FULL)
            & (pl.col("broken") >= _SHARE_FULL * pl.col("len"))
            & pl.col("size").is_between(*_MARGINS)
        )
    )
    return {file: (size, broken) for file, size, broken in found.select("file", "size", "broken").iter_rows()}


def unread(log: Log) -> dict[int, int]:
    """Return, by file, how many JSON objects hold a text of several lines, which is not read."""
    text = pl.col("text")
    lines = pl.concat(
        [log.foreign.select("file", pl.col("message").alias("text")), log.unparsed.select("file", "text")]
    ).filter(text.str.starts_with("{") & text.str.contains(_LINES_IN_JSON))
    return dict(lines.group_by("file").len().iter_rows())


def damage(log: Log, upside_down: Iterable[int], partly: Mapping[int, int]) -> list[str]:
    """Return what has happened to the files of a log, in sentences; two of them as found before."""
    said = [
        f"{log.files[file].path}: {number} JSON object{'s hold' if number > 1 else ' holds'} a text of "
        "several lines, which is not read: write them out first (`jq -r .log`)"
        for file, number in sorted(partly.items())
    ]
    for file in sorted(upside_down):
        said.append(f"{log.files[file].path}: the newest line stands first, as some exports have it")
    for file, (column, number) in sorted(broken_at(log).items()):
        said.append(
            f"{log.files[file].path}: {number} lines are broken at column {column}; what stood behind it is "
            "on lines of its own, and is read only where it is whole by itself"
        )
    return said
