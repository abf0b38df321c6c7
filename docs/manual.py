"""The manual page, made of what the commands say of themselves: one source for --help and man."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

import click

#: What click puts before a paragraph whose lines stay as they are.
_KEPT = "\b"


def manual_page(main: click.Group) -> Iterator[str]:
    """Yield the lines of sglogparse(1), in the macros of man(7)."""
    yield '.\\" Written by docs/generate.py from the commands; do not edit.'
    yield '.TH SGLOGPARSE 1 "" "sglogparse" "User Commands"'
    yield ".SH NAME"
    yield "sglogparse \\- read SGLang server logs: what happened, what came first, what to change"
    yield ".SH SYNOPSIS"
    yield ".B sglogparse"
    yield "COMMAND [OPTION]... [ARGUMENT]..."
    yield ".SH DESCRIPTION"
    yield from _paragraphs(main.help or "")
    yield ".SH COMMANDS"
    for name in sorted(main.commands):
        yield from _command(name, main.commands[name])
    yield ".SH SEE ALSO"
    yield "The files frames.md, rules.md, causes.md and families.md of the documentation."


def _command(name: str, command: click.Command) -> Iterator[str]:
    arguments = [_text(_metavar(one)) for one in command.params if isinstance(one, click.Argument)]
    yield f'.SS "sglogparse {_text(name)} {" ".join(["[OPTION]...", *arguments])}"'
    yield from _paragraphs(command.help or "")
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            names = ", ".join(f"\\fB{_text(one)}\\fR" for one in (*option.opts, *option.secondary_opts))
            value = "" if option.is_flag else f" \\fI{_text(_metavar(option))}\\fR"
            yield ".TP"
            yield names + value
            yield _line(f"{option.help or ''}{_default(option)}")


def _metavar(param: click.Parameter) -> str:
    if param.metavar:
        return param.metavar
    if isinstance(param.type, click.Choice):
        return "|".join(map(str, param.type.choices))
    kinds = {"integer range": "NUMBER", "float range": "NUMBER", "integer": "NUMBER", "float": "NUMBER"}
    name = param.type.name
    return (param.name or "").upper() if isinstance(param, click.Argument) else kinds.get(name, name.upper())


def _default(option: click.Option) -> str:
    return f" [default: {option.default}]" if option.show_default else ""


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n{2,}", text.strip()):
        lines = paragraph.split("\n")
        yield ".PP"
        if lines[0].strip(" ") == _KEPT:
            yield ".nf"
            kept = textwrap.dedent("\n".join(lines[1:]))  # as far as Python and click leave the indent
            yield from map(_line, kept.split("\n"))
            yield ".fi"
        else:
            yield _line(" ".join(line.strip() for line in lines))


def _line(text: str) -> str:
    """Return a line of text that is no request of roff."""
    text = _text(text)
    return f"\\&{text}" if text.startswith((".", "'")) else text


def _text(text: str) -> str:
    r"""Return text in which nothing is an escape.

    >>> print(_text("a-b \\ c"))
    a\-b \e c
    """
    return text.replace("\\", "\\e").replace("-", "\\-")
