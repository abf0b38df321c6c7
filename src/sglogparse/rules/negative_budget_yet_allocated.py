"""A negative budget in a launch that allocated, became ready or served."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sglogparse._budget import implied_fraction, negative_budgets, pool_size, printed_budgets
from sglogparse._launches import Launch, rank_spread
from sglogparse._report import Finding, Severity


def negative_budget_yet_allocated(launch: Launch) -> Iterator[Finding]:
    """Report a negative KV token budget alongside a successful start.

    What it finds:
        A rank that prints a token budget of zero or less, and in the same launch a KV cache that was allocated
        on that rank after it, a ready line, or served batches.

    Why it matters:
        Both cannot be true of one start: a server with that budget refuses to go on. Either two starts are mixed
        in this log, or the line does not show the values the server used. A conclusion from this log would rest
        on the wrong run.

    Evidence:
        The negative line and the line that contradicts it. Where the sizes are printed, the fraction that the
        allocation implies: f = 1 - (avail - pool) / total.

    Does not match:
        The draft worker's own profile in a server that speculates; allocations of other launches or other ranks.

    What to do:
        Find out which start each line is from (pid, time, arguments). Trust the allocation, not the profile.
    """
    negatives = [one for one in negative_budgets(launch) if not one.draft]
    if not negatives:
        return
    pools = launch.frames["kv_cache"]
    clashes: list[tuple[int, int]] = []
    for one in negatives:
        after = pools.filter(pl.col("rank").eq_missing(one.rank) & (pl.col("line") > one.line))
        if not after.is_empty():
            clashes.append((one.line, int(after["line"][0])))
    serves = launch.serves if launch.serves is not None and launch.serves > negatives[0].line else None
    if not clashes and serves is None:
        return
    first = negatives[0]
    said = f"{first.rank or 'The log'} prints a budget of {first.tokens} tokens (line {first.line})"
    lines = [line for pair in clashes for line in pair] + ([negatives[0].line, serves] if serves else [])
    if clashes:
        pool = launch.printed("kv_cache", [clashes[0][1]])[0]
        size = pool_size(pool)
        what = f"a KV cache of {size.text(2)} GiB" if size else "a KV cache"
        message = f"{said}, and yet {what} was allocated (line {clashes[0][1]}): both cannot be true of one start."
        shown = next((one for one in printed_budgets(launch) if one.line == clashes[0][0]), None)
        implied = implied_fraction(shown.text["avail"], shown.text["total"], size) if shown and size else None
        if shown and implied:
            message += (
                f" By its own numbers the allocation implies mem_fraction_static = {implied.text(3)}, "
                f"not {shown.text['fraction']}."
            )
    else:
        message = f"{said}, and yet the server serves (line {serves}): both cannot be true of one start."
    yield Finding(
        Severity.ERROR,
        message,
        launch.evidences(lines),
        fix="find out which start each of these lines is from; trust the allocation, not the profile",
        ranks=tuple(one for one in rank_spread(one.rank for one in negatives).split(", ") if one),
        weight=4,
    )
