"""The faults of a launch: exceptions that ended a process, in order, each with its role.

    traceback blocks + phases + signals --> Fault (what, where, on which rank, root candidate or echo)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from sglogparse._echoes import Role, role_of

if TYPE_CHECKING:
    from sglogparse._launches import Launch


#: Words by which native code, other loggers and shells speak of the end of a process.
_GRAVE = (
    r"Fatal Python error|Segmentation fault|core dumped|terminate called|\bAborted\b|\bKilled$|CUDA error|HIP error"
    r"|HSA_STATUS_ERROR|NCCL error|hit an exception|out of memory|Watchdog caught|NVSHMEM.*(?:failed|error)"
)
#: Words that speak of some failure; many of them are harmless.
_FAILURE = (
    r"\[ERROR\]|\bERROR\b|Error\b|\berror\b|\b[Ff]ail(?:ed|s|ure)?\b|[Ee]xception\b|\b[Tt]imed out\b|[Tt]imeout\b"
    r"|Unable to|refused|File \\?\"[^\"]+\", line [0-9]+|not supported|unsupported"
)
_HARMLESS = r"Ignore import error|[Dd]isabl|[Ff]all(?:ing)? ?back|[Ww]arning|WARN|deprecated|ENV_VAR|_(?:error|timeout|failed)\b|Killed process"
#: Paths of code that runs requests, tests or other programs: its exceptions are not the end of a server.
_NOT_THE_SERVER = ("uvicorn/protocols/http", "unittest/", "/_pytest/", "sglang/test/")
#: Paths of the server itself.
_SERVER_CODE = re.compile(r"sglang/(?:srt/|launch_server|server|multimodal_gen/|cli/|bench)")
#: Functions that only run in one phase; the stack says more than the last line that was printed.
_STACK_PHASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("serving", ("event_loop", "run_batch", "process_batch_result", "forward_thread_func")),
    ("graph capture", ("capture", "init_cuda_graphs", "init_device_graphs", "_capture")),
    ("KV cache set-up", ("init_memory_pool", "alloc_memory_pool", "profile_max_num_token")),
    ("weight loading", ("load_model", "load_weights")),
    ("distributed set-up", ("init_torch_distributed", "initialize_model_parallel", "init_distributed_environment")),
)


@dataclass(frozen=True)
class Fault:
    """An exception that ended (or must have ended) a process of the server."""

    line: int
    #: the line of the exception itself, or of its report where the exception was cut off
    root_line: int
    rank: str | None
    process: str | None
    #: the chain as `type: message`, first cause first; empty when it was cut off
    exceptions: tuple[str, ...]
    phase: str | None
    role: Role
    why: str

    @property
    def headline(self) -> str:
        """Return the exception in one line."""
        return self.exceptions[-1].splitlines()[0] if self.exceptions else "the exception is cut off"


def faults(launch: Launch) -> list[Fault]:
    """Return the faults of a launch in the order of their lines.

    A bare traceback counts when it runs through the server's code and nothing is served after it: one request's
    exception does not end a server, and another program's traceback is not the server's.
    """
    stop = stopped_at(launch)
    last_served = _last_served(launch)
    found = []
    for row in launch.frames["traceback"].iter_rows(named=True):
        reported = row["process_name"] is not None or _is_warmup(launch, row["line"])
        if not reported and not _is_server_fault(row, last_served):
            continue
        chain = tuple(row["exceptions"] or ())
        role, why = role_of(chain[-1]) if chain else (Role.ROOT, "its exception is cut off")
        line = row["line"]
        # of a block without beginning and end, the last frame is what stands nearest to the exception
        cut = row["last_line"] if not reported and not row["complete"] else line
        if stop is not None and row["line"] > stop:
            role, why = Role.TEARDOWN, "the server had been asked to stop"
        found.append(
            Fault(
                line=line,
                root_line=row["exception_line"] or cut,
                rank=row["rank"],
                process=row["process_name"],
                exceptions=chain,
                phase=_phase_of(row["stack"] or []) or launch.phase_at(line, row["rank"]),
                role=role,
                why=why,
            )
        )
    return found


def stopped_at(launch: Launch) -> int | None:
    """Return the first line of an orderly shutdown; None when nobody asked for one."""
    lifecycle = launch.frames["http_lifecycle"].filter(pl.col("lifecycle") == "Shutting down")
    signals = launch.frames["sigterm"].filter(~pl.col("detail").fill_null("").str.contains("health check failed"))
    lines = [int(frame["line"].min()) for frame in (signals, lifecycle) if not frame.is_empty()]  # type: ignore[arg-type]
    return min(lines) if lines else None


def _last_served(launch: Launch) -> int:
    answered = launch.frames["http_access"].filter(pl.col("status") < 500)
    frames = (launch.frames["decode_batch"], launch.frames["prefill_batch"], answered)
    lines = [int(frame["line"].max()) for frame in frames if not frame.is_empty()]  # type: ignore[arg-type]
    return max(lines, default=0)


def _is_warmup(launch: Launch, line: int) -> bool:
    return not launch.frames["warmup_failed"].filter(pl.col("line") == line).is_empty()


def _is_server_fault(row: dict[str, Any], last_served: int) -> bool:
    if row["line"] < last_served:
        return False
    paths = [frame["path"] or "" for frame in row["stack"] or ()]
    if any(part in path for path in paths for part in _NOT_THE_SERVER):
        return False
    if not paths:
        return row["exception"] is not None and not last_served
    return any(_SERVER_CODE.search(path) for path in paths)


def _phase_of(stack: list[dict[str, Any]]) -> str | None:
    """Return the phase that the innermost telling function of a stack belongs to."""
    for frame in reversed(stack):
        function = frame["function"] or ""
        for phase, names in _STACK_PHASES:
            if function.startswith(names):
                return phase
    return None


def trouble(launch: Launch, *, grave: bool) -> list[int]:
    """Return the lines that speak of a failure no rule understands: with them, silence is not health.

    With `grave`, only words that mean the end of a process; else any word of failure that is not known as harmless.
    """
    free = launch.records.filter(launch.lines["kind"].is_null() | (launch.lines["kind"] == "message"))
    message = pl.col("message")
    if grave:
        return free.filter(message.str.contains(_GRAVE))["line"].to_list()
    return free.filter(message.str.contains(_FAILURE) & ~message.str.contains(_HARMLESS))["line"].to_list()
