r"""From paths to physical lines: every input byte belongs to exactly one line.

    path, "-" --> bytes --> unpacked bytes --> text without marks and NULs --> blocks (file, line, text)
                            (_unpack)          (_Text)                         (_Lines)

A physical line ends at \n (or at the end of the file); \r\n is one end. What a terminal would have
overwritten (text before a lone \r, as progress bars leave it) stays in `text`. What had to be replaced is
counted. Everything flows in pieces: memory does not grow with the log, nor with what compressed data expand
to, nor with a line without an end.
"""

from __future__ import annotations

import codecs
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import polars as pl

from sglogparse._errors import SourceError
from sglogparse._unpack import Damaged, kind_of, unpack

#: How much of a file is looked at to tell text from binary data, bytes.
_SAMPLE = 1 << 16
#: Share of control characters in the sample above which a file is not a log.
_BINARY_SHARE = 0.05
_TEXT_CONTROLS = b"\t\n\r\x1b\b\f"
#: Control sequences (colours, cursor), operating system commands (titles, links), and other escapes.
ANSI = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[@-Z\\^_78=>c])"
#: First bytes that polars takes for compressed data.
_COMPRESSED = (b"x\x01", b"x^", b"x\x9c", b"x\xda", b"(\xb5/\xfd", b"\x1f\x8b")
#: Byte order marks of UTF-16, with the encoding; of UTF-8.
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_UTF8 = b"\xef\xbb\xbf"
_CONTROLS = bytes(code for code in range(32) if code not in b"\t\n\r\b\f")
#: Enough of a file to tell by its first bytes what it is, bytes.
_HEAD = 512
#: How much of a compressed file is read at a time, bytes.
_PIECE = 1 << 16
#: Size of the blocks in which whole logs are read: the memory of one serves the next, bytes.
_BLOCK = 1 << 24
#: Plain files up to this size are read many in one call of polars, bytes, and what is read at once of them.
_SMALL = 1 << 20
_TOGETHER = 1 << 22
#: What is kept of a line, bytes.
_LONGEST = 1 << 26
_MOST_FILES = 65_535
_MOST_LINES = 2**32 - 1
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


class Source:
    """One log, read as a stream of blocks; its text is never whole in memory."""

    def __init__(self, path: str, index: int, size: int | None = None) -> None:
        self.path = path
        #: on disk, bytes; None where it is not known, as of standard input
        self.size = size
        #: what has been read of it on disk so far, before decompression, bytes
        self.position = 0
        self._index = index
        self._restart()

    def _restart(self) -> None:
        self.position = self._height = self._bytes = self._invalid = self._coloured = 0
        self._damage: str | None = None
        self._text = _Text(self.path)
        self._lines = _Lines(1)

    def blocks(self, size: int) -> Iterator[pl.DataFrame]:
        """Yield whole lines (`file`, `line`, `text`), about `size` bytes of text at a time.

        Raises SourceError where the source cannot be read as text. Memory holds a few times `size`, or a few
        times the longest line.
        """
        self._restart()
        self._lines = _Lines(max(size, 1))
        for chunk in self._chunks(max(size, 1)):
            for raw in self._lines.feed(self._text.feed(chunk)):
                yield self._block(raw)
        for raw in self._lines.feed(self._text.end()):
            yield self._block(raw)
        if rest := self._lines.rest():
            yield self._block(rest)

    def summary(self) -> SourceFile:
        """Return what was read, and what had to be done to read it, once the blocks have been taken."""
        lines = self._lines
        notes = [self._damage] if self._damage else []
        notes += self._text.notes()
        if self._invalid:
            notes.append(_replaced(self._invalid, "UTF-8"))
        if self._coloured:
            plural = "s" if self._coloured > 1 else ""
            notes.append(f"terminal control sequences removed from {self._coloured} line{plural}")
        if lines.cut:
            one = "1 line was" if lines.cut == 1 else f"{lines.cut} lines were"
            notes.append(
                f"{one} longer than {_LONGEST} bytes; the {lines.left_out} bytes beyond that were left out"
            )
        if not lines.ended:
            notes.append("the last line has no end: the log was cut, or is still being written")
        return SourceFile(
            self.path, self._height, self._bytes, self._text.replaced + self._invalid, tuple(notes)
        )

    def _chunks(self, size: int) -> Iterator[bytes]:
        """Yield the bytes of the log after decompression, not more than some MiB at a time."""
        try:
            with _open(self.path) as stream:
                yield from self._unpacked(stream, size)
        except OSError as error:
            raise _unreadable(self.path, error) from None

    def _unpacked(self, stream: BinaryIO, size: int) -> Iterator[bytes]:
        head = _head(stream)
        kind = kind_of(head)
        if kind is None and self.size is not None:
            stream.seek(0)
            pieces = _pieces_of_lines(stream, size)
        else:
            pieces = chain([head], iter(lambda: stream.read(size if kind is None else _PIECE), b""))
        pieces = self._counted(pieces)
        try:
            for chunk in pieces if kind is None else unpack(kind, pieces):
                self._bytes += len(chunk)
                yield chunk
        except Damaged as damage:
            if not self._bytes:
                raise SourceError(f"{self.path}: {damage.why or f'damaged {kind} data'}") from None
            what = damage.why or f"the {kind} data is damaged or cut"
            self._damage = f"{what}; read the first {self._bytes} bytes of text"
        except SourceError as error:
            raise SourceError(f"{self.path}: {error}") from None

    def _counted(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.position += len(piece)
            yield piece

    def _block(self, raw: bytes) -> pl.DataFrame:
        """Return the frame of the next whole lines."""
        try:
            frame = _frame(raw)
        except pl.exceptions.ComputeError:  # what polars raises for invalid UTF-8
            text = raw.decode(errors="replace")
            self._invalid += len(raw) - len(raw.decode(errors="ignore").encode())
            frame = _frame(text.encode())
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
        if self.size is None or self.size > min(_SMALL, _LONGEST):
            return None
        try:
            with _open(self.path) as stream:
                raw = stream.read(_SMALL + 1)
        except OSError:
            return None  # the reader of blocks says what is wrong
        if len(raw) > min(_SMALL, _LONGEST) or kind_of(raw) or raw.startswith((*_UTF16, _UTF8)):
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
    """Return the logs that the paths name, in the order given, to be read; "-" is standard input.

    Raises SourceError for a path that is missing, a folder or not permitted, and for a log given twice.
    """
    names = [str(path) for path in paths]
    if not names:
        raise SourceError("no log was given")
    if len(names) > _MOST_FILES:
        raise SourceError(f"{len(names)} logs were given; {_MOST_FILES} at most in one call")
    if "" in names:
        raise SourceError("a log without a name was given")
    seen: dict[object, str] = {}
    sources: list[Source] = []
    for name in names:
        size, places = _identity(name)
        for place in places:
            if place in seen:
                first = seen[place]
                same = isinstance(place, str) or name == first
                raise SourceError(f"{name}: given twice" if same else f"{name}: is {first}, given twice")
            seen[place] = name
        sources.append(Source(name, len(sources), size))
    return sources


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
        text = _frame(b"".join(ended))
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


def _identity(name: str) -> tuple[int | None, list[object]]:
    """Return the size of a file, and by what two names are known to be of one log."""
    if name == "-":
        return None, [name]
    path = Path(name)
    try:
        status = path.stat()
    except OSError as error:
        raise _unreadable(name, error) from None
    except ValueError as error:
        raise SourceError(f"{name}: cannot be read: {error}") from None
    if stat.S_ISDIR(status.st_mode):
        raise SourceError(f"{name}: is a folder; name the logs in it, e.g. {name.rstrip('/')}/*.log")
    places: list[object] = [str(path.absolute())]
    if not stat.S_ISREG(status.st_mode):
        return None, places
    return status.st_size, [*places, (status.st_dev, status.st_ino)] if status.st_ino else places


def _unreadable(name: str, error: OSError) -> SourceError:
    if isinstance(error, FileNotFoundError):
        return SourceError(f"{name}: no such file")
    if isinstance(error, PermissionError):
        return SourceError(f"{name}: no permission to read it")
    return SourceError(f"{name}: cannot be read: {error.strerror or error}")


def _open(name: str) -> AbstractContextManager[BinaryIO]:
    if name != "-":
        return Path(name).open("rb", buffering=0)
    if sys.stdin is None:
        raise SourceError("-: standard input is closed")
    return nullcontext(sys.stdin.buffer)


def _head(stream: BinaryIO) -> bytes:
    """Return the first bytes, from a pipe too, which gives what it has."""
    head = b""
    while len(head) < _HEAD and (more := stream.read(_HEAD - len(head))):
        head += more
    return head


def _pieces_of_lines(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield a file in pieces that end where a line does if they can: such pieces need not be copied."""
    at = 0
    while True:
        want = size
        if size > _SAMPLE:
            stream.seek(at + size - _SAMPLE)
            if last := stream.read(_SAMPLE).rfind(b"\n") + 1:
                want += last - _SAMPLE
            stream.seek(at)
        piece = stream.read(want)
        if not piece:
            return
        at += len(piece)
        yield piece


class _Text:
    """Bytes of a log, piece by piece, to text without byte order marks and NULs.

    A log that was truncated under an open writer begins with a run of NULs, so NULs alone do not make a file
    binary: what stands beside them decides, by the first 64 KiB of it, which are held back until then.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._start: bytes | None = b""  # until it shows whether there is a mark of UTF-16
        self._decode: _Utf16 | None = None
        self._lead: bytes | None = b""  # until it shows whether there is a mark of UTF-8
        self._marked = False
        self._first = b""  # the sample with its NULs
        self._sample: bytes | None = b""
        self._nul = 0
        self._blank = True

    @property
    def replaced(self) -> int:
        """How many bytes were no text so far: NULs, and what was not valid UTF-16."""
        return self._nul + (self._decode.replaced if self._decode else 0)

    def notes(self) -> list[str]:
        """Return what was done."""
        notes = []
        if self._decode:
            notes.append(f"converted from {self._decode.encoding.upper()}")
            if self._decode.replaced:
                notes.append(_replaced(self._decode.replaced, self._decode.encoding.upper()))
        if self._marked:
            notes.append("byte order mark removed")
        if self._nul:
            notes.append(f"{self._nul} NUL byte{'s' if self._nul > 1 else ''} removed")
        return notes

    def feed(self, chunk: bytes, *, last: bool = False) -> bytes:
        """Return the text that is sure so far."""
        if self._start is not None:
            chunk = self._start + chunk
            if len(chunk) < 2 and not last:
                self._start = chunk
                return b""
            self._start = None
            if encoding := _UTF16.get(chunk[:2]):
                self._decode = _Utf16(encoding)
                chunk = chunk[2:]
        if self._decode:
            chunk = self._decode.feed(chunk, last=last)
        if self._lead is not None:
            chunk = self._lead + chunk
            if len(chunk) < len(_UTF8) and not last:
                self._lead = chunk
                return b""
            self._lead = None
            if chunk.startswith(_UTF8):
                self._marked = True
                chunk = chunk[len(_UTF8) :]
        if len(self._first) < _SAMPLE:
            self._first += chunk[: _SAMPLE - len(self._first)]
        if b"\0" in chunk:
            self._nul += chunk.count(b"\0")
            chunk = chunk.replace(b"\0", b"")
        if self._blank and chunk and not chunk.isspace():
            self._blank = False
        if self._sample is not None:
            chunk = self._sample + chunk
            if len(chunk) < _SAMPLE and not last:
                self._sample = chunk
                return b""
            self._sample = None
            self._judge(chunk[:_SAMPLE])
        return chunk

    def end(self) -> bytes:
        """Return the rest of the text."""
        rest = self.feed(b"", last=True)
        if self._nul and self._blank:
            raise SourceError(f"{self._name}: binary data, not a log")
        return rest

    def _judge(self, sample: bytes) -> None:
        runs = sum(1 for part in self._first.split(b"\0") if part)
        controls = sum(sample.count(bytes([code])) for code in range(32) if code not in _TEXT_CONTROLS)
        if controls + max(runs - 1, 0) > _BINARY_SHARE * len(sample):
            raise SourceError(f"{self._name}: binary data, not a log")


class _Utf16:
    """UTF-16 to UTF-8, piece by piece."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding
        decoder = codecs.getincrementaldecoder(encoding)
        self._replacing, self._ignoring = decoder("replace"), decoder("ignore")
        self._fed = self._good = 0
        #: bytes that were not valid, once all have been fed
        self.replaced = 0

    def feed(self, chunk: bytes, *, last: bool) -> bytes:
        self._fed += len(chunk)
        self._good += len(self._ignoring.decode(chunk, last).encode(self.encoding))
        if last:
            self.replaced = self._fed - self._good
        return self._replacing.decode(chunk, last).encode()


class _Lines:
    """Gathers text to pieces of whole lines, of about the size asked for.

    Of a line beyond the longest that is kept only the head is; its number stays.
    """

    def __init__(self, size: int) -> None:
        self._enough = max(size // 2, 1)
        self._step = min(size, _LONGEST)
        self._parts: list[bytes] = []
        self._held = 0  # bytes in the parts
        self._open = 0  # bytes of the last line, which has no end yet
        self._skipping = False
        #: whether the text so far ends where a line does
        self.ended = True
        #: lines that were longer than what is kept of one, and the bytes left out of them
        self.cut = 0
        self.left_out = 0

    def feed(self, text: bytes) -> Iterator[bytes]:
        """Yield the whole lines that are enough for a piece."""
        if text:
            self.ended = text.endswith(b"\n")
        if len(text) <= self._step:
            yield from self._take(text)
            return
        for start in range(0, len(text), self._step):
            yield from self._take(text[start : start + self._step])

    def rest(self) -> bytes:
        """Return the lines that are left."""
        rest, self._parts, self._held, self._open = b"".join(self._parts), [], 0, 0
        return rest

    def _take(self, text: bytes) -> Iterator[bytes]:
        # no longer than the longest line, so only a line that began before can be too long
        end = text.find(b"\n")
        stop = end if end >= 0 else len(text)
        if not self._skipping and self._open + stop > _LONGEST:
            room = _LONGEST - self._open
            held = b"".join([*self._parts, text[:room]])
            kept = _whole_characters(held)
            self._parts, self._held, self._open = [kept], len(kept), _LONGEST
            self.cut += 1
            self.left_out += len(held) - len(kept)
            self._skipping = True
            text, stop = text[room:], stop - room
        if self._skipping:
            self.left_out += stop
            text = text[stop:]
            self._skipping = not text
        if not text:
            return
        whole = text.rfind(b"\n") + 1
        if whole and self._held + whole >= self._enough:
            yield text if not self._parts and whole == len(text) else b"".join([*self._parts, text[:whole]])
            text = text[whole:]
            self._parts, self._held, self._open = [text] if text else [], len(text), len(text)
            return
        self._parts.append(text)
        self._held += len(text)
        self._open = len(text) - whole if whole else self._open + len(text)


def _whole_characters(raw: bytes) -> bytes:
    """Return the bytes without a UTF-8 character that is cut at their end."""
    for back in range(1, min(4, len(raw) + 1)):
        code = raw[-back]
        if code >= 0xC0:
            needed = 2 if code < 0xE0 else 3 if code < 0xF0 else 4
            return raw[:-back] if needed > back else raw
        if code < 0x80:
            break
    return raw


def _replaced(count: int, encoding: str) -> str:
    if count == 1:
        return f"1 byte was not valid {encoding} and was replaced"
    return f"{count} bytes were not valid {encoding} and were replaced"


def _frame(raw: bytes) -> pl.DataFrame:
    """Return the lines of bytes that are valid UTF-8; polars raises ComputeError for others."""
    if not raw:
        return pl.DataFrame(schema={"text": pl.String})
    if raw.startswith(_COMPRESSED):
        # text that polars would take for compressed data: hide it behind a line end
        return pl.read_lines(b"\n" + raw, name="text")[1:]
    return pl.read_lines(raw, name="text")
