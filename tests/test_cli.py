"""The command line: what it prints where, and the code it exits with."""

from __future__ import annotations

import gzip
import json
import os
import pty
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from polars.testing import assert_frame_equal

import sglogparse
from sglogparse import _query
from sglogparse._cli import main
from sglogparse._query import tables_of
from sglogparse._report import Outcome
from sglogparse.rules import RULES

FIXTURES = Path(__file__).parent / "fixtures"
CLEAN = FIXTURES / "baseline_clean.log"
CRASHED = FIXTURES / "baseline_debug_nocar.log"
GREP = FIXTURES / "baseline_debug_nocar_grep.log"
CONTRADICTION = FIXTURES / "negative_budget_with_kv.log"
USER_CASES = (CLEAN, CRASHED, GREP, CONTRADICTION)
COMMANDS = (
    "diagnose",
    "memory",
    "compare",
    "timeline",
    "coverage",
    "frames",
    "export",
    "query",
    "explain",
    "rules",
    "wait",
    "watch",
    "triage",
    "metrics",
    "completion",
)

#: A log that says nothing about how the server fared, and no fault either.
SILENT = "[2026-02-27 12:49:58] A sentence that says nothing of the server\n"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs a command in an empty folder, as at a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def call(*words, stdin=None):
        return CliRunner().invoke(main, [str(word) for word in words], input=stdin)

    return call


def is_a_line(text: str) -> bool:
    """Tell whether a message is one line, of ours, without a traceback."""
    return text.startswith("sglogparse: ") and text.count("\n") == 1 and text.endswith("\n")


def refused(result) -> bool:
    """Tell whether a call ended as one that the tool could not do."""
    return result.exit_code == 2 and result.stdout == "" and is_a_line(result.stderr)


# ------------------------------------------------------------------ diagnose: exit codes


#: What the exit code is by log and --fail-on.
CODES = [
    (CLEAN, "error", 0),
    (CLEAN, "warning", 0),
    (CLEAN, "info", 0),
    (CLEAN, "never", 0),
    (CRASHED, "error", 1),
    (CRASHED, "warning", 1),
    (CRASHED, "info", 1),
    (CRASHED, "never", 3),
    (GREP, "error", 1),
    (GREP, "never", 3),
    (CONTRADICTION, "error", 1),
    (CONTRADICTION, "warning", 1),
]


@pytest.mark.parametrize("output_format", ["text", "json"])
@pytest.mark.parametrize(("log", "fail_on", "code"), CODES, ids=lambda one: getattr(one, "stem", one))
def test_exit_code_depends_on_the_log_and_not_on_the_format(run, log, fail_on, code, output_format):
    result = run("diagnose", log, "--fail-on", fail_on, "--output-format", output_format)
    assert result.exit_code == code
    assert result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("output_format", ["text", "json"])
@pytest.mark.parametrize("text", ["", "\n", SILENT], ids=["empty", "blank", "silent"])
def test_silence_is_not_health(run, tmp_path, text, output_format):
    log = tmp_path / "server.log"
    log.write_text(text)
    for fail_on in ("error", "never"):
        result = run("diagnose", log, "--output-format", output_format, "--fail-on", fail_on)
        assert (result.exit_code, result.stderr) == (3, "")
        assert "undecided" in result.stdout


def test_no_summary_is_added_to_a_log_that_is_read(run, tmp_path, monkeypatch):
    log = tmp_path / "server.log"
    log.write_text("a line\n")
    (tmp_path / "link").symlink_to(log)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "link"))
    result = run("diagnose", log, "--output-format", "github")
    assert refused(result)
    assert "is read by this call, so no summary is added to it" in result.stderr
    assert log.read_text() == "a line\n"
    assert run("diagnose", log, "--output-format", "json").exit_code == 3


def test_a_log_of_a_folder_that_cannot_be_read_leaves_health_undecided(run, tmp_path):
    good = (FIXTURES / "baseline_clean.log").read_bytes()
    packed = gzip.compress(good)
    lost = {
        "inner.tar.gz": (b"", "an archive within the archive"),
        "bad.log.gz": (packed[:12], "damaged gzip data"),
    }
    for name, (raw, _) in lost.items():
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / "server.log").write_bytes(good)
        (folder / "notes.bin").write_bytes(b"no log")
        assert run("diagnose", folder).exit_code == 0
        if raw:
            (folder / name).write_bytes(raw)
    (tmp_path / "inner" / "again.log").write_bytes(good)
    with tarfile.open(tmp_path / "inner.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "inner" / "server.log", "server.log")
    with tarfile.open(tmp_path / "outer.tar", "w") as archive:
        archive.add(tmp_path / "inner" / "server.log", "server.log")
        archive.add(tmp_path / "inner.tar.gz", "inner.tar.gz")
    for logs, name in ((tmp_path / "bad", "bad.log.gz"), (tmp_path / "outer.tar", "inner.tar.gz")):
        result = run("diagnose", logs, "--output-format", "json")
        report = json.loads(result.stdout)
        assert (result.exit_code, report["outcome"], report["cause"]) == (3, "ready", "unknown")
        [limit] = [one for one in report["limits"] if "could not read" in one]
        assert limit.startswith(f"{logs}: could not read ")
        assert limit.endswith(f"{name} ({lost[name][1]})")
        assert "as far as the logs could be read" in report["summary"]


def test_damaged_data_within_a_log_leave_health_undecided(run, tmp_path):
    log = tmp_path / "server.log.gz"
    log.write_bytes(gzip.compress((FIXTURES / "baseline_clean.log").read_bytes())[:-8])
    result = run("diagnose", log, "--output-format", "json")
    assert (result.exit_code, json.loads(result.stdout)["outcome"]) == (3, "ready")
    crash = gzip.compress((FIXTURES / "baseline_debug_nocar.log").read_bytes())[:-8]
    log.write_bytes(crash)
    assert run("diagnose", log).exit_code == 1
    words = ["diagnose", log, "--baseline", "known.json"]
    assert run(*words, "--write-baseline").exit_code == 3


def test_exit_zero_is_for_findings_and_not_for_failures(run, tmp_path):
    (tmp_path / "empty.log").touch()
    assert run("diagnose", CRASHED, "--exit-zero").exit_code == 0
    assert run("diagnose", "empty.log", "--exit-zero").exit_code == 0
    assert run("diagnose", CLEAN, "--exit-zero").exit_code == 0
    assert run("diagnose", "missing.log", "--exit-zero").exit_code == 2
    assert run("diagnose", "--exit-zero").exit_code == 2


# ------------------------------------------------------------------ diagnose: reading


@pytest.mark.parametrize(
    "command",
    [["diagnose"], ["timeline"], ["frames"], ["query"], ["export", "-o", "out"]],
    ids=lambda one: one[0],
)
def test_a_log_that_cannot_be_read_is_said_on_one_line(run, tmp_path, command):
    tail = ["select 1"] if command == ["query"] else []
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 64)
    (tmp_path / "cut.gz").write_bytes(b"\x1f\x8b" + b"no gzip data" * 9)
    for name, reason in (
        ("missing.log", "no such file"),
        ("folder", "folder"),
        ("binary", "binary"),
        ("cut.gz", "gzip"),
        (f"{CLEAN}/x", ""),
        ("bad\x1b[31m\nname", "no such file"),
    ):
        result = run(*command, name, *tail)
        assert refused(result), (name, result.output)
        assert reason in result.stderr
        assert "\x1b" not in result.stderr
    assert refused(run(*command, CLEAN, "missing.log", *tail))
    assert refused(run(*command, CLEAN, CLEAN, *tail))


@pytest.mark.parametrize(
    "words",
    [
        ["diagnose"],
        ["query"],
        ["query", CLEAN],
        ["frames"],
        ["export", CLEAN],
        ["export", "-o", "x"],
        ["explain"],
        ["explain", "M001", "M002"],
        ["diagnose", CLEAN, "--fail-on", "everything"],
        ["diagnose", CLEAN, "--output-format", "xml"],
        ["diagnose", CLEAN, "--no-such-option"],
        ["diagnoze", CLEAN],
        ["--no-such-option"],
    ],
    ids=lambda words: " ".join(map(str, words[:1])),
)
def test_a_wrong_call_is_said_on_one_line(run, words):
    result = run(*words)
    assert refused(result), result.output
    assert "--help" in result.stderr


def test_a_call_without_a_command_gets_the_help(run):
    result = run()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage:" in result.stderr


@pytest.mark.parametrize("log", USER_CASES, ids=lambda one: one.stem)
def test_standard_input_is_a_log(run, log):
    named, piped = run("diagnose", log), run("diagnose", "-", stdin=log.read_bytes())
    assert piped.exit_code == named.exit_code
    assert piped.stdout.splitlines()[:2] == named.stdout.splitlines()[:2]
    report = json.loads(run("diagnose", "-", "--output-format", "json", stdin=log.read_bytes()).stdout)
    assert report["files"][0]["path"] == "-"


def test_gzip_is_unpacked(run, tmp_path):
    (tmp_path / "server.log.gz").write_bytes(gzip.compress(CRASHED.read_bytes()))
    result = run("diagnose", "server.log.gz", "--output-format", "json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["files"][0]["lines"] == CRASHED.read_bytes().count(b"\n")


def test_of_several_logs_the_worst_speaks(run):
    result = run("diagnose", CLEAN, CRASHED)
    assert result.exit_code == 1
    assert result.stdout == run("diagnose", CLEAN, CRASHED).stdout
    assert result.stdout.startswith("crashed")
    assert f"{CLEAN.name}:1-110: ready" in result.stdout
    report = json.loads(run("diagnose", CLEAN, CRASHED, "--output-format", "json").stdout)
    assert [Path(one["path"]).name for one in report["files"]] == [CLEAN.name, CRASHED.name]
    assert [one["outcome"] for one in report["launches"]] == ["ready", "crashed"]
    assert Path(report["root"]["file"]).name == CRASHED.name


def test_several_launches_in_one_log(run, tmp_path):
    (tmp_path / "server.log").write_bytes(CRASHED.read_bytes() + CLEAN.read_bytes())
    report = json.loads(run("diagnose", "server.log", "--output-format", "json", "--exit-zero").stdout)
    assert [(one["first_line"], one["last_line"], one["outcome"]) for one in report["launches"]] == [
        (1, 112, "crashed"),
        (113, 222, "ready"),
    ]
    assert report["outcome"] == "ready"


# ------------------------------------------------------------------ diagnose: the contract


class Maybe:
    """A value that may be null."""

    def __init__(self, kind) -> None:
        self.kind = kind


LINE = {"file": str, "line": int, "rank": Maybe(str), "text": str}
#: The keys and types that DESIGN.md lists.
CONTRACT = {
    "schema": str,
    "files": [{"path": str, "lines": int, "bytes": int, "unparsed": int, "replaced_bytes": int}],
    "outcome": str,
    "cause": str,
    "summary": str,
    "root": Maybe(LINE),
    "launches": [
        {
            "first_line": int,
            "last_line": int,
            "outcome": str,
            "phases": [str],
            "ranks": [str],
            "version_window": Maybe(str),
        }
    ],
    "findings": [
        {
            "code": str,
            "name": str,
            "severity": str,
            "cause": Maybe(str),
            "message": str,
            "ranks": [str],
            "fix": Maybe(str),
            "evidence": [LINE],
        }
    ],
}


def conform(value, kind, place="$"):
    """Raise AssertionError where a value is not of a kind; keys may be more than those that are listed."""
    if isinstance(kind, Maybe):
        if value is not None:
            conform(value, kind.kind, place)
    elif isinstance(kind, list):
        assert isinstance(value, list), place
        for index, one in enumerate(value):
            conform(one, kind[0], f"{place}[{index}]")
    elif isinstance(kind, dict):
        assert isinstance(value, dict), place
        for key, one in kind.items():
            assert key in value, f"{place}.{key} is missing"
            conform(value[key], one, f"{place}.{key}")
    else:
        assert type(value) is kind, f"{place} is {value!r}"


def lines_of(report):
    """Yield each line that a report cites."""
    if report["root"]:
        yield report["root"]
    for finding in report["findings"]:
        yield from finding["evidence"]


@pytest.mark.parametrize(
    "logs", [[one] for one in USER_CASES] + [list(USER_CASES)], ids=lambda logs: logs[0].stem
)
def test_json_keeps_the_contract(run, logs):
    text = run("diagnose", *logs, "--output-format", "json").stdout
    assert text.isascii()
    report = json.loads(text)
    conform(report, CONTRACT)
    assert report["schema"] == "sglogparse/diagnosis/1"
    assert {report["outcome"], *(one["outcome"] for one in report["launches"])} <= {*Outcome}
    assert {one["severity"] for one in report["findings"]} <= {"error", "warning", "info"}
    assert {(one["code"], one["name"]) for one in report["findings"]} <= {
        (one.code, one.name) for one in RULES
    }
    assert "\n" not in report["summary"]
    for cited in lines_of(report):
        lines = Path(cited["file"]).read_bytes().decode().split("\n")
        assert cited["text"] == lines[cited["line"] - 1]
    for file in report["files"]:
        raw = Path(file["path"]).read_bytes()
        assert (file["bytes"], file["lines"]) == (len(raw), raw.count(b"\n"))


def test_json_of_an_empty_log_keeps_the_contract(run, tmp_path):
    (tmp_path / "empty.log").touch()
    report = json.loads(run("diagnose", "empty.log", "--output-format", "json").stdout)
    conform(report, CONTRACT)
    assert (report["outcome"], report["cause"], report["root"]) == ("unknown", "none", None)
    assert (report["launches"], report["findings"]) == ([], [])
    assert report["files"][0]["lines"] == report["files"][0]["bytes"] == 0


def test_json_says_what_the_user_cases_are(run):
    said = {}
    for log in USER_CASES:
        report = json.loads(run("diagnose", log, "--output-format", "json").stdout)
        said[log] = (report["outcome"], report["cause"], report["root"] and report["root"]["line"])
    assert said == {
        CLEAN: ("ready", "none", None),
        CRASHED: ("crashed", "memory.kv_budget", 49),
        GREP: ("crashed", "memory.kv_budget", 1),
        CONTRADICTION: ("ready", "none", None),
    }


# ------------------------------------------------------------------ frames


def test_frames_of_a_log(run):
    result = run("frames", CLEAN)
    assert (result.exit_code, result.stderr) == (0, "")
    rows = {line.split()[0]: line.split()[1] for line in result.stdout.splitlines()[1:] if line[0] != " "}
    assert (rows["decode_batch"], rows["kv_cache"], rows["lines"]) == ("4", "8", "110")
    assert "traceback" not in rows
    assert max(map(len, result.stdout.splitlines())) <= 80
    listed = json.loads(run("frames", CLEAN, "--output-format", "json").stdout)
    assert {one["frame"]: str(one["rows"]) for one in listed} == rows
    assert "gen_throughput" in next(one["columns"] for one in listed if one["frame"] == "decode_batch")


def test_frames_of_an_empty_log(run, tmp_path):
    (tmp_path / "empty.log").touch()
    listed = json.loads(run("frames", "empty.log", "--output-format", "json").stdout)
    assert [(one["frame"], one["rows"]) for one in listed] == [("lines", 0), ("unparsed", 0)]


def test_a_frame_is_described(run):
    result = run("frames", "--describe", "decode_batch")
    assert result.exit_code == 0
    assert "gen_throughput" in result.stdout
    described = json.loads(run("frames", "--describe", "decode_batch", "--output-format", "json").stdout)
    frame = sglogparse.read_log(CLEAN).decode_batch
    assert {one["column"]: one["type"] for one in described} == {n: str(k) for n, k in frame.schema.items()}
    assert all(set(one) == {"column", "type", "meaning"} for one in described)
    unknown = run("frames", "--describe", "no_such_frame")
    assert refused(unknown)
    assert "decode_batch" in unknown.stderr


# ------------------------------------------------------------------ export


def read_back(path: Path, schema: pl.Schema) -> pl.DataFrame:
    """Read a file of any format that export writes."""
    if path.suffix == ".parquet":
        return pl.read_parquet(path)
    if path.suffix == ".ndjson":
        rows = map(json.loads, path.read_text().splitlines())
        return _from_text(
            pl.DataFrame(rows, schema={name: _as_text(kind) for name, kind in schema.items()}), schema
        )
    return _from_text(
        pl.read_csv(path, schema={name: _as_text(kind) for name, kind in schema.items()}), schema
    )


def _as_text(kind: pl.DataType) -> pl.DataType:
    return pl.String() if kind.is_temporal() or isinstance(kind, pl.Enum) else kind


def _from_text(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    for name, kind in schema.items():
        if isinstance(kind, pl.Datetime):
            frame = frame.with_columns(pl.col(name).str.to_datetime(time_unit="ms"))
        elif isinstance(kind, pl.Time):
            frame = frame.with_columns(pl.col(name).str.to_time("%H:%M:%S%.f"))
    return frame.cast(dict(schema))


@pytest.mark.parametrize("ending", ["parquet", "csv", "ndjson"])
def test_a_frame_is_read_back_as_it_was_written(run, tmp_path, ending):
    path = tmp_path / f"frame.{ending}"
    result = run("export", CLEAN, "--frame", "decode_batch", "-o", path)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "4 rows" in result.stderr
    frame = sglogparse.read_log(CLEAN).decode_batch
    assert_frame_equal(read_back(path, frame.schema), frame)


@pytest.mark.parametrize("ending", ["parquet", "csv", "ndjson"])
def test_all_frames_go_to_a_folder(run, tmp_path, ending):
    result = run("export", CRASHED, "-o", "out/deeper", "--format", ending)
    assert result.exit_code == 0, result.output
    tables = tables_of([str(CRASHED)])
    written = {path.stem: path for path in (tmp_path / "out" / "deeper").iterdir()}
    assert set(written) == {name for name, table in tables.items() if table.height}
    assert {path.suffix for path in written.values()} == {f".{ending}"}
    if ending == "parquet":
        for name, path in written.items():
            assert_frame_equal(pl.read_parquet(path), tables[name])
    if ending == "csv":
        stack = json.loads(pl.read_csv(written["traceback"])["stack"][0])
        assert stack == tables["traceback"]["stack"][0].to_list()


def test_some_frames_go_to_a_folder_even_when_they_are_empty(run, tmp_path):
    assert run("export", CLEAN, "--frame", "ready", "--frame", "traceback", "-o", "out").exit_code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "ready.parquet",
        "traceback.parquet",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["--frame", "decode_batch", "-o", "frame.xlsx"],
        ["--frame", "decode_batch", "--frame", "ready", "-o", "frames.csv"],
        ["-o", "all.parquet"],
        ["--frame", "no_such_frame", "-o", "frame.csv"],
        ["--frame", "decode_batch", "-o", "file/frame.csv"],
        ["--frame", "decode_batch", "-o", "folder.csv"],
        ["-o", "file"],
        ["--format", "xlsx", "-o", "out"],
    ],
    ids=" ".join,
)
def test_an_export_that_cannot_be_written_leaves_nothing(run, tmp_path, words):
    (tmp_path / "file").touch()
    (tmp_path / "folder.csv").mkdir()
    result = run("export", CLEAN, *words)
    assert refused(result), result.output
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder.csv"]


def test_an_export_of_an_empty_log_says_so(run, tmp_path):
    (tmp_path / "empty.log").touch()
    result = run("export", "empty.log", "-o", "out")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "empty" in result.stderr


# ------------------------------------------------------------------ query


def test_a_query_gives_the_value_that_is_in_the_log(run):
    result = run("query", CLEAN, "select avg(gen_throughput) as mean from decode_batch where tp = 0")
    assert (result.exit_code, result.stderr) == (0, "")
    head, value = result.stdout.splitlines()
    assert head == "mean"
    assert float(value) == pytest.approx((38.71 + 411.06 + 688.42 + 702.95) / 4)
    assert run("query", CLEAN, "select count(*) as n from decode_batch where tp = 3").stdout == "n\n0\n"


BATCHES = [
    {"line": 100, "rank": "TP0", "gen_throughput": 38.71},
    {"line": 103, "rank": "TP0", "gen_throughput": 411.06},
    {"line": 106, "rank": "TP0", "gen_throughput": 688.42},
    {"line": 109, "rank": "TP0", "gen_throughput": 702.95},
]
SQL = "select line, rank, gen_throughput from decode_batch order by line"


@pytest.mark.parametrize("kind", ["csv", "json", "ndjson", "parquet"])
@pytest.mark.parametrize("by", ["--output-format", "ending", "stdout"])
def test_a_result_in_every_format(run, tmp_path, kind, by):
    path = tmp_path / (f"result.{kind}" if by == "ending" else "result")
    words = [] if by == "ending" else ["--output-format", kind]
    result = run("query", CLEAN, SQL, *words, *([] if by == "stdout" else ["-o", path]))
    assert (result.exit_code, result.stderr) == (0, "")
    if by == "stdout":
        path.write_bytes(result.stdout_bytes)
    else:
        assert result.stdout == ""
    read = {"csv": pl.read_csv, "json": pl.read_json, "ndjson": pl.read_ndjson, "parquet": pl.read_parquet}[
        kind
    ]
    assert read(path).to_dicts() == BATCHES
    if kind in ("json", "ndjson"):
        rows = (
            json.loads(path.read_text()) if kind == "json" else map(json.loads, path.read_text().splitlines())
        )
        assert list(rows) == BATCHES


def test_a_result_as_a_table(run):
    result = run("query", CLEAN, SQL, "--output-format", "table")
    assert result.stdout.splitlines() == [
        "line  rank  gen_throughput",
        "--------------------------",
        " 100  TP0            38.71",
        " 103  TP0           411.06",
        " 106  TP0           688.42",
        " 109  TP0           702.95",
    ]
    wide = run("query", CLEAN, "select * from lines", "--output-format", "table")
    assert max(map(len, wide.stdout.splitlines())) <= 80
    assert "the first 50 of 110 rows" in wide.stderr


def test_nested_columns_are_json_in_csv(run):
    result = run("query", CRASHED, "select exceptions from traceback limit 1")
    assert json.loads(pl.read_csv(result.stdout_bytes)["exceptions"][0]) == [
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
    ]


def test_lines_join_with_frames(run):
    sql = "select l.text from lines l join ready r on l.line = r.line and l.file = r.file"
    assert (
        run("query", CLEAN, sql).stdout
        == "text\n[2026-02-27 09:51:43] The server is fired up and ready to roll!\n"
    )


QUERIES = (
    "select * from decode_batch order by line",
    "select tp, count(*) as n, max(gen_throughput) as best from decode_batch where tp < 4 group by tp order by tp",
    "select line from decode_batch limit 3",
    "select b.line, l.name from kv_cache b join server_arg l on b.file = l.file order by b.line, l.name",
    "select value from server_arg where name = 'tp_size'",
    "select count(*) as n from retraction",
    "with a as (select max(line) as last from http_access) select * from a",
    "select rank, avail_mem from load_weight_end where rank like 'TP_' order by line",
    "select 1 as one",
    "select nothing from decode_batch",
    "select line from decode_bach",
)


@pytest.mark.parametrize("sql", QUERIES)
@pytest.mark.parametrize("show", [False, True])
def test_a_query_that_reads_what_it_needs_says_what_a_whole_reading_says(run, monkeypatch, sql, show):
    words = ["query", CLEAN, CRASHED, sql, *(["--show-secrets"] if show else [])]
    lazy = run(*words)
    monkeypatch.setattr(_query, "_lazy_tables", lambda *args, **options: None)
    whole = run(*words)
    assert (lazy.exit_code, lazy.stdout, lazy.stderr) == (whole.exit_code, whole.stdout, whole.stderr)


def test_a_query_of_events_makes_no_whole_reading(run, monkeypatch):
    def whole(paths):
        raise AssertionError("read whole")

    monkeypatch.setattr(_query, "read_log", whole)
    assert run("query", CLEAN, "select count(*) as n from decode_batch").stdout.startswith("n\n")


def test_the_files_of_large_logs_are_a_table_too(run, monkeypatch):
    sql = "select f.path, f.lines, count(*) as n from files f join lines l on f.file = l.file group by f.path, f.lines"
    small = run("query", CLEAN, CRASHED, f"{sql} order by n")
    monkeypatch.setattr(_query, "_LARGE", 1)
    large = run("query", CLEAN, CRASHED, f"{sql} order by n")
    assert (large.exit_code, large.stdout) == (0, small.stdout)
    assert small.stdout.endswith(",112,112\n")


def test_an_export_of_events_makes_no_whole_reading(run, monkeypatch, tmp_path):
    frames = ["kv_cache", "server_args", "server_arg"]
    words = [word for name in frames for word in ("--frame", name)]
    log = sglogparse.read_log([CLEAN, CRASHED])

    def whole(paths):
        raise AssertionError("read whole")

    monkeypatch.setattr(_query, "read_log", whole)
    assert run("export", CLEAN, CRASHED, *words, "-o", tmp_path / "out", "--show-secrets").exit_code == 0
    assert {path.stem for path in (tmp_path / "out").iterdir()} == set(frames)
    for name in frames:
        assert pl.read_parquet(tmp_path / "out" / f"{name}.parquet").equals(log.frames[name])


def test_a_query_over_several_logs(run):
    result = run("query", CLEAN, CRASHED, "select file, count(*) as n from lines group by file order by file")
    assert result.stdout == "file,n\n0,110\n1,112\n"
    # a table that the query does not name is not searched for secrets, and must not seem to be empty when it does
    assert run("query", CLEAN, 'select count(*) as n from "lines"').stdout == "n\n110\n"
    assert run("query", CLEAN, "SELECT count(*) AS n FROM UNPARSED").exit_code in (0, 2)


@pytest.mark.parametrize(
    "sql",
    [
        "select",
        "",
        ";",
        "select * from no_such_frame",
        "select no_such_column from lines",
        "select no_such_function(line) from lines",
        "select * frm lines",
        "select line + text from lines",
        "insert into lines values (1)",
        "select '\x1b[31m\n' frm lines",
    ],
)
def test_sql_that_cannot_be_run_is_said_on_one_line(run, sql):
    result = run("query", CLEAN, sql)
    assert refused(result), (sql, result.output)
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize("kind", ["csv", "json", "ndjson", "parquet", "table"])
def test_a_result_that_cannot_be_written_is_said_on_one_line(run, tmp_path, kind):
    (tmp_path / "file").touch()
    result = run("query", CLEAN, SQL, "--output-format", kind, "-o", "file/result")
    assert refused(result), result.output


# ------------------------------------------------------------------ rules, explain, help


def test_rules_are_listed(run):
    result = run("rules")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split()[0] for line in result.stdout.splitlines()[1:] if line[0] != " "] == [
        one.code for one in RULES
    ]
    listed = json.loads(run("rules", "--output-format", "json").stdout)
    assert [(one["code"], one["name"]) for one in listed] == [(one.code, one.name) for one in RULES]
    assert all(one["summary"].endswith(".") for one in listed)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_is_explained(run, rule):
    result = run("explain", rule.code)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"{rule.code} {rule.name} (since ")
    assert "What to do:" in result.stdout
    assert result.stdout.split() == [
        *f"{rule.code} {rule.name} (since {rule.since})".split(),
        *rule.doc.split(),
    ]
    assert max(map(len, result.stdout.splitlines())) <= 80
    for name in (rule.code.lower(), rule.name, rule.name.replace("-", "_")):
        assert run("explain", name).stdout == result.stdout


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("M01", "M001 or M010 or M011 or M012"),
        ("p1", "P001"),
        ("memory.kv", "memory.kv_budget"),
        ("memory.kv_budgte", "memory.kv_budget"),
        ("negative-kv", "negative-kv-budget"),
    ],
)
def test_what_can_be_meant_is_suggested(run, code, meant):
    result = run("explain", code)
    assert refused(result)
    assert f"is called {code!r}; did you mean {meant}? rules: M001, " in result.stderr


@pytest.mark.parametrize(
    "words",
    [["frames", "--describe", "decode_bach"], ["export", CLEAN, "--frame", "decode_bach", "-o", "out"]],
)
def test_an_unknown_frame_is_said_with_the_nearest_name(run, words):
    result = run(*words)
    assert refused(result)
    assert "no frame is called 'decode_bach'; did you mean decode_batch?" in result.stderr
    result = run("frames", "--describe", "zzz")
    assert "no frame is called 'zzz'; frames: " in result.stderr


def test_a_query_is_not_written_in_an_unknown_format_nor_over_its_log(run, tmp_path):
    sql = "select count(*) as n from lines"
    result = run("query", CLEAN, sql, "-o", "q.xyz")
    assert refused(result)
    assert "q.xyz: the ending must be one of .csv, .json, .ndjson, .parquet" in result.stderr
    assert not (tmp_path / "q.xyz").exists()
    assert run("query", CLEAN, sql, "-o", "q.xyz", "--output-format", "csv").exit_code == 0
    assert (tmp_path / "q.xyz").read_text() == "n\n110\n"
    assert refused(run("query", "q.xyz", sql, "-o", "q.xyz", "--output-format", "csv"))
    assert (tmp_path / "q.xyz").read_text() == "n\n110\n"
    assert run("query", CLEAN, sql, "-o", "plain").exit_code == 0
    assert (tmp_path / "plain").read_text() == "n\n110\n"


def test_an_unknown_rule_is_said_on_one_line(run):
    result = run("explain", "X999")
    assert refused(result)
    assert all(rule.code in result.stderr for rule in RULES)


def test_version(run):
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"sglogparse, version {sglogparse.__version__}\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_all_options(run, command):
    result = run(command, "--help")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == run(command, "-h").stdout
    for parameter in main.commands[command].params:
        names = [*parameter.opts, *parameter.secondary_opts] if parameter.param_type_name == "option" else []
        assert all(name in result.stdout for name in names)
        assert parameter.param_type_name != "option" or parameter.help
    assert command in run("--help").stdout


def test_help_of_diagnose_states_the_exit_codes(run):
    text = run("diagnose", "--help").stdout
    for code in ("0 healthy", "1 findings", "2 the log could not be read", "3 undecided"):
        assert code in text


def test_all_commands_are_tested_here():
    assert set(main.commands) == set(COMMANDS)


# ------------------------------------------------------------------ hostile text and secrets, end to end


SECRET_LOG = """\
[2026-02-27 12:49:58] server_args=ServerArgs(model_path='/m', api_key='s3cret-1', admin_api_key=None, \
hf_token="s3cret-2", json_model_override_args='{"x": {"password": "s3cret-3"}}', tp_size=1)
[2026-02-27 12:49:59 TP0] Load weight begin. avail mem=94.04 GB
[2026-02-27 12:50:00 TP0] fetching https://me:s3cret-4@hub.local/m with Authorization: Bearer s3cret-5
[2026-02-27 12:50:00] env: HF_TOKEN=hf_s3cret6AbCdEfGhIj and {\\"api_key\\": \\"s3cret-7\\"}
plain line with sk-s3cret-8-0123456789
+ export HF_TOKEN=hf_s3cret13AbCdEfGhIj
[2026-02-27 12:50:01] INFO:     10.0.0.1:5000 - "GET /health?api_key=s3cret-9 HTTP/1.1" 200 OK
[2026-02-27 12:50:02 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/srt/managers/scheduler.py", line 3, in run_scheduler_process
    client = Client(api_key="s3cret-10")
RuntimeError: cannot log in with password=s3cret-11 at https://me:s3cret-12@hub.local/

[2026-02-27 12:50:03] Received sigquit from a child process. It usually means the child failed.
"""
SELECTS = [
    "select value from server_arg where name='api_key'",
    "select * from server_arg",
    "select args_repr from server_args",
    "select * from lines",
    "select * from unparsed",
    "select * from foreign",
    "select * from message",
    "select * from traceback",
    "select stack, exceptions from traceback",
    "select path from http_access",
    "select substr(text, 1, 400) as a, upper(text) as b, length(text) as c from lines",
]


@pytest.fixture
def secret_log(tmp_path):
    path = tmp_path / "secret.log"
    path.write_text(SECRET_LOG)
    return path


@pytest.mark.parametrize(
    "words", [["--output-format", "text"], ["--output-format", "json"]], ids=["text", "json"]
)
def test_a_diagnosis_shows_no_secret(run, secret_log, words):
    result = run("diagnose", secret_log, *words)
    assert result.exit_code == 1
    assert "s3cret" not in result.output
    assert "cannot log in with password=***" in result.stdout
    shown = run("diagnose", secret_log, *words, "--show-secrets")
    assert "password=s3cret-11" in shown.stdout


@pytest.mark.parametrize("kind", ["csv", "json", "ndjson", "parquet", "table"])
@pytest.mark.parametrize("sql", SELECTS)
def test_a_query_shows_no_secret(run, secret_log, sql, kind):
    result = run("query", secret_log, sql, "--output-format", kind)
    assert result.exit_code == 0, result.output
    data = result.stdout_bytes
    if kind == "parquet":
        data = repr(pl.read_parquet(data).to_dicts()).encode()
    assert b"s3cret" not in data.lower()


def test_secrets_are_shown_on_demand(run, secret_log):
    assert run("query", secret_log, SELECTS[0]).stdout == 'value\n"""***"""\n'
    assert run("query", secret_log, SELECTS[0], "--show-secrets").stdout == 'value\n"""s3cret-1"""\n'
    none = "select value from server_arg where name='admin_api_key'"
    assert run("query", secret_log, none).stdout == "value\nnull\n"


@pytest.mark.parametrize("ending", ["csv", "ndjson", "parquet"])
def test_an_export_shows_no_secret(run, secret_log, tmp_path, ending):
    def exported(folder, *words):
        assert run("export", secret_log, "-o", folder, "--format", ending, *words).exit_code == 0
        paths = sorted((tmp_path / folder).iterdir())
        if ending == "parquet":
            return "".join(repr(pl.read_parquet(path).to_dicts()) for path in paths)
        return "".join(path.read_text() for path in paths)

    assert "s3cret" not in exported("masked")
    shown = exported("shown", "--show-secrets")
    assert {f"s3cret-{n}" for n in (1, 2, 3, 4, 5, 7, 9, 10, 11, 12)} <= set(_words(shown))


def _words(text: str) -> list[str]:
    return "".join(char if char.isalnum() or char == "-" else " " for char in text).split()


def test_frames_show_no_secret(run, secret_log):
    for output_format in ("text", "json"):
        assert "s3cret" not in run("frames", secret_log, "--output-format", output_format).output


def test_json_of_a_query_is_ascii_and_says_what_the_line_says(run, tmp_path):
    line = 'caf\u00e9 \u202eevil\u2066 \u65e5\U0001f600 \x07\x08\x7f\x85 "quoted" \\ [/]'
    (tmp_path / "odd.log").write_bytes(line.encode() + b"\n")
    for kind in ("json", "ndjson"):
        data = run("query", "odd.log", "select text from lines", "--output-format", kind).stdout_bytes
        assert all(0x20 <= code < 0x7F or code == 0x0A for code in data)
        rows = json.loads(data)
        assert (rows[0] if kind == "json" else rows)["text"] == line


# ------------------------------------------------------------------ real processes


def shell(command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of shell with `sglogparse` in it; print the exit code of each part of a pipe to standard error."""
    return subprocess.run(
        ["bash", "-c", command.replace("sglogparse", f"{shlex.quote(sys.executable)} -m sglogparse", 1)],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "80", **environment},
        capture_output=True,
        check=False,
        timeout=60,
    )


def test_a_reader_that_leaves_is_no_error(tmp_path):
    (tmp_path / "big.log").write_bytes(CLEAN.read_bytes() * 40)
    done = shell("sglogparse query big.log 'select * from lines' | head -1; echo ${PIPESTATUS[0]}", tmp_path)
    assert done.stdout.decode().split() == [done.stdout.decode().splitlines()[0], "0"]
    assert done.stdout.startswith(b"file,line,")
    assert done.stderr == b""


def test_a_reader_that_leaves_does_not_hide_a_crash(tmp_path):
    (tmp_path / "big.log").write_bytes(CRASHED.read_bytes() * 40)
    done = shell(
        "sglogparse diagnose --output-format json big.log | head -1; echo ${PIPESTATUS[0]}", tmp_path
    )
    assert (done.stdout, done.stderr) == (b"{\n1\n", b"")


def test_a_full_disk_is_said_on_one_line(tmp_path):
    done = shell(f"sglogparse diagnose {CLEAN} > /dev/full", tmp_path)
    assert done.returncode == 2
    assert is_a_line(done.stderr.decode())


def test_a_closed_standard_output_leaves_the_exit_code(tmp_path):
    done = shell(f"sglogparse diagnose {CRASHED} >&-", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


def test_a_terminal_that_has_no_unicode_gets_escapes(tmp_path):
    (tmp_path / "odd.log").write_text("RuntimeError: caf\u00e9\n[2026-02-27 12:50:00 TP0] na\u00efve\n")
    done = shell(
        "sglogparse query odd.log 'select text from lines' --output-format table",
        tmp_path,
        PYTHONIOENCODING="ascii",
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"caf\\xe9" in done.stdout


def test_standard_input_of_a_real_process(tmp_path):
    done = shell(f"sglogparse diagnose - < {CRASHED}", tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith(b"crashed, during KV cache set-up")
    assert done.stderr == b""


def at_a_terminal(*words: str, cwd: Path, **environment: str) -> str:
    """Return what a command prints at a terminal, whatever the tester's own terminal wants."""
    own = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "sglogparse", *words],
        cwd=cwd,
        env={**own, "COLUMNS": "80", "TERM": "xterm", **environment},
        stdin=subprocess.DEVNULL,
        stdout=inner,
        stderr=subprocess.DEVNULL,
    )
    os.close(inner)
    data = b""
    while True:
        try:
            chunk = os.read(outer, 65536)
        except OSError:  # Linux says so when the other side has closed
            break
        if not chunk:
            break
        data += chunk
    os.close(outer)
    process.wait(60)
    return data.decode().replace("\r\n", "\n")


def test_a_terminal_gets_colour_and_tables(tmp_path):
    coloured = at_a_terminal("diagnose", str(CRASHED), cwd=tmp_path)
    assert coloured.startswith("\x1b[1;31mcrashed")
    assert "\x1b" not in at_a_terminal("diagnose", str(CRASHED), cwd=tmp_path, NO_COLOR="1")
    assert "-----" in at_a_terminal("query", str(CLEAN), SQL, cwd=tmp_path)


def test_a_terminal_gets_no_control_codes_in_csv(tmp_path):
    (tmp_path / "odd.log").write_text("a\x07\x08\u202eb" + "c" * 99 + "\n")
    text = at_a_terminal("query", "odd.log", "select text from lines", "--output-format", "csv", cwd=tmp_path)
    assert text == "text\na\\x07\\x08\\u202eb" + "c" * 99 + "\n"
    parquet = at_a_terminal("query", "odd.log", "select 1", "--output-format", "parquet", cwd=tmp_path)
    assert parquet == ""


# ------------------------------------------------------------------ tables


def test_a_duration_is_iso_8601_in_csv(run):
    sql = "select max(time) - min(time) as took from lines"
    assert run("query", str(CLEAN), sql).stdout == "took\nPT2M30S\n"


def test_the_files_are_a_table(run):
    found = run("query", str(CLEAN), "select file, lines, replaced_bytes from files")
    assert found.stdout == "file,lines,replaced_bytes\n0,110,0\n"


def test_the_query_of_the_readme_gives_the_paths_of_files(run):
    readme = (FIXTURES.parent.parent / "README.md").read_text(encoding="utf-8")
    [sql] = [part for part in readme.split("`") if " join files on " in part]
    result = run("query", CLEAN, CRASHED, sql, "--output-format", "json")
    assert {(one["path"], one["line"] > 0) for one in json.loads(result.stdout)} == {(str(CRASHED), True)}


def test_an_unknown_table_is_said_with_the_nearest_name(run):
    said = run("query", str(CLEAN), "select * from decode_batches")
    assert said.exit_code == 2
    assert said.stderr.endswith("relation 'decode_batches' was not found; did you mean decode_batch?\n")
    said = run("query", str(CLEAN), "select * from zzz")
    assert said.stderr.endswith("was not found; `sglogparse frames` lists the tables\n")


def test_a_log_without_a_name_is_an_error(run):
    said = run("diagnose", "")
    assert (said.exit_code, said.stderr) == (2, "sglogparse: a log without a name was given\n")


def test_a_cause_is_explained(run):
    assert run("explain", "env.port_in_use").stdout == (
        "env.port_in_use: port in use\n\n"
        "What it means:\n"
        "    The address or port on which the server, a rank or a helper wants to listen\n"
        "    is taken.\n\n"
        "How to tell it from its neighbours:\n"
        "    A port that cannot be reached is dist.init or pd.bootstrap: here the bind\n"
        "    fails.\n\n"
        "What to change:\n"
        "    Stop what listens there (`ss -ltnp`), or start with another --port.\n\n"
        "In narrower cases:\n"
        "    (1) It is the port at which the ranks meet, not --port: stop what listens\n"
        "    there (`ss -ltnp`; an earlier server that lives on, mostly), or choose\n"
        "    another, with --nccl-port on one node and in --dist-init-addr on several.\n"
        "    (2) It is the port at which prefill and decode meet, not --port: stop what\n"
        "    listens there (`ss -ltnp`), or start with another\n"
        "    --disaggregation-bootstrap-port.\n"
    )
    assert "What the finding says" in run("explain", "code.assertion").stdout
    assert "\nSince:\n    0.5.14" in run("explain", "memory.kv_budget").stdout


def test_no_json_is_a_command_of_a_ci_service(run, tmp_path):
    log = tmp_path / "server.log"
    log.write_bytes(CRASHED.read_bytes() + b"##vso[task.complete result=Succeeded;] ##[error]\n" * 3)
    log = log.rename(tmp_path / "##vso[task.complete]x.log")
    for command in (["diagnose"], ["memory"], ["coverage"], ["timeline"], ["compare", CLEAN]):
        shown = run(*command, log, "--output-format", "json").stdout
        assert "##" not in shown
        assert "##vso[task.complete]x.log" in json.dumps(json.loads(shown))
