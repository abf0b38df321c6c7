"""The command line: reads arguments, prints, and exits. Nothing else in the package does.

Findings go to standard output, notes and errors to standard error. Each command imports what it needs.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sglogparse._errors import SglogparseError
from sglogparse._version import __version__

if TYPE_CHECKING:
    import polars as pl

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: Which formats an export can write, by the ending of the file.
_ENDINGS = (".parquet", ".csv", ".ndjson")


class _Group(click.Group):
    """Turns the package's errors into one line and their exit code."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's own signature
        try:
            return super().invoke(ctx)
        except SglogparseError as error:
            click.echo(f"sglogparse: {_printable(str(error))}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            ctx.exit(130)
        except BrokenPipeError:
            # the reader (head, a pager) has gone: not an error of ours
            sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
            ctx.exit(0)


_show_secrets = click.option("--show-secrets", is_flag=True, help="Do not mask keys, tokens and passwords.")


def _logs(function: _Command) -> _Command:
    return click.argument("logs", metavar="LOG...", nargs=-1, required=True, type=click.Path(path_type=str))(
        function
    )


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sglogparse")
def main() -> None:
    """Read SGLang server logs: what happened, what came first, what to change.

    LOG is a file (plain or gzip); - is standard input.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a terminal that cannot show a character shows its code


@main.command()
@_logs
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info", "never"]),
    default="error",
    show_default=True,
    help="The least severe finding that makes the exit code 1.",
)
@click.option("--exit-zero", is_flag=True, help="Exit with 0 also where it would be 1 or 3.")
@_show_secrets
def diagnose(
    logs: tuple[str, ...], output_format: str, fail_on: str, exit_zero: bool, show_secrets: bool
) -> None:
    r"""Say what happened, what came first, and what to change.

    \b
    Exit codes: 0 healthy
                1 findings at or above --fail-on
                2 the log could not be read, or the call was wrong
                3 undecided: no such finding, but the log does not show health either
    """
    from sglogparse._log import read_log
    from sglogparse._report import Severity
    from sglogparse._safe import masked
    from sglogparse.render import FORMATS

    diagnosis = read_log(logs).diagnose()
    shown = diagnosis if show_secrets else masked(diagnosis)
    click.echo(FORMATS[output_format](shown, _width(), _colour()), color=True)
    code = diagnosis.exit_code(None if fail_on == "never" else Severity(fail_on))
    sys.exit(0 if exit_zero else code)


@main.command()
@click.argument("logs", metavar="[LOG...]", nargs=-1, type=click.Path(path_type=str))
@click.option(
    "--describe", metavar="FRAME", help="Print the columns of a frame with their types and meaning."
)
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def frames(logs: tuple[str, ...], describe: str | None, output_format: str) -> None:
    """List the frames of a log: rows and columns of each."""
    import json

    from sglogparse._log import column_docs, frame_schemas, read_log

    if describe is not None:
        schema = frame_schemas().get(describe)
        if schema is None:
            raise click.BadParameter(f"no frame is called {describe!r}; frames: {', '.join(frame_schemas())}")
        meanings = column_docs(describe)
        rows = [[name, str(kind), meanings[name]] for name, kind in schema.items()]
        head = ["column", "type", "meaning"]
    else:
        if not logs:
            raise click.UsageError("name a LOG, or a frame with --describe")
        log = read_log(logs)
        rows = [
            [name, str(frame.height), ", ".join(_own_columns(frame))]
            for name, frame in log.frames.items()
            if frame.height
        ]
        rows.append(["lines", str(log.lines.height), "file, line, time, rank, ..., kind, text"])
        rows.append(["unparsed", str(log.unparsed.height), "the lines that no rule and no block takes"])
        head = ["frame", "rows", "columns"]
    if output_format == "json":
        click.echo(json.dumps([dict(zip(head, row, strict=True)) for row in rows], indent=2))
    else:
        _table(head, rows)


def _own_columns(frame: pl.DataFrame) -> list[str]:
    """Return the columns of a frame that are its own and hold something in this log."""
    from sglogparse._records import RECORD_SCHEMA

    return [
        column
        for column in frame.columns
        if column not in RECORD_SCHEMA and frame[column].null_count() < frame.height
    ]


@main.command()
@_logs
@click.option("--frame", "names", multiple=True, help="The frame to write; all of them when not given.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="A file, or a folder for all frames.",
)
@click.option(
    "--format",
    "ending",
    type=click.Choice([one[1:] for one in _ENDINGS]),
    default="parquet",
    show_default=True,
    help="The format of the files in a folder.",
)
@_show_secrets
def export(
    logs: tuple[str, ...], names: tuple[str, ...], output: Path, ending: str, show_secrets: bool
) -> None:
    """Write frames to parquet, csv or ndjson.

    With one --frame, OUTPUT is a file whose ending gives the format. Otherwise it is a folder, and each
    frame that has rows becomes a file in it.
    """
    from sglogparse._errors import QueryError
    from sglogparse._query import tables_of

    tables = tables_of(logs, show_secrets=show_secrets)
    unknown = [name for name in names if name not in tables]
    if unknown:
        raise click.BadParameter(f"no frame is called {unknown[0]!r}; frames: {', '.join(tables)}")
    try:
        if len(names) == 1 and output.suffix in _ENDINGS:
            _write(tables[names[0]], output)
            click.echo(f"{output}: {tables[names[0]].height} rows", err=True)
            return
        if output.suffix and not output.is_dir():
            raise click.BadParameter(
                f"{output}: the ending must be one of {', '.join(_ENDINGS)} with one --frame, or a folder"
            )
        output.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            if name in names or (not names and table.height):
                _write(table, output / f"{name}.{ending}")
                click.echo(f"{output / f'{name}.{ending}'}: {table.height} rows", err=True)
    except OSError as error:
        raise QueryError(f"{output}: cannot be written: {error.strerror or error}") from None


def _write(table: pl.DataFrame, path: Path) -> None:
    if path.suffix == ".parquet":
        table.write_parquet(path)
    elif path.suffix == ".csv":
        _flat(table).write_csv(path)
    else:
        table.write_ndjson(path)


def _flat(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table whose nested columns are JSON text, as csv needs it."""
    import json

    import polars as pl

    nested = [name for name, kind in table.schema.items() if kind.is_nested()]
    return table.with_columns(
        pl.Series(
            name,
            [json.dumps(value) if value is not None else None for value in table[name].to_list()],
            dtype=pl.String,
        )
        for name in nested
    )


@main.command()
@click.argument("arguments", metavar="LOG... SQL", nargs=-1, required=True, type=click.Path(path_type=str))
@click.option(
    "--output-format",
    type=click.Choice(["table", "csv", "json", "ndjson", "parquet"]),
    help="Default: a table at a terminal, csv otherwise.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write here instead of standard output."
)
@_show_secrets
def query(
    arguments: tuple[str, ...], output_format: str | None, output: Path | None, show_secrets: bool
) -> None:
    r"""Run SQL over the frames of a log.

    \b
    sglogparse query server.log "select avg(gen_throughput) from decode_batch where tp = 0"

    Every frame is a table, and so are `lines` and `unparsed`; see `sglogparse frames`.
    """
    from sglogparse._errors import QueryError
    from sglogparse._query import run_query

    if len(arguments) < 2:
        raise click.UsageError("name at least one LOG, and the SQL after it")
    *logs, sql = arguments
    table = run_query(logs, sql, show_secrets=show_secrets)
    kind = output_format or ("table" if output is None and sys.stdout.isatty() else "csv")
    try:
        data = _encoded(table, kind)
        if output is not None:
            output.write_bytes(data)
        else:
            sys.stdout.buffer.write(data)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise QueryError(f"{output}: cannot be written: {error.strerror or error}") from None


def _encoded(table: pl.DataFrame, kind: str) -> bytes:
    from sglogparse.render.table import render_frame

    if kind == "table":
        text, notes = render_frame(table, _width())
        for note in notes:
            click.echo(note, err=True)
        return f"{text}\n".encode()
    buffer = io.BytesIO()
    if kind == "parquet":
        table.write_parquet(buffer)
    elif kind == "csv":
        _flat(table).write_csv(buffer)
    elif kind == "ndjson":
        table.write_ndjson(buffer)
    else:
        return table.write_json().encode() + b"\n"
    return buffer.getvalue()


@main.command()
@click.argument("code")
def explain(code: str) -> None:
    """Explain a rule, by its code or name."""
    from sglogparse.rules import RULES

    rule = next(
        (one for one in RULES if code.upper() == one.code or code.lower().replace("_", "-") == one.name), None
    )
    if rule is None:
        raise click.BadParameter(f"no rule is called {code!r}; rules: {', '.join(one.code for one in RULES)}")
    click.echo(f"{rule.code} {rule.name} (since {rule.since})\n\n{rule.doc}")


@main.command()
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def rules(output_format: str) -> None:
    """List the rules."""
    import json

    from sglogparse.rules import RULES

    rows = [[rule.code, rule.name, rule.doc.splitlines()[0]] for rule in RULES]
    if output_format == "json":
        click.echo(
            json.dumps([dict(zip(("code", "name", "summary"), row, strict=True)) for row in rows], indent=2)
        )
    else:
        _table(["code", "name", "summary"], rows)


def _table(head: list[str], rows: list[list[str]]) -> None:
    from sglogparse.render.table import render_rows

    click.echo(render_rows(head, rows, _width()))


def _width() -> int:
    return max(40, min(shutil.get_terminal_size((80, 24)).columns, 100))


def _colour() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
