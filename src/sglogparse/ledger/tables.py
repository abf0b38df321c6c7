"""What SGLang allocates beside the pools without a line of its own: the table of requests and tokens, lists.

Source: ReqToTokenPool in mem_cache/memory_pool.py, the allocators in mem_cache/allocator.py.
"""

from __future__ import annotations

from fractions import Fraction

from sglogparse._interval import GIB, Interval
from sglogparse._launches import Launch
from sglogparse.ledger.model import releases
from sglogparse.ledger.readings import Rank

#: Columns of the request table beyond the context length: four, and the tokens of drafts.
_MARGIN = 64
#: The longest context of models that are served, in tokens.
_LONGEST = 1 << 20
#: Rows of the request table where nothing limits the requests: 2048 to 4096 (5120 up to 0.3.0), and one.
_ROWS = (2048, 5121)
#: Requests a context's worth of tokens, by which the oldest releases (0.2.0) size the table without a limit.
_REQUESTS = 512
#: The first release that limits them, and the first whose table has as many rows as the arguments ask for.
_ROWS_LIMITED, _ROWS_AS_GIVEN = (0, 2, 15), (0, 4, 4)
#: The allocator rounds each buffer up to 2 MiB; K and V of a hundred layers are two hundred buffers.
_ROUNDED = Fraction(200 * 2, 1024)
#: Bytes a token of the allocator's lists (free pages, the map of a sliding window).
_LISTS = 24


def context_of(launch: Launch, rank: Rank) -> int | None:
    """Return the context length that the log tells, in tokens."""
    given = launch.argument("context_length")
    return rank.context or (given if isinstance(given, int) else None)


def request_table(launch: Launch, rank: Rank) -> Interval:
    """Return what the table of requests and tokens and the allocator's lists take, GiB.

    Source: ReqToTokenPool in mem_cache/memory_pool.py: four bytes for each token of each request.
    """
    context = context_of(launch, rank)
    if context is None:
        return Interval(Fraction(0), Fraction(_ROWS[1] * _LONGEST * 4, GIB) + _ROUNDED)
    given = launch.argument("max_running_requests")
    known = [one for one in (rank.requests, given) if isinstance(one, int)]
    fewest, most = (min(known), max(known) * 2) if known else _ROWS
    window = releases(launch)
    if not isinstance(given, int) or window is None or window[0] < _ROWS_AS_GIVEN:
        most = max(most, _ROWS[1])
        if rank.capacity is not None and (window is None or window[0] < _ROWS_LIMITED):
            most = max(most, int(rank.capacity.text) * _REQUESTS // context + 1)
    if any(pool.what == "state pool" for pool in rank.target.pools):
        fewest = 1  # as many as there are states for
    tokens = max((int(pool.tokens.text) for pool in rank.target.pools if pool.tokens), default=0)
    table = Fraction(most * (context + _MARGIN) * 4 + _LISTS * tokens, GIB)
    return Interval(Fraction(fewest * context * 4, GIB), table + _ROUNDED)
