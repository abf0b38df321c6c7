"""Which lies can be found at all: SGLang's equations on the printed numbers of a simulated launch.

Each equation takes its terms as intervals from what is printed (a rounded decimal stands for all values that
round to it), and is broken when they cannot meet, whatever the hidden values were. It knows of the launch what a
reader of the whole log can know: the release, the arguments, what sits on which stage. It is written apart from
the package's ledger, term by term, without propagation: it finds less than a solver may, and never more than
is certain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from simulate import GIB, Number, SimulatedLaunch, version

_MUCH = Fraction(10**18)
#: Frames that print the fraction in force, the exact ones first.
_FRACTIONS = ("profile_max_num_token", "error", "mem_fraction_adjusted")
#: Minima over ranks go through a float32: what that moves a free memory below 512 GiB, in GiB.
_FLOAT32 = Fraction(1 << 15, GIB)


class Span(NamedTuple):
    """A closed interval."""

    low: Fraction
    high: Fraction

    def plus(self, other: Span) -> Span:
        return Span(self.low + other.low, self.high + other.high)

    def minus(self, other: Span) -> Span:
        return Span(self.low - other.high, self.high - other.low)

    def times(self, other: Span) -> Span:
        ends = [a * b for a in self for b in other]
        return Span(min(ends), max(ends))

    def over(self, divisor: int | Fraction) -> Span:
        return Span(self.low / divisor, self.high / divisor)

    def wider(self, by: Fraction) -> Span:
        return Span(self.low - by, self.high + by)

    def meets(self, other: Span) -> bool:
        return self.low <= other.high and other.low <= self.high

    def within(self, other: Span) -> Span:
        return Span(max(self.low, other.low), min(self.high, other.high))


def _point(value: int | Fraction) -> Span:
    return Span(Fraction(value), Fraction(value))


def _all_meet(spans: list[Span]) -> bool:
    return not spans or max(s.low for s in spans) <= min(s.high for s in spans)


def _least(spans: list[Span]) -> Span:
    return Span(min(s.low for s in spans), min(s.high for s in spans))


class _Printed:
    """The numbers of a launch as intervals, some of them replaced."""

    def __init__(self, launch: SimulatedLaunch, changed: Mapping[Number, str]) -> None:
        self.launch, self.changed = launch, changed
        self.numbers: dict[tuple[str, str], dict[str | None, list[Number]]] = {}
        for number in launch.numbers:
            by_rank = self.numbers.setdefault((number.name, number.worker), {})
            by_rank.setdefault(number.rank, []).append(number)
        self.ranks = {rank.name: rank for rank in launch.truth.ranks}

    def since(self, release: str) -> bool:
        return version(self.launch.release) >= version(release)

    def span(self, number: Number) -> Span:
        text = self.changed.get(number, number.text)
        value = Fraction(text)
        if number.decimals is None:
            # the full repr of a float is exact but for the float itself
            is_float = number.name.endswith((".pool_size", "fraction"))
            return _point(value).wider(Fraction(1, 10**9) if is_float else Fraction(0))
        return _point(value).wider(Fraction(1, 2 * 10 ** len(text.partition(".")[2])))

    def all(self, name: str, rank: str | None, worker: str = "target") -> list[Span]:
        return [self.span(n) for n in self.numbers.get((name, worker), {}).get(rank, [])]

    def one(self, name: str, rank: str | None, worker: str = "target") -> Span | None:
        found = self.all(name, rank, worker)
        return found[0] if found else None

    def everywhere(self, name: str, worker: str = "target") -> list[Span]:
        return [self.span(n) for ns in self.numbers.get((name, worker), {}).values() for n in ns]

    def argument(self, name: str) -> Span | None:
        return self.one(f"server_arg.{name}", None, "")

    # -------------------------------------------------------------- terms of several equations

    @property
    def early_draft(self) -> bool:
        """Tell whether the draft's weights are loaded before the budget is taken."""
        return "speculative" in self.launch.features and self.since("0.5.14")

    @property
    def page(self) -> int:
        return self.launch.truth.page_size

    @property
    def padding(self) -> int:
        """Return the tokens of a pool beyond its printed number."""
        old_swa = "swa" in self.launch.features and not self.since("0.5.8")
        return 1 if old_swa or not self.since("0.4.4") else self.page

    def kv_sizes(self, rank: str | None, worker: str = "target") -> list[Span]:
        """Return the printed sizes of a worker's KV pools, in the order of the log."""
        keys = self.all("kv_cache.k_size", rank, worker)
        values = self.all("kv_cache.v_size", rank, worker)
        return self.all("kv_cache.kv_size", rank, worker) + [
            k.plus(v) for k, v in zip(keys, values, strict=True)
        ]

    def tokens(self, rank: str | None) -> list[Span]:
        """Return all printed statements of a rank's token capacity."""
        pools = self.all("kv_cache.num_tokens", rank)[-1:] + self.all("kv_cache.num_tokens", rank, "draft")
        split = self.all("swa_split.full_tokens", rank) + self.all("swa_pool.full_tokens", rank)
        return pools + split + self.all("capacity.max_total_num_tokens", rank, "")

    def total(self) -> Span:
        return _least(self.everywhere("load_weight_begin.avail_mem")).wider(_FLOAT32)

    def avail(self) -> Span:
        worker = "draft" if self.early_draft else "target"
        return _least(self.everywhere("load_weight_end.avail_mem", worker)).wider(_FLOAT32)

    def fraction(self) -> Span:
        """Return the fraction: printed, or any."""
        given = self.argument("mem_fraction_static")
        if given is not None:
            return given.times(_point(self.factor))
        told = [self.everywhere(f"{frame}.fraction") for frame in _FRACTIONS]
        return next((spans[0] for spans in told if spans), Span(Fraction(0), Fraction(1)))

    @property
    def factor(self) -> Fraction:
        """Return what a multimodal model makes of the given fraction."""
        if "images" not in self.launch.features or self.since("0.4.9"):
            return Fraction(1)
        return Fraction(95 if not self.since("0.4.5") else 90, 100)

    def rest(self) -> Span:
        """Return the KV budget, GiB."""
        kept_back = self.everywhere("kv_reserve.kept_back")
        slack = self.total().times(_point(1).minus(self.fraction()))
        return self.avail().minus(slack).minus(kept_back[0] if kept_back else _point(0))

    def states(self, rank: str | None) -> Span:
        """Return the size of the state pools as allocated, GiB."""
        conv, ssm = (
            self.one("mamba_cache.conv_state_size", rank),
            self.one("mamba_cache.ssm_state_size", rank),
        )
        return conv.plus(ssm) if conv and ssm else _point(0)

    def before_pools(self, rank: str | None) -> Span | None:
        return self.one("load_weight_end.avail_mem", rank, "draft" if self.early_draft else "target")


# ------------------------------------------------------------------ the equations


def _weights(p: _Printed) -> Iterator[bool]:
    """Loading: free before - free after = usage."""
    for worker in ("target", "draft"):
        for rank in p.ranks:
            before, after = (p.one(f"load_weight_{at}.avail_mem", rank, worker) for at in ("begin", "end"))
            usage = p.one("load_weight_end.mem_usage", rank, worker)
            if before and after and usage:
                yield before.minus(after).meets(usage)


def _captures(p: _Printed) -> Iterator[bool]:
    """Graph capture: free before - free after = usage."""
    for worker in ("target", "draft"):
        for rank in p.ranks:
            before, after = (p.one(f"graph_capture_{at}.avail_mem", rank, worker) for at in ("begin", "end"))
            usage = p.one("graph_capture_end.mem_usage", rank, worker)
            if before and after and usage:
                yield before.minus(after).meets(usage)


def _falling(p: _Printed) -> Iterator[bool]:
    """Free memory falls from step to step, so no usage is negative."""
    steps: dict[str | None, list[Number]] = {}
    for number in p.launch.numbers:
        if number.name.endswith((".avail_mem", ".available_gpu_mem")):
            steps.setdefault(number.rank, []).append(number)
        if number.name.endswith(".mem_usage"):
            yield p.span(number).high >= 0
    for numbers in steps.values():
        spans = [p.span(n) for n in numbers]
        yield all(later.low <= earlier.high for earlier, later in pairwise(spans))


def _pools_fit(p: _Printed) -> Iterator[bool]:
    """Free memory after the pools is at most that before, less the pools."""
    for rank in p.ranks:
        steps = [("target", p.before_pools(rank), p.states(rank))]
        late = p.one("load_weight_end.avail_mem", rank, "draft")
        steps.append(
            ("draft", p.one("memory_pool_end.avail_mem", rank) if p.early_draft else late, _point(0))
        )
        for worker, before, taken in steps:
            after = p.one("memory_pool_end.avail_mem", rank, worker)
            if before and after:
                for size in p.kv_sizes(rank, worker):
                    taken = taken.plus(size)
                yield after.low <= before.high - taken.low


def _same_tokens(p: _Printed) -> Iterator[bool]:
    """All lines tell one token capacity: within a rank, and over the ranks that share it."""
    shared: dict[int, list[Span]] = {}
    for name, rank in p.ranks.items():
        stage = 0 if p.since("0.5.2") else rank.pp
        shared.setdefault(stage, []).extend(p.tokens(name))
    for spans in shared.values():
        yield _all_meet(spans)


def _bytes_a_token(p: _Printed) -> Iterator[bool]:
    """Ranks of one stage store equally many bytes a token, and keys as many as values before 0.5.7."""
    each: dict[tuple[str, int, str, int], list[Span]] = {}
    for name, rank in p.ranks.items():
        for worker in ("target", "draft"):
            tokens = p.all("kv_cache.num_tokens", name, worker)
            if not tokens:
                tokens = p.tokens(name)[:1]
            for column in ("k_size", "v_size", "kv_size"):
                for pool, size in enumerate(p.all(f"kv_cache.{column}", name, worker)):
                    if pool < len(tokens) and tokens[pool].low > 0:
                        key = (worker, rank.pp, column if p.since("0.5.7") else column[-6:], pool)
                        if not p.since("0.5.7") and column != "kv_size":
                            key = (worker, rank.pp, "k and v", pool)
                        each.setdefault(key, []).append(size.over(tokens[pool].low + p.padding))
    for spans in each.values():
        yield _all_meet(spans)


def _cell(p: _Printed, name: str | None, tokens: Span) -> Span:
    """Return the bytes a token that the budget counts, GiB, from what the rank prints of its pools."""
    slots = tokens.low + p.padding
    cell = Span(Fraction(0), _MUCH)
    sizes = p.kv_sizes(name)
    before, after = p.before_pools(name), p.one("memory_pool_end.avail_mem", name)
    if len(sizes) == 1:
        cell = sizes[0].over(slots)
    elif before and after:
        cell = Span(Fraction(0), (before.high - after.low) / slots)
    if p.early_draft:
        draft = p.kv_sizes(name, "draft")
        if not draft:
            return Span(cell.low, _MUCH)
        cell = cell.plus(draft[0].over(slots)).wider(Fraction(1, GIB))
    if {"dsa", "fp8"} <= p.launch.features and not p.since("0.5.17"):
        # 576 + 132 bytes a layer are budgeted, 656 + 132 stored
        cell = cell.times(_point(Fraction(708, 788)))
    return cell


def _profiled(p: _Printed, name: str | None, tokens: Span) -> Span:
    """Return the tokens that the budget gave, before headroom, cap, pages and other stages."""
    low, high = tokens.low, tokens.high + p.page - 1
    capped = p.one("max_total_tokens_capped.profiled_tokens", name)
    if capped is not None:
        low, high = capped.low, capped.high + (p.page - 1 if p.since("0.5.11") else 0)
    elif p.argument("max_total_tokens") is not None or ("pp" in p.launch.features and p.since("0.5.2")):
        high = _MUCH
    if "speculative" in p.launch.features and p.since("0.4.4") and not p.since("0.5.7"):
        args = p.launch.args
        rows = args["max_running_requests"]
        one = args["speculative_num_steps"] * args["speculative_eagle_topk"]
        one += args["speculative_num_draft_tokens"]
        low, high = low - (rows or 4096) * one - 100, high - (rows or 2048) * one - 100
    return Span(low, max(low, high))


def _budgets(p: _Printed) -> Iterator[bool]:
    """avail - total * (1 - fraction) holds the tokens, and not one more: floor(rest / bytes a token)."""
    if p.launch.truth.outcome != "ready":
        return
    rest = p.rest()
    for name in p.ranks:
        statements = p.tokens(name)
        if not statements or not _all_meet(statements) or statements[0].low <= 0:
            continue
        tokens = statements[0]
        taken = p.states(name)
        slots = p.one("mamba_cache.mamba_states", name)
        if slots is not None and not p.since("0.5.17") and slots.low > 0:
            taken = taken.times(_point(slots.low / (slots.low + 1)))
        if "swa" in p.launch.features:
            yield rest.meets(_split_budget(p, name, tokens))
            continue
        profiled = _profiled(p, name, tokens)
        cell = _cell(p, name, tokens)
        needed = Span(max(profiled.low, Fraction(0)) * cell.low, (profiled.high + 1) * cell.high).plus(taken)
        yield rest.meets(needed) and rest.high > 0


def _split_budget(p: _Printed, name: str | None, tokens: Span) -> Span:
    """Return the budget that full and sliding-window pools of these sizes tell."""
    sizes, swa = p.kv_sizes(name), p.one("swa_split.swa_tokens", name)
    if len(sizes) != 2 or swa is None:
        return Span(Fraction(0), _MUCH)
    page = p.page if p.since("0.5.8") else 1
    one_swa = sizes[0].over(swa.low + p.padding)
    one_full = sizes[1].over(tokens.low + p.padding)
    cell = one_full.plus(one_swa.times(_point(Fraction(8, 10))))
    low, high = tokens.low * cell.low, (tokens.high + page) * cell.high
    return Span(low, high + (page + 1) * one_full.plus(one_swa).high)


def _split(p: _Printed) -> Iterator[bool]:
    """Sliding-window tokens are 0.8 of the full ones; the two pools' sizes add up."""
    page = p.page if p.since("0.5.8") else 1
    for name in p.ranks:
        full, swa = p.one("swa_split.full_tokens", name), p.one("swa_split.swa_tokens", name)
        if full is None or swa is None:
            continue
        wanted = int(full.low * Fraction(8, 10)) // page * page
        pools = p.all("kv_cache.num_tokens", name)[:1] + p.all("swa_pool.swa_tokens", name)
        yield _all_meet([_point(wanted), swa, *pools])
        total, sizes = p.one("swa_pool.pool_size", name), p.kv_sizes(name)
        if total is not None and len(sizes) == 2:
            yield total.meets(sizes[0].plus(sizes[1]))


def _state_pools(p: _Printed) -> Iterator[bool]:
    """All ranks have as many state slots, of equal sizes: what fits into 9/19 of the budget (0.9 : 1)."""
    slots = p.everywhere("mamba_cache.mamba_states")
    if not slots:
        return
    yield _all_meet(slots)
    for column in ("conv_state_size", "ssm_state_size"):
        sizes = [(p.one(f"mamba_cache.{column}", r), p.one("mamba_cache.mamba_states", r)) for r in p.ranks]
        yield _all_meet([size.over(n.low + 1) for size, n in sizes if size and n and n.low >= 0])
    share = p.rest().times(_point(Fraction(9, 19)))
    for name in p.ranks:
        number, size = p.one("mamba_cache.mamba_states", name), p.states(name)
        if number is not None and number.low >= 0:
            charged = number.low + (1 if p.since("0.5.17") else 0)
            one = size.over(number.low + 1)
            yield share.meets(Span(charged * one.low, (charged + 1) * one.high))


def _caps(p: _Printed) -> Iterator[bool]:
    """--max-total-tokens: the warning quotes it, only a larger one is warned of, a smaller one is the capacity."""
    cap = p.argument("max_total_tokens")
    for worker in ("target", "draft"):
        yield from _equal_on_a_stage(p, "max_total_tokens_capped.profiled_tokens", worker)
    alone = "pp" not in p.launch.features
    for name in p.ranks:
        for worker in ("target", "draft"):
            quoted = p.one("max_total_tokens_capped.max_total_tokens", name, worker)
            profiled = p.one("max_total_tokens_capped.profiled_tokens", name, worker)
            if quoted is None or profiled is None:
                continue
            yield cap is not None and quoted.meets(cap) and profiled.low < quoted.high
            if worker == "target":
                for tokens in p.tokens(name):
                    yield tokens.low <= profiled.high
                    yield not alone or tokens.high > profiled.low - p.page
        if cap is not None and p.one("max_total_tokens_capped.profiled_tokens", name) is None:
            for tokens in p.tokens(name):
                wanted = cap.low // p.page * p.page
                yield tokens.meets(_point(wanted)) if alone else tokens.low <= wanted


def _equal_on_a_stage(p: _Printed, name: str, worker: str) -> Iterator[bool]:
    for stage in {rank.pp for rank in p.ranks.values()}:
        spans = [p.one(name, key, worker) for key, rank in p.ranks.items() if rank.pp == stage]
        yield _all_meet([span for span in spans if span])


def _instrumentation(p: _Printed) -> Iterator[bool]:
    """The patched line adds up in itself, for target and draft."""
    for worker in ("target", "draft"):
        for name in p.ranks:
            terms = [p.one(f"profile_max_num_token.{column}", name, worker) for column in _DEBUG]
            if None in terms:
                continue
            avail, total, fraction, reserved, rest, cell, tokens = (t for t in terms if t is not None)
            yield reserved.meets(total.times(_point(1).minus(fraction)))
            plain = avail.minus(reserved)
            yield rest.low <= plain.high
            yield "mamba" in p.launch.features or rest.high >= plain.low
            if cell.low > 0:
                most = rest.high * GIB / cell.low // 1 + 1
                yield rest.low * GIB / cell.low // 1 <= tokens.low <= most


_DEBUG = ("avail", "total", "fraction", "reserved", "rest", "cell_size", "max_tokens")


def _instrumentation_agrees(p: _Printed) -> Iterator[bool]:
    """The patched line says what the others say."""
    ready = p.launch.truth.outcome == "ready"
    for name in p.ranks:
        terms = [p.one(f"profile_max_num_token.{column}", name) for column in _DEBUG]
        if None in terms:
            continue
        avail, total, _, _, _, cell, profiled = (t for t in terms if t is not None)
        yield total.meets(p.total()) and avail.meets(p.avail())
        capped = p.one("max_total_tokens_capped.profiled_tokens", name)
        if capped is not None and "speculative" not in p.launch.features:
            page = p.page if p.since("0.5.11") else 1
            yield capped.meets(_point(profiled.low // page * page))
        if "swa" in p.launch.features or not ready:
            continue
        statements = p.tokens(name)
        if statements and _all_meet(statements) and statements[0].low > 0:
            yield _cell(p, name, statements[0]).meets(cell.over(GIB))
            yield profiled.meets(_profiled(p, name, statements[0]))
    for column in ("avail", "total", "fraction", "reserved", "rest"):
        yield _all_meet(p.everywhere(f"profile_max_num_token.{column}"))
    for column in ("cell_size", "max_tokens"):
        yield from _equal_on_a_stage(p, f"profile_max_num_token.{column}", "target")


def _fractions(p: _Printed) -> Iterator[bool]:
    """The fraction in force is the same everywhere, and follows from the argument; what is kept back is equal."""
    told = [span for frame in _FRACTIONS for span in p.everywhere(f"{frame}.fraction")]
    yield _all_meet(told) and all(one.meets(p.fraction()) for one in told)
    yield _all_meet(p.everywhere("kv_reserve.kept_back"))


def _refusals(p: _Printed) -> Iterator[bool]:
    """The exception's fractions: 1 - avail / total, and that rounded up; there is no room at the one in force."""
    minima, suggestions = p.everywhere("error.minimum"), p.everywhere("error.suggested")
    yield _all_meet(minima) and _all_meet(suggestions)
    if not minima:
        return
    total, avail = p.total(), p.avail()
    smallest = Span(1 - avail.high / total.low, 1 - avail.low / total.high)
    yield all(one.meets(smallest) for one in minima)
    for one, suggested in zip(minima, suggestions, strict=True):
        both = one.within(smallest)
        up = Span(*(Fraction(-(-1000 * end // 1), 1000) for end in both))
        yield both.low > both.high or suggested.meets(up)
    yield p.rest().low <= 0


EQUATIONS = {
    "weights": _weights,
    "captures": _captures,
    "falling": _falling,
    "pools_fit": _pools_fit,
    "same_tokens": _same_tokens,
    "bytes_a_token": _bytes_a_token,
    "budget": _budgets,
    "split": _split,
    "state_pools": _state_pools,
    "caps": _caps,
    "instrumentation": _instrumentation,
    "instrumentation_agrees": _instrumentation_agrees,
    "fractions": _fractions,
    "refusals": _refusals,
}


def broken(launch: SimulatedLaunch, changed: Mapping[Number, str] | None = None) -> list[str]:
    """Return the equations that cannot hold with some printed numbers replaced."""
    printed = _Printed(launch, changed or {})
    return [name for name, equation in EQUATIONS.items() if not all(equation(printed))]


def detectable(launch: SimulatedLaunch, number: Number, new_text: str) -> bool:
    """Tell whether the log with one number replaced is certainly impossible."""
    return bool(broken(launch, {number: new_text}))
