"""A KV token budget of zero or less."""

from __future__ import annotations

from collections.abc import Iterator

from sglogparse._budget import (
    Printed,
    Smallest,
    negative_budgets,
    printed_budgets,
    smallest_fraction,
    step_gain,
)
from sglogparse._launches import Launch, rank_spread
from sglogparse._report import Finding, Severity


def negative_kv_budget(launch: Launch) -> Iterator[Finding]:
    """Report a KV token budget of zero or less.

    What it finds:
        A rank that computes how many tokens its KV cache can hold and gets zero or less: the instrumentation
        line of profile_max_num_token, or "max_total_tokens=... is larger than the profiled value -N".

    Why it matters:
        After the weights, less memory is free than mem_fraction_static keeps outside the static pools. No KV
        cache can be built, and the start ends with "Not enough memory".

    Evidence:
        The lines with the negative count. With the instrumentation line the whole sum is shown:
        rest = avail - total x (1 - fraction).

    Does not match:
        The second profile of a rank whose pools are built already, in a server that speculates: that is the
        draft worker's, which is harmless (reported as information). A server that serves all the same is a
        contradiction (M002), not a crash.

    What to do:
        Raise --mem-fraction-static above 1 - avail / total. If that leaves too little beside the pools, give the
        model more ranks, a smaller or quantised form, or a device with more memory.
    """
    found = negative_budgets(launch)
    drafts = [one for one in found if one.draft]
    own = [one for one in found if not one.draft]
    if drafts:
        yield Finding(
            Severity.INFO,
            f"The draft worker profiles {drafts[0].tokens} tokens after the target's pools were built; this is harmless.",
            launch.evidences(one.line for one in drafts),
            ranks=tuple(rank_spread(one.rank for one in drafts).split(", ")),
        )
    if not own or launch.serves is not None:
        return
    budgets = {budget.line: budget for budget in printed_budgets(launch)}
    shown = next((budgets[one.line] for one in own if one.line in budgets), None)
    smallest = smallest_fraction(launch)
    tokens = own[0].tokens
    message = f"The KV token budget is {'zero' if tokens == 0 else 'negative'}: {tokens} tokens"
    if shown is not None:
        message = f"The KV token budget is negative: {shown.arithmetic()}, max_tokens={shown.text['max_tokens']}"
    lines = [one.line for one in own]
    if shown is None and smallest is not None:
        lines += smallest.lines
    yield Finding(
        Severity.ERROR,
        f"{message}.",
        launch.evidences(lines),
        cause="memory.kv_budget",
        fix=raise_fraction(launch, smallest, shown),
        ranks=tuple(one for one in rank_spread(one.rank for one in own).split(", ") if one),
        root=launch.evidence(own[0].line),
        weight=3 if shown is not None else 2,
    )


def raise_fraction(launch: Launch, smallest: Smallest | None, shown: Printed | None) -> str:
    """Return the fix for a budget that is too small, with its number where the log has the numbers."""
    given = launch.argument("mem_fraction_static")
    if shown is not None:
        given_text = f"{shown.text['fraction']} given: {shown.arithmetic()}"
    elif isinstance(given, float):
        given_text = f"{given:g} given"
    else:
        given_text = "the value in force is not in this log"
    if smallest is None:
        return (
            f"raise --mem-fraction-static ({given_text}); the smallest value that works, 1 - avail / total, "
            "needs the free memory before and after loading, which is not in this log"
        )
    if smallest.impossible:
        return (
            f"no --mem-fraction-static helps: {smallest.avail} of {smallest.total} GiB are free after the weights; "
            "use more ranks (--tp-size), a quantised model, or a larger device"
        )
    gain = step_gain(smallest.total, shown.text["cell_size"] if shown else None)
    fix = f"needs --mem-fraction-static above {smallest.text} ({given_text})"
    if smallest.narrow:
        return (
            f"{fix}; but that keeps only {float((1 - smallest.high)) * float(smallest.total):.2f} GiB for graphs and "
            "activations: rather use more ranks (--tp-size), a quantised model, or a larger device"
        )
    return f"{fix}; {gain}"
