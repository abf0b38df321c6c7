"""The facts and equations of a launch, as they are collected; which ranks size their pools together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from sglogparse._derived import once
from sglogparse._interval import Interval
from sglogparse._launches import Launch
from sglogparse._release import release_range, version_window
from sglogparse.ledger.readings import Number, Rank
from sglogparse.ledger.solver import Equation, Fact, Least, Linear, Product, Variable

#: What free memory changes by between two measurements of what is meant to be one moment, GiB.
DRIFT = Fraction(15, 100)
#: More GiB than any device has.
ANY = 1 << 14
#: The fraction that the server computes with.
FRACTION: Variable = "mem_fraction_static"


@once
def releases(launch: Launch) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the oldest and the newest release that can have printed a launch; None when nothing tells."""
    return release_range(version_window(launch.args, cut=launch.args_cut))


def since(launch: Launch, *release: int) -> bool:
    """Tell whether a launch is certainly of a release or a later one."""
    window = releases(launch)
    return window is not None and window[0] >= release


def before(launch: Launch, *release: int) -> bool:
    """Tell whether a launch is certainly older than a release."""
    window = releases(launch)
    return window is not None and window[1] < release


@dataclass(frozen=True)
class Group:
    """Ranks that size their pools together: the least of their free memory enters the formula."""

    name: str
    ranks: tuple[Rank, ...]
    #: how many ranks the group has; None when the log does not tell
    size: int | None

    @property
    def complete(self) -> bool:
        """Tell whether all of its ranks print their memory."""
        return self.size is not None and len(self.ranks) >= self.size

    def is_model(self, word: str) -> bool:
        """Tell whether the class of the model that is loaded holds a word."""
        return any(word in (rank.target.load.model or "") for rank in self.ranks if rank.target.load)


def read_groups(launch: Launch, ranks: Iterable[Rank]) -> list[Group]:
    """Split ranks into worlds: with attention DP all are one; else each replica of DP is its own."""
    tp, pp = launch.argument("tp_size"), launch.argument("pp_size")
    size = tp * (pp if isinstance(pp, int) else 1) if isinstance(tp, int) else None
    together: dict[int | None, list[Rank]] = {}
    for rank in ranks:
        apart = rank.dp is not None and launch.argument("enable_dp_attention") is not True
        together.setdefault(rank.dp if apart else None, []).append(rank)
    return [
        Group("" if dp is None else f"DP{dp}", tuple(members), 1 if members[0].name is None else size)
        for dp, members in together.items()
    ]


def tokens_of(launch: Launch, group: Group, rank: Rank) -> Variable:
    """Return the variable of the tokens that a rank holds; up to 0.5.1 each pipeline stage has its own."""
    return ("tokens", group.name, None if since(launch, 0, 5, 2) else rank.pp)


@dataclass
class Model:
    """The facts and equations of one launch, and which could not be asserted."""

    #: what free memory may change by between two measurements of one moment, GiB
    drift: Fraction
    #: whether the declared fraction is left out and nothing caps the pools: to infer the fraction
    infers: bool = False
    facts: list[Fact] = field(default_factory=list)
    equations: list[Equation] = field(default_factory=list)
    whole: list[Variable] = field(default_factory=list)
    #: why the budget of a group is not tied to its pools, in words, by the group's name
    without: dict[str, str] = field(default_factory=dict)

    def printed(self, variable: Variable, number: Number | None) -> bool:
        """Add a printed number; tell whether there is one."""
        if number is not None:
            self.facts.append(Fact(variable, number.interval, number.line, f"{number.name}={number.text}"))
        return number is not None

    def given(self, variable: Variable, value: str, line: int, text: str) -> None:
        """Add an exact value that a line gives."""
        self.facts.append(Fact(variable, Interval.exactly(value), line, text))

    def assume(self, variable: Variable, least: Fraction | int, most: Fraction | int, why: str) -> None:
        """Add an assumption."""
        self.facts.append(Fact(variable, Interval(Fraction(least), Fraction(most)), None, why))

    def product(self, name: str, result: Variable, left: Variable, right: Variable, source: str) -> None:
        """Add an equation: one variable is the product of two others."""
        self.equations.append(Product(name, result, left, right, source))

    def least(self, name: str, result: Variable, of: Iterable[Variable], source: str) -> None:
        """Add an equation: one variable is the least of others."""
        self.equations.append(Least(name, result, tuple(of), source))

    def equal(self, name: str, one: Variable, other: Variable, source: str) -> None:
        """Add an equation: two variables are equal."""
        self.equations.append(Linear(name, {one: 1, other: -1}, source))

    def sum(self, name: str, terms: dict[Variable, int], source: str, constant: int = 0) -> None:
        """Add an equation: multiples of variables sum with a constant to zero."""
        self.equations.append(Linear(name, terms, source, constant))
