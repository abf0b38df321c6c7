"""SGLang's memory arithmetic as equations between what a launch prints, each behind the guard that allows it.

    total      free memory before the weights, least over the group                         GiB
    avail      free memory when the pools are sized, least over the group                   GiB
    reserved = total * (1 - mem_fraction_static)
    rest     = avail - reserved                                                             GiB
    tokens   = whole pages of rest * 2^30 / cell_size
    pool     = tokens * cell_size                       a page more is allocated
    free after the pools  = free after the weights - pools - other
    free after a capture  = free before it - graphs

Sources: profile_max_num_token and init_memory_pool in model_executor/model_runner.py (0.2.0 to 0.5.6), in
model_runner_kv_cache_mixin.py (0.5.7 to 0.5.15), mem_cache/kv_cache_configurator.py (0.5.16 and later);
get_available_gpu_memory in utils.

An equation is asserted only where the configuration is known to obey it; why one is not is told instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from sglogparse._budget import draft_headroom, has_state_pools, printed_budgets
from sglogparse._interval import GIB, Interval
from sglogparse._launches import Launch
from sglogparse._release import release_range, version_window
from sglogparse.ledger.readings import Number, Pool, Rank, Worker
from sglogparse.ledger.solver import Equation, Fact, Least, Linear, Product, Variable

#: What free memory changes by between two measurements of what is meant to be one moment, GiB.
DRIFT = Fraction(15, 100)
#: By how much free memory may rise behind the pools (buffers of loading are given back), share of all.
_GIVEN_BACK = Fraction(2, 100)
#: By how much ranks that are not in the log may have less free than those that are, share of all.
_UNSEEN = Fraction(1, 100)
#: A pool of four-bit elements has a scale byte for sixteen of them; 0.5.11 and 0.5.12 do not print them.
_SCALES = Fraction(9, 8)
#: 0.5.13 prints a four-bit pool with its scales.
_SCALES_PRINTED = (0, 5, 13)
#: The last release (and the builds behind it) in which the pool is larger by the tokens of drafts.
_HEADROOM_UNTIL = (0, 5, 7)
#: The first release that counts the draft's pool into the budget.
_DRAFTS_COUNTED = (0, 5, 11)
#: Tokens a page, at most, where the arguments are not in the log.
_LARGEST_PAGE = 256
#: What state pools may differ by from what was budgeted for them, as a share: whole states; with speculation.
_STATES = Fraction(5, 100)
_SPECULATED = Fraction(25, 100)
#: More GiB than any device has.
_ANY = 1 << 14
#: What splitting the budget into two pools of whole pages can leave, share of the budget.
_SPLIT = Fraction(2, 100)
_SIZING = "profile_max_num_token (0.2.0 to 0.5.15), _profile_available_bytes (0.5.16 and later)"
_LOADING = "load_model in model_executor/model_runner.py"
_FREE = "init_memory_pool in model_executor/model_runner.py and its heirs"
_CAPTURE = "init_cuda_graphs in model_executor/model_runner.py and its heirs"


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

    def sum(self, name: str, terms: dict[Variable, int], source: str, constant: int = 0) -> None:
        """Add an equation: multiples of variables sum with a constant to zero."""
        self.equations.append(Linear(name, terms, source, constant))


def build(launch: Launch, ranks: tuple[Rank, ...], *, drift: Fraction, infers: bool = False) -> Model:
    """Return the facts and equations of a launch, with what free memory may drift by (GiB; 0: not at all).

    With `infers` the fraction that the arguments declare is left out, and nothing is taken to cap the pools:
    what the pools imply is then what the server must have been started with.
    """
    model = Model(drift, infers)
    for rank in ranks:
        _rank(model, rank)
    for group in read_groups(launch, ranks):
        _group(model, launch, group)
    return model


def _rank(model: Model, rank: Rank) -> None:
    """Add what holds on one rank."""
    name = rank.name
    for number, worker in enumerate((rank.target, *rank.drafts)):
        _load(model, name, number, worker)
        _pools(model, name, number, worker)
        for place, capture in enumerate(worker.captures):
            begin, used, end = _parts("graphs", name, number, place)
            known = (
                model.printed(begin, capture.begin),
                model.printed(used, capture.used),
                model.printed(end, capture.end),
            )
            if all(known):
                model.sum(
                    "free after the capture = free before it - graphs", {end: 1, begin: -1, used: 1}, _CAPTURE
                )
    _after_pools(model, rank)


def _parts(what: str, *place: object) -> tuple[Variable, Variable, Variable]:
    """Return the variables of what is free before something, what it takes, and what is free behind it."""
    return (f"{what} begin", *place), (f"{what} used", *place), (f"{what} end", *place)


def _load(model: Model, name: str | None, number: int, worker: Worker) -> None:
    if worker.load is None:
        return
    begin, used, end = _parts("load", name, number)
    model.printed(begin, worker.load.begin)
    model.printed(end, worker.load.end)
    if model.printed(used, worker.load.used):
        drift: Variable = ("load drift", name, number)
        _drift(model, drift, "begin of loading")
        terms: dict[Variable, int] = {end: 1, begin: -1, used: 1, drift: 1}
        model.sum("free after loading = free before it - weights", terms, _LOADING)


def _drift(model: Model, variable: Variable, where: str) -> None:
    model.assume(variable, -model.drift, model.drift, f"free memory is the same on both lines at the {where}")


def _pools(model: Model, name: str | None, number: int, worker: Worker) -> None:
    """Add the sizes of a worker's pools: of each its parts, and a printed sum."""
    sums: dict[Variable, int] = {}
    for place, pool in enumerate(worker.pools):
        size = ("pool", name, number, place)
        parts: dict[Variable, int] = {}
        for part, printed in enumerate(pool.parts):
            variable = ("pool part", name, number, place, part)
            model.printed(variable, printed)
            parts[variable] = -1
        if not parts:
            continue
        model.sum("pool = its parts", {size: 1, **parts}, "the pools of mem_cache/memory_pool.py")
        if pool.what == "KV cache (sum)" and sums:
            model.sum("both pools = their parts", {size: 1, **sums}, "SWAKVPool in mem_cache/")
        elif pool.what == "KV cache":
            sums[size] = -1
        if pool.tokens is not None:
            model.printed(("pool tokens", name, number, place), pool.tokens)


def pools_of(worker: Worker) -> list[tuple[int, Pool]]:
    """Return the pools that take memory, each once (not the line that sums up those above it)."""
    kv = [pool for pool in worker.pools if pool.what == "KV cache" and pool.parts]
    return [
        (place, pool)
        for place, pool in enumerate(worker.pools)
        if pool.parts and not pool.bound and (pool.what != "KV cache (sum)" or not kv)
    ]


def _after_pools(model: Model, rank: Rank) -> None:
    """Add that the pools come off the free memory: what else does is not negative."""
    pools = pools_of(rank.target)
    if rank.profiled is None or rank.target.pool_end is None or not pools:
        return
    end, other = ("pool end", rank.name), ("other", rank.name)
    model.printed(end, rank.target.pool_end)
    back = _GIVEN_BACK * rank.profiled.interval.high if model.drift else Fraction(0)
    model.assume(
        other, -max(back, model.drift), rank.profiled.interval.high, "what else is allocated is not negative"
    )
    terms: dict[Variable, int] = {end: 1, _profiled(rank): -1, other: 1}
    terms |= {("pool", rank.name, 0, place): 1 for place, _ in pools}
    model.sum("free after the pools = free after the weights - pools - other", terms, _FREE)


def _profiled(rank: Rank) -> Variable:
    """Return the variable of the free memory after the last load before the pools."""
    number = 0
    if rank.draft_first:
        number = max(place for place, one in enumerate(rank.drafts, 1) if one.load and one.load.end)
    return ("load end", rank.name, number)


def _group(model: Model, launch: Launch, group: Group) -> None:
    """Add what holds between the ranks of a group: the budget, and that all hold the same tokens."""
    _tokens(model, launch, group)
    _ties(model, launch, group)
    total, avail, outside, reserved, rest, kv = (
        (part, group.name) for part in ("total", "avail", "outside", "reserved", "rest", "rest for KV")
    )
    fraction = "mem_fraction_static"
    begun: set[Variable] = {("load begin", one.name, 0) for one in group.ranks if _begins(one)}
    _least(model, group, total, begun, "total")
    ends = {_profiled(one) for one in group.ranks if one.profiled}
    _least(model, group, avail, ends, "avail")
    model.sum("outside = 1 - mem_fraction_static", {outside: 1, fraction: 1}, _SIZING, -1)
    model.assume(outside, 0, 1, "mem_fraction_static is between 0 and 1")
    model.equations.append(
        Product("reserved = total * (1 - mem_fraction_static)", reserved, total, outside, _SIZING)
    )
    model.sum("rest = avail - reserved", {rest: 1, avail: -1, reserved: 1}, _SIZING)
    taken = ("taken", group.name)
    most, why = _taken(launch)
    model.assume(taken, 0, most, why)
    model.sum("rest for KV = rest - state pools and reserves", {kv: 1, rest: -1, taken: 1}, _SIZING)
    if not model.infers:
        _declared(model, launch, fraction)
    _printed_budget(model, launch, group)
    other_formula = _no_budget(launch, group)
    if other_formula is None:
        _spend(model, launch, group)
    else:
        model.without[group.name] = other_formula


def _begins(rank: Rank) -> bool:
    """Tell whether the free memory before the weights is printed, or follows from what is behind them."""
    load = rank.target.load
    return load is not None and (load.begin is not None or (load.end is not None and load.used is not None))


def _taken(launch: Launch) -> tuple[int, str]:
    """Return what may come off the budget before the KV cache is sized, GiB at most, and why."""
    if has_state_pools(launch):
        return _ANY, "the state pools come off the budget first"
    if not launch.frames["kv_reserve"].is_empty():
        return _ANY, "a reserve for images comes off the budget first"
    return 0, "nothing comes off the budget but the KV cache"


def _least(model: Model, group: Group, result: Variable, of: set[Variable], what: str) -> None:
    """Add that a number of the group is the least of its ranks', but for unseen ranks and for time."""
    if not of or (what == "avail" and any(one.profiled is None for one in group.ranks) and group.complete):
        return
    seen, drift = (f"least {what}", group.name), (f"{what} drift", group.name)
    model.equations.append(Least(f"{what} = least over the ranks", seen, tuple(sorted(of, key=str)), _SIZING))
    low, why = -model.drift, f"{what} is the same when the pools are sized as on its line"
    high = model.drift
    if not group.complete and model.drift:
        # ranks that do not speak may have less free
        high += _UNSEEN * _ANY
        why = "the ranks that are not in the log have about as much free"
    model.assume(drift, low, high, why)
    model.sum(f"{what} = least over the ranks - drift", {result: 1, seen: -1, drift: 1}, _SIZING)


def _kv(rank: Rank) -> list[tuple[int, Pool]]:
    """Return the target's KV pools, each with its place."""
    return [(place, pool) for place, pool in pools_of(rank.target) if pool.what == "KV cache"]


def _tokens(model: Model, launch: Launch, group: Group) -> None:
    """Add that all ranks hold the same tokens, and that the capacity line says so."""
    tokens = ("tokens", group.name)
    model.whole.append(tokens)
    source = "max_total_num_tokens is one number for all ranks; " + _FREE
    for rank in group.ranks:
        kv = _kv(rank)
        if len(kv) == 1 and kv[0][1].tokens is not None:
            model.sum(
                "tokens of the rank = tokens",
                {("pool tokens", rank.name, 0, kv[0][0]): 1, tokens: -1},
                source,
            )
            if model.printed(("capacity", rank.name), rank.capacity) and not has_state_pools(launch):
                model.sum("max_total_num_tokens = tokens", {("capacity", rank.name): 1, tokens: -1}, source)


def _ties(model: Model, launch: Launch, group: Group) -> None:
    """Add that ranks with the same layers allocate pools of the same size."""
    for rank in group.ranks:
        for place, pool in _kv(rank):
            alike = ("pool of every rank", group.name, rank.pp, place, len(_kv(rank)))
            model.sum(
                "ranks with the same layers have pools of one size",
                {("pool", rank.name, 0, place): 1, alike: -1},
                _FREE,
            )
            for part, number in enumerate(pool.parts):
                every = (*alike, number.name)
                model.sum(
                    f"{number.name} is the same on every rank",
                    {("pool part", rank.name, 0, place, part): 1, every: -1},
                    _FREE,
                )


def _declared(model: Model, launch: Launch, fraction: Variable) -> None:
    """Add the mem_fraction_static that the arguments declare, where no release changes it out of sight."""
    given, lines = launch.argument("mem_fraction_static"), launch.frames["server_args"]["line"]
    known = any(fact.variable == fraction for fact in model.facts)
    if known or lines.is_empty() or isinstance(given, bool) or not isinstance(given, float | int):
        return
    if not 0 <= given <= 1:
        return  # no server starts with that
    if not launch.frames["mem_fraction_adjusted"].is_empty():
        row = launch.printed("mem_fraction_adjusted", launch.frames["mem_fraction_adjusted"]["line"])[0]
        text = f"mem_fraction_static={row['fraction']}"
        if row["fraction"]:
            model.facts.append(Fact(fraction, Interval.printed(row["fraction"]), row["line"], text))
    elif not _hidden_factor(launch):
        model.given(fraction, repr(given), int(lines[0]), f"mem_fraction_static={given!r}")


def _hidden_factor(launch: Launch) -> bool:
    """Tell whether the server may compute with another fraction than it prints.

    With aiter, 0.4.7 to 0.5.4 take 0.85 of it in the runner; 0.3.6 to 0.4.1 take 0.95 of it for a model that
    reads images and say nothing (later releases say so).
    """
    window = _range(launch)
    if window is None:
        return False
    aiter = launch.argument("attention_backend") == "aiter"
    if aiter and window[0] <= (0, 5, 4) and window[1] >= (0, 4, 7):
        return True
    images = (
        "vl" in str(launch.argument("model_path")).lower() or launch.argument("enable_multimodal") is True
    )
    return images and window[0] <= (0, 4, 8) and window[1] >= (0, 3, 6)


def _printed_budget(model: Model, launch: Launch, group: Group) -> None:
    """Add what lines print of the budget: the print patched into its profile, and an Ascend build's line."""
    ranks = {rank.name: rank for rank in group.ranks}
    rest, tokens = ("rest for KV", group.name), ("max tokens", group.name)
    for one in printed_budgets(launch):
        rank = ranks.get(one.rank)
        end = rank.target.pool_end if rank else None
        if rank is None or (end is not None and end.line < one.line):
            continue  # a draft worker's profile, or a rank that prints nothing else
        cell = ("cell size", group.name, rank.pp)
        for name, variable in (
            ("avail", ("avail", group.name)),
            ("total", ("total", group.name)),
            ("reserved", ("reserved", group.name)),
            ("rest", rest),
        ):
            model.facts.append(Fact(variable, one.interval(name), one.line, f"{name}={one.text[name]}"))
        model.facts.append(
            Fact("mem_fraction_static", one.fraction(), one.line, f"fraction={one.text['fraction']}")
        )
        model.given(cell, one.text["cell_size"], one.line, f"cell_size={one.text['cell_size']}")
        model.given(
            (*tokens, rank.pp), one.text["max_tokens"], one.line, f"max_tokens={one.text['max_tokens']}"
        )
    for cell in {
        fact.variable
        for fact in model.facts
        if isinstance(fact.variable, tuple)
        and fact.variable[0] == "cell size"
        and fact.variable[1] == group.name
    }:
        _floor(model, rest, cell, (*tokens, cell[2]))
    rows = launch.frames["kv_budget"]
    for row in launch.printed("kv_budget", rows["line"]) if not rows.is_empty() else ():
        speaks = ranks.get(row["rank"])
        if (
            row["rest"]
            and speaks
            and not (speaks.target.pool_end and speaks.target.pool_end.line < row["line"])
        ):
            model.facts.append(
                Fact(rest, Interval.printed(row["rest"]), row["line"], f"KV budget {row['rest']} GB")
            )


def _floor(model: Model, rest: Variable, cell: Variable, tokens: Variable) -> None:
    """Add tokens = floor(rest * 2^30 / cell_size)."""
    used, left, gap = (("bytes", what, cell) for what in ("used", "left", "short of a token"))
    name = "max_tokens = floor(rest x 2^30 / cell_size)"
    model.equations.append(Product(name, used, tokens, cell, _SIZING))
    model.sum(name, {rest: GIB, used: -1, left: -1}, _SIZING)
    # the bytes are cut to a whole number first in 0.5.7 and later
    model.assume(left, -1, 1 << 40, "what is left is less than a token")
    model.assume(gap, 0, 1 << 40, "what is left is less than a token")
    model.sum(name, {left: 1, gap: 1, cell: -1}, _SIZING)


def _range(launch: Launch) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    return release_range(version_window(launch.args, cut=launch.args_cut))


#: Pools whose tokens or bytes follow other formulas than the plain one, and how a log shows them.
_OTHER_FORMULAS = (
    ("unified_pool", "one buffer holds all pools"),
    ("deepseek_pool", "the pools of DeepSeek-V4 have a formula of their own"),
    ("mamba_checkpoint_pool", "a pool of quantised states lies outside the budget"),
    ("post_capture_pool", "the pools are sized after graph capture"),
    ("post_capture_sizing", "the pools are sized after graph capture"),
)
#: Models whose pools hold more than the formula counts: the index keys of sparse attention.
_SPARSE = re.compile(r"(?i)V3[._-]?2|V4|Dsa|NSA|glm-?5|Sparse")
#: What a pool of sparse attention takes beyond its budget, as a share: index keys and scales (to 0.5.16).
_INDEX_KEYS = Fraction(12, 100)
#: Elements a token and layer of latent attention: kv_lora_rank + qk_rope_head_dim of all models that have it.
_LATENT = 576


def _no_budget(launch: Launch, group: Group) -> str | None:
    """Return why the pools of a group need not be what its budget gives; None when they must."""
    if launch.argument("device") == "cpu":
        return "on a CPU the free memory is shared with other processes"
    if any(pool.bound for rank in group.ranks for pool in rank.target.pools):
        return "the pools are sized after graph capture"
    for kind, why in _OTHER_FORMULAS:
        if not launch.frames[kind].is_empty():
            return why
    models = [rank.target.load.model or "" for rank in group.ranks if rank.target.load]
    if any(_SPARSE.search(one) for one in (*models, str(launch.argument("model_path")))):
        return "the index keys of sparse attention take more than is budgeted for them"
    if launch.argument("device") == "npu" and has_state_pools(launch):
        return "on an NPU the state pool is not budgeted as it is allocated"
    if launch.argument("enable_hisparse") is True or launch.argument("enable_kv_cache_sharding") is True:
        return "the pools follow a formula of their own"
    return None


def _spend(model: Model, launch: Launch, group: Group) -> None:
    """Add that the pools take the budget: all of it but what whole pages leave, or a cap."""
    full = [rank for rank in group.ranks if _kv(rank)]
    if not full:
        return
    # of pipeline stages, the one with the largest pools decides the number of tokens
    largest = max(full, key=lambda rank: _size([pool for _, pool in pools_of(rank.target)]))
    rest, left = ("rest", group.name), ("left over", group.name)
    pools = pools_of(largest.target)
    share = _four_bit(launch)
    terms: dict[Variable, int] = {rest: share.denominator, left: -share.denominator}
    for place, pool in pools:
        size = share.numerator if pool.what == "KV cache" else share.denominator
        terms["pool", largest.name, 0, place] = -size
    least, most, why = _left_over(launch, largest, capped=not model.infers)
    model.assume(left, least, most, why)
    model.sum("rest = pools + what is left over", terms, _SIZING)


def _size(pools: Iterable[Pool]) -> Fraction:
    """Return the most that pools can take, GiB."""
    return sum((part.interval.high for pool in pools for part in pool.parts), Fraction(0))


def _four_bit(launch: Launch) -> Fraction:
    """Return by what the memory of the KV pools is more than what their lines print."""
    window = _range(launch)
    four_bit = launch.argument("kv_cache_dtype") == "fp4_e2m1"
    return _SCALES if four_bit and window is not None and window[1] < _SCALES_PRINTED else Fraction(1)


def _left_over(launch: Launch, rank: Rank, *, capped: bool) -> tuple[Fraction, Fraction, str]:
    """Return how much of the budget the pools leave at least and at most, GiB, and why.

    At least can be negative: a page is allocated that is not counted, and up to 0.5.6 the tokens of drafts.
    """
    known = bool(launch.args)
    page = launch.argument("page_size")
    pages = page if isinstance(page, int) else 1 if known else _LARGEST_PAGE
    pools = [pool for _, pool in pools_of(rank.target)]
    kv = [pool for pool in pools if pool.what == "KV cache"]
    states = _size(pool for pool in pools if pool.what == "state pool")
    least = most = Fraction(0)
    reasons = ["whole pages"]
    for pool in kv:
        tokens = pool.tokens.interval.low if pool.tokens else Fraction(1000 * pages)
        slack = _size([pool]) * (pages + 1) / max(tokens, Fraction(1))
        least, most = least - slack, most + slack
        if _may_be_sparse(pool, pages):
            least -= _size([pool]) * _INDEX_KEYS
            reasons.append("the index keys of sparse attention")
    if states:
        # whole states, one more than counted, and what speculation keeps of each request
        slack = states * (_SPECULATED if launch.argument("speculative_algorithm") else _STATES)
        least, most = least - slack, most + slack
        reasons.append("whole states")
    if len(kv) > 1:
        most += _size(kv) * _SPLIT
        reasons.append("the split into two pools")
    if launch.argument("max_total_tokens") is not None or (capped and not known):
        most += _ANY
        reasons.append("a cap by max_total_tokens")
    if launch.argument("speculative_algorithm") is not None or rank.drafts or (capped and not known):
        window = _range(launch)
        if window is None or window[0] <= _HEADROOM_UNTIL:
            least -= _headroom(launch, kv)
        if window is None or window[1] >= _DRAFTS_COUNTED:
            most += _size(pool for one in rank.drafts for _, pool in pools_of(one)) or _size(kv) / 4
        reasons.append("the tokens of drafts")
    reserve = launch.frames["kv_reserve"]["kept_back"].drop_nulls()
    if len(reserve):
        most += Fraction(str(reserve.max())) + Fraction(1, 100)
        reasons.append("the reserve for images")
    return least, most, "the budget goes to the pools but for " + ", ".join(reasons)


def _may_be_sparse(pool: Pool, pages: int) -> bool:
    """Tell whether a pool of latent attention may hold index keys: its bytes a token are no whole layers."""
    if (
        pool.tokens is None
        or pool.tokens.interval.low <= 0
        or [one.name for one in pool.parts] != ["kv size"]
    ):
        return False
    layers = pool.parts[0].interval * Interval.exactly(GIB) / Interval.exactly(_LATENT)
    slots = pool.tokens.interval + Interval(Fraction(0), Fraction(pages))
    return not any(
        math.floor((layers / slots).high / size) >= math.ceil((layers / slots).low / size) for size in (1, 2)
    )


def _headroom(launch: Launch, kv: list[Pool]) -> Fraction:
    """Return what drafts may take beyond the budget, GiB."""
    tokens = draft_headroom(launch)
    if not launch.args or tokens is None:
        return _size(kv) / 20
    counted = [pool for pool in kv if pool.tokens is not None]
    return sum(
        (_size([one]) * tokens / max(one.tokens.interval.low, Fraction(1)) for one in counted if one.tokens),
        Fraction(0),
    )
