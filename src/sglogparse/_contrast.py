"""Why two runs fared differently: the verdict of a comparison.

    outcomes and causes --> budgets exchanged one by one (fraction, free memory, weights)  --> explained
                        --> differences that bear on the cause                             --> possible
                        --> nothing of that kind                                           --> undecided

A reason is given only where numbers of the logs, or the text of the fault itself, carry it. The budget is
SGLang's own formula (see `_budget`): total * fraction - weights, where weights = total - avail.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from sglogparse._cheap import lazy
from sglogparse._comparison import (
    AFTER_POOLS,
    FRACTION,
    GRAPHS,
    START,
    ArgumentRow,
    EnvironmentRow,
    Fact,
    MemoryRow,
    Side,
    Throughput,
    Verdict,
    quoted,
)
from sglogparse._contrast_budget import WEIGHTS, Differences, budget, given_of, value_text
from sglogparse._contrast_fractions import (
    believed_equal,
    contradictions_of,
    in_force,
    near,
    numbers_of,
)
from sglogparse._interval import Interval
from sglogparse._report import Outcome
from sglogparse._steps import Divergence, steps

_GOOD = (Outcome.READY, Outcome.STOPPED)
_BAD = (Outcome.CRASHED, Outcome.HUNG)
#: Causes that a server which serves can suffer from as a whole.
_AILING = ("perf.", "kv.", "memory.leak", "hang.", "pd.")
#: Arguments that can bear on the speed of decoding.
_SPEED = (
    r"backend|quantiz|dtype|cuda_graph|torch_compile|all_?reduce|speculative|overlap|deepep|_size$|max_running"
    r"|deterministic|continuous_decode"
)
#: Throughput that differs by less is not worth a word.
_FASTER = 0.1


def judge(
    one: Side,
    two: Side,
    *,
    arguments: Sequence[ArgumentRow],
    memory: Sequence[MemoryRow],
    surroundings: Sequence[EnvironmentRow],
    parted: Divergence | None,
    speed: Throughput,
) -> Verdict:
    """Return what the comparison of a run with its reference comes to."""
    found = Differences(arguments, memory, surroundings, parted)
    if one.launch is None or two.launch is None:
        empty = [side.run.letter for side in (one, two) if side.launch is None]
        said = f"{empty[0]} is an empty log" if len(empty) == 1 else "both logs are empty"
        return Verdict("incomparable", f"cannot be compared: {said}")
    if one.launch.lines["text"].equals(two.launch.lines["text"]):
        return Verdict("equal", "equal: both have the same lines")
    if not _in_common(one, two, found):
        return Verdict(
            "incomparable", "cannot be compared: the logs have no argument, step or number in common"
        )
    verdict = _compared(one, two, found, speed)
    roles = _role(one), _role(two)
    if None not in roles and roles[0] != roles[1]:
        told = (
            f"{one.run.letter} is a {roles[0]} server, {two.run.letter} a {roles[1]} server: much must differ"
        )
        verdict = replace(verdict, because=(told, *verdict.because))
    models = _models(one, two)
    if models is not None:
        told = f"the models differ: {models[0]} in {one.run.letter}, {models[1]} in {two.run.letter}"
        verdict = replace(verdict, because=(told, *verdict.because))
    other_weights = verdict.text.startswith(f"explained by {WEIGHTS}") and not _same_model(one, two)
    if verdict.kind == "explained" and (
        other_weights or (models is not None and not verdict.text.startswith(f"explained by {FRACTION}"))
    ):
        text = f"possible: {verdict.text.removeprefix('explained by ')}"
        verdict = replace(verdict, kind="possible", text=text)
    contradictions = contradictions_of(one, two)
    if verdict.kind == "equal":  # what is odd in one is odd in both
        return replace(verdict, because=(*verdict.because, *contradictions))
    if contradictions and verdict.kind in ("alike", "unknown"):
        because = (verdict.text, *verdict.because)
        verdict = replace(verdict, kind="contradiction", text=contradictions[0], because=because)
    # what the contradiction says need not be said again
    because = tuple(one for one in verdict.because if not any(one in told for told in contradictions))
    return replace(verdict, because=because, contradictions=contradictions)


def _compared(one: Side, two: Side, found: Differences, speed: Throughput) -> Verdict:
    """Return the verdict by what became of the two runs."""
    fates = tuple(_fate(side) for side in (one, two))
    well = _is_well(one), _is_well(two)
    if fates == ("serves", "serves") and well[0] != well[1]:
        return _explained(*((one, two) if well[0] else (two, one)), found)
    if fates[0] == fates[1] and (fates[0] != "fails" or one.run.cause == two.run.cause):
        return _same_fate(one, two, found, speed, fates[0])
    if "unknown" in fates or "starting" in fates:
        return _not_known(one, two, fates)
    if fates == ("fails", "fails"):
        text = f"both fail, each in its own way: {_failure(one)}, {_failure(two)}"
        return Verdict("undecided", text)
    return _explained(*((one, two) if fates[0] == "serves" else (two, one)), found)


def _in_common(one: Side, two: Side, found: Differences) -> bool:
    if one.launch is None or two.launch is None:
        return False
    shared = set(steps(one.launch)) & set(steps(two.launch))
    numbers = any(all(row.cells) for row in found.memory) or (numbers_of(one) and numbers_of(two))
    served = all(not side.launch.frames["decode_batch"].is_empty() for side in (one, two) if side.launch)
    return bool(shared or numbers or served or set(one.launch.args) & set(two.launch.args))


def _fate(side: Side) -> str:
    outcome = side.run.outcome
    if outcome in _GOOD:
        return "serves"
    return "fails" if outcome in _BAD else outcome.value


def _is_well(side: Side) -> bool:
    return not side.run.cause.startswith(_AILING)


def _failure(side: Side) -> str:
    return f"{side.run.letter} {side.run.headline.rstrip('.')}"


# ------------------------------------------------------------------ fractions that cannot both be


def _models(one: Side, two: Side) -> tuple[str, str] | None:
    """Return the names of two models that differ; None where they are equal or one is not known."""
    mine, other = _model(one), _model(two)
    return (mine, other) if mine and other and not _same_model(one, two) else None


def _same_model(one: Side, two: Side) -> bool:
    """Tell whether both arguments name one model, in whatever folder."""
    mine, other = _model(one), _model(two)
    return bool(mine) and mine.casefold() == other.casefold()


def _model(side: Side) -> str:
    """Return the name of a model without its folders; empty where the log does not tell.

    A snapshot of the hub's cache is named by the folder that holds it, not by its hash.
    """
    path = side.launch.argument("model_path") if side.launch else None
    if not isinstance(path, str):
        return ""
    cached = _CACHED.search(path)
    return cached[1].replace("--", "/") if cached else PurePath(path).name or path


#: A model in the cache of the hub: models--owner--name/snapshots/hash.
_CACHED = lazy(r"models--([^/]+)/snapshots/[0-9a-f]{20,}/?$")


def _role(side: Side) -> str | None:
    """Return which part of a PD deployment a server is; None for one that does all, or when nothing tells."""
    mode = side.launch.argument("disaggregation_mode") if side.launch else None
    return mode if mode in ("prefill", "decode") else None


# ------------------------------------------------------------------ the same fate


def _same_fate(one: Side, two: Side, found: Differences, speed: Throughput, fate: str) -> Verdict:
    steps = [row for row in found.memory if row.differs]
    counts = [
        _count(len(found.arguments), "argument"),
        _count(len(steps), "memory number"),
        _count(len(found.surroundings), "message of the start", "messages of the start"),
    ]
    differences = [text for text in counts if not text.startswith("0 ")]
    slower = [band for band in speed.bands if abs(band.ratio - 1) > _FASTER]
    if not differences and found.parted is None and not slower and _same_outcome(one, two):
        return Verdict("equal", "equal: nothing that is compared differs")
    said = {
        "serves": "both serve",
        "starting": "both logs end during the start",
        "unknown": "neither log shows how its server fared",
        "fails": f"both fail alike: {one.run.headline}",
    }[fate]
    because = []
    if slower:
        band = max(slower, key=lambda one: min(one.reference_lines, one.other_lines))
        words = "faster" if band.ratio > 1 else "slower"
        load = f"{band.least}-{band.most}" if band.most > band.least else f"{band.least}"
        because.append(
            f"{two.run.letter} decodes {abs(band.ratio - 1) * 100:.0f}% {words} at {load} running requests "
            f"(median {band.reference:.1f} against {band.other:.1f} tokens/s, "
            f"n={band.reference_lines} and {band.other_lines})"
        )
        rows = [row for row in found.arguments if re.search(_SPEED, row.name) and _told(row)]
        because += [f"that can bear on it: {_sentence(row, one, two)}" for row in rows[:3]]
    if fate == "unknown":
        return Verdict("unknown", said, tuple(because))
    tail = f"; {', '.join(differences)} differ" if differences else ""
    if len(differences) == 1 and differences[0].startswith("1 "):
        tail += "s"
    if not differences and found.parted is None and not slower:
        tail = f"; {one.run.letter}: {one.run.headline}; {two.run.letter}: {two.run.headline}"
    return Verdict("alike", f"{said}{tail or '; the course of the start differs'}", tuple(because))


def _same_outcome(one: Side, two: Side) -> bool:
    return (one.run.outcome, one.run.cause) == (two.run.outcome, two.run.cause)


def _count(number: int, what: str, many: str = "") -> str:
    return f"{number} {what if number == 1 else many or what + 's'}"


def _not_known(one: Side, two: Side, fates: tuple[str, ...]) -> Verdict:
    lost = [
        side.run.letter
        for side, fate in zip((one, two), fates, strict=True)
        if fate in ("starting", "unknown")
    ]
    text = (
        f"{lost[0]} does not show how its server fared"
        if len(lost) == 1
        else "neither log shows how its server fared"
    )
    told = "; ".join(f"{side.run.letter}: {side.run.headline}" for side in (one, two))
    return Verdict(
        "unknown",
        f"undecided: {text}",
        (told,),
    )


# ------------------------------------------------------------------ different fates


def _explained(good: Side, bad: Side, found: Differences) -> Verdict:
    cause = bad.run.cause
    verdict: Verdict | None = None
    if cause == "memory.kv_budget":
        verdict = budget(good, bad, found)
    elif cause in ("memory.graph_capture", "memory.runtime", "memory.weights", "memory.imbalance"):
        verdict = _out_of_memory(good, bad, found)
    verdict = verdict or _named(good, bad, found) or _related(good, bad, found)
    if verdict is not None:
        return verdict
    numbers = [row for row in found.memory if row.differs]
    told = [
        *(_sentence(row, good, bad) for row in found.arguments[:3]),
        *(f"{row.quantity}: {_cells(row)}" for row in numbers[:2]),
    ]
    text = f"undecided: {_failure(bad)}, and nothing that differs is known to bear on it"
    if not told and not found.surroundings:
        text = f"undecided: {_failure(bad)}, and nothing that is compared differs before it: look elsewhere"
    return Verdict("undecided", text, tuple(f"what differs: {one}" for one in told))


def _cells(row: MemoryRow) -> str:
    pairs = zip(row.cells, "AB", strict=False)
    return ", ".join(f"{cell.text} in {letter}" for cell, letter in pairs if cell)


# ------------------------------------------------------------------ out of memory


def _least(side: Side, quantity: str) -> Fact | None:
    found = [one for one in side.facts if one.quantity == quantity]
    return min(found, key=lambda one: one.low, default=None)


def _out_of_memory(good: Side, bad: Side, found: Differences) -> Verdict | None:
    """Explain an out-of-memory by what the good run had left, and what made the bad one have less."""
    a, b = good.run.letter, bad.run.letter
    reasons, advice = [], None
    lower, higher = in_force(good), in_force(bad)
    if lower and higher and not near(lower.value, higher.value) and higher.value.low > lower.value.high:
        reasons.append(
            f"{FRACTION} is {higher.text} in {b} ({higher.how}) and {lower.text} in {a} ({lower.how}): more "
            "for the pools, less for graphs and activations"
        )
        advice = f"start {b} with --mem-fraction-static {lower.text}, as {a}"
    for quantity in (START, AFTER_POOLS):
        mine, other = _least(good, quantity), _least(bad, quantity)
        if mine and other and (mine.interval - other.interval).low > Interval.exactly("0.5").low:
            less = value_text(mine.interval - other.interval, 2)
            tail = ": another process holds memory, or the device is smaller" if quantity == START else ""
            reasons.append(
                f"{less} GiB less {quantity} in {b} ({other.text} at {b}:{other.lines[0]}, {mine.text} at "
                f"{a}:{mine.lines[0]}){tail}"
            )
    graphs, left = _most(good, GRAPHS), _least(bad, AFTER_POOLS)
    enough = (
        believed_equal(good, bad)
        and bad.run.cause == "memory.graph_capture"
        and graphs is not None
        and left is not None
        and left.high < graphs.low
    )
    rows = [row for row in found.arguments if row.matters_for == "memory" and row.name != FRACTION]
    reasons += [_sentence(row, good, bad) for row in rows[:3]]
    if not reasons:
        return None
    if enough and graphs and left:
        return Verdict(
            "explained",
            f"explained by memory: the graphs took {graphs.text} GiB in {a}, and {b} had {left.text} GiB "
            "left after its pools",
            tuple(reasons),
            advice=advice,
        )
    text = f"possible: {b} runs out of device memory, and what bears on that differs"
    return Verdict("possible", text, tuple(reasons), advice=advice)


def _most(side: Side, quantity: str) -> Fact | None:
    found = [one for one in side.facts if one.quantity == quantity]
    return max(found, key=lambda one: one.high, default=None)


def _sentence(row: ArgumentRow, good: Side, bad: Side) -> str:
    return (
        f"{row.name} is {quoted(row.name, given_of(row, good))} in {good.run.letter} and "
        f"{quoted(row.name, given_of(row, bad))} in {bad.run.letter}"
    )


# ------------------------------------------------------------------ other causes

#: Cause -> the arguments and the matters of the surroundings that can bear on it.
_BEARS: tuple[tuple[str, str, str], ...] = (
    (
        r"gpu\.|kernel\.|dist\.kernel_comm",
        r"backend|quantiz|dtype|cuda_graph|torch_compile|all_?reduce|flashinfer|speculative|deepep|page_size",
        r"attention|moe|quantiz|dtype|allreduce|feature|page size",
    ),
    (
        r"dist\.|hang\.",
        r"^(?:tp|pp|dp|ep)_size$|nnodes|nccl|all_?reduce|dist_timeout|backend|watchdog",
        r"nccl|allreduce|ray",
    ),
    (
        r"memory\.kv_budget",
        r"mem_fraction|kv_cache_dtype|quantiz|_size$|offload|speculative|hierarchical|model_path",
        r"quantiz",
    ),
    (
        r"memory\.host",
        r"hicache|hierarchical|offload|worker_num|mmap|prefetch|saver|mm_",
        r"hicache|buffer",
    ),
    (
        r"kv\.|memory\.leak|perf\.",
        r"max_running|max_total|mem_fraction|context_length|radix|chunked|schedule_cons",
        r"max running",
    ),
    (
        r"model\.",
        r"model_path|tokenizer|quantiz|load_format|revision|remote_code|override|model_impl|dtype",
        r"quantiz|dtype|weights",
    ),
    (r"pd\.", r"disaggregation|_size$|page_size|kv_cache_dtype", r"parallel"),
)


def _named(good: Side, bad: Side, found: Differences) -> Verdict | None:
    """Return an argument that differs and that the fault itself names."""
    root = bad.run.root
    if root is None:
        return None
    text = root.text.replace("-", "_").casefold()
    for row in found.arguments:
        if len(row.name) > 5 and re.search(rf"(?<![a-z0-9_]){re.escape(row.name)}(?![a-z0-9_])", text):
            return Verdict(
                "possible",
                f"possible: {_sentence(row, good, bad)}, and {bad.run.letter}'s fault names it "
                f"({bad.run.letter}:{root.line})",
                advice=f"start {bad.run.letter} with {row.name} as in {good.run.letter}",
            )
    return None


def _related(good: Side, bad: Side, found: Differences) -> Verdict | None:
    """Return the differences of a kind that can bear on the cause."""
    names, matters = next(
        ((args, kinds) for cause, args, kinds in _BEARS if re.match(cause, bad.run.cause)), ("^$", "^$")
    )
    rows = [row for row in found.arguments if re.search(names, row.name) and _told(row)]
    said = [row for row in found.surroundings if re.match(matters, row.matter)]
    a, b = good.run.letter, bad.run.letter
    reasons = [_sentence(row, good, bad) for row in rows[:4]]
    reasons += [f"the log says other things of {row.matter} (below)" for row in said[:2]]
    if bad.run.cause.startswith(("code.", "process.")) and good.run.version_window != bad.run.version_window:
        windows = [side.run.version_window for side in (good, bad)]
        if all(windows):
            reasons.append(f"the releases differ: {windows[0]} in {a}, {windows[1]} in {b}")
    if not reasons:
        return None
    return Verdict("possible", f"possible: {_failure(bad)}; what can bear on it differs", tuple(reasons))


def _told(row: ArgumentRow) -> bool:
    return any(one.state == "given" for one in row.values)
