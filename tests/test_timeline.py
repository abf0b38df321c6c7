"""The timeline: whole outputs as golden files, gaps, marks, and what holds for any log.

When an output changes on purpose, rewrite the golden files, and read the difference before it is committed:

    SGLOGPARSE_UPDATE_GOLDEN=1 pytest tests/test_timeline.py; git diff tests/golden_timeline
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import unicodedata
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from sglogparse import read_log
from sglogparse._cli import main
from sglogparse._grammar import samples
from sglogparse._split import read_launches
from sglogparse._timeline import GAP_SCHEMA, gaps, read_timelines
from sglogparse.render.timeline import _short, render_csv, render_json, render_text

FIXTURES = Path(__file__).parent / "fixtures" / "timeline"
GOLDEN = Path(__file__).parent / "golden_timeline"

#: Golden file -> the arguments of the command.
CASES = {
    "nodes.txt": ["node0.log", "node1.log"],
    "nodes.json": ["node0.log", "node1.log", "--output-format", "json", "--gap", "600"],
    "nodes.csv": ["node0.log", "node1.log", "--output-format", "csv"],
    "draft.txt": ["draft.log"],
    "restart_all.txt": ["restart.log", "--all", "--gap", "8.5"],
    "pd.txt": ["prefill.log", "decode.log", "router.log"],
    "clock.txt": ["clock.log"],
    "bare.txt": ["bare.log"],
    "clean.txt": ["../baseline_clean.log", "--gap", "20"],
    "killed.txt": ["../baseline_debug_nocar.log"],
}


@pytest.fixture
def run(monkeypatch):
    """Return a function that runs the command in the folder of the fixtures."""
    monkeypatch.chdir(FIXTURES)
    monkeypatch.setenv("COLUMNS", "80")
    return lambda *args, **more: CliRunner().invoke(main, ["timeline", *map(str, args)], **more)


@pytest.mark.parametrize("name", CASES)
def test_the_output_is_the_golden_one(run, name):
    result = run(*CASES[name])
    assert (result.exit_code, result.stderr) == (0, "")
    path = GOLDEN / name
    if os.environ.get("SGLOGPARSE_UPDATE_GOLDEN"):
        old = path.read_text(encoding="utf-8") if path.exists() else None
        if old != result.stdout:
            path.parent.mkdir(exist_ok=True)
            path.write_text(result.stdout, encoding="utf-8")
            pytest.fail(f"{path.name} was rewritten: read the difference, and run again without the variable")
    assert result.stdout == path.read_text(encoding="utf-8"), (
        f"{path.name} differs; see the head of this file"
    )


def test_no_golden_file_is_left_over():
    assert {path.name for path in GOLDEN.iterdir()} == set(CASES)


def test_csv_and_json_say_the_same(run):
    (job,) = json.loads(run(*CASES["nodes.json"]).stdout)["jobs"]
    rows = list(csv.DictReader(io.StringIO(run(*CASES["nodes.csv"]).stdout)))
    assert len(rows) == len(job["phases"]) == 18
    for row, phase in zip(rows, job["phases"], strict=True):
        assert row["job"] == "0"
        assert (row["file"], row["rank"], row["phase"]) == (
            phase["file"],
            phase["rank"] or "",
            phase["phase"],
        )
        assert float(row["duration"]) == phase["duration"]


def test_the_clocks_of_joined_files_are_one(run):
    (job,) = json.loads(run(*CASES["nodes.json"]).stdout)["jobs"]
    ends = {one["rank"]: one["until_s"] for one in job["phases"] if one["phase"] == "dist init"}
    assert ends == {"TP0": 25.0, "TP1": 25.0, "TP2": 25.0, "TP3": 25.0}
    assert (job["begin"], job["ready_s"]) == ("2026-04-09T08:00:00", 714.0)


# ------------------------------------------------------------------ the command


def test_a_log_that_cannot_be_read_is_said_on_one_line(run):
    result = run("missing.log")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("sglogparse: missing.log")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("gap", ["0", "-3", "nan", "x"])
def test_a_gap_is_a_time(run, gap):
    result = run("bare.log", "--gap", gap)
    assert (result.exit_code, result.stdout) == (2, "")


def test_standard_input_is_read(run):
    text = (FIXTURES / "clock.log").read_text()
    result = run("-", input=text)
    assert result.stdout.startswith("-:1-6: 1 rank (TP0), no ready line, 1 min 30 s")


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("", 3, "the log is empty: no timeline\n"),
        ("hello\n", 0, "-:1-1: no timeline: no line of a rank's start is in it\n"),
    ],
)
def test_a_log_without_a_start_gets_a_short_answer(run, text, code, said):
    result = run("-", input=text)
    assert (result.exit_code, result.stdout) == (code, said)


@pytest.mark.parametrize("kind", ["text", "json", "csv"])
def test_an_empty_log_is_undecided_as_for_diagnose(run, kind):
    code = CliRunner().invoke(main, ["diagnose", "-"], input="").exit_code
    assert (code, run("-", "--output-format", kind, input="").exit_code) == (3, 3)


def test_secrets_in_names_and_gaps_are_masked(run):
    lines = [
        "[2026-04-09 08:00:00] Init torch distributed begin.",
        "[2026-04-09 08:00:01] fetched with sk-abcdefgh12345678",
        "[2026-04-09 08:09:00] Init torch distributed ends. mem usage=0.30 GB",
    ]
    text = "\n".join(lines) + "\n"
    for kind in ("text", "json", "csv"):
        assert "sk-abcdefgh" not in run("-", "--output-format", kind, input=text).stdout
    assert "sk-abcdefgh" in run("-", "--show-secrets", input=text).stdout


# ------------------------------------------------------------------ gaps


def found(tmp_path, least, *lines, everything=False):
    path = tmp_path / "a.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    (launch,) = read_launches(read_log(path))
    frame = gaps(launch, least, everything=everything)
    assert frame.schema == GAP_SCHEMA
    return frame.select("rank", "after", "begin_line", "end_line", "seconds", "unstamped").rows()


BEGIN = "Init torch distributed begin."
LOAD = "Load weight begin. avail mem=70.00 GB"


def test_a_gap_is_between_two_lines_of_a_rank(tmp_path):
    lines = (
        f"[2026-04-09 08:00:00 TP0] {BEGIN}",
        f"[2026-04-09 08:00:00 TP1] {BEGIN}",
        "a line without a stamp",
        "[2026-04-09 08:00:50 TP0] on the way",
        "[2026-04-09 08:01:00 TP0] Init torch distributed ends. mem usage=0.30 GB",
        "[2026-04-09 08:01:00 TP1] Init torch distributed ends. mem usage=0.30 GB",
    )
    assert found(tmp_path, 60, *lines) == [("TP1", "Init torch distributed begin", 2, 6, 60.0, 1)]
    assert found(tmp_path, 61, *lines) == []


def test_a_rank_amid_a_phase_is_silent_until_the_last_stamp(tmp_path):
    lines = (
        f"[2026-04-09 08:00:00 TP0] {LOAD}",
        f"[2026-04-09 08:00:00 TP1] {LOAD}",
        "[2026-04-09 08:00:20 TP0] Load weight end. type=WrenForCausalLM, avail mem=20.00 GB",
        "[2026-04-09 08:11:04] Health check failed. no answer",
    )
    assert found(tmp_path, 60, *lines) == [
        ("TP1", "Load weight begin", 2, None, 664.0, 0),
        (None, "Load weight end", 3, 4, 644.0, 0),
    ]


def test_a_silence_of_all_is_said_once(tmp_path):
    lines = (
        f"[2026-04-09 08:00:00 TP0] {LOAD}",
        "[2026-04-09 08:05:00 TP0] Load weight end. type=WrenForCausalLM, avail mem=20.00 GB",
        "[2026-04-09 08:05:01] a line of the server",
        "[2026-04-09 08:09:01] another one",
    )
    assert found(tmp_path, 60, *lines) == [
        ("TP0", "Load weight begin", 1, 2, 300.0, 0),
        (None, "a line of the server", 3, 4, 240.0, 0),
    ]


def test_stamps_that_are_not_in_order_make_no_gap(tmp_path):
    lines = (
        "[2026-04-09 08:02:00 TP0] a",
        "[2026-04-09 08:00:00] late",
        "[2026-04-09 08:02:01 TP0] b",
    )
    assert found(tmp_path, 60, *lines) == []


def test_serving_is_looked_at_only_when_asked_for():
    (launch,) = read_launches(read_log(FIXTURES / "node0.log"))
    assert gaps(launch, 100).filter(pl.col("begin_line") > 24).is_empty()
    found = gaps(launch, 100, everything=True).filter(pl.col("begin_line") > 24)
    assert found.select("rank", "after", "begin_line", "end_line", "seconds").rows() == [
        ("TP0", "Decode batch", 26, 27, 137.0)
    ]


def test_the_words_of_a_line_are_what_a_person_knows_it_by(tmp_path):
    texts = (
        "server_args=ServerArgs(model_path='/m')",
        "x" * 200,
        "Decode batch, #running-req: 4",
        "Capture cuda graph bs [1, 2, 4]",
        "INFO:     Started server process [71]",
        "Wait..",
        "a. b. c",
        "[x] y",
    )
    lines = [f"[2026-04-09 08:0{n}:00] {text}" for n, text in enumerate((*texts, "end"))]
    rows = found(tmp_path, 1, *lines, everything=True)
    words = [row[1] for row in sorted(rows, key=lambda row: row[2])]
    assert words == [
        "server_args",
        "x" * 48 + "...",
        "Decode batch",
        "Capture cuda graph bs",
        "INFO:     Started server process",
        "Wait",
        "a",
        "[x] y",
    ]


# ------------------------------------------------------------------ marks


def text_of(tmp_path, *lines, width=80):
    path = tmp_path / "a.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return render_text(read_timelines(read_log(path), 60), 60, width)


def test_a_rank_that_has_not_ended_what_another_has_is_the_slowest(tmp_path):
    text = text_of(
        tmp_path,
        f"[2026-04-09 08:00:00 TP0] {LOAD}",
        f"[2026-04-09 08:00:00 TP1] {LOAD}",
        "[2026-04-09 08:00:20 TP0] Load weight end. type=WrenForCausalLM, avail mem=20.00 GB",
        "[2026-04-09 08:00:50] a line of the server",
    )
    assert re.search(r"^TP0 +20s$", text, re.MULTILINE)
    assert re.search(r"^TP1 +>50s\*$", text, re.MULTILINE)


def test_of_a_phase_that_ranks_leave_together_the_last_to_come_is_marked(tmp_path):
    lines = [f"[2026-04-09 08:00:{second:02} TP{rank}] {BEGIN}" for rank, second in enumerate((0, 1, 30))]
    lines += [
        f"[2026-04-09 08:00:40 TP{rank}] Init torch distributed ends. mem usage=0.30 GB" for rank in range(3)
    ]
    text = text_of(tmp_path, *lines)
    assert [line.split() for line in text.split("\n")[3:6]] == [
        ["TP0", "40s"],
        ["TP1", "39s"],
        ["TP2", "10s!"],
    ]
    assert "*" not in text


@pytest.mark.parametrize(
    ("ends", "marked"),
    [
        (("08:00:29", "08:00:30"), []),  # 20 s and 21 s can be the same time
        (("08:00:29", "08:00:31"), ["TP1"]),
        (("08:00:29.200", "08:00:29.350"), ["TP1"]),  # these stamps show more
        (("08:00:29.200", "08:00:29.200"), []),
    ],
)
def test_what_is_less_than_the_stamps_can_show_is_not_marked(tmp_path, ends, marked):
    begin = "08:00:09" + ".000" * ("." in ends[0])
    path = tmp_path / "a.log"
    path.write_text(
        "".join(f"[2026-04-09 {begin} TP{n}] Load weight begin. avail mem=70.00 GB\n" for n in (0, 1))
        + "".join(
            f"[2026-04-09 {end} TP{n}] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, "
            "avail mem=50.00 GB, mem usage=20.00 GB.\n"
            for n, end in enumerate(ends)
        )
    )
    (timeline,) = read_timelines(read_log(path), 60)
    assert timeline.phases.filter("slowest")["rank"].to_list() == marked


def test_what_the_server_has_passed_is_not_said_to_go_on(tmp_path):
    text = text_of(
        tmp_path,
        f"[2026-04-09 08:00:00 TP0] {LOAD}",
        f"[2026-04-09 08:00:00 TP1] {LOAD}",
        "[2026-04-09 08:00:20 TP0] Load weight end. type=WrenForCausalLM, avail mem=20.00 GB",
        "[2026-04-09 08:00:50] The server is fired up and ready to roll!",
    )
    assert re.search(r"^TP1 +\?$", text, re.MULTILINE)
    assert "*" not in text


def test_many_ranks_are_cut_to_the_slowest_and_the_first(tmp_path):
    lines = [f"[2026-04-09 08:00:00 TP{rank}] {LOAD}" for rank in range(40)]
    lines += [
        f"[2026-04-09 08:00:{59 if rank == 33 else 20} TP{rank}] Load weight end. type=WrenForCausalLM, avail mem=20.00 GB"
        for rank in range(40)
    ]
    text = text_of(tmp_path, *lines)
    assert "(+24 more ranks: --output-format csv)" in text
    assert re.search(r"^TP33 +59s\*$", text, re.MULTILINE)
    assert len(re.findall(r"^TP[0-9]+ +[.w]+$", text, re.MULTILINE)) == 16


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.04, "0.0s"),
        (9.96, "10.0s"),
        (59.4, "59s"),
        (59.6, "1m00s"),
        (3599.7, "1h00m"),
        (90000, "25h00m"),
    ],
)
def test_durations_are_short(seconds, text):
    assert _short(seconds) == text


# ------------------------------------------------------------------ laws

_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
HEADS = st.sampled_from(
    [
        "",
        "[2026-03-01 10:0{}:00 TP0] ",
        "[2026-03-01 10:0{}:00 DP1 TP9 EP9] ",
        "[10:0{}:00] ",
        "[2026-03-01 23:5{}:00] ",
    ]
)
TEXTS = st.sampled_from([sample.text for found in samples().values() for sample in found]) | st.sampled_from(
    [
        "::error::x",
        "\x1b[31mred",
        "[bold]x[/]",
        "\u202eback",
        "##vso[x]y",
        "Load weight begin.",
        "Init nccl begin.",
    ]
)
LOGS = st.lists(
    st.tuples(HEADS, TEXTS, st.integers(0, 9)).map(lambda one: one[0].format(one[2]) + one[1]), max_size=30
)


@given(LOGS, LOGS, st.sampled_from([40, 80, 120]), st.booleans())
def test_any_timeline_is_safe_and_fits(tmp_path_factory, first, second, width, everything):
    folder = tmp_path_factory.mktemp("any")
    paths = [folder / "a[bold].log", folder / "b.log"]
    for path, lines in zip(paths, (first, second), strict=True):
        path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    timelines = read_timelines(read_log(paths), 60, everything=everything)
    text = render_text(timelines, 60, width, everything=everything)
    assert not {unicodedata.category(char) for char in text if char != "\n"} & _UNSAFE
    for line in text.split("\n"):
        assert cell_len(line) <= width, line
        assert line == line.rstrip()
        assert not line.lstrip().startswith("::"), line
        assert not re.search(r"##\w*\[", line), line
    data = json.loads(render_json(timelines, 60))
    assert [len(job["phases"]) for job in data["jobs"]] == [one.phases.height for one in timelines]
    assert len(render_csv(timelines).split("\n")) == 1 + sum(one.phases.height for one in timelines)
    for one in timelines:
        for start, until in one.phases.select("from_s", "until_s").iter_rows():
            assert None in (start, until) or start <= until
        assert (one.gaps["seconds"] >= 60).all()
        assert (one.gaps["end_line"] > one.gaps["begin_line"]).drop_nulls().all()
