"""Processes that end without an exception."""

from __future__ import annotations

from sglogparse.causes._base import HINT, REST, TOLD, Cause, Fact, Sign

CAUSES = (
    Cause(
        "process.segfault",
        "native crash",
        means="Native code ended the process (SIGSEGV, SIGABRT, SIGILL, SIGFPE), and no line names why.",
        differs="When the native code prints an error first (an illegal access, an NCCL error), that is the "
        "cause.",
        change="look in the native stack for the library that failed; a core dump (`ulimit -c unlimited`) "
        "tells "
        "more",
        signs=(
            Sign(
                HINT + 10,
                (
                    "segmentation fault",
                    "segfault encountered",
                    "caught signal 11",
                    "caught signal",
                    "fatal python error: segmentation",
                    "fatal python error: illegal instruction",
                    "fatal python error: floating point",
                    "fatal python error: aborted",
                    "sigsegv",
                    "sigill",
                    "sigfpe",
                    "exit code -11",
                    "exit code -6",
                    "exitcode=139",
                    "exitcode=134",
                    "double free or corruption",
                    "free(): invalid",
                    "malloc(): ",
                    "corrupted size vs. prev_size",
                    "stack smashing detected",
                    "corrupted double-linked list",
                    "munmap_chunk(): invalid",
                    "illegal instruction",
                    "general protection fault",
                    "pure virtual method called",
                    "segfault at",
                ),
                unless=("cannot allocate",),
            ),
            Sign(
                REST + 5,
                ("fatal python error", "terminate called", "core dumped", "sigabrt", "std::terminate"),
            ),
            Sign(HINT, types=("PanicException",)),
            Sign(HINT, pattern=r"thread '[^']*' panicked at"),
        ),
        facts=(Fact(r"in (?P<lib>lib[\w.+-]+\.so[\w.]*)\[", "it was in {lib}"),),
    ),
    Cause(
        "process.killed",
        "a child died, no reason shown",
        means="The parent says that a child ended, and the log does not hold the child's own last words.",
        differs="Any exception, native stack or signal of the child is the cause instead. Exit code -9 or "
        "137 "
        "with nothing else is memory.host.",
        change="look for the first exception in the logs of the ranks and child processes, and in `dmesg`",
        signs=(
            Sign(
                TOLD,
                (
                    "sigquit from a child process",
                    "sigquit received",
                    "exit code -3",
                    "scheduler died during initialization",
                    "scheduler is dead",
                    "initialization failed. please see the error messages above",
                    "child process unexpectedly failed",
                    "actordiederror",
                    "rayactorerror",
                    "the actor died",
                    "worker died",
                    "worker process died",
                    "brokenprocesspool",
                    "terminated abruptly",
                    "process died unexpectedly",
                    "subprocess died",
                    "died unexpectedly",
                    "detokenizer is dead",
                    "server process exited",
                ),
            ),
            Sign(
                TOLD,
                pattern=r"(?i)rank [0-9]+ scheduler (?:is dead|died)"
                r"|Subprocess \S+ \(pid=[0-9]+\) (?:crashed|died)",
            ),
            Sign(HINT, pattern=r"^EOFError:?\s*$"),
            Sign(
                HINT,
                types=(
                    "ActorDiedError",
                    "ChildProcessError",
                    "ProcessExitedException",
                    "ProcessRaisedException",
                ),
            ),
        ),
        facts=(Fact(r"exit ?code[ =:]+(?P<code>-?[0-9]+)", "the exit code is {code}"),),
    ),
)
