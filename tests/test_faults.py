"""Which line is the first fault, and which only follow from it."""

import pytest

import sglogparse
from sglogparse._echoes import Role, role_of
from sglogparse._faults import faults, last_served, stopped_at
from sglogparse._split import read_launches
from sglogparse.causes import cause_of

SRT = "/opt/venv/lib/python3.12/site-packages/sglang/srt"
LOOP = "event_loop_overlap"
GLOO = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.1.0.3]:4711"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 128.00 MiB."
SIGQUIT = "[2025-05-01 10:00:02] Received sigquit from a child process. It usually means the child failed."
SIGTERM = (
    "[2025-05-01 10:00:02] SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
)
DECODE = (
    "[2025-05-01 10:00:01 TP0] Decode batch. #running-req: 1, #token: 90, token usage: 0.01, cuda graph: True, "
    "gen throughput (token/s): 50.00, #queue-req: 0, "
)


def _frame(function, path=f"{SRT}/managers/scheduler.py"):
    return [f'  File "{path}", line 812, in {function}', f"    self.{function}()"]


def _dies(rank, exception, *functions, process="Scheduler"):
    """Return a report of an exception, with its traceback."""
    tag = f" {rank}" if rank else ""
    begin = f"[2025-05-01 10:00:02{tag}] {process} hit an exception: Traceback (most recent call last):"
    stack = [line for function in functions or (LOOP,) for line in _frame(function)]
    return [begin, *stack, *([exception] if exception else []), ""]


def _bare(exception, *functions, path=f"{SRT}/entrypoints/http_server.py"):
    stack = [line for function in functions for line in _frame(function, path)]
    return ["Traceback (most recent call last):", *stack, exception]


def _write(tmp_path, *lines):
    path = tmp_path / "server.log"
    path.write_text("\n".join(lines) + "\n")
    return sglogparse.read_log(path)


def _faults(tmp_path, *lines):
    return faults(read_launches(_write(tmp_path, *lines))[0])


def _verdict(tmp_path, *lines):
    chief = _write(tmp_path, *lines).diagnose().chief
    return chief.outcome.value, chief.cause, chief.root.line if chief.root else None


def _died(tmp_path, *lines):
    found = _write(tmp_path, *lines).diagnose().findings
    return next((one for one in found if one.code == "P001"), None)


# ------------------------------------------------------------------ root and echo


def test_the_first_of_equal_exceptions_is_the_fault(tmp_path):
    lines = [line for rank in ("TP2", "TP0", "TP1") for line in _dies(rank, "KeyError: 'x'")]
    assert _verdict(tmp_path, *lines, SIGQUIT) == ("crashed", "code.assertion", 4)
    died = _died(tmp_path, *lines, SIGQUIT)
    assert died.ranks == ("TP0", "TP1", "TP2")
    assert died.message == (
        "Scheduler on TP2 died while serving: KeyError: 'x' (the same on TP0-TP1, 1 echo of it)"
    )


def test_an_echo_that_stands_before_the_fault_is_not_the_fault(tmp_path):
    lines = [*_dies("TP1", GLOO), *_dies("TP3", GLOO), *_dies("TP2", "IndexError: list index out of range")]
    assert [one.role for one in _faults(tmp_path, *lines)] == [Role.ECHO, Role.ECHO, Role.ROOT]
    assert _verdict(tmp_path, *lines) == ("crashed", "code.assertion", 14)
    assert _died(tmp_path, *lines).ranks == ("TP2",)


def test_the_parents_signal_stands_before_the_cause(tmp_path):
    lines = [SIGQUIT, *_dies("TP0", OOM)]
    assert _verdict(tmp_path, *lines) == ("crashed", "memory.runtime", 5)


@pytest.mark.parametrize(
    ("lines", "cause", "line"),
    [
        ([*_dies("TP4", GLOO), SIGQUIT], "dist.peer_lost", 4),
        (_bare("EOFError", "_launch_subprocesses"), "process.killed", 4),
        ([SIGQUIT], "process.killed", 1),
        (["[2025-05-01 10:00:02] Exit code: 1"], "process.killed", 1),
        (["[2025-05-01 10:00:02] Exit code: -3"], "process.killed", 1),
        ([SIGQUIT, "[2025-05-01 10:00:02] Exit code: -9"], "process.killed", 1),
        (
            ["[2025-05-01 10:00:02] Rank 3 scheduler is dead. Please check if there are relevant logs."],
            "process.killed",
            1,
        ),
    ],
)
def test_with_echoes_alone_nothing_is_guessed(tmp_path, lines, cause, line):
    assert _verdict(tmp_path, *lines) == ("crashed", cause, line)
    assert "echo" in _died(tmp_path, *lines).message
    assert "look for the first exception" in _died(tmp_path, *lines).fix


def test_several_exceptions_are_counted_apart(tmp_path):
    lines = [*_dies("TP0", "KeyError: 'x'"), *_dies("TP1", OOM), *_dies("TP2", GLOO), SIGQUIT]
    assert _died(tmp_path, *lines).message.endswith("(1 other fault, 2 echoes of it)")


def test_an_exception_that_is_cut_off_decides_no_cause(tmp_path):
    assert _verdict(tmp_path, *_dies("TP0", None)) == ("crashed", "unknown", 1)
    assert _verdict(tmp_path, *_dies("TP0", None), *_dies("TP1", OOM)) == ("crashed", "memory.runtime", 8)
    assert _died(tmp_path, *_dies("TP0", None)).message == (
        "Scheduler on TP0 died while serving: the exception is cut off"
    )


def test_a_report_without_a_traceback_is_a_fault(tmp_path):
    assert _verdict(tmp_path, "Initialization failed. warmup error:") == ("crashed", "unknown", 1)


# ------------------------------------------------------------------ what does not end a server


def test_what_follows_a_sigterm_is_teardown(tmp_path):
    lines = [DECODE, SIGTERM, *_dies("TP1", GLOO), *_dies("TP0", "KeyError: 'x'"), SIGQUIT]
    assert _verdict(tmp_path, *lines) == ("stopped", "none", None)
    assert {one.role for one in _faults(tmp_path, *lines)} == {Role.TEARDOWN}


def test_a_sigterm_behind_the_fault_does_not_excuse_it(tmp_path):
    lines = [*_dies("TP0", OOM), SIGTERM, *_dies("TP1", GLOO)]
    assert _verdict(tmp_path, *lines) == ("crashed", "memory.runtime", 4)
    assert _verdict(tmp_path, SIGQUIT, SIGTERM) == ("crashed", "process.killed", 1)


def test_a_child_that_was_told_to_stop(tmp_path):
    exit_code = "[2025-05-01 10:00:03] Subprocess scheduler_0 (pid=9) crashed with exit code -15. Triggering SIGQUIT for cleanup..."
    assert _verdict(tmp_path, DECODE, SIGTERM, exit_code, SIGQUIT) == ("stopped", "none", None)


@pytest.mark.parametrize(
    "exception", ["KeyboardInterrupt", "SystemExit: 0", "asyncio.exceptions.CancelledError"]
)
def test_an_end_that_somebody_asked_for(tmp_path, exception):
    assert [one.role for one in _faults(tmp_path, *_bare(exception, "launch_server"))] == [Role.TEARDOWN]


def test_somebody_pressed_ctrl_c(tmp_path):
    lines = [*_dies("TP0", "KeyboardInterrupt"), *_dies("TP1", GLOO), SIGQUIT]
    assert _verdict(tmp_path, *lines) == ("stopped", "none", None)
    assert _verdict(tmp_path, *_dies("TP2", OOM), *lines) == ("crashed", "memory.runtime", 4)


def test_an_exception_of_one_request(tmp_path):
    request = _bare("ValueError: too long", "run_asgi", path="/opt/venv/uvicorn/protocols/http/h11_impl.py")
    assert _faults(tmp_path, DECODE, *request) == []
    assert _verdict(tmp_path, DECODE, *request)[0] == "ready"


def test_a_bare_traceback_before_served_batches(tmp_path):
    failed = _bare("ValueError: no such adapter", "load_lora_adapter")
    assert _verdict(tmp_path, *failed, DECODE) == ("ready", "none", None)
    assert _verdict(tmp_path, DECODE, *failed) == ("crashed", "code.assertion", 5)


def test_a_reported_exception_counts_though_other_ranks_go_on(tmp_path):
    assert _verdict(tmp_path, *_dies("TP1", OOM), DECODE) == ("crashed", "memory.runtime", 4)


@pytest.mark.parametrize(
    "path", ["/srv/bench/client.py", "/srv/sglang/test/test_utils.py", "/usr/lib/unittest/case.py"]
)
def test_a_traceback_of_another_program(tmp_path, path):
    assert _faults(tmp_path, *_bare("ValueError: 3", "main", path=path)) == []


@pytest.mark.parametrize(
    ("path", "function", "client"),
    [
        ("/opt/python/sglang/bench_serving.py", "run_benchmark", True),
        ("/opt/python/sglang/bench_serving/__main__.py", "<module>", True),
        ("/opt/python/sglang/bench_one_batch_server.py", "main", True),
        ("/opt/python/sglang/eval/loogle_eval.py", "main", True),
        ("/opt/python/sglang/benchmark/datasets/common.py", "main", True),
        # a server that it has started, and programs that run the engine themselves
        ("/opt/python/sglang/bench_one_batch_server.py", "launch_server_internal", False),
        ("/opt/python/sglang/bench_one_batch.py", "main", False),
        ("/opt/python/sglang/bench_offline_throughput.py", "throughput_test", False),
    ],
)
def test_a_traceback_of_a_client(tmp_path, path, function, client):
    faults = _faults(tmp_path, *_bare("ValueError: 3", function, path=path))
    assert bool(faults) is not client


# ------------------------------------------------------------------ native code


NCCL = (
    "[rank2]:[E501 10:00:02.1 ProcessGroupNCCL.cpp:685] [Rank 2] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600003 milliseconds."
)


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        (["Fatal Python error: Segmentation fault"], ("crashed", "process.segfault", 2)),
        ([NCCL], ("hung", "dist.collective_timeout", 2)),
        (["terminate called after throwing an instance of 'c10::Error'", "  what():  CUDA error: an illegal memory access was encountered"], ("crashed", "gpu.illegal_access", 2)),
        ([NCCL, *_dies("TP0", GLOO)], ("hung", "dist.collective_timeout", 2)),
        ([*_dies("TP0", OOM), NCCL], ("crashed", "memory.runtime", 5)),
        (["Memory access fault by GPU node-4 (Agent handle: 0x5) on address 0x7f. Reason: Unknown."], ("crashed", "gpu.illegal_access", 2)),
    ],
)  # fmt: skip
def test_native_code_that_ends(tmp_path, lines, verdict):
    assert _verdict(tmp_path, DECODE, *lines) == verdict


def test_native_words_before_served_batches_or_in_a_record(tmp_path):
    assert _faults(tmp_path, NCCL, DECODE) == []
    said = (
        "[2025-05-01 10:00:03] Receive: obj=GenerateReqInput(text='Fatal Python error: Segmentation fault')"
    )
    assert _faults(tmp_path, DECODE, said) == []


def test_the_http_process_answers_behind_the_crash(tmp_path):
    metrics = '[2025-05-01 10:00:03] INFO:     10.0.0.9:4 - "GET /metrics HTTP/1.1" 200 OK'
    assert _verdict(tmp_path, DECODE, NCCL, metrics) == ("hung", "dist.collective_timeout", 2)


def test_a_stack_that_faulthandler_dumps_is_not_an_exception(tmp_path):
    dump = [
        "Thread 0x00007f10ac3b1740 (most recent call first):",
        f'  File "{SRT}/managers/scheduler.py", line 5 in watchdog_thread',
    ]
    assert _verdict(tmp_path, "Fatal Python error: Aborted", "", *dump) == ("crashed", "process.segfault", 1)
    assert _faults(tmp_path, *dump) == []


# ------------------------------------------------------------------ exit codes


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("Exit code: -9", "memory.host"),
        ("Exit code: -11", "process.segfault"),
        ("Subprocess scheduler_1 (pid=7) crashed with exit code -6. Triggering SIGQUIT for cleanup...", "process.segfault"),
        ("Child process unexpectedly failed with an exit code 9. pid=101", "memory.host"),
        ("Child process unexpectedly failed with exitcode=139. pid=101", "process.segfault"),
        ("Child process unexpectedly failed with exitcode=256. pid=101", "process.killed"),
    ],
)  # fmt: skip
def test_what_an_exit_code_tells(tmp_path, line, cause):
    assert _verdict(tmp_path, DECODE, f"[2025-05-01 10:00:03] {line}") == ("crashed", cause, 2)


def test_an_exit_code_speaks_for_the_echoes(tmp_path):
    lines = ["[2025-05-01 10:00:03] Exit code: -9", *_bare("EOFError", "_launch_subprocesses")]
    assert _verdict(tmp_path, *lines) == ("crashed", "memory.host", 1)


def test_an_exception_speaks_before_the_exit_code(tmp_path):
    lines = [*_dies("TP0", "KeyError: 'x'"), "[2025-05-01 10:00:03] Exit code: -9"]
    assert _verdict(tmp_path, *lines) == ("crashed", "code.assertion", 4)


@pytest.mark.parametrize("status", [256, 15, 9])
def test_a_helper_that_fails_while_the_server_serves(tmp_path, status):
    helper = f"[2025-05-01 10:00:00] Child process unexpectedly failed with exitcode={status}. pid=101"
    assert _verdict(tmp_path, helper, DECODE) == ("ready", "none", None)


# ------------------------------------------------------------------ causes


@pytest.mark.parametrize(
    ("functions", "cause"),
    [
        (("initialize", "init_torch_distributed"), "memory.weights"),
        (("initialize", "load_model", "load_weights"), "memory.weights"),
        (("initialize", "init_memory_pool"), "memory.kv_budget"),
        (("initialize", "init_device_graphs", "capture"), "memory.graph_capture"),
        (("event_loop_overlap", "run_batch", "forward"), "memory.runtime"),
        (("event_loop_overlap", "process_batch_result_decode"), "memory.runtime"),
    ],
)
def test_the_stack_tells_in_which_phase_memory_ran_out(tmp_path, functions, cause):
    assert _verdict(tmp_path, *_dies("TP0", OOM, *functions))[1] == cause


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("Load weight begin. avail mem=70.00 GB", "memory.weights"),
        ("Memory pool end. avail mem=3.00 GB", "memory.graph_capture"),
        ("Capture cuda graph begin. This can take up to several minutes. avail mem=3.00 GB", "memory.graph_capture"),
    ],
)  # fmt: skip
def test_the_last_event_tells_it_where_the_stack_does_not(tmp_path, line, cause):
    assert _verdict(tmp_path, f"[2025-05-01 10:00:01 TP0] {line}", *_dies("TP0", OOM, "__init__"))[1] == cause


def test_the_phase_is_that_of_the_rank(tmp_path):
    lines = ["[2025-05-01 10:00:01 TP0] Load weight begin. avail mem=70.00 GB"]
    lines += ["[2025-05-01 10:00:01 TP1] Memory pool end. avail mem=3.00 GB"]
    assert _verdict(tmp_path, *lines, *_dies("TP0", OOM, "__init__"))[1] == "memory.weights"
    assert _verdict(tmp_path, *lines, *_dies("TP1", OOM, "__init__"))[1] == "memory.graph_capture"


def test_without_a_phase_memory_decides_nothing(tmp_path):
    assert _verdict(tmp_path, *_dies("TP0", OOM, "__init__"))[1] == "unknown"


@pytest.mark.parametrize(
    ("exceptions", "cause"),
    [
        (["RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."], "memory.kv_budget"),
        (["RuntimeError: Not enought memory. Please try to increase --mem-fraction-static."], "memory.kv_budget"),
        (["ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.8."], "memory.kv_budget"),
        (["ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes."], "memory.imbalance"),
        (["ValueError: token_to_kv_pool_allocator memory leak detected!"], "memory.leak"),
        (["ValueError: Not enough host memory available. Requesting 9 GB but only have 3 GB free."], "memory.host"),
        (["AssertionError: No space left for only one request"], "kv.pool_exhausted"),
        (["RuntimeError: CUDA error: an illegal memory access was encountered"], "gpu.illegal_access"),
        (["RuntimeError: CUDA error: device-side assert triggered"], "gpu.device_assert"),
        # every CUDA error advises TORCH_USE_CUDA_DSA: that is not an assertion
        (["RuntimeError: CUDA error: invalid argument\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."], "gpu.kernel_fault"),
        (["RuntimeError: CUDA error: no kernel image is available for execution on the device"], "gpu.unsupported_arch"),
        (["ValueError: Unsupported architectures: FooForCausalLM. Supported list: []"], "model.unsupported"),
        (["OSError: [Errno 98] Address already in use"], "env.port_in_use"),
        (["ModuleNotFoundError: No module named 'sgl_kernel'"], "env.missing_dependency"),
        (["KeyError: 'model.layers.1.mlp.experts.w13_weight_scale'"], "model.weights_mismatch"),
        (["KeyError: 'usage'"], "code.assertion"),
        # what is known counts before what is left, and the first cause before what came of it
        (["KeyError: 'x'", "RuntimeError: NCCL error: unhandled system error"], "dist.init"),
        (["RuntimeError: CUDA error: misaligned address", "RuntimeError: NCCL error"], "gpu.illegal_access"),
        (["ValueError: 7"], "unknown"),
        ([], "unknown"),
    ],
)  # fmt: skip
def test_what_a_chain_of_exceptions_decides(exceptions, cause):
    assert cause_of(exceptions, None) == cause


@pytest.mark.parametrize(
    ("exception", "role"),
    [
        (GLOO, Role.ECHO),
        ("RuntimeError: [1] Read error [10.0.0.1]:5: Connection reset by peer", Role.ECHO),
        ("ValueError: Aborted by AbortReq.", Role.ECHO),
        ("torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3.", Role.ECHO),
        ("EOFError", Role.ECHO),
        ("RuntimeError: Initialization failed. Please see the error messages above.", Role.ECHO),
        ("KeyboardInterrupt", Role.TEARDOWN),
        ("KeyError: 'EOFError'", Role.ROOT),
        (OOM, Role.ROOT),
    ],
)
def test_what_an_exception_is_in_the_story(exception, role):
    assert role_of(exception)[0] is role


# ------------------------------------------------------------------ when it served, when it stopped


def test_when_it_was_asked_to_stop(tmp_path):
    late = "[2025-05-01 10:00:09] INFO:     Shutting down"
    launch = read_launches(_write(tmp_path, DECODE, late, SIGTERM))[0]
    assert (last_served(launch), stopped_at(launch)) == (1, 2)
    forced = "[2025-05-01 10:00:02] Signal SIGTERM received while health check failed. Force exiting."
    assert stopped_at(read_launches(_write(tmp_path, DECODE, forced))[0]) is None
