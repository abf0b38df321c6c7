"""A server whose own requests go to an HTTP proxy."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sglogparse._derived import Whole, telling
from sglogparse._launches import Launch, first_line
from sglogparse._report import Finding, Severity

#: A request to a proxy has the whole address in it; urllib3 prints `proxy "GET http://server/path" 403`.
_PROXIED = (
    r"(?P<proxy>https?://[^ \"]+) \"(?:GET|POST) (?P<url>https?://[^ \"]*"
    r"/(?:get_model_info|model_info|health|health_generate|generate|v1/[a-z/]+))[^\"]*\" "
    r"(?P<code>[45][0-9][0-9])\b"
)


def warmup_proxied(launch: Launch) -> Iterator[Finding]:
    """Report requests of the server to itself that an HTTP proxy has answered.

    What it finds:
        Debug records of urllib3 in which a request for the server's own address went to another host and was
        answered with an error.

    Why it matters:
        The server asks itself whether it is up. A proxy that the environment names takes that request and
        refuses it, so the server never becomes ready, or ends.

    Evidence:
        The first and the last of these records, with the proxy and its answer.

    Does not match:
        Requests that go straight to a server, and proxied ones that succeed.

    What to do:
        Unset http_proxy and https_proxy for the server, or name its address in no_proxy.
    """
    found = _asked(launch)
    if found.is_empty():
        return
    first = found.row(0, named=True)
    ready = first_line(launch.frames["ready"])
    times = f"{found.height} times" if found.height > 1 else "once"
    yield Finding(
        Severity.WARNING if ready is not None else Severity.ERROR,
        f"The proxy {first['proxy']} answered {times} what the server asked of itself ({first['url']}): "
        f"status {first['code']}.",
        launch.evidences([int(found["line"][0]), int(found["line"][-1])]),
        cause="env.proxy",
        fix="unset http_proxy and https_proxy for the server, or put its address into no_proxy",
        root=launch.evidence(int(first["line"])),
        fatal=False,
        weight=1,
    )


@telling
def _asked(whole: Whole) -> pl.DataFrame:
    """Return what a proxy answered: its line, its address, that of the request, and the status."""
    asked = whole.records["message"].str.contains_any(['"GET http', '"POST http']).arg_true()
    lines = whole.records.select("line", "message")[asked].with_columns(asked.alias("row"))
    found = lines.select("row", "line", said=pl.col("message").str.extract_groups(_PROXIED))
    return found.unnest("said").drop_nulls("code")
