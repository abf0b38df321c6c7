"""From launches to jobs: which files hold one launch, and by how much their clocks differ.

    launches --> Facts --> same job? (nodes, ranks) --> Group --> offset of each file's clock
                                                              --> same deployment? (prefill, decode, router)

Nodes and ranks of one job are joined. The servers of a PD deployment, its router, and servers that have
nothing to do with one another stay jobs of their own. Two files are joined only for a reason that is stated;
an offset of clocks rests on lines that must be simultaneous, and is null where both files have none.
"""

from __future__ import annotations

import datetime as dt
import sys
from bisect import bisect_left, bisect_right
from functools import cached_property, lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import polars as pl

from sglogparse._cheap import dataclass
from sglogparse._derived import once
from sglogparse._launches import Stamps, stamps
from sglogparse._ranks import rank_key, rank_spread
from sglogparse._report import ClockOffset
from sglogparse._split import NODE_ARGS
from sglogparse._vitals import span

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from sglogparse._launches import Launch
    from sglogparse._report import Evidence

#: Starts that are further apart than this are not one, whatever the time zones of the files.
_MOST_APART = dt.timedelta(hours=27)
#: How far apart lines stand that all ranks print at one moment, s.
_AT_ONCE = 5.0
#: What time zones differ by: a whole number of these, s.
_ZONE_STEP = 1800.0
_MOST_ZONE = 26 * 3600.0
#: How far apart the servers of a deployment can stand when one of them says nothing more, or yet nothing, s.
_SILENT = 600.0
#: What the servers of a deployment must be given alike.
_SHARED = ("served_model_name", "disaggregation_transfer_backend", "kv_cache_dtype")
#: The address of a server.
_ADDRESS = r"https?://[^\s/:'\"]{1,255}:[0-9]{1,5}\b"
#: The stamp of a router's line.
_ROUTER_STAMP = r"^\W{0,3}([0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2})"
#: How a router speaks of itself, in Python and in Rust.
_ROUTER = r"(?i:sglang[_-]router|sglang router|\bsmg::|\bstarting router\b|\bmini_?lb\b)"


@dataclass(frozen=True)
class Group:
    """Launches that are one job, by their numbers, with the reason in words."""

    members: tuple[int, ...]
    #: server (one file), nodes, ranks, or router
    kind: str
    #: prefill, decode or router; None for a server that does all
    role: str | None
    reason: str
    offsets: tuple[ClockOffset, ...] = ()

    def offset_of(self, path: str) -> float:
        """Return by how much a file's clock is ahead of the first file's, s; 0 where nothing pins it."""
        return next((one.seconds or 0.0 for one in self.offsets if one.file == path), 0.0)


class Facts:
    """What is needed of a launch to tell what it belongs to: little, so it can outlive its lines."""

    def __init__(self, launch: Launch) -> None:
        self._launch: Launch | None = launch
        self.path = launch.path
        self.args: Mapping[str, Any] = launch.args
        self.args_cut = launch.args_cut
        self.ranks = launch.ranks

    def kept(self) -> Facts:
        """Let go of the lines."""
        _ = self.role, self.stamps, self.arguments, self.anchors, self.peers
        self._launch = None
        self.args = {sys.intern(name): value for name, value in self.args.items()}
        return self

    @property
    def _lines(self) -> Launch:
        assert self._launch is not None, "asked before it was kept"
        return self._launch

    def argument(self, name: str) -> Any:  # noqa: ANN401 - an argument can be anything
        """Return an argument, None when the log does not tell."""
        return self.args.get(name)

    @cached_property
    def role(self) -> str | None:
        """Return what it does in a deployment: prefill, decode, router; None for a server that does all."""
        return role_of(self._lines)

    @cached_property
    def stamps(self) -> Stamps | None:
        """Return between which stamps it stands; a router's are those of its own lines."""
        found: Stamps | None = stamps(self._lines)
        return found or (_router_stamps(self._lines) if self.role == "router" else None)

    @cached_property
    def arguments(self) -> Hashable:
        """Return what the arguments of launches that belong together have in common; None where cut."""
        if not self.args or self.args_cut:
            return None
        told = ((name, _frozen(value)) for name, value in self.args.items() if name not in NODE_ARGS)
        return hash(frozenset(told))

    @cached_property
    def anchors(self) -> dict[str, tuple[dt.datetime, Evidence]]:
        """Return the lines that all its ranks print at one moment, the surest first."""
        launch = self._lines
        return {what: (_time(launch, line), launch.evidence(line)) for what, line in _anchors(launch).items()}

    @cached_property
    def peers(self) -> frozenset[int]:
        """Return the ports of the servers that a router names; of a server none."""
        if self.role != "router":
            return frozenset()
        named = self._lines.records["message"].str.extract_all(_ADDRESS).explode().drop_nulls().unique()
        return frozenset(int(one.rpartition(":")[2]) for one in named)


@once
def facts_of(launch: Launch) -> Facts:
    """Return what is needed of a launch to tell what it belongs to."""
    return Facts(launch)


def read_groups(launches: Sequence[Launch]) -> list[Group]:
    """Group launches into jobs; each launch is in exactly one."""
    return grouped([facts_of(one) for one in launches])


def grouped(launches: Sequence[Facts], *, strict: bool = False) -> list[Group]:
    """Group launches into jobs, by their facts; each launch is in exactly one.

    Of several starts in each file the last ones belong together, then those before them. `strict` asks of
    nodes, too, that they ran at one time.
    """
    groups: list[tuple[list[int], str | None]] = []
    index = _Index(launches)
    for number in reversed(range(len(launches))):
        place = next(
            (one for one in index.near(number) if _joins(launches, groups[one], number, strict=strict)), None
        )
        if place is None:
            groups.append(([number], None))
        else:
            members, _ = groups[place]
            groups[place] = ([*members, number], _kind(launches[members[0]], launches[number]))
        index.add(len(groups) - 1 if place is None else place, number)
    return sorted(
        (_group(launches, sorted(members), kind) for members, kind in groups), key=lambda one: one.members
    )


class _Index:
    """Groups by what launches must have in common with them: of thousands of files few are looked at."""

    def __init__(self, launches: Sequence[Facts]) -> None:
        self._launches = launches
        #: role and arguments (None: cut, or not in the log) -> rank tags -> groups
        self._groups: dict[tuple[str | None, Hashable], dict[tuple[str, ...], dict[int, None]]] = {}
        self._of_role: dict[str | None, set[Hashable]] = {}

    def add(self, group: int, number: int) -> None:
        """Add a member of a group."""
        launch = self._launches[number]
        role, arguments = launch.role, launch.arguments
        self._of_role.setdefault(role, set()).add(arguments)
        known = self._groups.setdefault((role, arguments), {}).setdefault(launch.ranks, {})
        known[group] = None

    def near(self, number: int) -> list[int]:
        """Return the groups, in their order, of which a member may belong to a launch."""
        launch = self._launches[number]
        role, arguments = launch.role, launch.arguments
        if role == "router":
            return []
        keys = {arguments, None} if arguments is not None else self._of_role.get(role, set())
        nodes = launch.argument("nnodes")
        several = launch.args_cut or (isinstance(nodes, int) and nodes > 1)
        found: set[int] = set()
        for key in keys:
            for ranks, groups in self._groups.get((role, key), {}).items():
                if several or _disjoint(ranks, launch.ranks):
                    found |= groups.keys()
        return sorted(found)


def _frozen(value: Any) -> Hashable:  # noqa: ANN401 - an argument can be anything
    """Return a value that is equal when arguments are."""
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return frozenset((name, _frozen(one)) for name, one in value.items())
    known: Hashable = value
    return known


def _joins(
    launches: Sequence[Facts], group: tuple[list[int], str | None], number: int, *, strict: bool
) -> bool:
    members, kind = group
    if any(_alike_nodes(launches[member], launches[number]) for member in members):
        return False
    if strict and not any(_overlap(launches[member], launches[number]) for member in members):
        return False
    kinds = {_kind(launches[member], launches[number]) for member in members}
    return None not in kinds and kinds <= ({kind} if kind else {"nodes", "ranks"}) and len(kinds) == 1


def _alike_nodes(one: Facts, two: Facts) -> bool:
    """Tell, at little cost, whether two launches cannot be parts of one: the same node, or a rank in both."""
    return one.argument("node_rank") == two.argument("node_rank") and not _disjoint(one.ranks, two.ranks)


def _kind(one: Facts, two: Facts) -> str | None:
    """Return as what two launches belong together: nodes, ranks; None when they do not."""
    if one.path == two.path or one.role != two.role or one.role == "router":
        return None
    if one.args and two.args and not _same_args(one, two):
        return None
    if not _near(one, two):
        return None
    if one.args and two.args:
        nodes, ranks = one.argument("nnodes"), (one.argument("node_rank"), two.argument("node_rank"))
        address = one.argument("dist_init_addr")
        if (
            isinstance(nodes, int)
            and nodes > 1
            and address is not None
            and address == two.argument("dist_init_addr")
            and None not in ranks
            and ranks[0] != ranks[1]
        ):
            return "nodes"
    return "ranks" if _disjoint(one.ranks, two.ranks) and _overlap(one, two) else None


def role_of(launch: Launch) -> str | None:
    """Return what a launch does in a deployment: prefill, decode, router; None for a server that does all."""
    mode = launch.argument("disaggregation_mode")
    if mode in ("prefill", "decode"):
        return str(mode)
    for kind, column, role in (
        ("prefill_batch", "inflight_req", "prefill"),
        ("decode_batch", "prealloc_req", "decode"),
    ):
        told = launch.frames[kind][column].head(1000)
        if told.null_count() < len(told):
            return role
    if launch.ranks or set(launch.reached) - {"warm-up"}:
        return None
    return "router" if launch.records["message"].str.contains(_ROUTER).any() else None


def _router_stamps(launch: Launch) -> Stamps | None:
    """Return the stamps of a router's own lines, which have no header; else those of what it runs under."""
    own = launch.frames["foreign"].filter(pl.col("family") == "router")["line"]
    records = launch.records
    for told in (records.filter(pl.col("line").is_in(own.implode())), records):
        times = told["text"].str.extract(_ROUTER_STAMP).str.replace("T", " ", literal=True)
        found = times.str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False).drop_nulls()
        if not found.is_empty():
            first, last = found.sort()[0], found.sort()[-1]
            return Stamps(first, last, found[0])
    return None


def _same_args(one: Facts, two: Facts) -> bool:
    """Tell whether two launches were given the same, but for what differs between nodes.

    Of lines that were cut, what both still have is compared.
    """
    names = (set(one.args) | set(two.args)) - NODE_ARGS
    if one.args_cut or two.args_cut:
        names &= set(one.args) & set(two.args)
    none = object()
    return bool(names) and all(one.args.get(name, none) == two.args.get(name, none) for name in names)


def _near(one: Facts, two: Facts) -> bool:
    first, second = one.stamps, two.stamps
    return first is None or second is None or abs(first.first - second.first) <= _MOST_APART


@lru_cache(maxsize=4096)
def _disjoint(one: tuple[str, ...], two: tuple[str, ...]) -> bool:
    """Tell whether the ranks of two launches have one kind of tags, and none in common."""
    kinds = [{_tags(rank) for rank in ranks} for ranks in (one, two)]
    return len(kinds[0]) == 1 and kinds[0] == kinds[1] and not set(one) & set(two)


def _tags(rank: str) -> tuple[str, ...]:
    return tuple(word.rstrip("0123456789") for word in rank.split(" "))


def _overlap(one: Facts, two: Facts) -> bool:
    """Tell whether two launches ran at one time, by their stamps or by lines that must be simultaneous."""
    first, second = one.stamps, two.stamps
    if first is None or second is None:
        return False
    if first.first <= second.last and second.first <= first.last:
        return True
    return clock_offset(one, two).seconds is not None


def _group(launches: Sequence[Facts], members: list[int], kind: str | None) -> Group:
    chosen = sorted(members, key=lambda number: (_node(launches[number]), number))
    first = launches[chosen[0]]
    role = first.role
    if kind is None:
        reason = {
            None: "no other file holds a part of this launch",
            "router": "a router: it has no ranks of its own",
        }.get(role, f"the {role} server of a PD deployment: a launch of its own")
        return Group(tuple(chosen), "router" if role == "router" else "server", role, reason)
    offsets = tuple(clock_offset(first, launches[number]) for number in chosen[1:])
    if kind == "nodes":
        named = ", ".join(str(launches[number].argument("node_rank")) for number in chosen)
        address = first.argument("dist_init_addr")
        reason = f"nodes {named} of one launch: equal arguments, dist_init_addr {address}"
    else:
        ranks = [rank_spread(launches[number].ranks) for number in chosen]
        reason = f"ranks of one launch ({'; '.join(ranks)}): none is in two files, and they ran at one time"
    return Group(tuple(chosen), kind, role, reason, offsets)


def _node(launch: Facts) -> tuple[int, list[int]]:
    node = launch.argument("node_rank")
    return (node if isinstance(node, int) else 0), rank_key(launch.ranks[0])[0] if launch.ranks else []


# ------------------------------------------------------------------ deployments


@dataclass(frozen=True)
class _Server:
    """A group within a deployment, by its number."""

    number: int
    role: str | None
    first: dt.datetime | None
    last: dt.datetime | None
    facts: tuple[Facts, ...]

    def ran_with(self, other: _Server) -> bool:
        """Tell whether both ran at one time, by their stamps."""
        if self.first is None or self.last is None or other.first is None or other.last is None:
            return False
        return self.first <= other.last and other.first <= self.last

    def silence(self, other: _Server) -> float | None:
        """Return the time between the end of one and the start of the other, s; None without stamps."""
        if self.first is None or self.last is None or other.first is None or other.last is None:
            return None
        return max((self.first - other.last).total_seconds(), (other.first - self.last).total_seconds())


def deployments(groups: Sequence[Group], launches: Sequence[Facts]) -> list[tuple[int, ...]]:
    """Return which groups, by their numbers, are servers of one PD deployment, with its router.

    The logs lie in one place. Prefill and decode servers belong together when they were given the same model
    and ran at one time; where one of them was silent by then, those that are next to one another do. A router
    belongs to those that it ran beside, or next to, and to servers that do all when it names their ports; one
    without stamps, or with those of another time zone, to the only deployment there is.
    """
    servers = [_server(number, group, launches) for number, group in enumerate(groups)]
    same = {one.number: one.number for one in servers}

    def head(number: int) -> int:
        while same[number] != number:
            number = same[number]
        return number

    def join(one: _Server, two: _Server) -> None:
        first, second = sorted((head(one.number), head(two.number)))
        same[second] = first

    of: dict[str | None, list[_Server]] = {"prefill": [], "decode": [], "router": [], None: []}
    for server in servers:
        of[server.role].append(server)
    parts = [*of["prefill"], *of["decode"]]
    pairs = [(one, two) for one, two in _near_in_time(of["prefill"], of["decode"]) if _alike(one, two)]
    alone = {one.number for one in parts}
    for one, two in pairs:
        if one.ran_with(two):
            join(one, two)
            alone -= {one.number, two.number}
    gaps = [(gap, one, two) for one, two in pairs if (gap := one.silence(two)) is not None and gap <= _SILENT]
    for _, one, two in sorted(gaps, key=lambda told: told[0]):
        if {one.number, two.number} <= alone:
            join(one, two)
            alone -= {one.number, two.number}
    for router in of["router"]:
        beside = [one for one in parts if router.ran_with(one)]
        beside += [one for one in of[None] if router.ran_with(one) and _names(router, one)]
        if not beside:
            near = [(gap, one.number) for one in parts if (gap := router.silence(one)) is not None]
            beside = [servers[number] for gap, number in sorted(near)[:1] if gap <= _SILENT]
        if not beside and len({head(one.number) for one in parts}) == 1 and _same_day(router, parts[0]):
            beside = parts  # its clock is another one's, or it has none
        for one in beside:
            join(router, one)
    found: dict[int, list[int]] = {}
    for one in servers:
        found.setdefault(head(one.number), []).append(one.number)
    return [tuple(numbers) for numbers in found.values() if len(numbers) > 1]


def _near_in_time(some: Iterable[_Server], others: Iterable[_Server]) -> Iterator[tuple[_Server, _Server]]:
    """Yield the pairs that may have run at one time, or next to one another; those without stamps never."""

    def spans(servers: Iterable[_Server]) -> Iterator[tuple[float, float, _Server]]:
        for one in servers:
            if one.first is not None and one.last is not None:
                begin, end = ((time - dt.datetime.min).total_seconds() for time in (one.first, one.last))
                yield begin, end, one

    dated = sorted(spans(others), key=lambda told: told[0])
    firsts = [first for first, _, _ in dated]
    longest = max((last - first for first, last, _ in dated), default=0.0)
    for first, last, one in spans(some):
        begin = bisect_left(firsts, first - _SILENT - longest)
        end = bisect_right(firsts, last + _SILENT)
        yield from ((one, other) for _, _, other in dated[begin:end])


def _server(number: int, group: Group, launches: Sequence[Facts]) -> _Server:
    facts = tuple(launches[one] for one in group.members)
    times = [one.stamps for one in facts if one.stamps is not None]
    first = min((one.first for one in times), default=None)
    return _Server(number, group.role, first, max((one.last for one in times), default=None), facts)


def _alike(one: _Server, two: _Server) -> bool:
    """Tell whether two servers can be parts of one deployment: what both logs tell must agree."""
    mine, its = one.facts[0], two.facts[0]
    models = [_model(facts) for facts in (mine, its)]
    if None not in models and models[0] != models[1]:
        return False
    told = ((mine.argument(name), its.argument(name)) for name in _SHARED)
    return all(here is None or there is None or here == there for here, there in told)


def _model(facts: Facts) -> str | None:
    """Return the name of the model, without the folder, which differs between hosts."""
    path = facts.argument("model_path")
    return PurePath(path).name if isinstance(path, str) else None


def _same_day(one: _Server, two: _Server) -> bool:
    """Tell whether two servers can have run at one time, whatever their time zones are."""
    gap = one.silence(two)
    return gap is None or gap <= _MOST_APART.total_seconds()


def _names(router: _Server, server: _Server) -> bool:
    """Tell whether a router names the port of a server."""
    peers = frozenset().union(*(one.peers for one in router.facts))
    return any(one.argument("port") in peers for one in server.facts)


# ------------------------------------------------------------------ clocks


def clock_offset(reference: Facts, other: Facts) -> ClockOffset:
    """Return by how much a file's clock is ahead of another's, with the lines that it rests on.

    All ranks of a job leave the set-up of the process groups at one moment, end a capture at one moment, and
    form their first batch at one moment. A difference of whole half hours is a time zone.
    """
    theirs = other.anchors
    anchors = [(what, *told, *theirs[what]) for what, told in reference.anchors.items() if what in theirs]
    if not anchors:
        return ClockOffset(
            other.path, reference.path, None, None, "no line that must be simultaneous is in both files"
        )
    found = [(at - then).total_seconds() for _, then, _, at, _ in anchors]
    evidence = tuple(line for _, _, here, _, there in anchors for line in (here, there))
    mine, its = _short_names(other.path, reference.path)
    words = [f"{what} ({mine}:{there.line}, {its}:{here.line})" for what, _, here, _, there in anchors]
    if max(found) - min(found) > 2 * _AT_ONCE:
        told = ", ".join(f"{word}: {_signed(seconds)}" for word, seconds in zip(words, found, strict=True))
        reason = f"lines that must be simultaneous disagree: {told}"
        return ClockOffset(other.path, reference.path, None, None, reason, evidence)
    zone = round(found[0] / _ZONE_STEP) * _ZONE_STEP
    rest = f"by {' and '.join(words)}"
    if abs(found[0] - zone) <= _AT_ONCE and abs(zone) <= _MOST_ZONE:
        if zone == 0:
            return ClockOffset(
                other.path, reference.path, 0.0, "same clock", f"the clocks agree {rest}", evidence
            )
        reason = f"{_signed(zone)}, a whole number of half hours, so another time zone, {rest}"
        return ClockOffset(other.path, reference.path, zone, "time zone", reason, evidence)
    reason = f"{_signed(found[0])}, no time zone, so a clock that is wrong, {rest}"
    return ClockOffset(other.path, reference.path, found[0], "clock", reason, evidence)


def _short_names(one: str, two: str) -> tuple[str, str]:
    names = PurePath(one).name or one, PurePath(two).name or two
    return names if names[0] != names[1] else (one, two)


def _signed(seconds: float) -> str:
    return f"{span(abs(seconds))} {'ahead' if seconds > 0 else 'behind'}" if round(seconds) else "0 s"


def _anchors(launch: Launch) -> dict[str, int]:
    """Return the lines of a launch that all its ranks print at one moment, the surest first."""
    frames = launch.frames
    out = {}
    ends = frames["dist_init_end"].drop_nulls("time")
    if not ends.is_empty():
        out["the end of the distributed set-up"] = int(ends["line"][0])
    for graph, line in (
        frames["graph_capture_end"]
        .drop_nulls("time")
        .group_by("graph", maintain_order=True)
        .agg(pl.col("line").first())
        .head(1)
        .iter_rows()
    ):
        out[f"the end of the {graph} capture"] = line
    batch = frames["prefill_batch"].drop_nulls("time").head(1)
    if not batch.is_empty():
        out["the first batch"] = int(batch["line"][0])
    return out


def _time(launch: Launch, line: int) -> dt.datetime:
    found: dt.datetime = launch.lines["time"][launch.row(line)]
    return found
