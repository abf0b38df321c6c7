"""Logs that something has happened to on their way: said, never read as if nothing had."""

from __future__ import annotations

import pytest

from sglogparse._damage import broken_at, newest_first

BATCH = (
    "[2026-03-04 05:06:{:02} TP0] Decode batch, #running-req: 1, #token: 90, token usage: 0.01, cuda graph: True, "
    "gen throughput (token/s): 80.10, #queue-req: 0"
)


def test_newest_first_is_said_and_leaves_the_verdict_open(read, tmp_path):
    log = read(*(BATCH.format(second) for second in range(30, 20, -1)))
    found = log.diagnose()
    assert newest_first(log) == {0}
    assert (found.outcome, found.cause, found.exit_code()) == ("unknown", "unknown", 3)
    assert found.summary == (
        "undecided: the newest line stands first, so what came first is not what it seems; "
        f"turn the log round (`tac {tmp_path / 'a.log'}`) and ask again"
    )
    assert found.limits[0] == f"{tmp_path / 'a.log'}: the newest line stands first, as some exports have it"


@pytest.mark.parametrize("seconds", [range(20, 30), [21, 20] * 10, [29, 28, 29, 26], [20] * 20])
def test_records_a_little_out_of_order_are_no_reversal(read, seconds):
    log = read(*(BATCH.format(second) for second in seconds))
    assert newest_first(log) == set()
    assert log.diagnose().outcome == "ready"


def test_lines_that_are_broken_at_a_margin_are_said(read, tmp_path):
    whole = [BATCH.format(second) for second in range(12)]
    log = read(*(part for line in whole for part in (line[:100], line[100:])))
    assert broken_at(log) == {0: (100, 12)}
    assert log.diagnose().limits[0].startswith(f"{tmp_path / 'a.log'}: 12 lines are broken at column 100; ")


def test_lines_of_equal_length_are_not_broken(read):
    assert broken_at(read(*(part for i in range(12) for part in (BATCH.format(i), "a bare line")))) == {}


def test_a_text_of_several_lines_in_json_is_never_health(read, tmp_path):
    two = BATCH.format(1) + "\\n" + BATCH.format(2) + "\\n"
    found = read(BATCH.format(0), '{"log": "' + two + '"}').diagnose()
    assert (found.outcome, found.cause, found.exit_code()) == ("ready", "unknown", 3)
    assert found.limits[0] == (
        f"{tmp_path / 'a.log'}: 1 JSON object holds a text of several lines, which is not read: "
        "write them out first (`jq -r .log`)"
    )
    ended = BATCH.format(1) + "\\nFatal Python error: Segmentation fault\\n"
    found = read(BATCH.format(0), '{"log": "' + ended + '"}').diagnose()
    assert (found.outcome, found.cause, found.root.line) == ("crashed", "process.segfault", 2)


def test_a_text_of_one_line_in_json_is_read(read):
    found = read('{"log": "' + BATCH.format(1) + '\\n"}').diagnose()
    assert (found.outcome, found.cause, found.exit_code()) == ("ready", "none", 0)
    assert not any("JSON" in limit for limit in found.limits)
