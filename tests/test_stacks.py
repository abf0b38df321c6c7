"""Frames that are made of blocks: a row a fault, a row a stack frame."""

from __future__ import annotations

import pytest

from sglogparse import Log, read_log
from sglogparse._stacks import FAULT_DOCS, FAULT_SCHEMA, STACK_FRAMES_DOCS, STACK_FRAMES_SCHEMA

BEGIN = "Traceback (most recent call last):"
STACK = [
    '  File "/opt/sglang/python/sglang/srt/managers/scheduler.py", line 12, in run_scheduler_process',
    "    inner(x)",
    '  File "/opt/sglang/lib/python3.12/site-packages/torch/nn/a.py", line 7, in inner',
    "    raise E",
]
FRAME = "sglang/srt/managers/scheduler.py:12 run_scheduler_process"
ASSERT = "/a/IndexKernel.cu:94: operator(): block: [0,0,0], thread: [{},0,0] Assertion `i < n` failed."


def _report(rank: int) -> str:
    return f"[2026-01-01 00:00:00 TP{rank}] Scheduler hit an exception: {BEGIN}"


@pytest.fixture
def log_of(tmp_path):
    """Return a function that reads a log of the given lines."""

    def log_of(*lines: str) -> Log:
        path = tmp_path / "x.log"
        path.write_text("".join(line + "\n" for line in lines))
        return read_log(path)

    return log_of


def test_the_schemas_and_their_documentation(log_of):
    log = log_of()
    assert (log.faults.schema, log.stack_frames.schema) == (FAULT_SCHEMA, STACK_FRAMES_SCHEMA)
    assert set(FAULT_DOCS) < set(FAULT_SCHEMA)
    assert set(STACK_FRAMES_DOCS) == set(STACK_FRAMES_SCHEMA) - {"file"}


def test_equal_faults_are_counted_on_the_first(log_of):
    lines: list[str] = []
    for rank, error in enumerate(["a", "a", "b", "a", "a"]):
        lines += [_report(rank % 4), *STACK, f"ValueError: {error}", ""]
    log = log_of(*lines)
    columns = (
        "line", "last_line", "rank", "tp", "kind", "exception", "message", "process_name", "sglang_frame",
        "complete", "repeats", "repeat_ranks", "repeat_lines",
    )  # fmt: skip
    said = ("Scheduler", FRAME, True)
    assert log.faults.select(columns).rows() == [
        (1, 6, "TP0", 0, "exception", "ValueError", "a", *said, 3, ["TP1", "TP3", "TP0"], [8, 22, 29]),
        (15, 20, "TP2", 2, "exception", "ValueError", "b", *said, 0, [], []),
    ]


def test_the_rank_of_a_tag(log_of):
    lines = [f"[rank{rank}]: {line}" for rank in (3, 1) for line in (BEGIN, *STACK, "ValueError: a")]
    log = log_of(*lines)
    assert log.faults.select("rank", "repeats", "repeat_ranks").rows() == [("3", 1, ["1"])]


def test_faults_of_which_nothing_is_known_are_not_equal(log_of):
    log = log_of(_report(0), "[2026-01-01 00:00:00 TP0] x", _report(1))
    assert log.faults.select("line", "repeats", "complete").rows() == [(1, 0, False), (3, 0, False)]


def test_faults_that_are_no_exceptions(log_of):
    log = log_of(
        *(ASSERT.format(thread) for thread in range(50)),
        "plain",
        ASSERT.format(0),
        "terminate called after throwing an instance of 'c10::Error'",
        "  what():  CUDA error: device-side assert triggered",
        "Fatal Python error: Aborted",
        "",
        "Thread 0x00007f6f (most recent call first):",
        '  File "/s/b.py", line 7 in inner',
        "",
        "Current thread 0x00007fff (most recent call first):",
        '  File "/x/site-packages/sglang/srt/utils.py", line 7 in kill',
        "",
        "Extension modules: torch._C (total: 1)",
        "plain",
        "[host:7:0:9] Caught signal 11 (Segmentation fault: address not mapped)",
        "==== backtrace (tid:    9) ====",
        "plain",
        "Process 123: sglang::scheduler",
        'Thread 123 (active): "MainThread"',
        "    wait (threading.py:320)",
        "    recv (sglang/srt/managers/scheduler.py:12)",
        "    run (sglang/srt/managers/scheduler.py:9)",
        "plain",
        "/s/a.cu(7): warning #177-D: unused",
        "plain",
        "/s/a.cu(7): warning #177-D: unused",
        "/s/a.cu(8): error: no such thing",
        "ninja: build stopped: subcommand failed.",
    )
    columns = ("line", "last_line", "kind", "exception", "message", "sglang_frame", "repeats")
    failed = "/a/IndexKernel.cu:94: operator(): Assertion `i < n` failed."
    assert log.faults.select(columns).rows() == [
        (1, 50, "device_assert", None, failed, None, 1),
        (53, 54, "native_stack", "c10::Error", "CUDA error: device-side assert triggered", None, 0),
        (55, 63, "thread_dump", None, "Aborted", "sglang/srt/utils.py:7 kill", 0),
        (65, 66, "native_stack", None,
         "Caught signal 11 (Segmentation fault: address not mapped)", None, 0),
        (68, 72, "thread_dump", None, None, "sglang/srt/managers/scheduler.py:12 recv", 0),
        (76, 78, "compiler_output", None, "/s/a.cu(8): error: no such thing", None, 0),
    ]  # fmt: skip
    assert log.faults["repeat_lines"].to_list()[0] == [52]
    assert log.faults["complete"].null_count() == 6


def test_stack_frames(log_of):
    log = log_of("plain", BEGIN, *STACK, "ValueError: a")
    assert log.stack_frames.rows() == [
        (0, 2, None, 0, "/opt/sglang/python/sglang/srt/managers/scheduler.py", 12, "run_scheduler_process",
         "inner(x)", True),
        (0, 2, None, 1, "/opt/sglang/lib/python3.12/site-packages/torch/nn/a.py", 7, "inner", "raise E", False),
    ]  # fmt: skip


def test_stack_frames_of_a_group_and_of_a_mixture(log_of):
    log = log_of(
        "  + Exception Group " + BEGIN,
        '  |   File "/s/a.py", line 1, in f',
        "  | ExceptionGroup: two (2 sub-exceptions)",
        "  +-+---------------- 1 ----------------",
        "    | KeyError: 1",
        "    +---------------- 2 ----------------",
        "    | " + BEGIN,
        '    |   File "/s/b.py", line 2, in g',
        "    | ValueError: x",
        "    +------------------------------------",
        "",
        BEGIN,
        *STACK[:2],
        BEGIN,
        *STACK[2:],
        "ValueError: a",
        "ValueError: b",
    )
    columns = ("line", "member", "depth", "function")
    assert log.stack_frames.select(columns).rows() == [
        (1, None, 0, "f"),
        (1, 1, 0, "g"),
        (12, None, 0, "run_scheduler_process"),
        (15, None, None, "inner"),
    ]


@pytest.mark.parametrize(
    ("path", "sglang"),
    [
        ("sglang/srt/a.py", True),
        ("/x/sglang/python/sglang/srt/a/b.py", True),
        ("/envs/sglang/lib/python3.12/site-packages/torch/a.py", False),
        ("/x/sglang_router/a.py", False),
        ("/x/mysglang/a.py", False),
        ("<string>", False),
    ],
)
def test_which_paths_are_sglang_s(log_of, path, sglang):
    log = log_of(BEGIN, f'  File "{path}", line 1, in f', "ValueError: a")
    assert log.stack_frames["is_sglang"].to_list() == [sglang]
    assert (log.faults["sglang_frame"][0] is not None) is sglang
