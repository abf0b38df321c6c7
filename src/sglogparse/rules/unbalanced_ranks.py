"""Ranks of one group that have unequal memory left."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from sglogparse._cheap import dataclass
from sglogparse._interval import GIB
from sglogparse._launches import Launch
from sglogparse._ranks import on_ranks, rank_list
from sglogparse._report import Finding, Severity
from sglogparse.ledger.ledger import read_ledger
from sglogparse.ledger.readings import Number, Rank
from sglogparse.ledger.window import (
    FOREIGN_GIB,
    Unbalanced,
    before_weights,
    free_lines,
    gib,
    middle,
    token_bytes,
    unbalanced,
)

#: Ranks with the same layers differ by tenths of a GiB (contexts, buffers): this much is a cause of its own,
#: as a share of what the peers have free.
_UNEVEN_SHARE = Fraction(5, 100)
_UNEVEN_GIB = Fraction(2)


def unbalanced_ranks(launch: Launch) -> Iterator[Finding]:
    """Report ranks of one group that have unequal memory left.

    What it finds:
        After the weights, or at the end of a start, a rank with much less free memory than its peers that
        hold the same layers.

    Why it matters:
        The least free memory of all ranks sizes the pools of all: what one rank lacks, every rank loses. At
        the end of a start, the rank with the least is the first to run out of memory.

    Evidence:
        The line of the rank that decides the minimum and one of its peers, with the difference in GiB, and in
        tokens where the size of a token is known.

    Does not match:
        Pipeline stages, which hold different layers; replicas of DP, which size their pools alone; a rank
        that had less free before its weights already (M008 says that).

    What to do:
        Look what that rank loads more than its peers (experts that are not spread evenly, a draft model, an
        image encoder), or what else runs on its device.
    """
    drafts = [one for one in unbalanced(launch) if one.draft]
    if drafts:
        yield _draft(launch, drafts)
        return
    for group in read_ledger(launch).groups:
        stages: dict[int | None, list[Rank]] = {}
        for rank in group.ranks:
            stages.setdefault(rank.pp, []).append(rank)
        for ranks in stages.values():
            gap = _gap(ranks, "weights") or _gap(ranks, "end")
            if gap is not None:
                yield _finding(launch, gap)


@dataclass(frozen=True)
class _Gap:
    """What the rank with the least memory has less than the middle one of its peers."""

    place: str
    low: Rank
    least: Number
    usual: Number

    @property
    def size(self) -> Fraction:
        return middle(self.usual) - middle(self.least)


def _gap(ranks: list[Rank], place: str) -> _Gap | None:
    measured: dict[str, list[tuple[Rank, Number]]] = {}
    for rank in ranks:
        found = _measured(rank, place)
        if found is not None:
            measured.setdefault(found[0], []).append((rank, found[1]))
    for alike in measured.values():
        if len(alike) < 2:
            continue
        alike.sort(key=lambda one: middle(one[1]))
        rank, least = alike[0]
        peer, usual = alike[len(alike) // 2]
        gap = _Gap(place, rank, least, usual)
        if gap.size < max(_UNEVEN_GIB, _UNEVEN_SHARE * middle(usual)) or _was_there(rank, peer, gap.size):
            continue
        return gap
    return None


def _measured(rank: Rank, place: str) -> tuple[str, Number] | None:
    """Return a rank's free memory behind its weights or at the end of what it prints, with what came last."""
    if place == "weights":
        return ("weights", rank.profiled) if rank.profiled is not None else None
    lines = [one for one in free_lines(rank) if one[0] != "capacity"]
    if not lines or not lines[-1][0].startswith(("pool end", "capture end")):
        return None
    return lines[-1]


def _was_there(rank: Rank, peer: Rank, gap: Fraction) -> bool:
    """Tell whether most of a gap was there before the weights."""
    low, usual = before_weights(rank), before_weights(peer)
    if low is None or usual is None:
        return False
    before = middle(usual) - middle(low)
    return before >= FOREIGN_GIB and before >= gap / 2


def _finding(launch: Launch, gap: _Gap) -> Finding:
    name = gap.low.name or "one rank"
    where = "after the weights" if gap.place == "weights" else "at the end of the start"
    message = (
        f"{name} has {gib(gap.size)} less memory free than its peers {where}: {gap.least.text} GiB against "
        f"{gap.usual.text} GiB."
    )
    if gap.place == "weights":
        cell = token_bytes(launch)
        tokens = f" = {gap.size * GIB // cell} tokens" if cell else ""
        message += f" The least of all ranks sizes the pools: that costs every rank {gib(gap.size)}{tokens}."
    else:
        message += " It is the first to run out of memory."
    healthy = launch.serves is not None or gap.place == "end"
    return Finding(
        Severity.INFO if healthy else Severity.WARNING,
        message,
        launch.evidences([gap.least.line, gap.usual.line]),
        fix=f"see what {name} loads more than its peers, and what else runs on its device (`nvidia-smi`)",
        ranks=rank_list([gap.low.name]),
    )


def _draft(launch: Launch, found: list[Unbalanced]) -> Finding:
    """Say what the check of a draft worker means: it compares what the target's pools left."""
    told = next((one for one in found if one.least is not None and one.local is not None), found[0])
    numbers = ""
    if told.least is not None and told.local is not None:
        numbers = f": {gib(told.least)} on the fullest device, {gib(told.local)}{on_ranks([told.rank])}"
    return Finding(
        Severity.WARNING if any(one.fatal for one in found) else Severity.INFO,
        f"The draft worker finds that the target's pools left unequal memory (line "
        f"{told.line}){numbers}. No other "
        "process is needed for that: of the little that is left, a small difference is more than a tenth.",
        launch.evidences(one.line for one in (told, *found[:3])),
        fix="lower --mem-fraction-static, so that the same difference is a smaller share, or switch the "
        "check off "
        "(SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK=1 from 0.4.6 to 0.5.6, "
        "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK=0 later)",
        ranks=rank_list(one.rank for one in found),
    )
