r"""From paths to physical lines: every input byte belongs to exactly one line.

    path, "-", .gz --> bytes --> text that is valid UTF-8 --> lines (file, line, text)

A physical line ends at \n (or at the end of the file); \r\n is one end. What a terminal would have
overwritten (text before a lone \r, as progress bars leave it) stays in `text`. What had to be replaced is
counted.
"""

from __future__ import annotations

import contextlib
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from sglogparse._cheap import dataclass
from sglogparse._errors import SourceError

#: How much of a file is looked at to tell text from binary data, bytes.
_SAMPLE = 1 << 16
#: Share of control characters in the sample above which a file is not a log.
_BINARY_SHARE = 0.05
_TEXT_CONTROLS = b"\t\n\r\x1b\b\f"
#: Control sequences (colours, cursor), operating system commands (titles, links), and other escapes.
ANSI = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[@-Z\\^_78=>c])"
_CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_COMPRESSED = (b"x\x01", b"x^", b"x\x9c", b"x\xda", b"(\xb5/\xfd")
#: Byte order marks: of UTF-16 in either order, of UTF-8.
_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")
_CONTROLS = bytes(code for code in range(32) if code not in b"\t\n\r\b\f")
#: Size above which a plain file is read without a copy of its bytes, bytes.
_LARGE = 1 << 24
_MOST_FILES = 65_535


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


def read_sources(paths: Iterable[str | Path]) -> tuple[list[SourceFile], pl.DataFrame]:
    """Read logs into physical lines, in the order given; "-" is standard input.

    Raises SourceError for a path that is missing, a folder, not permitted, damaged or binary, and for a path
    that is given twice.
    """
    names = [str(path) for path in paths]
    if not names:
        raise SourceError("no log was given")
    if len(names) > _MOST_FILES:
        raise SourceError(f"{len(names)} logs were given; {_MOST_FILES} at most in one call")
    if "" in names:
        raise SourceError("a log without a name was given")
    seen: set[str] = set()
    for name in names:
        place = name if name == "-" else str(Path(name).absolute())
        if place in seen:
            raise SourceError(f"{name}: given twice")
        seen.add(place)
    read = [_read(name, index) for index, name in enumerate(names)]
    return [source for source, _ in read], pl.concat([frame for _, frame in read]).rechunk()


def _read(name: str, index: int) -> tuple[SourceFile, pl.DataFrame]:
    return _read_plain(name, index) or _read_any(name, index)


def _read_plain(name: str, index: int) -> tuple[SourceFile, pl.DataFrame] | None:
    """Read a large file of plain text without a copy of its bytes; return None for any other file."""
    path = Path(name)
    try:
        if name == "-" or not path.is_file() or path.stat().st_size < _LARGE:
            return None
        with path.open("rb") as stream:
            head = stream.read(_SAMPLE)
            size = stream.seek(0, 2)
            stream.seek(size - 1)
            ended = stream.read(1) == b"\n"
        if head.startswith((*_COMPRESSED, *_MARKS, _GZIP_MAGIC)) or any(code in head for code in _CONTROLS):
            return None
        frame = pl.read_lines(path, name="text", glob=False)
    except (OSError, ValueError, pl.exceptions.ComputeError):
        return None  # the reader of any bytes says what is wrong, or puts it right
    if frame["text"].str.contains_any(["\x1b", "\0"]).any():
        return None
    return _source(name, index, frame, size, 0, [], ended=ended)


def _read_any(name: str, index: int) -> tuple[SourceFile, pl.DataFrame]:
    raw, notes = _decompressed(name, _bytes(name))
    size = len(raw)
    raw, replaced, more = _as_text(name, raw)
    notes += more
    try:
        frame = _lines(raw)
    except pl.exceptions.ComputeError:  # what polars raises for invalid UTF-8
        text = raw.decode(errors="replace")
        invalid = len(raw) - len(raw.decode(errors="ignore").encode())
        replaced += invalid
        notes.append(_replaced(invalid, "UTF-8"))
        raw = text.encode()
        frame = _lines(raw)
    if b"\x1b" in raw:
        plain = frame.select(pl.col("text").str.replace_all(ANSI, ""))
        changed = int((plain["text"] != frame["text"]).sum())
        if changed:
            notes.append(
                f"terminal control sequences removed from {changed} line{'s' if changed > 1 else ''}"
            )
        frame = plain
    return _source(name, index, frame, size, replaced, notes, ended=not raw or raw.endswith(b"\n"))


def _source(
    name: str, index: int, frame: pl.DataFrame, size: int, replaced: int, notes: list[str], *, ended: bool
) -> tuple[SourceFile, pl.DataFrame]:
    if not ended:
        notes = [*notes, "the last line has no end: the log was cut, or is still being written"]
    frame = frame.select(
        pl.lit(index, dtype=pl.UInt16).alias("file"),
        pl.int_range(1, pl.len() + 1, dtype=pl.UInt32).alias("line"),
        "text",
    )
    return SourceFile(name, frame.height, size, replaced, tuple(notes)), frame


def _replaced(count: int, encoding: str) -> str:
    if count == 1:
        return f"1 byte was not valid {encoding} and was replaced"
    return f"{count} bytes were not valid {encoding} and were replaced"


def _lines(raw: bytes) -> pl.DataFrame:
    if not raw:
        return pl.DataFrame(schema={"text": pl.String})
    if raw.startswith(_COMPRESSED):
        # text that polars would take for compressed data: hide it behind a line end
        return pl.read_lines(b"\n" + raw, name="text")[1:]
    return pl.read_lines(raw, name="text")


def _bytes(name: str) -> bytes:
    if name == "-":
        if sys.stdin is None:
            raise SourceError("-: standard input is closed")
        return sys.stdin.buffer.read()
    path = Path(name)
    try:
        if path.is_dir():
            raise SourceError(f"{name}: is a folder; name the logs in it, e.g. {name.rstrip('/')}/*.log")
        return path.read_bytes()
    except FileNotFoundError:
        raise SourceError(f"{name}: no such file") from None
    except PermissionError:
        raise SourceError(f"{name}: no permission to read it") from None
    except (OSError, ValueError) as error:
        raise SourceError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _decompressed(name: str, raw: bytes) -> tuple[bytes, list[str]]:
    """Return the text of gzip data (whatever the file is called), and any other data as it is."""
    if not raw.startswith(_GZIP_MAGIC):
        return raw, []
    out = bytearray()
    position, whole = 0, True
    while whole and raw[position:].strip(b"\0"):  # a member after the other; zeros may fill up the end
        unpack = zlib.decompressobj(wbits=31)
        while whole and not unpack.eof:
            chunk, before = raw[position : position + _CHUNK], unpack.copy()
            position += len(chunk)
            try:
                out += unpack.decompress(chunk)
            except zlib.error:
                out += _up_to_damage(before, chunk)
                whole = False
            else:
                whole = bool(chunk)
        position -= len(unpack.unused_data)
    if whole:
        return bytes(out), []
    if not out:
        raise SourceError(f"{name}: damaged gzip data")
    return bytes(out), [f"the gzip data is damaged or cut; read the first {len(out)} bytes of text"]


def _up_to_damage(unpack: zlib._Decompress, chunk: bytes) -> bytes:
    """Return what can be unpacked of a chunk: zlib gives nothing of a call that fails."""
    out = bytearray()
    with contextlib.suppress(zlib.error):
        for code in chunk:
            out += unpack.decompress(bytes([code]))
    return bytes(out)


def _as_text(name: str, raw: bytes) -> tuple[bytes, int, list[str]]:
    """Return text without byte order mark or NULs, how many bytes were replaced, and notes.

    A log that was truncated under an open writer begins with a run of NULs, so NULs alone do not make a file
    binary: what stands beside them decides.
    """
    notes: list[str] = []
    replaced = 0
    for mark, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if raw.startswith(mark):
            notes.append(f"converted from {encoding.upper()}")
            raw = raw[2:]
            replaced = len(raw) - len(raw.decode(encoding, errors="ignore").encode(encoding))
            raw = raw.decode(encoding, errors="replace").encode()
            if replaced:
                notes.append(_replaced(replaced, encoding.upper()))
            break
    if raw.startswith(b"\xef\xbb\xbf"):
        raw = raw[3:]
        notes.append("byte order mark removed")
    nul = raw.count(b"\0")
    runs = sum(1 for part in raw[:_SAMPLE].split(b"\0") if part) if nul else 0
    if nul:
        raw = raw.replace(b"\0", b"")
        notes.append(f"{nul} NUL byte{'s' if nul > 1 else ''} removed")
    sample = raw[:_SAMPLE]
    controls = sum(sample.count(bytes([code])) for code in range(32) if code not in _TEXT_CONTROLS)
    if controls + max(runs - 1, 0) > _BINARY_SHARE * len(sample) or (nul and not raw.strip()):
        raise SourceError(f"{name}: binary data, not a log")
    return raw, replaced + nul, notes
