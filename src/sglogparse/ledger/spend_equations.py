"""What a budget is spent on: pools of whole pages, states, what is left over; and where that is not known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from sglogparse._budget import draft_headroom, has_state_pools
from sglogparse._cheap import lazy
from sglogparse._interval import GIB, Interval
from sglogparse._launches import Launch
from sglogparse.ledger.budget_equations import may_cap
from sglogparse.ledger.model import ANY, Group, Model, before, releases, since, tokens_of
from sglogparse.ledger.rank_equations import kv_of, pools_of, unprinted_pool
from sglogparse.ledger.readings import Pool, Rank
from sglogparse.ledger.solver import Variable

#: A pool of four-bit elements has a scale byte for sixteen of them; 0.5.11 and 0.5.12 do not print them.
_SCALES = Fraction(9, 8)
#: 0.5.13 prints a four-bit pool with its scales.
_SCALES_PRINTED = (0, 5, 13)
#: The last release (and the builds behind it) in which the pool is larger by the tokens of drafts.
_HEADROOM_UNTIL = (0, 5, 7)
#: The first release that counts the draft's pool into the budget.
_DRAFTS_COUNTED = (0, 5, 11)
#: What whole pages leave of a pool whose tokens are not printed, GiB.
_PAGES = Fraction(2, 100)
#: Tokens a page, at most, where the arguments are not in the log.
_LARGEST_PAGE = 256
#: What state pools may differ by from what was budgeted for them where drafts keep states too, as a share.
_SPECULATED = Fraction(25, 100)
#: What pools may take beyond their budget on an NPU, as a share: states and keys that are laid out wider.
_ASCEND = Fraction(5, 100)
#: What splitting the budget into two pools can leave, share of the budget.
_SPLIT = Fraction(2, 100)
_SIZING = "profile_max_num_token (0.2.0 to 0.5.15), _profile_available_bytes (0.5.16 and later)"
_FREE = "init_memory_pool in model_executor/model_runner.py and its heirs"


#: Pools whose tokens or bytes follow other formulas than the plain one, and how a log shows them.
_OTHER_FORMULAS = (
    ("unified_pool", "one buffer holds all pools"),
    ("deepseek_pool", "the pools of DeepSeek-V4 have a formula of their own"),
    ("mamba_checkpoint_pool", "a pool of quantised states lies outside the budget"),
    ("post_capture_pool", "the pools are sized after graph capture"),
    ("post_capture_sizing", "the pools are sized after graph capture"),
)
#: Models whose pools hold more than the formula counts: the index keys of sparse attention.
_SPARSE = lazy(r"(?i)V3[._-]?2|Dsa|NSA|glm-?5")
#: What a pool of sparse attention takes beyond its budget, as a share: index keys and scales (to 0.5.16).
_INDEX_KEYS = Fraction(12, 100)
#: Elements a token and layer of latent attention: kv_lora_rank + qk_rope_head_dim of all models that have it.
LATENT = 576


def no_budget(launch: Launch, group: Group) -> str | None:
    """Return why the pools of a group need not be what its budget gives; None when they must."""
    if launch.argument("device") == "cpu":
        return "on a CPU the free memory is shared with other processes"
    if any(pool.bound for rank in group.ranks for pool in rank.target.pools):
        return "the pools are sized after graph capture"
    for kind, why in _OTHER_FORMULAS:
        if not launch.frames[kind].is_empty():
            return why
    if group.is_model("V4") or group.is_model("Sparse"):
        return "the pools of this model have a formula of their own"
    if launch.argument("device") == "npu" and has_state_pools(launch):
        return "on an NPU the state pool is not budgeted as it is allocated"
    if launch.argument("enable_hisparse") is True or launch.argument("enable_kv_cache_sharding") is True:
        return "the pools follow a formula of their own"
    return None


def spend(model: Model, launch: Launch, group: Group) -> None:
    """Add that the pools take the budget: all of it but what whole pages leave, or a cap."""
    full = [rank for rank in group.ranks if kv_of(rank)]
    if not full:
        _spend_unprinted(model, launch, group)
        if not has_state_pools(launch):
            _profiled(model, launch, group)
        return
    largest = deciding(full)
    rest, left = ("rest", group.name), ("left over", group.name)
    pools = pools_of(largest.target)
    share = four_bit(launch)
    terms: dict[Variable, int] = {rest: share.denominator, left: -share.denominator}
    for place, pool in pools:
        size = share.numerator if pool.what == "KV cache" else share.denominator
        terms["pool", largest.name, 0, place] = -size
    least, most, why = _left_over(launch, largest, capped=not model.infers)
    model.assume(left, least, most, why)
    model.sum("rest = pools + what is left over", terms, _SIZING)
    _states(model, launch, group, largest)
    _bytes(model, launch, group)
    if all(len(kv_of(rank)) < 2 for rank in group.ranks):
        _profiled(model, launch, group)


def deciding(ranks: Sequence[Rank]) -> Rank:
    """Return a usual rank of the pipeline stage with the largest pools: it decides the number of tokens."""
    sizes = {id(rank): _size(pool for _, pool in pools_of(rank.target)) for rank in ranks}
    stages: dict[int | None, list[Rank]] = {}
    for rank in sorted(ranks, key=lambda rank: sizes[id(rank)]):
        stages.setdefault(rank.pp, []).append(rank)
    usual = [members[(len(members) - 1) // 2] for members in stages.values()]
    return max(usual, key=lambda rank: sizes[id(rank)])


def _spend_unprinted(model: Model, launch: Launch, group: Group) -> None:
    """Add, of a KV cache that no line prints, that it takes the budget.

    Only where its release is known to print none, or the fraction is to be inferred.
    """
    ranks = [rank for rank in group.ranks if rank.profiled and rank.target.pool_end and not rank.target.pools]
    stages = {rank.pp for rank in ranks}
    known = model.infers or before(launch, 0, 4, 6)
    if not known or not ranks or len(stages) > 1 or launch.argument("speculative_algorithm"):
        return
    rest, left = ("rest", group.name), ("left over", group.name)
    capped = may_cap(launch) or not (model.infers or launch.args)
    most = ANY if capped else _PAGES
    model.assume(left, -_PAGES, most, "the budget goes to the pool but for whole pages")
    every: Variable = ("unprinted pool of every rank", group.name)
    model.sum("rest = pool + what is left over", {rest: 1, left: -1, every: -1}, _SIZING)
    for rank in ranks:
        model.equal("ranks with the same layers have pools of one size", unprinted_pool(rank), every, _FREE)


def _states(model: Model, launch: Launch, group: Group, rank: Rank) -> None:
    """Add that the state pool is the share of the budget that mamba_full_memory_ratio gives it.

    Source: handle_max_mamba_cache (0.5.7 to 0.5.15 and its heirs): as many states as fit the share.
    """
    ratio = launch.argument("mamba_full_memory_ratio")
    pools = [(place, pool) for place, pool in pools_of(rank.target) if pool.what == "state pool"]
    fixed = ("max_mamba_cache_size", "speculative_algorithm")
    if (
        len(pools) != 1
        or not since(launch, 0, 5, 4)
        or not isinstance(ratio, float | int)
        or any(launch.argument(name) is not None for name in fixed)
        or launch.argument("disable_radix_cache") is not False
        or launch.argument("dp_size") not in (None, 1)
    ):
        return
    (place, pool), weight = pools[0], Fraction(repr(ratio))
    if pool.tokens is None or pool.tokens.interval.low <= 0:
        return
    one = _size([pool]) / pool.tokens.interval.low
    unused: Variable = ("unused share of states", group.name)
    model.assume(unused, -one, one, "whole states, and one for padding")
    whole = weight.numerator + weight.denominator
    terms: dict[Variable, int] = {("rest", group.name): weight.numerator, unused: -whole}
    terms["pool", rank.name, 0, place] = -whole
    model.sum("state pool = rest * ratio / (1 + ratio) in whole states", terms, _SIZING)


def _bytes(model: Model, launch: Launch, group: Group) -> None:
    """Add, where a line prints cell_size, that a pool is its tokens and a page times that, and its tokens.

    The cell of the budget is that of the pool where nothing else is counted into it.
    """
    if launch.argument("speculative_algorithm") is not None or four_bit(launch) != 1:
        return
    page = launch.argument("page_size")
    for rank in group.ranks:
        kv = kv_of(rank)
        if len(kv) != 1 or kv[0][1].tokens is None or _sparse(launch, rank):
            continue
        place = kv[0][0]
        tokens, slots, size = (
            ("pool tokens", rank.name, 0, place),
            ("slots", rank.name),
            ("kv bytes", rank.name),
        )
        cell = ("cell size", group.name, rank.pp)
        padding: Variable = ("padding", rank.name)
        pages = page if isinstance(page, int) else _LARGEST_PAGE
        name = "pool = (tokens + a page) x cell_size"
        model.assume(padding, 1, max(pages, 1), "a page more is allocated than counted")
        model.sum(name, {slots: 1, tokens: -1, padding: -1}, _FREE)
        model.product(name, size, slots, cell, _FREE)
        model.sum(name, {size: 1, ("pool", rank.name, 0, place): -GIB}, _FREE)


def _profiled(model: Model, launch: Launch, group: Group) -> None:
    """Add, where a line prints max_tokens, that whole pages of them are allocated."""
    if model.infers or launch.argument("speculative_algorithm") is not None:
        return
    page = launch.argument("page_size")
    pages = page if isinstance(page, int) else 1 if launch.args else _LARGEST_PAGE
    stages = dict.fromkeys((rank.pp, tokens_of(launch, group, rank)) for rank in group.ranks)
    several = len(stages) > 1 or (launch.argument("pp_size") or 1) != 1
    capped = may_cap(launch) or not launch.args or several
    for stage, tokens in stages:
        unused: Variable = ("unused tokens", group.name, stage)
        model.assume(unused, 0, 1 << 40 if capped else pages - 1, "whole pages of max_tokens are allocated")
        profiled = ("max tokens", group.name, stage)
        model.sum("tokens = max_tokens in whole pages", {profiled: 1, tokens: -1, unused: -1}, _SIZING)


def _size(pools: Iterable[Pool]) -> Fraction:
    """Return the most that pools can take, GiB."""
    return sum((part.interval.high for pool in pools for part in pool.parts), Fraction(0))


def four_bit(launch: Launch) -> Fraction:
    """Return by what the memory of the KV pools is more than what their lines print."""
    window = releases(launch)
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
    sparse = _sparse(launch, rank)
    model = rank.target.load.model if rank.target.load else None
    # classes that dense and sparse models share
    latent = model is None or "Deepseek" in model
    least = most = Fraction(0)
    reasons = ["whole pages"]
    for pool in kv:
        tokens = pool.tokens.interval.low if pool.tokens else Fraction(1000 * pages)
        slack = _size([pool]) * (pages + 1) / max(tokens, Fraction(1))
        least, most = least - slack, most + slack
        if sparse or (latent and _may_be_sparse(pool, pages)):
            least -= _size([pool]) * _INDEX_KEYS
            reasons.append("the index keys of sparse attention")
    if launch.argument("kv_cache_dtype") == "fp4_e2m1" and releases(launch) is None:
        most += _size(kv) * (_SCALES - 1)
        reasons.append("the scales of four-bit elements")
    if launch.argument("device") == "npu" or not launch.frames["kv_budget"].is_empty():
        least -= _size(kv) * _ASCEND
        reasons.append("what an NPU allocates beyond the budget")
    if states:
        # whole states, one more than counted, and what speculation keeps of each request
        slack = sum((_one_state(pool) for pool in pools if pool.what == "state pool"), Fraction(0))
        if launch.argument("speculative_algorithm"):
            slack = states * _SPECULATED
        least, most = least - 2 * slack, most + 2 * slack
        reasons.append("whole states")
    if len(kv) > 1:
        most += _size(kv) * _SPLIT
        reasons.append("the split into two pools")
    if may_cap(launch) or (capped and not known):
        most += ANY
        reasons.append("a cap by max_total_tokens")
    if launch.argument("speculative_algorithm") is not None or rank.drafts or (capped and not known):
        window = releases(launch)
        if window is None or window[0] <= _HEADROOM_UNTIL:
            least -= _headroom(launch, kv)
        if window is None or window[1] >= _DRAFTS_COUNTED:
            most += _size(pool for one in rank.drafts for _, pool in pools_of(one)) or _size(kv) / 4
        reasons.append("the tokens of drafts")
    reserve = launch.frames["kv_reserve"].drop_nulls("kept_back")["kept_back"]
    if len(reserve):
        most += Fraction(str(reserve.max())) + Fraction(1, 100)
        reasons.append("the reserve for images")
    return least, most, "the budget goes to the pools but for " + ", ".join(reasons)


def _one_state(pool: Pool) -> Fraction:
    """Return the GiB of one state, where the pool tells their number; else a twentieth of the pool."""
    count = pool.tokens.interval.low if pool.tokens else Fraction(20)
    return _size([pool]) / max(count, Fraction(1))


def _sparse(launch: Launch, rank: Rank) -> bool:
    """Tell whether a model is known for sparse attention, by its class or its path."""
    model = rank.target.load.model if rank.target.load else None
    return any(_SPARSE.search(one) for one in (model or "", str(launch.argument("model_path"))))


def _may_be_sparse(pool: Pool, pages: int) -> bool:
    """Tell whether a pool of latent attention may hold index keys: its bytes a token are no whole layers."""
    if (
        pool.tokens is None
        or pool.tokens.interval.low <= 0
        or [one.name for one in pool.parts] != ["kv size"]
    ):
        return False
    layers = pool.parts[0].interval * Interval.exactly(GIB) / Interval.exactly(LATENT)
    slots = pool.tokens.interval + Interval(Fraction(0), Fraction(pages))
    return not any(
        math.floor((layers / slots).high / size) >= math.ceil((layers / slots).low / size) for size in (1, 2)
    )


def _headroom(launch: Launch, kv: list[Pool]) -> Fraction:
    """Return what drafts may take beyond the budget, GiB."""
    tokens = draft_headroom(launch)
    if not launch.args:
        return _size(kv) / 20
    if tokens is None:
        return _size(kv)
    counted = [pool for pool in kv if pool.tokens is not None]
    return sum(
        (_size([one]) * tokens / max(one.tokens.interval.low, Fraction(1)) for one in counted if one.tokens),
        Fraction(0),
    )
