"""A comparison for a person at a terminal, and as one JSON object (schema sglogparse/comparison/1).

explained by mem_fraction_static 0.88 in A, 0.55 in B; ...            the verdict of each pair, and its proofs
start B with --mem-fraction-static of at least 0.770                  what to do

A  good.log:1-110: ready: ...                                         which launch of which file
B  bad.log:1-112: crashed, during KV cache set-up; ...

arguments                A      B                                     what differs; letters are the runs, and
mem_fraction_static      0.88   0.55                                  "A:49" is line 49 of A's file
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from sglogparse._comparison import (
    FRACTION,
    LETTERS,
    Comparison,
    Given,
    MemoryRow,
    Pair,
    PhaseCell,
    PhaseRow,
    Run,
    alike,
    names_of,
    span_of,
)
from sglogparse._ranks import rank_spread
from sglogparse._report import Outcome
from sglogparse._safe import mask_secrets, masked, plain, tame
from sglogparse._steps import Divergence
from sglogparse._vitals import span
from sglogparse.render._json import dumps
from sglogparse.render._wrap import wrap

_Row = TypeVar("_Row")

_STYLES = {
    "equal": "bold green",
    "alike": "bold green",
    "explained": "bold red",
    "possible": "bold yellow",
    "undecided": "bold yellow",
    "contradiction": "bold red",
    "unknown": "bold yellow",
    "incomparable": "bold yellow",
}
_FATES = {Outcome.CRASHED: "red", Outcome.HUNG: "red", Outcome.READY: "green", Outcome.STOPPED: "green"}
#: How many rows of each part are shown; --all and the JSON have all.
_ARGUMENTS = 10
_MEMORY = 8
_MATTERS = 4
_TEXTS = 2
_PROOFS = 6
#: The narrowest column, and the least gap between two, in cells.
_LEAST = 5
#: A phase is worth a line when one run takes longer by this much: s, and as a share.
_SLOWER_S = 5.0
_SLOWER = 1.25


def render_json(comparison: Comparison, *, show_secrets: bool = False) -> str:
    """Return the object, indented."""
    shown = comparison if show_secrets else hidden(comparison)
    return dumps(shown.as_dict())


def hidden(comparison: Comparison) -> Comparison:
    """Return a comparison with the secrets masked: of an argument, the name alone can make its value one."""
    rows = tuple(
        replace(row, values=tuple(_hidden(row.name, one) for one in row.values))
        for row in comparison.arguments
    )
    return masked(replace(comparison, arguments=rows))


def _hidden(name: str, given: Given) -> Given:
    if given.text is None:
        return given
    head = f"{name}="
    text = mask_secrets(head + given.text)
    return replace(given, text=text.removeprefix(head) if text.startswith(head) else "***")


class _Page:
    """The lines of the report, in order."""

    def __init__(self, width: int, *, everything: bool) -> None:
        self.text = Text()
        self.width = width
        self.everything = everything

    def put(self, text: str, style: str = "", *, first: str = "", rest: str = "  ", most: int = 0) -> None:
        """Add a text, made plain and wrapped."""
        most = 0 if self.everything else most
        text = text[: most * self.width + 1] if most else text
        for line in wrap(plain(text), self.width, first=first, rest=rest, most=most):
            self.text.append(f"{line}\n", style)

    def gap(self) -> None:
        """Add an empty line between two parts."""
        if self.text.plain and not self.text.plain.endswith("\n\n"):
            self.text.append("\n")

    def grid(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table that fits the width; its first column says of what each row is."""
        cells = [[tame(plain(cell[: 2 * self.width])) for cell in row] for row in (head, *rows)]
        sizes = [max(cell_len(row[index]) for row in cells) for index in range(len(head))]
        while sum(sizes) + 2 * (len(sizes) - 1) > self.width and max(sizes) > _LEAST:
            sizes[sizes.index(max(sizes))] -= 1
        for number, row in enumerate(cells):
            line = "  ".join(_fit(cell, size) for cell, size in zip(row, sizes, strict=True))
            self.text.append(
                f"{set_cell_size(line, min(cell_len(line), self.width)).rstrip()}\n", "" if number else "bold"
            )

    def cut(self, rows: Sequence[_Row], most: int) -> list[_Row]:
        """Return the rows that are shown."""
        return list(rows if self.everything else rows[:most])

    def more(self, left: int, what: str, tail: str = "") -> None:
        """Say that something was left out, where it was."""
        if left > 0:
            self.put(f"(+{left} more {what}{'' if left == 1 else 's'}{tail}: --all)", "dim", first="  ")


def _fit(cell: str, size: int) -> str:
    used = cell_len(cell)
    if used > size > 12 and "/" in cell:  # the end of a path tells more than its beginning
        tail = cell
        while cell_len(tail) > size - 3:
            tail = tail[1:]
        return f"...{tail}".ljust(size)
    if used > size:
        return set_cell_size(cell, size - 3) + "..." if size > 3 else set_cell_size(cell, size)
    return cell + " " * (size - used)


def render_text(
    comparison: Comparison,
    width: int = 80,
    colour: bool = False,
    *,
    everything: bool = False,
    show_secrets: bool = False,
) -> str:
    """Return the comparison, wrapped at a width; log text is never markup."""
    shown = comparison if show_secrets else hidden(comparison)
    page = _Page(width, everything=everything)
    several = len(shown.pairs) > 1
    for pair in shown.pairs:
        _verdict(page, pair, f"{LETTERS[0]}-{pair.letter}: " if several else "")
    page.gap()
    for run, name in zip(shown.runs, names_of(shown.runs), strict=True):
        _run(page, run, name)
    compared = [pair for pair in shown.pairs if pair.verdict.kind != "incomparable"]
    if compared:
        _arguments(page, shown)
        _memory(page, shown)
        for pair in compared:
            _pair(page, pair, f"{LETTERS[0]}-{pair.letter} " if several else "")
        _phases(page, shown)
    console = Console(
        file=(file := io.StringIO()),
        force_terminal=colour,
        width=width,
        color_system="standard" if colour else None,
        legacy_windows=False,
    )
    console.print(page.text, end="", soft_wrap=True, highlight=False)
    return file.getvalue().rstrip("\n")


def _verdict(page: _Page, pair: Pair, label: str) -> None:
    verdict = pair.verdict
    page.put(label + verdict.text, _STYLES[verdict.kind], most=6)
    for proof in [one for one in verdict.contradictions if one != verdict.text]:
        page.put(proof, "red", first="  ", rest="    ", most=5)
    for proof in page.cut(verdict.because, _PROOFS):
        page.put(proof, first="  ", rest="    ", most=5)
    page.more(len(verdict.because) - _PROOFS, "reason")
    for excluded in verdict.excluded:
        page.put(f"cannot explain it: {excluded}", first="  ", rest="    ", most=6)
    if verdict.advice:
        page.put(verdict.advice, "bold", first="  ", rest="    ", most=4)


def _run(page: _Page, run: Run, name: str) -> None:
    which = f", launch {run.launch} of {run.launches}" if run.launches > 1 else ""
    where = f"{name}:{run.first_line}-{run.last_line}{which}: " if run.launches else f"{name}: "
    parts = [
        run.headline.rstrip(".")
        + (f" ({run.cause})" if run.outcome in (Outcome.CRASHED, Outcome.HUNG) else "")
    ]
    if run.root is not None:
        parts.append(f"first fault {run.letter}:{run.root.line}")
    if run.ranks:
        parts.append(f"{len(run.ranks)} rank{'s' if len(run.ranks) > 1 else ''} ({rank_spread(run.ranks)})")
    if run.version_window:
        parts.append(f"SGLang {run.version_window}")
    page.put(
        where + "; ".join(parts), _FATES.get(run.outcome, ""), first=f"{run.letter}  ", rest="   ", most=4
    )
    for note in run.notes:
        if page.everything:
            page.put(f"limit: {note}", "dim", first="   ", rest="   ")


# ------------------------------------------------------------------ over all runs


def _arguments(page: _Page, shown: Comparison) -> None:
    page.gap()
    letters = [run.letter for run in shown.runs]
    picked = page.cut(shown.arguments, _ARGUMENTS)
    rows = []
    for row in picked:
        rows.append([row.name, *map(_given, row.values)])
        if row.name == FRACTION:
            rows += _implied(shown)
    if all(row.name != FRACTION for row in picked) and _told_apart(shown):
        rows = [[FRACTION, *map(_given, shown.declared)], *_implied(shown), *rows]
    if rows:
        page.grid(["arguments that differ", *letters], rows)
    page.more(len(shown.arguments) - len(picked), "argument")
    counts = [f"{shown.equal_arguments} equal"] if shown.equal_arguments else []
    if shown.passing:
        names = ", ".join(shown.passing)
        counts.append(f"{len(shown.passing)} drawn or local to every start ({names})")
    if shown.one_sided:
        counts.append(f"{len(shown.one_sided)} in some of the lists only, without a value")
    if counts:
        page.put(f"arguments: {'; '.join(counts)}", "dim", most=3)
    for run in shown.runs:
        if run.arguments_cut is None:
            page.put(f"{run.letter} has no server_args line: how it was started is not in the log", "dim")
        elif run.arguments_cut:
            page.put(
                f"{run.letter}'s server_args line is cut: what stands behind the cut is not known", "dim"
            )


def _told_apart(shown: Comparison) -> bool:
    """Tell whether the memory of the runs says other things of the fraction than equal arguments do."""
    known = [one for facts in shown.inferred for one in facts]
    hidden_somewhere = bool(known) and any(one.text is None for one in shown.declared)
    return hidden_somewhere or any(not alike(known[0], one) for one in known)


def _given(given: Given) -> str:
    if given.text is not None:
        return given.text
    return {"absent": "(absent)", "cut": "(cut)"}.get(given.state, "(not in log)")


def _implied(shown: Comparison) -> list[list[str]]:
    """Return what the numbers of the log say of the fraction."""
    out = []
    for label, inferred in (("  implied by pool", True), ("  printed", False)):
        found = [next((one for one in facts if one.inferred is inferred), None) for facts in shown.inferred]
        if any(found):
            cells = []
            for run, fact in zip(shown.runs, found, strict=True):
                if fact is None:
                    cells.append("-")
                elif inferred:
                    cells.append(f"{fact.text} {span_of(fact)}" if len(shown.runs) == 2 else fact.text)
                else:
                    cells.append(f"{fact.text} ({run.letter}:{fact.lines[0]})")
            out.append([label, *cells])
    return out


def _memory(page: _Page, shown: Comparison) -> None:
    if not shown.memory:
        return
    page.gap()
    rows = [row for row in shown.memory if row.differs]
    if page.everything:
        rows = list(shown.memory)
    letters = [run.letter for run in shown.runs]
    if rows:
        picked = page.cut(rows, _MEMORY)
        page.grid(
            ["memory (line)", "ranks", *letters],
            [
                [
                    f"{row.quantity}{f', {row.unit}' if row.unit == 'GiB' else ''}",
                    _ranks(row, shown),
                    *(f"{cell.text} ({cell.line})" if cell else "-" for cell in row.cells),
                ]
                for row in picked
            ],
        )
        page.more(len(rows) - len(picked), "row")
    same = [row for row in shown.memory if not row.differs and all(row.cells)]
    if same and not page.everything:
        names: dict[str, list[str]] = {}
        for row in same:
            cell = row.cells[0]
            if cell is not None:
                names.setdefault(f"{row.quantity}{' GiB' if row.unit == 'GiB' else ''}", []).append(cell.text)
        told = "; ".join(f"{name} {', '.join(dict.fromkeys(texts))}" for name, texts in names.items())
        page.put(f"memory alike (0.1 GiB or 0.5 %): {told}", "dim", most=3)
    partly = [row for row in shown.memory if not row.differs and not all(row.cells)]
    if partly and not page.everything:
        names = {}
        for row in partly:
            values = [
                f"{cell.text} ({run.letter}:{cell.line})"
                for run, cell in zip(shown.runs, row.cells, strict=True)
                if cell
            ]
            names.setdefault(f"{row.quantity}", []).append(", ".join(values))
        told = "; ".join(f"{name} {texts[0]}" for name, texts in names.items())
        page.put(f"memory in some of the runs only: {told}", "dim", most=3)


def _ranks(row: MemoryRow, shown: Comparison) -> str:
    having = [set(run.ranks) for run, cell in zip(shown.runs, row.cells, strict=True) if cell]
    if not row.ranks or all(one == set(row.ranks) for one in having):
        return "all"
    return rank_spread(row.ranks)


def _phases(page: _Page, shown: Comparison) -> None:
    rows = [row for row in shown.phases if page.everything or _slower(row)]
    if not shown.phases:
        return
    page.gap()
    if rows:
        head = ["slowest rank of a phase", *(run.letter for run in shown.runs)]
        page.grid(head, [[row.phase, *map(_duration, row.cells)] for row in rows])
    rest = [row for row in shown.phases if row not in rows]
    if rest:
        told = ", ".join(
            f"{row.phase} {' / '.join(span(cell.seconds) if cell else '-' for cell in row.cells)}"
            for row in rest
        )
        page.put(f"durations {'otherwise ' if rows else ''}alike: {told}", "dim", most=3)


def _duration(cell: PhaseCell | None) -> str:
    if cell is None:
        return "-"
    return " ".join(filter(None, ("" if cell.complete else ">", span(cell.seconds), cell.rank)))


def _slower(row: PhaseRow) -> bool:
    known = [cell.seconds for cell in row.cells if cell]
    if len(known) < 2:
        return False
    return max(known) - min(known) > _SLOWER_S and max(known) > _SLOWER * min(known)


# ------------------------------------------------------------------ pair by pair


def _pair(page: _Page, pair: Pair, label: str) -> None:
    one, two = LETTERS[0], pair.letter
    if pair.environment:
        page.gap()
        page.put(f"{label}said otherwise at the start", "bold")
        picked = page.cut(pair.environment, _MATTERS)
        for row in picked:
            sides = ((one, row.reference, row.reference_lines), (two, row.other, row.other_lines))
            alone = "" if row.reference and row.other else f" ({one if row.reference else two} only)"
            for letter, texts, lines in sides:
                shown = page.cut(texts, _TEXTS)
                for text, line in zip(shown, lines, strict=False):
                    told = f"{row.matter}{alone}: {letter}:{line} {text}"
                    page.put(told, first="  ", rest="    ", most=2)
                page.more(len(texts) - len(shown), "line", f" of {letter}")
        page.more(len(pair.environment) - len(picked), "matter")
    if pair.divergence is not None:
        page.gap()
        _divergence(page, pair.divergence, one, two, label)
    speed = pair.throughput
    if speed.reason is None:
        page.gap()
        for band in speed.bands:
            load = f"{band.least}-{band.most}" if band.most > band.least else f"{band.least}"
            page.put(
                f"{label}decode at {load} running: {one} {band.reference:.1f} tokens/s "
                f"(median of {band.reference_lines}), {two} {band.other:.1f} (median of {band.other_lines}), "
                f"{(band.ratio - 1) * 100:+.0f}%"
            )
    elif pair.verdict.kind in ("alike", "contradiction") or page.everything:
        page.gap()
        page.put(f"{label}decode throughput not compared: {speed.reason}", "dim")


def _divergence(page: _Page, parted: Divergence, one: str, two: str, label: str) -> None:
    after = f", after {parted.after}" if parted.after else ""
    what = {
        "missing": "a step that only one has",
        "other step": "other steps",
        "numbers": "other numbers",
        "ranks": "other ranks",
    }[parted.why]
    page.put(f"{label}first divergence{after}: {what}", "bold")
    sides: Iterable[tuple[str, int | None, tuple[str, ...], str | None]] = (
        (one, parted.line, parted.ranks, parted.text),
        (two, parted.other_line, parted.other_ranks, parted.other_text),
    )
    for letter, line, ranks, text in sides:
        if line is None:
            page.put(f"{letter} has no such line", first="  ", rest="    ")
        else:
            page.put(
                f"{letter}:{line}{f' {rank_spread(ranks)}' if ranks else ''}: {text}",
                first="  ",
                rest="    ",
                most=2,
            )
