"""A router that finds no server for its requests."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sglogparse._cheap import lazy
from sglogparse._launches import Launch
from sglogparse._report import Finding, Severity
from sglogparse._router import router_lines

#: The address of a server in what a router says of it.
_SERVER = lazy(r"https?://[0-9A-Za-z.:_\[\]-]+")


def router_without_workers(launch: Launch) -> Iterator[Finding]:
    """Report requests that a router could not pass on.

    What it finds:
        "No available decode workers", "Failed to select PD pair", answers with status 50x, and streams that
        broke, in the log of the router (gateway); with them the health checks that failed before.

    Why it matters:
        The router lives on and refuses: a server behind it does not answer any more, or was never reached.
        What happened to that server stands in its own log.

    Evidence:
        The first health check that failed (or the first refused request), and the first and last refused
        request; the addresses of the servers.

    Does not match:
        Health checks that fail while the servers start, as long as no request is refused.

    What to do:
        Look in the log of the server that the first failed health check names, at that time.
    """
    lines = router_lines(launch)
    failed = lines.filter("failed")
    if failed.is_empty():
        return
    last = int(failed["line"][-1])
    fine = lines.filter("fine")["line"].max()
    goes_on = isinstance(fine, int) and fine > last
    begun = int(failed["line"][0])
    unwell = _unwell(lines.filter(pl.col("unwell") & (pl.col("line") < begun)))
    first = int(unwell["line"][0]) if not unwell.is_empty() else begun
    shown = [first, begun, last]
    said = " ".join(one.message for one in launch.evidences([first]))
    servers = list(dict.fromkeys(_SERVER.findall(said)))
    checks = (
        f" after {unwell.height} failed health check{'s' if unwell.height > 1 else ''}"
        if unwell.height
        else ""
    )
    named = (
        f" of {', '.join(servers)}" if servers and checks else f" ({', '.join(servers)})" if servers else ""
    )
    yield Finding(
        Severity.WARNING if goes_on else Severity.ERROR,
        f"The router refused {failed.height} time{'s' if failed.height > 1 else ''} to pass a request on"
        f"{checks}{named}{'' if goes_on else ', and the log shows none answered since'}.",
        launch.evidences(shown),
        cause="pd.bootstrap",
        fix="look in the log of the server that does not answer, at the time of the first failed check",
        root=launch.evidence(first),
        fatal=False,
    )


def _unwell(lines: pl.DataFrame) -> pl.DataFrame:
    """Return what was said of the server that was last called unwell, or all where none is named."""
    if lines.is_empty():
        return lines
    named = _SERVER.findall(lines["message"][-1])
    return lines.filter(pl.col("message").str.contains(named[0], literal=True)) if named else lines
