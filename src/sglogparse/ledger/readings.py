"""What each rank prints of its memory, in the order of its lines: loads, pools, captures, free memory.

frames --> per rank: [load begin/end] [pools] [pools' end] [captures] ... [free at the end]

The target's weights are loaded first. A second load is a draft model's: before the pools (2026 releases) or
behind them. Pools behind the first "Memory pool end" are the draft's. All sizes are GiB as SGLang prints them
("GB" in its device lines is 2^30 bytes).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from sglogparse import _cheap
from sglogparse._derived import once
from sglogparse._interval import Interval
from sglogparse._launches import Launch
from sglogparse._ranks import rank_key

#: Kinds of lines that print device memory.
_KINDS = (
    "dist_init_end",
    "memory_baseline",
    "load_weight_begin",
    "load_weight_end",
    "kv_cache",
    "swa_pool",
    "mamba_cache",
    "memory_pool_end",
    "graph_capture_begin",
    "graph_capture_end",
    "capacity",
)
#: Columns of a state pool's line, all of which take memory.
_STATES = ("conv_state_size", "ssm_state_size", "intermediate_ssm_size", "intermediate_conv_size")
#: More than any size in GiB, or any number of tokens; so are inf and, as no number is less, nan.
_MOST = 1e18
#: A start prints some dozens of such lines a rank; what stands behind so many is no part of it.
_MOST_LINES = 64
#: More loads than a rank can do (target, draft, a second draft): the lines of several ranks, untold apart.
_MOST_LOADS = 3


@_cheap.dataclass(frozen=True)
class Number:
    """A printed number: its digits, what they can mean, and its line."""

    name: str
    text: str
    line: int
    interval: Interval

    @cached_property
    def middle(self) -> Fraction:
        """Return it as the exact decimal."""
        return (self.interval.low + self.interval.high) / 2


@dataclass
class Load:
    """One load of weights: free before, what it took, free after; GiB."""

    begin: Number | None = None
    used: Number | None = None
    end: Number | None = None
    model: str | None = None


@dataclass
class Pool:
    """One pool: its parts (GiB) and its tokens."""

    #: "KV cache", "state pool" or "KV cache (sum)": a line that prints the sum of those above it
    what: str
    line: int
    parts: tuple[Number, ...]
    tokens: Number | None = None
    #: an upper bound of addresses, not memory that is taken
    bound: bool = False


@dataclass
class Capture:
    """One capture of graphs: free before, what it took, free after; GiB."""

    graph: str
    begin: Number | None = None
    used: Number | None = None
    end: Number | None = None
    line: int = 0


@dataclass
class Worker:
    """A model that a rank runs: the target, or a draft."""

    load: Load | None = None
    pools: list[Pool] = field(default_factory=list)
    pool_end: Number | None = None
    captures: list[Capture] = field(default_factory=list)


@dataclass
class Rank:
    """All that a rank prints of its memory."""

    name: str | None
    dp: int | None
    pp: int | None
    target: Worker = field(default_factory=Worker)
    drafts: list[Worker] = field(default_factory=list)
    #: what the set-up of the process groups took
    setup: list[Number] = field(default_factory=list)
    #: free at the end of the start (the capacity line)
    free: Number | None = None
    #: lines beyond those that a start can print: of another start, or no start's
    left_out: int = 0
    capacity: Number | None = None
    requests: int | None = None
    context: int | None = None
    #: whether a draft's weights were loaded before the pools
    draft_first: bool = False

    @property
    def before(self) -> Number | None:
        """Return the free memory before any weights."""
        return self.target.load.begin if self.target.load else None

    @property
    def profiled(self) -> Number | None:
        """Return the free memory after the last load before the pools."""
        if self.draft_first:
            return next((one.load.end for one in reversed(self.drafts) if one.load and one.load.end), None)
        return self.target.load.end if self.target.load else None


@once
def read_ranks(launch: Launch) -> tuple[Rank, ...]:
    """Return what the ranks print of their memory, in the order of their numbers.

    Lines without a rank are one rank's when the server has one; else nobody can tell whose they are, and
    they are left out.
    """
    rows: dict[str | None, list[tuple[int, str, dict[str, Any]]]] = defaultdict(list)
    for kind in _KINDS:
        frame = launch.frames[kind]
        if frame.is_empty():
            continue
        lines = frame["line"].to_list()
        groups = dict(zip(lines, zip(frame["dp"].to_list(), frame["pp"].to_list(), strict=True), strict=True))
        for row in launch.printed(kind, lines):
            row["dp"], row["pp"] = groups[row["line"]]
            rows[row["rank"]].append((row["line"], kind, row))
    if None in rows and not _alone(
        launch, len([1 for _, kind, _ in rows[None] if kind == "load_weight_end"])
    ):
        del rows[None]
    names = sorted(rows, key=lambda name: rank_key(name or ""))
    # two windows' pools can be alike; where there are none, a line that stands there twice is printed twice
    twice = () if launch.frames["swa_pool"].is_empty() else ("kv_cache",)
    return tuple(_limited(name, _once(sorted(rows[name], key=lambda one: one[:2]), twice)) for name in names)


def _limited(name: str | None, rows: list[tuple[int, str, dict[str, Any]]]) -> Rank:
    """Return a rank by as many lines as a start can print; the others are counted."""
    rank = _rank(name, rows[:_MOST_LINES])
    rank.left_out = max(len(rows) - _MOST_LINES, 0)
    return rank


def _once(
    rows: list[tuple[int, str, dict[str, Any]]], but: tuple[str, ...]
) -> list[tuple[int, str, dict[str, Any]]]:
    """Return the rows of a rank without those that only repeat the one before: lines logged twice."""
    kept: list[tuple[int, str, dict[str, Any]]] = []
    for line, kind, row in rows:
        if kept and kind not in but and kept[-1][1] == kind and kept[-1][2] | {"line": line} == row:
            continue
        kept.append((line, kind, row))
    return kept


def _alone(launch: Launch, loads: int) -> bool:
    sizes = [launch.argument(name) for name in ("tp_size", "pp_size", "dp_size")]
    return not launch.ranks and all(size in (None, 1) for size in sizes) and loads <= _MOST_LOADS


def _rank(name: str | None, rows: list[tuple[int, str, dict[str, Any]]]) -> Rank:
    first = rows[0][2]
    rank = Rank(name, first["dp"], first["pp"])
    worker = rank.target
    for line, kind, row in rows:
        if kind in ("dist_init_end", "memory_baseline"):
            used = _number("mem usage", row, "mem_usage")
            rank.setup += [used] if used else []
        elif kind == "load_weight_begin":
            if worker.load is not None:
                worker = _draft(rank)
            worker.load = Load(begin=_number("avail mem", row, "avail_mem"))
        elif kind == "load_weight_end":
            if worker.load is None or worker.load.end is not None or _ended(worker):
                worker = worker if worker.load is None and not _ended(worker) else _draft(rank)
                worker.load = worker.load or Load()
            worker.load.end = _number("avail mem", row, "avail_mem")
            worker.load.used = _number("mem usage", row, "mem_usage")
            worker.load.model = row.get("model_class")
        elif kind in ("kv_cache", "swa_pool", "mamba_cache"):
            owner = _owner(rank)
            owner.pools.append(_pool(line, kind, row))
            if kind == "swa_pool":
                owner.pools = _without_repeats(owner.pools)
        elif kind == "memory_pool_end":
            owner = _owner(rank)
            owner.pool_end = _number("avail mem", row, "avail_mem")
        elif kind in ("graph_capture_begin", "graph_capture_end"):
            _capture(rank, kind, row)
        elif kind == "capacity":
            rank.capacity = rank.capacity or _whole("max_total_num_tokens", row)
            rank.free = rank.free or _number("available_gpu_mem", row, "available_gpu_mem")
            rank.requests, rank.context = _int(row, "max_running_requests"), _int(row, "context_len")
    return rank


def _draft(rank: Rank) -> Worker:
    if rank.target.pool_end is None and not rank.target.pools:
        rank.draft_first = True
    rank.drafts.append(Worker())
    return rank.drafts[-1]


def _ended(worker: Worker) -> bool:
    return worker.pool_end is not None


def _owner(rank: Rank) -> Worker:
    """Return the worker whose pools come next: the target's first, then each draft's in turn."""
    workers = [rank.target, *rank.drafts]
    for worker in workers:
        if worker.pool_end is None:
            return worker
    return _draft(rank)


def _pool(line: int, kind: str, row: dict[str, Any]) -> Pool:
    if kind == "mamba_cache":
        return Pool("state pool", line, tuple(_numbers(row, *_STATES)), _whole("mamba_states", row))
    if kind == "swa_pool":
        bound = row["pool_kind"] != "mem usage"
        return Pool("KV cache (sum)", line, tuple(_numbers(row, "pool_size")), bound=bound)
    parts = tuple(_numbers(row, "k_size", "v_size", "kv_size"))
    bound = row["pool_state"] != "is allocated"
    return Pool("KV cache", line, parts, _whole("num_tokens", row), bound=bound)


def _without_repeats(pools: list[Pool]) -> list[Pool]:
    """Return the pools of windows without those that are logged twice: their printed sum tells."""
    total = pools[-1]
    keys = [(pool.what, tuple((one.name, one.text) for one in pool.parts)) for pool in pools]
    kv = [part.interval.low for pool in pools if pool.what == "KV cache" for part in pool.parts]
    if len(set(keys)) == len(keys) or not total.parts or sum(kv) <= total.parts[0].interval.high:
        return pools
    firsts = {key: place for place, key in reversed(list(enumerate(keys)))}
    return [pool for place, pool in enumerate(pools) if firsts[keys[place]] == place]


def _capture(rank: Rank, kind: str, row: dict[str, Any]) -> None:
    """Put a line of a capture to the capture that it belongs to: an end to the open one of its graphs."""
    drafts = [one for one in rank.drafts if one.load or one.pools or one.pool_end]
    worker = drafts[-1] if drafts and (not rank.draft_first or "draft" in row["graph"]) else rank.target
    captures = worker.captures
    if kind == "graph_capture_begin":
        begin = _number("avail mem", row, "avail_mem")
        captures.append(Capture(row["graph"], begin=begin, line=row["line"]))
        return
    opened = [one for one in captures if one.end is None and one.used is None and one.graph == row["graph"]]
    if not opened:
        captures.append(Capture(row["graph"], line=row["line"]))
        opened = captures[-1:]
    opened[-1].used = _number("mem usage", row, "mem_usage")
    opened[-1].end = _number("avail mem", row, "avail_mem")


def _numbers(row: dict[str, Any], *columns: str) -> Iterator[Number]:
    for column in columns:
        number = _number(column.replace("_", " "), row, column)
        if number is not None:
            yield number


def _number(name: str, row: dict[str, Any], column: str) -> Number | None:
    text = row.get(column)
    if text is None or not abs(float(text)) < _MOST:
        return None
    return Number(name, text, row["line"], Interval.printed(text))


def _whole(column: str, row: dict[str, Any]) -> Number | None:
    text = row.get(column)
    if text is None or not abs(float(text)) < _MOST:
        return None
    return Number(column, text, row["line"], Interval.exactly(text))


def _int(row: dict[str, Any], column: str) -> int | None:
    number = _whole(column, row)
    return None if number is None else int(number.text)
