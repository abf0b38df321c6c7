"""A KV token budget of zero or less."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from sglogparse._budget import (
    NARROW,
    Printed,
    Smallest,
    negative_budgets,
    printed_budgets,
    smallest_fraction,
    step_gain,
)
from sglogparse._launches import Launch
from sglogparse._ranks import on_ranks, rank_list
from sglogparse._report import Finding, Severity
from sglogparse.ledger.whatif import usable_fraction
from sglogparse.ledger.window import fixed, hopeless, tries, what_else


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
        draft worker's, which is harmless (reported as information). A server that allocates a KV cache or
        serves afterwards all the same is a contradiction (M002), not a crash.

    What to do:
        Raise --mem-fraction-static above 1 - avail / total. Where the log has the bytes a token, the finding
        names a value with room for a request of full context or for a prefill. If that leaves too little
        beside the pools, give the model more ranks, a smaller or quantised form, or a larger device.
    """
    found = negative_budgets(launch)
    drafts = [one for one in found if one.draft]
    own = [one for one in found if not one.draft]
    if drafts:
        yield Finding(
            Severity.INFO,
            f"The draft worker profiles {drafts[0].tokens} tokens{on_ranks(one.rank for one in drafts)} "
            "after the target's pools were built; this is harmless.",
            launch.evidences(one.line for one in drafts),
            ranks=rank_list(one.rank for one in drafts),
        )
    if not own or launch.serves_after(own[0].line) or any(one.allocated for one in own):
        return
    budgets = {budget.line: budget for budget in printed_budgets(launch)}
    shown = next((budgets[one.line] for one in own if one.line in budgets), None)
    smallest = smallest_fraction(launch)
    lines = [one.line for one in own]
    if shown is not None:
        tokens = shown.text["max_tokens"]
        message = f"The KV token budget is {_sign(tokens)}: {shown.arithmetic()}, max_tokens={tokens}"
    else:
        message = f"The KV token budget is {_sign(own[0].tokens)}: {own[0].tokens} tokens"
        lines += smallest.lines if smallest else ()
    yield Finding(
        Severity.ERROR,
        f"{message}.",
        launch.evidences(lines),
        cause="memory.kv_budget",
        fix=raise_fraction(launch, smallest, shown, launch.argument("mem_fraction_static")),
        ranks=rank_list(one.rank for one in own),
        root=launch.evidence(own[0].line),
        weight=3 if shown is not None else 2,
    )


def _sign(tokens: int | str) -> str:
    return "negative" if int(tokens) < 0 else "zero"


def raise_fraction(launch: Launch, smallest: Smallest | None, shown: Printed | None, given: object) -> str:
    """Return the fix for a budget that is too small, with its number where the log has the numbers.

    `given` is the fraction in force, as far as the log tells it.
    """
    between = tries(launch)
    if between is not None and hopeless(between):
        return f"no --mem-fraction-static helps: {what_else(launch)}"
    if shown is not None:
        given = float(shown.text["fraction"])
        given_text = f"{shown.text['fraction']} given: {shown.arithmetic()}"
    elif isinstance(given, float):
        given_text = f"{given:g} given"
    else:
        given_text = "the value in force is not in this log"
    if smallest is None and isinstance(given, float) and given > NARROW:
        return (
            f"{given:g} leaves next to nothing to raise: use more ranks (--tp-size), a quantised model, or a "
            "larger device, and look what else takes memory on it"
        )
    if smallest is None:
        return (
            f"raise --mem-fraction-static ({given_text}); the smallest value that works, 1 - avail / total, "
            "needs the free memory before and after loading, which is not in this log"
        )
    if isinstance(given, float) and given > smallest.share.high:
        return (
            f"{given:g} is already above the {smallest.text} that the weights need: other pools take "
            "the rest (states of a hybrid model, a draft model, images); make those smaller (lower "
            f"--max-running-requests){', or raise the fraction further' if given < NARROW else ''}"
        )
    if smallest.impossible:
        free = (
            f"{smallest.avail} of {smallest.total} GiB are free"
            if smallest.avail
            else "next to nothing is free"
        )
        return (
            f"no --mem-fraction-static helps: {free} after the weights; use more ranks (--tp-size), "
            "a quantised model, or a larger device"
        )
    fix = f"needs --mem-fraction-static above {smallest.text} ({given_text})"
    usable = None if smallest.narrow else usable_fraction(launch)
    if usable is not None:
        fix = (
            f"set --mem-fraction-static {usable.text} (room for {usable.room}); any token needs above "
            f"{smallest.text} ({given_text})"
        )
    if smallest.narrow:
        left = "very little"
        if smallest.total is not None:
            left = f"{fixed((1 - Fraction(smallest.text)) * Fraction(smallest.total), 2)} GiB"
        return (
            f"{fix}; but that keeps only {left} for graphs and activations: "
            "rather use more ranks (--tp-size), a quantised model, or a larger device"
        )
    if smallest.total is None:
        return fix
    return f"{fix}; {step_gain(smallest.total, shown.text['cell_size'] if shown else None)}"
