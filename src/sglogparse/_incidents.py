"""Many logs, each with its verdict: those that hold parts of one launch or deployment are one incident.

a log of several files --> Part of each (reports, facts, and no line) --> Incident ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sglogparse._cheap import dataclass
from sglogparse._damage import newest_first, unread
from sglogparse._deployment import Facts, Group, deployments, facts_of, grouped
from sglogparse._report import Diagnosis, FileReport, Incident, Job, LaunchReport
from sglogparse._split import read_launches
from sglogparse._verdict import file_reports, job_of, judge, told, with_earlier

if TYPE_CHECKING:
    from sglogparse._log import Log


@dataclass(frozen=True)
class Part:
    """One log of many: its verdict for itself, and what tells with which others it belongs together."""

    file: FileReport
    reports: tuple[LaunchReport, ...]
    facts: tuple[Facts, ...]
    upside_down: bool
    partly: bool
    lost: bool


def read_parts(log: Log, trimmed: Callable[[LaunchReport], LaunchReport]) -> list[Part]:
    """Judge each file of a log for itself; of each report what `trimmed` leaves is kept, and no line.

    The limits of what each can show are not told.
    """
    own: dict[str, list[tuple[LaunchReport, Facts]]] = {one.path: [] for one in log.files}
    for launch in read_launches(log):
        own[launch.path].append((trimmed(judge(launch)), facts_of(launch).kept()))
    upside_down, partly = set(newest_first(log)), set(unread(log))
    return [
        Part(
            file,
            tuple(report for report, _ in own[file.path]),
            tuple(facts for _, facts in own[file.path]),
            index in upside_down,
            index in partly,
            bool(log.files[index].unread),
        )
        for index, file in enumerate(file_reports(log))
    ]


def incidents(parts: Sequence[Part], *, strict: bool = False) -> list[Incident]:
    """Return the verdict on each log, but on those together that hold parts of one launch or deployment.

    The logs lie in one place. `strict` asks of nodes, too, that they ran at one time.
    """
    files = {part.file.path: part.file for part in parts}
    reports = [report for part in parts for report in part.reports]
    facts = [one for part in parts for one in part.facts]
    groups = grouped(facts, strict=strict)
    joined = deployments(groups, facts)
    reports = told(
        reports,
        groups,
        {part.file.path for part in parts if part.upside_down},
        {part.file.path for part in parts if part.partly},
        {part.file.path for part in parts if part.lost},
    )
    heads = _heads(list(files), [one.path for one in facts], groups, joined)
    members: dict[str, list[FileReport]] = {}
    for path, file in files.items():
        members.setdefault(heads[path], []).append(file)
    own: dict[str, list[int]] = {head: [] for head in members}
    for number, one in enumerate(facts):
        own[heads[one.path]].append(number)
    mine: dict[str, list[Group]] = {head: [] for head in members}
    for group in groups:
        mine[heads[facts[group.members[0]].path]].append(group)
    return [_incident(tuple(members[head]), own[head], mine[head], facts, reports) for head in members]


def _heads(
    paths: list[str], launches: list[str], groups: list[Group], joined: Iterable[Iterable[int]]
) -> dict[str, str]:
    """Return of each file the first of those that hold parts of the same launches or deployments.

    `launches` are the files of the launches.
    """
    order = {path: number for number, path in enumerate(paths)}
    heads = dict(zip(paths, paths, strict=True))

    def head(path: str) -> str:
        while heads[path] != path:
            path = heads[path]
        return path

    for numbers in [*([number] for number in range(len(groups))), *joined]:
        found = {head(launches[one]) for number in numbers for one in groups[number].members}
        first = min(found, key=order.__getitem__)
        heads |= dict.fromkeys(found, first)
    return {path: head(path) for path in paths}


def _incident(
    files: tuple[FileReport, ...],
    own: list[int],
    groups: list[Group],
    facts: list[Facts],
    reports: list[LaunchReport],
) -> Incident:
    """Return the verdict on some of the launches, by their numbers, as if there were no others."""
    place = {number: index for index, number in enumerate(own)}
    mine = [replace(one, members=tuple(place[number] for number in one.members)) for one in groups]
    parts = [reports[one] for one in own]
    jobs = tuple(job_of([parts[one] for one in group.members], group) for group in mine)
    chief = with_earlier(parts, mine) if parts else None
    times = [told.last for told in (facts[one].stamps for one in own) if told is not None]
    joined = _joined(jobs) if len(files) > 1 else None
    roles = frozenset(job.role for job in jobs if job.role is not None)
    lacks = 0 < len(roles) < len(_ROLES) or any(
        _lacks_nodes([facts[own[one]] for one in group.members]) for group in mine
    )
    diagnosis = Diagnosis(files, tuple(parts), chief, (), jobs)
    return Incident(diagnosis, max(times, default=None), joined, roles, lacks)


#: The servers of a deployment.
_ROLES = ("prefill", "decode", "router")


def _lacks_nodes(facts: Sequence[Facts]) -> bool:
    """Tell whether a launch has more nodes than there are logs of."""
    nodes = facts[0].argument("nnodes")
    return isinstance(nodes, int) and len({one.argument("node_rank") for one in facts}) < nodes


def _joined(jobs: Iterable[Job]) -> str:
    """Return why several files are one incident, in words."""
    roles: dict[str, list[str]] = {}
    reasons: list[str] = []
    for job in jobs:
        files = dict.fromkeys(file for file, _, _ in job.members)
        named = roles.setdefault(job.role or "server", [])
        named += [file for file in files if file not in named]
        reasons += [job.reason] if len(files) > 1 else []
    if len(roles) > 1:
        told = "; ".join(f"{role}: {', '.join(files)}" for role, files in roles.items())
        reasons.insert(0, f"servers of one deployment, by their roles and times ({told})")
    return "; ".join(dict.fromkeys(reasons))
