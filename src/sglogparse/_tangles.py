"""Several tracebacks whose lines are mixed, as processes that share one stream leave them.

    blocks of neighbouring lines --> a traceback begins while another one is open --> told apart, or ambiguous

Whatever is told apart is certain: no stack is made of the lines of two tracebacks. One thing is taken for
granted: when every line stands there once (or as often again) for each traceback, they are equal.
"""

from __future__ import annotations

from collections import Counter
from math import gcd

from sglogparse._tracebacks import BEGIN, RAISED, Block, Line, Shape, shape_of, split

#: Steps that are taken to tell copies of one traceback apart.
_MOST_STEPS = 20_000
#: Rows between two blocks whose lines can belong to each other.
_FAR = 50
#: Shapes of lines that are part of some traceback, wherever they stand between others.
_PARTS = (Shape.BEGIN, Shape.FRAME, Shape.INDENTED, Shape.EXCEPTION, Shape.CHAIN)


def untangle(blocks: list[Block], lines: list[Line]) -> list[Block]:
    """Return the blocks of neighbouring lines, with the mixed ones told apart or marked."""
    if len(blocks) < 2:
        return blocks
    found: list[Block] = []
    texts = {row: (text, shape_of(text)) for row, text, _ in lines}
    headed = {row for row, _, head in lines if head}
    start = 0
    while start < len(blocks):
        end, mixed = _reach(blocks, start, texts)
        group = blocks[start:end]
        rows, raised = _parts(group, texts)
        if mixed and not _in_sequence(group, raised, texts, headed):
            found += _equal(rows, raised, texts) or _ambiguous(group, rows, raised, texts)
        else:
            end = start + 1
            found.append(blocks[start])
        start = end
    return found


def _begun(block: Block) -> bool:
    return block.texts[0].endswith(BEGIN) or (len(block.texts) > 1 and block.texts[1].endswith(BEGIN))


def _reach(blocks: list[Block], start: int, texts: dict[int, tuple[str, Shape]]) -> tuple[int, bool]:
    """Return the end of the blocks whose lines may belong to each other, and whether any do.

    Each traceback that begins has an exception to come; while more than one is open, a line can be of any.
    """
    opened, chained, mixed = 0, 0, False
    for at in range(start, len(blocks)):
        block = blocks[at]
        if block.dumped or block.margins:
            return max(at, start + 1), mixed
        last = max(block.rows) + _FAR
        if at > start and block.rows[0] > max(blocks[at - 1].rows) + _FAR:
            return at, mixed
        if at > start and opened <= 0 and chained <= 0:
            # only heads that were cut off, above, make what has no head here part of it
            close = blocks[at - 1].rows[-1] + 1 == block.rows[0]
            headless = not _begun(block) and (block.framed or not _begun(blocks[start]))
            if not (close and headless and any(one.framed for one in blocks[start : at + 1])):
                return at, mixed
            mixed = True
        if not _begun(block) and opened <= 0:
            opened = 1
        end = blocks[at + 1].rows[0] if at + 1 < len(blocks) else last
        for row in range(block.rows[0], min(end, last)):
            shape = texts[row][1] if row in texts else None
            if shape is Shape.BEGIN:
                mixed = mixed or (opened > 0)
                opened, chained = opened + 1, max(chained - 1, 0)
            elif shape is Shape.CHAIN:
                chained += 1
            elif row in block.raised:
                opened -= 1
    return len(blocks), mixed


def _parts(group: list[Block], texts: dict[int, tuple[str, Shape]]) -> tuple[list[int], list[int]]:
    """Return the rows of all the lines that are mixed, and those on which an exception stands."""
    first, last = group[0].rows[0], max(group[-1].rows)
    known = {row for block in group for row in block.rows}
    plain = {texts[row][0] for row in known if texts[row][1] is Shape.PLAIN}
    rows = [
        row
        for row in range(min(known), max(*known, last) + 1)
        if row in known
        or (first <= row <= last and row in texts and (texts[row][1] in _PARTS or texts[row][0] in plain))
    ]
    raised = [row for block in group for row in block.raised]
    # an exception of an unusual name, behind another one, looks like a line of the other one's message
    more = [row for row in rows if texts[row][1] is Shape.PLAIN and RAISED.match(texts[row][0])]
    told = {texts[row][0] for row in raised}
    raised = sorted({*raised, *(row for row in more if texts[row][0] in told)})
    wanted = sum(texts[row][1] is Shape.BEGIN for row in rows)
    return rows, sorted({*raised, *more}) if len({*raised, *more}) == wanted else raised


def _in_sequence(
    group: list[Block], raised: list[int], texts: dict[int, tuple[str, Shape]], headed: set[int]
) -> bool:
    """Tell whether the first traceback was cut off, and the others certainly follow each other."""
    first, *rest = group
    if not all(map(_begun, group)) or any(block.open for block in rest[:-1]):
        return False
    if len(raised) > sum(len(block.raised) for block in group):
        return False
    if all(block.rows[0] in headed for block in rest):
        return True  # a record is written in one piece
    return all(_frames(block, texts) <= _frames(first, texts) for block in rest)


def _frames(block: Block, texts: dict[int, tuple[str, Shape]]) -> set[str]:
    return {texts[row][0].strip() for row in block.rows if texts[row][1] is Shape.FRAME}


def _equal(rows: list[int], raised: list[int], texts: dict[int, tuple[str, Shape]]) -> list[Block]:
    """Return the tracebacks when all of them have the same stack, and only one can be that; else nothing."""
    keys: dict[int, str] = {}
    for row in rows:
        text, shape = texts[row]
        if shape is not Shape.BLANK:
            begin = "begin" if shape is Shape.BEGIN else "\t" + text.strip()
            keys[row] = "raised" if row in raised else begin
    counts = Counter(keys.values())
    fixed = {key for row, key in keys.items() if key[0] != "\t" or texts[row][1] is not Shape.PLAIN}
    number = gcd(*(counts[key] for key in fixed))
    if number < 2 or not {"begin", "raised"} <= fixed:
        return []
    keys = {row: key for row, key in keys.items() if not counts[key] % number}
    copies = _copies(list(keys.items()), {key: count // number for key, count in counts.items()}, number)
    # which process raised which of several exceptions is not known
    same = len({texts[row][0] for row in raised}) * number == len(raised)
    blocks: list[Block] = []
    for copy in copies:
        found = split([(row, texts[row][0], False) for row in copy])
        if len(found) != 1 or found[0].rows != copy or found[0].open:
            return []
        found[0].ambiguous = not same
        blocks += found
    if blocks:
        rest = sorted(set(rows) - {row for copy in copies for row in copy})
        blocks[0].origin, blocks[0].rows = blocks[0].rows, [*blocks[0].rows, *rest]
    return blocks


def _copies(lines: list[tuple[int, str]], counts: dict[str, int], number: int) -> list[list[int]]:
    """Return the rows of each copy when the lines are copies of one text in one way only; else nothing.

    The text is found on the way: what no copy has printed yet is its next line.
    """
    found: tuple[tuple[str, ...], list[list[int]]] | None = None
    ways: list[tuple[int, tuple[str, ...], tuple[tuple[int, ...], ...]]] = [(0, (), ((),) * number)]
    seen: set[tuple[int, tuple[str, ...], tuple[int, ...]]] = set()
    for _ in range(_MOST_STEPS):
        if not ways:
            return found[1] if found else []
        at, text, copies = ways.pop()
        if at == len(lines):
            if found and found[0] != text:
                return []
            found = text, [list(copy) for copy in copies]
            continue
        row, key = lines[at]
        for place in {len(copy): index for index, copy in reversed(list(enumerate(copies)))}.items():
            length, index = place
            if length == len(text) and text.count(key) < counts[key]:
                longer = (*text, key)
            elif length < len(text) and text[length] == key:
                longer = text
            else:
                continue
            moved = (*copies[:index], (*copies[index], row), *copies[index + 1 :])
            state = at + 1, longer, tuple(sorted(map(len, moved)))
            if state not in seen:
                seen.add(state)
                ways.append((at + 1, longer, moved))
    return []


def _ambiguous(
    group: list[Block], rows: list[int], raised: list[int], texts: dict[int, tuple[str, Shape]]
) -> list[Block]:
    """Return what is certain: how the first traceback begins, and each exception, without a stack."""
    blocks: list[Block] = []
    if _begun(group[0]) and group[0].open and group[0].framed and not group[0].raised:
        # until the second one begins all lines are the first one's
        blocks.append(group[0])
        blocks[0].ambiguous = True
        rows = [row for row in rows if row not in group[0].rows]
    loose = [texts[row][0] for row in rows if texts[row][1] is Shape.FRAME]
    others = [row for row in rows if row not in raised[1:]]
    for index, row in enumerate(raised or [rows[0]]):
        text = texts[row][0] if raised else ""
        blocks.append(
            Block(
                others if index == 0 else [row],
                [text],
                ambiguous=True,
                loose=[] if index else loose,
                origin=[row],
            )
        )
    return blocks
