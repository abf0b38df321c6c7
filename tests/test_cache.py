"""What was read before: with a cache all frames are as without one, whatever has become of the cache."""

import gzip
import json
import os
import stat
import subprocess
import sys
import tarfile
import warnings
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from polars.testing import assert_frame_equal

from sglogparse import SourceError, _cache, read_log, scan_log
from sglogparse._cache import Cache, content_key, read_kept
from sglogparse._cli import main
from sglogparse._scan import scan_schemas
from sglogparse._source import SourceFile, open_sources

FIXTURES = Path(__file__).parent / "fixtures"
LOG = FIXTURES / "baseline_debug_nocar.log"
SOME = sorted(FIXTURES.rglob("*.log"))[::12]
LINE = "[2026-03-01 10:00:00 TP{}] Memory pool end. avail mem=2.00 GB\n"


@pytest.fixture
def notes():
    return []


@pytest.fixture
def read(tmp_path, notes):
    """Return a function that reads frames of logs by way of a cache."""

    def frames(*paths, names=None):
        names = scan_schemas() if names is None else names
        return read_kept([str(path) for path in paths], list(names), Cache(tmp_path / "cache", notes.append))

    return frames


@pytest.fixture
def unread(monkeypatch):
    """Return a function after which no log can be read."""

    def shut():
        def refused(paths):
            raise AssertionError("the log is read")

        monkeypatch.setattr(_cache, "read_log", refused)

    return shut


def check(kept, log):
    assert kept.files == log.files
    for name in kept.parts:
        frame = log.frames[name] if name in log.frames else getattr(log, name)
        assert_frame_equal(kept.frame(name), frame)


def entries(folder):
    return sorted(path.name for path in folder.iterdir())


# ------------------------------------------------------------------ equal frames


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.name)
def test_frames_are_the_same_with_a_cache_and_from_it(path, read, notes, unread):
    log = read_log(path)
    check(read(path), log)
    unread()
    check(read(path), log)
    assert notes == []


def test_several_logs_are_kept_together_in_their_order(read, unread):
    logs = SOME[:4]
    read(*logs)
    read(*reversed(logs))
    check(read(logs[0]), read_log(logs[0]))
    unread()
    check(read(*logs), read_log(logs))
    check(read(*reversed(logs)), read_log(logs[::-1]))


def test_a_log_is_known_by_its_content_not_by_its_name(tmp_path, read, unread):
    first, second = tmp_path / "a.log", tmp_path / "b.log"
    first.write_text(LINE.format(3) + "cut")
    read(first)
    first.rename(second)
    unread()
    kept = read(second)
    assert kept.frame("memory_pool_end")["tp"].to_list() == [3]
    cut = "the last line has no end: the log was cut, or is still being written"
    assert kept.files == (SourceFile(str(second), 2, second.stat().st_size, 0, (cut,)),)
    assert (
        "a.log"
        not in (tmp_path / "cache" / content_key(open_sources([second])) / "manifest.json").read_text()
    )


def test_other_content_is_another_log(tmp_path, read):
    path = tmp_path / "a.log"
    for rank in (1, 2):
        path.write_text(LINE.format(rank))
        assert read(path).frame("memory_pool_end")["tp"].to_list() == [rank]
    with path.open("a") as stream:
        stream.write(LINE.format(7))
    assert read(path).frame("memory_pool_end")["tp"].to_list() == [2, 7]
    assert len(entries(tmp_path / "cache")) == 3


def test_folders_and_archives_are_kept(tmp_path, read, notes, unread):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.log").write_text(LINE.format(1))
    (folder / "b.log.gz").write_bytes(gzip.compress(LINE.format(2).encode()))
    with tarfile.open(tmp_path / "logs.tar", "w") as archive:
        archive.add(folder, "logs")
    logs = {path: read_log(path) for path in (folder, tmp_path / "logs.tar")}
    for path, log in logs.items():
        check(read(path), log)
    # a file that is not read is said: another reading of the same logs
    (folder / "core.bin").write_bytes(bytes(99))
    read(folder)
    assert notes == []
    assert any("core.bin" in note for note in read(folder).files[0].notes)
    (folder / "core.bin").unlink()
    unread()
    for path, log in logs.items():
        check(read(path), log)
    with pytest.raises(SourceError, match="given twice"):
        read(folder / "a.log", folder / "a.log")


def test_files_are_told_apart_from_their_sum(tmp_path):
    whole, first, second = (tmp_path / name for name in ("w.log", "a.log", "b.log"))
    whole.write_text("one\ntwo\n")
    first.write_text("one\n")
    second.write_text("two\n")
    keys = [
        content_key(open_sources(paths))
        for paths in ((whole,), (first, second), (second, first), (first,), (second,))
    ]
    assert len(set(keys)) == len(keys)


def test_another_reader_makes_its_own_entries(tmp_path, read, monkeypatch):
    """A grammar, the version, or polars: each can make other frames of the same text."""
    read(LOG)
    monkeypatch.setattr(_cache, "__version__", "99.0")
    _cache.reader_digest.cache_clear()
    read(LOG)
    grammars = tmp_path / "grammars"
    grammars.mkdir()
    for path in _cache.grammar_dir().glob("*.lark"):
        (grammars / path.name).write_text(path.read_text() + "// changed\n" * (path.name == "events.lark"))
    monkeypatch.setattr(_cache, "grammar_dir", lambda: grammars)
    _cache.reader_digest.cache_clear()
    read(LOG)
    monkeypatch.setattr(pl, "__version__", "99.0")
    _cache.reader_digest.cache_clear()
    read(LOG)
    monkeypatch.undo()
    _cache.reader_digest.cache_clear()
    assert len(entries(tmp_path / "cache")) == 4


def test_only_what_is_asked_for_is_read_of_an_entry(tmp_path, read, notes, unread):
    read(LOG)
    (entry,) = (tmp_path / "cache").iterdir()
    for path in entry.glob("*.parquet"):
        if path.name not in ("traceback.0.parquet", "lines.0.parquet"):
            path.unlink()
    unread()
    log = read_log(LOG)
    assert_frame_equal(read(LOG, names=["traceback"]).frame("traceback"), log.traceback)
    assert_frame_equal(read(LOG, names=["unparsed"]).frame("unparsed"), log.unparsed)
    # a frame without rows has no file
    assert_frame_equal(read(LOG, names=["prefill_batch"]).frame("prefill_batch"), log.prefill_batch)
    assert notes == []


# ------------------------------------------------------------------ what is not trusted


def _cut(entry):
    path = entry / "lines.0.parquet"
    path.write_bytes(path.read_bytes()[:-5])


def _flip(entry):
    path = entry / "lines.0.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _rewrite(entry, change):
    """Change a manifest as somebody would who knows how it is signed."""
    body = json.loads((entry / "manifest.json").read_text().partition("\n")[2])
    change(body)
    text = json.dumps(body)
    (entry / "manifest.json").write_text(f"{_cache._digest(text.encode())}\n{text}")


def _swap(entry):
    _rewrite(entry, lambda body: body["frames"].update(lines=body["frames"]["traceback"]))


def _other_height(entry):
    _rewrite(entry, lambda body: body["frames"]["lines"][0].__setitem__(1, 7))


def _way_out(entry):
    (entry.parent.parent / "x.0.parquet").write_bytes((entry / "lines.0.parquet").read_bytes())
    _rewrite(entry, lambda body: body["frames"]["lines"][0].__setitem__(0, "../../x.0.parquet"))


def _not_parquet(entry):
    (entry / "lines.0.parquet").write_bytes(b"nothing")
    digest = _cache._digest(b"nothing")
    _rewrite(entry, lambda body: body["frames"]["lines"][0].__setitem__(2, digest))


DAMAGE = {
    "cut": (_cut, "lines.0.parquet is damaged"),
    "flipped": (_flip, "lines.0.parquet is damaged"),
    "no parquet": (_not_parquet, "lines.0.parquet is damaged"),
    "missing": (lambda entry: (entry / "lines.0.parquet").unlink(), "a file of it is missing"),
    "other frame": (_swap, "traceback.0.parquet is not the frame that it should be"),
    "other height": (_other_height, "lines.0.parquet is not the frame that it should be"),
    "way out": (_way_out, "its manifest is not one of ours"),
    "no manifest": (lambda entry: (entry / "manifest.json").unlink(), "a file of it is missing"),
    "empty manifest": (lambda entry: (entry / "manifest.json").write_text(""), "its manifest is damaged"),
    "other bytes": (lambda entry: (entry / "manifest.json").write_bytes(b"\xff\n"), "its manifest is not one of ours"),
    "cut manifest": (
        lambda entry: (entry / "manifest.json").write_text((entry / "manifest.json").read_text()[:-1]),
        "its manifest is damaged",
    ),
    "no frames": (lambda entry: _rewrite(entry, lambda body: body.pop("frames")), "its manifest is not one of ours"),
    "other key": (lambda entry: _rewrite(entry, lambda body: body.update(key="x")), "it is an entry of something else"),
    "other schema": (
        lambda entry: _rewrite(entry, lambda body: body.update(schema="x/1")),
        "it is an entry of something else",
    ),
    "no file": (
        lambda entry: _rewrite(entry, lambda body: body["files"].pop()),
        "its manifest is not one of ours",
    ),
    "others write": (lambda entry: entry.chmod(0o777), "it belongs to somebody else, or others can write to it"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_entry_is_said_not_used_and_replaced(name, tmp_path, read, notes, unread):
    damage, why = DAMAGE[name]
    read(LOG)
    (entry,) = (tmp_path / "cache").iterdir()
    damage(entry)
    log = read_log(LOG)
    check(read(LOG), log)
    assert notes == [f"{entry}: is not used, and the log is read again: {why}"]
    unread()
    check(read(LOG), log)
    assert len(notes) == 1
    assert entries(tmp_path / "cache") == [entry.name]


@pytest.mark.parametrize("place", ["file", "link"])
def test_what_is_no_folder_is_no_entry(place, tmp_path, read, notes, unread):
    read(LOG)
    (entry,) = (tmp_path / "cache").iterdir()
    other = entry.rename(tmp_path / "other")
    if place == "file":
        entry.write_text("x")
    else:
        entry.symlink_to(other)
    log = read_log(LOG)
    check(read(LOG), log)
    assert notes == [f"{entry}: is not used, and the log is read again: it is no folder"]
    unread()
    check(read(LOG), log)
    assert other.is_dir()


def test_an_entry_of_somebody_else_is_not_used(tmp_path, read, notes, monkeypatch):
    read(LOG)
    monkeypatch.setattr(os, "geteuid", lambda: 4_711)
    check(read(LOG), read_log(LOG))
    assert len(notes) == 1
    assert "it belongs to somebody else" in notes[0]


def test_what_a_killed_process_has_left_is_no_entry(tmp_path, read, notes):
    (tmp_path / "cache" / ".new-x" / "new").mkdir(parents=True)
    check(read(LOG), read_log(LOG))
    assert notes == []
    assert len(entries(tmp_path / "cache")) == 2


# ------------------------------------------------------------------ what cannot be kept


def test_nothing_is_kept_where_the_folder_is_a_file(tmp_path, read, notes):
    (tmp_path / "cache").write_text("mine")
    log = read_log(LOG)
    check(read(LOG), log)
    assert notes == [f"{tmp_path / 'cache'}: nothing is kept: Not a directory"]
    assert (tmp_path / "cache").read_text() == "mine"


@pytest.mark.parametrize("step", ["mkdir", "open", "write", "rename"])
def test_nothing_is_kept_when_writing_fails(step, tmp_path, read, notes, monkeypatch):
    def fails(*args, **options):
        raise OSError(28, "No space left on device")

    log = read_log(LOG)
    if step == "open":
        opened = os.open
        monkeypatch.setattr(
            os,
            "open",
            lambda path, *more, **by: (fails if "parquet" in str(path) else opened)(path, *more, **by),
        )
    elif step == "write":
        monkeypatch.setattr(os, "fdopen", fails)
    else:
        monkeypatch.setattr(Path, step, fails)
    check(read(LOG), log)
    monkeypatch.undo()
    assert notes == [f"{tmp_path / 'cache'}: nothing is kept: No space left on device"]
    assert not (tmp_path / "cache").exists() or entries(tmp_path / "cache") == []


def test_a_log_that_grows_while_it_is_read_is_not_kept(tmp_path, read, notes, monkeypatch):
    path = tmp_path / "a.log"
    path.write_text(LINE.format(1))
    reading = _cache.read_log

    def growing(paths):
        log = reading(paths)
        with path.open("a") as stream:
            stream.write(LINE.format(2))
        return log

    monkeypatch.setattr(_cache, "read_log", growing)
    assert read(path).frame("memory_pool_end")["tp"].to_list() == [1]
    assert notes == [f"{tmp_path / 'cache'}: nothing is kept: the log has changed while it was read"]
    assert entries(tmp_path / "cache") == []


def test_what_is_no_file_is_read_and_not_kept(tmp_path, read, notes):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = subprocess.Popen([sys.executable, "-c", f"open({str(pipe)!r}, 'w').write({LINE.format(4)!r})"])
    assert read(pipe).frame("memory_pool_end")["tp"].to_list() == [4]
    assert writer.wait() == 0
    assert notes == [f"{tmp_path / 'cache'}: nothing is kept: only what is read from files is"]


def test_a_log_that_cannot_be_read_is_an_error_as_ever(tmp_path, read, notes):
    with pytest.raises(SourceError, match=r"none\.log: no such file"):
        read(tmp_path / "none.log")
    binary = tmp_path / "a.bin"
    binary.write_bytes(bytes(range(32)) * 10)
    with pytest.raises(SourceError, match="binary data"):
        read(binary)
    assert notes == []
    assert not (tmp_path / "cache").exists()


# ------------------------------------------------------------------ side by side


def test_processes_share_a_cache(tmp_path):
    """Some write the entry, some replace a damaged one, all read the same."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from sglogparse._cache import Cache, read_kept\n"
        "for _ in range(4):\n"
        "    kept = read_kept([sys.argv[1]], ['lines', 'traceback'], Cache(Path(sys.argv[2]), lambda text: None))\n"
        "    print(kept.frame('lines').hash_rows().sum(), kept.frame('traceback').height)\n"
        "    for path in Path(sys.argv[2]).glob('*/lines.0.parquet'):\n"
        "        path.write_bytes(b'damaged')\n"
    )
    command = [sys.executable, "-c", program, str(LOG), str(tmp_path / "cache")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
    told = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, told
    log = read_log(LOG)
    expected = f"{log.lines.hash_rows().sum()} {log.traceback.height}\n".encode() * 4
    assert [out for out, _ in told] == [expected] * 4
    assert len(entries(tmp_path / "cache")) == 1


def test_nobody_else_can_read_an_entry(tmp_path, read):
    """The text of a log stands in it as it is, with its secrets."""
    path = tmp_path / "a.log"
    path.write_text("[2026-03-01 10:00:00] server_args=ServerArgs(api_key='sk-abcdef0123456789abcdef')\n")
    old = os.umask(0)
    try:
        kept = read(path)
    finally:
        os.umask(old)
    assert "sk-abcdef0123456789abcdef" in kept.frame("server_args")["args_repr"][0]
    folder = tmp_path / "cache"
    for one in (folder, *folder.rglob("*")):
        assert stat.S_IMODE(one.stat().st_mode) == (0o700 if one.is_dir() else 0o600), one


# ------------------------------------------------------------------ from Python, and from the command line


@contextmanager
def _no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_lazy_frames_from_a_cache(engine, tmp_path, unread):
    log = read_log(LOG)
    with _no_warning():
        for turn in range(2):
            scan = scan_log(LOG, cache=tmp_path / "cache")
            for name in ("lines", "unparsed", "load_weight_end", "traceback", "prefill_batch"):
                frame = log.frames[name] if name in log.frames else getattr(log, name)
                assert_frame_equal(scan[name].collect(engine=engine), frame)
                for query in (
                    lambda lazy: lazy.filter(pl.col("tp") == 1, pl.col("line") > 20).select("rank"),
                    lambda lazy: lazy.filter(pl.col("tp") == 1).select("line").head(2),
                    lambda lazy: lazy.head(9).filter(pl.col("tp").is_not_null()).select("line", "tp"),
                    lambda lazy: lazy.select(pl.len()),
                ):
                    assert_frame_equal(
                        query(scan[name]).collect(engine=engine), query(frame.lazy()).collect()
                    )
            if not turn:
                unread()
    assert scan.lines.collect_schema() == scan_schemas()["lines"]


def test_a_lazy_frame_warns_of_a_damaged_entry(tmp_path):
    scan = scan_log(LOG, cache=str(tmp_path / "cache"))
    assert not (tmp_path / "cache").exists()
    height = scan.lines.collect().height
    (entry,) = (tmp_path / "cache").iterdir()
    _flip(entry)
    with pytest.warns(
        UserWarning, match=r"is not used, and the log is read again: lines\.0\.parquet is damaged"
    ):
        assert scan.lines.collect().height == height


COMMANDS = {
    "query": ["query", str(LOG), "select line, rank, exception from traceback order by line"],
    "files": ["query", str(LOG), "select * from files"],
    "unparsed": ["query", str(LOG), "select count(*) as n, count(distinct text) as m from unparsed"],
    "frames": ["frames", str(LOG)],
    "frames, json": ["frames", str(LOG), "--output-format", "json"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_say_the_same_with_a_cache(name, tmp_path, unread):
    command = COMMANDS[name]
    plain = CliRunner().invoke(main, command)
    assert plain.exit_code == 0
    assert plain.output
    first = CliRunner().invoke(main, [*command, "--cache", str(tmp_path / "cache")])
    assert (first.exit_code, first.output) == (0, plain.output)
    unread()
    again = CliRunner().invoke(main, [*command, "--cache", str(tmp_path / "cache")])
    assert (again.exit_code, again.output) == (0, plain.output)


def test_an_export_is_the_same_with_a_cache(tmp_path, unread):
    def export(folder, *more):
        done = CliRunner().invoke(main, ["export", str(LOG), "-o", str(tmp_path / folder), *more])
        assert done.exit_code == 0
        return {path.name: pl.read_parquet(path) for path in sorted((tmp_path / folder).iterdir())}

    plain = export("plain")
    cache = ["--cache", str(tmp_path / "cache")]
    first = export("first", *cache)
    unread()
    for found in (first, export("again", *cache)):
        assert found.keys() == plain.keys()
        for name, frame in plain.items():
            assert_frame_equal(found[name], frame)


def test_secrets_of_a_cache_are_masked_as_ever(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("[2026-03-01 10:00:00] server_args=ServerArgs(api_key='sk-abcdef0123456789abcdef')\n")
    command = ["query", str(path), "select args_repr from server_args", "--cache", str(tmp_path / "cache")]
    for _ in range(2):
        assert "sk-abcdef0123456789abcdef" not in CliRunner().invoke(main, command).output
        assert "sk-abcdef0123456789abcdef" in CliRunner().invoke(main, [*command, "--show-secrets"]).output


def test_the_command_line_says_on_standard_error_what_is_amiss(tmp_path):
    command = ["query", str(LOG), "select count(*) as n from lines", "--cache", str(tmp_path / "cache")]
    assert CliRunner().invoke(main, command).stdout == "n\n112\n"
    (entry,) = (tmp_path / "cache").iterdir()
    _cut(entry)
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0
    assert done.stdout == "n\n112\n"
    assert done.stderr == f"{entry}: is not used, and the log is read again: lines.0.parquet is damaged\n"
    piped = CliRunner().invoke(main, ["query", "-", *command[2:]], input=LOG.read_bytes())
    assert piped.stdout == "n\n112\n"
    assert piped.stderr == f"{tmp_path / 'cache'}: nothing is kept: only what is read from files is\n"


def test_nothing_is_kept_unless_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    scan_log(LOG).lines.collect()
    CliRunner().invoke(main, COMMANDS["query"])
    assert list(tmp_path.iterdir()) == []
