"""One start of a server, as the rules see it: its lines, frames, arguments and phases.

    lines and frames of one start --> Launch --> phases reached, readiness, evidence, printed digits

A value that is not in the log is absent (None), never a default. The rules see launches and nothing else.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from sglogparse._cheap import lazy
from sglogparse._compiler import compiled_plan
from sglogparse._derived import Whole, each, telling, throughout
from sglogparse._events import printed
from sglogparse._grammar import rule_names
from sglogparse._nothing import LaunchFrames
from sglogparse._ranks import rank_key
from sglogparse._report import Evidence

if TYPE_CHECKING:
    from sglogparse._compiler import EventPlan


#: Event -> phase it begins or belongs to, in the order of a start.
PHASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("arguments", ("server_args",)),
    ("set-up", rule_names("startup.lark")),
    ("distributed set-up", ("dist_init_begin", "dist_init_end")),
    ("weight loading", ("load_weight_begin",)),
    ("KV cache set-up", ("load_weight_end", "profile_max_num_token", "max_total_tokens_capped", "kv_cache")),
    ("memory pools", ("memory_pool_end",)),
    ("graph capture", ("graph_capture_begin", "graph_capture_plan")),
    ("capacity known", ("graph_capture_end", "capacity")),
    ("warm-up", ("http_lifecycle",)),
    ("ready", ("ready",)),
    ("serving", ("decode_batch",)),
)
#: Where a server stands after the last event of a phase, in words.
STANDS = {
    "arguments": "at the very start",
    "set-up": "during its set-up",
    "distributed set-up": "during distributed set-up",
    "weight loading": "during weight loading",
    "KV cache set-up": "during KV cache set-up",
    "memory pools": "after the memory pools were built",
    "graph capture": "during graph capture",
    "capacity known": "after graph capture",
    "warm-up": "during warm-up",
    "ready": "after it was ready",
    "serving": "while serving",
}


#: Numbers that a machine can have: up to 2^60, which is more than the bytes of any memory.
_POSSIBLE = lazy(r"-?[0-9]{1,18}(?:\.[0-9]{1,30})?(?:e[+-]?[0-9])?")
#: Events of a request: only a server that serves can lose one, or finish one.
_REQUESTS = (
    "kv_transfer_failed",
    "request_finished",
    "room_failed",
    "transfer_session",
    "pd_timeout",
    "prefill_lost",
    "memory_leak",  # it is looked for when the last request has ended
)
#: What else only a server that serves prints, or is quoted with: no event has it.
_AT_WORK = (
    r"Request is disconnected from the client side|UserWarning: .*pool.* leak detected!"
    r"|\"finish_reason\": ?\{\"type\": ?\"abort\", ?\"message\": ?\"(?:Prefill|Decode) "
)
#: Kinds of lines in which that stands.
_QUOTING = ("message", "python_runtime", "python_warning", "json_text")


@dataclass(frozen=True)
class Launch:
    """One start of a server: its lines, frames, arguments and phases."""

    path: str
    lines: pl.DataFrame
    frames: LaunchFrames
    records: pl.DataFrame
    #: arguments by name; empty when the log has no server_args line
    args: Mapping[str, Any]
    #: the server_args line was cut: an argument that is missing may have been given
    args_cut: bool
    #: all the launches that were split with this one, and which of them it is
    whole: Whole = field(repr=False, compare=False)
    number: int
    #: how many lines each group has, and how many are not kept (_condense); None where all of them are
    counts: pl.DataFrame | None = None
    #: what was derived of the launch once (rules share it), by the function that derives it
    memo: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)
    #: the launch before it in the same file: another try, perhaps
    previous: Launch | None = field(default=None, repr=False, compare=False)

    @cached_property
    def first_line(self) -> int:
        """Return the first physical line."""
        return int(self.lines["line"][0])

    @cached_property
    def last_line(self) -> int:
        """Return the last physical line."""
        return int(self.lines["line"][-1])

    def row(self, line: int) -> int:
        """Return the row of a line in `lines`; of a line that another launch has, the next one's."""
        if self.lines.height == self.last_line - self.first_line + 1:
            return line - self.first_line
        return int(self.lines["line"].search_sorted(line))

    def stamps_at(self, line: int) -> tuple[dt.datetime | None, dt.time | None]:
        """Return the last time and clock up to a line; a line within a traceback has none of its own."""
        above = self.lines[: self.row(line) + 1]
        times, clocks = above["time"].drop_nulls(), above["clock"].drop_nulls()
        return (
            None if times.is_empty() else times[-1],
            None if clocks.is_empty() else clocks[-1],
        )

    def holds(self, line: int) -> bool:
        """Tell whether a line is one of this launch."""
        row = self.row(line)
        return 0 <= row < self.lines.height and self.lines["line"][row] == line

    def evidence(self, line: int) -> Evidence:
        """Return a line as evidence."""
        return self.evidences([line])[0]

    def evidences(self, lines: Iterable[int]) -> tuple[Evidence, ...]:
        """Return lines as evidence, in order, each once."""
        numbers = sorted(set(lines))
        rows = [self.row(line) for line in numbers]
        told = [_values(self.records[column], rows) for column in ("rank", "text", "message")]
        return tuple(Evidence(self.path, *one) for one in zip(numbers, *told, strict=True))

    def printed(self, kind: str, lines: Iterable[int]) -> list[dict[str, Any]]:
        """Return the fields of an event's lines digit for digit, with `line` and `rank`.

        A number that nothing on a machine can have (nan, inf, 1e308, a thousand digits) is absent.
        """
        numbers = sorted(set(lines))
        if not numbers:
            return []
        event = _event(kind)
        rows = self._printed(kind, [self.row(line) for line in numbers])
        out = []
        places = [row.pop("row") for row in rows]
        told = [_values(self.lines[column], places) for column in ("line", "rank")]
        numeric = [name for name, kind in event.fields.items() if kind in ("int", "float")]
        for row, line, rank in zip(rows, *told, strict=True):
            row |= {name: None for name in numeric if row[name] and not _POSSIBLE.fullmatch(row[name])}
            out.append({**row, "line": line, "rank": rank})
        return out

    def _printed(self, kind: str, rows: list[int]) -> list[dict[str, Any]]:
        frame = self.whole.frames[kind]
        if len(self.whole.rows) == 2 or frame.height > _AT_ONCE:
            return printed(self.records, _event(kind), rows)
        # the same lines of all launches, read at once
        key = f"printed {kind}"
        if key not in self.whole.memo:
            every = printed(self.whole.records, _event(kind), self.whole.rows_of(frame))
            self.whole.memo[key] = {row["row"]: row for row in every}
        begin, told = self.whole.rows[self.number], self.whole.memo[key]
        return [{**told[begin + row], "row": row} for row in rows if begin + row in told]

    @cached_property
    def ranks(self) -> tuple[str, ...]:
        """Return the rank tags that speak, in the order of their numbers."""
        return tuple(sorted(_speaking(self)["rank"], key=rank_key))

    @cached_property
    def reached(self) -> dict[str, int]:
        """Return the first line of each phase that was reached, in the order of a start."""
        out: dict[str, int] = {}
        present = self.frames.present
        for phase, kinds in PHASES:
            lines = [int(present[kind]["line"][0]) for kind in kinds if kind in present]
            if lines:
                out[phase] = min(lines)
        return out

    @cached_property
    def _firsts(self) -> dict[str, tuple[dict[str | None, int], int]]:
        """Return the first line of each event of a phase, by rank and of all."""
        out = {}
        for kind in (kind for _, kinds in PHASES for kind in kinds if kind in self.frames.present):
            firsts = first_by_rank(self.frames[kind])
            out[kind] = firsts, min(firsts.values())
        return out

    def phase_at(self, line: int, rank: str | None = None) -> str | None:
        """Return the furthest phase whose event stands at or before a line (of one rank, where it speaks)."""
        best: str | None = None
        own: str | None = None
        for phase, kinds in PHASES:
            for kind in kinds:
                if kind not in self._firsts:
                    continue
                firsts, earliest = self._firsts[kind]
                if earliest <= line:
                    best = phase
                if rank is not None and firsts.get(rank, line + 1) <= line:
                    own = phase
        return own or best

    @cached_property
    def duration(self) -> float | None:
        """Return the time from the first to the last stamp, s; None without stamps."""
        times = stamps(self)
        return None if times is None else (times.last - times.first).total_seconds()

    @cached_property
    def serves(self) -> int | None:
        """Return the first line that shows readiness: the ready line, or a batch that was served."""
        return self.serves_after(0)

    def serves_after(self, line: int) -> int | None:
        """Return the first line behind a line that shows readiness."""
        # a request that failed within the server was taken by one
        answered = _answered(self) if line else _taken(self)
        frames = [self.frames[kind] for kind in ("ready", "decode_batch", "prefill_batch", "retraction")]
        if not line:  # only a server that serves can lose a request, or finish one
            frames += [self.frames[kind] for kind in _REQUESTS]
        lines = [first for frame in (*frames, answered) if (first := first_line(frame, line)) is not None]
        if not lines and not line:
            return first_line(_at_work(self))
        return min(lines, default=None)

    def dropped(self, where: pl.Expr) -> int:
        """Return how many lines of some groups (COUNT_SCHEMA) were counted only."""
        return 0 if self.counts is None else int(self.counts.filter(where)["dropped"].sum())

    def argument(self, name: str) -> Any:  # noqa: ANN401 - an argument can be anything
        """Return an argument, None when the log does not tell."""
        return self.args.get(name)


@throughout
def _taken(whole: Whole) -> pl.DataFrame:
    """Return the requests that a server has taken: answered, or failed within it."""
    access = whole.frames["http_access"].filter(
        (pl.col("method") == "POST") & pl.col("status").is_in([200, 500])
    )
    return access.select("line", "status").with_columns(whole.rows_of(access))


@throughout
def _answered(whole: Whole) -> pl.DataFrame:
    """Return the requests that a server has answered."""
    return _taken.of(whole).filter(pl.col("status") == 200)


@telling
def _at_work(whole: Whole) -> pl.DataFrame:
    """Return the lines that only a server at work prints, where no event has them."""
    kind = whole.lines["kind"].cast(pl.String)
    rows = (kind.is_null() | kind.is_in(_QUOTING)).arg_true()
    free = whole.records.select("line", "message")[rows].with_columns(rows.alias("row"))
    return free.filter(pl.col("message").str.contains(_AT_WORK)).select("row", "line")


@throughout
def _speaking(whole: Whole) -> pl.DataFrame:
    """Return the rank tags that speak in each launch, each by its first row."""
    tags = whole.lines.select("rank").with_columns(whole.launch).with_row_index("row")
    return tags.drop_nulls("rank").unique(["launch", "rank"], keep="first", maintain_order=True)


class Stamps(NamedTuple):
    """The stamps between which a launch stands, by time, and the first one that it prints."""

    first: dt.datetime
    last: dt.datetime
    printed: dt.datetime


@each
def stamps(whole: Whole) -> dict[int, Stamps]:
    """Return the stamps of each launch that has some."""
    times = whole.lines.select("time").with_columns(whole.launch).drop_nulls("time")
    time = pl.col("time")
    found = times.group_by("launch").agg(time.min().alias("min"), time.max().alias("max"), time.first())
    return {launch: Stamps(*told) for launch, *told in found.iter_rows()}


def serves_again(launch: Launch, line: int) -> bool:
    """Tell whether a batch or an answer to a request stands behind a line."""
    return launch.serves_after(line) is not None


def first_line(frame: pl.DataFrame, behind: int = 0) -> int | None:
    """Return the line of a frame's first row (in their order, behind a line); None when it has none."""
    if frame.is_empty():
        return None
    lines = frame["line"]
    place = bisect_right(lines, behind) if behind else 0
    return int(lines[place]) if place < len(lines) else None


def between(frame: pl.DataFrame, first: int, last: int) -> pl.DataFrame:
    """Return the rows of a frame, which is in the order of its lines, from one line to another one."""
    if frame.is_empty():
        return frame
    lines = frame["line"]
    return frame[bisect_left(lines, first) : bisect_right(lines, last)]


def most(frame: pl.DataFrame, name: str) -> float | None:
    """Return the largest value of a column; None when it has none."""
    value = frame[name].cast(pl.Float64).max()
    return value if isinstance(value, float) else None


def least(frame: pl.DataFrame, name: str) -> float | None:
    """Return the smallest value of a column; None when it has none."""
    value = frame[name].cast(pl.Float64).min()
    return value if isinstance(value, float) else None


def alike(column: pl.Series) -> bool:
    """Tell whether all values of a column are the same one."""
    return len(set(column.to_list()) if len(column) <= _FEW else column.unique()) < 2


def first_by_rank(frame: pl.DataFrame) -> dict[str | None, int]:
    """Return the first line of each rank in a frame."""
    if frame.height > _FEW:
        return dict(frame.group_by("rank").agg(pl.col("line").min()).iter_rows())
    found: dict[str | None, int] = {}
    for rank, line in zip(frame["rank"].to_list(), frame["line"].to_list(), strict=True):
        found.setdefault(rank, line)
    return found


@cache
def _event(kind: str) -> EventPlan:
    return next(one for one in compiled_plan().events if one.name == kind)


def _values(column: pl.Series, rows: list[int]) -> list[Any]:
    """Return the values of some rows."""
    return [column[row] for row in rows] if len(rows) <= _SOME else column.gather(rows).to_list()


#: Rows that Python reads as fast as polars plans a query: of one column, and one value after the other.
_FEW = 500
_SOME = 16
#: Rows of one kind whose texts are read for all launches at once.
_AT_ONCE = 200_000
