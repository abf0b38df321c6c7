"""How evidence decides among causes, what must not match, and what a report says of it."""

import doctest
import json
import re

import pytest

import sglogparse
from sglogparse import causes
from sglogparse._faults import faults
from sglogparse._split import read_launches
from sglogparse.causes import CAUSE_TITLES, CAUSES, Clues, Confidence, Decision, _base, decide, facts_of
from sglogparse.causes._evidence import advice, clues_of, last_free
from sglogparse.render.text import render_text

SRT = "/opt/venv/lib/python3.12/site-packages/sglang/srt"
NO_ADVICE = "\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
SOLUTIONS = (
    "\nPossible solutions:\n1. set --mem-fraction-static to a smaller value\n3. disable torch compile by"
)


def _diagnose(tmp_path, *lines):
    return sglogparse.read_log(_write(tmp_path, *lines)).diagnose()


def _launch(tmp_path, *lines):
    return read_launches(sglogparse.read_log(_write(tmp_path, *lines)))[0]


def _write(tmp_path, *lines):
    path = tmp_path / "a.log"
    path.write_text("\n".join(lines) + "\n")
    return path


def _dies(rank, exception, *functions, path=f"{SRT}/managers/scheduler.py"):
    frames = [f'  File "{path}", line 9, in {function}\n    x()' for function in functions or ("event_loop",)]
    head = f"[2025-05-01 10:00:05 {rank}] Scheduler hit an exception: Traceback (most recent call last):"
    return [head, *frames, exception, ""]


# ------------------------------------------------------------------ the knowledge base


def test_every_cause_of_the_list_has_an_entry_once():
    assert len(CAUSE_TITLES) == len(CAUSES) == 40
    assert {"none", "unknown", "pd.bootstrap", "perf.degraded"} <= set(CAUSE_TITLES)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda one: one.id)
def test_an_entry_is_whole(cause):
    assert cause.title
    assert cause.means.endswith(".")
    assert cause.differs.endswith(".")
    assert bool(cause.signs) == (cause.id not in ("none", "unknown"))
    assert not cause.change.endswith(".")
    for sign in cause.signs:
        assert all(word == word.lower() for word in (*sign.said, *sign.unless)), sign
        assert sign.said or sign.pattern or sign.types or sign.modules, sign
        re.compile(sign.pattern)
        assert r"\d" not in sign.pattern
    for fact in cause.facts:
        names = re.findall(r"\{(\w+)\}", fact.says)
        assert set(names) <= set(re.compile(fact.pattern).groupindex)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda one: one.id)
def test_neighbours_that_an_entry_names_are_causes(cause):
    families = {name.partition(".")[0] for name in CAUSE_TITLES if "." in name}
    named = re.findall(r"\b([a-z]+\.[a-z_]+)\b", f"{cause.means} {cause.differs}")
    assert {one for one in named if one.partition(".")[0] in families} <= set(CAUSE_TITLES)


def test_the_examples_in_the_code():
    result = doctest.testmod(_base)
    assert result.attempted
    assert not result.failed


# ------------------------------------------------------------------ what must not match


@pytest.mark.parametrize(
    ("chain", "phase", "never"),
    [
        # every CUDA error advises DSA, every failed capture advises memory flags and torch compile
        (("RuntimeError: CUDA error: invalid argument" + NO_ADVICE,), None, "gpu.device_assert"),
        (("Exception: Capture cuda graph failed: 7" + SOLUTIONS,), "graph capture", "memory.graph_capture"),
        (("Exception: Capture cuda graph failed: 7" + SOLUTIONS,), "graph capture", "kernel.jit_compile"),
        # a size of a kernel, and not the host's memory
        (("OutOfResources: out of resource: shared memory, Required: 9, Hardware limit: 8.",), None, "memory.host"),
        (("KeyError: 'usage'",), None, "model.weights_mismatch"),
        (("KeyError: 'usage'",), "serving", "model.unsupported"),
        (("ModuleNotFoundError: No module named 'nvshmem'",), None, "dist.kernel_comm"),
        (("ModuleNotFoundError: No module named 'deep_ep'",), None, "dist.kernel_comm"),
        (("ImportError: libcuda.so.1: cannot open shared object file",), None, "env.missing_dependency"),
        (("DistNetworkError: The server socket has failed to bind. EADDRINUSE",), None, "dist.init"),
        (("ValueError: Unsupported architectures: XForCausalLM",), None, "gpu.unsupported_arch"),
        (("Watchdog timeout set to 300 s",), None, "hang.watchdog"),
        (("KVTransferError(bootstrap_room=7): Aborted by AbortReq",), None, "pd.bootstrap"),
        (("ValueError: Not enough host memory available.",), None, "memory.kv_budget"),
        (("RuntimeError: Prefill out of memory. Try to lower your batch size.",), "serving", "memory.runtime"),
        (("RuntimeError: Runti",), "graph capture", "memory.graph_capture"),
        (("RuntimeError: CUDA error: peer access is not supported",), None, "gpu.kernel_fault"),
        (("ImportError: Please upgrade Mooncake: a newer version of it is needed",), None, "env.missing_dependency"),
        (("UserWarning: resource_tracker: There appear to be 3 leaked semaphore objects",), None, "memory.leak"),
        (("HTTPError: 403 Client Error: Forbidden for url: https://huggingface.co/x",), None, "env.proxy"),
        (("FileNotFoundError: No such file or directory: '/m/config.json'",), None, "env.filesystem"),
        (("RuntimeError: size_k = 96 is not divisible by b_scales.size(1) = 5",), None, "config.incompatible_flags"),
        (("double free or corruption (out)",), None, "memory.leak"),
        (("ValueError: input 3 is longer than the model's context length",), "serving", "model.config"),
    ],
)  # fmt: skip
def test_near_misses(chain, phase, never):
    found = decide(Clues(chain, phase))
    assert found.cause != never, found
    assert found.runner_up != never, found


@pytest.mark.parametrize(
    ("chain", "phase"),
    [
        ((), "serving"),
        (("ValueError: 7",), None),
        (("torch.OutOfMemoryError: CUDA out of memory.",), None),
        (("Traceback",), None),
        (("RuntimeErr",), "weight loading"),
        (("KeyboardInterrupt",), None),
        (("SystemExit: 1",), None),
    ],
)
def test_what_decides_nothing_is_unknown(chain, phase):
    assert decide(Clues(chain, phase)) == Decision("unknown", None, None)


def test_the_lines_above_a_cut_off_exception_decide_only_in_clear_words():
    assert decide(Clues(above=("it failed: the exception is gone",))).cause == "unknown"
    found = decide(Clues(above=("OSError: [Errno 98] Address already in use",)))
    assert found.cause == "env.port_in_use"
    assert found.confidence == Confidence("likely", 'a line above it says "Address already in use"')


def test_what_a_line_says_failed_stands_for_an_exception_that_is_cut_off():
    line = "Piecewise CUDA Graph failed with error: 'Box' object has no attribute 'lid'"
    assert decide(Clues(above=(line,))).cause == "code.assertion"
    assert decide(Clues(("RuntimeError: x",), above=(line,))).cause == "unknown"


def test_a_device_assert_above_speaks_for_the_call_that_waited():
    line = "Index.cu:9: f: block: [1,0,0], thread: [3,0,0] Assertion `i < n` failed."
    found = decide(Clues(("RuntimeError: CUDA error: unspecified launch failure",), above=(line,)))
    assert (found.cause, found.runner_up) == ("gpu.device_assert", "gpu.kernel_fault")
    assert found.confidence is not None
    assert found.confidence.word == "likely"


def test_the_first_cause_speaks_before_what_came_of_it():
    later = "RuntimeError: NCCL error: unhandled system error"
    assert (
        decide(Clues(("RuntimeError: CUDA error: misaligned address", later))).cause == "gpu.illegal_access"
    )
    assert decide(Clues(("KeyError: 'x'", later))).cause == "dist.init"


def test_a_process_does_not_end_over_a_request():
    clues = Clues(("ValueError: the prompt is longer than the model's context length",))
    assert decide(clues).cause == "request.invalid"
    assert decide(clues, ended=True).cause == "unknown"


def test_a_close_second_is_the_runner_up():
    found = decide(Clues(("RuntimeError: TCPStore recvValue failed: timed out",)))
    assert {found.cause, found.runner_up} == {"dist.peer_lost", "dist.init"}
    assert found.confidence is not None
    assert found.confidence.word == "likely"


# ------------------------------------------------------------------ from a launch


def test_clues_hold_the_stacks_of_each_traceback_of_a_chain(tmp_path):
    inner = [f'  File "{SRT}/layers/norm.py", line 3, in forward', "    x()", "ValueError: 7", ""]
    chain = ["During handling of the above exception, another exception occurred:", ""]
    head, *rest = _dies("TP0", "Exception: Capture cuda graph failed: 7", "capture")
    launch = _launch(tmp_path, head, *inner, *chain, "Traceback (most recent call last):", *rest)
    clues = clues_of(launch, faults(launch)[0])
    assert clues.exceptions == ("ValueError: 7", "Exception: Capture cuda graph failed: 7")
    assert [[function for _, function in stack] for stack in clues.stacks] == [["forward"], ["capture"]]
    assert clues.places == (f"{SRT}/layers/norm.py", f"{SRT}/managers/scheduler.py")


@pytest.mark.parametrize(
    ("module", "detail", "cause"),
    [
        ("acme_v2", "No module named 'torchaudio'", "env.missing_dependency"),
        ("acme_v2", "Command '['gcc', 'a.c', '-lcuda']' returned non-zero exit status 1.", "kernel.jit_compile"),
        ("other", "No module named 'torchaudio'", "model.unsupported"),
    ],
)  # fmt: skip
def test_a_model_whose_module_was_skipped_is_not_unsupported(tmp_path, module, detail, cause):
    skipped = f"[2025-05-01 10:00:01] Ignore import error when loading sglang.srt.models.{module}: {detail}"
    refused = "ValueError: Model architectures ['AcmeV3ForCausalLM'] are not supported for now."
    assert _diagnose(tmp_path, skipped, *_dies("TP0", refused, "load_model")).cause == cause


BEGIN = "[2025-05-01 10:00:00] server_args=ServerArgs(model_path='/m', tp_size=4, pp_size=1, nnodes=1, mem_fraction_static=0.91, cuda_graph_max_bs=160)"
POOL = "[2025-05-01 10:00:04 TP1] Memory pool end. avail mem=0.73 GB"
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB. GPU 1 has a total capacity of "
    "44.40 GiB of which 31.06 MiB is free. 3.10 GiB is reserved by PyTorch but unallocated."
)


def test_a_fix_has_the_values_in_force_and_the_numbers_of_the_fault(tmp_path):
    found = _diagnose(tmp_path, BEGIN, POOL, *_dies("TP1", OOM, "init_device_graphs", "capture"))
    assert found.cause == "memory.graph_capture"
    assert found.fix == (
        "lower --mem-fraction-static to 0.900 or less (0.91 was in force, and 0.41 GiB were missing), or capture "
        "fewer graphs (--cuda-graph-max-bs)"
    )


def test_an_illegal_access_without_memory_may_be_a_shortage(tmp_path):
    dies = _dies("TP1", "RuntimeError: CUDA error: an illegal memory access was encountered")
    found = _diagnose(tmp_path, BEGIN, POOL, *dies)
    assert found.cause == "gpu.illegal_access"
    assert "only 0.73 GB were free at line 2: this may be a shortage of memory in disguise" in (
        found.fix or ""
    )
    plenty = _diagnose(tmp_path, BEGIN, POOL.replace("0.73", "9.00"), *dies)
    assert "disguise" not in (plenty.fix or "")


def test_the_last_free_memory_is_that_of_the_rank(tmp_path):
    other = "[2025-05-01 10:00:05 TP0] Memory pool end. avail mem=5.10 GB"
    launch = _launch(tmp_path, BEGIN, POOL, other)
    assert last_free(launch, 3, "TP1") == (2, "0.73")
    assert last_free(launch, 3, "TP9") == (3, "5.10")
    assert last_free(launch, 1, "TP1") is None


def test_a_timeout_names_the_collective_and_who_did_not_arrive(tmp_path):
    def late(rank):
        return (
            f"[rank{rank}]:[E501 10:11:12.131 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective "
            "operation timeout: WorkNCCL(SeqNum=8, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) "
            "ran for 600071 milliseconds before timing out."
        )

    found = _diagnose(tmp_path, BEGIN, late(0), late(3))
    assert (found.outcome, found.cause) == ("hung", "dist.collective_timeout")
    (told,) = [one.message for one in found.findings if one.code == "H003"]
    assert told.startswith("ALLREDUCE (SeqNum=8, NumelIn=4) did not end within 600000 ms on ranks 0, 3; ")
    assert "no report from ranks 1-2: it did not arrive, or its lines are missing" in told
    (alone,) = [one.message for one in _diagnose(tmp_path, late(0)).findings if one.code == "H003"]
    assert "no report" not in alone  # how many ranks there are is not known


def test_what_has_no_general_advice_has_none(tmp_path):
    assert advice(_launch(tmp_path, BEGIN), "code.assertion") is None


@pytest.mark.parametrize("tail", ["", ".", ". GPU 7 has a total capacity of 95.00"])
def test_what_was_asked_for_is_said_when_the_rest_is_cut_off(tail):
    cause = causes.cause_by_id("memory.runtime")
    text = f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB{tail}"
    assert facts_of(cause, [text]) == ["448.00 MiB was asked for"]


def test_a_fact_is_said_once():
    cause = causes.cause_by_id("env.missing_dependency")
    texts = ["ModuleNotFoundError: No module named 'x.y'"] * 2
    assert facts_of(cause, texts) == ["x.y is missing"]


# ------------------------------------------------------------------ in the report


def test_the_json_has_confidence_and_runner_up(tmp_path):
    found = _diagnose(tmp_path, *_dies("TP0", "RuntimeError: TCPStore recvValue failed: timed out"))
    said = json.loads(json.dumps(found.as_dict()))
    assert said["confidence"] == {"word": "likely", "reason": 'it says "TCPStore recvValue"'}
    assert said["runner_up"] == "dist.init"
    launch = said["launches"][0]
    assert (launch["confidence"], launch["runner_up"]) == (said["confidence"], said["runner_up"])


def test_what_is_decided_by_its_own_line_is_certain(tmp_path):
    line = "[2025-05-01 11:00:00 TP0] Watchdog timeout (self.watchdog_timeout=300)"
    found = _diagnose(tmp_path, line)
    assert found.confidence == Confidence("certain", "its own line says it (H001 watchdog-fired)")


@pytest.mark.parametrize(
    "lines", [("nothing",), ("[2025-05-01 10:00:00] The server is fired up and ready to roll!",)]
)
def test_without_a_cause_there_is_no_confidence(tmp_path, lines):
    found = _diagnose(tmp_path, *lines)
    assert (found.cause, found.confidence) == ("none", None)
    assert found.as_dict()["runner_up"] is None


def test_the_text_says_how_sure_a_cause_is_when_it_is_not_certain(tmp_path):
    likely = render_text(
        _diagnose(tmp_path, *_dies("TP0", "RuntimeError: TCPStore recvValue failed: timed out")), 200
    )
    assert likely.startswith(
        "crashed, while serving; cause (likely): connection to a peer lost (dist.peer_lost, or else dist.init)\n"
    )
    certain = render_text(
        _diagnose(tmp_path, *_dies("TP0", "OSError: [Errno 98] Address already in use")), 200
    )
    assert "cause: port in use (env.port_in_use)\n" in certain


def test_only_echoes_are_never_certain(tmp_path):
    echo = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:9"
    found = _diagnose(tmp_path, *_dies("TP0", echo))
    assert found.cause == "dist.peer_lost"
    assert found.confidence is not None
    assert found.confidence.word == "likely"


def test_a_line_that_names_a_cause_beyond_doubt_decides_what_is_left_open(tmp_path):
    line = "[2025-05-01 10:00:00] CUDA error: no kernel image is available for execution on the device"
    found = _diagnose(tmp_path, line)
    assert (found.outcome, found.cause, found.exit_code()) == ("unknown", "gpu.unsupported_arch", 3)
    assert found.root is not None
    assert found.root.line == 1
    ignored = _diagnose(tmp_path, f"{line}, ignoring it")
    assert ignored.cause == "unknown"
    served = "[2025-05-01 10:00:00] The server is fired up and ready to roll!"
    assert _diagnose(tmp_path, served, line).cause != "pd.transfer"


def test_a_start_whose_own_request_a_proxy_refuses(tmp_path):
    up = "[2025-05-01 10:00:01] INFO:     Application startup complete."
    line = (
        '[2025-05-01 10:00:02] http://10.9.9.9:3128 "GET http://0.0.0.0:30000/model_info HTTP/1.1" 403 3582'
    )
    found = _diagnose(tmp_path, BEGIN, up, line, line)
    assert (found.outcome, found.cause) == ("starting", "env.proxy")
    assert found.root is not None
    assert found.root.line == 3
    answered = line.replace("403", "200")
    assert _diagnose(tmp_path, BEGIN, up, answered).cause == "none"


def test_a_signal_is_likely_what_it_mostly_is(tmp_path):
    found = _diagnose(tmp_path, "[2025-05-01 10:00:03] Exit code: -9")
    assert found.cause == "memory.host"
    assert found.confidence is not None
    assert found.confidence.word == "likely"


def test_the_lines_above_decide_an_end_that_says_nothing(tmp_path):
    ends = "[2025-05-01 10:00:03] Received sigquit from a child process. It usually means the child failed."
    assert _diagnose(tmp_path, BEGIN, ends).cause == "process.killed"
    shm = "RuntimeError-like: failed: unable to allocate shared memory, /dev/shm is too small"
    assert _diagnose(tmp_path, BEGIN, shm, ends).cause == "memory.host"


def test_a_full_pool_names_the_limits_in_force(tmp_path):
    full = "[2025-05-01 10:30:00 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: 0.4 -> 0.9"
    begin = BEGIN.replace("nnodes=1", "nnodes=1, max_running_requests=512")
    found = _diagnose(tmp_path, begin, full)
    assert "lower --max-running-requests (512 now)" in (found.findings[0].fix or "")


@pytest.mark.parametrize(
    ("mode", "cause"), [("decode", "pd.bootstrap"), ("prefill", "pd.bootstrap"), ("null", None), (None, None)]
)
def test_an_argument_is_evidence(mode, cause):
    clues = Clues(
        (
            "requests.exceptions.ConnectionError: HTTPConnectionPool(host='10.2.0.9', port=8998): Max retries exceeded",
        ),
        stacks=((("/opt/sglang/python/sglang/srt/disaggregation/common/conn.py", "_fetch"),),),
        args={} if mode is None else {"disaggregation_mode": mode},
    )
    decided = decide(clues)
    assert (decided.cause == "pd.bootstrap") == (cause == "pd.bootstrap")
    if cause:
        assert decided.confidence is not None
        assert f"with disaggregation_mode='{mode}'" in decided.confidence.reason
