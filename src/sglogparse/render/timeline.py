"""The timeline for a terminal, and for programs: phases per rank as a table and bars, and gaps in words.

server.log:1-110: 8 ranks (TP0-TP7), ready after 1 min 45 s

rank    dist init   weights     pools   capture      which rank took how long, the slowest marked
TP0           13s       47s       3s*       14s
TP1           12s       48s        2s       14s

TP0     ...dddddwwwwwwwwwwwwwwwwwwwpccccccc          the same on one axis

11 min 04 s without a line after Load weight begin on TP3 (lines 31-46)
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Any

import polars as pl
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from sglogparse._phases import ALL_PHASES
from sglogparse._ranks import rank_key, rank_spread
from sglogparse._safe import mask_secrets, masked_frame, plain, tame
from sglogparse._timeline import TIMELINE_SCHEMA, Timeline
from sglogparse._vitals import span
from sglogparse.render._json import dumps
from sglogparse.render._wrap import wrap

SCHEMA = "sglogparse/timeline/1"
#: The letter of each phase in a bar.
_LETTERS = {
    "dist init": "d",
    "weights": "w",
    "pools": "p",
    "capture": "c",
    "draft dist init": "D",
    "draft weights": "W",
    "draft pools": "P",
    "draft capture": "C",
    "weights commit": "k",
    "warm-up": "u",
    "ready": "R",
    "serving": "s",
    "shutdown": "x",
}
#: What stands beside a duration, and what it means.
_MARKS = {
    "*": "the slowest rank of the phase",
    "!": "the last to come: the others waited for it, and all left together",
    ">": "at least: the line that ends it is missing",
    "?": "the log does not tell",
}
#: How many ranks and gaps are shown; csv and json have all.
_RANKS = 16
_GAPS = 8
#: The widest name of a rank, and the narrowest column of a phase, in cells.
_MOST_LABEL = 20
_LEAST_COLUMN = 9


def render_text(
    timelines: Sequence[Timeline],
    gap: float,
    width: int = 80,
    colour: bool = False,
    *,
    everything: bool = False,
    show_secrets: bool = False,
) -> str:
    """Return tables, bars and gaps of all jobs, wrapped at a width."""
    page = Text()
    # masking comes before wrapping, which could hide a secret from it
    clean = plain if show_secrets else _clean
    names = _names(timelines)
    for number, timeline in enumerate(timelines):
        if number:
            page.append("\n")
        for line, style in _job(timeline, gap, names, width, clean, everything=everything):
            page.append(f"{line.rstrip()}\n", style)
    if not timelines:
        page.append("the log is empty: no timeline")
    console = Console(
        file=(file := io.StringIO()),
        force_terminal=colour,
        width=width,
        color_system="standard" if colour else None,
        legacy_windows=False,
    )
    console.print(page, end="", soft_wrap=True, highlight=False)
    return file.getvalue().rstrip("\n")


def _clean(text: str) -> str:
    return plain(mask_secrets(text))


def _job(
    timeline: Timeline,
    gap: float,
    names: dict[str, str],
    width: int,
    clean: Callable[[str], str],
    *,
    everything: bool,
) -> Iterator[tuple[str, str]]:
    """Yield the lines of a job, with their styles."""
    for line in wrap(clean(_head(timeline, names)), width, rest="  "):
        yield line, "bold"
    for sentence in _joins(timeline, names):
        for line in wrap(clean(sentence), width, first="  ", rest="  "):
            yield line, ""
    if timeline.phases.is_empty():
        return
    shown, left = _shown(timeline)
    labels = [_label(timeline, *one) for one in shown]
    yield "", ""
    yield from _table(timeline, shown, labels, width)
    if left:
        yield f"(+{left} more rank{'s' if left > 1 else ''}: --output-format csv)", "dim"
    yield "", ""
    if timeline.until_s is None:
        said = "no time stamps: durations are as printed, and there are no bars and no gaps"
        yield from ((line, "") for line in wrap(said, width, rest="  "))
        return
    yield from _bars(timeline, shown, labels, width)
    yield "", ""
    for sentence in _gaps(timeline, gap, names, everything=everything):
        for line in wrap(clean(sentence), width, rest="  "):
            yield line, ""


def _head(timeline: Timeline, names: dict[str, str]) -> str:
    where = ", ".join(f"{names[file]}:{first}-{last}" for file, first, last in timeline.members)
    if timeline.phases.is_empty():
        why = "a router" if timeline.group.role == "router" else "no line of a rank's start is in it"
        return f"{where}: no timeline: {why}"
    parts = []
    if timeline.ranks:
        count = len(timeline.ranks)
        parts.append(f"{count} rank{'s' if count > 1 else ''} ({rank_spread(timeline.ranks)})")
    if timeline.ready_s is not None:
        parts.append(f"ready after {span(timeline.ready_s)}")
    elif timeline.until_s is not None:
        parts.append(f"no ready line, {span(timeline.until_s)} from first to last stamp")
    elif not timeline.phases.filter(pl.col("phase") == "ready").is_empty():
        parts.append("ready")
    else:
        parts.append("no ready line")
    return f"{where}: {', '.join(parts)}"


def _joins(timeline: Timeline, names: dict[str, str]) -> Iterator[str]:
    """Yield why several files are one job, and how their clocks differ."""
    if len(timeline.members) < 2:
        return
    yield f"joined: {timeline.group.reason}"
    for one in timeline.group.offsets:
        taken = "not known, the stamps are taken as they are: " if one.seconds is None else ""
        yield f"clock of {names[one.file]} against {names[one.reference]}: {taken}{one.reason}"


def _names(timelines: Sequence[Timeline]) -> dict[str, str]:
    """Return how the files are called: without their folders, where that tells them apart."""
    paths = list(dict.fromkeys(file for one in timelines for file, _, _ in one.members))
    bases = [PurePath(path).name or path for path in paths]
    return {path: base if bases.count(base) == 1 else path for path, base in zip(paths, bases, strict=True)}


# ------------------------------------------------------------------ the table


def _shown(timeline: Timeline) -> tuple[list[tuple[str, str | None]], int]:
    """Return the ranks that are shown, in order, and how many are not: first the slowest."""
    rows = timeline.phases.group_by("file", "rank", maintain_order=True)
    found = rows.agg((pl.col("slowest") | pl.col("last")).any())
    order = {file: number for number, (file, _, _) in enumerate(timeline.members)}
    every = sorted(
        found.iter_rows(),
        key=lambda one: (one[1] is None, rank_key(one[1]) if one[1] else ([], ""), order[one[0]]),
    )
    ranks = [one for one in every if one[1] is not None]
    kept = sorted(ranks, key=lambda one: not one[2])[:_RANKS]
    shown = [one for one in every if one in kept or one[1] is None]
    return [(file, rank) for file, rank, _ in shown], len(every) - len(shown)


def _label(timeline: Timeline, file: str, rank: str | None) -> str:
    label = tame(plain(rank or timeline.servers[file]))
    return label if cell_len(label) <= _MOST_LABEL else set_cell_size(label, _MOST_LABEL - 3) + "..."


def _table(
    timeline: Timeline, shown: list[tuple[str, str | None]], labels: list[str], width: int
) -> Iterator[tuple[str, str]]:
    """Yield the durations, a column a phase; in several tables where one would be too wide."""
    cells = _cells(timeline)
    names = [name for name in ALL_PHASES if name != "ready" and any(name == one[2] for one in cells)]
    left = max(map(cell_len, ["rank", *labels]))
    size = max([_LEAST_COLUMN, *(len(text) for text in cells.values())])
    blocks: list[list[str]] = [[]]
    for name in names:
        used = left + sum(2 + max(size, len(one)) for one in [*blocks[-1], name])
        if blocks[-1] and used > width:
            blocks.append([])
        blocks[-1].append(name)
    for number, block in enumerate(blocks):
        if number:
            yield "", ""
        sizes = [max(size, len(name)) for name in block]
        heads = zip(block, sizes, strict=True)
        yield "rank".ljust(left) + "".join(f"  {name:>{wide}}" for name, wide in heads), "dim"
        for (file, rank), label in zip(shown, labels, strict=True):
            texts = [cells.get((file, rank, name), "") for name in block]
            if any(texts):
                row = "".join(f"  {text:>{wide}}" for text, wide in zip(texts, sizes, strict=True))
                marked = "*" in row or "!" in row
                yield label + " " * (left - cell_len(label)) + row, "bold" if marked else ""
    marks = "".join(cells.values())
    for mark, meaning in _MARKS.items():
        if mark in marks:
            yield from ((line, "dim") for line in wrap(f"{mark} {meaning}", width, rest="  "))


def _cells(timeline: Timeline) -> dict[tuple[str, str | None, str], str]:
    """Return the text of each rank and phase: its duration, with marks."""
    known = pl.col("duration").is_not_null()
    least = pl.col("until_s") - pl.col("from_s")
    rows = timeline.phases.group_by("file", "rank", "phase", maintain_order=True).agg(
        pl.coalesce("duration", least).sum().alias("took"),
        pl.coalesce("duration", least).is_not_null().any().alias("some"),
        known.all().alias("whole"),
        pl.col("slowest").any(),
        pl.col("last").any(),
    )
    out = {}
    for file, rank, phase, took, some, whole, slowest, last in rows.iter_rows():
        text = ("" if whole else ">") + _short(took) if some else "?"
        out[(file, rank, phase)] = text + ("*" if slowest else "!" if last else "")
    return out


def _short(seconds: float) -> str:
    """Return a duration in a few characters.

    >>> _short(0.25), _short(7), _short(59.96), _short(664), _short(4000)
    ('0.2s', '7s', '1m00s', '11m04s', '1h06m')
    """
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    if whole >= 60:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{seconds:.0f}s" if seconds == whole or seconds >= 10 else f"{seconds:.1f}s"


# ------------------------------------------------------------------ the bars


def _bars(
    timeline: Timeline, shown: list[tuple[str, str | None]], labels: list[str], width: int
) -> Iterator[tuple[str, str]]:
    """Yield a bar a rank on one axis, and what the letters mean."""
    until = timeline.until_s or 0.0
    left = max(map(cell_len, ["rank", *labels])) + 2
    room = width - left
    # of a phase whose end is missing and not to be guessed, the beginning is shown
    rows = timeline.phases.drop_nulls("from_s").with_columns(pl.coalesce("until_s", "from_s"))
    if until <= 0 or rows.is_empty():
        yield "the stamps span no time: no bars", ""
        return
    end = span(until)
    yield " " * left + "0 s" + end.rjust(room - 3), "dim"
    drawn: dict[tuple[str, str | None], list[str]] = {}
    # short phases are drawn last, over the long ones: they take a cell all the same
    longest = rows.sort(pl.col("until_s") - pl.col("from_s"), descending=True, maintain_order=True)
    for file, rank, phase, start, stop, ended in longest.select(
        "file", "rank", "phase", "from_s", "until_s", pl.col("end_line").is_not_null()
    ).iter_rows():
        bar = drawn.setdefault((file, rank), ["."] * room)
        first = min(max(int(start / until * room), 0), room - 1)
        last = min(max(int(stop / until * room), first + 1), room)
        bar[first:last] = _LETTERS[phase] * (last - first)
        if not ended:
            bar[last - 1] = ">"
    for one, label in zip(shown, labels, strict=True):
        if one in drawn:
            yield label + " " * (left - cell_len(label)) + "".join(drawn[one]), ""
    used = [f"{_LETTERS[name]} {name}" for name in ALL_PHASES if (rows["phase"] == name).any()]
    opened = [] if rows["end_line"].null_count() == 0 else ["> no end in the log"]
    yield from ((line, "dim") for line in wrap(", ".join([*used, *opened]), width))


# ------------------------------------------------------------------ the gaps


def _gaps(timeline: Timeline, gap: float, names: dict[str, str], *, everything: bool) -> Iterator[str]:
    """Yield the gaps in words; what ranks do alike is said once, of the rank that was silent longest."""
    rows = timeline.gaps.sort("seconds", "begin_line", descending=[True, False])
    if rows.is_empty():
        yield f"no gap of {span(gap)} or more between lines" + ("" if everything else " of the start")
        return
    groups = rows.group_by("file", "after", pl.col("rank").is_null().alias("all"), maintain_order=True).agg(
        pl.col("rank", "begin_line", "end_line", "seconds", "unstamped").first(),
        pl.col("rank").n_unique().alias("ranks"),
        pl.len().alias("count"),
        pl.col("seconds").last().alias("least"),
    )
    for row in groups.head(_GAPS).iter_rows(named=True):
        yield _gap(row, names, several=len(timeline.members) > 1)
    if groups.height > _GAPS:
        yield f"(+{groups.height - _GAPS} more gaps: --output-format json)"


def _gap(row: dict[str, Any], names: dict[str, str], *, several: bool) -> str:
    where = f" on {row['rank']}" if row["rank"] else ""
    text = f"{span(row['seconds'])} without a line after {row['after']}{where}"
    place = f"lines {row['begin_line']}-{row['end_line']}"
    if row["end_line"] is None:
        place = f"line {row['begin_line']} to the last stamp"
    bare = row["unstamped"]
    between = f"; {bare} line{'' if bare == 1 else 's'} without a stamp between" if bare else ""
    text += f" ({names[row['file']] + ' ' if several else ''}{place}{between})"
    if row["ranks"] > 1:
        more = row["ranks"] - 1
        text += f", and {span(row['least'])} or more on {more} more rank{'s' if more > 1 else ''}"
    elif row["count"] > 1:
        text += f", and {row['count'] - 1} more of {span(row['least'])} or more"
    return text


# ------------------------------------------------------------------ for programs


def render_json(timelines: Sequence[Timeline], gap: float, *, show_secrets: bool = False) -> str:
    """Return one JSON object (schema sglogparse/timeline/1); times are as printed, durations in s."""
    jobs = [
        {
            "members": [
                {"file": file, "first_line": first, "last_line": last} for file, first, last in one.members
            ],
            "kind": one.group.kind,
            "role": one.group.role,
            "reason": one.group.reason,
            "offsets": [offset.as_dict() for offset in one.group.offsets],
            "begin": one.begin.isoformat() if one.begin else None,
            "ready_s": one.ready_s,
            "until_s": one.until_s,
            "phases": _rows(one.phases),
            "gaps": _rows(one.gaps),
        }
        for one in timelines
    ]
    data: Any = {"schema": SCHEMA, "gap_s": gap, "jobs": jobs}
    return dumps(data if show_secrets else _masked(data))


def _masked(value: Any) -> Any:  # noqa: ANN401 - data of any shape
    if isinstance(value, str):
        return mask_secrets(value)
    if isinstance(value, list):
        return [_masked(one) for one in value]
    return {name: _masked(one) for name, one in value.items()} if isinstance(value, dict) else value


def _rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    return [
        {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in row.items()}
        for row in frame.iter_rows(named=True)
    ]


def render_csv(timelines: Sequence[Timeline], *, show_secrets: bool = False) -> str:
    """Return the phases as one table, a row a rank and phase, with the number of the job (from 0) before."""
    empty = pl.DataFrame(schema={"job": pl.UInt32(), **TIMELINE_SCHEMA})
    parts = [
        one.phases.select(pl.lit(number, dtype=pl.UInt32).alias("job"), *TIMELINE_SCHEMA)
        for number, one in enumerate(timelines)
    ]
    table = pl.concat([empty, *parts])
    return (table if show_secrets else masked_frame(table)).write_csv().rstrip("\n")
