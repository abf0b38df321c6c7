"""What a launch says of its budget: the fraction as declared, in force and refused, profiles, caps.

Each statement becomes facts and equations of a group of ranks (see group_equations for the formulas).
"""

from __future__ import annotations

from fractions import Fraction

from sglogparse._budget import Printed, has_state_pools, printed_budgets
from sglogparse._cheap import lazy
from sglogparse._interval import GIB, Interval
from sglogparse._launches import Launch
from sglogparse.ledger.model import ANY, FRACTION, Group, Model, before, releases, since, tokens_of
from sglogparse.ledger.readings import Rank
from sglogparse.ledger.solver import Fact, Variable

#: Tokens a page, at most, where the arguments are not in the log.
_LARGEST_PAGE = 256
_SIZING = "profile_max_num_token (0.2.0 to 0.5.15), _profile_available_bytes (0.5.16 and later)"
_REFUSAL = lazy(
    r"--mem-fraction-static=(?P<fraction>-?[0-9.]+)\. "
    r"Raise --mem-fraction-static above (?P<suggested>-?[0-9.]+) "
    r"\(minimum viable = 1 - available/pre = (?P<minimum>-?[0-9.]+)\)"
    r"|Current value: (?:self\.server_args\.)?mem_fraction_static=(?P<current>-?[0-9.]+)"
)


def declared_fraction(model: Model, launch: Launch) -> None:
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


def refused_fraction(model: Model, launch: Launch, group: Group) -> None:
    """Add the fractions that an exception prints when no memory is left for the KV cache."""
    share, freed = ("smallest fraction", group.name), ("not free", group.name)
    total, avail = ("total", group.name), ("avail", group.name)
    names = {rank.name for rank in group.ranks}
    frame = launch.frames["traceback"]
    if frame.is_empty():
        return
    mine = frame["rank"].is_in([name for name in names if name])
    # of which rank an exception without one is, is not known, but the fraction is the same for all of them
    told = frame.filter(frame["exception"].is_not_null() & (mine | frame["rank"].is_null()))
    every = [
        (row["rank"], row["exception_line"] or row["line"], found)
        for row in told.select("rank", "line", "exception_line", "exceptions").iter_rows(named=True)
        for text in (row["exceptions"] or ())[-1:]
        if (found := _REFUSAL.search(text))
    ]
    refusals = [(line, found) for rank, line, found in every if rank in names]
    for _, line, found in every:
        fraction = found["fraction"] or found["current"]
        model.given(FRACTION, fraction.rstrip("."), line, f"mem_fraction_static={fraction.rstrip('.')}")
    for line, found in refusals:
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


def printed_budget(model: Model, launch: Launch, group: Group) -> None:
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


def caps(model: Model, launch: Launch, group: Group) -> None:
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
