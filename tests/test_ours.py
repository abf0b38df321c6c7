"""Reports that lie among the logs: never read as one, never written over one."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from sglogparse import _config
from sglogparse._cli import main
from sglogparse._ours import REASON, WRITTEN, is_report
from sglogparse._triage import triage

HERE = Path(__file__).parent
FIXTURES = HERE / "fixtures"
CRASH, CLEAN = FIXTURES / "baseline_debug_nocar.log", FIXTURES / "baseline_clean.log"
REPORTS = sorted([*(HERE / "golden_formats").iterdir(), *(HERE / "golden_triage").iterdir()])


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.name)
def test_each_report_is_known_again(path):
    text = path.read_text(encoding="utf-8")
    assert is_report(text, path.name)
    assert is_report(text[: 1 << 13], path.name)


def test_no_log_is_taken_for_a_report():
    logs = [path for path in FIXTURES.rglob("*") if path.is_file()]
    assert len(logs) > 100
    assert [
        path for path in logs if is_report(path.read_text(encoding="utf-8", errors="replace"), path.name)
    ] == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ready\n",
        "hung\n",
        "[2026-04-09 08:00:00] ready: the server is up\n",
        '{"schema": "other/1"}\n',
        "## What was done\n\n### sglogparse: crashed\n",  # a log of a job that shows a summary
        "crashed, says the script\n[2026-04-09 08:00:00 TP0] Load weight begin. avail mem=78.40 GB\nx: 3 lines\n",
        "a.log:3: crashed, during warm-up\n[2026-04-09 08:00:00 TP0] Load weight begin. avail mem=78.40 GB\n",
    ],
)
def test_what_is_no_report(text):
    assert not is_report(text, "server.log")


def run(*words, **environment):
    done = CliRunner().invoke(main, list(map(str, words)), env={"COLUMNS": "80", **environment})
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Be beside a folder of logs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    path = Path("ci-logs")
    path.mkdir()
    (path / "server.log").write_bytes(CRASH.read_bytes())
    return path


@pytest.mark.parametrize("name", ["server.log", "server"], ids=["named as a log", "not named as one"])
@pytest.mark.parametrize("ending", ["md", "txt", "log", "rep"])
@pytest.mark.parametrize("kind", _config.FORMATS)
def test_a_report_in_the_folder_is_no_log_of_the_next_run(folder, kind, ending, name):
    (folder / "server.log").rename(folder / name)
    target = folder / f"report.{ending}"
    first = run("diagnose", folder, "--output-format", f"{kind}:{target}", "--output-format", "json")
    assert first[0] == 1
    report = target.read_text()
    second = run("diagnose", folder, "--output-format", f"{kind}:{target}", "--output-format", "json")
    assert second[0] == 1
    assert (folder / name).read_bytes() == CRASH.read_bytes()
    assert '"path": "ci-logs/report' not in second[1]
    assert second[1].count('"path": ') == 1
    if kind not in ("json", "text", "jsonl", "sarif", "markdown"):  # these say what was not read
        assert target.read_text() == report
    assert [row.files for row in triage([folder]).rows] == [(f"ci-logs/{name}",)]


def test_what_is_not_read_is_said(folder):
    run("diagnose", folder, "--output-format", f"text:{folder}/report.txt")
    shown = " ".join(run("diagnose", folder)[1].split())
    assert f"not read of ci-logs: ci-logs/report.txt ({REASON})" in shown
    assert triage([folder]).notes == (f"{REASON}: ci-logs/report.txt",)


def test_only_what_would_be_read_is_looked_into(folder, monkeypatch):
    asked = []
    monkeypatch.setattr("sglogparse._source.why_ours", asked.append)
    (folder / "weights.bin").touch()
    assert len(triage([folder]).rows) == 1
    assert asked == ["ci-logs/server.log"]
    (folder / "server.log").rename(folder / "server")
    triage([folder])
    assert sorted(asked[1:]) == ["ci-logs/server", "ci-logs/weights.bin"]


def test_a_report_in_an_archive_is_no_log(folder):
    run("diagnose", folder, "--output-format", f"text:{folder}/report.txt")
    with tarfile.open("logs.tar.gz", "w:gz") as archive:
        archive.add(folder)
    assert [row.files for row in triage(["logs.tar.gz"]).rows] == [("logs.tar.gz!ci-logs/server.log",)]


@pytest.mark.parametrize("given", ["ci-logs", "ci-logs/*", "*", "ci-logs/../ci-logs", "."])
@pytest.mark.parametrize(
    "target", ["server.log", "node1.out", "core.log", "notes", "empty.log", "old.log.gz"]
)
def test_no_file_of_the_folder_is_written_over(folder, given, target):
    (folder / "node1.out").write_bytes(CLEAN.read_bytes())
    (folder / "core.log").write_bytes(bytes(range(256)) * 300)
    (folder / "notes").write_text("what I have seen\n")
    (folder / "empty.log").touch()
    (folder / "old.log.gz").write_bytes(b"\x1f\x8b no more")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    code, shown, told = run("diagnose", given, "--output-format", f"markdown:ci-logs/{target}")
    assert (code, shown) == (2, "")
    assert f"ci-logs/{target}: is read by this call, so no report is written to it" in " ".join(told.split())
    code, _, _ = run("diagnose", given, "--baseline", f"ci-logs/{target}", "--write-baseline")
    assert code == 2
    code, _, _ = run("diagnose", given, "--output-format", "github", GITHUB_STEP_SUMMARY=f"ci-logs/{target}")
    assert code == 2
    code, _, _ = run("metrics", given, "-o", f"ci-logs/{target}")
    assert code == 2
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_link_to_a_log_is_not_written_through(folder):
    Path("out.md").symlink_to("ci-logs/server.log")
    assert run("diagnose", "ci-logs", "--output-format", "markdown:out.md")[0] == 2
    assert (folder / "server.log").read_bytes() == CRASH.read_bytes()


def test_a_summary_in_the_folder_is_added_to_and_never_read(folder):
    summary = folder / "summary.md"
    summary.touch()
    for count in (1, 2, 3):
        code, shown, _ = run(
            "diagnose", folder, "--output-format", "github", GITHUB_STEP_SUMMARY=str(summary)
        )
        assert code == 1
        assert "file=ci-logs/server.log,line=49" in shown
        assert summary.read_text().count("### sglogparse: crashed") == count
    summary.write_text("## Tests\n\n3 passed\n\n" + summary.read_text())
    assert [row.files for row in triage([folder]).rows] == [("ci-logs/server.log",)]


@pytest.mark.parametrize("name", ["report.txt", "report"])
@pytest.mark.parametrize("command", ["triage", "diagnose"])
def test_what_the_shell_has_made_for_the_output_is_no_log(folder, command, name):
    (folder / "server.log").rename(folder / ("server.log" if "." in name else "server"))
    with (folder / name).open("wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "sglogparse", command, "ci-logs"],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(HERE.parent / "src"), "COLUMNS": "100"},
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "")
    text = (folder / name).read_text()
    assert WRITTEN in " ".join(text.split())
    assert len(triage(["ci-logs"]).rows) == 1


@pytest.mark.parametrize(
    "head",
    [
        "### sglogparse: precheck\n",
        "::error title=sglogparse%3A x::y\n",
        "server.log: crashed, during weight loading; cause: unknown\n",
    ],
)
def test_a_server_that_was_started_into_a_report_has_written_a_log(head):
    record = "[2026-05-01 09:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    assert is_report(head, "a.log")
    assert not is_report(head + record, "a.log")
    assert not is_report(f"{head}Traceback (most recent call last):\n", "a.log")


@pytest.mark.parametrize(
    "line",
    ["sglang-0: crashed, exit code 137, restarting\n", "sglang: stopped: container killed by OOM (137)\n"],
)
def test_what_others_say_of_an_end_is_no_report(line):
    assert not is_report(line, "a.log")
