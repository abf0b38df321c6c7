"""The report for a person at a terminal: verdict, fix, proof, the rest. Short.

crashed, during KV cache set-up; cause: KV budget negative (memory.kv_budget)      what happened
needs --mem-fraction-static above 0.770 (...)                                      what to change
first fault at line 49, 1 min 26 s after the first line; ranks TP0, TP2

server.log:49 TP0, and the same on TP2 (line 50)                                   the lines that prove it
  DEBUG profile_max_num_token: avail=21.708 GiB, ...

M001 error: ...                                                                    all findings on this launch
a.log:1-112: ready: ...                                                            the other launches

server.log: 112 lines; 8 ranks (TP0-TP7); 1 min 27 s from first to last stamp      what was read
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import PurePath

from sglogparse._ranks import rank_spread
from sglogparse._report import Diagnosis, Evidence, FileReport, Finding, Job, LaunchReport, Outcome, Severity
from sglogparse._safe import plain
from sglogparse._vitals import span
from sglogparse.render._rows import remarks_of
from sglogparse.render._wrap import wrap

_STYLES = {
    Outcome.READY: "bold green",
    Outcome.STOPPED: "bold green",
    Outcome.STARTING: "bold yellow",
    Outcome.CRASHED: "bold red",
    Outcome.HUNG: "bold red",
    Outcome.UNKNOWN: "bold yellow",
}
_SEVERITY = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
#: How many of each are shown; the JSON has all.
_PROOFS = 3
_FINDINGS = 5
_LAUNCHES = 5
_FILES = 8
_JOBS = 3
#: How many lines of the terminal a text from the log may take.
_ROWS = 4


class _Page:
    """The lines of the report, in order."""

    def __init__(self, width: int) -> None:
        self.parts: list[str] = []
        #: style, and from where to where in the text
        self.styles: list[tuple[str, int, int]] = []
        self._length = 0
        self._width = width

    def put(
        self, text: str, style: str = "", *, first: str = "", rest: str = "", most: int = 0, label: int = 0
    ) -> None:
        """Add a text, made plain and wrapped; a style with a label's length is for the label only."""
        start = self._length
        text = text[: most * self._width + 1] if most else text  # a line of a log can be as long as it likes
        for line in wrap(plain(text), self._width, first=first, rest=rest, most=most):
            if style and not label:
                self.styles.append((style, self._length, self._length + len(line)))
            self._add(f"{line}\n")
        if style and label:
            self.styles.append((style, start, start + label))

    def _add(self, text: str) -> None:
        self.parts.append(text)
        self._length += len(text)

    def gap(self) -> None:
        """Add an empty line between two parts."""
        if not "".join(self.parts[-2:]).endswith("\n\n"):
            self._add("\n")

    def more(self, left: int, what: str) -> None:
        """Say that something was left out, where it was."""
        if left > 0:
            self.put(f"(+{_count(left, f'more {what}')}: --output-format json)", "dim")


def render_text(
    diagnosis: Diagnosis, width: int = 80, colour: bool = False, exit_code: int | None = None
) -> str:
    """Return the report, wrapped at a width; log text is never markup."""
    page = _Page(width)
    names = _names(diagnosis.files)
    chief = diagnosis.chief
    if chief is None:
        page.put(diagnosis.summary, _STYLES[diagnosis.outcome])
    else:
        _verdict(page, chief)
        for remark in remarks_of(diagnosis):
            page.put(remark, "bold", rest="  ", most=_ROWS)
        if len(diagnosis.launches) > 1:
            page.put(f"this launch: {names[chief.file]}:{chief.first_line}-{chief.last_line}")
        page.gap()
        proven = _proofs(page, chief, names)
        page.gap()
        _findings(page, chief, names, proven)
        _others(page, diagnosis, names)
    page.gap()
    _read(page, diagnosis, names)
    return (_coloured(page, width) if colour else "".join(page.parts)).rstrip("\n")


def _coloured(page: _Page, width: int) -> str:
    # what has no colour needs no rich, which takes as long to import as a report to make
    from rich.console import Console
    from rich.text import Text

    text = Text("".join(page.parts))
    for style, start, end in page.styles:
        text.stylize(style, start, end)
    console = Console(
        file=(file := io.StringIO()),
        force_terminal=True,
        width=width,
        color_system="standard",
        legacy_windows=False,
    )
    console.print(text, end="", soft_wrap=True, highlight=False)
    return file.getvalue()


def _verdict(page: _Page, shown: LaunchReport) -> None:
    named = shown.outcome in (Outcome.CRASHED, Outcome.HUNG) and shown.cause != "unknown"
    other = f", or else {shown.runner_up}" if shown.runner_up else ""
    told = f" ({shown.cause}{other})" if named else ""
    page.put(shown.headline + told, _STYLES[shown.outcome], most=2 * _ROWS)
    if shown.action:
        page.put(shown.action, "bold", most=_ROWS)
    for line in shown.vitals:
        page.put(line)


def _proofs(page: _Page, shown: LaunchReport, names: dict[str, str]) -> set[Evidence]:
    """Show the lines of the finding that decides the verdict, and the first fault; return what was shown."""
    lines = list(shown.chief.evidence) if shown.chief else []
    if shown.root is not None:  # what was raised comes first, then what led to it and what reports it
        lines = [shown.root, *(line for line in lines if line != shown.root)]
    groups: dict[tuple[str, str], list[Evidence]] = {}
    for line in lines:  # lines that say the same, on other ranks, are one proof
        groups.setdefault((line.file, line.message), []).append(line)
    proofs = list(groups.values())[:_PROOFS]
    for first, *more in proofs:
        page.put(_place(first, names) + _repeated(more), "cyan", rest="  ")
        page.put(first.message, first="  ", rest="  ", most=_ROWS)
    page.more(len(groups) - len(proofs), "proof")
    return {line for proof in proofs for line in proof}


def _place(line: Evidence, names: dict[str, str]) -> str:
    return f"{names[line.file]}:{line.line}" + (f" {line.rank}" if line.rank else "")


def _repeated(lines: list[Evidence]) -> str:
    if not lines:
        return ""
    ranks = rank_spread(one.rank for one in lines)
    numbers = ", ".join(str(one.line) for one in lines[:4]) + (", ..." if len(lines) > 4 else "")
    where = f"and the same on {ranks}" if ranks else f"and {_count(len(lines), 'time')} more"
    return f", {where} (line{'s' if len(lines) > 1 else ''} {numbers})"


def _findings(page: _Page, shown: LaunchReport, names: dict[str, str], proven: set[Evidence]) -> None:
    """Show what the rules say, each with a line that proves it and with what to change.

    Not again what was shown before.
    """
    above = f"{shown.headline} {shown.action}".casefold()
    said = []
    for finding in shown.findings[:_FINDINGS]:
        proof = _unproven(finding, proven)
        place = "" if proof is None else f"line {proof.line}" if len(names) == 1 else _place(proof, names)
        # a fault is quoted by what is said of it; of any other line the text is shown below
        quoted = proof is not None and proof == finding.root
        named = proof is not None and _names_place(finding.message, proof)
        label = f"{finding.code} {finding.severity.value}{f' ({place})' if quoted and not named else ''}: "
        told = finding.message.casefold() in above
        fix = _untold_fix(finding, shown, above)
        if told and proof is None and not fix:  # nothing is left to say of it but its code
            said.append(f"{finding.code} {finding.severity.value}")
            continue
        message = "as said above" if told else finding.message
        page.put(label + message, _SEVERITY[finding.severity], rest="  ", most=_ROWS, label=len(label))
        if proof is not None and not quoted:
            page.put(f"{place}: {proof.message.strip()}", "dim", first="  ", rest="  ", most=1)
        if fix:
            page.put(f"fix: {fix}", first="  ", rest="    ", most=_ROWS)
            above += f" {fix}".casefold()
        proven |= {proof} if proof else set()
    if said:
        page.put(f"said above: {', '.join(said)}", "dim", rest="  ")
    page.more(len(shown.findings) - _FINDINGS, "finding")


def _untold_fix(finding: Finding, shown: LaunchReport, above: str) -> str:
    """Return what to change, unless that is told; beside a fault that ended it only its own fix counts."""
    ended = shown.outcome in (Outcome.CRASHED, Outcome.HUNG)
    return "" if ended or not finding.fix or finding.fix.casefold() in above else finding.fix


def _names_place(message: str, line: Evidence) -> bool:
    """Tell whether a message says itself where its line stands."""
    return f"({PurePath(line.file).name}:{line.line}): " in message or f"(line {line.line}): " in message


def _unproven(finding: Finding, proven: set[Evidence]) -> Evidence | None:
    """Return the line that a finding still has to show: its fault, or its first line if it has shown none."""
    if finding.root is not None:
        return finding.root if finding.root not in proven else None
    return None if proven.intersection(finding.evidence) else next(iter(finding.evidence), None)


def _others(page: _Page, diagnosis: Diagnosis, names: dict[str, str]) -> None:
    """Show the launches that do not speak for the log, the last ones first, in a line or two each."""
    chief = None if diagnosis.chief is None else _span(diagnosis.chief)
    # the one that speaks can say more than its own report: which launch failed before it
    others = [one for one in reversed(diagnosis.launches) if _span(one) != chief]
    alike: dict[tuple[str, str, str], list[LaunchReport]] = {}
    for one in others:
        codes = ", ".join(dict.fromkeys(finding.code for finding in one.findings))
        alike.setdefault((one.file, one.headline, codes), []).append(one)
    shown = list(alike.items())[:_LAUNCHES]
    for (file, headline, codes), (one, *more) in shown:
        page.put(
            f"{names[file]}:{one.first_line}-{one.last_line}: {headline}"
            + (f" ({codes})" if codes else "")
            + (f"; and {len(more)} more like it, from line {more[-1].first_line}" if more else ""),
            rest="  ",
            most=3,
        )
    page.more(len(others) - sum(len(found) for _, found in shown), "launch")


def _span(report: LaunchReport) -> tuple[str, int, int]:
    return report.file, report.first_line, report.last_line


def _read(page: _Page, diagnosis: Diagnosis, names: dict[str, str]) -> None:
    """Show what was read, what had to be done to read it, and what it cannot show."""
    chief = diagnosis.chief
    for file in diagnosis.files[:_FILES]:
        parts = [f"{names[file.path]}: {_count(file.lines, 'line')}"]
        if file.unparsed:
            parts[0] += f" ({file.unparsed} not recognised)"
        if chief is not None and chief.file == file.path:
            if chief.ranks and chief.root is not None:  # else the vitals name them
                parts.append(f"{_count(len(chief.ranks), 'rank')} ({rank_spread(chief.ranks)})")
            if chief.duration:
                parts.append(f"{span(chief.duration)} from first to last stamp")
            if chief.version_window:
                parts.append(f"SGLang {chief.version_window}")
        page.put("; ".join(parts), "dim", rest="  ")
        for note in file.notes:
            page.put(f"note: {note}", "dim", rest="  ")
    page.more(len(diagnosis.files) - _FILES, "file")
    joined = [job for job in diagnosis.jobs if len(job.members) > 1]
    for job in joined[-_JOBS:]:
        page.put(f"joined: {_joined(job, names)}", "dim", rest="  ", most=2 * _ROWS)
    page.more(len(joined) - _JOBS, "joined launch")
    roles = {job.members[0][0]: job.role for job in diagnosis.jobs if job.role}
    if len(set(roles.values())) > 1:
        told = ", ".join(f"{names[file]} ({role})" for file, role in roles.items())
        page.put(f"one deployment, its servers judged one by one: {told}", "dim", rest="  ", most=_ROWS)
    for limit in diagnosis.limits:
        page.put(f"limit: {limit}", "dim", rest="  ")


def _joined(job: Job, names: dict[str, str]) -> str:
    """Say which files are one launch, why, and how their clocks differ."""
    parts = [f"{', '.join(names[file] for file, _, _ in job.members)} ({job.reason})"]
    parts += [
        f"clock of {names[one.file]} against {names[one.reference]}: "
        + ("not known, " if one.seconds is None else "")
        + one.reason
        for one in job.offsets
    ]
    return "; ".join(parts)


def _count(number: int, what: str) -> str:
    """Return a number of things in words.

    >>> _count(1, "launch"), _count(2, "launch"), _count(0, "line")
    ('1 launch', '2 launches', '0 lines')
    """
    return f"{number} {what}" + ("" if number == 1 else "es" if what.endswith("ch") else "s")


def _names(files: Iterable[FileReport]) -> dict[str, str]:
    """Return how the report names each file: without its folders, where that tells the files apart."""
    paths = [file.path for file in files]
    bases = [PurePath(path).name or path for path in paths]
    return {path: base if bases.count(base) == 1 else path for path, base in zip(paths, bases, strict=True)}
