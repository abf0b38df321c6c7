"""The server's own "Not enough memory"."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sglogparse._budget import printed_budgets, smallest_fraction
from sglogparse._launches import Launch, rank_spread
from sglogparse._report import Finding, Severity
from sglogparse.rules.negative_kv_budget import raise_fraction

_MESSAGE = re.compile(r"Not enough memory\. Please try to increase|leave no GPU memory for the KV cache")
_GIVEN = re.compile(r"(?:mem_fraction_static=|--mem-fraction-static=)([0-9.]*[0-9])")
_MINIMUM = re.compile(r"above ([0-9.]*[0-9])")


def not_enough_memory(launch: Launch) -> Iterator[Finding]:
    """Report "Not enough memory", and whether its advice can be followed.

    What it finds:
        The exception "Not enough memory. Please try to increase --mem-fraction-static" (0.2.0 and later), and
        "Loaded weights leave no GPU memory for the KV cache" (0.5.14 and later).

    Why it matters:
        The server could not build a KV cache and ended. Its advice has no number, and above a point it cannot be
        followed: a fraction near 1 leaves nothing for graphs and activations.

    Evidence:
        The exception on each rank; the free memory before and after loading, or the budget that was printed.

    Does not match:
        An out-of-memory error of the device, for which the same flag must be lowered, not raised.

    What to do:
        Start with a fraction above 1 - avail / total. Where that is not possible the finding says what else gives.
    """
    frame = launch.frames["traceback"]
    rows = [
        row
        for row in frame.iter_rows(named=True)
        if any(_MESSAGE.search(text) for text in row["exceptions"] or ())
    ]
    if not rows:
        return
    lines = [row["exception_line"] or row["line"] for row in rows]
    text = next(text for text in rows[0]["exceptions"] if _MESSAGE.search(text))
    shown = next((one for one in printed_budgets(launch) if one.text["max_tokens"].startswith("-")), None)
    smallest = smallest_fraction(launch)
    given = _GIVEN.search(text)
    minimum = _MINIMUM.search(text)
    fix = raise_fraction(launch, smallest, shown)
    if smallest is None and minimum is not None:
        fix = f"needs --mem-fraction-static above {minimum[1]}" + (f" ({given[1]} given)" if given else "")
    elif shown is None and given is not None:
        fix = fix.replace("the value in force is not in this log", f"{given[1]} given")
    advice = ""
    if smallest is not None and smallest.impossible:
        advice = " Its advice cannot be followed: no fraction below 1 leaves room."
    elif smallest is not None and smallest.narrow:
        advice = " Its advice can hardly be followed: the smallest fraction that works leaves too little beside the pools."
    elif smallest is not None and given is not None and float(given[1]) > smallest.high:
        advice = (
            f" Yet {given[1]} is above the {smallest.text} that the printed memory asks for: other pools (states of a "
            "hybrid model, a draft model) take from the same budget."
        )
    elif smallest is not None or minimum is not None:
        advice = " Its advice is right here: the fraction is too small for the weights."
    ranks = [row["rank"] for row in rows]
    where = f" on {rank_spread(ranks)}" if any(ranks) else ""
    value = f" with mem_fraction_static={given[1]}" if given else ""
    yield Finding(
        Severity.ERROR,
        f"The server ended with 'Not enough memory' for its KV cache{value}{where}.{advice}",
        launch.evidences([*lines[:1], *(smallest.lines if smallest else ())]),
        cause="memory.kv_budget",
        fix=fix,
        ranks=tuple(one for one in rank_spread(ranks).split(", ") if one),
        root=launch.evidence(lines[0]),
        weight=2,
    )
