"""The account of each rank: where its memory went, in terms that add up to what was free at the start.

total = weights + draft model + KV cache + state pools + graphs + other + given back + unexplained + free

Each amount is printed, or inferred from printed ones (then it says from what), or absent with the reason.
`given back` is negative: what loading and capture had taken and freed again, between two measurements.
`other` is what SGLang allocates without a line of its own, as far as its size is known: the table of requests
and tokens, what the allocator rounds up to, buffers between two printed measurements. What is beyond that is
`unexplained`.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise

from sglogparse._cheap import dataclass
from sglogparse._derived import once
from sglogparse._interval import HOST_GB, Interval
from sglogparse._launches import Launch
from sglogparse.ledger.rank_equations import pools_of
from sglogparse.ledger.readings import Capture, Number, Rank, Worker, read_ranks
from sglogparse.ledger.spend_equations import four_bit
from sglogparse.ledger.tables import context_of, request_table

#: The terms in the order in which memory is taken.
TERMS = ("weights", "draft", "KV cache", "states", "graphs", "other", "given back", "unexplained", "free")
#: A rank closes when what is unexplained is less than this share of all its memory.
CLOSE = Fraction(1, 100)
#: What is given back is more than rounding, GiB.
_CLEAR = Fraction(5, 100)
#: The element of a pool in host memory that a line without a name allocates.
_HOST = "hierarchical KV cache"
_NOTHING = Interval(Fraction(0), Fraction(0))


@dataclass(frozen=True)
class Amount:
    """A part of a rank's memory, GiB."""

    interval: Interval
    #: whether lines print it; else it is inferred from them
    printed: bool
    lines: tuple[int, ...]
    #: how it was inferred, or what it holds
    note: str | None = None

    @property
    def middle(self) -> float:
        """Return the middle of its interval, GiB."""
        return float((self.interval.low + self.interval.high) / 2)


@dataclass(frozen=True)
class Account:
    """One rank's memory: what was free at the start, and where it went; GiB."""

    rank: str | None
    total: Amount
    #: by term; a term that the rank does not have, or that its lines do not tell, is not in it
    parts: dict[str, Amount]
    #: why terms are missing, by term
    absent: dict[str, str]

    @property
    def unexplained(self) -> Amount | None:
        """Return what no term explains; None when everything closes."""
        return self.parts.get("unexplained")

    @property
    def closes(self) -> str:
        """Say how far the account closes, in words."""
        left = self.unexplained
        if "free" not in self.parts:
            return "only the start is in the log"
        if left is None:
            return "closes within rounding and named terms"
        if abs(left.middle) <= float(CLOSE * self.total.interval.high):
            return "closes within 1 %"
        return f"unexplained: {left.middle:.2f} GiB"


@once
def read_accounts(launch: Launch) -> tuple[Account, ...]:
    """Return the accounts of the ranks whose lines tell how much was free before the weights."""
    accounts = (_account(launch, rank) for rank in read_ranks(launch))
    return tuple(one for one in accounts if one is not None)


@dataclass(frozen=True)
class HostPool:
    """A pool in the memory of the host, bytes."""

    what: str
    rank: str | None
    line: int
    size: Interval


@once
def read_host_pools(launch: Launch) -> tuple[HostPool, ...]:
    """Return the pools that ranks allocate in host memory (HiCache's "GB": 10^9 bytes)."""
    lines = launch.frames["hicache_host_pool"]["line"]
    if lines.is_empty():
        return ()
    return tuple(
        HostPool(
            row["host_pool"] or row["host_kind"] or _HOST,
            row["rank"],
            row["line"],
            Interval.printed(row["host_size"]).in_bytes(HOST_GB),
        )
        for row in launch.printed("hicache_host_pool", lines)
        if row["host_size"] is not None
    )


def _account(launch: Launch, rank: Rank) -> Account | None:
    total = _total(rank)
    if total is None:
        return None
    parts: dict[str, Amount] = {}
    absent: dict[str, str] = {}
    weights = _weights(rank.target, total)
    if weights is not None:
        parts["weights"] = weights
    else:
        absent["weights"] = 'no "Load weight end" line'
    drafts = [amount for one in rank.drafts for amount in _draft(launch, one)]
    if drafts:
        parts["draft"] = _together(drafts, "weights and KV cache of the draft model")
    pools = [(pool.what, _pool(launch, pool.what, pool.parts)) for _, pool in pools_of(rank.target)]
    for term, kinds in (("KV cache", ("KV cache", "KV cache (sum)")), ("states", ("state pool",))):
        own = [amount for what, amount in pools if what in kinds]
        if own:
            parts[term] = _together(own)
    if "KV cache" not in parts:
        unprinted = _unprinted(launch, rank)
        if unprinted is None:
            absent["KV cache"] = "no line prints its size"
        else:
            parts["KV cache"] = unprinted
    graphs = [one for worker in (rank.target, *rank.drafts) for one in _graphs(worker.captures)]
    if graphs:
        parts["graphs"] = _together(graphs)
    elif unsized(rank):
        absent["graphs"] = "captures are printed without sizes, and what is free is that before them"
    elif rank.target.pool_end is not None:
        absent["graphs"] = "no capture is printed"
    last = _last(rank)
    if last is None:
        absent["free"] = "no line behind the weights prints it"
        return Account(rank.name, total, parts, absent)
    parts["free"] = Amount(last.interval, printed=True, lines=(last.line,))
    rest = total.interval
    for amount in parts.values():
        rest = rest - amount.interval
    return Account(rank.name, total, {**parts, **_others(launch, rank, parts, rest, last)}, absent)


def unsized(rank: Rank) -> bool:
    """Tell whether graphs were captured and no line says what they took (0.4.3 and older)."""
    captures = [one for worker in (rank.target, *rank.drafts) for one in worker.captures]
    return bool(captures) and all(one.begin is None and one.end is None for one in captures)


def _total(rank: Rank) -> Amount | None:
    load = rank.target.load
    if load is None:
        return None
    if load.begin is not None:
        return Amount(load.begin.interval, printed=True, lines=(load.begin.line,))
    if load.end is None or load.used is None:
        return None
    note = "free after the weights + weights"
    return Amount(load.end.interval + load.used.interval, printed=False, lines=(load.end.line,), note=note)


def _weights(worker: Worker, total: Amount) -> Amount | None:
    load = worker.load
    if load is None or load.end is None:
        return None
    if load.used is not None:
        return Amount(load.used.interval, printed=True, lines=(load.used.line,))
    lines = (*total.lines, load.end.line)
    return Amount(
        total.interval - load.end.interval, printed=False, lines=lines, note="free before - free after"
    )


def _draft(launch: Launch, worker: Worker) -> Iterable[Amount]:
    if worker.load is not None:
        used, begin, end = worker.load.used, worker.load.begin, worker.load.end
        if used is not None:
            yield Amount(used.interval, printed=True, lines=(used.line,))
        elif begin is not None and end is not None:
            yield Amount(begin.interval - end.interval, printed=False, lines=(begin.line, end.line))
    for _, pool in pools_of(worker):
        yield _pool(launch, pool.what, pool.parts)


def _pool(launch: Launch, what: str, numbers: tuple[Number, ...]) -> Amount:
    size = _sum(number.interval for number in numbers)
    scales = four_bit(launch) if what != "state pool" else Fraction(1)
    note = None
    if scales != 1:
        size = Interval(size.low * scales, size.high * scales)
        note = "with the scales of four-bit elements, which this release does not print"
    return Amount(size, printed=scales == 1, lines=tuple({number.line: 0 for number in numbers}), note=note)


def _unprinted(launch: Launch, rank: Rank) -> Amount | None:
    """Return a KV cache that no line prints: what the pools took, less the request table."""
    before, after = rank.profiled, rank.target.pool_end
    if before is None or after is None or rank.target.pools:
        return None
    size = before.interval - after.interval - request_table(launch, rank)
    note = "free after the weights - free after the pools - request table"
    return Amount(size, printed=False, lines=(before.line, after.line), note=note)


def _graphs(captures: Iterable[Capture]) -> Iterable[Amount]:
    for one in captures:
        if one.used is not None:
            yield Amount(one.used.interval, printed=True, lines=(one.used.line,))
        elif one.begin is not None and one.end is not None:
            lines = (one.begin.line, one.end.line)
            yield Amount(one.begin.interval - one.end.interval, printed=False, lines=lines)


def _sum(intervals: Iterable[Interval]) -> Interval:
    return sum(intervals, _NOTHING)


def _together(amounts: list[Amount], note: str | None = None) -> Amount:
    lines = tuple(sorted({line for one in amounts for line in one.lines}))
    notes = dict.fromkeys(one.note for one in amounts if one.note)
    printed = all(one.printed for one in amounts)
    return Amount(_sum(one.interval for one in amounts), printed, lines, note or "; ".join(notes) or None)


def _measured(rank: Rank) -> list[Number]:
    """Return all that the rank prints of its free memory, in the order of its lines."""
    numbers = [rank.free]
    for worker in (rank.target, *rank.drafts):
        numbers.append(worker.pool_end)
        if worker.load is not None:
            numbers += [worker.load.begin, worker.load.end]
        for one in worker.captures:
            numbers += [one.begin, one.end]
    return sorted((one for one in numbers if one is not None), key=lambda one: one.line)


def _last(rank: Rank) -> Number | None:
    """Return the last that it prints of its free memory, behind the weights."""
    load = rank.target.load
    behind = load.end.line if load and load.end else None
    return next((one for one in reversed(_measured(rank)) if behind is not None and one.line >= behind), None)


def _others(
    launch: Launch, rank: Rank, parts: dict[str, Amount], rest: Interval, last: Number
) -> dict[str, Amount]:
    """Split what no line names into what is known to be allocated, and what is unexplained."""
    gaps = _gaps(rank)
    names: list[str] = []
    beyond = None
    if any(worker.pool_end is not None for worker in (rank.target, *rank.drafts)):
        table = request_table(launch, rank)
        beyond = _beyond(rest - _sum(gaps.values()), table)
        names.append(
            "request table and allocator"
            if context_of(launch, rank)
            else "a request table whose size the log does not tell (no context_len)"
        )
    elif not gaps:
        beyond = _beyond(rest, _NOTHING)
    back = {pair: size for pair, size in gaps.items() if size.high < -_CLEAR}
    if len(back) < len(gaps):
        names.append("taken between lines")
    out: dict[str, Amount] = {}
    if back:
        lines = tuple(sorted({line for pair in back for line in pair}))
        note = "taken and freed again by loading and capture"
        out["given back"] = Amount(_sum(back.values()), printed=False, lines=lines, note=note)
        rest = rest - out["given back"].interval
    if names:
        lines = tuple(sorted({line for pair in gaps if pair not in back for line in pair}))
        other = rest if beyond is None else rest - beyond
        out["other"] = Amount(other, printed=False, lines=lines, note=", ".join(names))
    if beyond is not None:
        lines = tuple(sorted({line for one in parts.values() for line in one.lines} | {last.line}))
        out["unexplained"] = Amount(beyond, printed=False, lines=lines)
    return out


def _beyond(amount: Interval, known: Interval) -> Interval | None:
    """Return by how much an amount lies outside what is known to be taken; None when it can be that."""
    return None if amount.meets(known) else amount - known


def _gaps(rank: Rank) -> dict[tuple[int, int], Interval]:
    """Return what was taken between two measurements, by their lines, where nothing is printed to be taken.

    Where a pool is built between them and its end is not in the log, what captures took is in it as well.
    """
    workers = (rank.target, *rank.drafts)
    named = {
        number.line
        for worker in workers
        for number in (
            worker.pool_end,
            worker.load.end if worker.load else None,
            *(one.end for one in worker.captures),
        )
        if number is not None
    }
    pools = {
        pool.line: _sum(part.interval for part in pool.parts)
        for worker in workers
        for _, pool in pools_of(worker)
    }
    out: dict[tuple[int, int], Interval] = {}
    for before, after in pairwise(_measured(rank)):
        if after.line not in named and before.line != after.line:
            built = _sum(size for line, size in pools.items() if before.line < line < after.line)
            out[before.line, after.line] = before.interval - after.interval - built
    return out
