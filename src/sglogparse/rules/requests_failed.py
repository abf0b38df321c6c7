"""Requests that failed in the server."""

from __future__ import annotations

import re
from collections.abc import Iterator

import polars as pl

from sglogparse._condense import HTTP, in_http
from sglogparse._faults import faults, stopped_at
from sglogparse._launches import Launch, most
from sglogparse._report import Finding, Severity

#: So many failures, of all requests or one behind the other, are more than one client's trouble.
_SHARE = 0.25
_IN_A_ROW = 3
#: The least status of a request that failed in the server.
_FAILED = 500
#: Where it asks other servers.
_CLIENT = "aiohttp/|httpx/|uvicorn/protocols/http"


def requests_failed(launch: Launch) -> Iterator[Finding]:
    """Report requests that the server answered with an error of its own (5xx).

    What it finds:
        POST requests in the access log with a status of 500 or above, and how many were answered otherwise.

    Why it matters:
        The server lives on, but a request that it took has failed within it: an exception in the HTTP
        process, a scheduler that aborted it, a peer that is gone. The access log does not say which.

    Evidence:
        The first and the last failed request.

    Does not match:
        Failures that are few, or of which an exception of the HTTP process says why: those are information.
        Health checks (GET) that fail while the server starts, requests that were refused as invalid (4xx),
        failures after a process died or after the server was asked to stop.

    What to do:
        Read the lines before the first one: an exception in the ASGI application, or an abort.
    """
    if (most(launch.frames["http_access"], "status") or 0.0) < _FAILED:
        return
    asked = stopped_at(launch) or launch.last_line + 1
    lost = _refused(launch)
    # that a health check fails while a server starts is no news, unless a server behind it is gone
    counted = pl.lit(True) if lost else pl.col("method") == "POST"
    access = launch.frames["http_access"].filter(counted & (pl.col("line") < asked))
    failed = access.filter(pl.col("status") >= _FAILED)
    if failed.is_empty() or faults(launch):
        return
    last_good = access.filter(pl.col("status") < 300)["line"].max()
    since = failed.filter(pl.col("line") > (last_good or 0)).height
    mine = pl.col("method").is_not_null() & (pl.lit(True) if lost else pl.col("method") == "POST")
    number = failed.height + launch.dropped(mine & (pl.col("status") >= 500))
    whole = access.height + launch.dropped(mine)
    odd = number >= _SHARE * whole or since >= _IN_A_ROW
    told = _explained(launch)
    open_ = odd and told < number
    codes = ", ".join(map(str, failed["status"].unique().sort()))
    yield Finding(
        Severity.ERROR if lost and since else Severity.WARNING if open_ or lost else Severity.INFO,
        f"{number} of {whole} request{'s' if whole > 1 else ''} failed in the server "
        f"(status {codes}), the first to {failed['path'][0]}"
        + (f": a server behind this one does not answer, {lost[1]}" if lost else "")
        + (_why(told) if told and not lost else "")
        + ".",
        launch.evidences([int(failed["line"][0]), int(failed["line"][-1])]),
        fix="see why the server behind this one is gone: its own log has the fault"
        if lost
        else "read the lines before the first one: the access log does not say why",
        cause="dist.peer_lost" if lost else None,
        root=launch.evidence(lost[0] if lost else int(failed["line"][0])),
        fatal=False,
    )


def _why(told: int) -> str:
    return f"; {told} exception{'s' if told > 1 else ''} of the HTTP process say{'' if told > 1 else 's'} why"


def _explained(launch: Launch) -> int:
    """Return how many exceptions of the HTTP process are shown to their end."""
    shown = launch.frames["traceback"].filter(pl.col("exception").is_not_null() & in_http(pl.col("stack")))
    return shown.height + launch.dropped(pl.col("detail").str.ends_with(HTTP))


#: How the client of another server says that it does not answer.
_UNREACHABLE = r"Connect call failed|Cannot connect to host|Connection refused|Server disconnected"


def _refused(launch: Launch) -> tuple[int, str] | None:
    """Return the line and the text by which the HTTP process says first that a server behind it is gone."""
    frame = launch.frames["traceback"].filter(
        pl.col("exceptions").list.join("\n").str.contains(_UNREACHABLE)
        & pl.col("stack").list.eval(pl.element().struct.field("path").str.contains(_CLIENT)).list.any()
    )
    if frame.is_empty():
        return None
    row = frame.row(0, named=True)
    said = next(text for text in row["exceptions"] if re.search(_UNREACHABLE, text))
    return row["exception_line"] or row["line"], said.partition("\n")[0]
