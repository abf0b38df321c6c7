"""What is stored of the compiler's work is what the compiler makes, and is not used for other grammars."""

from __future__ import annotations

import dataclasses
import re

import pytest

from sglogparse import _stored
from sglogparse._compiler import compile_grammar, compiled_plan, first_characters
from sglogparse._families import families
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
    ("pattern", "first"),
    [
        ("^abc", "a"), ("^(?:a|bc)d", "ab"), ("^a?b", "ab"), ("^[a-c]*x", "abcx"), ("^(?:a|)b", "ab"),
        ("^(?P<n>q+)r", "q"), ("^[^a]b", None), ("^.b", None), ("^$", None), ("^a*", None), ("^(?:x{2,3}|y)", "xy"),
        (r"^\[[0-9]", "["), (r"^\w", None),
    ],
)  # fmt: skip
def test_first_characters(pattern, first):
    assert first_characters(pattern) == first


def test_the_samples_of_a_family_begin_with_its_first_characters():
    told = 0
    for family in families():
        for sample in family.samples:
            if family.first is not None and re.match(family.pattern, sample.text):
                assert sample.text[0] in family.first, sample
                told += 1
    assert told > 100
