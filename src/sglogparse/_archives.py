"""The logs within an archive: tar, plain or compressed, and zip; each member is a log of its own.

    archive.tar.gz --> open_archive --> members, as archive.tar.gz!folder/server.log, and what is none and why

Nothing is written to disk: the names of members, which nobody vouches for, are names only. A compressed tar
has no list of contents: it is read once to find the members, and again for their text.
"""

from __future__ import annotations

import errno
import stat
import struct
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

from sglogparse import _cheap
from sglogparse._errors import SourceError
from sglogparse._files import Origin, Stream, unreadable
from sglogparse._ours import REASON, is_report
from sglogparse._text import PIECE, check, head_of
from sglogparse._unpack import Damaged, kind_of, unpack

_BLOCK = 512
#: Where the type and the checksum of a tar header stand, and what the magic of most is.
_TYPE, _SUM, _MAGIC = slice(156, 157), slice(148, 156), slice(257, 262)
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
#: Tar types: files, with data; what has none; records about the next member; what is stored with holes.
_REGULAR = (b"0", b"\0", b"7")
_LINKS = {b"1": "hard link", b"2": "symbolic link"}
_DEVICES = (b"3", b"4", b"6")
_FOLDER = b"5"
_LONG_NAME, _EXTENDED, _SPARSE = b"L", b"x", b"S"
#: Records about a member, about all that follow, about the archive.
_RECORDS = (_LONG_NAME, b"K", _EXTENDED, b"X", b"g", b"V", b"M")
#: Size of a record about a member beyond which it is none, bytes.
_LARGEST_RECORD = 1 << 20
#: How much of a member shows whether it is an archive, bytes.
_JUDGED = 1 << 13
#: How much of an unpacked archive is passed over at a time, bytes.
_PASSED = 1 << 20
#: How members of a zip may be packed.
_PACKED = {0: None, 8: "deflate", 12: "bzip2", 20: "zstd", 93: "zstd"}
#: The header before the data of a member; what it says are the lengths of what stands between the two.
_LOCAL = struct.Struct("<26x2H")
_ENCRYPTED = 1
_CUT = "the archive is damaged or cut"
_ZIP_CUT = "the zip data is damaged or cut"


@dataclass
class Found:
    """Logs that were found under one name."""

    origins: list[Origin] = field(default_factory=list)
    #: what is not read, with the reason
    skipped: list[tuple[str, str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    #: whether they were named one by one, so that nothing else was asked for
    chosen: bool = False


def is_archive(head: bytes) -> bool:
    """Tell by its first 512 bytes, unpacked, whether a file is an archive."""
    return head.startswith(_ZIP) or _is_tar(head)


def archive_kind(name: str, read: Callable[[int], bytes]) -> tuple[str, str | None] | None:
    """Return `zip` or `tar`, with the kind of compression of a tar; None for what is no archive."""
    head = head_of(read)
    if head.startswith(_ZIP):
        return "zip", None
    kind = kind_of(head)
    if kind is not None:
        pieces = unpack(kind, chain([head], iter(lambda: read(PIECE), b"")))
        unpacked = b""
        try:
            while len(unpacked) < _BLOCK and (piece := next(pieces, b"")):
                unpacked += piece
        except Damaged:
            pass  # whatever it is; its reader says so
        except SourceError as error:
            raise SourceError(f"{name}: {error}") from None
        head = unpacked[:_BLOCK]
    return ("tar", kind) if _is_tar(head) else None


def open_archive(path: str, kind: str, packed: str | None) -> Found:
    """Return the members that are text, each to be read.

    Raises SourceError where the archive cannot be read at all.
    """
    try:
        return _open_zip(path) if kind == "zip" else _open_tar(path, packed)
    except OSError as error:
        raise unreadable(path, error) from None


def _judged(name: str, read: Callable[[int], bytes]) -> str | None:
    """Return why a member is not read as a log, or None."""
    if any(part.startswith(".") and part.strip(".") for part in name.split("/")):
        return "hidden"
    head = b""
    try:
        while len(head) < _JUDGED and (piece := read(_JUDGED - len(head))):
            head += piece
    except Damaged as damage:  # its reader says so, if there is something to read
        if not head:
            return damage.why or _CUT
    try:
        if archive_kind(name, _first(head, lambda _: b"")) is not None:
            return "an archive within the archive"
        if is_report(head.decode("utf-8", "replace"), name):
            return REASON
        check(name, _first(head, read))
    except SourceError as error:
        return str(error).removeprefix(f"{name}: ")
    return None


def _numbered(name: str, names: dict[str, int]) -> str:
    """Return a name that is new, for an archive can hold several members of one name."""
    names[name] = count = names.get(name, 0) + 1
    return f"{name} ({count})" if count > 1 else name


def _first(head: bytes, read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Return a reader that gives the head, then what stands behind it."""
    heads = iter([head] if head else [])
    return lambda size: next(heads, b"") or read(size)


# ------------------------------------------------------------------ tar


def _is_tar(head: bytes) -> bool:
    if len(head) < _BLOCK or b"\0" not in head:
        return False
    return head[_MAGIC] == b"ustar" or _header(head[:_BLOCK]) is not None


@_cheap.dataclass(frozen=True)
class _Header:
    name: str
    type: bytes
    size: int


def _header(block: bytes) -> _Header | None:
    """Return what a header says, or None where it is none."""
    stored = _number(block[_SUM])
    rest = block[: _SUM.start] + b" " * 8 + block[_SUM.stop :]
    unsigned = sum(rest)
    size = _number(block[124:136])
    if stored not in (unsigned, unsigned - 256 * sum(code > 127 for code in rest)) or size is None:
        return None
    name = block[:100].split(b"\0")[0]
    if block[257:263] == b"ustar\0" and (prefix := block[345:500].split(b"\0")[0]):
        name = prefix + b"/" + name
    kind = block[_TYPE]
    if kind == b"\0" and name.endswith(b"/"):  # as archives before 1988 have folders
        kind = _FOLDER
    return _Header(name.decode(errors="replace"), kind, size)


def _number(digits: bytes) -> int | None:
    """Return an octal number, or one in base 256, as GNU writes large ones."""
    if digits[:1] == b"\x80":
        return int.from_bytes(digits[1:], "big")
    text = digits.strip(b" \0")
    if not text:
        return 0
    return int(text, 8) if all(code in b"01234567" for code in text) else None


class _Pass:
    """One reading of an archive, forward only."""

    def __init__(self, path: str, packed: str | None) -> None:
        self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115 - close() is for the caller
        self._end = self._file.seek(0, 2)
        self._file.seek(0)
        #: bytes read of the archive, and of what it unpacks to
        self.taken = 0
        self.at = 0
        self._kind = packed
        self._pieces = unpack(packed, iter(self._take, b"")) if packed else None
        self._damage: Damaged | None = None
        self._rest = b""

    def _take(self) -> bytes:
        piece = self._file.read(PIECE)
        self.taken += len(piece)
        return piece

    def read(self, size: int) -> bytes:
        """Return the next bytes of the tar, `size` at most; raises Damaged."""
        if self._pieces is None:
            piece = self._file.read(size)
            self.taken += len(piece)
        else:
            if self._damage is not None:
                raise self._damage
            try:
                rest = self._rest or next(self._pieces, b"")
            except Damaged as damage:
                self._damage = Damaged(damage.why or f"the {self._kind} data is damaged or cut")
                raise self._damage from None
            piece, self._rest = rest[:size], rest[size:]
        self.at += len(piece)
        return piece

    def exactly(self, size: int) -> bytes:
        """Return the next bytes, fewer only at the end."""
        out = b""
        while len(out) < size and (piece := self.read(size - len(out))):
            out += piece
        return out

    def skip_to(self, place: int) -> None:
        """Pass over what stands before a place; raises Damaged where the archive ends before."""
        if self._pieces is None:
            if place > self._end:
                raise Damaged(_CUT)
            self._file.seek(place)
            self.at = self.taken = place
        while self.at < place:
            if not self.read(min(_PASSED, place - self.at)):
                raise Damaged(_CUT)

    def close(self) -> None:
        self._file.close()

    def __del__(self) -> None:  # what the sources keep for the next member, and nobody has read
        if hasattr(self, "_file"):
            self.close()


class _Tar:
    """An archive whose members are read in one go if they are read in their order."""

    def __init__(self, path: str, packed: str | None) -> None:
        self._path, self._packed = path, packed
        self._lock = threading.Lock()
        self._idle: _Pass | None = None

    def at(self, place: int) -> _Pass:
        """Return a reading that stands at a place of the tar."""
        with self._lock:
            one, self._idle = self._idle, None
        if one is None or one.at > place:
            if one is not None:
                one.close()
            one = _Pass(self._path, self._packed)
        one.skip_to(place)
        return one

    def back(self, one: _Pass, *, last: bool) -> None:
        """Keep a reading for the next member."""
        with self._lock:
            if self._idle is None and not last:
                self._idle = one
                return
        one.close()


@dataclass
class _TarMember:
    name: str
    tar: _Tar
    start: int
    length: int
    #: where its data begin in the archive on disk, and how many bytes they take there
    place: int
    size: int = 0
    last: bool = False

    def open(self) -> Stream:
        return _TarStream(self)


class _TarStream:
    def __init__(self, member: _TarMember) -> None:
        self._member = member
        self._left = member.length
        try:
            self._pass = member.tar.at(member.start)
        except OSError as error:
            raise unreadable(member.name, error) from None

    @property
    def position(self) -> int:
        return max(0, min(self._pass.taken - self._member.place, self._member.size))

    def read(self, size: int) -> bytes:
        if not self._left:
            return b""
        piece = self._pass.read(min(size, self._left))
        if not piece:
            raise Damaged(_CUT)
        self._left -= len(piece)
        return piece

    def close(self) -> None:
        self._member.tar.back(self._pass, last=self._member.last)


def _open_tar(path: str, packed: str | None) -> Found:
    found, tar = Found(), _Tar(path, packed)
    reading = _Pass(path, packed)
    members: list[_TarMember] = []
    names: dict[str, int] = {}
    try:
        for header in _headers(reading):
            start, place, end = reading.at, reading.taken, reading.at + header.size
            if header.type == _FOLDER:
                continue
            reason = _no_file(header)
            if reason is None:
                reason = _judged(header.name, partial(_within, reading, end))
            if reason is not None:
                found.skipped.append((header.name, reason))
                continue
            name = f"{path}!{_numbered(header.name, names)}"
            members.append(_TarMember(name, tar, start, header.size, place))
    except Damaged as damage:
        found.remarks.append(f"{damage.why or _CUT}; what stands behind that is missing")
    finally:
        taken = reading.taken
        reading.close()
    if members:
        members[0].place = 0  # what stands before it is read for it
        members[-1].last = True
        for member, behind in zip(members, [*(one.place for one in members[1:]), taken], strict=True):
            member.size = behind - member.place
    found.origins += members
    return found


def _within(reading: _Pass, end: int, size: int) -> bytes:
    return reading.read(min(size, end - reading.at))


def _no_file(header: _Header) -> str | None:
    if header.type in _LINKS:
        return _LINKS[header.type]
    if header.type == _SPARSE:
        return "stored with holes"
    return None if header.type in _REGULAR else "no file"


def _headers(reading: _Pass) -> Iterator[_Header]:
    """Yield the members; the reading stands at their data then. Raises Damaged where no more can be read."""
    about: dict[str, str] = {}  # the next member: what its own header has no room for
    while True:
        block = reading.exactly(_BLOCK)
        if not block.strip(b"\0"):
            _end(reading, whole=len(block) == _BLOCK)
            return
        header = _header(block) if len(block) == _BLOCK else None
        if header is None:
            raise Damaged(_CUT)
        if header.type in _RECORDS:
            end = reading.at + _padded(header.size)
            if header.type in (_LONG_NAME, _EXTENDED):
                if header.size > _LARGEST_RECORD:
                    raise Damaged(_CUT)
                about |= _record(header.type, reading.exactly(header.size))
            reading.skip_to(end)
            continue
        size = int(about["size"]) if about.get("size", "").isdecimal() else header.size
        sparse = header.type == _SPARSE or any(key.startswith("GNU.sparse.") for key in about)
        while header.type == _SPARSE and block[482 if block[_MAGIC] == b"ustar" else 504] != 0:
            block = reading.exactly(_BLOCK)  # more of the map of the holes
            if len(block) < _BLOCK:
                raise Damaged(_CUT)
        bare = header.type in (*_LINKS, *_DEVICES, _FOLDER)
        end = reading.at + (0 if bare else _padded(size))
        name = about.get("GNU.sparse.name") or about.get("path") or header.name
        yield _Header(_clean(name), _SPARSE if sparse else header.type, size)
        reading.skip_to(end)
        about = {}


def _end(reading: _Pass, *, whole: bool) -> None:
    """Raise Damaged where the archive does not end in zeros, and in nothing else."""
    if not whole:
        raise Damaged("the archive has no end: it was cut, or is still being written")
    while piece := reading.read(_PASSED):
        if piece.strip(b"\0"):
            raise Damaged("something else stands behind the end of the archive")


def _record(kind: bytes, record: bytes) -> dict[str, str]:
    """Return what a record says about the next member: lines of `length key=value`, or a name."""
    if kind == _LONG_NAME:
        return {"path": record.split(b"\0")[0].decode(errors="replace")}
    about = {}
    while record:
        length, blank, rest = record.partition(b" ")
        if not blank or not length.isdigit() or not len(length) + 3 <= int(length) <= len(record):
            raise Damaged(_CUT)
        key, _, value = rest[: int(length) - len(length) - 2].partition(b"=")
        about[key.decode(errors="replace")] = value.decode(errors="replace")
        record = record[int(length) :]
    return about


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _clean(name: str) -> str:
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name or "."


# ------------------------------------------------------------------ zip


@_cheap.dataclass(frozen=True)
class _ZipMember:
    name: str
    path: str
    info: zipfile.ZipInfo

    @property
    def size(self) -> int:
        return self.info.compress_size

    def open(self) -> Stream:
        try:
            return _ZipStream(self.path, self.info)
        except OSError as error:
            raise unreadable(self.name, error) from None


class _ZipStream:
    """One member; zipfile knows where it is, but would give nothing of the last piece of damaged data."""

    def __init__(self, path: str, info: zipfile.ZipInfo) -> None:
        self.position = 0
        self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115 - close() is for the caller
        self._info = info
        self._sum = 0
        self._rest = b""
        kind = _PACKED[info.compress_type]
        pieces = self._packed()
        self._pieces = unpack(kind, pieces) if kind else pieces

    def _packed(self) -> Iterator[bytes]:
        end = self._file.seek(0, 2)
        if not 0 <= self._info.header_offset <= end:
            raise Damaged(_ZIP_CUT)
        self._file.seek(self._info.header_offset)
        header = self._file.read(_LOCAL.size)
        if len(header) < _LOCAL.size or not header.startswith(_ZIP[0]):
            raise Damaged(_ZIP_CUT)
        self._file.seek(sum(_LOCAL.unpack(header)), 1)
        while piece := self._file.read(min(PIECE, self._info.compress_size - self.position)):
            self.position += len(piece)
            yield piece
        if self.position < self._info.compress_size:
            raise Damaged(_ZIP_CUT)

    def read(self, size: int) -> bytes:
        try:
            rest = self._rest or next(self._pieces, b"")
        except Damaged as damage:
            raise Damaged(damage.why or _ZIP_CUT) from None
        if not rest and self._sum != self._info.CRC:
            raise Damaged(_ZIP_CUT)
        piece, self._rest = rest[:size], rest[size:]
        self._sum = zlib.crc32(piece, self._sum)
        return piece

    def close(self) -> None:
        self._file.close()


def _open_zip(path: str) -> Found:
    found = Found()
    names: dict[str, int] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError, struct.error):
        raise SourceError(f"{path}: damaged zip data: no list of its members") from None
    except OSError as error:
        if error.errno != errno.EINVAL:  # a place that cannot be
            raise
        raise SourceError(f"{path}: damaged zip data: no list of its members") from None
    for info in members:
        if info.is_dir():
            continue
        name = _clean(info.filename)
        reason = _not_in_zip(info)
        if reason is None:
            with closing(_ZipStream(path, info)) as stream:
                reason = _judged(name, stream.read)
        if reason is not None:
            found.skipped.append((name, reason))
            continue
        found.origins.append(_ZipMember(f"{path}!{_numbered(name, names)}", path, info))
    return found


def _not_in_zip(info: zipfile.ZipInfo) -> str | None:
    if stat.S_ISLNK(info.external_attr >> 16):
        return _LINKS[b"2"]
    if info.flag_bits & _ENCRYPTED:
        return "encrypted"
    return None if info.compress_type in _PACKED else f"packed by method {info.compress_type}"
