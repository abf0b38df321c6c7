"""Baselines and fingerprints: what is the same in the next run, and what is not."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import sglogparse
from reports import TEXT, diagnosis, finding, launch, line
from sglogparse._baseline import SCHEMA, Baseline, baseline_of, read_baseline
from sglogparse._cli import main
from sglogparse._errors import ConfigError
from sglogparse._fingerprint import (
    diagnosis_fingerprint,
    finding_fingerprint,
    finding_is_specific,
    verdict_fingerprint,
    words_of,
)
from sglogparse._report import Detail, Outcome, Severity
from sglogparse._select import Selection, selected

FIXTURES = Path(__file__).parent / "fixtures"
CRASHED = FIXTURES / "baseline_debug_nocar.log"
CLEAN = FIXTURES / "baseline_clean.log"
CONTRADICTION = FIXTURES / "negative_budget_with_kv.log"

# ------------------------------------------------------------------ words


#: Lines that say the same in two runs.
SAME = [
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of 79.10 GiB",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 140 GiB".replace(
            "MiB", "GiB"
        ),
    ),
    ("KeyError: 'model.layers.12.mlp.gate.weight'", "KeyError: 'model.layers.3.mlp.gate.weight'"),
    ("Watchdog timeout (self.watchdog_timeout=300)", "Watchdog timeout (self.watchdog_timeout=1200)"),
    ("FileNotFoundError: '/data/a/model/config.json'", "FileNotFoundError: '/mnt/nfs/b-7/x/config.json'"),
    ("boom at 0x7f3c00aa12 in request 6f1c2a9e5b", "boom at 0x55e1 in request 00aa17bb9c"),
    ("[rank3]: boom on TP3 of DP0 TP3", "[rank0]: boom on TP11 of DP1 TP11"),
    ("2026-02-27 12:50:02,123 boom", "2025-11-01T00:00:00Z boom"),
    ("rid 123e4567-e89b-12d3-a456-426614174000 lost", "rid 00000000-aaaa-bbbb-cccc-426614174fff lost"),
    ("cannot reach tcp://10.0.0.1:20000", "cannot reach tcp://node-7.local:29500"),
    ("Connection closed by peer [10.0.0.2]:4711", "Connection closed by peer [192.168.1.77]:50123"),
    ("Connection closed by peer [fe80::1:2:3]:4711", "Connection closed by peer [2001:db8:0:1::a:7]:1"),
    ("cannot load /tmp/tmpab12cd9x/a.so", "cannot load /var/tmp/tmpzz99_k1q/a.so"),
    ("password=hunter2 refused", "password=another-one refused"),
]
#: Lines that do not.
OTHER = [
    ("KeyError: 'a'", "KeyError: 'b'"),
    ("fp8 cache is not supported", "fp4 cache is not supported"),
    ("float8_e4m3fn is not supported", "float8_e5m2 is not supported"),
    ("CUDA out of memory", "HIP out of memory"),
    ("cannot open /a/b.so", "cannot open /a/c.so"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_words_are_the_same_in_the_next_run(one, other):
    assert words_of(one) == words_of(other)
    assert words_of(one)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_words_of_something_else_differ(one, other):
    assert words_of(one) != words_of(other)


@given(TEXT)
def test_words_are_words(text):
    found = words_of(text)
    assert re.fullmatch(r"(?:[A-Za-z_][A-Za-z0-9_]*(?: |$))*", found)
    assert len(found.split()) <= 40


# ------------------------------------------------------------------ fingerprints


def marks(found):
    return [finding_fingerprint(one, chief) for chief in found.launches for one in chief.findings]


def read(tmp_path, text, name="server.log"):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return sglogparse.read_log(path).diagnose()


def test_a_fingerprint_survives_other_numbers_stamps_lines_and_folders(tmp_path):
    text = CRASHED.read_text(encoding="utf-8")
    first = read(tmp_path, text)
    moved = re.sub(r"2026-02-27 12:", "2026-03-01 07:", text)
    moved = (
        moved.replace("avail=21.708", "avail=21.705")
        .replace("-20.608", "-20.611")
        .replace("-314887", "-314933")
    )
    moved = "\n".join(["a line of the container", "another one", moved])
    second = read(tmp_path, moved.replace("/sgl-workspace/", "/opt/other/"), "deeper/down/other.log")
    assert second.root.line == first.root.line + 2
    assert marks(second) == marks(first)
    assert diagnosis_fingerprint(second) == diagnosis_fingerprint(first)
    assert len(set(marks(first))) == len(first.findings)


def test_what_a_fingerprint_depends_on():
    one = finding(evidence=[line(3, "RuntimeError: boom in the engine")], cause="code.assertion")
    chief = launch([one])
    mark = finding_fingerprint(one, chief)
    for other in (
        replace(one, code="P002"),
        replace(one, cause="unknown"),
        replace(one, severity=Severity.WARNING),
        replace(one, evidence=(line(3, "RuntimeError: bang in the engine"),)),
    ):
        assert finding_fingerprint(other, chief) != mark
    for same in (
        replace(one, message="told in other words"),
        replace(one, ranks=("TP7",), fix="do that"),
        replace(one, evidence=(line(99, "RuntimeError: boom in the engine", rank="TP5", file="b.log"),)),
    ):
        assert finding_fingerprint(same, chief) == mark
    verdict = verdict_fingerprint(chief)
    assert verdict_fingerprint(replace(chief, outcome=Outcome.HUNG)) != verdict
    assert verdict_fingerprint(replace(chief, cause="unknown")) != verdict
    assert verdict_fingerprint(replace(chief, headline="x", first_line=7, duration=None)) == verdict


def test_a_text_that_says_little_is_told_apart_by_where_it_was_raised():
    root = line(3, "AssertionError")
    one = finding(evidence=[root], root=root)

    def raised(frame):
        return launch([one], root=root, detail=Detail((), frame, None, None, (), ()))

    first, moved, other = (
        raised(f"sglang/srt/{place}")
        for place in ("a/mem.py:17 alloc", "b/mem.py:99 alloc", "mem.py:17 free")
    )
    assert finding_fingerprint(one, first) == finding_fingerprint(one, moved)
    assert finding_fingerprint(one, first) != finding_fingerprint(one, other)
    assert verdict_fingerprint(first) != verdict_fingerprint(other)


def test_secrets_are_in_no_fingerprint():
    one, other = (
        finding(evidence=[line(3, f"refused api_key='{key}' by the hub")]) for key in ("abc", "xyz")
    )
    assert finding_fingerprint(one, launch([one])) == finding_fingerprint(other, launch([other]))


@pytest.mark.parametrize(
    "text",
    [
        "Scheduler hit an exception: Traceback (most recent call last):",
        "Exception in ModelTpServer:",
        "Initialization failed. warmup error:",
        "12:50:02",
    ],
)
def test_an_exception_that_is_cut_off_says_too_little(text):
    root = line(3, text)
    one = finding(evidence=[root], root=root)
    bare = launch([one], root=root, detail=None)
    assert not finding_is_specific(one, bare)
    assert baseline_of(diagnosis(bare))[0] == Baseline()
    told = replace(bare, detail=Detail((), "sglang/srt/a.py:3 load", None, None, (), ()))
    assert finding_is_specific(one, told)


# ------------------------------------------------------------------ baselines


@given(st.lists(st.sampled_from(["boom one two", "bang one two", "ouch one two"]), max_size=4), st.booleans())
def test_a_baseline_knows_all_that_it_was_made_of(texts, ready):
    found = [finding(evidence=[line(3, text)]) for text in texts]
    whole = diagnosis(launch(found, Outcome.READY if ready else Outcome.CRASHED, cause="none"))
    baseline, _ = baseline_of(whole)
    left = selected(whole, Selection(), baseline)
    assert left.findings == ()
    assert len(left.known) == len(whole.findings)
    assert left.exit_code() == (0 if ready or texts else 3)
    assert left.verdict_known == bool(texts)


def test_a_new_finding_counts_beside_known_ones():
    old, new = (finding(evidence=[line(3, f"{word} one two")]) for word in ("boom", "bang"))
    baseline, _ = baseline_of(diagnosis(launch([old])))
    left = selected(diagnosis(launch([old, new])), Selection(), baseline)
    assert (left.findings, left.known) == ((new,), (old,))
    assert left.exit_code() == 1


def test_a_verdict_that_is_not_known_is_undecided_at_best():
    """The finding is known of a server that served; that it ends a server is news."""
    warned = finding(evidence=[line(3, "boom one two")])
    baseline, _ = baseline_of(diagnosis(launch([warned], Outcome.READY, cause="none")))
    left = selected(diagnosis(launch([warned], Outcome.CRASHED)), Selection(), baseline)
    assert (left.findings, left.verdict_known, left.exit_code()) == ((), False, 3)


def test_the_file_is_read_as_it_was_written(tmp_path):
    whole = diagnosis(
        launch(
            [
                finding(
                    message="api_key='s3cret' \x1b[31m",
                    evidence=[line(3, "password=s3cret is refused there")],
                )
            ]
        )
    )
    baseline, text = baseline_of(whole)
    (tmp_path / "b.json").write_text(text, encoding="utf-8")
    assert read_baseline(tmp_path / "b.json") == baseline
    assert "s3cret" not in text
    assert "\\u001b" not in text
    data = json.loads(text)
    assert data["schema"] == SCHEMA
    assert [one["code"] for one in data["findings"]] == ["P001"]
    assert [one["outcome"] for one in data["verdicts"]] == ["crashed"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no baseline: it is not JSON"),
        ("[" * 100_000, "is no baseline: it is not JSON"),
        ("[]", "is no baseline of schema"),
        ('{"schema": "x"}', "is no baseline of schema"),
        (f'{{"schema": "{SCHEMA}", "findings": 3}}', "'findings' is no list"),
        (
            f'{{"schema": "{SCHEMA}", "fingerprints": 5}}',
            "it has no 'fingerprints', but 'verdicts', 'findings'",
        ),
        (f'{{"schema": "{SCHEMA}", "findings": null}}', "'findings' is no list"),
        (f'{{"schema": "{SCHEMA}", "findings": [{{"fingerprint": 5}}]}}', "has no fingerprint"),
        (f'{{"schema": "{SCHEMA}", "findings": [3]}}', "an entry of 'findings' has no fingerprint"),
        (f'{{"schema": "{SCHEMA}", "verdicts": [{{}}]}}', "an entry of 'verdicts' has no fingerprint"),
    ],
)
def test_a_file_that_is_no_baseline_is_said(tmp_path, text, said):
    (tmp_path / "b.json").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        read_baseline(tmp_path / "b.json")
    assert said in str(error.value)


# ------------------------------------------------------------------ at the command line


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs `diagnose` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        return CliRunner().invoke(main, ["diagnose", *map(str, words)], env={"COLUMNS": "80"})

    return call


def test_a_known_crash_is_shown_as_known_and_exits_with_0(run, tmp_path):
    written = run(CRASHED, "--baseline", "known.json", "--write-baseline")
    assert (written.exit_code, written.stderr) == (0, "known.json: 4 findings, 1 verdict\n")
    later = tmp_path / "later.log"
    later.write_text("one line more\n" + CRASHED.read_text(encoding="utf-8"), encoding="utf-8")
    result = run(later, "--baseline", "known.json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("crashed, during KV cache set-up; cause: KV budget negative")
    assert "\nknown, by the baseline: this verdict, E002, M001, M004, P001\n" in result.stdout
    assert "M001 error" not in result.stdout
    report = json.loads(run(later, "--baseline", "known.json", "--output-format", "json").stdout)
    assert (report["outcome"], report["findings"]) == ("crashed", [])
    assert report["known"] == {"verdict": True, "findings": {"E002": 1, "M001": 1, "M004": 1, "P001": 1}}
    # what is known of a crash says nothing of another log
    assert run(CONTRADICTION, "--baseline", "known.json").exit_code == 1


def test_a_baseline_keeps_to_the_selection(run):
    run(CRASHED, "--baseline", "known.json", "--write-baseline", "--select", "M")
    codes = [one["code"] for one in json.loads(Path("known.json").read_text(encoding="utf-8"))["findings"]]
    assert codes == ["M001", "M004"]
    result = run(CRASHED, "--baseline", "known.json", "--output-format", "json")
    assert [one["code"] for one in json.loads(result.stdout)["findings"]] == ["P001", "E002"]
    assert result.exit_code == 1


def test_an_undecided_log_stays_undecided(run, tmp_path):
    (tmp_path / "a.log").write_text("nothing of a server\n", encoding="utf-8")
    for words in (["--write-baseline"], []):
        result = run("a.log", "--baseline", "known.json", *words)
        assert result.exit_code == 3
    assert result.stdout.startswith("undecided")


def test_a_baseline_of_a_good_log_is_empty_and_that_is_fine(run):
    result = run(CLEAN, "--baseline", "sub/known.json", "--write-baseline")
    assert (result.exit_code, result.stderr) == (0, "sub/known.json: 0 findings, 0 verdicts\n")
    assert run(CLEAN, "--baseline", "sub/known.json").exit_code == 0
