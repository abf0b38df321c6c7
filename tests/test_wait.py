"""Waiting for a server and watching it: what decides, what does not, and how both end.

`Wait` and `Watch` are driven look by look with a clock of the test's own; the command line is tested with real
processes that write, die and get signals.
"""

from __future__ import annotations

import http.server
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from click.testing import CliRunner

from sglogparse import SourceError, read_log
from sglogparse._cli import main
from sglogparse._follow import Block, Follower, Tail
from sglogparse._phases import read_phases
from sglogparse._progress import BEFORE, Progress
from sglogparse._wait import EXIT_CODES, End, Probe, Process, Wait, lag_words, rehearse
from sglogparse._watch import Watch
from sglogparse.render.github import render_github as diagnosis_for_github
from sglogparse.render.text import render_text
from sglogparse.render.wait import (
    masked_fate,
    progress_line,
    progress_view,
    render_fate,
    render_github,
    render_json,
)
from sglogparse.render.watch import load_line, load_view, told_line

FIXTURES = Path(__file__).parent / "fixtures"

ARGUMENTS = "[2026-01-01 00:00:00] server_args=ServerArgs(model_path='/m', tp_size=2)"
READY = "[2026-01-01 00:05:00] The server is fired up and ready to roll!"
UP = "[2026-01-01 00:04:50] INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)"
SIGQUIT = "[2026-01-01 00:01:02] Received sigquit from a child process. It usually means the child failed."
DIED = [
    "[2026-01-01 00:01:01 TP0] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/opt/sglang/srt/managers/scheduler.py", line 2210, in run_scheduler_process',
    "    scheduler = Scheduler(server_args, port_args, gpu_id)",
    '  File "/opt/sglang/srt/model_executor/model_runner.py", line 880, in init_memory_pool',
    "    raise RuntimeError(",
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    "",
]
#: An exception that is caught and printed: whoever caught it goes on.
CAUGHT = [
    "Traceback (most recent call last):",
    '  File "/opt/sglang/srt/layers/quantization/utils.py", line 12, in try_kernel',
    "    import fast_kernel",
    "ImportError: libfast.so: cannot open shared object file",
]
#: One that leaves the program.
UNCAUGHT = [
    "Traceback (most recent call last):",
    '  File "/opt/sglang/launch_server.py", line 14, in <module>',
    "    server_args = prepare_server_args(sys.argv[1:])",
    '  File "/opt/sglang/srt/server_args.py", line 900, in check_server_args',
    "    assert self.tp_size % self.nnodes == 0",
    "AssertionError: tp_size must be divisible by number of nodes",
]


def begin(rank: int, at: int = 1) -> list[str]:
    """Return the first lines of a rank, up to the weights."""
    return [
        f"[2026-01-01 00:00:{at:02} TP{rank}] Init torch distributed begin.",
        f"[2026-01-01 00:00:{at + 3:02} TP{rank}] Init torch distributed ends. mem usage=0.30 GB",
        f"[2026-01-01 00:00:{at + 4:02} TP{rank}] Load weight begin. avail mem=70.00 GB",
    ]


def weights_end(rank: int, minute: int = 1) -> str:
    return (
        f"[2026-01-01 00:{minute:02}:05 TP{rank}] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, "
        "avail mem=60.00 GB, mem usage=10.00 GB."
    )


def decode(
    rank: str, second: int, running: int = 4, speed: float = 100.0, usage: float = 0.1, queue: int = 0
) -> str:
    return (
        f"[2026-01-01 00:06:{second:02}{rank}] Decode batch. #running-req: {running}, #token: 90, "
        f"token usage: {usage:.2f}, cuda graph: True, gen throughput (token/s): {speed:.2f}, #queue-req: {queue}"
    )


class Clock:
    """A clock that goes as the test says."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Case:
    """A log that the test writes, and somebody who looks at it."""

    def __init__(self, path: Path) -> None:
        self.path, self.clock = path, Clock()

    def put(self, *lines: str) -> None:
        with self.path.open("a", encoding="utf-8") as log:
            log.writelines(f"{line}\n" for line in lines)

    def wait(self, timeout: float = 900, **more) -> Wait:
        return Wait(str(self.path), timeout, clock=self.clock, **more)

    def look(self, waiting: Wait, seconds: float = 0.0, step: float = 0.05):
        """Look until the fate is known, for some seconds of the clock."""
        end = self.clock.now + seconds
        while True:
            fate = waiting.step()
            if fate is not None or (self.clock.now >= end and not waiting.follower.tail.behind):
                return fate
            self.clock.now = min(end, self.clock.now + step)


@pytest.fixture
def case(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Case(Path("server.log"))


# ------------------------------------------------------------------ ready


def test_ready_by_its_line(case):
    waiting = case.wait()
    assert case.look(waiting, 1) is None  # the log does not exist yet
    case.put(ARGUMENTS, *begin(0), *begin(1))
    assert case.look(waiting, 100) is None
    case.put(UP, READY)
    fate = waiting.step()
    assert (fate.end, fate.exit_code, fate.summary) == (End.READY, 0, f"{case.path}:9 says so")
    assert fate.diagnosis is None
    assert render_fate(fate) == "ready after 1 min 41 s: server.log:9 says so"


def test_work_is_readiness_in_a_log_that_begins_in_the_middle(case):
    case.put(decode(" TP0", 1), decode(" TP0", 2))
    fate = case.look(case.wait(), 1)
    assert (fate.end, fate.summary) == (End.READY, f"no line says so, but {case.path}:1 shows it at work")


def test_a_batch_of_the_warm_up_is_not_readiness(case):
    case.put(ARGUMENTS, *begin(0))
    waiting = case.wait()
    case.put(
        "[2026-01-01 00:04:55 TP0] Prefill batch. #new-seq: 1, #new-token: 6, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0"
    )
    assert case.look(waiting, 20) is None
    assert case.look(waiting, 20).end is End.READY  # but not for ever


def test_a_node_that_prints_no_ready_line_is_ready_when_it_works(case):
    case.put(ARGUMENTS.replace("tp_size=2", "tp_size=2, nnodes=2, node_rank=1"), *begin(0))
    waiting = case.wait()
    assert case.look(waiting, 60) is None
    case.put(decode(" TP0", 1))
    assert case.look(waiting, 1).end is End.READY


def test_the_newest_launch_counts(case):
    case.put(ARGUMENTS, *begin(0), READY, *DIED, SIGQUIT)
    assert case.look(case.wait(), 1).end is End.CRASHED
    case.put(ARGUMENTS, *begin(0))
    waiting = case.wait()
    assert case.look(waiting, 100) is None
    case.put(READY)
    assert case.look(waiting, 1).end is End.READY


@pytest.mark.parametrize("old", [[ARGUMENTS, *begin(0), READY], [ARGUMENTS, *begin(0)], []])
@pytest.mark.parametrize("at_once", [True, False])
def test_batches_of_an_older_launch_show_nothing_of_the_newest(case, old, at_once):
    case.put(*old, decode(" TP0", 1), decode(" TP0", 2))
    started = [line.replace("2026-01-01", "2026-01-02") for line in (ARGUMENTS, *begin(0))]
    waiting = case.wait()
    if not at_once:
        waiting._take(waiting.follower.take(waiting.follower.tail.read()), case.clock.now)
    case.put(*started)
    assert case.look(waiting, 600) is None
    assert waiting.progress.works is None
    case.put(decode(" TP0", 3).replace("2026-01-01", "2026-01-02"))
    assert case.look(waiting, 20) is None
    first = len(old) + 2 + len(started) + 1
    assert case.look(waiting, 20).summary == f"no line says so, but server.log:{first} shows it at work"


def test_the_clock_of_a_new_start_is_its_own(case):
    late = [line.replace(" 00:", " 03:") for line in (*begin(0), DIED[0], SIGQUIT)]
    case.put(ARGUMENTS, *late, ARGUMENTS, *begin(0), *begin(1), weights_end(0))
    waiting = case.wait()
    assert case.look(waiting, 1) is None
    assert lag_words(waiting.progress.lag()).startswith("TP1 is behind, in weights, for 1 min 01 s;")


def test_a_router_is_ready_by_its_own_line(case):
    case.put(
        "2026-01-01 00:00:00  INFO sgl_model_gateway: src/server.rs:10: Starting router on 0.0.0.0:30000"
    )
    waiting = case.wait()
    assert case.look(waiting, 1) is None
    case.put(
        '2026-01-01 00:00:01  INFO sgl_model_gateway: src/server.rs:20: Router ready | workers: ["http://a:1"]'
    )
    fate = case.look(waiting, 1)
    assert fate is None or fate.end is End.READY


# ------------------------------------------------------------------ crashed


def test_a_crash_is_known_when_the_parent_says_so(case):
    case.put(ARGUMENTS, *begin(0))
    waiting = case.wait()
    assert case.look(waiting, 10) is None
    case.put(*DIED, SIGQUIT)
    fate = case.look(waiting, 0.2)
    assert (fate.end, fate.exit_code) == (End.CRASHED, 1)
    assert render_fate(fate, 80) == render_text(read_log(case.path).diagnose(), 80)
    assert "Not enough memory" in render_fate(fate)


def test_the_lines_that_follow_at_once_are_in_the_diagnosis(case):
    case.put(ARGUMENTS, *begin(0), *begin(1))
    waiting = case.wait()
    case.look(waiting, 1)
    case.put(SIGQUIT)
    assert waiting.step() is None
    case.put(*DIED)
    fate = case.look(waiting, 0.2)
    assert fate.diagnosis.root.message.startswith("RuntimeError: Not enough memory")


def test_a_scheduler_that_reports_its_exception_has_died(case):
    case.put(ARGUMENTS, *begin(0))
    waiting = case.wait()
    case.look(waiting, 1)
    case.put(*DIED)
    assert case.look(waiting, 1).end is End.CRASHED


def test_an_exception_that_leaves_the_program_ends_it(case):
    waiting = case.wait()
    case.look(waiting, 1)
    case.put(*UNCAUGHT)
    assert case.look(waiting, 1).end is End.CRASHED


def test_an_exception_of_a_client_ends_nothing(case):
    case.put(ARGUMENTS, *begin(0))
    waiting = case.wait()
    case.look(waiting, 1)
    case.put(
        "Traceback (most recent call last):",
        '  File "<frozen runpy>", line 198, in _run_module_as_main',
        '  File "<frozen runpy>", line 88, in _run_code',
        '  File "/opt/python/sglang/bench_serving.py", line 2900, in <module>',
        "    run_benchmark(args)",
        '  File "/opt/python/sglang/bench_serving.py", line 2300, in run_benchmark',
        "    response = requests.get(model_url)",
        "requests.exceptions.ConnectionError: HTTPConnectionPool(host='127.0.0.1', port=30000): Max retries "
        "exceeded with url: /v1/models",
    )
    assert case.look(waiting, 800) is None
    case.put(READY)
    assert case.look(waiting, 1).end is End.READY


def test_an_exception_that_was_caught_ends_nothing(case):
    case.put(ARGUMENTS, *begin(0))
    waiting = case.wait()
    case.look(waiting, 1)
    case.put(*CAUGHT)
    assert case.look(waiting, 5) is None
    case.put(weights_end(0))
    assert case.look(waiting, 600) is None
    case.put(READY)
    assert case.look(waiting, 1).end is End.READY


def test_an_exception_without_life_behind_it_is_the_end(case):
    case.put(ARGUMENTS, *begin(0))
    waiting = case.wait()
    case.look(waiting, 1)
    case.put(*CAUGHT)
    assert case.look(waiting, 270) is None  # weights can take long
    with case.path.open("a") as log:
        log.write("Loading safetensors checkpoint shards:  45% Completed")
    assert case.look(waiting, 290) is None  # a bar is drawn: that is life
    assert case.look(waiting, 20).end is End.CRASHED


def test_before_and_after_the_weights_less_patience_is_needed(case):
    case.put(ARGUMENTS)
    waiting = case.wait()
    case.look(waiting, 1)
    case.put(*CAUGHT)
    assert case.look(waiting, 50) is None
    assert case.look(waiting, 20).end is End.CRASHED


@pytest.mark.parametrize(
    "line",
    ["node1:88:88 [0] NCCL INFO Channel 00/32 : 0 1", "Fetching shard 3", "pip: all is there already"],
)
def test_lines_without_a_head_put_the_end_off(case, line):
    case.put(ARGUMENTS)
    waiting = case.wait()
    case.look(waiting, 1)
    case.put(*CAUGHT)
    for _ in range(10):
        assert case.look(waiting, 50) is None
        case.put(line)
    assert case.look(waiting, 50) is None
    assert case.look(waiting, 20).end is End.CRASHED


def test_the_answers_of_the_http_process_put_no_end_off(case):
    case.put(ARGUMENTS)
    waiting = case.wait()
    case.look(waiting, 1)
    case.put(*CAUGHT)
    assert case.look(waiting, 50) is None
    case.put('[2026-01-01 00:06:01] INFO:     10.0.0.9:1000 - "GET /health HTTP/1.1" 503 Service Unavailable')
    assert case.look(waiting, 20).end is End.CRASHED


def test_an_exception_ends_nothing_while_the_process_lives(case):
    case.put(ARGUMENTS, *CAUGHT)
    waiting = case.wait(timeout=600, process=Process(os.getpid()))
    fate = case.look(waiting, 700, step=1)
    assert (fate.end, round(fate.waited)) == (End.TIMED_OUT, 600)
    case.put(READY)
    assert case.look(case.wait(process=Process(os.getpid())), 1).end is End.READY


# ------------------------------------------------------------------ gone, by what others print

GONE = [
    "Killed",
    "Terminated",
    "run.sh: line 3:  4711 Killed                  python -m sglang.launch_server --model-path /m",
    '/opt/start.sh: line 12: 77 Killed "${COMMAND[@]}"',
    "OOMKilled",
    "      Reason:       OOMKilled",
    "Memory cgroup out of memory: Killed process 4711 (python3) total-vm:1kB",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM Killed.",
    "slurmstepd: error: *** STEP 12.0 ON node1 CANCELLED AT 2026-01-01T00:02:00 DUE TO TIME LIMIT ***",
    "srun: error: node1: task 0: Exited with exit code 1",
    "srun: error: node1: tasks 0-7: Out Of Memory",
    "launch_server.py: error: the following arguments are required: --model-path/--model",
    "launch_server.py: error: unrecognized arguments: --tpp 2",
    "/usr/bin/python3: No module named sglang.launch_server",
    "/usr/bin/python3: No module named sglang",
    "/usr/bin/python: Error while finding module specification for 'sglang.launch_server' "
    "(ModuleNotFoundError: No module named 'sglang')",
    "bash: line 1: python: command not found",
]


@pytest.mark.parametrize("line", GONE)
@pytest.mark.parametrize("before", [[ARGUMENTS, *begin(0)], []], ids=["a start", "nothing"])
def test_what_others_print_when_a_process_is_gone(case, line, before):
    case.put(*before)
    waiting = case.wait()
    case.look(waiting, 5)
    case.put(line)
    fate = case.look(waiting, 12)
    assert fate.exit_code == 1
    quoted = " ".join(line.split())
    if fate.end is End.GONE:
        assert fate.summary == f"server.log:{len(before) + 1} says so: {quoted}"
    else:  # the rules know it as the end
        assert (fate.end, fate.diagnosis.root.line) == (End.CRASHED, len(before) + 1)


@pytest.mark.parametrize(
    "line",
    [
        "run.sh: line 3:  4711 Killed                  python download.py",
        "/bin/sh: line 1: 12345 Aborted                 (core dumped) nvidia-smi topo -m",
        "[2026-01-01 00:01:00] Receive: obj=GenerateReqInput(text='Killed')",
        "[2026-01-01 00:01:00] OOMKilled is what a pod is called that needs more memory",
        "/usr/bin/python3: No module named sglang.bench_serving",
        "/usr/bin/python3: No module named pytest",
        "bench_serving.py: error: unrecognized arguments: --fast",
        "srun: error: node1: task 0: Exited with exit code 0",
        "Killed by death is a song",
    ],
)
def test_what_ends_no_server(case, line):
    case.put(ARGUMENTS, *begin(0))
    waiting = case.wait()
    case.look(waiting, 5)
    case.put(line)
    assert case.look(waiting, 500, step=0.5) is None


def test_a_helper_that_is_killed_ends_nothing_while_the_server_goes_on(case):
    case.put(ARGUMENTS, *begin(0))
    waiting = case.wait(timeout=300)
    case.look(waiting, 1)
    case.put("Killed")
    assert case.look(waiting, 5) is None
    case.put(weights_end(0))
    fate = case.look(waiting, 400)
    assert fate.end is End.TIMED_OUT
    assert "line 5 speaks of an end: Killed" in fate.notes


@pytest.mark.parametrize("more", [[], [decode(" TP0", 1)]])
def test_a_server_that_was_ready_and_is_gone(case, more):
    case.put(ARGUMENTS, *begin(0), READY, *more, "Killed")
    fate = case.look(case.wait(), 15)
    assert fate.exit_code == 1
    case.put(ARGUMENTS, *begin(0))
    waiting = case.wait(timeout=60)
    fate = case.look(waiting, 61)
    assert (fate.end, [note for note in fate.notes if "speaks" in note]) == (End.TIMED_OUT, [])


@pytest.mark.parametrize("at_once", [True, False])
def test_a_start_behind_one_that_is_gone_is_another(case, at_once):
    case.put(ARGUMENTS, *begin(0), *begin(1), weights_end(0), "Killed")
    waiting = case.wait(timeout=60)
    if not at_once:
        assert case.look(waiting, 5) is None
    case.put(ARGUMENTS, *begin(1))
    fate = case.look(waiting, 70)
    assert (fate.end, fate.lag) == (End.TIMED_OUT, None)
    assert list(waiting.progress.ranks) == ["TP1"]
    assert not [note for note in fate.notes if "speaks" in note]


def test_a_helper_that_is_gone_does_not_make_another_start_of_a_rank(case):
    case.put(ARGUMENTS, *begin(0), "Killed", *begin(1))
    waiting = case.wait()
    assert case.look(waiting, 60) is None
    assert list(waiting.progress.ranks) == ["TP0", "TP1"]


def test_a_line_of_an_end_is_outweighed_by_a_process_that_lives(case):
    case.put(ARGUMENTS, *begin(0), "srun: error: node1: task 1: Exited with exit code 1")
    fate = case.look(case.wait(timeout=60, process=Process(os.getpid())), 61)
    assert fate.end is End.TIMED_OUT
    assert "line 5 speaks of an end: srun: error: node1: task 1: Exited with exit code 1" in fate.notes


def test_a_stream_that_ends_with_the_line_of_an_end(case):
    waiting = case.wait()
    case.put(ARGUMENTS, *begin(0), "srun: error: node1: task 0: Exited with exit code 1")
    waiting._take(waiting.follower.take(waiting.follower.tail.read()), case.clock.now)
    waiting.follower.tail.ended = True
    assert waiting.step().end is End.GONE


@pytest.mark.parametrize("process", [False, True])
def test_a_file_that_never_came(case, process):
    child = subprocess.Popen(["true"])
    known = Process(child.pid) if process else None
    child.wait()
    fate = case.look(case.wait(timeout=20, process=known), 30)
    assert fate.diagnosis is None
    said = f"process {child.pid} is gone, and server.log never came"
    if process:
        assert (fate.end, fate.summary) == (End.GONE, said)
    else:
        assert render_fate(fate) == "timed out after 20 s: server.log never came: there is no such file"


def test_a_warning_is_no_end(case):
    case.put(ARGUMENTS, *begin(0))
    waiting = case.wait()
    case.put(
        "[2026-01-01 00:00:30] Ignore import error when loading sglang.srt.models.x: No module named 'x'"
    )
    case.put("[2026-01-01 00:00:31 TP0] WARNING: a fatal error was avoided")
    assert case.look(waiting, 800) is None


def test_a_request_that_fails_ends_nothing(case):
    case.put(*CAUGHT[:1], '  File "/opt/sglang/srt/entrypoints/openai/serving_chat.py", line 8, in handle')
    case.put("    raise ValueError(text)", "ValueError: the prompt is too long")
    case.put(
        '[2026-01-01 00:06:01] INFO:     10.0.0.9:1000 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request'
    )
    case.put(decode(" TP0", 2))
    assert case.look(case.wait(), 20).end is End.READY


def test_a_server_that_is_stopped_is_not_ready(case):
    case.put(ARGUMENTS, *begin(0))
    waiting = case.wait()
    case.look(waiting, 1)
    case.put(
        "[2026-01-01 00:02:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
    )
    fate = case.look(waiting, 5)
    assert (fate.end, fate.exit_code) == (End.STOPPED, 1)
    assert render_fate(fate).startswith("stopped: an orderly shutdown was asked for")


def test_what_a_rotation_leaves_behind_is_judged_before_the_new_file(case):
    case.put(ARGUMENTS, *begin(0))
    waiting = case.wait()
    case.look(waiting, 1)
    case.put(*DIED, SIGQUIT)
    case.path.rename(case.path.with_suffix(".1"))
    case.put(ARGUMENTS)
    fate = case.look(waiting, 0.2)
    assert fate.end is End.CRASHED
    assert fate.diagnosis.root.line == 10


def test_a_log_that_is_written_anew_is_a_new_start(case):
    case.put(ARGUMENTS, *begin(0), *begin(1))
    waiting = case.wait()
    case.look(waiting, 1)
    case.path.write_text(f"{ARGUMENTS}\n")
    assert case.look(waiting, 1) is None
    assert waiting.progress.ranks == {}
    case.put(READY)
    assert case.look(waiting, 1).summary == "server.log:2 says so"


def test_a_line_that_was_there_before_is_said_to_be_old(case):
    case.put(ARGUMENTS, *begin(0), READY)
    assert case.look(case.wait(), 1).summary == "server.log:5 says so, and did when waiting began"


# ------------------------------------------------------------------ hung, timed out


def test_a_watchdog_that_fires_is_a_hang(case):
    case.put(ARGUMENTS, *begin(0), *begin(1), weights_end(0))
    waiting = case.wait()
    case.look(waiting, 1)
    case.put("[2026-01-01 00:09:00 TP1] Watchdog timeout (self.watchdog_timeout=300)")
    fate = case.look(waiting, 5)
    assert (fate.end, fate.exit_code) == (End.HUNG, 3)
    assert fate.lag.ranks == ("TP1",)
    shown = render_fate(fate)
    assert shown.startswith("hung after ")
    assert "TP1 is behind, in weights" in shown.replace("\n  ", " ")


def test_who_is_behind_is_told_when_the_time_is_over(case):
    case.put(ARGUMENTS, *begin(0), *begin(1), *begin(2), weights_end(0), weights_end(2))
    waiting = case.wait(timeout=900)
    fate = case.look(waiting, 900, step=10)
    assert (fate.end, fate.exit_code) == (End.TIMED_OUT, 3)
    lag = fate.lag
    assert (lag.ranks, lag.words, lag.peers, lag.took) == (("TP1",), "weights", ("TP0", "TP2"), 60.0)
    # the last stamp is that of TP2's weights, 60 s after TP1's began; 900 s have gone by since
    assert lag.lasts == pytest.approx(960, abs=5)
    assert "TP1 is behind, in weights, for 16 min" in fate.summary
    assert "ahead: TP0, TP2, which took 1 min 00 s for it" in fate.summary
    shown = render_fate(fate)
    assert shown.startswith("timed out after 15 min 00 s: TP1 is behind")
    assert "starting: the log ends during" in shown
    told = json.loads(render_json(fate))
    assert (told["fate"], told["exit_code"], told["behind"]["ranks"]) == ("timed out", 3, ["TP1"])
    assert told["diagnosis"]["outcome"] == "starting"


def test_a_time_out_says_what_it_knows(case):
    waiting = case.wait(timeout=5)
    assert case.look(waiting, 10).summary == "server.log never came: there is no such file"
    case.path.touch()
    assert case.look(case.wait(timeout=5), 10).summary == f"{case.path} is empty"
    case.put("one of those lines")
    assert case.look(case.wait(timeout=5), 10).summary == "no line shows a start"
    case.put(
        ARGUMENTS,
        *begin(0),
        *begin(1),
        "Loading safetensors checkpoint shards:  45% Completed | 9/20 [00:09<00:11,  1.00s/it]",
    )
    with case.path.open("a") as log:
        log.write("\rCapturing batches (bs=8 avail_mem=11.22 GB):  75%|")
    fate = case.look(case.wait(timeout=20), 30)
    assert fate.summary.startswith("TP0-TP1 in weights, for ")
    assert "no line has come for 20 s" in fate.notes
    assert fate.diagnosis.files[0].lines == 10  # the line without an end counts


def test_bars_whose_line_is_not_ended_are_seen(case):
    case.put(ARGUMENTS)
    waiting = case.wait()
    with case.path.open("a") as log:
        log.write(
            "Loading safetensors checkpoint shards:   0% Completed | 0/20\rLoading safetensors checkpoint shards:  45% Completed | 9/20"
        )
    case.look(waiting, 1)
    assert waiting.bar == "Loading safetensors checkpoint shards: 45%"


def test_no_time_at_all_tells_what_is_there(case):
    case.put(ARGUMENTS, READY)
    assert case.look(case.wait(timeout=0)).end is End.READY
    case.put(*DIED, SIGQUIT)
    assert case.look(case.wait(timeout=0)).end is End.CRASHED


# ------------------------------------------------------------------ processes


def ended_process() -> int:
    """Return the number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_process_that_is_gone_without_a_word(case):
    case.put(ARGUMENTS, *begin(0))
    fate = case.look(case.wait(process=Process(ended_process())), 5)
    assert (fate.end, fate.exit_code) == (End.GONE, 1)
    assert "is gone, and the log does not say why" in fate.summary
    assert "dmesg" in fate.notes[0]
    assert fate.diagnosis.outcome == "starting"


def test_a_process_that_is_gone_though_its_log_says_that_it_serves(case):
    case.put(ARGUMENTS, *begin(0), READY)
    fate = case.look(case.wait(process=Process(ended_process())), 5)
    assert fate.end is End.GONE
    assert "though the log shows a server that serves" in fate.summary


def test_a_process_that_is_gone_and_a_log_that_says_why(case):
    case.put(ARGUMENTS, *begin(0), *CAUGHT)
    assert case.look(case.wait(process=Process(ended_process())), 5).end is End.CRASHED


def test_a_process_lives_until_it_ends():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    seen = Process(process.pid)
    assert not seen.gone()
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert seen.gone()  # nobody has asked for its exit code yet
    process.wait()
    assert seen.gone()


def test_another_process_that_got_the_number_is_not_the_same(monkeypatch):
    seen = Process(os.getpid())
    assert not seen.gone()
    monkeypatch.setattr(Process, "_stat", lambda _: ("S", "another beginning"))
    assert seen.gone()
    assert Process(1 << 31).gone()


# ------------------------------------------------------------------ health


@pytest.fixture
def health():
    """Return an HTTP server whose answer can be set, and its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(self.server.status)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    server.status = 503
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server, f"http://127.0.0.1:{server.server_port}/health?x=1"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_answer_of_200_is_readiness(case, health):
    server, url = health
    case.put(ARGUMENTS, *begin(0))
    probe = Probe(url)
    assert not probe.once()
    assert probe.last == "answered 503"
    waiting = case.wait(timeout=5, probe=probe)
    assert case.look(waiting, 1) is None
    server.status = 200
    probe.start()
    assert probe.answered.wait(60)
    fate = case.look(waiting, 1)
    assert (fate.end, fate.summary) == (End.READY, f"{url} answers 200, and the log does not say so yet")


def test_a_crash_outweighs_an_answer(case, health):
    server, url = health
    server.status = 200
    probe = Probe(url)
    probe.answered.set()
    case.put(ARGUMENTS, *begin(0), *DIED, SIGQUIT)
    assert case.look(case.wait(probe=probe), 1).end is End.CRASHED


def test_what_a_url_answered_last_is_told(case):
    case.put(ARGUMENTS)
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))  # and listens to nobody
    place = f"127.0.0.1:{bound.getsockname()[1]}"
    for url, said in (
        (f"http://{place}/health", "failed: Connection refused"),
        (f"https://{place}/", "failed: Connection refused"),
        ("http://" + "a" * 70 + ".b/", "failed: "),
    ):
        probe = Probe(url)
        assert not probe.once()
        fate = case.look(case.wait(timeout=1, probe=probe), 2)
        assert any(note.startswith(f"{url} {said}") for note in fate.notes)
    bound.close()


# ------------------------------------------------------------------ how far ranks are


def test_phases_of_ranks_with_a_draft_worker(case):
    waiting = case.wait()
    case.put(
        ARGUMENTS, *begin(0), weights_end(0), "[2026-01-01 00:01:06 TP0] Memory pool end. avail mem=5.61 GB"
    )
    case.look(waiting)
    rank = waiting.progress.ranks["TP0"]
    assert (rank.phase, rank.done) == ("pools", True)
    assert rank.took == {"dist init": 3.0, "weights": 60.0, "pools": 1.0}
    case.put(
        "[2026-01-01 00:01:07 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=5.25 GB"
    )
    case.put(
        "[2026-01-01 00:01:17 TP0] Capture cuda graph end. Time elapsed: 10.00 s. mem usage=1.00 GB. avail mem=4.25 GB."
    )
    case.put("[2026-01-01 00:01:18 TP0] Load weight begin. avail mem=4.25 GB")
    case.look(waiting)
    assert (rank.phase, rank.done) == ("draft weights", False)
    case.put(weights_end(0, 2))
    case.look(waiting)
    assert (rank.phase, rank.done) == ("draft pools", False)
    assert rank.took["capture"] == 10.0
    assert rank.took["draft weights"] == 47.0
    case.put(
        "[2026-01-01 00:02:07 TP0] Capture draft cuda graph begin. This can take up to several minutes. avail mem=3.25 GB"
    )
    case.look(waiting)
    assert (rank.phase, rank.done) == ("draft capture", False)


@pytest.mark.parametrize("name", ["baseline_clean.log", "timeline/node0.log", "timeline/node1.log"])
def test_phases_are_those_of_the_timeline(name):
    """What is kept up line by line is what the whole log says afterwards."""
    path = FIXTURES / name
    known = {
        (rank, phase): duration
        for rank, phase, duration in read_phases(read_log(path))
        .filter(
            (pl.col("source") == "stamps") & pl.col("rank").is_not_null() & (pl.col("phase") != "serving")
        )
        .select("rank", "phase", "duration")
        .iter_rows()
    }
    follower, progress = Follower("-"), Progress()
    for number, line in enumerate(path.read_text().splitlines()):
        text = pl.Series("text", [line])
        progress.take(follower.take(Block(text, len(line) + 1, 0, fresh=number == 0)))
    took = {
        (rank, phase): lasts
        for rank, one in progress.ranks.items()
        for phase, lasts in one.took.items()
        if rank
    }
    assert known
    assert took == known


def test_a_rank_that_has_not_begun_is_behind(case):
    case.put(ARGUMENTS, "[2026-01-01 00:00:01 TP1] a word", *begin(0))
    waiting = case.wait()
    case.look(waiting)
    lag = waiting.progress.lag()
    assert (lag.ranks, lag.words, lag.lasts) == (("TP1",), BEFORE, None)
    assert lag_words(lag) == "TP1 is behind, before dist init, since when is not known; ahead: TP0"
    assert [stage.ranks for stage in waiting.progress.stages()] == [("TP1",), ("TP0",)]


def test_a_log_without_stamps_goes_by_when_its_lines_came(case):
    waiting = case.wait()
    case.put("[TP0] Load weight begin. avail mem=70.00 GB")
    case.look(waiting, 30)
    assert [stage.words for stage in waiting.progress.stages()] == ["weights"]
    assert waiting.progress.stages()[0].lasts == pytest.approx(30, abs=5)


def test_what_a_terminal_shows_of_the_ranks(case):
    case.put(ARGUMENTS, *begin(0), *begin(1), weights_end(0))
    waiting = case.wait()
    case.look(waiting, 10)
    shown = progress_view(waiting, 200).plain.split("\n")
    assert shown[0] == f"{case.path}: 8 lines; waiting for 10 s of 15 min 00 s; last line 10 s ago"
    assert shown[1].startswith("  TP1 in weights  1 min ")
    assert shown[1].endswith(", the others took 1 min 00 s")
    assert shown[2].startswith("  TP0 in pools")
    assert progress_line(waiting) == "10 s: TP1 in weights; TP0 in pools"
    assert all(len(line) <= 40 for line in progress_view(waiting, 40).plain.split("\n"))


def test_the_rehearsal_is_a_crash():
    assert rehearse().outcome == "crashed"


def test_every_end_has_an_exit_code():
    assert set(EXIT_CODES) == set(End)
    assert set(EXIT_CODES.values()) == {0, 1, 3}


# ------------------------------------------------------------------ the command line, with real processes


def run(*words: str, stdin: str | None = None, timeout: float = 120) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "sglogparse", *words],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "COLUMNS": "80"},
        check=False,
    )


WRITER = """
import sys, time
with open(sys.argv[1], "a", buffering=1) as log:
    for line in sys.stdin:
        log.write(line)
        time.sleep(0.01)
"""


def written(path: Path, *lines: str) -> subprocess.Popen:
    """Start a process that writes a log line by line."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, text=True)
    process.stdin.write("".join(f"{line}\n" for line in lines))
    process.stdin.close()
    return process


@pytest.mark.parametrize(
    ("lines", "code", "said"),
    [
        ([UP, READY], 0, "ready after "),
        ([*DIED, SIGQUIT], 1, "crashed, during KV cache set-up"),
        ([], 3, "timed out after "),
    ],
    ids=["ready", "crashed", "timed out"],
)
def test_wait_for_a_process_that_writes(tmp_path, lines, code, said):
    path = tmp_path / "server.log"
    writer = written(path, ARGUMENTS, *begin(0), *begin(1), *lines)
    done = run("wait", str(path), "--timeout", "60" if lines else "3")
    writer.wait()
    assert (done.returncode, done.stdout[: len(said)]) == (code, said)
    assert "Traceback" not in done.stderr
    # a job's log gets a line a phase
    assert all(" s: " in line or "waiting began" in line for line in done.stderr.splitlines())


def test_wait_prints_a_crash_as_diagnose_does(tmp_path):
    log = FIXTURES / "baseline_debug_nocar.log"
    done = run("wait", str(log))
    assert done.stdout == run("diagnose", str(log)).stdout
    note = "no line has come since waiting began: the log may be that of an older start"
    assert done.stderr.splitlines()[-1] == note
    assert run("wait", str(log), "--quiet").stderr == ""
    told = json.loads(run("wait", str(log), "--output-format", "json").stdout)
    assert told["diagnosis"] == json.loads(run("diagnose", str(log), "--output-format", "json").stdout)
    assert (told["schema"], told["fate"], told["exit_code"]) == ("sglogparse/wait/1", "crashed", 1)


def test_wait_reads_standard_input():
    text = "".join(f"{line}\n" for line in (ARGUMENTS, *begin(0), READY))
    done = run("wait", "-", "--quiet", stdin=text)
    assert (done.returncode, done.stderr) == (0, "")
    done = run("wait", "-", stdin="".join(f"{line}\n" for line in (ARGUMENTS, *begin(0))))
    assert done.returncode == 3
    assert done.stdout.startswith("log ended after ")
    assert run("wait", "-", stdin="").returncode == 3


@pytest.mark.parametrize(
    "words",
    [
        ["--timeout", "nan"],
        ["--timeout", "-1"],
        ["--pid", "0"],
        ["--url", "file:///etc/passwd"],
        ["--url", "http://"],
        ["--url", "http://host:port/"],
        ["--url", "http://me:pw@host/"],
        ["--url", "http://host/a b"],
        ["another.log"],
    ],
)
def test_wrong_calls_of_wait(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["wait", "server.log", *words])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("sglogparse: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["wait", "watch"])
def test_what_cannot_be_followed(tmp_path, command):
    packed = tmp_path / "server.log.gz"
    packed.write_bytes(b"\x1f\x8b\x08\x00")
    packed.write_bytes(packed.read_bytes() + b"\n")
    for log, said in ((tmp_path, "is a folder"), (packed, "is no plain text")):
        done = CliRunner().invoke(main, [command, str(log)])
        assert (done.exit_code, done.stdout) == (2, "")
        assert said in done.stderr
    with pytest.raises(SourceError):
        Watch(str(tmp_path)).step()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
def test_a_signal_ends_waiting_in_good_order(tmp_path, number, code):
    path = tmp_path / "server.log"
    path.write_text("".join(f"{line}\n" for line in (ARGUMENTS, *begin(0))))
    process = subprocess.Popen(
        [sys.executable, "-m", "sglogparse", "wait", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "TP0 in weights" in process.stderr.readline()
    process.send_signal(number)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (code, "", "")


def test_waiting_goes_on_when_nobody_reads_its_notes(tmp_path):
    path = tmp_path / "server.log"
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [sys.executable, "-m", "sglogparse", "wait", str(path)],
        stdout=subprocess.PIPE,
        stderr=writing,
        text=True,
    )
    os.close(writing)
    written(path, ARGUMENTS, *begin(0), READY).wait()
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out[:12]) == (0, "ready after ")


def test_secrets_and_control_codes_do_not_get_out(tmp_path):
    path = tmp_path / "server.log"
    hostile = "[2026-01-01 00:00:09 TP0] Loading [red]x\x1b[31m\x07 api_key=s3cret-1: 45%"
    path.write_text("".join(f"{line}\n" for line in (ARGUMENTS, *begin(0), hostile, *DIED[:-2])))
    with path.open("a") as log:
        log.write("RuntimeError: \x1b]0;title\x07 password=s3cret-2 [bold]::error::\n\n" + SIGQUIT + "\n")
    for words in (["wait", str(path)], ["wait", str(path), "--output-format", "json"]):
        done = run(*words)
        assert done.returncode == 1
        assert "s3cret" not in done.stdout + done.stderr
        assert "\x1b" not in done.stdout + done.stderr
        assert "\x07" not in done.stdout + done.stderr
    assert "s3cret-2" in run("wait", str(path), "--show-secrets").stdout


def test_what_is_masked_in_a_fate(case):
    case.path = case.path.with_name("hf_AbCdEfGhIjKlMnOpQr.log")
    fate = case.look(case.wait(timeout=1), 2)
    assert "hf_AbC" in fate.summary
    assert "hf_AbC" not in render_fate(masked_fate(fate))


class Terminal:
    """A command at a terminal of 80 columns, and what it has shown there."""

    def __init__(self, folder: Path, *words: str, **streams) -> None:
        self._outer, inner = pty.openpty()
        own = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sglogparse", *words],
            cwd=folder,
            env={**own, "COLUMNS": "80", "LINES": "24", "TERM": "xterm"},
            stdin=subprocess.DEVNULL,
            **{name: inner if stream is None else stream for name, stream in streams.items()},
        )
        os.close(inner)
        self.shown = b""

    def read(self, until: bytes = b"") -> None:
        """Read until a text is shown, or until the command has ended."""
        while not until or until not in self.shown:
            try:
                chunk = os.read(self._outer, 65536)
            except OSError:  # Linux says so when the other side has closed
                return
            if not chunk:
                return
            self.shown += chunk

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._outer)


@pytest.fixture
def terminal(tmp_path):
    """Return a function that starts a command at a terminal; it is ended with the test."""
    started: list[Terminal] = []

    def start(*words, **streams):
        started.append(Terminal(tmp_path, *words, **streams))
        return started[-1]

    yield start
    for one in started:
        one.close()


def test_waiting_is_drawn_on_a_terminal_and_wiped_off_again(tmp_path, terminal):
    path = tmp_path / "server.log"
    path.write_text("".join(f"{line}\n" for line in (ARGUMENTS, *begin(0))))
    screen = terminal("wait", "server.log", stdout=subprocess.PIPE, stderr=None)
    screen.read(until=b"TP0 in weights")
    assert b"server.log: 4 lines" in screen.shown
    assert b"\x1b[?25l" in screen.shown  # the cursor is hidden meanwhile
    assert b"\x1b[?25h" not in screen.shown
    with path.open("a") as log:
        log.write(f"{READY}\n")
    screen.read()
    assert screen.process.wait(60) == 0
    assert screen.process.stdout.read().startswith(b"ready after ")
    screen.process.stdout.close()
    assert b"\x1b[?25h" in screen.shown


def test_a_signal_gives_a_terminal_back(tmp_path, terminal):
    screen = terminal("wait", "server.log", stdout=subprocess.PIPE, stderr=None)
    screen.read(until=b"not there yet")
    screen.process.terminate()
    screen.read()
    assert screen.process.wait(60) == 143
    assert screen.process.stdout.read() == b""
    screen.process.stdout.close()
    assert b"\x1b[?25h" in screen.shown
    assert b"Traceback" not in screen.shown


# ------------------------------------------------------------------ watch


def test_the_load_of_ranks(case):
    watching = Watch(str(case.path), clock=case.clock)
    assert load_line(watching) == "0 lines, no batch yet"
    case.put(ARGUMENTS, *begin(0))
    watching.step()
    assert load_line(watching) == "4 lines, no batch yet; TP0 in weights"
    case.put(READY, decode(" DP0 TP0", 1, 4, 100, 0.5), decode(" DP1 TP1", 1, 8, 300, 0.9, 2))
    # the ranks of one data-parallel group run the same batch
    case.put(decode(" DP1 TP2", 1, 8, 300, 0.9, 2), decode(" DP0 TP0", 2, 6, 200, 0.6))
    case.put(
        "[2026-01-01 00:06:03 DP1 TP1] KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_token_ratio: 0.5993 -> 0.9997"
    )
    watching.step()
    assert watching.ranks == ["DP0 TP0", "DP1 TP1"]
    load = watching.loads["DP0 TP0"]
    assert (load.running, load.queued, load.speed, load.usage, load.retracted) == (6, 0, 200.0, 0.6, 0)
    view = load_view(watching, 80).plain.split("\n")
    assert view[1] == "rank     running  queued   tokens/s  KV usage  retracted"
    assert view[2] == "DP0 TP0        6       0      200.0      0.60          0"
    assert view[3] == "DP1 TP1        8       2      300.0      0.90          3"
    assert load_line(watching) == (
        "14 running, 2 queued, "
        "500.0 tokens/s (200.0 on DP0 TP0 to 300.0 on DP1 TP1), KV usage 0.90 (0.60 on DP0 TP0 to 0.90 on DP1 TP1), "
        "3 retracted (0 on DP0 TP0 to 3 on DP1 TP1)"
    )
    case.clock.now += 30
    assert load_line(watching) == "no batch for 30 s"


def test_a_finding_is_told_once(case):
    watching = Watch(str(case.path), clock=case.clock)
    case.put(ARGUMENTS, *begin(0), READY)
    told: list[str] = []

    def look(seconds):
        end = case.clock.now + seconds
        while case.clock.now < end:
            case.clock.now += 0.5
            told.extend(told_line(one).text for one in watching.step())

    look(20)
    assert told == ["ready: the server serves and the log shows no fault"]
    case.put(*DIED, SIGQUIT)
    look(2)
    assert told[1].startswith("crashed, during KV cache set-up")
    assert [line.split()[0] for line in told[2:]] == ["M004", "P001"]
    count = len(told)
    case.put(*DIED, SIGQUIT)
    look(60)
    assert len(told) == count
    assert watching.finish() == []
    assert watching.diagnosis.exit_code() == 1


def test_watch_tells_again_what_a_new_file_shows(case):
    watching = Watch(str(case.path), clock=case.clock)
    case.put(ARGUMENTS, *begin(0), *DIED, SIGQUIT)
    case.clock.now += 10
    first = [one.finding.code for one in watching.step() + watching.judge() if one.finding]
    case.path.rename(case.path.with_suffix(".1"))
    case.put(ARGUMENTS, *begin(0), *DIED, SIGQUIT)
    case.clock.now += 10
    watching.step()
    assert [one.finding.code for one in watching.judge() if one.finding] == first


def test_watch_prints_lines_until_the_log_ends():
    lines = [ARGUMENTS, *begin(0), READY, decode(" TP0", 1), decode(" TP0", 2, speed=300)]
    done = run("watch", "-", stdin="".join(f"{line}\n" for line in lines))
    assert (done.returncode, done.stderr) == (0, "")
    first, last = done.stdout.splitlines()
    assert first == "ready: the server serves and the log shows no fault"
    # the speed is that of the batch whose requests are counted, not a mean
    assert last[9:] == "4 running, 0 queued, 300.0 tokens/s, KV usage 0.10, 0 retracted"
    assert run("watch", "-", stdin="").returncode == 3


@pytest.mark.parametrize(
    ("more", "code", "number"),
    [([], 0, signal.SIGINT), ([*DIED, SIGQUIT], 1, signal.SIGINT), ([], 0, signal.SIGTERM)],
    ids=["healthy", "crashed", "SIGTERM"],
)
def test_ctrl_c_ends_watching_with_the_code_of_diagnose(tmp_path, more, code, number):
    path = tmp_path / "server.log"
    path.write_text("".join(f"{line}\n" for line in (ARGUMENTS, *begin(0), READY, decode(" TP0", 1), *more)))
    process = subprocess.Popen(
        [sys.executable, "-m", "sglogparse", "watch", str(path), "--interval", "0.2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while "running" not in process.stdout.readline():
        pass
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (code, "")


def test_watching_ends_when_nobody_reads(tmp_path):
    path = tmp_path / "server.log"
    path.write_text("".join(f"{line}\n" for line in (ARGUMENTS, *begin(0), READY, decode(" TP0", 1))))
    process = subprocess.Popen(
        [sys.executable, "-m", "sglogparse", "watch", str(path), "--interval", "0.1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()
    process.stdout.close()
    second = 2
    while process.poll() is None:
        with path.open("a") as log:
            log.write(f"{decode(' TP0', second % 60)}\n")
        second += 1
        time.sleep(0.05)
    assert (process.returncode, process.stderr.read()) == (0, "")
    process.stderr.close()


def test_watching_is_drawn_on_a_terminal(tmp_path, terminal):
    path = tmp_path / "server.log"
    path.write_text("".join(f"{line}\n" for line in (ARGUMENTS, *begin(0), READY, decode(" TP0", 1))))
    screen = terminal("watch", "server.log", stdout=None, stderr=subprocess.PIPE)
    screen.read(until=b"retracted")
    screen.process.send_signal(signal.SIGINT)
    screen.read()
    assert screen.process.wait(60) == 0
    assert screen.process.stderr.read() == b""
    screen.process.stderr.close()
    assert b"ready: the server serves and the log shows no fault" in screen.shown
    assert b"tokens/s" in screen.shown
    assert b"\x1b[?25h" in screen.shown


def test_a_job_is_told_of_a_process_that_is_gone(case):
    case.put(ARGUMENTS, *begin(0))
    gone = SimpleNamespace(pid=4711, gone=lambda: True)
    fate = case.look(case.wait(process=gone), 30)
    first, *rest = render_github(fate).splitlines()
    assert fate.end is End.GONE
    assert first.startswith("::error title=sglogparse%3A gone::gone after ")
    assert "process 4711 is gone, and the log does not say why%0Asee `dmesg -T | grep -i oom`" in first
    assert rest[0].startswith("::warning file=server.log,title=sglogparse%3A starting::")
    assert rest[-1] == "::endgroup::"


def test_a_job_is_told_of_a_crash_as_diagnose_tells_it_and_of_readiness_nothing(case, tmp_path):
    case.put(ARGUMENTS, *begin(0), UP, READY)
    assert render_github(case.look(case.wait(), 30)) == ""
    case.path = tmp_path / "crash.log"
    case.put(ARGUMENTS, *begin(0), *DIED, SIGQUIT)
    fate = case.look(case.wait(), 100)
    assert fate.end is End.CRASHED
    assert render_github(fate) == diagnosis_for_github(fate.diagnosis)


def test_a_line_of_a_pipe_is_never_old(case, monkeypatch):
    case.put(ARGUMENTS, *begin(0), UP, READY)
    monkeypatch.setattr(Tail, "streams", True)
    assert case.look(case.wait(), 5).summary == "server.log:6 says so"
    monkeypatch.setattr(Tail, "streams", False)
    assert case.look(case.wait(), 5).summary == "server.log:6 says so, and did when waiting began"
