r"""Bytes of a log to text, and text to whole lines, piece by piece.

    bytes --> Text --> text, still with invalid bytes --> Lines --> whole lines --> frame_of --> polars

Text takes out marks and NULs and refuses binary data; frame_of replaces nothing: what polars refuses as
invalid UTF-8 is for its caller to put right.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import polars as pl

from sglogparse._errors import SourceError
from sglogparse._unpack import Damaged, kind_of, unpack

#: How much of a file is looked at to tell text from binary data, bytes.
SAMPLE = 1 << 16
#: What is kept of a line, bytes.
LONGEST = 1 << 26
#: Byte order marks of UTF-16, with the encoding; of UTF-8.
UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
UTF8 = b"\xef\xbb\xbf"
#: Share of control characters in the sample above which a file is not a log.
_BINARY_SHARE = 0.05
_TEXT_CONTROLS = b"\t\n\r\x1b\b\f"
#: First bytes that polars takes for compressed data.
_COMPRESSED = (b"x\x01", b"x^", b"x\x9c", b"x\xda", b"(\xb5/\xfd", b"\x1f\x8b")
#: Enough of a file to tell by its first bytes what it is, bytes.
_HEAD = 512
#: How much is read at a time of what is only looked at or is compressed, bytes.
PIECE = 1 << 16


def most_of_a_line() -> int:
    """Return what is kept of a line, bytes."""
    return LONGEST


def head_of(read: Callable[[int], bytes]) -> bytes:
    """Return the first bytes, from a pipe too, which gives what it has; raises Damaged if there are none."""
    head = b""
    try:
        while len(head) < _HEAD and (more := read(_HEAD - len(head))):
            head += more
    except Damaged:  # it is raised again behind these bytes
        if not head:
            raise
    return head


def check(name: str, read: Callable[[int], bytes]) -> None:
    """Read until it is sure that there is text.

    Raises SourceError for binary data, and for compressed data of which nothing can be read.
    """
    head = head_of(read)
    kind = kind_of(head)
    pieces: Iterable[bytes] = chain([head], iter(lambda: read(PIECE), b""))
    text = Text(name)
    empty = True
    try:
        for piece in unpack(kind, pieces) if kind else pieces:
            empty = empty and not piece
            if text.feed(piece):
                return
    except Damaged as damage:
        if empty:
            raise SourceError(f"{name}: {damage.why or f'damaged {kind} data'}") from None
    text.end()
    text.refuse_silence()


class Text:
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
                notes.append(replacement_note(self._decode.replaced, self._decode.encoding.upper()))
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
            if encoding := UTF16.get(chunk[:2]):
                self._decode = _Utf16(encoding)
                chunk = chunk[2:]
        if self._decode:
            chunk = self._decode.feed(chunk, last=last)
        if self._lead is not None:
            chunk = self._lead + chunk
            if len(chunk) < len(UTF8) and not last:
                self._lead = chunk
                return b""
            self._lead = None
            if chunk.startswith(UTF8):
                self._marked = True
                chunk = chunk[len(UTF8) :]
        if len(self._first) < SAMPLE:
            self._first += chunk[: SAMPLE - len(self._first)]
        if b"\0" in chunk:
            self._nul += chunk.count(b"\0")
            chunk = chunk.replace(b"\0", b"")
        if self._blank and chunk and not chunk.isspace():
            self._blank = False
        if self._sample is not None:
            chunk = self._sample + chunk
            if len(chunk) < SAMPLE and not last:
                self._sample = chunk
                return b""
            self._sample = None
            self._judge(chunk[:SAMPLE])
        return chunk

    def end(self) -> bytes:
        """Return the rest of the text."""
        return self.feed(b"", last=True)

    def refuse_silence(self) -> None:
        """Raise SourceError where all that was fed are NULs and blanks."""
        if self._nul and self._blank:
            raise SourceError(f"{self._name}: binary data, not a log")

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


class Lines:
    """Gathers text to pieces of whole lines, of about the size asked for.

    Of a line beyond the longest that is kept only the head is; its number stays.
    """

    def __init__(self, size: int) -> None:
        self._enough = max(size // 2, 1)
        self._step = min(size, LONGEST)
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
        if not self._skipping and self._open + stop > LONGEST:
            room = LONGEST - self._open
            held = b"".join([*self._parts, text[:room]])
            kept = _whole_characters(held)
            self._parts, self._held, self._open = [kept], len(kept), LONGEST
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


def replacement_note(count: int, encoding: str) -> str:
    """Return the note on bytes that were replaced."""
    if count == 1:
        return f"1 byte was not valid {encoding} and was replaced"
    return f"{count} bytes were not valid {encoding} and were replaced"


def frame_of(raw: bytes) -> pl.DataFrame:
    """Return the lines of bytes that are valid UTF-8; polars raises ComputeError for others."""
    if not raw:
        return pl.DataFrame(schema={"text": pl.String})
    if raw.startswith(_COMPRESSED):
        # text that polars would take for compressed data: hide it behind a line end
        return pl.read_lines(b"\n" + raw, name="text")[1:]
    return pl.read_lines(raw, name="text").rechunk()
