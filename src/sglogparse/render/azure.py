"""Logging commands of Azure Pipelines: an issue a finding, and how the task ended.

##[error] would colour a line; ##vso[task.logissue] also counts it and shows it in the summary of the run:

##vso[task.logissue type=error;sourcepath=server.log;linenumber=49;columnnumber=1;code=M001;]message
##vso[task.complete result=Failed;]crashed, ...

The agent looks for "##vso[" anywhere in a line, so no text of a log keeps it.
"""

from __future__ import annotations

from sglogparse._report import Diagnosis, Severity
from sglogparse._safe import plain, tame
from sglogparse.render._rows import cut, remarks_of, rows_of, verdict_of

#: Exit code -> result of the task.
_RESULTS = {0: "Succeeded", 1: "Failed", 3: "SucceededWithIssues"}


def render_azure(
    diagnosis: Diagnosis, width: int = 0, colour: bool = False, exit_code: int | None = None
) -> str:
    """Return the logging commands, the verdict first; information is plain text, as it is no issue."""
    verdict = verdict_of(diagnosis)
    told = f"{verdict.title}; {verdict.text}" if verdict.text else verdict.title
    line = verdict.line.line if verdict.line else None
    out = [_issue(verdict.severity, verdict.file, line, diagnosis.outcome.value, told)]
    for row in rows_of(diagnosis):
        fix = f" Fix: {cut(row.finding.fix)}" if row.finding.fix else ""
        out.append(_issue(row.finding.severity, row.file, row.number, row.finding.code, row.message + fix))
    out += [_text(one) for one in remarks_of(diagnosis)]
    code = diagnosis.exit_code() if exit_code is None else exit_code
    out.append(f"##vso[task.complete result={_RESULTS[code]};]{_data(verdict.title)}")
    return "\n".join(out)


def _issue(severity: Severity, file: str | None, line: int | None, code: str, text: str) -> str:
    where = "" if file is None else f"{plain(file)}:{line}: " if line else f"{plain(file)}: "
    if severity is Severity.INFO:
        return _text(f"{where}{text}" if text.startswith(code) else f"{where}{code} {text}")
    parts = {"type": severity.value}
    if file is not None and file != "-":
        parts |= {"sourcepath": plain(file)} | (
            {"linenumber": str(line), "columnnumber": "1"} if line else {}
        )
        where = ""
    told = "".join(f"{key}={_property(value)};" for key, value in (parts | {"code": code}).items())
    return f"##vso[task.logissue {told}]{_data(where + text)}"


def _text(text: str) -> str:
    return tame(text)


def _data(text: str) -> str:
    return tame(text).replace("%", "%AZP25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace("]", "%5D").replace(";", "%3B")
