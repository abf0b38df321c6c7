"""JUnit XML: a test suite a launch, in it a test case `outcome` and one a family of rules.

    <testsuites name="sglogparse" tests failures errors time>
      <testsuite name="server.log:1-112" ...>
        <properties/>                                          outcome, cause, ranks, releases
        <testcase classname="server.log" name="outcome">       failure: crashed or hung; error: undecided;
                                                               skipped: known, by the baseline
        <testcase classname="server.log" name="memory">        failure: findings that are errors
          <system-out>                                         warnings and information

The structure is that of Jenkins' and Ant's schemas (what both allow): GitLab, Azure and GitHub read it, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from sglogparse._report import Diagnosis, Finding, LaunchReport, Outcome, Severity
from sglogparse._safe import plain, tame
from sglogparse.render._families import FAMILIES
from sglogparse.render._rows import cut, span_of

_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
#: Lines that prove a finding, in a test case; the others are counted.
_PROOFS = 5
_FAILED = (Outcome.CRASHED, Outcome.HUNG)


def render_junit(
    diagnosis: Diagnosis, width: int = 0, colour: bool = False, exit_code: int | None = None
) -> str:
    """Return the XML document; of an empty log with a suite that says so."""
    launches = _launches(diagnosis)
    suites = [_suite(diagnosis, launch, number, launches) for number, launch in enumerate(launches)]
    if not suites:
        case = _case("sglogparse", "outcome", 0.0, _element("error", cut(diagnosis.summary), "undecided", []))
        name = diagnosis.files[0].path if diagnosis.files else "no log"
        suites = [_of_cases(name, 0, 0.0, {}, [case])]
    counts = [sum(suite[1][index] for suite in suites) for index in range(3)]
    time = sum(launch.duration or 0.0 for launch in diagnosis.launches)
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<testsuites name="sglogparse" tests="{counts[0]}" failures="{counts[1]}" errors="{counts[2]}" '
            f'time="{time:.3f}">',
            *(suite[0] for suite in suites),
            "</testsuites>",
        ]
    )


def _launches(diagnosis: Diagnosis) -> list[LaunchReport]:
    """Return the launches; of the one that speaks for the log what it says of the others, too."""
    chief = diagnosis.chief
    return [chief if chief and span_of(one) == span_of(chief) else one for one in diagnosis.launches]


_Suite = tuple[str, tuple[int, int, int]]


def _suite(diagnosis: Diagnosis, launch: LaunchReport, number: int, launches: list[LaunchReport]) -> _Suite:
    name = f"{launch.file}:{launch.first_line}-{launch.last_line}"
    # services compare runs by the names of their cases: no line numbers in them
    start = sum(one.file == launch.file for one in launches[: number + 1])
    group = launch.file if start == 1 else f"{launch.file}, start {start}"
    cases = [_outcome(diagnosis, launch, group)]
    for letter, family in FAMILIES.items():
        found = [one for one in launch.findings if one.code.startswith(letter)]
        errors = [one for one in found if one.severity is Severity.ERROR]
        body = ""
        if errors:
            told = "; ".join(f"{one.code} {cut(one.message, 500)}" for one in errors)
            lines = [line for one in errors for line in _told(one)]
            body = _element("failure", cut(told), errors[0].cause or errors[0].name, lines)
        rest = [line for one in found if one.severity is not Severity.ERROR for line in _told(one)]
        body += f"<system-out>{_text(rest)}</system-out>" if rest else ""
        cases.append(_case(group, family, 0.0, body))
    properties = {
        "outcome": launch.outcome.value,
        "cause": launch.cause,
        "ranks": ", ".join(launch.ranks),
        "releases": launch.version_window or "",
    }
    return _of_cases(name, number, launch.duration or 0.0, properties, cases)


def _outcome(diagnosis: Diagnosis, launch: LaunchReport, group: str) -> str:
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
    return _case(group, "outcome", launch.duration or 0.0, body)


def _told(finding: Finding) -> list[str]:
    """Return what a finding says, in lines."""
    out = [f"{finding.code} {finding.name} {finding.severity.value}: {finding.message}"]
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
