"""The rules that stand on the memory ledger: what they say, on which lines, and when they are silent."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglogparse import read_log
from sglogparse._compiler import compiled_plan
from sglogparse._grammar import samples
from sglogparse._split import read_launches
from sglogparse.ledger.statement import statements
from sglogparse.ledger.window import fixed, fraction_window, shortages
from sglogparse.render.memory import render_memory
from sglogparse.rules import RULES

BY_CODE = {rule.code: rule for rule in RULES}
SRT = "/opt/venv/lib/python3.12/site-packages/sglang/srt"
ARGS = (
    "[2025-06-02 09:00:00] server_args=ServerArgs(model_path='/srv/models/Quill-14B', tp_size=1, "
    "mem_fraction_static=0.8, max_total_tokens=None, page_size=1, context_length=None, "
    "speculative_algorithm=None)"
)
#: avail 49.60 - total 77.60 x 0.2 = 34.08 GiB
START = [
    ARGS,
    "[2025-06-02 09:00:07] Load weight begin. avail mem=77.60 GB",
    "[2025-06-02 09:00:31] Load weight end. type=QuillForCausalLM, dtype=torch.bfloat16, avail mem=49.60 GB, "
    "mem usage=28.00 GB.",
    "[2025-06-02 09:00:32] KV Cache is allocated. #tokens: 186122, K size: 17.04 GB, V size: 17.04 GB",
    "[2025-06-02 09:00:32] Memory pool end. avail mem=15.12 GB",
    "[2025-06-02 09:00:33] Capture cuda graph begin. This can take up to several minutes. avail mem=14.70 GB",
    "[2025-06-02 09:00:48] Capture cuda graph end. Time elapsed: 14.90 s. mem usage=1.40 GB. avail "
    "mem=13.30 GB.",
    "[2025-06-02 09:00:49] max_total_num_tokens=186122, chunked_prefill_size=8192, max_prefill_tokens=16384, "
    "max_running_requests=2048, context_len=65536, available_gpu_mem=13.30 GB",
    "[2025-06-02 09:00:55] The server is fired up and ready to roll!",
]
LEDGER_CODES = [f"M{number:03}" for number in range(6, 13)]


def _launches(tmp_path, lines):
    path = tmp_path / "server.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return read_launches(read_log(path))


def _found(tmp_path, lines, code):
    return [finding for launch in _launches(tmp_path, lines) for finding in BY_CODE[code](launch)]


def _swapped(old, new):
    assert any(old in line for line in START)
    return [line.replace(old, new) for line in START]


def _dies(text, module="model_executor/cuda_graph_runner.py", function="capture"):
    return [
        "[2025-06-02 09:00:40] Scheduler hit an exception: Traceback (most recent call last):",
        f'  File "{SRT}/managers/scheduler.py", line 2604, in run_scheduler_process',
        f'  File "{SRT}/{module}", line 351, in {function}',
        text,
        "",
    ]


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "


def test_a_healthy_start_is_silent(tmp_path):
    assert [finding for code in LEDGER_CODES for finding in _found(tmp_path, START, code)] == []


@pytest.mark.parametrize(
    ("old", "new", "said", "lines"),
    [
        (
            "mem_fraction_static=0.8",
            "mem_fraction_static=0.6",
            "avail 49.60 - total 77.60 x (1 - f) = 34.08 GiB of pools implies mem_fraction_static 0.800",
            [1, 2, 3, 4],
        ),
        (
            "mem usage=28.00",
            "mem usage=26.00",
            "77.60 GiB free before loading (line 2) - 26.00 GiB used (line 3) = 51.60 GiB, but line 3 says "
            "avail mem=49.60",
            [2, 3],
        ),
        (
            "mem usage=1.40",
            "mem usage=4.40",
            "14.70 GiB free before the capture (line 6) - 4.40 GiB used (line 7) = 10.30 GiB, but line "
            "7 says "
            "avail mem=13.30",
            [6, 7],
        ),
        (
            "Memory pool end. avail mem=15.12",
            "Memory pool end. avail mem=25.12",
            "49.60 GiB free behind the weights (line 3) - 34.08 GiB of pools leave at most 15.52 GiB, "
            "but line 5 "
            "says avail mem=25.12",
            [3, 4, 5],
        ),
        (
            "max_total_num_tokens=186122",
            "max_total_num_tokens=86122",
            "max_total_num_tokens is the number of tokens of the pool, but line 4 says "
            "num_tokens=186122 and line 8 "
            "says max_total_num_tokens=86122",
            [4, 8],
        ),
    ],
)
def test_a_changed_number_is_told_with_its_arithmetic(tmp_path, old, new, said, lines):
    (found,) = _found(tmp_path, _swapped(old, new), "M006")
    assert found.severity.value == "warning"
    assert said in found.message
    assert [one.line for one in found.evidence] == lines


def test_the_line_that_cannot_be_is_named_with_its_interval(tmp_path):
    (found,) = _found(tmp_path, _swapped("mem_fraction_static=0.8", "mem_fraction_static=0.6"), "M006")
    low, high, line, value = re.search(
        r"\[(0\.[0-9]{4}), (0\.[0-9]{4})\], but line ([0-9]) says mem_fraction_static=([0-9.]+[0-9])",
        found.message,
    ).groups()
    assert float(low) < 0.8 < float(high)
    assert (line, value) == ("1", "0.6")


def test_the_budget_of_several_ranks_is_one_sentence(tmp_path):
    ranks = [f"TP{rank}" for rank in range(4)]
    lines = [line.replace("] ", f" {rank}] ", 1) for line in START[1:7] for rank in ranks]
    told = START[0].replace("tp_size=1", "tp_size=4").replace("=0.8,", "=0.6,")
    (found,) = _found(tmp_path, [told, *lines], "M006")
    assert (
        "avail 49.60 - total 77.60 x (1 - f) = 34.08 GiB of pools implies mem_fraction_static"
        in found.message
    )
    assert len(found.evidence) <= 8


@pytest.mark.parametrize("times", [2, 3])
def test_lines_that_are_logged_several_times_are_no_contradiction(tmp_path, times):
    lines = [line for line in START for _ in range(times)]
    assert [finding for code in LEDGER_CODES for finding in _found(tmp_path, lines, code)] == []


def test_contradictions_that_other_rules_tell_are_not_told_twice(tmp_path):
    pools = [
        f"[2025-06-02 09:00:32 TP{rank}] KV Cache is allocated. #tokens: {tokens}, K size: {size} GB, V "
        f"size: {size} GB"
        for rank, tokens, size in ((0, 186122, "17.04"), (1, 175000, "16.02"))
    ]
    assert len(_found(tmp_path, pools, "M003")) == 1
    assert _found(tmp_path, pools, "M006") == []


@given(st.integers(-1, 1), st.sampled_from([2, 3, 5, 6]))
def test_rounding_raises_no_contradiction(tmp_path_factory, hundredths, row):
    lines = list(START)
    lines[row - 1] = re.sub(
        r"(avail mem|usage)=([0-9.]+)",
        lambda match: f"{match[1]}={float(match[2]) + hundredths / 100:.2f}",
        lines[row - 1],
        count=1,
    )
    assert _found(tmp_path_factory.mktemp("log"), lines, "M006") == []


def test_memory_that_comes_back_is_another_process(tmp_path):
    rise = _swapped("Memory pool end. avail mem=15.12", "Memory pool end. avail mem=7.12")
    (found,) = _found(tmp_path, rise, "M007")
    assert "rises from 7.12 to 14.70 GiB between line 5 and line 6" in found.message
    assert [one.line for one in found.evidence] == [5, 6]
    assert found.severity.value == "info"


def test_what_an_npu_gives_back_is_none(tmp_path):
    lines = [
        f"[2025-06-02 09:00:0{second} TP0] {text}"
        for second, text in enumerate(
            ["Memory pool end. avail mem=0.90 GB", "Capture cuda graph begin. avail mem=4.30 GB"]
        )
    ]
    assert _found(tmp_path, lines, "M007") == []


def test_a_negative_usage_is_told_and_a_drift_is_not(tmp_path):
    line = "[2025-06-02 09:00:07 TP0] Init torch distributed ends. mem usage={} GB"
    (found,) = _found(tmp_path, [line.format("-6.50")], "M007")
    assert "took -6.50 GiB (line 1)" in found.message
    assert _found(tmp_path, [line.format("-0.01")], "M007") == []


@pytest.mark.parametrize(
    ("text", "others"),
    [
        (
            "GPU 1 has a total capacity of 79.11 GiB of which 1.20 GiB is free. Process 4242 has 60.25 "
            "GiB memory in "
            "use. Including non-PyTorch memory, this process has 17.50 GiB memory in use.",
            [(4242, "60.25")],
        ),
        (
            "GPU 1 has a total capacty of 79.11 GiB of which 512.00 MiB is free. Including non-PyTorch "
            "memory, this "
            "process has 58.61 GiB memory in use.",
            [(None, "20.00")],
        ),
        # in a container the process does not know its own number
        (
            "GPU 1 has a total capacity of 79.11 GiB of which 1.00 GiB is free. Process 77 has 78.05 "
            "GiB memory in use. "
            "Of the allocated memory 70.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by "
            "PyTorch but "
            "unallocated.",
            [],
        ),
        (
            "GPU 1 has a total capacity of 79.11 GiB of which 1.00 GiB is free. Process 77 has 70.05 "
            "GiB memory in use. "
            "Process 78 has 8.00 GiB memory in use. Of the allocated memory 7.00 GiB is allocated by "
            "PyTorch.",
            [(77, "70.05")],
        ),
        ("(NPU 0; 60.97 GiB total capacity; 58.20 GiB already allocated; 400.00 MiB free; 59.00 GiB)", []),
    ],
)
def test_an_allocator_says_who_else_is_there(tmp_path, text, others):
    head = OOM.replace("GiB. ", "GiB ") if text.startswith("(") else OOM
    (launch,) = _launches(tmp_path, [*START[:6], *_dies(head + text)])
    found = shortages(launch)
    if text.startswith("("):
        assert [fixed(one.free, 3) for one in found] == ["0.391"]
    assert [(pid, fixed(size, 2)) for one in found for pid, size in one.others] == others
    assert bool(list(BY_CODE["M008"](launch))) is bool(others)


def test_a_rank_with_company_is_named_with_the_difference(tmp_path):
    lines = [
        f"[2025-06-02 09:00:07 TP{rank}] Load weight begin. avail mem={free} GB"
        for rank, free in enumerate(["77.60", "50.10", "77.58", "77.61"])
    ]
    (found,) = _found(tmp_path, lines, "M008")
    assert found.ranks == ("TP1",)
    assert "50.10 GiB against 77.60 GiB. Something else holds about 27.50 GiB" in found.message
    assert _found(tmp_path, [lines[0], lines[2], lines[3]], "M008") == []


def test_a_rank_that_loads_more_costs_all_ranks_tokens(tmp_path):
    lines = [
        text
        for rank, free in enumerate(["49.60", "49.58", "44.60"])
        for text in (
            f"[2025-06-02 09:00:31 TP{rank}] Load weight end. type=QuillForCausalLM, avail mem={free} GB",
            f"[2025-06-02 09:00:32 TP{rank}] KV Cache is allocated. #tokens: 65536, K size: 5.00 GB, V "
            f"size: 5.00 GB",
        )
    ]
    (found,) = _found(tmp_path, lines, "M009")
    assert found.ranks == ("TP2",)
    assert "44.60 GiB against 49.58 GiB" in found.message
    assert "costs every rank 4.98 GiB = 32636 tokens" in found.message
    assert _found(tmp_path, lines[:4], "M009") == []


def test_the_window_of_one_launch_has_both_ends(tmp_path):
    text = OOM + "GPU 0 has a total capacity of 79.11 GiB of which 1.25 GiB is free."
    (launch,) = _launches(tmp_path, [*START[:6], *_dies(text)])
    window = fraction_window(launch)
    assert (fixed(window.smallest, 3), fixed(window.largest, 4)) == ("0.361", "0.7903")
    (found,) = BY_CODE["M010"](launch)
    assert (found.severity.value, [one.line for one in found.evidence]) == ("info", [2, 3, 10])
    assert "at least 0.75 GiB more must stay outside the pools, so the fraction can be at most 0.790" in (
        found.message
    )
    died = next(one for one in BY_CODE["P001"](launch))
    assert died.fix.startswith("lower --mem-fraction-static to 0.790 or less (0.8 was in force, and ")


def test_memory_that_ran_out_before_the_pools_has_no_window(tmp_path):
    text = OOM + "GPU 0 has a total capacity of 79.11 GiB of which 1.25 GiB is free."
    lines = [*START[:2], *_dies(text, "model_executor/model_runner.py", "load_model")]
    assert _found(tmp_path, lines, "M010") == []


def test_what_another_process_holds_is_no_reason_to_lower_the_fraction(tmp_path):
    text = (
        OOM + "GPU 0 has a total capacity of 79.11 GiB of which 1.25 GiB is free. Process 4242 has "
        "20.00 GiB memory in use. Including non-PyTorch memory, this process has 57.00 GiB memory in use."
    )
    (launch,) = _launches(tmp_path, [*START[:6], *_dies(text)])
    assert list(BY_CODE["M010"](launch)) == []
    assert [one.fix for one in BY_CODE["P001"](launch)] == [
        "free the device first: process 4242 holds 20.00 GiB (see `nvidia-smi`)"
    ]


@pytest.mark.parametrize(
    ("refused", "ran_out", "severity"),
    [("0.84", "0.85", "warning"), ("0.85", "0.85", "warning"), ("0.7", "0.9", "info")],
)
def test_two_tries_of_one_log_make_a_window(tmp_path, refused, ran_out, severity):
    refusal = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
    first = [START[0].replace("=0.8,", f"={refused},"), *START[1:3]]
    first += _dies(refusal, "model_executor/model_runner.py", "init_memory_pool")
    second = [START[0].replace("=0.8,", f"={ran_out},"), *START[1:3], *START[4:6], *_dies(OOM.strip())]
    found = _found(tmp_path, [*first, *second], "M010")
    assert [(one.severity.value, [line.line for line in one.evidence]) for one in found] == [
        (severity, [7, 17])
    ]
    assert f"with mem_fraction_static {refused} (line 7), and out of memory with {ran_out} (line 17)" in (
        found[0].message
    )
    other = [line.replace("Quill-14B", "Quill-32B") for line in second]
    assert _found(tmp_path, [*first, *other], "M010") == []


def test_the_advice_to_raise_a_fraction_is_wrong_where_a_higher_one_ran_out(tmp_path):
    refusal = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
    first = [START[0].replace("=0.8,", "=0.85,"), *START[1:3], *START[4:6], *_dies(OOM.strip())]
    second = [START[0].replace("=0.8,", "=0.84,"), *START[1:3]]
    second += _dies(refusal, "model_executor/model_runner.py", "init_memory_pool")
    (found,) = _found(tmp_path, [*first, *second], "M004")
    assert "cannot be followed: with 0.85 an earlier start ran out of memory (line 9)" in found.message
    assert found.fix.startswith("no --mem-fraction-static helps: capture fewer graphs")
    (alone,) = _found(tmp_path, second, "M004")
    assert "an earlier start" not in alone.message


def test_a_pool_below_one_request_has_the_fraction_that_would_fit(tmp_path):
    lines = _swapped("context_len=65536", "context_len=400000")
    (found,) = _found(tmp_path, lines, "M012")
    assert found.severity.value == "info"
    assert "holds 186122 tokens, less than one request of the whole context (400000 tokens)" in found.message
    assert "--context-length 186121" in found.fix
    # half of a model's own context is worth no word, but what was asked for is
    assert _found(tmp_path, _swapped("context_len=65536", "context_len=200000"), "M012") == []
    asked = [line.replace("context_length=None", "context_length=200000") for line in lines]
    asked = [line.replace("context_len=400000", "context_len=200000") for line in asked]
    (found,) = _found(tmp_path, asked, "M012")
    assert "raise --mem-fraction-static from 0.8 to about 0.833" in found.fix


IMPOSSIBLE = ["nan", "inf", "-inf", "1e308", "1e999999999", "1e-999999999", "9" * 5000, "-0.00", "-3.5", "0"]


@pytest.mark.parametrize("number", IMPOSSIBLE, ids=lambda text: text[:12])
@pytest.mark.parametrize(
    "where",
    [
        r"[0-9.]+(?= GB)",
        r"(?<=avail mem=)[0-9.]+",
        r"(?<=tokens: "
        ")[0-9]+|(?<=_tokens=)[0-9]+|(?<=_static=)[0-9.]+",
    ],
)
def test_impossible_numbers_end_no_diagnosis(tmp_path, where, number):
    path = tmp_path / "server.log"
    path.write_text("\n".join(re.sub(where, number, line) for line in START) + "\n")
    diagnosis = read_log(path).diagnose()
    assert diagnosis.outcome.value == "ready"
    assert [one.code for one in diagnosis.findings if one.severity.value == "error"] == []


def test_few_lines_and_many_are_printed_alike(tmp_path, monkeypatch):
    texts = {
        name: [sample.text for sample in found]
        for name, found in samples().items()
        if name in {event.name for event in compiled_plan().events}
    }
    path = tmp_path / "server.log"
    path.write_text("".join(f"{text}\n" for found in texts.values() for text in found))
    launches = read_launches(read_log(path))

    def printed():
        return [
            launch.printed(kind, launch.frames[kind]["line"])
            for launch in launches
            for kind in texts
            if not launch.frames[kind].is_empty()
        ]

    few = printed()
    monkeypatch.setattr("sglogparse._events._FEW", 0)
    assert few == printed()
    assert sum(map(len, few)) > 500


ASKED = "GPU 0 has a total capacity of 79.10 GiB of which 0.40 GiB is free."


@pytest.mark.parametrize(
    ("args", "module", "function", "fix"),
    [
        # the lever of a prefill is the size of its chunks, with the size in force
        (
            "chunked_prefill_size=12288",
            "model_executor/model_runner.py",
            "forward_extend",
            "lower --chunked-prefill-size (12288 now), or lower --mem-fraction-static to 0.779 or less "
            "(0.8 was in force, and 1.60 GiB were missing); the weights need more than 0.361",
        ),
        (
            "chunked_prefill_size=-1",
            "model_executor/model_runner.py",
            "forward_extend",
            "prefill in chunks: set --chunked-prefill-size (off now), or lower --mem-fraction-static to 0.779 or "
            "less (0.8 was in force, and 1.60 GiB were missing); the weights need more than 0.361",
        ),
        (
            "chunked_prefill_size=12288, disaggregation_mode='prefill', disable_cuda_graph=True",
            "layers/linear.py",
            "apply",
            "lower --chunked-prefill-size (12288 now), or lower --mem-fraction-static to 0.779 or less "
            "(0.8 was in force, and 1.60 GiB were missing); the weights need more than 0.361",
        ),
        # without graphs there are none to leave out
        (
            "chunked_prefill_size=12288, disable_cuda_graph=True",
            "layers/linear.py",
            "apply",
            "lower --mem-fraction-static to 0.779 or less (0.8 was in force, and 1.60 GiB were missing); the "
            "weights need more than 0.361",
        ),
        (
            "chunked_prefill_size=12288, disable_cuda_graph=False, disaggregation_mode='decode'",
            "layers/linear.py",
            "apply",
            "lower --mem-fraction-static to 0.779 or less (0.8 was in force, and 1.60 GiB were missing), or "
            "capture fewer graphs (--cuda-graph-max-bs); the weights need more than 0.361",
        ),
    ],
)
def test_what_to_lower_depends_on_what_ran_and_on_what_is_set(tmp_path, args, module, function, fix):
    lines = _swapped("speculative_algorithm=None", f"speculative_algorithm=None, {args}")
    (found,) = _found(tmp_path, [*lines, *_dies(OOM + ASKED, module, function)], "P001")
    assert (found.cause, found.fix) == ("memory.runtime", fix)


@pytest.mark.parametrize(("off", "said"), [("True", False), ("False", True)])
def test_fewer_graphs_help_no_server_without_graphs(tmp_path, off, said):
    refusal = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
    args = f"speculative_algorithm=None, disable_cuda_graph={off}"
    lines = _swapped("speculative_algorithm=None", args)
    first = [lines[0].replace("=0.8,", "=0.85,"), *lines[1:3], *lines[4:6], *_dies(OOM.strip())]
    second = [lines[0].replace("=0.8,", "=0.84,"), *lines[1:3]]
    second += _dies(refusal, "model_executor/model_runner.py", "init_memory_pool")
    (found,) = _found(tmp_path, [*first, *second], "M004")
    assert ("graph" in found.fix) is said
    assert "use a shorter context or --chunked-prefill-size" in found.fix


def test_what_the_smallest_fraction_keeps_is_of_the_fraction_that_is_printed(tmp_path):
    refusal = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
    start = [
        ARGS,
        START[1].replace("77.60", "70.30"),
        START[2].replace("49.60", "2.60").replace("28.00", "67.70"),
    ]
    lines = [*start, *_dies(refusal, "model_executor/model_runner.py", "init_memory_pool")]
    (found,) = _found(tmp_path, lines, "M004")
    # 1 - 2.6 / 70.3 = 0.96301...: rounded up to 0.964, which keeps 0.036 x 70.3
    assert found.fix.startswith(
        "needs --mem-fraction-static above 0.964 (0.8 given); but that keeps only 2.53 GiB"
    )


@pytest.mark.parametrize(("left", "rank", "whole"), [("30.10", "TP1", "78.20"), ("34.70", "TP0", "77.60")])
def test_what_is_left_on_a_rank_is_of_its_own_device(tmp_path, left, rank, whole):
    text = "\n".join(START).replace("mem_fraction_static=0.8", "mem_fraction_static=0.4")
    text = text.replace("tp_size=1", "tp_size=2").replace("15.12", "33.12").replace("14.70", "33.00")
    text = text.replace("13.30", "31.60")
    first = [line.replace("] ", " TP0] ", 1) if number not in (0, 8) else line
             for number, line in enumerate(text.split("\n"))]  # fmt: skip
    second = [line.replace(" TP0]", " TP1]").replace("77.60", "78.20").replace("31.60", left)
              for line in first[1:8]]  # fmt: skip
    (found,) = _found(tmp_path, [*first[:8], *second, first[8]], "M011")
    least = min(("31.60", left), key=float)
    assert found.message == (
        f"After the start {least} of {whole} GiB are still free on {rank}: mem_fraction_static is 0.4."
    )


def _refused(given):
    numbers = "reserved=16.000 GiB, rest=-6.000 GiB, cell_size=131072, max_tokens=-49152"
    return [
        "[2025-06-02 09:00:00] server_args=ServerArgs(model_path='/m', tp_size=1, mem_fraction_static=0.8, "
        f"{given})",
        "[2025-06-02 09:00:07] Load weight begin. avail mem=80.00 GB",
        "[2025-06-02 09:00:31] Load weight end. type=QuillForCausalLM, dtype=torch.bfloat16, "
        "avail mem=10.00 GB, mem usage=70.00 GB.",
        "[2025-06-02 09:00:32] DEBUG profile_max_num_token: avail=10.000 GiB, total=80.000 GiB, "
        f"fraction=0.8, {numbers}",
        *_dies("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),
    ]


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        (
            "context_length=32768, max_prefill_tokens=16384",
            "set --mem-fraction-static 0.926 (room for a request of 32768 tokens, the full context); any token "
            "needs",
        ),
        (
            "context_length=65536, max_prefill_tokens=16384",
            "set --mem-fraction-static 0.901 (room for a prefill of 16384 tokens; none for one of full "
            "context, 65536); any token needs",
        ),
        (
            "context_length=None, max_prefill_tokens=16384",
            "set --mem-fraction-static 0.901 (room for a prefill of 16384 tokens); any token needs",
        ),
        ("context_length=None, max_prefill_tokens=65536", "needs --mem-fraction-static"),
        ("context_length=None", "needs --mem-fraction-static"),
        ("context_length=65536, max_prefill_tokens=70000", "needs --mem-fraction-static"),
    ],
)
def test_the_fix_names_a_fraction_that_leaves_room_to_work(tmp_path, given, fix):
    rest = "(0.8 given: rest = 10.000 - 80.000 x 0.2 = -6.000 GiB); each +0.01 adds 0.80 GiB = 6553 tokens"
    for code in ("M001", "M004"):
        (found,) = _found(tmp_path, _refused(given), code)
        assert found.fix == f"{fix} above 0.876 {rest}"
    shown = " ".join(render_memory(statements(read_log(tmp_path / "server.log")), 80).split())
    usable = re.search(r"static (0\.9[0-9]+) .room", fix)
    assert usable is None or usable[1] in shown


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        (
            OOM + "GPU 0 has a total capacity of 40.00 GiB of which 1.20 GiB is free.",
            "capture fewer graphs (--cuda-graph-max-bs), or lower --mem-fraction-static by more than 0.020 "
            "(0.80 GiB of 40.00 GiB were missing, line {line}; graphs take more; the log lacks the value in force)",
        ),
        (
            OOM + "GPU 0 has a total capacity of 40.",
            "lower --mem-fraction-static, or capture fewer graphs (--cuda-graph-max-bs); 2.00 GiB was asked for; "
            "0.40 GB were free at line 1; by how much is not known: the log lacks what was free (the error's text ends before it)",
        ),
        (
            "torch.OutOfMemoryError",
            "lower --mem-fraction-static, or capture fewer graphs (--cuda-graph-max-bs); 0.40 GB were free at "
            "line 1; by how much is not known: the log lacks what was asked for and what was free (the error's text does not tell)",
        ),
    ],
)
@pytest.mark.parametrize("code", ["P001", "G001"])
def test_a_shortage_in_graph_capture_says_how_far_to_lower_or_what_is_missing(tmp_path, error, fix, code):
    text = (
        error
        if code == "P001"
        else f"Exception: Capture cuda graph failed: {error.partition(': ')[2] or error}"
    )
    begin = "[2025-06-02 09:00:33] Capture cuda graph begin. This can take up to several minutes. avail mem=0.40 GB"
    lines = [begin, *_dies(text)]
    (found,) = _found(tmp_path, lines, code)
    assert (found.cause, found.fix) == ("memory.graph_capture", fix.format(line=lines.index(text) + 1))


def test_both_commands_know_the_fraction_that_only_the_error_names(tmp_path):
    error = (
        "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.83. "
        "Raise --mem-fraction-static above 0.876 (minimum viable = 1 - available/pre = 0.8750)."
    )
    dies = _dies(error, "mem_cache/kv_cache_configurator.py", "_profile_available_bytes")
    loads = [line.replace("]", " TP1]", 1) for line in _refused("")[1:3]]
    # the ranks speak, but the exception is printed without one
    lines = [*loads, "Process Process-1:", "Traceback (most recent call last):", *dies[1:]]
    (found,) = _found(tmp_path, lines, "M004")
    assert found.fix == "needs --mem-fraction-static above 0.876 (0.83 given); each +0.01 adds 0.80 GiB"
    shown = render_memory(statements(read_log(tmp_path / "server.log")), 80)
    assert shown.split("\n\n")[1] == (
        "budget: 10.00 - 80.00 x (1 - 0.83) = -3.61 to -3.59 GiB\n"
        "  mem_fraction_static 0.83 in force\n"
        "  reserved outside the pools: 13.60 GiB\n"
        "  smallest mem_fraction_static that leaves room for any token: 0.876\n"
        "  tokens: not told (no pool, and no line prints the bytes a token)"
    )
    assert _found(tmp_path, lines, "P002") == []  # the log does show a fault
