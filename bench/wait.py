"""Measure how soon `sglogparse wait` reacts to the line that decides, and what it costs meanwhile.

    this process --+-- writer: another process that writes a start, then what decides line by line, and says
                   |           when it has written the last one (CLOCK_MONOTONIC, which processes share)
                   +-- sglogparse wait: its end is the reaction

Each run is a new log, a new writer and a new `wait`. The start has been read when the deciding line comes;
how long the log is by then can be chosen. The idle cost is the user and system time of a `wait` on a log that
does not grow, over ten seconds, when it has read what is there. Where the machine does other work too, the
reaction is that of the other work: its load is printed.

    python bench/wait.py                          ten runs of each kind, a log of 1,000 lines
    python bench/wait.py --runs 20 --lines 5000
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

RANKS = 8
#: How long the writer waits from one of its last lines to the next, s.
PACE = 0.02
#: How long `wait` is given to read the start before the deciding line is written, s.
LEAD = 3.0
IDLE = 10.0
STAMP = "2026-01-05 10:{:02}:{:02}"


def start(lines: int) -> Iterator[str]:
    """Yield the lines of a start of eight ranks, filled up with records to a number of lines."""
    yield f"[{STAMP.format(0, 0)}] server_args=ServerArgs(model_path='/models/m', tp_size={RANKS})"
    steps = (
        "Init torch distributed begin.",
        "Init torch distributed ends. mem usage=1.20 GB",
        "Load weight begin. avail mem=77.40 GB",
        "Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=60.10 GB, mem usage=17.3 GB",
    )
    for number, step in enumerate(steps):
        for rank in range(RANKS):
            yield f"[{STAMP.format(number, rank)} TP{rank}] {step}"
    for number in range(lines - RANKS * len(steps) - 1):
        stamp = STAMP.format(5 + number // 60 % 50, number % 60)
        yield f"[{stamp} TP{number % RANKS}] Step {number} of the set-up"


def ready() -> list[str]:
    """Return the last lines of a start that succeeds."""
    stamp = STAMP.format(58, 1)
    return [
        f"[{stamp}] INFO:     Application startup complete.",
        f"[{stamp}] INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)",
        f'[{stamp}] INFO:     127.0.0.1:40000 - "GET /get_model_info HTTP/1.1" 200 OK',
        f"[{stamp}] The server is fired up and ready to roll!",
    ]


def crash() -> list[str]:
    """Return the last lines of a start of which every rank dies."""
    stamp = STAMP.format(58, 2)
    out = []
    for rank in range(RANKS):
        out += [
            f"[{stamp} TP{rank}] Scheduler hit an exception: Traceback (most recent call last):",
            '  File "/opt/sglang/srt/managers/scheduler.py", line 2210, in run_scheduler_process',
            "    scheduler = Scheduler(server_args, port_args, gpu_id, tp_rank, dp_rank)",
            '  File "/opt/sglang/srt/model_executor/model_runner.py", line 880, in init_memory_pool',
            "    raise RuntimeError(",
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
            "",
        ]
    return [*out, f"[{stamp}] Received sigquit from a child process. It usually means the child failed."]


def write(path: Path, lines: int, kind: str) -> None:
    """Write a log as a server does, and print when its last line was written, s."""
    with path.open("a", encoding="utf-8", buffering=1) as log:
        for line in start(lines):
            log.write(f"{line}\n")
        time.sleep(LEAD)
        for line in ready() if kind == "ready" else crash():
            time.sleep(PACE)
            log.write(f"{line}\n")
        print(time.monotonic(), flush=True)


def reaction(folder: Path, number: int, lines: int, kind: str) -> float:
    """Return how long after the deciding line a `wait` has ended, s."""
    path = folder / f"{kind}{number}.log"
    waiting = subprocess.Popen(
        [sys.executable, "-m", "sglogparse", "wait", str(path), "--timeout", "120"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    writer = subprocess.Popen(
        [sys.executable, __file__, "--write", str(path), "--kind", kind, "--lines", str(lines)],
        stdout=subprocess.PIPE,
        text=True,
    )
    said, _ = waiting.communicate()
    ended = time.monotonic()
    written = float(writer.communicate()[0])
    expected = 0 if kind == "ready" else 1
    if waiting.returncode != expected or not said.startswith("ready" if kind == "ready" else "crashed"):
        raise SystemExit(f"wait ended with {waiting.returncode}, not {expected}: {said[:200]}")
    return ended - written


def idle(folder: Path, lines: int) -> float:
    """Return the share of one core that a `wait` takes while its log does not grow."""
    path = folder / "idle.log"
    path.write_text("".join(f"{line}\n" for line in start(lines)), encoding="utf-8")
    words = ["wait", str(path), "--timeout", "120", "--pid", str(os.getpid())]
    waiting = subprocess.Popen(
        [sys.executable, "-m", "sglogparse", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(LEAD)
    before = spent(waiting.pid)
    time.sleep(IDLE)
    share = (spent(waiting.pid) - before) / IDLE
    waiting.terminate()
    waiting.wait()
    return share


def spent(pid: int) -> float:
    """Return the user and system time that a process has taken, s."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--kind", choices=["ready", "crash"], default="ready", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.write is not None:
        write(args.write, args.lines, args.kind)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        load = os.getloadavg()[0]
        print(f"{args.runs} runs each, a log of {args.lines} lines, {os.cpu_count()} cores, load {load:.1f}")
        print(f"{'':24}{'median':>10}{'max':>10}")
        for kind in ("ready", "crash"):
            times = [1000 * reaction(folder, number, args.lines, kind) for number in range(args.runs)]
            print(f"{f'reaction, {kind}':24}{statistics.median(times):7.0f} ms{max(times):7.0f} ms")
        shares = [100 * idle(folder, args.lines) for _ in range(3)]
        print(f"{'idle, share of a core':24}{statistics.median(shares):8.2f} %{max(shares):8.2f} %")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{'peak memory':24}{peak:7.0f} MiB")


if __name__ == "__main__":
    main()
