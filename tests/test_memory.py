"""`sglogparse memory`: whole outputs as golden files, accounts that add up, contradictions, what-if.

When an output changes on purpose, rewrite the golden files, and read the difference before it is committed:

    SGLOGPARSE_UPDATE_GOLDEN=1 pytest tests/test_memory.py; git diff tests/golden_memory
"""

from __future__ import annotations

import json
import os
import textwrap
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from sglogparse import read_log
from sglogparse._cli import main
from sglogparse._interval import Interval
from sglogparse._split import read_launches
from sglogparse.ledger.account import read_accounts
from sglogparse.ledger.ledger import implied_fraction, read_ledger
from sglogparse.ledger.statement import statements
from sglogparse.ledger.whatif import Changes, predict, read_budgets
from sglogparse.render.memory import _rows, render_memory

FIXTURES = Path(__file__).parent / "fixtures" / "memory"
GOLDEN = Path(__file__).parent / "golden_memory"
BASELINES = [FIXTURES.parent / f"{name}.log" for name in ("baseline_clean", "baseline_debug_nocar")]

#: Golden file -> the arguments of the command.
CASES = {
    "clean.txt": ["../baseline_clean.log"],
    "clean.json": ["../baseline_clean.log", "--output-format", "json", "--mem-fraction-static", "0.9"],
    "failed.txt": ["../baseline_debug_nocar.log", "--mem-fraction-static", "0.88"],
    "impossible.txt": ["../negative_budget_with_kv.log"],
    "draft.txt": ["draft.log", "--context-length", "131072", "--max-running-requests", "32"],
    "windows.txt": ["windows.log", "--tp-size", "4", "--kv-cache-dtype", "fp8_e4m3"],
    "states.txt": ["states.log", "--mem-fraction-static", "0.9"],
}


@pytest.fixture
def run(monkeypatch):
    """Return a function that runs the command in the folder of the fixtures."""
    monkeypatch.chdir(FIXTURES)
    monkeypatch.setenv("COLUMNS", "80")
    return lambda *args, **more: CliRunner().invoke(main, ["memory", *map(str, args)], **more)


def launch_of(path):
    (launch,) = read_launches(read_log(path))
    return launch


@pytest.mark.parametrize("name", CASES)
def test_the_output_is_the_golden_one(run, name):
    result = run(*CASES[name])
    assert (result.exit_code, result.stderr) == (0, "")
    path = GOLDEN / name
    if os.environ.get("SGLOGPARSE_UPDATE_GOLDEN"):
        old = path.read_text(encoding="utf-8") if path.exists() else None
        if old != result.stdout:
            path.write_text(result.stdout, encoding="utf-8")
            pytest.fail(f"{path.name} was rewritten: read the difference, and run again without the variable")
    assert result.stdout == path.read_text(encoding="utf-8"), (
        f"{path.name} differs; see the head of this file"
    )
    assert max(map(cell_len, result.stdout.splitlines())) <= 80 or name.endswith("json")


def test_no_golden_file_is_left_over():
    assert {path.name for path in GOLDEN.iterdir()} == set(CASES)


@pytest.mark.parametrize("path", sorted(FIXTURES.parent.rglob("*.log")), ids=lambda path: path.stem)
def test_every_account_adds_up(path):
    for launch in read_launches(read_log(path)):
        for account in read_accounts(launch):
            if "free" in account.parts:
                parts = sum((one.interval for one in account.parts.values()), Interval.exactly(0))
                assert parts.meets(account.total.interval), account.rank


@pytest.mark.parametrize("path", [*sorted(FIXTURES.glob("*.log")), *BASELINES], ids=lambda path: path.stem)
def test_no_true_log_contradicts_itself(path):
    for launch in read_launches(read_log(path)):
        assert read_ledger(launch).conflicts == []


def test_the_pool_of_the_healthy_start_implies_the_fraction():
    launch = launch_of(FIXTURES.parent / "baseline_clean.log")
    found = implied_fraction(launch)
    assert f"{float(found.interval.low):.4f} {float(found.interval.high):.4f}" == "0.8798 0.8801"
    texts = {launch.evidence(fact.line).message.split(".")[0] for fact in found.facts if fact.line}
    assert texts == {"Load weight begin", "Load weight end", "KV Cache is allocated"}


def test_a_pool_beside_a_negative_budget_cannot_be():
    conflict, tokens = read_ledger(launch_of(FIXTURES.parent / "negative_budget_with_kv.log")).conflicts
    assert {fact.text for fact in tokens.facts if fact.line} == {"max_tokens=-314887", "num_tokens=159269"}
    said = {(fact.line, fact.text) for fact in conflict.facts if fact.line}
    assert said == {(49, "rest=-20.608"), (55, "kv size=10.42")}


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        # graphs that took more than the drop, weights that do not fit the drop, a pool that is larger
        ("mem usage=1.30 GB. avail mem=15.13", "mem usage=1.80 GB. avail mem=15.13", {8, 9}),
        ("avail mem=14.33 GB, mem usage=0.80", "avail mem=14.33 GB, mem usage=2.80", {12, 13}),
        ("K size: 15.25 GB, V size: 15.25 GB", "K size: 25.25 GB, V size: 15.25 GB", None),
        ("max_total_num_tokens=249814", "max_total_num_tokens=259814", {6, 18}),
        ("Memory pool end. avail mem=16.92", "Memory pool end. avail mem=26.92", {5, 6, 7}),
        ("mem_fraction_static=0.78", "mem_fraction_static=0.68", {1, 4, 5, 6}),
    ],
)
def test_a_changed_number_is_found_with_the_lines_that_it_contradicts(tmp_path, old, new, lines):
    text = (FIXTURES / "draft.log").read_text()
    assert text.count(old) == 1
    path = tmp_path / "changed.log"
    path.write_text(text.replace(old, new))
    launch = launch_of(path)
    (conflict, *_) = read_ledger(launch).conflicts
    found = {fact.line for fact in conflict.facts if fact.line}
    assert found == lines if lines else 6 in found


def predicted(path, **changes):
    launch = launch_of(path)
    (budget,) = read_budgets(launch)
    return predict(launch, budget, Changes(**changes))


def test_the_prediction_of_the_same_start_holds_what_was():
    for name in ("draft", "windows", "states"):
        launch = launch_of(FIXTURES / f"{name}.log")
        (budget,) = read_budgets(launch)
        again = predict(launch, budget, Changes(mem_fraction_static=budget.fraction.low)).after
        assert again.kv.meets(budget.kv)
        spread = again.tokens.high - again.tokens.low
        assert abs(again.tokens.low - budget.tokens.low) <= spread + budget.tokens.low / 100


def test_a_larger_fraction_is_predicted_by_the_formula():
    after = predicted(FIXTURES.parent / "baseline_clean.log", mem_fraction_static=Fraction("0.9")).after
    # 21.708 - 94.037 x 0.1 = 12.304 GiB, 70272 bytes a token
    assert after.rest.low <= Fraction("12.304") <= after.rest.high
    assert after.tokens.low <= 12.304 * 2**30 // 70272 <= after.tokens.high
    # what was free at the end, less what the pool grew by
    assert after.free.low <= Fraction("7.47") - Fraction("1.881") <= after.free.high


def test_half_the_bytes_hold_twice_the_tokens():
    before, after = (
        predicted(FIXTURES / "draft.log", **changes).after for changes in ({}, {"kv_cache_dtype": "fp8_e4m3"})
    )
    assert abs(after.tokens.low / before.tokens.low - 2) < Fraction(1, 100)


def test_what_the_log_does_not_tell_is_not_predicted(run, tmp_path):
    path = tmp_path / "short.log"
    path.write_text("[2026-03-04 11:00:10 TP0] Load weight begin. avail mem=77.60 GB\n")
    result = run(path, "--mem-fraction-static", "0.9", "--output-format", "json")
    (launch,) = json.loads(result.stdout)["launches"]
    (prediction,) = launch["what_if"]["predictions"]
    assert prediction["tokens"] is None
    assert prediction["rest_gib"] is None
    assert "the budget: the log does not tell free memory after them" in prediction["missing"]


def test_a_log_without_memory_is_undecided(run, tmp_path):
    path = tmp_path / "none.log"
    path.write_text("[2026-03-04 11:00:10] The server is fired up and ready to roll!\n")
    result = run(path)
    assert (result.exit_code, result.stdout) == (
        3,
        "no rank of the log prints its free memory and what it took: there is nothing to\naccount for\n",
    )


@pytest.mark.parametrize("share", ["1.2", "0", "x", "nan", "-0.5", "1/0"])
def test_a_share_must_be_between_zero_and_one(run, share):
    result = run("draft.log", "--mem-fraction-static", share)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is not a number between 0 and 1" in result.stderr


def test_lines_without_a_rank_of_a_server_with_several_are_left_out(tmp_path):
    text = (FIXTURES / "windows.log").read_text().replace(" TP0]", "]").replace(" TP1]", "]")
    path = tmp_path / "untold.log"
    path.write_text(text)
    assert read_accounts(launch_of(path)) == ()


# ------------------------------------------------------------------ what is no start's, or not there


def log_of(tmp_path, *lines):
    path = tmp_path / "some.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


LOADED = (
    "[2026-03-04 11:00:10] Load weight begin. avail mem=70.00 GB",
    "[2026-03-04 11:00:30] Load weight end. type=OakForCausalLM, dtype=torch.bfloat16, avail mem=40.00 GB, "
    "mem usage=30.00 GB.",
)


def test_a_pool_of_nothing_predicts_no_tokens(run, tmp_path):
    pool = "[2026-03-04 11:00:31] KV Cache is allocated. #tokens: 1000, K size: 0.00 GB, V size: 0.00 GB"
    result = run(log_of(tmp_path, *LOADED, pool), "--mem-fraction-static", "0.8")
    assert result.exit_code == 0
    assert "not predicted: tokens: no line prints the bytes a token, or a pool of any" in result.stdout


def test_more_lines_than_a_start_prints_are_counted(run, tmp_path):
    pools = [
        f"[2026-03-04 11:00:31] KV Cache is allocated. #tokens: {1000 + n}, K size: 0.50 GB, V size: 0.50 GB"
        for n in range(1000)
    ]
    result = run(log_of(tmp_path, *LOADED, *pools))
    assert result.exit_code == 0
    assert "938 more lines of memory are of no start: left out\n" in result.stdout


def test_captures_without_sizes_leave_what_is_free_open(run, tmp_path):
    lines = (
        "[2026-03-04 11:00:31] KV Cache is allocated. K size: 5.00 GB, V size: 5.00 GB.",
        "[2026-03-04 11:00:31] Memory pool end. avail mem=29.00 GB",
        "[2026-03-04 11:00:32] Capture cuda graph begin. This can take up to several minutes.",
        "[2026-03-04 11:00:50] Capture cuda graph end. Time elapsed: 18.00 s",
    )
    result = run(log_of(tmp_path, *LOADED, *lines), "--mem-fraction-static", "0.9")
    said = " ".join(result.stdout.split())
    assert "no graphs: captures are printed without sizes, and what is free is that before them" in said
    assert "free after the start, GiB ? -> ?" in said


def test_pools_of_windows_that_are_logged_twice_count_once(tmp_path):
    text = (FIXTURES / "windows.log").read_text()
    path = tmp_path / "twice.log"
    path.write_text("".join(line * 2 for line in text.splitlines(keepends=True)))
    once, twice = (read_accounts(launch_of(one)) for one in (FIXTURES / "windows.log", path))
    assert [one.parts["KV cache"].middle for one in twice] == [one.parts["KV cache"].middle for one in once]
    assert read_ledger(launch_of(path)).conflicts == []


def test_two_servers_behind_two_names_are_two_though_none_prints_its_arguments(tmp_path):
    one, other = ((FIXTURES / f"{name}.log").read_text().splitlines()[1:] for name in ("draft", "windows"))
    pairs = zip(one, other, strict=True)
    lines = [text for here, there in pairs for text in (f"oak-1  | {here}", f"elm-1  | {there}")]
    path = log_of(tmp_path, *lines)
    assert len(read_launches(read_log(path))) == 2


TERMS = ["weights", "draft", "KV cache", "given back", "free"]
NUMBERS = ("60.75 ", "28.94 ", "3.28 ", "14.25 ", "-2.13*", "6.83 ")
WIDE = "DP0 TP2 EP2, DP2 TP8 EP8, DP2 TP10 EP10"


@pytest.mark.parametrize(
    ("width", "table"),
    [
        (
            66,
            """
            rank             total  weights  draft  KV cache  given back  free
            DP0 TP0 EP0      60.75    28.94   3.28     14.25       -2.13* 6.83
            DP0 TP2 EP2, DP2 TP8 EP8, DP2 TP10 EP10
                             60.75    28.94   3.28     14.25       -2.13* 6.83
            """,
        ),
        (
            59,
            """
                                                     KV  given
            rank           total  weights  draft  cache   back  free
            DP0 TP0 EP0    60.75    28.94   3.28  14.25  -2.13* 6.83
            DP0 TP2 EP2, DP2 TP8 EP8, DP2 TP10 EP10
                           60.75    28.94   3.28  14.25  -2.13* 6.83
            """,
        ),
        (
            40,
            """
            rank       total  weights  draft
            DP0 TP0 EP0
                       60.75    28.94   3.28
            DP0 TP2 EP2, DP2 TP8 EP8, DP2 TP10 EP10
                       60.75    28.94   3.28
                          KV  given
            rank       cache   back  free
            DP0 TP0 EP0
                       14.25  -2.13* 6.83
            DP0 TP2 EP2, DP2 TP8 EP8, DP2 TP10 EP10
                       14.25  -2.13* 6.83
            """,
        ),
    ],
)
def test_a_table_too_wide_has_heads_of_two_lines_then_blocks_of_columns(width, table):
    found = _rows([("DP0 TP0 EP0", *NUMBERS), (WIDE, *NUMBERS)], TERMS, width)
    assert found == textwrap.dedent(table).strip("\n").split("\n")
    assert max(map(len, found)) <= width


@cache
def _statements(path):
    return statements(read_log(path))


@given(st.integers(24, 100), st.sampled_from([*BASELINES, *sorted(FIXTURES.glob("*.log"))]))
def test_no_line_is_wider_than_the_terminal(width, path):
    text = render_memory(_statements(path), width)
    assert max(map(len, text.split("\n"))) <= width
