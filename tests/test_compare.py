"""The comparison of runs: whole outputs as golden files, verdicts, rows, and what holds for any two logs.

When an output changes on purpose, rewrite the golden files, and read the difference before it is committed:

    SGLOGPARSE_UPDATE_GOLDEN=1 pytest tests/test_compare.py; git diff tests/golden_compare
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from sglogparse import SourceError
from sglogparse._cli import main
from sglogparse._compare import _side, compare, compare_sides, memory_facts
from sglogparse._comparison import FRACTION, LETTERS, fact_of, span_of
from sglogparse._log import read_log
from sglogparse._split import read_launches
from sglogparse.render.compare import hidden, render_json, render_text

ROOT = Path(__file__).parent.parent
FIXTURES = Path(__file__).parent / "fixtures"
GOLDEN = Path(__file__).parent / "golden_compare"
CLEAN, NOCAR = "baseline_clean.log", "baseline_debug_nocar.log"


# ------------------------------------------------------------------ logs of two ranks, by their numbers

ARGS = {
    "model_path": "/models/Qwen3-32B",
    "mem_fraction_static": 0.85,
    "tp_size": 2,
    "random_seed": 11,
    "port": 30000,
    "attention_backend": None,
    "disable_cuda_graph": False,
    "disable_custom_all_reduce": False,
    "cuda_graph_max_bs": 32,
}
STACK = """\
[2026-03-02 08:00:40 {rank}] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/python/sglang/srt/managers/scheduler.py", line 2311, in run_scheduler_process
    scheduler = Scheduler(server_args, port_args, gpu_id, tp_rank, pp_rank, dp_rank)
  File "/opt/sglang/python/sglang/srt/{file}", line 412, in {function}
    {code}
{error}

"""
NOT_ENOUGH = {
    "file": "model_executor/model_runner.py",
    "function": "init_memory_pool",
    "code": "raise RuntimeError(",
    "error": "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
}
GRAPH_OOM = {
    "file": "model_executor/cuda_graph_runner.py",
    "function": "capture",
    "code": "self.capture_one_batch_size(bs, forward)",
    "error": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total "
    "capacity of 79.10 GiB of which 201.50 MiB is free.",
}
NO_COMPILE = {
    "file": "layers/attention/flashinfer_backend.py",
    "function": "plan",
    "code": "module = gen_module().build_and_load()",
    "error": "RuntimeError: Ninja build failed. Ninja output: FAILED: batch_decode.cuda.o",
}
END = "[2026-03-02 08:00:41] Received sigquit from a child process. It usually means the child failed."
READY = [
    "[2026-03-02 08:00:50] INFO:     Started server process [4127]",
    "[2026-03-02 08:00:51] INFO:     Application startup complete.",
    "[2026-03-02 08:00:55] The server is fired up and ready to roll!",
]


def arguments(**changes):
    given = {name: value for name, value in {**ARGS, **changes}.items() if value is not ...}
    return f"ServerArgs({', '.join(f'{name}={value!r}' for name, value in given.items())})"


def ranked(second, *texts):
    return [f"[2026-03-02 08:00:{second:02} {rank}] {text}" for text in texts for rank in ("TP0", "TP1")]


def batches(count=8, running=8, speed=600.0, token=8000, minute=2):
    return [
        f"[2026-03-02 08:{minute:02}:{index:02} TP0] Decode batch. #running-req: {running}, #token: {token}, "
        f"token usage: 0.02, cuda graph: True, gen throughput (token/s): {speed + index:.2f}, #queue-req: 0, "
        for index in range(count)
    ]


def head(args=None, environment=("Attention backend not specified. Use fa3 backend by default.",)):
    lines = [f"[2026-03-02 08:00:00] server_args={args}"] if args else []
    lines += [f"[2026-03-02 08:00:01] {text}" for text in environment]
    return lines


def weights(total="79.10", avail="43.00", usage="36.10", setup="0.52"):
    return [
        *ranked(2, "Init torch distributed begin."),
        *ranked(8, f"Init torch distributed ends. mem usage={setup} GB"),
        *ranked(9, f"Load weight begin. avail mem={total} GB"),
        *ranked(
            30,
            f"Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem={avail} GB, "
            f"mem usage={usage} GB.",
        ),
    ]


def pools(kv="31.13", tokens=408027, left="11.40"):
    return [
        *ranked(31, f"KV Cache is allocated. #tokens: {tokens}, KV size: {kv} GB"),
        *ranked(32, f"Memory pool end. avail mem={left} GB"),
    ]


def graphs(took="2.20", left="9.10"):
    return [
        *ranked(33, "Capture cuda graph begin. This can take up to several minutes. avail mem=11.30 GB"),
        *ranked(
            45, f"Capture cuda graph end. Time elapsed: 12.10 s. mem usage={took} GB. avail mem={left} GB."
        ),
    ]


def dies(how):
    return [line for rank in ("TP0", "TP1") for line in STACK.format(rank=rank, **how).split("\n")[:-1]] + [
        END
    ]


def healthy(args=None, speed=600.0, **more):
    return [
        *head(args or arguments()),
        *weights(),
        *pools(),
        *graphs(),
        *READY,
        *batches(speed=speed, **more),
    ]


LOGS = {
    "good": healthy(),
    "again": [line.replace("43.00", "42.95") for line in healthy(arguments(random_seed=12))],
    "slow": [
        *head(arguments(disable_cuda_graph=True)),
        *weights(),
        *pools(),
        *READY,
        *batches(speed=300.0),
    ],
    "low": [*head(arguments(mem_fraction_static=0.4)), *weights(), *dies(NOT_ENOUGH)],
    "low_undeclared": [*head(arguments(mem_fraction_static=...)), *weights(), *dies(NOT_ENOUGH)],
    "occupied": [*head(arguments()), *weights(total="40.00", avail="3.90"), *dies(NOT_ENOUGH)],
    "heavy": [*head(arguments()), *weights(avail="7.00", usage="72.10"), *dies(NOT_ENOUGH)],
    "both": [
        *head(arguments(mem_fraction_static=0.6)),
        *weights(avail="20.00", usage="59.10"),
        *dies(NOT_ENOUGH),
    ],
    "hopeless": [*head(arguments(mem_fraction_static=0.4)), *weights(avail="0.01", usage="79.09"), *dies(NOT_ENOUGH)],
    "no_numbers": [*head(arguments(mem_fraction_static=0.4)), *dies(NOT_ENOUGH)],
    "greedy": [
        *head(arguments(mem_fraction_static=0.97)),
        *weights(),
        *pools(kv="40.63", tokens=532545, left="1.90"),
        *ranked(33, "Capture cuda graph begin. This can take up to several minutes. avail mem=1.80 GB"),
        *dies(GRAPH_OOM),
    ],
    "no_compile": [
        *head(arguments(attention_backend="flashinfer"), environment=()),
        *weights(),
        *pools(),
        *dies(NO_COMPILE),
    ],
    "no_compile_as_good": [*head(arguments()), *weights(), *pools(), *dies(NO_COMPILE)],
    "undeclared": [*weights(), *pools(kv="33.51", tokens=439222, left="9.00"), *graphs(left="6.80"), *READY],
    "lying": [*head(arguments(mem_fraction_static=0.5)), *weights(), *pools(), *graphs(), *READY],
    "starting": [*head(arguments()), *weights()],
    "router": ["2026-03-02 08:00:01  INFO smg::server: src/server.rs:100: Starting router on 0.0.0.0:8000"],
    "empty": [],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs")
    for name, lines in LOGS.items():
        (path / f"{name}.log").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for name in (CLEAN, NOCAR, "baseline_debug_nocar_grep.log", "negative_budget_with_kv.log"):
        (path / name).write_bytes((FIXTURES / name).read_bytes())
    return path


@pytest.fixture(scope="module")
def sides(folder):
    """Return all logs, each read once."""
    return {name: _side("A", str(folder / f"{name}.log")) for name in LOGS}


def lettered(side, letter):
    return side._replace(run=replace(side.run, letter=letter))


@pytest.fixture
def run(folder, monkeypatch):
    """Return a function that runs the command in the folder of the logs."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    return lambda *args, **more: CliRunner().invoke(main, ["compare", *map(str, args)], **more)


@pytest.fixture
def pair(folder, monkeypatch):
    """Return a function that compares two logs by their names."""
    monkeypatch.chdir(folder)
    return lambda *names: compare([f"{name}.log" for name in names])


def verdict(comparison):
    return comparison.pairs[0].verdict


# ------------------------------------------------------------------ whole outputs

#: Golden file -> the arguments of the command, and its exit code.
CASES = {
    "users.txt": ([CLEAN, NOCAR], 1),
    "users.json": ([CLEAN, NOCAR, "--output-format", "json"], 1),
    "users_grep.txt": ([CLEAN, "baseline_debug_nocar_grep.log"], 1),
    "users_three.txt": ([CLEAN, NOCAR, "negative_budget_with_kv.log"], 1),
    "slow.txt": (["good.log", "slow.log"], 0),
    "slow_all.txt": (["good.log", "slow.log", "--all"], 0),
    "greedy.txt": (["good.log", "greedy.log"], 1),
    "no_compile.txt": (["good.log", "no_compile.log"], 1),
    "undeclared.txt": (["undeclared.log", "good.log"], 1),
    "starting.txt": (["good.log", "starting.log"], 3),
    "router.txt": (["good.log", "router.log"], 3),
    "six.txt": ([f"{name}.log" for name in ("good", "slow", "low", "greedy", "starting", "empty")], 1),
}


@pytest.mark.parametrize("name", CASES)
def test_the_output_is_the_golden_one(run, name):
    args, code = CASES[name]
    result = run(*args)
    assert (result.exit_code, result.stderr) == (code, "")
    golden = GOLDEN / name
    if "SGLOGPARSE_UPDATE_GOLDEN" in os.environ and (
        not golden.exists() or golden.read_text(encoding="utf-8") != result.stdout
    ):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(result.stdout, encoding="utf-8")
        pytest.fail(f"{name} is rewritten: read the difference")
    assert result.stdout == golden.read_text(encoding="utf-8")
    if name.endswith(".txt"):
        assert max(map(cell_len, result.stdout.splitlines())) <= 80


def test_the_users_case_is_told(pair):
    found = verdict(pair("baseline_clean", "baseline_debug_nocar"))
    assert found.kind == "explained"
    assert found.text == "explained by mem_fraction_static 0.88 in A, 0.55 in B; that alone makes B fail"
    assert found.because == (
        "A's pool implies mem_fraction_static = 0.880 [0.8798, 0.8801] (A:28, A:42, A:52)",
        "B's budget is 21.708 - 94.037 x 0.45 = -20.608 GiB (B:49): no token fits",
        "with A's 0.88 it would be 10.42 GiB",
    )
    assert len(found.excluded) == 1
    assert "24 MiB a rank" in found.excluded[0]
    assert "a gap of 20.6 GiB" in found.excluded[0]
    assert "1.31-1.32 GiB in both" in found.excluded[0]
    assert found.advice == (
        "start B with --mem-fraction-static of at least 0.770; 0.88, as A, gives 10.42 GiB"
    )


def test_the_readme_shows_the_real_output(run, monkeypatch):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"## Comparing two runs\n.*?```text\n(.*?)\n```", readme, re.DOTALL)[1]
    monkeypatch.chdir(FIXTURES)
    result = run(CLEAN, NOCAR)
    assert result.exit_code == 1
    assert result.stdout.rstrip("\n") == shown


# ------------------------------------------------------------------ verdicts


@pytest.mark.parametrize(
    ("one", "two", "kind", "code", "text"),
    [
        ("good", "again", "equal", 0, "equal: nothing that is compared differs"),
        ("good", "slow", "alike", 0, "both serve; 1 argument differs"),
        ("low", "low_undeclared", "alike", 0, "both fail alike: crashed"),
        ("good", "low", "explained", 1, "explained by mem_fraction_static 0.85 in A, 0.4 in B; that alone"),
        ("good", "occupied", "explained", 1, "explained by the free memory at the start: 79.10 GiB in A, 40.00"),
        ("good", "heavy", "explained", 1, "explained by the weights: 36.10 GiB in A, 72.10 GiB in B; that"),
        ("good", "no_numbers", "possible", 1, "possible: mem_fraction_static is 0.4 in B (declared) and 0.85"),
        ("good", "low_undeclared", "possible", 1, "possible: with the 0.85 of A the budget of B would be"),
        ("good", "greedy", "explained", 1, "explained by memory: the graphs took 2.20 GiB in A, and B had 1.90"),
        ("good", "no_compile", "possible", 1, "possible: B crashed, "),
        ("good", "no_compile_as_good", "undecided", 1, "undecided: B crashed, "),
        ("low", "greedy", "undecided", 1, "both fail, each in its own way: A crashed, "),
        ("undeclared", "good", "contradiction", 1, "A and B cannot have been started equally: A's pool implies"),
        ("good", "lying", "contradiction", 1, "B's pool implies mem_fraction_static = 0.850"),
        ("good", "starting", "unknown", 3, "undecided: B does not show how its server fared"),
        ("good", "router", "incomparable", 3, "cannot be compared: the logs have no argument, step or number"),
        ("good", "empty", "incomparable", 3, "cannot be compared: B is an empty log"),
        ("empty", "empty", "incomparable", 3, "cannot be compared: both logs are empty"),
    ],
)  # fmt: skip
def test_the_verdict(pair, one, two, kind, code, text):
    comparison = pair(one, two)
    found = verdict(comparison)
    assert (found.kind, comparison.exit_code) == (kind, code)
    assert found.text.startswith(text)


def test_the_weights_alone_and_the_fraction_alone_can_each_be_enough(pair):
    found = verdict(pair("good", "both"))
    assert found.text == "explained by mem_fraction_static or the weights: each alone makes B fail"
    assert found.because[1:] == (
        "B's budget is 20.00 - 79.10 x 0.4 = -11.640 GiB (B:7, B:9): no token fits",
        "mem_fraction_static 0.85 in A, 0.6 in B",
        "the weights: 36.10 GiB in A, 59.10 GiB in B",
        "with A's 0.85 it would be 8.13 GiB",
    )


def test_where_no_fraction_fits_none_is_advised(pair):
    found = verdict(pair("good", "hopeless"))
    assert found.text == "explained by mem_fraction_static and the weights together"
    assert found.advice == "no --mem-fraction-static helps B: use more ranks, or a smaller model"


def test_what_cannot_explain_is_said_only_where_the_logs_differ_in_it(pair):
    assert verdict(pair("good", "low")).excluded == ()


def test_a_small_gap_is_not_held_against_the_all_reduce(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    good = healthy(arguments(disable_custom_all_reduce=True))
    # 0.45 x 79.10 - 36.10 = -0.505 GiB
    bad = [*head(arguments(mem_fraction_static=0.45)), *weights(), *dies(NOT_ENOUGH)]
    for name, lines in (("good.log", good), ("bad.log", bad)):
        Path(name).write_text("\n".join(lines) + "\n")
    found = verdict(compare(["good.log", "bad.log"]))
    assert (found.kind, found.excluded) == ("explained", ())


def test_an_argument_that_the_fault_names_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    how = {**NO_COMPILE, "error": "ValueError: chunked_prefill_size must be a multiple of the page size"}
    Path("good.log").write_text("\n".join(healthy(arguments(chunked_prefill_size=4096))) + "\n")
    bad = [*head(arguments(chunked_prefill_size=4100)), *weights(), *dies(how)]
    Path("bad.log").write_text("\n".join(bad) + "\n")
    found = verdict(compare(["good.log", "bad.log"]))
    assert found.kind == "possible"
    assert "chunked_prefill_size is 4096 in A and 4100 in B, and B's fault names it" in found.text
    assert found.advice == "start B with chunked_prefill_size as in A"


def test_other_models_are_said_and_never_the_whole_explanation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("good.log").write_text("\n".join(healthy()) + "\n")
    bad = [
        *head(arguments(model_path="/other/Qwen3-235B")),
        *weights(avail="7.00", usage="72.10"),
        *dies(NOT_ENOUGH),
    ]
    Path("bad.log").write_text("\n".join(bad) + "\n")
    found = verdict(compare(["good.log", "bad.log"]))
    assert found.kind == "possible"
    assert found.because[0] == "the models differ: Qwen3-32B in A, Qwen3-235B in B"


def test_other_weights_of_a_model_that_is_not_named_are_a_possibility(tmp_path, monkeypatch):
    heavy = [*head(arguments()), *weights(avail="7.00", usage="72.10"), *dies(NOT_ENOUGH)]
    found = verdict(compared(tmp_path, monkeypatch, healthy()[1:], heavy))
    assert found.kind == "possible"
    assert found.text.startswith("possible: the weights: 36.10 GiB in A, 72.10 GiB in B")


def test_the_same_model_in_another_folder_is_the_same_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("good.log").write_text("\n".join(healthy()) + "\n")
    Path("bad.log").write_text("\n".join(healthy(arguments(model_path="/data/Qwen3-32B"))) + "\n")
    assert not any("models differ" in one for one in verdict(compare(["good.log", "bad.log"])).because)


def test_slower_decoding_is_part_of_the_verdict(pair):
    found = verdict(pair("good", "slow"))
    assert found.because == (
        "B decodes 50% slower at 8 running requests (median 603.5 against 303.5 tokens/s, n=8 and 8)",
        "that can bear on it: disable_cuda_graph is false in A and true in B",
    )


# ------------------------------------------------------------------ rows


def compared(tmp_path, monkeypatch, *logs):
    monkeypatch.chdir(tmp_path)
    names = []
    for letter, lines in zip(LETTERS, logs, strict=False):
        Path(f"{letter}.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
        names.append(f"{letter}.log")
    return compare(names)


def test_arguments_given_absent_none_cut_and_not_in_the_log_are_told_apart(tmp_path, monkeypatch):
    cut = arguments(mem_fraction_static=0.6, tp_size=...).partition(" random_seed")[0]
    found = compared(
        tmp_path,
        monkeypatch,
        healthy(arguments(dtype="auto", quantization=None)),
        healthy(arguments(dtype=..., quantization="fp8")),
        healthy(cut),
        [*weights(), *pools(), *READY],
    )
    rows = {row.name: [(one.state, one.text) for one in row.values] for row in found.arguments}
    assert rows["dtype"] == [
        ("given", '"auto"'),
        ("absent", None),
        ("cut", None),
        ("not in the log", None),
    ]
    assert rows["quantization"] == [
        ("given", "null"),
        ("given", '"fp8"'),
        ("cut", None),
        ("not in the log", None),
    ]
    assert rows[FRACTION] == [
        ("given", "0.85"),
        ("given", "0.85"),
        ("given", "0.6"),
        ("not in the log", None),
    ]
    assert "tp_size" not in rows  # a cut tells nothing of what it has cut off
    assert [run.arguments_cut for run in found.runs] == [False, False, True, None]


def test_numbers_that_are_equal_are_no_difference_and_true_is_no_number(tmp_path, monkeypatch):
    found = compared(
        tmp_path,
        monkeypatch,
        healthy(arguments(a_number=1, another=1)),
        healthy(arguments(a_number=1.0, another=True)),
    )
    assert [row.name for row in found.arguments] == ["another"]


def test_what_differs_with_every_start_is_counted_only(tmp_path, monkeypatch):
    found = compared(
        tmp_path,
        monkeypatch,
        healthy(arguments(host="10.0.0.1", nccl_port=1, dist_init_addr="a:1")),
        healthy(arguments(host="10.0.0.2", nccl_port=2, dist_init_addr="b:1", random_seed=3, port=1)),
    )
    assert found.arguments == ()
    assert sorted(found.passing) == ["dist_init_addr", "host", "nccl_port", "port", "random_seed"]
    assert verdict(found).kind == "equal"


def test_arguments_of_other_releases_without_a_value_are_counted_only(tmp_path, monkeypatch):
    found = compared(
        tmp_path, monkeypatch, healthy(arguments(new=None, newer=False, newest=[])), healthy(arguments())
    )
    assert found.arguments == ()
    assert sorted(found.one_sided) == ["new", "newer", "newest"]


def test_arguments_that_matter_most_come_first(tmp_path, monkeypatch):
    names = ["zeta", "model_path", "attention_backend", "dp_size", "kv_cache_dtype", FRACTION]
    found = compared(
        tmp_path,
        monkeypatch,
        healthy(arguments(**dict.fromkeys(names, "a"))),
        healthy(arguments(**dict.fromkeys(names, "b"))),
    )
    assert [row.name for row in found.arguments] == names[::-1]
    assert [row.matters_for for row in found.arguments] == [
        "memory", "memory", "parallelism", "kernels", "model", "other",
    ]  # fmt: skip


def test_memory_rows_hold_the_ranks_that_are_alike_with_their_lines(tmp_path, monkeypatch):
    one, two = healthy(), healthy()
    two = [line.replace("avail mem=11.40", "avail mem=5.40") if "TP1]" in line else line for line in two]
    found = compared(tmp_path, monkeypatch, one, two)
    rows = [row for row in found.memory if row.quantity == "free after pools"]
    assert [(row.ranks, [cell.text for cell in row.cells], row.differs) for row in rows] == [
        (("TP0",), ["11.40", "11.40"], False),
        (("TP1",), ["11.40", "5.40"], True),
    ]
    assert [[one[cell.line - 1] for cell in row.cells[:1]] for row in rows] == [
        ["[2026-03-02 08:00:32 TP0] Memory pool end. avail mem=11.40 GB"],
        ["[2026-03-02 08:00:32 TP1] Memory pool end. avail mem=11.40 GB"],
    ]
    assert [row.quantity for row in found.memory if row.differs] == ["free after pools"]


@pytest.mark.parametrize(("avail", "differs"), [("43.10", False), ("42.85", True), ("43.20", True)])
def test_free_memory_jitters_by_a_tenth(tmp_path, monkeypatch, avail, differs):
    found = compared(
        tmp_path, monkeypatch, healthy(), [line.replace("mem=43.00", f"mem={avail}") for line in healthy()]
    )
    assert {row.quantity: row.differs for row in found.memory}["free after weights"] is (
        differs and abs(float(avail) - 43) > 43 * 0.005 + 0.01
    )


def test_facts_rest_on_the_lines_they_name(folder):
    launch = read_launches(read_log(folder / "good.log"))[0]
    facts = memory_facts(launch)
    implied = fact_of(facts, FRACTION, inferred=True)
    assert (implied.text, span_of(implied)) == ("0.850", "[0.8497, 0.8501]")
    assert implied.low < Fraction("0.85") < implied.high
    texts = [LOGS["good"][line - 1] for line in implied.lines]
    assert ["Load weight begin" in texts[0], "Load weight end" in texts[1], "KV Cache" in texts[2]] == [
        True
    ] * 3


@pytest.mark.parametrize("dtype", ["fp4_e2m1", "auto"])
def test_an_fp4_pool_tells_no_fraction(tmp_path, monkeypatch, dtype):
    found = compared(tmp_path, monkeypatch, healthy(arguments(kv_cache_dtype=dtype)), healthy())
    assert bool(found.inferred[0]) is (dtype == "auto")


def test_phases_are_the_slowest_ranks(pair):
    rows = {row.phase: row.cells for row in pair("good", "slow").phases}
    assert [cell.seconds for cell in rows["weights"]] == [21.0, 21.0]
    assert (rows["capture"][0].seconds, rows["capture"][1]) == (12.0, None)
    assert [cell.seconds for cell in rows["first line to ready"]] == [55.0, 55.0]


# ------------------------------------------------------------------ divergence and surroundings


def test_the_first_divergence_is_the_step_that_one_lacks(pair):
    parted = pair("good", "slow").pairs[0].divergence
    assert (parted.after, parted.why) == ("memory pool end", "missing")
    assert (LOGS["good"][parted.line - 1].partition("] ")[2][:24], parted.other_line) == (
        "Capture cuda graph begin",
        None,
    )
    assert parted.ranks == ("TP0", "TP1")


def test_numbers_beyond_jitter_are_a_divergence(pair):
    parted = pair("good", "occupied").pairs[0].divergence
    assert (parted.after, parted.why) == ("dist init end", "numbers")
    assert (parted.text, parted.other_text) == (
        "Load weight begin. avail mem=79.10 GB",
        "Load weight begin. avail mem=40.00 GB",
    )


def test_a_step_of_fewer_ranks_is_a_divergence(tmp_path, monkeypatch):
    fewer = [line for line in healthy() if not ("TP1]" in line and "Memory pool end" in line)]
    parted = compared(tmp_path, monkeypatch, healthy(), fewer).pairs[0].divergence
    assert (parted.why, parted.ranks, parted.other_ranks) == ("ranks", ("TP0", "TP1"), ("TP0",))


def test_what_stands_before_an_excerpt_is_no_divergence(tmp_path, monkeypatch):
    tail = healthy()[10:]
    found = compared(tmp_path, monkeypatch, healthy(), tail).pairs[0]
    assert found.divergence is None
    assert found.environment == ()


def test_surroundings_that_are_said_otherwise(tmp_path, monkeypatch):
    fa3, triton = (
        f"Attention backend not specified. Use {name} backend by default." for name in ("fa3", "triton")
    )
    one = [*head(arguments(), (fa3,)), *LOGS["good"][2:]]
    two = [*head(arguments(), (triton,)), *LOGS["good"][2:]]
    found = compared(tmp_path, monkeypatch, one, two)
    (row,) = found.pairs[0].environment
    assert (row.matter, row.reference, row.other) == ("attention", (fa3,), (triton,))
    assert (row.reference_lines, row.other_lines) == ((2,), (2,))
    assert (verdict(found).kind, found.exit_code) == ("alike", 0)
    assert found.pairs[0].divergence.why == "other step"


def test_many_different_lines_of_one_kind_are_compared_up_to_a_limit_that_is_told(tmp_path, monkeypatch):
    many = [
        f"[2026-03-02 08:00:01] Attention backend not specified. Use b{number} backend by default."
        for number in range(300)
    ]
    found = compared(tmp_path, monkeypatch, [*many, *healthy()], healthy())
    assert found.runs[0].notes[-1] == "of attention the first 100 different lines are compared"
    text = render_text(found, 80)
    assert text.count("\n") < 60
    assert "more lines of A: --all" in text


def test_other_contexts_cannot_be_equal_starts(tmp_path, monkeypatch):
    def served(length):
        line = (
            f"max_total_num_tokens=408027, chunked_prefill_size=8192, max_prefill_tokens=16384, "
            f"max_running_requests=2048, context_len={length}, available_gpu_mem=9.10 GB"
        )
        start = [*head(arguments()), *weights(), *pools(), *graphs(), *ranked(46, line), *READY]
        return start if length == 32768 else start[1:]

    found = verdict(compared(tmp_path, monkeypatch, served(32768), served(8192)))
    assert (found.kind, found.text) == (
        "contradiction",
        "A and B cannot have been started equally: the context is 32768 in A (A:19), 8192 in B (B:18)",
    )


# ------------------------------------------------------------------ throughput


def speeds(tmp_path, monkeypatch, one, two):
    start = [*head(arguments()), *weights(), *pools(), *graphs(), *READY]
    return compared(tmp_path, monkeypatch, [*start, *one], [*start, *two]).pairs[0].throughput


def test_throughput_is_compared_at_like_loads(tmp_path, monkeypatch):
    found = speeds(
        tmp_path,
        monkeypatch,
        [*batches(running=1, speed=50), *batches(count=6, running=9, speed=600, minute=3)],
        [*batches(count=7, running=12, speed=500, token=9000), *batches(running=40, speed=900, minute=3)],
    )
    assert found.reason is None
    (band,) = found.bands
    assert (band.least, band.most, band.reference_lines, band.other_lines) == (9, 9, 6, 7)
    assert (band.reference, band.other) == (602.5, 503.0)


@pytest.mark.parametrize(
    ("one", "two", "reason"),
    [
        (batches(), [], "no decode batch with a throughput in B"),
        (batches(running=2), batches(running=30), "no number of running requests in common (A 2, B 30)"),
        (batches(), batches(count=4), "too few decode batches at one load (A n=8, B n=4; 5 needed)"),
        (
            batches(token=1600),
            batches(token=16000),
            "the lengths of the requests differ (A 200, B 2000 tokens each)",
        ),
    ],
)
def test_why_throughput_is_not_compared(tmp_path, monkeypatch, one, two, reason):
    found = speeds(tmp_path, monkeypatch, one, two)
    assert (found.bands, found.reason) == ((), reason)


# ------------------------------------------------------------------ laws


@pytest.mark.parametrize("path", sorted(FIXTURES.rglob("*.log")), ids=lambda path: path.stem)
def test_a_log_equals_itself(path):
    found = compare_sides([(side := _side("A", str(path))), lettered(side, "B")])
    assert (verdict(found).kind, found.exit_code) == ("equal", 0)
    assert found.pairs[0].divergence is None
    assert not any(row.differs for row in found.memory)
    assert found.arguments == ()


@given(data=st.data())
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("name", ["good", "undeclared", "slow"])
def test_the_order_in_which_ranks_speak_makes_no_difference(folder, tmp_path, data, name):
    lines = LOGS[name]
    first = next(index for index, line in enumerate(lines) if "TP0]" in line)
    last = next(index for index, line in enumerate(lines) if "Started server process" in line)
    queues = {rank: [line for line in lines[first:last] if f"{rank}]" in line] for rank in ("TP0", "TP1")}
    order = data.draw(st.permutations([rank for rank, queue in queues.items() for _ in queue]))
    shuffled = [*lines[:first], *(queues[rank].pop(0) for rank in order), *lines[last:]]
    path = tmp_path / "shuffled.log"
    path.write_text("\n".join(shuffled) + "\n", encoding="utf-8")
    found = compare([str(folder / f"{name}.log"), str(path)])
    assert (verdict(found).kind, found.exit_code) == ("equal", 0)
    assert found.pairs[0].divergence is None


@given(one=st.sampled_from(sorted(LOGS)), two=st.sampled_from(sorted(LOGS)))
@settings(max_examples=80, deadline=None)
def test_turned_round_a_comparison_says_the_same(sides, one, two):
    there = compare_sides([lettered(sides[one], "A"), lettered(sides[two], "B")])
    back = compare_sides([lettered(sides[two], "A"), lettered(sides[one], "B")])
    mine, other = there.pairs[0], back.pairs[0]
    assert (mine.verdict.kind, there.exit_code) == (other.verdict.kind, back.exit_code)
    assert len(mine.verdict.because) == len(other.verdict.because)
    assert [(row.name, row.values[::-1]) for row in there.arguments] == [
        (row.name, row.values) for row in back.arguments
    ]
    assert [(row.quantity, row.ranks, row.cells[::-1], row.differs) for row in there.memory] == [
        (row.quantity, row.ranks, row.cells, row.differs) for row in back.memory
    ]
    assert [row.cells[::-1] for row in there.phases] == [row.cells for row in back.phases]
    parted, turned = mine.divergence, other.divergence
    assert (parted is None) == (turned is None)
    if parted is not None and turned is not None:
        assert (parted.line, parted.other_line, parted.why) == (turned.other_line, turned.line, turned.why)
    assert [(row.matter, row.reference, row.other) for row in mine.environment] == [
        (row.matter, row.other, row.reference) for row in other.environment
    ]
    assert [band.ratio for band in mine.throughput.bands] == pytest.approx(
        [1 / band.ratio for band in other.throughput.bands]
    )


# ------------------------------------------------------------------ the command, and hostile text


def test_one_of_the_logs_can_be_standard_input(run):
    result = run("good.log", "-", input="\n".join(LOGS["low"]) + "\n")
    assert result.exit_code == 1
    assert "B  -:1-" in result.stdout


@pytest.mark.parametrize(
    "args", [["good.log"], [], ["-", "-"], ["good.log"] * 7, ["good.log", "nowhere.log"]]
)
def test_a_wrong_call_is_said_on_one_line(run, args):
    result = run(*args)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)


def test_a_wrong_call_of_the_function_is_an_error(folder):
    with pytest.raises(SourceError):
        compare(["-", "-"])
    with pytest.raises(SourceError):
        compare([str(folder / "good.log")])


def test_one_bad_pair_of_several_decides_the_exit_code(run):
    assert run("good.log", "again.log", "slow.log").exit_code == 0
    assert run("good.log", "again.log", "empty.log").exit_code == 3
    assert run("good.log", "empty.log", "low.log").exit_code == 1


def test_which_launch_is_compared_is_said(run, folder):
    (folder / "twice.log").write_text("\n".join(LOGS["low"] + LOGS["good"]) + "\n")
    result = run("twice.log", "good.log")
    assert re.search(r"A  twice\.log:[0-9]+-[0-9]+, launch 2 of 2: ready", result.stdout)
    assert (
        json.loads(run("twice.log", "good.log", "--output-format", "json").stdout)["runs"][0]["launch"] == 2
    )


def test_files_of_one_name_keep_their_folders(run, folder):
    for name in ("x", "y"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "server.log").write_text("\n".join(LOGS["good"]) + "\n")
    result = run("x/server.log", "y/server.log")
    assert result.exit_code == 0
    assert "A  x/server.log:" in result.stdout
    assert "B  y/server.log:" in result.stdout


def test_the_keys_of_the_json_are_stable(run):
    found = json.loads(run("good.log", "slow.log", "--output-format", "json").stdout)
    assert list(found) == ["schema", "runs", "pairs", "arguments", "declared", "inferred", "memory", "phases"]
    assert found["schema"] == "sglogparse/comparison/1"
    assert list(found["runs"][0]) == [
        "letter", "file", "launch", "launches", "first_line", "last_line", "outcome", "cause", "summary",
        "root", "ranks", "version_window", "notes",
    ]  # fmt: skip
    assert list(found["pairs"][0]) == [
        "run",
        "reference",
        "verdict",
        "divergence",
        "environment",
        "throughput",
    ]
    assert list(found["pairs"][0]["verdict"]) == [
        "kind", "text", "because", "excluded", "contradictions", "advice",
    ]  # fmt: skip
    assert list(found["arguments"]) == ["differ", "passing", "one_sided", "equal"]


SECRET = {"api_key": "sk-s3cret-0123456789", "hf_token": "s3cret-2", "extra": {"password": "s3cret-3"}}
HOSTILE = [
    f"[2026-03-02 08:00:00] server_args={arguments(**SECRET, served_model_name='[bold red]x[/]')}",
    "::error file=x::this is no command",
    "[2026-03-02 08:00:01] Attention backend not specified. Use \x1b[31mred\x07 ::error::%0A [bold]x[/] ##vso[t] "
    "\u202egnp.exe api_key=s3cret-4 backend by default.",
    *weights(),
    "[2026-03-02 08:00:40 TP0] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/opt/sglang/python/sglang/srt/managers/scheduler.py", line 3, in run_scheduler_process',
    "    raise RuntimeError(",
    "RuntimeError: [/] \x9b31m password=s3cret-5 " + "x" * 5000,
    "",
    END,
]


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_hostile_text_stays_text(tmp_path, monkeypatch, colour, everything, turned):
    logs = [HOSTILE, healthy(arguments(api_key="sk-s3cret-other-01234", extra=None))]
    found = compared(tmp_path, monkeypatch, *logs[:: -1 if turned else 1])
    text = render_text(found, 80, colour, everything=everything)
    bare = re.sub(r"\x1b\[[0-9;]*m", "", text) if colour else text
    assert not any(unicodedata.category(char) in ("Cc", "Cf") for char in bare.replace("\n", ""))
    assert max(map(cell_len, bare.split("\n"))) <= 80
    assert not re.search(r"^\s*::|##\w*\[", bare, re.MULTILINE)
    assert "s3cret" not in bare
    assert "s3cret" not in render_json(found)
    assert "s3cret" in render_json(found, show_secrets=True)
    assert "[bold red]x[/]" in render_json(found)


def test_a_secret_is_hidden_by_the_name_of_its_argument(tmp_path, monkeypatch):
    found = compared(
        tmp_path, monkeypatch, healthy(arguments(api_key="plain-words")), healthy(arguments(api_key="others"))
    )
    (row,) = hidden(found).arguments
    assert [one.text for one in row.values] == ['"***"', '"***"']
    shown = render_text(found, 80, show_secrets=True)
    assert '"plain-words"' in shown


@given(
    st.lists(st.sampled_from(LOGS["good"] + LOGS["low"] + LOGS["greedy"] + HOSTILE), max_size=40),
    st.lists(st.sampled_from(LOGS["slow"] + LOGS["undeclared"] + LOGS["no_compile"]), max_size=40),
    st.integers(40, 120),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_lines_can_be_compared(tmp_path, one, two, width):
    paths = []
    for name, lines in (("a.log", one), ("b.log", two)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        paths.append(str(tmp_path / name))
    found = compare(paths)
    text = render_text(found, width, everything=True)
    assert max(map(cell_len, text.split("\n"))) <= width
    assert json.loads(render_json(found))["schema"] == "sglogparse/comparison/1"
    assert found.exit_code in (0, 1, 3)


@pytest.mark.parametrize("number", ["1e999", "-1", "1e-999999", "9" * 24])
def test_impossible_numbers_are_no_facts(tmp_path, monkeypatch, number):
    odd = [
        line.replace("mem=43.00", f"mem={number}").replace("mem=11.40", f"mem={number}") for line in healthy()
    ]
    found = compared(tmp_path, monkeypatch, healthy(), odd)
    assert found.exit_code in (0, 1)
    render_text(found, 80)


def _written(folder, **logs):
    for name, lines in logs.items():
        (folder / f"{name}.log").write_text("".join(f"{line}\n" for line in lines))
    return [str(folder / f"{name}.log") for name in logs]


def test_a_model_of_the_hubs_cache_is_named_by_its_folder(tmp_path):
    def given(name, digest):
        path = f"/root/.cache/hub/models--acme--{name}/snapshots/{digest * 10}"
        return healthy(arguments(model_path=path))

    found = compare(_written(tmp_path, a=given("Pine-7B", "ab12"), b=given("Oak-9B", "cd34")))
    assert "the models differ: acme/Pine-7B in A, acme/Oak-9B in B" in verdict(found).because


def test_the_roles_of_a_pd_deployment_are_said_first(tmp_path):
    roles = {role: healthy(arguments(disaggregation_mode=role)) for role in ("prefill", "decode")}
    found = verdict(compare(_written(tmp_path, **roles)))
    assert found.because[0] == "A is a prefill server, B a decode server: much must differ"
