"""What a report says of the first fault beyond its line, and the outcomes of logs without events."""

import json

import pytest

from sglogparse import read_log
from sglogparse._detail import place
from sglogparse.render.json import render_json


@pytest.fixture
def read(tmp_path):
    def read(*lines):
        path = tmp_path / "server.log"
        path.write_text("".join(f"{line}\n" for line in lines))
        return read_log(path)

    return read


DIED = [
    "[2026-03-02 10:00:00 TP1] Load weight begin. avail mem=78.50 GB",
    "[2026-03-02 10:00:05 TP1] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/opt/venv/lib/python3.12/site-packages/sglang/srt/managers/schedule_batch.py", line 16, in retract',
    "    raise_error(self.pool)",
    '  File "/opt/venv/lib/python3.12/site-packages/flashinfer/decode.py", line 7, in plan',
    "    check(n)",
    "AssertionError: No space left, self.pool.available_size()=0, limit=12",
    "more of it: page=191",
    "[2026-03-02 10:00:05] Received sigquit from a child process. It usually means the child failed.",
]


def test_the_report_names_exception_frame_and_values(read):
    found = json.loads(render_json(read(*DIED).diagnose()))
    fault = found["fault"]
    assert fault == found["launches"][0]["fault"]
    assert fault["exceptions"] == [
        "AssertionError: No space left, self.pool.available_size()=0, limit=12\nmore of it: page=191"
    ]
    assert fault["frame"] == "sglang/srt/managers/schedule_batch.py:16 retract"
    assert fault["code"] == "raise_error(self.pool)"
    assert fault["innermost"] == "flashinfer/decode.py:7 plan"
    assert fault["values"] == ["available_size()=0", "limit=12", "page=191"]
    assert [one["line"] for one in fault["context"]] == list(range(1, 10))


def test_the_text_says_where_it_was_raised(read):
    assert read(*DIED).diagnose().chief.vitals[1] == (
        "raised at sglang/srt/managers/schedule_batch.py:16 retract, in flashinfer/decode.py:7 plan"
    )


def test_a_native_crash_is_raised_where_its_current_thread_stands(read):
    found = read(
        "Fatal Python error: Segmentation fault",
        "",
        "Thread 0x00007f0000000000 (most recent call first):",
        '  File "/usr/lib/python3.12/threading.py", line 953 in run',
        "",
        "Current thread 0x00007f0000000001 (most recent call first):",
        '  File "/opt/sglang/srt/distributed/pynccl_wrapper.py", line 351 in ncclCommInitRank',
        '  File "/opt/sglang/srt/distributed/parallel_state.py", line 1055 in initialize',
    ).diagnose()
    detail = found.chief.detail
    assert (found.cause, detail.frame) == (
        "process.segfault",
        "sglang/srt/distributed/pynccl_wrapper.py:351 ncclCommInitRank",
    )


def test_long_numbers_are_rounded(read):
    lines = [*DIED[:6], "ValueError: unbalanced: min_per_gpu_memory=8.8841552734375, x * 0.9=10.71, n=2"]
    found = read(*lines).diagnose()
    assert found.chief.detail.values == ("min_per_gpu_memory=8.88", "n=2")


def test_secrets_in_the_context_are_masked(read, capsys):
    from sglogparse._safe import masked

    report = masked(read("api_key='abc123'", *DIED).diagnose())
    assert "abc123" not in render_json(report)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/a/b/python/sglang/srt/x.py", "sglang/srt/x.py:5 f"),
        ("/home/sglang/sglang/srt/x.py", "sglang/srt/x.py:5 f"),
        ("x.py", "x.py:5 f"),
    ],
)
def test_a_place_leaves_out_the_folders_above_the_package(path, said):
    assert place({"path": path, "line": 5, "function": "f", "code": None}) == said


def test_a_stop_is_quoted(read):
    stop = "[2026-03-02 10:00:09] SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
    found = read("[2026-03-02 10:00:01] The server is fired up and ready to roll!", stop).diagnose()
    assert (found.outcome, found.chief.stop.line) == ("stopped", 2)
    assert found.chief.vitals[-1].startswith("asked to stop at line 2: SIGTERM received.")
    assert found.as_dict()["launches"][0]["stop"]["line"] == 2


@pytest.mark.parametrize(
    "lines",
    [
        ["server started on [0.0.0.0]:30016"],
        ["node1:75205:75205 [1] NCCL INFO NET/IB : No device found."],
        [
            "2025-11-04 11:22:32  INFO sglang_router_rs::server: src/server.rs:830: Starting router on 0.0.0.0:80"
        ],
        ["[2025-12-02 18:55:36 Mode.IGPU TP1] Allocating 40.00 GB host memory for hierarchical KV cache."],
        ["[2025-12-02 18:55:36 DP1] Some weights are not initialized from checkpoints {'a.weight'}"],
        ["Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:03<00:03,  1.50s/it]"],
    ],
)
def test_a_beginning_without_a_fault_is_starting(read, lines):
    found = read(*lines).diagnose()
    assert (found.outcome, found.cause, found.root) == ("starting", "none", None)
    assert found.summary.startswith("starting: ")


@pytest.mark.parametrize(
    "lines",
    [
        ["hello", "world"],
        ["{'a': 1}"],
        ['[2026-03-12 11:39:03] (TaskRunner pid=7) File "/work/verl/agent.py", line 516, in run'],
    ],
)
def test_lines_of_nothing_known_are_undecided(read, lines):
    assert read(*lines).diagnose().outcome == "unknown"


def test_an_undecided_log_points_at_the_line_that_may_matter(read):
    found = read("hello", "odd: it failed to do so", "world").diagnose()
    assert (found.outcome, found.cause, found.root.line) == ("unknown", "unknown", 2)


def test_a_client_that_left_was_being_served(read):
    found = read(
        "[2026-01-12 22:04:52] Task exception was never retrieved",
        'future: <Task finished exception=ValueError("Request is disconnected from the client side (type 1).")>',
    ).diagnose()
    assert (found.outcome, found.cause) == ("ready", "none")


def test_the_exit_code_of_the_diffusion_server(read):
    found = read(
        "[12-16 13:52:38] Rank 0 scheduler is dead. Please check if there are relevant logs.",
        "[12-16 13:52:40] Exit code: -9",
    ).diagnose()
    assert (found.outcome, found.cause, found.root.line) == ("crashed", "memory.host", 2)
