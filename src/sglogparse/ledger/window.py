"""What a fraction of the device has to hold, and what was missing: the window of mem_fraction_static.

    smallest   1 - avail / total, and what one page or one request needs on top
    largest    the fraction in force, less what an allocation lacked when memory ran out
    between    a fraction that works; nothing between: other things have to give

Sources: the text of torch.OutOfMemoryError (c10/cuda/CUDACachingAllocator.cpp since 2.1, and its older form
in parentheses, which torch_npu still has), and the two messages by which SGLang refuses to build a KV cache.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

import polars as pl

from sglogparse._budget import printed_budgets, smallest_fraction
from sglogparse._cheap import dataclass, lazy
from sglogparse._derived import once
from sglogparse._faults import faults
from sglogparse._interval import GIB, Interval, round_up
from sglogparse._launches import Launch
from sglogparse._report import Evidence
from sglogparse.ledger.ledger import implied_fraction
from sglogparse.ledger.readings import Number, Rank, read_ranks

#: Two fractions whose difference is smaller than this, in GiB of the device, are hardly to be hit.
NARROW_GIB = Fraction(1)
#: What SGLang says when no budget is left: up to 0.5.13, and since.
REFUSED = r"Not enought? memory\. Please try to increase|leave no GPU memory for the KV cache"
_GIVEN = lazy(r"(?:mem_fraction_static=|--mem-fraction-static=)([0-9]*\.?[0-9]+)")

_SIZE = r"([0-9]+(?:\.[0-9]+)?) (bytes|[KMGTPE]iB)"
_UNITS = {"bytes": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40, "PiB": 50, "EiB": 60}
_TRIED = lazy(rf"out of memory\. Tried to allocate {_SIZE}")
_CAPACITY = lazy(rf"total capaci?ty of {_SIZE}")
_FREE = lazy(rf"of which {_SIZE} is free")
_OLD = lazy(rf"{_SIZE} total capacity; .*?{_SIZE} free;")
_OTHER = lazy(rf"Process ([0-9]{{1,10}}) has {_SIZE} memory in use")
_OWN = lazy(rf"this process has {_SIZE} memory in use")
_TORCH = lazy(rf"{_SIZE} is allocated by PyTorch")
_IDLE = lazy(rf"{_SIZE} is reserved by PyTorch but unallocated")
#: Phases in which the KV pools stand or are being built: what runs out there is left by the fraction.
_BEHIND_WEIGHTS = frozenset(
    {"KV cache set-up", "memory pools", "graph capture", "capacity known", "warm-up", "ready", "serving"}
)

#: Those in which what is missing is not yet all that graphs take.
_CAPTURING = frozenset({"KV cache set-up", "memory pools", "graph capture"})
#: Those in which batches run.
_RUNNING = frozenset({"capacity known", "warm-up", "ready", "serving"})


@dataclass(frozen=True)
class Shortage:
    """A device that ran out of memory, as its exception tells it; sizes in GiB."""

    line: int
    rank: str | None
    phase: str | None
    tried: Fraction
    capacity: Fraction | None = None
    free: Fraction | None = None
    #: what PyTorch holds of it without using it
    idle: Fraction | None = None
    #: other processes on the device: pid and size; without a pid, what nobody of this process holds
    others: tuple[tuple[int | None, Fraction], ...] = ()

    @property
    def foreign(self) -> Fraction:
        """Return what other processes hold, GiB."""
        return sum((size for _, size in self.others), Fraction(0))

    @property
    def missing(self) -> Fraction | None:
        """Return what the allocation lacked, GiB; None when it was not for want of free memory."""
        if self.free is None or self.tried <= self.free:
            return None
        return self.tried - self.free

    @property
    def behind_weights(self) -> bool:
        """Tell whether the weights were loaded, so that the fraction decides what is left."""
        return self.phase in _BEHIND_WEIGHTS


@once
def shortages(launch: Launch) -> list[Shortage]:
    """Return where a device ran out of memory, in the order of the lines."""
    found = []
    for fault in faults(launch):
        text = next((text for text in fault.exceptions if _TRIED.search(text)), None)
        if text is not None:
            found.append(_shortage(text, fault.root_line, fault.rank, fault.phase))
    return found


def _shortage(text: str, line: int, rank: str | None, phase: str | None) -> Shortage:
    old = _OLD.search(text)
    capacity, free = _read(_CAPACITY, text), _read(_FREE, text)
    if old and capacity is None:
        capacity, free = _gib(old[1], old[2]), _gib(old[3], old[4])
    return Shortage(
        line,
        rank,
        phase,
        _read(_TRIED, text) or Fraction(0),
        capacity,
        free,
        _read(_IDLE, text),
        _others(text, capacity, free),
    )


def _others(
    text: str, capacity: Fraction | None, free: Fraction | None
) -> tuple[tuple[int | None, Fraction], ...]:
    """Return what other processes hold.

    In a container the own process has another number than the driver's, and is listed among the others: it is
    the one that holds least of those that can hold what PyTorch says it has.
    """
    listed: list[tuple[int | None, Fraction]] = [
        (int(pid), _gib(size, unit)) for pid, size, unit in _OTHER.findall(text)
    ]
    own = _read(_OWN, text)
    if own is None:
        torch = (_read(_TORCH, text) or Fraction(0)) + (_read(_IDLE, text) or Fraction(0))
        able = [one for one in listed if one[1] >= torch]
        if able:
            listed.remove(min(able, key=lambda one: one[1]))
    elif not listed and capacity is not None and free is not None and capacity > free + own:
        listed.append((None, capacity - free - own))
    return tuple(listed)


def _read(pattern: re.Pattern[str], text: str) -> Fraction | None:
    found = pattern.search(text)
    return None if found is None else _gib(found[1], found[2])


def _gib(size: str, unit: str) -> Fraction:
    return Fraction(size) * (1 << _UNITS[unit]) / GIB


@dataclass(frozen=True)
class Refusal:
    """The server's own "no memory for a KV cache"."""

    line: int
    text: str
    #: the fraction that the message names, as printed
    said: str | None
    #: the fraction in force: of the message, else of the arguments
    fraction: Fraction | None


@once
def refusals(launch: Launch) -> pl.DataFrame:
    """Return the tracebacks by which the server refuses to build a KV cache."""
    return launch.frames["traceback"].filter(pl.col("exceptions").list.join("\n").str.contains(REFUSED))


@once
def refusal(launch: Launch) -> Refusal | None:
    """Return the first refusal; None when there is none."""
    found = refusals(launch)
    if found.is_empty():
        return None
    first = found.row(0, named=True)
    text = next(text for text in first["exceptions"] if re.search(REFUSED, text))
    said = _GIVEN.search(text)
    fraction = Fraction(said[1]) if said else declared_fraction(launch)
    return Refusal(first["exception_line"] or first["line"], text, said[1] if said else None, fraction)


def declared_fraction(launch: Launch) -> Fraction | None:
    """Return the mem_fraction_static of the arguments; None when they do not tell one between 0 and 1."""
    given = launch.argument("mem_fraction_static")
    if isinstance(given, bool) or not isinstance(given, float | int) or not 0 < given < 1:
        return None
    return Fraction(str(given))


@once
def fraction_in_force(launch: Launch) -> Fraction | None:
    """Return the mem_fraction_static of the arguments, else what the pools imply, to 0.001."""
    given = declared_fraction(launch)
    if given is not None:
        return given
    implied = implied_fraction(launch)
    if implied is None or not 0 < implied.interval.low <= implied.interval.high < 1:
        return None
    return Fraction(round((implied.interval.low + implied.interval.high) * 500), 1000)


@once
def token_bytes(launch: Launch) -> Fraction | None:
    """Return the bytes of a token in the KV pools of one rank: printed, or size by tokens, if known."""
    for budget in printed_budgets(launch):
        cell = Fraction(budget.text["cell_size"])
        if cell > 0:
            return cell
    sizes = [size for rank in read_ranks(launch) if (size := _bytes_of(rank)) is not None]
    return max(sizes, default=None)


def _bytes_of(rank: Rank) -> Fraction | None:
    pools = [pool for pool in rank.target.pools if pool.what == "KV cache" and pool.parts and not pool.bound]
    if len(pools) != 1:
        return None
    tokens = pools[0].tokens or rank.capacity
    if tokens is None or tokens.interval.low <= 0:
        return None
    size = sum((middle(part) for part in pools[0].parts), Fraction(0))
    return size * GIB / tokens.interval.low if size > 0 else None


def middle(number: Number) -> Fraction:
    """Return a printed number as the exact decimal."""
    return number.middle


def before_weights(rank: Rank) -> Number | None:
    """Return the free memory before the weights: printed, or what was used and what was left; GiB."""
    load = rank.target.load
    if load is None or load.begin is not None:
        return load.begin if load else None
    if load.end is None or load.used is None:
        return None
    whole = load.end.interval + load.used.interval
    return Number("avail mem", fixed(middle_of(whole), 2), load.end.line, whole)


@once
def total_memory(launch: Launch) -> Fraction | None:
    """Return the least free memory of the ranks before the weights, GiB; None when no rank prints it."""
    budgets = [middle_of(one.interval("total")) for one in printed_budgets(launch)]
    ranks = [middle(one) for rank in read_ranks(launch) if (one := before_weights(rank)) is not None]
    return min((one for one in budgets or ranks if one > 0), default=None)


def middle_of(interval: Interval) -> Fraction:
    """Return the middle of an interval."""
    return (interval.low + interval.high) / 2


def free_lines(rank: Rank) -> Iterator[tuple[str, Number]]:
    """Yield what a rank prints of its free memory, each with its place, in the order of the workers."""
    for number, worker in enumerate((rank.target, *rank.drafts)):
        if worker.load is not None:
            if worker.load.begin is not None:
                yield f"load begin {number}", worker.load.begin
            if worker.load.end is not None:
                yield f"load end {number}", worker.load.end
        if worker.pool_end is not None:
            yield f"pool end {number}", worker.pool_end
        for place, capture in enumerate(worker.captures):
            if capture.begin is not None:
                yield f"capture begin {number} {place}", capture.begin
            if capture.end is not None:
                yield f"capture end {number} {place}", capture.end
    if rank.free is not None:
        yield "capacity", rank.free


@dataclass(frozen=True)
class Window:
    """Between which fractions a launch can run, as far as its log tells, with the lines that say so."""

    #: the weights and one page need more than this
    smallest: Fraction | None
    #: an allocation that failed needs this, or less
    largest: Fraction | None
    #: one request of the whole context needs this
    one_request: Fraction | None
    total: Fraction | None
    #: the fraction in force
    given: Fraction | None
    shortage: Shortage | None
    lines: tuple[int, ...] = ()

    @property
    def empty(self) -> bool:
        """Tell whether no fraction works."""
        return self.smallest is not None and self.largest is not None and self.smallest >= self.largest

    @property
    def narrow(self) -> bool:
        """Tell whether what is between both is less than a GiB of the device."""
        if self.smallest is None or self.largest is None or self.total is None:
            return False
        return (self.largest - self.smallest) * self.total < NARROW_GIB


@once
def fraction_window(launch: Launch) -> Window | None:
    """Return the window of a launch whose device ran out of memory behind its weights; None without one."""
    found = [one for one in shortages(launch) if one.behind_weights and one.missing is not None]
    if not found:
        return None
    worst = max(found, key=lambda one: one.missing or Fraction(0))
    given = fraction_in_force(launch)
    total = total_memory(launch)
    base = total or worst.capacity
    largest = None
    if given is not None and base and worst.missing is not None:
        largest = given - worst.missing / base
    needs = smallest_fraction(launch)
    smallest = one = None
    if needs is not None:
        smallest = needs.share.high
        cell = token_bytes(launch)
        if cell is not None and total:
            page = launch.argument("page_size")
            unit = cell / GIB / total
            smallest += unit * (page if isinstance(page, int) and 0 < page < 1 << 20 else 1)
            context = next((rank.context for rank in read_ranks(launch) if rank.context), None)
            one = needs.share.high + unit * context if context else None
    lines = (worst.line, *(needs.lines if needs else ()))
    return Window(smallest, largest, one, total, given, worst, lines)


def short_of_memory(launch: Launch) -> bool:
    """Tell whether a launch failed for want of device memory."""
    return refusal(launch) is not None or bool(shortages(launch))


@dataclass(frozen=True)
class Unbalanced:
    """The server's own check that found unequal free memory before a model; sizes in GiB, if printed."""

    line: int
    rank: str | None
    least: Fraction | None
    local: Fraction | None
    #: whether a draft worker checked, behind the pools of the target
    draft: bool
    fatal: bool


_LEAST = lazy(
    r"min_per_gpu_memory=([0-9]{1,6}(?:\.[0-9]{1,20})?)|pre_model_load_memory=([0-9]{1,6}(?:\.[0-9]{1,20})?)"
)
_LOCAL = lazy(r"local_gpu_memory=([0-9]{1,6}(?:\.[0-9]{1,20})?)")
_UNBALANCED = "memory capacity is unbalanced"


@once
def unbalanced(launch: Launch) -> list[Unbalanced]:
    """Return what the server's own check of the ranks' free memory says, in the order of the lines."""
    found = []
    raised = launch.frames["traceback"].filter(
        pl.col("exceptions").list.join("\n").str.contains(_UNBALANCED, literal=True)
    )
    for row in raised.iter_rows(named=True):
        text = next(text for text in row["exceptions"] if _UNBALANCED in text)
        draft = any("/speculative/" in (frame["path"] or "") for frame in row["stack"] or ())
        line = row["exception_line"] or row["line"]
        found.append(Unbalanced(line, row["rank"], *_both(text), draft, fatal=True))
    warned = launch.frames["memory_unbalanced"]
    if not warned.is_empty():
        pools = launch.frames["memory_pool_end"].group_by("rank").agg(pl.col("line").min())
        built = dict(pools.iter_rows())
        for line, rank, text in (
            launch.records.select("rank", "message", line=launch.lines["line"])
            .filter(pl.col("line").is_in(warned["line"].implode()))
            .select("line", "rank", "message")
            .iter_rows()
        ):
            draft = built.get(rank, line) < line
            found.append(Unbalanced(line, rank, *_both(text), draft, fatal=False))
    return sorted(found, key=lambda one: one.line)


def _both(text: str) -> tuple[Fraction | None, Fraction | None]:
    least, local = _LEAST.search(text), _LOCAL.search(text)
    return (
        Fraction(least[1] or least[2]) if least else None,
        Fraction(local[1]) if local else None,
    )


#: How functions of the model runner that a prefill runs begin; a verification of drafts runs them too.
_PREFILL = ("forward_extend", "forward_split_prefill")
_VERIFY = "verify"


def no_graphs(launch: Launch) -> bool:
    """Tell whether the arguments say that no graphs are captured."""
    return launch.argument("disable_cuda_graph") is True


def what_else(launch: Launch) -> str:
    """Return what else gives, where the fraction does not."""
    parts = [] if no_graphs(launch) else ["capture fewer graphs (--cuda-graph-max-bs)"]
    parts += ["use a shorter context or --chunked-prefill-size", "more ranks (--tp-size)"]
    return f"{', '.join(parts)}, or a quantised model or KV cache (--kv-cache-dtype fp8_e4m3)"


def _chunk(launch: Launch) -> int | None:
    """Return the chunked_prefill_size of the arguments; -1 is none at all."""
    given = launch.argument("chunked_prefill_size")
    return given if isinstance(given, int) and not isinstance(given, bool) else None


def _in_a_prefill(launch: Launch, shortage: Shortage) -> bool:
    """Tell whether memory ran out in the batch of a prefill: by the server's role, or by the stack."""
    if shortage.phase not in _RUNNING:
        return False
    if launch.argument("disaggregation_mode") == "prefill":
        return True
    block = launch.frames["traceback"].filter(
        (pl.col("line") <= shortage.line) & (pl.col("last_line") >= shortage.line)
    )
    names = [frame["function"] or "" for stack in block["stack"].to_list() for frame in stack or ()]
    return any(one.startswith(_PREFILL) for one in names) and _VERIFY not in names


def _smaller_chunks(launch: Launch) -> str:
    """Return the advice to prefill less at once, with the size in force."""
    chunk = _chunk(launch)
    if chunk == -1:
        return "prefill in chunks: set --chunked-prefill-size (off now)"
    return "lower --chunked-prefill-size" + (f" ({chunk} now)" if chunk else "")


def down(value: Fraction, decimals: int = 3) -> str:
    """Return a fraction rounded down, so that the printed value is low enough."""
    return fixed(Fraction(value * 10**decimals // 1, 10**decimals), decimals)


def fixed(value: Fraction, decimals: int) -> str:
    """Return a number with so many decimals, however large it is.

    >>> fixed(Fraction("-1.005"), 2)
    '-1.00'
    """
    scaled = round(value * 10**decimals)
    whole, rest = divmod(abs(scaled), 10**decimals)
    sign = "-" if scaled < 0 else ""
    return f"{sign}{whole}.{rest:0{decimals}d}" if decimals else f"{sign}{whole}"


def gib(value: Fraction) -> str:
    """Return a size with two decimals and its unit."""
    return f"{fixed(value, 2)} GiB"


#: From this much on, what other processes hold on a device is a reason of its own, GiB.
FOREIGN_GIB = Fraction(2)


#: Two tries that are not farther apart than this leave hardly a value between them.
_CLOSE = Fraction(2, 100)
#: How many earlier launches of a log are looked at.
_MOST_TRIES = 50
#: Arguments that decide what a device has to hold.
_SAME = ("model_path", "tp_size", "pp_size", "dp_size", "quantization", "kv_cache_dtype")


@dataclass(frozen=True)
class Try:
    """How one launch ended that had too little memory: refused, or out of memory."""

    fraction: Fraction
    refused: bool
    evidence: Evidence
    rank: str | None


@once
def ended(launch: Launch) -> Try | None:
    """Return how a launch ended, when it was for want of memory behind its weights."""
    said = refusal(launch)
    if said is not None:
        shown = launch.evidence(said.line)
        return Try(said.fraction, True, shown, shown.rank) if said.fraction else None
    found = next((one for one in shortages(launch) if one.behind_weights), None)
    fraction = fraction_in_force(launch) if found and not crowded(launch) else None
    return Try(fraction, False, launch.evidence(found.line), found.rank) if found and fraction else None


def crowded(launch: Launch) -> bool:
    """Tell whether other processes hold what was missing."""
    return any(one.foreign >= max(FOREIGN_GIB, one.missing or Fraction(0)) for one in shortages(launch))


@once
def tries(launch: Launch) -> tuple[Try, Try] | None:
    """Return this launch and the earlier one of the log, alike, that ended the other way and is nearest.

    The one that was refused comes first.
    """
    mine = ended(launch)
    if mine is None:
        return None
    other: Try | None = None
    earlier, steps = launch.previous, 0
    while earlier is not None and steps < _MOST_TRIES:
        if all(launch.argument(name) == earlier.argument(name) for name in _SAME):
            found = ended(earlier)
            if found and found.refused is not mine.refused and (other is None or _nearer(mine, found, other)):
                other = found
        earlier, steps = earlier.previous, steps + 1
    if other is None:
        return None
    return (mine, other) if mine.refused else (other, mine)


def _nearer(mine: Try, found: Try, other: Try) -> bool:
    return abs(found.fraction - mine.fraction) < abs(other.fraction - mine.fraction)


def hopeless(between: tuple[Try, Try]) -> bool:
    """Tell whether hardly a fraction is left between one that was refused and one that ran out of memory."""
    low, high = between
    return high.fraction - low.fraction <= _CLOSE


def lower_fraction(launch: Launch) -> str | None:
    """Return what to change where a device ran out of memory behind the weights; None without its numbers."""
    found = [one for one in shortages(launch) if one.behind_weights]
    if not found:
        return None
    if crowded(launch):
        fullest = max(found, key=lambda one: one.foreign)
        return f"free the device first: {held(fullest)} (see `nvidia-smi`)"
    between = tries(launch)
    if between is not None and hopeless(between):
        low = fixed(between[0].fraction, 3)
        said = f"{low} was refused already, so lowering --mem-fraction-static alone cannot help"
        return f"{said}: {what_else(launch)}"
    window = fraction_window(launch)
    if window is None or window.shortage is None or window.shortage.missing is None:
        return None
    lacked = f"{gib(window.shortage.missing)} were missing"
    if window.largest is not None:
        if window.empty or window.largest <= 0:
            return f"lowering --mem-fraction-static alone cannot help ({lacked}): {what_else(launch)}"
        given = f"{float(window.given or 0):g} was in force, and {lacked}"
        fraction = f"--mem-fraction-static to {down(window.largest)} or less ({given})"
    else:
        whole = window.total or window.shortage.capacity
        if not whole:
            return None
        step = round_up(window.shortage.missing / whole, 3)
        lacked = f"{gib(window.shortage.missing)} of {gib(whole)} were missing, line {window.shortage.line}"
        more = "; graphs take more" if window.shortage.phase in _CAPTURING else ""
        fraction = (
            f"--mem-fraction-static by more than {step} ({lacked}{more}; the log lacks the value in force)"
        )
    if _in_a_prefill(launch, window.shortage):
        text = f"{_smaller_chunks(launch)}, or lower {fraction}"
    elif no_graphs(launch):
        text = f"lower {fraction}"
    elif window.largest is None and window.shortage.phase in _CAPTURING:  # the number is a lower bound alone
        text = f"capture fewer graphs (--cuda-graph-max-bs), or lower {fraction}"
    else:
        text = f"lower {fraction}, or capture fewer graphs (--cuda-graph-max-bs)"
    if window.smallest is not None:
        text += f"; the weights need more than {round_up(window.smallest, 3)}"
    return text


def unknown_step(launch: Launch, line: int) -> str | None:
    """Return which number is missing to tell how far to lower the fraction for a shortage; None for none."""
    found = next((one for one in shortages(launch) if one.line == line), None)
    if found is None:
        lacking = "what was asked for and what was free (the error's text does not tell)"
    elif found.free is None:
        lacking = "what was free (the error's text ends before it)"
    elif found.missing is not None and not found.capacity:
        lacking = "the size of the device (the error's text does not tell)"
    else:
        return None
    return f"by how much is not known: the log lacks {lacking}"


def held(shortage: Shortage) -> str:
    """Return what other processes hold on a device, in words."""
    named = [f"process {pid} holds {gib(size)}" for pid, size in shortage.others if pid is not None]
    if not named:
        return f"other processes hold {gib(shortage.foreign)}"
    more = f" and {len(named) - 3} more processes" if len(named) > 3 else ""
    return f"{', '.join(named[:3])}{more}"
