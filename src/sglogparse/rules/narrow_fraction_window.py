"""Between which values of mem_fraction_static a launch can run, and whether there is any."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from sglogparse._interval import round_up
from sglogparse._launches import Launch
from sglogparse._ranks import rank_list
from sglogparse._report import Finding, Severity
from sglogparse.ledger.window import (
    Shortage,
    Window,
    crowded,
    down,
    fixed,
    fraction_window,
    gib,
    hopeless,
    tries,
    what_else,
)


def narrow_fraction_window(launch: Launch) -> Iterator[Finding]:
    """Report between which values of mem_fraction_static a launch can run, and whether there is any.

    What it finds:
        A launch whose device ran out of memory behind the weights, with what was missing; and of several
        launches of one log, one that had "not enough memory" at one fraction and one that ran out of memory
        at another.

    Why it matters:
        The weights and one page of KV cache need a smallest fraction; graphs, activations and other set-up
        need that it is not too large. Where both meet, no value of the flag helps, whatever the server
        advises.

    Evidence:
        The error with what was asked for and what was free, and the lines with the free memory before and
        after the weights; of several launches, the error of each.

    Does not match:
        Memory that ran out while the weights were loaded, for which the fraction does not count, and devices
        on which another process holds what is missing (M008). Launches of other models or numbers of ranks.

    What to do:
        Take a value between both. If there is none, capture fewer graphs (--cuda-graph-max-bs), serve a
        shorter context or smaller --chunked-prefill-size, use more ranks, or quantise weights or KV cache.
    """
    tried = _tried(launch)
    if tried is not None:
        yield tried
        return
    window = fraction_window(launch)
    if window is None or window.largest is None or window.shortage is None or crowded(launch):
        return
    yield _computed(launch, window, window.shortage)


def _computed(launch: Launch, window: Window, shortage: Shortage) -> Finding:
    largest = window.largest or Fraction(0)
    message = (
        f"{gib(shortage.tried)} were asked for with {gib(shortage.free or Fraction(0))} free (line "
        f"{shortage.line}) at mem_fraction_static {_plain(window.given)}: at least "
        f"{gib(shortage.missing or Fraction(0))} more must stay outside the pools, so the fraction can "
        f"be at most "
        f"{down(largest)}"
    )
    severity, fix = Severity.INFO, f"try --mem-fraction-static {down(largest, 2)} or less"
    if window.smallest is None:
        pass
    elif window.empty:
        severity, fix = Severity.WARNING, f"no --mem-fraction-static helps: {what_else(launch)}"
        message += f"; the weights need more than {round_up(window.smallest, 3)}: no value is between both"
    else:
        message += f"; the weights need more than {round_up(window.smallest, 3)}"
        if window.narrow:
            severity = Severity.WARNING
            width = gib((largest - window.smallest) * (window.total or Fraction(0)))
            message += f": only {width} lie between both"
            fix = f"rather make room than hit this window: {what_else(launch)}"
        elif window.one_request is not None and window.one_request > largest:
            message += (
                f", and one request of the whole context {round_up(window.one_request, 3)}, which is above it"
            )
    return Finding(
        severity,
        f"{message}.",
        launch.evidences(window.lines),
        fix=fix,
        ranks=rank_list([shortage.rank]),
    )


def _plain(value: Fraction | None) -> str:
    text = fixed(value or Fraction(0), 4).rstrip("0")
    return text + "0" if text.endswith(".") else text


def _tried(launch: Launch) -> Finding | None:
    """Return what this launch and earlier ones of the log tell together."""
    between = tries(launch)
    if between is None:
        return None
    low, high = between
    message = (
        f"Not enough memory for a KV cache with mem_fraction_static {_plain(low.fraction)} (line "
        f"{low.evidence.line}), and out of memory with {_plain(high.fraction)} (line {high.evidence.line})"
    )
    severity, fix = Severity.WARNING, f"no --mem-fraction-static helps: {what_else(launch)}"
    if high.fraction <= low.fraction:
        message += ": no value is between both"
    elif hopeless(between):
        message += ": hardly a value is between both"
        fix = f"rather make room than look for a value between both: {what_else(launch)}"
    else:
        severity = Severity.INFO
        fix = f"try --mem-fraction-static {fixed((low.fraction + high.fraction) / 2, 3)}"
    return Finding(
        severity,
        f"{message}.",
        tuple(sorted({low.evidence, high.evidence})),
        fix=fix,
        ranks=rank_list([low.rank, high.rank]),
    )
