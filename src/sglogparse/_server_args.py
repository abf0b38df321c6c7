"""The server's arguments: a Python repr, read by Lark (server_args.lark), to plain values.

Plain values, as nearly all are, are read by one regular expression an argument; it takes nothing of which
Lark would make something else. Lark reads the odd values, and as a whole what is no list of arguments.

An argument list that was cut (a pasted head, a line limit) gives the arguments before the cut.
"""

from __future__ import annotations

import ast
import json
import math
import warnings
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from sglogparse._cheap import lazy
from sglogparse._stored import parser

if TYPE_CHECKING:
    from lark import Lark, Tree

SERVER_ARG_SCHEMA: dict[str, pl.DataType] = {
    "file": pl.UInt16(),
    "line": pl.UInt32(),
    "name": pl.String(),
    "value": pl.String(),
}

#: Plain values: printable ASCII without escapes, decimal numbers, constants, and lists of them.
_SCALAR = (
    r"'[ -&(-\[\]-~]*'|\"[ !#-\[\]-~]*\"|None|True|False"
    r"|-?[0-9]{1,300}(?:\.[0-9]{1,300})?(?:e[+-]?[0-9]{1,9})?"
)
_END = r"(?:, |(?P<end>[)}])$)"
_VALUE = rf"(?P<value>{_SCALAR}|\[(?:(?:{_SCALAR})(?:, (?:{_SCALAR}))*)?\]|\{{\}}){_END}"
#: A name that begins as a number does (inf, nan) is Lark's.
_ARGUMENT = lazy(rf"(?P<name>(?!inf|nan)[a-z][a-z0-9_]*)=(?:{_VALUE})?")
_PAIR = lazy(rf"'(?P<name>[a-z][a-z0-9_]*)': (?:{_VALUE})?")
_NEXT = lazy(_END)
#: What an odd value is made of, to find its end.
_PIECE = lazy(
    r"'(?:[^'\\\r\n]|\\.)*'|\"(?:[^\"\\\r\n]|\\.)*\"|<(?:[^<>]|<[^<>]*>)*>"
    r"|[^'\"<()\[\]{},]+|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<comma>,)"
)
_SCALARS = lazy(_SCALAR)
_CONSTANTS = {"None": None, "True": True, "False": False}

_MOST_DIGITS = 4000
_OPEN = ("(", "[", "{")
_CLOSE = (")", "]", "}")


class Arguments(NamedTuple):
    """Arguments by name, and whether the text ended before the list did."""

    values: dict[str, Any]
    cut: bool


@cache
def _lark() -> Lark:
    return parser("server_args.lark")


def parse_server_args(text: str) -> Arguments:
    """Parse `ServerArgs(...)` or a dict; of a cut text, what stands before the cut.

    >>> parse_server_args("ServerArgs(tp_size=8, x=[1, None], y='a, b')").values
    {'tp_size': 8, 'x': [1, None], 'y': 'a, b'}
    >>> parse_server_args("ServerArgs(tp_size=8, host='0.0").values
    {'tp_size': 8}
    """
    whole = plain_arguments(text)
    if whole is None:
        whole = _parsed(text)
    if whole is not None:
        return Arguments(whole, False)
    end = _last_comma(text)
    close = "}" if text.startswith("{") else ")"
    return Arguments((_parsed(text[:end] + close) if end else None) or {}, True)


def plain_arguments(text: str) -> dict[str, Any] | None:
    """Read a whole list of arguments most of which are plain; None where Lark must read the list itself.

    >>> plain_arguments("ServerArgs(tp_size=8, x=[1, None], y='a, b', z=(1, 2))")
    {'tp_size': 8, 'x': [1, None], 'y': 'a, b', 'z': [1, 2]}
    """
    if text.startswith("ServerArgs("):
        match, place, close = _ARGUMENT.match, len("ServerArgs("), ")"
    elif text.startswith("{"):
        match, place, close = _PAIR.match, 1, "}"
    else:
        return None
    values: dict[str, Any] = {}
    while found := match(text, place):
        name, value, end = found.groups()
        place = found.end()
        if value is None:
            stop = _end_of(text, place)
            odd, follows = _odd(text[place:stop]), _NEXT.match(text, stop)
            if odd is None or follows is None:
                return None
            (values[name],), end, place = odd, follows["end"], follows.end()
        elif value[0] == "[":
            values[name] = [_scalar(one) for one in _SCALARS.findall(value)]
        else:
            values[name] = {} if value == "{}" else _scalar(value)
        if end is not None:
            return values if end == close and place == len(text) else None
    return None


def _end_of(text: str, place: int) -> int:
    """Return where the value that begins at a place ends."""
    depth = 0
    while piece := _PIECE.match(text, place):
        if depth == 0 and piece.lastgroup in ("close", "comma"):
            break
        depth += (piece.lastgroup == "open") - (piece.lastgroup == "close")
        place = piece.end()
    return place


@lru_cache(maxsize=256)
def _odd(text: str) -> tuple[Any] | None:
    """Return the value that Lark reads, in a tuple; None when it is no value."""
    from lark.exceptions import UnexpectedInput

    try:
        return (_value(_lark().parse(text)),)
    except (UnexpectedInput, RecursionError):
        return None


@lru_cache(maxsize=4096)
def _scalar(text: str) -> Any:  # noqa: ANN401 - a repr can hold anything
    if text[0] in "\"'":
        return text[1:-1]
    return _CONSTANTS[text] if text in _CONSTANTS else _number(text)


def _parsed(text: str) -> dict[str, Any] | None:
    from lark.exceptions import UnexpectedInput

    try:
        return _arguments(_lark().parse(text))
    except (UnexpectedInput, RecursionError):  # nested deeper than any argument: nothing in it can be trusted
        return None


def _last_comma(text: str) -> int:
    """Return where the last comma between arguments stands, before the text ends or is no repr any more."""
    from lark.exceptions import UnexpectedCharacters

    depth, found = 0, 0
    try:
        for token in _lark().lex(text):
            depth += (token.value in _OPEN) - (token.value in _CLOSE)
            if token.value == "," and depth == 1 and token.start_pos:
                found = token.start_pos
    except UnexpectedCharacters:
        pass
    return found


def _arguments(tree: Tree[Any]) -> dict[str, Any] | None:
    value = _value(tree)
    if not isinstance(value, dict):
        return None
    return {name: one for name, one in value.items() if name != "__call__"}


def _value(tree: Tree[Any]) -> Any:  # noqa: ANN401 - a repr can hold anything
    kind, children = str(tree.data), tree.children
    if kind == "string":
        return _string(str(children[0]))
    if kind == "number":
        return _number(str(children[0]))
    if kind == "constant":
        return {"None": None, "True": True, "False": False}[str(children[0])]
    if kind in ("opaque", "name"):
        return str(children[0])
    if kind == "dict":
        pairs = [pair.children for pair in children]
        return {key if isinstance(key := _value(k), str) else repr(key): _value(v) for k, v in pairs}
    if kind == "call":
        name, *arguments = children
        values: dict[str, Any] = {"__call__": str(name)}
        for position, argument in enumerate(arguments):
            if argument.data == "keyword":
                values[str(argument.children[0])] = _value(argument.children[1])
            else:
                values[str(position)] = _value(argument.children[0])
        return values
    return [_value(child) for child in children]


def _string(text: str) -> str:
    """Return a string; bytes, and what Python would not print, stay as they stand."""
    if text[0] not in "\"'":
        return text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an unknown escape
            return str(ast.literal_eval(text))
    except (SyntaxError, ValueError):
        return text


def _number(text: str) -> int | float | str:
    """Return a number; one that JSON or Python cannot hold stays as printed."""
    if any(mark in text.lower() for mark in (".", "e", "inf", "nan")):
        value = float(text)
        return value if math.isfinite(value) else text
    return int(text) if len(text) <= _MOST_DIGITS else text


def _json(value: Any) -> str:  # noqa: ANN401 - an argument can be anything
    """Return a value as JSON text; half a surrogate pair, which is no text, stays an escape."""
    return _encoded(value) if isinstance(value, list | dict) else _encoded_once(value)


def _encoded(value: Any) -> str:  # noqa: ANN401 - an argument can be anything
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace").decode()


#: Most arguments of most launches are the same few.
_encoded_once = lru_cache(maxsize=4096, typed=True)(_encoded)


def read_server_args(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the arguments of each server_args line as rows (name, value as JSON)."""
    columns: dict[str, list[Any]] = {name: [] for name in SERVER_ARG_SCHEMA}
    for file, line, text in frame.select("file", "line", "args_repr").iter_rows():
        values = parse_server_args(text).values
        columns["file"] += [file] * len(values)
        columns["line"] += [line] * len(values)
        columns["name"] += values
        columns["value"] += map(_json, values.values())
    return pl.DataFrame(columns, schema=SERVER_ARG_SCHEMA)
