"""Files that reports are written to: whole or not at all, and added to where a service wants that."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sglogparse._errors import OutputError


def write_whole(text: str, path: Path) -> None:
    """Write a file so that nobody ever sees a part of it; OutputError where that cannot be done.

    Folders are made. A link is followed; a pipe or a device is written to as it is.
    """
    data = text.encode("utf-8", "backslashreplace")
    with _told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode if path.exists() else None
        if mode is not None and not stat.S_ISREG(mode):
            path.write_bytes(data)  # a folder refuses by itself
        else:
            _replace(data, Path(os.path.realpath(path)), mode)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn the system's errors into ours."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:  # a name with a NUL, from a configuration file
        raise OutputError(f"{path}: cannot be written: {error}") from None


def _replace(data: bytes, target: Path, mode: int | None) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        draft.chmod(stat.S_IMODE(mode) if mode is not None else 0o666 & ~_umask())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)  # what is left of it when the disk is full, say


def _umask() -> int:
    """Return what new files may not be; there is no way to ask for it without setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def append(text: str, path: Path) -> None:
    """Add a text to the end of a file, as the summary of a step wants it; OutputError where that fails."""
    with _told(path), path.open("ab") as file:
        file.write(text.encode("utf-8", "backslashreplace"))
