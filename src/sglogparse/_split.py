"""From a log to its launches: each line is in exactly one.

    a launch = the lines of one file from where a server starts (or the file begins) to the next start

A server starts at its server_args line, and where ranks begin anew though they had served or had died. One
start can print several server_args lines (a node each, a tokenizer worker each), and a draft worker begins
like a rank does: neither is a launch of its own.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from sglogparse._derived import Whole
from sglogparse._events import COUNTS
from sglogparse._launches import Launch, between, first_line
from sglogparse._nothing import LaunchFrames
from sglogparse._records import place_of, places_of

if TYPE_CHECKING:
    from sglogparse._events import Frames
    from sglogparse._log import Log
    from sglogparse._source import SourceFile

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
