"""Annotations of GitHub Actions: workflow commands on standard output, and a summary of the step.

::error file=server.log,line=49,title=sglogparse%3A crashed::...       the verdict, and what to do
::group::sglogparse: 4 findings                                       folded in the log
::error file=server.log,line=49,title=M001 negative-kv-budget::...
M002 error, server.log:7: ...                                         those behind the tenth of their type
::endgroup::

A runner takes ten annotations of a type from a step and drops the rest without a word. The verdict comes
first; what is behind the tenth is written as text, and the summary has it. The runner reads a line as a
command when it begins with "::" after blanks, and looks for "##[" in any line.
"""

from __future__ import annotations

from collections import Counter

from sglogparse._report import Diagnosis, Severity
from sglogparse._safe import plain, tame
from sglogparse.render._rows import Row, cut, fixes_once, remarks_of, rows_of, verdict_of

#: Annotations of a type that a step shows.
_MOST = 10
_TYPES = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def render_github(
    diagnosis: Diagnosis, width: int = 0, colour: bool = False, exit_code: int | None = None
) -> str:
    """Return the workflow commands, the verdict first."""
    verdict = verdict_of(diagnosis)
    rows = rows_of(diagnosis)
    used = Counter([verdict.severity])
    place = _place(verdict.file, verdict.line.line if verdict.line else None)
    text = [verdict.title, *([verdict.text] if verdict.text else [])]
    if verdict.line is not None:
        where = _where(verdict.line.file, verdict.line.line)
        text.append(f"first fault: {where}: {cut(verdict.line.message)}")
    title = {"title": f"sglogparse: {diagnosis.outcome.value}"}
    out = [command(_TYPES[verdict.severity], place | title, text)]
    left: list[Row] = []
    if rows or remarks_of(diagnosis):
        count = f"{len(rows)} finding{'' if len(rows) == 1 else 's'}"
        out.append(f"::group::sglogparse: {count}")
        for row, fix in zip(rows, fixes_once(diagnosis, rows), strict=True):
            used[row.finding.severity] += 1
            if used[row.finding.severity] > _MOST:
                left.append(row)
                continue
            told = [_from_input(row.file, row.number) + row.message]
            told += [cut(fix)] if fix else []
            named = _place(row.file, row.number) | {"title": f"{row.finding.code} {row.finding.name}"}
            out.append(command(_TYPES[row.finding.severity], named, told))
        out += [_text(row) for row in left]
        out += [tame(one) for one in remarks_of(diagnosis)]
        out.append("::endgroup::")
    return "\n".join(out)


def _text(row: Row) -> str:
    where = _where(row.file, row.number)
    return tame(f"{row.finding.code} {row.finding.severity.value}, {where}: {row.message}")


def _where(file: str, line: int) -> str:
    return f"line {line} of standard input" if file == "-" else f"{plain(file)}:{line}"


def _from_input(file: str, line: int) -> str:
    return f"{_where(file, line)}: " if file == "-" else ""


def _place(file: str | None, line: int | None) -> dict[str, str]:
    if file is None or file == "-":
        return {}
    return {"file": plain(file)} | ({"line": str(line)} if line is not None else {})


def command(name: str, properties: dict[str, str], lines: list[str]) -> str:
    """Return a workflow command; what could end one of its parts is written by its number."""
    told = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{name} {told}::{_data(chr(10).join(map(tame, lines)))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(tame(text)).replace(":", "%3A").replace(",", "%2C")
