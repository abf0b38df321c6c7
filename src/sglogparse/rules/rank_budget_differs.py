"""Ranks that print different budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import polars as pl

from sglogparse._launches import Launch, rank_spread
from sglogparse._report import Finding, Severity

_BUDGET = ("avail", "total", "fraction", "cell_size", "max_tokens")


def rank_budget_differs(launch: Launch) -> Iterator[Finding]:
    """Report a rank whose KV budget is not that of its peers.

    What it finds:
        In one launch, ranks of one group (the same DP and PP rank) that print different numbers in the
        instrumentation line, or allocate KV caches of different token counts.

    Why it matters:
        `avail` and `total` are minima over the group, so all its ranks compute with the same numbers. A rank that
        differs took its numbers elsewhere: another launch, another device, other source.

    Evidence:
        One line of the majority, and the lines of the ranks that differ.

    Does not match:
        Pipeline stages (they hold different layers), DP groups, a launch with one rank, and servers in which one
        rank allocates several pools while the others' lines are missing.

    What to do:
        Check that these ranks run the same source and arguments, and that nothing else uses their devices.
    """
    for kind, columns in (("profile_max_num_token", _BUDGET), ("kv_cache", ("num_tokens",))):
        frame = launch.frames[kind].filter(pl.col("rank").is_not_null() & pl.col("tp").is_not_null())
        if kind == "kv_cache":
            frame = frame.filter(pl.col("num_tokens").is_not_null())
        for _, group in frame.partition_by(["dp", "pp"], as_dict=True, maintain_order=True).items():
            yield from _differing(launch, group, columns)


def _differing(launch: Launch, group: pl.DataFrame, columns: tuple[str, ...]) -> Iterator[Finding]:
    prints: dict[str, tuple[tuple[object, ...], ...]] = {}
    lines: dict[str, list[int]] = {}
    for rank, rows in group.partition_by("rank", as_dict=True, maintain_order=True).items():
        name = str(rank[0])
        prints[name] = tuple(rows.select(columns).iter_rows())
        lines[name] = rows["line"].to_list()
    most = max(len(one) for one in prints.values())
    full = {rank: one for rank, one in prints.items() if len(one) == most}
    common, count = Counter(full.values()).most_common(1)[0]
    odd = [rank for rank, one in full.items() if one != common]
    if not odd or count <= len(odd):
        if len(set(full.values())) <= 1:
            return
        odd = list(full)
        message = f"The ranks print {len(set(full.values()))} different budgets ({_values(columns, full[odd[0]], full)})."
        evidence = [lines[rank][0] for rank in odd]
    else:
        peer = next(rank for rank, one in full.items() if one == common)
        message = (
            f"{rank_spread(odd)} prints another budget than its {count} peers: "
            f"{_values(columns, common, {rank: full[rank] for rank in odd})}."
        )
        evidence = [lines[peer][0], *(line for rank in odd for line in lines[rank])]
    yield Finding(
        Severity.WARNING,
        message,
        launch.evidences(evidence),
        fix="check that these ranks run the same source and arguments, and what else uses their devices",
        ranks=tuple(odd),
    )


def _values(
    columns: tuple[str, ...],
    common: tuple[tuple[object, ...], ...],
    others: dict[str, tuple[tuple[object, ...], ...]],
) -> str:
    parts = []
    for place in range(len(common)):
        for index, column in enumerate(columns):
            differing = {rank: one[place][index] for rank, one in others.items() if one[place][index] != common[place][index]}
            parts += [f"{rank} has {column}={value} against {common[place][index]}" for rank, value in differing.items()]
    return ", ".join(parts[:4]) + (f" and {len(parts) - 4} more" if len(parts) > 4 else "")
