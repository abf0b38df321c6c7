"""Requests that failed in the server."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sglogparse._faults import faults, stopped_at
from sglogparse._launches import Launch
from sglogparse._report import Finding, Severity

#: So many failures, of all requests or one behind the other, are more than one client's trouble.
_SHARE = 0.25
_IN_A_ROW = 3
#: Where the HTTP process answers requests.
_HTTP_CODE = "uvicorn/protocols/http"


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
    asked = stopped_at(launch) or launch.last_line + 1
    access = launch.frames["http_access"].filter((pl.col("method") == "POST") & (pl.col("line") < asked))
    failed = access.filter(pl.col("status") >= 500)
    if failed.is_empty() or faults(launch):
        return
    last_good = access.filter(pl.col("status") < 300)["line"].max()
    since = failed.filter(pl.col("line") > (last_good or 0)).height
    odd = failed.height >= _SHARE * access.height or since >= _IN_A_ROW
    told = _explained(launch)
    open_ = odd and told < failed.height
    codes = ", ".join(map(str, failed["status"].unique().sort()))
    yield Finding(
        Severity.WARNING if open_ else Severity.INFO,
        f"{failed.height} of {access.height} request{'s' if access.height > 1 else ''} failed in the server "
        f"(status {codes}), the first to {failed['path'][0]}"
        + (f"; {told} exception{'s' if told > 1 else ''} of the HTTP process: the reason" if told else "")
        + ".",
        launch.evidences([int(failed["line"][0]), int(failed["line"][-1])]),
        fix="read the lines before the first one: the access log does not say why",
        root=launch.evidence(int(failed["line"][0])),
        fatal=False,
    )


def _explained(launch: Launch) -> int:
    """Return how many exceptions of the HTTP process are shown to their end."""
    frame = launch.frames["traceback"].filter(pl.col("exception").is_not_null())
    paths = pl.col("stack").list.eval(
        pl.element().struct.field("path").str.contains(_HTTP_CODE, literal=True)
    )
    return frame.filter(paths.list.any()).height
