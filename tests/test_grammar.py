"""The grammars themselves: documentation, samples, and what the compiler refuses."""

from __future__ import annotations

import re

import polars as pl
import pytest

from sglogparse import GrammarError
from sglogparse._compiler import Bag, Fixed, compile_grammar, compiled_plan, definitions_of
from sglogparse._events import event_schema, read_events
from sglogparse._grammar import LINE_GRAMMARS, Event, docs, grammar_dir, grammar_text, reference, samples
from sglogparse._records import RANKS, RECORD_SCHEMA, read_records

TEXT = grammar_text(*LINE_GRAMMARS)
PLAN = compiled_plan()
SAMPLES = [(event.name, sample.text) for event in PLAN.events for sample in samples()[event.name]]
RELEASES = re.compile(r"(?:\d+\.\d+\.\d+(?:\.\.\d+\.\d+\.\d+)?|any|patched)")


def _records(*lines: str) -> pl.DataFrame:
    frame = pl.DataFrame({"text": lines}).select(
        pl.lit(0, dtype=pl.UInt16).alias("file"),
        pl.int_range(1, pl.len() + 1, dtype=pl.UInt32).alias("line"),
        "text",
    )
    return read_records(frame, PLAN)[0]


def _read(message: str) -> Event | None:
    kinds, frames = read_events(_records(message), PLAN)
    if kinds[0] is None:
        return None
    row = frames[kinds[0]].row(0, named=True)
    return Event(
        kinds[0], {name: row[name] for name in row if name not in RECORD_SCHEMA and row[name] is not None}
    )


# ------------------------------------------------------------------ documentation


def test_every_event_is_documented_and_has_samples():
    for event in PLAN.events:
        assert event.doc.endswith("."), event.name
        assert samples()[event.name], event.name


def test_every_field_is_documented():
    fields = {name for event in PLAN.events for name in event.fields} | {*RANKS, "level"}
    assert sorted(name for name in fields if not docs().get(name)) == []


def test_every_terminal_that_a_rule_uses_is_documented():
    rules = {name: rule for name, rule in definitions_of(TEXT).items() if not rule.is_term}
    used = {
        str(symbol.name)
        for rule in rules.values()
        for symbol in rule.tree.scan_values(lambda value: getattr(value, "name", "").isupper())
    }
    assert len(used) > 100
    assert sorted(name for name in used if not docs().get(name.lower())) == []


def test_no_documentation_stands_above_nothing():
    names = {name.lower() for name in definitions_of(TEXT)}
    assert set(docs()) <= names
    wrappers = {one.name for one in PLAN.wrappers}
    assert set(samples()) == {event.name for event in PLAN.events} | wrappers | {"header"}


def test_names_of_rules_and_fields_do_not_collide():
    names = [name.lower() for name in definitions_of(TEXT)]
    assert len(names) == len(set(names))


def test_releases_of_samples_have_the_same_form():
    for name in ("header", *(event.name for event in PLAN.events)):
        for sample in samples()[name]:
            assert RELEASES.fullmatch(sample.releases), sample


def test_event_lists_every_event_rule_once_in_the_order_of_trial():
    names = [event.name for event in PLAN.events]
    assert len(names) == len(set(names)) > 100
    # what an %extend adds comes before what it extends
    assert names.index("dp_launch") < names.index("prefill_chunk_model") < names.index("server_args")
    assert names[-1] == "graceful_exit"
    assert set(names) == set(samples()) - {"header", *(one.name for one in PLAN.wrappers)}


def test_no_event_has_a_field_that_hides_a_column_of_the_record():
    for event in PLAN.events:
        assert not set(event.fields) & set(RECORD_SCHEMA), event.name
        assert list(event_schema(event)) == [*RECORD_SCHEMA, *event.fields]


def test_a_field_has_one_type_in_all_events():
    types: dict[str, set[str]] = {}
    for event in PLAN.events:
        for name, kind in event.fields.items():
            types.setdefault(name, set()).add(kind)
    assert {name: kinds for name, kinds in types.items() if len(kinds) > 1} == {}


def test_the_grammars_stand_beside_the_package_or_in_it():
    assert (grammar_dir() / "events.lark").is_file()


# ------------------------------------------------------------------ samples


@pytest.mark.parametrize(
    ("kind", "text"), SAMPLES, ids=[f"{kind}-{i}" for i, (kind, _) in enumerate(SAMPLES)]
)
def test_both_readers_read_a_sample_alike(kind, text):
    event = _read(text)
    assert event == reference().event(text)
    assert event is not None
    assert event.kind == kind


@pytest.mark.parametrize("number", range(len(samples()["header"])))
def test_both_readers_read_the_header_of_a_sample_alike(number):
    text = samples()["header"][number].text
    row = _records(text).row(0, named=True)
    assert row["message"] == "message"
    fields = reference().fields("header", text.removesuffix("message"))
    assert fields
    known = {*RANKS, "level"}
    assert {name: row[name] for name in known if row[name] is not None} == {
        name: value for name, value in fields.items() if name in known
    }


def test_the_sample_of_the_patched_print_has_the_values_of_the_case():
    assert _read(samples()["profile_max_num_token"][0].text) == Event(
        "profile_max_num_token",
        {
            "avail": 21.708,
            "total": 94.037,
            "fraction": 0.55,
            "reserved": 42.316,
            "rest": -20.608,
            "cell_size": 70272,
            "max_tokens": -314887,
        },
    )


def test_every_wording_has_a_sample():
    untried = []
    for event in PLAN.events:
        texts = [sample.text for sample in samples()[event.name]]
        for wording in event.wordings:
            pattern = wording.pattern if isinstance(wording, Fixed) else wording.head
            if not any(re.match(pattern, text) for text in texts):
                untried.append((event.name, wording.prefixes))
    assert untried == []


# ------------------------------------------------------------------ the compiler

TINY = """
//: An event.
say: {rule}
item: "a: " INT_A | "b: " FLOAT_B | EXTRA
word: "w"
event: say
header: "[" tag "] "
tag: "T" INT_T
INT_A: /[0-9]+/
FLOAT_B: /[0-9.]+/
INT_T: /[0-9]/
EXTRA.-1: /[^,]+/
"""


def _compile(rule: str, more: str = ""):
    return compile_grammar(TINY.replace("{rule}", rule) + more)


def test_a_wording_of_fixed_order_becomes_one_anchored_pattern():
    (event,) = _compile('"say " INT_A [" and " FLOAT_B] "."?').events
    (wording,) = event.wordings
    assert wording == Fixed(
        ("say ",),
        (),
        r"^say (?P<int_a>[0-9]+)(?: and (?P<float_b>[0-9.]+))?(?:\.)?$",
        {"int_a": "int_a", "float_b": "float_b"},
    )
    assert event.fields == {"int_a": "int", "float_b": "float"}
    assert event.doc == "An event."


def test_a_bag_reads_the_order_of_its_items_off_a_line():
    (event,) = _compile('"say " item (", " item)* "."?').events
    (bag,) = event.wordings
    assert isinstance(bag, Bag)
    pattern, groups = bag.shape("say b: 1.5, x: y, a: 2")
    assert pattern == r"^say b: (?P<float_b>[0-9.]+), (?P<extra__3>x: [^,]+), a: (?P<int_a>[0-9]+)(?:\.)?$"
    assert groups == {"float_b": "float_b", "extra__3": "extra", "int_a": "int_a"}
    assert bag.shape("say a: 1, a: 2") is None
    assert bag.shape("say a: x") is None
    assert bag.shape("said a: 1") is None


def test_a_longer_literal_of_another_wording_takes_the_line():
    (event,) = _compile('"say " item (", " item)* | "say more " INT_A').events
    assert event.wordings[0].rivals == ("say more ",)
    assert event.wordings[1].rivals == ()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ('"x" loop\nloop: "y" loop | "z"', "grammar rule loop is recursive and cannot be compiled"),
        ("INT_A", "grammar rule say: a wording must start with a literal"),
        ('["x"] "y"', "grammar rule say: a wording must start with a literal"),
        ('"x" | INT_A "x"', "grammar rule say: a wording must start with a literal"),
        ('"x" (INT_A)+', "grammar rule say: a repeat of fields cannot be compiled here"),
        ('"x" (", " item)*', "grammar rule say: a repeat must have the form `item (separator item)*`"),
        ('"x" word (", " item)*', "grammar rule say: a repeat must have the form `item (separator item)*`"),
        ('"x" /[0-9]+/', "grammar rule say: a pattern must be a named terminal"),
        (
            '"x" JOINED\nJOINED: "a" "b"',
            "grammar terminal JOINED must be one /pattern/ without flags, or another terminal",
        ),
        (
            '"x" FLAGGED\nFLAGGED: /a/i',
            "grammar terminal FLAGGED must be one /pattern/ without flags, or another terminal",
        ),
    ],
)
def test_a_rule_that_cannot_be_compiled_is_refused(rule, message):
    with pytest.raises(GrammarError) as caught:
        _compile(rule)
    assert str(caught.value) == message


def test_a_field_in_two_alternatives_is_one_column():
    (event,) = _compile('"say " [" low " INT_A | " high " INT_A]').events
    assert event.fields == {"int_a": "int"}
    assert event.wordings[0].groups == {"int_a": "int_a", "int_a__1": "int_a"}


def test_a_terminal_takes_its_type_from_the_one_it_refers_to():
    (event,) = _compile(
        '"say " COUNT " " SHARE " " INTERIM', "COUNT: INT_A\nSHARE: FLOAT_B\nINTERIM: /[a-z]+/"
    ).events
    assert event.fields == {"count": "int", "share": "float", "interim": "str"}
