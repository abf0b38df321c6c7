"""Ranks that print different budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import polars as pl

from sglogparse._launches import Launch, alike
from sglogparse._ranks import rank_list, rank_spread
from sglogparse._report import Finding, Severity

#: What ranks of one group print alike: its name, the event, the fields.
_ALIKE = (
    ("budget", "profile_max_num_token", ("avail", "total", "fraction", "cell_size", "max_tokens")),
    ("KV pool", "kv_cache", ("num_tokens",)),
)
#: The numbers of each line of a rank.
_Numbers = tuple[tuple[object, ...], ...]


def rank_budget_differs(launch: Launch) -> Iterator[Finding]:
    """Report a rank whose KV budget is not that of its peers.

    What it finds:
        In one launch, ranks of one group (the same DP and PP rank) that print different numbers in the
        instrumentation line, or allocate KV caches of different token counts.

    Why it matters:
        `avail` and `total` are minima over the group, so all its ranks compute with the same numbers. A rank
        that differs took its numbers elsewhere: another launch, another device, other source.

    Evidence:
        One line of the majority, and the lines of the ranks that differ.

    Does not match:
        Pipeline stages (they hold different layers), DP groups, a launch with one rank, and a rank that
        prints fewer lines than its peers.

    What to do:
        Check that these ranks run the same source and arguments, and that nothing else uses their devices.
    """
    for what, kind, columns in _ALIKE:
        frame = launch.frames[kind]
        if frame.is_empty() or all(alike(frame[column]) for column in columns):
            continue
        frame = frame.drop_nulls(["rank", "tp", *columns])
        for group in frame.partition_by("dp", "pp", maintain_order=True):
            yield from _differing(launch, what, columns, group)


def _differing(launch: Launch, what: str, columns: tuple[str, ...], group: pl.DataFrame) -> Iterator[Finding]:
    ranks = {rows["rank"][0]: rows for rows in group.partition_by("rank", maintain_order=True)}
    most = max(rows.height for rows in ranks.values())
    prints: dict[str, _Numbers] = {
        rank: tuple(rows.select(columns).iter_rows()) for rank, rows in ranks.items() if rows.height == most
    }
    common, count = Counter(prints.values()).most_common(1)[0]
    odd = [rank for rank, numbers in prints.items() if numbers != common]
    if not odd:
        return
    peer = next(rank for rank, numbers in prints.items() if numbers == common)
    several = len(odd) > 1
    if count > len(odd):
        said = f"{rank_spread(odd)} {'print' if several else 'prints'} another {what}"
        said += f" than {'their' if several else 'its'} {count} peers"
    else:
        said, odd = f"The ranks print {len(set(prints.values()))} different {what}s", list(prints)
    differences = _differences(columns, common, {rank: prints[rank] for rank in odd})
    yield Finding(
        Severity.WARNING,
        f"{said}: {', '.join(differences[:4])}"
        + (f" and {len(differences) - 4} more" if len(differences) > 4 else "")
        + ".",
        launch.evidences([ranks[peer]["line"][0], *(line for rank in odd for line in ranks[rank]["line"])]),
        fix="check that these ranks run the same source and arguments, and what else uses their devices",
        ranks=rank_list(odd),
    )


def _differences(columns: tuple[str, ...], common: _Numbers, others: dict[str, _Numbers]) -> list[str]:
    return [
        f"{rank} has {column}={value} against {usual}"
        for place, line in enumerate(common)
        for index, (column, usual) in enumerate(zip(columns, line, strict=True))
        for rank, numbers in others.items()
        if (value := numbers[place][index]) != usual
    ]
