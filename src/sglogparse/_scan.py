"""Logs as lazy frames: what a query does not need is not read.

    scan_log(paths) --> Scan --> .decode_batch (LazyFrame) --> filter, select --> collect
                                                                                    |
    an event:  lines --> has its first words? --> header --> rank, time asked for? --> its rule --> columns
    other frames need the lines around: whole reading --> columns

Blocks of lines are read side by side, and come in order. Reading a frame of an event and a whole reading are
equal, whatever columns, rows and limit are asked for; the tests hold them to it.
"""

from __future__ import annotations

import re
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from dataclasses import fields as fields_of
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from polars.io.plugins import register_io_source

from sglogparse._compiler import Bag, Fixed, compiled_plan
from sglogparse._errors import SourceError
from sglogparse._events import event_schema, event_schemas, kind_type, read_event
from sglogparse._log import frame_schemas
from sglogparse._records import RECORD_SCHEMA, head_columns, read_headers, read_messages
from sglogparse._server_args import read_server_args
from sglogparse._source import open_sources, stream
from sglogparse._stacks import FAULT_SCHEMA, merged_faults
from sglogparse._stream import BLOCK, read_pieces
from sglogparse._wrappers import JSON, SAMPLE, accepted_wrappers

if TYPE_CHECKING:
    from sglogparse._compiler import EventPlan, Plan
    from sglogparse._log import Log
    from sglogparse._wrappers import Accepted

#: Lines that are read in one piece.
_LINES = 100_000
#: What marks a line that a container runtime may have cut.
_CUT = r" std(?:out|err) P "
#: What polars puts into a predicate as a hint for itself (some releases); no one else can evaluate it.
_HINT = "dynamic_pred"


def scan_log(paths: str | Path | Iterable[str | Path], *, cache: str | Path | None = None) -> Scan:
    """Return the frames of one log or several as lazy frames; the logs are read when one is collected.

    Each collect reads the logs again: an event's frame line by line in bounded memory, with only the columns
    and rows that are asked for. With a folder as `cache`, the first collect reads all frames and keeps them
    there as parquet (the text as it stands, secrets too); later ones find them by the content of the logs.
    What stands in the way of that is a warning.

    Raises SourceError for a path that is missing, and for standard input, which can be read only once; what
    else is wrong with a log is raised by collect.

    >>> log = scan_log("server.log")                                                   # doctest: +SKIP
    >>> log.decode_batch.filter(pl.col("tp") == 0).select("gen_throughput").collect()  # doctest: +SKIP
    """
    names = [str(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    if "-" in names:
        raise SourceError("-: standard input can be read only once; read_log reads it")
    open_sources(names)  # says what is missing
    return Scan(names, cache)


class Scan(Mapping[str, pl.LazyFrame]):
    """The frames of a log by name, `lines` and `unparsed` among them, each a LazyFrame of a fixed schema."""

    def __init__(
        self,
        names: list[str],
        folder: str | Path | None = None,
        mask: Callable[[pl.DataFrame], pl.DataFrame] | None = None,
    ) -> None:
        self.paths = tuple(names)
        self._folder = folder
        #: what is done to texts before a condition sees them
        self._mask = mask
        self._made: dict[str, pl.LazyFrame] = {}

    def __getitem__(self, name: str) -> pl.LazyFrame:
        schema = scan_schemas()[name]
        if name not in self._made:
            # pure: of a frame that a query names twice, one reading is enough
            source = partial(_read, self.paths, self._folder, self._mask, name)
            self._made[name] = register_io_source(source, schema=schema, is_pure=True)
        return self._made[name]

    def __getattr__(self, name: str) -> pl.LazyFrame:
        """Return a frame by its name, as `scan.decode_batch`."""
        if name in scan_schemas():
            return self[name]
        raise AttributeError(f"no frame is called {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self})

    def __iter__(self) -> Iterator[str]:
        return iter(scan_schemas())

    def __len__(self) -> int:
        return len(scan_schemas())

    def __repr__(self) -> str:
        return f"<Scan of {len(self.paths)} file(s), {len(self)} frames>"


@cache
def scan_schemas() -> dict[str, dict[str, pl.DataType]]:
    """Return the fixed schema of each frame that a log has, `lines` and `unparsed` among them."""
    lines = {**RECORD_SCHEMA, "kind": kind_type(compiled_plan()), "text": pl.String()}
    return {**frame_schemas(), "lines": lines, "unparsed": lines}


# ------------------------------------------------------------------ what polars asks for


@dataclass(frozen=True)
class _Ask:
    """What a query asks of a frame."""

    #: the columns of the answer, in their order
    columns: list[str]
    #: the conditions that its rows fulfil, all of them
    conditions: list[pl.Expr]
    #: rows that are looked at, at most; conditions do not count
    limit: int | None
    #: what is done to texts first, row by row
    mask: Callable[[pl.DataFrame], pl.DataFrame] | None = None

    @property
    def needed(self) -> set[str]:
        """Return the columns of the answer and of the conditions, and of what tells a secret."""
        names = {*self.columns, *(name for one in self.conditions for name in one.meta.root_names())}
        return names | {"name"} if self.mask is not None and "value" in names else names

    @property
    def early(self) -> list[pl.Expr]:
        """Return the conditions that the header of a line decides: to be tried before the rest is read."""
        if self.limit is not None:
            return []
        known = {name for name, kind in RECORD_SCHEMA.items() if self.mask is None or kind != pl.String}
        return [one for one in self.conditions if (names := set(one.meta.root_names())) and names <= known]

    def of(self, part: pl.DataFrame) -> pl.DataFrame:
        """Return the rows and columns of a part of the frame that are asked for.

        Where there is a limit, that is the part: which of its rows count is known when those before it are.
        """
        return part if self.limit is not None else self.answer(part)

    def of_lazy(self, part: pl.LazyFrame) -> pl.DataFrame:
        """Return the same of a part that is not read yet, reading what is needed of it."""
        if self.limit is not None:
            return part.select(sorted(self.needed)).head(self.limit).collect()
        if self.mask is not None:
            return self.answer(part.select(sorted(self.needed)).collect())
        return (part.filter(self.conditions) if self.conditions else part).select(self.columns).collect()

    def answer(self, part: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that fulfil the conditions, with the columns that are asked for."""
        if self.mask is not None:
            part = self.mask(part)
        return (part.filter(self.conditions) if self.conditions else part).select(self.columns)


def _read(
    paths: tuple[str, ...],
    folder: str | Path | None,
    mask: Callable[[pl.DataFrame], pl.DataFrame] | None,
    name: str,
    columns: list[str] | None,
    predicate: pl.Expr | None,
    limit: int | None,
    _rows: int | None,
) -> Iterator[pl.DataFrame]:
    """Yield a frame part by part, as polars asks for it: a source of `register_io_source`."""
    conditions = [one for one in _conditions(predicate) if _HINT not in str(one)]
    ask = _Ask(list(scan_schemas()[name]) if columns is None else columns, conditions, limit, mask)
    found = _parts(paths, name, ask) if folder is None else _kept_parts(paths, folder, name, ask)
    with closing(found) as parts:
        for part in parts:
            if limit is None:
                yield part
                continue
            yield ask.answer(part.head(limit))
            limit -= part.height
            if limit <= 0:
                return


def read_by_itself(name: str) -> bool:
    """Tell whether a frame is read line by line, and not by way of a whole reading."""
    return name == "server_arg" or name in event_schemas(compiled_plan())


def parts_of(paths: Sequence[str], name: str) -> Iterator[pl.DataFrame]:
    """Yield a frame of logs part by part.

    Raises SourceError for a log that cannot be read.
    """
    return _parts(tuple(paths), name, _Ask(list(scan_schemas()[name]), [], None))


def _conditions(predicate: pl.Expr | None) -> list[pl.Expr]:
    """Return the conditions that a predicate joins by `and`."""
    if predicate is None:
        return []
    parts = predicate.meta.pop()
    if len(parts) == 2 and (parts[1] & parts[0]).meta.eq(predicate):
        return _conditions(parts[1]) + _conditions(parts[0])
    return [predicate]


def _parts(paths: tuple[str, ...], name: str, ask: _Ask) -> Generator[pl.DataFrame]:
    """Yield what is asked of a frame, part by part, as `_Ask.of` gives it."""
    plan = compiled_plan()
    kind = "server_args" if name == "server_arg" else name
    event = next((one for one in plan.events if one.name == kind), None)
    if event is None:
        parts: Iterable[pl.DataFrame] = (getattr(log, name) for log in whole_readings(paths))
        if name == "faults":  # what repeats one of an earlier piece is counted there
            parts = [merged_faults(pl.concat([pl.DataFrame(schema=FAULT_SCHEMA), *parts]))]
        for part in parts:
            yield ask.of(part)
        return
    pieces = _pieces(_blocks(paths), plan)
    if name == kind:
        yield from _side_by_side(_EventReader(plan, _lean(event, ask.needed), ask).read, pieces)
        return
    whole = _Ask(list(event_schema(event)), [], None)
    for part in _side_by_side(_EventReader(plan, event, whole).read, pieces):
        yield ask.of(read_server_args(part))


def _kept_parts(paths: tuple[str, ...], folder: str | Path, name: str, ask: _Ask) -> Generator[pl.DataFrame]:
    """Yield what is asked of a frame, part by part, from a cache."""
    from sglogparse._cache import Cache, read_kept

    for part in read_kept(paths, [name], Cache(Path(folder), warnings.warn)).parts[name]:
        yield ask.of_lazy(part)


# ------------------------------------------------------------------ lines


def whole_readings(paths: Sequence[str]) -> Iterator[Log]:
    """Yield whole readings that, one behind the other, are the reading of the logs."""
    yield from read_pieces(open_sources(paths))


def _blocks(paths: tuple[str, ...]) -> Iterator[pl.DataFrame]:
    """Yield the lines of the logs, block by block; a block can hold several files."""
    return stream(open_sources(paths), BLOCK)


@dataclass(frozen=True)
class _Lines:
    """Lines that can be read by themselves, and what their files are carried by."""

    lines: pl.DataFrame
    accepted: Accepted = field(default_factory=dict)


def _pieces(blocks: Iterable[pl.DataFrame], plan: Plan) -> Iterator[_Lines]:
    """Yield the lines of blocks in pieces that can be read by themselves.

    What files are carried by is told from their first lines, so those are in one piece; and so are lines that
    a container runtime has cut.
    """
    accepted: Accepted = {}
    #: the file of the last block, and how many of its lines have come
    file, seen = None, 0
    held: list[pl.DataFrame] = []
    #: the first lines of the files that begin in the piece
    first: list[pl.DataFrame] = []

    def piece() -> _Lines:
        nonlocal accepted
        lines = pl.concat(held)
        if first:
            new = accepted_wrappers(pl.concat(first), plan)
            files = set(lines["file"].unique())
            old = {name: [one for one in some if one in files] for name, some in accepted.items()}
            accepted = {
                name: found for name in {**old, **new} if (found := old.get(name, []) + new.get(name, []))
            }
        held.clear()
        first.clear()
        return _Lines(lines, accepted)

    height = 0
    for block in chain.from_iterable(map(_by_file, blocks)):
        if block["file"][0] != file:
            if height >= _LINES:
                yield piece()
                height = 0
            file, seen = block["file"][0], 0
        if seen < SAMPLE:
            first.append(block.head(SAMPLE - seen))
        held.append(block)
        seen += block.height
        height += block.height
        if height < _LINES or seen < SAMPLE:
            continue
        whole = (~block["text"].str.contains(_CUT)).arg_true()
        if whole.is_empty():
            continue
        held[-1], rest = block[: whole[-1] + 1], block[whole[-1] + 1 :]
        yield piece()
        held += [rest] if rest.height else []
        height = rest.height
    if held:
        yield piece()


def _by_file(block: pl.DataFrame) -> list[pl.DataFrame]:
    if block.is_empty() or block["file"][0] == block["file"][-1]:
        return [block] if block.height else []
    return block.partition_by("file", maintain_order=True)


def _side_by_side(
    work: Callable[[_Lines], pl.DataFrame], pieces: Iterable[_Lines]
) -> Generator[pl.DataFrame]:
    """Yield what is made of each piece, in order, as many at a time as polars has threads."""
    pieces = iter(pieces)
    first = list(islice(pieces, 2))
    if len(first) < 2:
        yield from map(work, first)
        return
    width = pl.thread_pool_size()
    running: deque[Future[pl.DataFrame]] = deque()
    pool = ThreadPoolExecutor(width)
    try:
        for piece in chain(first, pieces):
            running.append(pool.submit(work, piece))
            if len(running) > width:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        # polars can end a source within one of the pool's own threads, which cannot wait for itself
        pool.shutdown(wait=False, cancel_futures=True)


# ------------------------------------------------------------------ an event's lines


@dataclass(frozen=True)
class _EventReader:
    """Reads the frame of one event from lines, looking at as few of them, and at as little, as it can."""

    plan: Plan
    #: one of the plan's, with the fields that are asked for
    event: EventPlan
    ask: _Ask

    def read(self, piece: _Lines) -> pl.DataFrame:
        """Return what is asked of some lines."""
        lines = piece.lines.filter(self._may_be(piece))
        if lines.is_empty():
            return self.ask.of(pl.DataFrame(schema=event_schema(self.event)))
        text, found, _ = read_headers(lines, self.plan, piece.accepted)
        places = lines.select("file", "line")
        rows = self._early(places, found)
        if rows is not None:
            text, found, places = text.gather(rows), found[rows], places[rows]
        fields = read_event(read_messages(text, found, self.plan)[0], self.plan, self.event)
        rows = fields["row"]
        head = self._head(places[rows], found[rows], self.ask.needed)
        frame = pl.concat([head, fields.drop("row")], how="horizontal")
        return self.ask.of(frame)

    def _may_be(self, piece: _Lines) -> pl.Series:
        """Tell which lines have the words that the event begins with, or may have them in another writing."""
        text = piece.lines["text"]
        starts = [start for one in self.event.wordings for start in one.prefixes]
        some = text.str.contains_any(starts)
        if JSON in piece.accepted:  # characters can be written as escapes
            some |= text.str.contains("{", literal=True)
        cut = text.str.contains(_CUT)
        if cut.any():  # words can go on in the line below
            some |= cut | cut.shift(1, fill_value=False)
        return some

    def _early(self, places: pl.DataFrame, found: pl.DataFrame) -> pl.Series | None:
        """Return the rows that the conditions on the header leave; None where none can be asked."""
        early = self.ask.early
        if not early:
            return None
        names = {name for one in early for name in one.meta.root_names()}
        try:
            return self._head(places, found, names).with_row_index("row").filter(early)["row"]
        except pl.exceptions.PolarsError:
            # a condition that fails for a line that may be of another kind: then it is not asked of that line
            return None

    def _head(self, places: pl.DataFrame, found: pl.DataFrame, names: set[str]) -> pl.DataFrame:
        """Return the columns of the record that are among `names`."""
        wanted = [name for name in RECORD_SCHEMA if name in names]
        if not set(wanted) - {"file", "line"}:
            # the height is told by one column, whether it is asked for or not
            return places
        return pl.concat([places, head_columns(found, self.plan, wanted)], how="horizontal").select(
            *places.columns, *(name for name in wanted if name not in places.columns)
        )


@dataclass(frozen=True)
class _LeanBag(Bag):
    """A bag that gives some of its fields."""

    wanted: frozenset[str] = frozenset()

    def shape(self, text: str) -> tuple[str, dict[str, str]] | None:
        """Return the pattern of one line's order of items, with the groups that are wanted."""
        found = super().shape(text)
        return _without(*found, self.wanted) if found else None


def _lean(event: EventPlan, wanted: set[str]) -> EventPlan:
    """Return an event with the fields that are wanted: what is not captured costs less."""
    names = frozenset(wanted & event.fields.keys())
    wordings: list[Fixed | Bag] = []
    for one in event.wordings:
        if isinstance(one, Fixed):
            pattern, groups = _without(one.pattern, one.groups, names)
            wordings.append(replace(one, pattern=pattern, groups=groups))
        else:
            parts = {part.name: getattr(one, part.name) for part in fields_of(Bag)}
            wordings.append(_LeanBag(**parts, wanted=names))
    fields = {name: kind for name, kind in event.fields.items() if name in names}
    return replace(event, wordings=tuple(wordings), fields=fields)


def _without(pattern: str, groups: dict[str, str], wanted: frozenset[str]) -> tuple[str, dict[str, str]]:
    """Return a pattern that captures only the groups of wanted fields, and those groups."""
    kept = {group: name for group, name in groups.items() if name in wanted}

    def group(match: re.Match[str]) -> str:
        return match[0] if match[1] in kept else "(?:"

    return re.sub(r"\(\?P<(\w+)>", group, pattern), kept
