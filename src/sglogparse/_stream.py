"""A log of any size: lines come in, block by block, and at any time what they say so far is a Log.

    lines (file, line, text) --> feed --> read one by one --> cut where nothing goes on --> prepared: Log of a
                                          piece, its groups --> Keeper (_condense) --> log() --> Log

Pieces are cut where no block, no family and no record can go on: the pieces together say what the whole says.
Up to MOST lines everything is kept; of longer logs what rules look at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import polars as pl

from sglogparse._compiler import compiled_plan
from sglogparse._condense import TIERS, Keeper, Tier, grouped
from sglogparse._log import Log, Read, assembled, joined_reads, read_lines
from sglogparse._source import open_sources, stream
from sglogparse._spans import GO_ON
from sglogparse._wrappers import SAMPLE, accepted_wrappers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sglogparse._source import Source, SourceFile
    from sglogparse._wrappers import Accepted

#: Bytes of text of a block.
BLOCK = 16 << 20
#: The same where a log is kept whole anyway.
_WHOLE_BLOCK = 40 << 20
#: Lines up to which all of them are kept.
MOST = 500_000
#: Lines of a piece, at the least.
PIECE = 200_000
#: Events without which nothing is known of a cut, one behind the other: lines of a family reach that far.
_QUIET = 16
#: Lines of one process can stand that far apart.
_FAR = 500
#: Blocks and pieces that are worked at side by side: each takes memory.
_WIDEST = 8
#: Lines of a first block that are not read beside others.
_FEW = 20_000
#: Pieces are this many times as long as they should be before they are cut where something may go on.
_PATIENCE = 4


#: A piece that was assembled, and the groups of its rows.
Prepared = tuple[Log, pl.DataFrame]


class Progress(Protocol):
    """Who wants to know how far the reading has come."""

    def update(self, sources: Sequence[Source]) -> None:
        """Take notice of how much of the sources has been read."""

    def close(self) -> None:
        """Take notice of the end of the reading."""


class Reader:
    """Reads lines as they come; what has been read is not read again."""

    def __init__(
        self,
        *,
        piece: int = PIECE,
        most: int = MOST,
        tiers: Mapping[str, Tier] = TIERS,
        accepted: Accepted | None = None,
    ) -> None:
        #: lines that are not read yet: what carries them is known when a file has shown enough of them
        self._raw: list[pl.DataFrame] = []
        self._accepted: Accepted = accepted or {}
        #: files of which that is decided; None where it was given for all of them
        self._known: set[int] | None = None if accepted is not None else set()
        self._open: list[Read] = []
        self._piece = piece
        self._most = most
        self._keeper = Keeper(most, tiers)
        #: lines (file, line) before which a piece was cut although something may go on there
        self.forced: list[tuple[int, int]] = []

    def feed(self, lines: pl.DataFrame) -> None:
        """Take the next whole lines: `file` (UInt16), `line` (UInt32, from 1, without holes) and `text`."""
        ready = self.ready(lines)
        if not ready.is_empty():
            for piece in self.take(read_lines(ready, self._accepted)):
                self.put_by(self.prepared(piece))

    def ready(self, lines: pl.DataFrame) -> pl.DataFrame:
        """Return the lines that can be read now: what carries a file is decided by its first lines."""
        raw = pl.concat([*self._raw, lines])
        self._raw = []
        if raw.is_empty() or self._known is None:
            return raw
        counts = dict(raw.group_by("file", maintain_order=True).len().iter_rows())
        new = [file for file in counts if file not in self._known]
        height = raw.height
        if new and new[-1] == raw["file"][-1] and counts[new[-1]] < SAMPLE:
            height -= counts[new.pop()]
            self._raw = [raw[height:]]
        if new:
            self._accepted = _more(self._accepted, raw.filter(pl.col("file").is_in(new)))
            self._known.update(new)
        return raw[:height]

    @property
    def accepted(self) -> Accepted:
        """Return what carries the files, as far as it is decided."""
        return self._accepted

    def take(self, read: Read) -> list[Read]:
        """Take lines that were read one by one; return what is certain to be whole, to be put by in order."""
        self._open.append(read)
        if sum(part.records.height for part in self._open) < self._piece:
            return []
        whole = joined_reads(self._open, self._accepted)
        height = whole.records.height
        cut = quiet(whole, _QUIET)
        if not cut and height >= _PATIENCE * self._piece:
            cut = quiet(whole, 0) or height
            self.forced.append(whole.records.select("file", "line").row(cut - 1))
        self._open = [whole.part(cut, height)] if cut < height else []
        return [whole.part(0, cut)] if cut else []

    def prepared(self, piece: Read) -> Prepared:
        """Return what a piece says by itself: this can be done for several of them side by side."""
        log = assembled((), piece)
        return log, grouped(log)

    def put_by(self, piece: Prepared) -> None:
        """Take a piece to which nothing more belongs."""
        self._keeper.add(*piece)

    def rest(self) -> tuple[list[Read], Accepted]:
        """Return what was read of the lines that are not put by, and what carries them."""
        rest = pl.concat([pl.DataFrame(schema=_LINES), *self._raw])
        accepted = self._accepted if self._known is None else _more(self._accepted, rest)
        return [*self._open, *([] if rest.is_empty() else [read_lines(rest, accepted)])], accepted

    def log(self, files: Iterable[SourceFile]) -> Log:
        """Return what the lines so far say; `files` are the sources that their `file` counts from 0.

        More lines can be fed afterwards.
        """
        open_, accepted = self.rest()
        if not (open_ or self._keeper.seen):
            open_ = [read_lines(pl.DataFrame(schema=_LINES), accepted)]
        if not self._keeper.seen and sum(part.records.height for part in open_) <= self._most:
            return assembled(files, joined_reads(open_, accepted))
        keeper = self._keeper.copy()
        if open_:
            keeper.add(*self.prepared(joined_reads(open_, accepted)))
        kept = keeper.kept()
        late = dict.fromkeys(("faults", "stack_frames"), _not_in_pieces)
        return Log(self._said(files), kept.rows, kept.frames, kept.counts, late=late)

    def _said(self, files: Iterable[SourceFile]) -> Iterator[SourceFile]:
        """Yield the files, with a note where a piece was cut although something may go on there."""
        for index, source in enumerate(files):
            lines = [str(line) for file, line in self.forced if file == index]
            if lines:
                more = f" and {len(lines) - _SAID} more" if len(lines) > _SAID else ""
                where = f"{', '.join(lines[:_SAID])}{more}"
                note = f"read in pieces: a block that goes on behind line {where} is cut"
                source = replace(source, notes=(*source.notes, note))
            yield source


def _not_in_pieces() -> pl.DataFrame:
    raise LookupError("this frame is made of a whole log only: use read_log")


def _more(accepted: Accepted, lines: pl.DataFrame) -> Accepted:
    """Return what carries files, with those whose first lines are given."""
    if lines.is_empty():
        return accepted
    found = accepted_wrappers(lines, compiled_plan())
    return {name: [*accepted.get(name, []), *found.get(name, [])] for name in {**accepted, **found}}


#: Lines that a note names.
_SAID = 3
_LINES: dict[str, pl.DataType] = {"file": pl.UInt16(), "line": pl.UInt32(), "text": pl.String()}


def read_condensed(paths: Iterable[str | Path], progress: Progress | None = None) -> Log:
    """Read logs of any size in bounded memory; of long ones what rules look at is kept.

    Raises SourceError for a path that cannot be read as text. `progress` is told the sources now and then.
    """
    sources = open_sources(paths)
    reader = Reader()
    for _ in feeding(reader, told(stream(sources, BLOCK), sources, progress)):
        pass
    return reader.log([source.summary() for source in sources])


class _Whole(Reader):
    """Keeps what was read one by one."""

    def take(self, read: Read) -> list[Read]:
        self._open.append(read)
        return []


def read_whole(paths: Iterable[str | Path]) -> Log:
    """Read logs and keep all of them.

    Raises SourceError for a path that cannot be read as text.
    """
    sources = open_sources(paths)
    reader = _Whole()
    for _ in feeding(reader, stream(sources, _WHOLE_BLOCK)):
        pass
    open_, accepted = reader.rest()
    read = joined_reads(open_ or [read_lines(pl.DataFrame(schema=_LINES), accepted)], accepted)
    return assembled([source.summary() for source in sources], read)


class _Pieces(Reader):
    """Hands pieces on instead of keeping them."""

    def __init__(self, *, piece: int = PIECE, accepted: Accepted | None = None) -> None:
        super().__init__(piece=piece, accepted=accepted)
        self.pieces: deque[Log] = deque()

    def prepared(self, piece: Read) -> Prepared:
        return assembled((), piece), pl.DataFrame()

    def put_by(self, piece: Prepared) -> None:
        self.pieces.append(piece[0])


def read_pieces(sources: Sequence[Source], progress: Progress | None = None) -> Iterator[Log]:
    """Yield the logs of neighbouring lines that, one behind the other, are the whole reading of sources.

    Memory holds a few of them. The frame `faults` counts the repeats in its piece: merged_faults puts them
    together. Raises SourceError for a source that cannot be read as text.
    """
    reader = _Pieces()
    for _ in feeding(reader, told(stream(sources, BLOCK), sources, progress)):
        while reader.pieces:
            yield reader.pieces.popleft()
    yield from reader.pieces
    open_, accepted = reader.rest()
    if open_:
        yield assembled((), joined_reads(open_, accepted))


def told(
    blocks: Iterable[pl.DataFrame], sources: Sequence[Source], progress: Progress | None
) -> Iterator[pl.DataFrame]:
    """Yield blocks, and tell how far the sources have been read."""
    try:
        for block in blocks:
            if progress is not None:
                progress.update(sources)
            yield block
    finally:
        if progress is not None:
            progress.close()


def feeding(reader: Reader, blocks: Iterable[pl.DataFrame]) -> Iterator[None]:
    """Feed blocks of lines to a reader, reading some of them side by side; yield after each."""
    width = min(pl.thread_pool_size(), _WIDEST)
    pool = ThreadPoolExecutor(width)
    waiting: deque[Future[Read]] = deque()
    pieces: deque[Future[Prepared]] = deque()

    def go_on(most: int) -> None:
        """Take what has been read, and put by what is whole of it, until no more than so much is at work."""
        while len(waiting) + len(pieces) > most:
            if len(pieces) > 1 or not waiting:
                reader.put_by(pieces.popleft().result())
            else:
                for piece in reader.take(waiting.popleft().result()):
                    pieces.append(pool.submit(reader.prepared, piece))

    try:
        for number, block in enumerate(blocks):
            ready = reader.ready(block)
            if ready.is_empty():
                continue
            if not number and ready.height < _FEW:  # a small log: to hand it over costs more
                for piece in reader.take(read_lines(ready, reader.accepted)):
                    reader.put_by(reader.prepared(piece))
            else:
                waiting.append(pool.submit(read_lines, ready, reader.accepted))
                go_on(width + 1)
            yield
        go_on(0)
        yield
    finally:
        # a lazy frame can be ended within one of the pool's own threads, which cannot wait for itself
        pool.shutdown(wait=False, cancel_futures=True)


def quiet(read: Read, behind: int) -> int:
    """Return the last row before which lines can be cut, as nothing goes on there; 0 where there is none.

    It is that of an event behind so many other events.
    """
    records, kinds = read.records, read.kinds
    first_of_last = records["file"].index_of(records["file"][-1]) or 0
    if first_of_last:  # of several files the last one may go on
        return first_of_last
    event = kinds.is_not_null() & ~kinds.is_in(_NOT_QUIET).fill_null(False)
    runs = event.cast(pl.UInt8).rolling_sum(behind + 1) == behind + 1
    cuts = runs
    tagged = _tagged(records, event)
    if not tagged.is_empty():
        place = pl.int_range(records.height, dtype=pl.Int64, eager=True)
        last = pl.Series([None], dtype=pl.Int64).new_from_index(0, len(place)).scatter(tagged, tagged)
        cuts &= ((place - last.forward_fill()) > _FAR).fill_null(True)
    opened = _opened(read)
    if opened is not None:
        cuts &= opened == 0
    rows = cuts.arg_true()
    return 0 if rows.is_empty() else int(rows[-1])


#: Events that lines below them can belong to.
_NOT_QUIET = (*GO_ON, "exception_report", "warmup_failed")


def _tagged(records: pl.DataFrame, event: pl.Series) -> pl.Series:
    """Return the rows of lines that name their process themselves: theirs go together over other lines."""
    rows = (~event).arg_true()
    message = records["message"].gather(rows)
    return rows.filter(message.str.starts_with("(") | message.str.starts_with("[rank"))


def _opened(read: Read) -> pl.Series | None:
    """Return, row by row, how many processes that a carrier names may go on; None where it names none."""
    own = read.carried.drop_nulls("origin").select("file", "line", "origin")
    if own.is_empty():
        return None
    places = read.records.select("file", "line").with_columns(free=read.kinds.is_null())
    told = places.join(own, on=["file", "line"], how="left", maintain_order="left")
    free = pl.col("free").cast(pl.Int32)
    change = pl.when(pl.col("origin").is_not_null()).then(free - free.shift(1).over("origin").fill_null(0))
    return told.select(opened=change.fill_null(0).cum_sum().shift(1).fill_null(0))["opened"]
