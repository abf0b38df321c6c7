"""Printed numbers that do not add up."""

from __future__ import annotations

from collections.abc import Iterator

from sglogparse._budget import wrong_budgets
from sglogparse._launches import Launch
from sglogparse._ranks import rank_list
from sglogparse._report import Finding, Severity


def printed_arithmetic(launch: Launch) -> Iterator[Finding]:
    """Report a budget line whose numbers do not follow from each other.

    What it finds:
        An instrumentation line of profile_max_num_token in which reserved, rest or max_tokens is not what the
        stock formula gives for the other numbers of that line.

    Why it matters:
        The line was printed by patched source. If its sums do not close, the patch changed the computation,
        or prints other values than it computes with; no conclusion should rest on it.

    Evidence:
        The line, with each sum written out. Every printed decimal counts as the whole interval that rounds to
        it, so rounding alone never raises this.

    Does not match:
        Differences within the printed digits, or within the rounding of the fraction itself. A rest that is
        smaller than avail - reserved in a hybrid model, whose state pools come off it. Lines with nan or inf.

    What to do:
        Print avail, total and fraction as the stock code has them, and compare again.
    """
    wrong = wrong_budgets(launch)
    if not wrong:
        return
    _, problems = wrong[0]
    more = len(wrong) - 1
    yield Finding(
        Severity.WARNING,
        f"The printed budget does not add up beyond rounding: {'; '.join(problems)}"
        + (f" (and {more} more line{'s' if more > 1 else ''})" if more else "")
        + ".",
        launch.evidences(one.line for one, _ in wrong),
        fix="do not conclude from this line; print the values that the stock formula uses",
        ranks=rank_list(one.rank for one, _ in wrong),
    )
