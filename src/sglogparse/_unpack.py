"""Compressed bytes to bytes: a stream in, a stream out, whatever the data would expand to.

pieces of a file --> kind_of (by its first bytes) --> unpack --> pieces of at most some MiB
"""

from __future__ import annotations

import bz2
import contextlib
import lzma
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from sglogparse._errors import SourceError

#: First bytes of what can be unpacked. A stream of zstd may begin with a frame that is to be skipped.
_MAGIC = {
    "gzip": (b"\x1f\x8b",),
    "bzip2": tuple(b"BZh%d1AY&SY" % level for level in range(1, 10))
    + tuple(b"BZh%d\x17rE8P\x90" % level for level in range(1, 10)),
    "xz": (b"\xfd7zXZ\0",),
    "zstd": (b"(\xb5/\xfd", *(bytes([code]) + b"*M\x18" for code in range(0x50, 0x60))),
}
#: What one call gives at most, bytes, where the library can be told so.
_MOST = 1 << 20
#: What is fed at once to a library that cannot be told so, bytes: at most 32 MiB come of it.
_FEED = 1 << 10
#: Memory that xz data may ask for, bytes; `xz -9` asks for 65 MiB.
_XZ_MEMORY = 1 << 28


class Damaged(Exception):
    """Compressed data ends before its end, or is not what it says. What came before it is good."""

    def __init__(self, why: str | None = None) -> None:
        super().__init__(why)
        self.why = why


class _Library(Protocol):
    """What the decompressors of bz2, lzma, compression.zstd and zstandard have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...


class _BoundedLibrary(_Library, Protocol):
    @property
    def needs_input(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _FedLibrary(_Library, Protocol):
    def decompress(self, data: bytes) -> bytes: ...


class _Unpacker(Protocol):
    """One member (gzip), stream (bzip2, xz) or frame (zstd)."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def feed(self, data: bytes) -> Iterator[bytes]: ...


def kind_of(head: bytes) -> str | None:
    """Return the kind of compressed data that begins with these bytes (some hundred), or None.

    Four characters make zstd, and a text can begin with them: what could be text must prove to be none.
    """
    kind = next((kind for kind, magic in _MAGIC.items() if head.startswith(magic)), None)
    if kind == "zstd" and not any(code < 9 for code in head):
        try:
            for _ in _zstd()().feed(head):
                pass
        except (Damaged, SourceError):
            return None
    return kind


def unpack(kind: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what compressed pieces hold, one member after the other; `deflate` is the kind within a zip.

    Raises Damaged behind the last byte that could be read. Zeros may fill up the end.
    """
    make = _unpacker(kind)
    unpacker: _Unpacker | None = None
    padded = False
    for piece in pieces:
        data = piece
        while data:
            if unpacker is None:
                rest = data.lstrip(b"\0")
                padded = padded or len(rest) < len(data)
                data = rest
                if not data:
                    break
                if padded and kind != "xz":
                    raise Damaged
                unpacker, padded = make(), False
            yield from unpacker.feed(data)
            data = unpacker.unused_data if unpacker.eof else b""
            if unpacker.eof:
                unpacker = None
    if unpacker is not None:
        raise Damaged


class _Gzip:
    def __init__(self, wbits: int = 31) -> None:
        self._unpack = zlib.decompressobj(wbits=wbits)

    @property
    def eof(self) -> bool:
        return self._unpack.eof

    @property
    def unused_data(self) -> bytes:
        return self._unpack.unused_data

    def feed(self, data: bytes) -> Iterator[bytes]:
        while True:
            before = self._unpack.copy()
            try:
                out = self._unpack.decompress(data, _MOST)
            except zlib.error:
                yield from _up_to_damage(before, data)
                raise Damaged from None
            data = self._unpack.unconsumed_tail
            if out:
                yield out
            if self._unpack.eof or (not data and len(out) < _MOST):
                return


def _up_to_damage(unpack: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """Yield what can be unpacked of a piece: zlib gives nothing of a call that fails."""
    for code in data:
        try:
            out = unpack.decompress(bytes([code]))
        except zlib.error:
            return
        if out:
            yield out


class _Bounded:
    """Around the decompressors of the standard library that take a largest size for what they give."""

    def __init__(self, unpack: _BoundedLibrary, error: type[Exception]) -> None:
        self._unpack, self._error = unpack, error

    @property
    def eof(self) -> bool:
        return bool(self._unpack.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._unpack.unused_data)

    def feed(self, data: bytes) -> Iterator[bytes]:
        while True:
            try:
                out = self._unpack.decompress(data, _MOST)
            except self._error as error:
                raise Damaged(_too_much(error)) from None
            data = b""
            if out:
                yield out
            if self._unpack.eof or self._unpack.needs_input:
                return


class _Fed:
    """Around the `zstandard` package, which is fed by little, for it gives all that it is fed for."""

    def __init__(self, unpack: _FedLibrary, error: type[Exception]) -> None:
        self._unpack, self._error = unpack, error
        self._rest = b""

    @property
    def eof(self) -> bool:
        return bool(self._unpack.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._unpack.unused_data) + self._rest

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _FEED):
            try:
                out = self._unpack.decompress(data[start : start + _FEED])
            except self._error as error:
                raise Damaged(_too_much(error)) from None
            if out:
                yield out
            if self._unpack.eof:
                self._rest = data[start + _FEED :]
                return


def _too_much(error: Exception) -> str | None:
    """Return what is said of data that ask for more memory than they are given."""
    text = str(error).lower()
    return "the compressed data ask for too much memory" if "memory" in text else None


def _unpacker(kind: str) -> Callable[[], _Unpacker]:
    if kind == "gzip":
        return _Gzip
    if kind == "deflate":
        return lambda: _Gzip(wbits=-15)
    if kind == "bzip2":
        return lambda: _Bounded(bz2.BZ2Decompressor(), OSError)
    if kind == "xz":
        return lambda: _Bounded(lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY), lzma.LZMAError)
    return _zstd()


def _zstd() -> Callable[[], _Unpacker]:
    with contextlib.suppress(ImportError):
        if sys.version_info >= (3, 14):
            from compression import zstd

            return lambda: _Bounded(zstd.ZstdDecompressor(), zstd.ZstdError)
    try:
        import zstandard
    except ImportError:
        raise SourceError(
            "zstd data need Python 3.14 or the package zstandard: pip install 'sglogparse[zstd]'"
        ) from None
    return lambda: _Fed(zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError)
