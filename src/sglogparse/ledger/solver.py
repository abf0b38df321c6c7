"""Interval propagation over equations: what numbers imply, and which of them cannot all be true.

facts (a bound and the line it comes from) + equations --> the bounds of every variable, each with the facts
that it rests on; where two bounds cross, the smallest set of facts that makes them cross

An equation narrows the bounds of each of its variables by those of the others, until nothing changes. A bound
remembers the facts it rests on (a bit mask), so that a crossing names a small set at once; of that, facts are
left out one by one as long as the crossing stays (a minimal core).

Numbers are integers in units of 2^-40, and every step rounds outward: no true value is ever left out, and
bounds that creep towards each other end after finitely many steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from operator import itemgetter
from typing import Protocol

from sglogparse._cheap import dataclass
from sglogparse._interval import Interval

Variable = Hashable
#: The solver counts in units of 2^-40 of what a variable is measured in.
_BITS = 40
_ONE = 1 << _BITS
#: A bound that moves by less than this is left as it is: a bound may be wider than it need be, never tighter.
_STEP = 1 << 12
#: Conflicts that are looked for: numbers with so many are not those of one launch, and support nothing.
_MOST_CONFLICTS = 12
#: How often one variable is narrowed at most.
_PATIENCE = 64


@dataclass(frozen=True)
class Fact:
    """A bound that is given: a printed number with its line, or an assumption with its reason."""

    variable: Variable
    interval: Interval
    #: the line that prints it; None for an assumption
    line: int | None
    #: the number as it is printed, with its name; the assumption in words
    text: str


#: One end of an interval, and the facts (lower bits) and equations (bits above) that it rests on: a pair,
#: as thousands are made for a launch.
Bound = tuple[int, int]
Narrowed = tuple[Variable, Bound | None, Bound | None]


class Box:
    """The lowest and the highest value of every variable that is bounded."""

    def __init__(self) -> None:
        self.low: dict[Variable, Bound] = {}
        self.high: dict[Variable, Bound] = {}

    def both(self, variable: Variable) -> tuple[Bound, Bound] | None:
        """Return both ends of a variable; None when one is open."""
        low, high = self.low.get(variable), self.high.get(variable)
        return None if low is None or high is None else (low, high)


class Equation(Protocol):
    """Something that holds between variables, with where it stands in SGLang's source."""

    @property
    def name(self) -> str:
        """Return the equation as a person would write it."""

    @property
    def source(self) -> str:
        """Return where SGLang computes it."""

    @property
    def variables(self) -> Sequence[Variable]:
        """Return the variables that it ties together."""

    def narrow(self, box: Box) -> list[Narrowed]:
        """Return the bounds of each variable that follow from those of the others."""


@dataclass(frozen=True)
class Linear:
    """Multiples of variables that sum, with a constant, to zero."""

    name: str
    terms: Mapping[Variable, int]
    source: str = ""
    constant: int = 0

    @property
    def variables(self) -> Sequence[Variable]:
        """Return the variables that it ties together."""
        return tuple(self.terms)

    def narrow(self, box: Box) -> list[Narrowed]:
        """Return the bounds of each term that get tighter: what the others leave, by its factor."""
        lows, highs = box.low, box.high
        terms: list[tuple[Variable, int, Bound | None, Bound | None, int, int]] = []
        least = most = self.constant << _BITS
        open_below = open_above = 0
        for variable, factor in self.terms.items():
            low, high = lows.get(variable), highs.get(variable)
            below, above = (low, high) if factor > 0 else (high, low)
            low_value = high_value = 0
            if below is None:
                open_below += 1
            else:
                least += (low_value := below[0] * factor)
            if above is None:
                open_above += 1
            else:
                most += (high_value := above[0] * factor)
            terms.append((variable, factor, below, above, low_value, high_value))
        # where two terms are open, nothing follows from this side
        if open_below > 1 and open_above > 1:
            return []
        out: list[Narrowed] = []
        for place, (variable, factor, below, above, low_value, high_value) in enumerate(terms):
            low = high = None
            if open_above == 0 or (open_above == 1 and above is None):
                value = -(most - high_value) // factor if factor > 0 else -(-(most - high_value) // -factor)
                # of a bound that is no tighter than the one that stands, nobody asks the reason
                old = lows.get(variable) if factor > 0 else highs.get(variable)
                if old is None or (value > old[0] if factor > 0 else value < old[0]):
                    bound = (value, self._reason([one[3] for one in terms], place))
                    low, high = (bound, None) if factor > 0 else (None, bound)
            if open_below == 0 or (open_below == 1 and below is None):
                value = -((least - low_value) // factor) if factor > 0 else (least - low_value) // -factor
                old = highs.get(variable) if factor > 0 else lows.get(variable)
                if old is None or (value < old[0] if factor > 0 else value > old[0]):
                    bound = (value, self._reason([one[2] for one in terms], place))
                    low, high = (low, bound) if factor > 0 else (bound, high)
            if low is not None or high is not None:
                out.append((variable, low, high))
        return out

    @staticmethod
    def _reason(bounds: Sequence[Bound | None], without: int) -> int:
        """Return what all bounds but one rest on."""
        reason = 0
        for place, bound in enumerate(bounds):
            if place != without and bound is not None:
                reason |= bound[1]
        return reason


@dataclass(frozen=True)
class Product:
    """One variable is the product of two others."""

    name: str
    result: Variable
    left: Variable
    right: Variable
    source: str = ""

    @property
    def variables(self) -> Sequence[Variable]:
        """Return the variables that it ties together."""
        return (self.result, self.left, self.right)

    def narrow(self, box: Box) -> list[Narrowed]:
        """Return the bounds of the product, and of each factor where the other one cannot be zero."""
        result, left, right = box.both(self.result), box.both(self.left), box.both(self.right)
        out: list[Narrowed] = []
        if left and right:
            ends = [a * b for a, _ in left for b, _ in right]
            reason = _reason(left, right)
            out.append((self.result, (min(ends) >> _BITS, reason), (-(-max(ends) >> _BITS), reason)))
        for factor, other, known in ((self.left, self.right, right), (self.right, self.left, left)):
            if result and known and known[0][0] > 0 and factor != other:
                quotients = [(a << _BITS, b) for a, _ in result for b, _ in known]
                reason = _reason(result, known)
                low, high = min(a // b for a, b in quotients), max(-(-a // b) for a, b in quotients)
                out.append((factor, (low, reason), (high, reason)))
        return out


def _reason(*pairs: tuple[Bound, Bound]) -> int:
    reason = 0
    for (_, below), (_, above) in pairs:
        reason |= below | above
    return reason


@dataclass(frozen=True)
class Least:
    """One variable is the least of others."""

    name: str
    result: Variable
    of: tuple[Variable, ...]
    source: str = ""

    @property
    def variables(self) -> Sequence[Variable]:
        """Return the variables that it ties together."""
        return (self.result, *self.of)

    def narrow(self, box: Box) -> list[Narrowed]:
        """Return the bounds of the least, and that none of the others is below it."""
        lows = [box.low.get(one) for one in self.of]
        highs = [high for one in self.of if (high := box.high.get(one)) is not None]
        low = None
        if all(one is not None for one in lows):
            known = [one for one in lows if one is not None]
            reason = 0
            for _, why in known:
                reason |= why
            low = min(value for value, _ in known), reason
        high = min(highs, default=None, key=itemgetter(0))
        floor = box.low.get(self.result)
        out: list[Narrowed] = [(self.result, low, high)]
        out += [(one, floor, None) for one in self.of]
        return out


@dataclass(frozen=True)
class Conflict:
    """Facts that cannot all be true, and the equations between them."""

    facts: tuple[Fact, ...]
    equations: tuple[Equation, ...]
    #: the variable whose bounds cross, and both
    variable: Variable
    low: Fraction
    high: Fraction


@dataclass(frozen=True)
class Inferred:
    """The bounds of a variable, with the facts that they rest on."""

    interval: Interval
    facts: tuple[Fact, ...]


class _Crossing(Exception):
    def __init__(self, variable: Variable, low: Bound, high: Bound) -> None:
        super().__init__(variable)
        self.variable, self.low, self.high = variable, low, high


class System:
    """Facts and equations, solved.

    Up to `most` conflicts are told: to find out what each of them rests on costs most of the time.
    """

    def __init__(
        self,
        facts: Sequence[Fact],
        equations: Sequence[Equation],
        whole: Iterable[Variable] = (),
        *,
        most: int = _MOST_CONFLICTS,
    ) -> None:
        self._facts = tuple(facts)
        self._equations = tuple(equations)
        self._whole = frozenset(whole)
        self._given = [_outward(fact.interval) for fact in self._facts]
        self._touching: dict[Variable, list[int]] = {}
        for number, equation in enumerate(self._equations):
            for variable in equation.variables:
                self._touching.setdefault(variable, []).append(number)
        self.conflicts: list[Conflict] = []
        self._box = Box()
        #: whether all facts can be true
        self.consistent = True
        kept = (1 << len(self._facts)) - 1
        while self.consistent or len(self.conflicts) < most:
            try:
                self._box = self._propagate(kept)
                return
            except _Crossing as crossing:
                self.consistent = False
                if not most:
                    return
                core, crossing = self._core(crossing)
                self.conflicts.append(self._conflict(core, crossing))
                # what contradicts itself supports nothing; the rest may still tell
                kept &= ~core

    def inferred(self, variable: Variable) -> Inferred | None:
        """Return the bounds of a variable; None when one of them is open."""
        both = self._box.both(variable)
        if both is None:
            return None
        (low, below), (high, above) = both
        return Inferred(Interval(Fraction(low, _ONE), Fraction(high, _ONE)), self._named(below | above))

    def _named(self, mask: int) -> tuple[Fact, ...]:
        return tuple(fact for number, fact in enumerate(self._facts) if mask >> number & 1)

    def _propagate(self, kept: int) -> Box:
        box = Box()
        lows, highs, whole = box.low, box.high, self._whole
        counts: dict[Variable, int] = {}
        todo: deque[int] = deque()
        waiting: set[int] = set()

        def take(variable: Variable, low: Bound | None, high: Bound | None, via: int = 0) -> bool:
            old_low, old_high = lows.get(variable), highs.get(variable)
            changed = False
            if low is not None:
                value, reason = low
                if variable in whole:
                    value = -(-value >> _BITS) << _BITS
                if old_low is None or value > old_low[0] + _STEP:
                    old_low = lows[variable] = (value, reason | via)
                    changed = True
            if high is not None:
                value, reason = high
                if variable in whole:
                    value = value >> _BITS << _BITS
                if old_high is None or value < old_high[0] - _STEP:
                    old_high = highs[variable] = (value, reason | via)
                    changed = True
            if changed and old_low and old_high and old_low[0] > old_high[0]:
                raise _Crossing(variable, old_low, old_high)
            return changed

        def wake(variable: Variable) -> None:
            counts[variable] = counts.get(variable, 0) + 1
            if counts[variable] <= _PATIENCE:
                for number in self._touching.get(variable, ()):
                    if number not in waiting:
                        waiting.add(number)
                        todo.append(number)

        for number, (fact, (least, most)) in enumerate(zip(self._facts, self._given, strict=True)):
            if kept >> number & 1:
                reason = 1 << number
                if take(fact.variable, (least, reason), (most, reason)):
                    wake(fact.variable)
        while todo:
            number = todo.popleft()
            waiting.discard(number)
            via = 1 << len(self._facts) + number
            for variable, low, high in self._equations[number].narrow(box):
                if take(variable, low, high, via):
                    wake(variable)
        return box

    def _core(self, crossing: _Crossing) -> tuple[int, _Crossing]:
        """Return the smallest set of facts that still crosses, by leaving them out one by one."""
        core = crossing.low[1] | crossing.high[1]
        facts = (1 << len(self._facts)) - 1
        # assumptions first: a core that does without one says more
        order = sorted(range(len(self._facts)), key=lambda number: self._facts[number].line is not None)
        for number in order:
            if core >> number & 1:
                try:
                    self._propagate(core & facts & ~(1 << number))
                except _Crossing as smaller:
                    core, crossing = smaller.low[1] | smaller.high[1], smaller
        return core, crossing

    def _conflict(self, core: int, crossing: _Crossing) -> Conflict:
        equations = core >> len(self._facts)
        return Conflict(
            self._named(core),
            tuple(one for number, one in enumerate(self._equations) if equations >> number & 1),
            crossing.variable,
            Fraction(crossing.low[0], _ONE),
            Fraction(crossing.high[0], _ONE),
        )


def _outward(interval: Interval) -> tuple[int, int]:
    low, high = interval.low, interval.high
    return (low.numerator << _BITS) // low.denominator, -((-high.numerator << _BITS) // high.denominator)
