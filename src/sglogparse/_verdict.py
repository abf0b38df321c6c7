"""From findings to a verdict: outcome, cause, first fault, what to change, and what the log cannot show.

launches --> rules --> per launch: outcome + cause + root --> over all launches: the one that counts
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, cast

import polars as pl

from sglogparse._budget import implied_fraction, pool_size
from sglogparse._faults import stopped_at, trouble
from sglogparse._launches import STANDS, Launch, rank_spread, read_launches
from sglogparse._release import version_window
from sglogparse._report import Diagnosis, Evidence, FileReport, Finding, LaunchReport, Outcome, Severity
from sglogparse.rules import RULES

if TYPE_CHECKING:
    from sglogparse._log import Log

#: Causes in a few words.
CAUSE_TITLES = {
    "none": "no fault",
    "memory.kv_budget": "KV budget negative",
    "memory.weights": "out of device memory while loading",
    "memory.graph_capture": "out of device memory in graph capture",
    "memory.runtime": "out of device memory while serving",
    "memory.host": "out of host memory",
    "memory.imbalance": "unbalanced device memory",
    "memory.leak": "token pool leak",
    "kv.pool_exhausted": "KV pool exhausted",
    "dist.init": "distributed set-up failed",
    "dist.collective_timeout": "a collective timed out",
    "dist.peer_lost": "connection to a peer lost",
    "dist.kernel_comm": "communication kernel failed",
    "hang.watchdog": "watchdog timeout",
    "hang.health_check": "health check fails",
    "gpu.illegal_access": "illegal memory access",
    "gpu.device_assert": "device-side assert",
    "gpu.unsupported_arch": "no kernel for this GPU",
    "gpu.driver": "driver or device not usable",
    "gpu.kernel_fault": "kernel launch failed",
    "kernel.jit_compile": "a kernel did not compile",
    "env.missing_dependency": "missing dependency",
    "env.version_mismatch": "wrong version of a dependency",
    "env.port_in_use": "port in use",
    "env.proxy": "HTTP proxy in the way",
    "env.filesystem": "file system",
    "model.not_found": "model not found",
    "model.unsupported": "model not supported",
    "model.weights_mismatch": "checkpoint does not fit the model",
    "model.config": "bad model configuration",
    "config.invalid_argument": "invalid argument",
    "config.incompatible_flags": "flags that do not go together",
    "pd.transfer": "KV transfer failed",
    "pd.bootstrap": "PD bootstrap failed",
    "process.segfault": "native crash",
    "process.killed": "a child died, no reason shown",
    "code.assertion": "exception in server code",
    "request.invalid": "invalid request",
    "perf.degraded": "degraded performance",
    "unknown": "undecided",
}
#: Which outcome of several files speaks for all of them.
_PRECEDENCE = (
    Outcome.CRASHED,
    Outcome.HUNG,
    Outcome.STARTING,
    Outcome.UNKNOWN,
    Outcome.STOPPED,
    Outcome.READY,
)


def diagnose(log: Log) -> Diagnosis:
    """Judge a log."""
    launches = read_launches(log)
    reports = [_judge(launch) for launch in launches]
    counts = dict(log.unparsed.group_by("file").len().iter_rows())
    files = tuple(
        FileReport(one.path, one.lines, one.bytes, counts.get(index, 0), one.replaced_bytes, one.notes)
        for index, one in enumerate(log.files)
    )
    limits = tuple(dict.fromkeys(limit for launch in launches for limit in _limits(launch)))
    return Diagnosis(files, tuple(reports), _chief(reports) if reports else None, limits)


#: Below this many lines a log without its beginning is an excerpt.
_FEW_LINES = 20


def _chief(reports: list[LaunchReport]) -> LaunchReport:
    """Return the launch that speaks for the log: of each file the last one, of the files the worst."""
    last = {report.file: report for report in reports}
    return min(last.values(), key=lambda report: _PRECEDENCE.index(report.outcome))


def _judge(launch: Launch) -> LaunchReport:
    order = {rule.code: index for index, rule in enumerate(RULES)}
    findings = sorted(
        (finding for rule in RULES for finding in rule(launch)),
        key=lambda one: (one.severity.rank, -one.weight, order[one.code]),
    )
    fault = [one for one in findings if one.root is not None and one.severity is Severity.ERROR]
    outcome = _outcome(launch, fault)
    chief = fault[0] if fault else next((one for one in findings if one.severity is Severity.ERROR), None)
    chief = chief or next((one for one in findings if one.severity is Severity.WARNING and one.cause), None)
    root = min((one.root for one in fault if one.root), default=None)
    if outcome in (Outcome.CRASHED, Outcome.HUNG):
        cause = next((one.cause for one in fault if one.cause and one.cause != "unknown"), "unknown")
    elif outcome in (Outcome.READY, Outcome.STOPPED):
        cause = next(
            (one.cause for one in findings if one.cause and one.severity is not Severity.INFO), "none"
        )
    else:
        cause = (
            "unknown"
            if outcome is Outcome.UNKNOWN and trouble(launch, grave=bool(launch.reached))
            else "none"
        )
    phase = launch.phase_at(root.line, root.rank) if root else next(reversed(launch.reached), None)
    headline, action = _verdict(outcome, cause, phase, chief, findings)
    return LaunchReport(
        file=launch.path,
        first_line=launch.first_line,
        last_line=launch.last_line,
        outcome=outcome,
        cause=cause,
        phases=tuple(launch.reached),
        phase=phase,
        ranks=launch.ranks,
        duration=launch.duration,
        version_window=version_window(launch.args, cut=launch.args_cut),
        headline=headline,
        action=action,
        fix=chief.fix if chief else None,
        root=root,
        chief=chief,
        vitals=tuple(_when(launch, root, findings) if root else _vitals(launch)),
        findings=tuple(findings),
    )


def _outcome(launch: Launch, faults: list[Finding]) -> Outcome:
    if faults:
        hung = faults[0].cause is not None and faults[0].cause.startswith(
            ("hang.", "dist.collective_timeout")
        )
        return Outcome.HUNG if hung else Outcome.CRASHED
    if stopped_at(launch) is not None:
        return Outcome.STOPPED
    if launch.serves is not None:
        return Outcome.READY
    if trouble(launch, grave=True):
        return Outcome.UNKNOWN
    return Outcome.STARTING if launch.reached else Outcome.UNKNOWN


def _verdict(
    outcome: Outcome, cause: str, phase: str | None, chief: Finding | None, findings: list[Finding]
) -> tuple[str, str]:
    """Return what happened, and what to do or what is known of it."""
    if outcome in (Outcome.CRASHED, Outcome.HUNG) and chief is not None:
        where = f", {STANDS[phase]}" if phase else ""
        return f"{outcome.value}{where}; cause: {CAUSE_TITLES[cause]}", chief.fix or chief.message
    if chief is not None:
        return f"{outcome.value}, but: {chief.message}", ""
    odd = next((one for one in findings if one.code == "E003" and one.severity is Severity.WARNING), None)
    doubt = f"{odd.message[0].lower()}{odd.message[1:]}" if odd else ""
    if outcome is Outcome.READY:
        return f"ready: the server serves{'' if odd else ' and the log shows no fault'}", doubt
    if outcome is Outcome.STOPPED:
        return (
            f"stopped: an orderly shutdown was asked for{'' if odd else ', and no fault came first'}",
            doubt,
        )
    if outcome is Outcome.STARTING and phase is not None:
        return f"starting: the log ends {STANDS[phase]} and shows no fault", ""
    return "undecided: no line of this log shows how the server fared", doubt


def _when(launch: Launch, root: Evidence, findings: list[Finding]) -> list[str]:
    """Return when the first fault came, and on which ranks."""
    faults = [one for one in findings if one.root is not None]
    ranks = max((one.ranks for one in faults), key=len, default=())
    time = launch.lines["time"][root.line - launch.first_line]
    after = _after(launch, time)
    if not after and not ranks:
        return []
    return [f"first fault at line {root.line}{after}" + (f"; ranks {rank_spread(ranks)}" if ranks else "")]


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
        parts.append(f"ready at line {ready['line'][0]}" + _after(launch, ready["time"][0]))
    if parts:
        out.append(", ".join(parts))
    memory = _memory(launch)
    if memory:
        out.append(memory)
    decode = launch.frames["decode_batch"]
    if not decode.is_empty():
        speed = cast("float | None", decode["gen_throughput"].median())
        usage = decode.select(
            pl.max_horizontal(pl.col("token_usage").max(), pl.col("full_token_usage").max())
        ).item()
        queue = cast("int | None", decode["queue_req"].max())
        out.append(
            f"{decode.height} decode batches"
            + (f", median {speed:.1f} tokens/s" if speed is not None else "")
            + (f", KV usage up to {usage:.2f}" if usage is not None else "")
            + (f", queue up to {queue}" if queue is not None else "")
        )
    return out


def _after(launch: Launch, time: dt.datetime | None) -> str:
    first = launch.lines["time"].drop_nulls()
    if time is None or first.is_empty():
        return ""
    return f", {span((time - first[0]).total_seconds())} after the first line"


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
    row = launch.printed("kv_cache", [pools["line"][0]])[0]
    size = pool_size(row)
    text = "KV cache"
    if row.get("num_tokens"):
        text += f" {row['num_tokens']} tokens"
    if size is not None:
        text += f" = {size.text(2)} GiB a rank"
    fraction = _implied(launch, row["rank"])
    if fraction:
        text += f", which implies mem_fraction_static = {fraction}"
    return text


def _implied(launch: Launch, rank: str | None) -> str | None:
    """Return the implied fraction where the plain equation holds: one pool, no states, no cap, no draft."""
    frames = launch.frames
    if any(
        not frames[kind].is_empty()
        for kind in ("mamba_cache", "swa_pool", "swa_split", "max_total_tokens_capped")
    ):
        return None
    if (
        launch.argument("speculative_algorithm") is not None
        or launch.argument("max_total_tokens") is not None
    ):
        return None
    own = pl.col("rank").eq_missing(rank)
    pools = frames["kv_cache"].filter(own)
    after = frames["load_weight_end"].filter(pl.col("avail_mem").is_not_null())
    before = frames["load_weight_begin"].filter(pl.col("avail_mem").is_not_null())
    if pools.height != 1 or after.is_empty() or before.is_empty():
        return None
    size = pool_size(launch.printed("kv_cache", pools["line"])[0])
    avail = launch.printed("load_weight_end", [after.sort("avail_mem", "line")["line"][0]])[0]["avail_mem"]
    total = launch.printed("load_weight_begin", [before.sort("avail_mem", "line")["line"][0]])[0]["avail_mem"]
    implied = implied_fraction(avail, total, size) if size else None
    return implied.text(3) if implied and implied.low > 0 and implied.high < 1 else None


def _limits(launch: Launch) -> list[str]:
    """Return what this log cannot show, and which line is missing for it."""
    out = []
    if launch.frames["server_args"].is_empty() and (launch.ranks or launch.reached):
        out.append(
            "no server_args line: how many ranks there should be, and with which arguments, is not known"
        )
    elif launch.args_cut:
        out.append("the server_args line is cut: arguments behind the cut are not known")
    if launch.lines.height < _FEW_LINES and launch.reached and "arguments" not in launch.reached:
        out.append(
            f"{launch.path} has {launch.lines.height} lines only, as a grep leaves them: "
            "what came before and after is not known"
        )
    if not launch.lines.is_empty() and launch.lines["time"].drop_nulls().is_empty():
        out.append("no dated time stamps: durations are not known")
    return out
