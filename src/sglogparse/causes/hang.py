"""Progress that stopped."""

from __future__ import annotations

from sglogparse.causes._base import NAMED, TOLD, Cause, Fact, Sign

CAUSES = (
    Cause(
        "hang.watchdog",
        "watchdog timeout",
        means="A scheduler, tokenizer or detokenizer made no progress for longer than --watchdog-timeout: a "
        "forward pass, a collective or a transfer is stuck.",
        differs="The watchdog of a process group names a collective: dist.collective_timeout. A health check "
        "that fails while no watchdog fired is hang.health_check. An exception that came first is the cause.",
        change="find the rank that stopped first: its stack is in the dump beside the watchdog's line, where "
        "one was made; --watchdog-timeout only changes how long it waits",
        issues=(3752, 5862),
        signs=(
            Sign(
                NAMED,
                (
                    "watchdog timeout (",
                    "self.watchdog_timeout=",
                    "scheduler watchdog",
                    "watchdog thread detected",
                    "watchdog fired",
                    "soft watchdog",
                ),
                unless=("collective", "watchdog caught", "set to"),
            ),
            Sign(TOLD, pattern=r"(?i)\bforward (?:pass )?(?:is |got )?stuck|no progress for [0-9]+"),
        ),
        facts=(Fact(r"watchdog_timeout=(?P<limit>[0-9.]+)", "its limit is {limit} s"),),
    ),
    Cause(
        "hang.health_check",
        "health check fails",
        means="The HTTP process lives, but no token came back from the scheduler or the detokenizer in time.",
        differs="A check that never reaches the server is env.proxy. When a process died first, the check "
        "only "
        "shows it.",
        change="look what the scheduler did at the last heartbeat: its last batch, its queue, the ranks that "
        "stopped",
        issues=(10856, 26482),
        signs=(
            Sign(
                NAMED,
                (
                    "health check failed",
                    "couldn't get a response from detokenizer",
                    "health_generate failed",
                    "server couldn't get a response",
                    "/health_generate timed out",
                    "scheduler is not responding",
                ),
            ),
            Sign(TOLD, ("/health_generate", "/health"), pattern=r"(?i)read timed out|ReadTimeout"),
        ),
        facts=(Fact(r"for last (?P<waited>[0-9.]+) seconds", "no answer for {waited} s"),),
    ),
)
