"""Tracebacks as blocks: where they begin, go on and end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglogparse import read_log

HEAD = "[2026-03-01 10:00:00 TP1] "
REPORT = HEAD + "Scheduler hit an exception: Traceback (most recent call last):"
FRAME = '  File "/opt/sglang/python/sglang/srt/managers/scheduler.py", line 311, in __init__'
CODE = "    self.tp_worker = TpModelWorker("
MARK = "                     ^^^^^^^^^^^^^^"


@pytest.fixture
def blocks(tmp_path):
    """Return a function from lines to the traceback rows and the kinds of all lines."""

    def read(*lines):
        path = tmp_path / "a.log"
        path.write_text("\n".join(lines) + "\n")
        log = read_log(path)
        return log.traceback.rows(named=True), log.lines["kind"].to_list()

    return read


def test_a_report_its_frames_and_its_exception_are_one_block(blocks):
    (row,), kinds = blocks(REPORT, FRAME, CODE, MARK, "RuntimeError: no room", "", HEAD + "next")
    assert kinds == ["exception_report", *["traceback"] * 4, None, "message"]
    assert (row["line"], row["last_line"], row["exception_line"]) == (1, 5, 5)
    assert (row["rank"], row["tp"], row["process_name"]) == ("TP1", 1, "Scheduler")
    assert (row["exception"], row["message"], row["complete"]) == ("RuntimeError", "no room", True)
    assert row["stack"] == [
        {
            "path": "/opt/sglang/python/sglang/srt/managers/scheduler.py",
            "line": 311,
            "function": "__init__",
            "code": "self.tp_worker = TpModelWorker(",
        }
    ]


def test_a_chain_names_its_first_cause_first(blocks):
    chain = "The above exception was the direct cause of the following exception:"
    begin = "Traceback (most recent call last):"
    (row,), _ = blocks(REPORT, FRAME, "KeyError: 'a'", "", chain, "", begin, FRAME, "ValueError: b", "")
    assert row["exceptions"] == ["KeyError: 'a'", "ValueError: b"]
    assert (row["exception"], row["exception_line"], row["last_line"]) == ("ValueError", 9, 9)
    assert len(row["stack"]) == 1


def test_a_message_of_several_lines_belongs_to_its_exception(blocks):
    (row,), _ = blocks(
        REPORT,
        FRAME,
        "Exception: Capture cuda graph failed: x",
        "Possible solutions:",
        "1. lower it",
        "",
        HEAD + "on",
    )
    assert row["message"] == "Capture cuda graph failed: x\nPossible solutions:\n1. lower it"
    assert (row["exception_line"], row["last_line"]) == (3, 5)


def test_ranks_that_follow_each_other_are_blocks_of_their_own(blocks):
    other = REPORT.replace("TP1", "TP2")
    rows, _ = blocks(REPORT, FRAME, "ValueError: a", other, FRAME, "ValueError: a", "")
    assert [(row["rank"], row["line"], row["exception_line"]) for row in rows] == [
        ("TP1", 1, 3),
        ("TP2", 4, 6),
    ]


@pytest.mark.parametrize("head", ["", HEAD])
def test_an_exception_alone_on_its_line_is_a_block_without_a_beginning(blocks, head):
    (row,), kinds = blocks(head + "torch.OutOfMemoryError: CUDA out of memory.")
    assert kinds == ["traceback"]
    assert (row["exception"], row["message"], row["complete"]) == (
        "torch.OutOfMemoryError",
        "CUDA out of memory.",
        False,
    )


def test_a_block_without_its_head_or_tail_says_that_it_is_not_complete(blocks):
    (headless,), _ = blocks(FRAME, CODE, "ValueError: a")
    assert (headless["complete"], headless["exception"], headless["line"]) == (False, "ValueError", 1)
    (tailless,), _ = blocks(REPORT, FRAME, CODE)
    assert (tailless["complete"], tailless["exception"], tailless["last_line"]) == (False, None, 3)


def test_a_progress_bar_between_the_lines_is_not_part_of_the_block(blocks):
    bar = "Capturing batches:  25%|##        | 1/4 [00:05<00:16,  5.51s/it]"
    (row,), kinds = blocks(REPORT, FRAME, bar, CODE, "ValueError: a")
    assert kinds == ["exception_report", "traceback", None, "traceback", "traceback"]
    assert (row["exception_line"], row["message"]) == (5, "a")


def test_any_name_at_the_margin_after_frames_is_the_exception(blocks):
    (row,), _ = blocks(REPORT, FRAME, CODE, "some.module.Odd: what happened")
    assert (row["exception"], row["message"]) == ("some.module.Odd", "what happened")


def test_two_tracebacks_without_a_blank_between_are_two(blocks):
    begin = "Traceback (most recent call last):"
    rows, _ = blocks(begin, FRAME, "ValueError: a", begin, FRAME, "KeyError: b")
    assert [(row["line"], row["exception"]) for row in rows] == [(1, "ValueError"), (4, "KeyError")]


@pytest.mark.parametrize(
    "foreign",
    [
        HEAD + "Load weight begin. avail mem=9.00 GB",
        "W0301 10:00:00.000000 17 torch/utils/_pytree.py:630] odd",
        "2026-03-01 10:00:00,000 - INFO - harness",
        'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK',
    ],
)
def test_a_block_never_takes_another_record(blocks, foreign):
    (row,), kinds = blocks(REPORT, FRAME, "ValueError: a", foreign)
    assert row["last_line"] == 3
    assert kinds[3] != "traceback"


def test_a_block_ends_with_its_file(tmp_path):
    first, second = tmp_path / "a.log", tmp_path / "b.log"
    first.write_text(f"{REPORT}\n{FRAME}\n")
    second.write_text("    indented, but in another file\nValueError: a\n")
    log = read_log([first, second])
    assert log.traceback.select("file", "line", "last_line").rows() == [(0, 1, 2), (1, 2, 2)]
    assert log.lines["kind"].to_list() == ["exception_report", "traceback", None, "traceback"]


_frames = st.lists(
    st.tuples(
        st.sampled_from(["a.py", "/opt/b c.py"]), st.integers(1, 9999), st.sampled_from(["run", "<module>"])
    ),
    min_size=1,
    max_size=6,
)


@given(
    _frames,
    st.sampled_from(["ValueError", "torch.cuda.OutOfMemoryError"]),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_all_lines_of_a_traceback_are_in_its_block_and_no_others(
    tmp_path_factory, frames, name, before, after
):
    body = [
        line
        for path, at, where in frames
        for line in (f'  File "{path}", line {at}, in {where}', "    call()")
    ]
    lines = [*[HEAD + "before"] * before, REPORT, *body, f"{name}: it failed", *[HEAD + "after"] * after]
    path = tmp_path_factory.mktemp("blocks") / "a.log"
    path.write_text("\n".join(lines) + "\n")
    log = read_log(path)
    (row,) = log.traceback.rows(named=True)
    assert (row["line"], row["last_line"]) == (before + 1, before + len(body) + 2)
    assert (row["exception"], row["message"], row["complete"]) == (name, "it failed", True)
    assert [(one["path"], one["line"], one["function"]) for one in row["stack"]] == frames
    assert log.lines.filter(kind="message").height == before + after
