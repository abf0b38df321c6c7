"""Measure what a file, a launch and a rule cost: many small logs, many launches, twice the rules.

    files      5,000 files of 200 lines in one call, four kinds in turn, each file of its own seed
                 head      the start of a server, cut off before it is ready
                 served    the whole start and some serving
                 middle    serving, without the start
                 failed    the start, then a scheduler's traceback and the end of the server
    launches   500 launches of 200 lines in one file
    rules      one log of the first kind of each, judged with the rules once and twice

Each measurement is a fresh process, several times; the table shows medians. Imports are not in the numbers.

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
from itertools import islice
from pathlib import Path
from typing import Any

import generate

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


def child_files(folder: Path) -> Result:
    """Read and judge all files of a folder in one call."""
    import sglogparse

    paths = sorted(folder.glob("[0-9]*.log"))
    sglogparse.read_log(paths[0]).diagnose()
    begin = time.perf_counter()
    log = sglogparse.read_log(paths)
    read = time.perf_counter()
    found = log.diagnose()
    end = time.perf_counter()
    if len({one.file for one in found.launches}) != len(paths):
        raise SystemExit("not every file was judged")
    return {"read": read - begin, "judged": end - read, "launches": float(len(found.launches))}


def child_launches(folder: Path) -> Result:
    """Read and judge one file of many launches."""
    import sglogparse

    sglogparse.read_log(folder / "00000.log").diagnose()
    begin = time.perf_counter()
    log = sglogparse.read_log(folder / "launches.txt")
    read = time.perf_counter()
    found = log.diagnose()
    end = time.perf_counter()
    return {"read": read - begin, "judged": end - read, "launches": float(len(found.launches))}


def child_rules(folder: Path) -> Result:
    """Read and judge some files with the rules, and with each rule twice."""
    import sglogparse
    from sglogparse import _verdict

    paths = sorted(folder.glob("[0-9]*.log"))[:40]
    once = _verdict.RULES
    twice = (*once, *(dataclasses.replace(rule, code=f"{rule.code}x") for rule in once))
    result: Result = {}
    for name, rules in (("once", once), ("twice", twice)) * 2:
        setattr(_verdict, "RULES", rules)  # noqa: B010 - a constant, for once
        begin = time.perf_counter()
        sglogparse.read_log(paths).diagnose()
        result[name] = time.perf_counter() - begin
    return result


CHILDREN: dict[str, Callable[[Path], Result]] = {
    "files": child_files,
    "launches": child_launches,
    "rules": child_rules,
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
        found: dict[str, Any] = {one: measure(one, folder, options.runs) for one in CHILDREN}
    for kind, count in (("files", options.files), ("launches", options.launches)):
        one = found[kind]
        each = [
            1000 * (read + judged) / count for read, judged in zip(one["read"], one["judged"], strict=True)
        ]
        show(f"{count:,} {kind} of {LINES} lines", each, f"ms for each of the {kind}")
        show("    reading", [1000 * value / count for value in one["read"]], "ms")
        show("    judging", [1000 * value / count for value in one["judged"]], "ms")
    once, twice = found["rules"]["once"], found["rules"]["twice"]
    more = [100 * (b / a - 1) for a, b in zip(once, twice, strict=True)]
    show("twice the rules", more, "% more for reading and judging")


if __name__ == "__main__":
    main()
