"""Graph capture that failed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sglogparse._causes import cause_of
from sglogparse._echoes import Role
from sglogparse._faults import faults
from sglogparse._launches import Launch, on_ranks, rank_list
from sglogparse._report import Finding, Severity
from sglogparse.ledger.window import lower_fraction

_CAPTURE = re.compile(r"Capture (?:[A-Za-z-]+ )*(?:graph|extend) failed: ?(.*)")
_FIXES = {
    "memory.graph_capture": "lower --mem-fraction-static, or capture fewer graphs (--cuda-graph-max-bs)",
    "kernel.jit_compile": (
        "find out why the kernel did not compile (compiler, CUDA toolkit); "
        "the memory flags that the message advises will not help"
    ),
}


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
    cause = cause_of([*first.exceptions, match[1]], "graph capture")
    ranks = [fault.rank for fault, _ in found]
    yield Finding(
        Severity.ERROR,
        f"Graph capture failed{on_ranks(ranks)}: {reason}",
        launch.evidences([first.root_line]),
        cause=cause,
        fix=(lower_fraction(launch) if cause == "memory.graph_capture" else None)
        or _FIXES.get(
            cause, "look at the inner exception; the memory flags that the message advises will not help"
        ),
        ranks=rank_list(ranks),
        root=launch.evidence(first.root_line),
        weight=2,
    )
