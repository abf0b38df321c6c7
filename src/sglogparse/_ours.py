"""Files that this package writes: a report is no log, though it lies beside the logs and quotes them.

    head of a file --> is it a report, by how it begins?     what the call itself writes to, and is empty yet?

Only what stands in a folder, a glob or an archive is asked; a file that is named is read whatever it is.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sglogparse._cheap import lazy
from sglogparse._folders import files_in, files_like, is_glob, named_as_archive, named_as_log

#: Why a report is not read.
REASON = "a report of sglogparse, not a log"
#: Why a file is not read that standard output goes to.
WRITTEN = "what this call writes to, not a log"
#: Bytes of a file that are looked at.
_HEAD = 1 << 16
#: The head of a member of an archive, bytes: of a longer file there is more.
_SHORT = 1 << 13
#: Standard output and standard error, by their numbers.
_OUTPUTS = (1, 2)
#: How a verdict begins.
_VERDICT = (
    r"(?:ready(?:: the server |, (?:but|and) )|(?:crashed|hung)(?:, [a-z][^;\n]*)?; cause"
    r"|stopped(?:, but |: an orderly )|starting: the log |undecided: )"
)
#: How the formats begin that have a beginning of their own: JSON, JSON lines, code quality, SARIF, JUnit,
#: Markdown, commands of GitHub and Azure, OpenMetrics.
_BEGINS = lazy(
    r'\s*\{\s*"schema": ?"sglogparse/'
    r'|\[\s*(?:\]\s*\Z|\{\s*"description": [^\n]*\n\s*"check_name": )'
    r'|\{\s*"\$schema": "[^"\n]*sarif[^"\n]*",\s*"version": "[^"\n]*",\s*"runs": \['
    r'\s*\{\s*"tool": \{\s*"driver": \{\s*"name": "sglogparse"'
    r'|<\?xml [^>]*\?>\s*<testsuites name="sglogparse"'
    r"|### sglogparse(?: triage)?: "
    r"|::(?:error|warning|notice) (?:[^:\n]*,)?title=sglogparse%3A "
    rf"|##vso\[task\.logissue [^\]\n]*\]{_VERDICT}"
    r"|# (?:HELP|TYPE|UNIT) sglogparse_"
)
_PAGE = lazy(r"<!DOCTYPE html>[\s\S]*<h1>sglogparse ")
_SUMMARY = lazy(r"(?m)^### sglogparse(?: triage)?: ")
#: The report for a person: a verdict, and at its end what was read.
_TEXT = lazy(_VERDICT)
_READ = lazy(r"(?m)^[^\n]+: [0-9,]+ lines?(?: \([0-9,]+ not recognised\))?(?:;|\.|,|$)")
_TRIAGE = lazy(r"[0-9]+ logs?(?:, [0-9]+ incidents?)?: [0-9]+ [a-z]")
#: Lines that only a log has: records, tracebacks, what an HTTP server prints.
_RECORD = lazy(
    r"(?m)^(?:\[20[0-9]{2}-[0-9]{2}-[0-9]{2} |Traceback \(most recent call last\)|INFO:     "
    r"|  File \"[^\"\n]+\", line [0-9])"
)
_STAMP = lazy(r"(?m)^\[?20[0-9]{2}-[0-9]{2}-[0-9]{2}[T ]")
#: A line a finding, as a compiler writes it; of Azure, what a healthy server is told of.
_CONCISE = lazy(
    rf"[^\n]+?(?::[0-9]+)?: (?:ready )?{_VERDICT}[^\n]*"
    r"(?:\n(?:[^\n]+:[0-9]+: [A-Z][0-9]{3} [^\n]*|known, by the baseline: [^\n]*|not selected: [^\n]*"
    r"|##vso\[task\.[^\n]*))*\s*\Z"
)


def is_report(head: str, name: str) -> bool:
    """Tell of the beginning of a file whether it is one of the reports that this package writes."""
    cut = len(head) >= _SHORT
    if cut:  # its last line is a part of one
        head = head[: head.rfind("\n") + 1] or head
    if _RECORD.search(head):  # a server may have been started into the file that a verdict was written to
        return False
    if _BEGINS.match(head) or _PAGE.match(head) or _CONCISE.match(head):
        return True
    if name.lower().endswith((".md", ".markdown")) and _SUMMARY.search(head):
        return True  # what other steps of a job have told stands above it
    if _STAMP.search(head):
        return False
    return bool(_TRIAGE.match(head) or (_TEXT.match(head) and (cut or _READ.search(head))))


def why_ours(name: str) -> str | None:
    """Return why a file is no log but something that this package writes, or None."""
    path = Path(name)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return None
        if not status.st_size:
            return WRITTEN if _is_output(status) else None
        with path.open("rb") as file:
            head = file.read(_HEAD).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None  # whoever reads it says why it cannot be read
    return REASON if is_report(head, name) else None


def _is_output(status: os.stat_result) -> bool:
    """Tell whether standard output or standard error goes to a file: `> logs/report.txt`."""
    for number in _OUTPUTS:
        try:
            told = os.fstat(number)
        except OSError:
            continue  # closed
        if (told.st_dev, told.st_ino) == (status.st_dev, status.st_ino):
            return True
    return False


def is_log_of(target: Path, logs: tuple[str, ...]) -> bool:
    """Tell whether a file that is there is, or may be, one of the logs that a call names, so must stay.

    In a folder that is any file but an earlier report, or an empty file that is not called as logs are.
    """
    try:
        where, empty = os.path.realpath(target), target.stat().st_size == 0
    except (OSError, ValueError):
        return False  # there is nothing to write over
    for log in logs:
        if log == "-":
            continue
        named = [log, log.partition("!")[0]]
        if any(os.path.realpath(one) == where for one in named):
            return True
        path = Path(log)
        within = files_in(log, []) if path.is_dir() else []
        if not path.exists() and is_glob(log):
            within = [
                file
                for one in files_like(log)
                for file in (files_in(one, []) if Path(one).is_dir() else [one])
            ]
        if any(os.path.realpath(one) == where for one in within):
            called = named_as_log(target.name) or named_as_archive(target.name)
            if called if empty else why_ours(str(target)) is None:
                return True
    return False
