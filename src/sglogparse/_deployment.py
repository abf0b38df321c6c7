"""From launches to jobs: which files hold one launch, and by how much their clocks differ.

    launches --> role (prefill, decode, router) --> same job? (nodes, ranks) --> offset of each file's clock

Nodes and ranks of one job are joined. The servers of a PD deployment, its router, and servers that have
nothing to do with one another stay jobs of their own. Two files are joined only for a reason that is stated;
an offset of clocks rests on lines that must be simultaneous, and is null where both files have none.
"""

from __future__ import annotations

import datetime as dt
from functools import lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import polars as pl

from sglogparse._cheap import dataclass
from sglogparse._derived import once
from sglogparse._launches import stamps
from sglogparse._ranks import rank_key, rank_spread
from sglogparse._report import ClockOffset
from sglogparse._split import NODE_ARGS
from sglogparse._vitals import span

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from sglogparse._launches import Launch

#: Starts that are further apart than this are not one, whatever the time zones of the files.
_MOST_APART = dt.timedelta(hours=27)
#: How far apart lines stand that all ranks print at one moment, s.
_AT_ONCE = 5.0
#: What time zones differ by: a whole number of these, s.
_ZONE_STEP = 1800.0
_MOST_ZONE = 26 * 3600.0
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


def read_groups(launches: Sequence[Launch]) -> list[Group]:
    """Group launches into jobs; each launch is in exactly one.

    Of several starts in each file the last ones belong together, then those before them.
    """
    groups: list[tuple[list[int], str | None]] = []
    index = _Index(launches)
    for number in reversed(range(len(launches))):
        place = next((one for one in index.near(number) if _joins(launches, groups[one], number)), None)
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

    def __init__(self, launches: Sequence[Launch]) -> None:
        self._launches = launches
        #: role and arguments (None: cut, or not in the log) -> rank tags -> groups
        self._groups: dict[tuple[str | None, Hashable], dict[tuple[str, ...], dict[int, None]]] = {}
        self._of_role: dict[str | None, set[Hashable]] = {}

    def add(self, group: int, number: int) -> None:
        """Add a member of a group."""
        launch = self._launches[number]
        role, arguments = role_of(launch), _arguments(launch)
        self._of_role.setdefault(role, set()).add(arguments)
        known = self._groups.setdefault((role, arguments), {}).setdefault(launch.ranks, {})
        known[group] = None

    def near(self, number: int) -> list[int]:
        """Return the groups, in their order, of which a member may belong to a launch."""
        launch = self._launches[number]
        role, arguments = role_of(launch), _arguments(launch)
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


@once
def _arguments(launch: Launch) -> Hashable:
    """Return what the arguments of launches that belong together have in common; None where they are cut."""
    if not launch.args or launch.args_cut:
        return None
    return frozenset((name, _frozen(value)) for name, value in launch.args.items() if name not in NODE_ARGS)


def _frozen(value: Any) -> Hashable:  # noqa: ANN401 - an argument can be anything
    """Return a value that is equal when arguments are."""
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return frozenset((name, _frozen(one)) for name, one in value.items())
    known: Hashable = value
    return known


def _joins(launches: Sequence[Launch], group: tuple[list[int], str | None], number: int) -> bool:
    members, kind = group
    kinds = {_kind(launches[member], launches[number]) for member in members}
    return None not in kinds and kinds <= ({kind} if kind else {"nodes", "ranks"}) and len(kinds) == 1


def _kind(one: Launch, two: Launch) -> str | None:
    """Return as what two launches belong together: nodes, ranks; None when they do not."""
    if one.path == two.path or role_of(one) != role_of(two) or role_of(one) == "router":
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


@once
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


def _same_args(one: Launch, two: Launch) -> bool:
    """Tell whether two launches were given the same, but for what differs between nodes.

    Of lines that were cut, what both still have is compared.
    """
    names = (set(one.args) | set(two.args)) - NODE_ARGS
    if one.args_cut or two.args_cut:
        names &= set(one.args) & set(two.args)
    none = object()
    return bool(names) and all(one.args.get(name, none) == two.args.get(name, none) for name in names)


def _near(one: Launch, two: Launch) -> bool:
    first, second = stamps(one), stamps(two)
    return first is None or second is None or abs(first.first - second.first) <= _MOST_APART


@lru_cache(maxsize=4096)
def _disjoint(one: tuple[str, ...], two: tuple[str, ...]) -> bool:
    """Tell whether the ranks of two launches have one kind of tags, and none in common."""
    kinds = [{_tags(rank) for rank in ranks} for ranks in (one, two)]
    return len(kinds[0]) == 1 and kinds[0] == kinds[1] and not set(one) & set(two)


def _tags(rank: str) -> tuple[str, ...]:
    return tuple(word.rstrip("0123456789") for word in rank.split(" "))


def _overlap(one: Launch, two: Launch) -> bool:
    """Tell whether two launches ran at one time, by their stamps or by lines that must be simultaneous."""
    first, second = stamps(one), stamps(two)
    if first is None or second is None:
        return False
    if first.first <= second.last and second.first <= first.last:
        return True
    return clock_offset(one, two).seconds is not None


def _group(launches: Sequence[Launch], members: list[int], kind: str | None) -> Group:
    chosen = sorted(members, key=lambda number: (_node(launches[number]), number))
    first = launches[chosen[0]]
    role = role_of(first)
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


def _node(launch: Launch) -> tuple[int, list[int]]:
    node = launch.argument("node_rank")
    return (node if isinstance(node, int) else 0), rank_key(launch.ranks[0])[0] if launch.ranks else []


# ------------------------------------------------------------------ clocks


def clock_offset(reference: Launch, other: Launch) -> ClockOffset:
    """Return by how much a file's clock is ahead of another's, with the lines that it rests on.

    All ranks of a job leave the set-up of the process groups at one moment, end a capture at one moment, and
    form their first batch at one moment. A difference of whole half hours is a time zone.
    """
    theirs = _anchors(other)
    anchors = [(what, line, theirs[what]) for what, line in _anchors(reference).items() if what in theirs]
    if not anchors:
        return ClockOffset(
            other.path, reference.path, None, None, "no line that must be simultaneous is in both files"
        )
    found = [(_time(other, there) - _time(reference, here)).total_seconds() for _, here, there in anchors]
    evidence = tuple(
        line for _, here, there in anchors for line in (reference.evidence(here), other.evidence(there))
    )
    mine, its = _short_names(other.path, reference.path)
    words = [f"{what} ({mine}:{there}, {its}:{here})" for what, here, there in anchors]
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


@once
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
