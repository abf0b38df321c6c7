"""Following a log: each line once, however it is written, and whatever becomes of its file."""

from __future__ import annotations

import errno
import os
import threading

import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sglogparse import SourceError, _follow
from sglogparse._follow import Follower, Tail
from sglogparse._source import read_sources


def drain(tail: Tail) -> list[str]:
    """Return the lines that are there."""
    out: list[str] = []
    while True:
        block = tail.read()
        if block is not None:
            out += block.text.to_list()
        elif not tail.behind:
            return out


def finished(tail: Tail) -> list[str]:
    lines = drain(tail)
    last = tail.finish()
    return lines + (last.text.to_list() if last else [])


def put(path, data: bytes | str) -> None:
    with path.open("ab") as stream:
        stream.write(data if isinstance(data, bytes) else data.encode())


#: Bytes of logs: text, line ends of all kinds, control sequences, broken UTF-8.
PIECES = st.sampled_from(
    [
        *(b"a", b"[2026-01-01 00:00:00 TP0] x", b"\n", b"\r\n", b"\r", "é€😀".encode(), b"\xff", b"\xe2\x82"),
        *(b"\x1b[31m", b"\x1b[0m", b" ", b"\t", b"x^", b"\n\n", b"\0"),
    ]
)


@given(st.lists(PIECES, max_size=40), st.lists(st.integers(0, 400), max_size=8))
def test_any_split_into_writes_gives_the_lines_of_the_whole(tmp_path_factory, pieces, cuts):
    data = b"".join(pieces)
    folder = tmp_path_factory.mktemp("split")
    whole, grown = folder / "whole.log", folder / "grown.log"
    whole.write_bytes(data)
    try:
        files, frame = read_sources([whole])
    except SourceError:  # so many NULs that it is no log
        assume(False)
    tail = Tail(str(grown))
    lines: list[str] = []
    sizes = replaced = 0
    edges = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for begin, end in zip(edges, [*edges[1:], len(data)], strict=True):
        put(grown, data[begin:end])
        while (block := tail.read()) is not None:
            lines += block.text.to_list()
            sizes, replaced = sizes + block.size, replaced + block.replaced
    last = tail.finish()
    if last is not None:
        lines += last.text.to_list()
        sizes, replaced = sizes + last.size, replaced + last.replaced
    tail.close()
    assert lines == frame["text"].to_list()
    assert (sizes, replaced) == (files[0].bytes, files[0].replaced_bytes)


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from(["write", "rename", "create", "look"])), max_size=30
    )
)
def test_no_line_is_lost_or_told_twice_over_rotations(tmp_path_factory, steps):
    """A writer that appends, and a rotation by renaming, with or without a new file before the writer opens it."""
    folder = tmp_path_factory.mktemp("rotated")
    path = folder / "server.log"
    writer = path.open("ab")
    tail = Tail(str(path))
    written: list[str] = []
    told: list[str] = []
    for number, (count, step) in enumerate(steps):
        if step == "write":
            for one in range(count):
                written.append(f"line {len(written)}")
                half = len(written[-1]) // 2 if one else 0
                writer.write(written[-1][:half].encode())
                writer.flush()
                told += drain(tail) if count == 3 else []
                writer.write(f"{written[-1][half:]}\n".encode())
                writer.flush()
        elif step == "look":
            told += drain(tail)
        else:
            told += drain(tail)
            if path.exists():
                path.rename(folder / f"server.log.{number}")
            if step == "create":  # what the old writer still says goes to the renamed file
                path.touch()
                written.append(f"late {len(written)}")
                writer.write(f"{written[-1]}\n".encode())
                writer.flush()
                told += drain(tail)
            writer.close()
            writer = path.open("ab")
    writer.close()
    told += drain(tail) + drain(tail)
    tail.close()
    assert told == written


def test_a_file_that_is_not_there_yet(tmp_path):
    path = tmp_path / "server.log"
    tail = Tail(str(path))
    assert tail.read() is None
    assert not tail.exists
    put(path, "one\ntwo")
    assert drain(tail) == ["one"]
    assert tail.exists
    assert tail.partial == "two"
    put(path, "\n")
    assert drain(tail) == ["two"]
    assert tail.partial == ""


def test_a_truncated_file_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "server.log"
    put(path, "one\ntwo\nhalf")
    tail = Tail(str(path))
    first = tail.read()
    assert first.fresh
    path.write_text("new\n")
    left, new = tail.read(), tail.read()
    assert (left.text.to_list(), left.fresh, left.cut) == (["half"], False, True)
    assert (new.text.to_list(), new.fresh, new.cut) == (["new"], True, False)


def test_a_file_that_is_written_anew_and_longer_is_not_taken_for_one_that_has_grown(tmp_path):
    path = tmp_path / "server.log"
    put(path, "one\ntwo\n")
    tail = Tail(str(path))
    drain(tail)
    path.write_text("another one\nanother two\nanother three\n")
    block = tail.read()
    assert block.fresh
    assert block.text.to_list() == ["another one", "another two", "another three"]


def test_a_hole_that_truncation_has_left_is_not_kept(tmp_path):
    path = tmp_path / "server.log"
    with path.open("wb") as writer:
        writer.write(b"one\n" * 1000)
        writer.flush()
        tail = Tail(str(path))
        assert len(drain(tail)) == 1000
        os.truncate(path, 0)
        writer.write(b"two\n")  # behind a hole: the writer does not append
    block = tail.read()
    assert (block.text.to_list(), block.fresh) == (["two"], True)
    assert (block.size, block.replaced) == (4004, 4000)
    assert tail.held == 0


def test_a_file_that_is_removed_is_read_on_until_another_comes(tmp_path):
    path = tmp_path / "server.log"
    put(path, "one\n")
    tail = Tail(str(path))
    drain(tail)
    with path.open("ab") as writer:
        path.unlink()
        writer.write(b"two\n")
        writer.flush()
        assert drain(tail) == ["two"]
    put(path, "three\n")
    assert drain(tail) == ["three"]


def test_a_file_that_is_gone_on_its_server_is_opened_anew(tmp_path, monkeypatch):
    path = tmp_path / "server.log"
    put(path, "one\n")
    tail = Tail(str(path))
    drain(tail)
    put(path, "two\n")
    with monkeypatch.context() as patch:

        def stale(*_):
            raise OSError(errno.ESTALE, "Stale file handle")

        patch.setattr(_follow.os, "pread", stale)
        assert tail.read() is None
    assert tail.exists
    assert drain(tail) == ["two"]


def test_a_link_that_is_turned_to_another_file(tmp_path):
    old, new, link = tmp_path / "a.log", tmp_path / "b.log", tmp_path / "server.log"
    put(old, "one\n")
    link.symlink_to(old)
    tail = Tail(str(link))
    assert drain(tail) == ["one"]
    put(new, "two\n")
    put(old, "last\n")
    link.unlink()
    link.symlink_to(new)
    assert drain(tail) == ["last", "two"]


def test_more_than_one_reading_takes(tmp_path, monkeypatch):
    monkeypatch.setattr(_follow, "_CHUNK", 7)
    path = tmp_path / "server.log"
    lines = [f"line {number}" for number in range(50)]
    put(path, "".join(f"{line}\n" for line in lines))
    tail = Tail(str(path))
    assert drain(tail) == lines
    assert drain(tail) == []


def test_a_pipe_is_read_until_it_ends():
    reading, writing = os.pipe()
    tail = Tail(f"/dev/fd/{reading}")
    with os.fdopen(writing, "wb", buffering=0) as writer:
        assert tail.read() is None
        writer.write(b"one\ntw")
        assert drain(tail) == ["one"]
        writer.write(b"o\nthree")
        assert drain(tail) == ["two"]
        assert not tail.ended
    assert drain(tail) == ["three"]
    assert tail.ended
    assert tail.read() is None
    tail.close()
    os.close(reading)


def test_a_named_pipe_waits_for_its_writer(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    tail = Tail(str(path))
    assert tail.read() is None
    assert not tail.ended
    writer = threading.Thread(target=path.write_text, args=("one\ntwo\n",))
    writer.start()
    lines: list[str] = []
    while not tail.ended:
        lines += drain(tail)
    writer.join()
    assert lines == ["one", "two"]
    tail.close()


def test_standard_input(monkeypatch, tmp_path):
    path = tmp_path / "in.log"
    put(path, "one\ntwo")
    with path.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        tail = Tail("-")
        assert drain(tail) == ["one", "two"]
        assert tail.ended
        tail.close()
        assert not stdin.closed
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(SourceError, match=r"^-: standard input is closed$"):
        Tail("-").read()


@pytest.mark.parametrize("data", [b"\x1f\x8b\x08\0rest\n", b"\xff\xfea\0\n\0", b"\xfd7zXZ\0\n"])
def test_what_is_no_text_cannot_be_followed(tmp_path, data):
    path = tmp_path / "server.log"
    path.write_bytes(data)
    with pytest.raises(SourceError, match="is no plain text"):
        Tail(str(path)).read()


def test_a_folder_cannot_be_followed(tmp_path):
    with pytest.raises(SourceError, match="is a folder"):
        Tail(str(tmp_path)).read()
    with pytest.raises(SourceError, match="is no path"):
        Tail("a\0b").read()


def test_partial_is_what_a_terminal_shows(tmp_path):
    path = tmp_path / "server.log"
    tail = Tail(str(path))
    put(path, "Loading:  10%\rLoading:  20%\r")
    assert tail.read() is None
    assert tail.partial == "Loading:  20%"


def test_the_log_of_a_follower_is_that_of_the_whole_file(tmp_path, read):
    lines = [
        "[2026-01-01 00:00:00] server_args=ServerArgs(model_path='/m', tp_size=1)",
        "[2026-01-01 00:00:01 TP0] Load weight begin. avail mem=70.00 GB",
        "[2026-01-01 00:00:09 TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=60.00 GB, mem usage=10.00 GB.",
        "[2026-01-01 00:00:20] The server is fired up and ready to roll!",
    ]
    whole = read(*lines)
    path = tmp_path / "grown.log"
    follower = Follower(str(path))
    assert follower.log().lines.height == 0
    kinds = []
    for line in lines:
        put(path, f"{line}\n")
        news = follower.take(follower.tail.read())
        kinds += news.kinds.to_list()
    assert kinds == ["server_args", "load_weight_begin", "load_weight_end", "ready"]
    assert follower.log().lines.equals(whole.lines)
    assert follower.log().diagnose().outcome == "ready"
    put(path, "half")
    assert follower.tail.read() is None
    follower.take(follower.tail.finish())
    assert follower.log().files[0].lines == 5
    assert follower.log().files[0].notes == (
        "the last line has no end: the log was cut, or is still being written",
    )


def test_a_follower_forgets_the_file_that_another_has_replaced(tmp_path):
    path = tmp_path / "server.log"
    put(path, "one\ntwo\n")
    follower = Follower(str(path))
    follower.take(follower.tail.read())
    path.rename(tmp_path / "server.log.1")
    put(path, "three\n")
    news = follower.take(follower.tail.read())
    assert news.fresh
    log = follower.log()
    assert log.lines.select("line", "text").rows() == [(1, "three")]


def test_lines_that_docker_has_carried_are_read(tmp_path):
    path = tmp_path / "server.log"
    put(path, "server-1  | [2026-01-01 00:00:20] The server is fired up and ready to roll!\n")
    follower = Follower(str(path))
    news = follower.take(follower.tail.read())
    assert news.kinds.to_list() == ["ready"]
    assert isinstance(news.records, pl.DataFrame)
