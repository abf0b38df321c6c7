"""Triage: many logs at once, a row each, equal failures together.

    paths --> logs, and what is none --> batches --> Part ... --> incidents of a folder --> Row ...
                                                                                       --> Cluster ...

An incident is one log, or the logs of one folder that hold parts of one launch (its nodes, its ranks) or of
one deployment (prefill, decode, router); what is missing of one is looked for in the folders beside it. Logs
are read in batches, for each call of polars costs; the verdict on a log is kept until all logs of its folder
are read, then of each incident its row, and no line of any.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, cast

from sglogparse._errors import SourceError
from sglogparse._fingerprint import proof_of, verdict_fingerprint, words_of
from sglogparse._incidents import Part, incidents, read_parts
from sglogparse._ours import REASON, WRITTEN
from sglogparse._report import Diagnosis, Evidence, Incident, LaunchReport, Outcome, Severity
from sglogparse._source import open_found, stream
from sglogparse._stream import Reader, feeding
from sglogparse._stream import told as telling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglogparse._source import Source
    from sglogparse._stream import Progress

SCHEMA = "sglogparse/triage/1"
#: Text of a batch on disk, bytes: what is known of its launches takes far more.
_BATCH = 2 << 20
#: Logs of a batch: who waits sees it go on.
_LOGS = 100
#: As how many times its size packed text counts.
_PACKED = 10
#: Text that is read at a time where a log is looked at only, bytes.
_BLOCK = 1 << 24
_ENDINGS = (".gz", ".zst", ".xz", ".bz2")
#: Why a file is not read that nobody would take for a log, or that is read already: worth no row.
_NO_ROW = ("not named as a log", "given twice", REASON, WRITTEN)


@dataclass(frozen=True)
class Row:
    """An incident, or a file that is no log."""

    #: its files, the one that its verdict stands on first
    files: tuple[str, ...]
    #: nodes or ranks where several files are one launch, deployment where they are its servers, else server;
    #: None of a file that is not read
    kind: str | None
    #: None of a file that is not read
    outcome: Outcome | None
    cause: str | None
    #: what happened, where and why in a few words; of a file that is not read, why not
    headline: str
    #: what to change, or what is known
    action: str
    fix: str | None
    #: the line of the first fault
    root: Evidence | None
    ranks: tuple[str, ...]
    #: first to last stamp of the launch that speaks for the log, s
    duration: float | None
    version_window: str | None
    #: the newest stamp, without a zone
    last: dt.datetime | None
    #: starts in these files
    launches: int
    lines: int
    #: of the verdict; None where there is none
    fingerprint: str | None
    #: id of its cluster
    cluster: str | None
    healthy: bool
    #: whether a finding is an error
    failed: bool
    #: what had to be done to read its files, and what of them could not be read
    notes: tuple[str, ...] = ()
    #: why several files are one incident; None of one file
    joined: str | None = None

    @property
    def summary(self) -> str:
        """Return one sentence that a person can act on."""
        return f"{self.headline.removesuffix('.')}; {self.action}" if self.action else self.headline

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        return {
            "files": list(self.files),
            "kind": self.kind,
            "outcome": self.outcome.value if self.outcome else None,
            "cause": self.cause,
            "summary": self.summary,
            "fix": self.fix,
            "root": self.root.as_dict() if self.root else None,
            "ranks": list(self.ranks),
            "duration_s": self.duration,
            "version_window": self.version_window,
            "last": self.last.isoformat() if self.last else None,
            "launches": self.launches,
            "lines": self.lines,
            "fingerprint": self.fingerprint,
            "cluster": self.cluster,
            "healthy": self.healthy,
            "notes": list(self.notes),
            "joined": self.joined,
        }


#: What a verdict says of the lines of one log.
_LINES = re.compile(r" \(lines? [0-9]+(?:(?:-|, | and )[0-9]+)*\)")
_MATTERS = re.compile(r"the line most likely to matter is [0-9]+")


@dataclass(frozen=True)
class Cluster:
    """Incidents whose verdicts are equal, the newest first: it stands for all."""

    id: str
    rows: tuple[Row, ...]

    @property
    def representative(self) -> Row:
        """Return the newest."""
        return self.rows[0]

    @property
    def headline(self) -> str:
        """Return what happened in all of them: of several without the lines of one of them."""
        return self._shared(self.representative.headline)

    @property
    def action(self) -> str:
        """Return what to change: of several without the lines of one of them."""
        return self._shared(self.representative.action)

    def _shared(self, text: str) -> str:
        if len(self.rows) == 1:
            return text
        return _MATTERS.sub("one line is most likely to matter", _LINES.sub("", text))

    @property
    def windows(self) -> tuple[str, ...]:
        """Return the release windows, each once."""
        return tuple(dict.fromkeys(one.version_window for one in self.rows if one.version_window))

    def as_dict(self) -> dict[str, Any]:
        """Return the contract's form."""
        times = [one.last for one in self.rows if one.last]
        return {
            "id": self.id,
            "count": len(self.rows),
            "outcome": self.representative.outcome.value if self.representative.outcome else None,
            "cause": self.representative.cause,
            "summary": f"{self.headline.removesuffix('.')}; {self.action}" if self.action else self.headline,
            "newest": max(times).isoformat() if times else None,
            "oldest": min(times).isoformat() if times else None,
            "version_windows": list(self.windows),
            "representative": self.representative.files[0],
            "files": [list(one.files) for one in self.rows],
        }


@dataclass(frozen=True)
class Triage:
    """What many logs say."""

    #: newest first; those without a stamp, and files that are not read, behind them
    rows: tuple[Row, ...]
    #: of what is not healthy or has an error, the newest first
    clusters: tuple[Cluster, ...]
    #: files that are no logs by their names, and why they are not read
    notes: tuple[str, ...]

    @property
    def outcomes(self) -> dict[str, int]:
        """Return how many incidents ended how, in the order of the outcomes, and what is not read."""
        counts = Counter(one.outcome.value if one.outcome else "not read" for one in self.rows)
        order = [*(one.value for one in _ORDER), "not read"]
        return {name: counts[name] for name in order if counts[name]}

    @property
    def causes(self) -> dict[str, int]:
        """Return how many incidents have which cause, the most frequent first; those without one left out."""
        named = (one.cause for one in self.rows if one.cause not in (None, "none", "unknown"))
        counts = Counter(cause for cause in named if cause)
        return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))

    def exit_code(self) -> int:
        """Return 0 when all are healthy, 1 when one has an error, 3 when one is undecided or not read."""
        if any(one.failed for one in self.rows):
            return 1
        return 0 if all(one.healthy for one in self.rows) else 3

    def as_dict(self) -> dict[str, Any]:
        """Return the object of `--output-format json` (schema sglogparse/triage/1)."""
        return {
            "schema": SCHEMA,
            "logs": len(self.rows),
            "outcomes": self.outcomes,
            "causes": self.causes,
            "clusters": [one.as_dict() for one in self.clusters],
            "rows": [one.as_dict() for one in self.rows],
            "notes": list(self.notes),
        }


_ORDER = (
    Outcome.CRASHED,
    Outcome.HUNG,
    Outcome.UNKNOWN,
    Outcome.STARTING,
    Outcome.READY,
    Outcome.STOPPED,
)


def triage(paths: Iterable[str | Path], progress: Progress | None = None) -> Triage:
    """Judge every log that the paths name, and put equal failures together.

    `progress` is told now and then how much has been read. Raises SourceError where nothing of it is a log.
    """
    sources, refused = open_found(paths)
    rows = [_unread(name, reason) for name, reason in refused if not _needs_no_row(reason)]
    try:
        rows += _rows(sources, _Told(sources, progress))
    finally:
        if progress is not None:
            progress.close()
    if not any(one.outcome for one in rows):
        reasons = [f"{row.files[0]}: {row.summary}" for row in rows]
        reasons += [f"{name}: {reason}" for name, reason in refused if _needs_no_row(reason)]
        more = f" and {len(reasons) - _SAID} more" if len(reasons) > _SAID else ""
        raise SourceError(f"no log to read: {'; '.join(reasons[:_SAID])}{more}" if reasons else "no log")
    newest = sorted(rows, key=_newest_first)
    return Triage(tuple(newest), tuple(_clusters(newest)), tuple(_notes(refused)))


def _rows(sources: list[Source], told: _Told) -> Iterator[Row]:
    """Yield the rows of all incidents; those of a folder when all its logs are read."""
    left = Counter(place_of(source.path) for source in sources)
    read: dict[str, list[Part]] = {}
    open_: list[_Open] = []
    for batch in batches(sources):
        parts, unread = _parts(batch, told)
        told.judged(batch)
        yield from unread
        for part in parts:
            read.setdefault(place_of(part.file.path), []).append(part)
        for source in batch:
            place = place_of(source.path)
            left[place] -= 1
            if left[place]:
                continue
            of = {part.file.path: part for part in read.pop(place, [])}
            for incident in incidents(list(of.values())):
                if incident.lacks:
                    own = tuple(of[file.path] for file in incident.diagnosis.files)
                    open_.append(_Open(place, incident, own))
                else:
                    yield _row(incident)
    yield from map(_row, _closed(open_))


@dataclass(frozen=True)
class _Open:
    """An incident of which there must be more logs than lie in its folder."""

    place: str
    incident: Incident
    parts: tuple[Part, ...]


def _closed(open_: list[_Open]) -> list[Incident]:
    """Return incidents, those together that lie in folders side by side, or in a folder and one above it.

    A job that keeps the logs of each node or server in a folder of its own has them there. What a folder has
    whole is never put together with what another one has.
    """
    alive: dict[int, _Open] = {}
    where: dict[str, list[int]] = {}
    numbered = count()

    def keep(one: _Open) -> None:
        number = next(numbered)
        alive[number] = one
        for place in {one.place, above_of(one.place)}:
            where.setdefault(place, []).append(number)

    for one in open_:
        keep(one)
    for place in sorted(where, key=lambda one: (-len(_steps(one)), one)):
        near = {number: alive[number] for number in where[place] if number in alive}
        if len(near) < 2:
            continue
        of = {part.file.path: number for number, one in near.items() for part in one.parts}
        for incident in incidents([part for one in near.values() for part in one.parts], strict=True):
            numbers = dict.fromkeys(of[file.path] for file in incident.diagnosis.files)
            found = [near[number] for number in numbers]
            parts = tuple(part for one in found for part in one.parts)
            if len(found) > 1 and len(parts) == len(incident.diagnosis.files) and _complement(found):
                keep(_Open(place, incident, parts))
                for number in numbers:
                    del alive[number]
    return [one.incident for one in alive.values()]


def _complement(found: list[_Open]) -> bool:
    """Tell whether incidents have what the others lack; a pair of servers lacks its router, and no more."""
    paired = [one for one in found if {"prefill", "decode"} <= one.incident.roles]
    rest = [one for one in found if not any(one is other for other in paired)]
    return not paired or (len(paired) == 1 and all(one.incident.roles == {"router"} for one in rest))


#: Files that a sentence names.
_SAID = 3


def _needs_no_row(reason: str) -> bool:
    return any(one in reason for one in _NO_ROW)


def _notes(refused: list[tuple[str, str]]) -> Iterator[str]:
    """Yield what is said of the files that are worth no row."""
    for reason in _NO_ROW:
        names = [name for name, said in refused if reason in said]
        if names:
            more = f" and {len(names) - _SAID} more" if len(names) > _SAID else ""
            yield f"{reason}: {', '.join(names[:_SAID])}{more}"


def _newest_first(row: Row) -> tuple[bool, bool, float]:
    ago = -(row.last - dt.datetime.min).total_seconds() if row.last else 0.0
    return row.outcome is None, row.last is None, ago


def place_of(path: str) -> str:
    """Return the folder in which a log lies, in an archive too.

    >>> place_of("a/run1/node0.log"), place_of("logs.zip!run1/node0.log"), place_of("logs.zip!node0.log")
    ('a/run1', 'logs.zip!run1', 'logs.zip!.')
    """
    archive, bang, member = path.partition("!")
    return f"{archive}!{PurePath(member).parent}" if bang else str(PurePath(path).parent)


def above_of(place: str) -> str:
    """Return the folder above one; of an archive the folder that it lies in.

    >>> above_of("a/run1"), above_of("logs.zip!run1"), above_of("a/logs.zip!.")
    ('a', 'logs.zip!.', 'a')
    """
    archive, _, within = place.partition("!")
    return str(PurePath(archive).parent) if within in ("", ".") else f"{archive}!{PurePath(within).parent}"


def _steps(place: str) -> tuple[str, ...]:
    return PurePath(place.replace("!", "/")).parts


def batches(sources: Iterable[Source]) -> Iterator[list[Source]]:
    """Yield the logs in batches of a size that is read at once, those of a folder one behind the other."""
    batch: list[Source] = []
    held = 0
    for source in sorted(sources, key=_by_place()):
        size = _size(source)
        if batch and (held + size > _BATCH or len(batch) == _LOGS):
            yield batch
            batch, held = [], 0
        batch.append(source)
        held += size
    if batch:
        yield batch


def _by_place() -> Callable[[Source], int]:
    """Return what orders logs by their folders, in the order in which these come."""
    places: dict[str, int] = {}
    return lambda source: places.setdefault(place_of(source.path), len(places))


class _Read:
    """How much of all logs has been read, as if they were one."""

    def __init__(self, sources: list[Source]) -> None:
        sizes = [source.size for source in sources]
        self.size = None if None in sizes else sum(size for size in sizes if size is not None)
        self.position = 0


class _Told:
    """Tells of a batch, while it is read, how much has been read of all logs."""

    def __init__(self, sources: list[Source], progress: Progress | None) -> None:
        self._progress = progress
        self._whole = _Read(sources)
        self._before = 0

    def update(self, sources: Sequence[Source]) -> None:
        """Take notice of how much of a batch has been read."""
        self._whole.position = self._before + sum(source.position for source in sources)
        if self._progress is not None:
            self._progress.update([cast("Source", self._whole)])  # it is asked for these two numbers only

    def close(self) -> None:
        """Take notice of the end of a batch: there are more."""

    def judged(self, batch: list[Source]) -> None:
        """Take notice that a batch is done."""
        self.update(batch)
        self._before = self._whole.position


def _size(source: Source) -> int:
    packed = "!" in source.path or source.path.endswith(_ENDINGS)
    return _BATCH if source.size is None else source.size * (_PACKED if packed else 1)


def _parts(batch: list[Source], told: _Told) -> tuple[list[Part], list[Row]]:
    """Return what a batch says; where one of its logs cannot be read, that one's row says so."""
    try:
        return _read(batch, told), []
    except SourceError as error:
        if len(batch) == 1:
            return [], [_broken(batch[0], error)]
    good, rows = [], []
    for source in batch:
        try:
            for _ in source.blocks(_BLOCK):
                pass
            good.append(source)
        except SourceError as error:
            rows.append(_broken(source, error))
    if len(good) < len(batch):
        parts, more = _parts(good, told) if good else ([], [])
        return parts, rows + more
    found = [_parts([source], told) for source in good]  # it was not to be read for a moment
    return [part for parts, _ in found for part in parts], [row for _, more in found for row in more]


def _broken(source: Source, error: SourceError) -> Row:
    return _unread(source.path, str(error).removeprefix(f"{source.path}: "))


def _read(batch: list[Source], told: _Told) -> list[Part]:
    """Read a batch and judge what is in it."""
    for index, source in enumerate(batch):
        source.renumber(index)
    reader = Reader()
    for _ in feeding(reader, telling(stream(batch), batch, told)):
        pass
    return read_parts(reader.log([source.summary() for source in batch]), _trimmed)


def _trimmed(report: LaunchReport) -> LaunchReport:
    """Return of a report what a row is made of: of the findings the errors, each with a line."""
    errors = tuple(
        replace(one, evidence=one.evidence[:1]) for one in report.findings if one.severity is Severity.ERROR
    )
    chief = replace(report.chief, evidence=report.chief.evidence[:1]) if report.chief else None
    detail = replace(report.detail, exceptions=(), values=(), context=()) if report.detail else None
    return replace(report, findings=errors[:1], chief=chief, detail=detail, vitals=(), cascade=())


def _unread(path: str, reason: str) -> Row:
    return Row(
        (path,),
        None,
        None,
        None,
        reason,
        "",
        None,
        None,
        (),
        None,
        None,
        None,
        0,
        0,
        None,
        None,
        False,
        False,
    )


def _row(incident: Incident) -> Row:
    """Return the row of an incident."""
    diagnosis = incident.diagnosis
    chief = diagnosis.chief
    paths = [file.path for file in diagnosis.files]
    first = [chief.root.file if chief.root else chief.file] if chief else []
    mark = verdict_fingerprint(chief) if chief else None
    return Row(
        files=tuple(dict.fromkeys([*first, *paths])),
        kind=_kind(diagnosis),
        outcome=diagnosis.outcome,
        cause=diagnosis.cause,
        headline=chief.headline if chief else diagnosis.summary,
        action="; ".join(filter(None, (*_others(diagnosis, chief), chief.action))) if chief else "",
        fix=diagnosis.fix,
        root=diagnosis.root,
        ranks=tuple(dict.fromkeys(rank for one in diagnosis.launches for rank in one.ranks)),
        duration=chief.duration if chief else None,
        version_window=chief.version_window if chief else None,
        last=incident.last,
        launches=len(diagnosis.launches),
        lines=sum(file.lines for file in diagnosis.files),
        fingerprint=mark,
        cluster=_cluster_of(diagnosis),
        healthy=diagnosis.healthy,
        failed=any(one.severity is Severity.ERROR for one in diagnosis.findings),
        notes=tuple(dict.fromkeys(note for file in diagnosis.files for note in file.notes)),
        joined=incident.joined,
    )


#: What follows, on other nodes and servers, when one of them has failed.
_FOLLOWS = ("none", "unknown", "dist.peer_lost", "dist.collective_timeout", "process.killed")


def _others(diagnosis: Diagnosis, chief: LaunchReport) -> list[str]:
    """Return what else failed in an incident of several logs, for a reason of its own."""
    failed = [
        one
        for one in diagnosis.launches
        if one.file != chief.file
        and one.outcome in (Outcome.CRASHED, Outcome.HUNG)
        and one.cause not in (*_FOLLOWS, chief.cause)
    ]
    firsts = {one.cause: one for one in reversed(failed)}
    return [f"also {PurePath(one.file).name} {one.outcome.value}: {one.cause}" for one in firsts.values()]


def _kind(diagnosis: Diagnosis) -> str:
    """Return as what the files of an incident belong together."""
    if len(diagnosis.files) > 1 and len({job.role for job in diagnosis.jobs}) > 1:
        return "deployment"
    kinds = (job.kind for job in diagnosis.jobs if len({part[0] for part in job.members}) > 1)
    return next(kinds, "server")


def _cluster_of(diagnosis: Diagnosis) -> str | None:
    """Return what equal failures have in common; None of an empty log.

    It is the verdict's fingerprint, with more where that alone says too little.
    """
    chief = diagnosis.chief
    if chief is None:
        return None
    mark = verdict_fingerprint(chief)
    more = ["gone"] if chief.gone else []
    if proof_of(chief) is None:  # where the log ends, and how, is all that is known
        more.append(words_of(chief.headline))
    if chief.outcome in (Outcome.READY, Outcome.STOPPED):  # a server that failed and was started again
        failed = [one for one in diagnosis.launches if one.outcome in (Outcome.CRASHED, Outcome.HUNG)]
        more += [verdict_fingerprint(one) for one in failed[-1:]]
    return hashlib.sha256("\0".join([mark, *more]).encode()).hexdigest()[:16] if more else mark


def _clusters(rows: Iterable[Row]) -> list[Cluster]:
    """Return what is not healthy or has a problem, equal verdicts together; the rows are the newest first."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        # a server that serves can have a problem, too
        ailing = row.cause not in (None, "none")
        if row.outcome is not None and (row.failed or not row.healthy or ailing):
            found.setdefault(row.cluster or "", []).append(row)
    return [Cluster(mark, tuple(members)) for mark, members in found.items()]
