"""A log as a whole: every line in exactly one place."""

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sglogparse
from sglogparse import read_log
from sglogparse._compiler import compiled_plan
from sglogparse._events import BLOCKS
from sglogparse._families import families, family_names
from sglogparse._grammar import samples
from sglogparse._log import column_docs, frame_schemas

FIXTURES = sorted((Path(__file__).parent / "fixtures").rglob("*.log"))
EVENTS = {event.name for event in compiled_plan().events}


def _check_places(log):
    """Check that every line is in one frame, one block or in `unparsed`, and that `kind` says which."""
    in_frames = sum(log.frames[name].height for name in (*EVENTS, "message"))
    in_blocks = log.lines.filter(pl.col("kind").is_in(BLOCKS)).height
    placed = in_frames + log.foreign.height + in_blocks + log.unparsed.height
    assert placed == log.lines.height == sum(one.lines for one in log.files)
    named = log.lines.filter(pl.col("kind").cast(pl.String).is_in(family_names()))
    assert log.foreign.select("file", "line", "family").rows() == named.select("file", "line", "kind").rows()
    for name in (*EVENTS, "message"):
        own = log.lines.filter(pl.col("kind").cast(pl.String) == name)
        assert log.frames[name].select("file", "line").rows() == own.select("file", "line").rows(), name
    places = dict(zip(log.lines.select("file", "line").rows(), log.lines["kind"], strict=True))
    begun = {"traceback", "thread_dump", "exception_report", "warmup_failed"}
    within = set()
    for file, first, last in log.traceback.select("file", "line", "last_line").iter_rows():
        assert places[file, first] in begun
        assert places[file, last] in begun
        within |= {(file, line) for line in range(first, last + 1)}
    assert {place for place, kind in places.items() if kind == "traceback"} <= within
    for name, schema in frame_schemas().items():
        assert log.frames[name].schema == schema, name


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_line_is_in_exactly_one_place(path):
    log = read_log(path)
    assert log.lines.height == path.read_bytes().count(b"\n") + (not path.read_bytes().endswith(b"\n"))
    _check_places(log)


_heads = st.sampled_from(
    ["", "[2026-03-01 10:00:00 TP1] ", "[10:00:00] ", "[gpu_id=1] ", "[x] ", "10%|# | 1/2\r"]
)
_texts = st.sampled_from([sample.text for found in samples().values() for sample in found]) | st.sampled_from(
    [
        "", "plain", "Traceback (most recent call last):", '  File "/s/a.py", line 1, in f', "    code()",
        "ValueError: x", "more of it", "During handling of the above exception, another exception occurred:",
        "Exception in ModelTpServer:", "Killed", "Current thread 0x1 (most recent call first):",
        '  File "/s/a.py", line 1 in f', "Call stack:", "Message: 'x'", "torch.Foo",
    ]
)  # fmt: skip
_foreign = st.sampled_from([sample.text for family in families() for sample in family.samples])
_lines = st.lists(st.tuples(_heads, _texts | _foreign).map("".join), max_size=25)


def test_every_line_of_any_log_is_in_exactly_one_place(tmp_path):
    @given(_lines, _lines)
    def check(first, second):
        paths = [tmp_path / "a.log", tmp_path / "b.log"]
        for path, lines in zip(paths, (first, second), strict=True):
            path.write_text("".join(line + "\n" for line in lines), newline="")
        _check_places(read_log(paths))

    check()


def test_one_line_of_each_kind(tmp_path):
    path = tmp_path / "a.log"
    path.write_text(
        "[2026-03-01 10:00:00] server_args=ServerArgs(tp_size=8, host='0.0.0.0')\n"
        "[2026-03-01 10:00:01 TP0] WARNING model_runner.py:12: something else\n"
        "[2026-03-01 10:00:02 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/s/a.py", line 1, in f\n'
        "ValueError: x\n"
        "\n"
    )
    log = read_log(path)
    kinds = ["server_args", "message", "exception_report", "traceback", "traceback", "blank"]
    assert log.lines["kind"].to_list() == kinds
    assert log.message.select("line", "rank", "level", "message").rows() == [
        (2, "TP0", "WARNING", "something else")
    ]
    assert log.server_arg.rows() == [(0, 1, "tp_size", "8"), (0, 1, "host", '"0.0.0.0"')]
    assert log.traceback.select("line", "last_line", "rank", "exceptions").rows() == [
        (3, 5, "TP0", ["ValueError: x"])
    ]
    assert log.foreign.select("line", "family", "message").rows() == [(6, "blank", "")]
    assert log.unparsed.rows() == []
    assert {name for name, frame in log.frames.items() if not frame.is_empty()} == {
        "server_args", "message", "exception_report", "traceback", "server_arg", "foreign", "faults",
        "stack_frames",
    }  # fmt: skip


def test_line_numbers_count_from_one_in_each_file(tmp_path):
    first, second = tmp_path / "a.log", tmp_path / "b.log"
    first.write_text("one\ntwo\n")
    second.write_text("[2026-03-01 10:00:00 TP3] Memory pool end. avail mem=2.00 GB\n")
    log = read_log([first, second])
    assert log.lines.select("file", "line", "tp").rows() == [(0, 1, None), (0, 2, None), (1, 1, 3)]
    assert log.memory_pool_end.select("file", "line", "rank", "avail_mem").rows() == [(1, 1, "TP3", 2.0)]
    assert [(one.path, one.lines) for one in log.files] == [(str(first), 2), (str(second), 1)]


def test_frames_are_attributes_and_unknown_ones_are_named(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("x\n")
    log = read_log(path)
    assert log.decode_batch is log.frames["decode_batch"]
    with pytest.raises(AttributeError, match="no frame is called 'decode_bach'"):
        _ = log.decode_bach
    assert repr(log) == "<Log of 1 file(s), 1 lines, 1 unparsed>"


def test_every_column_of_every_frame_is_documented():
    for name in frame_schemas():
        missing = [column for column, meaning in column_docs(name).items() if not meaning]
        assert missing == [], name


def test_the_kinds_of_lines_are_the_frames(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("x\n")
    kinds = set(read_log(path).lines.schema["kind"].categories)
    assert kinds == EVENTS | {"message", *BLOCKS} | set(family_names())


def test_reading_needs_no_pathlib_and_takes_one_path_or_many(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("x\n")
    assert read_log(str(path)).lines.rows() == read_log([path]).lines.rows()
    with pytest.raises(sglogparse.SourceError, match="no log was given"):
        read_log([])
