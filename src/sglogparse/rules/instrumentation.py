"""Lines that patched source printed."""

from __future__ import annotations

from collections.abc import Iterator

from sglogparse._budget import printed_budgets
from sglogparse._launches import Launch, rank_spread
from sglogparse._report import Finding, Severity


def instrumentation(launch: Launch) -> Iterator[Finding]:
    """Report lines that no release of SGLang prints.

    What it finds:
        The print that somebody patched into profile_max_num_token.

    Why it matters:
        The server runs changed source. People have blamed the print itself for a crash, and taken it out for
        nothing; the arithmetic tells whether it could have changed the outcome.

    Evidence:
        The lines; the sums of each, recomputed with the stock formula on the printed digits.

    Does not match:
        Messages of any release, and other programs' lines.

    What to do:
        Nothing, when the numbers agree with the stock formula. Else see M005.
    """
    frame = launch.frames["profile_max_num_token"]
    if frame.is_empty():
        return
    budgets = printed_budgets(launch)
    wrong = sum(1 for one in budgets if one.disagreements())
    ranks = rank_spread(frame["rank"])
    plural = frame.height > 1
    message = f"{frame.height} line{'s' if plural else ''} that no release prints{' on ' + ranks if ranks else ''}: patched source. "
    if budgets and not wrong and len(budgets) == frame.height:
        message += "The printed numbers agree with the stock formula within rounding: the print did not change the outcome."
    else:
        message += f"{wrong or frame.height - len(budgets)} of them do not agree with the stock formula."
    yield Finding(
        Severity.INFO,
        message,
        launch.evidences(frame["line"].to_list()[:4]),
        ranks=tuple(one for one in ranks.split(", ") if one),
    )
