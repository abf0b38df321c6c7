"""How far the reading of logs has come, on standard error: at a terminal, and only when it takes a while."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.progress import Progress, TaskID

    from sglogparse._source import Source

#: A reading that is shorter than this shows nothing, s.
_AFTER = 1.0


def progress() -> Bar | None:
    """Return what is to be told of the sources while they are read; None where nobody looks."""
    return Bar() if sys.stderr is not None and sys.stderr.isatty() else None


class Bar:
    """A bar of the bytes that were read, with their rate; it is gone when all are read."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._shown: tuple[Progress, TaskID] | None = None

    def update(self, sources: Sequence[Source]) -> None:
        """Show how much of the sources has been read."""
        read = sum(source.position for source in sources)
        sizes = [source.size for source in sources]
        total = None if None in sizes else sum(size for size in sizes if size is not None)
        if self._shown is None and time.monotonic() - self._begun >= _AFTER:
            self._shown = _shown(total)
        if self._shown is None:
            return
        bar, task = self._shown
        bar.update(task, completed=read, total=total)

    def close(self) -> None:
        """Take the bar away."""
        if self._shown is not None:
            self._shown[0].stop()
            self._shown = None


def _shown(total: int | None) -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=total)
    bar.start()
    return bar, task
