"""A negative budget in a launch that allocated, became ready or served."""

from __future__ import annotations

from collections.abc import Iterator

from sglogparse._budget import (
    draft_headroom,
    implied_fraction,
    is_plain,
    negative_budgets,
    pool_size,
    printed_budgets,
)
from sglogparse._launches import Launch
from sglogparse._ranks import rank_list
from sglogparse._report import Finding, Severity


def negative_budget_yet_allocated(launch: Launch) -> Iterator[Finding]:
    """Report a negative KV token budget alongside a successful start.

    What it finds:
        A rank that prints a token budget of zero or less, and in the same launch a KV cache that was
        allocated on that rank after it, a ready line, or served batches.

    Why it matters:
        Both cannot be true of one start: a server with that budget refuses to go on. Either two starts are
        mixed in this log, or the line does not show the values the server used. A conclusion from this log
        would rest on the wrong run.

    Evidence:
        The negative line and the line that contradicts it. Where the sizes are printed, the fraction that the
        allocation implies: f = 1 - (avail - pool) / total.

    Does not match:
        The draft worker's own profile in a server that speculates, and a small deficit in such a server,
        which adds room for draft tokens to the pool (up to 0.5.6). Allocations of other launches or other
        ranks, and what was served before the negative line.

    What to do:
        Find out which start each line is from (pid, time, arguments). Trust the allocation, not the profile.
    """
    room = draft_headroom(launch)
    negatives = [
        one
        for one in negative_budgets(launch)
        if not one.draft
        and (one.kind == "max_total_tokens_capped" or (room is not None and one.tokens + room <= 0))
    ]
    if not negatives:
        return
    clashes = [(one, one.allocated) for one in negatives if one.allocated is not None]
    first = negatives[0]
    serves = launch.serves_after(first.line)
    if not clashes and serves is None:
        return
    lines = [first.line, *(line for one, pool in clashes for line in (one.line, pool))]
    lines += [serves] if serves is not None else []
    size = None
    fact = f"the server serves (line {serves})"
    if clashes:
        first, pool = clashes[0]
        size = pool_size(launch.printed("kv_cache", [pool])[0])
        fact = f"a KV cache{f' of {size.text(2)} GiB' if size else ''} was allocated (line {pool})"
    message = (
        f"{first.rank or 'The log'} prints a budget of {first.tokens} tokens (line {first.line}), "
        f"and yet {fact}: both cannot be true of one start."
    )
    shown = next((one for one in printed_budgets(launch) if one.line == first.line), None)
    implied = implied_fraction(shown.text["avail"], shown.text["total"], size) if shown and size else None
    if shown and implied and is_plain(launch):
        message += (
            f" By its own numbers the allocation implies mem_fraction_static = {implied.text(3)}, "
            f"not {shown.text['fraction']}."
        )
    yield Finding(
        Severity.ERROR,
        message,
        launch.evidences(lines),
        fix="find out which start each of these lines is from; trust the allocation, not the profile",
        ranks=rank_list(one.rank for one in negatives),
        weight=4,
    )
