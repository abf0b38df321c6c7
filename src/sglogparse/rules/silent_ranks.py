"""Ranks that say nothing."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sglogparse._derived import Whole, throughout
from sglogparse._faults import faults
from sglogparse._launches import Launch
from sglogparse._ranks import rank_list, rank_spread
from sglogparse._report import Finding, Severity

#: Ranks of a server, at the most: a larger number is no number of ranks.
_MOST_RANKS = 100_000


def silent_ranks(launch: Launch) -> Iterator[Finding]:
    """Report tensor-parallel ranks of this node that print no line at all.

    What it finds:
        server_args says how many ranks run (tp_size, over nnodes nodes); fewer speak, though more than rank 0
        does.

    Why it matters:
        Every rank prints its start-up lines. A rank that is silent never started, died without a word, or was
        filtered out: the first fault may be on it.

    Evidence:
        The server_args line and the first line of each rank that speaks (at most four).

    Does not match:
        Logs without server_args (a grep): nobody can know then how many ranks there should be. Logs in which
        only the first rank of the node speaks, as some log settings have it.

    What to do:
        Get the lines of the silent ranks, or look why their processes did not start.
    """
    size, nodes, node = (launch.argument(name) for name in ("tp_size", "nnodes", "node_rank"))
    pipeline = launch.argument("pp_size")
    if not isinstance(size, int) or size < 2 or launch.frames["server_args"].is_empty():
        return
    count = nodes if isinstance(nodes, int) and nodes > 0 else 1
    stages = pipeline if isinstance(pipeline, int) and pipeline > 0 else 1
    if size > _MOST_RANKS or (count > 1 and (stages > 1 or size % count)):
        return
    own = size // count
    first = own * node if isinstance(node, int) else 0
    expected = set(range(first, first + own))
    said = _speaking(launch)
    speaking = dict(sorted(zip(said["tp"].to_list(), said["line"].to_list(), strict=True)))
    spoke = speaking.keys() & expected
    silent = sorted(expected - spoke)
    if not silent or len(spoke) < 2:
        return
    names = [f"TP{tp}" for tp in silent]
    # "Init torch distributed ends" needs all ranks; before it, the silent ones may only be late
    early = "weight loading" not in launch.reached and not faults(launch)
    verb = "are" if len(silent) > 1 else "is"
    yield Finding(
        Severity.INFO if early or launch.serves is not None else Severity.WARNING,
        f"{len(silent)} of {own} ranks {verb} silent: {rank_spread(names)} (tp_size={size}"
        + (f" over {count} nodes" if count > 1 else "")
        + ").",
        launch.evidences([int(launch.frames["server_args"]["line"][0]), *list(speaking.values())[:4]]),
        fix=f"get the lines of {rank_spread(names)}; the first fault may be there",
        ranks=rank_list(names),
    )


@throughout
def _speaking(whole: Whole) -> pl.DataFrame:
    """Return the TP ranks that speak in each launch, each by its first line."""
    tags = whole.lines.select("line", "tp").with_columns(whole.launch).with_row_index("row")
    return tags.drop_nulls("tp").unique(["launch", "tp"], keep="first", maintain_order=True)
