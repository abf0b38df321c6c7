"""The plugin of pytest, in sessions of pytest of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CRASH = ROOT / "tests" / "fixtures" / "baseline_debug_nocar.log"
CLEAN = ROOT / "tests" / "fixtures" / "baseline_clean.log"
VERDICT = "crashed, during KV cache set-up; cause: KV budget negative (memory.kv_budget)"


@pytest.fixture
def session(tmp_path):
    """Return a function that runs a file of tests in a session of its own: exit code and what it printed."""

    def run(text, *words, plugin="sglogparse.pytest"):
        (tmp_path / "test_it.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", plugin, "-p", "no:cacheprovider", *words, "test_it.py"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT / "src"), "PATH": "", "COLUMNS": "100"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    return run


FAILS = f"""
def test_fails(sglang_log):
    assert str(sglang_log({str(CRASH)!r})) == {str(CRASH)!r}
    assert 1 == 2

def test_passes(sglang_log):
    sglang_log({str(CRASH)!r})
"""


@pytest.mark.parametrize("words", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_a_test_that_fails_has_the_verdict_in_its_report(session, tmp_path, words):
    code, shown = session(FAILS, *words, "--junitxml=out.xml")
    assert code == 1
    assert shown.count(f" sglang log: {CRASH} ") == 1
    assert shown.count(VERDICT) == 1
    assert "set --mem-fraction-static 0.781 (room for a prefill" in shown
    cases = {one.get("name"): one for one in ET.parse(tmp_path / "out.xml").iter("testcase")}
    told = {one.get("name"): one.get("value") for one in cases["test_fails"].iter("property")}
    assert (told["sglang_outcome"], told["sglang_cause"]) == ("crashed", "memory.kv_budget")
    assert not list(cases["test_passes"].iter("property"))


def test_a_pipe_is_not_read(session):
    code, shown = session(
        f"""
import os

def test_fails(sglang_log, tmp_path):
    os.mkfifo(tmp_path / "server.log")
    sglang_log()
    raise RuntimeError

def test_fails_with_another(sglang_log, tmp_path):
    os.mkfifo(tmp_path / "server.log")
    sglang_log()
    sglang_log({str(CRASH)!r})
    raise RuntimeError
"""
    )
    assert code == 1
    assert shown.count("/server.log: no regular file") == 2
    assert shown.count(VERDICT) == 1


def test_without_a_name_it_is_a_log_in_the_folder_of_the_test(session):
    code, shown = session(
        f"""
import shutil

def test_fails(sglang_log, tmp_path):
    assert sglang_log() == tmp_path / "server.log"
    shutil.copy({str(CRASH)!r}, tmp_path / "server.log")
    raise RuntimeError
"""
    )
    assert code == 1
    assert VERDICT in shown


def test_a_server_that_does_not_start_is_told_too(session):
    code, shown = session(
        f"""
import pytest

@pytest.fixture
def server(sglang_log):
    sglang_log({str(CRASH)!r})
    raise RuntimeError("it did not start")

def test_errs(server):
    pass
"""
    )
    assert code == 1
    assert "1 error" in shown
    assert shown.count(VERDICT) == 1


def test_logs_of_one_test_are_read_together(session):
    code, shown = session(
        f"""
def test_fails(sglang_log):
    for name in ({str(CLEAN)!r}, {str(CRASH)!r}, {str(CLEAN)!r}):
        sglang_log(name)
    assert False
"""
    )
    assert code == 1
    assert f"{CLEAN}, {CRASH} " in shown
    assert VERDICT in shown


def test_a_log_that_is_not_there_is_said_to_be_missing(session):
    code, shown = session("def test_fails(sglang_log):\n    sglang_log('none.log')\n    assert False\n")
    assert code == 1
    assert "cannot be diagnosed: " in shown
    assert "none.log: no such file" in shown
    assert "INTERNALERROR" not in shown


def test_a_test_without_a_log_is_as_it_was(session):
    code, shown = session(
        "def test_fails(sglang_log):\n    assert False\n\ndef test_too():\n    assert False\n"
    )
    assert code == 1
    assert "sglang log" not in shown


def test_secrets_of_a_log_do_not_reach_the_report(session, tmp_path):
    secret = "sk-" + "a1b2c3d4e5f6"
    log = tmp_path / "server.log"
    log.write_text(CRASH.read_text().replace("Not enough memory.", f"Not enough memory {secret}."))
    code, shown = session(f"def test_fails(sglang_log):\n    sglang_log({str(log)!r})\n    assert False\n")
    assert code == 1
    assert "memory.kv_budget" in shown
    assert secret not in shown


def test_nothing_else_imports_the_plugin():
    code = "import json, sys, sglogparse._cli, sglogparse.rules, sglogparse.render; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pytest", "_pytest", "sglogparse.pytest"} & set(json.loads(done.stdout))
    for path in (ROOT / "src").rglob("*.py"):
        assert path.name == "pytest.py" or "sglogparse.pytest" not in path.read_text(encoding="utf-8")
