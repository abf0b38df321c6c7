"""The memory of a start for a terminal: a table that adds up, a bar, the budget, what contradicts, what if.

server.log, lines 1-120: memory of 8 ranks, GiB
rank     total weights KV cache graphs  other   free
TP0-TP7  94.04   72.33    10.42   1.93   0.62*  8.74
...
"""

from __future__ import annotations

from collections.abc import Sequence

from sglogparse._budget import NARROW
from sglogparse._interval import GIB, Interval, round_up
from sglogparse._ranks import rank_spread
from sglogparse._safe import plain
from sglogparse.ledger.account import TERMS, Account, Amount
from sglogparse.ledger.rank_equations import FALLS
from sglogparse.ledger.statement import SCHEMA, Statement
from sglogparse.ledger.whatif import Budget, Prediction
from sglogparse.render._json import dumps
from sglogparse.render._wrap import glued, wrap

#: Rows of ranks that are shown; the rest is counted.
_MOST_ROWS = 16
#: How a term is drawn in the bar.
_MARKS = {
    "weights": "W",
    "draft": "D",
    "KV cache": "K",
    "states": "S",
    "graphs": "G",
    "other": "o",
    "given back": "<",
    "unexplained": "?",
    "free": ".",
}
_NAMES = {"draft": "draft model", "states": "state pools"}
_INDENT = "  "
#: A fraction that is known to this is written as one number.
_SHARP = 0.004
#: Terms whose notes are said below the table.
_NOTED = ("KV cache", "given back")


def render_memory(found: Sequence[Statement], width: int, *, every: bool = False) -> str:
    """Return the memory of each launch as text of at most `width` cells; with `every`, all ranks."""
    if not found:
        said = "no rank of the log prints its free memory and what it took: there is nothing to account for"
        return "\n".join(wrap(said, width))
    return "\n\n".join("\n".join(_statement(one, width, every)) for one in found)


def memory_json(found: Sequence[Statement]) -> str:
    """Return the memory of each launch as JSON (schema sglogparse/memory/1)."""
    return dumps({"schema": SCHEMA, "launches": [one.as_dict() for one in found]})


def _statement(one: Statement, width: int, every: bool) -> list[str]:
    where = f"{plain(one.file)}, lines {one.first_line}-{one.last_line}"
    count = len(one.accounts)
    ranks = "1 rank" if count == 1 else f"{count} ranks"
    out = wrap(f"{where}: memory of {ranks}, GiB" if count else f"{where}: memory", width)
    if one.accounts:
        out += _table(one.accounts, width, every)
    for budget in one.budgets:
        out += _budget(one, budget, width)
    out += _host(one, width)
    if one.left_out:
        out += wrap(f"{one.left_out} more lines of memory are of no start: left out", width)
    for conflict, _ in one.contradictions:
        if {equation.name for equation in conflict.equations} == {FALLS}:
            said = " and ".join(f"{plain(f.text)} at line {f.line}" for f in conflict.facts if f.line)
            out += ["", *wrap(f"free memory rises: {said}; a process left, or two starts are mixed", width)]
            continue
        out += ["", *wrap(f"these {len(conflict.facts)} statements cannot all be true:", width)]
        for fact in conflict.facts:
            at = f"line {fact.line}" if fact.line is not None else "assumed"
            out += wrap(f"{at}: {plain(fact.text)}", width, first=_INDENT, rest=_INDENT * 2)
        out += wrap(
            "by " + "; ".join(dict.fromkeys(e.name for e in conflict.equations)),
            width,
            first=_INDENT,
            rest=_INDENT,
        )
    for prediction in one.predictions:
        out += _prediction(one, prediction, width)
    return out


def _number(amount: Amount | None) -> str:
    if amount is None:
        return "-"
    return f"{_two(amount.interval)}{' ' if amount.printed else '*'}"


def _two(interval: Interval) -> str:
    text = interval.text(2)
    return "0.00" if text == "-0.00" else text


def _table(accounts: Sequence[Account], width: int, every: bool) -> list[str]:
    """Return the table of the ranks, equal ones in one row, a bar of the first, and what the marks mean."""
    terms = [term for term in TERMS if any(term in one.parts for one in accounts)]
    rows: dict[tuple[str, ...], list[Account]] = {}
    for one in accounts:
        numbers = (_number(one.total), *(_number(one.parts.get(term)) for term in terms))
        rows.setdefault(numbers, []).append(one)
    shown = list(rows.items()) if every else list(rows.items())[:_MOST_ROWS]
    names = [rank_spread(one.rank for one in members) or "the server" for _, members in shown]
    out = _rows([(name, *cells) for name, (cells, _) in zip(names, shown, strict=True)], terms, width)
    left = len(rows) - len(shown)
    if left:
        out += wrap(f"(and {left} more rows; --all shows them)", width)
    if any("*" in cell for cells, _ in shown for cell in cells):
        out += wrap("* inferred from other numbers, not printed", width)
    sample = accounts[0]
    out += _bar(sample, terms, width)
    for why in dict.fromkeys(
        f"no {term}: {reason}" for one in accounts for term, reason in one.absent.items()
    ):
        out += wrap(why, width)
    return [*out, *_closing(accounts, width)]


def _rows(rows: list[tuple[str, ...]], terms: list[str], width: int) -> list[str]:
    """Return the rows below their heads: heads in two lines, then the columns in blocks, where it is narrow.

    A name that is too long for its column stands above its numbers, in up to three lines.
    """
    heads: list[tuple[str, ...]] = [(f"{term} ",) for term in ("total", *terms)]
    first = min(max(map(len, ("rank", *(row[0] for row in rows)))), max(8, width // 4))
    if first + sum(1 + size for size in _sizes(heads, rows)) > width + 1:  # the last column ends in a blank
        heads = [tuple(f"{word} " for word in head[0].split()) for head in heads]
    sizes = _sizes(heads, rows)
    out: list[str] = []
    for begin, end in _blocks(sizes, width + 1 - first):
        tall = max(len(head) for head in heads[begin:end])
        words = [("",) * (tall - len(head)) + head for head in heads[begin:end]]
        for line in range(tall):
            name = "rank" if line == tall - 1 else ""
            out.append(_line(name, first, [one[line] for one in words], sizes[begin:end]))
        for name, *cells in rows:
            if len(name) > first:
                out += wrap(", ".join(map(glued, name.split(", "))), width, most=3)
            out.append(_line(name if len(name) <= first else "", first, cells[begin:end], sizes[begin:end]))
    return out


def _sizes(heads: list[tuple[str, ...]], rows: list[tuple[str, ...]]) -> list[int]:
    """Return the width of each column."""
    columns = zip(heads, *(row[1:] for row in rows), strict=True)
    return [max(map(len, (*head, *cells))) for head, *cells in columns]


def _blocks(sizes: list[int], room: int) -> list[tuple[int, int]]:
    """Return which columns stand side by side: as many as fit, in blocks of about as many each."""
    out: list[tuple[int, int]] = []
    most = len(sizes)
    while True:
        out, begin = [], 0
        while begin < len(sizes):
            end = begin + 1
            while (
                end < min(len(sizes), begin + most)
                and sum(1 + size for size in sizes[begin : end + 1]) <= room
            ):
                end += 1
            out.append((begin, end))
            begin = end
        even = -(-len(sizes) // len(out))
        if even >= most:
            return out
        most = even


def _line(name: str, first: int, cells: Sequence[str], sizes: Sequence[int]) -> str:
    numbers = " ".join(cell.rjust(size) for cell, size in zip(cells, sizes, strict=True))
    return f"{name.ljust(first)} {numbers}".rstrip()


def _bar(account: Account, terms: list[str], width: int) -> list[str]:
    """Return a bar of the parts by their size, and its legend; nothing where the parts are not known."""
    if "free" not in account.parts or "weights" not in account.parts:
        return []
    # what was given back is in the others' uses twice
    back = account.parts.get("given back")
    sizes = [
        (term, max(account.parts[term].middle, 0.0))
        for term in terms
        if term in account.parts and account.parts[term] is not back
    ]
    whole = sum(size for _, size in sizes)
    if whole <= 0:
        return []
    room = min(width, 80) - 2
    bar, done, drawn = "", 0.0, 0
    for term, size in sizes:
        done += size
        end = round(room * done / whole)
        bar += _MARKS[term] * (end - drawn)
        drawn = end
    legend = ", ".join(f"{_MARKS[term]} {_NAMES.get(term, term)}" for term, size in sizes if size > 0)
    return [f"[{bar}]", *wrap(legend, width)]


def _closing(accounts: Sequence[Account], width: int) -> list[str]:
    said: dict[str, list[str | None]] = {}
    for one in accounts:
        said.setdefault(one.closes, []).append(one.rank)
    if len(said) == 1:
        return wrap(
            f"the account {next(iter(said))}" if "closes" in next(iter(said)) else next(iter(said)), width
        )
    return [
        line
        for text, ranks in said.items()
        for line in wrap(f"{rank_spread(ranks) or 'the server'}: {text}", width)
    ]


def _host(one: Statement, width: int) -> list[str]:
    """Return the pools in the memory of the host, equal ones of several ranks together."""
    pools: dict[tuple[str, Interval], list[str | None]] = {}
    for pool in one.host:
        pools.setdefault((pool.what, pool.size), []).append(pool.rank)
    out: list[str] = []
    for (what, size), ranks in pools.items():
        gib = size / Interval.exactly(GIB)
        text = f"host memory for {plain(what)}: {gib.text(2)} GiB"
        if len(ranks) > 1:
            whole = gib * Interval.exactly(len(ranks))
            text += f" on each of {len(ranks)} ranks, {whole.text(2)} GiB together"
        out += wrap(text, width)
    return ["", *out] if out else []


def _range(interval: Interval, decimals: int) -> str:
    """Return an interval: one number when both ends print alike."""
    low, high = f"{float(interval.low):.{decimals}f}", f"{float(interval.high):.{decimals}f}"
    return low if low == high else f"{low} to {high}"


def _budget(one: Statement, budget: Budget, width: int) -> list[str]:
    """Return the sum of a budget, what it leaves outside, the smallest fraction, and the tokens."""
    head = f"budget {budget.group}".strip()
    said: list[str] = []
    if budget.total is None or budget.avail is None:
        first = f"{head}: the log does not tell what was free before and after the weights"
    elif budget.fraction is None or budget.rest is None:
        first = f"{head}: {_two(budget.total)} free before the weights, {_two(budget.avail)} after"
        said.append("mem_fraction_static is not in the log")
    else:
        sharp = budget.fraction.high - budget.fraction.low <= _SHARP
        fraction = budget.fraction.text(3).rstrip("0") if sharp else "f"
        sizes = f"{_two(budget.avail)} - {_two(budget.total)} x (1 - {fraction})"
        first = f"{head}: {sizes} = {_range(budget.rest, 2)} GiB"
        if budget.taken.high > 0:
            first += f", of which state pools take {_two(budget.taken)}"
        text = (
            f"mem_fraction_static {fraction if sharp else _range(budget.fraction, 3)} {budget.fraction_from}"
        )
        if one.implied is not None and budget.fraction_from != "implied by the pool":
            text += f"; the pool implies {_range(one.implied.interval, 4)}"
            if one.drifts and not one.contradictions and not one.implied.interval.meets(budget.fraction):
                text += ": free memory changed by up to 0.15 GiB between the lines and the sizing"
        said.append(text)
        if sharp:
            said.append(_reserved(one, budget.total - budget.total * budget.fraction))
    if budget.smallest is not None:
        smallest = round_up(budget.smallest.high, 3)
        text = f"smallest mem_fraction_static that leaves room for any token: {smallest}"
        request = budget.smallest_for_a_request
        fits = request is not None and request.high <= NARROW
        batch = budget.smallest_for(budget.batch) if budget.batch and not fits else None
        if request is not None and request.high < 1:
            text += f", for a request of full context ({budget.context} tokens): {round_up(request.high, 3)}"
        if batch is not None and batch.high < 1:
            text += f", for a prefill batch of {budget.batch} tokens: {round_up(batch.high, 3)}"
        said.append(text)
    said.append(_tokens(budget))
    if one.without.get(budget.group):
        said.append(f"pools and budget are not compared: {one.without[budget.group]}")
    out = ["", *wrap(first, width, rest=_INDENT)]
    for text in said:
        out += wrap(text, width, first=_INDENT, rest=_INDENT * 2)
    return out


def _reserved(one: Statement, reserved: Interval) -> str:
    """Say what stays outside the pools, and what has come out of it so far on the first rank."""
    text = f"reserved outside the pools: {_two(reserved)} GiB"
    parts = one.accounts[0].parts if one.accounts else {}
    names = [name for name in ("graphs", "other", "given back", "free") if name in parts]
    if "KV cache" in parts and names:
        text += ", of it " + ", ".join(f"{name} {_two(parts[name].interval)}" for name in names)
    return text


def _tokens(budget: Budget) -> str:
    if budget.tokens is None:
        return "tokens: not told (no pool, and no line prints the bytes a token)"
    word = "allocated" if budget.allocated else "that fit" if budget.tokens.high > 0 else "by the budget"
    text = f"tokens {word}: {_range(budget.tokens, 0)}"
    if budget.cell_size is not None:
        text += f", {_range(budget.cell_size, 0)} bytes each"
    if budget.requests is not None and budget.tokens.high > 0:
        text += f"; {_range(budget.requests, 0)} requests of full context ({budget.context} tokens)"
    return text


def _prediction(one: Statement, prediction: Prediction, width: int) -> list[str]:
    """Return what other arguments would give, beside what was."""
    before, after = prediction.before, prediction.after
    flags = one.changes.given() if one.changes else {}
    asked = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in flags.items())
    out = ["", *wrap(f"with {asked}{' on ' + after.group if after.group else ''}:", width)]
    verdict = _start(after)
    out += wrap(verdict, width, first=_INDENT, rest=_INDENT) if verdict else []
    rows = [
        ("budget, GiB", _cell(before.rest, 2), _cell(after.rest, 2)),
        ("KV cache, GiB", _cell(before.kv, 2), _cell(after.kv, 2)),
        ("tokens", _cell(before.tokens, 0), _cell(after.tokens, 0)),
        ("requests of full context", _cell(before.requests, 0), _cell(after.requests, 0)),
        ("free after the start, GiB", _cell(before.free, 2), _cell(after.free, 2)),
    ]
    if after.rest is not None and after.rest.high <= 0:
        rows = rows[:1]  # nothing is built
    left = max(len(row[0]) for row in rows)
    middle = max(len(row[1]) for row in rows)
    out += [f"{_INDENT}{name.ljust(left)}  {was.rjust(middle)}  ->  {then}" for name, was, then in rows]
    for text in prediction.missing:
        out += wrap(f"not predicted: {text}", width, first=_INDENT, rest=_INDENT * 2)
    for text in prediction.assumptions:
        out += wrap(f"assumed: {text}", width, first=_INDENT, rest=_INDENT * 2)
    return out


def _start(after: Budget) -> str | None:
    """Say that another start would fail, or may; None when nothing speaks against it."""
    if after.avail is not None and after.avail.high <= 0:
        return "it would not start: the weights do not fit"
    if after.rest is None:
        return None
    if after.rest.high <= 0:
        return "it would not start: the budget is not positive"
    if after.rest.low <= 0:
        return "it may not start: the budget may not be positive"
    if after.free is not None and after.free.low < 0:
        return f"it {'would' if after.free.high < 0 else 'may'} run out of memory behind the pools"
    return None


def _cell(interval: Interval | None, decimals: int) -> str:
    return "?" if interval is None else _range(interval, decimals)
