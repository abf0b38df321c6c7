"""From records to blocks: tracebacks, whole and cut, and what stands between them."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglogparse import Log, read_log
from sglogparse._blocks import TRACEBACK_DOCS, TRACEBACK_SCHEMA
from sglogparse._records import RECORD_SCHEMA

BEGIN = "Traceback (most recent call last):"
DURING = "During handling of the above exception, another exception occurred:"
CAUSE = "The above exception was the direct cause of the following exception:"
HEAD = "[2026-01-01 00:00:00 TP1] "
REPORT = f"{HEAD}Scheduler hit an exception: {BEGIN}"
RECORD = f"{HEAD}Memory pool end. avail mem=5.61 GB"
STACK = [
    '  File "/s/a.py", line 12, in outer',
    "    inner(x)",
    '  File "/s/b.py", line 7, in inner',
    "    raise E",
]
FRAMES = [
    {"path": "/s/a.py", "line": 12, "function": "outer", "code": "inner(x)"},
    {"path": "/s/b.py", "line": 7, "function": "inner", "code": "raise E"},
]


@pytest.fixture
def log_of(tmp_path):
    """Return a function that reads a log of the given lines (of one list a file)."""

    def log_of(*files: list[str]) -> Log:
        paths = []
        for index, lines in enumerate(files):
            paths.append(tmp_path / f"{index}.log")
            paths[-1].write_text("".join(line + "\n" for line in lines))
        return read_log(paths)

    return log_of


@pytest.fixture
def blocks(log_of):
    """Return a function that gives (first line, last line, exceptions, complete) of each block."""

    def blocks(*lines: str) -> list[tuple]:
        log = log_of(list(lines))
        rows = log.traceback.select("line", "last_line", "exceptions", "complete").rows()
        return [(first, last, list(chain), complete) for first, last, chain, complete in rows]

    return blocks


def _members(log: Log) -> list[int]:
    """Return the lines of blocks, with the reports that begin them."""
    rows = zip(log.lines["line"], log.lines["kind"], strict=True)
    return [line for line, kind in rows if kind in ("traceback", "exception_report", "warmup_failed")]


# ------------------------------------------------------------------ whole tracebacks


def test_the_schema_and_its_documentation(log_of):
    assert log_of([]).traceback.schema == TRACEBACK_SCHEMA
    assert set(TRACEBACK_DOCS) == set(TRACEBACK_SCHEMA) - set(RECORD_SCHEMA)


def test_a_reported_traceback_with_a_rank(log_of):
    log = log_of([RECORD, REPORT, *STACK, "ValueError: no room", "", RECORD])
    (row,) = log.traceback.rows(named=True)
    assert (row["line"], row["last_line"], row["exception_line"]) == (2, 7, 7)
    assert (row["rank"], row["tp"], str(row["time"])) == ("TP1", 1, "2026-01-01 00:00:00")
    assert row["process_name"] == "Scheduler"
    assert (row["exception"], row["message"]) == ("ValueError", "no room")
    assert row["exceptions"] == ["ValueError: no room"]
    assert row["stack"] == FRAMES
    assert row["complete"] is True
    assert log.lines["kind"].to_list() == [
        "memory_pool_end", "exception_report", *["traceback"] * 5, "blank", "memory_pool_end",
    ]  # fmt: skip


def test_a_bare_traceback(log_of):
    log = log_of(["before", BEGIN, *STACK, "ValueError: no room", RECORD])
    (row,) = log.traceback.rows(named=True)
    assert (row["line"], row["last_line"], row["exception_line"], row["complete"]) == (2, 7, 7, True)
    assert (row["rank"], row["time"], row["process_name"]) == (None, None, None)
    assert _members(log) == [2, 3, 4, 5, 6, 7]


def test_a_traceback_behind_other_words(blocks):
    assert blocks(f"{HEAD}Initialization failed. warmup error: {BEGIN}", *STACK, "E: 1") == [
        (1, 6, ["E: 1"], True)
    ]
    assert blocks(f"{HEAD}router init state: {BEGIN}", *STACK, "ValueError: 1") == [
        (1, 6, ["ValueError: 1"], True)
    ]


def test_a_report_that_names_its_process_on_a_line_of_its_own(log_of):
    log = log_of(["[08:00:00 TP1] Exception in ModelTpServer:", BEGIN, *STACK, "ValueError: no room"])
    row = log.traceback.row(0, named=True)
    assert (row["line"], row["last_line"], row["rank"], row["process_name"]) == (1, 7, "TP1", "ModelTpServer")
    assert (row["exceptions"], row["stack"], row["complete"]) == (["ValueError: no room"], FRAMES, True)
    assert log.traceback.height == 1


def test_a_report_without_frames(blocks):
    assert blocks(REPORT, "ValueError: no room") == [(1, 2, ["ValueError: no room"], True)]


def test_chained_exceptions_are_one_block(log_of):
    second = ['  File "/s/c.py", line 1, in late', "    raise F"]
    lines = [REPORT, *STACK, "KeyError: 'a'", "", DURING, "", BEGIN, *second, "ValueError: b", "", CAUSE, ""]
    log = log_of([*lines, BEGIN, *second, "Exception: c", "", RECORD])
    (row,) = log.traceback.rows(named=True)
    assert row["exceptions"] == ["KeyError: 'a'", "ValueError: b", "Exception: c"]
    assert (row["exception"], row["message"], row["exception_line"]) == ("Exception", "c", 20)
    assert row["stack"] == [{"path": "/s/c.py", "line": 1, "function": "late", "code": "raise F"}]
    assert (row["line"], row["last_line"], row["complete"], row["rank"]) == (1, 20, True, "TP1")
    assert _members(log) == list(range(1, 21))


def test_a_message_of_several_lines(log_of):
    message = ["no room", "CUDA kernel errors might be", "  indented: too", "Compile with X"]
    log = log_of([BEGIN, *STACK, f"torch.AcceleratorError: {message[0]}", *message[1:], "", "not part of it"])
    (row,) = log.traceback.rows(named=True)
    assert row["message"] == "\n".join(message)
    assert row["exceptions"] == ["torch.AcceleratorError: " + "\n".join(message)]
    assert (row["exception_line"], row["last_line"]) == (6, 9)


def test_a_message_that_begins_below_its_exception(log_of):
    log = log_of(["torch.DistNetworkError:", "[kernel] could not listen", "code: -98,", "", "x"])
    (row,) = log.traceback.rows(named=True)
    assert (row["exception"], row["message"]) == (
        "torch.DistNetworkError",
        "[kernel] could not listen\ncode: -98,",
    )
    assert (row["exception_line"], row["last_line"]) == (1, 3)


def test_a_line_of_the_message_that_looks_like_an_error_of_a_library(blocks):
    lines = [
        BEGIN,
        *STACK,
        "torch.distributed.DistBackendError: NCCL error",
        "ncclSystemError: System call failed",
    ]
    assert blocks(*lines) == [
        (1, 7, ["torch.distributed.DistBackendError: NCCL error\nncclSystemError: System call failed"], True)
    ]


def test_code_lines(log_of):
    lines = [
        BEGIN,
        '  File "/s/a.py", line 1, in f',
        "    return g(",
        "           ^^",
        '  File "<frozen runpy>", line 198, in _run',
        '  File "/s/b.py", line 2',
        "    ~~~~^^^",
        "  [Previous line repeated 996 more times]",
        "KeyError",
    ]
    (row,) = log_of(lines).traceback.rows(named=True)
    assert row["stack"] == [
        {"path": "/s/a.py", "line": 1, "function": "f", "code": "return g("},
        {"path": "<frozen runpy>", "line": 198, "function": "_run", "code": None},
        {"path": "/s/b.py", "line": 2, "function": None, "code": "[Previous line repeated 996 more times]"},
    ]
    assert (row["exception"], row["message"], row["exceptions"]) == ("KeyError", "", ["KeyError"])


@pytest.mark.parametrize(
    ("line", "name", "message"),
    [
        ("queue.Empty", "queue.Empty", ""),
        ("torch._dynamo.exc.Unsupported: no", "torch._dynamo.exc.Unsupported", "no"),
        ("MyOwnProblem: oh: no", "MyOwnProblem", "oh: no"),
        ("nixlBackend: NIXL_ERR", "nixlBackend", "NIXL_ERR"),
        (
            "ray.exceptions.RayTaskError(ActorDiedError): died",
            "ray.exceptions.RayTaskError(ActorDiedError)",
            "died",
        ),
        ("SystemExit: 1", "SystemExit", "1"),
        ("KeyboardInterrupt", "KeyboardInterrupt", ""),
        ("Exception", "Exception", ""),
        ("StopIteration", "StopIteration", ""),
        ("ValueError: ", "ValueError", ""),
    ],
)
def test_any_name_at_the_margin_after_frames_is_the_exception(log_of, line, name, message):
    row = log_of([BEGIN, *STACK, line, "", "x"]).traceback.row(0, named=True)
    assert (row["exception"], row["message"], row["exception_line"], row["complete"]) == (
        name,
        message,
        6,
        True,
    )


@pytest.mark.parametrize(
    "line", ["Killed", "Aborted (core dumped)", "Loading", "two words: x", "(3): x", "- KeyError: x"]
)
def test_what_is_no_exception_ends_the_block(blocks, line):
    assert blocks(BEGIN, *STACK, line) == [(1, 5, [], False)]


# ------------------------------------------------------------------ several


def test_several_ranks_after_each_other(log_of):
    lines: list[str] = []
    for rank in range(8):
        lines += [REPORT.replace("TP1", f"TP{rank}"), *STACK, "ValueError: no room", ""]
    log = log_of(lines)
    assert log.traceback["tp"].to_list() == list(range(8))
    assert log.traceback["line"].to_list() == [1 + 7 * rank for rank in range(8)]
    assert log.traceback["last_line"].to_list() == [6 + 7 * rank for rank in range(8)]
    assert log.traceback["exception_line"].to_list() == [6 + 7 * rank for rank in range(8)]
    assert log.traceback["stack"].to_list() == [FRAMES] * 8
    assert log.traceback["complete"].all()


def test_two_tracebacks_without_a_blank_between(blocks):
    one = [BEGIN, *STACK, "ValueError: a"]
    assert blocks(*one, *one) == [(1, 6, ["ValueError: a"], True), (7, 12, ["ValueError: a"], True)]
    assert blocks(*one[:-1], *one) == [(1, 5, [], False), (6, 11, ["ValueError: a"], True)]
    assert blocks(REPORT, *one[1:], *one) == [
        (1, 6, ["ValueError: a"], True),
        (7, 12, ["ValueError: a"], True),
    ]


def test_one_line_exceptions(log_of):
    lines = ["ValueError: a", f"{HEAD}RuntimeError: b", "zmq.error.ZMQError: c", "Exception: d", "e"]
    log = log_of(lines)
    assert log.traceback.select(
        "line", "last_line", "rank", "exceptions", "exception_line", "complete"
    ).rows() == [
        (1, 1, None, ["ValueError: a"], 1, False),
        (2, 2, "TP1", ["RuntimeError: b"], 2, False),
        (3, 3, None, ["zmq.error.ZMQError: c"], 3, False),
        (4, 5, None, ["Exception: d\ne"], 4, False),
    ]
    assert log.lines["kind"].to_list() == ["traceback"] * 5


@pytest.mark.parametrize(
    "line",
    [
        "Error: x", "Timeout: 30", "Failure", "an Error: x", "ncclSystemError: x", "ProcessGroup: x",
        "ValueErrors: x", "- ImportError: x", "[ERROR] x", f"{HEAD}Pyspy failed. Error: x", f"{HEAD}Error: x",
        f"{HEAD}{STACK[0]}", f"output.error='{BEGIN}\\n  File'", "Exception in thread Thread-1:", "KeyError x",
    ],
)  # fmt: skip
def test_a_line_that_only_speaks_of_an_error_opens_no_block(blocks, line):
    assert blocks(line) == []


# ------------------------------------------------------------------ cut


def test_a_traceback_that_was_cut_at_its_head(log_of):
    log = log_of([*STACK[1:], "ValueError: a", "", RECORD])
    (row,) = log.traceback.rows(named=True)
    assert (row["line"], row["last_line"], row["exceptions"], row["complete"]) == (
        1,
        4,
        ["ValueError: a"],
        False,
    )
    assert row["stack"] == FRAMES[1:]
    assert (row["exception_line"], row["process_name"]) == (4, None)


def test_indented_lines_alone_are_no_block(blocks):
    assert blocks("    'a': 1,", "    'b': 2,", "done") == []
    assert blocks("    'a': 1,", "ValueError: x") == [(2, 2, ["ValueError: x"], False)]
    assert blocks("    'a': 1,", "", *STACK) == [(3, 6, [], False)]


@pytest.mark.parametrize("length", range(1, 5))
def test_a_traceback_that_was_cut_at_its_tail(blocks, length):
    assert blocks(REPORT, *STACK[:length]) == [(1, 1 + length, [], False)]
    assert blocks(REPORT, *STACK[:length], RECORD) == [(1, 1 + length, [], False)]
    assert blocks(BEGIN, *STACK[:length]) == [(1, 1 + length, [], False)]


def test_a_report_alone(blocks):
    assert blocks(REPORT) == [(1, 1, [], False)]
    assert blocks(REPORT, RECORD, *STACK, "ValueError: a") == [
        (1, 1, [], False),
        (3, 7, ["ValueError: a"], False),
    ]


def test_a_chain_that_was_cut_is_not_complete(log_of):
    lines = [BEGIN, *STACK, "KeyError: 'a'", "", DURING, "", BEGIN, STACK[0]]
    for length, last in ((8, 8), (9, 8), (10, 10), (11, 11)):
        (row,) = log_of(lines[:length]).traceback.rows(named=True)
        assert (row["last_line"], row["exceptions"], row["complete"]) == (last, ["KeyError: 'a'"], False)
        assert row["stack"] == (FRAMES if length < 11 else [FRAMES[0] | {"code": None}])


def test_a_cut_line(blocks):
    assert blocks(REPORT, '  File "/s/') == [(1, 2, [], False)]
    assert blocks(REPORT, *STACK, "torch.OutOfMem") == [(1, 6, ["torch.OutOfMem"], True)]


def test_a_blank_line_within_a_stack(blocks):
    assert blocks(BEGIN, *STACK[:2], "", *STACK[2:], "", "ValueError: a") == [(1, 8, ["ValueError: a"], True)]
    assert blocks(BEGIN, *STACK, "", "note: x") == [(1, 5, [], False)]


def test_a_traceback_that_lost_its_indentation(log_of):
    carets = ["^" * 5]
    lines = [line.strip() for line in STACK]
    log = log_of([REPORT, *lines[:2], *carets, *lines[2:], *carets, "ValueError: no room"])
    (row,) = log.traceback.rows(named=True)
    assert (row["line"], row["last_line"], row["exceptions"]) == (1, 8, ["ValueError: no room"])
    assert (row["stack"], row["complete"], row["exception_line"]) == (FRAMES, True, 8)


# ------------------------------------------------------------------ what stands between the lines

BARS = ["Loading:  50%|#####     | 1/2 [00:01<00:01]", "100%|##########| 2/2"]


def test_a_progress_bar_between_the_lines(log_of):
    log = log_of([REPORT, STACK[0], BARS[0], *STACK[1:], BARS[1], "ValueError: a", "b"])
    (row,) = log.traceback.rows(named=True)
    assert (row["stack"], row["exceptions"], row["exception_line"]) == (FRAMES, ["ValueError: a\nb"], 8)
    assert _members(log) == [1, 2, 4, 5, 6, 8, 9]


@pytest.mark.parametrize(
    "foreign",
    [
        "I0915 12:00:00.000000 123 transfer_engine.cpp:44] Transfer Engine starting",
        "[rank3]:[E421 21:56:39.426633564 ProcessGroupGloo.cpp:143] Rank 3 reached",
        "WARNING:root:x",
        "ERROR:    Exception in ASGI application",
        "2026-01-01 00:00:00,123 - INFO - x",
        "/usr/lib/python3.12/resource_tracker.py:254: UserWarning: leaked",
        "node1:36753:36753 [5] NCCL INFO Channel 00/0",
        "Process SpawnProcess-2:",
        "terminate called after throwing an instance of 'c10::Error'",
        "Fatal Python error: Aborted",
        "Segmentation fault (core dumped)",
        "Killed",
        "=" * 70,
    ],
)
def test_a_record_of_another_logger(log_of, foreign):
    whole = [BEGIN, *STACK, "ValueError: a"]
    log = log_of([*whole, foreign, "c"])
    assert log.traceback.select("last_line", "message").rows() == [(6, "a")]
    assert _members(log) == [1, 2, 3, 4, 5, 6]
    within = log_of([*whole[:3], foreign, *whole[3:]])
    assert within.traceback.select("last_line", "message", "complete").rows() == [(7, "a", True)]
    assert within.traceback["stack"].to_list() == [FRAMES]
    assert _members(within) == [1, 2, 3, 5, 6, 7]
    after = log_of([*whole[:-1], foreign, "c: d"])
    assert _members(after) == [1, 2, 3, 4, 5]


def test_a_record_that_follows_is_never_swallowed(log_of):
    for record in (RECORD, "INFO:     Shutting down", f"{HEAD}x", "Killed", REPORT):
        for length in range(1, 7):
            log = log_of([*[BEGIN, *STACK, "ValueError: a"][:length], record, "bare line"])
            assert 1 + length not in _members(log)[:length]
            assert log.traceback["last_line"][0] == length


def test_a_bare_line_after_a_record_is_not_swallowed(log_of):
    log = log_of([REPORT, *STACK, "ValueError: a", RECORD, "bare: line", f"{HEAD}x", "    indented"])
    assert _members(log) == [1, 2, 3, 4, 5, 6]


def test_another_file_is_never_swallowed(log_of):
    log = log_of(
        [RECORD, BEGIN, *STACK], ["ValueError: a", "b"], [BEGIN, STACK[0]], ["    code()", *STACK[2:]]
    )
    assert log.traceback.select("file", "line", "last_line", "exceptions").rows() == [
        (0, 2, 6, []),
        (1, 1, 2, ["ValueError: a\nb"]),
        (2, 1, 2, []),
        (3, 1, 3, []),
    ]


def test_a_message_has_an_end(log_of):
    log = log_of(["ValueError: a", *["bare line"] * 2000, BEGIN, *STACK, "ValueError: b"])
    assert log.traceback.select("line", "last_line").rows() == [(1, 500), (2002, 2007)]


# ------------------------------------------------------------------ what else prints frames


def test_the_logging_module_s_own_errors(log_of):
    call = [
        "Call stack:",
        '  File "/s/main.py", line 1, in <module>',
        "    run()",
        "Message: 'Received'",
        "Arguments: ()",
    ]
    log = log_of(["--- Logging error ---", BEGIN, *STACK, "OSError: [Errno 5] x", *call, "after: that"])
    (row,) = log.traceback.rows(named=True)
    assert (row["exceptions"], row["exception_line"], row["last_line"]) == (["OSError: [Errno 5] x"], 7, 12)
    assert (row["stack"], row["complete"]) == (FRAMES, True)
    assert _members(log) == list(range(2, 13))


def test_the_logging_module_s_message_is_no_exception(log_of):
    (row,) = log_of([*STACK, "Message: 'Received sigquit'", "Arguments: ()"]).traceback.rows(named=True)
    assert (row["exceptions"], row["last_line"], row["complete"]) == ([], 6, False)


DUMP = ['  File "/s/b.py", line 7 in inner', '  File "/s/a.py", line 12 in outer']


def test_the_stacks_that_faulthandler_dumps(log_of):
    lines = ["Fatal Python error: Aborted", "", "Thread 0x00007f6f (most recent call first):", *DUMP, ""]
    log = log_of(
        [*lines, "Current thread 0x00007fff (most recent call first):", *DUMP, "  ...", "ValueError: x"]
    )
    bare = [frame | {"code": None} for frame in FRAMES]
    assert log.traceback.select("line", "last_line", "exceptions", "stack", "complete").rows() == [
        (3, 5, [], bare, False),
        (7, 10, [], bare, False),
        (11, 11, ["ValueError: x"], [], False),
    ]


def test_a_dump_that_was_cut_at_its_head(log_of):
    assert log_of([*DUMP, "", "x"]).traceback.select("last_line", "complete").rows() == [(2, False)]
    assert [frame["function"] for frame in log_of(DUMP).traceback["stack"][0]] == ["outer", "inner"]


# ------------------------------------------------------------------ exception groups

GROUP = [
    "  + Exception Group " + BEGIN,
    '  |   File "/s/a.py", line 1, in f',
    "  |     raise E",
    "  | ExceptionGroup: unhandled (2 sub-exceptions)",
    "  | a note",
    "  +-+---------------- 1 ----------------",
    "    | " + BEGIN,
    '    |   File "/s/b.py", line 2, in g',
    "    |     h()",
    "    | ValueError: x",
    "    |",
    "    | another note",
    "    +---------------- 2 ----------------",
    "    | ExceptionGroup: inner (1 sub-exception)",
    "    +-+---------------- 1 ----------------",
    "      | KeyError: 'a'",
    "      +------------------------------------",
]
OUTER = {"path": "/s/a.py", "line": 1, "function": "f", "code": "raise E"}
INNER = {"path": "/s/b.py", "line": 2, "function": "g", "code": "h()"}
CHAIN = [
    "ValueError: x\n\nanother note",
    "KeyError: 'a'",
    "ExceptionGroup: inner (1 sub-exception)",
    "ExceptionGroup: unhandled (2 sub-exceptions)\na note",
]


def test_an_exception_group(log_of):
    log = log_of(["ERROR:    Exception in ASGI application", *GROUP, RECORD])
    (row,) = log.traceback.rows(named=True)
    assert (row["line"], row["last_line"], row["complete"]) == (2, 18, True)
    assert (row["exception"], row["exception_line"]) == ("ExceptionGroup", 5)
    assert row["message"] == "unhandled (2 sub-exceptions)\na note"
    assert (row["exceptions"], row["stack"]) == (CHAIN, [OUTER])
    assert row["sub_exceptions"] == [
        {"exception": "ValueError", "message": "x\n\nanother note", "line": 11, "stack": [INNER]},
        {"exception": "KeyError", "message": "'a'", "line": 17, "stack": []},
        {"exception": "ExceptionGroup", "message": "inner (1 sub-exception)", "line": 15, "stack": []},
    ]
    assert _members(log) == list(range(2, 19))


def test_an_exception_group_that_a_record_reports(log_of):
    head = REPORT.removesuffix(BEGIN) + "  + Exception Group " + BEGIN
    log = log_of([head, *GROUP[1:], "", DURING, "", BEGIN, *STACK, "ValueError: b"])
    (row,) = log.traceback.rows(named=True)
    assert (row["line"], row["last_line"], row["rank"], row["complete"]) == (1, 26, "TP1", True)
    assert (row["exceptions"], row["stack"]) == ([*CHAIN, "ValueError: b"], FRAMES)
    assert row["exception_line"] == 26


def test_a_group_within_a_chain(blocks):
    lines = [BEGIN, *STACK, "ValueError: a", "", DURING, "", *GROUP]
    assert blocks(*lines) == [(1, 26, ["ValueError: a", *CHAIN], True)]


@pytest.mark.parametrize(("length", "chain"), [(2, []), (4, CHAIN[3:]), (8, CHAIN[3:]), (10, CHAIN[:1])])
def test_a_group_that_was_cut_at_its_tail(blocks, length, chain):
    (found,) = blocks(*GROUP[:length], RECORD)
    assert found[:2] == (1, length)
    assert [one.split("\n")[0] for one in found[2][:1]] == [one.split("\n")[0] for one in chain]
    assert found[3] is False


def test_a_group_that_was_cut_at_its_head(log_of):
    (row,) = log_of(GROUP[1:]).traceback.rows(named=True)
    assert (row["exceptions"], row["stack"], row["complete"]) == (CHAIN, [OUTER], False)
    (row,) = log_of(GROUP[7:]).traceback.rows(named=True)
    assert (row["line"], row["last_line"], row["complete"]) == (1, 10, False)


def test_rulers_and_tables_are_no_group(blocks):
    assert (
        blocks("+------+", "| a: b |", "  +-+---------------- 1 ----------------", "  | ValueError: x") == []
    )


# ------------------------------------------------------------------ messages with blank lines


@pytest.mark.parametrize(
    ("message", "rest"),
    [
        (
            [
                "CUDA error: x",
                "",
                "Possible solutions:",
                "1. this",
                "2. that",
                "",
                "Open an issue on GitHub x",
            ],
            [],
        ),
        (["backend raised:", "TypeError: x", "", 'Set TORCH_LOGS="+dynamo" for more'], ["", "other"]),
        (["at 3:4:", "def f(", "", "    x):", "    ^"], ["", "other"]),
        (["a", "b"], ["", "not part of it"]),
    ],
)
def test_a_message_with_blank_lines(log_of, message, rest):
    log = log_of([BEGIN, *STACK, f"Exception: {message[0]}", *message[1:], *rest])
    assert log.traceback["message"].to_list() == ["\n".join(message)]
    assert log.traceback["last_line"].to_list() == [5 + len(message)]


def test_what_stands_before_the_next_of_a_chain_is_the_message(blocks):
    one = [BEGIN, *STACK, "ValueError: a", "", "b", "", "  c"]
    assert blocks(*one, "", DURING, "", BEGIN, *STACK, "KeyError: 1", "", "d") == [
        (1, 19, ["ValueError: a\n\nb\n\n  c", "KeyError: 1"], True)
    ]


def test_blank_lines_between_all_lines_of_a_chain(blocks):
    lines = [BEGIN, *STACK, "ValueError: a", DURING, BEGIN, *STACK, "KeyError: 1"]
    spread = [text for line in lines for text in (line, "", "")]
    assert blocks(*spread) == [(1, 37, ["ValueError: a", "KeyError: 1"], True)]


# ------------------------------------------------------------------ lines that name their process


def test_two_processes_that_torch_names(log_of):
    one = [BEGIN, *STACK, "ValueError: a", "", "more of it"]
    two = [BEGIN, *STACK[2:], "KeyError: 1"]
    lines = [f"[rank0]: {line}".rstrip() for line in one]
    for place, line in zip((1, 3, 4, 6), two, strict=True):
        lines.insert(place, f"[rank11]: {line}")
    lines.insert(2, "Loading: x")
    lines.insert(9, "[rank0]:[W104 01:26:23.057553508 a.cpp:1] Warning")
    log = log_of([*lines, RECORD])
    columns = ("line", "last_line", "rank", "gpu_id", "exceptions", "stack", "complete")
    assert log.traceback.select(columns).rows() == [
        (1, 14, "0", 0, ["ValueError: a\n\nmore of it"], FRAMES, True),
        (2, 8, "11", 11, ["KeyError: 1"], FRAMES[1:], True),
    ]
    assert sorted(set(range(1, 15)) - set(_members(log))) == [3, 10]


def test_a_ray_worker_s_report(log_of):
    tag = "(Worker pid=7, ip=10.0.0.1) "
    lines = [f"{tag}{line}" for line in (REPORT, *STACK, "ValueError: a")]
    lines.insert(
        2, "(Worker pid=8, ip=10.0.0.1)     inner(x) [repeated 7x across cluster] (Ray deduplicates)"
    )
    log = log_of([*lines, f"{tag}{RECORD}", f"{tag}b"])
    (row,) = log.traceback.rows(named=True)
    assert (row["line"], row["last_line"], row["exceptions"]) == (1, 7, ["ValueError: a"])
    assert (row["rank"], row["tp"], str(row["time"])) == ("TP1", 1, "2026-01-01 00:00:00")
    assert (row["process_name"], row["stack"], row["complete"]) == ("Scheduler", FRAMES, True)
    assert _members(log) == [1, 2, 4, 5, 6, 7]


def test_lines_that_name_another_process_are_not_between_the_lines(log_of):
    log = log_of(
        [BEGIN, STACK[0], "(pid=9) Traceback", "[rank1]: x", *STACK[1:], "(pid=9) y", "ValueError: a"]
    )
    assert log.traceback.select("last_line", "exceptions", "complete").rows() == [
        (9, ["ValueError: a"], True)
    ]
    assert _members(log) == [1, 2, 5, 6, 7, 9]


# ------------------------------------------------------------------ several at once

SAME = ["ValueError: a"]


def _mixed(order: str, *tracebacks: list[str]) -> list[str]:
    """Return the lines of tracebacks in an order: the letter a is the next line of the first one."""
    rest = [list(lines) for lines in tracebacks]
    return [rest["abcdefgh".index(letter)].pop(0) for letter in order]


def test_equal_tracebacks_whose_lines_are_mixed(log_of):
    one = [BEGIN, *STACK, *SAME, "more"]
    lines = _mixed("abcaabbaaaabbbcccbcccc", one, [*one, ""], [*one, "", ""])
    log = log_of([RECORD, *lines[:-1], RECORD])
    rows = log.traceback.select("exceptions", "stack", "complete", "ambiguous").rows()
    assert rows == [(["ValueError: a\nmore"], FRAMES, True, False)] * 3
    assert log.traceback["line"].to_list() == [2, 3, 4]
    assert _members(log) == list(range(2, 23))


def test_equal_stacks_with_exceptions_of_their_own(log_of):
    lines = _mixed("abababababab", [BEGIN, *STACK, "ValueError: a"], [BEGIN, *STACK, "ValueError: b"])
    log = log_of(lines)
    columns = ("line", "last_line", "exceptions", "stack", "complete", "ambiguous")
    assert log.traceback.select(columns).rows() == [
        (1, 11, ["ValueError: a"], FRAMES, False, True),
        (2, 12, ["ValueError: b"], FRAMES, False, True),
    ]


def test_reports_of_ranks_whose_lines_are_mixed(log_of):
    reports = [REPORT.replace("TP1", f"TP{rank}") for rank in range(2)]
    lines = _mixed("abbaabbabaab", *([report, *STACK, *SAME] for report in reports))
    log = log_of(lines)
    columns = ("rank", "process_name", "exceptions", "stack", "complete")
    assert log.traceback.select(columns).rows() == [
        ("TP0", "Scheduler", SAME, FRAMES, True),
        ("TP1", "Scheduler", SAME, FRAMES, True),
    ]


def test_different_tracebacks_whose_lines_are_mixed(log_of):
    other = [STACK[0], STACK[1], '  File "/s/c.py", line 1, in late', "    raise F"]
    lines = _mixed("aaabbaabbabb", [BEGIN, *STACK, *SAME], [BEGIN, *other, "KeyError: 1"])
    log = log_of([*lines, RECORD])
    columns = ("line", "last_line", "exception_line", "exceptions", "stack", "complete", "ambiguous")
    assert log.traceback.select(columns).rows() == [
        (1, 3, None, [], FRAMES[:1], False, True),
        (4, 11, 10, SAME, [], False, True),
        (12, 12, 12, ["KeyError: 1"], [], False, True),
    ]
    assert [[frame["path"] for frame in row] for row in log.traceback["loose_frames"]] == [
        [],
        ["/s/a.py", "/s/b.py", "/s/c.py"],
        [],
    ]
    assert _members(log) == list(range(1, 13))


def test_a_traceback_that_was_cut_before_another_one(log_of):
    other = ['  File "/s/c.py", line 1, in late', "    raise F"]
    columns = ("exceptions", "stack", "ambiguous")
    # frames that the first one has shown already cannot be its own again
    log = log_of([BEGIN, *STACK, BEGIN, *STACK, *SAME])
    assert log.traceback.select(columns).rows() == [([], FRAMES, False), (SAME, FRAMES, False)]
    # a record is written in one piece
    log = log_of([BEGIN, *STACK, REPORT, *other, *SAME])
    assert log.traceback["ambiguous"].to_list() == [False, False]
    assert log.traceback["stack"][1].to_list()[0]["function"] == "late"
    # else they can be of both
    log = log_of([BEGIN, *STACK, BEGIN, *other, *SAME])
    assert log.traceback.select(columns).rows() == [([], FRAMES, True), (SAME, [], True)]


def test_only_lines_near_each_other_are_mixed(log_of):
    other = ['  File "/s/c.py", line 1, in late', "    raise F", "ValueError: a"]
    log = log_of([BEGIN, *STACK, *["plain"] * 100, BEGIN, *other])
    assert log.traceback["ambiguous"].to_list() == [False, False]
    # and what names its process belongs to that one
    log = log_of([f"[rank0]: {line}" for line in (BEGIN, *STACK, BEGIN, *other)])
    assert log.traceback.select("exceptions", "ambiguous").rows() == [([], False), (SAME, False)]


def test_mixed_lines_whose_heads_were_cut(log_of):
    other = ['  File "/s/c.py", line 1, in late', "    raise F"]
    log = log_of([*STACK[2:], *other, "ValueError: a", "KeyError: 1"])
    columns = ("line", "last_line", "exceptions", "stack", "complete", "ambiguous")
    assert log.traceback.select(columns).rows() == [
        (1, 5, SAME, [], False, True),
        (6, 6, ["KeyError: 1"], [], False, True),
    ]


def test_equal_tracebacks_that_are_chains_with_frames_and_code_that_repeat(log_of):
    one = [
        BEGIN,
        *STACK,
        *STACK,
        "KeyError: 1",
        DURING,
        BEGIN,
        *STACK[:2],
        '  File "/s/b.py", line 7, in inner',
    ]
    one = [*one, STACK[1], "ValueError: a"]
    log = log_of(_mixed("a" * 7 + "b" * 5 + "ab" * 10 + "b" * 2, one, one))
    assert log.traceback["exceptions"].to_list() == [["KeyError: 1", "ValueError: a"]] * 2
    assert log.traceback["stack"].to_list() == [[FRAMES[0], FRAMES[1] | {"code": "inner(x)"}]] * 2
    assert log.traceback["complete"].all()


def test_equal_tracebacks_that_can_be_read_in_two_ways_are_ambiguous(log_of):
    # inner, inner, outer, outer and inner, outer, inner, outer
    inner, outer = STACK[2], STACK[0]
    log = log_of([BEGIN, BEGIN, inner, inner, outer, inner, outer, inner, outer, outer, *SAME, *SAME])
    assert log.traceback.select("stack", "ambiguous").rows() == [([], True), ([], True)]
    assert _members(log) == list(range(1, 13))


# ------------------------------------------------------------------ on one line


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({"message": f"it: {BEGIN}\n" + "\n".join(STACK) + '\nValueError: a "b"\nc\n', "k": "v"}),
        "err=" + repr(f"{BEGIN}\n" + "\n".join(STACK) + '\nValueError: a "b"\nc\n') + ", more='x'",
        f"{BEGIN}\\n" + "\\n".join(STACK) + '\\nValueError: a "b"\\nc',
    ],
)
def test_a_traceback_on_one_line(log_of, line):
    log = log_of(["before", line, "after"])
    (row,) = log.traceback.rows(named=True)
    assert (row["line"], row["last_line"], row["exception_line"], row["complete"]) == (2, 2, 2, True)
    assert (row["exceptions"], row["stack"]) == (['ValueError: a "b"\nc'], FRAMES)
    assert log.lines["kind"].to_list() == [None, "traceback", None]


# ------------------------------------------------------------------ any of them

WORDS = st.text("abcdefg_", min_size=1, max_size=6)
PATHS = st.sampled_from(["/s/a.py", "<string>", "C:\\x y.py", "/opt/ü/b.py"])
FRAME = st.tuples(
    PATHS, st.integers(1, 9999), WORDS, st.sampled_from([[], ["    x = f(y)"], ["    f()", "    ^^^"]])
)
CLASSES = st.sampled_from(
    ["ValueError", "torch.OutOfMemoryError", "zmq.error.ZMQError", "Exception", "KeyError"]
)
MESSAGES = st.lists(
    st.sampled_from(["no room", "a: b", "", "  two", "Compile with `X`.", "size (7)", "é"]), max_size=4
)
OTHER = st.lists(
    st.sampled_from(
        [RECORD, f"{HEAD}something", "INFO:     Shutting down", "", "INFO 01-01 x", "[x] y", "plain"]
    ),
    max_size=3,
)


@st.composite
def _tracebacks(draw) -> tuple[list[str], list[dict], list[str]]:
    """Draw the lines of a traceback (a chain), the frames of the last one, and the exceptions."""
    lines, stack, chain = [draw(st.sampled_from([BEGIN, REPORT]))], [], []
    for index in range(draw(st.integers(1, 3))):
        if index:
            lines += ["", draw(st.sampled_from([DURING, CAUSE])), "", BEGIN]
        stack = []
        for path, number, function, code in draw(st.lists(FRAME, min_size=1, max_size=3)):
            lines += [f'  File "{path}", line {number}, in {function}', *code]
            code = code[0].strip() if code else None
            stack.append({"path": path, "line": number, "function": function, "code": code})
        first, *more = [text for text in draw(MESSAGES) if text] or [""]
        name = draw(CLASSES)
        lines += [f"{name}: {first}" if first else name, *more]
        chain.append(": ".join([name, "\n".join([first.strip(), *more])]) if first else name)
    return lines, stack, chain


def test_the_lines_of_tracebacks_are_in_their_blocks_and_no_other_line_is(log_of):
    @given(st.lists(st.tuples(OTHER, _tracebacks()), min_size=1, max_size=3), OTHER)
    def check(parts, end):
        lines: list[str] = []
        members: list[int] = []
        expected = []
        for other, (block, stack, chain) in parts:
            # after a traceback only what ends it for certain: a blank or a record
            lines += ["", *other] if lines else [*other, ""]
            members += range(len(lines) + 1, len(lines) + len(block) + 1)
            expected.append((len(lines) + 1, len(lines) + len(block), stack, chain, True))
            lines += block
        log = log_of([*lines, "", *end])
        assert _members(log) == members
        columns = ("line", "last_line", "stack", "exceptions", "complete")
        assert log.traceback.select(columns).rows() == expected

    check()


def test_a_traceback_cut_anywhere_stays_one_block(log_of):
    @given(_tracebacks(), st.data())
    def check(drawn, data):
        lines, _, chain = drawn
        start = data.draw(st.integers(0, len(lines) - 1))
        end = data.draw(st.integers(start + 1, len(lines)))
        log = log_of(["", RECORD, *lines[start:end], RECORD])
        found = [one.split("\n")[0] for row in log.traceback["exceptions"] for one in row]
        raised = [one.split("\n")[0] for one in chain]
        assert found in [raised[at : at + len(found)] for at in range(len(raised) + 1)]
        assert set(_members(log)) <= set(range(3, 3 + end - start))
        if start == 0:
            assert log.traceback.height == 1
            # a cut right after an exception that others follow cannot be told from the end
            assert log.traceback["complete"][0] <= (len(found) > 0)
            assert log.traceback["complete"][0] >= (end == len(lines))

    check()


@st.composite
def _several(draw) -> tuple[list[list[str]], list[list[dict]]]:
    """Draw tracebacks (some equal, some with the same outer frames) and their stacks."""
    common = draw(st.integers(0, 2))
    originals, stacks = [], []
    for index in range(draw(st.integers(1, 3))):
        lines, stack = [BEGIN], []
        for depth in range(draw(st.integers(max(common, 1), 4))):
            own = "" if depth < common else str(index)
            function = f"f{depth}{own}"
            code = (
                draw(st.sampled_from([None, "    return inner(x)", f"    g{depth}()"])) if own else "    f()"
            )
            lines += [f'  File "/s/{depth}.py", line 1{own}, in {function}', *([code] if code else [])]
            stack.append(
                {"path": f"/s/{depth}.py", "line": int(f"1{own}"), "function": function,
                 "code": code.strip() if code else None}
            )  # fmt: skip
        lines.append(draw(st.sampled_from(["ValueError: a", f"KeyError: {index}", "x.Odd: b"])))
        lines += draw(st.sampled_from([[], ["more of it"]]))
        copies = draw(st.integers(1, 3))
        originals += [lines] * copies
        stacks += [stack] * copies
    return originals, stacks


def _shuffled(data, originals: list[list[str]]) -> list[tuple[int, str]]:
    """Draw an order in which the processes write their lines."""
    rest = [list(lines) for lines in originals]
    order = data.draw(st.permutations([index for index, lines in enumerate(rest) for _ in lines]))
    return [(index, rest[index].pop(0)) for index in order]


def _part_of(stack: list[dict], originals: list[list[dict]]) -> bool:
    """Tell whether frames stand in an original, of which the last may have lost its code."""
    *most, last = stack or [{}]
    return not stack or any(
        most == one[at : at + len(most)] and last in (frame, frame | {"code": None})
        for one in originals
        for at in range(len(one) + 1 - len(stack))
        for frame in one[at + len(most) :][:1]
    )


def test_lines_that_name_their_process_are_told_apart_in_any_order(log_of):
    @given(_several(), st.data(), st.sampled_from(["[rank{}]:", "(Worker pid=1{}, ip=10.0.0.1)"]))
    def check(drawn, data, tag):
        originals, stacks = drawn
        lines = _shuffled(data, originals)
        log = log_of([f"{tag.format(index)} {line}" for index, line in lines])
        order = list(dict.fromkeys(index for index, _ in lines))
        assert log.traceback["stack"].to_list() == [stacks[index] for index in order]
        assert log.traceback["complete"].all()
        assert not log.traceback["ambiguous"].any()
        assert _members(log) == list(range(1, len(lines) + 1))

    check()


def test_no_stack_is_made_of_the_lines_of_two_tracebacks(log_of):
    @given(_several(), st.data())
    def check(drawn, data):
        originals, stacks = drawn
        lines = [line for _, line in _shuffled(data, originals)]
        start = data.draw(st.sampled_from([0, 0, 1, 3]))
        end = len(lines) - data.draw(st.sampled_from([0, 0, 1, 3]))
        log = log_of(["", RECORD, *lines[start:end], RECORD])
        for row in log.traceback.iter_rows(named=True):
            # where lines at the beginning are missing, nothing tells how many tracebacks have begun
            assert start or _part_of(row["stack"], stacks)
            assert not (row["ambiguous"] and row["complete"])
        if not start and end == len(lines):
            said = Counter(one.split("\n")[0] for chain in log.traceback["exceptions"] for one in chain)
            raised = [next(line for line in one if not line.startswith(("Trace", " "))) for one in originals]
            assert said <= Counter(raised)

    check()


def test_equal_tracebacks_are_told_apart_in_any_order(log_of):
    @given(_several(), st.integers(2, 5), st.data())
    def check(drawn, count, data):
        lines = [line for _, line in _shuffled(data, [drawn[0][0]] * count)]
        codes = [line for line in drawn[0][0] if line.startswith("    ")]
        log = log_of(lines)
        if len(set(codes)) < len(codes) or "more of it" in lines:
            assert all(_part_of(stack, drawn[1]) for stack in log.traceback["stack"].to_list())
            return
        assert log.traceback["stack"].to_list() == [drawn[1][0]] * count
        assert log.traceback["complete"].all()
        assert _members(log) == list(range(1, len(lines) + 1))

    check()
