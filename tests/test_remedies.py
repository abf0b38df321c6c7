"""What a report advises in the narrower cases of a cause, and which lines it shows for it."""

import re

import pytest

import sglogparse
from sglogparse.causes import CAUSES
from sglogparse.causes._base import already_set
from sglogparse.render.text import render_text

SRT = "/opt/venv/lib/python3.12/site-packages/sglang/srt"
SITE = "/opt/venv/lib/python3.12/site-packages"
TP = "2025-03-04 05:06:17 TP0"


def _diagnose(tmp_path, *lines):
    path = tmp_path / "a.log"
    path.write_text("\n".join(lines) + "\n")
    return sglogparse.read_log(path).diagnose()


def _args(**values):
    told = "".join(f", {name}={value!r}" for name, value in values.items())
    return f"[2025-03-04 05:06:07] server_args=ServerArgs(model_path='/m'{told})"


def _dies(exception, *frames):
    head = f"[{TP}] Scheduler hit an exception: Traceback (most recent call last):"
    return [
        head,
        *_stack(("managers/scheduler.py", "run_scheduler_process"), *frames),
        *exception.split("\n"),
    ]


def _stack(*frames):
    out = []
    for path, function in frames:
        path = path if path.startswith("/") else f"{SRT}/{path}"
        out += [f'  File "{path}", line 31, in {function}', "    call()"]
    return out


def _shown(found):
    return [line.line for line in found.chief.chief.evidence]


@pytest.mark.parametrize("cause", [one for one in CAUSES if one.change], ids=lambda one: one.id)
def test_what_may_be_set_already_can_be_left_out(cause):
    every = dict.fromkeys(re.findall(r"[a-z_]+", cause.change.replace("-", "_")), True)
    rest = cause.change
    for part in cause.optional:
        texts = [cause.change, *(one.change for one in cause.remedies)]
        assert any(part in text for text in texts)
        rest = rest.replace(part, "")
    assert not already_set(rest, {**every, "disable_cuda_graph": True})


@pytest.mark.parametrize(
    ("text", "args", "expected"),
    [
        ("then --disable-cuda-graph", {"disable_cuda_graph": True}, True),
        ("then --disable-cuda-graph", {"disable_cuda_graph": False}, False),
        ("then --disable-cuda-graph", {}, False),
        ("fewer graphs (--cuda-graph-max-bs)", {"disable_cuda_graph": True}, True),
        ("fewer graphs (--cuda-graph-max-bs)", {"cuda_graph_max_bs": 8}, False),
        ("do not set --enable-torch-compile", {"enable_torch_compile": True}, False),
        ("set --enable-torch-compile", {"enable_torch_compile": True}, True),
    ],
)
def test_advice_is_measured_against_the_arguments(text, args, expected):
    assert already_set(text, args) is expected


@pytest.mark.parametrize(
    ("off", "fix"),
    [
        (True, "try another --attention-backend (trtllm_mla now) to learn which kernel it is"),
        (
            False,
            "try another --attention-backend (trtllm_mla now), then --disable-cuda-graph, to learn which kernel "
            "it is",
        ),
    ],
)
def test_graphs_that_are_off_are_not_advised_off(tmp_path, off, fix):
    raised = "RuntimeError: CUDA error: unspecified launch failure"
    args = _args(attention_backend="trtllm_mla", disable_cuda_graph=off)
    found = _diagnose(tmp_path, args, *_dies(raised, ("layers/linear.py", "apply")))
    assert (found.cause, found.fix) == ("gpu.kernel_fault", fix)


FAST = f"{SITE}/transformers/models/lumen/image_processing_lumen_fast.py"
CANN = [
    "[2025-03-04 05:06:19] Error in request: call aclnnPermute failed, error code is 161077",
    "[ERROR] 2025-03-04-05:06:19 (PID:77, Device:0, RankID:-1) ERR00100 PTA call acl api failed.",
    "[PID: 77] 2025-03-04-05:06:19.100.200 AclNN_Parameter_Error(EZ1001): The dims must not repeat.",
    "Traceback (most recent call last):",
]


@pytest.mark.parametrize(
    ("path", "args", "starts"),
    [
        (FAST, {}, "start with --disable-fast-image-processor (since"),
        (FAST, {"disable_fast_image_processor": True}, "try another --attention-backend"),
        (f"{SRT}/layers/rotary.py", {}, "try another --attention-backend"),
    ],
)
def test_an_operator_of_ascend_is_shown_with_what_it_says(tmp_path, path, args, starts):
    stack = _stack((f"{SRT}/managers/tokenizer_manager.py", "generate_request"), (path, "_preprocess"))
    found = _diagnose(tmp_path, _args(**args), *CANN, *stack, "RuntimeError: call aclnnPermute failed")
    assert found.cause == "gpu.kernel_fault"
    assert found.fix.startswith(starts)
    assert _shown(found) == [2, 3, 4]


NCCL = (
    "torch.distributed.DistBackendError: NCCL error in: /b/NCCLUtils.cpp:7, unhandled system error, NCCL version "
    "2.26.2\nncclSystemError: System call or external library call failed or device error.\nLast error:\n"
)
INIT = (f"{SITE}/torch/distributed/distributed_c10d.py", "new_group")


def test_a_full_shared_memory_is_not_a_network(tmp_path):
    full = "Error while creating shared memory segment /dev/shm/nccl-Qw3rTy (size 7340416)"
    found = _diagnose(tmp_path, _args(), *_dies(NCCL + full, INIT))
    assert found.cause == "dist.init"
    assert found.fix.startswith(
        "give the container more shared memory (--shm-size), or the host's (--ipc=host)"
    )
    assert found.fix.endswith("it asked for 7340416 bytes")
    assert _shown(found) == [2, 7, 10]
    other = _diagnose(tmp_path, _args(), *_dies(f"{NCCL}Call to connect returned Connection refused", INIT))
    assert other.fix.startswith("see that all nodes reach --dist-init-addr")


TAKEN = (
    "The server socket has failed to listen on any local network address.\ncode: -98,\nname: EADDRINUSE,\n"
    "message: address already in use"
)


def test_the_port_of_the_rendezvous_is_not_that_of_the_server(tmp_path):
    ranks = _diagnose(
        tmp_path, _args(port=30010), *_dies(f"torch.distributed.DistNetworkError:\n{TAKEN}", INIT)
    )
    assert ranks.cause == "env.port_in_use"
    assert ranks.fix.startswith("it is the port at which the ranks meet, not --port")
    assert "--nccl-port" in ranks.fix
    assert _shown(ranks) == [2, 7, 10, 11]
    http = "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30010): address already in use"
    server = _diagnose(tmp_path, _args(port=30010), http)
    assert server.fix.startswith(
        "stop what listens there (`ss -ltnp`), or start with another --port (30010 now)"
    )


SYNC = [
    *_stack(("layers/attention/moss.py", "forward"), (f"{SITE}/torch/cuda/__init__.py", "synchronize")),
    "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing",
    "",
    "During handling of the above exception, another exception occurred:",
    "",
    "Traceback (most recent call last):",
]


def test_what_capture_forbids_is_the_fault_not_what_came_of_it(tmp_path):
    outer = "Exception: Capture cuda graph failed: CUDA error: operation failed due to a previous error during capture"
    runner = ("model_executor/cuda_graph_runner.py", "__init__")
    head = f"[{TP}] Scheduler hit an exception: Traceback (most recent call last):"
    found = _diagnose(tmp_path, _args(), head, *SYNC, *_stack(runner), outer)
    assert (found.cause, found.chief.root.line) == ("gpu.kernel_fault", 7)
    assert found.fix.startswith("what runs while graphs are captured does what capture forbids")
    assert found.chief.detail.frame == "sglang/srt/layers/attention/moss.py:31 forward"
    # of other chains the last exception is what ended the process
    last = "RuntimeError: the tower of the draft is not built"
    other = _diagnose(tmp_path, _args(), head, *SYNC, *_stack(runner), last)
    assert other.chief.root.line == 14


def test_a_fused_all_reduce_is_turned_off(tmp_path):
    said = "ValueError: FlashInfer allreduce fusion needs SM90 or newer."
    place = ("layers/flashinfer_comm_fusion.py", "_resolve")
    args = _args(enable_flashinfer_allreduce_fusion=True)
    found = _diagnose(tmp_path, args, *_dies(said, place))
    assert found.cause == "gpu.unsupported_arch"
    assert found.fix.startswith(
        "turn the fusion of the all-reduce off: do not set --enable-flashinfer-allreduce-fusion"
    )
    assert "--enforce-disable-flashinfer-allreduce-fusion" in found.fix
    off = _args(enforce_disable_flashinfer_allreduce_fusion=True)
    assert "--enforce" not in _diagnose(tmp_path, off, *_dies(said, place)).fix
    other = _diagnose(tmp_path, args, *_dies("ValueError: Moss attention requires SM90.", place))
    assert other.fix.startswith("use a build for this GPU")


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        (
            "ValueError: The KV cache must be scaled before CUDA graph capture.",
            "change what sets the things that the message speaks of: --kv-cache-dtype (fp8_e5m2 now), "
            "--disable-cuda-graph",
        ),
        (
            "ValueError: page_size must be set when --mossy is",
            "change one of the arguments that the message names",
        ),
        (
            "ValueError: lanterns must be lit before graph capture",
            "change what sets the things that the message speaks of: --disable-cuda-graph",
        ),
    ],
)
def test_a_message_that_names_no_argument_is_not_said_to(tmp_path, said, fix):
    args = _args(kv_cache_dtype="fp8_e5m2", page_size=16)
    found = _diagnose(tmp_path, args, *_dies(said, ("server_args.py", "check")))
    assert found.cause == "config.incompatible_flags"
    assert found.fix.startswith(fix)


UCX = (
    "E0304 05:06:16.100001     7 ucx_utils.cpp:5] VRAM memory is detected as host by UCX. UCX is likely not "
    "configured with CUDA support."
)
NIXL = "nixl_cu12._bindings.nixlBackendError: NIXL_ERR_BACKEND"
REGISTER = ("disaggregation/nixl/conn.py", "register_buffer_to_engine")


def test_a_transfer_library_that_cannot_register_fails_here(tmp_path):
    found = _diagnose(tmp_path, UCX, *_dies(NIXL, REGISTER))
    assert found.cause == "pd.transfer"
    assert found.fix.startswith("it failed on this side: UCX was built, or is set up, without CUDA")
    assert _shown(found) == [1, 2, 7]
    silent = _diagnose(tmp_path, _args(), *_dies(NIXL, REGISTER))
    assert silent.fix.startswith("it failed on this side, as its transfer library registered the KV buffers")
    sent = _diagnose(tmp_path, _args(), *_dies(NIXL, ("disaggregation/nixl/conn.py", "send_kvcache")))
    assert sent.fix.startswith("look in the log of the other side")


def test_the_exception_stands_first_and_a_bare_frame_not_at_all(tmp_path):
    raised = "RuntimeError: CUDA error: unspecified launch failure"
    text = render_text(_diagnose(tmp_path, _args(), *_dies(raised)))
    assert text.index(f"  {raised}") < text.index("  Scheduler hit an exception")
    cut = _diagnose(tmp_path, *_stack(("layers/linear.py", "apply"), ("layers/moss.py", "run")), raised)
    assert _shown(cut) == [5]


# ------------------------------------------------------------------ verdicts without a fault

LOADING = [
    _args(),
    "[2025-03-04 05:06:08 TP0] Load weight begin. avail mem=61.40 GB",
]
LEAKED = (
    "/usr/lib/python3.12/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be "
    "4 leaked semaphore objects to clean up at shutdown"
)
READY = "[2025-03-04 05:07:00] The server is fired up and ready to roll!"
POST = '[2025-03-04 05:07:05] INFO:     127.0.0.1:7 - "POST /generate HTTP/1.1" 200 OK'
FAILURE = "[2025-03-04 05:07:09] The beacon could not be lit: an error of its own"


def test_a_start_whose_process_is_gone_says_so(tmp_path):
    gone = _diagnose(tmp_path, *LOADING, LEAKED)
    assert gone.outcome == "starting"
    assert gone.chief.headline == (
        "starting: the log ends during weight loading, and its process is gone (line 3); the log does not say why"
    )
    alone = _diagnose(tmp_path, *LOADING)
    assert alone.chief.headline == "starting: the log ends during weight loading and shows no fault"
    on = _diagnose(tmp_path, LOADING[0], LEAKED, LOADING[1])  # a helper's, and the start goes on
    assert "gone" not in on.chief.headline


def test_readiness_says_what_it_stands_on(tmp_path):
    doubtful = _diagnose(tmp_path, *LOADING, POST, FAILURE)
    assert doubtful.outcome == "ready"
    assert doubtful.chief.headline == (
        "ready: the server serves; no rule finds a fault, but 1 line speaks of failures"
    )
    assert doubtful.chief.action == "no ready line is in the log: that it serves is shown by line 3"
    printed = _diagnose(tmp_path, *LOADING, READY, POST, FAILURE)
    assert printed.chief.headline == doubtful.chief.headline
    assert printed.chief.action == ""
    clean = _diagnose(tmp_path, *LOADING, READY, POST)
    assert clean.chief.headline == "ready: the server serves and the log shows no fault"


def _unexplained(diagnosis):
    return [one for one in diagnosis.findings if one.code == "E003"]


def test_a_line_that_nothing_explains_is_quoted(tmp_path):
    quoted = "The beacon could not be lit: an error of its own"
    one = _diagnose(tmp_path, *LOADING, READY, FAILURE)
    told = f"1 line speaks of failures, and no rule explains it (a.log:4): {quoted}"
    assert [(found.severity, found.message) for found in _unexplained(one)] == [("info", told)]
    assert render_text(one).split("\n\n")[1] == (
        "E003 info: 1 line speaks of failures, and no rule explains it (a.log:4): The\n"
        "  beacon could not be lit: an error of its own"
    )
    long = _diagnose(tmp_path, *LOADING, READY, FAILURE + "!" * 160, FAILURE)
    assert [found.message for found in _unexplained(long)] == [
        f"2 lines speak of failures, and no rule explains them; the first (a.log:4): {quoted}{'!' * 152}"
        "... (+8 characters)"
    ]


def test_what_its_program_calls_information_is_no_failure(tmp_path):
    informs = [
        "2025-03-04 05:07:09,415 - INFO - This may be expected, but can yield errors.",
        "[2025-03-04 05:07:09] INFO loader: 3 of 7 mirrors refused, the fourth took it",
    ]
    assert _diagnose(tmp_path, *LOADING, READY, *informs).findings == ()
    mixed = _diagnose(tmp_path, *LOADING, READY, *informs, FAILURE)
    assert [[line.line for line in found.evidence] for found in _unexplained(mixed)] == [[6]]


def test_the_launch_that_speaks_is_not_shown_again(tmp_path):
    first = [*LOADING, *_dies("RuntimeError: CUDA error: unspecified launch failure")]
    later = [line.replace("05:06", "06:06") for line in LOADING]
    text = render_text(_diagnose(tmp_path, *first, *later, READY.replace("05:07", "06:07")))
    assert "this launch: a.log:7-9" in text
    assert text.count("a.log:1-6: crashed") == 1
    assert "a.log:7-9: ready" not in text
    assert "this launch" not in render_text(_diagnose(tmp_path, *LOADING))


GLOO = "RuntimeError: [/b/gloo/transport/tcp/pair.cc:5] Connection closed by peer [10.7.0.{}]:4{}"


def test_only_echoes_name_the_node_that_is_gone(tmp_path):
    place = ("layers/comm.py", "broadcast_pyobj")
    found = _diagnose(
        tmp_path, _args(), *_dies(GLOO.format(9, 11), place), "", *_dies(GLOO.format(9, 12), place)
    )
    assert found.cause == "dist.peer_lost"
    assert found.fix == (
        "look for the first exception in the logs of the other ranks, nodes and processes, first of all at "
        "10.7.0.9: the peer that is gone"
    )
    unnamed = _diagnose(tmp_path, _args(), *_dies("BrokenPipeError: [Errno 32] Broken pipe", place))
    assert "first of all" not in unnamed.fix


@pytest.mark.parametrize(
    ("said", "word"),
    [
        (
            "[2025-03-04 05:08:00 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 3, "
            "#new_token_ratio: 0.1111 -> 0.3333",
            "first seen: line ",
        ),
        (_dies("RuntimeError: CUDA error: unspecified launch failure"), "first fault: line "),
    ],
)
def test_a_warning_is_no_fault(tmp_path, said, word):
    lines = [said] * 12 if isinstance(said, str) else said
    text = render_text(_diagnose(tmp_path, *LOADING, READY, *lines))
    assert f"\n{word}" in text
