"""The steps of a start as a set: what ranks print, whichever rank comes first and whenever it does.

    start-up events --> (kind, how often its rank has printed it, its words) --> one step
                        with its numbers as a span over the ranks, its ranks, and its first line

Two launches are compared step by step: a step that one has and the other has not, or whose numbers are
further apart than rounding and the jitter of free memory explain. Durations, addresses, process ids and
the progress of bars are no part of a step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from sglogparse._cheap import dataclass, lazy
from sglogparse._derived import once
from sglogparse._grammar import rule_names
from sglogparse._ranks import rank_list
from sglogparse._records import RECORD_SCHEMA

if TYPE_CHECKING:
    from sglogparse._launches import Launch

#: Events of a start that depend on the moment and the machine's other work, not on how the server is started.
_PASSING = frozenset(
    {
        "load_progress",
        "graph_capture_progress",
        "cpu_affinity",
        "numa_binding",
        "process_group",
        "tcp_store",
        "gloo_connect",
        "local_snapshot",
        "load_timing",
        "startup_timing",
        "startup_warmup",
        "server_listening",
        "gc_freeze",
        "peer_access_cache",
        "deepgemm_session",
        "deepgemm_compile",
        "deepgemm_memory",
        "deepgemm_warmup",
        "graph_compiled",
        "flashinfer_autotune",
        "weight_cache_daemon",
        "dp_launch",
    }
)
#: What a server says of its surroundings and of what it chose; what hardly matters comes last.
_LATER = ("sampling_defaults", "chat_template", "parser_detected", "import_ignored")
ENVIRONMENT = tuple(
    sorted(
        (kind for kind in rule_names("startup.lark") if kind not in _PASSING), key=lambda one: one in _LATER
    )
)
#: What every rank goes through, in the order of a start.
_COURSE = (
    "dist_init_begin",
    "dist_init_end",
    "load_weight_begin",
    "load_weight_end",
    "max_total_tokens_capped",
    "swa_split",
    "swa_pool",
    "mamba_cache",
    "kv_cache",
    "memory_pool_end",
    "post_capture_sizing",
    "graph_capture_begin",
    "graph_capture_plan",
    "graph_capture_end",
    "capacity",
    "ready",
    "exception_report",
    "watchdog_timeout",
    "warmup_failed",
    "sigquit",
)
_KINDS = (*_COURSE, *ENVIRONMENT)
#: Texts that differ from start to start, and numbers that only say which rank or process it is.
_NO_WORDS = frozenset(
    {"extra", "cache_path", "server_address", "master_address", "url", "group_name", "capture_tokens"}
)
_NO_NUMBERS = frozenset(
    {
        "elapsed",
        "overlap",
        "overlap_total",
        "pid",
        "device",
        "group_rank",
        "global_rank",
        "rank_tp",
        "rank_offset",
        "master_port",
        "launched_dp",
        "free_delta",
        "available_cpu_mem",
        "local_free_mem",
        "local_free_mem_90",
        "layers",
    }
)
#: Steps of one kind that are told apart, at the most, and how often one rank can repeat a step.
_MOST = 100
_REPEATS = 4
#: Free memory differs by this much from start to start: GiB, or a share of the value.
JITTER_GIB = 0.1
JITTER = 0.005

#: (kind, which time on its rank, its words)
Key = tuple[str, int, tuple[str, ...]]


@dataclass(frozen=True)
class Step:
    """What ranks printed at one point of a start."""

    key: Key
    line: int
    ranks: tuple[str, ...]
    #: column -> the least and the largest over the ranks
    numbers: Mapping[str, tuple[float, float]]

    @property
    def kind(self) -> str:
        """Return the event."""
        return self.key[0]


@once
def steps(launch: Launch) -> dict[Key, Step]:
    """Return the steps of a launch's start by their key, in the order of their first lines."""
    found = [step for kind in _KINDS for step in _steps_of(kind, launch.frames[kind])]
    return {step.key: step for step in sorted(found, key=lambda one: (one.line, one.key))}


def _steps_of(kind: str, frame: pl.DataFrame) -> list[Step]:
    if frame.is_empty():
        return []
    own = {name: dtype for name, dtype in frame.schema.items() if name not in RECORD_SCHEMA}
    words = [
        name for name, dtype in own.items() if dtype in (pl.String, pl.Boolean) and name not in _NO_WORDS
    ]
    numbers = [name for name, dtype in own.items() if dtype.is_numeric() and name not in _NO_NUMBERS]
    if kind == "exception_report":
        words = ["process_name"]
    # what the surroundings are is said once or often; only the course of a rank has an order of its own
    times = pl.int_range(pl.len()).over("rank") if kind in _COURSE else pl.lit(0)
    rows = (
        frame.with_columns(times.alias("times"))
        .filter(pl.col("times") < _REPEATS)
        .group_by("times", *words, maintain_order=True)
        .agg(
            pl.col("line").min(),
            pl.col("rank").unique(),
            *(pl.col(name).min().alias(f"least {name}") for name in numbers),
            *(pl.col(name).max().alias(f"most {name}") for name in numbers),
        )
        .head(_MOST)
    )
    out = []
    for row in rows.iter_rows(named=True):
        texts = tuple("" if row[name] is None else _normal(str(row[name])) for name in words)
        spans = {
            name: (float(row[f"least {name}"]), float(row[f"most {name}"]))
            for name in numbers
            if row[f"least {name}"] is not None
        }
        out.append(Step((kind, row["times"], texts), row["line"], rank_list(row["rank"]), spans))
    return out


def crowded(launch: Launch) -> list[str]:
    """Return of which events a launch prints more different lines than are compared, in words."""
    counts = Counter(key[0] for key in steps(launch))
    return [
        f"of {kind.replace('_', ' ')} the first {_MOST} different lines are compared"
        for kind, count in counts.items()
        if count >= _MOST
    ]


_VOLATILE = lazy(r"0x[0-9a-fA-F]+|\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?::[0-9]+)?\b|(?:/[^\s/'\",]+){2,}/?")


def _normal(text: str) -> str:
    """Return words without addresses and the folders of paths.

    >>> _normal("reads /a/b/c.json at 0x7f12 from 10.0.0.2:8000")
    'reads c.json at * from *'
    """
    return _VOLATILE.sub(lambda one: one[0].rstrip("/").rpartition("/")[2] if "/" in one[0] else "*", text)


def unlike(one: Step, two: Step) -> list[str]:
    """Return the columns whose numbers are further apart than rounding and jitter explain."""
    shared = [name for name in one.numbers if name in two.numbers]
    return [name for name in shared if apart(name, one.numbers[name], two.numbers[name])]


def apart(name: str, one: tuple[float, float], two: tuple[float, float]) -> bool:
    """Tell whether two spans of a column's numbers do not meet, nor nearly so where they can jitter."""
    gap = max(one[0] - two[1], two[0] - one[1])
    if not gap > 0:
        return False
    largest = max(map(abs, (*one, *two)))
    if name.endswith(("mem", "size", "usage")) and "batch" not in name:
        return gap > max(JITTER_GIB, JITTER * largest)
    return gap > (JITTER * largest if "token" in name else 0)


@dataclass(frozen=True)
class Divergence:
    """Where two starts first part: the step of each, and the last one that they share."""

    #: words for the last step that both have
    after: str | None
    #: line of the step in each run; None where the run has no such step
    line: int | None
    other_line: int | None
    #: the text of each step without its header
    text: str | None
    other_text: str | None
    ranks: tuple[str, ...]
    other_ranks: tuple[str, ...]
    why: str


def divergence(one: Launch, two: Launch) -> Divergence | None:
    """Return the first step that one start has and the other has not, or whose numbers differ; None: none.

    Steps count by their place among those that both starts have, so that neither the order in which ranks
    speak nor the time they take matters. What stands before the first line of an excerpt is no difference.
    """
    mine, others = steps(one), steps(two)
    common = [key for key in mine if key in others]
    place, other_place = _places(mine, others), _places(others, mine)
    spots = {
        key: min(place[key], other_place[key])
        for key in common
        if unlike(mine[key], others[key]) or _fewer(one, two, mine[key], others[key])
    }
    for run, there, launch, places in ((mine, others, two, place), (others, mine, one, other_place)):
        # an excerpt begins somewhere: what stands before its first step is not known to be missing
        beheaded = launch.frames["server_args"].is_empty()
        alone = [key for key in run if key not in there and key[0] != "import_ignored"]
        spots |= {key: places[key] for key in alone if places[key] or not beheaded}
    if not spots or not common:
        return None
    spot = min(spots.values())
    here = [key for key in spots if spots[key] == spot]
    left = sorted((mine[key] for key in here if key not in others), key=lambda step: step.line)
    right = sorted((others[key] for key in here if key not in mine), key=lambda step: step.line)
    first: tuple[Step | None, Step | None]
    if left or right:
        kinds = sorted({step.kind for step in left} & {step.kind for step in right}, key=_KINDS.index)
        kind = kinds[0] if kinds else None
        first = (
            next((step for step in left if kind in (None, step.kind)), None),
            next((step for step in right if kind in (None, step.kind)), None),
        )
    else:
        key = min(here, key=lambda one: (_KINDS.index(one[0]), one))
        first = mine[key], others[key]
    shared = common if first[0] else [key for key in others if key in mine]
    return Divergence(
        after=shared[spot - 1][0].replace("_", " ") if spot else None,
        line=first[0].line if first[0] else None,
        other_line=first[1].line if first[1] else None,
        text=_text(one, first[0]),
        other_text=_text(two, first[1]),
        ranks=first[0].ranks if first[0] else (),
        other_ranks=first[1].ranks if first[1] else (),
        why=_why(*first),
    )


def _places(run: Mapping[Key, Step], there: Mapping[Key, Step]) -> dict[Key, int]:
    """Return how many steps that both starts have stand before each step of a run."""
    before, out = 0, {}
    for key in run:
        out[key] = before
        before += key in there
    return out


def _fewer(one: Launch, two: Launch, mine: Step, other: Step) -> bool:
    """Tell whether a step of the course is printed by some ranks only, though both servers have the same."""
    return mine.kind in _COURSE and one.ranks == two.ranks and mine.ranks != other.ranks


def _why(left: Step | None, right: Step | None) -> str:
    if left is None or right is None:
        return "missing"
    if left.key != right.key:
        return "other step"
    return "numbers" if unlike(left, right) else "ranks"


def _text(launch: Launch, step: Step | None) -> str | None:
    return None if step is None else launch.evidence(step.line).message.strip()


@dataclass(frozen=True)
class Said:
    """What one launch says of one matter of its surroundings: its lines, each once."""

    lines: tuple[int, ...]
    texts: tuple[str, ...]


def environment(one: Launch, two: Launch) -> dict[str, tuple[Said, Said]]:
    """Return the matters of which two launches say different things, with what each says."""
    mine, others = steps(one), steps(two)
    out = {}
    for kind in ENVIRONMENT:
        left = [step for step in mine.values() if step.kind == kind]
        right = [step for step in others.values() if step.kind == kind]
        new = [step for step in left if _new(step, others)], [step for step in right if _new(step, mine)]
        if left and right:
            known = any(new)
        else:  # that a log is silent tells something only of what stands within it
            known = _within(*((two, mine, others, left) if left else (one, others, mine, right)))
        if known:
            out[kind] = _said(one, new[0]), _said(two, new[1])
    return out


def _within(silent: Launch, told: Mapping[Key, Step], there: Mapping[Key, Step], found: list[Step]) -> bool:
    """Tell whether steps of a start stand where the log of the other one has lines too."""
    places, shared = _places(told, there), sum(key in there for key in told)
    beheaded = silent.frames["server_args"].is_empty()
    return any(places[step.key] < shared and not (beheaded and not places[step.key]) for step in found)


def _new(step: Step, there: Mapping[Key, Step]) -> bool:
    return step.key not in there or bool(unlike(step, there[step.key]))


def _said(launch: Launch, found: list[Step]) -> Said:
    lines = tuple(step.line for step in found)
    return Said(lines, tuple(one.message.strip() for one in launch.evidences(lines)))
