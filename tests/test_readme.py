"""The README shows what the commands really print."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_diagnosis_shown_is_the_real_one():
    shown = re.search(r"The first prints:\n\n```text\n(.*?)\n```", README, re.DOTALL)[1]
    done = subprocess.run(
        [sys.executable, "-m", "sglogparse", "diagnose", "tests/fixtures/baseline_debug_nocar.log"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PATH": "", "COLUMNS": "80"},
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout.rstrip("\n") == shown


def test_the_timeline_shown_is_the_real_one():
    shown = re.search(r"## Where the time of a start goes\n.*?```text\n(.*?)\n```", README, re.DOTALL)[1]
    done = subprocess.run(
        [sys.executable, "-m", "sglogparse", "timeline", "node0.log", "node1.log"],
        capture_output=True,
        text=True,
        cwd=ROOT / "tests" / "fixtures" / "timeline",
        env={"PATH": "", "COLUMNS": "80", "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip("\n") == shown


def test_the_memory_shown_is_the_real_one():
    shown = re.search(r"## Where the memory goes\n.*?```text\n(.*?)\n```", README, re.DOTALL)[1]
    done = subprocess.run(
        [sys.executable, "-m", "sglogparse", "memory", "baseline_clean.log", "--mem-fraction-static", "0.9"],
        capture_output=True,
        text=True,
        cwd=ROOT / "tests" / "fixtures",
        env={"PATH": "", "COLUMNS": "80", "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip("\n") == shown


def test_the_frames_named_are_frames():
    from sglogparse._log import frame_schemas

    table = README.split("| frames | hold |")[1].split("\n\n")[0]
    names = set()
    first_cells = " ".join(row.split("|")[1] for row in table.splitlines() if row.startswith("| `"))
    for word in re.findall(r"`([a-z_/]+)`", first_cells):
        stem, *ends = word.split("/")
        names |= {stem} | {stem.rpartition("_")[0] + "_" + end for end in ends}
    assert names <= set(frame_schemas())
