"""One JSON object a line: the verdict first, then each finding (schema sglogparse/finding/1).

Equal findings of several launches are one line. The keys are those of `json`; what is more or other:

    kind          "verdict" or "finding"
    file, line    where to look: the fault itself, or the first line that proves the finding; null without one
    text          that line
    ranks         of all findings of the line
    count         findings that the line stands for; `launches`: on how many launches they are
    outcome       of the launch that the finding is told of
    exit_code     of the verdict: what the command exits with; null where nobody asked for one
"""

from __future__ import annotations

from typing import Any

from sglogparse._report import Diagnosis
from sglogparse.render._json import dumps
from sglogparse.render._rows import Row, rows_of

SCHEMA = "sglogparse/finding/1"


def render_jsonl(
    diagnosis: Diagnosis, width: int = 0, colour: bool = False, exit_code: int | None = None
) -> str:
    """Return the verdict and the findings, a line each."""
    objects = [_verdict(diagnosis, exit_code), *(_finding(row) for row in rows_of(diagnosis))]
    return "\n".join(dumps(one, indent=None) for one in objects)


def _verdict(diagnosis: Diagnosis, exit_code: int | None) -> dict[str, Any]:
    whole = diagnosis.as_dict()
    root = diagnosis.root
    return {
        "schema": SCHEMA,
        "kind": "verdict",
        "file": root.file if root else None,
        "line": root.line if root else None,
        "rank": root.rank if root else None,
        "text": root.text if root else None,
        **{key: whole[key] for key in ("outcome", "cause", "confidence", "runner_up", "summary", "fix")},
        **{key: whole[key] for key in ("fingerprint", "known", "ignored", "limits")},
        "files": [one.path for one in diagnosis.files],
        "launches": len(diagnosis.launches),
        "exit_code": exit_code,
    }


def _finding(row: Row) -> dict[str, Any]:
    finding, line = row.finding, row.line
    return {
        "schema": SCHEMA,
        "kind": "finding",
        "file": row.file,
        "line": line.line if line else None,
        "rank": line.rank if line else None,
        "text": line.text if line else None,
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "cause": finding.cause,
        "message": finding.message,
        "fix": finding.fix,
        "ranks": list(row.ranks),
        "count": row.count,
        "launches": row.launches,
        "outcome": row.launch.outcome.value,
        "fingerprint": row.fingerprint,
    }
