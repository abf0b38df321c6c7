"""The ledger against simulated launches: it closes, infers the true fraction, and finds planted lies.

`simulate` prints what releases print of true bytes; `oracle` says which changed numbers are certainly
impossible. More seeds: SGLOGPARSE_SEEDS=20000 pytest tests/test_ledger_simulated.py
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from oracle import detectable
from sglogparse import read_log
from sglogparse._launches import Launch
from sglogparse._split import read_launches
from sglogparse.ledger.account import read_accounts
from sglogparse.ledger.ledger import implied_fraction, read_ledger
from sglogparse.ledger.whatif import Changes, predict, read_budgets
from simulate import GIB, Number, SimulatedLaunch, lie, simulate

SEEDS = int(os.environ.get("SGLOGPARSE_SEEDS", "2000"))
#: Parts that can run side by side.
PARTS = 4
#: What free memory may change by between two lines that stand for one moment, GiB; twice the ledger's.
DRIFT = 0.35
#: By how much it may rise, as a share of all; what is less than that is no contradiction.
RISE = 0.02


def launches(folder: Path, texts: list[str]) -> list[Launch]:
    """Read many logs at once, each as a file of its own."""
    paths = [folder / f"{number:04}.log" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text.encode())
    found = read_launches(read_log(paths))
    assert [Path(launch.path).name for launch in found] == [path.name for path in paths]
    return found


@pytest.mark.parametrize("part", range(PARTS))
def test_the_ledger_closes_and_infers_the_true_fraction(tmp_path, part):
    inferred = 0
    for first in range(part * SEEDS // PARTS, (part + 1) * SEEDS // PARTS, 100):
        simulated = [simulate(seed) for seed in range(first, min(first + 100, (part + 1) * SEEDS // PARTS))]
        for truth, launch in zip(simulated, launches(tmp_path, [one.text for one in simulated]), strict=True):
            assert read_ledger(launch).conflicts == [], truth.seed
            assert not [one.closes for one in read_accounts(launch) if "unexplained" in one.closes], (
                truth.seed
            )
            implied = implied_fraction(launch)
            if implied is not None:
                inferred += 1
                assert implied.interval.low <= truth.truth.fraction <= implied.interval.high, truth.seed
    assert inferred > SEEDS / PARTS / 2


@pytest.mark.parametrize("seed", range(0, 100, 7))
def test_the_truth_is_within_every_inferred_number(tmp_path, seed):
    one = simulate(seed)
    (launch,) = launches(tmp_path, [one.text])
    ledger = read_ledger(launch)
    for group in ledger.groups:
        for name, value in (("total", one.truth.total), ("avail", one.truth.avail), ("rest", one.truth.rest)):
            found = ledger.inferred((name, group.name))
            # minima over ranks pass through a float32: up to 16 KiB
            if found is not None:
                assert found.interval.low - 1 / 2**15 <= value / GIB <= found.interval.high + 1 / 2**15, name


def planted(one: SimulatedLaunch, rng: random.Random) -> Iterator[tuple[Number, str]]:
    """Yield numbers of a log with another text: more or less by a tenth, half, twice, by one, by a digit."""
    for number in rng.sample(one.numbers, min(len(one.numbers), 3)):
        value = float(number.value)
        other = rng.choice(
            (
                value * 1.1,
                value * 0.9,
                value * 2,
                value / 2,
                value + 1,
                value - 1,
                value + 10 ** rng.randint(-1, 1),
            )
        )
        if number.decimals is not None:
            text = f"{other:.{number.decimals}f}"
        else:
            text = f"{other:.3f}" if "." in number.text else f"{other:.0f}"
        if text != number.text and _beyond_drift(one, number, text):
            yield number, text


def _beyond_drift(one: SimulatedLaunch, number: Number, text: str) -> bool:
    """Tell whether a changed number is impossible also when free memory may drift."""
    if number.name == "server_arg.max_total_tokens" and float(text) > number.value:
        # a larger cap is impossible only if no warning is missing from the log, which nobody can know
        return False
    tolerance = 0.0
    if number.decimals == 2:
        tolerance = DRIFT
        if number.name.endswith(("avail_mem", "available_gpu_mem")):
            tolerance += RISE * max(rank.total for rank in one.truth.ranks) / GIB
    value, other = float(number.value), float(text)
    if abs(other - value) <= tolerance:
        return False
    nearer = other - tolerance if other > value else other + tolerance
    return detectable(one, number, f"{nearer:.{number.decimals}f}" if tolerance else text)


def test_planted_lies_are_found_and_the_core_holds_the_changed_line(tmp_path):
    found: Counter[str] = Counter()
    missed: list[tuple[int, str, str, str]] = []
    for first in range(0, SEEDS // 4, 50):
        lies = [
            (one, number, text)
            for one in map(simulate, range(first, min(first + 50, SEEDS // 4)))
            for number, text in planted(one, random.Random(one.seed))
        ]
        read = launches(tmp_path, [lie(one, number, text) for one, number, text in lies])
        for (one, number, text), launch in zip(lies, read, strict=True):
            lines = [{fact.line for fact in conflict.facts} for conflict in read_ledger(launch).conflicts]
            if any(number.line in core for core in lines):
                found[number.name] += 1
            else:
                missed.append((one.seed, number.name, number.text, text))
            # the others are true: what does not hold the lie would be a false contradiction
            assert all(number.line in core for core in lines), (one.seed, number.name, number.text, text)
    total = found.total() + len(missed)
    assert total > SEEDS / 4
    assert found.total() >= 0.99 * total, missed
    # not one kind of number alone
    assert len(found) > 20


#: Features under which tokens are whole pages of rest / bytes a token, and nothing else.
PLAIN = {"mla", "fp8", "dp_attention", "debug"}


def test_what_if_holds_what_the_release_would_compute(tmp_path):
    checked = 0
    for first in range(0, SEEDS // 4, 100):
        plain = [one for one in map(simulate, range(first, first + 100)) if one.features <= PLAIN]
        plain = [one for one in plain if one.truth.outcome == "ready" and one.args["mem_fraction_static"]]
        read = launches(tmp_path, [one.text for one in plain])
        for one, launch in zip(plain, read, strict=True):
            (budget,) = read_budgets(launch)
            for step in (Fraction(0), Fraction(3, 100), Fraction(-2, 100)):
                fraction = one.truth.fraction + step
                after = predict(launch, budget, Changes(mem_fraction_static=fraction)).after
                if after.tokens is None or not 0 < fraction < 1:
                    continue
                rest = one.truth.avail - one.truth.total * (1 - fraction)
                cell = max(rank.cell_size for rank in one.truth.ranks)
                page = one.truth.page_size
                tokens = rest // cell // page * page
                assert after.tokens.low <= tokens <= after.tokens.high, (one.seed, step)
                checked += 1
    assert checked > SEEDS / 10
