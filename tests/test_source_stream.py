"""Logs as streams of blocks: the law that any cutting gives the same lines, and what bounds memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import random
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sglogparse import SourceError, _source, _text
from sglogparse._source import SourceFile, open_sources, read_sources

#: What has gone wrong with logs, in pieces that a cut can go through.
ATOMS = (
    b"\n", b"\r\n", b"\r", b"\0", b"\0" * 9, b" \t", b"a", b"one line of a log ", b"\xff", b"\x80", b"\xe2\x96",
    b"\xe2\x96\x88", b"\xf0\x9f\x98\x80", b"\x1b[31m", b"\x1b", b"\xef\xbb\xbf", b"\xff\xfe", b"\xd8\0", b"\0\xd8",
    b"\n\x1f\x8b", b"\nx^", b"w\0o\0r\0d\0\n\0", b"t" * 70_000,
)  # fmt: skip
RAW = st.builds(
    lambda mark, atoms: mark + b"".join(atoms),
    st.sampled_from([b"", b"", b"a log\n" * 20, b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf"]),
    st.lists(st.sampled_from(ATOMS), max_size=30),
)
SIZES = st.sampled_from([1, 2, 3, 7, 50, 1_000, 70_001, 1 << 20])
PACKERS = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("stream") / "server.log"


def _whole(path) -> tuple[SourceFile, pl.DataFrame] | str:
    try:
        (summary,), lines = read_sources([path])
    except SourceError as error:
        return str(error)
    return summary, lines


def _in_blocks(path, size: int) -> tuple[SourceFile, pl.DataFrame] | str:
    (source,) = open_sources([path])
    try:
        blocks = list(source.blocks(size))
    except SourceError as error:
        return str(error)
    assert all(block.height for block in blocks)
    empty = pl.DataFrame(schema={"file": pl.UInt16, "line": pl.UInt32, "text": pl.String})
    return source.summary(), pl.concat([empty, *blocks])


def _same(one, other) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return one[0] == other[0] and one[1].equals(other[1])


# ------------------------------------------------------------------ the law


@given(RAW, SIZES)
def test_blocks_of_any_size_are_together_the_whole(path, raw, size):
    path.write_bytes(raw)
    whole = _whole(path)
    assert _same(_in_blocks(path, size), whole)
    if not isinstance(whole, str):
        assert whole[0].bytes == len(raw)
        assert whole[0].lines == whole[1].height
        assert whole[1]["line"].to_list() == list(range(1, whole[0].lines + 1))


@given(RAW, SIZES, st.sampled_from(sorted(PACKERS)))
def test_compressed_it_is_the_same(path, raw, size, packer):
    path.write_bytes(raw)
    plain = _whole(path)
    path.write_bytes(PACKERS[packer](raw))
    assert _same(_in_blocks(path, size), plain)
    assert _same(_whole(path), plain)


@given(RAW.filter(lambda raw: b"\0" not in raw), SIZES)
def test_every_byte_belongs_to_exactly_one_line(path, raw, size):
    raw = b"a line of a log\n" * 60 + raw
    path.write_bytes(raw)
    read = _in_blocks(path, size)
    assert not isinstance(read, str)
    # what Python alone makes of the bytes, the end of the last line apart
    text = raw.decode(errors="replace")
    lines = (text if text.endswith("\n") or not text else text + "\n").split("\n")[:-1]
    plain = pl.Series("text", [line.removesuffix("\r") for line in lines], pl.String)
    assert read[1]["text"].to_list() == plain.str.replace_all(_source.ANSI, "").to_list()


@given(RAW, SIZES, st.sampled_from([4, 5, 11, 30]))
def test_lines_without_an_end_in_sight_are_cut_alike(path, raw, size, longest):
    path.write_bytes(raw)
    with pytest.MonkeyPatch.context() as patch:
        uncut = _whole(path)
        patch.setattr(_text, "LONGEST", longest)
        cut = _whole(path)
        assert _same(_in_blocks(path, size), cut)
    if isinstance(uncut, str):
        assert cut == uncut
    else:
        assert cut[0].lines == uncut[0].lines
        if b"\x1b" not in raw:  # a control sequence that is cut is none
            starts = zip(uncut[1]["text"], cut[1]["text"], strict=True)
            assert all(line.encode().startswith(head.rstrip("\r\ufffd").encode()) for line, head in starts)


def test_many_small_files_are_read_together_as_each_alone(tmp_path):
    contents = [b"one\n", b"", b"two\r\nthree", b"bad \xff\n", b"\x1b[1mred\x1b[m\n", b"\n", b"a\r", b"x^\n"]
    paths = []
    for number, raw in enumerate(contents):
        paths.append(tmp_path / f"{number}.log")
        paths[-1].write_bytes(raw)
    summaries, lines = read_sources(paths)
    alone = [_in_blocks(path, 1 << 20) for path in paths]
    assert summaries == [summary for summary, _ in alone]
    for number, (_, block) in enumerate(alone):
        assert lines.filter(file=number).drop("file").equals(block.drop("file"))
    assert lines["file"].is_sorted()


def test_a_block_has_about_the_size_asked_for(path):
    path.write_bytes(b"a line of twenty-four b\n" * 100_000)
    (source,) = open_sources([path])
    sizes = [block["text"].str.len_bytes().sum() + block.height for block in source.blocks(300_000)]
    assert max(sizes) <= 600_000
    assert min(sizes[:-1]) >= 150_000
    assert source.position == source.size == 2_400_000


@pytest.mark.parametrize("size", [65_536, 65_537, 100_000, 1 << 20, 1 << 24])
def test_a_large_file_in_pieces_that_end_where_lines_do(path, size):
    drawn = random.Random(size)
    lines = [f"{number} " + "█a" * drawn.choice([0, 10, 100, 40_000]) for number in range(300)]
    path.write_text("\n".join(lines))
    (source,) = open_sources([path])
    blocks = list(source.blocks(size))
    assert pl.concat(blocks)["text"].to_list() == lines
    assert pl.concat(blocks)["line"].to_list() == list(range(1, 301))
    assert _whole(path)[1]["text"].to_list() == lines
    assert source.position == source.size


def test_a_pipe(path):
    pipe = path.with_name("pipe")
    os.mkfifo(pipe)
    raw = b"one\n" + b"two \xff\n" * 200_000
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(pipe.write_bytes, gzip.compress(raw))
        (source,) = open_sources([pipe])
        assert source.size is None
        assert sum(block.height for block in source.blocks(10_000)) == 200_001
        writing.result()
    assert source.summary().replaced_bytes == 200_000
    assert source.position == len(gzip.compress(raw))


def test_a_file_that_grows_between_opening_and_reading(path):
    path.write_bytes(b"one\n")
    (source,) = open_sources([path])
    path.write_bytes(b"one\ntwo\n")
    assert [block["text"].to_list() for block in source.blocks(100)] == [["one", "two"]]


def test_blocks_can_be_read_again(path):
    path.write_bytes(b"one line of the log\n\0two")
    (source,) = open_sources([path])
    first = [block.rows() for block in source.blocks(1)], source.summary()
    assert ([block.rows() for block in source.blocks(1)], source.summary()) == first


# ------------------------------------------------------------------ compressed data


@pytest.mark.parametrize("packer", PACKERS)
def test_several_members_are_one_log(path, packer):
    path.write_bytes(PACKERS[packer](b"one\ntw") + PACKERS[packer](b"o\n"))
    summary, lines = _whole(path)
    assert summary == SourceFile(str(path), 2, 8, 0, ())
    assert lines["text"].to_list() == ["one", "two"]


@pytest.mark.parametrize("packer", PACKERS)
def test_of_data_that_were_cut_what_stands_before_the_cut_is_read(path, packer):
    text = random.Random(1).randbytes(1 << 20).hex().encode()
    text = b"\n".join(text[start : start + 80] for start in range(0, len(text), 80))
    packed = PACKERS[packer](text)
    path.write_bytes(packed[: len(packed) // 2])
    summary, lines = _whole(path)
    assert (
        summary.notes[0]
        == f"the {packer} data is damaged or cut; read the first {summary.bytes} bytes of text"
    )
    assert summary.bytes > len(text) // 10
    assert "\n".join(lines["text"]).encode() == text[: summary.bytes].rstrip(b"\n")


@pytest.mark.parametrize("packer", PACKERS)
def test_something_else_behind_the_data_is_said(path, packer):
    path.write_bytes(PACKERS[packer](b"one\n") + b"two\n")
    summary, lines = _whole(path)
    assert lines["text"].to_list() == ["one"]
    assert summary.notes == (f"the {packer} data is damaged or cut; read the first 4 bytes of text",)


@pytest.mark.parametrize("packer", PACKERS)
def test_data_that_are_damaged_from_the_start_are_refused(path, packer):
    path.write_bytes(PACKERS[packer](b"one\n" * 1_000)[:14])
    assert _whole(path) == f"{path}: damaged {packer} data"


def test_zstd_frames_that_are_to_be_skipped(path):
    skipped = b"\x52*M\x18" + (7).to_bytes(4, "little") + b"comment"
    path.write_bytes(skipped + PACKERS["zstd"](b"one\n") + skipped)
    assert _whole(path)[1]["text"].to_list() == ["one"]


def test_zstd_data_without_the_package_name_the_extra(path, monkeypatch):
    path.write_bytes(PACKERS["zstd"](b"one\n" * 100))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression", None)
    assert _whole(path) == (
        f"{path}: zstd data need Python 3.14 or the package zstandard: pip install 'sglogparse[zstd]'"
    )


def _xz_of_a_large_window() -> bytes:
    packed = bytearray(lzma.compress(b"one\n"))
    packed[packed.index(b"\x21\x01") + 2] = 38  # 2 GiB
    end = 12 + packed[12] * 4  # of the header of the block, where its checksum stands
    packed[end : end + 4] = zlib.crc32(packed[12:end]).to_bytes(4, "little")
    return bytes(packed)


def _zstd_of_a_large_window() -> bytes:
    parameters = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True, write_content_size=0)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return packer.compress(b"one\n") + packer.flush()


@pytest.mark.parametrize("packed", [_xz_of_a_large_window(), _zstd_of_a_large_window()], ids=["xz", "zstd"])
def test_data_that_ask_for_much_memory_are_refused(path, packed):
    path.write_bytes(packed)
    assert _whole(path) == f"{path}: the compressed data ask for too much memory"


# ------------------------------------------------------------------ memory

#: Reads in blocks of 1 MiB, and prints the memory that this took beyond that of reading little, MiB.
MEMORY = """
import resource, sys
from sglogparse import _text
from sglogparse._source import open_sources, read_sources
_text.LONGEST = 4 << 20
read_sources([sys.argv[1]])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
(source,) = open_sources([sys.argv[2]])
lines = sum(block.height for block in source.blocks(1 << 20))
print(lines, source.summary().bytes, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def _memory(small, large) -> tuple[int, int, int]:
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, small, large], capture_output=True, check=True, text=True
    )
    lines, size, memory = map(int, done.stdout.split())
    return lines, size, memory


@pytest.mark.parametrize("packer", [*PACKERS, "plain"])
def test_memory_does_not_grow_with_the_log(tmp_path, packer):
    small, large = tmp_path / "small.log", tmp_path / "large.log"
    small.write_bytes(b"one line\n" * 1_000)
    text = b"".join(b"%d is printed again and again\n" % number for number in range(50_000))
    large.write_bytes((PACKERS[packer](text) if packer != "plain" else text) * 80)
    lines, size, memory = _memory(small, large)
    assert (lines, size) == (4_000_000, len(text) * 80)
    assert memory < len(text) * 40 >> 20


@pytest.mark.parametrize("text", [b"x", b"\0"], ids=["a line without an end", "a hole"])
def test_memory_does_not_grow_without_line_ends(tmp_path, text):
    small, large = tmp_path / "small.log", tmp_path / "large.log"
    small.write_bytes(b"one line\n" * 1_000)
    body = b"a log that ends well, and then:\n" + text * (100 << 20)
    large.write_bytes(gzip.compress(body, 1))
    lines, size, memory = _memory(small, large)
    assert size == len(body)
    assert lines == (2 if text == b"x" else 1)
    assert memory < 50


def test_of_a_line_without_an_end_the_head_is_kept(path):
    path.write_bytes(b"one\n" + b"x" * (64 << 20) + "é".encode() * 5 + b"\r\ntwo\n")
    summary, lines = _whole(path)
    assert lines["text"].str.len_bytes().to_list() == [3, 64 << 20, 3]
    assert summary.notes == ("1 line was longer than 67108864 bytes; the 11 bytes beyond that were left out",)
    assert summary.bytes == path.stat().st_size
