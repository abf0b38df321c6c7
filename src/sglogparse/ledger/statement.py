"""What `sglogparse memory` says of each launch, as plain data: accounts, budgets, contradictions, what-if."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sglogparse._cheap import dataclass
from sglogparse._interval import Interval
from sglogparse._launches import Launch
from sglogparse._report import Evidence
from sglogparse._split import read_launches
from sglogparse.ledger.account import TERMS, Account, Amount, HostPool, read_accounts, read_host_pools
from sglogparse.ledger.ledger import implied_fraction, read_ledger
from sglogparse.ledger.solver import Conflict, Fact, Inferred
from sglogparse.ledger.whatif import Budget, Changes, Prediction, predict, read_budgets

if TYPE_CHECKING:
    from sglogparse._log import Log

SCHEMA = "sglogparse/memory/1"


@dataclass(frozen=True)
class Statement:
    """The memory of one launch."""

    file: str
    first_line: int
    last_line: int
    accounts: tuple[Account, ...]
    budgets: tuple[Budget, ...]
    #: mem_fraction_static as the pools imply it
    implied: Inferred | None
    #: why the pools need not be what the budget gives, by group
    without: dict[str, str]
    #: the numbers close only when free memory may drift between two lines
    drifts: bool
    #: lines of memory beyond those that a start can print
    left_out: int
    host: tuple[HostPool, ...]
    contradictions: tuple[tuple[Conflict, tuple[Evidence, ...]], ...]
    changes: Changes | None
    predictions: tuple[Prediction, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the object of `--output-format json`: numbers as [low, high], GiB, bytes or tokens."""
        return {
            "file": self.file,
            "first_line": self.first_line,
            "last_line": self.last_line,
            "ranks": [_account(one) for one in self.accounts],
            "budgets": [_budget(one) for one in self.budgets],
            "implied_mem_fraction_static": self.implied
            and {"value": ends(self.implied.interval), "lines": _lines(self.implied.facts)},
            "not_tied": self.without,
            "drifts": self.drifts,
            "left_out_lines": self.left_out,
            "host_pools": [
                {"what": one.what, "rank": one.rank, "line": one.line, "bytes": ends(one.size)}
                for one in self.host
            ],
            "contradictions": [
                {
                    "facts": [{"line": fact.line, "text": fact.text} for fact in conflict.facts],
                    "equations": [{"text": one.name, "source": one.source} for one in conflict.equations],
                    "evidence": [one.as_dict() for one in evidence],
                }
                for conflict, evidence in self.contradictions
            ],
            "what_if": self.changes
            and {
                "arguments": self.changes.given(),
                "predictions": [
                    {
                        "group": one.after.group,
                        **_budget(one.after),
                        "assumptions": list(one.assumptions),
                        "missing": list(one.missing),
                    }
                    for one in self.predictions
                ],
            },
        }


def statements(log: Log, changes: Changes | None = None) -> tuple[Statement, ...]:
    """Return the memory of each launch that prints any, in the order of the log."""
    found = (_statement(launch, changes) for launch in read_launches(log))
    return tuple(
        one
        for one in found
        if one.accounts or one.host or any(b.total or b.kv or b.tokens for b in one.budgets)
    )


def _statement(launch: Launch, changes: Changes | None) -> Statement:
    ledger = read_ledger(launch)
    budgets = read_budgets(launch)
    predictions = tuple(predict(launch, one, changes) for one in budgets) if changes else ()
    conflicts = tuple((one, launch.evidences(_lines(one.facts))) for one in ledger.conflicts)
    return Statement(
        launch.path,
        launch.first_line,
        launch.last_line,
        read_accounts(launch),
        budgets,
        implied_fraction(launch),
        dict(ledger.model.without),
        ledger.drifts,
        sum(rank.left_out for rank in ledger.ranks),
        read_host_pools(launch),
        conflicts,
        changes,
        predictions,
    )


def _lines(facts: Iterable[Fact]) -> list[int]:
    return sorted({fact.line for fact in facts if fact.line is not None})


def ends(interval: Interval | None) -> list[float] | None:
    """Return an interval as two numbers; None stays None."""
    return None if interval is None else [float(interval.low), float(interval.high)]


def _amount(one: Amount) -> dict[str, Any]:
    return {"gib": ends(one.interval), "printed": one.printed, "lines": list(one.lines), "note": one.note}


def _account(one: Account) -> dict[str, Any]:
    return {
        "rank": one.rank,
        "total": _amount(one.total),
        "terms": {term: _amount(one.parts[term]) if term in one.parts else None for term in TERMS},
        "absent": one.absent,
        "closes": one.closes,
    }


def _budget(one: Budget) -> dict[str, Any]:
    return {
        "group": one.group,
        "total_gib": ends(one.total),
        "avail_gib": ends(one.avail),
        "mem_fraction_static": ends(one.fraction),
        "mem_fraction_static_from": one.fraction_from,
        "smallest_mem_fraction_static": ends(one.smallest),
        "rest_gib": ends(one.rest),
        "state_pools_gib": ends(one.taken),
        "kv_gib": ends(one.kv),
        "cell_size_bytes": ends(one.cell_size),
        "tokens": ends(one.tokens),
        "allocated": one.allocated,
        "context_len": one.context,
        "requests_of_full_context": ends(one.requests),
        "free_gib": ends(one.free),
    }
