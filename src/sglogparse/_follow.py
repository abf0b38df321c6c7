r"""A log that is still being written: the lines that are new, each once, and what they say.

    path --> Tail (whole lines; rotation, truncation, not there yet) --+
    "-", a pipe --> Tail (whole lines until it ends) -----------------+--> Block --> Follower --> News
                                                                                        |
                                                                          all so far --> Log

The file is opened anew at each look: on NFS only that shows what another machine has written. A line whose
end is not written yet is held back. When another file takes the name, the old one is read to its end first; a
file that got shorter, or whose bytes before the place reached are others, is read from its beginning.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from sglogparse._compiler import compiled_plan
from sglogparse._errors import SourceError
from sglogparse._events import read_events
from sglogparse._records import read_records
from sglogparse._source import ANSI, SourceFile
from sglogparse._stream import Reader
from sglogparse._wrappers import accepted_wrappers

if TYPE_CHECKING:
    from sglogparse._events import Frames
    from sglogparse._log import Log
    from sglogparse._wrappers import Accepted

#: What is read at once, at the most, bytes.
_CHUNK = 1 << 24
#: Bytes before the place reached by which a file that was written anew is told from one that has grown.
_GUARD = 256
#: How data begins that holds no lines as it is: gzip, Zstandard, xz, UTF-16 in either order.
_NO_TEXT = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"\xff\xfe", b"\xfe\xff")
_MARK = b"\xef\xbb\xbf"
#: First lines of a log by which its wrappers are told.
_SAMPLE = 2_000
#: Files without a byte that are kept in view while an older one is read.
_MOST_EMPTY = 8
_CUT = "the last line has no end: the log was cut, or is still being written"


#: What a file is, whatever its name: device and inode.
_Place = tuple[int, int]


@dataclass(frozen=True)
class Block:
    """Whole lines that were not there before."""

    text: pl.Series
    #: bytes that they take in the log
    size: int
    #: bytes that were not valid UTF-8, and NUL bytes
    replaced: int
    #: a log begins with them: the first one, or one that has taken the place of another
    fresh: bool
    #: how long ago they were written, s; what was there at the first look can be old
    age: float = 0.0
    #: the end of the last one is missing
    cut: bool = False


class Tail:
    """Reads what is new in a log: a file that grows, or a stream."""

    def __init__(self, name: str) -> None:
        self.name = name
        #: a stream has come to its end: nothing more will come
        self.ended = False
        #: more may be there at once, than was read
        self.behind = False
        self._fd: int | None = None
        self._stream = name == "-"
        self._place: _Place | None = None
        #: files that have taken the name since, by their place: they were empty when they were looked at
        self._next: dict[_Place, int] = {}
        self._seen: tuple[int, int] | None = None
        self._offset = 0
        self._guard = b""
        self._rest: list[bytes] = []
        #: NULs since the last block
        self._nuls = 0
        self._fresh = True
        self._first = True

    @property
    def streams(self) -> bool:
        """Tell whether it is a stream: standard input, or a pipe with a name."""
        return self._stream

    @property
    def exists(self) -> bool:
        """Tell whether the log has been there."""
        return self._fd is not None or self._place is not None

    @property
    def held(self) -> int:
        """Return how much is held back of the line that is not ended yet, bytes."""
        return sum(map(len, self._rest))

    @property
    def partial(self) -> str:
        """Return the beginning of the line that is not ended yet, without what a terminal has overwritten."""
        held = b"".join(self._rest[-8:]).decode(errors="replace")
        return next((part for part in reversed(held.split("\r")) if part.strip()), "")

    def close(self) -> None:
        """Close the log."""
        if self._fd is not None and self.name != "-":
            os.close(self._fd)
        self._fd = None
        while self._next:
            os.close(self._next.popitem()[1])

    def read(self) -> Block | None:
        """Return lines that are new; None when there are none.

        Raises SourceError for what cannot be followed: a folder, no permission, compressed data.
        """
        if self.ended:
            return None
        try:
            return self._of_stream() if self._stream else self._of_file()
        except OSError as error:
            if error.errno == errno.ESTALE and self._fd is not None:  # NFS: the file is gone on its server
                self.close()
                return None
            raise SourceError(f"{self.name}: cannot be read: {error.strerror or error}") from None

    def finish(self) -> Block | None:
        """Return what is held back as a line, though its end is missing: nothing more is waited for."""
        rest, self._rest = b"".join(self._rest), []
        return replace(self._block(rest + b"\n", len(rest)), cut=True) if rest else None

    # ------------------------------------------------------------------ streams

    def _of_stream(self) -> Block | None:
        if self._fd is None:
            if sys.stdin is None:
                raise SourceError("-: standard input is closed")
            self._fd = sys.stdin.fileno()
        data, size = [], 0
        while size < _CHUNK and select.select([self._fd], [], [], 0)[0]:
            data.append(os.read(self._fd, _CHUNK - size))
            size += len(data[-1])
            if not data[-1]:
                self.ended = True
                break
        self.behind = size >= _CHUNK
        block = self._whole(b"".join(data))
        if not self.ended:
            return block
        last = self.finish()
        if block is None or last is None:
            return block or last
        return replace(
            block,
            text=pl.concat([block.text, last.text]),
            size=block.size + last.size,
            replaced=block.replaced + last.replaced,
            cut=True,
        )

    # ------------------------------------------------------------------ files

    def _of_file(self) -> Block | None:
        new = self._opened()
        if self._stream:
            return self._of_stream()
        if new is not None:
            # another file has the name: the old one is read first, now that nothing is written to it any more
            block = self._grown()
            return block if block is not None or self.behind else self._begin(new)
        if self._fd is None:
            return None
        info = os.fstat(self._fd)
        seen = info.st_size, info.st_mtime_ns
        if seen == self._seen:
            self.behind = False
            return None
        if info.st_size < self._offset or not self._same():
            return self._begin(None)
        block = self._grown()
        # what is left is looked for again
        self._seen = None if self.behind else seen
        return block

    def _opened(self) -> _Place | None:
        """Open the name; return a file that has come in place of the one that is read, once it has bytes."""
        try:
            fd = os.open(self.name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except PermissionError:
            if self._fd is not None:  # who rotates a log sets its rights afterwards
                return None
            raise SourceError(f"{self.name}: no permission to read it") from None
        except ValueError:
            raise SourceError(f"{self.name!r}: is no path") from None
        info = os.fstat(fd)
        if stat.S_ISDIR(info.st_mode):
            os.close(fd)
            raise SourceError(f"{self.name}: is a folder; name the log in it")
        if not stat.S_ISREG(info.st_mode):
            self._stream, self._fd = True, fd
            return None
        place = info.st_dev, info.st_ino
        if self._place in (None, place):
            if self._fd is not None:
                os.close(self._fd)
            self._fd, self._place = fd, place
        else:
            if place in self._next:
                os.close(self._next[place])
            self._next[place] = fd
            if len(self._next) > _MOST_EMPTY:
                os.close(self._next.pop(next(iter(self._next))))
        # the writer of an empty one has not begun yet, and may still write to the one before
        return next((one for one, fd in self._next.items() if os.fstat(fd).st_size), None)

    def _same(self) -> bool:
        """Tell whether the bytes before the place reached are still those that were read."""
        if self._fd is None or not self._guard:
            return True
        return os.pread(self._fd, len(self._guard), self._offset - len(self._guard)) == self._guard

    def _begin(self, place: _Place | None) -> Block | None:
        """Begin to read a file from its first byte; return what was held back of the one before it."""
        last = self.finish()
        if place is not None and self._fd is not None:
            os.close(self._fd)
        if place is not None:
            self._fd, self._place = self._next.pop(place), place
        self._offset, self._guard, self._seen = 0, b"", None
        self._fresh = True
        self.behind = last is not None
        return last if last is not None else self._grown()

    def _grown(self) -> Block | None:
        if self._fd is None:
            return None
        data = os.pread(self._fd, _CHUNK, self._offset)
        self.behind = len(data) == _CHUNK
        self._offset += len(data)
        self._guard = (self._guard + data)[-_GUARD:]
        return self._whole(data)

    # ------------------------------------------------------------------ lines

    def _whole(self, data: bytes) -> Block | None:
        """Return the lines that end within data; the beginning of the last one is held back.

        NULs are counted and forgotten: a log that was truncated under its writer begins with a hole of them.
        """
        self._nuls += data.count(b"\0")
        data = data.replace(b"\0", b"")
        end = data.rfind(b"\n") + 1
        if not end:
            if data:
                self._rest.append(data)
            return None
        raw = b"".join([*self._rest, data[:end]])
        self._rest = [data[end:]] if end < len(data) else []
        return self._block(raw, len(raw))

    def _block(self, raw: bytes, size: int) -> Block:
        fresh, self._fresh = self._fresh, False
        age = 0.0
        if fresh:
            if raw.startswith(_NO_TEXT):
                raise SourceError(f"{self.name}: is no plain text, and cannot be followed; see `diagnose`")
            raw = raw.removeprefix(_MARK)
            age = self._age() if self._first else 0.0
            self._first = False
        replaced, self._nuls = self._nuls, 0
        size += replaced
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text = raw.decode(errors="replace")
            replaced += len(raw) - len(raw.decode(errors="ignore").encode())
        lines = pl.Series("text", text.split("\n")[:-1], dtype=pl.String).str.strip_suffix("\r")
        if "\x1b" in text:
            lines = lines.str.replace_all(ANSI, "")
        return Block(lines, size, replaced, fresh, age)

    def _age(self) -> float:
        """Return how long ago the file was written to, s."""
        if self._fd is None or self._stream:
            return 0.0
        return max(0.0, time.time() - os.fstat(self._fd).st_mtime)


@dataclass(frozen=True)
class News:
    """What new lines say."""

    #: the lines with their headers, and the kind of event of each
    records: pl.DataFrame
    kinds: pl.Series
    frames: Frames
    fresh: bool
    age: float


class Follower:
    """Follows one log: what is new in it, and what all of it says."""

    def __init__(self, name: str) -> None:
        self.tail = Tail(name)
        self._plan = compiled_plan()
        self._clear()

    def _clear(self) -> None:
        self._reader = Reader()
        self._sample: list[pl.DataFrame] = []
        self._accepted: Accepted = {}
        self._notes: tuple[str, ...] = ()
        self.lines = self._bytes = self._replaced = 0

    def take(self, block: Block) -> News:
        """Read a block; one that begins a log takes the place of all that was read before."""
        if block.fresh:
            self._clear()
        count = len(block.text)
        line = pl.int_range(self.lines + 1, self.lines + count + 1, dtype=pl.UInt32, eager=True)
        file = pl.repeat(0, count, dtype=pl.UInt16, eager=True)
        lines = pl.DataFrame([file.alias("file"), line.alias("line"), block.text])
        sampled = self.lines
        self.lines += count
        self._bytes += block.size
        self._replaced += block.replaced
        self._notes = (_CUT,) if block.cut else ()
        self._reader.feed(lines)
        if sampled < _SAMPLE:
            self._sample.append(lines.head(_SAMPLE - sampled))
            self._accepted = accepted_wrappers(pl.concat(self._sample), self._plan)
        records, _ = read_records(lines, self._plan, self._accepted)
        kinds, frames = read_events(records, self._plan)
        return News(records, kinds, frames, block.fresh, block.age)

    def log(self) -> Log:
        """Return what the log says so far."""
        if not self.lines:
            empty = {"file": pl.UInt16, "line": pl.UInt32, "text": pl.String}
            self._reader.feed(pl.DataFrame(schema=empty))
        source = SourceFile(self.tail.name, self.lines, self._bytes, self._replaced, self._notes)
        return self._reader.log([source])
