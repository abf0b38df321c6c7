"""The role of a fault line: what began a failure, and what only repeats it.

A process that dies takes others with it, and each of them prints. The table says which lines follow from a
fault elsewhere, and why; everything else that ends a process is a candidate for the first fault.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a fault line is in the story."""

    ROOT = "root candidate"
    ECHO = "echo"
    TEARDOWN = "teardown"


@dataclass(frozen=True)
class Echo:
    """A text that follows from a fault elsewhere, with the reason."""

    pattern: re.Pattern[str]
    role: Role
    why: str


#: Exception texts, as `type: message`, that another process's fault explains.
ECHOES: tuple[Echo, ...] = (
    Echo(
        re.compile(r"Connection closed by peer|Connection reset by peer"),
        Role.ECHO,
        "the peer process is gone",
    ),
    Echo(re.compile(r"gloo/transport/tcp/pair.*Read error"), Role.ECHO, "the peer cannot be reached"),
    Echo(re.compile(r"Aborted by AbortReq"), Role.ECHO, "the request was aborted elsewhere"),
    Echo(re.compile(r"unknown reason from another rank"), Role.ECHO, "another rank failed"),
    Echo(re.compile(r"NCCL communicator was aborted on rank"), Role.ECHO, "another rank aborted the group"),
    Echo(re.compile(r"^EOFError\b"), Role.ECHO, "the child ended before it answered"),
    Echo(
        re.compile(r"Initialization failed\. Please see the error messages above"),
        Role.ECHO,
        "a child failed to start",
    ),
    Echo(
        re.compile(r"scheduler died during initialization|Rank \d+ scheduler (?:is dead|died)"),
        Role.ECHO,
        "a child died",
    ),
    Echo(re.compile(r"^KeyboardInterrupt\b"), Role.TEARDOWN, "somebody pressed Ctrl+C"),
    Echo(re.compile(r"^SystemExit\b"), Role.TEARDOWN, "the process was asked to end"),
    Echo(
        re.compile(r"^(?:asyncio\.)?(?:exceptions\.)?CancelledError\b"), Role.TEARDOWN, "a task was cancelled"
    ),
)


def role_of(exception: str) -> tuple[Role, str]:
    """Return the role of an exception (`type: message`), and why."""
    for echo in ECHOES:
        if echo.pattern.search(exception):
            return echo.role, echo.why
    return Role.ROOT, "nothing in the log explains it"
