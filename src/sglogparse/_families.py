r"""Foreign lines: the family of each line that is not SGLang's, by how it begins.

    free lines --> families.lark, family by family --> name
          \--> what is left, below a line of its family --> the same name

Families only name lines. Their patterns are anchored at the start, and each one sees only what the families
before it have left, so that the cost grows with the foreign lines of a log alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import polars as pl

from sglogparse._beginnings import Beginnings
from sglogparse._cheap import dataclass
from sglogparse._compiler import rule_patterns
from sglogparse._grammar import Sample, grammar_text, notes_of
from sglogparse._records import RECORD_SCHEMA
from sglogparse._stored import stored_patterns

_GRAMMAR = "families.lark"
#: The end of the name of a rule whose lines mean nothing alone.
_MORE = "_more"
#: Rows from one line of a family to the next that counts below it, at the most: ranks write in turn.
_NEAR = 16


@dataclass(frozen=True)
class Family:
    """What a family's lines look like."""

    name: str
    doc: str
    samples: tuple[Sample, ...]
    #: how its lines begin
    pattern: str
    #: how lines go on that count only below one of its lines; None when it has no such lines
    more: str | None


@cache
def families() -> tuple[Family, ...]:
    """Return the families in the order in which readers try them."""
    text = grammar_text(_GRAMMAR)
    notes, (begin, more) = notes_of(text), _patterns(text, "family", "more")
    return tuple(
        Family(
            name,
            " ".join(notes[name][0]),
            tuple(notes[name][1]),
            pattern,
            more.get(name + _MORE),
        )
        for name, pattern in begin.items()
    )


def _patterns(text: str, *starts: str) -> Sequence[dict[str, str]]:
    return stored_patterns(text, *starts) or rule_patterns(text, *starts)


@cache
def family_names() -> tuple[str, ...]:
    """Return the names of the families, in their order."""
    return tuple(family.name for family in families())


def family_type() -> pl.Enum:
    """Return the type of a family's name."""
    return pl.Enum(family_names())


def foreign_schema() -> dict[str, pl.DataType]:
    """Return the schema of the frame that holds the foreign lines."""
    return {**RECORD_SCHEMA, "family": family_type(), "message": pl.String()}


#: What its columns mean.
FOREIGN_DOCS = {
    "family": "whose line it is, by its form; docs/families.md lists them",
    "message": "the line without blanks at its end",
}


def family_of(text: str) -> str | None:
    """Return the family of one line, seen alone: the reference reader."""
    return next((family.name for family in families() if re.match(family.pattern, text)), None)


def read_families(records: pl.DataFrame, free: pl.Series) -> tuple[pl.Series, pl.DataFrame]:
    """Return the rows of the foreign records among the `free` ones, and their frame."""
    rows = free.arg_true()
    messages = records["message"].gather(rows)
    codes = _begun(messages)
    # of a line that a logger has carried, the rest may say nothing, and the whole whose it is
    whole = records["text"].gather(rows)
    more = (codes.is_null() & (whole != messages)).arg_true()
    codes = codes.scatter(more, _begun(whole.gather(more)))
    codes = _gone_on(rows, records["file"].gather(rows), messages, codes)
    named = rows.filter(codes.is_not_null())
    family = codes.drop_nulls().cat.to(family_type()).alias("family")
    columns = [records[name].gather(named) for name in (*RECORD_SCHEMA, "message")]
    return named, pl.DataFrame([*columns, family]).select(foreign_schema().keys())


def _begun(messages: pl.Series) -> pl.Series:
    """Return the place of each message's family in the list of families, by how the message begins."""
    codes = pl.Series("code", [None], dtype=pl.UInt8).new_from_index(0, len(messages))
    left, index = messages, pl.int_range(len(messages), dtype=pl.UInt32, eager=True)
    for code in beginnings().candidates(messages):
        taken = left.str.contains(families()[code].pattern)
        if taken.any():
            codes = codes.scatter(index.filter(taken), code)
            left, index = left.filter(~taken), index.filter(~taken)
        if left.is_empty():
            break
    return codes


@cache
def beginnings() -> Beginnings:
    """Return how lines of the families begin."""
    return Beginnings([family.pattern for family in families()])


def _gone_on(rows: pl.Series, files: pl.Series, messages: pl.Series, codes: pl.Series) -> pl.Series:
    """Return the codes, with those of lines that count below a line of their family only."""
    seen = codes.unique().drop_nulls().sort().to_list()
    for code in seen:
        family = families()[code]
        if family.more is None:
            continue
        head = (codes == code).fill_null(False)
        nameless = codes.is_null().arg_true()
        index = nameless.filter(messages.gather(nameless).str.contains(family.more))
        index = pl.concat([head.arg_true(), index]).sort()
        chain = pl.DataFrame({"index": index, "head": head.gather(index)})
        near = (rows.gather(index).diff() <= _NEAR) & (files.gather(index).diff() == 0)
        below = pl.col("head").cum_max().over(near.fill_null(False).not_().cum_sum())
        codes = codes.scatter(chain.filter(~pl.col("head") & below)["index"], code)
    return codes
