"""From frames to launches: the starts of a server that a log holds, and the facts of each.

    a launch = the lines from one server_args line (or the beginning of the file) to the next, in one file

A value that is not in the log is absent (None), never a default. The rules see launches and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from sglogparse._compiler import compiled_plan
from sglogparse._events import printed
from sglogparse._report import Evidence

if TYPE_CHECKING:
    from sglogparse._log import Log

_Derived = TypeVar("_Derived")

#: Event -> phase it begins or belongs to, in the order of a start.
PHASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("arguments", ("server_args",)),
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


@dataclass(frozen=True)
class Launch:
    """One start of a server: its lines, frames, arguments and phases."""

    path: str
    lines: pl.DataFrame
    frames: Mapping[str, pl.DataFrame]
    records: pl.DataFrame
    #: arguments by name; empty when the log has no server_args line
    args: Mapping[str, Any]
    #: the server_args line was cut: an argument that is missing may have been given
    args_cut: bool
    #: what was derived of the launch once (rules share it), by the function that derives it
    memo: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def first_line(self) -> int:
        """Return the first physical line."""
        return int(self.lines["line"][0])

    @cached_property
    def last_line(self) -> int:
        """Return the last physical line."""
        return int(self.lines["line"][-1])

    def evidence(self, line: int) -> Evidence:
        """Return a line as evidence."""
        return self.evidences([line])[0]

    def evidences(self, lines: Iterable[int]) -> tuple[Evidence, ...]:
        """Return lines as evidence, in order, each once."""
        numbers = sorted(set(lines))
        rows = self.records.select("rank", "text", "message")[[line - self.first_line for line in numbers]]
        return tuple(
            Evidence(self.path, line, rank, text, message)
            for line, (rank, text, message) in zip(numbers, rows.iter_rows(), strict=True)
        )

    def printed(self, kind: str, lines: Iterable[int]) -> list[dict[str, Any]]:
        """Return the fields of an event's lines digit for digit, with `line` and `rank`."""
        numbers = sorted(set(lines))
        event = next(one for one in compiled_plan().events if one.name == kind)
        rows = printed(self.records, event, [line - self.first_line for line in numbers])
        out = []
        for row in rows.iter_rows(named=True):
            line = self.first_line + row.pop("row")
            out.append({**row, "line": line, "rank": self.lines["rank"][line - self.first_line]})
        return out

    @cached_property
    def ranks(self) -> tuple[str, ...]:
        """Return the rank tags that speak, in the order of their numbers."""
        found = self.lines.filter(pl.col("rank").is_not_null()).select("rank").unique()["rank"]
        return tuple(sorted(found, key=rank_key))

    @cached_property
    def reached(self) -> dict[str, int]:
        """Return the first line of each phase that was reached, in the order of a start."""
        out: dict[str, int] = {}
        for phase, kinds in PHASES:
            lines = [first for kind in kinds if (first := first_line(self.frames[kind])) is not None]
            if lines:
                out[phase] = min(lines)
        return out

    @cached_property
    def _firsts(self) -> dict[str, tuple[dict[str | None, int], int]]:
        """Return the first line of each event of a phase, by rank and of all."""
        out = {}
        for kind in (kind for _, kinds in PHASES for kind in kinds):
            firsts = dict(self.frames[kind].group_by("rank").agg(pl.col("line").min()).iter_rows())
            out[kind] = firsts, min(firsts.values(), default=self.last_line + 1)
        return out

    def phase_at(self, line: int, rank: str | None = None) -> str | None:
        """Return the furthest phase whose event stands at or before a line (of one rank, where it speaks)."""
        best: str | None = None
        own: str | None = None
        for phase, kinds in PHASES:
            for kind in kinds:
                firsts, earliest = self._firsts[kind]
                if earliest <= line:
                    best = phase
                if rank is not None and firsts.get(rank, line + 1) <= line:
                    own = phase
        return own or best

    @cached_property
    def duration(self) -> float | None:
        """Return the time from the first to the last stamp, s; None without stamps."""
        times = self.lines["time"].drop_nulls()
        if times.is_empty():
            return None
        return float((times.max() - times.min()).total_seconds())  # type: ignore[operator,union-attr]

    @cached_property
    def serves(self) -> int | None:
        """Return the first line that shows readiness: the ready line, or a batch that was served."""
        return self.serves_after(0)

    def serves_after(self, line: int) -> int | None:
        """Return the first line behind a line that shows readiness."""
        answered = self.frames["http_access"].filter((pl.col("method") == "POST") & (pl.col("status") == 200))
        frames = [self.frames[kind] for kind in ("ready", "decode_batch", "prefill_batch", "retraction")]
        lines = [
            first
            for frame in (*frames, answered)
            if (first := first_line(frame.filter(pl.col("line") > line) if line else frame)) is not None
        ]
        return min(lines, default=None)

    def argument(self, name: str) -> Any:  # noqa: ANN401 - an argument can be anything
        """Return an argument, None when the log does not tell."""
        return self.args.get(name)


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


def first_line(frame: pl.DataFrame) -> int | None:
    """Return the line of a frame's first row; None when it has none."""
    return None if frame.is_empty() else int(frame["line"][0])


def rank_key(rank: str) -> tuple[list[int], str]:
    """Sort rank tags by their numbers ("TP2" before "TP10")."""
    return [int("".join(filter(str.isdigit, word)) or 0) for word in rank.split(" ")], rank


def rank_list(ranks: Iterable[str | None]) -> tuple[str, ...]:
    """Return the ranks that are known, each once, in the order of their numbers."""
    return tuple(sorted({rank for rank in ranks if rank}, key=rank_key))


def on_ranks(ranks: Iterable[str | None]) -> str:
    """Return " on" and the ranks for use in a sentence; nothing when none is known."""
    spread = rank_spread(ranks)
    return f" on {spread}" if spread else ""


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
    one, two = before.split(" "), after.split(" ")
    if [word.rstrip("0123456789") for word in one] != [word.rstrip("0123456789") for word in two]:
        return False
    steps = {b - a for a, b in zip(rank_key(before)[0], rank_key(after)[0], strict=True)}
    return 1 in steps and steps <= {0, 1}


def read_launches(log: Log) -> list[Launch]:
    """Split a log into launches: a server_args line after the first begins the next one."""
    edges: list[tuple[int, int]] = []  # (file, line) at which a launch begins; the last pair ends the log
    starts = dict(log.frames["server_args"].group_by("file").agg("line").iter_rows())
    for index, source in enumerate(log.files):
        if source.lines:
            edges += [(index, 1), *((index, line) for line in sorted(starts.get(index, []))[1:])]
    keys = pl.Series([_key(*edge) for edge in edges] + [_key(len(log.files), 1)], dtype=pl.UInt64)
    cuts = {name: _cuts(frame, keys) for name, frame in log.frames.items()}
    rows = _cuts(log.lines, keys)
    return [
        _launch(
            log.files[file].path,
            log.lines[rows[number] : rows[number + 1]],
            log.records[rows[number] : rows[number + 1]],
            {name: frame[cuts[name][number] : cuts[name][number + 1]] for name, frame in log.frames.items()},
        )
        for number, (file, _) in enumerate(edges)
    ]


def _key(file: int, line: int) -> int:
    return (file << 32) + line


def _cuts(frame: pl.DataFrame, keys: pl.Series) -> list[int]:
    """Return the rows at which a frame, which is in the order of its lines, is cut at the keys."""
    own = frame.select(pl.col("file").cast(pl.UInt64) * (1 << 32) + pl.col("line")).to_series()
    return own.search_sorted(keys, side="left").to_list()


def _launch(
    path: str, lines: pl.DataFrame, records: pl.DataFrame, frames: Mapping[str, pl.DataFrame]
) -> Launch:
    reprs = frames["server_args"]["args_repr"]
    return Launch(
        path=path,
        lines=lines,
        frames=frames,
        records=records,
        args={
            name: json.loads(value)
            for name, value in frames["server_arg"].select("name", "value").iter_rows()
        },
        args_cut=not reprs.is_empty() and reprs[0][-1:] not in (")", "}"),
    )
