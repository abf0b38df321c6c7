"""A negative budget explained by another run: inputs exchanged one by one, until it would be positive.

fraction, free memory, weights of the good run --> the smallest set that is enough --> Verdict

The budget is SGLang's own formula (see `_budget`): total * fraction - weights, where weights = total - avail.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import NamedTuple

from sglogparse._comparison import (
    BUDGET,
    FORMULA_AVAIL,
    FORMULA_TOTAL,
    FRACTION,
    SET_UP,
    SMALLEST,
    ArgumentRow,
    EnvironmentRow,
    Fact,
    Given,
    MemoryRow,
    Side,
    Verdict,
    fact_of,
    quoted,
)
from sglogparse._contrast_fractions import InForce, Numbers, implies, in_force, near, numbers_of
from sglogparse._interval import Interval
from sglogparse._steps import Divergence

#: A gap of so many GiB is beyond anything that buffers of tens of MB can make.
_LARGE_GAP = 1
#: Buffers of the custom all-reduce a rank, MiB: three of 8 (of 16 on ROCm), in
#: distributed/device_communicators/custom_all_reduce.py, 0.4.0 and later.
_ALL_REDUCE = "24 MiB a rank (48 on ROCm)"


class Differences(NamedTuple):
    """What differs between the two runs."""

    arguments: Sequence[ArgumentRow]
    memory: Sequence[MemoryRow]
    surroundings: Sequence[EnvironmentRow]
    parted: Divergence | None


def value_text(interval: Interval, decimals: int = 3) -> str:
    """Return a number as its interval is written."""
    return interval.text(decimals)


START_MEMORY = "the free memory at the start"
WEIGHTS = "the weights"


def _rest(total: Interval, weights: Interval, fraction: Interval) -> Interval:
    """Return the budget: what the static share of the free memory leaves beside the weights, GiB."""
    return total * fraction - weights


def budget(good: Side, bad: Side, found: Differences) -> Verdict | None:
    """Explain a negative budget by exchanging its inputs for those of the good run, one by one."""
    a, b = good.run.letter, bad.run.letter
    lower, higher = in_force(bad), in_force(good)
    here = numbers_of(bad)
    smallest = fact_of(bad.facts, SMALLEST, inferred=True)
    if here is None or smallest is None:
        if lower and higher and lower.value.high < higher.value.low:
            return Verdict(
                "possible",
                f"possible: {FRACTION} is {lower.text} in {b} ({lower.how}) and {higher.text} in {a} "
                f"({higher.how}), and a lower fraction leaves less for the KV cache",
                (f"{b} has no line from which its budget follows",),
                advice=f"start {b} with --mem-fraction-static {higher.text}, as {a}",
            )
        return None
    if lower is None:
        if higher is None or higher.value.low <= smallest.high:
            return None
        return Verdict(
            "possible",
            f"possible: with the {higher.text} of {a} the budget of {b} would be positive; which {FRACTION} "
            f"{b} had is not in its log",
            _advice_numbers(bad, higher, here),
            advice=f"start {b} with --mem-fraction-static above {smallest.text}; {higher.text}, as {a}",
        )
    printed = fact_of(bad.facts, BUDGET)
    rest = _rest(here.total, here.weights, lower.value) if printed is None else printed.interval
    if rest.high >= 0:
        return None
    inputs = _inputs(good, bad, higher, lower)
    enough = _enough(inputs, here, lower)
    if not enough:
        return None
    gap = f"{b}'s budget is {_arithmetic(bad, lower, here, printed)}: no token fits"
    because = [gap]
    if len(enough) == 1 and len(enough[0]) == 1:
        text = f"explained by {inputs[enough[0][0]].told}; that alone makes {b} fail"
    elif len(enough[0]) == 1:
        text = f"explained by {' or '.join(name for (name,) in enough)}: each alone makes {b} fail"
        because += [inputs[name].told for (name,) in enough]
    else:
        text = f"explained by {' and '.join(enough[0])} together"
        because += [inputs[name].told for name in enough[0]]
    advice = f"start {b} with --mem-fraction-static of at least {smallest.text}"
    if Fraction(smallest.text) >= 1:
        advice = f"no --mem-fraction-static helps {b}: use more ranks, or a smaller model"
    elif enough[0] == (FRACTION,) and higher is not None:
        given = f"{value_text(_rest(here.total, here.weights, higher.value), 2)} GiB"
        because.append(f"with {a}'s {higher.text} it would be {given}")
        advice += f"; {higher.text}, as {a}, gives {given}"
    if higher is not None and higher.fact is not None and higher.fact.inferred:
        because.insert(0, implies(good, higher.fact))
    return Verdict("explained", text, tuple(because), _excluded(good, bad, found, rest), advice=advice)


class _Input(NamedTuple):
    """What one of the inputs of the budget is in the good run, and how both runs have it, in words."""

    good: Interval
    told: str


def _inputs(good: Side, bad: Side, higher: InForce | None, lower: InForce) -> dict[str, _Input]:
    """Return the inputs of the budget that the good run's log tells."""
    a, b = good.run.letter, bad.run.letter
    out = {}
    if higher is not None and not near(higher.value, lower.value):
        out[FRACTION] = _Input(higher.value, f"{FRACTION} {higher.text} in {a}, {lower.text} in {b}")
    there, here = numbers_of(good), numbers_of(bad)
    if there is not None and here is not None:
        pairs = ((START_MEMORY, there.total, here.total), (WEIGHTS, there.weights, here.weights))
        for name, mine, other in pairs:
            told = f"{name}: {value_text(mine, 2)} GiB in {a}, {value_text(other, 2)} GiB in {b}"
            out[name] = _Input(mine, told)
    return out


def _enough(inputs: dict[str, _Input], here: Numbers, lower: InForce) -> list[tuple[str, ...]]:
    """Return the smallest sets of the good run's inputs that make the bad run's budget positive."""
    for size in range(1, len(inputs) + 1):
        found = []
        for names in combinations(inputs, size):
            total, weights, fraction = (
                inputs[name].good if name in names else own
                for name, own in (
                    (START_MEMORY, here.total),
                    (WEIGHTS, here.weights),
                    (FRACTION, lower.value),
                )
            )
            if _rest(total, weights, fraction).low > 0:
                found.append(names)
        if found:
            return found
    return []


def _advice_numbers(bad: Side, fraction: InForce, here: Numbers) -> tuple[str, ...]:
    given = _rest(here.total, here.weights, fraction.value)
    return (f"{bad.run.letter}'s budget would be {value_text(given, 2)} GiB",)


def _arithmetic(side: Side, fraction: InForce, here: Numbers, printed: Fact | None) -> str:
    total, avail = fact_of(side.facts, FORMULA_TOTAL), fact_of(side.facts, FORMULA_AVAIL)
    rest = printed.text if printed else value_text(_rest(here.total, here.weights, fraction.value))
    outside = float(1 - (fraction.value.low + fraction.value.high) / 2)
    where = f" ({', '.join(f'{side.run.letter}:{line}' for line in avail.lines)})" if avail else ""
    numbers = f"{avail.text} - {total.text} x {outside:.4g} = " if total and avail else ""
    return f"{numbers}{rest} GiB{where}"


def _excluded(good: Side, bad: Side, found: Differences, rest: Interval) -> tuple[str, ...]:
    """Say what differs and cannot be the reason: the custom all-reduce, against a gap of GiB."""
    told = [row for row in found.arguments if "custom_all_reduce" in row.name]
    said = [row for row in found.surroundings if row.matter.startswith("allreduce")]
    if not (told or said) or -rest.high < _LARGE_GAP:
        return ()
    words = "; ".join(
        f"{row.name} is {quoted(row.name, given_of(row, good))} in {good.run.letter}, "
        f"{quoted(row.name, given_of(row, bad))} in {bad.run.letter}"
        for row in told
    )
    gap = value_text(Interval(-rest.high, -rest.low), 1)
    size = f"its buffers are {_ALL_REDUCE}, against a gap of {gap} GiB"
    measured = [_spread(side, SET_UP) for side in (good, bad)]
    proof = ""
    if all(measured):
        proof = f"; the distributed set-up, which allocates them, took {measured[0]} GiB in "
        proof += (
            "both"
            if measured[0] == measured[1]
            else f"{good.run.letter} and {measured[1]} in {bad.run.letter}"
        )
    return (f"the custom all-reduce{f' ({words})' if words else ''}: {size}{proof}",)


def given_of(row: ArgumentRow, side: Side) -> Given:
    """Return the value of one of two sides: the reference has the smallest letter."""
    return row.values[0 if side.run.letter == "A" else 1]


def _spread(side: Side, quantity: str) -> str | None:
    found = [one for one in side.facts if one.quantity == quantity]
    if not found:
        return None
    least, most = min(found, key=lambda one: one.low), max(found, key=lambda one: one.high)
    return least.text if least.text == most.text else f"{least.text}-{most.text}"
