"""From findings to a verdict: which launch and file speak, what the outcome is, what the log cannot show."""

import doctest
import importlib
from pathlib import Path

import pytest

import sglogparse
from sglogparse import Severity
from sglogparse._ranks import rank_key, rank_list, rank_spread
from sglogparse.causes import CAUSE_FIXES, CAUSE_TITLES

FIXTURES = Path(__file__).parent / "fixtures"

ARGS = "[2025-05-01 10:00:00] server_args=ServerArgs(model_path='/m', tp_size=1, mem_fraction_static=0.8)"
LOAD = "[2025-05-01 10:00:09] Load weight begin. avail mem=70.00 GB"
READY = "[2025-05-01 10:02:09] The server is fired up and ready to roll!"
STOP = "[2025-05-01 11:00:00] INFO:     Shutting down"
QUIT = "[2025-05-01 11:00:00] Received sigquit from a child process. It usually means the child failed."
HANG = "[2025-05-01 11:00:00 TP0] Watchdog timeout (self.watchdog_timeout=300)"
FULL = (
    "[2025-05-01 10:30:00 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1, "
    "#new_token_ratio: 0.4000 -> 0.9000"
)
GRAVE = "[torch_memory_saver.cpp] CUDA error: out of memory"


def _write(tmp_path, *lines, name="server.log"):
    path = tmp_path / name
    path.write_text("\n".join([*lines, ""]) if lines else "")
    return path


def _diagnose(tmp_path, *lines):
    return sglogparse.read_log(_write(tmp_path, *lines)).diagnose()


@pytest.mark.parametrize(
    ("lines", "outcome", "cause", "code"),
    [
        ([ARGS, LOAD, READY], "ready", "none", 0),
        ([ARGS, LOAD], "starting", "none", 3),
        ([ARGS, LOAD, GRAVE], "unknown", "unknown", 3),
        ([ARGS, LOAD, READY, STOP], "stopped", "none", 0),
        ([ARGS, LOAD, STOP], "stopped", "none", 0),
        ([ARGS, LOAD, QUIT], "crashed", "process.killed", 1),
        ([ARGS, LOAD, READY, QUIT], "crashed", "process.killed", 1),
        ([ARGS, LOAD, READY, HANG, QUIT], "hung", "hang.watchdog", 1),
        ([ARGS, LOAD, READY, STOP, QUIT], "stopped", "none", 0),
        (["no line of a server"], "unknown", "none", 3),
        ([], "unknown", "none", 3),
    ],
)
def test_outcomes(tmp_path, lines, outcome, cause, code):
    diagnosis = _diagnose(tmp_path, *lines)
    assert (diagnosis.outcome.value, diagnosis.cause) == (outcome, cause)
    assert diagnosis.exit_code() == code
    assert diagnosis.summary.startswith("undecided" if outcome == "unknown" else outcome)


def test_a_warning_with_a_cause_is_told_of_a_server_that_serves(tmp_path):
    diagnosis = _diagnose(tmp_path, ARGS, LOAD, READY, FULL)
    assert (diagnosis.outcome.value, diagnosis.cause) == ("ready", "kv.pool_exhausted")
    assert diagnosis.summary.startswith("ready, but the KV pool was full")
    assert diagnosis.exit_code(Severity.WARNING) == 1
    assert diagnosis.exit_code(None) != 1


def test_of_one_file_the_last_launch_speaks(tmp_path):
    crashed = [ARGS, LOAD, QUIT]
    assert _diagnose(tmp_path, *crashed, ARGS, LOAD, READY).outcome.value == "ready"
    diagnosis = _diagnose(tmp_path, ARGS, LOAD, READY, *crashed)
    assert diagnosis.outcome.value == "crashed"
    assert [one.outcome.value for one in diagnosis.launches] == ["ready", "crashed"]
    assert [(one.first_line, one.last_line) for one in diagnosis.launches] == [(1, 3), (4, 6)]
    assert diagnosis.root.line == 6


def test_of_several_files_the_worst_speaks(tmp_path):
    paths = [
        _write(tmp_path, ARGS, LOAD, READY, name="a.log"),
        _write(tmp_path, ARGS, LOAD, QUIT, name="b.log"),
        _write(tmp_path, ARGS, LOAD, name="c.log"),
    ]
    diagnosis = sglogparse.read_log(paths).diagnose()
    assert diagnosis.outcome.value == "crashed"
    assert diagnosis.root.file == str(paths[1])
    assert [one.outcome.value for one in diagnosis.launches] == ["ready", "crashed", "starting"]
    assert [one.lines for one in diagnosis.files] == [3, 3, 2]


@pytest.mark.parametrize(
    ("lines", "limit"),
    [
        ([LOAD], "no server_args line"),
        ([LOAD], "1 line only"),
        ([ARGS[:-10], LOAD], "the server_args line is cut"),
        (["[10:00:09 TP0] Load weight begin. avail mem=70.00 GB"], "no dated time stamps"),
    ],
)
def test_what_the_log_cannot_show(tmp_path, lines, limit):
    assert any(limit in one for one in _diagnose(tmp_path, *lines).limits)


def test_a_whole_log_shows_all():
    assert sglogparse.read_log(FIXTURES / "baseline_clean.log").diagnose().limits == ()


def test_the_allocation_implies_the_fraction():
    vitals = "\n".join(sglogparse.read_log(FIXTURES / "baseline_clean.log").diagnose().chief.vitals)
    assert "8 ranks (TP0-TP7)" in vitals
    assert "10.42 GiB" in vitals
    assert "mem_fraction_static = 0.880" in vitals


@pytest.mark.parametrize("flag", ["speculative_algorithm='EAGLE'", "max_total_tokens=159269"])
def test_a_pool_that_something_else_sizes_implies_nothing(tmp_path, flag):
    name = flag.partition("=")[0]
    text = (FIXTURES / "baseline_clean.log").read_text().replace(f"{name}=None", flag)
    assert flag in text
    vitals = _diagnose(tmp_path, *text.splitlines()).chief.vitals
    assert "implies" not in "\n".join(vitals)


def test_the_first_fault_is_dated(tmp_path):
    chief = _diagnose(tmp_path, ARGS, LOAD, READY, HANG).chief
    assert "line 4, 11:00:00, 1 h 00 min in" in "\n".join(chief.vitals)


def test_findings_stand_in_the_order_of_their_weight():
    found = sglogparse.read_log(FIXTURES / "baseline_debug_nocar.log").diagnose().findings
    ranks = [one.severity.rank for one in found]
    assert ranks == sorted(ranks)
    assert found[0].weight == max(one.weight for one in found)


def test_the_contract_of_the_json():
    said = sglogparse.read_log(FIXTURES / "baseline_debug_nocar.log").diagnose().as_dict()
    assert said["schema"] == "sglogparse/diagnosis/1"
    assert {"files", "outcome", "cause", "summary", "root", "launches", "findings"} <= set(said)
    first = said["findings"][0]
    assert first["ranks"] == ["TP0", "TP6", "TP7"]
    assert set(first) >= {"code", "name", "severity", "cause", "message", "ranks", "fix", "evidence"}
    assert said["root"] == first["evidence"][0]


@pytest.mark.parametrize("module", ["_interval", "_ranks", "_vitals"])
def test_the_examples_in_the_code(module):
    result = doctest.testmod(importlib.import_module(f"sglogparse.{module}"))
    assert result.attempted
    assert not result.failed


def test_a_good_last_launch_does_not_hide_one_that_failed_before_it():
    path = FIXTURES / "negative_budget_yet_allocated" / "good_two_launches.log"
    diagnosis = sglogparse.read_log(path).diagnose()
    assert (diagnosis.outcome, diagnosis.exit_code()) == ("ready", 1)
    assert diagnosis.summary.startswith(
        "ready: the server serves; an earlier launch (lines 1-34) crashed, during KV cache set-up; "
        "cause: KV budget negative; needs --mem-fraction-static above 0.727"
    )


def test_causes_with_a_fix_are_causes():
    assert set(CAUSE_FIXES) <= set(CAUSE_TITLES) - {"none", "unknown"}


def test_a_cause_says_what_to_change_and_the_exception_stays_in_the_findings(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("zmq.error.ZMQError: Address already in use\n")
    found = sglogparse.read_log(path).diagnose()
    assert found.summary == (
        "crashed; cause: port in use; stop what listens there (`ss -ltnp`), or start with another --port"
    )
    assert "ZMQError" in found.findings[0].message


def test_the_line_of_the_first_fault_is_said_without_stamps_and_ranks(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("an ordinary line\nzmq.error.ZMQError: Address already in use\n")
    assert sglogparse.read_log(path).diagnose().launches[0].vitals == ("first fault: line 2",)


def test_an_exception_within_a_traceback_has_the_time_of_its_report(tmp_path):
    path = tmp_path / "a.log"
    path.write_text(
        "[2026-01-08 11:20:01 TP0] Load weight begin. avail mem=78.50 GB\n"
        "[2026-01-08 11:20:41 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/opt/sglang/srt/a.py", line 3, in f\n'
        "    x()\n"
        "ValueError: odd\n"
    )
    found = sglogparse.read_log(path).diagnose()
    assert found.launches[0].vitals == (
        "first fault: line 5, 11:20:41, 40 s in; rank TP0",
        "raised at sglang/srt/a.py:3 f",
    )


@pytest.mark.parametrize(
    ("ranks", "spread"),
    [
        # the log of one job in which ranks speak before and after they know their DP rank
        (
            [*(f"TP{n}" for n in range(8)), "DP1 TP4", "DP0 TP3", "DP1 TP5"],
            "TP0-TP7, DP0 TP3-DP1 TP5",
        ),
        (["TP10", "TP9", "TP2", None], "TP2, TP9-TP10"),
        (["DP1 TP8 EP8", "DP0 TP1 EP1", "DP0 TP0 EP0"], "DP0 TP0 EP0-DP0 TP1 EP1, DP1 TP8 EP8"),
        (["PP1 TP0", "PP0 TP1", "PP0 TP0", "PP1 TP1"], "PP0 TP0-PP0 TP1, PP1 TP0-PP1 TP1"),
        (["ATTN_CP1 TP2", "ATTN_CP0 TP1", "TP3"], "ATTN_CP0 TP1-ATTN_CP1 TP2, TP3"),
        (["12", "3", "4"], "3-4, 12"),
    ],
)
def test_ranks_are_in_the_order_of_their_numbers(ranks, spread):
    for order in (ranks, ranks[::-1], sorted(ranks, key=str)):
        assert rank_spread(order) == spread
    assert list(rank_list(ranks)) == sorted((one for one in ranks if one), key=rank_key)
