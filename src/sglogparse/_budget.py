"""The KV token budget: SGLang's arithmetic, done on intervals of the printed numbers.

    reserved   = total * (1 - mem_fraction_static)
    rest       = avail - reserved                       the budget, GiB
    max_tokens = floor(rest * 2^30 / cell_size)

Source: profile_max_num_token in model_executor/model_runner.py (0.2.0 to 0.5.6), and its heirs
model_runner_kv_cache_mixin.py (0.5.7 to 0.5.15) and mem_cache/kv_cache_configurator.py (0.5.16 and later).
`total` and `avail` are minima over the ranks. From the budget follows the smallest fraction at which any token
fits: rest > 0 exactly when mem_fraction_static > 1 - avail / total.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import polars as pl

from sglogparse._interval import GIB, Interval, round_up

if TYPE_CHECKING:
    from sglogparse._launches import Launch

#: Memory that a server needs beside its static pools at the least (activations, graphs): below this share of the
#: device, a fraction that fits the KV cache is not one that starts.
NARROW = Fraction(95, 100)


@dataclass(frozen=True)
class Printed:
    """One line that prints the whole budget, digit for digit."""

    line: int
    rank: str | None
    text: dict[str, str]

    def interval(self, name: str) -> Interval:
        """Return a printed number as an interval."""
        return Interval.printed(self.text[name])

    @property
    def outside(self) -> str:
        """Return 1 - fraction as a decimal with the digits of the printed fraction."""
        return str(1 - Decimal(self.text["fraction"]))

    def disagreements(self) -> list[str]:
        """Return the printed results that the formula does not give, with the arithmetic written out.

        The printed fraction is what the server computed with, or a rounding of it: a result is called wrong only
        when neither gives it.
        """
        wrong = []
        avail, total, reserved, rest = (self.interval(name) for name in ("avail", "total", "reserved", "rest"))
        cell = Interval.exactly(self.text["cell_size"])
        one = Interval.exactly(1)
        loose = self.interval("fraction")
        if not reserved.meets(total * (one - loose)):
            expected = total * (one - Interval.exactly(self.text["fraction"]))
            wrong.append(
                f"reserved={self.text['reserved']} GiB, but {self.text['total']} x {self.outside} = "
                f"{expected.text(3)} GiB"
            )
        if not rest.meets(avail - reserved):
            wrong.append(
                f"rest={self.text['rest']} GiB, but {self.text['avail']} - {self.text['reserved']} = "
                f"{(avail - reserved).text(3)} GiB"
            )
        if cell.low > 0:
            tokens = (rest * Interval.exactly(GIB) / cell).floor()
            if not tokens.meets(Interval.exactly(self.text["max_tokens"])):
                wrong.append(
                    f"max_tokens={self.text['max_tokens']}, but {self.text['rest']} GiB / {self.text['cell_size']} "
                    f"bytes = {tokens.text(0)}"
                )
        return wrong

    def arithmetic(self) -> str:
        """Return the budget as a person would write it."""
        t = self.text
        return f"rest = {t['avail']} - {t['total']} x {self.outside} = {t['rest']} GiB"


def printed_budgets(launch: Launch) -> list[Printed]:
    """Return the instrumentation lines that print the whole budget."""
    frame = launch.frames["profile_max_num_token"]
    out = []
    for row in launch.printed("profile_max_num_token", frame["line"]):
        text: dict[str, Any] = {name: value for name, value in row.items() if name not in ("line", "rank")}
        finite = all(value not in ("nan", "inf", "-inf", "-nan") for value in text.values())
        if finite:
            out.append(Printed(row["line"], row["rank"], text))
    return out


@dataclass(frozen=True)
class Smallest:
    """The smallest mem_fraction_static at which any token fits."""

    low: Fraction
    high: Fraction
    avail: str
    total: str
    lines: tuple[int, ...]

    @property
    def text(self) -> str:
        """Return it rounded up to three decimals, so that the printed value is enough."""
        return round_up(self.high, 3)

    @property
    def impossible(self) -> bool:
        """Tell whether no fraction below 1 gives a token."""
        return self.low >= 1

    @property
    def narrow(self) -> bool:
        """Tell whether what it leaves outside the pools is too little to run in."""
        return self.high > NARROW


def smallest_fraction(launch: Launch) -> Smallest | None:
    """Return the smallest workable fraction, from the numbers that the log prints; None when it lacks them.

    The instrumentation line is the best source (three decimals, minima over the ranks); else the smallest
    "Load weight begin" and "Load weight end" of the launch.
    """
    budgets = printed_budgets(launch)
    if budgets:
        best = budgets[0]
        pair = (best.text["avail"], best.text["total"], (best.line,))
        return _smallest(*pair)
    begin = launch.frames["load_weight_begin"].filter(pl.col("avail_mem").is_not_null())
    end = launch.frames["load_weight_end"].filter(pl.col("avail_mem").is_not_null())
    if begin.is_empty() or end.is_empty():
        return None
    first = begin.sort("avail_mem", "line").row(0, named=True)
    last = end.sort("avail_mem", "line").row(0, named=True)
    total = launch.printed("load_weight_begin", [first["line"]])[0]["avail_mem"]
    avail = launch.printed("load_weight_end", [last["line"]])[0]["avail_mem"]
    return _smallest(avail, total, (first["line"], last["line"]))


def _smallest(avail: str, total: str, lines: tuple[int, ...]) -> Smallest | None:
    whole = Interval.printed(total)
    if whole.low <= 0:
        return None
    share = Interval.exactly(1) - Interval.printed(avail) / whole
    return Smallest(share.low, share.high, avail, total, lines)


def step_gain(total: str, cell_size: str | None) -> str:
    """Return what +0.01 of the fraction gives."""
    gib = Fraction(total) / 100
    if cell_size is None or Fraction(cell_size) <= 0:
        return f"each +0.01 adds {float(gib):.2f} GiB"
    return f"each +0.01 adds {float(gib):.2f} GiB = {int(gib * GIB / Fraction(cell_size))} tokens"


def implied_fraction(avail: str, total: str, pool: Interval) -> Interval | None:
    """Return the mem_fraction_static that a KV pool of so many GiB implies; None without a total.

    From pool = avail - total * (1 - f) follows f = 1 - (avail - pool) / total.
    """
    whole = Interval.printed(total)
    if whole.low <= 0:
        return None
    return Interval.exactly(1) - (Interval.printed(avail) - pool) / whole


def pool_size(row: dict[str, str | None]) -> Interval | None:
    """Return the GiB of a KV allocation: the joint size, or K and V together."""
    joint, key, value = row.get("kv_size"), row.get("k_size"), row.get("v_size")
    if joint is not None:
        return Interval.printed(joint)
    if key is not None and value is not None:
        return Interval.printed(key) + Interval.printed(value)
    return None


@dataclass(frozen=True)
class Negative:
    """A line that prints a token budget of zero or less."""

    line: int
    rank: str | None
    tokens: int
    kind: str
    #: the draft worker's own profile, in a server that speculates
    draft: bool


def negative_budgets(launch: Launch) -> list[Negative]:
    """Return the lines with a budget of zero or less, and whether a draft worker printed them.

    A draft worker profiles after the target's pools were built. Where the pool lines are missing (they are printed
    by one rank, or the log is an excerpt), a capture that goes on afterwards tells the same.
    """
    sources = (("profile_max_num_token", "max_tokens"), ("max_total_tokens_capped", "profiled_tokens"))
    found = []
    pools = launch.frames["memory_pool_end"]
    speculates = launch.argument("speculative_algorithm") is not None or "speculative_algorithm" not in launch.args
    captures = launch.lines.filter(pl.col("text").str.contains("Capturing batches", literal=True))["line"]
    for kind, column in sources:
        frame = launch.frames[kind].filter(pl.col(column) <= 0)
        for line, rank, tokens in frame.select("line", "rank", column).iter_rows():
            built = not pools.filter(pl.col("rank").eq_missing(rank) & (pl.col("line") < line)).is_empty()
            goes_on = pools.is_empty() and launch.frames["kv_cache"].is_empty() and bool((captures > line).any())
            found.append(Negative(line, rank, tokens, kind, speculates and (built or goes_on)))
    return sorted(found, key=lambda one: one.line)
