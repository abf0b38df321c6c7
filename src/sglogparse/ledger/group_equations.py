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

import math
import re
from collections.abc import Iterable
from fractions import Fraction

from sglogparse._budget import Printed, draft_headroom, has_state_pools, printed_budgets
from sglogparse._interval import GIB, Interval
from sglogparse._launches import Launch
from sglogparse.ledger.model import ANY, FRACTION, Group, Model, before, releases, since
from sglogparse.ledger.rank_equations import pools_of, profiled_at, unprinted_pool
from sglogparse.ledger.readings import Pool, Rank
from sglogparse.ledger.solver import Fact, Variable

#: By how much ranks that are not in the log may have less free than those that are, GiB.
_UNSEEN = 3
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
_REFUSAL = re.compile(
    r"--mem-fraction-static=(?P<fraction>-?[0-9.]+)\. "
    r"Raise --mem-fraction-static above (?P<suggested>-?[0-9.]+) "
    r"\(minimum viable = 1 - available/pre = (?P<minimum>-?[0-9.]+)\)"
    r"|Current value: (?:self\.server_args\.)?mem_fraction_static=(?P<current>-?[0-9.]+)"
)


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
        _declared(model, launch)
        _refused(model, launch, group)
    _printed_budget(model, launch, group)
    _caps(model, launch, group)
    other_formula = _no_budget(launch, group)
    if other_formula is None:
        _spend(model, launch, group)
    else:
        model.without[group.name] = other_formula


def _begins(rank: Rank) -> bool:
    """Tell whether the free memory before the weights is printed, or follows from what is behind them."""
    load = rank.target.load
    return load is not None and (load.begin is not None or (load.end is not None and load.used is not None))


def _taken(model: Model, launch: Launch, group: Group, taken: Variable) -> None:
    """Add what comes off the budget before the KV cache is sized: state pools, a reserve for images."""
    kept = launch.frames["kv_reserve"].filter(launch.frames["kv_reserve"]["kept_back"].is_not_null())["line"]
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


def _kv(rank: Rank) -> list[tuple[int, Pool]]:
    """Return the target's KV pools, each with its place."""
    return [(place, pool) for place, pool in pools_of(rank.target) if pool.what == "KV cache"]


def _tokens(model: Model, launch: Launch, group: Group) -> None:
    """Add that all ranks hold the same tokens, and that all lines say so."""
    source = "max_total_num_tokens is one number for all ranks; " + _FREE
    split = any(len(_kv(rank)) > 1 for rank in group.ranks)
    splits = _splits(model, launch, group)
    for rank in group.ranks:
        tokens = tokens_of(launch, group, rank)
        model.whole.append(tokens)
        pools = [place for place, pool in _kv(rank) if pool.tokens is not None]
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


def tokens_of(launch: Launch, group: Group, rank: Rank) -> Variable:
    """Return the variable of the tokens that a rank holds; up to 0.5.1 each pipeline stage has its own."""
    return ("tokens", group.name, None if since(launch, 0, 5, 2) else rank.pp)


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
    plain = isinstance(ratio, float | int) and since(launch, 0, 4, 10) and not _is_model(group, "Llama4")
    if plain and isinstance(page, int) and launch.argument("disable_radix_cache") is not True:
        share = Fraction(repr(ratio))
        for rank, (full, window) in out.items():
            short: Variable = ("short of the ratio", rank)
            model.assume(short, 0, page + 1, "whole pages")
            terms: dict[Variable, int] = {window: share.denominator, full: -share.numerator}
            terms[short] = share.denominator
            model.sum("tokens of the window = full tokens * swa_full_tokens_ratio", terms, _SIZING)
    return out


def _is_model(group: Group, word: str) -> bool:
    return any(word in (rank.target.load.model or "") for rank in group.ranks if rank.target.load)


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


def _declared(model: Model, launch: Launch) -> None:
    """Add the mem_fraction_static that the arguments declare, where no release changes it out of sight."""
    if any(fact.variable in ("declared fraction", FRACTION) for fact in model.facts):
        return  # another group of ranks has added it
    given, lines = launch.argument("mem_fraction_static"), launch.frames["server_args"]["line"]
    declared: Variable = "declared fraction"
    told = isinstance(given, float | int) and not isinstance(given, bool) and not lines.is_empty()
    if told:
        model.given(declared, repr(given), int(lines[0]), f"mem_fraction_static={given!r}")
    adjusted = launch.frames["mem_fraction_adjusted"]["line"]
    if adjusted.is_empty():
        if told and not _hidden_factor(launch):
            model.equal("the declared fraction is in force", declared, FRACTION, _SIZING)
        return
    for row in launch.printed("mem_fraction_adjusted", adjusted):
        if row["fraction"] is not None:
            text = f"mem_fraction_static={row['fraction']}"
            model.facts.append(Fact(FRACTION, Interval.printed(row["fraction"]), row["line"], text))
    factor = image_factor(launch)
    if factor is not None and told:
        name = f"a model that reads images gets {float(factor):g} of the declared fraction"
        terms: dict[Variable, int] = {FRACTION: factor.denominator, declared: -factor.numerator}
        model.sum(name, terms, "ModelRunner.__init__ (0.3.6 to 0.4.8)")


def image_factor(launch: Launch) -> Fraction | None:
    """Return what a server takes of the fraction for a model that reads images; None where it takes all.

    Up to 0.4.8 also of a fraction that is given; it says so in a line of its own.
    """
    if launch.frames["mem_fraction_adjusted"].is_empty():
        return None
    if before(launch, 0, 4, 5):
        return Fraction(95, 100)
    return Fraction(90, 100) if since(launch, 0, 4, 5) and before(launch, 0, 4, 9) else None


def may_cap(launch: Launch) -> bool:
    """Tell whether --max-total-tokens may hold the pools below the budget: a warning says it does not."""
    return (
        launch.argument("max_total_tokens") is not None
        and launch.frames["max_total_tokens_capped"].is_empty()
    )


def _refused(model: Model, launch: Launch, group: Group) -> None:
    """Add the fractions that an exception prints when no memory is left for the KV cache."""
    share, freed = ("smallest fraction", group.name), ("not free", group.name)
    total, avail = ("total", group.name), ("avail", group.name)
    names = {rank.name for rank in group.ranks}
    frame = launch.frames["traceback"]
    own = frame["rank"].is_in([name for name in names if name]) | (frame["rank"].is_null() & (None in names))
    told = frame.filter(frame["exception"].is_not_null() & own.fill_null(None in names))
    refusals = [
        (row["exception_line"] or row["line"], found)
        for row in told.select("line", "exception_line", "exceptions").iter_rows(named=True)
        for text in (row["exceptions"] or ())[-1:]
        if (found := _REFUSAL.search(text))
    ]
    for line, found in refusals:
        fraction = found["fraction"] or found["current"]
        model.given(FRACTION, fraction.rstrip("."), line, f"mem_fraction_static={fraction.rstrip('.')}")
        if found["minimum"]:
            text = f"minimum viable={found['minimum']}"
            model.facts.append(Fact(share, Interval.printed(found["minimum"]), line, text))
            up: Variable = ("suggested", group.name)
            suggested = f"above {found['suggested']}"
            model.facts.append(Fact(up, Interval.exactly(found["suggested"]), line, suggested))
            spare: Variable = ("rounded up by", group.name)
            model.assume(spare, 0, Fraction(1, 1000), "it is rounded up to three decimals")
            model.sum("suggested = minimum, rounded up", {up: 1, share: -1, spare: -1}, _SIZING)
    if any(found["minimum"] for _, found in refusals):
        model.product("1 - minimum viable = available / total", freed, total, share, _SIZING)
        model.sum("total - available = minimum viable * total", {freed: 1, total: -1, avail: 1}, _SIZING)


def _hidden_factor(launch: Launch) -> bool:
    """Tell whether the server may compute with another fraction than it prints.

    With aiter, 0.4.7 to 0.5.4 take 0.85 of it in the runner; 0.3.6 to 0.4.1 take 0.95 of it for a model that
    reads images and say nothing (later releases say so).
    """
    window = releases(launch)
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
    """Add what lines print of the budget: the print patched into its profile, and an Ascend build's line.

    Where the fraction is to be inferred from the pools, what follows from the fraction is left out.
    """
    ranks = {rank.name: rank for rank in group.ranks}
    rest: Variable = ("rest for KV", group.name)
    for one in printed_budgets(launch):
        rank = ranks.get(one.rank)
        if rank is not None:
            _budget_line(model, launch, group, rank, one)
    lines = launch.frames["kv_budget"]["line"]
    if model.infers or lines.is_empty():
        return
    for row in launch.printed("kv_budget", lines):
        rank = ranks.get(row["rank"])
        if row["rest"] is not None and rank is not None and _profiles(rank, row["line"]):
            text = f"available memory for KV cache={row['rest']}"
            model.facts.append(Fact(rest, Interval.printed(row["rest"]), row["line"], text))


def _profiles(rank: Rank, line: int) -> bool:
    """Tell whether a line of a rank can be its target's profile: a draft worker's comes behind the pools."""
    end = rank.target.pool_end
    return end is None or end.line > line


def _budget_line(model: Model, launch: Launch, group: Group, rank: Rank, one: Printed) -> None:
    """Add the sums within one instrumentation line, and that a target's numbers are those of its group."""
    names = ("avail", "total", "fraction", "reserved", "rest", "cell_size", "max_tokens")
    own: dict[str, Variable] = {name: ("printed", name, one.line) for name in names}
    exact = ("cell_size", "max_tokens")
    for name in names:
        if model.infers and name not in ("avail", "total", "cell_size"):
            continue
        interval = one.fraction() if name == "fraction" else one.interval(name)
        interval = Interval.exactly(one.text[name]) if name in exact else interval
        model.facts.append(Fact(own[name], interval, one.line, f"{name}={one.text[name]}"))
    outside: Variable = ("printed", "outside", one.line)
    model.sum("outside = 1 - mem_fraction_static", {outside: 1, own["fraction"]: 1}, _SIZING, -1)
    name = "reserved = total * (1 - mem_fraction_static)"
    model.product(name, own["reserved"], own["total"], outside, _SIZING)
    terms = {own["rest"]: 1, own["avail"]: -1, own["reserved"]: 1}
    if has_state_pools(launch):
        states: Variable = ("printed", "states", one.line)
        model.assume(states, 0, ANY, "the state pools may have come off the rest")
        terms[states] = 1
    model.sum("rest = avail - reserved", terms, _SIZING)
    _floor(model, own["rest"], own["cell_size"], own["max_tokens"], one.line)
    if _profiles(rank, one.line):
        for name in ("avail", "total"):
            model.equal(f"{name} of the profile", own[name], (name, group.name), _SIZING)
        model.equal("cell_size of the profile", own["cell_size"], ("cell size", group.name, rank.pp), _SIZING)
        if not model.infers:
            model.equal("fraction of the profile", own["fraction"], FRACTION, _SIZING)
            model.equal("reserved of the profile", own["reserved"], ("reserved", group.name), _SIZING)
            if not has_state_pools(launch):
                model.equal("rest of the profile", own["rest"], ("rest", group.name), _SIZING)
            profiled = ("max tokens", group.name, rank.pp)
            model.equal("max_tokens of the profile", own["max_tokens"], profiled, _SIZING)


def _floor(model: Model, rest: Variable, cell: Variable, tokens: Variable, line: int) -> None:
    """Add tokens = floor(rest * 2^30 / cell_size)."""
    used, left, gap = (("bytes", what, line) for what in ("used", "left", "short of a token"))
    name = "max_tokens = floor(rest x 2^30 / cell_size)"
    model.product(name, used, tokens, cell, _SIZING)
    model.sum(name, {rest: GIB, used: -1, left: -1}, _SIZING)
    # the bytes are cut to a whole number first in 0.5.7 and later
    model.assume(left, -1, 1 << 40, "what is left is less than a token")
    model.assume(gap, 0, 1 << 40, "what is left is less than a token")
    model.sum(name, {left: 1, gap: 1, cell: -1}, _SIZING)


def _caps(model: Model, launch: Launch, group: Group) -> None:
    """Add --max-total-tokens: the warning quotes it, and only when the profiled value is smaller."""
    cap: Variable = "max_total_tokens"
    given, lines = launch.argument("max_total_tokens"), launch.frames["server_args"]["line"]
    if isinstance(given, int) and not lines.is_empty():
        if not any(fact.variable == cap for fact in model.facts):
            model.given(cap, str(given), int(lines[0]), f"max_total_tokens={given}")
        if not has_state_pools(launch):
            for tokens in dict.fromkeys(tokens_of(launch, group, rank) for rank in group.ranks):
                below: Variable = ("below the cap", tokens)
                model.assume(below, 0, 1 << 40, "tokens are no more than max_total_tokens")
                model.sum("tokens <= max_total_tokens", {tokens: 1, below: 1, cap: -1}, _SIZING)
    lines = launch.frames["max_total_tokens_capped"]["line"]
    if lines.is_empty():
        return
    ranks = {rank.name: rank for rank in group.ranks}
    for row in launch.printed("max_total_tokens_capped", lines):
        rank = ranks.get(row["rank"])
        if rank is None or row["profiled_tokens"] is None or row["max_total_tokens"] is None:
            continue
        quoted, profiled = ("quoted cap", row["line"]), ("profiled", row["line"])
        model.given(
            quoted, row["max_total_tokens"], row["line"], f"max_total_tokens={row['max_total_tokens']}"
        )
        model.given(profiled, row["profiled_tokens"], row["line"], f"profiled value={row['profiled_tokens']}")
        if isinstance(given, int):
            model.equal("the warning quotes max_total_tokens", quoted, cap, _SIZING)
        more: Variable = ("cap beyond the profile", row["line"])
        model.assume(more, 1, 1 << 40, "the warning comes when the profiled value is smaller")
        model.sum("max_total_tokens > profiled value", {quoted: 1, profiled: -1, more: -1}, _SIZING)
        if _profiles(rank, row["line"]) and not model.infers:
            stage = ("profiled tokens", group.name, rank.pp)
            model.equal("all ranks profile the same", profiled, stage, _SIZING)
            several = (launch.argument("pp_size") or 1) != 1 or len({one.pp for one in group.ranks}) > 1
            if launch.args and not several and not has_state_pools(launch):
                tokens = tokens_of(launch, group, rank)
                pages = launch.argument("page_size")
                unused: Variable = ("pages of the cap", row["line"])
                model.assume(unused, 0, (pages if isinstance(pages, int) else 1) - 1, "whole pages")
                terms: dict[Variable, int] = {profiled: 1, tokens: -1, unused: -1}
                model.sum("tokens = profiled value in whole pages", terms, _SIZING)
            if launch.argument("speculative_algorithm") is None and not has_state_pools(launch):
                page = launch.argument("page_size")
                rest: Variable = ("pages of the profile", row["line"])
                model.assume(rest, 0, (page if isinstance(page, int) else _LARGEST_PAGE) - 1, "whole pages")
                terms = {("max tokens", group.name, rank.pp): 1, profiled: -1, rest: -1}
                model.sum("profiled value = max_tokens in whole pages", terms, _SIZING)


#: Pools whose tokens or bytes follow other formulas than the plain one, and how a log shows them.
_OTHER_FORMULAS = (
    ("unified_pool", "one buffer holds all pools"),
    ("deepseek_pool", "the pools of DeepSeek-V4 have a formula of their own"),
    ("mamba_checkpoint_pool", "a pool of quantised states lies outside the budget"),
    ("post_capture_pool", "the pools are sized after graph capture"),
    ("post_capture_sizing", "the pools are sized after graph capture"),
)
#: Models whose pools hold more than the formula counts: the index keys of sparse attention.
_SPARSE = re.compile(r"(?i)V3[._-]?2|Dsa|NSA|glm-?5")
#: What a pool of sparse attention takes beyond its budget, as a share: index keys and scales (to 0.5.16).
_INDEX_KEYS = Fraction(12, 100)
#: Elements a token and layer of latent attention: kv_lora_rank + qk_rope_head_dim of all models that have it.
LATENT = 576


def _no_budget(launch: Launch, group: Group) -> str | None:
    """Return why the pools of a group need not be what its budget gives; None when they must."""
    if launch.argument("device") == "cpu":
        return "on a CPU the free memory is shared with other processes"
    if any(pool.bound for rank in group.ranks for pool in rank.target.pools):
        return "the pools are sized after graph capture"
    for kind, why in _OTHER_FORMULAS:
        if not launch.frames[kind].is_empty():
            return why
    if _is_model(group, "V4") or _is_model(group, "Sparse"):
        return "the pools of this model have a formula of their own"
    if launch.argument("device") == "npu" and has_state_pools(launch):
        return "on an NPU the state pool is not budgeted as it is allocated"
    if launch.argument("enable_hisparse") is True or launch.argument("enable_kv_cache_sharding") is True:
        return "the pools follow a formula of their own"
    return None


def _spend(model: Model, launch: Launch, group: Group) -> None:
    """Add that the pools take the budget: all of it but what whole pages leave, or a cap."""
    full = [rank for rank in group.ranks if _kv(rank)]
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
    if all(len(_kv(rank)) < 2 for rank in group.ranks):
        _profiled(model, launch, group)


def deciding(ranks: Iterable[Rank]) -> Rank:
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
        kv = _kv(rank)
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
    reserve = launch.frames["kv_reserve"]["kept_back"].drop_nulls()
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
