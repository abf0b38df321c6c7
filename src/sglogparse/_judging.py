"""Many launches judged side by side, in processes of their own: judging is Python's work, on one core.

    Log --> logs of some of its files each --> (in another process) launches --> reports, in order

The processes are Python's with this module alone: whatever the main module is, they do not import it again.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from queue import SimpleQueue
from typing import BinaryIO, NamedTuple

import polars as pl

from sglogparse._launches import Launch
from sglogparse._log import Log
from sglogparse._report import LaunchReport
from sglogparse._source import SourceFile
from sglogparse._split import read_launches

#: Launches from which on another process is worth its start, and launches that it is given at a time.
_WORTH, _AT_ONCE = 150, 40
#: What a process sends before its answers.
_MARK = b"sglogparse judges\n"
#: Objects that are made before Python's collector looks for those that are of no use.
_OFTEN = 100_000


class _Share(NamedTuple):
    """What a process needs to judge the launches of some files."""

    files: tuple[SourceFile, ...]
    rows: pl.DataFrame
    frames: Mapping[str, pl.DataFrame]
    counts: pl.DataFrame | None


def judged_apart(log: Log, launches: Sequence[Launch], processes: int) -> list[LaunchReport] | None:
    """Return the reports on the launches of a log, made by several processes; None if not worth it.

    It is not for few launches, for those of few files, or where no process can be started.
    """
    shares = list(_shares(log, launches))
    processes = min(processes, len(launches) // _WORTH, len(shares))
    if processes < 2 or not sys.executable:
        return None
    free: SimpleQueue[_Judge] = SimpleQueue()

    def judged(share: _Share) -> list[LaunchReport]:
        judge = free.get()
        try:
            return judge.reports(share)
        finally:
            free.put(judge)

    try:
        with ExitStack() as stack:
            for _ in range(processes):
                free.put(stack.enter_context(_Judge()))
            with ThreadPoolExecutor(processes) as pool:
                return [report for reports in pool.map(judged, shares) for report in reports]
    except (OSError, EOFError, pickle.UnpicklingError):  # out of memory, or of processes: it is done here
        return None


class _Judge:
    """A process that judges."""

    def __init__(self) -> None:
        # what others print in that process (a sitecustomize, say) is no part of the answers
        code = (
            "import os, sys; sink = os.fdopen(os.dup(1), 'wb'); os.dup2(2, 1); "
            f"sink.write({_MARK!r}); sink.flush(); sys.path[:] = {sys.path!r}; "
            "from sglogparse._judging import serve; serve(sys.stdin.buffer, sink)"
        )
        # polars has one thread in each: there are as many of them as cores
        settings = {**os.environ, "POLARS_MAX_THREADS": "1"}
        pipe = subprocess.PIPE
        # in a session of its own: an interrupt is for the parent to handle
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=pipe, stdout=pipe, env=settings, start_new_session=True
        )
        self._ready = False

    def reports(self, share: _Share) -> list[LaunchReport]:
        """Return the reports on the launches of some files; raises OSError or EOFError where it has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump(share, self._process.stdin, pickle.HIGHEST_PROTOCOL)
        self._process.stdin.flush()
        while not self._ready:
            line = self._process.stdout.readline()
            if not line:
                raise EOFError
            self._ready = line.endswith(_MARK)
        found: list[LaunchReport] = pickle.load(self._process.stdout)
        return found

    def __enter__(self) -> _Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Judge what comes from one pipe into another, until it ends: the work of a process of judged_apart."""
    from sglogparse._verdict import judge

    gc.set_threshold(_OFTEN, 50, 100)
    while True:
        try:
            share = _Share(*pickle.load(source))
        except EOFError:
            return
        reports = [judge(launch) for launch in read_launches(Log(*share))]
        pickle.dump(reports, sink, pickle.HIGHEST_PROTOCOL)
        sink.flush()


def _shares(log: Log, launches: Sequence[Launch]) -> Iterator[_Share]:
    """Yield the parts of a log that hold about as many launches each; a file is in one of them."""
    rows = log.records.with_columns(log.lines["kind"])
    counts: dict[str, int] = {}
    for launch in launches:
        counts[launch.path] = counts.get(launch.path, 0) + 1
    begin = held = 0
    for index, file in enumerate(log.files):
        held += counts.get(file.path, 0)
        if held >= _AT_ONCE or index == len(log.files) - 1:
            yield _Share(
                tuple(replace(one, notes=()) for one in log.files[begin : index + 1]),
                _of_files(rows, begin, index),
                {name: part for name, part in _parts(log, begin, index) if part.height},
                None if log.counts is None else _of_files(log.counts, begin, index),
            )
            begin, held = index + 1, 0


def _parts(log: Log, first: int, last: int) -> Iterator[tuple[str, pl.DataFrame]]:
    for name, frame in log.frames.found.items():
        if "file" in frame.columns:
            yield name, _of_files(frame, first, last)


def _of_files(frame: pl.DataFrame, first: int, last: int) -> pl.DataFrame:
    """Return the rows of some files, which are counted from 0 in them; the frame is in their order."""
    begin, end = frame["file"].search_sorted(first, "left"), frame["file"].search_sorted(last, "right")
    return frame[begin:end].with_columns(pl.col("file") - first)
