"""Foreign lines: every family by its samples, what no family may take, and the law of the two readers."""

from __future__ import annotations

import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglogparse import read_log
from sglogparse._families import families, family_names, family_of, foreign_schema, read_families
from sglogparse._grammar import grammar_text
from sglogparse._log import frame_schemas

SAMPLES = [(family.name, sample.text) for family in families() for sample in family.samples]
TEXT = grammar_text("families.lark")


def _records(lines: list[str], files: list[int] | None = None) -> pl.DataFrame:
    schema = frame_schemas()["message"]
    frame = pl.DataFrame({"message": lines}, schema={"message": pl.String}).with_columns(
        file=pl.Series(files or [0] * len(lines), dtype=pl.UInt16),
        line=pl.int_range(1, pl.len() + 1, dtype=pl.UInt32),
    )
    missing = [
        pl.lit(None, dtype=kind).alias(name) for name, kind in schema.items() if name not in frame.columns
    ]
    return frame.with_columns(missing).with_columns(text="message")


def _compiled(lines: list[str], files: list[int] | None = None) -> list[str | None]:
    records = _records(lines, files)
    rows, foreign = read_families(records, pl.repeat(True, len(lines), eager=True))
    assert foreign.schema == foreign_schema()
    assert foreign["line"].to_list() == [row + 1 for row in rows]
    assert foreign["message"].to_list() == [lines[row] for row in rows]
    found: list[str | None] = [None] * len(lines)
    for row, name in zip(rows, foreign["family"], strict=True):
        found[row] = name
    return found


def _apart(lines: list[str]) -> list[str | None]:
    """Read lines each in a file of its own, so that none stands below another one."""
    return _compiled(lines, list(range(len(lines))))


# ------------------------------------------------------------------ the grammar


def test_every_family_is_documented_and_has_samples():
    for family in families():
        assert family.doc.endswith("."), family.name
        assert bool(family.samples) == (family.name != "blank"), family.name


def test_no_family_is_called_like_a_frame_of_its_own_kind():
    assert not set(family_names()) & {*frame_schemas(), "message", "traceback", "lines", "unparsed"}


def test_lines_that_go_on_belong_to_a_family():
    listed = re.search(r"^more: ((?:.|\n)*?)\n\n", TEXT, re.MULTILINE)
    names = re.findall(r"\w+", listed[1])
    assert sorted(names) == sorted(f"{family.name}_more" for family in families() if family.more)


def test_patterns_are_what_both_engines_mean_alike():
    assert TEXT.isascii()
    for family in families():
        for pattern in filter(None, (family.pattern, family.more)):
            assert pattern.startswith("^(?:"), family.name
            bare = re.sub(r"\\[^A-Za-z]|\[\^?\]?[^\]]*\]", "x", pattern)
            assert not re.search(r"\\[A-Zb-su-z]|\(\?[^:]|[*+?}][?+]", bare), family.name


@pytest.mark.parametrize(
    ("name", "text"), SAMPLES, ids=[f"{name}-{i}" for i, (name, _) in enumerate(SAMPLES)]
)
def test_both_readers_name_a_sample(name, text):
    assert family_of(text) == name
    assert _apart([text]) == [name]


# ------------------------------------------------------------------ the law


ODD = st.sampled_from([*" \t.:|[]()#%\"'-=0a/\\", "\u2588", "\u00e9", "\u2028", "[rank0]:", "  "])
SAMPLE = st.sampled_from([text for _, text in SAMPLES])


@st.composite
def _damaged(draw) -> str:
    text = draw(SAMPLE)
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 3)))
        text = text[:start] + draw(st.one_of(st.just(""), ODD)) + text[end:]
    return text[draw(st.integers(0, 4)) :] if draw(st.booleans()) else text


def test_both_readers_agree_on_damaged_samples():
    @given(st.lists(st.one_of(_damaged(), st.text(st.characters(codec="utf-8", exclude_characters="\r\n")))))
    def check(lines):
        assert _apart(lines) == [family_of(line) for line in lines]

    check()


def test_rows_that_are_not_free_are_not_named():
    records = _records(["[Gloo] Rank 0 is connected", "", "[Gloo] Rank 1 is connected"])
    rows, foreign = read_families(records, pl.Series([False, True, True]))
    assert rows.to_list() == [1, 2]
    assert foreign.select("line", "family").rows() == [(2, "blank"), (3, "gloo")]


# ------------------------------------------------------------------ what no family may take

CONFUSERS = [
    # sentences
    "The server could not be reached, so we tried again.",
    "Error: this is what I see when I start the server",
    "I ran this on 8 GPUs and it failed after 10 minutes.",
    "Warning signs were there from the start.",
    "It prints Killed and stops.",
    "See the log below.",
    "1. Start the server",
    "- it happens only with TP8",
    "Note: the model is quantised",
    "OK, this works now",
    "See https://github.com/sgl-project/sglang/issues/1",
    "100% of the requests fail",
    "Segmentation fault is what we see on rank 3",
    "Running on 2 nodes with 8 GPUs each",
    "Collecting logs from all nodes now",
    "Downloading the model took an hour",
    "From the log it is clear that rank 3 died",
    "Process 4 is the scheduler",
    "Total 5 requests",
    "Since 0.1.0.",
    "Failed: we could not start it",
    "Fixed in release 0.5.2",
    "Installed from source, with CUDA 12.8",
    "the weights are in /models/m, and the log in /var/log/s.log:",
    "It says (see above): 8 ranks, [0] is the first",
    "Thread 3 of this discussion",
    "| I think this is the cause",
    "INFO is the level I use",
    # records of SGLang without and with their header
    "Load weight begin. avail mem=78.81 GB",
    "Decode batch. #running-req: 1, #token: 512, token usage: 0.01",
    "Prefill batch. #new-seq: 1, #new-token: 7, #cached-token: 0",
    "max_total_num_tokens=12345, chunked_prefill_size=8192, max_prefill_tokens=16384",
    "[2026-03-01 10:00:00 TP0] Memory pool end. avail mem=2.00 GB",
    "[2026-03-01 10:00:00] server_args=ServerArgs(tp_size=8)",
    "[2026-03-01 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):",
    "KV Cache is allocated. #tokens: 10, K size: 1.00 GB, V size: 1.00 GB",
    "The server is fired up and ready to roll!",
    "Received sigquit from a child process. It usually means the child failed.",
    "Capture cuda graph begin. This can take up to several minutes.",
    "Using KV cache dtype: torch.bfloat16",
    "Attention backend not set. Use flashinfer backend by default.",
    # Python code
    "import sglang as sgl",
    "    return self.model.forward(input_ids)",
    "    raise RuntimeError(message)",
    "def main(argv):",
    "x = [1, 2, 3]",
    "for rank in range(8):",
    "    self.tp_worker = TpModelWorker(",
    "    )",
    "        tensor_model_parallel_size=self.tp_size,",
    "@torch.no_grad()",
    "            ^^^^^^^^^^^^^^^^",
    "  if self.device.type != 'cpu':",
    '    "model_path": model_path,',
    "    'kind': 'scheduler',",
    '    "tp_size": 8,',
    "    },",
    # tracebacks
    "Traceback (most recent call last):",
    "[rank0]: Traceback (most recent call last):",
    '  File "/s/a.py", line 1, in f',
    '[rank0]:   File "/s/a.py", line 1, in f',
    "    main()",
    "ValueError: x",
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "AssertionError",
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
]


@pytest.mark.parametrize("text", CONFUSERS)
def test_no_family_takes_what_is_not_foreign(text):
    assert family_of(text) is None


# ------------------------------------------------------------------ lines that mean nothing alone


def test_code_below_a_warning_is_the_warning_s():
    lines = ["/src/a.py:12: UserWarning: old", "  tensor = torch.tensor(", "plain", "  x = y"]
    assert _compiled(lines) == ["python_warning", "python_warning", None, "python_warning"]
    assert _compiled(lines[1:]) == [None, None, None]


def test_a_line_goes_on_with_its_family_in_its_own_file_and_nearby_only():
    head, code = "/src/a.py:12: UserWarning: old", "  tensor = torch.tensor("
    assert _compiled([head, code], [0, 1]) == ["python_warning", None]
    far = [head, *["plain"] * 16, code]
    assert _compiled(far)[-1] is None
    assert _compiled(far[:1] + far[2:])[-1] == "python_warning"


def test_a_chain_of_lines_goes_on_as_long_as_it_is_unbroken():
    lines = ["/src/a.cu(12): error: no instance matches", *["        instantiation of f"] * 40, "plain"]
    assert _compiled(lines) == ["compiler"] * 41 + [None]


def test_json_that_is_printed_line_by_line_is_one_family():
    lines = ["{", '  "text": " Paris",', '  "meta_info": {', '    "ids": [', "      1,", "    ]", "  }", "}"]
    assert _compiled(lines) == ["json_text"] * 8
    assert _compiled(lines[1:7]) == [None] * 6


@pytest.mark.parametrize(
    ("name", "head", "line"),
    [
        ("torch_log", "[W516 08:00:00.12 OperatorEntry.cpp:154] Warning: overridden", "    registered at /b/x.cpp:1"),
        ("npu", "EI0006: Getting socket times out.", "        Solution: 1. Check the network."),
        ("tokenizers", "To disable this warning, you can either:", "\t- set something else"),
        ("sgl_kernel", "Please ensure sgl_kernel is properly installed with:", "pip install --upgrade sgl_kernel"),
        ("torchcodec", "Could not load libtorchcodec.", "        1. FFmpeg is not properly installed"),
        ("native_crash", "frame #0: f + 0x1 (0x2 in a.so)", "    0x7f00 a.so"),
        ("container_banner", "NOTE: CUDA Forward Compatibility mode ENABLED.", "  with kernel driver 535."),
        ("gpu_tool", "NPU info:", "\tNPU ID : 0"),
        ("kubernetes", "Events:", "      Message:  no room"),
        ("transformers", "A new version of the following files was downloaded", "- modeling_m.py"),
    ],
)  # fmt: skip
def test_a_line_that_means_nothing_alone(name, head, line):
    assert _compiled([head, line]) == [name, name]
    assert _compiled(["plain", line]) == [None, None]


# ------------------------------------------------------------------ in a log


def test_foreign_lines_of_a_log(tmp_path):
    path = tmp_path / "a.log"
    path.write_text(
        "+ python3 -m sglang.launch_server --tp-size 2\n"
        "[2026-03-01 10:00:01 TP0] Memory pool end. avail mem=2.00 GB\n"
        "\n"
        "  0%|          | 0/2 [00:00<?, ?it/s]\r 50%|#####     | 1/2 [00:01<00:01,  1.00s/it]\n"
        "nobody knows this\n"
        "Traceback (most recent call last):\n"
        '  File "/s/a.py", line 1, in f\n'
        "ValueError: x\n"
        "Killed\n"
    )
    log = read_log(path)
    assert log.lines["kind"].to_list() == [
        "shell", "memory_pool_end", "blank", "progress_bar", None, "traceback", "traceback", "traceback", "shell",
    ]  # fmt: skip
    assert log.foreign.select("line", "family", "message").rows() == [
        (1, "shell", "+ python3 -m sglang.launch_server --tp-size 2"),
        (3, "blank", ""),
        (4, "progress_bar", " 50%|#####     | 1/2 [00:01<00:01,  1.00s/it]"),
        (9, "shell", "Killed"),
    ]
    assert log.unparsed.select("line", "text").rows() == [(5, "nobody knows this")]
