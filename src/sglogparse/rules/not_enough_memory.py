"""The server's own "Not enough memory"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from sglogparse._budget import Smallest, printed_budgets, smallest_fraction
from sglogparse._interval import Interval
from sglogparse._launches import Launch
from sglogparse._ranks import on_ranks, rank_list
from sglogparse._report import Finding, Severity
from sglogparse.ledger.window import Try, hopeless, refusal, refusals, tries
from sglogparse.rules.negative_kv_budget import raise_fraction


def not_enough_memory(launch: Launch) -> Iterator[Finding]:
    """Report "Not enough memory", and whether its advice can be followed.

    What it finds:
        The exception "Not enough memory. Please try to increase --mem-fraction-static" (up to 0.5.9), and
        "Loaded weights leave no GPU memory for the KV cache" (0.5.14 and later).

    Why it matters:
        The server could not build a KV cache and ended. The advice of older releases has no number, and above
        a point it cannot be followed: a fraction near 1 leaves nothing for graphs and activations.

    Evidence:
        The exception of the first rank; the free memory before and after loading, or the budget that was
        printed.

    Does not match:
        An out-of-memory error of the device, for which the same flag must be lowered, not raised.

    What to do:
        Start with the fraction that the finding names: one that leaves room to work, where the log has the
        bytes a token, else one above 1 - avail / total. Where that is not possible the finding says what else
        gives.
    """
    said = refusal(launch)
    if said is None:
        return
    ranks = refusals(launch)["rank"]
    given = float(said.said) if said.said else launch.argument("mem_fraction_static")
    shown = next((one for one in printed_budgets(launch) if int(one.text["max_tokens"]) <= 0), None)
    smallest = smallest_fraction(launch) or _said_minimum(said.text)
    between = tries(launch)
    lost = between if between is not None and hopeless(between) else None
    yield Finding(
        Severity.ERROR,
        "The server ended because no memory was left for its KV cache"
        + (f" with mem_fraction_static={said.said}" if said.said else "")
        + f"{on_ranks(ranks)}.{_advice(smallest, given, lost)}",
        launch.evidences([said.line, *(smallest.lines if smallest else ())]),
        cause="memory.kv_budget",
        fix=raise_fraction(launch, smallest, shown, given),
        ranks=rank_list(ranks),
        root=launch.evidence(said.line),
        weight=2,
    )


def _said_minimum(text: str) -> Smallest | None:
    """Return the smallest fraction that the message names: rounded, or where that is cut off, rounded up."""
    if minimum := re.search(r"minimum viable = [^=]*= ([0-9]*\.?[0-9]+)", text):
        return Smallest(Interval.printed(minimum[1]))
    if suggested := re.search(r"Raise --mem-fraction-static above ([0-9]\.[0-9]{3})", text):
        up = Fraction(suggested[1])
        return Smallest(Interval(up - Fraction(1, 1000), up))
    return None


def _advice(smallest: Smallest | None, given: object, lost: tuple[Try, Try] | None) -> str:
    """Return what the server's own advice, to raise the fraction, is worth here."""
    if lost is not None:
        high = lost[1]
        return (
            f" Its advice cannot be followed: with {float(high.fraction):g} an earlier start ran out of "
            f"memory (line {high.evidence.line})."
        )
    if smallest is None:
        return ""
    if isinstance(given, float) and Fraction(given) > smallest.share.high:
        need = f"the {smallest.text} that the weights need"
        return f" Its advice is not the whole of it: {given:g} is already above {need}."
    if smallest.impossible:
        return " Its advice cannot be followed: no fraction below 1 leaves room."
    if smallest.narrow:
        return " Its advice can hardly be followed: what works leaves too little for graphs and activations."
    return " Its advice is right here: the fraction is too small for the weights."
