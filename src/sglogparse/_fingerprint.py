"""Fingerprints: what stays the same of a finding or a verdict from run to run.

text of the line --> words without numbers, stamps, addresses, folders, ranks --+
code, cause, severity (of a verdict: outcome) ----------------------------------+--> 16 hexadecimal digits

Baselines, clusters of failures, SARIF and GitLab know a finding by it. It is taken of masked text, so that it
neither tells a secret nor changes with one.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

from sglogparse._cheap import lazy
from sglogparse._safe import mask_secrets

if TYPE_CHECKING:
    from sglogparse._report import Diagnosis, Evidence, Finding, LaunchReport

#: A text is looked at up to here; what a server quotes behind it differs from run to run.
_MOST = 2000
#: Words that are kept.
_WORDS = 40
#: A text of fewer words ("AssertionError") says too little alone: where it was raised is added.
_FEW = 3
#: What differs from run to run, and what is left of it, in this order.
_VARYING = (
    # stamps: 2026-02-27T12:50:02.123Z, 12:50:02
    (
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?(?:Z|[+-][0-9:]{4,6})?)?",
        " ",
    ),
    (r"\b[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?", " "),
    (r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b", " "),
    # hosts
    (r"\b[A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s/'\",)>\]]*", " "),
    (r"\[?[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){3,7}\]?(?::[0-9]+)?", " "),
    (r"\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b", " "),
    # folders; the name of the file stays
    (r"(?:\b[A-Za-z]:)?(?:[\w.@~+=-]{0,80}[/\\])+(?=[\w.@~+=-])", " "),
    (r"\b(?:0[xX][0-9a-fA-F]+|(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,})\b", " "),
    (r"\btmp[a-z0-9_]{6,}\b", " tmp "),
)
_VARYING_PATTERNS = tuple((lazy(pattern), left) for pattern, left in _VARYING)
#: Ranks, also as a process says them: TP0, [rank3], rank 3, GPU 4, cuda:0, Worker_TP1.
_RANK = lazy(
    r"\[?\b(?i:tp|dp|pp|ep|cp|moe_ep|moe_tp|attn_tp|rank|gpu|cuda|npu|node|worker)[ :=_-]{0,2}[0-9]+\b\]?"
)
#: A report whose exception is cut off: it is said of all exceptions.
_NOISE = lazy(
    r"(?:Traceback \(most recent call last\)|^Exception in \w+|hit an exception|\b(?:error|failed)):\s*$"
)
_WORD = lazy(r"[A-Za-z_][A-Za-z0-9_]*")
#: Element types, whose digits mean something.
_ELEMENT = lazy(r"(?i)(?:mx|nv|b)?(?:fp|bf|int|uint|float)[0-9]+(?:_?e[0-9]m[0-9][a-z]*)?")
_DIGITS = lazy(r"_?[0-9]+")


def words_of(text: str) -> str:
    """Return the words of a line that stay the same when it is printed again elsewhere.

    >>> words_of("[rank3]: CUDA error at /a/pool.cu:17: 0x7f3c, fp8 cache of 159269 tokens, 10.0.0.3:8080")
    'CUDA error at pool cu fp8 cache of tokens'
    """
    return _words(text[:_MOST])


@lru_cache(1024)
def _words(text: str) -> str:
    text = mask_secrets(text)
    for pattern, left in _VARYING_PATTERNS:
        text = pattern.sub(left, text)
    text = _RANK.sub(" ", text)
    kept = (word if _ELEMENT.fullmatch(word) else _DIGITS.sub("", word) for word in _WORD.findall(text))
    return " ".join([word for word in kept if word.strip("_")][:_WORDS])


def finding_fingerprint(finding: Finding, launch: LaunchReport) -> str:
    """Return the fingerprint of a finding on a launch: its code, cause and severity, and its line's words.

    A finding that has become more severe is another one.
    """
    told = _told(*_said(finding, launch))
    return _digest(finding.code, finding.cause or "", finding.severity.value, told)


def verdict_fingerprint(launch: LaunchReport) -> str:
    """Return the fingerprint of the verdict on a launch: outcome, cause, deciding code, words of the root."""
    line = proof_of(launch)
    code = launch.chief.code if launch.chief else ""
    told = _told(line.message, _raised_at(launch)) if line else ""
    return _digest(code, launch.cause, launch.outcome.value, told)


def proof_of(launch: LaunchReport) -> Evidence | None:
    """Return the line that a verdict stands on; None of a verdict that stands on what the log lacks."""
    return launch.root or (next(iter(launch.chief.evidence), None) if launch.chief else None)


def finding_is_specific(finding: Finding, launch: LaunchReport) -> bool:
    """Tell whether a finding says enough to be known again: the next one alike is the same, most likely."""
    return bool(_told(*_said(finding, launch)))


def verdict_is_specific(launch: LaunchReport) -> bool:
    """Tell whether a verdict stands on a line that says enough to be known again."""
    line = proof_of(launch)
    return line is not None and bool(_told(line.message, _raised_at(launch)))


def diagnosis_fingerprint(diagnosis: Diagnosis) -> str | None:
    """Return the fingerprint of the verdict on a log; None of an empty log."""
    return verdict_fingerprint(diagnosis.chief) if diagnosis.chief else None


def _raised_at(launch: LaunchReport) -> str:
    """Return in which file and function of SGLang the first fault was raised."""
    frame = launch.detail.frame if launch.detail else None
    return words_of(frame) if frame else ""


def _said(finding: Finding, launch: LaunchReport) -> tuple[str, str]:
    """Return the text that a finding is known by, and where it was raised if that is the first fault."""
    line = finding.root or next(iter(finding.evidence), None)
    at = _raised_at(launch) if finding.root is not None and finding.root == launch.root else ""
    return (line.message if line else finding.message), at


def _told(text: str, place: str) -> str:
    """Return the words of a text; with the place where they alone say too little, and nothing without one."""
    words = "" if _NOISE.search(text) else words_of(text)
    return words if len(words.split()) >= _FEW or not place else f"{words} in {place}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:16]
