"""A log as a whole: every line in exactly one place."""

from pathlib import Path

import polars as pl
import pytest

import sglogparse
from sglogparse import read_log
from sglogparse._compiler import compiled_plan
from sglogparse._log import column_docs, frame_schemas

FIXTURES = sorted((Path(__file__).parent / "fixtures").rglob("*.log"))
EVENTS = {event.name for event in compiled_plan().events}


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_line_is_in_exactly_one_place(path):
    log = read_log(path)
    assert log.lines.height == path.read_bytes().count(b"\n") + (not path.read_bytes().endswith(b"\n"))
    in_frames = sum(log.frames[name].height for name in (*EVENTS, "message"))
    in_blocks = log.lines.filter(kind="traceback").height
    assert in_frames + in_blocks + log.unparsed.height == log.lines.height
    for name in (*EVENTS, "message"):
        own = log.lines.filter(pl.col("kind").cast(pl.String) == name)
        assert log.frames[name].select("file", "line").rows() == own.select("file", "line").rows(), name


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
    assert kinds == EVENTS | {"message", "traceback"}


def test_reading_needs_no_pathlib_and_takes_one_path_or_many(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("x\n")
    assert read_log(str(path)).lines.rows() == read_log([path]).lines.rows()
    with pytest.raises(sglogparse.SourceError, match="no log was given"):
        read_log([])
