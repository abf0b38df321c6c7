"""How far each rank of a start has come, kept up to date from new lines alone.

    news --> events of a start --> rank: phase, since when, how long each phase before took
                                       --> Lag: who is behind, in which phase, for how long, and its peers

Times are those that the lines print, in seconds; without stamps, those at which the lines came. The phases
are those of the timeline; a rank that loads weights a second time does so for its draft worker.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from sglogparse._phases import START_PHASES, WORKER_PHASES
from sglogparse._ranks import rank_key
from sglogparse._words import EXITED, KILLED, OUT_OF_HOST_MEMORY

if TYPE_CHECKING:
    from sglogparse._follow import News

#: What the phase of a rank that has printed nothing of its start yet is called.
BEFORE = "before dist init"
#: Event -> the phase that it belongs to, and whether it ends it.
_EDGES = {
    "dist_init_begin": ("dist init", False),
    "dist_init_end": ("dist init", True),
    "load_weight_begin": ("weights", False),
    "load_weight_end": ("weights", True),
    "kv_cache": ("pools", False),
    "swa_pool": ("pools", False),
    "mamba_cache": ("pools", False),
    "memory_pool_end": ("pools", True),
    "graph_capture_begin": ("capture", False),
    "graph_capture_end": ("capture", True),
}
#: What follows a phase at once on a rank: the budget of the pools is computed when the weights are there.
_NEXT = {"weights": "pools", "draft weights": "draft pools"}
#: Events of the server as a whole.
_SERVER = ("server_args", "http_lifecycle", "ready")
#: Events by which a process of the server ends, or is asked to.
ENDS = ("sigquit", "process_exit", "warmup_failed", "exception_report", "sigterm", "graceful_exit")
#: Events that begin another start behind one that has ended, or that has served.
BEGINS = ("server_args", "dist_init_begin")
#: Events of a server that serves.
WORK = ("decode_batch", "prefill_batch")
UP = ("Started server process", "Waiting for application startup", "Application startup complete")
_DRAFT_GRAPH = re.compile(r"\b(?:draft|extend|MTP)\b")
_TARGET_GRAPH = re.compile(r"\btarget\b")
#: A bar of progress: what goes on, and how far it is.
BAR = r"^(?:\[[^\]]*\] )?(?:\[BCG\] )?([A-Z][A-Za-z -]{2,60})(?: \([^()]*\))?: +([0-9]{1,3})%"
#: Lines by which others say that the process of a server is gone: shells (not of another command),
#: Kubernetes, the kernel, Slurm, Python that has no SGLang, the parser of its arguments.
LEAVES = "|".join(
    (
        OUT_OF_HOST_MEMORY,
        KILLED,
        EXITED,
        r"^Terminated[ \t]*$",
        r"^\S+: line [0-9]+: +[0-9]+ (?:Terminated|Aborted|Segmentation fault|Bus error)\b.*"
        r"(?:launch_(?:server|router)|sglang serve|sglang_router| [\"']?\$[{@A-Za-z])",
        r"^slurmstepd\S*: error: .*CANCELLED AT ",
        r"^srun: error: \S+: tasks? [0-9,\[\]-]+: (?:Exited with exit code [1-9]|Terminated|Aborted"
        r"|Segmentation fault|Bus error)",
        r"^(?:\S*/)?(?:launch_server(?:\.py)?|sglang(?: serve)?): error: ",
        r"^\S*python[0-9.]*: No module named '?sglang(?:\.(?:launch_server|srt|cli|__main__)\b|['; \t]|$)",
        r"^\S*python[0-9.]*: Error while finding module specification for 'sglang(?:\.launch_server)?'",
        r"^(?:\S+: )?(?:line )?(?:[0-9]+: )?(?:\S*python[0-9.]*|sglang): (?:command )?not found",
    )
)
_PHASE_ORDER = {name: index for index, name in enumerate(START_PHASES)}


@dataclass
class RankProgress:
    """How far one rank has come."""

    phase: str = BEFORE
    #: the phase has ended, and the next one has not begun
    done: bool = False
    #: when it began, or ended, s
    since: float | None = None
    #: when the rank printed its last line, s
    spoke: float | None = None
    #: how long each phase took, s
    took: dict[str, float] = field(default_factory=dict)
    #: how often weights were loaded
    loaded: int = 0

    @property
    def place(self) -> tuple[int, bool]:
        """Return how far that is, to be compared."""
        return _PHASE_ORDER.get(self.phase, -1), self.done

    @property
    def words(self) -> str:
        """Return where the rank stands."""
        return f"after {self.phase}" if self.done and self.phase != "ready" else self.phase


class Stage(NamedTuple):
    """Ranks that stand at the same point of a start."""

    words: str
    ranks: tuple[str | None, ...]
    #: the time since the first of them came there, s
    lasts: float | None


class Lag(NamedTuple):
    """Ranks that are behind, and how long those that are further took."""

    ranks: tuple[str | None, ...]
    words: str
    #: since when they are there, s
    lasts: float | None
    peers: tuple[str | None, ...]
    #: the median time that the peers took for that phase, s; None where it is not known
    took: float | None


def leaves(news: News) -> pl.DataFrame:
    """Return the new lines that say that the process is gone: their numbers and texts."""
    gone = ~pl.col("headed") & pl.col("message").str.contains(LEAVES)
    return news.records.filter(gone).select("line", "message")


def _within(lines: pl.Series, first: int, last: int) -> bool:
    """Tell whether one of some lines, which are in order, stands behind a line and before another one."""
    place = lines.search_sorted(first, side="left")
    return place < len(lines) and int(lines[place]) < last


class Progress:
    """The state of the newest start in a log."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.clear()
        #: the newest stamp, s, and when it was written by the clock here
        self._stamp: float | None = None
        self._anchor = clock()

    def clear(self) -> None:
        """Forget the start: another one begins."""
        self.ranks: dict[str | None, RankProgress] = {}
        #: the line that says so
        self.ready: int | None = None
        #: the first line of a batch
        self.works: int | None = None
        #: the line that began it, 0 where the log begins in the middle of it
        self.since = 0
        #: a process has ended
        self.ended = False
        #: a line says that a process is gone, and it may have been this one
        self.left = False
        #: a line of a start was seen: the log does not begin in the middle of serving
        self.begun = False
        #: the node, where it is not the first one: only the first prints that it is ready
        self.node: int | None = None
        self.bar: str | None = None

    def now(self) -> float | None:
        """Return the time by the clock of the log, s; None without stamps."""
        return None if self._stamp is None else self._stamp + self._clock() - self._anchor

    def take(self, news: News) -> None:
        """Take in new lines."""
        if news.fresh:
            self.clear()
        came = self._clock() - news.age
        self._date(news.records, came)
        if self._stamp is None:
            self._stamp, self._anchor = came, came
        worked, left = self._batches(news), leaves(news)["line"]
        since = self.since
        for line, kind, rank, at, detail in self._events(news):
            over = self.ready is not None or self.ended or self.works is not None
            over = over or _within(worked, self.since, line)
            # what is gone may have been a helper: that a rank begins is no new start then
            over = over or (kind == "server_args" and (self.left or _within(left, self.since, line)))
            if kind in BEGINS and over:
                self.clear()
                self.since = line
            self._event(line, kind, rank, at, detail)
        records = news.records
        if self.since != since:  # its clock is not that of the start before it
            records = records.filter(pl.col("line") >= self.since)
            self._date(records, came)
        self._spoken(records)
        mine = worked.filter(worked >= self.since)
        self.left = self.left or not left.filter(left >= self.since).is_empty()
        if self.works is None and not mine.is_empty():
            self.works = int(mine[0])
        bars = news.records["message"].str.extract_groups(BAR).struct.unnest().drop_nulls()
        if bars.height:
            self.bar = "{}: {}%".format(*bars.row(-1))

    def _date(self, records: pl.DataFrame, came: float) -> None:
        """Note the newest stamp of lines, and when they came."""
        newest = records["time"].dt.epoch("ms").max()
        if newest is not None:
            self._stamp, self._anchor = float(newest) / 1000, came  # type: ignore[arg-type]

    def _batches(self, news: News) -> pl.Series:
        """Return the lines of new batches, in their order."""
        found = [news.frames[kind]["line"] for kind in WORK if kind in news.frames.found]
        return pl.concat(found).sort() if found else pl.Series("line", [], pl.UInt32)

    def _spoken(self, records: pl.DataFrame) -> None:
        """Note when each rank spoke last."""
        last = (
            records.lazy()
            .filter(pl.col("rank").is_not_null())
            .group_by("rank", maintain_order=True)
            .agg(pl.col("time").max().dt.epoch("ms") / 1000)
            .collect()
        )
        for rank, at in last.iter_rows():
            self.ranks.setdefault(rank, RankProgress()).spoke = at if at is not None else self._stamp

    def _events(self, news: News) -> Iterator[tuple[int, str, str | None, float | None, str | None]]:
        """Yield the events of starts in the order of their lines: line, kind, rank, time, detail."""
        parts = []
        for kind in (*_EDGES, *_SERVER, *ENDS):
            frame = news.frames.found.get(kind)
            if frame is None:
                continue
            detail = {
                "graph_capture_begin": pl.col("graph"),
                "graph_capture_end": pl.col("graph"),
                "load_weight_end": pl.col("overlap").cast(pl.String) if "overlap" in frame.columns else None,
                "server_args": pl.col("args_repr").str.extract(r"'?node_rank'?[=:] ?([0-9]+)"),
                "http_lifecycle": pl.coalesce("lifecycle", "url"),
            }.get(kind)
            parts.append(
                frame.select(
                    "line",
                    pl.lit(kind).alias("kind"),
                    "rank",
                    (pl.col("time").dt.epoch("ms") / 1000).alias("at"),
                    (pl.lit(None, dtype=pl.String) if detail is None else detail).alias("detail"),
                )
            )
        if parts:
            yield from pl.concat(parts).sort("line", maintain_order=True).iter_rows()

    def _event(self, line: int, kind: str, rank: str | None, at: float | None, detail: str | None) -> None:
        """Take in an event."""
        if kind in ENDS:
            self.ended = True
            return
        at = self._stamp if at is None else at
        if kind == "server_args":
            self.begun = True
            self.node = int(detail) if detail and len(detail) < 6 and int(detail) else None
        elif kind == "http_lifecycle":
            if detail not in UP and (detail is None or not detail.startswith("http")):
                return
            if self.ready is None:
                self._move(self.ranks.setdefault(None, RankProgress()), "warm-up", at, ends=False)
        elif kind == "ready":
            self.ready = line
            self._move(self.ranks.setdefault(None, RankProgress()), "ready", at, ends=True)
        else:
            self.begun = True
            self._of_rank(self.ranks.setdefault(rank, RankProgress()), kind, at, detail)

    def _of_rank(self, rank: RankProgress, kind: str, at: float | None, detail: str | None) -> None:
        phase, ends = _EDGES[kind]
        if kind == "load_weight_end" and detail is not None:
            phase = "weights commit"
        elif phase == "capture":
            graph = detail or ""
            drafts = bool(_DRAFT_GRAPH.search(graph)) or rank.loaded > 1
            phase = "draft capture" if drafts and not _TARGET_GRAPH.search(graph) else phase
        elif (
            rank.loaded > (phase == "pools") and phase in WORKER_PHASES and not (phase == "weights" and ends)
        ):
            phase = f"draft {phase}"
        elif phase == "weights" and ends and rank.loaded:
            phase = "draft weights"
        self._move(rank, phase, at, ends=ends)
        if phase in ("weights", "draft weights") and ends:
            rank.loaded += 1
        if ends and phase in _NEXT:
            self._move(rank, _NEXT[phase], at, ends=False)

    def _move(self, rank: RankProgress, phase: str, at: float | None, *, ends: bool) -> None:
        """Let a rank begin a phase, or end it."""
        if rank.phase == phase and rank.done == ends:
            return  # one of several steps of it
        if not rank.done and rank.since is not None and at is not None and rank.phase != BEFORE:
            rank.took[rank.phase] = rank.took.get(rank.phase, 0.0) + max(0.0, at - rank.since)
        rank.phase, rank.done, rank.since = phase, ends, at

    # ------------------------------------------------------------------ who is where

    def _workers(self) -> dict[str | None, RankProgress]:
        """Return the ranks; the process without a tag counts where it is the only one."""
        tagged = [name for name in self.ranks if name is not None]
        return {name: self.ranks[name] for name in tagged or self.ranks}

    def stages(self) -> list[Stage]:
        """Return where the ranks stand, those that are behind first."""
        now = self.now()
        groups: dict[tuple[int, bool], list[str | None]] = {}
        for name, one in self.ranks.items():
            groups.setdefault(one.place, []).append(name)
        out = []
        for place in sorted(groups):
            names = sorted(groups[place], key=lambda name: rank_key(name or ""))
            first = self.ranks[names[0]]
            begun = [since for name in names if (since := self.ranks[name].since) is not None]
            lasts = max(0.0, now - min(begun)) if begun and now is not None else None
            out.append(Stage(first.words, tuple(names), lasts))
        return out

    @property
    def loads(self) -> bool:
        """Tell whether a rank loads weights."""
        return any(one.phase in ("weights", "draft weights") and not one.done for one in self.ranks.values())

    def least(self) -> str:
        """Return the phase that the ranks which are behind stand in, or have ended."""
        return min(self._workers().values(), key=lambda one: one.place, default=RankProgress()).phase

    def lag(self) -> Lag | None:
        """Return the ranks that are behind the others; None when all stand at the same point."""
        workers, now = self._workers(), self.now()
        places = {one.place for one in workers.values()}
        if len(places) < 2:
            return None
        least = min(places)
        late = {name: one for name, one in workers.items() if one.place == least}
        peers = {name: one for name, one in workers.items() if name not in late}
        phase = next(iter(late.values())).phase
        took = [one.took[phase] for one in peers.values() if phase in one.took]
        begun = [one.since for one in late.values() if one.since is not None]
        return Lag(
            tuple(sorted(late, key=lambda name: rank_key(name or ""))),
            next(iter(late.values())).words,
            max(0.0, now - min(begun)) if begun and now is not None else None,
            tuple(sorted(peers, key=lambda name: rank_key(name or ""))),
            statistics.median(took) if took else None,
        )
