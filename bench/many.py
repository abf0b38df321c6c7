"""Measure what a file, a launch and a rule cost: many small logs, many launches, twice the rules.

    command    `sglogparse diagnose` on 5,000 files of 200 lines, four kinds in turn, each of its own seed
                 head      the start of a server, cut off before it is ready
                 served    the whole start and some serving
                 middle    serving, without the start
                 failed    the start, then a scheduler's traceback and the end of the server
    files      the same files by read_log and diagnose, in one process
    launches   500 launches of 200 lines in one file
    rules      forty of these files, judged with each rule once and twice
    kinds      two hundred of them, read with each kind of event once and twice

Each measurement is a fresh process, several times; the table shows medians, of the clock and of the CPU
(which tells more on a machine that others use). Imports are not in the numbers, but for the command's.

    python bench/many.py
    python bench/many.py --files 500 --runs 3
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import generate

if TYPE_CHECKING:
    from sglogparse import Diagnosis

FILES = 5_000
LAUNCHES = 500
LINES = 200
RUNS = 5
KINDS = ("head", "served", "middle", "failed")

Result = dict[str, float]

#: How a scheduler that runs out of memory ends.
END = """\
[{time} TP{rank}] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/python/sglang/srt/managers/scheduler.py", line 3{rank}12, in run_scheduler_process
    scheduler.event_loop_overlap()
  File "/opt/sglang/python/sglang/srt/layers/logits_processor.py", line 8{rank}4, in _get_logits
    logits = torch.matmul(hidden_states, lm_head.weight.T)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.{rank}3 GiB. GPU {rank} has a total capacity \
of 139.81 GiB of which 812.{rank}5 MiB is free. Process {pid} has 138.{rank}7 GiB memory in use.

[{time}] Received sigquit from a child process. It usually means the child failed.
"""


def small_log(kind: str, seed: int) -> list[str]:
    """Return the lines of one small log."""
    blocks = generate.generate(seed)
    startup = next(blocks)
    if kind == "head":
        return startup[:LINES]
    serving = [line for block in islice(blocks, 400) for line in block]
    if kind == "middle":
        begin = seed % 100
        return serving[begin : begin + LINES]
    # of the start, one rank of eight is enough to stay within so few lines
    own = [line for line in startup if not any(f" TP{rank}]" in line for rank in range(1, generate.RANKS))]
    own = own[: LINES - 40]
    if kind == "failed":
        end = END.format(time="2026-03-01 11:30:00", rank=seed % generate.RANKS, pid=4000 + seed)
        own += serving[: LINES - len(own) - 9] + end.splitlines()
        return own
    return own + serving[: LINES - len(own)]


def write_files(folder: Path, count: int) -> list[Path]:
    """Write so many small logs, the kinds in turn."""
    paths = []
    for number in range(count):
        path = folder / f"{number:05d}.log"
        lines = small_log(KINDS[number % len(KINDS)], number)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        paths.append(path)
    return paths


def write_launches(path: Path, count: int) -> None:
    """Write one log of so many launches."""
    with path.open("w", encoding="utf-8") as out:
        for number in range(count):
            kind = ("head", "served", "failed")[number % 3]
            out.writelines(f"{line}\n" for line in small_log(kind, number))


def timed(paths: list[Path]) -> tuple[Diagnosis, Result]:
    """Read and judge logs; return the diagnosis, and how long both took, s."""
    import sglogparse

    clocks = (time.perf_counter, time.process_time)
    begin = [clock() for clock in clocks]
    log = sglogparse.read_log(paths)
    read = [clock() for clock in clocks]
    found = log.diagnose()
    end = [clock() for clock in clocks]
    return found, {
        "read": read[0] - begin[0],
        "judged": end[0] - read[0],
        "read, CPU": read[1] - begin[1],
        "judged, CPU": end[1] - read[1],
    }


def child_files(folder: Path) -> Result:
    """Read and judge all files of a folder in one call."""
    import sglogparse

    paths = sorted(folder.glob("[0-9]*.log"))
    sglogparse.read_log(paths[0]).diagnose()
    found, result = timed(paths)
    if len({one.file for one in found.launches}) != len(paths):
        raise SystemExit("not every file was judged")
    return result


def child_command(folder: Path) -> Result:
    """Run `sglogparse diagnose` on the folder, from the start of the process to its end."""
    command = [sys.executable, "-m", "sglogparse", "diagnose", str(folder)]
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode != 1 or "first fault" not in done.stdout:
        raise SystemExit(f"the command failed: {done.stderr[-2000:]}")
    return {"whole": seconds}


def child_launches(folder: Path) -> Result:
    """Read and judge one file of many launches."""
    import sglogparse

    sglogparse.read_log(folder / "00000.log").diagnose()
    return timed([folder / "launches.txt"])[1]


def child_rules(folder: Path) -> Result:
    """Read and judge some files with the rules, and with each rule twice."""
    import sglogparse
    from sglogparse import _verdict

    paths = sorted(folder.glob("[0-9]*.log"))[:40]
    once = _verdict.RULES
    twice = (*once, *(dataclasses.replace(rule, code=f"{rule.code}x") for rule in once))
    taken: dict[str, list[float]] = {"once": [], "twice": []}
    for name, rules in (("once", once), ("twice", twice)) * 5:
        setattr(_verdict, "RULES", rules)  # noqa: B010 - a constant, for once
        begin = time.process_time()
        sglogparse.read_log(paths).diagnose()
        taken[name].append(time.process_time() - begin)
    return {name: min(values) for name, values in taken.items()}


def child_kinds(folder: Path) -> Result:
    """Read some files with the events of the grammar, and with twice as many kinds of event."""
    import sglogparse
    from sglogparse._compiler import EventPlan, Fixed, compiled_plan

    def another(event: EventPlan) -> EventPlan:
        """Return an event with other prefixes: as many candidates are looked up, and none of them fits."""
        wordings = [
            dataclasses.replace(one, prefixes=tuple(f"{text[:4]}~{text[4:]}" for text in one.prefixes))
            for one in event.wordings
        ]
        wordings = [
            dataclasses.replace(one, pattern=f"^~{one.pattern[1:]}") if isinstance(one, Fixed) else one
            for one in wordings
        ]
        return dataclasses.replace(event, name=f"{event.name}_again", wordings=tuple(wordings))

    paths = sorted(folder.glob("[0-9]*.log"))[:200]
    plan, events = compiled_plan(), compiled_plan().events
    double = dataclasses.replace(plan, events=(*events, *map(another, events)))
    taken: dict[str, list[float]] = {"once": [], "twice": []}
    for name, one in (("once", plan), ("twice", double)) * 5:
        for module in ("_stream", "_log", "_condense", "_bare"):
            if hasattr(part := import_module(f"sglogparse.{module}"), "compiled_plan"):
                setattr(part, "compiled_plan", lambda one=one: one)  # noqa: B010 - for once
        begin = time.process_time()
        sglogparse.read_log(paths)
        taken[name].append(time.process_time() - begin)
    return {name: min(values) for name, values in taken.items()}


CHILDREN: dict[str, Callable[[Path], Result]] = {
    "command": child_command,
    "files": child_files,
    "launches": child_launches,
    "rules": child_rules,
    "kinds": child_kinds,
}


def measure(name: str, folder: Path, runs: int) -> dict[str, list[float]]:
    """Run a measurement several times, each in a process of its own."""
    found: dict[str, list[float]] = {}
    for _ in range(runs):
        command = [sys.executable, __file__, "--child", name, "--folder", str(folder)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        for key, value in json.loads(done.stdout).items():
            found.setdefault(key, []).append(value)
    return found


def show(name: str, values: list[float], unit: str) -> None:
    """Print a row: median, least and most."""
    low, high = min(values), max(values)
    print(f"{name:44}{statistics.median(values):10.2f} ({low:.2f}-{high:.2f}) {unit}")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", type=int, default=FILES, help="small files (default: %(default)s)")
    parser.add_argument("--launches", type=int, default=LAUNCHES, help="launches (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(CHILDREN[options.child](options.folder)))
        return
    if options.files < len(KINDS) or options.launches < 1 or options.runs < 1:
        parser.error(f"--files must be at least {len(KINDS)}, --launches and --runs at least 1")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, options.files)
        write_launches(folder / "launches.txt", options.launches)
        found = {one: measure(one, folder, options.runs) for one in CHILDREN}
    whole = [1000 * value / options.files for value in found["command"]["whole"]]
    show(f"diagnose, {options.files:,} files of {LINES} lines", whole, "ms for each of the files")
    for kind, count in (("files", options.files), ("launches", options.launches)):
        each = {name: [1000 * value / count for value in values] for name, values in found[kind].items()}
        whole = [read + judged for read, judged in zip(each["read"], each["judged"], strict=True)]
        show(f"{count:,} {kind} of {LINES} lines, one process", whole, f"ms for each of the {kind}")
        for name, values in each.items():
            show(f"    {name}", values, "ms")
    for what, work in (("rules", "reading and judging"), ("kinds", "reading")):
        once, twice = found[what]["once"], found[what]["twice"]
        more = [100 * (b / a - 1) for a, b in zip(once, twice, strict=True)]
        show(f"twice the {what}, CPU", more, f"% more for {work}")


if __name__ == "__main__":
    main()
