"""Requests that failed in the server."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sglogparse._faults import faults, stopped_at
from sglogparse._launches import Launch
from sglogparse._report import Finding, Severity


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
    codes = ", ".join(map(str, failed["status"].unique().sort()))
    yield Finding(
        Severity.WARNING,
        f"{failed.height} of {access.height} request{'s' if access.height > 1 else ''} failed in the server "
        f"(status {codes}), the first to {failed['path'][0]}.",
        launch.evidences([int(failed["line"][0]), int(failed["line"][-1])]),
        fix="read the lines before the first one: the access log does not say why",
        root=launch.evidence(int(failed["line"][0])),
        fatal=False,
    )
