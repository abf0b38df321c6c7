"""Frames that were read before, kept as parquet: reading the same log again is reading them.

    content of the logs + what reads them --> key --> FOLDER/key/: manifest.json, decode_batch.0.parquet ...
                                                      whole and ours --> frames
                                                      else           --> the log is read, and kept

The key is a hash of all bytes of the logs, in order, with the grammars, the source and the version of the
package, and the release of polars: another content or another reader never meets an old entry. BLAKE2b, since
it is safe against logs that are made to collide, fast without help of the processor, and in Python itself.

An entry is written beside its place and put there by one rename, so that other processes see all of it or
nothing. It is used only when it belongs to the user, is writable to nobody else, and each file of it that is
needed has the hash that the manifest says; else the log is read again. Nothing is ever deleted but an entry
that is replaced. The text of the log is in it as it stands, secrets too: nobody but the user can read it.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from sglogparse._errors import SourceError
from sglogparse._grammar import grammar_dir
from sglogparse._log import read_log
from sglogparse._scan import scan_schemas
from sglogparse._source import SourceFile, open_sources
from sglogparse._unpack import Damaged
from sglogparse._version import __version__

if TYPE_CHECKING:
    from sglogparse._source import Source

_SCHEMA = "sglogparse/cache/1"
_MANIFEST = "manifest.json"
#: What the names of files of an entry look like: nothing that leads out of its folder.
_NAME = r"[a-z0-9_]+\.[0-9]+\.parquet"
#: How often an entry is put in its place while others do the same.
_TRIES = 3


class Cache(NamedTuple):
    """Where frames are kept, and who is told what stands in the way of it."""

    folder: Path
    note: Callable[[str], None]


@dataclass(frozen=True)
class Kept:
    """Frames of logs, as far as they were asked for: parts that, one behind the other, are the frame."""

    files: tuple[SourceFile, ...]
    parts: Mapping[str, Sequence[pl.LazyFrame]]

    def frame(self, name: str) -> pl.DataFrame:
        """Return a frame whole."""
        empty = pl.DataFrame(schema=scan_schemas()[name])
        return pl.concat([empty, *(part.collect() for part in self.parts[name])], rechunk=True)


class _NoEntryError(Exception):
    """What is in the place of an entry cannot be used."""


def read_kept(paths: Sequence[str], names: Collection[str], cache: Cache) -> Kept:
    """Return frames of logs from what is kept; else read the logs, and keep all their frames.

    Raises SourceError for a log that cannot be read. A cache that cannot be used is no error.
    """
    folder, note = cache
    sources = open_sources(paths)
    key = content_key(sources)
    if key is None:
        kept = _read(paths, names, None)
        note(f"{folder}: nothing is kept: only what is read from files is")
        return kept
    place = folder / key
    try:
        return _load(place, [source.path for source in sources], names)
    except (FileNotFoundError, NotADirectoryError):
        pass  # nothing is kept yet
    except (OSError, _NoEntryError) as error:
        note(f"{place}: is not used, and the log is read again: {_why(error)}")
    entry = _Entry(place)
    try:
        kept = _read(paths, names, entry)
        if content_key(open_sources(paths)) != key:
            note(f"{folder}: nothing is kept: the log has changed while it was read")
            return kept
        entry.put(kept.files)
        if entry.failure is not None:
            note(f"{folder}: nothing is kept: {_why(entry.failure)}")
    finally:
        entry.close()
    return kept


def content_key(sources: Iterable[Source]) -> str | None:
    """Return the key of logs: of their content and what reads them; None when one is no file, or damaged."""
    digest = hashlib.blake2b(reader_digest().encode(), digest_size=20)
    for source in sources:
        if source.size is None:
            return None
        content = hashlib.blake2b()
        try:
            for piece in source.stored():
                content.update(piece)
        except (Damaged, SourceError, OSError):
            return None  # the reader says what is wrong with it
        digest.update(content.digest())
    return digest.hexdigest()


@cache
def reader_digest() -> str:
    """Return the hash of what makes frames of text: the package with its grammars, and polars."""
    package = Path(__file__).parent
    digest = hashlib.blake2b(f"{_SCHEMA} {__version__} {pl.__version__}".encode(), digest_size=20)
    for path in sorted({*package.rglob("*.py"), *grammar_dir().glob("*.lark")}):
        digest.update(path.name.encode() + b"\0" + hashlib.blake2b(path.read_bytes()).digest())
    return digest.hexdigest()


def _read(paths: Sequence[str], names: Collection[str], entry: _Entry | None) -> Kept:
    """Read logs, put all frames into an entry, and return some of them."""
    parts: dict[str, list[pl.LazyFrame]] = {name: [] for name in names}
    log = read_log(paths)
    for name in scan_schemas():
        frame: pl.DataFrame = getattr(log, name)
        if entry is not None:
            entry.add(name, frame)
        if name in parts:
            parts[name].append(frame.lazy())
    return Kept(log.files, parts)


# ------------------------------------------------------------------ writing


@dataclass
class _Entry:
    """An entry that is being written, beside its place; what fails is noted, and the rest left out."""

    place: Path
    failure: OSError | None = None
    _written: dict[str, list[tuple[str, int, str]]] = field(default_factory=dict)
    _aside: Path | None = None

    def add(self, name: str, frame: pl.DataFrame) -> None:
        """Write a part of a frame."""
        if self.failure is not None or frame.is_empty():
            return
        buffer = io.BytesIO()
        frame.write_parquet(buffer, compression="zstd", compression_level=1)
        parts = self._written.setdefault(name, [])
        file = f"{name}.{len(parts)}.parquet"
        parts.append((file, frame.height, _digest(buffer.getbuffer())))
        self._write(file, buffer.getbuffer())

    def put(self, files: Iterable[SourceFile]) -> None:
        """Put the entry in its place, in that of another one if need be."""
        body = {
            "schema": _SCHEMA,
            "key": self.place.name,
            # not their names: those may be others next time
            "files": [(one.lines, one.bytes, one.replaced_bytes, one.notes) for one in files],
            "frames": self._written,
        }
        text = json.dumps(body)
        self._write(_MANIFEST, f"{_digest(text.encode())}\n{text}".encode())
        for _ in range(_TRIES):
            if self.failure is not None or self._aside is None:
                return
            try:
                (self._aside / "new").rename(self.place)
            except OSError as error:
                self._clear(error)
            else:
                return

    def close(self) -> None:
        """Remove what is left beside the place."""
        if self._aside is not None:
            shutil.rmtree(self._aside, ignore_errors=True)

    def _write(self, file: str, data: bytes | memoryview) -> None:
        if self.failure is not None:
            return
        try:
            if self._aside is None:
                _make_folder(self.place.parent)
                self._aside = Path(tempfile.mkdtemp(prefix=".new-", dir=self.place.parent))
                (self._aside / "new").mkdir(mode=0o700)
            opened = os.open(self._aside / "new" / file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(opened, "wb") as stream:
                stream.write(data)
        except OSError as error:
            self.failure = error

    def _clear(self, error: OSError) -> None:
        """Move away what is in the place: it was not used, or another process has just written the same."""
        if self._aside is None or not os.path.lexists(self.place):
            self.failure = error
            return
        try:
            self.place.rename(Path(tempfile.mkdtemp(dir=self._aside)) / "old")
        except FileNotFoundError:
            pass  # another process was faster
        except OSError as stays:
            self.failure = stays


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None


# ------------------------------------------------------------------ reading


def _load(place: Path, paths: Sequence[str], names: Collection[str]) -> Kept:
    """Return frames of an entry.

    Raises FileNotFoundError where there is none, and _NoEntryError or OSError for one that is not to be used.
    """
    status = place.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise _NoEntryError("it is no folder")
    if hasattr(os, "geteuid") and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
        raise _NoEntryError("it belongs to somebody else, or others can write to it")
    try:
        manifest = _manifest(place)
        files = tuple(
            SourceFile(path, lines, size, replaced, tuple(notes))
            for path, (lines, size, replaced, notes) in zip(paths, manifest["files"], strict=True)
        )
        parts = {
            name: [_part(place, name, *one) for one in manifest["frames"].get(name, [])]
            for name in dict.fromkeys("lines" if name == "unparsed" else name for name in names)
        }
    except FileNotFoundError:
        raise _NoEntryError("a file of it is missing") from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _NoEntryError("its manifest is not one of ours") from None
    if "unparsed" in names:
        parts["unparsed"] = [part.filter(pl.col("kind").is_null()) for part in parts["lines"]]
    return Kept(files, {name: parts[name] for name in names})


def _manifest(place: Path) -> dict[str, Any]:
    digest, _, text = (place / _MANIFEST).read_bytes().partition(b"\n")
    if digest.decode() != _digest(text):
        raise _NoEntryError("its manifest is damaged")
    found: dict[str, Any] = json.loads(text)
    if (found["schema"], found["key"]) != (_SCHEMA, place.name):
        raise _NoEntryError("it is an entry of something else")
    return found


def _part(place: Path, name: str, file: str, height: int, digest: str) -> pl.LazyFrame:
    """Return a part of a frame, from the very bytes that were looked at."""
    if not re.fullmatch(_NAME, file):
        raise _NoEntryError("its manifest is not one of ours")
    data = (place / file).read_bytes()
    if _digest(data) != digest:
        raise _NoEntryError(f"{file} is damaged")
    try:
        part = pl.scan_parquet(io.BytesIO(data))
        schema = part.collect_schema()
        rows = part.select(pl.len()).collect().item()
    except pl.exceptions.PolarsError:
        raise _NoEntryError(f"{file} is damaged") from None
    if schema != scan_schemas()[name] or rows != height:
        raise _NoEntryError(f"{file} is not the frame that it should be")
    return part


def _digest(data: bytes | memoryview) -> str:
    return hashlib.blake2b(data, digest_size=20).hexdigest()


def _why(error: OSError | _NoEntryError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
