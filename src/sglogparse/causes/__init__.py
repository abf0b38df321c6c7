"""The knowledge base of causes: one file a family, one entry a cause.

    Clues --decide--> cause, confidence, runner-up          what is known of a fault, and what that decides
    cause, launch --advice--> what to change                with the values in force

The ids are those of the list of causes. What no sign shows is `unknown`: a guess is worse than no answer.
"""

from __future__ import annotations

from functools import cache

from sglogparse._report import Confidence
from sglogparse.causes import (
    code,
    config,
    dist,
    env,
    gpu,
    hang,
    kernel,
    kv,
    memory,
    model,
    pd,
    perf,
    process,
    request,
)
from sglogparse.causes._base import (
    UNDECIDED,
    Cause,
    Clues,
    Decision,
    Fact,
    Remedy,
    Sign,
    change_of,
    decide_among,
    facts_of,
    remedy_of,
    with_values,
)

__all__ = [
    "CAUSES",
    "CAUSE_FIXES",
    "CAUSE_TITLES",
    "UNDECIDED",
    "Cause",
    "Clues",
    "Confidence",
    "Decision",
    "Fact",
    "Remedy",
    "Sign",
    "cause_by_id",
    "cause_of",
    "change_of",
    "decide",
    "facts_of",
    "remedy_of",
    "with_values",
]

_FAMILIES = (memory, kv, dist, hang, gpu, kernel, env, model, config, pd, process, code, request, perf)

#: All causes, in the order of their list.
CAUSES: tuple[Cause, ...] = (
    Cause(
        "none",
        "no fault",
        means="The log shows a server that came up, or is coming up, and nothing that went wrong with it; "
        "or only "
        "noise.",
        differs="Silence is not health: a log that ends before the server was ready is `starting`.",
    ),
    *(cause for family in _FAMILIES for cause in family.CAUSES),
    Cause(
        "unknown",
        "undecided",
        means="A fault is evident, and the lines do not decide its class: the exception is cut off, or no "
        "sign of "
        "any cause is in it.",
        differs="With only echoes of a fault in the log it is process.killed or dist.peer_lost.",
    ),
)

#: What the causes are called in a report.
CAUSE_TITLES = {cause.id: cause.title for cause in CAUSES}
#: What to change, by cause, where no rule has computed anything better.
CAUSE_FIXES = {cause.id: cause.change for cause in CAUSES if cause.change}


@cache
def cause_by_id(name: str) -> Cause:
    """Return the entry of a cause; KeyError for an id that is none."""
    return {cause.id: cause for cause in CAUSES}[name]


#: What ends no process.
_HARMLESS = ("request.invalid", "perf.degraded")


def decide(clues: Clues, *, ended: bool = False) -> Decision:
    """Return what the clues decide: the cause with the strongest sign, or `unknown`.

    With `ended` a process ended over it, which rules out what ends none.
    """
    return decide_among((one for one in CAUSES if not (ended and one.id in _HARMLESS)), clues)


def cause_of(exceptions: list[str], phase: str | None) -> str:
    """Return the cause that a chain of exceptions (first cause first) decides, else `unknown`."""
    return decide(Clues(tuple(exceptions), phase)).cause
