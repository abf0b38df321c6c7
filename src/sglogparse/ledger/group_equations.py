"""What holds between the ranks that size their pools together: the budget, and what it is spent on.

    total      free memory before the weights, least over the group                         GiB
    avail      free memory when the pools are sized, least over the group                   GiB
    reserved = total * (1 - mem_fraction_static)
    rest     = avail - reserved                                                             GiB
    rest for KV = rest - state pools and reserves
    max_tokens  = floor(rest for KV * 2^30 / cell_size)
    tokens   = whole pages of them, the same on every rank
    pools    = (tokens + a page) * cell_size

Sources: profile_max_num_token and init_memory_pool in model_executor/model_runner.py (0.2.0 to 0.5.6), in
model_runner_kv_cache_mixin.py (0.5.7 to 0.5.15), mem_cache/kv_cache_configurator.py (0.5.16 and later).

An equation is asserted only where the configuration is known to obey it; why one is not is told instead.
"""

from __future__ import annotations

from fractions import Fraction

from sglogparse._budget import has_state_pools
from sglogparse._interval import Interval
from sglogparse._launches import Launch
from sglogparse.ledger.budget_equations import (
    caps,
    declared_fraction,
    printed_budget,
    refused_fraction,
)
from sglogparse.ledger.model import ANY, FRACTION, Group, Model, since, tokens_of
from sglogparse.ledger.rank_equations import kv_of, pools_of, profiled_at
from sglogparse.ledger.readings import Rank
from sglogparse.ledger.solver import Fact, Variable
from sglogparse.ledger.spend_equations import no_budget, spend

#: By how much ranks that are not in the log may have less free than those that are, GiB.
_UNSEEN = 3
_SIZING = "profile_max_num_token (0.2.0 to 0.5.15), _profile_available_bytes (0.5.16 and later)"
_FREE = "init_memory_pool in model_executor/model_runner.py and its heirs"


def add_group(model: Model, launch: Launch, group: Group) -> None:
    """Add what holds between the ranks of a group: the budget, and that all hold the same tokens."""
    _tokens(model, launch, group)
    _ties(model, group)
    total, avail, outside, reserved, rest, kv, taken = (
        (part, group.name)
        for part in ("total", "avail", "outside", "reserved", "rest", "rest for KV", "taken")
    )
    _least(model, group, total, [("load begin", one.name, 0) for one in group.ranks if _begins(one)], "total")
    if not group.complete or all(one.profiled for one in group.ranks):
        _least(model, group, avail, [profiled_at(one) for one in group.ranks if one.profiled], "avail")
    model.sum("outside = 1 - mem_fraction_static", {outside: 1, FRACTION: 1}, _SIZING, -1)
    model.assume(outside, 0, 1, "mem_fraction_static is between 0 and 1")
    model.product("reserved = total * (1 - mem_fraction_static)", reserved, total, outside, _SIZING)
    model.sum("rest = avail - reserved", {rest: 1, avail: -1, reserved: 1}, _SIZING)
    _taken(model, launch, group, taken)
    model.sum("rest for KV = rest - state pools and reserves", {kv: 1, rest: -1, taken: 1}, _SIZING)
    if not model.infers:
        declared_fraction(model, launch)
        refused_fraction(model, launch, group)
    printed_budget(model, launch, group)
    caps(model, launch, group)
    other_formula = no_budget(launch, group)
    if other_formula is None:
        spend(model, launch, group)
    else:
        model.without[group.name] = other_formula


def _begins(rank: Rank) -> bool:
    """Tell whether the free memory before the weights is printed, or follows from what is behind them."""
    load = rank.target.load
    return load is not None and (load.begin is not None or (load.end is not None and load.used is not None))


def _taken(model: Model, launch: Launch, group: Group, taken: Variable) -> None:
    """Add what comes off the budget before the KV cache is sized: state pools, a reserve for images."""
    kept = launch.frames["kv_reserve"].drop_nulls("kept_back")["line"]
    if has_state_pools(launch) or not launch.frames["kv_budget"].is_empty():
        # an Ascend build prints what is left behind them
        states: Variable = ("states", group.name)
        model.assume(states, 0, ANY, "the state pools come off the budget first")
        reserve: Variable = ("reserve", group.name)
        model.sum(
            "what comes off the budget = state pools + reserve", {taken: 1, states: -1, reserve: -1}, _SIZING
        )
        taken = reserve
    if kept.is_empty():
        model.assume(taken, 0, 0, "nothing comes off the budget but the KV cache")
        return
    ranks = {rank.name for rank in group.ranks}
    for row in launch.printed("kv_reserve", kept):
        if row["kept_back"] is not None and row["rank"] in ranks:
            text = f"kept back {row['kept_back']} GB"
            model.facts.append(Fact(taken, Interval.printed(row["kept_back"]), row["line"], text))


def _least(model: Model, group: Group, result: Variable, of: list[Variable], what: str) -> None:
    """Add that a number of the group is the least of its ranks', but for unseen ranks and for time."""
    if not of:
        return
    seen, drift = (f"least {what}", group.name), (f"{what} drift", group.name)
    model.least(f"{what} = least over the ranks", seen, of, _SIZING)
    most, why = model.drift, f"{what} is the same when the pools are sized as on its line"
    if not group.complete and model.drift:
        most += _UNSEEN
        why = "the ranks that are not in the log have about as much free"
    model.assume(drift, -model.drift, most, why)
    model.sum(f"{what} = least over the ranks - drift", {result: 1, seen: -1, drift: 1}, _SIZING)


def _tokens(model: Model, launch: Launch, group: Group) -> None:
    """Add that all ranks hold the same tokens, and that all lines say so."""
    source = "max_total_num_tokens is one number for all ranks; " + _FREE
    split = any(len(kv_of(rank)) > 1 for rank in group.ranks)
    splits = _splits(model, launch, group)
    for rank in group.ranks:
        tokens = tokens_of(launch, group, rank)
        model.whole.append(tokens)
        pools = [place for place, pool in kv_of(rank) if pool.tokens is not None]
        if len(pools) == 1 and not split:
            model.equal(
                "tokens of the rank = tokens", ("pool tokens", rank.name, 0, pools[0]), tokens, source
            )
        drafted = [
            ("pool tokens", rank.name, number, place)
            for number, draft in enumerate(rank.drafts, 1)
            for place, pool in pools_of(draft)
            if pool.tokens is not None and len(pools_of(draft)) == 1
        ]
        if since(launch, 0, 4, 4) and not has_state_pools(launch):
            for variable in drafted:
                model.equal("the draft holds as many tokens", variable, tokens, source)
        if model.printed(("capacity", rank.name), rank.capacity):
            model.equal("max_total_num_tokens = tokens", ("capacity", rank.name), tokens, source)
        if rank.name in splits and len(pools) == 2:
            full, window = splits[rank.name]
            # the window's pool is printed first
            name = "tokens of both pools are those of the split"
            model.equal(name, ("pool tokens", rank.name, 0, pools[0]), window, source)
            model.equal(name, ("pool tokens", rank.name, 0, pools[1]), full, source)
            model.equal("max_total_num_tokens = tokens of the full pool", full, tokens, source)


def _splits(model: Model, launch: Launch, group: Group) -> dict[str | None, tuple[Variable, Variable]]:
    """Add the tokens of full and of sliding-window layers as lines print them, and their ratio."""
    out: dict[str | None, tuple[Variable, Variable]] = {}
    ranks = {rank.name for rank in group.ranks}
    for kind in ("swa_split", "swa_pool"):
        lines = launch.frames[kind]["line"]
        for row in launch.printed(kind, lines) if not lines.is_empty() else ():
            if row["rank"] not in ranks or row["full_tokens"] is None or row["swa_tokens"] is None:
                continue
            full: Variable = ("split", "full", row["rank"])
            window: Variable = ("split", "window", row["rank"])
            for variable, column in ((full, "full_tokens"), (window, "swa_tokens")):
                model.given(variable, row[column], row["line"], f"{column}={row[column]}")
            out[row["rank"]] = full, window
    ratio, page = launch.argument("swa_full_tokens_ratio"), launch.argument("page_size")
    # Llama 4 splits by its chunks
    plain = isinstance(ratio, float | int) and since(launch, 0, 4, 10) and not group.is_model("Llama4")
    if plain and isinstance(page, int) and launch.argument("disable_radix_cache") is not True:
        share = Fraction(repr(ratio))
        for rank, (full, window) in out.items():
            short: Variable = ("short of the ratio", rank)
            model.assume(short, 0, page + 1, "whole pages")
            terms: dict[Variable, int] = {window: share.denominator, full: -share.numerator}
            terms[short] = share.denominator
            model.sum("tokens of the window = full tokens * swa_full_tokens_ratio", terms, _SIZING)
    return out


def _ties(model: Model, group: Group) -> None:
    """Add that ranks with the same layers allocate pools of the same size."""
    for rank in group.ranks:
        for which, worker in enumerate((rank.target, *rank.drafts)):
            pools = pools_of(worker)
            for place, pool in pools:
                for part, number in enumerate(pool.parts):
                    every = (f"{number.name} of every rank", group.name, rank.pp, which, place, len(pools))
                    name = f"{number.name} is the same on every rank"
                    model.equal(name, ("pool part", rank.name, which, place, part), every, _FREE)
        for place, pool in pools_of(rank.target):
            if pool.what == "state pool" and pool.tokens is not None:
                states = ("states of every rank", group.name, rank.pp)
                model.equal(
                    "all ranks have as many states", ("pool tokens", rank.name, 0, place), states, _FREE
                )
