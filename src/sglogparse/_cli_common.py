"""What the commands share: options, and how they print. Only the command line prints or exits."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sglogparse._errors import OutputError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_Command = TypeVar("_Command", bound=Callable[..., Any])

show_secrets = click.option("--show-secrets", is_flag=True, help="Do not mask keys, tokens and passwords.")


def logs(function: _Command) -> _Command:
    """Add the argument LOG..., one at least."""
    return click.argument("logs", metavar="LOG...", nargs=-1, required=True, type=click.Path(path_type=str))(
        function
    )


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Tell a shell that a value is the name of a file."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def put(data: str | bytes) -> None:
    """Write to standard output.

    A reader that has gone (head, a pager), or that was never there, is no error, and no reason for another
    exit code.
    """
    if sys.stdout is None:
        return
    try:
        # not click.echo, which takes out the colours, and writes UTF-8 where the terminal has asked for ASCII
        if isinstance(data, bytes):
            sys.stdout.buffer.write(data)
        else:
            sys.stdout.write(f"{data}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        hush(sys.stdout)
    except OSError as error:
        hush(sys.stdout)
        raise OutputError(f"standard output: cannot be written: {error.strerror or error}") from None


def note(text: str) -> None:
    """Write a line to standard error."""
    from sglogparse._safe import plain

    click.echo(plain(text), err=True)


def hush(*streams: Any) -> None:  # noqa: ANN401 - a stream of any kind
    """Point streams nowhere, so that Python finds nothing to complain about when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())


def width() -> int:
    """Return the width of the terminal, cells."""
    from shutil import get_terminal_size

    return max(40, get_terminal_size((80, 24)).columns)


def colour() -> bool:
    """Tell whether standard output shows colours, and the user wants them."""
    return sys.stdout is not None and sys.stdout.isatty() and "NO_COLOR" not in os.environ


def cores() -> int:
    """Return how many processes can run at a time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
