"""Why two runs fared differently: the verdict of a comparison.

    outcomes and causes --> budgets exchanged one by one (fraction, free memory, weights)  --> explained
                        --> differences that bear on the cause                             --> possible
                        --> nothing of that kind                                           --> undecided

A reason is given only where numbers of the logs, or the text of the fault itself, carry it. The budget is
SGLang's own formula (see `_budget`): total * fraction - weights, where weights = total - avail.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from pathlib import PurePath
from typing import NamedTuple

from sglogparse._cheap import lazy
from sglogparse._comparison import (
    AFTER_POOLS,
    BUDGET,
    CONTEXT,
    FORMULA_AVAIL,
    FORMULA_TOTAL,
    FRACTION,
    GRAPHS,
    SET_UP,
    SMALLEST,
    START,
    ArgumentRow,
    EnvironmentRow,
    Fact,
    Given,
    MemoryRow,
    Side,
    Throughput,
    Verdict,
    fact_of,
    quoted,
    span_of,
)
from sglogparse._interval import Interval
from sglogparse._report import Outcome
from sglogparse._steps import Divergence, steps

_GOOD = (Outcome.READY, Outcome.STOPPED)
_BAD = (Outcome.CRASHED, Outcome.HUNG)
#: Causes that a server which serves can suffer from as a whole.
_AILING = ("perf.", "kv.", "memory.leak", "hang.", "pd.")
#: How far an implied fraction may lie from the one in force: page rounding, headroom, drifting free memory.
_SLACK = Interval.exactly("0.01").low
#: Two runs whose weights and devices differ by less are two starts of one server, as far as memory tells.
_ALIKE = Interval.exactly("0.02").low
#: A gap of so many GiB is beyond anything that buffers of tens of MB can make.
_LARGE_GAP = 1
#: Buffers of the custom all-reduce a rank, MiB: three of 8 (of 16 on ROCm), in
#: distributed/device_communicators/custom_all_reduce.py, 0.4.0 and later.
_ALL_REDUCE = "24 MiB a rank (48 on ROCm)"
#: Arguments that can bear on the speed of decoding.
_SPEED = (
    r"backend|quantiz|dtype|cuda_graph|torch_compile|all_?reduce|speculative|overlap|deepep|_size$|max_running"
    r"|deterministic|continuous_decode"
)
#: Throughput that differs by less is not worth a word.
_FASTER = 0.1


class _Differences(NamedTuple):
    """What differs between the two runs."""

    arguments: Sequence[ArgumentRow]
    memory: Sequence[MemoryRow]
    surroundings: Sequence[EnvironmentRow]
    parted: Divergence | None


class _Fraction(NamedTuple):
    """The fraction that a run was started with, as far as its log tells."""

    #: as a person would give it
    text: str
    value: Interval
    #: declared, printed, or implied by the pool
    how: str
    fact: Fact | None


def judge(
    one: Side,
    two: Side,
    *,
    arguments: Sequence[ArgumentRow],
    memory: Sequence[MemoryRow],
    surroundings: Sequence[EnvironmentRow],
    parted: Divergence | None,
    speed: Throughput,
) -> Verdict:
    """Return what the comparison of a run with its reference comes to."""
    found = _Differences(arguments, memory, surroundings, parted)
    if one.launch is None or two.launch is None:
        empty = [side.run.letter for side in (one, two) if side.launch is None]
        said = f"{empty[0]} is an empty log" if len(empty) == 1 else "both logs are empty"
        return Verdict("incomparable", f"cannot be compared: {said}")
    if one.launch.lines["text"].equals(two.launch.lines["text"]):
        return Verdict("equal", "equal: both have the same lines")
    if not _in_common(one, two, found):
        return Verdict(
            "incomparable", "cannot be compared: the logs have no argument, step or number in common"
        )
    verdict = _compared(one, two, found, speed)
    roles = _role(one), _role(two)
    if None not in roles and roles[0] != roles[1]:
        told = (
            f"{one.run.letter} is a {roles[0]} server, {two.run.letter} a {roles[1]} server: much must differ"
        )
        verdict = replace(verdict, because=(told, *verdict.because))
    models = _models(one, two)
    if models is not None:
        told = f"the models differ: {models[0]} in {one.run.letter}, {models[1]} in {two.run.letter}"
        verdict = replace(verdict, because=(told, *verdict.because))
    other_weights = verdict.text.startswith(f"explained by {_WEIGHTS}") and not _same_model(one, two)
    if verdict.kind == "explained" and (
        other_weights or (models is not None and not verdict.text.startswith(f"explained by {FRACTION}"))
    ):
        text = f"possible: {verdict.text.removeprefix('explained by ')}"
        verdict = replace(verdict, kind="possible", text=text)
    contradictions = _contradictions(one, two)
    if verdict.kind == "equal":  # what is odd in one is odd in both
        return replace(verdict, because=(*verdict.because, *contradictions))
    if contradictions and verdict.kind in ("alike", "unknown"):
        because = (verdict.text, *verdict.because)
        verdict = replace(verdict, kind="contradiction", text=contradictions[0], because=because)
    # what the contradiction says need not be said again
    because = tuple(one for one in verdict.because if not any(one in told for told in contradictions))
    return replace(verdict, because=because, contradictions=contradictions)


def _compared(one: Side, two: Side, found: _Differences, speed: Throughput) -> Verdict:
    """Return the verdict by what became of the two runs."""
    fates = tuple(_fate(side) for side in (one, two))
    well = _is_well(one), _is_well(two)
    if fates == ("serves", "serves") and well[0] != well[1]:
        return _explained(*((one, two) if well[0] else (two, one)), found)
    if fates[0] == fates[1] and (fates[0] != "fails" or one.run.cause == two.run.cause):
        return _same_fate(one, two, found, speed, fates[0])
    if "unknown" in fates or "starting" in fates:
        return _not_known(one, two, fates)
    if fates == ("fails", "fails"):
        text = f"both fail, each in its own way: {_failure(one)}, {_failure(two)}"
        return Verdict("undecided", text)
    return _explained(*((one, two) if fates[0] == "serves" else (two, one)), found)


def _in_common(one: Side, two: Side, found: _Differences) -> bool:
    if one.launch is None or two.launch is None:
        return False
    shared = set(steps(one.launch)) & set(steps(two.launch))
    numbers = any(all(row.cells) for row in found.memory) or (_numbers(one) and _numbers(two))
    served = all(not side.launch.frames["decode_batch"].is_empty() for side in (one, two) if side.launch)
    return bool(shared or numbers or served or set(one.launch.args) & set(two.launch.args))


def _fate(side: Side) -> str:
    outcome = side.run.outcome
    if outcome in _GOOD:
        return "serves"
    return "fails" if outcome in _BAD else outcome.value


def _is_well(side: Side) -> bool:
    return not side.run.cause.startswith(_AILING)


def _failure(side: Side) -> str:
    return f"{side.run.letter} {side.run.headline.rstrip('.')}"


# ------------------------------------------------------------------ fractions that cannot both be


def _fraction(side: Side) -> _Fraction | None:
    """Return the fraction that a run was started with: its pool is believed before its arguments."""
    implied, printed = fact_of(side.facts, FRACTION, inferred=True), fact_of(side.facts, FRACTION)
    declared = _declared(side)
    if implied is not None:
        if declared is not None and _near(declared.value, implied.interval):
            return declared._replace(fact=implied)
        return _Fraction(implied.text, implied.interval, "implied by its pool", implied)
    if printed is not None:
        return _Fraction(printed.text, printed.interval, "printed", printed)
    return declared


def _declared(side: Side) -> _Fraction | None:
    """Return the fraction that the arguments name, or the one that the server put in its place."""
    if side.launch is None:
        return None
    adjusted = side.launch.frames["mem_fraction_adjusted"].drop_nulls("fraction")
    value = adjusted["fraction"][-1] if not adjusted.is_empty() else side.launch.argument(FRACTION)
    if not isinstance(value, float) or not 0 < value < 1:
        return None
    text = f"{value:g}"
    return _Fraction(
        text, Interval.exactly(repr(value)), "declared" if adjusted.is_empty() else "adjusted", None
    )


def _near(one: Interval, two: Interval) -> bool:
    return one.low - two.high <= _SLACK and two.low - one.high <= _SLACK


def _implies(side: Side, fact: Fact) -> str:
    lines = ", ".join(f"{side.run.letter}:{line}" for line in fact.lines)
    return f"{side.run.letter}'s pool implies {FRACTION} = {fact.text} {span_of(fact)} ({lines})"


def _contradictions(one: Side, two: Side) -> tuple[str, ...]:
    """Return what the logs say of the fraction that cannot be true, of one run or of both."""
    out = []
    for side in (one, two):
        implied, declared = fact_of(side.facts, FRACTION, inferred=True), _declared(side)
        if implied and declared and not _near(implied.interval, declared.value):
            out.append(
                f"{_implies(side, implied)}, but {declared.text} is {declared.how}: its pool is not what "
                "these arguments give"
            )
    mine, other = _fraction(one), _fraction(two)
    said = [fraction for fraction in map(_declared, (one, two)) if fraction is not None]
    # two values that are declared are a difference, and no surprise
    surprising = len(said) < 2 or _near(said[0].value, said[1].value)
    if surprising and mine and other and not _near(mine.value, other.value) and _believed_equal(one, two):
        letters = f"{one.run.letter} and {two.run.letter}"
        told = f"{_told_by(one, mine)}, {_told_by(two, other)}"
        out.append(f"{letters} cannot have been started equally: {told}")
    return (*out, *_other_context(one, two))


def _other_context(one: Side, two: Side) -> tuple[str, ...]:
    """Return what the printed lengths of the context say against two starts that are believed equal."""
    mine, other = fact_of(one.facts, CONTEXT), fact_of(two.facts, CONTEXT)
    if mine is None or other is None or mine.low == other.low or not _believed_equal(one, two):
        return ()
    launches = [side.launch for side in (one, two) if side.launch is not None]
    declared = [launch.args["context_length"] for launch in launches if "context_length" in launch.args]
    if len(declared) == 2 and declared[0] != declared[1]:
        return ()
    told = ", ".join(
        f"{fact.text} in {side.run.letter} ({side.run.letter}:{fact.lines[0]})"
        for side, fact in ((one, mine), (two, other))
    )
    letters = f"{one.run.letter} and {two.run.letter}"
    return (f"{letters} cannot have been started equally: the context is {told}",)


def _models(one: Side, two: Side) -> tuple[str, str] | None:
    """Return the names of two models that differ; None where they are equal or one is not known."""
    mine, other = _model(one), _model(two)
    return (mine, other) if mine and other and not _same_model(one, two) else None


def _same_model(one: Side, two: Side) -> bool:
    """Tell whether both arguments name one model, in whatever folder."""
    mine, other = _model(one), _model(two)
    return bool(mine) and mine.casefold() == other.casefold()


def _model(side: Side) -> str:
    """Return the name of a model without its folders; empty where the log does not tell.

    A snapshot of the hub's cache is named by the folder that holds it, not by its hash.
    """
    path = side.launch.argument("model_path") if side.launch else None
    if not isinstance(path, str):
        return ""
    cached = _CACHED.search(path)
    return cached[1].replace("--", "/") if cached else PurePath(path).name or path


#: A model in the cache of the hub: models--owner--name/snapshots/hash.
_CACHED = lazy(r"models--([^/]+)/snapshots/[0-9a-f]{20,}/?$")


def _role(side: Side) -> str | None:
    """Return which part of a PD deployment a server is; None for one that does all, or when nothing tells."""
    mode = side.launch.argument("disaggregation_mode") if side.launch else None
    return mode if mode in ("prefill", "decode") else None


def _told_by(side: Side, fraction: _Fraction) -> str:
    if fraction.fact is not None and fraction.fact.inferred:
        return _implies(side, fraction.fact)
    return f"{side.run.letter} has {fraction.text} ({fraction.how})"


def _believed_equal(one: Side, two: Side) -> bool:
    """Tell whether two runs look like starts of one server: as many ranks, the same weights and devices."""
    there, here = _numbers(one), _numbers(two)
    whole = one.run.arguments_cut is not None and two.run.arguments_cut is not None
    if there is None or here is None or (whole and len(one.run.ranks) != len(two.run.ranks)):
        return False
    pairs = ((there.total, here.total), (there.weights, here.weights))
    return all(abs(a.low - b.low) <= _ALIKE * max(abs(a.low), abs(b.low)) for a, b in pairs)


# ------------------------------------------------------------------ the same fate


def _same_fate(one: Side, two: Side, found: _Differences, speed: Throughput, fate: str) -> Verdict:
    steps = [row for row in found.memory if row.differs]
    counts = [
        _count(len(found.arguments), "argument"),
        _count(len(steps), "memory number"),
        _count(len(found.surroundings), "message of the start", "messages of the start"),
    ]
    differences = [text for text in counts if not text.startswith("0 ")]
    slower = [band for band in speed.bands if abs(band.ratio - 1) > _FASTER]
    if not differences and found.parted is None and not slower and _same_outcome(one, two):
        return Verdict("equal", "equal: nothing that is compared differs")
    said = {
        "serves": "both serve",
        "starting": "both logs end during the start",
        "unknown": "neither log shows how its server fared",
        "fails": f"both fail alike: {one.run.headline}",
    }[fate]
    because = []
    if slower:
        band = max(slower, key=lambda one: min(one.reference_lines, one.other_lines))
        words = "faster" if band.ratio > 1 else "slower"
        load = f"{band.least}-{band.most}" if band.most > band.least else f"{band.least}"
        because.append(
            f"{two.run.letter} decodes {abs(band.ratio - 1) * 100:.0f}% {words} at {load} running requests "
            f"(median {band.reference:.1f} against {band.other:.1f} tokens/s, "
            f"n={band.reference_lines} and {band.other_lines})"
        )
        rows = [row for row in found.arguments if re.search(_SPEED, row.name) and _told(row)]
        because += [f"that can bear on it: {_sentence(row, one, two)}" for row in rows[:3]]
    if fate == "unknown":
        return Verdict("unknown", said, tuple(because))
    tail = f"; {', '.join(differences)} differ" if differences else ""
    if len(differences) == 1 and differences[0].startswith("1 "):
        tail += "s"
    if not differences and found.parted is None and not slower:
        tail = f"; {one.run.letter}: {one.run.headline}; {two.run.letter}: {two.run.headline}"
    return Verdict("alike", f"{said}{tail or '; the course of the start differs'}", tuple(because))


def _same_outcome(one: Side, two: Side) -> bool:
    return (one.run.outcome, one.run.cause) == (two.run.outcome, two.run.cause)


def _count(number: int, what: str, many: str = "") -> str:
    return f"{number} {what if number == 1 else many or what + 's'}"


def _not_known(one: Side, two: Side, fates: tuple[str, ...]) -> Verdict:
    lost = [
        side.run.letter
        for side, fate in zip((one, two), fates, strict=True)
        if fate in ("starting", "unknown")
    ]
    text = (
        f"{lost[0]} does not show how its server fared"
        if len(lost) == 1
        else "neither log shows how its server fared"
    )
    told = "; ".join(f"{side.run.letter}: {side.run.headline}" for side in (one, two))
    return Verdict(
        "unknown",
        f"undecided: {text}",
        (told,),
    )


# ------------------------------------------------------------------ different fates


def _explained(good: Side, bad: Side, found: _Differences) -> Verdict:
    cause = bad.run.cause
    verdict: Verdict | None = None
    if cause == "memory.kv_budget":
        verdict = _budget(good, bad, found)
    elif cause in ("memory.graph_capture", "memory.runtime", "memory.weights", "memory.imbalance"):
        verdict = _out_of_memory(good, bad, found)
    verdict = verdict or _named(good, bad, found) or _related(good, bad, found)
    if verdict is not None:
        return verdict
    numbers = [row for row in found.memory if row.differs]
    told = [
        *(_sentence(row, good, bad) for row in found.arguments[:3]),
        *(f"{row.quantity}: {_cells(row)}" for row in numbers[:2]),
    ]
    text = f"undecided: {_failure(bad)}, and nothing that differs is known to bear on it"
    if not told and not found.surroundings:
        text = f"undecided: {_failure(bad)}, and nothing that is compared differs before it: look elsewhere"
    return Verdict("undecided", text, tuple(f"what differs: {one}" for one in told))


def _cells(row: MemoryRow) -> str:
    pairs = zip(row.cells, "AB", strict=False)
    return ", ".join(f"{cell.text} in {letter}" for cell, letter in pairs if cell)


def _value(interval: Interval, decimals: int = 3) -> str:
    return interval.text(decimals)


_START = "the free memory at the start"
_WEIGHTS = "the weights"


class _Numbers(NamedTuple):
    """What enters the token budget of a run, GiB."""

    total: Interval
    avail: Interval

    @property
    def weights(self) -> Interval:
        """Return what loading took."""
        return self.total - self.avail


def _numbers(side: Side) -> _Numbers | None:
    total, avail = fact_of(side.facts, FORMULA_TOTAL), fact_of(side.facts, FORMULA_AVAIL)
    return _Numbers(total.interval, avail.interval) if total and avail else None


def _rest(total: Interval, weights: Interval, fraction: Interval) -> Interval:
    """Return the budget: what the static share of the free memory leaves beside the weights, GiB."""
    return total * fraction - weights


def _budget(good: Side, bad: Side, found: _Differences) -> Verdict | None:
    """Explain a negative budget by exchanging its inputs for those of the good run, one by one."""
    a, b = good.run.letter, bad.run.letter
    lower, higher = _fraction(bad), _fraction(good)
    here = _numbers(bad)
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
        given = f"{_value(_rest(here.total, here.weights, higher.value), 2)} GiB"
        because.append(f"with {a}'s {higher.text} it would be {given}")
        advice += f"; {higher.text}, as {a}, gives {given}"
    if higher is not None and higher.fact is not None and higher.fact.inferred:
        because.insert(0, _implies(good, higher.fact))
    return Verdict("explained", text, tuple(because), _excluded(good, bad, found, rest), advice=advice)


class _Input(NamedTuple):
    """What one of the inputs of the budget is in the good run, and how both runs have it, in words."""

    good: Interval
    told: str


def _inputs(good: Side, bad: Side, higher: _Fraction | None, lower: _Fraction) -> dict[str, _Input]:
    """Return the inputs of the budget that the good run's log tells."""
    a, b = good.run.letter, bad.run.letter
    out = {}
    if higher is not None and not _near(higher.value, lower.value):
        out[FRACTION] = _Input(higher.value, f"{FRACTION} {higher.text} in {a}, {lower.text} in {b}")
    there, here = _numbers(good), _numbers(bad)
    if there is not None and here is not None:
        pairs = ((_START, there.total, here.total), (_WEIGHTS, there.weights, here.weights))
        for name, mine, other in pairs:
            told = f"{name}: {_value(mine, 2)} GiB in {a}, {_value(other, 2)} GiB in {b}"
            out[name] = _Input(mine, told)
    return out


def _enough(inputs: dict[str, _Input], here: _Numbers, lower: _Fraction) -> list[tuple[str, ...]]:
    """Return the smallest sets of the good run's inputs that make the bad run's budget positive."""
    for size in range(1, len(inputs) + 1):
        found = []
        for names in combinations(inputs, size):
            total, weights, fraction = (
                inputs[name].good if name in names else own
                for name, own in ((_START, here.total), (_WEIGHTS, here.weights), (FRACTION, lower.value))
            )
            if _rest(total, weights, fraction).low > 0:
                found.append(names)
        if found:
            return found
    return []


def _advice_numbers(bad: Side, fraction: _Fraction, here: _Numbers) -> tuple[str, ...]:
    given = _rest(here.total, here.weights, fraction.value)
    return (f"{bad.run.letter}'s budget would be {_value(given, 2)} GiB",)


def _arithmetic(side: Side, fraction: _Fraction, here: _Numbers, printed: Fact | None) -> str:
    total, avail = fact_of(side.facts, FORMULA_TOTAL), fact_of(side.facts, FORMULA_AVAIL)
    rest = printed.text if printed else _value(_rest(here.total, here.weights, fraction.value))
    outside = float(1 - (fraction.value.low + fraction.value.high) / 2)
    where = f" ({', '.join(f'{side.run.letter}:{line}' for line in avail.lines)})" if avail else ""
    numbers = f"{avail.text} - {total.text} x {outside:.4g} = " if total and avail else ""
    return f"{numbers}{rest} GiB{where}"


def _excluded(good: Side, bad: Side, found: _Differences, rest: Interval) -> tuple[str, ...]:
    """Say what differs and cannot be the reason: the custom all-reduce, against a gap of GiB."""
    told = [row for row in found.arguments if "custom_all_reduce" in row.name]
    said = [row for row in found.surroundings if row.matter.startswith("allreduce")]
    if not (told or said) or -rest.high < _LARGE_GAP:
        return ()
    words = "; ".join(
        f"{row.name} is {quoted(row.name, _of(row, good))} in {good.run.letter}, "
        f"{quoted(row.name, _of(row, bad))} in {bad.run.letter}"
        for row in told
    )
    size = f"its buffers are {_ALL_REDUCE}, against a gap of {_value(Interval(-rest.high, -rest.low), 1)} GiB"
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


def _of(row: ArgumentRow, side: Side) -> Given:
    """Return the value of one of two sides: the reference has the smallest letter."""
    return row.values[0 if side.run.letter == "A" else 1]


def _spread(side: Side, quantity: str) -> str | None:
    found = [one for one in side.facts if one.quantity == quantity]
    if not found:
        return None
    least, most = min(found, key=lambda one: one.low), max(found, key=lambda one: one.high)
    return least.text if least.text == most.text else f"{least.text}-{most.text}"


# ------------------------------------------------------------------ out of memory


def _least(side: Side, quantity: str) -> Fact | None:
    found = [one for one in side.facts if one.quantity == quantity]
    return min(found, key=lambda one: one.low, default=None)


def _out_of_memory(good: Side, bad: Side, found: _Differences) -> Verdict | None:
    """Explain an out-of-memory by what the good run had left, and what made the bad one have less."""
    a, b = good.run.letter, bad.run.letter
    reasons, advice = [], None
    lower, higher = _fraction(good), _fraction(bad)
    if lower and higher and not _near(lower.value, higher.value) and higher.value.low > lower.value.high:
        reasons.append(
            f"{FRACTION} is {higher.text} in {b} ({higher.how}) and {lower.text} in {a} ({lower.how}): more "
            "for the pools, less for graphs and activations"
        )
        advice = f"start {b} with --mem-fraction-static {lower.text}, as {a}"
    for quantity in (START, AFTER_POOLS):
        mine, other = _least(good, quantity), _least(bad, quantity)
        if mine and other and (mine.interval - other.interval).low > Interval.exactly("0.5").low:
            less = _value(mine.interval - other.interval, 2)
            tail = ": another process holds memory, or the device is smaller" if quantity == START else ""
            reasons.append(
                f"{less} GiB less {quantity} in {b} ({other.text} at {b}:{other.lines[0]}, {mine.text} at "
                f"{a}:{mine.lines[0]}){tail}"
            )
    graphs, left = _most(good, GRAPHS), _least(bad, AFTER_POOLS)
    enough = (
        _believed_equal(good, bad)
        and bad.run.cause == "memory.graph_capture"
        and graphs is not None
        and left is not None
        and left.high < graphs.low
    )
    rows = [row for row in found.arguments if row.matters_for == "memory" and row.name != FRACTION]
    reasons += [_sentence(row, good, bad) for row in rows[:3]]
    if not reasons:
        return None
    if enough and graphs and left:
        return Verdict(
            "explained",
            f"explained by memory: the graphs took {graphs.text} GiB in {a}, and {b} had {left.text} GiB "
            "left after its pools",
            tuple(reasons),
            advice=advice,
        )
    text = f"possible: {b} runs out of device memory, and what bears on that differs"
    return Verdict("possible", text, tuple(reasons), advice=advice)


def _most(side: Side, quantity: str) -> Fact | None:
    found = [one for one in side.facts if one.quantity == quantity]
    return max(found, key=lambda one: one.high, default=None)


def _sentence(row: ArgumentRow, good: Side, bad: Side) -> str:
    return (
        f"{row.name} is {quoted(row.name, _of(row, good))} in {good.run.letter} and "
        f"{quoted(row.name, _of(row, bad))} in {bad.run.letter}"
    )


# ------------------------------------------------------------------ other causes

#: Cause -> the arguments and the matters of the surroundings that can bear on it.
_BEARS: tuple[tuple[str, str, str], ...] = (
    (
        r"gpu\.|kernel\.|dist\.kernel_comm",
        r"backend|quantiz|dtype|cuda_graph|torch_compile|all_?reduce|flashinfer|speculative|deepep|page_size",
        r"attention|moe|quantiz|dtype|allreduce|feature|page size",
    ),
    (
        r"dist\.|hang\.",
        r"^(?:tp|pp|dp|ep)_size$|nnodes|nccl|all_?reduce|dist_timeout|backend|watchdog",
        r"nccl|allreduce|ray",
    ),
    (
        r"memory\.kv_budget",
        r"mem_fraction|kv_cache_dtype|quantiz|_size$|offload|speculative|hierarchical|model_path",
        r"quantiz",
    ),
    (
        r"memory\.host",
        r"hicache|hierarchical|offload|worker_num|mmap|prefetch|saver|mm_",
        r"hicache|buffer",
    ),
    (
        r"kv\.|memory\.leak|perf\.",
        r"max_running|max_total|mem_fraction|context_length|radix|chunked|schedule_cons",
        r"max running",
    ),
    (
        r"model\.",
        r"model_path|tokenizer|quantiz|load_format|revision|remote_code|override|model_impl|dtype",
        r"quantiz|dtype|weights",
    ),
    (r"pd\.", r"disaggregation|_size$|page_size|kv_cache_dtype", r"parallel"),
)


def _named(good: Side, bad: Side, found: _Differences) -> Verdict | None:
    """Return an argument that differs and that the fault itself names."""
    root = bad.run.root
    if root is None:
        return None
    text = root.text.replace("-", "_").casefold()
    for row in found.arguments:
        if len(row.name) > 5 and re.search(rf"(?<![a-z0-9_]){re.escape(row.name)}(?![a-z0-9_])", text):
            return Verdict(
                "possible",
                f"possible: {_sentence(row, good, bad)}, and {bad.run.letter}'s fault names it "
                f"({bad.run.letter}:{root.line})",
                advice=f"start {bad.run.letter} with {row.name} as in {good.run.letter}",
            )
    return None


def _related(good: Side, bad: Side, found: _Differences) -> Verdict | None:
    """Return the differences of a kind that can bear on the cause."""
    names, matters = next(
        ((args, kinds) for cause, args, kinds in _BEARS if re.match(cause, bad.run.cause)), ("^$", "^$")
    )
    rows = [row for row in found.arguments if re.search(names, row.name) and _told(row)]
    said = [row for row in found.surroundings if re.match(matters, row.matter)]
    a, b = good.run.letter, bad.run.letter
    reasons = [_sentence(row, good, bad) for row in rows[:4]]
    reasons += [f"the log says other things of {row.matter} (below)" for row in said[:2]]
    if bad.run.cause.startswith(("code.", "process.")) and good.run.version_window != bad.run.version_window:
        windows = [side.run.version_window for side in (good, bad)]
        if all(windows):
            reasons.append(f"the releases differ: {windows[0]} in {a}, {windows[1]} in {b}")
    if not reasons:
        return None
    return Verdict("possible", f"possible: {_failure(bad)}; what can bear on it differs", tuple(reasons))


def _told(row: ArgumentRow) -> bool:
    return any(one.state == "given" for one in row.values)
