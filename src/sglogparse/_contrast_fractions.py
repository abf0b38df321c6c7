"""What fractions two runs were started with, as far as their logs tell, and where those cannot both be.

arguments, printed and implied fractions --> the one in force --> contradictions
"""

from __future__ import annotations

from typing import NamedTuple

from sglogparse._comparison import (
    CONTEXT,
    FORMULA_AVAIL,
    FORMULA_TOTAL,
    FRACTION,
    Fact,
    Side,
    fact_of,
    span_of,
)
from sglogparse._interval import Interval

#: How far an implied fraction may lie from the one in force: page rounding, headroom, drifting free memory.
_SLACK = Interval.exactly("0.01").low
#: Two runs whose weights and devices differ by less are two starts of one server, as far as memory tells.
_ALIKE = Interval.exactly("0.02").low


class InForce(NamedTuple):
    """The fraction that a run was started with, as far as its log tells."""

    #: as a person would give it
    text: str
    value: Interval
    #: declared, printed, or implied by the pool
    how: str
    fact: Fact | None


def in_force(side: Side) -> InForce | None:
    """Return the fraction that a run was started with: its pool is believed before its arguments."""
    implied, printed = fact_of(side.facts, FRACTION, inferred=True), fact_of(side.facts, FRACTION)
    declared = _declared(side)
    if implied is not None:
        if declared is not None and near(declared.value, implied.interval):
            return declared._replace(fact=implied)
        return InForce(implied.text, implied.interval, "implied by its pool", implied)
    if printed is not None:
        return InForce(printed.text, printed.interval, "printed", printed)
    return declared


def _declared(side: Side) -> InForce | None:
    """Return the fraction that the arguments name, or the one that the server put in its place."""
    if side.launch is None:
        return None
    adjusted = side.launch.frames["mem_fraction_adjusted"].drop_nulls("fraction")
    value = adjusted["fraction"][-1] if not adjusted.is_empty() else side.launch.argument(FRACTION)
    if not isinstance(value, float) or not 0 < value < 1:
        return None
    text = f"{value:g}"
    return InForce(
        text, Interval.exactly(repr(value)), "declared" if adjusted.is_empty() else "adjusted", None
    )


def near(one: Interval, two: Interval) -> bool:
    """Tell whether two fractions may be one, for all that page rounding and drifting memory do."""
    return one.low - two.high <= _SLACK and two.low - one.high <= _SLACK


def implies(side: Side, fact: Fact) -> str:
    """Return what a run's pool implies of its fraction, in words."""
    lines = ", ".join(f"{side.run.letter}:{line}" for line in fact.lines)
    return f"{side.run.letter}'s pool implies {FRACTION} = {fact.text} {span_of(fact)} ({lines})"


def contradictions_of(one: Side, two: Side) -> tuple[str, ...]:
    """Return what the logs say of the fraction that cannot be true, of one run or of both."""
    out = []
    for side in (one, two):
        implied, declared = fact_of(side.facts, FRACTION, inferred=True), _declared(side)
        if implied and declared and not near(implied.interval, declared.value):
            out.append(
                f"{implies(side, implied)}, but {declared.text} is {declared.how}: its pool is not what "
                "these arguments give"
            )
    mine, other = in_force(one), in_force(two)
    said = [fraction for fraction in map(_declared, (one, two)) if fraction is not None]
    # two values that are declared are a difference, and no surprise
    surprising = len(said) < 2 or near(said[0].value, said[1].value)
    if surprising and mine and other and not near(mine.value, other.value) and believed_equal(one, two):
        letters = f"{one.run.letter} and {two.run.letter}"
        told = f"{_told_by(one, mine)}, {_told_by(two, other)}"
        out.append(f"{letters} cannot have been started equally: {told}")
    return (*out, *_other_context(one, two))


def _other_context(one: Side, two: Side) -> tuple[str, ...]:
    """Return what the printed lengths of the context say against two starts that are believed equal."""
    mine, other = fact_of(one.facts, CONTEXT), fact_of(two.facts, CONTEXT)
    if mine is None or other is None or mine.low == other.low or not believed_equal(one, two):
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


def _told_by(side: Side, fraction: InForce) -> str:
    if fraction.fact is not None and fraction.fact.inferred:
        return implies(side, fraction.fact)
    return f"{side.run.letter} has {fraction.text} ({fraction.how})"


def believed_equal(one: Side, two: Side) -> bool:
    """Tell whether two runs look like starts of one server: as many ranks, the same weights and devices."""
    there, here = numbers_of(one), numbers_of(two)
    whole = one.run.arguments_cut is not None and two.run.arguments_cut is not None
    if there is None or here is None or (whole and len(one.run.ranks) != len(two.run.ranks)):
        return False
    pairs = ((there.total, here.total), (there.weights, here.weights))
    return all(abs(a.low - b.low) <= _ALIKE * max(abs(a.low), abs(b.low)) for a, b in pairs)


class Numbers(NamedTuple):
    """What enters the token budget of a run, GiB."""

    total: Interval
    avail: Interval

    @property
    def weights(self) -> Interval:
        """Return what loading took."""
        return self.total - self.avail


def numbers_of(side: Side) -> Numbers | None:
    """Return the numbers that a run's budget is made of; None where its log does not print them."""
    total, avail = fact_of(side.facts, FORMULA_TOTAL), fact_of(side.facts, FORMULA_AVAIL)
    return Numbers(total.interval, avail.interval) if total and avail else None
