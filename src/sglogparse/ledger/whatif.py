"""What a start with other arguments would give, from the numbers of a start that is in the log.

the budget as it was --> changes (fraction, ranks, element type, context, requests) --> as it would be

Nothing is predicted that the log does not support: every number is an interval, every step beyond SGLang's
own arithmetic is an assumption that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from sglogparse._budget import NARROW, printed_budgets
from sglogparse._cheap import dataclass
from sglogparse._derived import once
from sglogparse._interval import GIB, Interval, round_up
from sglogparse._launches import Launch
from sglogparse.ledger.account import Account, read_accounts, unsized
from sglogparse.ledger.budget_equations import image_factor
from sglogparse.ledger.ledger import Ledger, implied_fraction, read_ledger
from sglogparse.ledger.model import FRACTION, Group
from sglogparse.ledger.rank_equations import pools_of
from sglogparse.ledger.readings import Rank
from sglogparse.ledger.spend_equations import LATENT, deciding, four_bit

#: Bytes an element of the KV cache, with the scale byte of sixteen four-bit elements.
ELEMENTS: Mapping[str, Fraction] = {
    "auto": Fraction(2),
    "bf16": Fraction(2),
    "bfloat16": Fraction(2),
    "float16": Fraction(2),
    "fp8_e4m3": Fraction(1),
    "fp8_e5m2": Fraction(1),
    "fp4_e2m1": Fraction(9, 16),
}
#: Element types as pools print them.
_PRINTED = {
    "torch.bfloat16": Fraction(2),
    "torch.float16": Fraction(2),
    "torch.float8_e4m3fn": Fraction(1),
    "torch.float8_e4m3fnuz": Fraction(1),
    "torch.float8_e5m2": Fraction(1),
    "torch.float8_e5m2fnuz": Fraction(1),
    "torch.float4_e2m1fn_x2": Fraction(9, 16),
}
#: How near to the plain formula a pool is that follows it.
_PLAIN = Fraction(1, 100)
#: The share of the weights that each rank may hold in full, whatever the number of ranks.
_REPLICATED = Fraction(1, 10)
_ZERO, _UNIT = Interval.exactly(0), Interval.exactly(1)


@dataclass(frozen=True)
class Changes:
    """Arguments of another start; None: as it was."""

    mem_fraction_static: Fraction | None = None
    context_length: int | None = None
    max_running_requests: int | None = None
    kv_cache_dtype: str | None = None
    tp_size: int | None = None

    def given(self) -> dict[str, str]:
        """Return the changed arguments by name."""
        fraction = self.mem_fraction_static
        values = {
            "mem_fraction_static": None if fraction is None else f"{float(fraction):g}",
            "context_length": self.context_length,
            "max_running_requests": self.max_running_requests,
            "kv_cache_dtype": self.kv_cache_dtype,
            "tp_size": self.tp_size,
        }
        return {name: str(value) for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class Budget:
    """The KV budget of a group of ranks: GiB a rank, bytes a token, tokens. None: the log does not tell."""

    group: str
    total: Interval | None
    avail: Interval | None
    fraction: Interval | None
    #: where the fraction is from: declared, printed, implied by the pool
    fraction_from: str | None
    rest: Interval | None
    #: what the state pools take of it
    taken: Interval
    #: whether the arguments fix their size; else they are a share of the budget
    fixed: bool
    cell_size: Interval | None
    #: tokens that were allocated, or that the budget gives
    tokens: Interval | None
    #: the tokens are printed (and not what the budget gives)
    allocated: bool
    kv: Interval | None
    context: int | None
    #: the most tokens of a prefill batch, by the arguments
    batch: int | None
    #: free after the start on the rank that has least, GiB
    free: Interval | None

    @property
    def requests(self) -> Interval | None:
        """Return how many requests of full context fit at once."""
        if self.tokens is None or not self.context:
            return None
        one = Interval.exactly(self.context)
        return (Interval(max(self.tokens.low, Fraction(0)), max(self.tokens.high, Fraction(0))) / one).floor()

    @property
    def smallest_for_a_request(self) -> Interval | None:
        """Return the mem_fraction_static above which one request of full context fits."""
        return self.smallest_for(self.context) if self.context else None

    def smallest_for(self, tokens: int) -> Interval | None:
        """Return the mem_fraction_static above which so many tokens fit."""
        if self.smallest is None or self.total is None or self.cell_size is None:
            return None
        return self.smallest + self.cell_size * Interval.exactly(Fraction(tokens, GIB)) / self.total

    @property
    def smallest(self) -> Interval | None:
        """Return the mem_fraction_static above which any token fits: 1 - avail / total.

        State pools of a fixed size must fit as well.
        """
        if self.total is None or self.avail is None or self.total.low <= 0:
            return None
        left = self.avail - self.taken if self.fixed else self.avail
        return _UNIT - left / self.total


@dataclass(frozen=True)
class Prediction:
    """The budget under other arguments, with what was assumed."""

    before: Budget
    after: Budget
    assumptions: tuple[str, ...]
    #: what cannot be predicted, with the reason
    missing: tuple[str, ...] = ()


@once
def read_budgets(launch: Launch) -> tuple[Budget, ...]:
    """Return the budget of each group of ranks, as printed and inferred."""
    accounts = {one.rank: one for one in read_accounts(launch)}
    return tuple(_budget(launch, group, accounts) for group in read_ledger(launch).groups)


def _budget(launch: Launch, group: Group, accounts: Mapping[str | None, Account]) -> Budget:
    ledger = read_ledger(launch)

    def known(name: str) -> Interval | None:
        found = ledger.inferred((name, group.name))
        return found.interval if found and any(fact.line for fact in found.facts) else None

    fraction, source = _fraction(launch)
    rank = deciding(group.ranks)
    pools = pools_of(rank.target)
    kv = [pool for _, pool in pools if pool.what != "state pool"]
    states = [part.interval for _, pool in pools if pool.what == "state pool" for part in pool.parts]
    size = (
        _scaled(_sum(part.interval for pool in kv for part in pool.parts), four_bit(launch)) if kv else None
    )
    # as printed: what the solver makes of them allows for drift
    exact = "" if printed_budgets(launch) else "least "
    total, avail = known(f"{exact}total") or known("total"), known(f"{exact}avail") or known("avail")
    rest = None
    if total is not None and avail is not None and fraction is not None:
        rest = avail - total * (_UNIT - fraction)
    page = launch.argument("page_size")
    printed = [pool.tokens.interval for pool in kv if pool.tokens is not None]
    tokens = max(printed, key=lambda one: one.high, default=None)
    if tokens is None and rank.capacity is not None:
        tokens = rank.capacity.interval
    cell = _cell(ledger, group, rank)
    if cell is None and size is not None and tokens is not None and tokens.low > 0:
        slots = Interval(tokens.low, tokens.high + (page if isinstance(page, int) else 1))
        cell = size * Interval.exactly(GIB) / slots
    free = [
        amount
        for one in group.ranks
        if (own := accounts.get(one.name))
        and (amount := own.parts.get("free"))
        and one.target.pool_end
        and not unsized(one)
    ]
    least = min((amount.interval for amount in free), key=lambda one: one.low, default=None)
    context = next((one.context for one in group.ranks if one.context), launch.argument("context_length"))
    batch = launch.argument("max_prefill_tokens")
    allocated = tokens is not None
    if tokens is None and rest is not None and cell is not None:
        found = ledger.inferred(("max tokens", group.name, rank.pp))
        tokens = found.interval if found else (rest * Interval.exactly(GIB) / cell).floor()
    return Budget(
        group=group.name,
        total=total,
        avail=avail,
        fraction=fraction,
        fraction_from=source,
        rest=rest,
        taken=_sum(states),
        fixed=isinstance(launch.argument("max_mamba_cache_size"), int),
        cell_size=cell,
        tokens=tokens,
        allocated=allocated,
        kv=size,
        context=context if type(context) is int and context > 0 else None,
        batch=batch if type(batch) is int and batch > 0 else None,
        free=least,
    )


@dataclass(frozen=True)
class Usable:
    """A mem_fraction_static with which a server can work, and for how many tokens it has room."""

    #: rounded up to three decimals, so that the printed value is enough
    text: str
    #: what it has room for, and why that was taken
    room: str


@once
def usable_fraction(launch: Launch) -> Usable | None:
    """Return the smallest fraction with which a server can work; None where the log lacks the numbers.

    That is one with room for a request of full context, else (the context is not in the log, or does not
    fit) for a prefill batch as large as the arguments allow.
    """
    budgets = read_budgets(launch)
    context = max((one.context for one in budgets if one.context), default=None)
    whole = None if context is None else _least(budgets, context)
    if whole is not None and whole <= NARROW:
        return Usable(round_up(whole, 3), f"a request of {context} tokens, the full context")
    batch = max((one.batch for one in budgets if one.batch), default=None)
    some = None if batch is None or (context and context < batch) else _least(budgets, batch)
    if some is None or some > NARROW:
        return None
    more = f"; none for one of full context, {context}" if context is not None else ""
    return Usable(round_up(some, 3), f"a prefill of {batch} tokens{more}")


def _least(budgets: Iterable[Budget], tokens: int) -> Fraction | None:
    """Return the fraction above which so many tokens fit on all ranks; None where that is not known."""
    found = [one.smallest_for(tokens) for one in budgets]
    return max((one.high for one in found if one is not None), default=None)


def _fraction(launch: Launch) -> tuple[Interval | None, str | None]:
    """Return the fraction that the server computed with, and where it is from."""
    facts = read_ledger(launch).model.facts
    # what is in force: a model that reads images gets less than was declared
    told = [one for one in facts if one.variable == FRACTION]
    told += [one for one in facts if _place(one.variable) == ("printed", "fraction")]
    declared = [one for one in facts if one.variable == "declared fraction"]
    if declared and all(one.interval.meets(declared[0].interval) for one in told):
        return declared[0].interval, "declared"
    if told:
        return told[0].interval, "in force"
    implied = implied_fraction(launch)
    return (implied.interval, "implied by the pool") if implied else (None, None)


def _place(variable: object) -> tuple[object, ...]:
    return variable[:2] if isinstance(variable, tuple) else ()


def _cell(ledger: Ledger, group: Group, rank: Rank) -> Interval | None:
    """Return the bytes a token that a line prints; None when none does."""
    found = ledger.inferred(("cell size", group.name, rank.pp))
    return found.interval if found else None


def _sum(intervals: Iterable[Interval]) -> Interval:
    return sum(intervals, _ZERO)


def _scaled(interval: Interval, factor: Fraction) -> Interval:
    return interval * Interval.exactly(factor)


def predict(launch: Launch, before: Budget, changes: Changes) -> Prediction:
    """Return what a start with other arguments would give.

    Tokens follow from the budget by SGLang's own formula; where its pools split the budget (sliding windows,
    states), the split keeps its shares.
    """
    notes = _Notes()
    avail, cell, fraction = before.avail, before.cell_size, before.fraction
    if changes.mem_fraction_static is not None:
        fraction = _in_force(launch, changes.mem_fraction_static, notes)
    if changes.tp_size is not None:
        avail, cell = _with_ranks(launch, before, changes.tp_size, notes)
    if changes.kv_cache_dtype is not None:
        cell = _with_elements(launch, cell, changes.kv_cache_dtype, notes)
    rest = _rest(before.total, avail, fraction, notes)
    tokens, kv = _tokens(launch, before, rest, cell, notes)
    after = replace(
        before,
        avail=avail,
        fraction=fraction,
        fraction_from=before.fraction_from if changes.mem_fraction_static is None else "asked",
        rest=rest,
        cell_size=cell,
        tokens=tokens,
        allocated=False,
        kv=kv,
        context=changes.context_length or before.context,
        free=_left(launch, before, avail, kv, changes, notes),
    )
    return Prediction(before, after, tuple(notes.assumed), tuple(notes.missing))


def _in_force(launch: Launch, asked: Fraction, notes: _Notes) -> Interval:
    """Return what a server makes of a fraction: less, for a model that reads images (0.4.2 to 0.4.8)."""
    factor = image_factor(launch)
    if factor is None:
        return Interval.exactly(asked)
    notes.assumed.append(f"the server takes {float(factor):g} of it, as the model reads images")
    return Interval.exactly(asked * factor)


class _Notes:
    def __init__(self) -> None:
        self.assumed: list[str] = []
        self.missing: list[str] = []


def _rest(
    total: Interval | None, avail: Interval | None, fraction: Interval | None, notes: _Notes
) -> Interval | None:
    if total is not None and avail is not None and fraction is not None:
        return avail - total * (_UNIT - fraction)
    parts = (
        ("free memory before the weights", total),
        ("free memory after them", avail),
        ("mem_fraction_static", fraction),
    )
    unknown = ", ".join(name for name, value in parts if value is None)
    notes.missing.append(f"the budget: the log does not tell {unknown}")
    return None


def _with_ranks(
    launch: Launch, before: Budget, ranks: int, notes: _Notes
) -> tuple[Interval | None, Interval | None]:
    """Return what is free after the weights, and the bytes a token, with another number of TP ranks."""
    old = launch.argument("tp_size")
    if not isinstance(old, int) or before.total is None or before.avail is None:
        notes.missing.append("other ranks: the log does not tell tp_size and what the weights took")
        return None, None
    share = Fraction(old, ranks)
    weights = before.total - before.avail
    ends = sorted((share, share + (1 - share) * _REPLICATED))
    notes.assumed.append(
        "weights are split evenly over TP ranks, but for up to a tenth of them on every rank"
    )
    notes.assumed.append("each rank has as much free memory before the weights as now")
    cell = before.cell_size
    if cell is not None and not _latent(launch):
        ends_of_cell = sorted((Fraction(1), share))
        cell = cell * Interval(*ends_of_cell)
        notes.assumed.append(
            "KV heads are split over TP ranks, or repeated where there are fewer heads than ranks"
        )
    return before.total - weights * Interval(*ends), cell


def _latent(launch: Launch) -> bool:
    """Tell whether every rank holds all of the KV cache: latent attention, or attention DP."""
    joint = _is_latent_cell(launch) or any(
        number.name == "kv size"
        for group in read_ledger(launch).groups
        for rank in group.ranks
        for _, pool in pools_of(rank.target)
        for number in pool.parts
    )
    return joint or launch.argument("enable_dp_attention") is True


def _is_latent_cell(launch: Launch) -> bool:
    """Tell whether a printed cell_size is whole layers of latent attention."""
    sizes = {one.text["cell_size"] for one in printed_budgets(launch)}
    return bool(sizes) and all(Fraction(size) % LATENT == 0 for size in sizes)


def _with_elements(launch: Launch, cell: Interval | None, dtype: str, notes: _Notes) -> Interval | None:
    """Return the bytes a token with another element type."""
    printed = launch.frames["kv_cache"]["pool_dtype"].drop_nulls()
    given = launch.argument("kv_cache_dtype")
    old = _PRINTED.get(printed[0]) if len(printed) else None
    if old is None:
        old = ELEMENTS.get(given if isinstance(given, str) else "auto")
        if given in (None, "auto"):
            notes.assumed.append("the KV cache has 2 bytes an element now (kv_cache_dtype auto)")
    if old is None or cell is None:
        notes.missing.append("another element type: the log does not tell the bytes a token of this one")
        return None
    return _scaled(cell, ELEMENTS[dtype] / old)


def _tokens(
    launch: Launch, before: Budget, rest: Interval | None, cell: Interval | None, notes: _Notes
) -> tuple[Interval | None, Interval | None]:
    """Return the tokens that a budget gives, and the GiB of their pools."""
    if rest is None:
        return None, None
    cap = launch.argument("max_total_tokens")
    page = launch.argument("page_size")
    pages = Interval(Fraction(-(page if isinstance(page, int) else 1)), Fraction(0))
    whole = before.allocated and before.rest is not None and before.rest.low > 0
    if cell is None or before.cell_size is None or cell.low <= 0 or before.cell_size.low <= 0:
        notes.missing.append("tokens: no line prints the bytes a token, or a pool of any")
        return None, rest - before.taken
    filled = _UNIT
    if whole and before.tokens is not None and before.rest is not None:
        filled = before.tokens * before.cell_size / (before.rest * Interval.exactly(GIB))
        spare = Fraction(-pages.low) / max(before.tokens.low, Fraction(1))
        if filled.low <= 1 and filled.high >= 1 - spare:
            filled = _UNIT  # but for what whole pages leave
        elif filled.low > 1 + _PLAIN or filled.high < 1 - _PLAIN:
            notes.assumed.append("the pools share the budget as they did in this start")
    elif before.taken.high > 0:
        rest = rest - before.taken
        notes.assumed.append("the state pools take what they took")
    if filled is not _UNIT:
        pages = _ZERO  # what whole pages leave is in the share already
    tokens = (rest * filled * Interval.exactly(GIB) / cell).floor() + pages
    # a page more is allocated than counted, and what does not fill a page is left
    kv = rest * filled + pages * Interval.exactly(cell.high / GIB)
    if isinstance(cap, int) and tokens.high > cap:
        whole_pages = Fraction(cap // page * page if isinstance(page, int) and page > 0 else cap)
        tokens = Interval(min(tokens.low, whole_pages), Fraction(cap))
        kv = Interval(min(kv.low, cap * cell.low / GIB), min(kv.high, cap * cell.high / GIB))
        notes.assumed.append(f"max_total_tokens={cap} stays")
    return tokens, kv


def _left(
    launch: Launch,
    before: Budget,
    avail: Interval | None,
    kv: Interval | None,
    changes: Changes,
    notes: _Notes,
) -> Interval | None:
    """Return what is free after the start on the rank that has least, GiB."""
    if before.free is None or before.kv is None:
        notes.missing.append("what is left after the start: this one did not come so far")
        return None
    if kv is None or avail is None or before.avail is None:
        return None
    notes.assumed.append("graphs and activations take what they took")
    return (
        before.free
        - (kv - before.kv)
        + (avail - before.avail)
        - _table_growth(launch, before, changes, notes)
    )


def _table_growth(launch: Launch, before: Budget, changes: Changes, notes: _Notes) -> Interval:
    """Return by how much the table of requests and tokens grows, GiB: 4 bytes a token of each request."""
    if changes.context_length is None and changes.max_running_requests is None:
        return _ZERO
    requests = next((rank.requests for rank in read_ledger(launch).ranks if rank.requests), None)
    if requests is None or before.context is None:
        notes.missing.append("the table of requests: the log does not tell their number and context")
        return _ZERO
    notes.assumed.append("the table of requests has a place for each token of each request")
    then = (changes.max_running_requests or requests) * (changes.context_length or before.context)
    return Interval.exactly(Fraction((then - requests * before.context) * 4, GIB))
