"""Graph capture that failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sglogparse._cheap import lazy
from sglogparse._echoes import Role
from sglogparse._faults import Fault, faults
from sglogparse._launches import Launch
from sglogparse._ranks import on_ranks, rank_list
from sglogparse._report import Finding, Severity
from sglogparse.causes import decide
from sglogparse.causes._evidence import advice, clues_of
from sglogparse.ledger.window import lower_fraction, unknown_step

_CAPTURE = lazy(r"Capture (?:[A-Za-z-]+ )*(?:graph|extend) failed: ?(.*)")
_BESIDE = "the memory flags that the message advises will not help"


def graph_capture_failed(launch: Launch) -> Iterator[Finding]:
    """Report graph capture that failed, and on what.

    What it finds:
        The exception "Capture cuda graph failed: ..." (of any kind of graph), on any rank.

    Why it matters:
        The server ends. The message always advises to change memory flags, whatever the reason was: the
        exception inside it is what counts.

    Evidence:
        The exception of the first rank that failed; the message names the first exception of its chain.

    Does not match:
        "Disable cuda graph" notices, and capture that is still going on when the log ends.

    What to do:
        Out of memory: lower --mem-fraction-static or capture fewer graphs. Anything else: look at the inner
        exception; memory flags will not help.
    """
    found = [
        (fault, match)
        for fault in faults(launch)
        if fault.role is Role.ROOT
        and (match := next((hit for text in fault.exceptions if (hit := _CAPTURE.search(text))), None))
    ]
    if not found:
        return
    first, match = found[0]
    inner = next((text for text in first.exceptions if not _CAPTURE.search(text)), match[1].strip())
    reason = inner.partition("\n")[0] or "the reason is cut off"
    clues = clues_of(launch, first, phase="graph capture")
    decided = decide(replace(clues, exceptions=(*clues.exceptions, match[1])), ended=True)
    ranks = [fault.rank for fault, _ in found]
    yield Finding(
        Severity.ERROR,
        f"Graph capture failed{on_ranks(ranks)}: {reason}",
        launch.evidences([first.root_line]),
        cause=decided.cause,
        confidence=decided.confidence,
        runner_up=decided.runner_up,
        fix=(lower_fraction(launch) if decided.cause == "memory.graph_capture" else None)
        or _fix(launch, decided.cause, first),
        ranks=rank_list(ranks),
        root=launch.evidence(first.root_line),
        weight=2,
    )


def _fix(launch: Launch, cause: str, fault: Fault) -> str:
    """Return what to change; the message's own advice is on memory, whatever the reason was."""
    told = advice(launch, cause, fault)
    if told is None or cause == "code.assertion":  # what captures graphs is not where the bug is
        told = "look at the inner exception"
    if not cause.startswith("memory."):
        return f"{told}; {_BESIDE}"
    lacking = unknown_step(launch, fault.root_line) if cause == "memory.graph_capture" else None
    return f"{told}; {lacking}" if lacking else told
