"""A start that the log does not show to the end."""

from __future__ import annotations

from collections.abc import Iterator

from sglogparse._faults import last_progress, stopped_at, trouble
from sglogparse._launches import STANDS, Launch
from sglogparse._report import Finding, Severity
from sglogparse.rules.negative_kv_budget import negative_kv_budget
from sglogparse.rules.not_enough_memory import not_enough_memory
from sglogparse.rules.process_died import process_died
from sglogparse.rules.watchdog_fired import watchdog_fired


def never_ready(launch: Launch) -> Iterator[Finding]:
    """Report a log that ends before the server was ready, without a fault.

    What it finds:
        A launch whose start-up lines are there, with no ready line, no served batch, no fault and no
        shutdown. Of a node with node_rank above 0, which never prints the ready line, the finding says that.

    Why it matters:
        Silence at the end is not a crash: the start may still go on, the log may be cut, or lines may have
        been filtered out. The verdict is `starting`, not `crashed`.

    Evidence:
        The last start-up line, and the phase it belongs to.

    Does not match:
        Launches that a fault, a watchdog or a shutdown ended, and logs with lines that mean the end of a
        process.

    What to do:
        Look at the log again later, or at the whole log.
    """
    if launch.serves is not None or not launch.reached or stopped_at(launch) is not None:
        return
    rules = (negative_kv_budget, not_enough_memory, process_died, watchdog_fired)
    faults = (one for rule in rules for one in rule(launch))
    if any(one.severity is Severity.ERROR for one in faults) or trouble(launch, grave=True):
        return
    phase = list(launch.reached)[-1]
    node = launch.argument("node_rank")
    message = f"The log ends {STANDS[phase]} and shows neither readiness nor a fault."
    if isinstance(node, int) and node > 0:
        message = f"The log ends {STANDS[phase]}; node {node} never prints the ready line, node 0 does."
    yield Finding(Severity.INFO, message, launch.evidences([last_progress(launch)]))
