"""Markdown for a comment on a change, and for the summary of a CI step: at most 60,000 characters.

### sglogparse: crashed, during KV cache set-up; cause: ...
**What to do:** ...
**First fault:** `server.log:49` and the lines of it
| severity | finding | where | message |
files, limits (folded)

No text of a log is markup here: it mentions nobody, links nowhere, closes no fence, is no HTML, no command.
"""

from __future__ import annotations

import re

from sglogparse._report import Diagnosis
from sglogparse._safe import plain, tame
from sglogparse.render._rows import Row, fixes_once, remarks_of, rows_of, shortened, verdict_of

#: GitHub takes comments of 65,536 characters.
MOST = 60_000
#: Room that is kept for what is said of the rest, and for the ends of folded parts.
_TAIL = 400
#: How long one text can be, escaped.
_TEXT = 1500
_FILES = 20
#: Characters that mean something, by what stands for them.
_ESCAPES = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    "|": "&#124;",
    "`": "&#96;",
    # no mention and no reference: the comment parts the sign from the name
    "@": "@<!-- -->",
    "#": "&#35;<!-- -->",
    **{char: f"\\{char}" for char in "\\*_[]~$!^{}"},
}
#: What services make a link of by themselves, also where the sign is written by its number: an address, www.,
#: GH-1. A comment goes between its halves.
_LINKS = re.compile(r"(?<=:)(?=//)|(?<=[wW]{3})(?=\.)|(?<=[gG][hH])(?=-[0-9])")


def render_markdown(
    diagnosis: Diagnosis, width: int = 0, colour: bool = False, exit_code: int | None = None
) -> str:
    """Return the comment; what does not fit is counted."""
    verdict = verdict_of(diagnosis)
    parts = [f"### sglogparse: {markdown_text(verdict.title)}"]
    if verdict.text:
        label = "What to do" if diagnosis.fix else "Why"
        parts.append(f"**{label}:** {markdown_text(verdict.text)}")
    chief = diagnosis.chief
    if verdict.line is not None and chief is not None:
        cause = f"; cause: {markdown_text(chief.cause)}" if chief.cause not in ("none", "unknown") else ""
        sure = f" ({chief.confidence.word})" if chief.confidence and cause else ""
        parts.append(f"**First fault:** {_place(verdict.line.file, verdict.line.line)}{cause}{sure}")
        parts.append(_fenced([verdict.line.message]))
    elif chief is not None and chief.vitals:
        parts.append("\n".join(f"- {markdown_text(one)}" for one in chief.vitals[:_FILES]))
    parts += [f"**Note:** {markdown_text(one)}" for one in remarks_of(diagnosis)]
    read = _read(diagnosis)
    room = MOST - _TAIL - sum(len(part) + 2 for part in parts) - len(read)
    rows = rows_of(diagnosis)
    if rows:
        parts.append(_table(rows, fixes_once(diagnosis, rows), room))
    return "\n".join(map(tame, "\n\n".join([*parts, read]).split("\n")))


def _table(rows: list[Row], fixes: list[str | None], room: int) -> str:
    """Return as many findings as there is room for, each fix once, and say how many are left out."""
    lines = ["| severity | finding | where | message |", "|---|---|---|---|"]
    room -= sum(map(len, lines))
    for number, (row, told) in enumerate(zip(rows, fixes, strict=True)):
        fix = f"<br>**Fix:** {markdown_text(told)}" if told else ""
        named = markdown_text(f"{row.finding.code} {row.finding.name}")
        line = (
            f"| {row.finding.severity.value} | {named} "
            f"| {_place(row.file, row.number)} | {markdown_text(row.message)}{fix} |"
        )
        room -= len(line) + 1
        if room < 0:
            left = len(rows) - number
            what = f"{left} more finding{'' if left == 1 else 's'}"
            told = f"({what}: the comment has room for {MOST:,} characters)"
            return "\n".join([*(lines if number else []), "", told])
        lines.append(line)
    return "\n".join(lines)


def _read(diagnosis: Diagnosis) -> str:
    lines = [
        f"- {markdown_text(file.path, 300)}: {file.lines} line{'' if file.lines == 1 else 's'}"
        for file in diagnosis.files[:_FILES]
    ]
    left = len(diagnosis.files) - _FILES
    lines += [f"- and {left} more files"] if left > 0 else []
    lines += [f"- limit: {markdown_text(one, 400)}" for one in diagnosis.limits[:_FILES]]
    left = len(diagnosis.limits) - _FILES
    lines += [f"- and {left} more limits"] if left > 0 else []
    body = "\n".join(lines)
    return f"<details><summary>What was read</summary>\n\n{body}\n\n</details>" if lines else ""


def _place(file: str, line: int) -> str:
    return f"{markdown_text(file, 300)}:{line}"


def _fenced(lines: list[str]) -> str:
    """Return lines as they are, in a fence that none of them can close."""
    shown = [shortened(one, _TEXT, plain) if len(one) > _TEXT else plain(one) for one in lines]
    longest = max((len(run) for one in shown for run in re.findall("`+", one)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *(f"  {tame(one)}" for one in shown), fence])


def markdown_text(text: str, most: int = _TEXT) -> str:
    """Return a text that is nothing but text, in one line; cut where it is longer than `most`, escaped."""
    whole = _escaped(text) if len(text) <= most else ""
    return whole if whole and len(whole) <= most else _parted(text, most)


def _parted(text: str, most: int) -> str:
    if not text.strip():
        return ""
    return _links(shortened(text.strip(), most, _char))


def _escaped(text: str) -> str:
    return _links("".join(map(_char, text.strip())))


def _char(char: str) -> str:
    return "".join(_ESCAPES.get(one, one) for one in plain(char))


def _links(text: str) -> str:
    return _LINKS.sub("<!-- -->", text)
