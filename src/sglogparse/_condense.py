"""A log that is too long to be kept: what rules look at stays, what repeats is thinned out and counted.

    Log of some lines --> group of each row (what it says, who says it, in which start)
                      --> first rows, last rows, and every k-th of each group; rows around faults; counts

The rows that stay depend on the whole log alone, and not on how it was cut into pieces: a row is kept by its
place in its group, by the size of the group, and by how many rows there are of its tier.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from sglogparse._compiler import compiled_plan
from sglogparse._events import event_schemas, read_events
from sglogparse._families import family_names
from sglogparse._records import messages_of, places_of
from sglogparse._words import FAILURE, FATAL, GRAVE, HARMLESS

if TYPE_CHECKING:
    from sglogparse._log import Log


class Tier(NamedTuple):
    """How much is kept of rows of one nature."""

    #: first and last rows of each group
    ends: int
    #: rows of all groups together that are kept besides: every k-th, k a power of two
    spread: int


#: What is kept: of batches, of answers to requests, of other events, of free text, and of blocks.
TIERS = {
    "batch": Tier(256, 64_000),
    "access": Tier(500, 10_000),
    "event": Tier(8, 20_000),
    "text": Tier(8, 20_000),
    "block": Tier(50, 500),
}
_NAMES = list(TIERS)
#: Kinds of the tiers of batches and of requests.
_BATCHES = ("decode_batch", "prefill_batch")
_ACCESS = "http_access"
#: Events at which a start can begin: what stands before one is never thinned out together with what follows.
_STARTS = ("server_args", "dist_init_begin", "load_weight_begin")
#: Events near which everything matters.
_DEATHS = (
    *("exception_report", "warmup_failed", "sigquit", "process_exit", "sigterm", "kill_tree"),
    *("child_terminated", "watchdog_timeout"),
)
#: Rows before and behind such a row, and behind a block, that are kept with it.
BEFORE, BEHIND = 64, 44
#: Groups of free text of one nature, and of events of one kind, by their words: rare ones are kept.
_WORDINGS = 128
_EVENTS = 32
_LONG = 200
#: Starts of one file that are told apart: a server that crashes in a loop makes thousands.
_SEGMENTS = 64

#: Texts may be held of so many times the rows that are kept.
_GARBAGE = 2
#: Rows that are put by before they are thinned out together.
FRESH = 250_000

#: One group: whose and what its rows are, and how many there are; `line` is that of its first row.
COUNT_SCHEMA: dict[str, pl.DataType] = {
    "file": pl.UInt16(),
    "line": pl.UInt32(),
    "kind": pl.String(),
    "rank": pl.String(),
    "method": pl.String(),
    "status": pl.Int64(),
    "detail": pl.String(),
    "total": pl.UInt32(),
    "dropped": pl.UInt32(),
    "max_usage": pl.Float64(),
    "max_queue": pl.Int64(),
}
#: Marks of texts that speak of the end of a process, and of some failure.
GRAVE_MARK, FAILURE_MARK = "!", "?"
#: Mark of the exceptions that the HTTP process shows to their end.
HTTP = " http"
#: Where it answers requests.
_HTTP_CODE = "uvicorn/protocols/http"
#: Columns that say where a row stands in its group, and near which rows of which groups.
_KEPT = ("key", "at", "turn", "one", "anchor", "before", "before_at", "behind", "behind_at")


@dataclass(frozen=True)
class Kept:
    """What is kept of a log: rows (records with their kind), frames, and how many rows each group has."""

    rows: pl.DataFrame
    frames: dict[str, pl.DataFrame]
    #: None where everything is kept
    counts: pl.DataFrame | None


@dataclass
class _Piece:
    """Neighbouring rows with their places in their groups, and the frames that were read of them."""

    rows: pl.DataFrame
    frames: dict[str, pl.DataFrame]
    #: rows whose texts it holds in memory, where they have been thinned out: more than it has
    held: int | None = None


class Keeper:
    """Takes a log piece by piece, and keeps as much as the tiers allow.

    A row that is not kept now would not be kept later: groups only grow.
    """

    def __init__(self, most: int, tiers: Mapping[str, Tier] = TIERS) -> None:
        #: rows up to which everything is kept
        self._most = most
        self._tiers = tiers
        self._pieces: list[_Piece] = []
        self._groups = pl.DataFrame(schema={"key": pl.UInt64, "tier": pl.UInt8, **COUNT_SCHEMA})
        self._turns = pl.DataFrame(schema={"series": pl.UInt64, "turns": pl.UInt32})
        self._starts: dict[int, int] = {}
        #: rows that came, and those that came since the others were thinned out
        self.seen = self._fresh = 0

    def copy(self) -> Keeper:
        """Return a keeper of the same rows, to which others can be added."""
        other = Keeper(self._most, self._tiers)
        other.__dict__.update(self.__dict__)
        other._pieces = [replace(piece) for piece in self._pieces]
        other._starts = dict(self._starts)
        return other

    def add(self, log: Log, groups: pl.DataFrame) -> None:
        """Take the next lines, with the groups of their rows."""
        rows = self._placed(log, groups)
        self.seen += rows.height
        self._fresh += rows.height
        frames = log.frames.found if self.seen <= self._most else _own(log.frames.found)
        if not self._pieces:
            self._pieces.append(_Piece(_near(rows), frames))
        else:  # what stands before a fault can be in the piece before, and what stands behind it
            last = self._pieces.pop()
            ends = last.rows[-BEFORE:]
            both = _near(pl.concat([ends, rows]))
            earlier = replace(last, rows=pl.concat([last.rows[:-BEFORE], both[: ends.height]]))
            piece = _Piece(both[ends.height :], frames)
            small = min(rows.height, last.rows.height) < BEFORE
            self._pieces += [_together([earlier, piece])] if small else [earlier, piece]
        if self.seen > self._most and self._fresh >= FRESH:
            self._thin_out(sparing=BEFORE)

    def kept(self) -> Kept:
        """Return what is kept; of few rows all are."""
        if self.seen > self._most:
            self._thin_out()
        piece = _together(self._pieces)
        there = piece.rows.filter("one").group_by("key").agg(pl.len().alias("there"))
        counts = self._groups.join(there, on="key", how="left").with_columns(
            dropped=pl.col("total") - pl.col("there").fill_null(0)
        )
        counts = counts.sort("file", "line").select(COUNT_SCHEMA.keys())
        rows, frames = piece.rows.drop(_KEPT).rechunk(), piece.frames
        if self.seen > self._most:
            frames = {**frames, **_read_again(rows)}
        return Kept(rows, frames, counts if counts["dropped"].sum() else None)

    def _thin_out(self, sparing: int = 0) -> None:
        """Drop what the tiers do not allow; the last rows are spared, as what follows may be near them."""
        table = self._groups.select("key", "total", "tier").with_columns(
            ends=pl.col("tier").replace_strict(
                range(len(_NAMES)), [self._tiers[name].ends for name in _NAMES], return_dtype=pl.UInt32
            ),
            step=pl.col("tier").replace_strict(range(len(_NAMES)), self._steps(), return_dtype=pl.UInt32),
        )
        old = [piece for piece in self._pieces if piece.held is not None]
        new = [piece for piece in self._pieces if piece.held is None]
        groups = [_together(some) for some in (old, new) if some]
        pieces = [_thinned(one, table, sparing if one is groups[-1] else 0) for one in groups]
        # copying texts is dear: it is done for new ones, and for all when most of what is held is of no use
        held = sum(piece.held or 0 for piece in old) + sum(piece.rows.height for piece in pieces[len(old) :])
        if held > _GARBAGE * sum(piece.rows.height for piece in pieces):
            pieces = [_compacted(_together(pieces))]
            held = pieces[0].rows.height
        elif new:
            pieces[-1] = _compacted(pieces[-1])
        self._pieces, self._fresh = [replace(_together(pieces), held=held)], 0

    def _steps(self) -> list[int]:
        """Return, by tier, the k of every k-th row that is kept."""
        sizes = dict(self._groups.group_by("tier").agg(pl.col("total").sum()).iter_rows())
        steps = []
        for code, name in enumerate(_NAMES):
            step = 1
            while sizes.get(code, 0) > step * self._tiers[name].spread:
                step *= 2
            steps.append(step)
        return steps

    def _placed(self, log: Log, groups: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of a log with their places in their groups, and count them there."""
        rows = log.records.with_columns(log.lines["kind"])
        # the starts of a file have groups of their own; of very many the late ones share one
        segment = self._segments(rows).clip(upper_bound=_SEGMENTS)
        groups = groups.with_columns(
            pl.struct(name, segment).hash().alias(name) for name in ("key", "series")
        )
        # the rows of a block are one, and stand where its first row does
        first = groups["first"]
        one = first == pl.int_range(rows.height, eager=True, dtype=pl.UInt32)
        single = groups.filter(one).with_columns(
            at=pl.int_range(pl.len(), dtype=pl.UInt32).over("key"),
            turn=pl.int_range(pl.len(), dtype=pl.UInt32).over("series"),
        )
        known = self._groups.select("key", pl.col("total").alias("so_far"))
        single = (
            single.join(known, on="key", how="left", maintain_order="left")
            .join(self._turns, on="series", how="left", maintain_order="left")
            .with_columns(
                at=pl.col("at") + pl.col("so_far").fill_null(0),
                turn=pl.col("turn") + pl.col("turns").fill_null(0),
            )
        )
        self._count(single, rows.filter(one))
        index = one.cum_sum() - 1  # of the last row that is one, which is not yet the block's
        of_first = index.gather(first)
        return pl.concat(
            [
                rows,
                single.select("key", "at", "turn")[of_first],
                groups.select("anchor"),
                one.to_frame("one"),
            ],
            how="horizontal",
        ).with_columns(
            pl.lit(None, dtype=dtype).alias(name)
            for name, dtype in (
                ("before", pl.UInt64),
                ("before_at", pl.UInt32),
                ("behind", pl.UInt64),
                ("behind_at", pl.UInt32),
            )
        )

    def _count(self, single: pl.DataFrame, rows: pl.DataFrame) -> None:
        new = (
            single.select("key", "tier", "method", "status", "detail", "usage", "queue")
            .hstack(rows.select("file", "line", pl.col("kind").cast(pl.String), "rank"))
            .group_by("key", maintain_order=True)
            .agg(
                pl.col("tier", "file", "line", "kind", "method", "status", "detail").first(),
                # the ranks of other groups are mixed
                pl.when(pl.col("rank").n_unique() == 1).then(pl.col("rank").first()).alias("rank"),
                pl.len().alias("total"),
                max_usage=pl.col("usage").max(),
                max_queue=pl.col("queue").max(),
            )
            .with_columns(dropped=pl.lit(0, dtype=pl.UInt32))
        )
        both = pl.concat([self._groups, new.select(self._groups.columns).cast(self._groups.schema)])
        firsts = ("tier", "file", "line", "kind", "method", "status", "detail", "dropped")
        self._groups = (
            both.group_by("key", maintain_order=True)
            .agg(
                pl.col(firsts).first(),
                pl.when(pl.col("rank").n_unique() == 1).then(pl.col("rank").first()).alias("rank"),
                pl.col("total").sum(),
                pl.col("max_usage", "max_queue").max(),
            )
            .select(both.columns)
        )
        turns = single.group_by("series").agg(pl.len().cast(pl.UInt32).alias("turns"))
        self._turns = pl.concat([self._turns, turns]).group_by("series").agg(pl.col("turns").sum())

    def _segments(self, rows: pl.DataFrame) -> pl.Series:
        """Return, row by row, how many lines at which a start can begin its file has had."""
        begins = rows["kind"].is_in(_STARTS).fill_null(False)
        if not begins.any() and not self._starts:
            return pl.repeat(0, rows.height, dtype=pl.UInt32, eager=True).alias("segment")
        files = rows["file"]
        found = pl.DataFrame([files, begins.alias("begins")]).select(
            pl.col("begins").cum_sum().over("file").cast(pl.UInt32).alias("segment"), "file"
        )
        before = pl.DataFrame(
            list(self._starts.items()), schema={"file": pl.UInt16, "starts": pl.UInt32}, orient="row"
        )
        segment = found.join(before, on="file", how="left", maintain_order="left").select(
            segment=pl.col("segment") + pl.col("starts").fill_null(0)
        )["segment"]
        last = pl.DataFrame([files, segment]).group_by("file").agg(pl.col("segment").max())
        self._starts |= dict(last.iter_rows())
        return segment


def _thinned(piece: _Piece, table: pl.DataFrame, sparing: int) -> _Piece:
    """Return a piece with the rows that a table allows, and the last ones."""
    rows = piece.rows
    kept = _allowed(rows, table, "key", "at", "turn")
    for near in ("before", "behind"):
        some = rows[near].is_not_null().arg_true()
        if some.is_empty():
            continue
        found = _allowed(rows[some], table, near, f"{near}_at", f"{near}_at")
        kept = kept.scatter(some.filter(found), True)
    if sparing:
        kept |= pl.int_range(rows.height, eager=True) >= rows.height - sparing
    rows = rows.filter(kept)
    places = places_of(rows)
    frames = {name: frame.filter(_within(frame, places)) for name, frame in _own(piece.frames).items()}
    return _Piece(rows, frames, piece.held)


def _own(frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Return the frames that are not read line by line: the others are read again of what stays."""
    again = {*event_schemas(compiled_plan()), "message"}
    return {name: frame for name, frame in frames.items() if name not in again}


def _read_again(rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the frames that are read of single lines."""
    frames = read_events(rows, compiled_plan())[1].found
    return {**frames, "message": messages_of(rows)}


def _compacted(piece: _Piece) -> _Piece:
    """Return a copy of a piece that holds the texts of its rows alone."""
    return _Piece(_compact(piece.rows), {name: _compact(frame) for name, frame in piece.frames.items()})


def _together(pieces: list[_Piece]) -> _Piece:
    if len(pieces) == 1:
        return pieces[0]
    names = dict.fromkeys(name for piece in pieces for name in piece.frames)
    frames = {
        name: pl.concat([piece.frames[name] for piece in pieces if name in piece.frames]) for name in names
    }
    return _Piece(pl.concat([piece.rows for piece in pieces]), frames)


def grouped(log: Log) -> pl.DataFrame:
    """Return, row by row, the group (`key`), its tier, what is counted of it, and what stands near it.

    `first` is the first row of the block that a row is part of, or the row itself; `series` the rows among
    which every k-th is kept; `anchor` tells of rows near which others are kept. Several starts of one file
    are not told apart.
    """
    rows = log.records.with_columns(log.lines["kind"])
    kind = rows["kind"]
    height = rows.height
    nothing = pl.Series("detail", [None], dtype=pl.String).new_from_index(0, height)
    numbers = pl.Series([None], dtype=pl.Int64).new_from_index(0, height)
    detail, method, status = nothing, nothing.alias("method"), numbers.alias("status")
    usage, queue = numbers.cast(pl.Float64).alias("usage"), numbers.alias("queue")
    tier = pl.repeat(_NAMES.index("event"), height, dtype=pl.UInt8, eager=True).alias("tier")
    batches = kind.is_in(_BATCHES).fill_null(False)
    tier = tier.scatter(batches.arg_true(), _NAMES.index("batch"))
    for name in _BATCHES:
        at, frame = (kind == name).fill_null(False).arg_true(), log.frames[name]
        usage = usage.scatter(
            at, frame.select(pl.max_horizontal("token_usage", "full_token_usage")).to_series()
        )
        queue = queue.scatter(at, frame["queue_req"])
    at = (kind == _ACCESS).fill_null(False).arg_true()
    if not at.is_empty():
        access = log.frames[_ACCESS]
        tier = tier.scatter(at, _NAMES.index("access"))
        method, status = method.scatter(at, access["method"]), status.scatter(at, access["status"])
        detail = detail.scatter(
            at, access.select(pl.concat_str("method", "status", ignore_nulls=True)).to_series()
        )
    free = (kind.is_null() | kind.is_in(["message", *family_names()])).arg_true()
    tier = tier.scatter(free, _NAMES.index("text"))
    words, grave = _wordings(rows["message"].gather(free))
    detail = detail.scatter(free, words)
    events = (tier == _NAMES.index("event")).arg_true()
    detail = detail.scatter(events, (_words(rows["message"].gather(events)) % _EVENTS).cast(pl.String))
    # what a rule looks for is never one of many
    looked_for = _looked_for(log, free)
    detail = detail.scatter(
        looked_for["row"], detail.gather(looked_for["row"]).fill_null("") + looked_for["mark"]
    )
    first, said = _blocks(log, height)
    parts = said["row"]
    tier = tier.scatter(parts, _NAMES.index("block"))
    detail = detail.scatter(parts, said["said"])
    anchors = pl.concat([free.filter(grave), parts.unique()]).cast(pl.UInt32)
    anchor = kind.is_in(_DEATHS).fill_null(False).scatter(anchors, True)
    # who speaks is told apart but for free text, where it would be too much
    who = rows["rank"].scatter(pl.concat([free, at]), None)
    origin = _origins(log, rows)
    table = pl.DataFrame(
        [
            rows["file"], tier, kind.to_physical().fill_null(2**16 - 1).alias("kind"), who, origin,
            detail, method, status, usage, queue, first, anchor.alias("anchor"),
        ]
    )  # fmt: skip
    # decode and prefill batches of a rank are thinned out together
    series = pl.struct("file", "rank", "origin", pl.when(pl.col("tier") > 0).then("kind"), "detail")
    return table.with_columns(
        key=pl.struct("file", "kind", "rank", "origin", "detail").hash(), series=series.hash()
    )


def _wordings(messages: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return how texts are told apart, and which of them speak of the end of a process."""
    grave = messages.str.contains(GRAVE) | messages.str.contains(FATAL)
    fails = messages.str.contains(FAILURE) & ~messages.str.contains(HARMLESS)
    bucket = (_words(messages) % _WORDINGS).cast(pl.String)
    nature = pl.select(
        pl.when(grave).then(pl.lit(GRAVE_MARK)).when(fails).then(pl.lit(FAILURE_MARK)).otherwise(pl.lit(""))
    )
    return nature.to_series() + bucket, grave


def _words(messages: pl.Series) -> pl.Series:
    """Return a number by which texts of other words are told apart, whatever their figures are."""
    return messages.str.head(_LONG).str.replace_all("[0-9]+", "0").hash()


def _looked_for(log: Log, free: pl.Series) -> pl.DataFrame:
    """Return the rows (`row`), of those of free text, that rules look for, with a mark of what they tell."""
    from sglogparse import _verdict  # it knows all rules
    from sglogparse._derived import TELLING, Whole

    del _verdict
    whole = Whole(log.lines[free], log.records[free], log.frames, [0, len(free)])
    parts = [pl.DataFrame(schema={"row": pl.UInt32, "mark": pl.String})]
    for number, scan in enumerate(TELLING):
        found = scan.derive(whole)
        flags = [
            pl.col(name).cast(pl.Int8).cast(pl.String)
            for name in found.columns
            if found[name].dtype == pl.Boolean
        ]
        mark = pl.concat_str([pl.lit(f" *{number}"), *flags], ignore_nulls=True)
        parts.append(found.select(pl.col("row").cast(pl.UInt32), mark.alias("mark")))
    found = pl.concat(parts).group_by("row", maintain_order=True).agg(pl.col("mark").str.join())
    return found.with_columns(free.gather(found["row"]).alias("row"))


def _blocks(log: Log, height: int) -> tuple[pl.Series, pl.DataFrame]:
    """Return, row by row, the first row of its block (else its own), and what the rows of blocks say."""
    first = pl.int_range(height, dtype=pl.UInt32, eager=True).alias("first")
    said = pl.DataFrame(schema={"row": pl.UInt32, "first": pl.UInt32, "said": pl.String})
    if not log.blocks:
        return first, said
    heights = [len(rows) for _, rows in log.blocks]
    rows = pl.concat([rows for _, rows in log.blocks]).cast(pl.UInt32)
    begin = pl.Series([rows[0] for _, rows in log.blocks], dtype=pl.UInt32)
    texts = [kind for kind, _ in log.blocks]
    # the first blocks are those of the traceback frame, in its order
    outermost = pl.col("stack").list.first().struct
    raised = log.frames["traceback"].select(
        "exception", "process_name", outermost.field("function"), http=in_http(pl.col("stack"))
    )
    for place, (exception, process, function, http) in enumerate(raised.iter_rows()):
        texts[place] += f" {exception} {process} {function}" if exception else f" {process} {function}"
        texts[place] += HTTP if http and exception else ""
    owner = pl.Series(range(len(heights)), dtype=pl.UInt32).repeat_by(pl.Series(heights)).explode()
    said = pl.DataFrame(
        {"row": rows, "first": begin.gather(owner), "said": pl.Series(texts).gather(owner)}
    ).unique("row", keep="first", maintain_order=True)
    first = first.scatter(said["row"], said["first"])
    return first.gather(first), said  # a block can begin within another one


def in_http(stack: pl.Expr) -> pl.Expr:
    """Tell which stacks run through the code that answers requests."""
    path = pl.element().struct.field("path")
    return stack.list.eval(path.str.contains(_HTTP_CODE, literal=True)).list.any().fill_null(False)


def _origins(log: Log, rows: pl.DataFrame) -> pl.Series:
    """Return, row by row, what the carrier of a line calls the one who speaks."""
    carried = log.frames["carried"]
    if carried.is_empty():
        return pl.Series("origin", [None], dtype=pl.String).new_from_index(0, rows.height)
    told = carried.select("file", "line", "origin")
    return rows.select("file", "line").join(told, on=["file", "line"], how="left", maintain_order="left")[
        "origin"
    ]


def _near(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the anchors that they stand before and behind, where they are near."""
    if not rows["anchor"].any():
        return rows
    place = pl.int_range(pl.len(), dtype=pl.UInt32)
    anchor = pl.when("anchor").then(place)
    following, last = anchor.backward_fill(), anchor.forward_fill()
    found = rows.select(
        before=pl.when(following.cast(pl.Int64) - place <= BEFORE).then(following),
        behind=pl.when(place.cast(pl.Int64) - last <= BEHIND).then(last),
    )
    return rows.with_columns(
        pl.coalesce(rows[column].gather(found[near]).alias("new"), pl.col(name)).alias(name)
        for near in ("before", "behind")
        for name, column in ((near, "key"), (f"{near}_at", "at"))
    )


def _allowed(rows: pl.DataFrame, table: pl.DataFrame, key: str, at: str, turn: str) -> pl.Series:
    """Tell which rows are kept for a group and a place in it."""
    own = rows.select(pl.col(key).alias("key"), pl.col(at).alias("at"), pl.col(turn).alias("turn"))
    found = own.join(table, on="key", how="left", maintain_order="left")
    first, last = pl.col("at") < pl.col("ends"), pl.col("at") + pl.col("ends") >= pl.col("total")
    return found.select(kept=(first | last | (pl.col("turn") % pl.col("step") == 0)).fill_null(False))["kept"]


def _within(frame: pl.DataFrame, places: pl.Series) -> pl.Series:
    """Tell which rows stand at one of some places, which are in order."""
    own = places_of(frame)
    return places.gather(places.search_sorted(own).clip(0, len(places) - 1)) == own


def _compact(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a copy: rows that were taken out of a frame keep the texts of all its rows in memory."""
    filled = [one for one in frame if one.null_count() < frame.height]
    texts = [pl.col(one.name) + "" for one in filled if one.dtype == pl.String]
    nested = [one for one in filled if one.dtype.is_nested()]
    if nested:
        buffer = io.BytesIO()
        pl.DataFrame(nested).write_ipc(buffer)
        frame = frame.with_columns(pl.read_ipc(buffer.getvalue()).get_columns())
    return frame.with_columns(texts) if texts else frame
