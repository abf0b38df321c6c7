"""Speculative decoding that gains nothing."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sglogparse._launches import Launch
from sglogparse._ranks import on_ranks, rank_list
from sglogparse._report import Finding, Severity
from sglogparse._serving import decodes

#: An accept length counts the token that the target makes itself: at 1 no draft token was accepted.
_NOTHING = 1.1
#: Batches that must show it: short answers accept little.
_BATCHES = 10


def drafts_refused(launch: Launch) -> Iterator[Finding]:
    """Report speculative decoding whose drafts are hardly ever accepted.

    What it finds:
        A median accept length below 1.1 over ten decode batches or more.

    Why it matters:
        Each step pays for the draft model and the verification and gives one token: slower than without. A
        draft model of another target, or weights that were loaded wrongly, look like this.

    Evidence:
        The first and the last decode batch with an accept length; the median.

    Does not match:
        Low gains (1.5, say), as hard text gives them, and a few batches.

    What to do:
        See that the draft model belongs to this target (--speculative-draft-model-path), or serve without it.
    """
    accepts = decodes(launch)["accept_len"]
    if len(accepts) - accepts.null_count() < _BATCHES:
        return
    frame = decodes(launch).drop_nulls("accept_len")
    median = frame["accept_len"].median()
    if not isinstance(median, float) or median >= _NOTHING:
        return
    yield Finding(
        Severity.WARNING,
        f"Drafts are hardly ever accepted{on_ranks(frame['rank'])}: median accept length {median:.2f} in "
        f"{frame.height} decode batches.",
        launch.evidences([int(frame["line"][0]), int(frame["line"][-1])]),
        cause="perf.degraded",
        fix="see that --speculative-draft-model-path belongs to this target, or serve without drafts",
        ranks=rank_list(frame.select(pl.col("rank").drop_nulls())["rank"]),
        root=launch.evidence(int(frame["line"][0])),
        fatal=False,
    )
