"""A start that the log does not show to the end."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sglogparse._budget import negative_budgets
from sglogparse._faults import faults, stopped_at
from sglogparse._launches import STANDS, Launch
from sglogparse._report import Finding, Severity


def never_ready(launch: Launch) -> Iterator[Finding]:
    """Report a log that ends before the server was ready, without a fault.

    What it finds:
        A launch whose start-up lines are there, with no ready line, no served batch, no fault and no shutdown.

    Why it matters:
        Silence at the end is not a crash: the start may still go on, the log may be cut, or lines may have been
        filtered out. The verdict is `starting`, not `crashed`.

    Evidence:
        The last start-up line, and the phase it belongs to.

    Does not match:
        Nodes with node_rank > 0, which never print the ready line: for them the finding says so.

    What to do:
        Look at the log again later, or at the whole log.
    """
    if launch.serves is not None or not launch.reached or faults(launch) or stopped_at(launch) is not None:
        return
    if any(not one.draft for one in negative_budgets(launch)) or not launch.frames["watchdog_timeout"].is_empty():
        return
    if not launch.frames["sigquit"].is_empty() or not launch.frames["process_exit"].is_empty():
        return
    phase = list(launch.reached)[-1]
    kinds = launch.lines.filter(pl.col("kind").is_not_null())
    last = int(kinds["line"][-1])
    node = launch.argument("node_rank")
    message = f"The log ends {STANDS[phase]} and shows neither readiness nor a fault."
    if isinstance(node, int) and node > 0:
        message = f"The log ends {STANDS[phase]}; node {node} never prints the ready line, node 0 does."
    yield Finding(Severity.INFO, message, launch.evidences([last]))
