"""What a hang left in the log: the last sign of each rank, dumped stacks, the collective that waits.

batches and records --> last state, ranks that fell silent first
py-spy's dumps      --> process, where its main thread stands
NCCL's watchdog     --> Collective (rank, number, operation, sizes, limit), work enqueued and done
"""

from __future__ import annotations

import polars as pl

from sglogparse._cheap import dataclass, lazy
from sglogparse._derived import Whole, once, telling, throughout
from sglogparse._launches import Launch, between
from sglogparse._phases import seconds
from sglogparse._ranks import rank_spread
from sglogparse._serving import number, statuses
from sglogparse._vitals import span

#: A rank fell silent first when it did so this long before the one that spoke last, s.
_EARLIER = 2.0
_PROCESS = lazy(r"Process ([0-9]+): ([^ ]+)")
_THREAD = lazy(r"Thread [0-9A-Fx]+ \(([a-z+]+)\)(?:: \"(.*)\")?$")
_FRAME = lazy(r" {4}(?P<name>.+?) \((?P<place>[^()]+)\)$")
#: Frames that wait in the system, or in Python's own libraries: what called them is what tells.
_SYSTEM = lazy(
    r"\.so(?:\.[0-9.]+)?(?::[0-9]+)?$|^<"
    r"|(?:threading|selectors|subprocess|popen_fork|queue|multiprocessing/[a-z_]+)\.py"
)
#: The C library's waiting, below which nothing tells.
_LIBC = lazy(r"^(?:libc|ld-linux|libpthread)")


def last_state(launch: Launch, line: int) -> str | None:
    """Return what the last batch before a line says: how long before, running, queued, usage."""
    batches = between(statuses(launch), 0, line - 1)
    if batches.is_empty():
        return None
    last = batches.row(-1, named=True)
    at = seconds(launch)[launch.row(line)]
    ago = f" {span(at - last['at'])} before" if at is not None and last["at"] is not None else ""
    parts = [
        f"{number(last[name])} {word}"
        for name, word in (("running_req", "running"), ("queue_req", "queued"))
        if last[name] is not None
    ]
    parts += [f"usage {last['usage']:.2f}"] if last["usage"] is not None else []
    return f"last batch{ago} (line {last['line']}): {', '.join(parts)}" if parts else None


def silent_first(launch: Launch, line: int) -> str | None:
    """Return the ranks whose last record before a line is clearly older than that of the others."""
    at = pl.DataFrame({"line": launch.lines["line"], "rank": launch.lines["rank"], "at": seconds(launch)})
    spoken = at.filter((pl.col("line") < line) & pl.col("rank").is_not_null()).drop_nulls("at")
    last = spoken.group_by("rank").agg(pl.col("at").max()).sort("at")
    if last.height < 2:
        return None
    newest = last["at"][-1]
    early = last.filter(pl.col("at") < newest - _EARLIER)
    # when all but a few are silent, the few only print what the others leave to them
    if early.is_empty() or 2 * early.height > last.height:
        return None
    by = span(newest - early["at"][0])
    return f"{rank_spread(early['rank'])} fell silent first, {by} before the others"


#: The batch that a process was at, and how far from the watchdog's line it is printed, lines.
_BATCH = r"batch_size\(\)=([0-9]{1,6})"
_NEAR = 20


def stuck_batch(launch: Launch, line: int) -> str | None:
    """Return the size of the batch that a watchdog printed beside a line, as it was printed."""
    near = between(launch.records, line - _NEAR, line + _NEAR)
    sizes = near["message"].str.extract(_BATCH).drop_nulls()
    return None if sizes.is_empty() else f"batch_size()={sizes[0]}"


@dataclass(frozen=True)
class Stack:
    """Where a process stands, as py-spy dumped it."""

    line: int
    process: str
    place: str | None


@once
def stacks(launch: Launch) -> list[Stack]:
    """Return the main threads that py-spy has dumped, in the order of the lines."""
    rows = _dumped(launch)
    if rows.is_empty():
        return []
    found: list[Stack] = []
    native: dict[int, str] = {}
    main = False
    for line, text in rows.select("line", "message").iter_rows():
        if match := _PROCESS.match(text):
            found.append(Stack(line, match[2], None))
            main = False
        elif match := _THREAD.match(text):
            main = match[2] == "MainThread" or "forward_thread_func" in (match[2] or "")
            if main and not found:  # the head of the dump is cut off
                found.append(Stack(line, "a process", None))
        elif main and found and found[-1].place is None and (match := _FRAME.match(text)):
            told = f"{match['name']} ({match['place']})"
            if not _SYSTEM.search(match["place"]):
                found[-1] = Stack(found[-1].line, found[-1].process, told)
            elif not _LIBC.match(match["place"]):
                native.setdefault(found[-1].line, told)
    return [Stack(one.line, one.process, one.place or native.get(one.line)) for one in found]


@throughout
def _dumped(whole: Whole) -> pl.DataFrame:
    rows = whole.lines["kind"].is_in(["thread_dump", "py_spy"]).fill_null(False).arg_true()
    return whole.records.select("line", "message")[rows].with_columns(rows.alias("row"))


def stuck(launch: Launch) -> str | None:
    """Return where the dumped processes stand, those that stand alike together; None without a dump."""
    places: dict[str, list[str]] = {}
    for stack in stacks(launch):
        places.setdefault(stack.place or "no frame of Python", []).append(stack.process)
    told = [f"{', '.join(dict.fromkeys(names))} in {place}" for place, names in places.items()]
    return "; ".join(told) if told else None


@dataclass(frozen=True)
class Collective:
    """A collective that NCCL's watchdog found waiting."""

    line: int
    rank: str | None
    number: int
    operation: str
    elements: int | None
    #: ms
    limit: int | None
    ran: int | None


_CAUGHT = "Watchdog caught collective operation timeout"
_ENQUEUED = "last enqueued"
_WORK = lazy(
    r"SeqNum=([0-9]{1,18}), OpType=([A-Za-z_]+)(?:, NumelIn=([0-9]{1,18}))?(?:, NumelOut=[0-9]+)?"
    r"(?:, Timeout\(ms\)=([0-9]{1,18}))?\)(?: ran for ([0-9]{1,18}) milliseconds)?"
)
_RANK = lazy(r"^\[rank([0-9]+)\]:|\bRank ([0-9]+)\]")
_QUEUED = lazy(
    r"last enqueued (?:NCCL )?work: (-?[0-9]{1,18}), last completed (?:NCCL )?work: (-?[0-9]{1,18})"
)


@once
def collectives(launch: Launch) -> list[Collective]:
    """Return the collectives that timed out, one a rank, in the order of the lines."""
    found: dict[str | None, Collective] = {}
    rows = _watched(launch)
    if rows.is_empty():
        return []
    for line, text in rows.filter("caught").select("line", "message").iter_rows():
        work = _WORK.search(text)
        if work is None and line < launch.last_line:  # a terminal has broken the line
            work = _WORK.search(text + launch.evidence(line + 1).message)
        rank = _rank_of(text)
        if work is not None and rank not in found:
            elements, limit, ran = (int(one) if one else None for one in work.group(3, 4, 5))
            found[rank] = Collective(line, rank, int(work[1]), work[2], elements, limit, ran)
    return list(found.values())


@telling
def _watched(whole: Whole) -> pl.DataFrame:
    """Return what NCCL's watchdog says: that it caught a timeout, or how far a rank had come."""
    words = pl.col("message").str.contains_any([_CAUGHT, _ENQUEUED])
    caught = pl.col("message").str.contains(_CAUGHT, literal=True)
    found = whole.records.select("line", "message").with_row_index("row").filter(words)
    return found.with_columns(caught=caught)


@once
def queued(launch: Launch) -> dict[str | None, tuple[int, int]]:
    """Return, by rank, the last collective that it had enqueued and the last that it had done."""
    some = pl.col("message").str.contains(_ENQUEUED, literal=True)
    out: dict[str | None, tuple[int, int]] = {}
    for text in _watched(launch).filter(some)["message"]:
        if match := _QUEUED.search(text):
            out.setdefault(_rank_of(text), (int(match[1]), int(match[2])))
    return out


def _rank_of(text: str) -> str | None:
    match = _RANK.search(text)
    return (match[1] or match[2]) if match else None
