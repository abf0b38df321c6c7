"""From a fault of a launch to clues, and from a cause to advice with the launch's own numbers.

fault: its chain, stacks, phase --+
lines of failure above it       --+--> Clues --> Decision --> Finding's cause, confidence, fix
arguments of the launch         --+
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from sglogparse._cheap import lazy
from sglogparse._derived import once_each
from sglogparse._faults import Fault, trouble
from sglogparse._launches import between
from sglogparse._ranks import rank_spread
from sglogparse.causes import (
    Clues,
    Decision,
    Remedy,
    cause_by_id,
    change_of,
    decide,
    facts_of,
    remedy_of,
    with_values,
)
from sglogparse.causes._base import already_set

if TYPE_CHECKING:
    from sglogparse._launches import Launch

#: How far above a fault a line may stand that explains it.
_ABOVE_LINES = 60
#: Of a block of any length, the lines that are looked at.
_BLOCK_LINES = 400
_FRAME = lazy(r"File \\?\"(?P<path>[^\"\\]{1,400})\\?\", line [0-9]+, in (?P<function>[\w<>.]+)")
_BEGIN = "Traceback (most recent call last)"
#: An architecture that is refused, in the words of several releases.
_REFUSED = lazy(r"architectures?:? \[?'?(?P<name>[A-Z]\w+)")
#: Events that print how much device memory is free.
_FREE_LINES = (
    "load_weight_begin",
    "load_weight_end",
    "memory_pool_end",
    "graph_capture_begin",
    "graph_capture_progress",
    "graph_capture_end",
)
#: Below this, device memory was nearly out, GB.
_NEARLY_OUT = 1.5
#: Where memory is the matter, or may be.
_ABOUT_MEMORY = (
    "memory.weights",
    "memory.graph_capture",
    "memory.runtime",
    "gpu.illegal_access",
    "gpu.kernel_fault",
)
_RANK = r"\[(?:PG [^\]]*?)?[Rr]ank ([0-9]+)\]|\[default([0-9]+)\]"


#: How far below a line of native code its traceback begins, and its message goes on, lines.
_NEXT = 5
_MESSAGE = 40
#: A message is looked at up to here.
_MOST = 2000
#: A status of a library of Ascend's: what it means stands in the lines around it.
_STATUS = lazy(r"\bERR[0-9]{5}\b")
#: Words for what an argument sets, and the argument.
_SUBJECTS = (
    (r"(?i)\bkv[ _-]?cache\b|\b[kv]_scales?\b", "--kv-cache-dtype"),
    (r"(?i)\b(?:cuda|hip|npu)? ?graphs? capture\b|\b(?:cuda|hip) graphs?\b", "--disable-cuda-graph"),
    (r"(?i)\battention backends?\b", "--attention-backend"),
    (r"(?i)\bsampling backends?\b", "--sampling-backend"),
    (r"(?i)\bspeculative\b|\bdraft model\b|\bEAGLE", "--speculative-algorithm"),
    (r"(?i)\bquanti[sz]\w+", "--quantization"),
    (r"(?i)\bmoe (?:runner|backend)", "--moe-runner-backend"),
    (r"(?i)\ball-?to-?all\b|\ba2a\b|\bDeepEP\b", "--moe-a2a-backend"),
    (r"(?i)\bpage size\b", "--page-size"),
    (r"(?i)\bradix (?:cache|tree|attention)\b|\bprefix cach", "--disable-radix-cache"),
    (r"(?i)\bchunked prefill\b", "--chunked-prefill-size"),
    (r"(?i)\bhierarchical cache\b|\bhicache\b", "--enable-hierarchical-cache"),
    (r"(?i)\boverlap(?:ped)? schedul", "--disable-overlap-schedule"),
    (r"(?i)\bexpert parallel", "--ep-size"),
    (r"(?i)\bdata parallel attention\b|\bdp attention\b", "--enable-dp-attention"),
    (r"(?i)\bpipeline parallel", "--pp-size"),
)


class FreeMemory(NamedTuple):
    """The device memory that a line says is free."""

    line: int
    #: as printed, GB
    text: str


@once_each
def judged(launch: Launch, fault: Fault) -> Decision:
    """Return what is decided of a fault."""
    return decide(clues_of(launch, fault), ended=True)


def told_above(launch: Launch, line: int) -> Decision:
    """Return what the lines above a line decide of an end that says nothing itself."""
    return decide(Clues(phase=launch.phase_at(line, None), above=_above(launch, line)), ended=True)


def _above(launch: Launch, line: int) -> tuple[str, ...]:
    """Return the lines that stand above a line and speak of a failure, each text once."""
    lines = [one for one in trouble(launch, grave=False) if line - _ABOVE_LINES <= one < line]
    return tuple(dict.fromkeys(one.message.strip() for one in launch.evidences(lines)))


def clues_of(launch: Launch, fault: Fault, *, phase: str | None = None) -> Clues:
    """Return what a launch shows of a fault; a phase that is known better replaces the fault's."""
    return Clues(
        exceptions=(*_not_imported(launch, fault.exceptions), *fault.exceptions),
        phase=phase or fault.phase,
        stacks=_stacks(launch, fault.line),
        above=_above(launch, fault.line),
        args=launch.args,
    )


def _not_imported(launch: Launch, chain: Iterable[str]) -> list[str]:
    """Return why the module of an architecture that is refused could not be imported, as its exception.

    A model whose module is skipped looks unsupported: `deepseek_v2` holds `DeepseekV3ForCausalLM`.
    """
    refused = next((found["name"] for text in chain if (found := _REFUSED.search(text))), None)
    skipped = launch.frames["import_ignored"]
    if refused is None or skipped.is_empty():
        return []
    out = []
    for module, detail in skipped.select("module", "detail").unique(maintain_order=True).iter_rows():
        stem = re.split(r"[_0-9]", (module or "").rpartition(".")[2])[0]
        if len(stem) > 2 and refused.lower().startswith(stem):
            out.append(f"ImportError: {detail}")
    return out[:1]


def _stacks(launch: Launch, line: int) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return the stacks of the block that begins at a line, of each traceback of its chain one."""
    blocks = launch.frames["traceback"]
    block = between(blocks, line, line)
    if block.is_empty():
        return ()
    row = block.row(0, named=True)
    if row["ambiguous"]:
        return (tuple((one["path"] or "", one["function"] or "") for one in row["stack"] or ()),)
    start, end = launch.row(line), launch.row(row["last_line"]) + 1
    stacks: list[list[tuple[str, str]]] = [[]]
    for text in launch.records["text"][max(start, end - _BLOCK_LINES) : end]:
        if _BEGIN in text and stacks[-1]:
            stacks.append([])
        stacks[-1] += [(one["path"], one["function"]) for one in _FRAME.finditer(text)]
    return tuple(tuple(stack) for stack in stacks if stack)


def last_free(launch: Launch, line: int, rank: str | None) -> FreeMemory | None:
    """Return the device memory that the last line up to a line says is free, of a rank where it speaks."""
    best: tuple[int, str] | None = None
    for kind in _FREE_LINES:
        frame = between(launch.frames[kind], 0, line)
        own = frame.filter(pl.col("rank") == rank) if rank is not None else frame
        frame = frame if own.is_empty() else own
        if not frame.is_empty() and (best is None or frame["line"][-1] > best[0]):
            best = (int(frame["line"][-1]), kind)
    if best is None:
        return None
    text = launch.printed(best[1], [best[0]])[0]["avail_mem"]
    return None if text is None else FreeMemory(best[0], text)


@once_each
def advice(launch: Launch, cause: str, fault: Fault | None = None) -> str | None:
    """Return what to change for a cause, with the values in force and the numbers that the fault names."""
    entry = cause_by_id(cause)
    remedy = _remedy(launch, cause, fault) if fault else None
    change = change_of(entry, remedy, launch.args)
    if not change:
        return None
    parts = [change]
    if cause == "config.incompatible_flags" and fault is not None and remedy is None:
        parts = [_of_subjects(launch, fault) or change]
    if fault is not None:
        parts += facts_of(entry, fault.exceptions)
        parts += _of_memory(launch, cause, fault)
    if cause == "dist.collective_timeout":
        parts += _missing_ranks(launch)
    return "; ".join(parts)


@once_each
def _remedy(launch: Launch, cause: str, fault: Fault) -> Remedy | None:
    """Return the narrower case of a cause that a fault is, by its words, lines above it, and its stacks."""
    stacks = _stacks(launch, fault.line) or _stack_below(launch, fault.line)
    frames = [one for stack in stacks for one in stack]
    above = _lines_above(launch, fault.line)["message"]
    return remedy_of(cause_by_id(cause), fault.exceptions, above, frames, launch.args)


def _stack_below(launch: Launch, line: int) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return the stacks of a traceback that begins just below a line of native code."""
    near = between(launch.frames["traceback"], line + 1, line + _NEXT)
    return _stacks(launch, near["line"][0]) if not near.is_empty() else ()


def _lines_above(launch: Launch, line: int) -> pl.DataFrame:
    """Return the records just above a line that are no traceback and no arguments: line and message."""
    start = max(launch.row(line) - _ABOVE_LINES, 0)
    kinds = launch.lines["kind"].cast(pl.String)[start : launch.row(line)]
    above = launch.records[start : launch.row(line)].select("line", "message")
    return above.filter(~kinds.is_in(["traceback", "server_args"]).fill_null(False) & (above["line"] < line))


@once_each
def deciding_lines(launch: Launch, cause: str, fault: Fault) -> list[int]:
    """Return the lines beside a fault's own that say what it is: of its message, and just above it.

    A message has many lines, and its first can say nothing: what decides is the line with a sign's words, or
    with those of a narrower case.
    """
    if cause == "unknown":
        return []
    entry, remedy = cause_by_id(cause), _remedy(launch, cause, fault)
    words = [word for sign in entry.signs for word in sign.said]
    own = {part.strip() for text in fault.exceptions for part in text.splitlines()}
    below = between(launch.records, fault.root_line + 1, fault.root_line + _MESSAGE)
    lines = zip(below["line"].to_list(), below["message"].to_list(), strict=True)
    message = [(line, text) for line, text in lines if text.strip() in own and text.strip()]
    head = launch.evidence(fault.root_line).message
    out: list[int] = []
    if remedy is not None and remedy.pattern and not re.search(remedy.pattern, head):
        above = _lines_above(launch, fault.line).iter_rows() if remedy.above else ()
        out += [line for line, text in (*message, *above) if re.search(remedy.pattern, text)][:1]
    if head.rstrip().endswith(("Error:", "Exception:")) or _STATUS.search(head):  # it says nothing itself
        telling = [line for line, text in message if any(word in text.lower() for word in words)]
        out += (telling or [line for line, _ in message])[:2]
    if _STATUS.search(head):
        near = _lines_above(launch, fault.line).tail(1)
        out += [line for line, text in near.iter_rows() if any(word in text.lower() for word in words)]
    return sorted(set(out))


def _of_subjects(launch: Launch, fault: Fault) -> str | None:
    """Return the arguments that set what a message speaks of, where it names none itself."""
    said = "\n".join(fault.exceptions)[:_MOST]
    said = said.partition("Possible solutions:")[0]
    if re.search(r"--[a-z]", said) or any(re.search(rf"\b{re.escape(one)}\b", said) for one in launch.args):
        return None
    flags = [flag for pattern, flag in _SUBJECTS if re.search(pattern, said)]
    flags = [flag for flag in flags if not already_set(flag, launch.args)]
    if not flags:
        return "change the argument that turns on what the message speaks of: it names none itself"
    return with_values(
        f"change what sets the things that the message speaks of: {', '.join(dict.fromkeys(flags))}",
        launch.args,
    )


def _of_memory(launch: Launch, cause: str, fault: Fault) -> list[str]:
    if cause not in _ABOUT_MEMORY:
        return []
    free = last_free(launch, fault.line, fault.rank)
    if free is None:
        return []
    if cause.startswith("memory."):
        return [f"{free.text} GB were free at line {free.line}"]
    if float(free.text) > _NEARLY_OUT:
        return []
    return [
        f"only {free.text} GB were free at line {free.line}: this may be a shortage of memory in disguise, "
        "so try a lower --mem-fraction-static first"
    ]


def _missing_ranks(launch: Launch) -> list[str]:
    """Return which ranks print no timeout, where the arguments tell how many there are."""
    sizes = [launch.argument(name) for name in ("tp_size", "pp_size")]
    if launch.argument("nnodes") != 1 or not all(isinstance(size, int) for size in sizes):
        return []
    waiting = launch.records.filter(
        pl.col("message").str.contains(r"Watchdog caught collective operation timeout")
    )
    found = waiting["message"].str.extract(_RANK, 1).drop_nulls().unique()
    told = {int(rank) for rank in found}
    missing = set(range(sizes[0] * sizes[1])) - told
    if not told or not missing:
        return []
    return [f"no timeout is printed by rank {rank_spread(str(rank) for rank in missing)}"]
