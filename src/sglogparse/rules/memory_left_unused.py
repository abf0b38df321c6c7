"""Much memory of the device that is left unused after a start."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from sglogparse._budget import has_state_pools, is_plain
from sglogparse._interval import GIB
from sglogparse._launches import Launch
from sglogparse._ranks import on_ranks, rank_list
from sglogparse._report import Finding, Severity
from sglogparse.ledger.ledger import read_ledger
from sglogparse.ledger.readings import Number, Rank
from sglogparse.ledger.window import (
    before_weights,
    down,
    fraction_in_force,
    free_lines,
    gib,
    middle,
    token_bytes,
    total_memory,
)

#: The lowest fraction that a release chooses by itself is 0.79 (or 0.8 with its factors for images, 0.72).
_LOW_FRACTION = Fraction(72, 100)
#: What a default start leaves is up to a fifth of the device, as graphs and activations take of that.
_UNUSED_SHARE = Fraction(20, 100)
#: Less than this is not worth a word.
_UNUSED_GIB = Fraction(10)
#: What to keep free at least when the fraction is raised, share of the device: activations, fragmentation.
_KEEP_SHARE = Fraction(12, 100)


def memory_left_unused(launch: Launch) -> Iterator[Finding]:
    """Report a device of which much memory is left unused after the start.

    What it finds:
        A start that is complete, with a mem_fraction_static below what any release chooses by itself (or a
        cap by --max-total-tokens), and more than a fifth of the device free.

    Why it matters:
        More KV cache means more requests at once and a longer context. Nothing is wrong; it may be meant so,
        when something else shares the device.

    Evidence:
        The last line with the free memory, and what a higher fraction would give in tokens.

    Does not match:
        What the default fraction leaves, for graphs and activations; starts that are not over; CPUs, whose
        memory is shared.

    What to do:
        Raise --mem-fraction-static step by step, as long as graph capture and the longest prompts still work.
    """
    if launch.argument("device") == "cpu" or (launch.serves is None and launch.frames["capacity"].is_empty()):
        return
    ends = [(rank, number) for rank in read_ledger(launch).ranks if (number := _end(rank)) is not None]
    total = total_memory(launch)
    if not ends or not total:
        return
    rank, left = min(ends, key=lambda one: middle(one[1]))
    own = before_weights(rank)  # what is shown of it is its own, whichever rank has least
    unused = middle(left)
    if unused < max(_UNUSED_GIB, _UNUSED_SHARE * total) or unused >= total:
        return
    given, cap = fraction_in_force(launch), launch.argument("max_total_tokens")
    low = given is not None and given < _LOW_FRACTION
    capped = type(cap) is int and cap > 0
    if not low and not capped:
        return
    why = (
        f"--max-total-tokens {cap} caps the pool"
        if capped
        else f"mem_fraction_static is {float(given or 0):g}"
    )
    whole = gib(middle(own) if own else total)
    yield Finding(
        Severity.INFO,
        f"After the start {left.text} of {whole} are still free{on_ranks([rank.name])}: {why}.",
        launch.evidences([left.line]),
        fix=_fix(launch, given, total, unused, capped=capped),
        ranks=rank_list([rank.name]),
    )


def _end(rank: Rank) -> Number | None:
    """Return the last free memory that a rank prints, behind its pools; GiB."""
    if rank.target.pool_end is None and rank.free is None:
        return None
    return max((number for _, number in free_lines(rank)), key=lambda number: number.line)


def _fix(launch: Launch, given: Fraction | None, total: Fraction, unused: Fraction, *, capped: bool) -> str:
    spare = unused - _KEEP_SHARE * total
    cell = token_bytes(launch)
    tokens = f" = {spare * GIB // cell} tokens" if cell and not has_state_pools(launch) else ""
    if capped:
        return (
            f"if more requests at once are wanted, raise --max-total-tokens: {gib(spare)}{tokens} would fit"
        )
    if given is None:
        return "if nothing else shares the device, raise --mem-fraction-static"
    raised = down(given + spare / total, 2)
    spare = (Fraction(raised) - given) * total
    tokens = f" = {spare * GIB // cell} tokens" if cell and is_plain(launch) else ""
    gain = f"gives the pool about {gib(spare)}{tokens} more"
    return f"if nothing else shares the device, --mem-fraction-static {raised} {gain}"
