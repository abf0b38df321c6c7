"""Errors of the devices and libraries that carry KV caches between servers."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from sglogparse._cheap import lazy
from sglogparse._derived import Whole, telling
from sglogparse._faults import faults
from sglogparse._launches import Launch, serves_again
from sglogparse._report import Finding, Severity

#: How Mooncake's transfer engine (glog, level E), NIXL and UCX say that a transfer, or what it needs, failed.
_ERRORS = (
    r"Process failed for slice|mark it inactive|Context is not active|Device [0-9]+ is not active"
    r"|Failed to (?:modify QP|create QP|register memory|complete transfers|set up connection)"
    r"|transport retry counter exceeded|local protection error|remote access error|remote operation error"
    r"|Failed to get segment desc|Transfer (?:engine )?(?:timed out|failed)|\bNIXL_ERR_[A-Z_]+"
    r"|nixlRemoteDisconnect|Sync batch data transfer timeout"
)
#: A device, or a peer, that an error names.
_DEVICE = lazy(r"(?:local_nic: |local RNIC [0-9.:]+@|not active: )([A-Za-z0-9_]+)")
_PEER = lazy(r"peer_nic: ([0-9A-Za-z.:_-]+@[A-Za-z0-9_]+)")
_REASON = lazy(r"retry_cnt: [0-9]+\): *([a-z][a-z ]+)|(NIXL_ERR_[A-Z_]+)")
_FAMILIES = ("mooncake", "nixl", "ucx", "rdma")


@telling
def _errors(whole: Whole) -> pl.DataFrame:
    own = whole.frames["foreign"].filter(pl.col("family").cast(pl.String).is_in(_FAMILIES))
    own = own.select("line", "message").with_columns(whole.rows_of(own))
    rows = whole.lines["kind"].is_null().arg_true()
    cut = whole.records.select("line", "message")[rows].with_columns(rows.alias("row"))
    # the tail of a record of Mooncake, whose beginning a cut has taken
    tail = cut.filter(pl.col("message").str.contains("peer_nic: .* dest_rkey: [0-9]+, retry_cnt: "))
    return pl.concat([own.filter(pl.col("message").str.contains(_ERRORS)), tail]).sort("row")


def transfer_devices_failed(launch: Launch) -> Iterator[Finding]:
    """Report errors of the library that carries KV caches: Mooncake, NIXL, UCX.

    What it finds:
        Error records of Mooncake ("Worker: Process failed for slice", "mark it inactive", "Context is not
        active"), NIXL (NIXL_ERR_...) and UCX.

    Why it matters:
        They come before "Prefill transfer failed" and name the device, the peer and the reason, which
        SGLang's own lines do not. A device that is marked inactive stays so.

    Evidence:
        The first error, the last one, and how many there are; the devices, peers and reasons they name.

    Does not match:
        Information and warnings of these libraries at a start. Launches in which a process died: there the
        errors follow.

    What to do:
        See the link and the counters of the device (`ibstat`, `rdma statistic`), whether the peer lives, and
        whether both sides use the same fabric (--disaggregation-ib-device).
    """
    found = _errors(launch)
    if found.is_empty() or any(one.line < int(found["line"][0]) for one in faults(launch)):
        return
    text = "\n".join(found["message"])
    devices, peers = (list(dict.fromkeys(pattern.findall(text))) for pattern in (_DEVICE, _PEER))
    reasons = list(dict.fromkeys((one or two).strip() for one, two in _REASON.findall(text)))
    last = int(found["line"][-1])
    goes_on = serves_again(launch, last)
    told = [
        f"{name} {', '.join(values)}"
        for name, values in (("reason", reasons), ("device", devices), ("peer", peers))
        if values
    ]
    yield Finding(
        Severity.WARNING if goes_on else Severity.ERROR,
        f"{found.height} error{'s' if found.height > 1 else ''} of the KV transfer library"
        + (f": {'; '.join(told)}" if told else "")
        + ".",
        launch.evidences([int(found["line"][0]), last]),
        cause="pd.transfer",
        fix="see link and counters of the device (`ibstat`), whether the peer lives, and "
        "--disaggregation-ib-device on both sides",
        root=launch.evidence(int(found["line"][0])),
        fatal=False,
        weight=1,
    )
