"""From findings to a verdict: outcome, cause, first fault, what to change, and what the log cannot show.

launches --> rules --> per launch: outcome + cause + root --> over all launches: the one that counts
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

from sglogparse._causes import CAUSE_TITLES
from sglogparse._damage import damage, newest_first
from sglogparse._faults import stopped_at, trouble
from sglogparse._launches import STANDS, Launch, read_launches
from sglogparse._release import version_window
from sglogparse._report import Diagnosis, FileReport, Finding, LaunchReport, Outcome, Severity
from sglogparse._vitals import vitals
from sglogparse.rules import RULES

if TYPE_CHECKING:
    from sglogparse._log import Log

#: Which outcome of several files speaks for all of them.
_PRECEDENCE = (
    Outcome.CRASHED,
    Outcome.HUNG,
    Outcome.STARTING,
    Outcome.UNKNOWN,
    Outcome.STOPPED,
    Outcome.READY,
)


def diagnose(log: Log) -> Diagnosis:
    """Judge a log."""
    launches = read_launches(log)
    reports = [_judge(launch) for launch in launches]
    counts = dict(log.unparsed.group_by("file").len().iter_rows())
    files = tuple(
        FileReport(one.path, one.lines, one.bytes, counts.get(index, 0), one.replaced_bytes, one.notes)
        for index, one in enumerate(log.files)
    )
    upside_down = {log.files[index].path for index in newest_first(log)}
    reports = [_undecided(one) if one.file in upside_down else one for one in reports]
    limits = tuple(dict.fromkeys([*damage(log), *(one for launch in launches for one in _limits(launch))]))
    return Diagnosis(files, tuple(reports), _with_earlier(reports) if reports else None, limits)


def _undecided(report: LaunchReport) -> LaunchReport:
    """Return the report of a log whose newest line stands first: what came first cannot be told from it."""
    return replace(
        report,
        outcome=Outcome.UNKNOWN,
        cause="unknown",
        headline="undecided: the newest line stands first, so what came first is not what it seems",
        action=f"turn the log round (`tac {report.file}`) and ask again",
        fix=None,
        root=None,
        chief=None,
        vitals=(),
        findings=(),
    )


#: Below this many lines a log without its beginning is an excerpt.
_FEW_LINES = 20


#: Causes that name what followed from a fault elsewhere, or nothing: another file's fault speaks first.
_WEAK = ("unknown", "process.killed", "dist.peer_lost")


def _chief(reports: list[LaunchReport]) -> LaunchReport:
    """Return the launch that speaks for the log: of each file the last one, of the files the worst.

    Among files that ended alike, one that names a cause of its own comes first, then the earliest fault.
    """
    last = {report.file: report for report in reports}
    return min(
        last.values(),
        key=lambda one: (
            _PRECEDENCE.index(one.outcome),
            one.cause in _WEAK,
            one.fault_time is None,
            one.fault_time or dt.datetime.min,
        ),
    )


def _with_earlier(reports: list[LaunchReport]) -> LaunchReport:
    """Return the launch that speaks for the log, and say of a good one which launch failed before it."""
    chief = _chief(reports)
    failed = [one for one in reports if one.outcome in (Outcome.CRASHED, Outcome.HUNG)]
    if chief in failed or not failed:
        return chief
    earlier = failed[-1]
    told = f"an earlier launch (lines {earlier.first_line}-{earlier.last_line}) {earlier.summary}"
    headline = chief.headline
    for claim in (" and the log shows no fault", ", and no fault came first", " and shows no fault"):
        headline = headline.removesuffix(claim)
    return replace(chief, headline=headline, action="; ".join(filter(None, (chief.action, told))))


def _judge(launch: Launch) -> LaunchReport:
    order = {rule.code: index for index, rule in enumerate(RULES)}
    findings = sorted(
        (finding for rule in RULES for finding in rule(launch)),
        key=lambda one: (one.severity.rank, -one.weight, order[one.code]),
    )
    fault = [one for one in findings if one.root is not None and one.severity is Severity.ERROR]
    outcome = _outcome(launch, fault)
    chief = fault[0] if fault else next((one for one in findings if one.severity is Severity.ERROR), None)
    chief = chief or next((one for one in findings if one.severity is Severity.WARNING and one.cause), None)
    if outcome in (Outcome.CRASHED, Outcome.HUNG):
        cause = next((one.cause for one in fault if one.cause and one.cause != "unknown"), "unknown")
    elif outcome in (Outcome.READY, Outcome.STOPPED):
        doubt = any(one.code == "E003" and one.severity is Severity.WARNING for one in findings)
        named = [one.cause for one in findings if one.cause and one.severity is not Severity.INFO]
        cause = named[0] if named else "unknown" if doubt else "none"
    else:
        lost = outcome is Outcome.UNKNOWN and trouble(launch, grave=bool(launch.reached))
        cause = "unknown" if lost else "none"
    decisive = fault or [one for one in findings if one.cause == cause and one.severity is not Severity.INFO]
    root = min((one.root for one in decisive if one.root), default=None)
    told = next((one.phase for one in fault if one.phase and one.root == root), None)
    phase = told or (launch.phase_at(root.line, root.rank) if root else next(reversed(launch.reached), None))
    if cause == "memory.kv_budget":
        phase = "KV cache set-up"  # only there is the budget computed, whichever lines the log lacks
    headline, action = _verdict(outcome, cause, phase, chief, findings)
    return LaunchReport(
        file=launch.path,
        first_line=launch.first_line,
        last_line=launch.last_line,
        outcome=outcome,
        cause=cause,
        phases=tuple(launch.reached),
        phase=phase,
        ranks=launch.ranks,
        duration=launch.duration,
        version_window=version_window(launch.args, cut=launch.args_cut),
        headline=headline,
        action=action,
        fix=chief.fix if chief else None,
        root=root,
        fault_time=launch.lines["time"][root.line - launch.first_line] if root else None,
        chief=chief,
        vitals=tuple(vitals(launch, root, findings)),
        findings=tuple(findings),
    )


def _outcome(launch: Launch, faults: list[Finding]) -> Outcome:
    if faults:
        hung = faults[0].cause is not None and faults[0].cause.startswith(
            ("hang.", "dist.collective_timeout")
        )
        return Outcome.HUNG if hung else Outcome.CRASHED
    if stopped_at(launch) is not None:
        return Outcome.STOPPED
    if launch.serves is not None:
        return Outcome.READY
    if trouble(launch, grave=True):
        return Outcome.UNKNOWN
    return Outcome.STARTING if launch.reached else Outcome.UNKNOWN


def _verdict(
    outcome: Outcome, cause: str, phase: str | None, chief: Finding | None, findings: list[Finding]
) -> tuple[str, str]:
    """Return what happened, and what to do or what is known of it."""
    if outcome in (Outcome.CRASHED, Outcome.HUNG) and chief is not None:
        where = f", {STANDS[phase]}" if phase else ""
        return f"{outcome.value}{where}; cause: {CAUSE_TITLES[cause]}", chief.fix or chief.message
    if chief is not None:
        return f"{outcome.value}, but {_uncapitalised(chief.message)}", ""
    odd = next((one for one in findings if one.code == "E003" and one.severity is Severity.WARNING), None)
    doubt = _uncapitalised(odd.message) if odd else ""
    if outcome is Outcome.READY:
        return f"ready: the server serves{'' if odd else ' and the log shows no fault'}", doubt
    if outcome is Outcome.STOPPED:
        return (
            f"stopped: an orderly shutdown was asked for{'' if odd else ', and no fault came first'}",
            doubt,
        )
    if outcome is Outcome.STARTING and phase is not None:
        return f"starting: the log ends {STANDS[phase]} and shows no fault", ""
    return "undecided: no line of this log shows how the server fared", doubt


def _uncapitalised(text: str) -> str:
    """Return a sentence as the second half of another: its first word small, unless it is a name."""
    return text[0].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def _limits(launch: Launch) -> list[str]:
    """Return what this log cannot show, and which line is missing for it."""
    out = []
    if launch.frames["server_args"].is_empty() and (launch.ranks or launch.reached):
        out.append(
            "no server_args line: how many ranks there should be, and with which arguments, is not known"
        )
    elif launch.args_cut:
        out.append("the server_args line is cut: arguments behind the cut are not known")
    if launch.lines.height < _FEW_LINES and launch.reached and "arguments" not in launch.reached:
        count = "1 line" if launch.lines.height == 1 else f"{launch.lines.height} lines"
        out.append(
            f"{launch.path} has {count} only, as a grep leaves them: what came before and after is not known"
        )
    if not launch.lines.is_empty() and launch.lines["time"].drop_nulls().is_empty():
        out.append("no dated time stamps: durations are not known")
    return out
