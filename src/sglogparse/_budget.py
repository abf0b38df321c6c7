"""The KV token budget: SGLang's arithmetic, done on intervals of the printed numbers.

    reserved   = total * (1 - mem_fraction_static)
    rest       = avail - reserved                       the budget, GiB
    max_tokens = floor(rest * 2^30 / cell_size)

Source: profile_max_num_token in model_executor/model_runner.py (0.2.0 to 0.5.6), and its heirs
model_runner_kv_cache_mixin.py (0.5.7 to 0.5.15) and mem_cache/kv_cache_configurator.py (0.5.16 and later).
`total` and `avail` are minima over the ranks. From the budget follows the smallest fraction at which any
token fits: rest > 0 exactly when mem_fraction_static > 1 - avail / total.
"""

from __future__ import annotations

import bisect
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import polars as pl

from sglogparse._cheap import dataclass
from sglogparse._derived import once
from sglogparse._interval import GIB, Interval, round_up

if TYPE_CHECKING:
    from sglogparse._launches import Launch

#: Above this fraction, what stays outside the static pools is too little for graphs and activations.
NARROW = Fraction(95, 100)
#: The most requests at once that a server plans for when nobody says (0.4.4 and later).
_MOST_REQUESTS = 4096


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

    def fraction(self) -> Interval:
        """Return the fraction that the server computed with: exact from a repr, or rounded to its digits.

        A format of one decimal is not used for a fraction: "0.8" is exactly that.
        """
        text = self.text["fraction"]
        return Interval.exactly(text) if len(text.partition(".")[2]) < 2 else Interval.printed(text)

    def disagreements(self, *, state_pools: bool = False) -> list[str]:
        """Return the printed results that the formula does not give, with the arithmetic written out.

        With `state_pools` (hybrid models), those may have been taken off the rest.
        """
        wrong = []
        avail, total, reserved, rest = (
            self.interval(name) for name in ("avail", "total", "reserved", "rest")
        )
        cell = Interval.exactly(self.text["cell_size"])
        one = Interval.exactly(1)
        if not reserved.meets(total * (one - self.fraction())):
            expected = total * (one - Interval.exactly(self.text["fraction"]))
            wrong.append(
                f"reserved={self.text['reserved']} GiB, but {self.text['total']} x {self.outside} = "
                f"{expected.text(3)} GiB"
            )
        plain = avail - reserved
        if rest.low > plain.high or (rest.high < plain.low and not state_pools):
            wrong.append(
                f"rest={self.text['rest']} GiB, but {self.text['avail']} - {self.text['reserved']} = "
                f"{plain.text(3)} GiB"
            )
        if cell.low > 0:
            tokens = (rest * Interval.exactly(GIB) / cell).floor()
            if not tokens.meets(Interval.exactly(self.text["max_tokens"])):
                wrong.append(
                    f"max_tokens={self.text['max_tokens']}, but {self.text['rest']} GiB / "
                    f"{self.text['cell_size']} bytes = {tokens.text(0)}"
                )
        return wrong

    def arithmetic(self) -> str:
        """Return the budget as a person would write it."""
        t = self.text
        return f"rest = {t['avail']} - {t['total']} x {self.outside} = {t['rest']} GiB"


#: Larger than any number of GiB, bytes or tokens; so are inf and, as no number is less, nan.
_MOST = 1e18


@once
def printed_budgets(launch: Launch) -> list[Printed]:
    """Return the instrumentation lines that print the whole budget in numbers that memory can have."""
    out = []
    for row in launch.printed("profile_max_num_token", launch.frames["profile_max_num_token"]["line"]):
        text: dict[str, Any] = {name: value for name, value in row.items() if name not in ("line", "rank")}
        if all(value is not None and abs(float(value)) < _MOST for value in text.values()):
            out.append(Printed(row["line"], row["rank"], text))
    return out


def has_state_pools(launch: Launch) -> bool:
    """Tell whether a hybrid model's state pools share the budget."""
    return not launch.frames["mamba_cache"].is_empty()


def is_plain(launch: Launch) -> bool:
    """Tell whether one KV pool takes the whole budget, so that its size tells the fraction."""
    others = ("mamba_cache", "swa_pool", "swa_split", "max_total_tokens_capped")
    flags = ("speculative_algorithm", "max_total_tokens")
    return all(launch.frames[kind].is_empty() for kind in others) and not any(map(launch.argument, flags))


@once
def wrong_budgets(launch: Launch) -> list[tuple[Printed, list[str]]]:
    """Return the instrumentation lines that do not add up, each with what is wrong."""
    pools = has_state_pools(launch)
    return [
        (one, wrong) for one in printed_budgets(launch) if (wrong := one.disagreements(state_pools=pools))
    ]


@dataclass(frozen=True)
class Smallest:
    """The smallest mem_fraction_static at which any token fits: the share 1 - avail / total."""

    share: Interval
    #: free memory after and before loading, GiB, as printed; None where the log prints the share alone
    avail: str | None = None
    total: str | None = None
    lines: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """Return it rounded up to three decimals, so that the printed value is enough."""
        return round_up(self.share.high, 3)

    @property
    def impossible(self) -> bool:
        """Tell whether no fraction below 1 (of three decimals) gives a token."""
        return Fraction(self.text) >= 1

    @property
    def narrow(self) -> bool:
        """Tell whether what it leaves outside the pools is too little to run in."""
        return self.share.high > NARROW


@once
def smallest_fraction(launch: Launch) -> Smallest | None:
    """Return the smallest workable fraction, from the numbers that the log prints; None when it lacks them.

    The instrumentation line is the best source (three decimals, minima over the ranks); else the smallest
    "Load weight begin" and "Load weight end" of the ranks: of each rank the first begin, and the last end
    before its pools (a draft model loads before them in 0.5.14 and later, and behind them in older releases).
    Without a begin, what the end prints as used and as left makes the total.
    """
    budgets = [one for one in printed_budgets(launch) if one.interval("total").low > 0]
    if budgets:
        best = budgets[0]
        return _smallest(best.text["avail"], best.text["total"], (best.line,))
    known = pl.col("avail_mem").abs() < _MOST
    pools = launch.frames["kv_cache"].group_by("rank").agg(pl.col("line").min().alias("pool"))
    begin = launch.frames["load_weight_begin"].filter(known).unique("rank", keep="first", maintain_order=True)
    end = (
        launch.frames["load_weight_end"]
        .filter(known)
        .join(pools, on="rank", how="left", nulls_equal=True, maintain_order="left")
        .filter(pl.col("pool").is_null() | (pl.col("line") < pl.col("pool")))
        .unique("rank", keep="last", maintain_order=True)
    )
    if end.is_empty():
        return None
    left = launch.printed("load_weight_end", [end.sort("avail_mem", "line")["line"][0]])[0]
    if not begin.is_empty():
        before = launch.printed("load_weight_begin", [begin.sort("avail_mem", "line")["line"][0]])[0]
        return _smallest(left["avail_mem"], before["avail_mem"], (before["line"], left["line"]))
    if left.get("mem_usage") is None or left["avail_mem"] is None:
        return None
    avail, usage = left["avail_mem"], left["mem_usage"]
    whole = Interval.printed(avail) + Interval.printed(usage)
    return _smallest(avail, str(Decimal(avail) + Decimal(usage)), (left["line"],), whole)


def _smallest(
    avail: str | None, total: str | None, lines: tuple[int, ...], whole: Interval | None = None
) -> Smallest | None:
    if avail is None or total is None:
        return None
    whole = whole or Interval.printed(total)
    if whole.low <= 0:
        return None
    return Smallest(Interval.exactly(1) - Interval.printed(avail) / whole, avail, total, lines)


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
    #: the first line after it on which its rank allocates a KV cache; None when it does not
    allocated: int | None


@once
def negative_budgets(launch: Launch) -> list[Negative]:
    """Return the lines with a budget of zero or less, and whether a draft worker printed them.

    A draft worker profiles after the target's pools were built. Where the pool lines are missing (they are
    printed by one rank, or the log is an excerpt), a capture that goes on afterwards tells the same.
    """
    sources = (("profile_max_num_token", "max_tokens"), ("max_total_tokens_capped", "profiled_tokens"))
    rows = sorted(
        (line, rank, tokens, kind)
        for kind, column in sources
        for line, rank, tokens in launch.frames[kind]
        .filter(pl.col(column) <= 0)
        .select("line", "rank", column)
        .iter_rows()
    )
    if not rows:
        return []
    pools = launch.frames["memory_pool_end"]
    built = dict(pools.group_by("rank").agg(pl.col("line").min()).iter_rows())
    last_capture = 0
    if pools.is_empty() and launch.frames["kv_cache"].is_empty():
        bars = launch.lines.filter(pl.col("text").str.contains("Capturing batches", literal=True))["line"]
        last_capture = int(bars[-1]) if len(bars) else 0
    allocations = dict(launch.frames["kv_cache"].group_by("rank").agg("line").iter_rows())
    speculates = launch.args.get("speculative_algorithm", "not known") is not None
    return [
        Negative(
            line,
            rank,
            tokens,
            kind,
            draft=speculates and (built.get(rank, line) < line or last_capture > line),
            allocated=_next(allocations.get(rank, []), line),
        )
        for line, rank, tokens, kind in rows
    ]


def _next(lines: list[int], line: int) -> int | None:
    """Return the first of some lines, in their order, behind a line."""
    place = bisect.bisect_right(lines, line)
    return lines[place] if place < len(lines) else None


@once
def draft_headroom(launch: Launch) -> int | None:
    """Return by how many tokens at most speculation enlarges the pool beyond the budget; None: not known.

    Source: init_memory_pool in model_executor/model_runner.py, up to 0.5.6 (draft and verify tokens of each
    request, and 100).
    """
    if launch.argument("speculative_algorithm") is None:
        return 0
    names = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    steps, width, drafts = (launch.argument(name) for name in names)
    requests = launch.argument("max_running_requests") or _MOST_REQUESTS
    if not all(isinstance(one, int) for one in (steps, width, drafts, requests)):
        return None
    return int(requests * (steps * width + drafts) + 100)
