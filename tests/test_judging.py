"""Launches that are judged by several processes get the reports that one process makes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from sglogparse import _judging, _verdict, read_log
from sglogparse._condense import TIERS, Tier
from sglogparse._stream import Reader, read_condensed
from sglogparse._verdict import diagnose

FIXTURES = sorted(Path(__file__).with_name("fixtures").rglob("*.log"))[:12]


@pytest.fixture
def few(monkeypatch):
    """Make few launches worth it."""
    monkeypatch.setattr(_verdict, "_MANY", 2)
    monkeypatch.setattr(_judging, "_WORTH", 2)
    monkeypatch.setattr(_judging, "_AT_ONCE", 3)


@pytest.fixture
def started(monkeypatch):
    """Return the processes that are started."""
    found = []

    class Noted(subprocess.Popen):
        def __init__(self, *args, **settings):
            found.append(self)
            super().__init__(*args, **settings)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    return found


def test_processes_judge_as_one_does(few, started):
    log = read_log(FIXTURES)
    apart = diagnose(log, processes=2)
    assert len(started) == 2
    assert apart == diagnose(log)
    assert len(started) == 2
    assert [one.returncode for one in started] != [None, None]  # they have ended


def test_processes_judge_what_is_kept_of_long_logs(few, started, monkeypatch):
    narrow = dict.fromkeys(TIERS, Tier(1, 4))
    monkeypatch.setitem(Reader.__init__.__kwdefaults__, "most", 50)
    monkeypatch.setitem(Reader.__init__.__kwdefaults__, "tiers", narrow)
    log = read_condensed(FIXTURES)
    assert log.counts is not None
    assert diagnose(log, processes=2) == diagnose(log)
    assert len(started) == 2


def test_files_with_several_servers_and_starts_are_judged_alike(few, started, tmp_path):
    starts = "\n".join(FIXTURES[0].read_text(encoding="utf-8") for _ in range(3))
    paths = [tmp_path / f"{number}.log" for number in range(4)]
    for path in paths:
        path.write_text(starts, encoding="utf-8")
    log = read_log(paths)
    apart = diagnose(log, processes=3)
    assert apart == diagnose(log)
    assert len(apart.launches) == 12
    assert len(started) == 3


@pytest.mark.parametrize("executable", ["", "/nowhere/python", "/bin/false"])
def test_without_other_processes_this_one_judges(few, monkeypatch, executable):
    log = read_log(FIXTURES[:6])
    monkeypatch.setattr(sys, "executable", executable)
    assert diagnose(log, processes=2) == diagnose(log)


def test_few_launches_are_judged_here(started):
    log = read_log(FIXTURES[:6])
    assert diagnose(log, processes=8) == diagnose(log)
    assert not started


def test_what_is_printed_in_the_other_processes_is_no_part_of_the_reports(
    few, started, tmp_path, monkeypatch
):
    (tmp_path / "sitecustomize.py").write_text("print('hello')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    log = read_log(FIXTURES)
    assert diagnose(log, processes=2) == diagnose(log)
    assert len(started) == 2


def test_a_process_that_ends_amid_its_answer_is_done_without(few, monkeypatch):
    log = read_log(FIXTURES)
    code = "import sys; sys.stdin.buffer.read(100); sys.stdout.buffer.write(%r); sys.stdout.flush()"
    cut = _judging._MARK + pickle.dumps([1, 2, 3])[:-4]

    class Ending(subprocess.Popen):
        def __init__(self, command, **settings):
            super().__init__([command[0], "-c", code % cut], **settings)

    monkeypatch.setattr(subprocess, "Popen", Ending)
    assert diagnose(log, processes=2) == diagnose(log)
