"""`coverage`: what the lines are, and which nobody can name."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from sglogparse import read_log
from sglogparse._cli import main
from sglogparse._coverage import coverage

RECORD = "[2026-03-04 05:06:07 TP3] Load weight begin. avail mem=70.25 GB"
ODD = "qwxz {} grumbles, and no one knows why"


@pytest.fixture
def logs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    first = [
        RECORD,
        RECORD,
        "[2026-03-04 05:06:08] A sentence.",
        *(ODD.format(i) for i in range(3)),
        "zzz \x1b[1m% x",
    ]
    (tmp_path / "a.log").write_text("".join(f"{line}\n" for line in first))
    (tmp_path / "b.log").write_text(f"{RECORD}\n")
    (tmp_path / "empty.log").write_text("")
    return tmp_path


def run(*words):
    return CliRunner().invoke(main, ["coverage", *words], catch_exceptions=False)


def test_the_counts_of_a_file(logs):
    (found,) = coverage(read_log("a.log"))
    assert (found.path, found.lines, found.unparsed) == ("a.log", 7, 4)
    assert found.families == {"load_weight_begin": 2, "message": 1}
    assert [(one.line, one.text, one.like_it) for one in found.examples] == [
        (4, ODD.format(0), 3),
        (7, "zzz % x", 1),
    ]
    assert found.share == 3 / 7


def test_the_whole_report_of_one_file(logs):
    assert run("a.log").output == (
        "a.log: 7 lines, 4 not recognised (42.9 % named)\n"
        "  load_weight_begin  2\n"
        "  message            1\n"
        "  line 4 (and 2 like it): qwxz 0 grumbles, and no one knows why\n"
        "  line 7: zzz % x\n"
    )


def test_the_whole_report_of_several_files(logs):
    assert run("b.log", "empty.log", "a.log").output == (
        "b.log: 1 line, all of them recognised\n"
        "  load_weight_begin  1\n"
        "\n"
        "empty.log: empty\n"
        "\n"
        "a.log: 7 lines, 4 not recognised (42.9 % named)\n"
        "  load_weight_begin  2\n"
        "  message            1\n"
        "  line 4 (and 2 like it): qwxz 0 grumbles, and no one knows why\n"
        "  line 7: zzz % x\n"
        "\n"
        "3 files: 8 lines, 4 not recognised (50.0 % named); 81.0 % a file on average\n"
        "  load_weight_begin  3\n"
        "  message            1\n"
    )


def test_json(logs):
    found = json.loads(run("b.log", "a.log", "--output-format", "json").output)
    assert found["schema"] == "sglogparse/coverage/1"
    assert found["files"][0] == {
        "path": "b.log", "lines": 1, "unparsed": 0, "families": {"load_weight_begin": 1}, "examples": [],
    }  # fmt: skip
    assert found["files"][1]["unparsed"] == 4
    assert found["files"][1]["examples"][0] == {"line": 4, "text": ODD.format(0), "like_it": 3}


def test_nearly_all_never_looks_like_all(tmp_path):
    path = tmp_path / "long.log"
    path.write_text(f"{RECORD}\n" * 5_000 + f"{ODD}\n")
    assert "5001 lines, 1 not recognised (99.9 % named)" in run(str(path)).output.replace("\n", " ")


def test_secrets_in_examples_are_masked(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("qwxz zzyx api_key=abcdef123456\n")
    assert "abcdef123456" not in run(str(path)).output
    assert "abcdef123456" in run(str(path), "--show-secrets").output


def test_a_long_line_is_cut_to_the_width(logs):
    (logs / "w.log").write_text("qwxz " + "y" * 300 + "\n")
    shown = run("w.log").output.splitlines()[1]
    assert len(shown) == 80
    assert shown.endswith("y...")
