"""A KV pool that cannot hold one request of the whole context."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from sglogparse._budget import is_plain
from sglogparse._interval import GIB, round_up
from sglogparse._launches import Launch
from sglogparse._ranks import on_ranks, rank_list
from sglogparse._report import Finding, Severity
from sglogparse.ledger.ledger import read_ledger
from sglogparse.ledger.readings import Number, Rank
from sglogparse.ledger.window import fraction_in_force, token_bytes, total_memory

#: Models are often served with less than their context, on purpose; a pool below this share of it is an
#: accident.
_ACCIDENT = Fraction(10, 100)
#: The whole context of a model is rarely used: a pool that holds most of it is worth no word, unless somebody
#: asked for that context.
_MOST_OF_IT = Fraction(1, 2)
#: A fraction above this leaves too little for graphs and activations to be advised.
_MOST = Fraction(95, 100)


def pool_below_one_request(launch: Launch) -> Iterator[Finding]:
    """Report a KV pool with fewer tokens than one request may have.

    What it finds:
        A capacity line (or a pool's line and the arguments) whose number of tokens is below context_len.

    Why it matters:
        No error says so: the server cuts what a request may have to the size of the pool, less one token, and
        refuses longer prompts. A long request that fits fills the pool alone, so nothing runs beside it.

    Evidence:
        The line with both numbers.

    Does not match:
        Pools that hold one request of the whole context, or half of it where the context is the model's and
        not one that was asked for. Logs that tell only one of both numbers. It is information, unless the
        pool holds less than a tenth of the context.

    What to do:
        Say what is meant with --context-length, or make room: a larger --mem-fraction-static, a quantised KV
        cache, more ranks. The finding has the numbers where the log has them.
    """
    found = [
        (rank, tokens, context)
        for rank in read_ledger(launch).ranks
        for tokens, context in _sizes(launch, rank)
    ]
    asked = launch.argument("context_length") is not None
    enough = Fraction(1) if asked else _MOST_OF_IT
    small = [one for one in found if 0 < one[1].interval.low < enough * one[2]]
    if not small:
        return
    rank, tokens, context = min(small, key=lambda one: one[1].interval.low)
    size = int(tokens.interval.low)
    accident = size < _ACCIDENT * context
    yield Finding(
        Severity.WARNING if accident and launch.serves is None else Severity.INFO,
        f"The KV pool{on_ranks([rank.name])} holds {size} tokens, less than one request of the whole context "
        f"({context} tokens): requests are cut to {size - 1} tokens, and longer prompts are refused.",
        launch.evidences({tokens.line, *_context_line(launch, rank)}),
        fix=_fix(launch, size, context),
        ranks=rank_list(one.name for one, _, _ in small),
    )


def _sizes(launch: Launch, rank: Rank) -> Iterator[tuple[Number, int]]:
    """Yield a rank's tokens with the context: of its capacity line, else of its pool and the arguments."""
    if rank.capacity is not None:
        if rank.context:
            yield rank.capacity, rank.context
        return
    context = launch.argument("context_length")
    pools = [pool.tokens for pool in rank.target.pools if pool.what == "KV cache" and not pool.bound]
    if type(context) is int and len(pools) == 1 and pools[0] is not None:
        yield pools[0], context


def _context_line(launch: Launch, rank: Rank) -> list[int]:
    lines = launch.frames["server_args"]["line"]
    return [] if rank.capacity is not None or lines.is_empty() else [int(lines[0])]


def _fix(launch: Launch, size: int, context: int) -> str:
    """Return what would fit, with its number."""
    plain = f"start with --context-length {size - 1} if that is enough"
    cap = launch.argument("max_total_tokens")
    if type(cap) is int and cap < context:
        return f"{plain}, or raise --max-total-tokens ({cap} given)"
    cell, total, given = token_bytes(launch), total_memory(launch), fraction_in_force(launch)
    if cell is None or not total or given is None or not is_plain(launch):
        return (
            f"{plain}, or give the pool more memory (--mem-fraction-static, --kv-cache-dtype "
            f"fp8_e4m3, --tp-size)"
        )
    needed = given + (context - size) * cell / GIB / total
    if needed > _MOST:
        return (
            f"{plain}; no --mem-fraction-static makes room for {context}: use --kv-cache-dtype "
            f"fp8_e4m3 or more ranks"
        )
    return f"{plain}, or raise --mem-fraction-static from {float(given):g} to about {round_up(needed, 3)}"
