"""The solver: bounds that follow, what they rest on, and the smallest set of facts that cannot all be true."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from sglogparse._interval import Interval
from sglogparse.ledger.solver import Fact, Least, Linear, Product, System


def fact(variable: str, text: str, line: int | None = 1) -> Fact:
    return Fact(variable, Interval.printed(text), line, f"{variable}={text}")


BUDGET = (
    Linear("outside = 1 - fraction", {"outside": 1, "fraction": 1}, constant=-1),
    Product("reserved = total * outside", "reserved", "total", "outside"),
    Linear("rest = avail - reserved", {"rest": 1, "avail": -1, "reserved": 1}),
    Linear("pool = rest", {"pool": 1, "rest": -1}),
)


def test_a_pool_implies_the_fraction_and_names_the_lines_it_rests_on() -> None:
    facts = [
        fact("avail", "21.708", 3),
        fact("total", "94.037", 3),
        fact("pool", "10.42", 7),
        fact("idle", "5.0", 9),
    ]
    found = System(facts, BUDGET).inferred("fraction")
    assert found is not None
    assert (f"{float(found.interval.low):.4f}", f"{float(found.interval.high):.4f}") == ("0.8799", "0.8800")
    assert [one.line for one in found.facts] == [3, 3, 7]


def test_a_variable_that_nothing_bounds_is_not_inferred() -> None:
    system = System([fact("avail", "21.708")], BUDGET)
    assert system.inferred("rest") is None
    assert system.inferred("never named") is None


def test_the_conflict_is_the_smallest_set_and_the_rest_is_still_solved() -> None:
    facts = [
        fact("avail", "21.708", 3),
        fact("total", "94.037", 3),
        fact("fraction", "0.55", 1),
        fact("pool", "10.42", 7),
        fact("idle", "5.0", 9),
        fact("twice", "10.0", 9),
    ]
    system = System(facts, (*BUDGET, Linear("twice = 2 idle", {"twice": 1, "idle": -2})))
    (conflict,) = system.conflicts
    assert [one.text for one in conflict.facts] == [
        "avail=21.708",
        "total=94.037",
        "fraction=0.55",
        "pool=10.42",
    ]
    assert [one.name for one in conflict.equations] == [one.name for one in BUDGET]
    assert system.inferred("fraction") is None
    assert system.inferred("idle") is not None


def test_two_separate_conflicts_are_two() -> None:
    facts = [fact("a", "1.0", 1), fact("b", "3.0", 2), fact("c", "1.0", 3), fact("d", "9.0", 4)]
    equations = (Linear("a = b", {"a": 1, "b": -1}), Linear("c = d", {"c": 1, "d": -1}))
    lines = [[one.line for one in conflict.facts] for conflict in System(facts, equations).conflicts]
    assert sorted(lines) == [[1, 2], [3, 4]]


def test_rounding_alone_is_no_conflict() -> None:
    facts = [fact("before", "8.20"), fact("used", "0.58"), fact("after", "7.61")]
    drop = Linear("after = before - used", {"after": 1, "before": -1, "used": 1})
    assert System(facts, [drop]).conflicts == []
    (conflict,) = System([*facts[:2], fact("after", "7.59")], [drop]).conflicts
    assert len(conflict.facts) == 3


def test_the_least_of_some_is_bounded_by_each_and_bounds_each() -> None:
    least = Least("least", "min", ("a", "b"))
    found = System([fact("a", "3.0"), fact("b", "5.0")], [least]).inferred("min")
    assert found is not None
    assert (f"{float(found.interval.low):.6f}", f"{float(found.interval.high):.6f}") == (
        "2.950000",
        "3.050000",
    )
    (conflict,) = System([fact("a", "3.0", 1), fact("b", "5.0", 2), fact("min", "4.0", 3)], [least]).conflicts
    assert [one.line for one in conflict.facts] == [1, 3]


def test_whole_numbers_are_rounded_to_within() -> None:
    facts = [Fact("n", Interval(Fraction("1.2"), Fraction("2.8")), 1, "n")]
    found = System(facts, [], whole=["n"]).inferred("n")
    assert found is not None
    assert found.interval == Interval.exactly(2)


def test_creeping_bounds_end() -> None:
    # x = y / 2 and y = x / 2: only zero is left, which bounds that halve never reach
    facts = [Fact("x", Interval(Fraction(0), Fraction(1)), 1, "x")]
    halves = [Linear("2x = y", {"x": 2, "y": -1}), Linear("2y = x", {"y": 2, "x": -1})]
    found = System(facts, halves).inferred("x")
    assert found is not None
    assert found.interval.low <= 0 <= found.interval.high < Fraction(1, 100)


gib = st.integers(0, 300 * 10**6).map(lambda n: Fraction(n, 10**6))


@given(
    avail=gib,
    spare=gib,
    share=st.integers(0, 10**6).map(lambda n: Fraction(n, 10**6)),
    digits=st.integers(0, 4),
)
def test_true_values_never_contradict_and_are_never_left_out(
    avail: Fraction, spare: Fraction, share: Fraction, digits: int
) -> None:
    total = avail + spare
    truth = {"avail": avail, "total": total, "fraction": share, "outside": 1 - share}
    truth["reserved"] = total * (1 - share)
    truth["rest"] = truth["pool"] = avail - truth["reserved"]
    facts = [
        fact(name, f"{float(value):.{digits}f}" if digits else f"{round(value)}", 1)
        for name, value in truth.items()
        if name in ("avail", "total", "fraction", "pool")
    ]
    system = System(facts, BUDGET)
    assert system.conflicts == []
    for name, value in truth.items():
        found = system.inferred(name)
        assert found is None or found.interval.low <= value <= found.interval.high, name
