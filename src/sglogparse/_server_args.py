"""The server's arguments: a Python repr, read by Lark (server_args.lark), to plain values.

An argument list that was cut (a pasted head, a line limit) gives the arguments before the cut.
"""

from __future__ import annotations

import ast
import json
import math
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from sglogparse._stored import parser

if TYPE_CHECKING:
    from lark import Lark, Tree

SERVER_ARG_SCHEMA: dict[str, pl.DataType] = {
    "file": pl.UInt16(),
    "line": pl.UInt32(),
    "name": pl.String(),
    "value": pl.String(),
}

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
    whole = _parsed(text)
    if whole is not None:
        return Arguments(whole, False)
    end = _last_comma(text)
    close = "}" if text.startswith("{") else ")"
    return Arguments((_parsed(text[:end] + close) if end else None) or {}, True)


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
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace").decode()


def read_server_args(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the arguments of each server_args line as rows (name, value as JSON)."""
    rows = [
        {"file": file, "line": line, "name": name, "value": _json(value)}
        for file, line, text in frame.select("file", "line", "args_repr").iter_rows()
        for name, value in parse_server_args(text).values.items()
    ]
    return pl.DataFrame(rows, schema=SERVER_ARG_SCHEMA)
