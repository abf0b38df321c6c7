"""The ledger of a launch: its numbers solved together, once without and, if need be, with drift."""

from __future__ import annotations

from fractions import Fraction

from sglogparse._cheap import dataclass
from sglogparse._derived import once
from sglogparse._launches import Launch
from sglogparse.ledger.budget_equations import may_cap
from sglogparse.ledger.equations import build
from sglogparse.ledger.model import DRIFT, FRACTION, Group, Model, read_groups
from sglogparse.ledger.readings import Rank, read_ranks
from sglogparse.ledger.solver import Conflict, Inferred, System, Variable

#: A fraction that is not known to this is not implied by numbers some of which contradict each other.
_BOUNDED = Fraction(5, 100)


@dataclass(frozen=True)
class Ledger:
    """What a launch prints of its memory, and what follows from it."""

    ranks: tuple[Rank, ...]
    groups: tuple[Group, ...]
    model: Model
    system: System

    @property
    def conflicts(self) -> list[Conflict]:
        """Return the sets of facts that cannot all be true, even with drift."""
        return self.system.conflicts

    @property
    def drifts(self) -> bool:
        """Tell whether the numbers close only when free memory may drift between two lines."""
        return self.model.drift > 0

    def inferred(self, variable: Variable) -> Inferred | None:
        """Return the bounds of a variable and the facts that they rest on; None when nothing bounds it."""
        return self.system.inferred(variable)


@once
def read_ledger(launch: Launch) -> Ledger:
    """Return the ledger of a launch; of one that prints no memory, an empty one.

    The numbers are solved as if free memory stood still between two lines of one moment. Where they cannot
    be, it may drift; what is then still impossible is a contradiction.
    """
    ranks = read_ranks(launch)
    groups = tuple(read_groups(launch, ranks))
    model, system = _solved(launch, ranks, Fraction(0), most=0)
    if not system.consistent:
        model, system = _solved(launch, ranks, DRIFT)
    return Ledger(ranks, groups, model, system)


@once
def implied_fraction(launch: Launch) -> Inferred | None:
    """Return the mem_fraction_static that the pools imply, whatever the arguments say; None when they do not.

    It rests on the assumption that nothing capped the pools (`--max-total-tokens`).
    """
    for drift in (Fraction(0), DRIFT):
        model, system = _solved(launch, read_ranks(launch), drift, infers=True)
        if model.without or may_cap(launch):
            return None
        found = system.inferred(FRACTION)
        # what contradicts itself is left out: the rest implies a fraction only if it still bounds it
        if found and any(fact.line is not None for fact in found.facts):
            width = found.interval.high - found.interval.low
            if not system.conflicts or width < _BOUNDED:
                return found
    return None


def _solved(
    launch: Launch, ranks: tuple[Rank, ...], drift: Fraction, *, infers: bool = False, most: int | None = None
) -> tuple[Model, System]:
    model = build(launch, ranks, drift=drift, infers=infers)
    limit = {} if most is None else {"most": most}
    return model, System(model.facts, model.equations, model.whole, **limit)
