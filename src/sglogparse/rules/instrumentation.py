"""Lines that patched source printed."""

from __future__ import annotations

from collections.abc import Iterator

from sglogparse._budget import printed_budgets, wrong_budgets
from sglogparse._launches import Launch
from sglogparse._ranks import on_ranks, rank_list
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
    many = frame.height > 1
    what = f"{frame.height} lines that no release prints" if many else "A line that no release prints"
    odd = frame.height - len(printed_budgets(launch)) + len(wrong_budgets(launch))
    if odd:
        which = f"{odd} of them {'do' if odd > 1 else 'does'}" if many else "It does"
        verdict = f"{which} not agree with the stock formula."
    else:
        verdict = (
            "The printed numbers agree with the stock formula within rounding: the print did not change the "
        )
        verdict += "outcome."
    yield Finding(
        Severity.INFO,
        f"{what}{on_ranks(frame['rank'])}: patched source. {verdict}",
        launch.evidences(frame["line"].to_list()[:4]),
        ranks=rank_list(frame["rank"]),
    )
