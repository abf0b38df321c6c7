"""From frames to launches: the starts of a server that a log holds, and the facts of each.

    a launch = the lines of one file from where a server starts (or the file begins) to the next start

A server starts at its server_args line, and where ranks begin anew though they had served or had died. One
start can print several server_args lines (a node each, a tokenizer worker each), and a draft worker begins
like a rank does: neither is a launch of its own.

A value that is not in the log is absent (None), never a default. The rules see launches and nothing else.
"""

from __future__ import annotations

import datetime as dt
import json
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache, update_wrapper, wraps
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

import polars as pl

from sglogparse._cheap import lazy
from sglogparse._compiler import compiled_plan
from sglogparse._events import COUNTS, printed
from sglogparse._grammar import rule_names
from sglogparse._nothing import LaunchFrames, Nothing
from sglogparse._records import place_of, places_of
from sglogparse._report import Evidence

if TYPE_CHECKING:
    from sglogparse._compiler import EventPlan
    from sglogparse._events import Frames
    from sglogparse._log import Log
    from sglogparse._source import SourceFile

_Derived = TypeVar("_Derived")
_Asked = ParamSpec("_Asked")

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
class Whole:
    """The lines that were split into launches: what each is asked is looked for in all of them at once."""

    lines: pl.DataFrame
    records: pl.DataFrame
    frames: Frames
    #: the first row of each launch, and behind the last one
    rows: list[int]
    memo: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def launch(self) -> pl.Series:
        """Return the number of the launch of each row."""
        sizes = pl.Series([end - begin for begin, end in pairwise(self.rows)], dtype=pl.UInt32)
        numbers = pl.select(pl.int_range(len(sizes), dtype=pl.UInt32).repeat_by(sizes).explode())
        return numbers.to_series().alias("launch")

    def rows_of(self, frame: pl.DataFrame) -> pl.Series:
        """Return the rows of the lines of a frame, which are in their order."""
        return places_of(self.lines).search_sorted(places_of(frame)).cast(pl.UInt32).alias("row")


class throughout:
    """Makes a function work once on the lines of all launches, and each launch have its own rows of it.

    The function returns a frame with the column `row`, the row in `lines`, in its order.
    """

    def __init__(self, derive: Callable[[Whole], pl.DataFrame]) -> None:
        self.derive = derive
        self.key = f"{derive.__module__}.{derive.__qualname__}"
        self.__doc__ = derive.__doc__

    def _found(self, whole: Whole) -> tuple[pl.DataFrame, list[int], Nothing]:
        if self.key not in whole.memo:
            found = self.derive(whole)
            cuts = found["row"].search_sorted(pl.Series(whole.rows, dtype=pl.UInt32)).to_list()
            whole.memo[self.key] = found, cuts, Nothing(found.clear())
        kept: tuple[pl.DataFrame, list[int], Nothing] = whole.memo[self.key]
        return kept

    def of(self, whole: Whole) -> pl.DataFrame:
        """Return what is found in the lines of all launches."""
        return self._found(whole)[0]

    def __call__(self, launch: Launch) -> pl.DataFrame:
        found, cuts, nothing = self._found(launch.whole)
        begin, end = cuts[launch.number], cuts[launch.number + 1]
        return found[begin:end] if begin < end else nothing


#: What is looked for in texts: of a long log lines are kept that any of these find.
TELLING: list[throughout] = []


class telling(throughout):
    """Makes a function that looks for texts work as `throughout` does; a long log keeps what it finds.

    Columns of truth values tell its lines apart.
    """

    def __init__(self, derive: Callable[[Whole], pl.DataFrame]) -> None:
        super().__init__(derive)
        TELLING.append(self)


class each(Generic[_Derived]):
    """Makes a function work once on the lines of all launches, and each launch have its own value."""

    def __init__(self, derive: Callable[[Whole], Mapping[int, _Derived]]) -> None:
        self.derive = derive
        self.key = f"{derive.__module__}.{derive.__qualname__}"
        self.__doc__ = derive.__doc__

    def __call__(self, launch: Launch) -> _Derived | None:
        if self.key not in launch.whole.memo:
            launch.whole.memo[self.key] = self.derive(launch.whole)
        found: Mapping[int, _Derived] = launch.whole.memo[self.key]
        return found.get(launch.number)


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


def once_each(
    derive: Callable[Concatenate[Launch, _Asked], _Derived],
) -> Callable[Concatenate[Launch, _Asked], _Derived]:
    """Make a function of a launch and of something in it work once for each of them."""

    def derived(launch: Launch, /, *asked: _Asked.args, **named: _Asked.kwargs) -> _Derived:
        key = (derive.__module__, derive.__qualname__, asked, *named.items())
        if key not in launch.memo:
            launch.memo[key] = derive(launch, *asked, **named)
        found: _Derived = launch.memo[key]
        return found

    return update_wrapper(derived, derive)


def once(derive: Callable[[Launch], _Derived]) -> Callable[[Launch], _Derived]:
    """Make a function of a launch work once a launch: rules share what it returns, and must not change it."""

    @wraps(derive)
    def derived(launch: Launch) -> _Derived:
        key = f"{derive.__module__}.{derive.__qualname__}"
        if key not in launch.memo:
            launch.memo[key] = derive(launch)
        found: _Derived = launch.memo[key]
        return found

    return derived


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


#: The parts of a rank tag by which ranks are put in order, whichever of them a tag has.
_ORDER = ("DP", "PP", "TP", "EP")


def rank_key(rank: str) -> tuple[list[int], str]:
    """Sort rank tags by their DP, PP, TP and EP numbers; a tag that lacks one comes before those with it.

    >>> sorted(["DP1 TP4", "TP10", "TP2", "DP0 TP8"], key=rank_key)
    ['TP2', 'TP10', 'DP0 TP8', 'DP1 TP4']
    """
    numbers = dict(_numbered(rank))
    return [numbers.pop(tag, -1) for tag in _ORDER] + list(numbers.values()), rank


def _numbered(rank: str) -> list[tuple[str, int]]:
    """Return the parts of a rank tag and their numbers, as printed."""
    words = ((word.rstrip("0123456789"), word) for word in rank.split(" "))
    return [(tag, int(word[len(tag) :] or 0)) for tag, word in words]


def rank_list(ranks: Iterable[str | None]) -> tuple[str, ...]:
    """Return the ranks that are known, each once, in the order of their numbers."""
    return tuple(sorted({rank for rank in ranks if rank}, key=rank_key))


def on_ranks(ranks: Iterable[str | None]) -> str:
    """Return " on" and the ranks for use in a sentence; nothing when none is known."""
    spread = rank_spread(ranks)
    return f" on {'rank ' if spread[0].isdigit() else ''}{spread}" if spread else ""


def rank_spread(ranks: Iterable[str | None]) -> str:
    """Name ranks shortly: runs of one tag are joined.

    >>> rank_spread(["TP0", "TP1", "TP2", "TP6"])
    'TP0-TP2, TP6'
    """
    parts: list[list[str]] = []
    for rank in rank_list(ranks):
        if parts and _follows(parts[-1][-1], rank):
            parts[-1].append(rank)
        else:
            parts.append([rank])
    return ", ".join(part[0] if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def _follows(before: str, after: str) -> bool:
    one, two = _numbered(before), _numbered(after)
    if [tag for tag, _ in one] != [tag for tag, _ in two]:
        return False
    steps = {b - a for (_, a), (_, b) in zip(one, two, strict=True)}
    return 1 in steps and steps <= {0, 1}


#: Events that a rank of a server prints.
_SPEAKS = (
    *("load_weight_begin", "load_weight_end", "kv_cache", "memory_pool_end", "capacity"),
    *("decode_batch", "prefill_batch"),
)
#: Arguments that differ between the nodes of one job: who it is, where it listens, what it draws by lot.
NODE_ARGS = frozenset({"node_rank", "host", "port", "nccl_port", "random_seed"})
#: A rank that finds this share of what it first had free is a new process, and no draft worker.
_AS_FREE = 0.9


def read_launches(log: Log) -> list[Launch]:
    """Split a log into launches, each line into exactly one."""
    servers = _servers(log)
    if servers:
        return [one for part in _apart(log, servers) for one in _split(part)]
    return _split(log)


def _servers(log: Log) -> dict[int, list[str]]:
    """Return the files in which several servers speak in turn, with what their carrier calls each of them.

    Servers print their arguments and that they are ready, or the same rank speaks behind several names.
    """
    if log.carried.is_empty():
        return {}
    names = log.carried.drop_nulls("origin").select("file", "line", "origin")
    # of the nodes of one server only the first says that it is ready
    own = pl.concat([log.frames[kind].select("file", "line") for kind in ("server_args", "ready")])
    told = own.join(names, on=["file", "line"])
    speaks = pl.concat([log.frames[kind].select("file", "line", "rank") for kind in _SPEAKS])
    ranks = speaks.join(names, on=["file", "line"]).unique(["file", "rank", "origin"])
    shared = ranks.filter(pl.len().over("file", "rank") > 1)
    servers = pl.concat([told.select("file", "line", "origin"), shared.select("file", "line", "origin")])
    found = servers.sort("file", "line").group_by("file", maintain_order=True)
    origins = found.agg(pl.col("origin").unique(maintain_order=True))
    return {file: names for file, names in origins.iter_rows() if len(names) > 1}


def _apart(log: Log, servers: Mapping[int, list[str]]) -> Iterator[Part]:
    """Yield the lines of each file, those of several servers apart; what none of them says is the first's."""
    for index in range(len(log.files)):
        own = log.lines.select("file", "line", row=pl.int_range(pl.len(), dtype=pl.UInt32)).filter(file=index)
        if index not in servers:
            yield _part(log, own)
            continue
        first, *others = servers[index]
        told = own.join(log.carried.select("file", "line", "origin"), on=["file", "line"], how="left")
        speaks = pl.when(pl.col("origin").is_in(others)).then("origin").otherwise(pl.lit(first))
        by_server = told.sort("row").with_columns(speaks.alias("origin"))
        for name in servers[index]:
            yield _part(log, by_server.filter(origin=name))


def _part(log: Log, own: pl.DataFrame) -> Part:
    places = own.select("file", "line")

    def some(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.join(places, on=["file", "line"], how="semi", maintain_order="left")

    return Part(log.files, log.lines[own["row"]], log.records[own["row"]], log.frames.where(some))


class Part(NamedTuple):
    """Some lines of a log, in order, and what is read of them."""

    files: tuple[SourceFile, ...]
    lines: pl.DataFrame
    records: pl.DataFrame
    frames: Frames


def _split(log: Log | Part) -> list[Launch]:
    """Split lines into launches: each certain start begins one."""
    firsts = dict(log.lines.group_by("file").agg(pl.col("line").min()).iter_rows())
    starts = _starts(log.frames, len(log.files))
    edges = [
        (index, max(line, firsts[index]))
        for index in range(len(log.files))
        if index in firsts
        for line in starts[index]
    ]
    if not edges:
        return []
    keys = pl.Series([place_of(*edge) for edge in edges] + [place_of(len(log.files), 1)], dtype=pl.UInt64)
    rows = _cuts(log.lines, keys) if len(edges) > 1 else [0, log.lines.height]
    parts: list[dict[str, tuple[int, int]]] = [{} for _ in edges]
    for name, frame in log.frames.found.items():
        cuts = _cuts(frame, keys) if len(edges) > 1 else [0, frame.height]
        for part, (begin, end) in zip(parts, pairwise(cuts), strict=True):
            if begin < end:
                part[name] = begin, end
    whole, nothing = Whole(log.lines, log.records, log.frames, rows), dict[str, pl.DataFrame]()
    launches: list[Launch] = []
    for number, (file, _) in enumerate(edges):
        frames = log.frames.cut(parts[number]) if len(edges) > 1 else log.frames
        launch = _launch(log.files[file].path, whole, number, LaunchFrames(frames, nothing))
        again = number > 0 and edges[number - 1][0] == file
        launches.append(replace(launch, previous=launches[-1]) if again else launch)
    return launches


def _starts(frames: Frames, files: int) -> list[list[int]]:
    """Return, for each file, where its launches begin: at the first line, then at each certain new start."""
    begins = _begins(frames)
    again = begins.filter("again").partition_by("file", as_dict=True)
    given = frames["server_args"].group_by("file").len()
    several = {file for file, number in given.iter_rows() if number > 1}
    ends: dict[int, int] = {}
    for kind in _ENDS:
        if frames[kind].height:
            for file, line in frames[kind].group_by("file").agg(pl.col("line").min()).iter_rows():
                ends[file] = min(line, ends.get(file, line))
    first = dict(frames["server_args"].group_by("file").agg(pl.col("line").min()).iter_rows())
    out = []
    for file in range(files):
        # the lines above the first arguments may be those of an older server, whose beginning is cut off
        starts = [1, first[file]] if ends.get(file, 0) < first.get(file, 0) and file in ends else [1]
        if file in several or (file,) in again:
            own = _own(frames, file)
            _more_starts(own, starts, again.get((file,), begins.clear()), begins.filter(file=file))
        out.append(starts)
    return out


def _more_starts(
    own: Mapping[str, pl.DataFrame], starts: list[int], again: pl.DataFrame, begins: pl.DataFrame
) -> None:
    """Add the lines of a file at which another launch begins."""
    given = _given(own)
    for (before, one), (line, two) in pairwise(given.items()):
        if not _same_start(own, one, two, before, line):
            starts.append(line)
    for line, before in _restarts(own, again, begins):
        place = bisect_right(starts, line) - 1
        begun = starts[place]
        # of two servers that start at once in one file, what the first one says is no news of the second
        alone = place == 0 or _between(own, (*_ENDS, "traceback"), starts[place - 1], begun)
        if begun <= before and alone:
            insort(starts, line)


#: Events by which a rank begins, by which a server shows that its start is over, and by which a process ends.
_BEGINS = ("dist_init_begin", "load_weight_begin")
_DEATHS = ("sigquit", "process_exit", "exception_report")
_BATCHES = ("decode_batch", "prefill_batch")
_ENDS = (*_DEATHS, *_BATCHES, "ready", "sigterm")
_TELLING = frozenset(
    {*_BEGINS, *_ENDS, "dist_init_end", "load_weight_end", "server_args", "server_arg", "traceback"}
)


def _own(frames: Frames, file: int) -> dict[str, pl.DataFrame]:
    """Return the rows of a file of the frames that tell where launches begin."""
    own = {}
    for name in _TELLING:
        frame = frames[name]
        begin, end = frame["file"].cast(pl.UInt32).search_sorted(pl.Series([file, file + 1], dtype=pl.UInt32))
        own[name] = frame[begin:end]
    return own


def _given(own: Mapping[str, pl.DataFrame]) -> dict[int, dict[str, str]]:
    """Return the arguments of each server_args line of a file, as JSON by name, by its line."""
    found: dict[int, dict[str, str]] = {line: {} for line in own["server_args"]["line"]}
    for line, name, value in own["server_arg"].select("line", "name", "value").iter_rows():
        found[line][name] = value
    return found


def _between(own: Mapping[str, pl.DataFrame], kinds: Iterable[str], after: int, before: int) -> bool:
    firsts = (first_line(own[kind], after) for kind in kinds)
    return any(first is not None and first < before for first in firsts)


def _same_start(
    own: Mapping[str, pl.DataFrame], one: Mapping[str, str], two: Mapping[str, str], before: int, line: int
) -> bool:
    """Tell whether two server_args lines belong to one start: alike, and nothing begun or ended between them.

    Nodes of one job wait for one another: until they have met, a second node's line is no second start.
    """
    drawn = {"node_rank", "random_seed"}
    if not one or _without(one, drawn) != _without(two, drawn):
        return False
    if _between(own, (*_ENDS, "traceback"), before, line):
        return False
    nodes = one.get("node_rank") != two.get("node_rank") and one.get("dist_init_addr") not in (None, "null")
    return not _between(own, ("dist_init_end",) if nodes else _BEGINS, before, line)


def _without(args: Mapping[str, str], names: set[str]) -> dict[str, str]:
    return {name: value for name, value in args.items() if name not in names}


def _begins(frames: Frames) -> pl.DataFrame:
    """Return where ranks begin, and `again`: whether the rank had begun so before in its file."""
    columns = ("file", "line", "rank", "avail_mem")
    begins = pl.concat(
        [frames[kind].select(*columns, kind=pl.lit(kind)) for kind in _BEGINS]  # in the order of the events
    ).sort("file", "line")
    before = pl.col("line").shift().over("file", "rank", "kind").alias("before")
    dist = pl.col("kind") == _BEGINS[0]
    joined = pl.when(dist).then(pl.col("line")).forward_fill().over("file", "rank").alias("joined")
    # where a rank joins the process groups again, that it loads weights again is no news
    news = dist | (pl.col("joined") < pl.col("before")) | pl.col("joined").is_null()
    again = pl.col("before").is_not_null() & news
    return begins.with_columns(before, joined).with_columns(again.fill_null(False).alias("again"))


def _restarts(
    own: Mapping[str, pl.DataFrame], again: pl.DataFrame, begins: pl.DataFrame
) -> list[tuple[int, int]]:
    """Return where ranks begin anew, as (line of the first one, line at which the rank had begun before).

    A rank that had begun begins again behind a line by which it had served, or behind the end of a process. A
    draft worker does so too when another rank has just died, but it finds far less memory free.
    """
    if again.is_empty():
        return []
    last = int(begins["line"][-1])
    batches: dict[str | None, list[int]] = defaultdict(list)
    for kind in _BATCHES:
        some = between(own[kind], 0, last - 1)
        for rank, lines in some.group_by("rank").agg("line").iter_rows():
            batches[rank] = sorted([*batches[rank], *lines])
    deaths = sorted(line for kind in _DEATHS for line in own[kind]["line"])
    begun, ready = begins["line"].to_list(), own["ready"]["line"].to_list()
    out: set[tuple[int, int]] = set()
    for row in again.iter_rows(named=True):
        within = row["before"], row["line"]
        shown = [*_inside(ready, *within), *_inside(batches[row["rank"]], *within)[-1:]]
        died = _inside(deaths, *within)
        if shown or (died and _is_new(own, row)):
            proof = max([*shown, *died])
            out.add((begun[bisect_right(begun, proof)], row["before"]))
    return sorted(out)


def _inside(lines: list[int], after: int, before: int) -> list[int]:
    """Return those of some lines, in their order, that stand between two lines."""
    return lines[bisect_right(lines, after) : bisect_left(lines, before)]


def _is_new(own: Mapping[str, pl.DataFrame], again: Mapping[str, Any]) -> bool:
    """Tell whether a rank that begins again after a death is a new process, and not its own draft worker."""
    mine, line = pl.col("rank").eq_missing(again["rank"]), again["line"]
    if between(own["load_weight_end"], again["before"], line).filter(mine).is_empty():
        return True  # no draft worker begins before the weights are there
    died = mine & (pl.col("process_name") == "Scheduler")
    if not between(own["exception_report"], again["before"], line).filter(died).is_empty():
        return True  # a rank whose own process has ended speaks again
    free = own["load_weight_begin"].filter(mine).drop_nulls("avail_mem")
    first = free.filter(pl.col("line").is_between(again["before"], line, closed="left"))["avail_mem"]
    then = free.filter(pl.col("line") >= line)["avail_mem"]
    return not first.is_empty() and not then.is_empty() and then[0] >= _AS_FREE * first[0]


def _cuts(frame: pl.DataFrame, keys: pl.Series) -> list[int]:
    """Return the rows at which a frame, which is in the order of its lines, is cut at the keys."""
    if frame.is_empty():
        return [0] * len(keys)
    return places_of(frame).search_sorted(keys, side="left").to_list()


def _launch(path: str, whole: Whole, number: int, frames: LaunchFrames) -> Launch:
    reprs, given = frames["server_args"], frames["server_arg"]
    # of several server_args lines of one start (one a node) the first speaks
    if given.height and given["line"][0] != given["line"][-1]:
        given = given.filter(pl.col("line") == pl.col("line").min())
    begin, end = whole.rows[number], whole.rows[number + 1]
    names, values = given["name"].to_list(), given["value"].to_list()
    return Launch(
        path=path,
        lines=whole.lines[begin:end],
        frames=frames,
        records=whole.records[begin:end],
        args={name: _read(value) for name, value in zip(names, values, strict=True)},
        args_cut=bool(reprs.height) and reprs["args_repr"][0][-1:] not in (")", "}"),
        whole=whole,
        number=number,
        counts=frames.present.get(COUNTS),
    )


@lru_cache(maxsize=4096)
def _read(value: str) -> Any:  # noqa: ANN401 - an argument can be anything
    """Return an argument's value; most arguments of most launches are the same few."""
    return json.loads(value)
