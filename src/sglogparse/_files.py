"""Where the bytes of a log come from: a file, standard input.

    Origin --> open --> Stream --> read, position

The members of archives (_archives) have the same shape.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO, Protocol

from sglogparse._errors import SourceError


class Stream(Protocol):
    """The bytes of one log, as they stand in their file."""

    @property
    def position(self) -> int:
        """Bytes of the file on disk that have been read for it."""

    def read(self, size: int) -> bytes:
        """Return the next bytes, `size` at most, none at the end; raises Damaged, or OSError."""

    def close(self) -> None:
        """End the reading."""


class Origin(Protocol):
    """One log, not yet opened."""

    @property
    def name(self) -> str:
        """How it is called in reports."""

    @property
    def size(self) -> int | None:
        """Size on disk, bytes; None where it is not known."""

    def open(self) -> Stream:
        """Begin to read, from the start."""


class File:
    """A log that is a file of its own; None is the size of what cannot be sought in, as of a pipe."""

    def __init__(self, name: str, size: int | None) -> None:
        self.name, self.size = name, size

    def open(self) -> FileStream:
        """Begin to read; raises SourceError where that cannot be."""
        try:
            return FileStream(Path(self.name).open("rb", buffering=0))
        except OSError as error:
            raise unreadable(self.name, error) from None


class FileStream:
    """The bytes of a file."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.position = 0

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        piece = self.file.read(size)
        self.position += len(piece)
        return piece

    def rewind(self) -> None:
        """Go back to the start."""
        self.file.seek(0)
        self.position = 0

    def lines(self, size: int, window: int) -> bytes:
        """Return about the next `size` bytes, up to a line's end if one is in the last `window` of them."""
        want = size
        if size > window:
            self.file.seek(self.position + size - window)
            if last := self.file.read(window).rfind(b"\n") + 1:
                want += last - window
            self.file.seek(self.position)
        return self.read(want)

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class StandardInput:
    """What is piped in."""

    name = "-"
    size = None

    def open(self) -> FileStream:
        """Begin to read; raises SourceError where standard input is closed."""
        if sys.stdin is None:
            raise SourceError("-: standard input is closed")
        return _LeftOpen(sys.stdin.buffer)


class _LeftOpen(FileStream):
    def close(self) -> None:
        """Leave standard input as it is."""


def unreadable(name: str, error: OSError | ValueError) -> SourceError:
    """Return what is said of a file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return SourceError(f"{name}: no such file")
    if isinstance(error, PermissionError):
        return SourceError(f"{name}: no permission to read it")
    reason = error.strerror if isinstance(error, OSError) else None
    return SourceError(f"{name}: cannot be read: {reason or error}")
