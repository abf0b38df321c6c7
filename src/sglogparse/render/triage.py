"""The triage of many logs for a terminal, and for a program: clusters first, then a row each.

58 logs, 55 incidents: 17 crashed, 24 ready, ...
24 different problems, the newest first; in ci-logs
causes: memory.kv_budget (3), ...

#1 (3 times since 2026-02-27) crashed, during ...; cause: ...      a cluster: what, what to do, its newest
...                                                                log, the others

#  outcome  cause             took  last stamp                     a row each, newest first
1  crashed  memory.kv_budget  45 s  2026-07-21 16:48
   job7/server.log:103; release 0.5.6
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from rich.cells import cell_len

from sglogparse._safe import plain, tame
from sglogparse._triage import Cluster, Row, Triage
from sglogparse._vitals import span
from sglogparse.render._json import dumps
from sglogparse.render._rows import cut
from sglogparse.render._wrap import glued, wrap

#: Clusters, causes, logs of a cluster, and rows that the text shows unless all are asked for.
_CLUSTERS = 20
_CAUSES = 10
_LOGS = 3
_ROWS = 20
#: Lines of what to do, and of the others.
_ACTION = 3
_LINES = 2
_HEAD = ("#", "outcome", "cause", "took", "last stamp")


def render_text(found: Triage, width: int, *, everything: bool = False) -> str:
    """Return the text; `everything` shows every cluster, its logs, and a row each log."""
    folder = folder_of(found)
    out = wrap(counts_of(found), width, rest="  ")
    told = [problems_of(found)] if found.clusters else []
    told += [f"in {plain(folder)}"] if folder else []
    out += wrap("; ".join(told), width, rest="  ") if told else []
    if found.causes:
        out += wrap(causes_of(found, len(found.causes) if everything else _CAUSES), width, rest="  ")
    shown = found.clusters if everything else found.clusters[:_CLUSTERS]
    for number, cluster in enumerate(shown, 1):
        out += ["", *_cluster(number, cluster, folder, width, everything=everything)]
    left = found.clusters[len(shown) :]
    if left:
        logs = sum(len(one.rows) for one in left)
        out += ["", f"and {len(left)} more, of {logs} log{'' if logs == 1 else 's'} (--all shows them)"]
    if len(found.rows) > 1:
        numbers = {one.id: f"{number}" for number, one in enumerate(found.clusters, 1)}
        rows = found.rows if everything else found.rows[:_ROWS]
        bad = {row for one in found.clusters for row in one.rows}
        numbered = [(one, numbers.get(one.cluster or "", "") if one in bad else "") for one in rows]
        out += ["", *_table(numbered, folder, width)]
        if len(rows) < len(found.rows):
            out.append(f"and {len(found.rows) - len(rows)} more (--all shows them)")
    for note in found.notes:
        out += wrap(cut(note), width, rest="  ")
    return "\n".join(out)


def folder_of(found: Triage) -> str:
    """Return the folder that all logs are in; empty where there is none but the current one."""
    folders = {str(PurePath(name).parent) for row in found.rows for name in row.files}
    if len({PurePath(one).is_absolute() for one in folders}) > 1 or len(found.rows) < 2:
        return ""
    common = os.path.commonpath(folders)
    return "" if common in (".", "/") else common


def short(name: str, folder: str) -> str:
    """Return a name within a folder, without what a terminal would act on."""
    return plain(name.removeprefix(f"{folder}/") if folder else name)


def counts_of(found: Triage) -> str:
    """Return how many logs there are, and how they ended, in words."""
    counts = ", ".join(f"{count} {name}" for name, count in found.outcomes.items())
    logs = sum(len(one.files) for one in found.rows)
    joined = f", {len(found.rows)} incidents" if logs > len(found.rows) else ""
    return f"{logs} log{'' if logs == 1 else 's'}{joined}: {counts}"


def problems_of(found: Triage) -> str:
    """Return how many clusters there are, in words."""
    count = len(found.clusters)
    return "1 problem" if count == 1 else f"{count} different problems, the newest first"


def causes_of(found: Triage, most: int | None = None) -> str:
    """Return how often which cause is, in words; the most frequent ones, or all."""
    told = [f"{cause} ({count})" if count > 1 else cause for cause, count in found.causes.items()]
    shown = told[:most]
    left = len(told) - len(shown)
    return f"causes: {', '.join(shown)}" + (f" and {left} more" if left else "")


def _cluster(number: int, cluster: Cluster, folder: str, width: int, *, everything: bool) -> Iterator[str]:
    row = cluster.representative
    count = len(cluster.rows)
    cause = f" ({row.cause})" if row.cause not in (None, "none", "unknown") else ""
    often = f" ({times_of(cluster)})" if count > 1 else ""
    title = f"#{number}{often} {cut(cluster.headline)}{cause}"
    yield from wrap(title, width, rest="  ", most=_ACTION)
    if cluster.action:
        yield from wrap(cut(cluster.action), width, first="  ", rest="  ", most=_ACTION)
    yield from wrap(proof_text(row, folder), width, first="  ", rest="  ", most=_LINES)
    if row.joined:
        joined = row.joined.replace(f"{folder}/", "") if folder else row.joined
        yield from wrap(cut(f"one incident: {joined}"), width, first="  ", rest="  ", most=_LINES)
    if row.notes:
        yield from wrap(cut(f"note: {'; '.join(row.notes)}"), width, first="  ", rest="  ", most=_LINES)
    if cluster.windows:
        yield from wrap(cut(f"release {_some(cluster.windows, everything)}"), width, first="  ", rest="  ")
    others = [short(one.files[0], folder) for one in cluster.rows[1:]]
    if others:
        yield from wrap(f"also {_some(others, everything)}", width, first="  ", rest="  ")


def times_of(cluster: Cluster) -> str:
    """Return how often a failure came, and since which day if it came on several, in words."""
    days = {row.last.date() for row in cluster.rows if row.last}
    since = f" since {min(days).isoformat()}" if len(days) > 1 else ""
    return f"{len(cluster.rows)} times{since}"


def _some(names: Sequence[str], everything: bool) -> str:
    named = names if everything else names[:_LOGS]
    left = len(names) - len(named)
    return ", ".join(named) + (f" and {left} more" if left else "")


def proof_text(row: Row, folder: str = "") -> str:
    """Return the line to look at, or the log where none stands for the verdict."""
    if row.root is None:
        return f"{short(row.files[0], folder)}{_nodes(row)}"
    return f"{short(row.root.file, folder)}:{row.root.line}{_nodes(row)}: {cut(row.root.message, 300)}"


def _nodes(row: Row) -> str:
    """Return how many more logs hold parts of the launch, or of the deployment."""
    more = len(row.files) - 1
    what = "deployment" if row.kind == "deployment" else "launch"
    return f" (and {more} more log{'' if more == 1 else 's'} of this {what})" if more else ""


def _table(rows: Sequence[tuple[Row, str]], folder: str, width: int) -> Iterator[str]:
    """Yield of each log a line of columns, and below it its name, which is never broken."""
    lines = [(_HEAD, "", "")]
    for row, number in rows:
        lines.append(((number, *cells_of(row, folder)[:4]), *_named(row, folder)))
    sizes = [max(len(cells[index]) for cells, _, _ in lines) for index in range(len(_HEAD))]
    indent = " " * (sizes[0] + 2)
    for cells, name, rest in lines:
        yield "  ".join(cell.ljust(size) for cell, size in zip(cells, sizes, strict=True)).rstrip()
        tamed = tame(name)
        if cell_len(tamed) <= width - len(indent):
            yield from wrap(f"{glued(tamed)} {rest}", width, first=indent, rest=indent) if name else ()
        else:
            yield tame(f"{indent}{tamed}")
            yield from wrap(rest, width, first=indent, rest=indent) if rest else ()


def _named(row: Row, folder: str) -> tuple[str, str]:
    """Return the log with the line of its first fault, and what is said behind it."""
    name = short(row.files[0], folder) + (f":{row.root.line}" if row.root else "")
    if row.outcome is None:
        return f"{name}:", cut(row.summary, 200)
    release = f"release {cut(row.version_window, 100)}" if row.version_window else ""
    rest = "; ".join(filter(None, (_nodes(row).strip(" ()"), release)))
    return name, f"({rest})" if rest else ""


def cells_of(row: Row, folder: str = "") -> tuple[str, str, str, str, str]:
    """Return outcome, cause, duration, newest stamp, and the log with the line of its first fault."""
    name = short(row.files[0], folder) + (f":{row.root.line}" if row.root else "") + _nodes(row)
    if row.outcome is None:
        return "not read", "-", "-", "-", f"{name}: {cut(row.summary, 200)}"
    return (
        row.outcome.value,
        row.cause if row.cause not in (None, "none") else "-",
        "-" if row.duration is None else span(row.duration),
        "-" if row.last is None else f"{row.last:%Y-%m-%d %H:%M}",
        name,
    )


def render_json(found: Triage) -> str:
    """Return the object of the contract."""
    return dumps(found.as_dict())
