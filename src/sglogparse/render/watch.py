"""Watching, on a terminal: the load of each rank, and what was found, as it comes.

12:51:24 24 running, 0 queued, 1243.2 tokens/s (305.1 on DP0 to 938.1 on DP1), KV usage 0.43, 0 retracted
S001 warning (line 8123 DP0): ...                                                      what was found
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from sglogparse._report import Outcome, Severity
from sglogparse._safe import mask_secrets, plain
from sglogparse._vitals import span
from sglogparse._wait import stage_words
from sglogparse.render._wrap import wrap

if TYPE_CHECKING:
    from sglogparse._watch import Load, Told, Watch

STYLES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_OUTCOMES = {Outcome.READY: "green", Outcome.STOPPED: "green", Outcome.CRASHED: "red", Outcome.HUNG: "red"}
#: After these a server prints no batches any more.
_ENDED = (Outcome.CRASHED, Outcome.HUNG, Outcome.STOPPED)
#: Values of ranks differ when they are further apart than this share of the larger one, and than a trifle.
_APART = 0.2
_TRIFLES = {"running": 4.0, "queued": 4.0, "KV usage": 0.05}
_ROWS = 16


class Line(NamedTuple):
    """A text and its style."""

    text: str
    style: str


def told_line(told: Told, *, show_secrets: bool = False) -> Line:
    """Return what was found as one line of plain text."""
    found, launch = told.finding, told.launch
    if found is None:
        text, style = launch.summary, _OUTCOMES.get(launch.outcome, "yellow")
    else:
        proof = found.root or next(iter(found.evidence), None)
        place = "" if proof is None else f" (line {proof.line}{f' {proof.rank}' if proof.rank else ''})"
        # what the verdict says is not said again
        own = found.fix and found.fix not in launch.summary and found.severity is not Severity.INFO
        fix = f"; {found.fix}" if own else ""
        message = found.message.removesuffix(".") if fix else found.message
        text, style = (
            f"{found.code} {found.severity.value}{place}: {message}{fix}",
            STYLES[found.severity],
        )
    return Line(plain(text if show_secrets else mask_secrets(text)), style)


def load_line(watch: Watch) -> str:
    """Return the load of all ranks by their last batches, with what differs between them."""
    batches, speeds = watch.batches, watch.rest()
    outcome = None if watch.diagnosis is None else watch.diagnosis.outcome
    if outcome in _ENDED and not batches:
        return f"{outcome}; no batch for {span(watch.quiet)}"
    if not watch.loads:
        stages = "; ".join(stage_words(stage) for stage in watch.progress.stages()[:_ROWS])
        where = watch.follower.lines
        return plain(
            f"{where} line{'' if where == 1 else 's'}, no batch yet{f'; {stages}' if stages else ''}"
        )
    if not batches:
        return f"no batch for {span(watch.quiet)}"
    loads = watch.loads
    parts = [
        _sum("running", {rank: one.running for rank, one in loads.items()}),
        _sum("queued", {rank: one.queued for rank, one in loads.items()}),
        _sum("tokens/s", {rank: speeds.get(rank) for rank in loads}, digits=1),
        _most("KV usage", {rank: one.usage for rank, one in loads.items()}),
        _sum("retracted", {rank: one.retracted for rank, one in loads.items()}),
    ]
    return plain(", ".join(part for part in parts if part))


def _sum(what: str, values: dict[str | None, float | None], digits: int = 0) -> str:
    known = {rank: value for rank, value in values.items() if value is not None}
    if not known:
        return ""
    return f"{sum(known.values()):.{digits}f} {what}{_spread(what, known, digits)}"


def _most(what: str, values: dict[str | None, float | None]) -> str:
    known = {rank: value for rank, value in values.items() if value is not None}
    return f"{what} {max(known.values()):.2f}{_spread(what, known, 2)}" if known else ""


def _spread(what: str, values: dict[str | None, float], digits: int) -> str:
    """Say which rank has least and which has most, where they differ."""
    if len(values) < 2:
        return ""
    least, most = min(values, key=lambda one: values[one]), max(values, key=lambda one: values[one])
    if values[most] - values[least] <= max(_APART * abs(values[most]), _TRIFLES.get(what, 0.0)):
        return ""
    return f" ({values[least]:.{digits}f} on {least} to {values[most]:.{digits}f} on {most})"


def load_view(watch: Watch, width: int) -> Text:
    """Return the load of each rank as a few lines of a terminal."""
    view = Text(no_wrap=True, overflow="ellipsis")
    tail = watch.follower.tail
    heads = [f"{watch.name}: {watch.follower.lines} lines" if tail.exists else f"{watch.name}: not there yet"]
    if watch.diagnosis is not None and watch.diagnosis.chief is not None:
        heads.insert(0, watch.diagnosis.outcome.value)
    if watch.follower.lines:
        heads.append(f"last line {span(watch.quiet)} ago")
    view.append("\n".join(wrap(plain("; ".join(heads)), width, rest="  ", most=2)), "bold")
    if not watch.loads:
        for stage in watch.progress.stages()[:_ROWS]:
            lasts = "" if stage.lasts is None else f"  {span(stage.lasts)}"
            view.append(
                "\n" + "\n".join(wrap(plain(f"{stage_words(stage)}{lasts}"), width, first="  ", most=1))
            )
        return view
    ranks = watch.ranks
    names = [plain(rank or "server") for rank in ranks[:_ROWS]]
    wide = max(len(name) for name in [*names, "rank"])
    view.append(f"\n{'rank':{wide}}  running  queued   tokens/s  KV usage  retracted"[: width + 1], "dim")
    for name, rank in zip(names, ranks, strict=False):
        one = watch.loads[rank]
        row = f"{name:{wide}}  {_cell(one.running, 7)}  {_cell(one.queued, 6)}  {_cell(one.speed, 9, 1)}"
        view.append(f"\n{row}  {_cell(one.usage, 8, 2)}  {_cell(one.retracted, 9)}"[: width + 1], _style(one))
    if len(ranks) > _ROWS:
        view.append(f"\n(+{len(ranks) - _ROWS} more ranks)", "dim")
    return view


def _cell(value: float | None, wide: int, digits: int = 0) -> str:
    return f"{'-':>{wide}}" if value is None else f"{value:{wide}.{digits}f}"


def _style(load: Load) -> str:
    """Return how a rank is shown: a full pool and a queue deserve a look."""
    return "yellow" if (load.usage or 0.0) >= 0.95 or load.retracted else ""
