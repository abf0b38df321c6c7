"""Rank tags as people read them: in the order of their numbers, runs of one tag joined."""

from __future__ import annotations

from collections.abc import Iterable

#: The parts of a rank tag by which ranks are put in order, whichever of them a tag has.
_ORDER = ("DP", "PP", "TP", "EP")


def rank_key(rank: str) -> tuple[list[int], str]:
    """Sort rank tags by their DP, PP, TP and EP numbers; a tag that lacks one comes before those with it.

    >>> sorted(["DP1 TP4", "TP10", "TP2", "DP0 TP8"], key=rank_key)
    ['TP2', 'TP10', 'DP0 TP8', 'DP1 TP4']
    """
    numbers = dict(_numbered(rank))
    return [numbers.pop(tag, -1) for tag in _ORDER] + list(numbers.values()), rank


def _numbered(rank: str) -> list[tuple[str, int]]:
    """Return the parts of a rank tag and their numbers, as printed."""
    words = ((word.rstrip("0123456789"), word) for word in rank.split(" "))
    return [(tag, int(word[len(tag) :] or 0)) for tag, word in words]


def rank_list(ranks: Iterable[str | None]) -> tuple[str, ...]:
    """Return the ranks that are known, each once, in the order of their numbers."""
    return tuple(sorted({rank for rank in ranks if rank}, key=rank_key))


def on_ranks(ranks: Iterable[str | None]) -> str:
    """Return " on" and the ranks for use in a sentence; nothing when none is known."""
    spread = rank_spread(ranks)
    return f" on {'rank ' if spread[0].isdigit() else ''}{spread}" if spread else ""


def rank_spread(ranks: Iterable[str | None]) -> str:
    """Name ranks shortly: runs of one tag are joined.

    >>> rank_spread(["TP0", "TP1", "TP2", "TP6"])
    'TP0-TP2, TP6'
    """
    parts: list[list[str]] = []
    for rank in rank_list(ranks):
        if parts and _follows(parts[-1][-1], rank):
            parts[-1].append(rank)
        else:
            parts.append([rank])
    return ", ".join(part[0] if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def _follows(before: str, after: str) -> bool:
    one, two = _numbered(before), _numbered(after)
    if [tag for tag, _ in one] != [tag for tag, _ in two]:
        return False
    steps = {b - a for (_, a), (_, b) in zip(one, two, strict=True)}
    return 1 in steps and steps <= {0, 1}
