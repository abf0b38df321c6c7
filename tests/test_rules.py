"""The rules on their fixtures, the laws that every rule keeps, and the whole diagnosis of one real case.

    fixtures/<rule>/bad*.log    the rule fires, exactly as the file beside it (.toml) says
    fixtures/<rule>/good*.log   the rule is silent, though the log holds its look-alikes

The expectations stand beside the logs, because marks inside would be lines of the log.
"""

import inspect
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sglogparse
from sglogparse import rules
from sglogparse._grammar import samples
from sglogparse._split import read_launches
from sglogparse.rules import RETIRED, RULES

FIXTURES = Path(__file__).parent / "fixtures"
LOGS = sorted(path for rule in RULES for path in (FIXTURES / rule.check.__name__).glob("*.log"))
BY_FUNCTION = {rule.check.__name__: rule for rule in RULES}
HEADINGS = ["What it finds", "Why it matters", "Evidence", "Does not match", "What to do"]


def _name(path):
    return f"{path.parent.name}/{path.stem}"


@cache
def _log(path):
    return sglogparse.read_log(path)


@cache
def _diagnosis(path):
    return _log(path).diagnose()


def _expected(path):
    return tomllib.loads(path.with_suffix(".toml").read_text())


def _found(path, rule):
    return [finding for launch in read_launches(_log(path)) for finding in rule(launch)]


def _said(finding, expected):
    """Return a finding in the form of the expectation, which names what is worth naming."""
    root = finding.root.line if finding.root else None
    full = {
        "severity": finding.severity.value,
        "cause": finding.cause,
        "lines": [one.line for one in finding.evidence],
        "root": root,
        "ranks": list(finding.ranks),
        "message": [text for text in expected.get("message", []) if text in finding.message],
        "fix": [text for text in expected.get("fix", []) if text in (finding.fix or "")],
    }
    return {key: value for key, value in full.items() if key in expected or value not in (None, [])}


# ------------------------------------------------------------------ fixtures


@pytest.mark.parametrize("path", LOGS, ids=_name)
def test_a_rule_fires_where_its_fixture_says(path):
    expected = _expected(path).get("finding", [])
    assert bool(expected) == path.stem.startswith("bad")
    found = _found(path, BY_FUNCTION[path.parent.name])
    assert len(found) == len(expected)
    assert [_said(*pair) for pair in zip(found, expected, strict=True)] == expected


@pytest.mark.parametrize("path", LOGS, ids=_name)
def test_the_verdict_of_a_fixture(path):
    log, chief = _log(path), _diagnosis(path).chief
    said = {"unparsed": log.unparsed.height, "outcome": chief.outcome.value, "cause": chief.cause}
    assert said == {key: value for key, value in _expected(path).items() if key != "finding"}


@pytest.mark.parametrize("path", LOGS, ids=_name)
def test_evidence_is_in_the_log(path):
    lines = path.read_text().split("\n")
    ranks = _log(path).lines["rank"]
    for finding in _diagnosis(path).findings:
        assert finding.evidence
        shown = [*finding.evidence, *([finding.root] if finding.root else [])]
        assert [(one.text, one.rank) for one in shown] == [
            (lines[one.line - 1], ranks[one.line - 1]) for one in shown
        ]
        assert list(finding.evidence) == sorted(set(finding.evidence))


@pytest.mark.parametrize("path", LOGS, ids=_name)
def test_a_rule_is_pure(path):
    launches = read_launches(_log(path))
    again = read_launches(sglogparse.read_log(path))
    first = {rule.code: [list(rule(launch)) for launch in launches] for rule in RULES}
    assert first == {rule.code: [list(rule(launch)) for launch in launches] for rule in reversed(RULES)}
    assert first == {rule.code: [list(rule(launch)) for launch in again] for rule in reversed(RULES)}


# ------------------------------------------------------------------ laws


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_one_name_for_file_function_and_fixtures(rule):
    name = rule.check.__name__
    assert inspect.getmodule(rule.check).__name__ == f"sglogparse.rules.{name}"
    stems = {path.stem.partition("_")[0] for path in (FIXTURES / name).glob("*.log")}
    assert stems == {"bad", "good"}
    assert {path.stem for path in (FIXTURES / name).glob("*.toml")} == {
        path.stem for path in (FIXTURES / name).glob("*.log")
    }


def test_every_rule_is_registered():
    modules = {path.stem for path in Path(rules.__file__).parent.glob("*.py")} - {"__init__"}
    assert modules == set(BY_FUNCTION)
    assert {path.name for path in FIXTURES.iterdir() if path.is_dir()} >= modules


def test_codes_are_never_used_twice():
    codes = [rule.code for rule in RULES]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch("[A-Z][0-9]{3}", code) for code in [*codes, *RETIRED])
    assert not set(codes) & set(RETIRED)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_documents_itself(rule):
    assert re.fullmatch(r"Report [^\n]+\.", rule.doc.split("\n")[0])
    assert re.findall(r"^([A-Z][a-z]+(?: [a-z]+)*):$", rule.doc, re.MULTILINE) == HEADINGS
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", rule.since)


@pytest.mark.parametrize("path", LOGS, ids=_name)
def test_findings_carry_their_rule_and_real_ranks(path):
    known = set(_log(path).lines["rank"].drop_nulls())
    for finding in _diagnosis(path).findings:
        assert finding.name == BY_FUNCTION[finding.name.replace("-", "_")].name
        assert BY_FUNCTION[finding.name.replace("-", "_")].code == finding.code
        # one entry a rank; silent ranks are the only ones that do not speak
        assert finding.code == "E001" or set(finding.ranks) <= known


#: A line of each wording of each event, and what stands between.
LINES = [sample.text for event in samples().values() for sample in event] + [
    "Traceback (most recent call last):",
    '  File "/opt/sglang/srt/managers/scheduler.py", line 5, in event_loop_normal',
    "KeyError: 'x'",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    "Exception: Capture cuda graph failed: ",
    "Fatal Python error: Aborted",
    "",
]
HEADERS = [
    "",
    "[2025-01-01 00:00:00] ",
    *(f"[2025-01-01 00:00:0{n} DP{n} TP{n}] " for n in range(3)),
    "[TP1] ",
]


@given(st.lists(st.tuples(st.sampled_from(HEADERS), st.sampled_from(LINES)).map("".join), max_size=25))
def test_no_log_makes_a_rule_fail(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("log") / "server.log"
    path.write_text("\n".join([*lines, ""]))
    for launch in read_launches(sglogparse.read_log(path)):
        for rule in RULES:
            for finding in rule(launch):
                assert {one.text for one in finding.evidence} <= set(lines)
                assert "None" not in finding.message + (finding.fix or "")


# ------------------------------------------------------------------ one real case


FIX = (
    "set --mem-fraction-static 0.781 (room for a prefill of 16384 tokens); any token needs above 0.770 "
    "(0.55 given: rest = 21.708 - 94.037 x 0.45 = -20.608 GiB); "
    "each +0.01 adds 0.94 GiB = 14368 tokens"
)
#: Without the arguments nothing tells how large a prefill can be.
FIX_OF_A_GREP = FIX.replace(
    "set --mem-fraction-static 0.781 (room for a prefill of 16384 tokens); any token needs above",
    "needs --mem-fraction-static above",
)
NEGATIVE = "The KV token budget is negative: rest = 21.708 - 94.037 x 0.45 = -20.608 GiB, max_tokens=-314887."
PATCHED = (
    "3 lines that no release prints on TP0, TP6-TP7: patched source. The printed numbers agree with the "
    "stock formula within rounding: the print did not change the outcome."
)


def _case(name):
    chief = sglogparse.read_log(FIXTURES / name).diagnose().chief
    return chief, {finding.code: finding for finding in chief.findings}


def test_the_healthy_start():
    chief, found = _case("baseline_clean.log")
    assert chief.summary == "ready: the server serves and the log shows no fault"
    assert (chief.outcome.value, chief.cause, chief.root, chief.fix, found) == (
        "ready",
        "none",
        None,
        None,
        {},
    )


def test_the_negative_budget():
    chief, found = _case("baseline_debug_nocar.log")
    assert chief.summary == f"crashed, during KV cache set-up; cause: KV budget negative; {FIX}"
    assert (chief.outcome.value, chief.cause, chief.fix) == ("crashed", "memory.kv_budget", FIX)
    assert (chief.root.line, chief.root.rank) == (49, "TP0")
    assert list(found) == ["M001", "M004", "P001", "E002"]
    assert found["M001"].message == NEGATIVE
    assert found["M001"].fix == found["M004"].fix == found["P001"].fix == FIX
    assert found["M001"].ranks == ("TP0", "TP6", "TP7")
    assert found["M004"].ranks == found["P001"].ranks == ("TP0", "TP2", "TP6", "TP7")
    assert found["M004"].fix == FIX
    assert "RuntimeError: Not enough memory." in found["P001"].message
    assert found["E002"].message == PATCHED


def test_the_negative_budget_as_a_grep_leaves_it():
    chief, found = _case("baseline_debug_nocar_grep.log")
    assert chief.summary == f"crashed, during KV cache set-up; cause: KV budget negative; {FIX_OF_A_GREP}"
    assert (chief.outcome.value, chief.cause) == ("crashed", "memory.kv_budget")
    assert (chief.root.line, chief.root.rank) == (1, "TP0")
    assert list(found) == ["M001", "E002"]
    assert (found["M001"].message, found["E002"].message) == (NEGATIVE, PATCHED)


def test_the_negative_budget_that_allocated():
    chief, found = _case("negative_budget_with_kv.log")
    assert list(found) == ["M002", "E002"]
    assert found["M002"].message == (
        "TP0 prints a budget of -314887 tokens (line 49), and yet a KV cache of 10.42 GiB was allocated "
        "(line 52): both cannot be true of one start. By its own numbers the allocation implies "
        "mem_fraction_static = 0.880, not 0.55."
    )
    assert found["M002"].ranks == ("TP0", "TP6", "TP7")
    assert [one.line for one in found["M002"].evidence] == [49, 50, 51, 52, 58, 59, 99]
    assert chief.headline == f"ready, but {found['M002'].message}"
    assert chief.summary == (
        f"ready, but {found['M002'].message[:-1]}; find out which start each of these lines is from; trust "
        "the allocation, not the profile"
    )
    assert (chief.outcome.value, chief.cause, chief.root) == ("ready", "none", None)
    assert found["E002"].message == PATCHED
