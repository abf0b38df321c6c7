"""What is stored of the compiler's work is what the compiler makes, and is not used for other grammars."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sglogparse import _stored
from sglogparse._compiler import compile_grammar, compiled_plan, openings
from sglogparse._families import beginnings, families
from sglogparse._grammar import LINE_GRAMMARS, grammar_text

TEXT = grammar_text(*LINE_GRAMMARS)


def test_the_stored_plan_is_the_compiled_one():
    stored, made = _stored.stored_plan(TEXT), compile_grammar(TEXT)
    assert stored is not None
    for field in dataclasses.fields(made):
        if field.name != "events":
            assert getattr(stored, field.name) == getattr(made, field.name), field.name
    assert [dataclasses.asdict(one) for one in stored.events] == [
        dataclasses.asdict(one) for one in made.events
    ]
    assert [type(w) for e in stored.events for w in e.wordings] == [
        type(w) for e in made.events for w in e.wordings
    ]


def test_a_changed_grammar_is_compiled_anew():
    assert _stored.stored_plan(f"{TEXT}\n") is None
    assert _stored.stored_patterns("event: a", "family") is None


def test_after_a_change_of_the_compiler_nothing_stored_is_used(monkeypatch, tmp_path):
    other = tmp_path / "_compiler.py"
    other.write_text("# another compiler\n")
    monkeypatch.setattr(_stored, "_COMPILER", other)
    _stored._stored.cache_clear()
    assert _stored.stored_plan(TEXT) is None
    assert _stored.stored_patterns(grammar_text("families.lark"), "family") is None
    _stored._stored.cache_clear()


def test_tables_of_another_release_of_lark_are_not_read(monkeypatch):
    import lark

    text = "ServerArgs(tp_size=8)"
    before = _stored.parser("server_args.lark").parse(text)
    monkeypatch.setattr(lark, "__version__", "0.0.1")
    assert _stored.parser("server_args.lark").parse(text) == before


def test_without_the_file_everything_is_compiled(monkeypatch, tmp_path):
    monkeypatch.setattr(_stored, "PLAN_FILE", tmp_path / "none.json")
    _stored._stored.cache_clear()
    assert _stored.stored_plan(TEXT) is None
    assert _stored.parser("server_args.lark").parse("{'a': 1}")
    _stored._stored.cache_clear()
    assert compiled_plan().events


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("^ab", (("a", "b"),)),
        ("^abcd", (("a", "b", "c"),)),
        ("^(?:[ ]*ab|[c-e]+x|)$", (("",), (" ", " ", " "), (" ", " ", "a"), (" ", "a", "b"), ("a", "b", ""),
            ("cde", "cde", "cde"), ("cde", "cde", "x"), ("cde", "x", ""))),
        ("^a{5}b", (("a", "a", "a"),)),
        ("^a{1,2}b", (("a", "a", "b"), ("a", "b"))),
        ("^a?[^b]c", None),
        ("^ab?.c", (("a",), ("a", "b"))),
        (r"^\[[0-9]", (("[", "0123456789"),)),
        (r"^\w", None),
        ("^(?:|a)", None),
        ("^(?i:ab)c", None),
    ],
)  # fmt: skip
def test_openings(pattern, told):
    assert openings(pattern) == told


@given(st.data())
def test_what_a_pattern_takes_begins_as_one_of_its_openings(data):
    family = data.draw(st.sampled_from([one for one in families() if openings(one.pattern) is not None]))
    text = data.draw(st.from_regex(re.compile(family.pattern, re.ASCII)))
    assume("\n" not in text)  # Python's $ stands before one, too
    assert any(
        all(character in place for place, character in zip(opening, text, strict=False))
        for opening in openings(family.pattern)
    )
    assert families().index(family) in beginnings().of(text[:3])


def test_samples_are_read_by_the_families_that_their_beginnings_allow():
    told = 0
    for place, family in enumerate(families()):
        for sample in family.samples:
            if re.match(family.pattern, sample.text):
                assert place in beginnings().of(sample.text[:3]), sample
                told += 1
    assert told > 100
    # most families are left out by the first characters of a line
    assert len(beginnings().of("End")) < len(families()) / 2
    assert "gloo" not in {families()[place].name for place in beginnings().of("[rank")}
