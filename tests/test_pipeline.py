"""The snippet of a pipeline, whole: a server starts, writes its log and dies; the job says why, and fails."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import runners

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
#: What a job runs. It stands in the README, with the real command in the place of the server.
README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
#: The step of a pipeline that the README shows.
SNIPPET = "\n" + re.search(r"## In a pipeline\n\n```bash\n(.*?)```", README, re.DOTALL)[1]
#: A server that prints a log as a server does, some lines at a time, and ends as it did, or lives on.
SERVER = """
import sys, time
lines = open(sys.argv[1], encoding="utf-8").read().splitlines(keepends=True)
for number, line in enumerate(lines):
    print(line, end="", flush=True)
    if number % 20 == 19:
        time.sleep(0.05)
if sys.argv[2] == "dies":
    sys.exit(1)
time.sleep(60)
"""


@pytest.fixture
def job(tmp_path):
    """Return a function that runs the snippet with another server: exit code, output, and the summary."""
    tools, work = tmp_path / "bin", tmp_path / "work"
    tools.mkdir()
    work.mkdir()
    tool = tools / "sglogparse"
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sglogparse "$@"\n')
    tool.chmod(0o755)
    (tmp_path / "server.py").write_text(SERVER)

    def run(log, end, snippet=SNIPPET):
        server = f'"{sys.executable}" "{tmp_path}/server.py" "{log}" {end}'
        script = re.sub(r"python -m sglang\.launch_server [^>]*(?= >)", lambda _: server, snippet)
        assert script != snippet
        summary = tmp_path / "summary.md"
        summary.touch()
        done = subprocess.run(
            [
                "bash",
                "--noprofile",
                "--norc",
                "-eo",
                "pipefail",
                "-c",
                f"trap 'kill %1 2>/dev/null' EXIT\n{script}",
            ],
            env={
                "PATH": f"{tools}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT / "src"),
                "GITHUB_STEP_SUMMARY": str(summary),
            },
            cwd=work,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done, summary.read_text()

    return run


def test_a_server_that_dies_is_annotated_and_summed_up(job):
    done, summary = job(FIXTURES / "baseline_debug_nocar.log", "dies")
    assert (done.returncode, done.stderr) == (1, "")
    commands, rest = runners.github(done.stdout)
    first, *others = [one for one in commands if one.name not in ("group", "endgroup")]
    assert (first.name, first.properties["title"]) == ("error", "sglogparse: crashed")
    assert (first.properties["file"], first.properties["line"]) == ("server.log", "49")
    assert first.message.startswith("crashed, during KV cache set-up; cause: KV budget negative\n")
    assert "set --mem-fraction-static 0.781 (room for a prefill" in first.message
    assert {one.properties["title"].split(" ")[0] for one in others} >= {"M001", "P001"}
    assert not any(rest)
    headings = [line for line in summary.split("\n") if line.startswith("### ")]
    assert headings == [
        "### sglogparse: crashed, during KV cache set-up; cause: KV budget negative",
        "### sglogparse triage: 1 log: 1 crashed",
    ]


def test_a_server_that_serves_lets_the_job_go_on(job):
    done, summary = job(FIXTURES / "baseline_clean.log", "lives", f"{SNIPPET}\necho the tests run")
    assert done.returncode == 0
    assert done.stdout.rstrip("\n").split("\n")[-1] == "the tests run"
    assert runners.github(done.stdout)[0] == []
    assert summary == ""


def test_what_a_log_says_is_no_command_of_the_job(job, tmp_path):
    text = (FIXTURES / "baseline_debug_nocar.log").read_text(encoding="utf-8")
    bad = "::set-output name=owned::1 %0A::add-mask::a ##[error]x </details><script>"
    log = tmp_path / "hostile.log"
    log.write_text(text.replace("Not enough memory.", f"Not enough memory. {bad}"), encoding="utf-8")
    done, summary = job(log, "dies")
    assert done.returncode == 1
    commands, _ = runners.github(done.stdout)
    assert {one.name for one in commands} <= {"error", "warning", "notice", "group", "endgroup"}
    assert "<script>" not in summary


def test_a_folder_of_artefacts_is_triaged_in_one_step(tmp_path):
    for name, source in (("a", "baseline_debug_nocar.log"), ("b", "baseline_clean.log")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "server.log").write_bytes((FIXTURES / source).read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "sglogparse", "triage", "*/", "--output-format", "json"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout)["outcomes"] == {"crashed": 1, "ready": 1}
