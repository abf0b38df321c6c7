"""The role of a fault line: what began a failure, and what only repeats it.

A process that dies takes others with it, and each of them prints. Two tables say which lines do not begin a
failure, and why: one for exceptions (`type: message`), one for the innermost function of a stack whose
exception is cut off. Everything else that ends a process is a candidate for the first fault.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

from sglogparse._cheap import dataclass, lazy


class Role(StrEnum):
    """What a fault line is in the story."""

    #: it may be the first fault
    ROOT = "root candidate"
    #: another process's fault explains it
    ECHO = "echo"
    #: somebody asked for it
    TEARDOWN = "teardown"
    #: it says once more that there was a fault, by the process that had it
    CONFIRMATION = "confirmation"
    #: it says what to try
    ADVICE = "advice"


@dataclass(frozen=True)
class Echo:
    """A text that does not begin a failure, with the reason, and lines that hold it to that."""

    pattern: re.Pattern[str]
    role: Role
    why: str
    #: texts that it must match
    says: tuple[str, ...]
    #: texts near to it that it must not match
    not_these: tuple[str, ...]


def _echo(pattern: str, role: Role, why: str, says: Sequence[str], not_these: Sequence[str]) -> Echo:
    return Echo(lazy(pattern), role, why, tuple(says), tuple(not_these))


#: Exception texts and lines that are not the first fault.
ECHOES: tuple[Echo, ...] = (
    _echo(
        r"Connection closed by peer|Connection reset by peer|\bBroken pipe\b",
        Role.ECHO,
        "the peer process is gone",
        [
            "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:4711",
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection reset by peer",
            "BrokenPipeError: [Errno 32] Broken pipe",
        ],
        [
            "requests.exceptions.ConnectionError: Connection refused",
            "RuntimeError: Connection timed out",
        ],
    ),
    _echo(
        r"gloo/transport/tcp/pair.*Read error",
        Role.ECHO,
        "the peer cannot be reached",
        ["RuntimeError: [gloo/transport/tcp/pair.cc:589] Read error [10.0.0.2]:4711: No route to host"],
        ["RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv"],
    ),
    _echo(
        r"Aborted by AbortReq",
        Role.ECHO,
        "the request was aborted elsewhere",
        ["KVTransferError: KVTransferError(bootstrap_room=7): Aborted by AbortReq."],
        ["KVTransferError: KVTransferError(bootstrap_room=7): Failed to send kv chunk"],
    ),
    _echo(
        r"unknown reason from another rank",
        Role.ECHO,
        "another rank failed",
        ["KVTransferError(bootstrap_room=7): Failed due to an unknown reason from another rank"],
        ["RuntimeError: unknown reason"],
    ),
    _echo(
        r"NCCL communicator was aborted|ncclCommAbort|remote process exited or there was a network error",
        Role.ECHO,
        "another rank aborted the group",
        [
            "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3.",
            "RuntimeError: NCCL error: remote process exited or there was a network error",
        ],
        ["torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1, unhandled cuda error"],
    ),
    _echo(
        r"Failed to recv, got 0 bytes|recvValue failed|sendBytes failed|failed to check the .should dump",
        Role.ECHO,
        "the process that holds the store is gone",
        [
            "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.",
            "[rank1]:[W1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=80): Connection reset",
        ],
        ["torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients."],
    ),
    _echo(
        r"^EOFError\b",
        Role.ECHO,
        "the child ended before it answered",
        ["EOFError", "EOFError: "],
        ["ValueError: EOFError is not expected here"],
    ),
    _echo(
        r"Initialization failed\. Please see the error messages above",
        Role.ECHO,
        "a child failed to start",
        ["RuntimeError: Initialization failed. Please see the error messages above."],
        ["RuntimeError: Initialization failed: no device"],
    ),
    _echo(
        r"[Ss]cheduler died during initialization|Rank [0-9]+ scheduler (?:is dead|died)"
        r"|(?:worker|child|sub-?process|scheduler)(?: process)?(?:es)? (?:has |have )?(?:died|terminated) "
        r"(?:unexpectedly|with exit code)",
        Role.ECHO,
        "a child died",
        [
            "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9).",
            "Rank 0 scheduler is dead. Please check if there are relevant logs.",
            "RuntimeError: Scheduler died during initialization",
        ],
        ["RuntimeError: the scheduler has no free slot"],
    ),
    _echo(
        r"Engine core initialization failed|BrokenProcessPool|ActorDiedError|The actor (?:is dead|died)",
        Role.ECHO,
        "a worker of another program died",
        [
            "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
            "concurrent.futures.process.BrokenProcessPool: A process in the pool was terminated",
        ],
        ["ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."],
    ),
    _echo(
        r"^KeyboardInterrupt\b",
        Role.TEARDOWN,
        "somebody pressed Ctrl+C",
        ["KeyboardInterrupt", "KeyboardInterrupt: "],
        ["ValueError: KeyboardInterrupt"],
    ),
    _echo(
        r"^SystemExit\b",
        Role.TEARDOWN,
        "the process was asked to end",
        ["SystemExit: 0"],
        ["RuntimeError: SystemExit"],
    ),
    _echo(
        r"^(?:asyncio\.)?(?:exceptions\.)?CancelledError\b",
        Role.TEARDOWN,
        "a task was cancelled",
        ["asyncio.exceptions.CancelledError", "CancelledError: stopped"],
        ["RuntimeError: CancelledError"],
    ),
    _echo(
        r"Request is disconnected from the client side",
        Role.TEARDOWN,
        "a client went away",
        ["ValueError: Request is disconnected from the client side (type 1). Abort request obj.rid='5f0c'"],
        ["ConnectionError: disconnected from the master"],
    ),
    _echo(
        r"resource_tracker: There appear to be [0-9]+ leaked|destroy_process_group\(\) was not called"
        r"|process group has NOT been destroyed",
        Role.TEARDOWN,
        "a process ended without tidying up",
        [
            "resource_tracker: There appear to be 2 leaked semaphore objects to clean up at shutdown",
            "Warning: WARNING: destroy_process_group() was not called before program exit",
        ],
        ["ValueError: token_to_kv_pool_allocator memory leak detected!"],
    ),
    _echo(
        r"To avoid data inconsistency, we are taking the entire process down"
        r"|Some (?:NCCL|XCCL) operations have failed or timed out"
        r"|Received sigquit from a child process|SIGQUIT received\. signum="
        r"|Sleeping [0-9.]+ seconds before crash diagnostics"
        r"|^Fatal Python error: Aborted$|^Aborted(?: \(core dumped\))?$",
        Role.CONFIRMATION,
        "a process says that it ends because of what came before",
        [
            "To avoid data inconsistency, we are taking the entire process down.",
            "Received sigquit from a child process. It usually means the child failed.",
            "SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
            "Fatal Python error: Aborted",
        ],
        [
            "Fatal Python error: Segmentation fault",
            "[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE)",
        ],
    ),
    _echo(
        r"^Possible solutions:|^[0-9]\. (?:set|disable|lower|increase) --|Open an issue on GitHub https"
        r"|For debugging consider passing CUDA_LAUNCH_BLOCKING|Compile with `TORCH_USE_CUDA_DSA`"
        r"|CUDA kernel errors might be asynchronously reported|To work around this error, add --"
        r"|is enabled by default as an experimental feature|Please report this issue at https"
        r"|^Please check if there are relevant logs",
        Role.ADVICE,
        "it says what to try, whatever went wrong",
        [
            "Possible solutions:",
            "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
            "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
            "To work around this error, add --disable-piecewise-cuda-graph to your launch command.",
        ],
        [
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
            "Exception: Capture cuda graph failed: CUDA out of memory.\nPossible solutions:\n"
            "1. set --mem-fraction-static to a smaller value\nOpen an issue on GitHub https://github.com/x",
        ],
    ),
)


@dataclass(frozen=True)
class Waiting:
    """A function that only waits for other processes, or tidies up after them."""

    names: frozenset[str]
    role: Role
    why: str


#: Functions of SGLang: a stack without an exception that has one of them innermost is no first fault.
WAITING: tuple[Waiting, ...] = (
    Waiting(
        frozenset(
            {
                "sigquit_handler",
                "launch_phase_sigquit_handler",
                "running_phase_sigquit_handler",
                "kill_process_tree",
            }
        ),
        Role.ECHO,
        "the parent's own handler of a child's end",
    ),
    Waiting(
        frozenset(
            {
                "_wait_for_scheduler_ready",
                "wait_for_ready",
                "_launch_subprocesses",
                "_launch_scheduler_processes",
                "_start_local_server_if_needed",
                "launch_server_from_args",
                "wait_for_server",
            }
        ),
        Role.ECHO,
        "the parent waited for a child that did not come up",
    ),
    Waiting(
        frozenset({"sigterm_handler", "sigterm_watchdog", "_handle_sigterm"}),
        Role.TEARDOWN,
        "the handler of a signal that asks for the end",
    ),
)


#: A call in a line of code.
_CALL = lazy(r"([A-Za-z_][A-Za-z0-9_]*)\(")


def role_of(exception: str) -> tuple[Role, str]:
    """Return the role of an exception (`type: message`), and why."""
    head = exception.partition("\n")[0]
    for echo in ECHOES:
        # many an exception ends with advice, and says before that what went wrong
        text = head if echo.role in (Role.ADVICE, Role.CONFIRMATION) else exception
        if echo.pattern.search(text):
            return echo.role, echo.why
    return Role.ROOT, "nothing in the log explains it"


def role_of_stack(functions: Sequence[str | None], code: str | None = None) -> tuple[Role, str]:
    """Return the role of a stack whose exception is cut off, by SGLang's functions, outermost first.

    `code` is the source text of the innermost frame: the function that it calls can be the one that waits.
    """
    inner = [*functions[-1:], *_CALL.findall(code or "")]
    for waiting in WAITING:
        if waiting.names.intersection(filter(None, inner)):
            return waiting.role, waiting.why
    return Role.ROOT, "its exception is cut off"
