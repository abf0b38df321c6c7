"""The command `triage`: many logs, a row each, equal failures together."""

from __future__ import annotations

import click

from sglogparse._cli_common import put, show_secrets, width


@click.command()
@click.argument(
    "logs", metavar="DIR|GLOB|ARCHIVE...", nargs=-1, required=True, type=click.Path(path_type=str)
)
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "markdown", "html"]),
    default="text",
    show_default=True,
    help="For a terminal, a program, a comment, or a page.",
)
@click.option("--all", "everything", is_flag=True, help="Show every cluster and every log in the text.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 also where it would be 1 or 3.")
@show_secrets
def triage(
    logs: tuple[str, ...], output_format: str, everything: bool, exit_zero: bool, show_secrets: bool
) -> None:
    """Judge many logs: a row each, and equal failures together, the newest first.

    Folders, globs, archives and files can be mixed. Logs of one folder that hold nodes or ranks of one
    launch, or the servers and the router of one PD deployment, are one incident; so are those of folders side
    by side, where one has what the other lacks. A file that is no log has a row that says so.

    \b
    Exit codes: 0 all are healthy
                1 one of them has an error
                2 nothing of it is a log, or the call was wrong
                3 one is undecided, or could not be read
    """
    from sglogparse import _triage
    from sglogparse._cli_bar import progress
    from sglogparse._safe import masked
    from sglogparse.render.triage import render_json, render_text
    from sglogparse.render.triage_page import render_html, render_markdown

    found = _triage.triage(logs, progress())
    shown = found if show_secrets else masked(found)
    if output_format == "json":
        put(render_json(shown))
    elif output_format == "markdown":
        put(render_markdown(shown))
    elif output_format == "html":
        put(render_html(shown))
    else:
        put(render_text(shown, min(width(), 100), everything=everything))
    if not exit_zero:
        raise click.exceptions.Exit(found.exit_code())
