"""What a router (SGLang's gateway) says of itself and of the servers behind it.

A router has no ranks and no batches: its lines are judged by what it did with requests.
"""

from __future__ import annotations

import polars as pl

from sglogparse._derived import Whole, telling
from sglogparse._launches import Launch, first_line

#: A router's own words (Rust's tracing; older releases print the same through Python).
_STARTS = r"(?i:starting router|router mode|initializing (?:router|workers|worker job)|router starting)"
_READY = r"Router ready \||Starting server on |Server is ready|status_code=2[0-9][0-9]\b"
_STOPS = r"starting graceful shutdown|Received (?:Ctrl\+C|SIGTERM|SIGINT)"
#: What a request's failure, and a server that does not answer, are called.
_FAILED = (
    r"No (?:available|healthy) (?:[a-z]+ )?workers|Failed to select PD pair|no_available_workers"
    r"|\bstatus_code=50[0-9]\b|Retry limit|retry limit|Failed to forward|Stream error from"
)
_UNWELL = (
    r"[Hh]ealth check failed for|marked (?:as )?unhealthy|[Cc]ircuit breaker.*(?:[Oo]pen|OPEN)"
    r"|Removing (?:failed|unhealthy) (?:worker|url|server)|Failed to (?:register|activate|add) worker"
)
_FINE = r"\bstatus_code=2[0-9][0-9]\b"


@telling
def router_lines(whole: Whole) -> pl.DataFrame:
    """Return the lines of a router: `line`, `message`, and what each tells (columns of booleans)."""
    own = whole.frames["foreign"].filter(pl.col("family") == "router")
    message = pl.col("message")
    return own.select(
        whole.rows_of(own),
        "line",
        "message",
        starts=message.str.contains(_STARTS),
        ready=message.str.contains(_READY),
        stops=message.str.contains(_STOPS),
        failed=message.str.contains(_FAILED),
        unwell=message.str.contains(_UNWELL),
        fine=message.str.contains(_FINE),
    )


def router_ready(launch: Launch) -> int | None:
    """Return the first line by which a router says that it takes requests, or has answered one."""
    return first_line(router_lines(launch).filter("ready"))


def router_starts(launch: Launch) -> int | None:
    """Return the first line by which a router says that it starts."""
    return first_line(router_lines(launch).filter("starts"))


def router_stops(launch: Launch) -> int | None:
    """Return the first line by which a router says that it was asked to stop, and serves nothing since."""
    lines = router_lines(launch)
    if lines.is_empty():
        return None
    fine = lines.filter("fine")["line"].max()
    return first_line(lines.filter(pl.col("stops") & (pl.col("line") > (fine or 0))))


def router_serves(launch: Launch) -> bool:
    """Tell whether a router takes requests, answered or not."""
    lines = router_lines(launch)
    return (
        not lines.is_empty()
        and lines["message"].str.contains("started processing request|http_request").any()
    )
