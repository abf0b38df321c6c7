"""Rank tags as people read them: in the order of their numbers, runs of one tag joined."""

from __future__ import annotations

from collections.abc import Iterable


def rank_key(rank: str) -> tuple[list[int], str]:
    """Sort rank tags by their numbers ("TP2" before "TP10")."""
    return [int("".join(filter(str.isdigit, word)) or 0) for word in rank.split(" ")], rank


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
    one, two = before.split(" "), after.split(" ")
    if [word.rstrip("0123456789") for word in one] != [word.rstrip("0123456789") for word in two]:
        return False
    steps = {b - a for a, b in zip(rank_key(before)[0], rank_key(after)[0], strict=True)}
    return 1 in steps and steps <= {0, 1}
