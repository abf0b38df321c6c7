"""The reports, whole, as golden files; and laws that hold for any report, whatever the log says.

When a report changes on purpose, rewrite the golden files, and read the difference before it is committed:

    SGLOGPARSE_UPDATE_GOLDEN=1 pytest tests/test_render.py; git diff tests/golden

A run that rewrites a file fails and names it, so that none changes unnoticed.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import sglogparse
from reports import TEXT, diagnoses, diagnosis, finding, launch, line
from sglogparse._report import Diagnosis, Evidence, FileReport, Outcome
from sglogparse._safe import masked
from sglogparse.render import FORMATS
from sglogparse.render._wrap import wrap
from sglogparse.render.table import render_frame, render_rows
from sglogparse.render.text import render_text

FIXTURES = Path(__file__).parent / "fixtures"
GOLDEN = Path(__file__).parent / "golden"
USER_CASES = (
    "baseline_clean",
    "baseline_debug_nocar",
    "baseline_debug_nocar_grep",
    "negative_budget_with_kv",
)

#: A log of a server that says all that a terminal, a browser or a CI runner might take for more than text.
HOSTILE = b"".join(
    line + b"\n"
    for line in (
        b"[2026-02-27 12:49:58] server_args=ServerArgs(model_path='/m/[bold red]x[/]', tp_size=2, api_key='sk-s3cret-0123456789')",
        b"[2026-02-27 12:49:59 TP0] Load weight begin. avail mem=94.04 GB",
        b"::error file=x::this is no command",
        b"[2026-02-27 12:50:00 TP0] \x1b[31mred\x1b[0m and \x1b]8;;http://evil.example/\x07a link\x1b]8;;\x07",
        b"[2026-02-27 12:50:00 TP1] progress\b\b\b\b\b\b\b\bovertyped \x07 \x00 end",
        b"loading:   0%|          | 0/2\rloading: 100%|##########| 2/2",
        "[2026-02-27 12:50:00 TP1] \u202eright to left\u202c \u200bzero\u200bwidth \u65e5\u672c\u8a9e".encode(),
        b"[2026-02-27 12:50:01 TP0] not UTF-8: \xff\xfe \xed\xa0\x80 end",
        b"[2026-02-27 12:50:01 TP1] " + b"long word: " + b"x" * 20_000,
        b"[2026-02-27 12:50:02 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        b'  File "/opt/sglang/python/sglang/srt/managers/scheduler.py", line 2311, in run_scheduler_process',
        b"    scheduler = Scheduler(server_args, port_args, gpu_id, tp_rank, pp_rank, dp_rank)",
        b"RuntimeError: [/] [bold red]boom[/bold red] [rank0]: \x9b31m \xc2\x9b31m "
        b"::error::%0A::warning:: ##vso[task.setvariable]x <script>alert(1)</script> "
        + "\u202egnp.exe\u2066 ".encode()
        + b"::stop-commands::x " * 12
        + b"y" * 300
        + b"::set-output name=a::b api_key='s3cret'",
        b"",
        b"[2026-02-27 12:50:03] Received sigquit from a child process. It usually means the child failed.",
    )
)
LOGS = {
    **{name: (FIXTURES / f"{name}.log").read_bytes() for name in USER_CASES},
    "empty": b"",
    "hostile": HOSTILE,
}
#: What rich writes for a style: select graphic rendition, and nothing else.
SGR = re.compile(r"\x1b\[[0-9;]*m")
_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@pytest.fixture
def report(tmp_path, monkeypatch):
    """Return a function that diagnoses one of the logs, by a path that is the same on every machine."""
    monkeypatch.chdir(tmp_path)

    def read(name):
        Path(f"{name}.log").write_bytes(LOGS[name])
        return masked(sglogparse.read_log(f"{name}.log").diagnose())

    return read


def check_safe(text: str, width: int) -> None:
    """Raise AssertionError where a report could do more than be read, or does not fit."""
    assert not {unicodedata.category(char) for char in text if char != "\n"} & _UNSAFE
    for row in text.split("\n"):
        assert cell_len(row) <= width, row
        assert row == row.rstrip()
        assert not row.lstrip().startswith("::"), row
        assert not re.search(r"##\w*\[", row), row


# ------------------------------------------------------------------ golden files


@pytest.mark.parametrize("output_format", ["text", "json"])
@pytest.mark.parametrize("name", LOGS)
def test_report_is_the_golden_one(report, name, output_format):
    text = FORMATS[output_format](report(name), 80, False) + "\n"
    path = GOLDEN / f"{name}.{'txt' if output_format == 'text' else 'json'}"
    if os.environ.get("SGLOGPARSE_UPDATE_GOLDEN"):
        old = path.read_text(encoding="utf-8") if path.exists() else None
        if old != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            pytest.fail(f"{path.name} was rewritten: read the difference, and run again without the variable")
    assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; see the head of this file"


def test_no_golden_file_is_left_over():
    assert {path.name for path in GOLDEN.iterdir()} == {
        f"{name}.{end}" for name in LOGS for end in ("txt", "json")
    }


def test_the_crash_of_the_user_is_told_in_25_lines(report):
    text = render_text(report("baseline_debug_nocar"), 80)
    lines = text.split("\n")
    assert len(lines) <= 25
    assert max(map(cell_len, lines)) <= 80
    assert lines[0].startswith("crashed, during KV cache set-up; cause: KV budget negative")
    assert " ".join(lines[1:4]) == (
        "set --mem-fraction-static 0.781 (room for a prefill of 16384 tokens); any token needs above 0.770 "
        "(0.55 given: "
        "rest = 21.708 - 94.037 x 0.45 = -20.608 GiB); each +0.01 adds 0.94 GiB = 14368 tokens"
    )
    place = next(
        index for index, line in enumerate(lines) if line.startswith("baseline_debug_nocar.log:49 TP0")
    )
    assert lines[place + 1].startswith("  DEBUG profile_max_num_token: avail=21.708 GiB, total=94.037 GiB")
    flat = " ".join(text.split())
    assert "The printed numbers agree with the stock formula within rounding" in flat
    assert "the print did not change the outcome" in flat


# ------------------------------------------------------------------ any width, with and without colour


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("name", LOGS)
def test_report_fits_any_width_and_is_safe(report, name, width):
    text = render_text(report(name), width)
    check_safe(text, width)
    assert "s3cret" not in text


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("name", LOGS)
def test_colour_adds_colour_only(report, name, width, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = render_text(report(name), width, colour=True)
    assert SGR.search(coloured)
    assert SGR.sub("", coloured) == render_text(report(name), width)
    # a style ends before its line does: nothing bleeds into what the terminal shows next
    assert all(line.count("\x1b[0m") * 2 == len(SGR.findall(line)) for line in coloured.split("\n"))


@pytest.mark.parametrize("name", LOGS)
def test_words_are_the_same_at_every_width(report, name):
    """No number is cut in two: what is shown at 80 columns is shown at 120, but for what is left out."""
    if name != "hostile":
        narrow, wide = (set(render_text(report(name), width).split()) for width in (80, 120))
        assert {word for word in narrow if not word.endswith("...")} <= wide


def test_no_line_begins_or_ends_within_a_sum(report):
    for name in USER_CASES:
        lines = render_text(report(name), 80).split("\n")
        for before, after in pairwise(lines):
            assert not re.search(r"[0-9=] [-+x=/]$|[-+x=/]$(?<=[0-9] .)", before), before
            assert not re.match(r" *(?:[-+x/] [0-9]|= |(?:GiB|GB|s|min)\b)", after), after


# ------------------------------------------------------------------ what the report says, and how often


def test_what_the_headline_says_is_not_said_again():
    died = finding(evidence=[line(3)])
    text = render_text(diagnosis(launch([died], action="Scheduler died: boom")))
    assert text.count("Scheduler died: boom") == 1
    assert "\nsaid above: P001 error\n" in text
    ready = launch([died], Outcome.READY, headline="ready, but: scheduler died: boom", root=None)
    assert "\nsaid above: P001 error\n" in render_text(diagnosis(ready))


def test_a_line_is_shown_once():
    first, second = line(3, "boom"), line(5, "bang")
    findings = [
        finding("P001", "A.", evidence=[first], root=first),
        finding("P002", "B.", evidence=[first, second]),
        finding("P003", "C.", evidence=[second]),
        finding("P004", "D.", evidence=[second]),
    ]
    lines = render_text(diagnosis(launch(findings))).split("\n")
    assert lines[2:9] == [
        "a.log:3 TP0",
        "  boom",
        "",
        "P001 error: A.",
        "P002 error: B.",
        "P003 error: C.",
        "  line 5: bang",
    ]
    assert lines[9] == "P004 error: D."


def test_lines_that_say_the_same_are_one_proof():
    lines = [line(number, rank=f"TP{number}") for number in range(6)]
    text = render_text(diagnosis(launch([finding(evidence=lines)])))
    assert "a.log:0 TP0, and the same on TP1-TP5 (lines 1, 2, 3, 4, ...)\n  boom\n" in text
    bare = [Evidence("a.log", number, None, "boom", "boom") for number in (3, 4)]
    assert "a.log:3, and 1 time more (line 4)\n  boom\n" in render_text(
        diagnosis(launch([finding(evidence=bare)]))
    )


def test_what_is_left_out_is_said():
    findings = [finding(f"P{n:03}", f"Message {n}.", evidence=[line(n, f"line {n}")]) for n in range(7)]
    findings[0] = finding("P000", "First.", evidence=[line(n, f"proof {n}") for n in range(20, 26)])
    others = [launch([], Outcome.READY, first_line=n, last_line=n, headline=f"ready, {n}") for n in range(8)]
    text = render_text(
        diagnosis(*others, launch(findings), paths=[*(f"{n}.log" for n in range(10)), "a.log"])
    )
    for said in (
        "(+3 more proofs: --output-format json)",
        "(+2 more findings: --output-format json)",
        "(+3 more launches: --output-format json)",
        "(+3 more files: --output-format json)",
    ):
        assert said in text


def test_launches_that_ended_alike_are_told_once():
    others = [launch([], Outcome.CRASHED, first_line=n, last_line=n, headline="crashed") for n in range(1, 9)]
    text = render_text(diagnosis(*others, launch([], Outcome.READY, first_line=9)))
    assert "\na.log:8-8: crashed; and 7 more like it, from line 1\n" in text
    assert "more launch" not in text


def test_files_are_named_so_that_they_can_be_told_apart():
    one, two = "node0/server.log", "node1/server.log"
    same = diagnosis(launch(file=two), launch([finding(evidence=[line(3, file=one)])], file=one))
    text = render_text(same)
    assert "node0/server.log:3 TP0" in text
    assert "node1/server.log:1-9: crashed" in text
    other = diagnosis(launch([finding(evidence=[line(3, file="x/one.log")])], file="x/one.log"))
    assert "\none.log:3 TP0" in render_text(other)


def test_numbers_are_in_the_right_grammatical_number():
    report = launch([finding(evidence=[line(3)])], ranks=("TP0",))
    text = render_text(Diagnosis((FileReport("a.log", 1, 9, 0, 0, ()),), (report,), report, ()))
    assert text.split("\n")[-1] == "a.log: 1 line; 1 rank (TP0); 1 min 01 s from first to last stamp"


def test_a_cause_that_is_not_known_is_not_given_an_id():
    assert "(unknown)" not in render_text(diagnosis(launch([], cause="unknown")))


# ------------------------------------------------------------------ hostile text in every place


@given(diagnoses(), st.sampled_from([40, 80, 120]))
def test_any_report_is_safe_and_fits(report, width):
    check_safe(render_text(report, width), width)


@given(diagnoses())
def test_any_report_is_ascii_as_json_and_says_what_was_said(report):
    text = FORMATS["json"](report, 80, True)
    assert all(0x20 <= ord(char) < 0x7F or char == "\n" for char in text)
    assert "##" not in text
    assert json.loads(text) == whole(report.as_dict())


def whole(value):
    """Return a value without lone surrogates: they are no characters, and many parsers refuse them."""
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    if isinstance(value, dict):
        return {key: whole(one) for key, one in value.items()}
    return [whole(one) for one in value] if isinstance(value, list) else value


#: Bytes of a line of a log, most of them of those that make trouble.
RAW = st.one_of(TEXT.map(lambda text: text.encode(errors="surrogatepass")), st.binary(max_size=20)).map(
    lambda raw: raw.replace(b"\n", b" ")
)


@given(st.lists(RAW, min_size=1, max_size=4))
def test_any_log_gives_a_report_that_is_safe(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("any") / "any.log"
    head = b"[2026-02-27 12:50:0%d TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    frame = b'  File "/opt/sglang/srt/managers/scheduler.py", line 3, in run\n    %s\nRuntimeError: %s\n\n'
    # enough of a log around it that the controls do not make it binary
    path.write_bytes(
        LOGS["baseline_clean"] + b"".join(head % n + frame % (raw, raw) for n, raw in enumerate(lines))
    )
    report = sglogparse.read_log(path).diagnose()
    check_safe(render_text(report, 80), 80)
    said = FORMATS["json"](report, 80, False)
    assert said.isascii()
    assert json.loads(said) == report.as_dict()


@pytest.mark.parametrize(
    "message",
    ["x" * 1_000_000, "word " * 200_000, "\x1b" * 1_000_000, "日本語" * 300_000, "\u0301" * 1_000_000],
    ids=["word", "words", "escapes", "wide", "combining"],
)
def test_a_line_of_a_megabyte_takes_a_few_rows(message):
    one = finding(message=message, evidence=[line(3, message)])
    text = render_text(diagnosis(launch([one], headline=message, action=message)))
    check_safe(text, 80)
    assert len(text.split("\n")) < 30
    assert len(text) < 20_000


# ------------------------------------------------------------------ wrapping


@given(
    st.text(
        st.characters(exclude_categories=["C", "Z"], exclude_characters="\\", include_characters=" "),
        max_size=200,
    ),
    st.integers(20, 60),
)
def test_wrapping_keeps_the_words(text, width):
    lines = wrap(text, width, first="  ", rest="    ")
    assert all(cell_len(one) <= width for one in lines)
    assert "".join("".join(lines).split()).replace("\\x3a", ":").replace("\\x23", "#") == "".join(
        text.split()
    )


@given(
    st.lists(st.sampled_from(["a", "bb", "word", "0.45", "x", "="]), max_size=40).map(" ".join),
    st.integers(20, 60),
)
def test_wrapping_to_a_number_of_lines_says_what_it_leaves_out(text, width):
    whole, part = wrap(text, width), wrap(text, width, most=2)
    assert part == whole or (len(part) == 2 and part[0] == whole[0] and part[1].endswith("..."))
    assert all(cell_len(one) <= width for one in part)


# ------------------------------------------------------------------ tables


@given(
    st.lists(st.tuples(TEXT, st.integers(), TEXT), max_size=4),
    st.sampled_from([40, 80, 120]),
)
def test_any_table_is_safe_and_fits(rows, width):
    kept = [
        tuple(v.encode(errors="replace").decode() if isinstance(v, str) else v for v in row) for row in rows
    ]
    frame = pl.DataFrame(
        kept, schema={"::te\x1bxt": pl.String, "n": pl.Int128, "more": pl.String}, orient="row"
    )
    text, notes = render_frame(frame, width)
    check_safe(text, width)
    for note in notes:
        check_safe(note, 10_000)


def test_a_table_narrows_texts_before_it_leaves_columns_out():
    frame = pl.DataFrame({"line": [1], "text": ["a" * 100], "more": ["b" * 100]})
    text, notes = render_frame(frame, 80)
    head = text.split("\n")[0].split()
    assert (head, notes) == (["line", "text", "more"], [])
    text, notes = render_frame(pl.DataFrame({f"column_{n}": ["c" * 100] for n in range(9)}), 80)
    assert text.split("\n")[0].split() == ["column_0", "column_1", "column_2"]
    assert notes == ["not shown for width: column_3, column_4, column_5, column_6, column_7, column_8"]


def test_a_table_shows_numbers_as_they_are():
    frame = pl.DataFrame(
        {"a": [1234567.5, 0.1 + 0.2, None], "b": [None, None, None], "c": [[1, 2], [], None]}
    )
    text, notes = render_frame(frame, 80)
    assert text.split("\n") == ["        a  c", "-----------------", "1234567.5  [1, 2]", "      0.3  []", ""]
    assert notes == ["left out 1 column without a value in this result"]
    assert render_frame(frame.clear(), 80)[0].split("\n")[0].split() == ["a", "b", "c"]


def test_a_list_goes_below_where_there_is_no_room_beside():
    rows = [["M001", "a-long-name-of-a-rule", "What the rule reports, in a sentence."]]
    head = ["code", "name", "summary"]
    assert render_rows(head, rows, 80).split("\n")[1] == (
        "M001  a-long-name-of-a-rule  What the rule reports, in a sentence."
    )
    assert render_rows(head, rows, 40).split("\n")[2:] == [
        "M001  a-long-name-of-a-rule",
        "  What the rule reports, in a sentence.",
    ]


def test_what_to_change_is_told_of_a_server_that_serves():
    unused = render_text(sglogparse.read_log(FIXTURES / "memory_left_unused" / "bad.log").diagnose(), 80)
    assert unused.split("\n\n")[1] == (
        "M011 info: After the start 29.70 of 78.40 GiB are still free:\n"
        "  mem_fraction_static is 0.6.\n"
        "  line 8: max_total_num_tokens=172069, chunked_prefill_size=8192, max_prefill...\n"
        "  fix: if nothing else shares the device, --mem-fraction-static 0.85 gives the\n"
        "    pool about 19.60 GiB = 213994 tokens more"
    )
    full = render_text(sglogparse.read_log(FIXTURES / "kv_pool_full" / "bad.log").diagnose(), 80)
    assert full.split("\n\n")[0] == (
        "ready, but the KV pool was full 2 times on TP0-TP1: 4 requests retracted\n"
        "(#retracted_reqs: 3 the first time).\n"
        "lower --max-running-requests, raise --schedule-conservativeness, or give the\n"
        "pool more memory (--mem-fraction-static, --kv-cache-dtype fp8_e5m2)\n"
        "first seen: line 1, 02:10:00; ranks TP0-TP1"
    )
    assert "fix:" not in full  # it is told already


def test_beside_a_fault_only_its_own_fix_is_told():
    died = finding(fix="stop it")
    other = finding("K001", "the pool was full", fix="lower it")
    ended = launch([died, other], action="stop it", fix="stop it")
    serves = launch([other], Outcome.READY, headline="ready", action="", root=None)
    assert "lower it" not in render_text(diagnosis(ended), 80)
    assert "  fix: lower it" in render_text(diagnosis(serves), 80).split("\n")
