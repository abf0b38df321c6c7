"""What holds on one rank: loading, pools and captures take what free memory falls by.

    free after loading     = free before it - weights
    free after the pools   = free after the weights - pools - other
    free after a capture   = free before it - graphs
    free memory does not rise from step to step

Sources: load_model, init_memory_pool and init_cuda_graphs in model_executor/model_runner.py and their heirs
(model_runner_kv_cache_mixin.py, mem_cache/kv_cache_configurator.py, cuda_graph_setup.py); the sizes of pools
in mem_cache/memory_pool.py.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from sglogparse._launches import Launch
from sglogparse.ledger.model import ANY, Model, before
from sglogparse.ledger.readings import Number, Pool, Rank, Worker
from sglogparse.ledger.solver import Variable
from sglogparse.ledger.tables import request_table

#: By how much free memory may rise from step to step (buffers of loading are given back), share of all.
_GIVEN_BACK = Fraction(2, 100)
#: Devices that give back gigabytes behind loading and capture, or share their memory with the host.
_GENEROUS = ("npu", "cpu", "xpu", "hpu", "mps")
#: The equation that a rise of free memory breaks: a process left meanwhile, or two starts are mixed.
FALLS = "free memory falls from line to line"
_LOADING = "load_model in model_executor/model_runner.py"
_FREE = "init_memory_pool in model_executor/model_runner.py and its heirs"
_CAPTURE = "init_cuda_graphs in model_executor/model_runner.py and its heirs"
_POOLS = "the pools in mem_cache/memory_pool.py"


def add_rank(model: Model, launch: Launch, rank: Rank) -> None:
    """Add what one rank prints, and what holds between its numbers."""
    free: list[tuple[Variable, Number]] = []
    for number, worker in enumerate((rank.target, *rank.drafts)):
        _load(model, rank, number, worker, free)
        _sizes(model, launch, rank, number, worker)
        if worker.pool_end is not None:
            end: Variable = ("pool end", rank.name, number)
            model.printed(end, worker.pool_end)
            free.append((end, worker.pool_end))
        _captures(model, rank, number, worker, free)
    _after_pools(model, launch, rank)
    if rank.free is not None:
        model.printed(("free", rank.name), rank.free)
        free.append((("free", rank.name), rank.free))
    for used in rank.setup:
        model.printed(("set-up", rank.name, used.line), used)
    if launch.argument("device") not in _GENEROUS:
        _falls(model, rank, free)


def _parts(what: str, *place: object) -> tuple[Variable, Variable, Variable]:
    """Return the variables of what is free before something, what it takes, and what is free behind it."""
    return (f"{what} begin", *place), (f"{what} used", *place), (f"{what} end", *place)


def _load(model: Model, rank: Rank, number: int, worker: Worker, free: list[tuple[Variable, Number]]) -> None:
    load = worker.load
    if load is None:
        return
    begin, used, end = _parts("load", rank.name, number)
    model.printed(begin, load.begin)
    model.printed(end, load.end)
    free += [(variable, one) for variable, one in ((begin, load.begin), (end, load.end)) if one]
    if model.printed(used, load.used):
        drift: Variable = ("load drift", rank.name, number)
        model.assume(drift, -model.drift, model.drift, "free memory is the same on both lines at the begin")
        terms: dict[Variable, int] = {end: 1, begin: -1, used: 1, drift: 1}
        model.sum("free after loading = free before it - weights", terms, _LOADING)


def _sizes(model: Model, launch: Launch, rank: Rank, number: int, worker: Worker) -> None:
    """Add the sizes of a worker's pools: of each its parts, and a printed sum."""
    sums: dict[Variable, int] = {}
    for place, pool in enumerate(worker.pools):
        size: Variable = ("pool", rank.name, number, place)
        parts: dict[Variable, int] = {}
        for part, printed in enumerate(pool.parts):
            variable: Variable = ("pool part", rank.name, number, place, part)
            model.printed(variable, printed)
            model.assume(variable, 0, ANY, "a pool is not negative")
            parts[variable] = -1
        model.printed(("pool tokens", rank.name, number, place), pool.tokens)
        if not parts:
            continue
        model.sum("pool = its parts", {size: 1, **parts}, _POOLS)
        names = [part.name for part in pool.parts]
        if names == ["k size", "v size"] and before(launch, 0, 5, 7):
            key, value = parts
            model.equal("K and V are of one size", key, value, "MHATokenToKVPool up to 0.5.6")
        if pool.what == "KV cache (sum)" and sums:
            model.sum("both pools = their parts", {size: 1, **sums}, "SWAKVPool in mem_cache/")
        elif pool.what == "KV cache":
            sums[size] = -1


def pools_of(worker: Worker) -> list[tuple[int, Pool]]:
    """Return the pools that take memory, each once (not the line that sums up those above it)."""
    kv = [pool for pool in worker.pools if pool.what == "KV cache" and pool.parts]
    return [
        (place, pool)
        for place, pool in enumerate(worker.pools)
        if pool.parts and not pool.bound and (pool.what != "KV cache (sum)" or not kv)
    ]


def kv_of(rank: Rank) -> list[tuple[int, Pool]]:
    """Return the target's KV pools, each with its place."""
    return [(place, pool) for place, pool in pools_of(rank.target) if pool.what == "KV cache"]


def _captures(
    model: Model, rank: Rank, number: int, worker: Worker, free: list[tuple[Variable, Number]]
) -> None:
    for place, one in enumerate(worker.captures):
        begin, used, end = _parts("graphs", rank.name, number, place)
        known = model.printed(begin, one.begin), model.printed(used, one.used), model.printed(end, one.end)
        free += [(variable, number) for variable, number in ((begin, one.begin), (end, one.end)) if number]
        if all(known):
            terms: dict[Variable, int] = {end: 1, begin: -1, used: 1}
            model.sum("free after the capture = free before it - graphs", terms, _CAPTURE)


def profiled_at(rank: Rank) -> Variable:
    """Return the variable of the free memory after the last load before the pools."""
    number = 0
    if rank.draft_first:
        number = max(place for place, one in enumerate(rank.drafts, 1) if one.load and one.load.end)
    return ("load end", rank.name, number)


def unprinted_pool(rank: Rank) -> Variable:
    """Return the variable of a KV cache that no line prints."""
    return ("unprinted pool", rank.name)


def _after_pools(model: Model, launch: Launch, rank: Rank) -> None:
    """Add that the pools come off the free memory, and that what else does is not negative."""
    end: Variable = ("pool end", rank.name, 0)
    if rank.profiled is not None and rank.target.pool_end is not None:
        pools: list[Variable] = [("pool", rank.name, 0, place) for place, _ in pools_of(rank.target)]
        if pools:
            back = max(_GIVEN_BACK * rank.profiled.interval.high, model.drift) if model.drift else Fraction(0)
            _take(model, rank, 0, profiled_at(rank), pools, -back)
        elif not rank.target.pools:
            _unprinted(model, launch, rank, end)
    for number, draft in enumerate(rank.drafts, 1):
        pools = [("pool", rank.name, number, place) for place, _ in pools_of(draft)]
        if rank.draft_first or draft.load is None or draft.load.end is None or draft.pool_end is None:
            continue
        _take(model, rank, number, ("load end", rank.name, number), pools, -2 * model.drift)


def _take(
    model: Model, rank: Rank, number: int, before: Variable, pools: list[Variable], least: Fraction
) -> None:
    end: Variable = ("pool end", rank.name, number)
    other: Variable = ("other", rank.name, number)
    model.assume(other, least, ANY, "what else is allocated is not negative")
    terms: dict[Variable, int] = {end: 1, before: -1, other: 1} | dict.fromkeys(pools, 1)
    model.sum("free after the pools = free after the weights - pools - other", terms, _FREE)


def _unprinted(model: Model, launch: Launch, rank: Rank, end: Variable) -> None:
    """Add a KV cache that no line prints (0.4.1 and older, latent attention up to 0.4.5)."""
    table = request_table(launch, rank)
    other: Variable = ("other", rank.name, 0)
    pool = unprinted_pool(rank)
    model.assume(other, table.low, table.high, "the request table has a place for each token of each request")
    model.assume(pool, -model.drift, ANY, "a pool is not negative")
    terms: dict[Variable, int] = {end: 1, profiled_at(rank): -1, other: 1, pool: 1}
    model.sum("free after the pools = free after the weights - pools - request table", terms, _FREE)


def _falls(model: Model, rank: Rank, free: list[tuple[Variable, Number]]) -> None:
    """Add that free memory does not rise from one line to the next, but for what loading gives back."""
    most = max((number.interval.high for _, number in free), default=Fraction(0))
    back = max(_GIVEN_BACK * most, model.drift) if model.drift else Fraction(0)
    for used in [one.variable for one in model.facts if _is_use(one.variable, rank)]:
        model.assume(used, -model.drift, ANY, "what is taken is not negative")
    ordered = sorted(free, key=lambda one: one[1].line)
    for place, ((earlier, _), (later, _)) in enumerate(pairwise(ordered)):
        fall: Variable = ("fall", rank.name, place)
        model.assume(fall, -back, ANY, "free memory does not rise")
        model.sum(FALLS, {later: 1, earlier: -1, fall: 1}, _FREE)


def _is_use(variable: Variable, rank: Rank) -> bool:
    """Tell whether a variable is what something takes on a rank."""
    uses = ("load used", "graphs used", "set-up")
    return isinstance(variable, tuple) and variable[0] in uses and variable[1] == rank.name
