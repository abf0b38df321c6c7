"""What spans lines and is no traceback: dumps, native stacks, asserts, compilers, records of several lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglogparse import read_log
from sglogparse._events import BLOCKS
from sglogparse._families import family_names

HEAD = "[2026-01-01 00:00:00 TP1] "
RECORD = f"{HEAD}Memory pool end. avail mem=5.61 GB"

DUMP = [
    "Fatal Python error: Aborted",
    "",
    "Thread 0x00007f6f (most recent call first):",
    '  File "/s/b.py", line 7 in inner',
    '  File "/s/a.py", line 12 in outer',
    "",
    "Current thread 0x00007fff (most recent call first):",
    "  <no Python frame>",
    "",
    "Extension modules: numpy.core._a, torch._C (total: 2)",
]
PYSPY = [
    "Process 123: sglang::scheduler_TP0",
    "Python v3.12.3 (/usr/bin/python3.12)",
    "",
    'Thread 123 (active+gil): "MainThread"',
    "    recv (sglang/srt/managers/scheduler.py:12)",
    "    0x7fbe60ca (libc.so.6)",
    "    <module> (<string>:1)",
    'Thread 0x7F11 (idle): "Thread-1 (_watch)"',
    "    wait (threading.py:320)",
    "        Arguments:",
    "            self: <Event>",
]
TORCH = [
    "terminate called after throwing an instance of 'c10::Error'",
    "  what():  CUDA error: an illegal memory access was encountered",
    "CUDA kernel errors might be asynchronously reported at some other API call.",
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
    "",
    "Exception raised from check at ../c10/cuda/CUDAException.cpp:43 (most recent call first):",
    "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f47 in /l/libc10.so)",
    "frame #1: clone + 0x43 (0x7f26 in /l/libc.so.6)",
]
UCX = [
    "[host:7:0:9] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x10)",
    "==== backtrace (tid:    9) ====",
    " 0  /l/libucs.so.0(ucs_handle_error+0x2e4) [0x7f9b]",
    " 1 0x0000000000042520 __sigaction()  ???:0",
    "=================================",
]
MPI = [
    "[host:07] *** Process received signal ***",
    "[host:07] Signal: Segmentation fault (11)",
    "[host:07] Signal code: Address not mapped (1)",
    "[host:07] Failing at address: 0x10",
    "[host:07] [ 0] /lib/libc.so.6(+0x42520)[0x7f]",
    "[host:07] *** End of error message ***",
]
ASSERT = (
    "/pytorch/aten/src/ATen/native/cuda/IndexKernel.cu:94: operator(): block: [0,0,0], thread: [{},0,0] "
    "Assertion `-sizes[i] <= index && index < sizes[i]` failed."
)
NVCC = [
    "[1/2] /usr/local/cuda/bin/nvcc -O3 -c a.cu -o a.o",
    "FAILED: [code=1] a.o ",
    "/usr/local/cuda/bin/nvcc -O3 -c a.cu -o a.o",
    '/s/a.cuh(117): error: no suitable conversion function from "a" to "float" exists',
    "          dst[i] = src[i];",
    "                   ^",
    "          detected during:",
    '            instantiation of "void f<T>(T *)" at line 9',
    "",
    '1 error detected in the compilation of "a.cu".',
    "ninja: build stopped: subcommand failed.",
]
GCC = [
    "In file included from /s/b.h:1,",
    "                 from /s/a.cpp:2:",
    "/s/a.cpp: In function 'int main()':",
    "/s/a.cpp:3:5: error: 'x' was not declared in this scope",
    "    3 |     x = 1;",
    "      |     ^",
    "compilation terminated.",
    "/usr/bin/ld: cannot find -lcuda",
    "collect2: error: ld returned 1 exit status",
]
MLIR = [
    "/s/kernel.py:12:8: error: operation failed to verify",
    "module attributes {ttg.num-warps = 4 : i32} {",
    "  tt.func public @k(%arg0: i32) {",
    "    tt.return",
    "  }",
    "}",
    "",
    "{-#",
    "  external_resources: {",
    "  }",
    "#-}",
]
SPANS = [
    ("thread_dump", PYSPY),
    ("native_stack", TORCH),
    ("native_stack", UCX),
    ("native_stack", MPI),
    ("device_assert", [ASSERT.format(thread) for thread in range(40)]),
    ("compiler_output", NVCC),
    ("compiler_output", GCC),
    ("compiler_output", MLIR),
]


@pytest.fixture
def kinds(tmp_path):
    """Return a function that gives the kind of each line: None where no event and no block takes it."""

    def kinds(*lines: str) -> list[str | None]:
        path = tmp_path / "x.log"
        path.write_text("".join(line + "\n" for line in lines))
        found = read_log(path).lines["kind"].to_list()
        return [None if kind in family_names() else kind for kind in found]

    return kinds


@pytest.mark.parametrize(("kind", "lines"), SPANS, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("after", [[RECORD], ["", "plain"], ["INFO:     Shutting down"], []])
def test_a_span_and_nothing_around_it(kinds, kind, lines, after):
    found = kinds("plain", RECORD, *lines, *after)
    assert found[2 : 2 + len(lines)] == [kind] * len(lines)
    assert kind not in found[:2] + found[2 + len(lines) :]


@pytest.mark.parametrize("tag", ["[rank3]: ", "(Worker pid=7, ip=10.0.0.1) "])
def test_a_span_of_lines_that_name_their_process(kinds, tag):
    assert kinds(*(tag + line for line in TORCH)) == ["native_stack"] * len(TORCH)


def test_what_faulthandler_dumps(kinds):
    found = kinds("plain", *DUMP, RECORD)
    dumped = ["thread_dump", None, *["thread_dump"] * 3, None, *["thread_dump"] * 2, None, "thread_dump"]
    assert found == [None, *dumped, "memory_pool_end"]


def test_a_flood_of_asserts_is_one_span_each_side_of_another_line(kinds):
    flood = [ASSERT.format(thread) for thread in range(1000)]
    assert kinds(*flood, "plain", *flood) == [*["device_assert"] * 1000, None, *["device_assert"] * 1000]


def test_lines_of_another_process_between(kinds):
    assert kinds(*TORCH[5:7], RECORD, TORCH[7]) == [
        "native_stack", "native_stack", "memory_pool_end", "native_stack",
    ]  # fmt: skip
    assert kinds(*TORCH[5:7], "", "other", TORCH[7]) == [
        "native_stack", "native_stack", None, None, "native_stack",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "an Assertion", "Thread pool of 4", "Process started", "module loaded {", "a warning: b", "error: x",
        "    x", "Loading from /a:3", "[1/2] Loading weights", "(3): error", "frame 7", "make it so",
        "/s/a.py:254: UserWarning: leaked", "5 errors", "*** hello", "1 /a/b", "built in 3 s",
        "Compile with `TORCH_USE_CUDA_DSA`", "Python v3", "== backtrace ==", "Signal: 3",
    ],
)  # fmt: skip
def test_a_line_that_only_looks_a_little_like_one(kinds, line):
    assert kinds("plain", line, RECORD)[1] is None


# ------------------------------------------------------------------ records that go on


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("the layout: {", ["  'a': [1,", "  2],", "}"]),
        ("logits tensor([[1., 2.],", ["        [3., 4.]], device='cuda:0')"]),
        ("server: {", ['"a": {', "", "}}"]),
        ("Scheduler debug info:", ["self.cur_batch.odd=[]", "available_size=3"]),
        ("Decode out of memory. Try to lower your batch size.", ["Try to allocate 3 tokens."]),
    ],
)
def test_a_record_of_several_lines(kinds, head, body):
    after = ["plain", RECORD]
    first, *rest = kinds(HEAD + head, *body, *after)
    assert first in ("message", "watchdog_state", "pool_exhausted")
    assert rest == [*["continuation"] * len(body), None, "memory_pool_end"]


@pytest.mark.parametrize(
    "lines",
    [
        ["the layout: {", "'a': 1"],
        ["the layout: {", "'a': 1", RECORD, "}"],
        ["the layout: {", "INFO:     Shutting down", "}"],
        ["the layout: {}", "}"],
        ["a list:", "- b"],
        ["Scheduler debug info:", "plain"],
        ["the layout: {", *["1,"] * 500, "}"],
    ],
)
def test_what_does_not_certainly_go_on(kinds, lines):
    assert "continuation" not in kinds(HEAD + lines[0], *lines[1:])


def test_indented_lines_directly_below_a_record_go_on_with_it(kinds):
    assert kinds(HEAD + "the causes:", "   1. odd", "\t2. even", "plain", "   3. bare") == [
        "message", "continuation", "continuation", None, None,
    ]  # fmt: skip


# ------------------------------------------------------------------ any of them


def test_every_line_is_in_one_place_whatever_stands_together(kinds):
    pieces = st.sampled_from([*(lines for _, lines in SPANS[:4]), DUMP, NVCC, GCC, [RECORD], ["plain"], [""]])

    @given(st.lists(pieces, max_size=6), st.data())
    def check(drawn, data):
        lines = [line for piece in drawn for line in piece]
        start = data.draw(st.integers(0, len(lines)))
        found = kinds(*lines[start:])
        assert len(found) == len(lines) - start
        assert set(found) <= {None, "memory_pool_end", *BLOCKS}
        assert all(
            kind is None or kind == "memory_pool_end" or line not in (RECORD, "plain")
            for line, kind in zip(lines[start:], found, strict=True)
        )

    check()
