"""JUnit XML: a test suite a launch (of several nodes, one), in it a case `outcome` and one a family of rules.

    <testsuites name="sglogparse" tests failures errors time>
      <testsuite name="server.log:1-112" ...>
        <properties/>                                          outcome, cause, ranks, releases
        <testcase classname="server.log" name="outcome">       failure: crashed or hung; error: undecided;
                                                               skipped: known, by the baseline
        <testcase classname="server.log" name="memory">        failure: findings that are errors
          <system-out>                                         warnings and information

Equal findings of a launch are one, with how often and on which ranks. The structure is that of Jenkins' and
Ant's schemas (what both allow): GitLab, Azure and GitHub read it, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sglogparse._ranks import rank_list
from sglogparse._report import Diagnosis, LaunchReport, Outcome, Severity
from sglogparse._safe import plain, tame
from sglogparse.render._families import FAMILIES
from sglogparse.render._rows import Row, cut, rows_of, span_of

_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
#: Lines that prove a finding, in a test case; the others are counted.
_PROOFS = 5
#: Files of a launch that a suite is named after.
_FILES = 4
_FAILED = (Outcome.CRASHED, Outcome.HUNG)


def render_junit(
    diagnosis: Diagnosis, width: int = 0, colour: bool = False, exit_code: int | None = None
) -> str:
    """Return the XML document; of an empty log with a suite that says so."""
    starts = _starts(diagnosis)
    suites = [_suite(diagnosis, parts, number, starts) for number, parts in enumerate(starts)]
    if not suites:
        case = _case("sglogparse", "outcome", 0.0, _element("error", cut(diagnosis.summary), "undecided", []))
        name = diagnosis.files[0].path if diagnosis.files else "no log"
        suites = [_of_cases(name, 0, 0.0, {}, [case])]
    counts = [sum(suite[1][index] for suite in suites) for index in range(3)]
    time = sum(map(_time, starts))
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<testsuites name="sglogparse" tests="{counts[0]}" failures="{counts[1]}" errors="{counts[2]}" '
            f'time="{time:.3f}">',
            *(suite[0] for suite in suites),
            "</testsuites>",
        ]
    )


#: A start: the launches of the files that hold parts of it.
_Start = list[LaunchReport]


def _starts(diagnosis: Diagnosis) -> list[_Start]:
    """Return the starts; of the launch that speaks for the log what it says of the others, too."""
    chief = diagnosis.chief
    launches = {
        span_of(one): chief if chief and span_of(one) == span_of(chief) else one for one in diagnosis.launches
    }
    order = {span: number for number, span in enumerate(launches)}
    joined = [[span for span in job.members if span in order] for job in diagnosis.jobs]
    alone = launches.keys() - {span for spans in joined for span in spans}
    spans = sorted(
        filter(None, [*joined, *([span] for span in alone)]), key=lambda one: min(map(order.__getitem__, one))
    )
    return [[launches[span] for span in one] for one in spans]


def _time(parts: _Start) -> float:
    return max((one.duration or 0.0 for one in parts), default=0.0)


def _speaker(diagnosis: Diagnosis, parts: _Start) -> LaunchReport:
    """Return the part of a start that speaks for it."""
    chief = diagnosis.chief
    if chief is not None and any(span_of(one) == span_of(chief) for one in parts):
        return chief
    told = {span: job.outcome for job in diagnosis.jobs for span in job.members}
    return next((one for one in parts if one.outcome is told.get(span_of(one))), parts[0])


_Suite = tuple[str, tuple[int, int, int]]


def _suite(diagnosis: Diagnosis, parts: _Start, number: int, starts: list[_Start]) -> _Suite:
    launch = _speaker(diagnosis, parts)
    name = ", ".join(f"{one.file}:{one.first_line}-{one.last_line}" for one in parts[:_FILES])
    name += f" and {len(parts) - _FILES} more" if len(parts) > _FILES else ""
    # services compare runs by the names of their cases: no line numbers in them
    file = parts[0].file
    start = sum(one[0].file == file for one in starts[: number + 1])
    group = file if start == 1 else f"{file}, start {start}"
    cases = [_outcome(diagnosis, launch, group, _time(parts))]
    rows = rows_of(replace(diagnosis, launches=tuple(parts), chief=launch))
    for letter, family in FAMILIES.items():
        # the parts of a start are one launch
        found = [replace(one, launches=1) for one in rows if one.finding.code.startswith(letter)]
        errors = [one for one in found if one.finding.severity is Severity.ERROR]
        body = ""
        if errors:
            told = "; ".join(f"{one.finding.code} {_said(one)}" for one in errors)
            lines = [line for one in errors for line in _told(one)]
            first = errors[0].finding
            body = _element("failure", cut(told), first.cause or first.name, lines)
        rest = [line for one in found if one.finding.severity is not Severity.ERROR for line in _told(one)]
        body += f"<system-out>{_text(rest)}</system-out>" if rest else ""
        cases.append(_case(group, family, 0.0, body))
    properties = {
        "outcome": launch.outcome.value,
        "cause": launch.cause,
        "ranks": ", ".join(rank_list(rank for one in parts for rank in one.ranks)),
        "releases": next((one.version_window for one in (launch, *parts) if one.version_window), ""),
    }
    return _of_cases(name, number, _time(parts), properties, cases)


def _outcome(diagnosis: Diagnosis, launch: LaunchReport, group: str, time: float) -> str:
    text = f"{launch.headline}; {launch.action}" if launch.action else launch.headline
    speaks = diagnosis.chief is not None and span_of(diagnosis.chief) == span_of(launch)
    failed = launch.outcome in _FAILED
    undecided = launch.outcome not in (Outcome.READY, Outcome.STOPPED) or launch.cause == "unknown"
    lines = [f"{launch.root.file}:{launch.root.line}: {launch.root.message}"] if launch.root else []
    if speaks and diagnosis.verdict_known:
        body = f'<skipped message="{_escaped(f"known: {cut(text)}")}"/>'
    elif failed or undecided:
        body = _element("failure" if failed else "error", cut(text), launch.cause, lines)
    else:
        body = f"<system-out>{_text([text, *launch.vitals])}</system-out>"
    return _case(group, "outcome", time, body)


def _said(row: Row) -> str:
    """Return the message of a finding in a few words, with its spread."""
    return cut(row.finding.message, 500) + (f" [{row.spread}]" if row.spread else "")


def _told(row: Row) -> list[str]:
    """Return what a finding says, in lines."""
    finding = row.finding
    out = [f"{finding.code} {finding.name} {finding.severity.value}: {row.message}"]
    out += [f"fix: {finding.fix}"] if finding.fix else []
    shown = finding.evidence[:_PROOFS]
    out += [f"{one.file}:{one.line}: {one.message}" for one in shown]
    left = len(finding.evidence) - len(shown)
    return out + ([f"(+{left} more line{'' if left == 1 else 's'})"] if left else [])


def _of_cases(name: str, number: int, time: float, properties: dict[str, str], cases: list[str]) -> _Suite:
    counts = tuple(sum(f"<{kind}" in case for case in cases) for kind in ("failure", "error", "skipped"))
    head = (
        f'  <testsuite name="{_escaped(plain(name))}" id="{number}" tests="{len(cases)}" '
        f'failures="{counts[0]}" errors="{counts[1]}" skipped="{counts[2]}" time="{time:.3f}">'
    )
    told = [
        f'      <property name="{key}" value="{_escaped(cut(value))}"/>'
        for key, value in properties.items()
        if value  # what the log does not say is absent
    ]
    lines = [head, "    <properties>", *told, "    </properties>", *cases, "  </testsuite>"]
    return "\n".join(lines), (len(cases), counts[0], counts[1])


def _case(group: str, name: str, time: float, body: str) -> str:
    head = f'    <testcase classname="{_escaped(plain(group))}" name="{_escaped(name)}" time="{time:.3f}"'
    return f"{head}>{body}</testcase>" if body else f"{head}/>"


def _element(kind: str, message: str, cause: str, lines: list[str]) -> str:
    told = f'type="{_escaped(plain(cause) or kind)}" message="{_escaped(message or kind)}"'
    return f"<{kind} {told}>{_text(lines)}</{kind}>"


def _text(lines: Iterable[str]) -> str:
    return "\n".join(_escaped(tame(cut(one))) for one in lines)


def _escaped(text: str) -> str:
    """Return plain text for XML, in an element or in quotes."""
    return "".join(_ESCAPES.get(char, char) for char in tame(text))
