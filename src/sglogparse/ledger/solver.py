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
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, Protocol

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


class Bound(NamedTuple):
    """One end of an interval, and the facts (lower bits) and equations (bits above) that it rests on."""

    value: int
    reason: int


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
        """Return the bounds of each term: what the others leave, by its factor."""
        lows, highs = [], []
        for variable, factor in self.terms.items():
            low, high = box.low.get(variable), box.high.get(variable)
            if factor < 0:
                low, high = high, low
            if factor != 1:
                low = low and Bound(low.value * factor, low.reason)
                high = high and Bound(high.value * factor, high.reason)
            lows.append(low)
            highs.append(high)
        # where two terms are open, nothing follows from this side
        open_below, open_above = lows.count(None), highs.count(None)
        if open_below > 1 and open_above > 1:
            return []
        out: list[Narrowed] = []
        for place, (variable, factor) in enumerate(self.terms.items()):
            least = self._rest(lows, place) if open_below < 2 else None
            most = self._rest(highs, place) if open_above < 2 else None
            if factor > 0:
                low = most and Bound(-most.value // factor, most.reason)
                high = least and Bound(-(least.value // factor), least.reason)
            else:
                low = least and Bound(least.value // -factor, least.reason)
                high = most and Bound(-(-most.value // -factor), most.reason)
            out.append((variable, low, high))
        return out

    def _rest(self, bounds: Sequence[Bound | None], without: int) -> Bound | None:
        """Return the constant and all bounds but one, summed; None when one of them is open."""
        value, reason = self.constant << _BITS, 0
        for place, bound in enumerate(bounds):
            if place != without:
                if bound is None:
                    return None
                value += bound.value
                reason |= bound.reason
        return Bound(value, reason)


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
            ends = [a.value * b.value for a in left for b in right]
            reason = _reason(left, right)
            low, high = Bound(min(ends) >> _BITS, reason), Bound(-(-max(ends) >> _BITS), reason)
            out.append((self.result, low, high))
        for factor, other, known in ((self.left, self.right, right), (self.right, self.left, left)):
            if result and known and known[0].value > 0 and factor != other:
                quotients = [(a.value << _BITS, b.value) for a in result for b in known]
                reason = _reason(result, known)
                low = Bound(min(a // b for a, b in quotients), reason)
                high = Bound(max(-(-a // b) for a, b in quotients), reason)
                out.append((factor, low, high))
        return out


def _reason(*pairs: tuple[Bound, Bound]) -> int:
    reason = 0
    for low, high in pairs:
        reason |= low.reason | high.reason
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
            for one in known:
                reason |= one.reason
            low = Bound(min(one.value for one in known), reason)
        high = min(highs, default=None, key=lambda one: one.value)
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
    """Facts and equations, solved."""

    def __init__(
        self, facts: Sequence[Fact], equations: Sequence[Equation], whole: Iterable[Variable] = ()
    ) -> None:
        self._facts = tuple(facts)
        self._equations = tuple(equations)
        self._whole = frozenset(whole)
        self._touching: dict[Variable, list[int]] = {}
        for number, equation in enumerate(self._equations):
            for variable in equation.variables:
                self._touching.setdefault(variable, []).append(number)
        self.conflicts: list[Conflict] = []
        self._box = Box()
        kept = (1 << len(self._facts)) - 1
        while len(self.conflicts) < _MOST_CONFLICTS:
            try:
                self._box = self._propagate(kept)
                return
            except _Crossing as crossing:
                core, crossing = self._core(crossing)
                self.conflicts.append(self._conflict(core, crossing))
                # what contradicts itself supports nothing; the rest may still tell
                kept &= ~core

    def inferred(self, variable: Variable) -> Inferred | None:
        """Return the bounds of a variable; None when one of them is open."""
        both = self._box.both(variable)
        if both is None:
            return None
        low, high = both
        interval = Interval(Fraction(low.value, _ONE), Fraction(high.value, _ONE))
        return Inferred(interval, self._named(low.reason | high.reason))

    def _named(self, mask: int) -> tuple[Fact, ...]:
        return tuple(fact for number, fact in enumerate(self._facts) if mask >> number & 1)

    def _propagate(self, kept: int) -> Box:
        box = Box()
        counts: dict[Variable, int] = {}
        todo: deque[int] = deque()
        waiting: set[int] = set()

        def take(variable: Variable, low: Bound | None, high: Bound | None, via: int = 0) -> bool:
            changed = False
            if variable in self._whole:
                low = low and Bound(-(-low.value >> _BITS) << _BITS, low.reason)
                high = high and Bound(high.value >> _BITS << _BITS, high.reason)
            old = box.low.get(variable)
            if low is not None and (old is None or low.value > old.value + _STEP):
                box.low[variable] = Bound(low.value, low.reason | via)
                changed = True
            old = box.high.get(variable)
            if high is not None and (old is None or high.value < old.value - _STEP):
                box.high[variable] = Bound(high.value, high.reason | via)
                changed = True
            if changed:
                both = box.both(variable)
                if both and both[0].value > both[1].value:
                    raise _Crossing(variable, *both)
            return changed

        def wake(variable: Variable) -> None:
            counts[variable] = counts.get(variable, 0) + 1
            if counts[variable] <= _PATIENCE:
                for number in self._touching.get(variable, ()):
                    if number not in waiting:
                        waiting.add(number)
                        todo.append(number)

        for number, fact in enumerate(self._facts):
            if kept >> number & 1:
                least, most = _outward(fact.interval)
                reason = 1 << number
                if take(fact.variable, Bound(least, reason), Bound(most, reason)):
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
        core = crossing.low.reason | crossing.high.reason
        facts = (1 << len(self._facts)) - 1
        # assumptions first: a core that does without one says more
        order = sorted(range(len(self._facts)), key=lambda number: self._facts[number].line is not None)
        for number in order:
            if core >> number & 1:
                try:
                    self._propagate(core & facts & ~(1 << number))
                except _Crossing as smaller:
                    core, crossing = smaller.low.reason | smaller.high.reason, smaller
        return core, crossing

    def _conflict(self, core: int, crossing: _Crossing) -> Conflict:
        equations = core >> len(self._facts)
        return Conflict(
            self._named(core),
            tuple(one for number, one in enumerate(self._equations) if equations >> number & 1),
            crossing.variable,
            Fraction(crossing.low.value, _ONE),
            Fraction(crossing.high.value, _ONE),
        )


def _outward(interval: Interval) -> tuple[int, int]:
    low, high = interval.low, interval.high
    return (low.numerator << _BITS) // low.denominator, -((-high.numerator << _BITS) // high.denominator)
