"""Measure `sglogparse diagnose` on logs of growing size: time a line and peak memory; beside it, lnav.

    python bench/large.py                              10 k to 20 M lines; five runs, one of the largest
    python bench/large.py --sizes 2060000 --runs 5     one size

Each measurement is a fresh process; they take turns. Logs are made by bench/generate.py (about 160 bytes a
line) in a temporary folder. lnav is measured where it is installed: it loads and counts the same lines.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZES = (10_000, 100_000, 1_000_000, 2_060_000, 6_500_000, 19_500_000)
RUNS = 5
#: Logs of more lines than this are read once.
_ONCE = 10_000_000
_GIB = 1 << 30
_READ = "import sys, sglogparse; sglogparse.read_log(sys.argv[1])"


def timed(command: list[str]) -> tuple[float, float, float]:
    """Return wall time (s), CPU time (s) and peak memory (MB) of a command."""
    begun = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    took = time.perf_counter() - begun
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1, 3):
        raise SystemExit(f"{command[0]} failed: exit code {child.returncode}")
    return took, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def commands(log: Path, *, typed: bool) -> dict[str, list[str]]:
    """Return what is measured on a log, by name."""
    found = {"diagnose": [sys.executable, "-m", "sglogparse", "diagnose", str(log)]}
    if typed:
        found["typed frames (read_log)"] = [sys.executable, "-c", _READ, str(log)]
        lnav = shutil.which("lnav")
        if lnav:
            found["lnav"] = [lnav, "-n", "-N", "-c", ";SELECT count(*) FROM all_logs", str(log)]
    return found


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="LINES")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument(
        "--typed", type=int, default=2_060_000, metavar="LINES", help="size of the comparison"
    )
    chosen = parser.parse_args()
    print(
        f"{'lines':>10} {'GiB':>6} {'what':<24} {'s (min-max)':>20} {'CPU s':>6} {'us/line':>8} {'RSS MB':>7}"
    )
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        generate = [sys.executable, str(Path(__file__).with_name("generate.py"))]
        for lines in chosen.sizes:
            subprocess.run(
                [*generate, str(log), "--lines", str(lines)], check=True, stdout=subprocess.DEVNULL
            )
            size = log.stat().st_size / _GIB
            log.read_bytes() if size < 1 else None  # into the page cache
            runs = 1 if lines > _ONCE else chosen.runs
            what = commands(log, typed=lines == chosen.typed)
            taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in what}
            for _ in range(runs):
                for name, command in what.items():
                    taken[name].append(timed(command))
            for name, found in taken.items():
                walls, cpus, peaks = zip(*found, strict=True)
                median = statistics.median(walls)
                spread = f"{median:.2f} ({min(walls):.2f}-{max(walls):.2f})"
                print(
                    f"{lines:>10,} {size:>6.2f} {name:<24} {spread:>20} {statistics.median(cpus):>6.1f} "
                    f"{1e6 * median / lines:>8.2f} {max(peaks):>7,.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
