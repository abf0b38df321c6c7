"""From findings to a verdict: outcome, cause, first fault, what to change, and what the log cannot show.

launches --> rules --> per launch: outcome + cause + root --> per job --> over all jobs: the one that counts
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from sglogparse._damage import damage, newest_first, unread
from sglogparse._deployment import Group, read_groups
from sglogparse._derived import Whole, telling
from sglogparse._detail import detail_of
from sglogparse._echoes import Role
from sglogparse._faults import begins, faults, last_progress, stopped_at, trouble
from sglogparse._launches import STANDS, Launch, first_line, stamps
from sglogparse._phases import seconds
from sglogparse._release import version_window
from sglogparse._report import (
    Diagnosis,
    Evidence,
    FileReport,
    Finding,
    Job,
    LaunchReport,
    Outcome,
    Severity,
    Step,
)
from sglogparse._router import router_ready, router_serves
from sglogparse._split import read_launches
from sglogparse._vitals import vitals
from sglogparse.causes import CAUSE_TITLES, Confidence
from sglogparse.causes._evidence import advice
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


#: Launches that are more than one process has to judge.
_MANY = 300


def diagnose(log: Log, processes: int = 1) -> Diagnosis:
    """Judge a log; many launches in so many processes."""
    launches = read_launches(log)
    groups = read_groups(launches)
    upside_down, partly = newest_first(log), unread(log)
    lost = [one for file in log.files for one in file.unread]
    reports = _judged(
        log, launches, groups, upside_down, partly, [one.path for one in log.files if lost], processes
    )
    starts = Counter(launch.path for launch in launches)
    limited = [one for launch in launches for one in _limits(launch, alone=starts[launch.path] == 1)]
    limits = tuple(dict.fromkeys([*lost, *_thinned(log), *damage(log, upside_down, partly), *limited]))
    jobs = tuple(job_of([reports[one] for one in group.members], group) for group in groups)
    chief = with_earlier(reports, groups) if reports else None
    return Diagnosis(file_reports(log), tuple(reports), chief, limits, jobs, partly_read=bool(lost))


def _judged(
    log: Log,
    launches: list[Launch],
    groups: list[Group],
    upside_down: Iterable[int],
    partly: Iterable[int],
    lost: Iterable[str],
    processes: int = 1,
) -> list[LaunchReport]:
    """Return the reports on launches, with what their files and the other parts of their jobs say of them.

    `lost` are the files beside which, or within which, something could not be read.
    """
    judged = None
    if processes > 1 and len(launches) >= _MANY:
        from sglogparse._judging import judged_apart

        judged = judged_apart(log, launches, processes)
    paths = [file.path for file in log.files]
    reports = [judge(launch) for launch in launches] if judged is None else judged
    turned, unsure = ({paths[one] for one in indices} for indices in (upside_down, partly))
    return told(reports, groups, turned, unsure, set(lost))


def told(
    reports: list[LaunchReport],
    groups: list[Group],
    upside_down: Container[str],
    partly: Container[str],
    lost: Container[str],
) -> list[LaunchReport]:
    """Return reports with what the other parts of their jobs say of them, and what is not read of files."""
    reports = _together(reports, groups)
    for change, paths in ((_undecided, upside_down), (_partly_read, partly)):
        reports = [change(one) if one.file in paths else one for one in reports]
    said = "as far as the logs could be read"
    return [_partly_read(one, said) if one.file in lost else one for one in reports]


def file_reports(log: Log) -> tuple[FileReport, ...]:
    """Return what was read of each file, and how many of its lines nothing takes."""
    counts = log.unparsed_counts()
    return tuple(
        FileReport(one.path, one.lines, one.bytes, counts.get(index, 0), one.replaced_bytes, one.notes)
        for index, one in enumerate(log.files)
    )


def _thinned(log: Log) -> list[str]:
    """Say of a log that is not kept whole how much of it was judged."""
    if log.counts is None:
        return []
    bulk = log.counts.filter(pl.col("dropped") > 0).group_by("kind").agg(pl.col("total", "dropped").sum())
    most = bulk.sort("dropped", "kind", descending=[True, False]).head(3)
    told = [
        f"{total - dropped:,} of {total:,} {(kind or 'other').replace('_', ' ')} lines"
        for kind, total, dropped in most.iter_rows()
    ]
    return [
        "all lines were read, and of those that repeat a part was judged, which is what findings count: "
        + ", ".join(told)
    ]


#: Which outcome of the parts of one job is the job's: the worst that is certain.
_CERTAIN = (
    Outcome.CRASHED,
    Outcome.HUNG,
    Outcome.STOPPED,
    Outcome.READY,
    Outcome.STARTING,
    Outcome.UNKNOWN,
)
#: How far a part must have come for the readiness of the whole to be its own.
_UP = ("memory pools", "capacity known", "warm-up", "serving")


def _together(reports: list[LaunchReport], groups: list[Group]) -> list[LaunchReport]:
    """Return the reports with what the parts of a job say of one another: only one of them prints ready.

    The first node answers its warm-up with all ranks, so the others serve by then.
    """
    out = list(reports)
    for group in groups:
        parts = [reports[one] for one in group.members]
        if not any(
            one.outcome in (Outcome.READY, Outcome.STOPPED) and "ready" in one.phases for one in parts
        ):
            continue
        first = parts[0].file if "ready" in parts[0].phases else "another file"
        for number, part in zip(group.members, parts, strict=True):
            if part.outcome is Outcome.STARTING and part.phase in _UP:
                said = f"ready: {first} shows that this launch serves, and this part of it shows no fault"
                out[number] = replace(part, outcome=Outcome.READY, headline=said)
    return out


def job_of(parts: list[LaunchReport], group: Group) -> Job:
    """Return what launches that belong together are as one: the outcome is the worst of theirs."""
    members = tuple((one.file, one.first_line, one.last_line) for one in parts)
    return Job(members, group.kind, group.role, group.reason, _worst(parts).outcome, group.offsets)


def _worst(parts: list[LaunchReport]) -> LaunchReport:
    return min(parts, key=lambda one: _CERTAIN.index(one.outcome))


def _partly_read(report: LaunchReport, said: str = "as far as its lines are read") -> LaunchReport:
    """Return the report of a file of which not all is read: what is good in it is not certain."""
    if report.outcome not in (Outcome.READY, Outcome.STOPPED) or report.cause != "none":
        return report
    headline = report.headline.removesuffix(" and the log shows no fault").removesuffix(
        ", and no fault came first"
    )
    return replace(report, cause="unknown", headline=f"{headline}, {said}")


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
        detail=None,
        stop=None,
        chief=None,
        vitals=(),
        findings=(),
    )


#: Below this many lines a log without its beginning is an excerpt.
_FEW_LINES = 20


#: Causes that name what followed from a fault elsewhere, or nothing: another file's fault speaks first.
_WEAK = ("unknown", "process.killed", "dist.peer_lost")


def _chief(reports: list[LaunchReport], groups: list[Group]) -> LaunchReport:
    """Return the launch that speaks for the log: of each file the last one, of the jobs the worst.

    Of a job speaks the part whose outcome is the job's. Among those that ended alike, one that names a cause
    of its own comes first, then the earliest fault, by the clock of the job's first file.
    """
    last = {report.file: number for number, report in enumerate(reports)}
    ranked = []
    for group in groups:
        members = [one for one in group.members if one in last.values()]
        if not members:
            continue
        outcome = _worst([reports[one] for one in members]).outcome
        for number in members:
            report = reports[number]
            if report.outcome is not outcome:
                continue
            ahead = dt.timedelta(seconds=group.offset_of(report.file))
            time = report.fault_time - ahead if report.fault_time else dt.datetime.min
            weak = report.cause in _WEAK
            rank = (_PRECEDENCE.index(outcome), weak, report.fault_time is None, time, number)
            ranked.append((rank, report))
    return min(ranked, key=lambda one: one[0])[1]


def with_earlier(reports: list[LaunchReport], groups: list[Group]) -> LaunchReport:
    """Return the launch that speaks for the log, and say of a good one which launch failed before it."""
    chief = _chief(reports, groups)
    failed = [one for one in reports if one.outcome in (Outcome.CRASHED, Outcome.HUNG)]
    if chief in failed or not failed:
        return chief
    earlier = failed[-1]
    told = f"an earlier launch (lines {earlier.first_line}-{earlier.last_line}) {earlier.summary}"
    headline = chief.headline
    for claim in (" and the log shows no fault", ", and no fault came first", " and shows no fault"):
        headline = headline.removesuffix(claim)
    return replace(chief, headline=headline, action="; ".join(filter(None, (chief.action, told))))


#: Rules whose warnings say that something failed, and not what.
_DOUBTS = ("E003", "R001")


def judge(launch: Launch) -> LaunchReport:
    """Return the report on one launch, as if there were no others."""
    order = {rule.code: index for index, rule in enumerate(RULES)}
    findings = sorted(
        (finding for rule in RULES for finding in rule(launch)),
        key=lambda one: (one.severity.rank, -one.weight, order[one.code]),
    )
    fault = [one for one in findings if one.root and one.fatal and one.severity is Severity.ERROR]
    outcome = _outcome(launch, fault, findings)
    chief = fault[0] if fault else next((one for one in findings if one.severity is Severity.ERROR), None)
    chief = chief or next((one for one in findings if one.severity is Severity.WARNING and one.cause), None)
    if outcome in (Outcome.CRASHED, Outcome.HUNG):
        cause = next((one.cause for one in fault if one.cause and one.cause != "unknown"), "unknown")
    elif outcome in (Outcome.READY, Outcome.STOPPED):
        doubt = any(one.code in _DOUBTS and one.severity is Severity.WARNING for one in findings)
        named = [one.cause for one in findings if one.cause and one.severity is not Severity.INFO]
        cause = named[0] if named else "unknown" if doubt else "none"
    else:
        lost = outcome is Outcome.UNKNOWN and trouble(launch, grave=bool(launch.reached))
        named = [one.cause for one in findings if one.cause and one.severity is Severity.ERROR]
        # a line that says so itself names the cause of a start that went no further
        named += [
            one.cause
            for one in findings
            if one.cause and one.severity is Severity.WARNING and one.code in _DOUBTS
        ]
        cause = named[0] if named else "unknown" if lost else "none"
    decisive = fault or [one for one in findings if one.cause == cause and one.severity is not Severity.INFO]
    if not decisive and cause == "unknown":  # the line that is most likely to matter
        decisive = [one for one in findings if one.code in _DOUBTS and one.root]
    root = min((one.root for one in decisive if one.root), default=None)
    told = next((one.phase for one in fault if one.phase and one.root == root), None)
    phase = told or (launch.phase_at(root.line, root.rank) if root else next(reversed(launch.reached), None))
    if cause == "memory.kv_budget":
        phase = "KV cache set-up"  # only there is the budget computed, whichever lines the log lacks
    detail = detail_of(launch, root) if root else None
    asked = stopped_at(launch)
    stop = None if asked is None or outcome is not Outcome.STOPPED else launch.evidence(asked)
    confidence, runner_up = _confidence(cause, [*fault, *findings])
    fix = (chief.fix or advice(launch, cause)) if chief else None
    headline, action = _verdict(outcome, cause, phase, chief, findings, fix, confidence)
    gone = None
    if chief is None:
        left = first_line(_gone(launch), last_progress(launch)) if outcome is Outcome.STARTING else None
        gone = None if left is None else launch.evidence(left)
        headline, action = _honest(launch, outcome, findings, headline, action, gone)
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
        fix=fix,
        root=root,
        fault_time=launch.stamps_at(root.line)[0] if root else None,
        chief=chief,
        vitals=tuple(vitals(launch, root, findings, detail, stop)),
        findings=tuple(findings),
        confidence=confidence,
        runner_up=runner_up,
        detail=detail,
        stop=stop,
        gone=gone,
        cascade=_cascade(launch, root) if root and fault else (),
    )


def _cascade(launch: Launch, root: Evidence) -> tuple[Step, ...]:
    """Return what followed from a fault: the faults behind it, and the parent's word that a child failed."""
    told = {one.root_line: (one.rank, one.role.value, one.why) for one in faults(launch)}
    for line in launch.frames["sigquit"]["line"]:
        told[line] = (None, Role.ECHO.value, "the parent ends the others when a child has failed")
    told.pop(root.line, None)
    stamps = launch.lines["time"].forward_fill()
    times = {line: stamps[launch.row(line)] for line in told}
    lines = list(launch.evidences(told))
    if None not in times.values():
        lines.sort(key=lambda one: times[one.line])
    out = []
    for line in lines:
        rank, role, why = told[line.line]
        out.append(Step(replace(line, rank=line.rank or rank), role, why))
    return tuple(out)


def _confidence(cause: str, findings: list[Finding]) -> tuple[Confidence | None, str | None]:
    """Return how sure a cause is, by the finding that names it, and the cause that comes close."""
    named = next((one for one in findings if one.cause == cause), None)
    if named is None or cause in ("none", "unknown"):
        return None, None
    said = Confidence("certain", f"its own line says it ({named.code} {named.name})")
    return named.confidence or said, named.runner_up


def _outcome(launch: Launch, faults: list[Finding], findings: list[Finding]) -> Outcome:
    if faults:
        hung = faults[0].cause is not None and faults[0].cause.startswith(
            ("hang.", "dist.collective_timeout")
        )
        return Outcome.HUNG if hung or _lives_on(launch, faults) else Outcome.CRASHED
    if stopped_at(launch) is not None:
        return Outcome.STOPPED
    if launch.serves is not None or router_ready(launch) is not None or router_serves(launch):
        return Outcome.READY
    if trouble(launch, grave=bool(launch.reached)) or (not launch.reached and _fails(findings)):
        return Outcome.UNKNOWN
    return Outcome.STARTING if launch.reached or begins(launch) is not None else Outcome.UNKNOWN


#: How long health checks must fail after a fault before the process is said to live on and hang, s.
_LIVES_ON = 60.0


def _lives_on(launch: Launch, faults: list[Finding]) -> bool:
    """Tell whether the server's process lived on after a rank's fault, and answered nothing any more.

    Nothing has ended: no signal, no exit code; and health checks fail, again and again.
    """
    line = min(one.root.line for one in faults if one.root)
    behind = pl.col("line") > line
    ended = ("sigquit", "process_exit", "sigterm", "kill_tree", "child_terminated")
    if any(not launch.frames[kind].filter(behind).is_empty() for kind in ended):
        return False
    access = launch.frames["http_access"].filter(behind & (pl.col("method") == "GET"))
    failed = [
        launch.frames["health_check_failed"].filter(behind)["line"],
        access.filter((pl.col("status") >= 500) & pl.col("path").str.starts_with("/health"))["line"],
    ]
    lines = sorted(number for some in failed for number in some)
    if (
        len(lines) < 2
        or not access.filter(pl.col("line") > lines[-1]).filter(pl.col("status") < 300).is_empty()
    ):
        return False
    at = seconds(launch)
    first, last = at[launch.row(lines[0])], at[launch.row(lines[-1])]
    return first is not None and last is not None and last - first >= _LIVES_ON


def _fails(findings: list[Finding]) -> bool:
    """Tell whether a rule names an error of a process that no fault has ended."""
    return any(one.root and not one.fatal and one.severity is Severity.ERROR for one in findings)


def _verdict(
    outcome: Outcome,
    cause: str,
    phase: str | None,
    chief: Finding | None,
    findings: list[Finding],
    fix: str | None,
    confidence: Confidence | None = None,
) -> tuple[str, str]:
    """Return what happened, and what to do or what is known of it."""
    if outcome in (Outcome.CRASHED, Outcome.HUNG) and chief is not None:
        where = f", {STANDS[phase]}" if phase else ""
        action = fix or chief.message
        sure = "" if confidence is None or confidence.word == "certain" else f" ({confidence.word})"
        return f"{outcome.value}{where}; cause{sure}: {CAUSE_TITLES[cause]}", action
    if chief is not None:
        return f"{outcome.value}, but {_uncapitalised(chief.message)}", fix or ""
    odd = next((one for one in findings if one.code in _DOUBTS and one.severity is Severity.WARNING), None)
    doubt = _uncapitalised(odd.message) if odd else ""
    if outcome is Outcome.READY:
        return f"ready: the server serves{'' if odd else ' and the log shows no fault'}", doubt
    if outcome is Outcome.STOPPED:
        return (
            f"stopped: an orderly shutdown was asked for{'' if odd else ', and no fault came first'}",
            doubt,
        )
    words = next((one for one in findings if one.code == "E003"), None)
    if outcome is Outcome.STARTING:
        stands = f"the log ends {STANDS[phase]}" if phase else "the log shows the beginning of a start"
        if words is not None:
            return f"starting: {stands}", _uncapitalised(words.message)
        return f"starting: {stands} and {'shows ' if phase else ''}no fault", ""
    if words is not None:
        return f"undecided: the line most likely to matter is {words.evidence[0].line}", doubt
    return "undecided: no line of this log shows how the server fared", doubt


#: What Python's resource tracker prints when the processes that it serves are gone without having tidied up.
_GONE = r"resource_tracker: There appear to be [0-9]+ leaked"


def _honest(
    launch: Launch,
    outcome: Outcome,
    findings: list[Finding],
    headline: str,
    action: str,
    gone: Evidence | None,
) -> tuple[str, str]:
    """Return a verdict without a fault with what it stands on, where that is less than one would think."""
    told = next((one.message for one in findings if one.code == "E003"), "")
    count = re.match(r"(?:more than )?[0-9]+ lines? speaks? of failures", told)
    clean = " and the log shows no fault"
    if outcome is Outcome.READY and headline.endswith(clean):
        seen = launch.serves
        shown = launch.frames["ready"].is_empty() and seen is not None and router_ready(launch) is None
        if count:
            headline = f"{headline.removesuffix(clean)}; no rule finds a fault, but {count[0]}"
        if shown and count:
            action = action or f"no ready line is in the log: that it serves is shown by line {seen}"
    if gone is not None:
        headline = (
            f"{headline.removesuffix(' and shows no fault')}, and its process is gone (line "
            f"{gone.line}); the log does not say why"
        )
        action = action or "see `dmesg -T | grep -i oom`, the exit code, and whether somebody stopped it"
    return headline, action


@telling
def _gone(whole: Whole) -> pl.DataFrame:
    """Return the lines that show that processes are gone."""
    said = pl.col("message").str.contains(_GONE)
    return whole.records.select("line", "message").with_row_index("row").filter(said)


def _uncapitalised(text: str) -> str:
    """Return a sentence as the second half of another: its first word small, unless it is a name."""
    return text[0].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def _limits(launch: Launch, *, alone: bool) -> list[str]:
    """Return what this log cannot show, and which line is missing for it."""
    out = []
    if launch.frames["server_args"].is_empty() and (launch.ranks or launch.reached):
        out.append(
            "no server_args line: how many ranks there should be, and with which arguments, is not known"
        )
    elif launch.args_cut:
        out.append("the server_args line is cut: arguments behind the cut are not known")
    few = alone and launch.lines.height < _FEW_LINES
    if few and launch.reached and "arguments" not in launch.reached:
        count = "1 line" if launch.lines.height == 1 else f"{launch.lines.height} lines"
        out.append(
            f"{launch.path} has {count} only, as a grep leaves them: what came before and after is not known"
        )
    if not launch.lines.is_empty() and stamps(launch) is None:
        out.append("no dated time stamps: durations are not known")
    return out
