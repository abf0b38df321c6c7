"""The report for a person at a terminal: verdict, fix, proof, the rest. Short.

crashed, during KV cache set-up; cause: KV budget negative
needs --mem-fraction-static above 0.770 (...)

server.log:71 TP0
  DEBUG profile_max_num_token: avail=21.708 GiB, ...
"""

from __future__ import annotations

import io
import textwrap
from pathlib import PurePath

from rich.console import Console
from rich.text import Text

from sglogparse._launches import rank_spread
from sglogparse._report import Diagnosis, Evidence, Finding, LaunchReport, Outcome, Severity
from sglogparse._safe import plain
from sglogparse._verdict import span

_STYLES = {
    Outcome.READY: "bold green",
    Outcome.STOPPED: "bold green",
    Outcome.STARTING: "bold yellow",
    Outcome.CRASHED: "bold red",
    Outcome.HUNG: "bold red",
    Outcome.UNKNOWN: "bold yellow",
}
_SEVERITY = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
#: Proof lines that are shown; the JSON has all.
_PROOFS = 3
_FINDINGS = 5


def render_text(diagnosis: Diagnosis, width: int = 80, colour: bool = False) -> str:
    """Return the report, wrapped at a width; log text is never markup."""
    out = Text()
    shown = diagnosis.chief
    if shown is None:
        _put(out, plain(diagnosis.summary), width, _STYLES[diagnosis.outcome])
    else:
        decided = f" ({shown.cause})" if shown.outcome in (Outcome.CRASHED, Outcome.HUNG) else ""
        _put(out, plain(shown.headline) + decided, width, _STYLES[shown.outcome])
        if shown.action:
            _put(out, plain(shown.action), width, "bold")
        for line in shown.vitals:
            _put(out, plain(line), width)
    proofs = _grouped(_proofs(shown))
    if proofs:
        out.append("\n")
        for evidence in proofs[:_PROOFS]:
            _proof(out, evidence, width)
        if len(proofs) > _PROOFS:
            _put(out, f"(+{len(proofs) - _PROOFS} more proofs: --output-format json)", width, "dim")
    findings = diagnosis.findings
    if findings:
        out.append("\n")
        for finding in findings[:_FINDINGS]:
            _finding(out, finding, width)
        if len(findings) > _FINDINGS:
            _put(out, f"(+{len(findings) - _FINDINGS} more findings: --output-format json)", width, "dim")
    out.append("\n")
    _footer(out, diagnosis, shown, width)
    console = Console(
        file=(file := io.StringIO()),
        force_terminal=colour,
        width=max(width, 20),
        color_system="standard" if colour else None,
        legacy_windows=False,
    )
    console.print(out, end="", soft_wrap=True, highlight=False, markup=False)
    return file.getvalue().rstrip("\n")


def _put(
    out: Text, text: str, width: int, style: str = "", indent: str = "", hang: str | None = None
) -> None:
    wrapped = textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent if hang is None else hang,
        break_on_hyphens=False,
    )
    for line in wrapped or [indent]:
        out.append(line, style=style)
        out.append("\n")


def _proofs(shown: LaunchReport | None) -> list[Evidence]:
    """Return the lines that prove the verdict: those of the finding that decides it, and the first fault."""
    if shown is None or shown.chief is None:
        return []
    lines = list(shown.chief.evidence)
    if shown.root is not None and shown.root not in lines:
        lines.insert(0, shown.root)
    return lines


def _grouped(lines: list[Evidence]) -> list[list[Evidence]]:
    """Return lines that say the same, on other ranks, as one proof."""
    groups: dict[tuple[str, str], list[Evidence]] = {}
    for line in lines:
        groups.setdefault((line.file, line.message), []).append(line)
    return list(groups.values())


def _proof(out: Text, lines: list[Evidence], width: int) -> None:
    first, *more = lines
    place = f"{plain(short(first.file))}:{first.line}" + (f" {plain(first.rank)}" if first.rank else "")
    if more:
        ranks = plain(rank_spread(one.rank for one in more))
        place += f", and the same on {ranks}" if ranks else f", and {len(more)} times more"
        place += f" (line{'s' if len(more) > 1 else ''} {', '.join(str(one.line) for one in more[:4])}"
        place += ", ...)" if len(more) > 4 else ")"
    _put(out, place, width, "cyan")
    text = plain(first.message)
    most = 3 * (width - 2)
    if len(text) > most:
        text = text[: most - 3] + "..."
    for start in range(0, max(len(text), 1), width - 2):
        out.append("  " + text[start : start + width - 2] + "\n")


def _finding(out: Text, finding: Finding, width: int) -> None:
    label = f"{finding.code} {finding.severity.value}: "
    message = plain(finding.message)
    limit = 3 * width - 20
    if len(message) > limit:
        message = message[: limit - 3] + "..."
    start = len(out)
    _put(out, label + message, width, hang="  ")
    out.stylize(_SEVERITY[finding.severity], start, start + len(label))


def _footer(out: Text, diagnosis: Diagnosis, shown: LaunchReport | None, width: int) -> None:
    for file in diagnosis.files:
        share = f", {file.unparsed} of them not recognised" if file.unparsed else ""
        place = f"{plain(file.path)}: {file.lines} lines{share}"
        if shown is not None and shown.file == file.path:
            if shown.ranks:
                place += f"; {len(shown.ranks)} ranks ({plain(rank_spread(shown.ranks))})"
            if shown.duration is not None:
                place += f"; {span(shown.duration)} from first to last stamp"
        starts = sum(1 for one in diagnosis.launches if one.file == file.path)
        if starts > 1:
            place += f"; {starts} launches, the last one is shown"
        _put(out, place, width, "dim", hang="  ")
        for note in file.notes:
            _put(out, f"note: {plain(note)}", width, "dim", hang="  ")
    for limit in diagnosis.limits:
        _put(out, f"not shown: {limit}", width, "dim", hang="  ")


def short(path: str) -> str:
    """Return a path without its folders, as proof lines name it."""
    return PurePath(path).name or path
