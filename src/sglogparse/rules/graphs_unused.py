"""Decode batches that run without graphs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import polars as pl

from sglogparse._launches import Launch, least, most
from sglogparse._ranks import on_ranks, rank_list
from sglogparse._report import Finding, Severity
from sglogparse._serving import decodes, number

#: A few batches without graphs are usual (the first, a mixed one): half of all, and at least ten, are not.
_SHARE = 0.5
_BATCHES = 10


def graphs_unused(launch: Launch) -> Iterator[Finding]:
    """Report decode batches that run without the graphs that were captured.

    What it finds:
        "cuda graph: False" (or npu graph) in half of the decode batches or more, and in ten at least, of a
        server that has captured graphs.

    Why it matters:
        Without a graph each kernel is launched from Python: small batches decode several times slower.

    Evidence:
        The first and the last such batch; the smallest and the largest of them, and the largest batch size
        that was captured.

    Does not match:
        Servers that were told to run without graphs (--disable-cuda-graph), releases that do not print it,
        and single batches.

    What to do:
        Batches above the largest captured size: raise --cuda-graph-max-bs. Smaller ones: look for a notice
        that disables graphs (LoRA, a grammar, return_hidden_states).
    """
    captured = not launch.frames["graph_capture_end"].is_empty()
    if launch.argument("disable_cuda_graph") is True or not captured or decodes(launch).is_empty():
        return
    frame = decodes(launch).drop_nulls("graphs")
    off = frame.filter(~pl.col("graphs"))
    if off.height < max(_BATCHES, _SHARE * frame.height):
        return
    smallest, largest = least(off, "running_req"), most(off, "running_req")
    limit = _largest_captured(launch)
    above = limit is not None and smallest is not None and smallest > limit
    span = number(smallest) if smallest == largest else f"{number(smallest)} to {number(largest)}"
    sizes = "" if smallest is None else f" of {span} requests"
    yield Finding(
        Severity.WARNING,
        f"{off.height} of {frame.height} decode batches{sizes} ran without a graph{on_ranks(off['rank'])}"
        + (f"; graphs were captured up to a batch size of {limit}" if limit is not None else "")
        + ".",
        launch.evidences([int(off["line"][0]), int(off["line"][-1])]),
        cause="perf.degraded",
        fix=f"raise --cuda-graph-max-bs above {number(largest)}"
        if above
        else "look for a notice that disables graphs (LoRA, a grammar, hidden states)",
        ranks=rank_list(off["rank"]),
        root=launch.evidence(int(off["line"][0])),
        fatal=False,
    )


def _largest_captured(launch: Launch) -> int | None:
    """Return the largest batch size that was captured, as a plan, a capture or an argument says."""
    sizes: list[int] = []
    for kind in ("graph_capture_plan", "graph_capture_begin", "graph_capture_end"):
        for text in launch.frames[kind]["capture_bs"].drop_nulls().cast(pl.String).unique():
            sizes += [int(one) for one in re.findall(r"[0-9]{1,6}", text)]
    given = launch.argument("cuda_graph_max_bs")
    return max(sizes) if sizes else given if isinstance(given, int) else None
