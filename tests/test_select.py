"""Selection: which rules count, and what that means for the verdict and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from reports import diagnosis, finding, launch, line
from sglogparse._cli import main
from sglogparse._config import Settings
from sglogparse._errors import ConfigError
from sglogparse._report import Outcome, Severity
from sglogparse._select import Selection, selected, selection_of
from sglogparse.rules import RULES

FIXTURES = Path(__file__).parent / "fixtures"
CODES = [rule.code for rule in RULES]


@pytest.mark.parametrize(
    ("select", "ignore", "held"),
    [
        ((), (), {"M001", "M002", "P001", "E002"}),
        (("ALL",), (), {"M001", "M002", "P001", "E002"}),
        (("M",), (), {"M001", "M002"}),
        (("M00", "E"), ("M002",), {"M001", "E002"}),
        ((), ("M",), {"P001", "E002"}),
        (("M001",), ("M",), {"M001"}),
        (("M",), ("M",), set()),
        (("ALL", "P001"), ("ALL",), {"P001"}),
        ((), ("ALL",), set()),
    ],
)
def test_the_longest_beginning_decides(select, ignore, held):
    chosen = Selection(select, ignore)
    assert {code for code in ("M001", "M002", "P001", "E002") if chosen.holds(code)} == held


def test_extend_select_adds_to_what_is_selected():
    assert selection_of(Settings(select=("M",), extend_select=("P001",)), CODES) == Selection(
        ("M", "P001"), ()
    )
    assert selection_of(Settings(extend_select=("P001",)), CODES) == Selection(("ALL", "P001"), ())
    assert selection_of(Settings(extend_select=("P001",), ignore=("P",)), CODES).holds("P001")


@pytest.mark.parametrize("name", ["select", "extend_select", "ignore"])
def test_a_code_that_no_rule_has_is_an_error(name):
    with pytest.raises(ConfigError, match=r"no rule's code begins with 'M09'; did you mean M009\?"):
        selection_of(Settings(**{name: ("M09",)}), CODES)
    with pytest.raises(ConfigError, match="see `sglogparse rules`"):
        selection_of(Settings(**{name: ("ZZZZ",)}), CODES)


@given(
    st.lists(st.sampled_from(CODES), max_size=6), st.lists(st.sampled_from(["M", "P00", "K001"]), max_size=3)
)
def test_selection_takes_out_findings_and_nothing_else(codes, ignore):
    found = [finding(code, evidence=[line(3)]) for code in codes]
    whole = diagnosis(launch(found), launch(found, Outcome.READY, first_line=5, cause="none"))
    left = selected(whole, Selection((), tuple(ignore)))
    assert [one.code for one in left.findings] == [
        one.code for one in whole.findings if not one.code.startswith(tuple(ignore))
    ]
    assert len(left.findings) + len(left.ignored) == len(whole.findings)
    assert (left.outcome, left.cause, left.summary, left.root) == (
        whole.outcome,
        whole.cause,
        whole.summary,
        whole.root,
    )
    assert not left.known
    assert not left.verdict_known


def test_a_crash_does_not_become_ready_when_its_rules_are_ignored():
    died = launch([finding(evidence=[line(3)])])
    left = selected(diagnosis(died), Selection((), ("ALL",)))
    assert (left.outcome, left.findings) == (Outcome.CRASHED, ())
    assert [left.exit_code(one) for one in (*Severity, None)] == [3, 3, 3, 3]
    ready = launch([finding(severity=Severity.WARNING)], Outcome.READY, cause="none")
    assert diagnosis(ready).exit_code(Severity.WARNING) == 1
    assert selected(diagnosis(ready), Selection((), ("P",))).exit_code(Severity.WARNING) == 0


# ------------------------------------------------------------------ at the command line


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs `diagnose` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        return CliRunner().invoke(main, ["diagnose", *map(str, words)], env={"COLUMNS": "80"})

    return call


@pytest.mark.parametrize(
    ("words", "codes", "exit_code"),
    [
        ([], ["M001", "M004", "P001", "E002"], 1),
        (["--select", "P"], ["P001"], 1),
        (["--select", "P,M001"], ["M001", "P001"], 1),
        (["--ignore", "m00", "--ignore", "P"], ["E002"], 3),
        (["--select", "E"], ["E002"], 3),
        (["--select", "E", "--fail-on", "info"], ["E002"], 1),
        (["--ignore", "M", "--extend-select", "M004"], ["M004", "P001", "E002"], 1),
        (["--ignore", "ALL", "--exit-zero"], [], 0),
    ],
)
def test_the_command_line_selects(run, words, codes, exit_code):
    result = run(FIXTURES / "baseline_debug_nocar.log", "--output-format", "json", *words)
    report = json.loads(result.stdout)
    assert [one["code"] for one in report["findings"]] == codes
    assert result.exit_code == exit_code
    assert (report["outcome"], report["cause"], report["root"]["line"]) == ("crashed", "memory.kv_budget", 49)
    assert sum(report["ignored"].values()) == 4 - len(codes)
