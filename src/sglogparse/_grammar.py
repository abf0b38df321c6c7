"""The grammars, and Lark as the reference reader of a line.

    grammars/*.lark --+-- _compiler.py: gates and patterns for polars (bulk lines)
                      +-- this module:  Lark, LALR (the reference, and what is recursive)

Both readers must give the same fields for a line, or both refuse it; the tests hold them to it.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sglogparse._cheap import dataclass

if TYPE_CHECKING:
    from lark import Lark

#: The grammar files that together define a line, in the order in which they are read.
LINE_GRAMMARS = (
    "terminals.lark",
    "fields.lark",
    "header.lark",
    "wrappers.lark",
    "events.lark",
    "serving_fields.lark",
    "serving.lark",
    "startup_fields.lark",
    "startup.lark",
)

Value = int | float | bool | str


class Event(NamedTuple):
    """One line as the reference reader understands it."""

    kind: str
    fields: dict[str, Value]


@dataclass(frozen=True)
class Sample:
    """A line in a wording, with the releases that print it (first..last, or a word)."""

    releases: str
    text: str


def grammar_dir() -> Path:
    """Return the folder of the grammars: inside an installed package, else at the top of the source tree."""
    inside = Path(__file__).parent / "grammars"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "grammars"


@cache
def grammar_text(*names: str) -> str:
    """Return the text of the named grammar files, joined."""
    return "\n".join((grammar_dir() / name).read_text(encoding="utf-8") for name in names)


@cache
def docs() -> dict[str, str]:
    """Return the documentation of each rule and terminal: the //: lines above it."""
    return docs_of(grammar_text(*LINE_GRAMMARS))


@cache
def samples() -> dict[str, tuple[Sample, ...]]:
    """Return the sample lines of each rule: the //> lines above it."""
    return {
        name: tuple(found) for name, (_, found) in notes_of(grammar_text(*LINE_GRAMMARS)).items() if found
    }


@cache
def rule_names(file: str) -> tuple[str, ...]:
    """Return the event rules of a grammar file, in its order: those that have a sample line."""
    return tuple(name for name, (_, found) in notes_of(grammar_text(file)).items() if found)


def docs_of(text: str) -> dict[str, str]:
    """Return the documentation that a grammar's text gives its rules and terminals."""
    return {name: " ".join(lines) for name, (lines, _) in notes_of(text).items() if lines}


def terminal_bases(text: str) -> dict[str, str]:
    """Return, for each terminal that is defined as another one (`AVAIL_MEM: FLOAT`), that other one."""
    return dict(re.findall(r"^([A-Z0-9_]+): ([A-Z0-9_]+)$", text, re.MULTILINE))


def notes_of(text: str) -> dict[str, tuple[list[str], list[Sample]]]:
    """Return, for each rule and terminal of a grammar's text, its //: lines and its //> lines."""
    notes: dict[str, tuple[list[str], list[Sample]]] = {}
    doc: list[str] = []
    found: list[Sample] = []
    for line in text.splitlines():
        if line.startswith("//: "):
            doc.append(line[4:])
        elif line.startswith("//> "):
            releases, _, text = line[4:].partition(" | ")
            found.append(Sample(releases, text))
        elif match := re.match(r"(\w+)(?:\.-?\d)?: ", line):
            notes[match[1].lower()] = (doc, found)
            doc, found = [], []
        else:
            doc, found = [], []
    return notes


def convert(kind: str, text: str) -> Value | None:
    """Convert a field's text by its type; a printed None is None."""
    if kind == "int":
        return None if text == "None" else int(text)
    if kind == "float":
        return float(text)
    return text == "True" if kind == "bool" else text


class Reference:
    """The reference reader: Lark's LALR parser over the same rules, one line at a time."""

    def __init__(self) -> None:
        from lark import Lark

        from sglogparse._compiler import compiled_plan

        self._plan = compiled_plan()
        names = [*(event.name for event in self._plan.events), *(one.name for one in self._plan.wrappers)]
        self._starts = {
            event.name: tuple(start for wording in event.wordings for start in wording.prefixes)
            for event in self._plan.events
        }
        self._lark: Lark = Lark(
            grammar_text(*LINE_GRAMMARS), parser="lalr", start=[*names, "header"], maybe_placeholders=False
        )

    def event(self, message: str) -> Event | None:
        """Read a message (a line without its header); None when no rule of the vocabulary takes it."""
        for event in self._plan.events:
            if message.startswith(self._starts[event.name]):
                fields = self.fields(event.name, message)
                if fields is not None:
                    return Event(event.name, fields)
        return None

    def fields(self, rule: str, text: str) -> dict[str, Value] | None:
        """Return the fields of a text by one rule; None when the rule refuses it."""
        from lark import Token
        from lark.exceptions import UnexpectedInput

        try:
            tree = self._lark.parse(text, start=rule)
        except UnexpectedInput:
            return None
        found: dict[str, Value] = {}
        extra: list[str] = []
        seen: set[str] = set()
        for token in tree.scan_values(lambda value: isinstance(value, Token)):
            name = token.type.lower()
            if name == "extra":
                extra.append(str(token))
                continue
            if name in seen and rule != "header":  # of a rank that is printed twice the last one counts
                return None
            seen.add(name)
            value = convert(self._plan.types[name], str(token))
            if value is not None:
                found[name] = value
        if extra:
            found["extra"] = ", ".join(extra)
        return found


@cache
def reference() -> Reference:
    """Return the reference reader (built once; a second or so)."""
    return Reference()
