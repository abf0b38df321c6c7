"""Where reports go: standard output, files that are whole or untouched, the summary of a step."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import runners
from sglogparse import _config, _output
from sglogparse._cli import main
from sglogparse._errors import OutputError
from sglogparse._output import append, write_whole

FIXTURES = Path(__file__).parent / "fixtures"
CRASHED = FIXTURES / "baseline_debug_nocar.log"
CLEAN = FIXTURES / "baseline_clean.log"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs `diagnose` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def call(*words, **environment):
        return CliRunner().invoke(main, ["diagnose", *map(str, words)], env={"COLUMNS": "80", **environment})

    return call


# ------------------------------------------------------------------ files


def test_a_file_is_written_whole_with_the_rights_of_any_new_file(tmp_path):
    path = tmp_path / "a" / "b" / "out.txt"
    write_whole("text \udcff\n", path)
    assert path.read_bytes() == b"text \\udcff\n"
    other = tmp_path / "other"
    other.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)
    assert [one.name for one in path.parent.iterdir()] == ["out.txt"]


def test_a_file_that_was_there_keeps_its_rights_and_a_link_its_target(tmp_path):
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_whole("new", link)
    assert (real.read_text(), stat.S_IMODE(real.stat().st_mode)) == ("new", 0o640)
    assert link.is_symlink()


def test_a_device_is_written_to_as_it_is():
    write_whole("gone", Path(os.devnull))
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_a_file_that_cannot_be_written_is_left_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "out.txt"
    path.write_text("old")

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OutputError, match=r"out\.txt: cannot be written: no space left on device"):
        write_whole("new", path)
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["out.txt"]


@pytest.mark.parametrize("name", ["", "folder", "file/below", "nul\0", "x" * 300])
def test_a_place_where_no_file_can_be_is_an_error(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be written"):
        write_whole("text", tmp_path / name)
    with pytest.raises(OutputError, match="cannot be written"):
        append("text", tmp_path / name)


def test_what_is_added_comes_behind_what_was_there(tmp_path):
    path = tmp_path / "summary.md"
    append("one\n", path)
    append("two\n", path)
    assert path.read_text() == "one\ntwo\n"
    assert _output.__doc__


# ------------------------------------------------------------------ at the command line


def test_the_exit_code_does_not_depend_on_the_formats(run):
    for log, words, code in (
        (CRASHED, [], 1),
        (CRASHED, ["--fail-on", "never"], 3),
        (CRASHED, ["--exit-zero"], 0),
        (CLEAN, [], 0),
    ):
        outputs = [
            word for name in _config.FORMATS[1:] for word in ("--output-format", f"{name}:out/{code}.{name}")
        ]
        result = run(log, *outputs, *words)
        assert (result.exit_code, result.stdout, result.stderr) == (code, "", "")
        for name in _config.FORMATS[1:]:
            alone = run(log, "--output-format", name, *words)
            assert (alone.exit_code, alone.stderr) == (code, "")
            # what is printed is what is written
            assert alone.stdout == Path(f"out/{code}.{name}").read_text(encoding="utf-8")
        sarif = json.loads(Path(f"out/{code}.sarif").read_text(encoding="utf-8"))
        assert sarif["runs"][0]["invocations"][0]["exitCode"] == code


def test_one_format_is_printed_and_any_number_is_written(run):
    result = run(
        CRASHED,
        "--output-format",
        "sarif:a.sarif",
        "--output-format",
        "concise",
        "--output-format",
        "text:a.txt",
    )
    assert result.stdout.startswith(f"{CRASHED}:49: crashed")
    assert json.loads(Path("a.sarif").read_text(encoding="utf-8"))["version"] == "2.1.0"
    text = Path("a.txt").read_text(encoding="utf-8")
    assert text.startswith("crashed, during KV cache set-up")
    assert "\x1b" not in text
    assert run(CRASHED, "--output-format", "text:-").stdout == run(CRASHED).stdout


def test_a_report_is_not_written_over_what_is_read(run, tmp_path):
    log = tmp_path / "server.log"
    log.write_bytes(CRASHED.read_bytes())
    result = run("server.log", "--output-format", "text:./server.log")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is read by this call, so no report is written to it" in result.stderr
    assert log.read_bytes() == CRASHED.read_bytes()
    result = run("server.log", "--output-format", "text:b.json", "--baseline", "b.json", "--write-baseline")
    assert result.exit_code == 2
    assert not Path("b.json").exists()
    result = run("server.log", "--baseline", "server.log", "--write-baseline")
    assert (result.exit_code, result.stdout) == (2, "")
    assert log.read_bytes() == CRASHED.read_bytes()


def test_a_folder_that_is_gone_is_no_fault_of_ours(tmp_path):
    gone = tmp_path / "gone"
    code = f"""
import os
os.mkdir({str(gone)!r}); os.chdir({str(gone)!r}); os.rmdir({str(gone)!r})
from sglogparse._cli import main
main()"""
    for words in (
        ["diagnose", str(CLEAN)],
        ["diagnose", str(CLEAN), "--output-format", "json:x"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr
        assert done.returncode == (0 if words[1:] == [str(CLEAN)] else 2)


def test_a_report_that_cannot_be_written_is_said_and_nothing_is_printed(run):
    Path("folder").mkdir()
    result = run(CLEAN, "--output-format", "concise", "--output-format", "json:folder")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "sglogparse: folder: cannot be written: is a directory\n"


def test_github_gets_a_summary_of_the_step(run, tmp_path):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    result = run(CRASHED, "--output-format", "github", GITHUB_STEP_SUMMARY=str(summary))
    commands, rest = runners.github(result.stdout.rstrip("\n"))
    assert [one.name for one in commands] == [
        "error",
        "group",
        "error",
        "error",
        "error",
        "notice",
        "endgroup",
    ]
    assert rest == []
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("before\n### sglogparse: crashed, during KV cache set-up")
    assert text.removeprefix("before\n").rstrip("\n") == run(
        CRASHED, "--output-format", "markdown"
    ).stdout.rstrip("\n")
    run(CRASHED, "--output-format", "text", GITHUB_STEP_SUMMARY=str(summary))
    assert summary.read_text(encoding="utf-8") == text
    result = run(CRASHED, "--output-format", "github", GITHUB_STEP_SUMMARY=str(tmp_path))
    assert (result.exit_code, result.stdout) == (2, "")


def test_standard_output_can_be_named_as_a_file(tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "sglogparse",
            "diagnose",
            str(CLEAN),
            "--output-format",
            "concise:/dev/stdout",
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{CLEAN}: ready: the server serves and the log shows no fault\n"


# ------------------------------------------------------------------ explain and rules


def explained(*words):
    return CliRunner().invoke(main, list(words), env={"COLUMNS": "80"})


def test_a_slip_of_the_pen_is_understood():
    assert "did you mean memory.kv_budget?" in explained("explain", "memory.kv_budge").stderr
    assert "did you mean negative-kv-budget?" in explained("explain", "negative-kv-budgets").stderr
    assert "no rule and no cause is called 'X999'; rules: M001, " in explained("explain", "X999").stderr


def test_families_of_rules_and_causes_are_listed():
    codes = [one.split()[0] for one in explained("explain", "m").stdout.splitlines() if one.startswith("M0")]
    assert codes == [f"M{n:03}" for n in range(1, 13)]
    causes = explained("explain", "memory").stdout.splitlines()
    assert causes[1].split()[0] == "memory.kv_budget"
    assert "out of host memory" in causes[5]


def test_rules_as_json_carry_their_documentation():
    listed = json.loads(explained("rules", "--output-format", "json").stdout)
    first = listed[0]
    assert list(first) == ["code", "name", "summary", "family", "since", "documentation"]
    assert (first["code"], first["family"], first["since"]) == ("M001", "memory", "0.1.0")
    assert first["documentation"].startswith(first["summary"])
    assert "\nWhat to do:\n" in first["documentation"]
