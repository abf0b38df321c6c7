"""Lines that speak of failure and that no rule explains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath

import polars as pl

from sglogparse._cheap import lazy
from sglogparse._condense import FAILURE_MARK, GRAVE_MARK
from sglogparse._derived import Whole, once, telling
from sglogparse._faults import faults, last_progress, last_served, trouble
from sglogparse._launches import Launch, first_line
from sglogparse._report import Evidence, Finding, Severity
from sglogparse.causes import Clues, Decision, decide
from sglogparse.causes._evidence import advice
from sglogparse.rules.killed_from_outside import killed_from_outside
from sglogparse.rules.router_without_workers import router_without_workers
from sglogparse.rules.transfer_devices_failed import transfer_devices_failed

#: Of the lines that speak of failure so many are looked at.
_MOST = 40
#: Causes that a line without an exception does not prove: a process that goes on prints it too.
_NOT_BY_A_LINE = (
    *("code.", "process.", "request.", "perf.", "hang.", "model.", "config."),
    *("env.missing_dependency", "env.version_mismatch", "env.filesystem"),
)
#: A line that says so itself is no fault.
_GOES_ON = lazy(r"(?i)\bignor|\bcontinuing|\bretrying|\bskipp")
#: The level of a line, behind its stamp, by which its program says that it only informs.
_INFORMS = r"^(?:[0-9][0-9T:.,Z+/-]*[ |]+)*(?:- |\[|\| ?)?(?:INFO|DEBUG|TRACE)\b"
#: How much of a line is quoted, characters.
_QUOTE = 200


def unexplained_failures(launch: Launch) -> Iterator[Finding]:
    """Report lines that speak of a failure which no other rule explains.

    What it finds:
        Records and foreign lines with words of failure (error, failed, exception, timed out, ...), in a
        launch without a fault that explains them.

    Why it matters:
        Silence of the rules is not health. Words that mean the end of a process (a segmentation fault, a CUDA
        error) are a warning; other words of failure are mostly harmless (an optional import, a retry), but
        may be the fault itself in words that no rule knows yet.

    Evidence:
        The first and the last of these lines, and how many there are; the first is quoted.

    Does not match:
        Words before the ready line, and those of other programs (test runners, package managers, kubectl).
        Launches in which a process died: there the words of failure follow from it. Warnings, and notices of
        a feature that is disabled or falls back. Lines whose program calls them information (INFO, DEBUG).

    What to do:
        Read the line that is quoted, then the others. Where a line names a cause in words that mean nothing
        else, and the server had not served, the finding says which.
    """
    if faults(launch) or next(killed_from_outside(launch), None) is not None:
        return
    grave = trouble(launch, grave=True)
    lines = _left(launch, grave or _failing(launch))
    if not lines:
        return
    several = len(lines) > 1
    what = "a grave failure" if grave else "failures"
    named = _named(launch, lines)
    if named is not None:
        line, decided = named
        root = launch.evidence(line)
        yield Finding(
            Severity.WARNING,
            f"{root.message.strip()} ({len(lines)} line{'s' if several else ''} of failure in all).",
            launch.evidences([line, lines[-1]]),
            cause=decided.cause,
            fix=advice(launch, decided.cause),
            confidence=replace(decided.confidence, word="likely") if decided.confidence else None,
            root=root,
            fatal=False,
        )
        return
    first = launch.evidence(lines[0])
    more = launch.dropped(pl.col("detail").str.starts_with(GRAVE_MARK if grave else FAILURE_MARK))
    yield Finding(
        Severity.WARNING if grave else Severity.INFO,
        f"{'more than ' if more else ''}{len(lines)} line{'s' if several else ''} "
        f"speak{'' if several else 's'} of {what}, "
        f"and no rule explains {'them' if several else 'it'}{'; the first' if several else ''} "
        f"{_quoted(first)}",
        launch.evidences([lines[0], lines[-1]]),
        root=first,
        fatal=False,
    )


def _quoted(line: Evidence) -> str:
    """Return where a line stands and what it says, cut where it is long."""
    where = f"line {line.line}" if line.file == "-" else f"{PurePath(line.file).name}:{line.line}"
    text = " ".join(line.message.split())
    left = len(text) - _QUOTE
    return f"({where}): {text[:_QUOTE]}" + (f"... (+{left} characters)" if left > 0 else "")


@once
def _failing(launch: Launch) -> list[int]:
    """Return the lines with words of failure that their programs do not call information."""
    ready = first_line(launch.frames["ready"]) or 0
    # what was said before the server came up did not keep it from that
    said = {*trouble(launch, grave=False), *_proxied(launch)}
    lines = sorted(line for line in said if line > ready)
    if not lines:
        return []
    told = pl.Series("line", lines, dtype=pl.UInt32)
    messages = launch.records["message"].gather(launch.lines["line"].search_sorted(told))
    return told.filter(~messages.str.contains(_INFORMS).fill_null(False)).to_list()


def _proxied(launch: Launch) -> list[int]:
    """Return the requests of a start that a proxy refused: urllib3 names their whole address to it alone."""
    return [] if launch.serves is not None else _refused(launch)["line"].to_list()


@telling
def _refused(whole: Whole) -> pl.DataFrame:
    refused = pl.col("message").str.contains(
        r"\"(?:GET|POST) https?://[^ \"]+ HTTP/[0-9.]+\" [45][0-9][0-9]\b"
    )
    return whole.records.select("line", "message").with_row_index("row").filter(refused)


def _named(launch: Launch, lines: list[int]) -> tuple[int, Decision] | None:
    """Return the first line after which nothing goes on and that names a cause beyond doubt.

    What it names of a server that has served stays undecided: nothing shows whether it lives on.
    """
    if launch.serves is not None:
        return None
    done = max(last_progress(launch), last_served(launch))
    behind = [line for line in lines if line > done][:_MOST]
    for proof in launch.evidences(behind):
        if _GOES_ON.search(proof.message):
            continue
        decided = decide(Clues((proof.message.strip(),)), ended=True)
        sure = decided.confidence is not None and decided.confidence.word == "certain"
        if sure and not decided.cause.startswith(_NOT_BY_A_LINE):
            return proof.line, decided
    return None


def _left(launch: Launch, lines: list[int]) -> list[int]:
    """Return the lines that are not of a family whose failures another rule has told."""
    told: tuple[str, ...] = ()
    for rule, names in (
        (router_without_workers, ("router",)),
        (transfer_devices_failed, ("mooncake", "nixl", "ucx", "rdma")),
    ):
        told += names if next(rule(launch), None) is not None else ()
    if not told:
        return lines
    kinds = launch.lines["kind"].gather([launch.row(line) for line in lines])
    return [line for line, own in zip(lines, kinds.is_in(told).fill_null(False), strict=True) if not own]
