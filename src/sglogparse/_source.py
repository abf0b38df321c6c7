r"""From paths to physical lines: every input byte belongs to exactly one line.

    path, "-" --> bytes --> unpacked bytes --> text without marks and NULs --> blocks (file, line, text)
                            (_unpack)          (Text)                         (Lines)

A physical line ends at \n (or at the end of the file); \r\n is one end. What a terminal would have
overwritten (text before a lone \r, as progress bars leave it) stays in `text`. What had to be replaced is
counted. Everything flows in pieces: memory does not grow with the log, nor with what compressed data expand
to, nor with a line without an end.
"""

from __future__ import annotations

import fnmatch
import stat
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path

import polars as pl

from sglogparse._archives import Found, archive_kind, is_archive, open_archive
from sglogparse._cheap import dataclass
from sglogparse._errors import SourceError
from sglogparse._files import File, FileStream, Origin, StandardInput, Stream, unreadable
from sglogparse._folders import files_in, files_like, is_glob, named_as_archive, named_as_log
from sglogparse._ours import why_ours
from sglogparse._text import (
    PIECE,
    SAMPLE,
    UTF8,
    UTF16,
    Lines,
    Text,
    check,
    frame_of,
    head_of,
    most_of_a_line,
    replacement_note,
)
from sglogparse._unpack import Damaged, kind_of, unpack

#: Control sequences (colours, cursor), operating system commands (titles, links), and other escapes.
ANSI = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[@-Z\\^_78=>c])"
_CONTROLS = bytes(code for code in range(32) if code not in b"\t\n\r\b\f")
#: Size of the blocks in which whole logs are read: the memory of one serves the next, bytes.
_BLOCK = 1 << 24
#: Plain files up to this size are read many in one call of polars, bytes, and what is read at once of them.
_SMALL = 1 << 20
_TOGETHER = 1 << 22
_MOST_FILES = 65_535
_MOST_LINES = 2**32 - 1
#: Files of a folder or an archive that are named, for each reason why they are not read.
_MOST_NAMED = 3
#: Why a file is not read without anything being lost: it is no log, or it is read elsewhere.
_NO_LOSS = ("not named as a log", "hidden", "hard link", "symbolic link", "no file", "no regular file")
_SCHEMA = {"file": pl.UInt16(), "line": pl.UInt32(), "text": pl.String()}


@dataclass(frozen=True)
class SourceFile:
    """What was read of one file, and what had to be done to read it."""

    path: str
    lines: int
    #: size of the text, after decompression, bytes
    bytes: int
    #: bytes that were not valid UTF-8, and NUL bytes, bytes
    replaced_bytes: int
    notes: tuple[str, ...]
    #: logs that were found with it and could not be read, and what of its own could not be; in sentences
    unread: tuple[str, ...] = ()


class Source:
    """One log, read as a stream of blocks; its text is never whole in memory."""

    def __init__(
        self,
        origin: Origin,
        index: int,
        *,
        sought: bool,
        notes: tuple[str, ...] = (),
        unread: tuple[str, ...] = (),
    ) -> None:
        self.path = origin.name
        #: on disk, bytes; None where it is not known, as of standard input
        self.size = origin.size
        #: what has been read of it on disk so far, before decompression, bytes
        self.position = 0
        self._origin = origin
        self._index = index
        self._sought = sought  # found in a folder, say: it was looked at, and is not refused any more
        self._notes = notes
        self._unread = unread
        self._restart()

    def renumber(self, index: int) -> None:
        """Give the file another number, where it is read with others than it was found with."""
        self._index = index

    def _restart(self) -> None:
        self.position = self._height = self._bytes = self._invalid = self._coloured = 0
        self._damage: str | None = None
        self._text = Text(self.path)
        self._lines = Lines(1)

    def blocks(self, size: int) -> Iterator[pl.DataFrame]:
        """Yield whole lines (`file`, `line`, `text`), about `size` bytes of text at a time.

        Raises SourceError where the source cannot be read as text. Memory holds a few times `size`, or a few
        times the longest line.
        """
        self._restart()
        self._lines = Lines(max(size, 1))
        for chunk in self._chunks(max(size, 1)):
            for raw in self._lines.feed(self._text.feed(chunk)):
                yield self._block(raw)
        for raw in self._lines.feed(self._text.end()):
            yield self._block(raw)
        if not self._sought:
            self._text.refuse_silence()
        if rest := self._lines.rest():
            yield self._block(rest)

    def stored(self) -> Iterator[bytes]:
        """Yield what decides what is read: how it was found, then its bytes as they are stored.

        Raises SourceError, Damaged or OSError.
        """
        yield repr((self._sought, self._notes)).encode()
        with closing(self._origin.open()) as stream:
            yield from iter(lambda: stream.read(PIECE), b"")

    def summary(self) -> SourceFile:
        """Return what was read, and what had to be done to read it, once the blocks have been taken."""
        lines = self._lines
        notes = [*self._notes, *([self._damage] if self._damage else [])]
        notes += self._text.notes()
        if self._invalid:
            notes.append(replacement_note(self._invalid, "UTF-8"))
        if self._coloured:
            plural = "s" if self._coloured > 1 else ""
            notes.append(f"terminal control sequences removed from {self._coloured} line{plural}")
        if lines.cut:
            one = "1 line was" if lines.cut == 1 else f"{lines.cut} lines were"
            rest = f"the {lines.left_out} bytes beyond that were left out"
            notes.append(f"{one} longer than {most_of_a_line()} bytes; {rest}")
        if not lines.ended:
            notes.append("the last line has no end: the log was cut, or is still being written")
        unread = (*self._unread, *([f"{self.path}: {self._damage}"] if self._damage else []))
        replaced = self._text.replaced + self._invalid
        return SourceFile(self.path, self._height, self._bytes, replaced, tuple(notes), unread)

    def _chunks(self, size: int) -> Iterator[bytes]:
        """Yield the bytes of the log after decompression, not more than some MiB at a time."""
        stream = self._origin.open()
        try:
            with closing(stream):
                yield from self._unpacked(stream, size)
        except OSError as error:
            raise unreadable(self.path, error) from None

    def _unpacked(self, stream: Stream, size: int) -> Iterator[bytes]:
        kind = None
        try:
            head = head_of(stream.read)
            kind = kind_of(head)
            pieces = self._followed(stream, size if kind is None else PIECE, head, plain=kind is None)
            for chunk in pieces if kind is None else unpack(kind, pieces):
                if self.size is None and not self._bytes and is_archive(chunk):
                    raise SourceError("is an archive; save it to a file, for it is read twice")
                self._bytes += len(chunk)
                yield chunk
        except Damaged as damage:
            if not self._bytes and not self._sought:
                raise SourceError(f"{self.path}: {damage.why or f'damaged {kind} data'}") from None
            what = damage.why or f"the {kind} data is damaged or cut"
            self._damage = f"{what}; read the first {self._bytes} bytes of text"
        except SourceError as error:
            raise SourceError(f"{self.path}: {error}") from None

    def _followed(self, stream: Stream, size: int, head: bytes, *, plain: bool) -> Iterator[bytes]:
        """Yield what a stream gives, and keep `position`."""
        if plain and isinstance(stream, FileStream) and self.size is not None:
            stream.rewind()
            pieces = iter(lambda: stream.lines(size, SAMPLE), b"")
        else:
            pieces = chain([head], iter(lambda: stream.read(size), b""))
        for piece in pieces:
            self.position = stream.position
            yield piece

    def _block(self, raw: bytes) -> pl.DataFrame:
        """Return the frame of the next whole lines."""
        try:
            frame = frame_of(raw)
        except pl.exceptions.ComputeError:  # what polars raises for invalid UTF-8
            text = raw.decode(errors="replace")
            self._invalid += len(raw) - len(raw.decode(errors="ignore").encode())
            frame = frame_of(text.encode())
        if b"\x1b" in raw:
            plain = frame.select(pl.col("text").str.replace_all(ANSI, ""))
            self._coloured += int((plain["text"] != frame["text"]).sum())
            frame = plain
        return self._numbered(frame)

    def _numbered(self, frame: pl.DataFrame) -> pl.DataFrame:
        first = self._height + 1
        self._height += frame.height
        if self._height > _MOST_LINES:
            raise SourceError(f"{self.path}: has more than {_MOST_LINES} lines")
        return frame.select(
            pl.lit(self._index, dtype=pl.UInt16).alias("file"),
            pl.int_range(first, first + pl.len(), dtype=pl.Int64).cast(pl.UInt32).alias("line"),
            "text",
        )

    def _small(self) -> bytes | None:
        """Return all of a small file in which nothing has to be unpacked, replaced or removed; else None."""
        if not isinstance(self._origin, File) or self.size is None:
            return None
        if self.size > min(_SMALL, most_of_a_line()):
            return None
        with closing(self._origin.open()) as stream:
            try:
                raw = stream.read(self.size + 1)
            except OSError as error:
                raise unreadable(self.path, error) from None
        if len(raw) != self.size or kind_of(raw) or raw.startswith((*UTF16, UTF8)):
            return None
        return raw if len(raw.translate(None, _CONTROLS)) == len(raw) else None

    def _took(self, raw: bytes) -> int:
        """Note that the source is read, as a small file is; return the number of its lines."""
        self._restart()
        self.position = self._bytes = len(raw)
        self._lines.ended = not raw or raw.endswith(b"\n")
        self._height = raw.count(b"\n") + (not self._lines.ended)
        return self._height


def open_sources(paths: Iterable[str | Path]) -> list[Source]:
    """Return the logs that the paths name, in the order given, to be read.

    "-" is standard input. A folder or a glob stands for its logs, an archive for its members
    (`logs.tar.gz!node0/server.log`); one member can be named so, too. Of these the files that are named as
    logs are read, or all text where none is; what is not read is said in the notes of the first of them.

    Raises SourceError for a path that is missing, not permitted or without any log in it, and for a log given
    twice.
    """
    names = [str(path) for path in paths]
    if not names:
        raise SourceError("no log was given")
    _not_too_many(len(names))
    if "" in names:
        raise SourceError("a log without a name was given")
    seen: dict[object, str] = {}
    sources: list[Source] = []
    for name in names:
        found = _found(name, seen)
        if found is None:
            sources.append(Source(_file(name, seen), len(sources), sought=False))
            continue
        notes = _notes(name, found)
        if not found.origins:
            raise SourceError("; ".join([f"{name}: no log in it", *notes]))
        unread = _unread(name, found)
        for origin in found.origins:
            sources.append(Source(origin, len(sources), sought=True, notes=notes, unread=unread))
            notes = unread = ()
        _not_too_many(len(sources))
    return sources


def open_found(paths: Iterable[str | Path]) -> tuple[list[Source], list[tuple[str, str]]]:
    """Return the logs that the paths name, as `open_sources` does, and what is none: names, with the reason.

    A path that is missing, not permitted, binary or given twice is one of the latter, never an error.
    """
    seen: dict[object, str] = {}
    sources: list[Source] = []
    refused: list[tuple[str, str]] = []
    for name in map(str, paths):
        try:
            found = _found(name, seen)
            origins: list[Origin] = [] if found else [_checked(name, seen)]
        except SourceError as error:
            refused.append((name, str(error).removeprefix(f"{name}: ")))
            continue
        if found is not None:
            origins = found.origins
            within = f"{name}!" if Path(name).is_file() else ""  # of an archive
            refused += [(f"{within}{one}", reason) for one, reason in found.skipped]
            refused += [(name, remark) for remark in found.remarks]
            if not (origins or found.skipped or found.remarks):
                refused.append((name, "no log in it"))
        sources += [Source(one, len(sources) + number, sought=True) for number, one in enumerate(origins)]
    _not_too_many(len(sources))
    return sources, refused


def _checked(name: str, seen: dict[object, str]) -> Origin:
    """Return the file of a name in which there is text, or standard input."""
    file = _file(name, seen)
    if isinstance(file, File) and file.size is not None:  # what a pipe gives can be read once
        with closing(file.open()) as stream:
            try:
                check(name, stream.read)
            except OSError as error:
                raise unreadable(name, error) from None
    return file


def read_sources(paths: Iterable[str | Path]) -> tuple[list[SourceFile], pl.DataFrame]:
    """Read logs into physical lines, in the order given; "-" is standard input.

    Raises SourceError for a path that is missing, a folder, not permitted, damaged or binary, and for a log
    that is given twice.
    """
    sources = open_sources(paths)
    frames = [pl.DataFrame(schema=_SCHEMA), *stream(sources)]
    return [source.summary() for source in sources], pl.concat(frames).rechunk()


def stream(sources: Iterable[Source], size: int = _BLOCK) -> Iterator[pl.DataFrame]:
    """Yield the whole lines of logs, about `size` bytes of text at a time; those of small ones together.

    Raises SourceError as `Source.blocks` does.
    """
    together: list[tuple[Source, bytes]] = []
    held = 0
    for source in sources:
        raw = source._small()
        if raw is not None:
            together.append((source, raw))
            held += len(raw)
        if raw is None or held > min(size, _TOGETHER):
            yield from _read_together(together)
            together, held = [], 0
        if raw is None:
            yield from source.blocks(size)
    yield from _read_together(together)


def _read_together(logs: list[tuple[Source, bytes]]) -> Iterator[pl.DataFrame]:
    """Yield the lines of small files, read in one go, for each call costs."""
    try:
        ended = (raw if not raw or raw.endswith(b"\n") else raw + b"\n" for _, raw in logs)
        text = frame_of(b"".join(ended))
    except pl.exceptions.ComputeError:  # in one of them something has to be replaced
        for source, _ in logs:
            yield from source.blocks(_BLOCK)
        return
    heights = [source._took(raw) for source, raw in logs]
    files = pl.DataFrame(
        {"file": [source._index for source, _ in logs], "height": heights},
        schema={"file": pl.UInt16, "height": pl.UInt32},
    )
    yield (
        files.with_columns(line=pl.int_ranges(1, pl.col("height") + 1, dtype=pl.UInt32))
        .filter(pl.col("height") > 0)
        .explode("line")
        .select("file", "line")
        .hstack(text)
    )


def _not_too_many(count: int) -> None:
    if count > _MOST_FILES:
        raise SourceError(f"{count} logs were given; {_MOST_FILES} at most in one call")


def _found(name: str, seen: dict[object, str]) -> Found | None:
    """Return the logs that a name stands for, or None for the name of one log."""
    if name == "-":
        return None
    path = Path(name)
    try:
        status = path.stat()
    except FileNotFoundError:
        archive, _, member = name.partition("!")
        if member and Path(archive).is_file():
            return _members(archive, member)
        matches = files_like(name) if is_glob(name) else []
        if not matches:
            raise SourceError(f"{name}: no such file") from None
        return _sifted(matches, seen)
    except (OSError, ValueError) as error:
        raise unreadable(name, error) from None
    if stat.S_ISDIR(status.st_mode):
        failed: list[OSError] = []
        found = _sifted(files_in(name, failed), seen)
        found.remarks += [str(unreadable(str(error.filename), error)) for error in failed]
        return found
    if not stat.S_ISREG(status.st_mode):
        return None
    return _archive(name, File(name, status.st_size), seen)


def _archive(name: str, file: File, seen: dict[object, str]) -> Found | None:
    """Return the logs in an archive, or None for another file."""
    with closing(file.open()) as stream:
        try:
            kind = archive_kind(name, stream.read)
        except OSError as error:
            raise unreadable(name, error) from None
    if kind is None:
        return None
    _file(name, seen)
    return _named(open_archive(name, *kind))


def _members(archive: str, member: str) -> Found:
    """Return the members of an archive that a name or a glob means."""
    path = Path(archive)
    found = _archive(archive, File(archive, path.stat().st_size), {})
    origins = found.origins if found else []
    wanted = [one for one in origins if fnmatch.fnmatchcase(one.name, f"{archive}!{member}")]
    wanted = [one for one in origins if one.name == f"{archive}!{member}"] or wanted
    if not wanted:
        raise SourceError(f"{archive}!{member}: no such log in the archive")
    return Found(wanted, [], found.remarks if found else [], chosen=True)


def _sifted(names: list[str], seen: dict[object, str]) -> Found:
    """Return what of many files are logs, the archives among them opened."""
    found = Found()
    named = {name for name in names if named_as_log(name) or named_as_archive(name) or Path(name).is_dir()}
    ours = _ours(named)
    if not named - ours.keys():  # the others are looked into only where they would be read
        ours |= _ours(names)
    found.skipped += [(name, ours[name]) for name in names if name in ours]
    names, named = [name for name in names if name not in ours], named - ours.keys()
    for name in sorted(names, key=lambda name: Path(name).is_symlink()):  # a link to what is read is not
        try:
            if named and name not in named:
                found.skipped.append((name, "not named as a log"))
            elif inner := _found(name, seen):
                found.origins += inner.origins
                found.skipped += [(f"{name}!{member}", reason) for member, reason in inner.skipped]
                found.remarks += [f"{name}: {remark}" for remark in inner.remarks]
            else:
                file = _file(name, seen)
                if file.size is None:
                    raise SourceError("no regular file")
                with closing(file.open()) as stream:
                    check(name, stream.read)
                found.origins.append(file)
        except SourceError as error:
            found.skipped.append((name, str(error).removeprefix(f"{name}: ")))
        except OSError as error:
            found.skipped.append((name, str(unreadable(name, error)).removeprefix(f"{name}: ")))
    return found


def _ours(names: Iterable[str]) -> dict[str, str]:
    """Return which files are reports of ours, and why they are not read."""
    return {name: reason for name in names if (reason := why_ours(name))}


def _named(found: Found) -> Found:
    """Leave out what is not named as a log, unless nothing is."""
    named = [one for one in found.origins if named_as_log(one.name)]
    if not named:
        return found
    others = [
        (one.name.partition("!")[2], "not named as a log")
        for one in found.origins
        if not named_as_log(one.name)
    ]
    return Found(named, [*found.skipped, *others], found.remarks)


def _notes(name: str, found: Found) -> tuple[str, ...]:
    """Return what is said of the files that are not read."""
    said = _skipped(found.skipped)
    return (*found.remarks, *([f"not read of {name}: {said}"] if said else []))


def _unread(name: str, found: Found) -> tuple[str, ...]:
    """Return what is said of the logs, by their names, that could not be read."""
    lost = [
        (one, reason)
        for one, reason in found.skipped
        if reason not in _NO_LOSS
        and "given twice" not in reason
        and not reason.endswith("not a log")
        and (named_as_log(one) or named_as_archive(one))
    ]
    remarks = [] if found.chosen else [f"{name}: {one}" for one in found.remarks]
    return (*remarks, *([f"{name}: could not read {_skipped(lost)}"] if lost else []))


def _skipped(skipped: list[tuple[str, str]]) -> str:
    """Return names, each with the reason why it is not read."""
    reasons: dict[str, list[str]] = {}
    for one, reason in skipped:
        reasons.setdefault(reason, []).append(one)
    said = []
    for reason, names in reasons.items():
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        said.append(f"{', '.join(names[:_MOST_NAMED])}{more} ({reason})")
    return "; ".join(said)


def _file(name: str, seen: dict[object, str]) -> Origin:
    """Return the file of a name; raises SourceError where it has been given before, by whatever name."""
    size: int | None = None
    places: list[object] = [name]
    if name != "-":
        path = Path(name)
        try:
            status = path.stat()
        except (OSError, ValueError) as error:
            raise unreadable(name, error) from None
        regular = stat.S_ISREG(status.st_mode)
        size = status.st_size if regular else None
        places = [str(path.absolute())]
        if regular and status.st_ino:
            places.append((status.st_dev, status.st_ino))
    for place in places:
        if place in seen:
            same = isinstance(place, str) or seen[place] == name
            raise SourceError(f"{name}: given twice" if same else f"{name}: is {seen[place]}, given twice")
    seen |= dict.fromkeys(places, name)
    return StandardInput() if name == "-" else File(name, size)
