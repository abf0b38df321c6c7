"""From lines to records: who spoke, when, and what was said."""

from __future__ import annotations

import datetime as dt
import itertools

import polars as pl
import pytest

from sglogparse._compiler import compiled_plan
from sglogparse._records import RANKS, RECORD_SCHEMA, read_records

NEW_YEAR = dt.datetime(2026, 1, 1)
LATER = NEW_YEAR + dt.timedelta(milliseconds=125)


def _records(*lines: str) -> pl.DataFrame:
    frame = pl.DataFrame({"text": lines}, schema={"text": pl.String}).select(
        pl.lit(3, dtype=pl.UInt16).alias("file"),
        pl.int_range(1, pl.len() + 1, dtype=pl.UInt32).alias("line"),
        "text",
    )
    return read_records(frame, compiled_plan())[0]


def _read(line: str) -> dict:
    """Return what is said of a line, without what is null."""
    (row,) = _records(line).rows(named=True)
    assert (row.pop("file"), row.pop("line"), row.pop("text")) == (3, 1, line)
    return {name: value for name, value in row.items() if value is not None}


def test_the_columns_and_their_types():
    records = _records("x")
    assert records.schema == {
        **{name: RECORD_SCHEMA[name] for name in ("file", "line")},
        "text": pl.String,
        **{name: RECORD_SCHEMA[name] for name in ("time", "clock", "rank", *RANKS)},
        "level": pl.String,
        "message": pl.String,
        "headed": pl.Boolean,
    }
    assert _records().schema == records.schema


# ------------------------------------------------------------------ the dialects

DIALECTS = {
    "[2026-01-01 00:00:00] m": {"time": NEW_YEAR},
    "[2026-01-01 00:00:00 TP3] m": {"time": NEW_YEAR, "rank": "TP3", "tp": 3},
    "[2026-01-01 00:00:00 DP1 PP2 TP3 EP4] m": {
        "time": NEW_YEAR, "rank": "DP1 PP2 TP3 EP4", "dp": 1, "pp": 2, "tp": 3, "ep": 4,
    },
    "[2026-01-01 00:00:00 ATTN_CP1 ATTN_DP2 ATTN_TP3 MOE_DP4 MOE_EP5 MOE_TP6] m": {
        "time": NEW_YEAR,
        "rank": "ATTN_CP1 ATTN_DP2 ATTN_TP3 MOE_DP4 MOE_EP5 MOE_TP6",
        "attn_cp": 1, "attn_dp": 2, "attn_tp": 3, "moe_dp": 4, "moe_ep": 5, "moe_tp": 6,
    },
    "[2026-01-01 00:00:00 TP1023] m": {"time": NEW_YEAR, "rank": "TP1023", "tp": 1023},
    "[2026-01-01 00:00:00.125 TP1] m": {"time": LATER, "rank": "TP1", "tp": 1},
    "[2026-01-01 00:00:00,125] m": {"time": LATER},
    "[08:52:39 TP1] m": {"clock": dt.time(8, 52, 39), "rank": "TP1", "tp": 1},
    "[08:52:39] m": {"clock": dt.time(8, 52, 39)},
    "[08:52:39.125] m": {"clock": dt.time(8, 52, 39, 125_000)},
    "[08:52:39,125] m": {"clock": dt.time(8, 52, 39, 125_000)},
    "2026-01-01 00:00:00 TP3] m": {"time": NEW_YEAR, "rank": "TP3", "tp": 3},
    "[TP0] m": {"rank": "TP0", "tp": 0},
    "[DP0 TP1] m": {"rank": "DP0 TP1", "dp": 0, "tp": 1},
    "[gpu_id=3] m": {"rank": "3", "gpu_id": 3},
    "[gpu=3] m": {"rank": "3", "gpu_id": 3},
    "[rank=3] m": {"rank": "3", "gpu_id": 3},
    "Rank 3: m": {"rank": "3", "gpu_id": 3},
    "[2026-01-01 00:00:00] WARNING server_args.py:12: m": {"time": NEW_YEAR, "level": "WARNING"},
    "[2026-01-01 00:00:00 TP3] ERROR model_runner.py:1234: m": {
        "time": NEW_YEAR, "rank": "TP3", "tp": 3, "level": "ERROR",
    },
    "[TP3] DEBUG a.b.py:1: m": {"rank": "TP3", "tp": 3, "level": "DEBUG"},
}  # fmt: skip


@pytest.mark.parametrize("line", DIALECTS)
def test_a_dialect_alone(line):
    assert _read(line) == {**DIALECTS[line], "message": "m", "headed": True}


def test_the_dialects_in_one_log():
    records = _records(*DIALECTS)
    columns = ["time", "clock", "rank", *RANKS, "level"]
    expected = [dict.fromkeys(columns) | said for said in DIALECTS.values()]
    assert records.select(columns).rows(named=True) == expected
    assert records["message"].to_list() == ["m"] * len(DIALECTS)
    assert records["headed"].all()


@pytest.mark.parametrize("order", list(itertools.permutations(["DP1", "PP2", "TP3", "MOE_EP4"])))
def test_ranks_in_any_order(order):
    said = _read(f"[2026-01-01 00:00:00 {' '.join(order)}] m")
    assert said["rank"] == " ".join(order)
    assert {name: said[name] for name in said if name in RANKS} == {"dp": 1, "pp": 2, "tp": 3, "moe_ep": 4}


def test_no_rank_is_null_and_never_zero():
    records = _records("[2026-01-01 00:00:00] m", "[2026-01-01 00:00:00 TP0] m", "bare")
    assert records["tp"].to_list() == [None, 0, None]
    assert records["rank"].to_list() == [None, "TP0", None]
    assert records["dp"].null_count() == 3


def test_a_uvicorn_line_keeps_its_level_in_the_message():
    assert _read("[2026-01-01 00:00:00] INFO:     Shutting down") == {
        "time": NEW_YEAR, "message": "INFO:     Shutting down", "headed": True,
    }  # fmt: skip


# ------------------------------------------------------------------ times that are none


@pytest.mark.parametrize(
    "stamp", ["2026-13-45 00:00:00", "2026-02-30 00:00:00", "2026-01-01 24:00:00", "0000-00-00 99:99:99"]
)
def test_an_impossible_date_is_no_time_but_keeps_rank_and_message(stamp):
    assert _read(f"[{stamp} TP2] m") == {"rank": "TP2", "tp": 2, "message": "m", "headed": True}
    # beside stamps of another length, which are parsed in another way
    assert _records(f"[{stamp} TP2] m", "[08:00:00.500] m")["time"].to_list() == [None, None]


def test_an_impossible_time_of_day_is_no_clock():
    assert _read("[25:61:00 TP2] m") == {"rank": "TP2", "tp": 2, "message": "m", "headed": True}


# ------------------------------------------------------------------ messages


@pytest.mark.parametrize(
    "line", ["[2026-01-01 00:00:00 TP0] ", "[2026-01-01 00:00:00 TP0]", "[2026-01-01 00:00:00 TP0]   "]
)
def test_a_header_without_a_message(line):
    assert _read(line) == {"time": NEW_YEAR, "rank": "TP0", "tp": 0, "message": "", "headed": True}


def test_the_older_headers_without_a_message():
    records = _records("[TP0]", "[gpu_id=1]", "[08:00:00]", "[1, 2]", "[]")
    assert records["headed"].to_list() == [True, True, True, False, False]
    assert records["message"].to_list() == ["", "", "", "[1, 2]", "[]"]


def test_blanks_at_the_end_are_no_part_of_a_message():
    assert _read("[TP0]   two  words \t ")["message"] == "  two  words"
    assert _read("  bare \t") == {"message": "  bare", "headed": False}


def test_a_message_may_hold_brackets_and_another_header():
    message = "[2026-01-01 00:00:01 TP1] [x] y]"
    assert _read(f"[2026-01-01 00:00:00 TP0] {message}") == {
        "time": NEW_YEAR, "rank": "TP0", "tp": 0, "message": message, "headed": True,
    }  # fmt: skip


def test_text_that_is_not_ascii():
    assert _read("[TP0] ünï → ✓ ")["message"] == "ünï → ✓"


@pytest.mark.parametrize(
    "line",
    [
        "",
        " ",
        "[",
        "[INFO] m",
        "[rank0]: m",
        "[rank0]:[E217 10:00:00 ProcessGroupNCCL.cpp:1] m",
        "[1/2] m",
        "[2026-01-01] m",
        "[2026-01-01T00:00:00 TP0] m",
        "[2026-01-01 00:00:00 TP] m",
        "[2026-01-01 00:00:00 XP0] m",
        "[2026-01-01 00:00:00  TP0] m",
        "[2026-01-01 00:00:00 TP0]m",
        "[2026-01-01 00:00:00 TP12345] m",
        "[2026-01-01 00:00:00.1 TP0] m",
        "[2026-1-1 00:00:00 TP0] m",
        " [2026-01-01 00:00:00 TP0] m",
        "[12-26 06:47:20] m",
        "[gpu_id=x] m",
        "Rank 3 m",
        "Rank: m",
    ],
)
def test_what_is_no_header(line):
    (row,) = _records(line).rows(named=True)
    assert {name: value for name, value in row.items() if value is not None} == {
        "file": 3, "line": 1, "text": line, "message": line.rstrip(), "headed": False,
    }  # fmt: skip


# ------------------------------------------------------------------ what a terminal would show


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("10%|\r50%|\r100%|", "100%|"),
        ("10%|\r100%|\r", "100%|"),
        ("10%|\r   \r\r", "10%|"),
        ("\r\r", ""),
        ("10%|\r[TP0] said", "said"),
        ("[TP0] said\r", "said"),
    ],
)
def test_of_carriage_returns_the_last_part_that_is_not_blank_counts(line, message):
    (row,) = _records(line, "other").rows(named=True)[:1]
    assert row["message"] == message
    assert row["headed"] == ("TP0" in line)
    assert row["text"] == line
