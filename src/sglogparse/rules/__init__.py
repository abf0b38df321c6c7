"""The rules: one file, one pure function, one code.

    a rule: Launch -> findings        no I/O, no clock, no globals; same frames in, same findings out

A code is never used for another rule. To add a rule: its file here, one line in RULES, a bad and a good
fixture.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator

from sglogparse._cheap import dataclass
from sglogparse._launches import Launch
from sglogparse._report import Finding
from sglogparse.rules.collective_timed_out import collective_timed_out
from sglogparse.rules.contradictory_numbers import contradictory_numbers
from sglogparse.rules.drafts_refused import drafts_refused
from sglogparse.rules.failure_reported import failure_reported
from sglogparse.rules.foreign_process import foreign_process
from sglogparse.rules.graph_capture_failed import graph_capture_failed
from sglogparse.rules.graphs_unused import graphs_unused
from sglogparse.rules.health_check_failed import health_check_failed
from sglogparse.rules.instrumentation import instrumentation
from sglogparse.rules.killed_from_outside import killed_from_outside
from sglogparse.rules.kv_pool_full import kv_pool_full
from sglogparse.rules.kv_pool_pinned import kv_pool_pinned
from sglogparse.rules.kv_transfer_failed import kv_transfer_failed
from sglogparse.rules.memory_came_back import memory_came_back
from sglogparse.rules.memory_left_unused import memory_left_unused
from sglogparse.rules.model_not_imported import model_not_imported
from sglogparse.rules.narrow_fraction_window import narrow_fraction_window
from sglogparse.rules.negative_budget_yet_allocated import negative_budget_yet_allocated
from sglogparse.rules.negative_kv_budget import negative_kv_budget
from sglogparse.rules.never_ready import never_ready
from sglogparse.rules.not_enough_memory import not_enough_memory
from sglogparse.rules.pool_below_one_request import pool_below_one_request
from sglogparse.rules.printed_arithmetic import printed_arithmetic
from sglogparse.rules.process_died import process_died
from sglogparse.rules.queue_waits import queue_waits
from sglogparse.rules.rank_budget_differs import rank_budget_differs
from sglogparse.rules.rank_slower import rank_slower
from sglogparse.rules.requests_failed import requests_failed
from sglogparse.rules.router_without_workers import router_without_workers
from sglogparse.rules.silent_ranks import silent_ranks
from sglogparse.rules.throughput_dropped import throughput_dropped
from sglogparse.rules.transfer_devices_failed import transfer_devices_failed
from sglogparse.rules.transfers_pile_up import transfers_pile_up
from sglogparse.rules.unbalanced_ranks import unbalanced_ranks
from sglogparse.rules.unexplained_failures import unexplained_failures
from sglogparse.rules.warmup_proxied import warmup_proxied
from sglogparse.rules.watchdog_fired import watchdog_fired


@dataclass(frozen=True)
class Rule:
    """A rule's entry: its code, its function, and the release that has it since."""

    code: str
    check: Callable[[Launch], Iterator[Finding]]
    since: str

    @property
    def name(self) -> str:
        """Return the name as it is printed, from the name of the function."""
        return self.check.__name__.replace("_", "-")

    @property
    def doc(self) -> str:
        """Return the documentation: the function's docstring."""
        return inspect.cleandoc(self.check.__doc__ or "")

    def __call__(self, launch: Launch) -> Iterator[Finding]:
        """Yield the findings on a launch, with code and name."""
        for finding in self.check(launch):
            yield dataclasses.replace(finding, code=self.code, name=self.name)


RULES: tuple[Rule, ...] = (
    Rule("M001", negative_kv_budget, "0.1.0"),
    Rule("M002", negative_budget_yet_allocated, "0.1.0"),
    Rule("M003", rank_budget_differs, "0.1.0"),
    Rule("M004", not_enough_memory, "0.1.0"),
    Rule("M005", printed_arithmetic, "0.1.0"),
    Rule("M006", contradictory_numbers, "0.3.0"),
    Rule("M007", memory_came_back, "0.3.0"),
    Rule("M008", foreign_process, "0.3.0"),
    Rule("M009", unbalanced_ranks, "0.3.0"),
    Rule("M010", narrow_fraction_window, "0.3.0"),
    Rule("M011", memory_left_unused, "0.3.0"),
    Rule("M012", pool_below_one_request, "0.3.0"),
    Rule("K001", kv_pool_full, "0.1.0"),
    Rule("K002", kv_pool_pinned, "0.3.0"),
    Rule("G001", graph_capture_failed, "0.1.0"),
    Rule("P001", process_died, "0.1.0"),
    Rule("P003", model_not_imported, "0.3.0"),
    Rule("P004", failure_reported, "0.3.0"),
    Rule("P006", killed_from_outside, "0.4.0"),
    Rule("P002", never_ready, "0.1.0"),
    Rule("H001", watchdog_fired, "0.1.0"),
    Rule("H002", health_check_failed, "0.2.0"),
    Rule("H003", collective_timed_out, "0.3.0"),
    Rule("T001", kv_transfer_failed, "0.2.0"),
    Rule("T002", transfer_devices_failed, "0.3.0"),
    Rule("T003", router_without_workers, "0.3.0"),
    Rule("R001", requests_failed, "0.3.0"),
    Rule("S001", queue_waits, "0.3.0"),
    Rule("S002", rank_slower, "0.3.0"),
    Rule("S003", graphs_unused, "0.3.0"),
    Rule("S004", drafts_refused, "0.3.0"),
    Rule("S005", throughput_dropped, "0.3.0"),
    Rule("T004", transfers_pile_up, "0.3.0"),
    Rule("P005", warmup_proxied, "0.3.0"),
    Rule("E001", silent_ranks, "0.1.0"),
    Rule("E002", instrumentation, "0.1.0"),
    Rule("E003", unexplained_failures, "0.1.0"),
)

#: Codes of rules that are gone.
RETIRED: tuple[str, ...] = ()
