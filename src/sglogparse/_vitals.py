"""The numbers of a launch that a person wants first: when it failed, or how it is doing."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, cast

import polars as pl

from sglogparse._budget import pool_size
from sglogparse._launches import stamps
from sglogparse._ranks import rank_spread
from sglogparse._report import Severity
from sglogparse.ledger.ledger import implied_fraction, read_ledger

#: An implied fraction is said when it is known to this.
_SHARP = 0.004

if TYPE_CHECKING:
    from sglogparse._launches import Launch
    from sglogparse._report import Detail, Evidence, Finding


def vitals(
    launch: Launch,
    root: Evidence | None,
    findings: list[Finding],
    detail: Detail | None = None,
    stop: Evidence | None = None,
) -> list[str]:
    """Return when and where the first fault came; without one, how the server is doing, in three lines."""
    asked = [f"asked to stop at line {stop.line}: {stop.message.strip()}"] if stop else []
    return _when(launch, root, findings, detail) if root else [*_vitals(launch), *asked]


def _when(launch: Launch, root: Evidence, findings: list[Finding], detail: Detail | None) -> list[str]:
    faults = [one for one in findings if one.root is not None]
    ranks: tuple[str, ...] = max((one.ranks for one in faults), key=len, default=())
    time, clock = launch.stamps_at(root.line)
    stamp = time or clock
    # of a warning no process died
    grave = any(one.severity is Severity.ERROR for one in faults)
    text = f"{'first fault' if grave else 'first seen'}: line {root.line}"
    if stamp is not None:
        text += f", {stamp:%H:%M:%S}{_after(launch, time, 'in')}"
    if ranks:
        text += f"; rank{'s' if len(ranks) > 1 else ''} {rank_spread(ranks)}"
    return [text, *_raised(detail)]


def _raised(detail: Detail | None) -> list[str]:
    """Return where in the code the fault was raised, in a line; nothing when no stack tells."""
    where = detail and (detail.frame or detail.innermost)
    if not detail or not where:
        return []
    inner = f", in {detail.innermost}" if detail.frame and detail.innermost else ""
    return [f"raised at {where}{inner}"]


def _vitals(launch: Launch) -> list[str]:
    """Return the numbers that show how a server that serves is doing, in three lines at most."""
    out = []
    parts = (
        [f"{len(launch.ranks)} rank{'s' if len(launch.ranks) > 1 else ''} ({rank_spread(launch.ranks)})"]
        if launch.ranks
        else []
    )
    ready = launch.frames["ready"]
    if not ready.is_empty():
        parts.append(
            f"ready at line {ready['line'][0]}" + _after(launch, ready["time"][0], "after the first line")
        )
    if parts:
        out.append(", ".join(parts))
    memory = _memory(launch)
    if memory:
        out.append(memory)
    decode = launch.frames["decode_batch"]
    if not decode.is_empty():
        speed = cast("float | None", decode["gen_throughput"].median())
        usages = [cast("float | None", decode[name].max()) for name in ("token_usage", "full_token_usage")]
        usage = max((one for one in usages if one is not None), default=None)
        queue = cast("int | None", decode["queue_req"].max())
        own = pl.col("kind") == "decode_batch"
        more = launch.dropped(own)
        if launch.counts is not None:
            counted = launch.counts.filter(own)
            usage = cast("float | None", counted["max_usage"].max())
            queue = cast("int | None", counted["max_queue"].max())
        about = (
            f"about {speed:.0f}"
            if more and speed is not None
            else f"{speed:.1f}"
            if speed is not None
            else ""
        )
        number = decode.height + more
        out.append(
            f"{number} decode batch{'es' if number > 1 else ''}"
            + (f", median {about} tokens/s" if about else "")
            + (f", KV usage up to {usage:.2f}" if usage is not None else "")
            + (f", queue up to {queue}" if queue is not None else "")
        )
    return out


def _after(launch: Launch, time: dt.datetime | None, what: str) -> str:
    own = stamps(launch)
    if time is None or own is None or time <= own.printed:
        return ""
    return f", {span((time - own.printed).total_seconds())} {what}"


def span(seconds: float) -> str:
    """Return a duration as a person would say it.

    >>> span(86), span(4000)
    ('1 min 26 s', '1 h 06 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def _memory(launch: Launch) -> str:
    """Return the first rank's KV pool, and the fraction it implies where that is certain."""
    pools = launch.frames["kv_cache"].filter(pl.col("pool_state") == "is allocated")
    if pools.is_empty():
        capacity = launch.frames["capacity"]
        return f"KV capacity {capacity['max_total_num_tokens'][0]} tokens" if not capacity.is_empty() else ""
    if not launch.frames["swa_pool"].is_empty() or not launch.frames["swa_split"].is_empty():
        # of two pools neither one is the capacity
        capacity = launch.frames["capacity"]
        return f"KV capacity {capacity['max_total_num_tokens'][0]} tokens" if not capacity.is_empty() else ""
    row = launch.printed("kv_cache", [pools["line"][0]])[0]
    size = pool_size(row)
    text = "KV cache"
    if row.get("num_tokens"):
        text += f" {row['num_tokens']} tokens"
    if size is not None:
        text += f" = {size.text(2)} GiB a rank"
    fraction = _implied(launch)
    return f"{text}, which implies mem_fraction_static = {fraction}" if fraction else text


def _implied(launch: Launch) -> str | None:
    """Return the fraction that the pools imply, where it is sharp; with the declared one that cannot be."""
    found = implied_fraction(launch)
    if found is None or found.interval.high - found.interval.low > _SHARP:
        return None
    given, implied = launch.argument("mem_fraction_static"), found.interval.text(3)
    if not isinstance(given, float) or f"{given:.3f}" == implied:
        return implied
    # without a contradiction free memory drifted between two lines
    return f"{implied} ({given:g} given)" if read_ledger(launch).conflicts else None
