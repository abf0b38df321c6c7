"""What a diagnosis says, as plain data: the one object that every renderer is fed.

Evidence (a line) --> Finding (a rule's statement) --> LaunchReport --> Diagnosis
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from enum import StrEnum
from typing import Any

from sglogparse._cheap import dataclass
from sglogparse._fingerprint import diagnosis_fingerprint, finding_fingerprint

SCHEMA = "sglogparse/diagnosis/1"


class Outcome(StrEnum):
    """What became of a server."""

    READY = "ready"
    STARTING = "starting"
    CRASHED = "crashed"
    HUNG = "hung"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """Return 0 for the most severe."""
        return list(Severity).index(self)


@dataclass(frozen=True)
class Confidence:
    """How sure a cause is, in a word (certain, likely, possible), and why."""

    word: str
    reason: str

    def as_dict(self) -> dict[str, str]:
        """Return the contract's form."""
        return {"word": self.word, "reason": self.reason}


@dataclasses.dataclass(frozen=True, order=True)
class Evidence:
    """A line that proves something."""

    file: str
    line: int
    rank: str | None = dataclasses.field(compare=False)
    text: str = dataclasses.field(compare=False)
    #: the text without its header
    message: str = dataclasses.field(compare=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {"file": self.file, "line": self.line, "rank": self.rank, "text": self.text}


@dataclass(frozen=True)
class Finding:
    """One statement of one rule about one launch. The registry of the rules adds the code and the name."""

    severity: Severity
    message: str
    evidence: tuple[Evidence, ...]
    #: id from the list of causes, when the finding decides one
    cause: str | None = None
    #: what to change, with its number
    fix: str | None = None
    ranks: tuple[str, ...] = ()
    #: the line that is the fault itself, when the finding is about a fault that ended the server
    root: Evidence | None = None
    #: whether that fault ends the server; else it goes on, and an error of it is one of its requests
    fatal: bool = True
    #: the phase in which the fault came, where the fault itself tells (its stack)
    phase: str | None = None
    #: how precisely it names the cause: of findings about one fault the highest speaks
    weight: int = 0
    #: how sure the cause is; None where its own line says it
    confidence: Confidence | None = None
    #: the cause that the evidence decides nearly as well
    runner_up: str | None = None
    code: str = ""
    name: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {
            "code": self.code,
            "name": self.name,
            "severity": self.severity.value,
            "cause": self.cause,
            "message": self.message,
            "ranks": list(self.ranks),
            "fix": self.fix,
            "evidence": [one.as_dict() for one in self.evidence],
        }


@dataclass(frozen=True)
class Detail:
    """What the log says of the first fault beyond its line."""

    #: the chain of exceptions as `type: message`, first cause first, each with all its lines
    exceptions: tuple[str, ...]
    #: the innermost frame of SGLang's code as `path:line function`; None when no stack has one
    frame: str | None
    #: the source text of that frame
    code: str | None
    #: the innermost frame of all, where it is another one
    innermost: str | None
    #: the values that the exceptions name, as `name=value`
    values: tuple[str, ...]
    #: the lines around the fault
    context: tuple[Evidence, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {
            "exceptions": list(self.exceptions),
            "frame": self.frame,
            "code": self.code,
            "innermost": self.innermost,
            "values": list(self.values),
            "context": [one.as_dict() for one in self.context],
        }


@dataclass(frozen=True)
class Step:
    """A line of a cascade: what followed from the first fault."""

    line: Evidence
    #: root candidate (the same fault on another rank, or another fault), echo, teardown, confirmation, advice
    role: str
    #: why it has that role
    why: str

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {"role": self.role, "why": self.why, **self.line.as_dict()}


@dataclass(frozen=True)
class LaunchReport:
    """One start of a server: where in the log, how far it came, how it ended."""

    file: str
    first_line: int
    last_line: int
    outcome: Outcome
    cause: str
    phases: tuple[str, ...]
    #: the phase in which it ended or stands, in words
    phase: str | None
    ranks: tuple[str, ...]
    #: first to last time stamp, s; null without time stamps
    duration: float | None
    version_window: str | None
    #: what happened, where, and why, in a few words
    headline: str
    #: what to change, or what is known; empty when there is nothing to do
    action: str
    fix: str | None
    root: Evidence | None
    #: the finding that decides the verdict
    chief: Finding | None
    #: the numbers that show how a server that serves is doing
    vitals: tuple[str, ...]
    findings: tuple[Finding, ...]
    #: the last stamp up to the first fault's line; None without stamps
    fault_time: dt.datetime | None = None
    #: how sure the cause is, and why; None without a cause
    confidence: Confidence | None = None
    #: the cause that the evidence decides nearly as well
    runner_up: str | None = None
    #: what is known of the first fault; None without one
    detail: Detail | None = None
    #: the line by which somebody asked the server to stop; None when nobody did
    stop: Evidence | None = None
    #: the line that shows that the process of a start is gone, and nothing says why; None without one
    gone: Evidence | None = None
    #: what followed from the first fault, in the order in which it came; empty without one
    cascade: tuple[Step, ...] = ()

    @property
    def summary(self) -> str:
        """Return one sentence that a person can act on."""
        return f"{self.headline.removesuffix('.')}; {self.action}" if self.action else self.headline

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {
            "file": self.file,
            "first_line": self.first_line,
            "last_line": self.last_line,
            "outcome": self.outcome.value,
            "cause": self.cause,
            "confidence": self.confidence.as_dict() if self.confidence else None,
            "runner_up": self.runner_up,
            "phases": list(self.phases),
            "ranks": list(self.ranks),
            "duration_s": self.duration,
            "version_window": self.version_window,
            "summary": self.summary,
            "fault": self.detail.as_dict() if self.detail else None,
            "stop": self.stop.as_dict() if self.stop else None,
            "gone": self.gone.as_dict() if self.gone else None,
            "cascade": [one.as_dict() for one in self.cascade],
            "vitals": list(self.vitals),
        }


@dataclass(frozen=True)
class FileReport:
    """What was read of one file."""

    path: str
    lines: int
    bytes: int
    unparsed: int
    replaced_bytes: int
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {
            "path": self.path,
            "lines": self.lines,
            "bytes": self.bytes,
            "unparsed": self.unparsed,
            "replaced_bytes": self.replaced_bytes,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class ClockOffset:
    """By how much the clock of a file is ahead of another file's, and why that is thought."""

    file: str
    reference: str
    #: s; None when nothing pins it
    seconds: float | None
    #: same clock, time zone, or clock (a wrong one); None when nothing pins it
    kind: str | None
    reason: str
    #: the lines that must be simultaneous, of the reference and of the file in turn
    evidence: tuple[Evidence, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {
            "file": self.file,
            "reference": self.reference,
            "seconds": self.seconds,
            "kind": self.kind,
            "reason": self.reason,
            "evidence": [one.as_dict() for one in self.evidence],
        }


@dataclass(frozen=True)
class Job:
    """One start of a server over all files that hold a part of it."""

    #: of each part its file, first and last line
    members: tuple[tuple[str, int, int], ...]
    #: server (one file), nodes, ranks, or router
    kind: str
    #: prefill, decode or router; None for a server that does all
    role: str | None
    #: why the parts are one job, or why a part stands alone
    reason: str
    outcome: Outcome
    offsets: tuple[ClockOffset, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {
            "members": [
                {"file": file, "first_line": first, "last_line": last} for file, first, last in self.members
            ],
            "kind": self.kind,
            "role": self.role,
            "reason": self.reason,
            "outcome": self.outcome.value,
            "offsets": [one.as_dict() for one in self.offsets],
        }


@dataclass(frozen=True)
class Diagnosis:
    """The verdict on a log, with all that supports it."""

    files: tuple[FileReport, ...]
    launches: tuple[LaunchReport, ...]
    #: the launch that speaks for the log; None when the log is empty
    chief: LaunchReport | None
    #: what the log cannot show, in words
    limits: tuple[str, ...]
    #: the launches grouped over files: nodes and ranks of one job together
    jobs: tuple[Job, ...] = ()
    #: findings that a baseline knows: they are not among those of the launches
    known: tuple[Finding, ...] = ()
    #: findings of rules that are not selected: nor are they
    ignored: tuple[Finding, ...] = ()
    #: whether the baseline knows the verdict itself, so that it is no news
    verdict_known: bool = False
    #: whether logs that belong to it could not be read, as its limits say: nothing good is certain then
    partly_read: bool = False

    @property
    def outcome(self) -> Outcome:
        """Return what became of the server."""
        return self.chief.outcome if self.chief else Outcome.UNKNOWN

    @property
    def cause(self) -> str:
        """Return the id of the first fault's cause; `none` without a fault."""
        return self.chief.cause if self.chief else "none"

    @property
    def confidence(self) -> Confidence | None:
        """Return how sure the cause is, and why; None without a cause."""
        return self.chief.confidence if self.chief else None

    @property
    def summary(self) -> str:
        """Return one sentence that a person can act on."""
        return self.chief.summary if self.chief else "undecided: the log is empty"

    @property
    def fix(self) -> str | None:
        """Return what to change, with its number."""
        return self.chief.fix if self.chief else None

    @property
    def root(self) -> Evidence | None:
        """Return the line of the first fault."""
        return self.chief.root if self.chief else None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the findings on all launches, the most severe of each first."""
        return tuple(finding for launch in self.launches for finding in launch.findings)

    @property
    def healthy(self) -> bool:
        """Tell whether the log shows a server that serves, or that was stopped in good order."""
        return self.outcome in (Outcome.READY, Outcome.STOPPED) and self.cause != "unknown"

    def exit_code(self, fail_on: Severity | None = Severity.ERROR) -> int:
        """Return 0 healthy or known, 1 findings at or above `fail_on` (None: never), 3 undecided.

        Known is a verdict that a baseline holds. A rule that is not selected has no say here, but what became
        of the server stays: a crash without findings that count is 3. So is what is good or known where a
        log could not be read.
        """
        if fail_on is not None and any(one.severity.rank <= fail_on.rank for one in self.findings):
            return 1
        return 0 if (self.healthy or self.verdict_known) and not self.partly_read else 3

    def as_dict(self) -> dict[str, Any]:
        """Return the object of `--output-format json` (schema sglogparse/diagnosis/1)."""
        return {
            "schema": SCHEMA,
            "files": [one.as_dict() for one in self.files],
            "outcome": self.outcome.value,
            "cause": self.cause,
            "confidence": self.confidence.as_dict() if self.confidence else None,
            "runner_up": self.chief.runner_up if self.chief else None,
            "summary": self.summary,
            "fingerprint": diagnosis_fingerprint(self),
            "fix": self.fix,
            "root": self.root.as_dict() if self.root else None,
            "fault": self.chief.detail.as_dict() if self.chief and self.chief.detail else None,
            "launches": [one.as_dict() for one in self.launches],
            "findings": [
                {**one.as_dict(), "fingerprint": finding_fingerprint(one, launch)}
                for launch in self.launches
                for one in launch.findings
            ],
            "known": {"verdict": self.verdict_known, "findings": _codes(self.known)},
            "ignored": _codes(self.ignored),
            "limits": list(self.limits),
            "jobs": [one.as_dict() for one in self.jobs],
        }


@dataclass(frozen=True)
class Incident:
    """The verdict on one log of many, or on the logs that hold parts of one launch or deployment."""

    diagnosis: Diagnosis
    #: the newest stamp, without a zone; None without stamps
    last: dt.datetime | None
    #: why several files are one incident; None of one file
    joined: str | None = None
    #: what it does in a deployment; empty of servers that do all
    roles: frozenset[str] = frozenset()
    #: whether more logs of it must be somewhere: of other nodes, of other servers of its deployment
    lacks: bool = False


def _codes(findings: tuple[Finding, ...]) -> dict[str, int]:
    """Return how many findings there are of each code."""
    return {
        code: sum(one.code == code for one in findings) for code in sorted({one.code for one in findings})
    }
