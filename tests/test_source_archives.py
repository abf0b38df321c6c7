"""Folders, globs and archives: what of them is read, under which names, and what is said of the rest."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import sys
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sglogparse import SourceError
from sglogparse._folders import named_as_log
from sglogparse._source import open_sources, read_sources

BINARY = bytes(range(256)) * 40
PACKERS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
METHODS = {0: zipfile.ZIP_STORED, 8: zipfile.ZIP_DEFLATED, 12: zipfile.ZIP_BZIP2}


def _tar(members, form=tarfile.GNU_FORMAT) -> bytes:
    """Return a tar of names and contents; a content of None is a folder, a text the target of a link."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
            else:
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return out.getvalue()


def _zip(members, method=zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, b"" if content is None else content)
    return out.getvalue()


def _read(path, folder) -> tuple[dict[str, list[str]], tuple[str, ...]]:
    """Return the texts by name, relative to a folder, and the notes on the first source."""
    files, lines = read_sources([path])
    assert all(file.lines == lines.filter(file=index).height for index, file in enumerate(files))
    for index in range(len(files)):
        numbers = lines.filter(file=index)["line"]
        assert numbers.to_list() == list(range(1, len(numbers) + 1))
    return (
        {
            file.path.removeprefix(f"{folder}/"): lines.filter(file=index)["text"].to_list()
            for index, file in enumerate(files)
        },
        tuple(note.replace(f"{folder}/", "") for note in files[0].notes),
    )


def _refused(path) -> str:
    with pytest.raises(SourceError) as caught:
        read_sources([path])
    return str(caught.value)


@pytest.fixture
def write(tmp_path):
    def write(name: str, raw: bytes) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
        return str(path)

    return write


# ------------------------------------------------------------------ archives

MEMBERS = [
    ("node0/", None),
    ("node0/server.log", b"one\ntwo\n"),
    ("./node1/server.log", b"three"),
    ("node1/server.log.1.gz", gzip.compress(b"older\n")),
    ("core.log", BINARY),
    ("inner.tar.gz", gzip.compress(_tar([("a.log", b"a\n")]))),
    ("inner.zip", _zip([("a.log", b"a\n")])),
    ("config.json", b"{}\n"),
    (".git/a.log", b"no\n"),
]
READ = {
    "!node0/server.log": ["one", "two"],
    "!node1/server.log": ["three"],
    "!node1/server.log.1.gz": ["older"],
}
NOTES = (
    "core.log (binary data, not a log); inner.tar.gz, inner.zip (an archive within the archive);"
    " .git/a.log (hidden); config.json (not named as a log)"
)


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("name", ["a.tar", "logs.bin"])
def test_members_of_a_tar(write, tmp_path, packer, form, name):
    path = write(name, PACKERS[packer](_tar(MEMBERS, form)))
    texts, notes = _read(path, tmp_path)
    assert texts == {name + member: lines for member, lines in READ.items()}
    assert notes == (f"not read of {name}: {NOTES}",)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_members_of_a_zip(write, tmp_path, method):
    texts, notes = _read(write("a.zip", _zip(MEMBERS, method)), tmp_path)
    assert texts == {"a.zip" + member: lines for member, lines in READ.items()}
    assert notes == (f"not read of a.zip: {NOTES}",)


def test_the_notes_of_a_member_stand_with_it(write):
    files, _ = read_sources([write("a.tar", _tar([("a.log", b"one\n"), ("b.log", b"\xff\n")]))])
    assert [file.notes for file in files] == [(), ("1 byte was not valid UTF-8 and was replaced",)]


@pytest.mark.parametrize("pack", [_tar, _zip])
def test_all_text_is_read_where_nothing_is_named_as_a_log(write, tmp_path, pack):
    path = write("a", pack([("node0", b"one\n"), ("node1", b"two\n"), ("core", BINARY)]))
    assert _read(path, tmp_path) == (
        {"a!node0": ["one"], "a!node1": ["two"]},
        ("not read of a: core (binary data, not a log)",),
    )


@pytest.mark.parametrize("pack", [_tar, _zip])
def test_an_archive_without_a_log_is_refused_with_the_reasons(write, pack):
    path = write("a", pack([("x/", None), ("core.log", BINARY)]))
    assert _refused(path) == f"{path}: no log in it; not read of {path}: core.log (binary data, not a log)"
    path = write("b", pack([("x/", None)]))
    assert _refused(path) == f"{path}: no log in it"


def test_what_is_no_file_in_a_tar_is_said(write, tmp_path):
    path = write("a.tar", _tar([("latest.log", "a.log"), ("a.log", b"one\n")]))
    assert _read(path, tmp_path)[1] == ("not read of a.tar: latest.log (symbolic link)",)


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_odd_names(write, tmp_path, form):
    names = ["f/" * 60 + "ü" * 80 + ".log", "bad\x1b[31m\nname.log", "../../etc/a.log", "/etc/b.log"]
    texts, _ = _read(write("a.tar", _tar([(name, b"one\n") for name in names], form)), tmp_path)
    assert list(texts) == [f"a.tar!{name}" for name in names]


def test_names_with_a_prefix(write, tmp_path):
    name = "folder/" * 20 + "server.log"
    assert len(name) > 100
    texts, _ = _read(write("a.tar", _tar([(name, b"one\n")], tarfile.USTAR_FORMAT)), tmp_path)
    assert list(texts) == [f"a.tar!{name}"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("pack", [_tar, _zip])
def test_members_of_one_name_are_told_apart(write, tmp_path, pack):
    texts, _ = _read(write("a", pack([("a.log", b"one\n"), ("a.log", b"two\n")])), tmp_path)
    assert texts == {"a!a.log": ["one"], "a!a.log (2)": ["two"]}


@pytest.mark.parametrize("name", ["a.tgz", "a.zip"])
def test_one_member_or_some_by_name(write, tmp_path, name):
    pack = _zip if name == "a.zip" else _tar
    path = write(name, pack([("n0/a.log", b"one\n"), ("n1/a.log", b"two\n"), ("b.log", b"three\n")]))
    assert _read(f"{path}!n1/a.log", tmp_path)[0] == {f"{name}!n1/a.log": ["two"]}
    assert _read(f"{path}!*/a.log", tmp_path)[0] == {f"{name}!n0/a.log": ["one"], f"{name}!n1/a.log": ["two"]}
    assert _refused(f"{path}!c.log") == f"{path}!c.log: no such log in the archive"
    assert _refused(f"{tmp_path}/none!c.log") == f"{tmp_path}/none!c.log: no such file"


def test_members_can_be_read_in_any_order_and_side_by_side(write):
    members = [(f"{number}.log", b"%d\n" % number * 30_000) for number in range(5)]
    sources = open_sources([write("a.tar.gz", gzip.compress(_tar(members)))])
    texts = {}
    for number in (3, 1, 4, 0, 2, 2):
        texts[number] = pl.concat(list(sources[number].blocks(1000)))["text"].to_list()
    assert texts == {number: [str(number)] * 30_000 for number in range(5)}
    together = zip(*(source.blocks(1 << 14) for source in sources), strict=True)
    for blocks in together:
        assert [block["text"].unique().to_list() for block in blocks] == [
            [str(number)] for number in range(5)
        ]


@pytest.mark.parametrize("packer", PACKERS)
def test_positions_of_members_go_from_nothing_to_their_size(write, packer):
    members = [(f"{number}.log", os.urandom(200_000).hex().encode() + b"\n") for number in range(3)]
    path = write("a", PACKERS[packer](_tar(members)))
    sources = open_sources([path])
    total = 0
    for source in sources:
        assert source.position == 0
        assert source.size is not None
        places = [source.position for _ in source.blocks(10_000)]
        assert places == sorted(places)
        assert 0 <= source.position <= source.size
        total += source.size
    assert total == Path(path).stat().st_size
    assert max(source.position for source in sources) > total / 4


@pytest.mark.parametrize("raw", [_tar(MEMBERS), gzip.compress(_tar(MEMBERS)), _zip(MEMBERS)])
def test_an_archive_from_a_pipe_is_refused(monkeypatch, raw):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(raw)))
    assert _refused("-") == "-: is an archive; save it to a file, for it is read twice"


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.binary(max_size=2000)), min_size=1, max_size=5),
    st.sampled_from([1, 50, 1 << 20]),
    st.sampled_from(["zip", *PACKERS]),
)
def test_a_member_is_read_as_the_file_it_was(tmp_path_factory, members, size, packer):
    folder = tmp_path_factory.mktemp("archive")
    members = [(f"{number}{name}.log", b"text\n" * 90 + raw) for number, (name, raw) in enumerate(members)]
    path = folder / "a"
    path.write_bytes(_zip(members) if packer == "zip" else PACKERS[packer](_tar(members)))
    read = {}
    for name, raw in members:
        (folder / name).write_bytes(raw)
        try:
            (summary,), lines = read_sources([folder / name])
        except SourceError:
            continue  # binary
        read[name] = (summary.lines, summary.bytes, summary.replaced_bytes, lines["text"].to_list())
    if not read:
        assert "no log in it" in _refused(path)
        return
    found = {}
    for source in open_sources([path]):
        text = pl.concat(
            [pl.DataFrame(schema={"text": pl.String}), *(b.select("text") for b in source.blocks(size))]
        )
        one = source.summary()
        found[one.path.split("!")[1]] = (one.lines, one.bytes, one.replaced_bytes, text["text"].to_list())
    assert found == read


# ------------------------------------------------------------------ archives that are damaged

LONG = b"".join(b"line %d of the log\n" % number for number in range(20_000))


@pytest.mark.parametrize("packer", PACKERS)
def test_of_a_tar_that_was_cut_what_stands_before_the_cut_is_read(write, packer):
    noise = os.urandom(1_500_000).hex().encode()
    packed = PACKERS[packer](_tar([("a.log", b"one\n"), ("b.log", noise), ("c.log", b"three\n")]))
    files, lines = read_sources([write("a.tar", packed[: len(packed) // 2])])
    what = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
    damage = f"the {what[packer]} data is damaged or cut" if packer else "the archive is damaged or cut"
    assert [file.path.split("!")[1] for file in files] == ["a.log", "b.log"]
    assert files[0].notes == (f"{damage}; what stands behind that is missing",)
    assert files[1].notes[0] == f"{damage}; read the first {files[1].bytes} bytes of text"
    assert noise.decode().startswith(lines["text"][1])
    assert len(lines["text"][1]) == files[1].bytes > 500_000


def test_a_tar_whose_header_is_damaged_says_that_members_are_missing(write):
    raw = bytearray(_tar([("a.log", b"one\n"), ("b.log", b"two\n")]))
    raw[1024 + 3] ^= 1
    files, lines = read_sources([write("a.tar", bytes(raw))])
    assert lines["text"].to_list() == ["one"]
    assert files[0].notes == ("the archive is damaged or cut; what stands behind that is missing",)


def test_a_tar_that_is_still_being_written(write):
    files, lines = read_sources([write("a.tar", _tar([("a.log", b"one\n")])[:1024])])
    assert lines["text"].to_list() == ["one"]
    assert files[0].notes == (
        "the archive has no end: it was cut, or is still being written; what stands behind that is missing",
    )


def test_something_behind_the_end_of_a_tar_is_said(write):
    files, _ = read_sources([write("a.tar", _tar([("a.log", b"one\n")]) + _tar([("b.log", b"two\n")]))])
    assert files[0].notes == (
        "something else stands behind the end of the archive; what stands behind that is missing",
    )


def test_a_zip_without_its_list_is_refused(write):
    path = write("a.zip", _zip([("a.log", LONG)])[:5_000])
    assert _refused(path) == f"{path}: damaged zip data: no list of its members"


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_of_a_damaged_member_of_a_zip_what_can_be_read_is_read(write, method):
    raw = bytearray(_zip([("a.log", LONG * 5), ("b.log", b"two\n")], method))
    raw[raw.index(b"b.log") - 60] ^= 1
    (first, second), lines = read_sources([write("a.zip", bytes(raw))])
    assert first.notes[0] == f"the zip data is damaged or cut; read the first {first.bytes} bytes of text"
    assert first.bytes > 0
    assert second.lines == 1
    assert lines["text"][0] == "line 0 of the log"


def test_members_of_a_zip_that_cannot_be_read_are_said(write, tmp_path):
    raw = bytearray(_zip([("a.log", b"one\n"), ("b.log", b"two\n"), ("c.log", b"three\n")]))
    first = raw.index(b"PK\x01\x02")
    raw[first + 8] |= 1  # encrypted
    second = raw.index(b"PK\x01\x02", first + 1)
    raw[second + 10 : second + 12] = (9).to_bytes(2, "little")
    assert _read(write("a.zip", bytes(raw)), tmp_path) == (
        {"a.zip!c.log": ["three"]},
        ("not read of a.zip: a.log (encrypted); b.log (packed by method 9)",),
    )


def test_a_record_of_a_tar_that_is_too_large_ends_the_reading(write):
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 33
    record = info.tobuf(tarfile.GNU_FORMAT)
    files, _ = read_sources([write("a.tar", _tar([("a.log", b"one\n")])[:1024] + record + b"\0" * 2048)])
    assert files[0].notes == ("the archive is damaged or cut; what stands behind that is missing",)


def test_members_of_a_tar_with_holes_are_said(write, tmp_path):
    raw = _tar([("holes.log", b"one\n"), ("a.log", b"two\n")])
    header = bytearray(raw[:512])
    header[156:157] = b"S"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    assert _read(write("a.tar", bytes(header) + raw[512:]), tmp_path) == (
        {"a.tar!a.log": ["two"]},
        ("not read of a.tar: holes.log (stored with holes)",),
    )


def test_a_size_in_base_256_and_an_old_header(write, tmp_path):
    raw = bytearray(_tar([("a.log", b"one\n")]))
    raw[124:136] = b"\x80" + (4).to_bytes(11, "big")
    raw[257:265] = bytes(8)  # no magic
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw[:512])
    assert _read(write("a.tar", bytes(raw)), tmp_path)[0] == {"a.tar!a.log": ["one"]}


def test_a_hole_alone_in_an_archive_is_no_error(write):
    raw = b"\n" * 70_000 + b"\0"
    files, lines = read_sources([write("a.tar", _tar([("a.log", raw), ("b.log", b"one\n")]))])
    assert files[0].notes == ("1 NUL byte removed",)
    assert lines.height == 70_001


# ------------------------------------------------------------------ folders and globs


def test_a_folder_is_read_in_the_order_of_its_names(write, tmp_path):
    for name, raw in {
        "job/node10/server.log": b"ten\n",
        "job/node2/server.log": b"two\n",
        "job/node2/server.log.1.gz": gzip.compress(b"older\n"),
        "job/stdout": b"out\n",
        "job/core.err": BINARY,
        "job/config.json": b"{}\n",
        "job/.hidden/a.log": b"no\n",
        "job/.a.log": b"no\n",
        "job/more.zip": _zip([("a.log", b"zip\n"), ("b.json", b"{}\n")]),
        "job/broken.gz.log": b"\x1f\x8bno gzip data",
    }.items():
        write(name, raw)
    (tmp_path / "job/a_latest.log").symlink_to("node2/server.log")
    (tmp_path / "job/lost.log").symlink_to("nowhere")
    (tmp_path / "job/loop").symlink_to(".")
    os.mkfifo(tmp_path / "job/pipe.log")
    texts, notes = _read(f"{tmp_path}/job", tmp_path)
    assert list(texts.items()) == [
        ("job/more.zip!a.log", ["zip"]),
        ("job/node2/server.log", ["two"]),
        ("job/node2/server.log.1.gz", ["older"]),
        ("job/node10/server.log", ["ten"]),
        ("job/stdout", ["out"]),
    ]
    assert notes == (
        "not read of "
        + f"{tmp_path}/job".replace(f"{tmp_path}/", "")
        + ": job/broken.gz.log (damaged gzip data);"
        " job/config.json, job/more.zip!b.json (not named as a log); job/core.err (binary data, not a log);"
        " job/pipe.log (no regular file); job/a_latest.log (is job/node2/server.log, given twice);"
        " job/lost.log (no such file)",
    )


def test_a_folder_within_that_cannot_be_looked_into_is_said(write, tmp_path, monkeypatch):
    write("logs/a.log", b"1\n")
    write("logs/node1/b.log", b"2\n")
    look = os.scandir

    def locked(path):
        if str(path).endswith("node1"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return look(path)

    monkeypatch.setattr(os, "scandir", locked)
    [file], _ = read_sources([tmp_path / "logs"])
    remark = f"{tmp_path / 'logs' / 'node1'}: no permission to read it"
    assert file.notes == (remark,)
    assert file.unread == (f"{tmp_path / 'logs'}: {remark}",)


def test_a_folder_without_a_name_of_a_log_gives_all_text(write, tmp_path):
    write("job/one", b"1\n")
    write("job/two", b"2\n")
    assert _read(f"{tmp_path}/job/", tmp_path)[0] == {"job/one": ["1"], "job/two": ["2"]}


def test_a_folder_without_a_log_is_refused(write, tmp_path):
    for number in range(5):
        write(f"job/{number}.log", BINARY)
    folder = f"{tmp_path}/job"
    names = ", ".join(f"{folder}/{number}.log" for number in range(3))
    assert _refused(folder) == (
        f"{folder}: no log in it; not read of {folder}: {names} and 2 more (binary data, not a log)"
    )


def test_a_file_of_a_folder_that_is_given_too(write, tmp_path):
    path = write("job/a.log", b"one\n")
    write("job/b.log", b"two\n")
    files, _ = read_sources([path, tmp_path / "job"])
    assert [file.path for file in files] == [path, f"{tmp_path}/job/b.log"]
    assert files[1].notes == (f"not read of {tmp_path}/job: {path} (given twice)",)
    with pytest.raises(SourceError, match="given twice"):
        read_sources([tmp_path / "job", path])


def test_the_same_file_by_another_name(write, tmp_path):
    path = write("a.log", b"one\n")
    link, hard = tmp_path / "link.log", tmp_path / "hard.log"
    link.symlink_to(path)
    hard.hardlink_to(path)
    for other in (link, hard):
        with pytest.raises(SourceError) as caught:
            read_sources([path, other])
        assert str(caught.value) == f"{other}: is {path}, given twice"


def test_a_glob(write, tmp_path, monkeypatch):
    write("a/x.log", b"1\n")
    write("b/x.log", b"2\n")
    write("b/c/y.log", b"3\n")
    write(".h/x.log", b"no\n")
    write("b/x.json", b"{}\n")
    assert list(_read(f"{tmp_path}/*/x.log", tmp_path)[0]) == ["a/x.log", "b/x.log"]
    assert list(_read(f"{tmp_path}/**/y.log", tmp_path)[0]) == ["b/c/y.log"]
    assert list(_read(f"{tmp_path}/b/*.json", tmp_path)[0]) == ["b/x.json"]
    assert list(_read(f"{tmp_path}/*", tmp_path)[0]) == ["a/x.log", "b/c/y.log", "b/x.log"]
    assert list(_read(f"{tmp_path}/.h/*", tmp_path)[0]) == [".h/x.log"]
    assert _refused(f"{tmp_path}/*.log") == f"{tmp_path}/*.log: no such file"
    monkeypatch.chdir(tmp_path)
    assert list(_read("*/x.log", ".")[0]) == ["a/x.log", "b/x.log"]


def test_a_name_that_looks_like_a_glob_and_is_a_file(write, tmp_path):
    path = write("a[1]*.log", b"one\n")
    assert _read(path, tmp_path)[0] == {"a[1]*.log": ["one"]}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("server.log", True),
        ("SERVER.LOG", True),
        ("server.log.1", True),
        ("server.log.2026-01-01", True),
        ("server.log-20260101.gz", True),
        ("slurm-17.out", True),
        ("worker.err.zst", True),
        ("stdout", True),
        ("sglang_stderr", True),
        ("notes.txt", True),
        ("catalog", False),
        ("server.log.json", False),
        ("config.yaml", False),
        ("core.17", False),
    ],
)
def test_names_of_logs(name, expected):
    assert named_as_log(f"folder.log/{name}") is expected


def test_more_files_than_can_be_numbered(write, tmp_path, monkeypatch):
    monkeypatch.setattr("sglogparse._source._MOST_FILES", 2)
    for number in range(3):
        write(f"job/{number}.log", b"one\n")
    assert _refused(tmp_path / "job") == "3 logs were given; 2 at most in one call"


def test_the_checksum_of_a_member_is_that_of_its_text(write):
    raw = bytearray(_zip([("a.log", b"one\n")], zipfile.ZIP_STORED))
    raw[raw.index(b"one")] ^= 1
    (file,), lines = read_sources([write("a.zip", bytes(raw))])
    assert lines["text"].to_list() == ["nne"]
    assert file.notes == ("the zip data is damaged or cut; read the first 4 bytes of text",)
