"""Text into lines that fit a terminal: cut between words, not within a number or a sum, measured in cells.

The text must be `plain` before it comes here. No line begins with what a CI runner takes for a command,
wherever the wrapping happens to cut.
"""

from __future__ import annotations

from rich.cells import cell_len

from sglogparse._cheap import lazy
from sglogparse._safe import tame

#: A blank at which a line is not broken (private use: `plain` lets none through).
_GLUE = "\ue000"
_NUMBER = r"-?[0-9]"
_GLUED = lazy(
    rf"(?<=[0-9]) (?=(?:GiB|MiB|GB|MB|tokens|min|s|ms|h)\b|[-+x/] {_NUMBER})"  # 20.6 GiB, 94.0 x 0.45
    rf"|(?<=\w) (?== {_NUMBER})|(?<= [-+x=/]) (?={_NUMBER})"  # rest = 21.7
)


def wrap(text: str, width: int, *, first: str = "", rest: str = "", most: int = 0) -> list[str]:
    """Return text in lines of at most `width` cells, at most `most` of them (0: all).

    `first` begins the first line and `rest` the others. What is left out is shown as "...".

    >>> wrap("the rest = 21.7 - 94.0 x 0.45 = -20.6 GiB", 40, rest="  ")
    ['the', '  rest = 21.7 - 94.0 x 0.45 = -20.6 GiB']
    """
    room = width - max(len(first), len(rest))
    cut = bool(most) and len(text) > most * width
    lines: list[str] = []
    line, bare = first, True  # bare: the line holds nothing but its indent
    for word in _words(text[: most * width] if cut else text, room):
        blank = "" if bare else " "
        if not bare and cell_len(f"{line} {word}") > width:
            lines.append(line)
            line, blank, bare = rest, "", True
            if not word:
                continue
        left = word if line.strip() else tame(word)
        while cell_len(line + blank + left) > width:
            head = _head(left, width - cell_len(line + blank))
            lines.append(line + blank + head)
            line, blank, left = rest, "", tame(left[len(head) :])
        line += blank + left
        bare = False
    lines.append(line)
    if most and (cut or len(lines) > most):
        end = min(most, len(lines)) - 1
        lines[end:] = [" ".join([lines[end], *(line.strip() for line in lines[end + 1 :])])]
        lines[-1] = _head(lines[-1], width - 3) + "..."
    return [line.replace(_GLUE, " ").rstrip() for line in lines]


def glued(text: str) -> str:
    """Return a text whose blanks are no place to break a line, as long as it fits in one."""
    return text.replace(" ", _GLUE)


def _words(text: str, room: int) -> list[str]:
    words: list[str] = []
    for word in _GLUED.sub(_GLUE, tame(text)).split(" "):
        words += [word] if cell_len(word) <= room else word.split(_GLUE)
    return words


def _head(text: str, cells: int) -> str:
    """Return as much of a text as fits; one character at least."""
    end = min(len(text), max(cells, 1))
    while end > 1 and cell_len(text[:end]) > cells:
        end -= 1
    return text[:end]
