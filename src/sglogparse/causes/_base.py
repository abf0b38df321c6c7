"""What a cause is, by which signs it is known, and how evidence decides among causes.

    Clues (exceptions, frames, phase, lines above, arguments)
      --> each sign of each cause --> candidates, each with its weight and what was seen
      --> the strongest: certain, likely or possible; a runner-up where it is close; else `unknown`

To add a cause: an entry in its family's file. To add a sign: one line in the entry.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any, NamedTuple

from sglogparse._cheap import dataclass
from sglogparse._report import Confidence

#: Words that name this cause and no other.
NAMED = 90
#: Words that mean this cause in nearly all their uses.
TOLD = 70
#: A place (module, function, phase) or words that mean this cause more often than not.
HINT = 50
#: What a kind of exception means where nothing more is known.
REST = 25

#: An exception that came of another one weighs this much less, a link.
_LATER = 10
#: A line above the fault weighs this much less than the fault's own words.
_ABOVE = 25
#: A cause that comes this near to the strongest is its runner-up.
_CLOSE = 15
#: Below this weight no line above a fault counts.
_CLEAR = 70
#: The innermost frames, of which a function can tell the cause.
_INNERMOST = 10
#: What stands behind these words is advice that is always the same, or a native stack.
_BOILERPLATE = (
    r"Possible solutions:|CUDA kernel errors might be|HIP kernel errors might be"
    r"|For debugging consider passing"
    r"|Compile with `TORCH_USE_|Device-side assertion tracking was not enabled|Open an issue on GitHub"
    r"|\nframe #0|\nC\+\+ CapturedTraceback|If reserved (?:but unallocated )?memory is (?:large|>>)"
    r"|If exit code is -9|Search for `?cuda\w+'? in https|To execute this test|The stacktrace below"
)
_ISSUES = "https://github.com/sgl-project/sglang/issues/"
_TYPE = r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?::|$)"
#: How a line says of something that it failed, and with which exception.
_REPORTED = r"(?i)\bfailed with (?:an? )?(?:error|exception):? ?(.+)"
#: Texts are looked at up to here; what a server quotes behind it (its arguments, a request) tells nothing.
_MOST = 2000
#: A line above a fault is looked at up to here.
_MOST_ABOVE = 600


@dataclass(frozen=True)
class Sign:
    """What a cause can be known by: all conditions that are given must hold, any word of each is enough."""

    weight: int
    #: literal words in the text of one exception, in small letters (case does not matter)
    said: tuple[str, ...] = ()
    #: a regular expression on that text, where words are not enough
    pattern: str = ""
    #: types of the exception, without their modules
    types: tuple[str, ...] = ()
    #: literal words, in small letters, with which the text is none
    unless: tuple[str, ...] = ()
    #: parts of the path of the innermost frame of sglang, or of third-party code
    modules: tuple[str, ...] = ()
    #: how functions among the innermost frames begin
    functions: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    #: arguments of which one is set so (name, value)
    arguments: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True)
class Fact:
    """Numbers that a text holds, and how they are said; named groups of the pattern are filled in."""

    pattern: str
    says: str


@dataclass(frozen=True)
class Remedy:
    """What to change in one kind of case of a cause, instead of what helps in general."""

    change: str
    #: a regular expression on the exceptions
    pattern: str = ""
    #: whether a line just above them may match it, too
    above: bool = False
    #: parts of paths, or how functions begin, of which one frame of the fault's stacks has one
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cause:
    """What can end or hold up a server, and all that is known of it."""

    id: str
    #: a few words, for the first line of a report
    title: str
    means: str
    #: how to tell it from its neighbours
    differs: str
    #: what to change; a flag in it is shown with the value in force. Empty where nothing general helps.
    change: str = ""
    #: parts of `change` (or of a remedy's) that are left out where a flag in them is already set
    optional: tuple[str, ...] = ()
    #: narrower cases; the first that fits is what to change
    remedies: tuple[Remedy, ...] = ()
    signs: tuple[Sign, ...] = ()
    facts: tuple[Fact, ...] = ()
    #: since which release something exists that helps, or says more
    since: str = ""
    #: public issues of sgl-project/sglang that document it
    issues: tuple[int, ...] = ()

    @property
    def doc(self) -> str:
        """Return the documentation: a heading and its text for each thing that is known."""
        change = f"{self.change[0].upper()}{self.change[1:]}." if self.change else ""
        narrower = dict.fromkeys(f"{one.change[0].upper()}{one.change[1:]}" for one in self.remedies)
        parts = {
            "What it means": self.means,
            "How to tell it from its neighbours": self.differs,
            "What to change": change or "What the finding says: nothing helps in general.",
            "In narrower cases": " ".join(f"({number}) {one}." for number, one in enumerate(narrower, 1)),
            "Since": self.since,
            "Issues": ", ".join(f"{_ISSUES}{number}" for number in self.issues),
        }
        return "\n\n".join(f"{heading}:\n    {text}" for heading, text in parts.items() if text)


@dataclasses.dataclass(frozen=True)
class Clues:
    """What is known of a fault."""

    #: the chain as `type: message`, first cause first
    exceptions: tuple[str, ...] = ()
    phase: str | None = None
    #: (path, function), outermost first, a tuple for each traceback of the chain
    stacks: tuple[tuple[tuple[str, str], ...], ...] = ()
    #: lines that stand above the fault and speak of a failure
    above: tuple[str, ...] = ()
    args: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @cached_property
    def places(self) -> tuple[str, ...]:
        """Return the innermost path of sglang, and of third-party code, of each traceback."""
        out = []
        for stack in self.stacks:
            own = [path for path, _ in stack if "sglang/" in path]
            other = [path for path, _ in stack if "sglang/" not in path]
            out += [path.replace("\\", "/") for part in (own, other) for path in part[-1:]]
        return tuple(out)

    @cached_property
    def functions(self) -> tuple[str, ...]:
        """Return the innermost functions of each traceback."""
        return tuple(function for stack in self.stacks for _, function in stack[-_INNERMOST:])


class Decision(NamedTuple):
    """The cause that evidence decides; `unknown` without a confidence where it decides nothing."""

    cause: str
    confidence: Confidence | None
    runner_up: str | None


class _Candidate(NamedTuple):
    cause: str
    weight: int
    link: int
    reason: str


class _Text(NamedTuple):
    """One text to look at: its words, its type, and what it weighs less than the first exception."""

    words: str
    small: str
    type: str
    discount: int
    #: whether it is a line above the fault
    above: bool


UNDECIDED = Decision("unknown", None, None)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def decide_among(causes: Iterable[Cause], clues: Clues) -> Decision:
    """Return the cause that the clues decide, with the confidence and a runner-up that comes close."""
    texts = tuple(_texts(clues))
    best: dict[str, _Candidate] = {}
    for cause in causes:
        for sign in cause.signs:
            for found in _seen(cause.id, sign, texts, clues):
                if found.weight > best.get(cause.id, found._replace(weight=0)).weight:
                    best[cause.id] = found
    ranked = sorted(best.values(), key=lambda one: (-one.weight, one.link))
    if not ranked:
        return UNDECIDED
    first, *others = ranked
    close = [one for one in others if one.weight > first.weight - _CLOSE and one.weight > REST]
    sure = first.weight >= NAMED - _LATER and not close
    word = "certain" if sure else "likely" if first.weight >= HINT else "possible"
    return Decision(first.cause, Confidence(word, first.reason), close[0].cause if close else None)


def _texts(clues: Clues) -> Iterator[_Text]:
    for link, text in enumerate(clues.exceptions):
        yield _text(text, min(link, 2) * _LATER, above=False)
    for line in clues.above:
        told = None if clues.exceptions else _compiled(_REPORTED).search(line)
        if told is not None:  # the exception of a fault whose own is cut off
            yield _text(told[1], 2 * _LATER, above=False)
        yield _text(line, _ABOVE, above=True)


def _text(text: str, discount: int, *, above: bool) -> _Text:
    text = text[: _MOST_ABOVE if above else _MOST]
    if cut := _compiled(_BOILERPLATE).search(text):
        text = text[: cut.start()]
    named = _compiled(_TYPE).match(text)
    return _Text(text, text.lower(), named[1].rpartition(".")[2] if named else "", discount, above)


def _seen(cause: str, sign: Sign, texts: tuple[_Text, ...], clues: Clues) -> Iterator[_Candidate]:
    """Yield what a sign sees in the clues."""
    if sign.phases and clues.phase not in sign.phases:
        return
    where = []
    if sign.modules:
        place = next((one for one in clues.places for part in sign.modules if part in one), None)
        if place is None:
            return
        where.append(f"raised in {_short(place)}")
    if sign.functions:
        function = next((one for one in clues.functions if one.startswith(sign.functions)), None)
        if function is None:
            return
        where.append(f"within {function}()")
    if sign.phases:
        where.append(f"in the phase {clues.phase!r}")
    if sign.arguments:
        given = next(
            ((name, value) for name, value in sign.arguments if clues.args.get(name, ...) == value), None
        )
        if given is None:
            return
        where.append(f"with {given[0]}={given[1]!r}")
    for link, text in enumerate(texts):
        if text.above and (sign.weight < _CLEAR or not (sign.said or sign.pattern)):
            continue
        if sign.types and text.type not in sign.types:
            continue
        quote = _quote(sign, text)
        if quote is None:
            continue
        said = (
            f'{"a line above it" if text.above else "it"} says "{quote}"' if quote else f"it is {text.type}"
        )
        reason = ", ".join([said, *where])
        yield _Candidate(cause, sign.weight - text.discount, link, reason)


def _quote(sign: Sign, text: _Text) -> str | None:
    """Return the words by which a text shows a sign, as it is printed; None when it does not."""
    quote = ""
    if sign.said:
        word = next((one for one in sign.said if one in text.small), None)
        if word is None:
            return None
        start = text.small.index(word)
        quote = text.words[start : start + len(word)].strip()
    if any(one in text.small for one in sign.unless):
        return None
    if sign.pattern:
        found = _compiled(sign.pattern).search(text.words)
        if found is None:
            return None
        quote = quote or " ".join(found[0].split())[:60].strip()
    return quote


def _short(path: str) -> str:
    """Return a path from its package on.

    >>> _short("/opt/venv/lib/python3.12/site-packages/triton/compiler/compiler.py")
    'triton/compiler/compiler.py'
    """
    for mark in ("-packages/", "/sglang/"):
        _, found, behind = path.rpartition(mark) if mark == "-packages/" else path.partition(mark)
        if found:
            return behind if mark == "-packages/" else f"sglang/{behind.removeprefix('python/sglang/')}"
    return path.rpartition("/")[2]


def facts_of(cause: Cause, texts: Iterable[str]) -> list[str]:
    """Return what the texts say in numbers about a cause, each fact once."""
    out: list[str] = []
    for fact in cause.facts:
        for text in texts:
            if found := _compiled(fact.pattern).search(text[:_MOST]):
                out.append(fact.says.format_map(found.groupdict()))
                break
    return list(dict.fromkeys(out))


_FLAG = r"--([a-z0-9]+(?:-[a-z0-9]+)+|port|tp|dp)\b"
#: Arguments whose values a report quotes are short: a number, a word.
_QUOTED = (bool, int, float, str)


def with_values(text: str, args: Mapping[str, Any]) -> str:
    """Return a text with the values in force behind its flags, each once.

    >>> with_values("lower --mem-fraction-static", {"mem_fraction_static": 0.88})
    'lower --mem-fraction-static (0.88 now)'
    """
    told: set[str] = set()

    def shown(found: re.Match[str]) -> str:
        name = found[1].replace("-", "_")
        value = args.get(name)
        if name in told or not isinstance(value, _QUOTED) or isinstance(value, bool) or len(str(value)) > 24:
            return found[0]
        told.add(name)
        bracketed = (
            text[found.start() - 1 : found.start()] == "(" and text[found.end() : found.end() + 1] == ")"
        )
        return f"{found[0]}, {value} now" if bracketed else f"{found[0]} ({value} now)"

    return _compiled(_FLAG).sub(shown, text)


_SWITCH = r"(do not set )?--((?:disable|enable|enforce-disable)-[a-z0-9-]+)"
#: Flags that mean nothing to a server that captures no graphs.
_GRAPHS = "--cuda-graph-"


def already_set(text: str, args: Mapping[str, Any]) -> bool:
    """Tell whether a text advises what is set already: a switch that is on, or fewer graphs of none.

    >>> already_set("then --disable-cuda-graph", {"disable_cuda_graph": True})
    True
    >>> already_set("then --disable-cuda-graph", {"disable_cuda_graph": False})
    False
    """
    found = _compiled(_SWITCH).finditer(text)
    names = [one[2].replace("-", "_") for one in found if not one[1]]
    return any(args.get(name) is True for name in names) or (
        _GRAPHS in text and args.get("disable_cuda_graph") is True
    )


def remedy_of(
    cause: Cause,
    texts: Iterable[str],
    above: Iterable[str],
    frames: Iterable[tuple[str, str]],
    args: Mapping[str, Any],
) -> Remedy | None:
    """Return the remedy that fits what is said and where it was raised, and is not in force already."""
    texts, above, frames = tuple(texts), tuple(above), tuple(frames)
    for one in cause.remedies:
        if already_set(_fitting(cause, one.change, args), args):
            continue
        said = (*texts, *above) if one.above else texts
        if one.pattern and not any(_compiled(one.pattern).search(text[:_MOST]) for text in said):
            continue
        if one.places and not any(
            part in path or function.startswith(part) for path, function in frames for part in one.places
        ):
            continue
        return one
    return None


def change_of(cause: Cause, remedy: Remedy | None, args: Mapping[str, Any]) -> str:
    """Return what to change, without what is set already and with the values in force; empty for nothing."""
    return with_values(_fitting(cause, remedy.change if remedy else cause.change, args), args)


def _fitting(cause: Cause, text: str, args: Mapping[str, Any]) -> str:
    for part in cause.optional:
        if part in text and already_set(part, args):
            text = text.replace(part, "")
    return text.strip(" ,;")
