"""One line a finding, as compilers print them: `file:line: CODE message`.

server.log:49: crashed, during KV cache set-up; cause: KV budget negative; needs ...    the verdict first
server.log:49: M001 The KV token budget is negative: ... [TP0, TP2]
"""

from __future__ import annotations

from sglogparse._report import Diagnosis
from sglogparse._safe import plain, tame
from sglogparse.render._rows import remarks_of, rows_of, verdict_of


def render_concise(
    diagnosis: Diagnosis, width: int = 0, colour: bool = False, exit_code: int | None = None
) -> str:
    """Return the verdict and the findings, a line each; a file without a line is one that no line proves."""
    verdict = verdict_of(diagnosis)
    place = (
        f"{verdict.file}:{verdict.line.line}: "
        if verdict.line
        else f"{verdict.file}: "
        if verdict.file
        else ""
    )
    told = f"{verdict.title.removesuffix('.')}; {verdict.text}" if verdict.text else verdict.title
    lines = [plain(place) + told]
    lines += [
        plain(f"{row.file}:{row.number}: {row.finding.code} ") + row.message for row in rows_of(diagnosis)
    ]
    lines += remarks_of(diagnosis)
    return "\n".join(map(tame, lines))
