"""Memory of the device that is not this server's."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import polars as pl

from sglogparse._cheap import dataclass
from sglogparse._launches import Launch
from sglogparse._ranks import on_ranks, rank_list, rank_spread
from sglogparse._report import Finding, Severity
from sglogparse.ledger.ledger import read_ledger
from sglogparse.ledger.readings import Number, Rank
from sglogparse.ledger.window import (
    FOREIGN_GIB,
    before_weights,
    gib,
    held,
    middle,
    short_of_memory,
    shortages,
    unbalanced,
)

#: Ranks of one start find the same free memory but for some tenths of a GiB (their contexts and buffers): one
#: that finds this share less than its peers has company.
_PEERS_SHARE = Fraction(5, 100)
#: Driver, context and communication buffers take less than this share of a card before the weights.
_CARD_SHARE = Fraction(10, 100)
#: What the set-up of process groups takes where no line says it, GiB: NCCL, DeepEP and symmetric buffers.
_SET_UP_GIB = Fraction(4)
_FIX = "find it with `nvidia-smi` and end it, or use other devices (--base-gpu-id, CUDA_VISIBLE_DEVICES)"


def foreign_process(launch: Launch) -> Iterator[Finding]:
    """Report memory of the device that something else than this server holds.

    What it finds:
        An out-of-memory error that lists other processes, or memory that this process does not hold. A rank
        that finds far less free memory before its weights than its peers, or than the size of the card. The
        server's own "memory capacity is unbalanced".

    Why it matters:
        The least free memory of all ranks sizes the pools of all. A process that was left over from an
        earlier start, or another server, takes what the fraction counts on; no flag of this server brings it
        back.

    Evidence:
        The lines with the free memory, or the error, with the difference in GiB and the process number where
        it is printed.

    Does not match:
        Contexts and communication buffers, some GiB; the own process under the number that a container does
        not know; pools and weights of the server itself.

    What to do:
        `nvidia-smi` names the process: end it, or use other devices. If the sharing is wanted, lower
        --mem-fraction-static so that both fit.
    """
    found = _listed(launch) or _against_peers(launch) or _unbalanced(launch) or _against_card(launch)
    if found is not None:
        yield found


def _listed(launch: Launch) -> Finding | None:
    """Return what errors of the allocator say of others on the device."""
    found = [one for one in shortages(launch) if one.foreign >= FOREIGN_GIB]
    if not found:
        return None
    worst = max(found, key=lambda one: one.foreign)
    of = f" of {gib(worst.capacity)}" if worst.capacity else ""
    pids = [pid for pid, _ in worst.others if pid is not None]
    fix = _FIX
    if len(pids) == 1:
        fix = (
            f"see what process {pids[0]} is (`nvidia-smi`, `ps -p {pids[0]}`) and end it, or use "
            f"other devices"
        )
    return Finding(
        Severity.WARNING,
        f"The device{on_ranks([worst.rank])} is not this server's alone: {held(worst)}{of} when "
        f"{gib(worst.tried)} were asked for (line {worst.line}).",
        launch.evidences(one.line for one in found[:4]),
        fix=fix,
        ranks=rank_list(one.rank for one in found),
    )


@dataclass(frozen=True)
class _Before:
    """The free memory of a rank before its weights."""

    rank: Rank
    number: Number

    @property
    def size(self) -> Fraction:
        return middle(self.number)


def _befores(ranks: tuple[Rank, ...]) -> list[_Before]:
    return [_Before(rank, number) for rank in ranks if (number := before_weights(rank)) is not None]


def _against_peers(launch: Launch) -> Finding | None:
    """Return the ranks that find less free memory than the middle one of their group."""
    for group in read_ledger(launch).groups:
        found = _befores(group.ranks)
        if len(found) < 2:
            continue
        # of two ranks the one with more free is the measure
        usual = sorted(found, key=lambda one: one.size)[len(found) // 2]
        low = [one for one in found if usual.size - one.size >= _enough(usual.size)]
        if not low:
            continue
        least = min(low, key=lambda one: one.size)
        less = usual.size - least.size
        ranks = [one.rank.name for one in low]
        return Finding(
            Severity.INFO if launch.serves is not None else Severity.WARNING,
            f"Before the weights {rank_spread(ranks) or 'a rank'} {'has' if len(low) == 1 else 'have'} less "
            f"memory free than the peers: {least.number.text} GiB against {usual.number.text} GiB. Something "
            f"else holds about {gib(less)} there, and the least of all ranks sizes the pools of all.",
            launch.evidences([*(one.number.line for one in low[:6]), usual.number.line]),
            fix=_FIX,
            ranks=rank_list(ranks),
        )
    return None


def _enough(usual: Fraction) -> Fraction:
    return max(FOREIGN_GIB, _PEERS_SHARE * usual)


def _unbalanced(launch: Launch) -> Finding | None:
    """Return what the server's own check of the ranks says; a draft worker's tells nothing of others."""
    found = [one for one in unbalanced(launch) if not one.draft]
    if not found:
        return None
    told = [one for one in found if one.least is not None and one.local is not None]
    first = max(told, key=lambda one: one.local or Fraction(0)) if told else found[0]
    message = f"The server finds unequal free memory before the weights (line {first.line})"
    if first.least is not None and first.local is not None:
        message += (
            f": {gib(first.least)} on the fullest device, {gib(first.local)}"
            f"{on_ranks([first.rank]) or ' on another'}; "
            f"something else holds about {gib(first.local - first.least)} there"
        )
    return Finding(
        Severity.WARNING if any(one.fatal for one in found) else Severity.INFO,
        f"{message}.",
        launch.evidences(one.line for one in (first, *found[:3])),
        fix=_FIX,
        ranks=rank_list([first.rank]),
    )


def _against_card(launch: Launch) -> Finding | None:
    """Return the rank that finds less free memory than its card has, where the log tells the card's size."""
    found = _befores(read_ledger(launch).ranks)
    if not found:
        return None
    least = min(found, key=lambda one: one.size)
    cards = [
        (one.capacity, one.line) for one in shortages(launch) if one.capacity and one.rank == least.rank.name
    ]
    memory = launch.frames["gpu_memory"].filter(pl.col("device_memory") > 0)
    cards += [
        (Fraction(size, 1024), line) for size, line in memory.select("device_memory", "line").iter_rows()
    ]
    if not cards:
        return None
    card, line = min(cards)
    missing = card - _set_up(launch, least.rank) - least.size
    if missing < max(FOREIGN_GIB, _CARD_SHARE * card):
        return None
    # where the host shares its memory with the device, other programs always hold some
    return Finding(
        Severity.WARNING if short_of_memory(launch) else Severity.INFO,
        f"Before the weights {least.number.text} GiB are free{on_ranks([least.rank.name])} of a device of "
        f"{gib(card)} (line {line}): something else holds about {gib(missing)} of it.",
        launch.evidences([least.number.line, line]),
        fix=_FIX,
        ranks=rank_list([least.rank.name]),
    )


def _set_up(launch: Launch, rank: Rank) -> Fraction:
    """Return what the set-up of the process groups took on a rank, GiB, or what it may take."""
    frame = launch.frames["dist_init_end"].filter(pl.col("rank").eq_missing(rank.name))
    frame = frame.filter(pl.col("mem_usage").is_between(0, 1024))
    return Fraction(frame["mem_usage"][0]) if not frame.is_empty() else _SET_UP_GIB
