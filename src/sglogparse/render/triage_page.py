"""The triage of many logs as Markdown and as a page of HTML that needs nothing else.

counts, clusters (what, what to do, first fault, which logs), rows (newest first)

No text of a log is markup here. The page has no scripts, loads nothing, and says so to the browser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from html import escape

from sglogparse._safe import plain, tame
from sglogparse._triage import Cluster, Row, Triage
from sglogparse.render._rows import cut
from sglogparse.render.markdown import MOST, markdown_text
from sglogparse.render.triage import causes_of, cells_of, counts_of, proof_text, times_of

#: Clusters and logs of a cluster that a comment shows.
_CLUSTERS = 50
_LOGS = 5
#: Room in a comment for what is said of the rest.
_TAIL = 400
_HEAD = ("outcome", "cause", "took", "last stamp", "log", "release")
_STYLE = """
:root{color-scheme:light dark;font:15px/1.45 system-ui,sans-serif}
body{max-width:75rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%;margin:1rem 0}
th,td{border-bottom:1px solid #8886;padding:.3rem .6rem;text-align:left;vertical-align:top}
td,code{overflow-wrap:anywhere}
code{font:13px/1.4 ui-monospace,monospace;white-space:pre-wrap}
section{border-left:4px solid #888;padding-left:1rem;margin:1.2rem 0}
.crashed,.hung{border-color:#c33}.starting,.unknown{border-color:#c90}.ready,.stopped{border-color:#393}
h2{font-size:1.05rem;margin:.2rem 0}p{margin:.3rem 0}
"""
#: What the page may do: show itself, in its own style, and nothing else.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def _row_cells(row: Row) -> tuple[str, ...]:
    return (*cells_of(row), cut(row.version_window, 100) if row.version_window else "-")


# ------------------------------------------------------------------ Markdown


def render_markdown(found: Triage) -> str:
    """Return the comment, at most 60,000 characters; what does not fit is counted."""
    parts = [f"### sglogparse triage: {markdown_text(counts_of(found))}"]
    if found.causes:
        parts.append(markdown_text(causes_of(found)))
    if found.clusters:
        parts.append(_fitting(_MARKDOWN_CLUSTERS, found.clusters, _markdown_cluster, MOST // 2, _CLUSTERS))
    parts += [f"Note: {markdown_text(one)}" for one in found.notes]
    room = MOST - _TAIL - sum(len(part) + 2 for part in parts)
    rows = _fitting(_MARKDOWN_ROWS, found.rows, _markdown_row, room, len(found.rows))
    parts.append(f"<details><summary>All logs, newest first</summary>\n\n{rows}\n\n</details>")
    return "\n".join(map(tame, "\n\n".join(parts).split("\n")))


_MARKDOWN_CLUSTERS = "| times | what | to do | first fault | logs |\n|---|---|---|---|---|"
_MARKDOWN_ROWS = f"| {' | '.join(_HEAD)} |\n|{'---|' * len(_HEAD)}"


def _fitting(
    head: str, things: tuple[Cluster, ...] | tuple[Row, ...], line: Callable[..., str], room: int, most: int
) -> str:
    lines = [head]
    room -= len(head)
    for number, thing in enumerate(things):
        text = line(thing)
        room -= len(text) + 1
        if room < 0 or number >= most:
            return "\n".join([*(lines if number else []), "", f"(and {len(things) - number} more)"])
        lines.append(text)
    return "\n".join(lines)


def _markdown_cluster(cluster: Cluster) -> str:
    row = cluster.representative
    names = [markdown_text(one.files[0], 300) for one in cluster.rows[:_LOGS]]
    left = len(cluster.rows) - len(names)
    logs = "<br>".join(names) + (f"<br>and {left} more" if left else "")
    cells = (
        str(len(cluster.rows)),
        markdown_text(cluster.headline, 600),
        markdown_text(cluster.action, 800),
        markdown_text(proof_text(row), 800),
        logs,
    )
    return f"| {' | '.join(cells)} |"


def _markdown_row(row: Row) -> str:
    return f"| {' | '.join(markdown_text(one, 400) for one in _row_cells(row))} |"


# ------------------------------------------------------------------ HTML


def render_html(found: Triage) -> str:
    """Return a page that stands alone."""
    title = _html(counts_of(found))
    body = [f"<h1>sglogparse triage</h1>\n<p>{title}</p>"]
    if found.causes:
        body.append(f"<p>{_html(causes_of(found))}</p>")
    body += map(_html_cluster, found.clusters)
    body += [f"<p>{_html(one)}</p>" for one in found.notes]
    head = "".join(f"<th>{one}</th>" for one in _HEAD)
    rows = "\n".join(f"<tr>{_cells(_row_cells(one))}</tr>" for one in found.rows)
    body.append(f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>")
    return "\n".join(_page(title, body))


def _page(title: str, body: Iterable[str]) -> Iterator[str]:
    yield "<!DOCTYPE html>"
    yield '<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width">'
    yield f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>"
    yield from body
    yield "</body>\n</html>"


def _html_cluster(cluster: Cluster) -> str:
    row = cluster.representative
    count = len(cluster.rows)
    outcome = row.outcome.value if row.outcome else ""
    parts = [f"<h2>{'once' if count == 1 else times_of(cluster)}: {_html(cluster.headline)}</h2>"]
    if cluster.action:
        parts.append(f"<p>{_html(cluster.action)}</p>")
    parts.append(f"<p><code>{_html(proof_text(row))}</code></p>")
    if row.joined:
        parts.append(f"<p>one incident: {_html(row.joined)}</p>")
    if row.notes:
        parts.append(f"<p>note: {_html('; '.join(row.notes))}</p>")
    if cluster.windows:
        parts.append(f"<p>release {_html(', '.join(cluster.windows))}</p>")
    if count > 1:
        names = "".join(f"<li>{_html(one.files[0])}</li>" for one in cluster.rows[1:])
        parts.append(f"<details><summary>{count - 1} more</summary><ul>{names}</ul></details>")
    return f'<section class="{outcome}">\n' + "\n".join(parts) + "\n</section>"


def _cells(cells: Iterable[str]) -> str:
    return "".join(f"<td>{_html(one)}</td>" for one in cells)


def _html(text: str) -> str:
    """Return text for the page, which a job may print: "##vso[" is a command there."""
    return escape(plain(text)).replace("##", "#&#35;")
