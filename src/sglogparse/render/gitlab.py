"""GitLab's code quality report: a JSON list, one object a finding.

description, check_name, fingerprint, severity (info, minor, major, critical, blocker), location {path, lines}

A verdict that no finding stands for (a log that ends too early, a crash whose rule is not selected) is an
object of its own, with the check name `verdict`; a server that is well, or a known verdict, has none.
"""

from __future__ import annotations

from typing import Any

from sglogparse._fingerprint import diagnosis_fingerprint
from sglogparse._report import Diagnosis, Severity
from sglogparse._safe import plain
from sglogparse.render._json import dumps
from sglogparse.render._rows import cut, rows_of, verdict_of

_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.INFO: "info"}


def render_gitlab(
    diagnosis: Diagnosis, width: int = 0, colour: bool = False, exit_code: int | None = None
) -> str:
    """Return the list; the finding that decides the verdict on a server that failed is a blocker."""
    rows = rows_of(diagnosis)
    verdict = verdict_of(diagnosis)
    chief = diagnosis.chief.chief if diagnosis.chief else None
    out = []
    told = not diagnosis.healthy and not diagnosis.verdict_known
    if told and not any(row.finding.severity is not Severity.INFO for row in rows):
        text = f"{verdict.title}; {verdict.text}" if verdict.text else verdict.title
        line = verdict.line.line if verdict.line else 1
        mark = diagnosis_fingerprint(diagnosis) or "0" * 16
        severity = "blocker" if verdict.severity is Severity.ERROR else "major"
        out.append(_issue(text, "verdict", mark, severity, verdict.file or "-", line))
    for row in rows:
        blocks = verdict.severity is Severity.ERROR and row.finding == chief
        severity = "blocker" if blocks else _SEVERITIES[row.finding.severity]
        fix = f" Fix: {cut(row.finding.fix)}" if row.finding.fix else ""
        name = f"{row.finding.code} {row.finding.name}"
        out.append(_issue(row.message + fix, name, row.fingerprint, severity, row.file, row.number))
    return dumps(out)


def _issue(text: str, name: str, mark: str, severity: str, path: str, line: int) -> dict[str, Any]:
    return {
        "description": text or name,
        "check_name": name,
        "fingerprint": mark,
        "severity": severity,
        "location": {"path": plain(path).removeprefix("./"), "lines": {"begin": line}},
    }
