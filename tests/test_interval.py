"""Intervals of printed numbers: rounding and arithmetic never leave the true value out."""

import math
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sglogparse._interval import Interval, round_up

TRUE = st.floats(-1e6, 1e6, allow_nan=False)
FORMATS = st.sampled_from([".0f", ".1f", ".2f", ".3f", ".4f", ".1e", ".3e", "g", ".3g", "+.2f"])


def _holds(interval, value):
    return interval.low <= value <= interval.high


@st.composite
def _known(draw):
    """Draw an interval and a value that it holds."""
    ends = sorted((draw(st.fractions(-1000, 1000)), draw(st.fractions(-1000, 1000))))
    share = draw(st.fractions(0, 1))
    return Interval(*ends), ends[0] + (ends[1] - ends[0]) * share


@given(TRUE, FORMATS)
def test_what_was_printed_holds_what_was_meant(value, form):
    assert _holds(Interval.printed(format(value, form)), Fraction(value))


@given(st.decimals(-1000, 1000, allow_nan=False, allow_infinity=False, places=3))
def test_what_was_printed_is_half_a_digit_wide_on_each_side(value):
    assert Interval.printed(str(value)).high - Interval.printed(str(value)).low == Fraction(1, 1000)


@given(st.floats(-1e6, 1e6))
def test_a_repr_is_held_too(value):
    assert _holds(Interval.printed(repr(value)), Fraction(value))


@given(_known(), _known())
def test_arithmetic_holds_the_arithmetic_of_true_values(one, other):
    (a, x), (b, y) = one, other
    assert _holds(a + b, x + y)
    assert _holds(a - b, x - y)
    assert _holds(a * b, x * y)
    assert _holds(a.floor(), math.floor(x))
    assert a.meets(b) or x != y


@given(_known(), _known())
def test_division_holds_or_refuses(one, other):
    (a, x), (b, y) = one, other
    if b.low <= 0 <= b.high:
        with pytest.raises(ZeroDivisionError):
            a / b
    else:
        assert _holds(a / b, x / y)


@given(_known(), _known())
def test_meeting_is_mutual_and_means_a_common_value(one, other):
    a, b = one[0], other[0]
    assert a.meets(b) is b.meets(a)
    assert a.meets(b) == (max(a.low, b.low) <= min(a.high, b.high))


@given(st.fractions(-10, 10), st.integers(0, 5))
def test_rounding_up_is_enough_and_no_more(value, decimals):
    text = round_up(value, decimals)
    assert Fraction(text) - Fraction(1, 10**decimals) < value <= Fraction(text)
    assert len(text.partition(".")[2]) == decimals


@given(st.fractions(-1000, 1000))
def test_one_value_is_an_interval_without_width(value):
    assume(value != 0)
    exact = Interval.exactly(value)
    assert exact.low == exact.high == value
    assert exact / exact == Interval.exactly(1)
