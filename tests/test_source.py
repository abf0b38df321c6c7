"""From paths to physical lines."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglogparse import SourceError, read_log
from sglogparse._source import SourceFile, read_sources

CUT = "the last line has no end: the log was cut, or is still being written"


@pytest.fixture
def write(tmp_path):
    """Return a function that writes bytes to a file and returns its path."""

    def write(raw: bytes, name: str = "server.log") -> str:
        path = tmp_path / name
        path.write_bytes(raw)
        return str(path)

    return write


def _one(path: str) -> tuple[SourceFile, list[str]]:
    (source,), lines = read_sources([path])
    assert lines.schema == {"file": pl.UInt16, "line": pl.UInt32, "text": pl.String}
    assert lines["line"].to_list() == list(range(1, lines.height + 1))
    assert source.lines == lines.height
    return source, lines["text"].to_list()


# ------------------------------------------------------------------ where from


def test_a_file(write):
    path = write(b"one\ntwo\n")
    assert _one(path) == (SourceFile(path, 2, 8, 0, ()), ["one", "two"])


def test_a_path_object(write):
    path = write(b"one\n")
    (source,), lines = read_sources([Path(path)])
    assert source.path == path
    assert lines.rows() == [(0, 1, "one")]


def test_several_files_keep_their_order_and_their_own_line_numbers(write):
    first, second = write(b"b\nc\n", "2.log"), write(b"a\n", "1.log")
    sources, lines = read_sources([first, second])
    assert [source.path for source in sources] == [first, second]
    assert lines.rows() == [(0, 1, "b"), (0, 2, "c"), (1, 1, "a")]


def test_standard_input(monkeypatch, write):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"one\ntwo")))
    sources, lines = read_sources([write(b"zero\n"), "-"])
    assert sources[1] == SourceFile("-", 2, 7, 0, (CUT,))
    assert lines.rows() == [(0, 1, "zero"), (1, 1, "one"), (1, 2, "two")]


def test_standard_input_of_a_process():
    code = "from sglogparse import read_log; log = read_log('-'); print(log.files[0].path, log.lines.height)"
    done = subprocess.run([sys.executable, "-c", code], input=b"one\ntwo\n", capture_output=True, check=True)
    assert done.stdout.split() == [b"-", b"2"]


@pytest.mark.parametrize("name", ["server.log.gz", "server.log"])
def test_gzip_data_whatever_the_file_is_called(write, name):
    path = write(gzip.compress(b"one\ntwo\n"), name)
    assert _one(path) == (SourceFile(path, 2, 8, 0, ()), ["one", "two"])


def test_gzip_data_of_several_members(write):
    assert _one(write(gzip.compress(b"one\n") + gzip.compress(b"two\n")))[1] == ["one", "two"]


def test_gzip_data_that_was_cut_gives_what_stands_before_the_cut(write):
    text = b"".join(b"line %d is here\n" % (number * 7919 % 10007) for number in range(10_000))
    packed = gzip.compress(text)
    source, lines = _one(write(packed[: len(packed) // 2]))
    assert 1000 < source.lines < 10_000
    assert source.notes[0] == f"the gzip data is damaged or cut; read the first {source.bytes} bytes of text"
    assert "\n".join(lines).encode() == text[: source.bytes].rstrip(b"\n")


def test_gzip_data_with_a_wrong_checksum_is_read_and_said_to_be_damaged(write):
    packed = bytearray(gzip.compress(b"one\n"))
    packed[-8] ^= 1
    source, lines = _one(write(bytes(packed)))
    assert lines == ["one"]
    assert source.notes == ("the gzip data is damaged or cut; read the first 4 bytes of text",)


def test_gzip_data_without_any_text_is_refused(write):
    path = write(gzip.compress(b"one\n")[:9])
    with pytest.raises(SourceError) as caught:
        read_sources([path])
    assert str(caught.value) == f"{path}: damaged gzip data"


def test_gzip_data_with_something_else_at_its_end(write):
    assert _one(write(gzip.compress(b"one\n") + b"\0" * 100))[0].notes == ()
    source, lines = _one(write(gzip.compress(b"one\n") + b"two\n"))
    assert lines == ["one"]
    assert source.notes == ("the gzip data is damaged or cut; read the first 4 bytes of text",)


def test_gzip_data_larger_than_what_is_unpacked_at_a_time(write):
    text = b"".join(b"%d\n" % (number * 2654435761 % 2**32) for number in range(400_000))
    packed = gzip.compress(text, 1)
    assert len(packed) > 1 << 20
    assert _one(write(packed + packed))[1][400_000:] == text.decode().split()


def test_gzip_data_of_an_empty_file(write):
    path = write(gzip.compress(b""))
    assert _one(path) == (SourceFile(path, 0, 0, 0, ()), [])


# ------------------------------------------------------------------ lines


def test_an_empty_file(write):
    path = write(b"")
    assert _one(path) == (SourceFile(path, 0, 0, 0, ()), [])
    assert read_log(path).lines.height == 0


def test_no_end_of_line_at_the_end(write):
    path = write(b"one\ntwo")
    assert _one(path) == (SourceFile(path, 2, 7, 0, (CUT,)), ["one", "two"])


def test_blank_lines_are_lines(write):
    assert _one(write(b"\n\none\n\n"))[1] == ["", "", "one", ""]


def test_crlf_is_one_end_of_line(write):
    assert _one(write(b"one\r\ntwo\r\n"))[1] == ["one", "two"]


def test_only_a_line_feed_ends_a_line(write):
    # what str.splitlines() would split: vertical tab, form feed, separators, NEL, U+2028
    text = "a\vb\fc\x1cd\x85e\u2028f"
    assert _one(write((text + " and enough of other text\n").encode()))[1] == [
        text + " and enough of other text"
    ]


BAR = b"Loading:   0%|          | 0/2 [00:00<?]\rLoading:  50%|#####     | 1/2 [00:01<00:01]\r"


def test_lone_carriage_returns_stay_in_one_physical_line(write):
    source, lines = _one(write(b"one\n" + BAR + b"\ntwo\n"))
    assert source.lines == 3
    assert lines == [
        "one",
        BAR.decode().removesuffix("\r"),
        "two",
    ]  # the last one and the line feed are an end


def test_of_a_line_with_carriage_returns_the_visible_part_is_classified(write):
    line = b"[2026-01-01 00:00:00 TP1] Memory pool end. avail mem=5.61 GB"
    log = read_log(write(BAR + line + b"\r\n" + BAR + b"  \n"))
    assert log.memory_pool_end.select("line", "tp", "avail_mem").rows() == [(1, 1, 5.61)]
    assert log.lines["kind"].to_list() == ["memory_pool_end", "progress_bar"]
    assert log.lines["text"][0] == (BAR + line).decode()


def test_a_line_that_polars_would_take_for_compressed_data(write):
    for head in (b"x^", b"x\x01", b"x\x9c", b"(\xb5/\xfd"):
        assert _one(write(head + b" marks the spot of the log\nnext\n"))[1][1] == "next"
    assert _one(write(b"x^2\nnext\n"))[1] == ["x^2", "next"]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=8)))
def test_every_byte_of_a_text_belongs_to_exactly_one_line(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("source") / "any.log"
    path.write_bytes("".join(text + "\n" for text in texts).encode())
    assert read_sources([path])[1]["text"].to_list() == texts


# ------------------------------------------------------------------ bytes that are not text


def test_invalid_utf8_is_replaced_and_counted(write):
    path = write(b"caf\xe9 \xff\xfe ok\ntwo \xe2\x82\n")
    source, lines = _one(path)
    assert lines == ["caf\ufffd \ufffd\ufffd ok", "two \ufffd"]
    assert source == SourceFile(path, 2, 18, 5, ("5 bytes were not valid UTF-8 and were replaced",))


def test_control_sequences_of_the_terminal_are_removed(write):
    raw = (
        b"\x1b[32m[2026-01-01 00:00:00 TP0]\x1b[0m Memory pool end. avail mem=\x1b[1;31m5.61\x1b[m GB\n"
        b"plain\n"
        b"\x1b]0;title\x07one \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n"
        b"\x1b(B\x1b7two\x1b8\x1b[2K\x1b[1A\x1bM\n"
    )
    source, lines = _one(write(raw))
    assert lines == [
        "[2026-01-01 00:00:00 TP0] Memory pool end. avail mem=5.61 GB",
        "plain",
        "one link",
        "two",
    ]
    assert source.notes == ("terminal control sequences removed from 3 lines",)
    assert source.bytes == len(raw)
    assert source.replaced_bytes == 0


def test_utf8_with_a_byte_order_mark(write):
    path = write(b"\xef\xbb\xbfone\n")
    assert _one(path) == (SourceFile(path, 1, 7, 0, ("byte order mark removed",)), ["one"])


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_with_a_byte_order_mark(write, encoding):
    raw = "\ufeffone\r\nzwei ü\n".encode(encoding)
    path = write(raw)
    assert _one(path) == (
        SourceFile(path, 2, len(raw), 0, (f"converted from {encoding.upper()}",)),
        ["one", "zwei ü"],
    )


def test_utf16_that_was_cut_within_a_character(write):
    raw = "\ufeffone\n".encode("utf-16-le")[:-1]
    source, lines = _one(write(raw))
    assert lines == ["one\ufffd"]
    assert source.replaced_bytes == 1
    assert source.notes == (
        "converted from UTF-16-LE",
        "1 byte was not valid UTF-16-LE and was replaced",
        CUT,
    )


def test_nul_bytes_at_the_head_of_a_log_that_was_truncated_under_its_writer(write):
    path = write(b"\0" * 100_000 + b"one\ntwo\n")
    assert _one(path) == (
        SourceFile(path, 2, 100_008, 100_000, ("100000 NUL bytes removed",)),
        ["one", "two"],
    )


def test_a_hole_of_nul_bytes_within_a_log(write):
    source, lines = _one(write(b"one line of the log\n" * 10 + b"\0" * 4096 + b"two\n"))
    assert lines == ["one line of the log"] * 10 + ["two"]
    assert source.replaced_bytes == 4096


BINARY = {
    "elf": b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0\x80\x12\0\0\0\0\0\0" * 40,
    "png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\0\0\0\x01\0\x08\x06\0\0\0\x5c\x72\xa8\x66",
    "every byte": bytes(range(256)) * 16,
    "utf-16 without a mark": "one two three\n".encode("utf-16-le"),
    "utf-32": "one two three\n".encode("utf-32"),
    "nul bytes alone": b"\0" * 100,
    "numbers": b"".join(number.to_bytes(4, "little") for number in range(4096)),
}


@pytest.mark.parametrize("raw", BINARY.values(), ids=BINARY)
def test_binary_data_is_refused(write, raw):
    path = write(raw)
    with pytest.raises(SourceError) as caught:
        read_sources([path])
    assert str(caught.value) == f"{path}: binary data, not a log"


# ------------------------------------------------------------------ what cannot be read


def _refused(*paths: str) -> str:
    with pytest.raises(SourceError) as caught:
        read_sources(paths)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_no_log_at_all():
    assert _refused() == "no log was given"


def test_a_missing_file(tmp_path):
    path = str(tmp_path / "none.log")
    assert _refused(path) == f"{path}: no such file"


def test_a_folder_without_a_log(tmp_path):
    assert _refused(f"{tmp_path}/") == f"{tmp_path}/: no log in it"


def test_a_file_without_permission(write, monkeypatch):
    # chmod has no effect for root, who may run the tests
    def refuse(self, *_, **__):
        raise PermissionError(13, "Permission denied")

    path = write(b"one\n")
    monkeypatch.setattr(Path, "open", refuse)
    assert _refused(path) == f"{path}: no permission to read it"


def test_a_path_through_a_file(write):
    path = write(b"one\n") + "/server.log"
    assert _refused(path) == f"{path}: cannot be read: Not a directory"


def test_a_device_that_fails(write, monkeypatch):
    def fail(self, *_, **__):
        raise OSError(5, "Input/output error")

    path = write(b"one\n")
    monkeypatch.setattr(Path, "open", fail)
    assert _refused(path) == f"{path}: cannot be read: Input/output error"


def test_a_name_that_no_file_can_have():
    assert _refused("a\0b") == "a\0b: cannot be read: embedded null byte"


def test_the_same_path_twice(write, monkeypatch, tmp_path):
    path = write(b"one\n")
    assert _refused(path, path) == f"{path}: given twice"
    assert _refused("-", "-") == "-: given twice"
    monkeypatch.chdir(tmp_path)
    assert _refused(path, "./server.log") == "./server.log: given twice"


def test_more_logs_than_can_be_numbered():
    assert _refused(*["x"] * 65_536) == "65536 logs were given; 65535 at most in one call"


def test_the_first_path_that_cannot_be_read_ends_the_reading(write, tmp_path):
    missing = str(tmp_path / "none.log")
    assert _refused(write(b"one\n"), missing) == f"{missing}: no such file"
