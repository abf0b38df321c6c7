"""What a comparison says, as plain data: the one object that both renderers are fed.

Fact (a number of one launch) --> rows over all runs, and a Pair (verdict, divergence, ...) for each run
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import PurePath
from typing import Any, NamedTuple

from sglogparse._cheap import dataclass
from sglogparse._interval import Interval
from sglogparse._launches import Launch
from sglogparse._report import Evidence, Outcome
from sglogparse._safe import mask_secrets
from sglogparse._steps import JITTER, JITTER_GIB, Divergence

SCHEMA = "sglogparse/comparison/1"
#: The names of the runs, in the order of the files. More columns do not fit a terminal.
LETTERS = "ABCDEF"


# ------------------------------------------------------------------ memory facts


@dataclass(frozen=True)
class Fact:
    """One number about the memory of a launch, with every value that it can stand for."""

    quantity: str
    #: GiB, tokens, requests, or a share (no unit)
    unit: str
    rank: str | None
    #: as printed, or the middle of what was inferred
    text: str
    low: Fraction
    high: Fraction
    #: the lines that it rests on
    lines: tuple[int, ...]
    #: computed from other numbers, and not printed
    inferred: bool = False

    @property
    def interval(self) -> Interval:
        """Return the values that it can stand for."""
        return Interval(self.low, self.high)

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {
            "quantity": self.quantity,
            "unit": self.unit,
            "rank": self.rank,
            "text": self.text,
            "low": float(self.low),
            "high": float(self.high),
            "lines": list(self.lines),
            "inferred": self.inferred,
        }


#: Facts about a launch as a whole: what enters the formula of the token budget (minima over the ranks).
FRACTION = "mem_fraction_static"
FORMULA_TOTAL = "total in the formula"
FORMULA_AVAIL = "avail in the formula"
BUDGET = "token budget"
SMALLEST = "smallest mem_fraction_static that fits"
#: Facts about one rank, in the order of a start.
SET_UP = "distributed set-up"
START = "free at the start"
WEIGHTS = "weights"
AFTER_WEIGHTS = "free after weights"
STATE = "state pool"
KV = "KV cache"
KV_TOKENS = "KV tokens"
AFTER_POOLS = "free after pools"
GRAPHS = "graphs"
AFTER_CAPTURE = "free after capture"
CAPACITY = "capacity"
REQUESTS = "max running requests"
CONTEXT = "context"


def fact_of(facts: Iterable[Fact], quantity: str, *, inferred: bool = False) -> Fact | None:
    """Return the first fact of a quantity, printed or inferred; None when there is none."""
    return next((one for one in facts if one.quantity == quantity and one.inferred is inferred), None)


def alike(one: Fact, two: Fact) -> bool:
    """Tell whether two facts can be the same number, or differ no more than free memory does by itself."""
    return near((one.low, one.high), (two.low, two.high), one.unit)


def near(one: tuple[Fraction, Fraction], two: tuple[Fraction, Fraction], unit: str) -> bool:
    """Tell whether two spans of values meet, or nearly so where the values jitter from start to start."""
    gap = max(one[0] - two[1], two[0] - one[1])
    largest = max(abs(one[1]), abs(two[1]))
    slack = {
        "GiB": max(Fraction(JITTER_GIB), Fraction(JITTER) * largest),
        "tokens": Fraction(JITTER) * largest,
        "": Fraction(1, 200),
    }.get(unit, Fraction(0))
    return gap <= slack


# ------------------------------------------------------------------ what a comparison says


@dataclass(frozen=True)
class Run:
    """One log, by the launch that speaks for it."""

    letter: str
    file: str
    #: which launch it is, from 1, and how many the log has
    launch: int
    launches: int
    first_line: int
    last_line: int
    outcome: Outcome
    cause: str
    headline: str
    action: str
    root: Evidence | None
    ranks: tuple[str, ...]
    version_window: str | None
    #: server_args is in the log, and whether it was cut; None: it is not
    arguments_cut: bool | None
    #: what the log cannot show
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {
            "letter": self.letter,
            "file": self.file,
            "launch": self.launch,
            "launches": self.launches,
            "first_line": self.first_line,
            "last_line": self.last_line,
            "outcome": self.outcome.value,
            "cause": self.cause,
            "summary": f"{self.headline}; {self.action}" if self.action else self.headline,
            "root": self.root.as_dict() if self.root else None,
            "ranks": list(self.ranks),
            "version_window": self.version_window,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Given:
    """An argument as one run has it: given, absent (its list has no such name), cut, or not in the log."""

    state: str
    #: the value as JSON, when it is given
    text: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {"state": self.state, "value": self.text}


@dataclass(frozen=True)
class ArgumentRow:
    """An argument that differs between runs."""

    name: str
    #: memory, parallelism, kernels, model, other
    matters_for: str
    values: tuple[Given, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        values = [one.as_dict() for one in self.values]
        return {"name": self.name, "matters_for": self.matters_for, "values": values}


@dataclass(frozen=True)
class Cell:
    """A quantity of some ranks of one run: as printed, the least and the largest."""

    text: str
    low: Fraction
    high: Fraction
    #: the line of the first of the ranks
    line: int

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {"text": self.text, "low": float(self.low), "high": float(self.high), "line": self.line}


@dataclass(frozen=True)
class MemoryRow:
    """A quantity on the ranks that have it alike, run by run."""

    quantity: str
    unit: str
    ranks: tuple[str, ...]
    cells: tuple[Cell | None, ...]
    differs: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {
            "quantity": self.quantity,
            "unit": self.unit,
            "ranks": list(self.ranks),
            "values": [one.as_dict() if one else None for one in self.cells],
            "differs": self.differs,
        }


@dataclass(frozen=True)
class PhaseCell:
    """How long the slowest rank of a run was in a phase, s."""

    seconds: float
    rank: str | None
    #: the line that ends it is there
    complete: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {"seconds": self.seconds, "rank": self.rank, "complete": self.complete}


@dataclass(frozen=True)
class PhaseRow:
    """A phase of the start, run by run."""

    phase: str
    cells: tuple[PhaseCell | None, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {"phase": self.phase, "values": [one.as_dict() if one else None for one in self.cells]}


@dataclass(frozen=True)
class EnvironmentRow:
    """What a run and the reference say differently of one matter; empty where a log says nothing of it."""

    matter: str
    reference: tuple[str, ...]
    reference_lines: tuple[int, ...]
    other: tuple[str, ...]
    other_lines: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {
            "matter": self.matter,
            "reference": [
                {"line": line, "text": text}
                for line, text in zip(self.reference_lines, self.reference, strict=True)
            ],
            "other": [
                {"line": line, "text": text} for line, text in zip(self.other_lines, self.other, strict=True)
            ],
        }


@dataclass(frozen=True)
class Band:
    """Decode throughput of two runs at a like number of running requests: median a line, tokens/s."""

    least: int
    most: int
    reference: float
    reference_lines: int
    other: float
    other_lines: int

    @property
    def ratio(self) -> float:
        """Return the other run's median as a share of the reference's."""
        return self.other / self.reference

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {
            "running_least": self.least,
            "running_most": self.most,
            "reference": {"median": self.reference, "batches": self.reference_lines},
            "other": {"median": self.other, "batches": self.other_lines},
        }


@dataclass(frozen=True)
class Throughput:
    """Steady-state decode throughput of two runs at like loads; else why it is not compared."""

    bands: tuple[Band, ...]
    reason: str | None

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {"bands": [one.as_dict() for one in self.bands], "not_comparable": self.reason}


@dataclass(frozen=True)
class Verdict:
    """What the comparison of a run with the reference comes to.

    kind: equal (nothing that is compared differs), alike (differences, but none in what became of the runs),
    explained, possible, undecided (why the runs fared differently), contradiction (started otherwise than
    believed), unknown (a log does not show how its server fared), incomparable.
    """

    kind: str
    text: str
    #: the arithmetic and the proofs
    because: tuple[str, ...] = ()
    #: what differs, and cannot be the reason
    excluded: tuple[str, ...] = ()
    #: what cannot be true of both runs, or of one
    contradictions: tuple[str, ...] = ()
    advice: str | None = None

    @property
    def exit_code(self) -> int:
        """Return 0 no difference that matters, 1 the runs differ in outcome or contradict, 3 not compared."""
        if self.contradictions or self.kind in ("explained", "possible", "undecided", "contradiction"):
            return 1
        return 0 if self.kind in ("equal", "alike") else 3

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {
            "kind": self.kind,
            "text": self.text,
            "because": list(self.because),
            "excluded": list(self.excluded),
            "contradictions": list(self.contradictions),
            "advice": self.advice,
        }


@dataclass(frozen=True)
class Pair:
    """A run against the reference."""

    letter: str
    verdict: Verdict
    divergence: Divergence | None
    environment: tuple[EnvironmentRow, ...]
    throughput: Throughput

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        parted = self.divergence
        return {
            "run": self.letter,
            "reference": LETTERS[0],
            "verdict": self.verdict.as_dict(),
            "divergence": None
            if parted is None
            else {
                "after": parted.after,
                "why": parted.why,
                "reference": _part(parted.line, parted.ranks, parted.text),
                "other": _part(parted.other_line, parted.other_ranks, parted.other_text),
            },
            "environment": [one.as_dict() for one in self.environment],
            "throughput": self.throughput.as_dict(),
        }


def _part(line: int | None, ranks: tuple[str, ...], text: str | None) -> dict[str, Any] | None:
    return None if line is None else {"line": line, "ranks": list(ranks), "text": text}


@dataclass(frozen=True)
class Comparison:
    """Runs side by side; the first one is the reference of the others."""

    runs: tuple[Run, ...]
    pairs: tuple[Pair, ...]
    #: the arguments that differ, those that matter most first
    arguments: tuple[ArgumentRow, ...]
    #: names that differ with every start or node, and so say nothing
    passing: tuple[str, ...]
    #: names that only some of the lists have, with a value that is none
    one_sided: tuple[str, ...]
    #: how many arguments are equal in all runs
    equal_arguments: int
    #: the fraction that the arguments of each run name
    declared: tuple[Given, ...]
    #: the fraction in force of each run, where its memory tells: printed or implied
    inferred: tuple[tuple[Fact, ...], ...]
    memory: tuple[MemoryRow, ...]
    phases: tuple[PhaseRow, ...]

    @property
    def exit_code(self) -> int:
        """Return the exit code of the command: of several pairs the one that says most."""
        codes = {one.verdict.exit_code for one in self.pairs}
        return 1 if 1 in codes else 3 if 3 in codes else 0

    def as_dict(self) -> dict[str, Any]:
        """Return the object of `--output-format json` (schema sglogparse/comparison/1)."""
        return {
            "schema": SCHEMA,
            "runs": [one.as_dict() for one in self.runs],
            "pairs": [one.as_dict() for one in self.pairs],
            "arguments": {
                "differ": [one.as_dict() for one in self.arguments],
                "passing": list(self.passing),
                "one_sided": list(self.one_sided),
                "equal": self.equal_arguments,
            },
            "declared": [one.as_dict() for one in self.declared],
            "inferred": [[fact.as_dict() for fact in facts] for facts in self.inferred],
            "memory": [one.as_dict() for one in self.memory],
            "phases": [one.as_dict() for one in self.phases],
        }


class Side(NamedTuple):
    """A run with what it was read from."""

    run: Run
    launch: Launch | None
    facts: list[Fact]


def span_of(fact: Fact) -> str:
    """Return the values that a share can have, rounded outwards.

    >>> span_of(Fact("f", "", None, "0.880", Fraction("0.87985"), Fraction("0.88006"), ()))
    '[0.8798, 0.8801]'
    """
    low, high = math.floor(fact.low * 10_000), math.ceil(fact.high * 10_000)
    return f"[{low / 10_000:.4f}, {high / 10_000:.4f}]"


#: Characters of a value in a sentence.
_MOST_QUOTED = 60


def quoted(name: str, given: Given) -> str:
    """Return an argument's value for a sentence; a secret is never quoted."""
    if given.text is None:
        return {"absent": "no such argument", "cut": "cut off"}.get(given.state, given.state)
    secret = mask_secrets(f"{name}={given.text}") != f"{name}={given.text}"
    text = given.text if len(given.text) <= _MOST_QUOTED else f"{given.text[: _MOST_QUOTED - 3]}..."
    return "***" if secret else text


def names_of(runs: Sequence[Run]) -> list[str]:
    """Return how a report names the file of each run: without its folders where that tells them apart."""
    bases = [PurePath(run.file).name or run.file for run in runs]
    return [base if bases.count(base) == 1 else run.file for base, run in zip(bases, runs, strict=True)]
