"""The server's arguments: a Python repr, read by Lark (server_args.lark), to plain values.

An argument list that was cut (a pasted head, a line limit) gives the arguments before the cut.
"""

from __future__ import annotations

import ast
import json
import math
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from sglogparse._grammar import grammar_text

if TYPE_CHECKING:
    from lark import Lark, Tree

SERVER_ARG_SCHEMA: dict[str, pl.DataType] = {
    "file": pl.UInt16(),
    "line": pl.UInt32(),
    "name": pl.String(),
    "value": pl.String(),
}

_MOST_DIGITS = 4000


class Arguments(NamedTuple):
    """Arguments by name, and whether the text ended before the list did."""

    values: dict[str, Any]
    cut: bool


@cache
def _lark() -> Lark:
    from lark import Lark

    return Lark(grammar_text("server_args.lark"), parser="lalr", start="value", maybe_placeholders=False)


def parse_server_args(text: str) -> Arguments:
    """Parse `ServerArgs(...)` or a dict; of a cut text, what stands before the cut.

    >>> parse_server_args("ServerArgs(tp_size=8, x=[1, None], y='a, b')").values
    {'tp_size': 8, 'x': [1, None], 'y': 'a, b'}
    >>> parse_server_args("ServerArgs(tp_size=8, host='0.0").values
    {'tp_size': 8}
    """
    from lark.exceptions import UnexpectedInput

    try:
        return Arguments(_arguments(_lark().parse(text)), False)
    except UnexpectedInput:
        pass
    except RecursionError:
        return Arguments({}, True)  # nested deeper than any argument: nothing in it can be trusted
    # Cut: close the list at its last commas until it parses.
    close = "}" if text.startswith("{") else ")"
    end = len(text)
    for _ in range(64):
        end = text.rfind(", ", 0, end)
        if end < 0:
            break
        try:
            return Arguments(_arguments(_lark().parse(text[:end] + close)), True)
        except UnexpectedInput:
            continue
    return Arguments({}, True)


def _arguments(tree: Tree[Any]) -> dict[str, Any]:
    value = _value(tree)
    if isinstance(value, dict) and "__call__" in value:
        return {name: one for name, one in value.items() if name != "__call__"}
    return value if isinstance(value, dict) else {}


def _value(tree: Tree[Any]) -> Any:  # noqa: ANN401 - a repr can hold anything
    kind, children = str(tree.data), tree.children
    if kind == "string":
        return ast.literal_eval(str(children[0]))
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


def _number(text: str) -> int | float | str:
    """Return a number; one that JSON or Python cannot hold stays as printed."""
    if any(mark in text.lower() for mark in (".", "e", "inf", "nan")):
        value = float(text)
        return value if math.isfinite(value) else text
    return int(text) if len(text) <= _MOST_DIGITS else text


def read_server_args(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the arguments of each server_args line as rows (name, value as JSON)."""
    rows = [
        {"file": file, "line": line, "name": name, "value": json.dumps(value, ensure_ascii=False)}
        for file, line, text in frame.select("file", "line", "args_repr").iter_rows()
        for name, value in parse_server_args(text).values.items()
    ]
    return pl.DataFrame(rows, schema=SERVER_ARG_SCHEMA)
