"""The law of the two readers: equal fields for a line, or both refuse it."""

from __future__ import annotations

import datetime as dt
import math
import re
from functools import cache
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglogparse._compiler import (
    _alternatives,
    _children,
    _is_star,
    _literal_text,
    _symbol,
    compiled_plan,
    definitions_of,
)
from sglogparse._events import read_events
from sglogparse._grammar import LINE_GRAMMARS, grammar_text, reference
from sglogparse._records import RANKS, RECORD_SCHEMA, read_records
from sglogparse._source import read_sources

FIXTURES = sorted((Path(__file__).parent / "fixtures").rglob("*.log"))
EVENTS = [event.name for event in compiled_plan().events]
#: What a physical line can hold.
CHARACTERS = st.characters(codec="utf-8", exclude_characters="\r\n")
#: Rules as Lark has them before it expands the EBNF: the tests draw lines from the grammar itself.
RULES = definitions_of(grammar_text(*LINE_GRAMMARS))


# ------------------------------------------------------------------ lines drawn from the grammar


@cache
def _terminal(name: str) -> st.SearchStrategy[str]:
    pattern = next(str(t) for t in RULES[name].tree.scan_values(lambda v: str(v).startswith("/")))
    return st.from_regex(pattern[1:-1].replace("\\/", "/"), fullmatch=True, alphabet=CHARACTERS)


def _drawn(tree) -> st.SearchStrategy[str]:
    """Return a strategy for the texts of a tree of the grammar."""
    kind = str(tree.data)
    if kind in ("expansions", "alias"):
        return st.one_of([_drawn(child) for child in _alternatives(tree)])
    if kind == "maybe":
        return st.one_of(st.just(""), *[_drawn(child) for child in _alternatives(tree)])
    if kind == "expansion":
        return _sequence(_children(tree))
    if kind == "expr":
        inner, operator = _drawn(next(_alternatives(tree))), str(tree.children[1])
        if operator == "?":
            return st.one_of(st.just(""), inner)
        return st.lists(inner, max_size=3).map("".join)
    literal = _literal_text(tree)
    if literal is not None:
        return st.just(literal)
    name = _symbol(tree)
    return _terminal(name) if RULES[name].is_term else _drawn(RULES[name].tree)


def _sequence(children) -> st.SearchStrategy[str]:
    star = next((index for index, child in enumerate(children) if _is_star(child)), None)
    if star is None or star == 0:
        return st.tuples(*map(_drawn, children)).map("".join)
    separator, item = _children(_children(children[star])[0])
    items = st.lists(
        st.sampled_from(list(_alternatives(RULES[_symbol(item)].tree))), min_size=1, max_size=6, unique=True
    )
    bag = items.flatmap(lambda chosen: st.tuples(*map(_drawn, chosen))).map(_literal_text(separator).join)
    return st.tuples(_sequence(children[: star - 1]), bag, _sequence(children[star + 1 :])).map("".join)


# ------------------------------------------------------------------ and damaged


ODD = st.sampled_from(
    [*' ,.:=#-[]()"%/0159eE+', "nan", ", ", ": ", "é", "\t", " GB", "None", "\u2028", "\x1f"]
)
UNKNOWN = st.sampled_from(
    [
        "foo: 1",
        "#new-key: 3",
        "bar",
        "x graph: True",
        "xpu graph: Maybe",
        "a: b: c",
        "step=12",
        "token usag",
        " ",
        "#token:",
    ]
)


@st.composite
def _damaged(draw, line: str) -> str:
    """Draw a line with one thing done to it that happens to logs, or to their format."""
    at = draw(st.integers(0, len(line)))
    kind = draw(st.sampled_from(["drop", "insert", "replace", "cut", "swap", "twice", "unknown"]))
    if kind == "drop":
        return line[:at] + line[at + 1 :]
    if kind == "insert":
        return line[:at] + draw(ODD) + line[at:]
    if kind == "replace":
        return line[:at] + draw(ODD) + line[at + 1 :]
    if kind == "cut":
        return line[:at]
    items = line.split(", ")
    here, there = draw(st.integers(0, len(items) - 1)), draw(st.integers(0, len(items) - 1))
    if kind == "swap":
        items[here], items[there] = items[there], items[here]
    elif kind == "twice":
        items.insert(there, items[here])
    else:
        items.insert(here, draw(UNKNOWN))
    return ", ".join(items)


def _lines(rule: str) -> st.SearchStrategy[list[str]]:
    drawn = _drawn(RULES[rule].tree)
    return st.lists(st.one_of(drawn, drawn.flatmap(_damaged)), min_size=1, max_size=12)


# ------------------------------------------------------------------ what both readers say


def _comparable(fields: dict) -> dict:
    return {
        name: "nan" if isinstance(value, float) and math.isnan(value) else value
        for name, value in fields.items()
    }


def _frame(lines: list[str]) -> pl.DataFrame:
    return pl.DataFrame({"text": lines}, schema={"text": pl.String}).select(
        pl.lit(0, dtype=pl.UInt16).alias("file"),
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("line"),
        "text",
    )


def _compiled(messages: list[str]) -> list[tuple[str, dict] | None]:
    plan = compiled_plan()
    records = read_records(_frame(messages), plan)[0].with_columns(
        message=pl.col("text").str.strip_chars_end()
    )
    kinds, frames = read_events(records, plan)
    found: list[tuple[str, dict] | None] = [None] * len(messages)
    for kind, frame in frames.found.items():
        for row in frame.iter_rows(named=True):
            assert found[row["line"]] is None
            assert kinds[row["line"]] == kind
            fields = {name: v for name, v in row.items() if v is not None and name not in RECORD_SCHEMA}
            found[row["line"]] = (kind, _comparable(fields))
    assert [one is None for one in found] == kinds.is_null().to_list()
    return found


def _reference(messages: list[str]) -> list[tuple[str, dict] | None]:
    events = [reference().event(message) for message in messages]
    return [(event.kind, _comparable(event.fields)) if event else None for event in events]


def _stripped(lines: list[str]) -> list[str]:
    return pl.Series(lines, dtype=pl.String).str.strip_chars_end().to_list()


@pytest.mark.parametrize("rule", EVENTS)
def test_both_readers_agree_on_lines_of_the_grammar(rule):
    @given(_lines(rule))
    def check(lines):
        messages = _stripped(lines)
        assert _compiled(messages) == _reference(messages)

    check()


def test_both_readers_agree_when_lines_of_all_rules_stand_together():
    @given(st.lists(st.sampled_from(EVENTS).flatmap(_lines), min_size=2, max_size=4))
    def check(parts):
        messages = _stripped([line for lines in parts for line in lines])
        assert _compiled(messages) == _reference(messages)

    check()


# ------------------------------------------------------------------ headers


def _header_of(text: str) -> tuple[dict, str]:
    """Return the fields of a line's longest header and the message after it, as the reference reads them."""
    shown = text + " " if text.startswith("[") and text.endswith("]") else text
    for end in range(len(shown), 0, -1):
        if shown[:end].endswith(("] ", ": ")):
            fields = reference().fields("header", shown[:end])
            if fields is not None:
                return fields, shown[end:]
    return {}, text


def _times(stamp: str | None) -> tuple[dt.datetime | None, dt.time | None]:
    if stamp is None:
        return None, None
    stamp = stamp.replace(",", ".")
    form = "%H:%M:%S" + (".%f" if "." in stamp else "")
    dated = "-" in stamp
    try:
        moment = dt.datetime.strptime(stamp, ("%Y-%m-%d " if dated else "") + form)
    except ValueError:
        return None, None
    return (moment, None) if dated else (None, moment.time())


def _odd_time(text: str) -> bool:
    """Tell whether a text has a leap second or the year 0, which Python's datetime does not know."""
    return bool(re.search(r":6[01]\b|\b0000-", text))


STAMPS = st.one_of(
    st.datetimes().map(lambda moment: f"{moment:%Y-%m-%d %H:%M:%S}"),
    st.datetimes().map(lambda moment: f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03}"),
    st.times().map(lambda moment: f"{moment:%H:%M:%S}"),
)
HEADERS = st.one_of(
    _drawn(RULES["header"].tree),
    st.tuples(STAMPS, _drawn(RULES["tags"].tree)).map(lambda parts: f"[{parts[0]} {parts[1]}] "),
    STAMPS.map(lambda stamp: f"[{stamp}] "),
)
RECORDS = st.tuples(HEADERS, st.one_of(st.just(""), st.text(CHARACTERS, max_size=20))).map("".join)


def test_both_readers_agree_on_headers():
    drawn = st.one_of(HEADERS, RECORDS, RECORDS.flatmap(_damaged)).filter(lambda text: not _odd_time(text))

    @given(st.lists(drawn, min_size=1, max_size=12))
    def check(lines):
        records = read_records(_frame(lines), compiled_plan())[0]
        for text, row in zip(lines, records.iter_rows(named=True), strict=True):
            fields, message = _header_of(text)
            device = fields.get("gpu_id", fields.get("world_rank"))
            expected = {name: fields.get(name) for name in RANKS} | {
                "gpu_id": device,
                "level": fields.get("level"),
            }
            assert {name: row[name] for name in expected} == expected
            assert (row["time"], row["clock"]) == _times(fields.get("stamp", fields.get("clock")))
            assert row["headed"] == bool(fields)
            assert (row["rank"] is None) == (not fields.keys() & {*RANKS, "world_rank"})
            assert row["message"] == _stripped([message])[0]

    check()


# ------------------------------------------------------------------ whole files


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_both_readers_agree_on_every_line_of_a_fixture(path):
    _, lines = read_sources([path])
    messages = read_records(lines, compiled_plan())[0]["message"].to_list()
    assert _compiled(messages) == _reference(messages)
