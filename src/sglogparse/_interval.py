"""Printed numbers as intervals: a decimal stands for every value that rounds to it.

"21.708" --> [21.7075, 21.7085]      arithmetic is exact (fractions), so no true value is ever left out
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from sglogparse._cheap import dataclass

GIB = 1 << 30
#: Bytes of what HiCache calls "GB" of host memory; the "GB" of SGLang's device lines is a GiB
#: (get_available_gpu_memory divides by 1 << 30).
HOST_GB = 10**9


@dataclass(frozen=True)
class Interval:
    """A closed interval of exact numbers."""

    low: Fraction
    high: Fraction

    @classmethod
    def exactly(cls, value: int | Fraction | str) -> Interval:
        """Return the interval of one value; a text is read as the exact decimal."""
        point = Fraction(value)
        return cls(point, point)

    @classmethod
    def printed(cls, text: str) -> Interval:
        """Return what a number that was rounded to its printed digits can have been.

        >>> Interval.printed("0.55") == Interval(Fraction("0.545"), Fraction("0.555"))
        True
        """
        return _printed(text)

    def in_bytes(self, unit: int) -> Interval:
        """Return a size that was printed in a unit of so many bytes, in bytes.

        >>> Interval.printed("128.40").in_bytes(HOST_GB).text(0)
        '128400000000'
        """
        return self * Interval.exactly(unit)

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.low - other.high, self.high - other.low)

    def __mul__(self, other: Interval) -> Interval:
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(ends), max(ends))

    def __truediv__(self, other: Interval) -> Interval:
        """Divide; raises ZeroDivisionError when the divisor can be zero."""
        if other.low <= 0 <= other.high:
            raise ZeroDivisionError("the divisor's interval holds zero")
        ends = [a / b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(ends), max(ends))

    def floor(self) -> Interval:
        """Return the interval of the values rounded down to whole numbers."""
        return Interval(Fraction(math.floor(self.low)), Fraction(math.floor(self.high)))

    def meets(self, other: Interval) -> bool:
        """Tell whether one value can be in both."""
        return self.low <= other.high and other.low <= self.high

    def text(self, decimals: int) -> str:
        """Return the middle, with as many decimals; for a reader, not for arithmetic."""
        return f"{float((self.low + self.high) / 2):.{decimals}f}"


@lru_cache(maxsize=4096)
def _printed(text: str) -> Interval:
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, rest = mantissa.partition(".")
    twice, decimals = 2 * int(whole + rest), len(rest) - int(exponent or 0)
    up, down = 10 ** max(-decimals, 0), 2 * 10 ** max(decimals, 0)
    return Interval(Fraction((twice - 1) * up, down), Fraction((twice + 1) * up, down))


def round_up(value: Fraction, decimals: int) -> str:
    """Return a number rounded up, so that the printed value is enough.

    >>> round_up(Fraction("0.76915"), 3)
    '0.770'
    """
    scale = 10**decimals
    return f"{math.ceil(value * scale) / scale:.{decimals}f}"
