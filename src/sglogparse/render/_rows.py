"""What the formats of CI systems show: the verdict, and each finding once, however many launches have it.

    Diagnosis --> Verdict (a level, a title, a text, a place)
              --> Row ... (equal findings of all launches together: how many, on which ranks)
              --> remarks (what was left out, and why)

Texts are `plain`: one line each, without control codes. What else a format may take for more than text is the
format's own business.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from sglogparse._cheap import dataclass
from sglogparse._fingerprint import finding_fingerprint
from sglogparse._ranks import rank_list, rank_spread
from sglogparse._report import Diagnosis, Evidence, Finding, LaunchReport, Outcome, Severity
from sglogparse._safe import plain

#: How much of a message from the log is shown in formats of one line a finding, characters.
MOST = 2000


@dataclass(frozen=True)
class Row:
    """A finding, with all findings of other launches that are the same."""

    finding: Finding
    #: the launch that it is told of: the one that speaks for the log, if that has it
    launch: LaunchReport
    fingerprint: str
    #: findings, and the launches that they are on
    count: int
    launches: int
    ranks: tuple[str, ...]

    @property
    def line(self) -> Evidence | None:
        """Return the line to point at: the fault, or the first that proves the finding."""
        return self.finding.root or next(iter(self.finding.evidence), None)

    @property
    def file(self) -> str:
        """Return the file to point at."""
        return self.line.file if self.line else self.launch.file

    @property
    def number(self) -> int:
        """Return the line to point at, 1-based; that of the launch where no line proves the finding."""
        return self.line.line if self.line else self.launch.first_line

    @property
    def spread(self) -> str:
        """Return where else it is, in words: how often, and on which ranks unless the message says so."""
        ranks = rank_spread(self.ranks)
        parts = [f"{self.count} times, in {self.launches} launches"] if self.launches > 1 else []
        parts += [f"{self.count} times"] if self.count > self.launches == 1 else []
        if ranks and not re.search(rf"(?<![A-Za-z0-9-]){re.escape(ranks)}(?![0-9-])", self.finding.message):
            parts.append(ranks)
        return "; ".join(parts)

    @property
    def message(self) -> str:
        """Return the message in one line, with its spread."""
        return cut(self.finding.message) + (f" [{self.spread}]" if self.spread else "")


@dataclass(frozen=True)
class Verdict:
    """What became of the server, as a message of a CI system."""

    severity: Severity
    title: str
    text: str
    line: Evidence | None
    file: str | None


def cut(text: str, most: int = MOST) -> str:
    """Return a text in one line, without control codes, and say how much of it is left out.

    >>> cut("a" * 50, 40)
    'aaaaaaaaaaaaaaaaaaaa... (+30 characters)'
    """
    text = text.strip()
    if len(text) <= most and len(whole := plain(text)) <= most:
        return whole
    return shortened(text, most, plain)


#: Room for "... (+N characters)", whatever N is.
_TAIL = 20


def shortened(text: str, most: int, escape: Callable[[str], str]) -> str:
    """Return as much of a text as fits when each character is escaped, and say how much is left out."""
    kept, room = [], most - _TAIL
    for char in text:
        escaped = escape(char)
        room -= len(escaped)
        if room < 0:
            break
        kept.append(escaped)
    return f"{''.join(kept)}... (+{len(text) - len(kept)} characters)"


def rows_of(diagnosis: Diagnosis) -> list[Row]:
    """Return the findings, equal ones together: the most severe first, of the launch that speaks first."""
    groups: dict[str, list[tuple[Finding, LaunchReport]]] = {}
    chief = diagnosis.chief
    speaks = [chief] if chief else []
    span = span_of(chief) if chief else None
    for launch in [*speaks, *(one for one in diagnosis.launches if span_of(one) != span)]:
        for finding in launch.findings:
            groups.setdefault(finding_fingerprint(finding, launch), []).append((finding, launch))
    rows = [
        Row(
            found[0][0],
            found[0][1],
            mark,
            len(found),
            len({span_of(launch) for _, launch in found}),
            tuple(rank_list(rank for finding, _ in found for rank in finding.ranks)),
        )
        for mark, found in groups.items()
    ]
    return sorted(
        rows, key=lambda row: row.finding.severity.rank
    )  # stable: the launch that speaks stays first


def fixes_once(diagnosis: Diagnosis, rows: Iterable[Row]) -> list[str | None]:
    """Return the fix of each row, None where the verdict or a row above has told the same."""
    # what is known of earlier launches can follow it
    said = diagnosis.chief.action if diagnosis.chief else ""
    told: set[str | None] = {diagnosis.fix} if diagnosis.fix and said.startswith(diagnosis.fix) else set()
    out = []
    for row in rows:
        fix = row.finding.fix
        out.append(None if fix in told else fix)
        told.add(fix)
    return out


def span_of(launch: LaunchReport) -> tuple[str, int, int]:
    """Return which launch it is: its file, first and last line."""
    return launch.file, launch.first_line, launch.last_line


def verdict_of(diagnosis: Diagnosis) -> Verdict:
    """Return the verdict: an error when the server failed, a warning when nothing shows how it fared."""
    chief = diagnosis.chief
    if diagnosis.healthy or diagnosis.verdict_known:
        severity = Severity.INFO
    elif diagnosis.outcome in (Outcome.CRASHED, Outcome.HUNG):
        severity = Severity.ERROR
    else:
        severity = Severity.WARNING
    known = " (known)" if diagnosis.verdict_known else ""
    file = chief.file if chief else diagnosis.files[0].path if diagnosis.files else None
    if chief is None:
        return Verdict(severity, cut(diagnosis.summary), "", None, file)
    title = cut(chief.headline, 300) + known
    return Verdict(severity, title, cut(chief.action), chief.root, chief.root.file if chief.root else file)


def remarks_of(diagnosis: Diagnosis) -> list[str]:
    """Return what a reader must know of the report beside its findings."""
    out = []
    if diagnosis.verdict_known or diagnosis.known:
        what = (["this verdict"] if diagnosis.verdict_known else []) + _counted(diagnosis.known)
        out.append(f"known, by the baseline: {', '.join(what)}")
    if diagnosis.ignored:
        out.append(f"not selected: {', '.join(_counted(diagnosis.ignored))}")
    return out


def _counted(findings: Iterable[Finding]) -> list[str]:
    counts: dict[str, int] = {}
    for finding in findings:
        counts[finding.code] = counts.get(finding.code, 0) + 1
    return [code if count == 1 else f"{code} ({count} times)" for code, count in sorted(counts.items())]
