"""Printed numbers of several lines that cannot all be true."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

from sglogparse._budget import negative_budgets, wrong_budgets
from sglogparse._cheap import dataclass
from sglogparse._interval import Interval
from sglogparse._launches import Launch
from sglogparse._ranks import rank_list
from sglogparse._report import Finding, Severity
from sglogparse.ledger.ledger import Ledger, read_ledger
from sglogparse.ledger.rank_equations import FALLS
from sglogparse.ledger.solver import Conflict, Fact, System, Variable
from sglogparse.ledger.window import fixed, middle_of
from sglogparse.rules.negative_budget_yet_allocated import negative_budget_yet_allocated
from sglogparse.rules.rank_budget_differs import rank_budget_differs

#: Lines of one contradiction that are shown; the rest are counted.
_MOST_LINES = 8
#: Contradictions that are told apart from each other; the rest are counted.
_MOST_KINDS = 4
#: As long as there are no more contradictions than this, all numbers are solved again without the odd one.
_FEW = 4
#: How the ledger names the fraction: in force, as the arguments declare it, as a profile prints it.
_FRACTIONS = ("mem_fraction_static", "declared fraction", "fraction")
#: What M007 speaks of.
_RISE = FALLS


def contradictory_numbers(launch: Launch) -> Iterator[Finding]:
    """Report memory numbers of several lines that cannot all be true.

    What it finds:
        Free memory, usage, pool sizes and fractions of one launch that SGLang's own arithmetic does not allow
        together: the KV cache against the budget, free memory against what was taken of it, and numbers that
        are one number on all ranks.

    Why it matters:
        One of these lines is not of this start: lines of two starts are mixed, arguments are not those the
        server ran with, the source was changed, or something else took or freed memory meanwhile. A
        conclusion from them would rest on the wrong run.

    Evidence:
        The smallest set of lines that cannot all be true, with the arithmetic. One number is left out, what
        the others imply for it stands beside what its line says. Every printed decimal counts as the whole
        interval that rounds to it.

    Does not match:
        Rounding, drift of free memory between two lines of one moment, and configurations whose formula is
        not known. What M002, M003 and M005 say of the same lines.

    What to do:
        Find out which start each line is from, and compare the arguments with those of the process that ran.
    """
    ledger = read_ledger(launch)
    if not ledger.conflicts:
        return
    kinds: dict[tuple[str, ...], list[Conflict]] = {}
    for conflict in _news(launch, ledger.conflicts):
        kinds.setdefault(_kind(conflict), []).append(conflict)
    unsaid = len(kinds) - _MOST_KINDS
    for place, alike in enumerate(list(kinds.values())[:_MOST_KINDS]):
        yield _finding(launch, _tell(ledger, alike[0]), len(alike) - 1, unsaid if place == 0 else 0)


def _kind(conflict: Conflict) -> tuple[str, ...]:
    """Return what contradictions of one kind share: the equations, and what is left out."""
    return (*sorted(_names(conflict)), _place(_odd(conflict.facts).variable)[0])


@dataclass(frozen=True)
class _Told:
    """A contradiction in words."""

    sentence: str
    lines: tuple[int, ...]
    fix: str


_FIX = "find out which start each of these lines is from; conclude nothing from them together"


def _finding(launch: Launch, first: _Told, more: int, other_kinds: int) -> Finding:
    notes = []
    if len(first.lines) > _MOST_LINES:
        notes.append(f"{len(first.lines) - _MOST_LINES} more lines belong to it")
    if more:
        notes.append(f"{more} more of this kind")
    if other_kinds > 0:
        notes.append(f"{other_kinds} more contradictions of other kinds")
    shown = launch.evidences(first.lines[-_MOST_LINES:])
    noted = f" ({'; '.join(notes)})" if notes else ""
    return Finding(
        Severity.WARNING,
        f"These numbers cannot all be true: {first.sentence}{noted}.",
        shown,
        fix=first.fix,
        ranks=rank_list(one.rank for one in shown),
    )


def _news(launch: Launch, conflicts: Iterable[Conflict]) -> Iterator[Conflict]:
    """Yield the contradictions of which no other rule speaks."""
    wrong = {one.line for one, _ in wrong_budgets(launch)}
    if list(negative_budget_yet_allocated(launch)):
        wrong |= {one.line for one in negative_budgets(launch)}
    differ = [{one.line for one in finding.evidence} for finding in rank_budget_differs(launch)]
    for conflict in conflicts:
        lines = set(_lines(conflict.facts))
        if (
            lines
            and _names(conflict) != {_RISE}
            and not lines & wrong
            and not any(lines <= told for told in differ)
        ):
            yield conflict


def _lines(facts: Iterable[Fact]) -> tuple[int, ...]:
    return tuple(sorted({fact.line for fact in facts if fact.line is not None}))


def _tell(ledger: Ledger, conflict: Conflict) -> _Told:
    """Leave one fact out, and say what the others imply for it."""
    odd = _odd(conflict.facts)
    rest = [fact for fact in conflict.facts if fact is not odd]
    implied = _implied(ledger, conflict, rest, odd.variable)
    told = next((words for form in _FORMS if (words := form(conflict, rest, odd, implied)) is not None), None)
    if told is None:
        said = "; ".join(f"line {fact.line}: {fact.text}" for fact in conflict.facts if fact.line is not None)
        told = f"{said}, where {' and '.join(sorted(_names(conflict)))}"
    fix = _FIX
    if _is_fraction(odd):
        fix = (
            "compare the arguments of this log with the command line of the process that wrote these numbers"
        )
    return _Told(told, _lines(conflict.facts), fix)


def _odd(facts: Sequence[Fact]) -> Fact:
    """Return the fact to leave out: the declared fraction, else the latest line's."""
    printed = [fact for fact in facts if fact.line is not None]
    fraction = next((fact for fact in printed if _is_fraction(fact)), None)
    return fraction or max(
        printed, key=lambda fact: (fact.line or 0, _place(fact.variable)[0].endswith("end"))
    )


def _place(variable: Variable) -> tuple[str, ...]:
    """Return a variable's name and what it is of, as words; of a profile's line the name of its number."""
    words = tuple(map(str, variable)) if isinstance(variable, tuple) else (str(variable),)
    return words[1:] if words[0] == "printed" else words


def _is_fraction(fact: Fact) -> bool:
    return _place(fact.variable)[0] in _FRACTIONS


def _implied(ledger: Ledger, conflict: Conflict, rest: list[Fact], variable: Variable) -> Interval | None:
    """Return what the other facts of a contradiction imply for a variable, where that excludes its line."""
    odd = next(fact for fact in conflict.facts if fact.variable == variable and fact not in rest)
    systems = [(rest, conflict.equations)]
    if len(ledger.conflicts) <= _FEW:
        # a contradiction needs one end of each number only; all facts together give both
        others = [fact for fact in ledger.model.facts if fact != odd]
        systems.insert(0, (others, tuple(ledger.model.equations)))
    for facts, equations in systems:
        found = System(facts, equations, ledger.model.whole).inferred(variable)
        if found is not None and not found.interval.meets(odd.interval):
            return found.interval
    return None


def _names(conflict: Conflict) -> set[str]:
    return {equation.name for equation in conflict.equations}


def _within(interval: Interval, decimals: int, odd: Fact) -> str:
    """Return an interval in words: its ends, or where one says nothing, the end that a line is beyond."""
    if interval.high - interval.low > 1 << 10:
        if odd.interval.high < interval.low:
            return f"at least {fixed(interval.low, decimals)}"
        return f"at most {fixed(interval.high, decimals)}"
    ends = [fixed(one, decimals) for one in (interval.low, interval.high)]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _budget(conflict: Conflict, rest: list[Fact], odd: Fact, implied: Interval | None) -> str | None:
    """Tell a KV cache that is not what the budget gives."""
    if "rest = pools + what is left over" not in _names(conflict) or implied is None:
        return None
    avail = _smallest(conflict.facts, ("avail",), ("load end",))
    total = _smallest(conflict.facts, ("total",), ("load begin",))
    parts = [fact for fact in conflict.facts if _place(fact.variable)[0] == "pool part"]
    if avail is None or not parts:
        return None
    size = fixed(sum((middle_of(part.interval) for part in parts), Fraction(0)), 2)
    before = f"total {_value(total)}" if total else "total"
    said = f"line {odd.line} says {odd.text}"
    if _is_fraction(odd):
        middle = fixed(middle_of(implied), 3)
        ends = f"[{fixed(implied.low, 4)}, {fixed(implied.high, 4)}]"
        return (
            f"avail {_value(avail)} - {before} x (1 - f) = {size} GiB of pools implies mem_fraction_static "
            f"{middle} {ends}, but {said}"
        )
    fraction = next((fact for fact in rest if _is_fraction(fact)), None)
    outside = f"(1 - {_value(fraction)})" if fraction else "(1 - f)"
    return (
        f"the budget is avail {_value(avail)} - {before} x {outside} and the pools hold {size} GiB, "
        f"which needs "
        f"{_what(odd)} {_within(implied, 2, odd)}, but {said}"
    )


def _smallest(facts: Iterable[Fact], *kinds: tuple[str]) -> Fact | None:
    for kind in kinds:
        found = [fact for fact in facts if _place(fact.variable)[:1] == kind]
        if found:
            return min(found, key=lambda fact: fact.interval.low)
    return None


def _value(fact: Fact) -> str:
    return fact.text.partition("=")[2] or fact.text


def _what(fact: Fact) -> str:
    return fact.text.partition("=")[0]


_CHAINS = (
    ("free after loading = free before it - weights", "load"),
    ("free after the capture = free before it - graphs", "graphs"),
)


def _chain(conflict: Conflict, rest: list[Fact], odd: Fact, implied: Interval | None) -> str | None:
    """Tell free memory behind a step that is not what was free less what it took."""
    for name, what in _CHAINS:
        if _names(conflict) != {name} or implied is None:
            continue
        facts = {_place(fact.variable)[0].removeprefix(f"{what} "): fact for fact in conflict.facts}
        if {"begin", "used", "end"} <= set(facts):
            begin, used, end = (facts[one] for one in ("begin", "used", "end"))
            left = fixed(middle_of(begin.interval) - middle_of(used.interval), 2)
            return (
                f"{_value(begin)} GiB free before {_STEPS[what]} (line {begin.line}) - {_value(used)} "
                f"GiB used "
                f"(line {used.line}) = {left} GiB, but line {end.line} says {end.text}"
            )
    return None


_STEPS = {"load": "loading", "graphs": "the capture"}


def _pool_end(conflict: Conflict, rest: list[Fact], odd: Fact, implied: Interval | None) -> str | None:
    """Tell free memory behind the pools that is more than the pools can have left."""
    if "free after the pools = free after the weights - pools - other" not in _names(conflict):
        return None
    avail = [fact for fact in conflict.facts if _place(fact.variable)[0] == "load end"]
    end = next((fact for fact in conflict.facts if _place(fact.variable)[0] == "pool end"), None)
    parts = [fact for fact in conflict.facts if _place(fact.variable)[0] == "pool part"]
    if len(avail) != 1 or end is None or not parts:
        return None
    size = sum((middle_of(part.interval) for part in parts), Fraction(0))
    left = fixed(middle_of(avail[0].interval) - size, 2)
    return (
        f"{_value(avail[0])} GiB free behind the weights (line {avail[0].line}) - {fixed(size, 2)} GiB "
        f"of pools "
        f"leave at most {left} GiB, but line {end.line} says {end.text}"
    )


def _same(conflict: Conflict, rest: list[Fact], odd: Fact, implied: Interval | None) -> str | None:
    """Tell numbers that are one number on all ranks, or on two lines, and differ."""
    names = sorted(_names(conflict))
    name = next((one for one in names if one in _ONE_NUMBER or one.endswith(_EVERY_RANK)), None)
    printed = [fact for fact in rest if fact.line is not None]
    if name is None or not printed or implied is None:
        return None
    what = _ONE_NUMBER.get(name, name)
    others = "; ".join(f"line {fact.line} says {fact.text}" for fact in printed[:3])
    return f"{what}, but {others} and line {odd.line} says {odd.text}"


_EVERY_RANK = "is the same on every rank"
_ONE_NUMBER = {
    "ranks with the same layers have pools of one size": "ranks with the same layers have pools of one size",
    "tokens of the rank = tokens": "all ranks hold the same number of tokens",
    "max_total_num_tokens = tokens": "max_total_num_tokens is the number of tokens of the pool",
}


def _any(conflict: Conflict, rest: list[Fact], odd: Fact, implied: Interval | None) -> str | None:
    """Tell what the other numbers imply for the one that is left out."""
    if implied is None:
        return None
    others = ", ".join(f"{fact.text} (line {fact.line})" for fact in rest if fact.line is not None)
    if not others:
        assumed = " and ".join(fact.text for fact in rest)
        return f"line {odd.line} says {odd.text}, but {assumed}"
    return f"{others} imply {_what(odd)} {_within(implied, 3, odd)}, but line {odd.line} says {odd.text}"


_Form = Callable[[Conflict, list[Fact], Fact, Interval | None], str | None]
_FORMS: tuple[_Form, ...] = (_budget, _pool_end, _chain, _same, _any)
