"""Baselines: the findings and verdicts that are known already, by their fingerprints.

    {"schema": "sglogparse/baseline/1",
     "verdicts": [{"fingerprint": ..., "outcome": ..., "cause": ..., "text": ...}],
     "findings": [{"fingerprint": ..., "code": ..., "severity": ..., "text": ...}]}

Only the fingerprints are read; the rest tells a person what an entry is, secrets masked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglogparse._cheap import dataclass
from sglogparse._errors import ConfigError
from sglogparse._fingerprint import (
    finding_fingerprint,
    finding_is_specific,
    proof_of,
    verdict_fingerprint,
    verdict_is_specific,
)
from sglogparse._safe import mask_secrets, plain

if TYPE_CHECKING:
    from sglogparse._report import Diagnosis

SCHEMA = "sglogparse/baseline/1"
_KEYS = ("schema", "verdicts", "findings")
#: How much of a line an entry quotes.
_MOST = 200


@dataclass(frozen=True)
class Baseline:
    """What is known."""

    findings: frozenset[str] = frozenset()
    verdicts: frozenset[str] = frozenset()


def read_baseline(path: Path) -> Baseline:
    """Return what a file says is known; ConfigError where it is no baseline."""
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        hint = "; --write-baseline makes it" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(f"{path}: the baseline cannot be read: {reason}{hint}") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{path}: is no baseline: it is not JSON") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ConfigError(f"{path}: is no baseline of schema {SCHEMA}")
    unknown = next((key for key in data if key not in _KEYS), None)
    if unknown is not None:
        raise ConfigError(
            f"{path}: is no baseline: it has no {unknown!r}, but {', '.join(map(repr, _KEYS[1:]))}"
        )
    return Baseline(_fingerprints(data, "findings", path), _fingerprints(data, "verdicts", path))


def _fingerprints(data: dict[str, Any], key: str, path: Path) -> frozenset[str]:
    entries = data.get(key, [])
    if not isinstance(entries, list):
        raise ConfigError(f"{path}: is no baseline: {key!r} is no list")
    marks = [one.get("fingerprint") if isinstance(one, dict) else None for one in entries]
    if not all(isinstance(mark, str) for mark in marks):
        raise ConfigError(f"{path}: is no baseline: an entry of {key!r} has no fingerprint")
    return frozenset(mark for mark in marks if isinstance(mark, str))


def baseline_of(diagnosis: Diagnosis) -> tuple[Baseline, str]:
    """Return the baseline that knows all of a diagnosis, and its file's text.

    What says too little to be known again is not in it: a verdict that no line proves (a log that ends too
    early, say), an exception that is cut off.
    """
    findings: dict[str, dict[str, str]] = {}
    verdicts: dict[str, dict[str, str]] = {}
    for launch in diagnosis.launches:
        for finding in launch.findings:
            if finding_is_specific(finding, launch):
                entry = {"code": finding.code, "severity": finding.severity.value}
                _put(findings, finding_fingerprint(finding, launch), entry, finding.message)
        line = proof_of(launch)
        if line is not None and verdict_is_specific(launch):
            entry = {"outcome": launch.outcome.value, "cause": launch.cause}
            _put(verdicts, verdict_fingerprint(launch), entry, line.message)
    data = {"schema": SCHEMA, "verdicts": [*verdicts.values()], "findings": [*findings.values()]}
    return Baseline(frozenset(findings), frozenset(verdicts)), json.dumps(data, indent=2) + "\n"


def _put(entries: dict[str, dict[str, str]], mark: str, entry: dict[str, str], text: str) -> None:
    entries.setdefault(mark, {"fingerprint": mark, **entry, "text": _quoted(text)})


def _quoted(text: str) -> str:
    text = plain(mask_secrets(text)).strip()
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."
