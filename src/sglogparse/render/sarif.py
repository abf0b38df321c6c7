"""SARIF 2.1.0: a run with its rules, artifacts, results, and how it ended.

finding     --> result       level, message, location (1-based line), fingerprint, how often it occurs
root line   --> codeFlow     with the lines that followed from it, of the finding that names the first fault
rule        --> reportingDescriptor, with its documentation as help; rules without a result are left out
file read   --> artifact     limits and the verdict --> notifications of the invocation

Texts keep the rules of SARIF's messages: braces are doubled, and a text of a log makes no link.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from sglogparse._report import Diagnosis, Evidence, FileReport, Finding, LaunchReport, Severity
from sglogparse._safe import plain
from sglogparse._version import __version__
from sglogparse.render._json import dumps
from sglogparse.render._rows import Row, cut, remarks_of, rows_of, verdict_of

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_CODES = {
    0: "healthy, or the verdict is known, or 0 was asked for",
    1: "findings at or above the threshold",
    3: "undecided: no such finding, but the log does not show health either",
}
#: The name and version of how fingerprints are taken.
_FINGERPRINT = "sglogparse/v1"
#: Lines of a cascade, and further lines that prove a finding; those left out are counted.
_STEPS = 100
_RELATED = 20
_SNIPPET = 500


def render_sarif(
    diagnosis: Diagnosis, width: int = 0, colour: bool = False, exit_code: int | None = None
) -> str:
    """Return the log file of one run."""
    from sglogparse.rules import RULES

    rows = rows_of(diagnosis)
    codes = list(dict.fromkeys(row.finding.code for row in rows))
    index = {file.path: number for number, file in enumerate(diagnosis.files)}
    docs = {rule.code: (rule.name, rule.doc) for rule in RULES}
    rules = [_rule(code, *docs.get(code, (code, code))) for code in codes]
    code = diagnosis.exit_code() if exit_code is None else exit_code
    run = {
        "tool": {"driver": {"name": "sglogparse", "version": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": True,
                "exitCode": code,
                "exitCodeDescription": _CODES[code],
                "toolExecutionNotifications": _notifications(diagnosis, index),
            }
        ],
        "artifacts": [_artifact(file) for file in diagnosis.files],
        "results": [_result(row, codes.index(row.finding.code), index) for row in rows],
        "properties": {
            "outcome": diagnosis.outcome.value,
            "cause": diagnosis.cause,
            "summary": cut(diagnosis.summary),
        },
    }
    return dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(code: str, name: str, doc: str) -> dict[str, Any]:
    first, _, rest = doc.partition("\n")
    what = re.search(r"What it finds:\n((?: .*\n?|\n)+)", rest)
    return {
        "id": code,
        "name": name,
        "shortDescription": _message(first),
        "fullDescription": _message(" ".join(what[1].split()) if what else first),
        "help": {"text": doc.replace("{", "{{").replace("}", "}}"), "markdown": _markdown(doc)},
    }


def _markdown(doc: str) -> str:
    """Return the documentation of a rule with its headings in bold."""
    lines = [
        f"**{line[:-1]}**\n" if re.match(r"[A-Z].*:$", line) else line.strip() for line in doc.splitlines()
    ]
    return "\n".join(lines).replace("{", "{{").replace("}", "}}")


def _result(row: Row, rule: int, index: dict[str, int]) -> dict[str, Any]:
    finding, launch = row.finding, row.launch
    text = cut(finding.message) + (f" Fix: {cut(finding.fix)}" if finding.fix else "")
    related = [one for one in dict.fromkeys(finding.evidence) if one != row.line]
    out: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity],
        "message": _message(text),
        "locations": [
            _location(row.line, index)
            if row.line
            else {"physicalLocation": _physical(row.file, row.number, index)}
        ],
        "partialFingerprints": {_FINGERPRINT: row.fingerprint},
        "occurrenceCount": row.count,
    }
    if related:
        out["relatedLocations"] = [_location(one, index) for one in related[:_RELATED]]
    if finding.root is not None and finding.root == launch.root and launch.cascade:
        out["codeFlows"] = [_flow(finding.root, launch, index)]
    out["properties"] = _properties(row, finding, launch, len(related) - _RELATED)
    return out


def _properties(row: Row, finding: Finding, launch: LaunchReport, left: int) -> dict[str, Any]:
    out: dict[str, Any] = {
        "outcome": launch.outcome.value,
        "cause": finding.cause,
        "launches": row.launches,
        "ranks": [plain(rank) for rank in row.ranks],
    }
    if finding.confidence:
        out["confidence"] = {"word": finding.confidence.word, "reason": cut(finding.confidence.reason)}
    if finding.runner_up:
        out["runnerUp"] = finding.runner_up
    if left > 0:
        out["relatedLocationsLeftOut"] = left
    if len(launch.cascade) > _STEPS and finding.root == launch.root:
        out["cascadeLeftOut"] = len(launch.cascade) - _STEPS
    return out


def _flow(root: Evidence, launch: LaunchReport, index: dict[str, int]) -> dict[str, Any]:
    """Return how a fault spread: its line, then those that followed from it."""
    steps: list[dict[str, Any]] = [
        {
            "location": _location(root, index, "first fault"),
            "nestingLevel": 0,
            "executionOrder": 1,
            "importance": "essential",
        }
    ]
    for number, step in enumerate(launch.cascade[:_STEPS], 2):
        at = _location(step.line, index, f"{step.role}: {step.why}")
        importance = "important" if step.role.startswith("root") else "unimportant"
        steps.append({"location": at, "nestingLevel": 1, "executionOrder": number, "importance": importance})
    text = "The first fault, and the lines that followed from it."
    return {"message": _message(text), "threadFlows": [{"locations": steps}]}


def _location(line: Evidence, index: dict[str, int], told: str = "") -> dict[str, Any]:
    physical = _physical(line.file, line.line, index)
    physical["region"]["snippet"] = {"text": cut(line.text, _SNIPPET)}
    words = f"{told} ({line.rank})" if told and line.rank else told or line.rank
    return {"physicalLocation": physical} | ({"message": _message(cut(words))} if words else {})


def _physical(file: str, line: int, index: dict[str, int]) -> dict[str, Any]:
    artifact: dict[str, Any] = {"uri": _uri(file)}
    if file in index:
        artifact["index"] = index[file]
    return {"artifactLocation": artifact, "region": {"startLine": line, "startColumn": 1}}


def _artifact(file: FileReport) -> dict[str, Any]:
    return {
        "location": {"uri": _uri(file.path)},
        "roles": ["analysisTarget"],
        "length": file.bytes,
        "properties": {"lines": file.lines, "unparsed": file.unparsed, "replacedBytes": file.replaced_bytes},
    }


def _notifications(diagnosis: Diagnosis, index: dict[str, int]) -> list[dict[str, Any]]:
    """Return the verdict, what was left out, what reading the files took, and what the log cannot show."""
    verdict = verdict_of(diagnosis)
    told = f"{verdict.title}; {verdict.text}" if verdict.text else verdict.title
    first: dict[str, Any] = {
        "descriptor": {"id": "verdict"},
        "level": _LEVELS[verdict.severity],
        "message": _message(told),
    }
    if verdict.line:
        first["locations"] = [_location(verdict.line, index)]
    out = [first]
    out += [_notification("selection", one) for one in remarks_of(diagnosis)]
    out += [_notification("limit", one) for one in diagnosis.limits]
    out += [
        _notification("reading", f"{file.path}: {note}") for file in diagnosis.files for note in file.notes
    ]
    return out


def _notification(name: str, text: str) -> dict[str, Any]:
    return {"descriptor": {"id": name}, "level": "note", "message": _message(cut(text))}


def _message(text: str) -> dict[str, str]:
    """Return a message: braces would be placeholders, and `[text](target)` a link."""
    return {"text": plain(text).replace("](", "] (").replace("{", "{{").replace("}", "}}")}


def _uri(path: str) -> str:
    """Return the path of a file as a URI, relative where the path is."""
    try:
        raw = path.encode("utf-8", "surrogateescape")  # a name that is not UTF-8 keeps its bytes
    except UnicodeEncodeError:
        raw = path.encode("utf-8", "replace")
    return ("file://" if path.startswith("/") else "") + quote(raw, safe="/")
