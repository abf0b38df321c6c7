"""What CI services make of a line of output, as they document it: small parsers, written apart from the package.

They are forgiving where the services are: what they find is what a service would do.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Command(NamedTuple):
    """A command that a service would carry out."""

    name: str
    properties: dict[str, str]
    message: str


def lines_of(text: str) -> list[str]:
    """Return the lines that a service reads: it ends one at LF, CR and CRLF."""
    return re.split(r"\r\n|\n|\r", text)


def github(text: str) -> tuple[list[Command], list[str]]:
    """Return the workflow commands in an output, and its other lines.

    A command begins, after blanks, with "::", ends its head with the next "::"; or, of the old form, stands
    anywhere as "##[name ...]".
    """
    commands, rest = [], []
    for line in lines_of(text):
        stripped = line.lstrip()
        end = stripped.find("::", 2)
        if stripped.startswith("::") and end > 0:
            name, _, told = stripped[2:end].partition(" ")
            commands.append(
                Command(name, _pairs(told, ",", _github_property), _github_data(stripped[end + 2 :]))
            )
            continue
        old = re.search(r"##\[([^\]]*)\](.*)", line)
        if old:
            name, _, told = old[1].partition(" ")
            commands.append(Command(f"##{name}", _pairs(told, ";", str), old[2]))
        else:
            rest.append(line)
    return commands, rest


def _pairs(text: str, between: str, unescape) -> dict[str, str]:
    pairs = [one.split("=", 1) for one in text.split(between) if one]
    return {pair[0].strip(): unescape(pair[1]) for pair in pairs if len(pair) == 2}


def _github_data(text: str) -> str:
    return text.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")


def _github_property(text: str) -> str:
    for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, char)
    return text


def azure(text: str) -> tuple[list[Command], list[str]]:
    """Return the logging commands in an output, and its other lines: "##vso[area.event key=value;]message"
    anywhere in a line; "##[name]" only gives a line its looks, and is returned as a command, too."""
    commands, rest = [], []
    for line in lines_of(text):
        found = re.search(r"##vso\[([^\]]*)\](.*)", line)
        looks = re.search(r"##\[([^\]]*)\](.*)", line)
        if found:
            name, _, told = found[1].partition(" ")
            commands.append(Command(name, _pairs(told, ";", _azure), _azure(found[2])))
        elif looks:
            commands.append(Command(f"##{looks[1]}", {}, looks[2]))
        else:
            rest.append(line)
    return commands, rest


def _azure(text: str) -> str:
    for code, char in (("%3B", ";"), ("%0D", "\r"), ("%0A", "\n"), ("%5D", "]"), ("%AZP25", "%")):
        text = text.replace(code, char)
    return text
