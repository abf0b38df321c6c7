"""Watching a server: how its ranks do at the moment, and what is found in its log, as it comes.

Follower --> news --> batches --> Load (rank: running, queued, tokens/s, KV usage, retracted)
                  --> now and then, or when a line may matter: diagnose() --> what was not told yet
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from sglogparse._follow import Follower
from sglogparse._progress import WORK, Progress
from sglogparse._ranks import rank_key
from sglogparse._report import Diagnosis, Finding, LaunchReport
from sglogparse._wait import POLL, alarms

if TYPE_CHECKING:
    from sglogparse._follow import News

#: From one judgement to the next, s, and the part of the time that judging may take.
_EVERY, _SHARE = 5.0, 0.02
#: How long no line must come after one that may matter before it is judged, and how long at the most, s.
_QUIET, _SETTLE = 0.1, 0.5
#: Columns of batches that can hold how full the KV pool is.
_USAGE = ("token_usage", "full_token_usage")


@dataclass
class Load:
    """What one rank does, as its last batches say."""

    running: int | None = None
    queued: int | None = None
    #: tokens a second
    speed: float | None = None
    #: of the KV pool, from 0 to 1
    usage: float | None = None
    #: requests that went back to the queue since watching began
    retracted: int = 0


@dataclass(frozen=True)
class Told:
    """Something that was found, and was not told before."""

    launch: LaunchReport
    #: None where it is the outcome that is new
    finding: Finding | None


@dataclass
class Watch:
    """Watches the server that writes a log, look by look."""

    name: str
    clock: Callable[[], float] = time.monotonic
    #: by rank
    loads: dict[str | None, Load] = field(default_factory=dict)
    progress: Progress = field(default_factory=Progress)
    diagnosis: Diagnosis | None = None
    #: lines with batches since `rest` was asked last
    batches: int = 0

    def __post_init__(self) -> None:
        self.follower = Follower(self.name)
        #: when the last line came
        self.heard = self.clock()
        self._alarm: float | None = None
        self._judged = self._not_before = self.clock()
        self._new = False
        self._told: set[Any] = set()
        self._outcome: tuple[int, str] | None = None
        self._file = 0
        #: ranks that have told a speed since `rest` was asked last
        self._since: set[str | None] = set()
        #: who speaks for a data-parallel group
        self._speakers: dict[int | None, str | None] = {}

    @property
    def ended(self) -> bool:
        """Tell whether the log was a stream, and has ended."""
        return self.follower.tail.ended

    @property
    def pause(self) -> float:
        """Return how long to wait until the next look, s."""
        return 0.0 if self.follower.tail.behind else POLL

    @property
    def quiet(self) -> float:
        """Return how long no line has come, s."""
        return self.clock() - self.heard

    def step(self) -> list[Told]:
        """Look once; return what is found that was not told before.

        Raises SourceError when the log cannot be read.
        """
        block = self.follower.tail.read()
        now = self.clock()
        out: list[Told] = []
        if block is not None:
            if block.fresh and self._new:
                out += self.judge()
            self._take(self.follower.take(block), now)
        if self.follower.tail.behind:
            return out
        due = self._new and now >= self._not_before
        if self._alarm is not None:
            due = now - self.heard >= _QUIET or now - self._alarm >= _SETTLE
        return [*out, *self.judge()] if due or (self._new and self.ended) else out

    def judge(self) -> list[Told]:
        """Judge the log as it is; return what was not told before, of the newest launch."""
        self._alarm, self._new = None, False
        started = time.perf_counter()
        self.diagnosis = self.follower.log().diagnose()
        cost = time.perf_counter() - started
        self._not_before = self.clock() + max(_EVERY, cost / _SHARE)
        launch = self.diagnosis.chief
        if launch is None:
            return []
        out = []
        outcome = launch.first_line, launch.outcome.value
        if outcome != self._outcome:
            self._outcome = outcome
            out.append(Told(launch, None))
        for finding in launch.findings:
            key = self._key(launch, finding)
            if key not in self._told:
                self._told.add(key)
                out.append(Told(launch, finding))
        return out

    def _key(self, launch: LaunchReport, finding: Finding) -> tuple[Any, ...]:
        """Return what a finding is, though its numbers change from one judgement to the next."""
        root = finding.root.line if finding.root is not None else None
        return self._file, launch.first_line, finding.code, finding.severity, finding.cause, root

    def finish(self) -> list[Told]:
        """Judge what has come since the last judgement: nothing more is looked at."""
        held = self.follower.tail.finish()
        if held is not None:
            self._take(self.follower.take(held), self.clock())
        return self.judge() if self._new or self.diagnosis is None else []

    # ------------------------------------------------------------------ batches

    def _take(self, news: News, now: float) -> None:
        self.heard, self._new = now, True
        if news.fresh:
            self._file += 1
            self.loads.clear()
            self._speakers.clear()
        self.progress.take(news)
        for row in batches(news).iter_rows(named=True):
            load = self._load(row["dp"], row["rank"])
            if load is None:
                continue
            for name in ("running", "queued", "speed", "usage"):
                if row[name] is not None:
                    setattr(load, name, row[name])
            load.retracted += row["retracted"]
            self.batches += row["batches"]
            if row["speed"] is not None:
                self._since.add(row["rank"])
        if any(alarms(news)):
            self._alarm = self._alarm or now

    def _load(self, dp: int | None, rank: str | None) -> Load | None:
        """Return the load that a rank's lines tell; None for a rank that repeats what another one tells.

        The ranks of one data-parallel group run the same batches: the first of them speaks for all.
        """
        speaker = self._speakers.setdefault(dp, rank)
        if speaker == rank:
            return self.loads.setdefault(rank, Load())
        if rank is None or speaker is None or rank_key(rank) > rank_key(speaker):
            return None
        self._speakers[dp] = rank
        self.loads[rank] = self.loads.pop(speaker, Load())
        return self.loads[rank]

    def rest(self) -> dict[str | None, float]:
        """Return the speed of each rank that has told one since the last call, tokens/s.

        It is the last one, as all that is told of a load is of the last batches: a mean beside the number of
        requests that run now would not belong to it.
        """
        found = {rank: load.speed for rank, load in self.loads.items() if load.speed is not None}
        found = {rank: speed for rank, speed in found.items() if rank in self._since}
        self._since, self.batches = set(), 0
        return found

    @property
    def ranks(self) -> list[str | None]:
        """Return the ranks that print batches, in the order of their numbers."""
        return sorted(self.loads, key=lambda rank: rank_key(rank or ""))


def batches(news: News) -> pl.DataFrame:
    """Return what new batch lines say, a row a rank: the newest values, and the retractions."""
    parts = [
        news.frames[kind].select(
            "line",
            "rank",
            pl.coalesce("dp", "attn_dp").alias("dp"),
            pl.col("running_req").alias("running"),
            pl.col("queue_req").alias("queued"),
            pl.max_horizontal(pl.col(name).cast(pl.Float64) for name in _USAGE).alias("usage"),
            (pl.col("gen_throughput") if kind == "decode_batch" else pl.lit(None, pl.Float64)).alias("speed"),
            pl.lit(0, pl.Int64).alias("retracted"),
            pl.lit(1, pl.Int64).alias("batches"),
        )
        for kind in WORK
    ]
    none = pl.lit(None, pl.Float64)
    again = news.frames["retraction"].select(
        "line",
        "rank",
        pl.coalesce("dp", "attn_dp").alias("dp"),
        *(pl.lit(None, pl.Int64).alias(name) for name in ("running", "queued")),
        *(none.alias(name) for name in ("usage", "speed")),
        pl.col("retracted").fill_null(1).cast(pl.Int64),
        pl.lit(0, pl.Int64).alias("batches"),
    )
    newest = [pl.col(name).drop_nulls().last() for name in ("running", "queued", "usage", "speed")]
    return (
        pl.concat([*parts, again])
        .sort("line", maintain_order=True)
        .group_by("dp", "rank", maintain_order=True)
        .agg(
            *newest,
            pl.col("retracted", "batches").sum(),
        )
    )
