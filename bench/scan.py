"""What a lazy query of a log costs against reading all of it, and what a cache saves.

    python bench/scan.py --log LOG [--runs 5]

Each measurement is a process of its own: seconds, CPU seconds and peak memory are its own, with the import of
polars and of the package. `import` is what is left when nothing is read. The last column is the ratio of the
seconds to those of read_log. Cold is a cache without an entry, warm one with.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

QUERY = '.decode_batch.filter(pl.col("tp") == 0).select("gen_throughput")'
#: what is measured -> its program; LOG and CACHE are names of paths
PROGRAMS = {
    "import": "scan_log(LOG)",
    "read_log, then one rank's column": f"read_log(LOG){QUERY}",
    "scan_log, one rank's column": f"scan_log(LOG){QUERY}.collect()",
    "scan_log, one column": 'scan_log(LOG).decode_batch.select("gen_throughput").collect()',
    "scan_log, mean of one column": 'scan_log(LOG).decode_batch.select("gen_throughput").mean().collect()',
    "scan_log, all columns": "scan_log(LOG).decode_batch.collect()",
    "scan_log, a rare kind": "scan_log(LOG).kv_cache.collect()",
    "scan_log, first 10 rows": "scan_log(LOG).decode_batch.head(10).collect()",
    "cache, cold": f"scan_log(LOG, cache=CACHE / 'none'){QUERY}.collect()",
    "cache, warm": f"scan_log(LOG, cache=CACHE / 'full'){QUERY}.collect()",
    "cache, warm, count of lines": "scan_log(LOG, cache=CACHE / 'full').lines.select(pl.len()).collect()",
}
#: what runs a program, and tells what it has cost
RUNNER = """
import json, resource, sys, time
from pathlib import Path
begin = time.perf_counter()
import polars as pl
from sglogparse import read_log, scan_log
LOG, CACHE = sys.argv[2], Path(sys.argv[3])
found = eval(sys.argv[1])
usage = resource.getrusage(resource.RUSAGE_SELF)
height = found.height if isinstance(found, pl.DataFrame) else None
seconds = time.perf_counter() - begin
print(json.dumps([seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3, height]))
"""


def main() -> None:
    """Measure all programs in turn, as often as is asked for, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--log", required=True, type=Path)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure("scan_log(LOG, cache=CACHE / 'full').lines.head(1).collect()", arguments.log, Path(folder))
        found: dict[str, list[list[float]]] = {name: [] for name in PROGRAMS}
        for run in range(arguments.runs):
            for name, program in PROGRAMS.items():
                own = program.replace("'none'", f"'none-{run}'")
                found[name].append(measure(own, arguments.log, Path(folder)))
        size = sum(path.stat().st_size for path in (Path(folder) / "full").rglob("*.parquet"))
    whole = statistics.median(one[0] for one in found["read_log, then one rank's column"])
    print(f"{'':34}    rows  seconds (min-max)       CPU s   RSS MB   ratio")
    for name, runs in found.items():
        seconds = [one[0] for one in runs]
        median, spread = statistics.median(seconds), f"({min(seconds):.2f}-{max(seconds):.2f})"
        cpu, memory = (statistics.median(one[index] for one in runs) for index in (1, 2))
        rows = "" if runs[0][3] is None else f"{runs[0][3]:,}"
        print(
            f"{name:32}{rows:>10} {median:8.2f} {spread:14} {cpu:8.2f} {memory:8,.0f} {median / whole:7.2f}"
        )
    print(f"the log: {arguments.log.stat().st_size:,} bytes; its entry in a cache: {size:,} bytes")


def measure(program: str, log: Path, cache: Path) -> list[float]:
    """Run a program in a process of its own; return seconds, CPU seconds, peak memory (MB) and rows."""
    command = [sys.executable, "-c", RUNNER, program, str(log), str(cache)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    told: list[float] = json.loads(done.stdout)
    return told


if __name__ == "__main__":
    main()
