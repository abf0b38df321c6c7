"""A server that its host has ended."""

from __future__ import annotations

import re
from collections.abc import Iterator

import polars as pl

from sglogparse._cheap import lazy
from sglogparse._derived import Whole, once, telling
from sglogparse._events import BLOCKS
from sglogparse._families import family_names
from sglogparse._faults import faults, last_progress, last_served, stopped_at
from sglogparse._launches import Launch
from sglogparse._report import Finding, Severity
from sglogparse._words import EXITED, KILLED, OUT_OF_HOST_MEMORY
from sglogparse.causes import Confidence

#: Whose line it is, by its words, and what gives the server more memory there.
_MEMORY = (
    (r"^(?:slurmstepd|srun)", "ask Slurm for more memory (--mem, --mem-per-gpu)"),
    (r"OOMKilled|exit code 137", "raise the container's limit (resources.limits.memory)"),
    (r"cgroup", "raise the limit of the container or the job"),
    (r"", "give the host more memory, or run less beside the server"),
)


#: How a server ended, the one that tells most first, by the words of the line.
_WORDS = {"memory": OUT_OF_HOST_MEMORY, "killed": KILLED, "exited": EXITED}
_HOW = pl.Enum(list(_WORDS))
_SAID = {
    "memory": "The host's memory ran out, and the server was killed for it.",
    "killed": "The server was killed (SIGKILL, as the host's out-of-memory killer sends it); who did it, and "
    "why, is not in the log.",
    "exited": "The server's process ended, as its supervisor says; why, is not in the log.",
}
_SURE = {
    "memory": Confidence("certain", "the host says so"),
    "killed": Confidence(
        "likely", "the out-of-memory killer sends SIGKILL, and nothing else explains the end"
    ),
    "exited": Confidence("likely", "the supervisor says so, and nothing else explains the end"),
}
#: The server by its name, or the step that it is of a job.
_ITS_OWN = lazy(r"\(sglang|^slurmstepd|^srun")
_LOOK = {
    "killed": "`dmesg -T | grep -i oom` on the host tells whether its memory ran out; else somebody sent it",
    "exited": "look at what it wrote elsewhere (standard error), at `dmesg -T`, and for a core dump",
}


def killed_from_outside(launch: Launch) -> Iterator[Finding]:
    """Report that the host has ended the server: its kernel, a shell, Slurm or Kubernetes says so.

    What it finds:
        "Out of memory: Killed process", "OOMKilled", "oom_kill event", "Out Of Memory" of srun; "Killed" of a
        shell, "exit code 137"; "exited: ... not expected" and "entered FATAL state" of supervisord, "Main
        process exited" of systemd, behind which the server says nothing any more.

    Why it matters:
        SIGKILL leaves no word in the server's own log: it ends amid what it did, without a fault.

    Evidence:
        The line that says it, and the last one of the server before it.

    Does not match:
        Launches with a fault of their own, which comes first, or that were asked to stop. Lines after which
        the server goes on. Once a server has served, words that do not name it (E003 reports them): tests end
        servers so.

    What to do:
        Where memory of the host ran out: give the host, the container or the job more. Else find out who sent
        the signal.
    """
    said = _said_last(launch)
    if said is None:
        return
    line, message, how = said
    memory = how == "memory"
    # of a server that has served it may be another's end: a client's, another container's, or a test's doing
    if launch.serves is not None and how != "exited" and not (memory and _ITS_OWN.search(message)):
        return
    root = launch.evidence(line)
    before = max(last_progress(launch), last_served(launch))
    yield Finding(
        Severity.ERROR,
        _SAID[how],
        launch.evidences([line, before] if before else [line]),
        cause="process.killed" if how == "exited" else "memory.host",
        confidence=_SURE[how],
        fix=_memory(message) if memory else _LOOK[how],
        root=root,
        weight=1,
    )


def _memory(message: str) -> str:
    told = next(told for pattern, told in _MEMORY if re.search(pattern, message))
    return f"{told}; `dmesg -T | grep -i oom` on the host names what was killed, and what held the memory"


@once
def _said_last(launch: Launch) -> tuple[int, str, str] | None:
    """Return the first line that says it, behind which the server is silent, and how the server ended."""
    said = _said(launch)
    if said.is_empty() or faults(launch) or stopped_at(launch) is not None:
        return None
    said = said.filter(pl.col("line") > _last_word(launch))
    if said.is_empty():
        return None
    # of several lines the one that tells most speaks
    line, message, how = said.sort("how", maintain_order=True).select("line", "message", "how").row(0)
    return line, message, str(how)


def _last_word(launch: Launch) -> int:
    """Return the last line that the server itself has printed, as far as its form tells; 0 for none."""
    kind = pl.col("kind").cast(pl.String)
    others = ["message", *BLOCKS, *family_names()]
    own = launch.lines.filter(kind.is_not_null() & ~kind.is_in(others))
    headed = launch.records.filter(pl.col("headed") & pl.col("rank").is_not_null())
    return max((frame["line"][-1] for frame in (own, headed) if not frame.is_empty()), default=0)


@telling
def _said(whole: Whole) -> pl.DataFrame:
    """Return the lines by which a host says that a server has ended, and how."""
    kind = whole.lines["kind"].cast(pl.String)
    # what has a header of SGLang is its own word, or quotes somebody
    free = (kind.is_null() | kind.is_in(["message", *family_names()])) & ~whole.records["headed"]
    rows = free.arg_true()
    message = pl.col("message")
    told = whole.records.select("line", "message")[rows].with_columns(rows.alias("row"))
    how = pl.coalesce(
        pl.when(message.str.contains(pattern)).then(pl.lit(name, dtype=_HOW))
        for name, pattern in _WORDS.items()
    )
    return told.with_columns(how=how).drop_nulls("how").select("row", "line", "message", "how")
