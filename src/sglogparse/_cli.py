"""The command line: reads arguments, prints, and exits. Nothing else in the package does.

Findings go to standard output, notes and errors to standard error. Each command imports what it needs.
"""

from __future__ import annotations

import gc
import io
import math
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from sglogparse import _KEEP, _KEEP_LESS, _cli_follow, _cli_pieces
from sglogparse._cli_common import colour as _colour
from sglogparse._cli_common import hush as _hush
from sglogparse._cli_common import logs as _logs
from sglogparse._cli_common import note as _note
from sglogparse._cli_common import put as _print
from sglogparse._cli_common import show_secrets as _show_secrets
from sglogparse._cli_common import width as _width
from sglogparse._cli_diagnose import diagnose
from sglogparse._cli_triage import triage
from sglogparse._errors import QueryError, SglogparseError
from sglogparse._version import __version__

if TYPE_CHECKING:
    from fractions import Fraction
    from pathlib import Path

    import polars as pl

    from sglogparse._cache import Cache
    from sglogparse.rules import Rule

#: Objects after which Python looks for those that nobody needs any more.
_OFTEN = 100_000
#: Which formats an export can write, by the ending of the file.
#: Names that a message suggests.
_MEANT = 4
_ENDINGS = (".parquet", ".csv", ".ndjson")


@contextmanager
def _errors_on_a_line(ctx: click.Context | None = None) -> Iterator[None]:
    """Turn errors, ours and those of the call, into one line and their exit code."""
    try:
        yield
    except SglogparseError as error:
        _note(f"sglogparse: {error}")
        raise click.exceptions.Exit(error.exit_code) from None
    except click.ClickException as error:
        ctx = getattr(error, "ctx", None) or ctx
        path = ctx.command_path if ctx else "sglogparse"
        _note(f"sglogparse: {error.format_message().rstrip('.')} (see {path} --help)")
        raise click.exceptions.Exit(2) from None


class _Group(click.Group):
    """A group of commands whose errors are one line each."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's own signature
    ) -> click.Context:
        with _errors_on_a_line():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's own signature
        try:
            with _errors_on_a_line(ctx):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(130)
        except MemoryError:
            _note("sglogparse: this machine, or the limit that is set, has not enough memory for this")
            ctx.exit(2)
        except BrokenPipeError:  # standard error goes to a reader that has gone
            _hush(sys.stdout, sys.stderr)
            ctx.exit(2)


_text_or_json = click.option(
    "--output-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="For a person, or for a program.",
)


def _path(_context: click.Context, _option: click.Parameter, text: str | None) -> Path | None:
    from pathlib import Path

    return None if text is None else Path(text)


_cache_folder = click.option(
    "--cache",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=str),
    callback=_path,
    help="Keep the frames here, for when the same logs are read again. Secrets are not masked there.",
)


@click.group(
    cls=_Group,
    invoke_without_command=True,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="sglogparse")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Read SGLang server logs: what happened, what came first, what to change.

    LOG is a file, plain or compressed, a folder, a glob or an archive; - is standard input.
    """
    # a command makes much and drops little: with Python's thresholds the collector takes a tenth of its time
    gc.set_threshold(_OFTEN, 50, 100)
    if os.environ.get("_RJEM_MALLOC_CONF") == _KEEP:
        os.environ["_RJEM_MALLOC_CONF"] = _KEEP_LESS
    # nor is it worth its time when a command has ended
    ctx.call_on_close(gc.freeze)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal that cannot show a character shows its code
            stream.reconfigure(errors="backslashreplace")
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


main.add_command(diagnose)
main.add_command(triage)


@main.command()
@_logs
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "csv"]),
    default="text",
    show_default=True,
    help="For a person, for a program, or the phases as a table.",
)
@click.option(
    "--gap",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True, max=1e9),
    default=60,
    show_default=True,
    help="The shortest time without a line that is named.",
)
@click.option("--all", "everything", is_flag=True, help="Show serving and shutdown too, not the start only.")
@_show_secrets
def timeline(
    logs: tuple[str, ...], output_format: str, gap: float, everything: bool, show_secrets: bool
) -> None:
    """Show the phases of each rank, the slowest rank of each, and the gaps.

    Nodes and ranks of one launch in several files are put on one axis, with the offset of their clocks.
    Exits with 3 where the log is empty, as `diagnose` does.
    """
    from sglogparse._log import read_log
    from sglogparse._timeline import read_timelines
    from sglogparse.render.timeline import render_csv, render_json, render_text

    if math.isnan(gap):
        raise click.BadParameter("--gap must be a number of seconds")
    found = read_timelines(read_log(logs), gap, everything=everything)
    if output_format == "json":
        _print(render_json(found, gap, show_secrets=show_secrets))
    elif output_format == "csv":
        _print(render_csv(found, show_secrets=show_secrets))
    else:
        width = min(_width(), 120)
        _print(render_text(found, gap, width, _colour(), everything=everything, show_secrets=show_secrets))
    if not found:
        raise click.exceptions.Exit(3)


@main.command()
@click.argument("logs", metavar="GOOD BAD [MORE...]", nargs=-1, required=True, type=click.Path(path_type=str))
@_text_or_json
@click.option("--all", "everything", is_flag=True, help="Show every row; otherwise long lists are cut.")
@_show_secrets
def compare(logs: tuple[str, ...], output_format: str, everything: bool, show_secrets: bool) -> None:
    """Say what differs between two runs or more, and whether that explains how they fared.

    One file is one run, by the launch that `diagnose` judges it by; the first one is the reference, and one
    of them can be -. Compared are arguments (declared, and inferred from memory), memory rank by rank, the
    steps and durations of the start, what the server says of its surroundings, and decode throughput at like
    loads. Free memory counts as alike up to 0.1 GiB or 0.5 %; durations never make two runs unequal.

    \b
    Exit codes: 0 no difference that matters
                1 the runs differ in what became of them, or contradict one another
                2 a log could not be read, or the call was wrong
                3 cannot be compared: nothing in common, or a log does not show how its server fared
    """
    from sglogparse._compare import compare as compared
    from sglogparse._comparison import LETTERS
    from sglogparse.render.compare import render_json, render_text

    if not 2 <= len(logs) <= len(LETTERS):
        raise click.UsageError(f"name 2 to {len(LETTERS)} logs, the reference first")
    if logs.count("-") > 1:
        raise click.UsageError("standard input can be one of the logs only")
    found = compared(logs)
    if output_format == "json":
        _print(render_json(found, show_secrets=show_secrets))
    else:
        width = min(_width(), 120)
        _print(render_text(found, width, _colour(), everything=everything, show_secrets=show_secrets))
    sys.exit(found.exit_code)


@main.command()
@click.argument("logs", metavar="[LOG...]", nargs=-1, type=click.Path(path_type=str))
@click.option(
    "--describe", metavar="FRAME", help="Print the columns of a frame with their types and meaning."
)
@_cache_folder
@_text_or_json
def frames(logs: tuple[str, ...], describe: str | None, folder: Path | None, output_format: str) -> None:
    """List the frames of a log: rows and columns of each."""
    if describe is not None:
        _list(_columns_of(describe), output_format)
    elif logs:
        _list(_frames_of(logs, folder), output_format)
    else:
        raise click.UsageError("name a LOG, or a frame with --describe")


def _columns_of(frame: str) -> list[dict[str, Any]]:
    from sglogparse._log import column_docs, frame_schemas

    schemas = frame_schemas()
    if frame not in schemas:
        raise _no_frame(frame, list(schemas))
    meanings = column_docs(frame)
    return [
        {"column": name, "type": str(kind), "meaning": meanings[name]}
        for name, kind in schemas[frame].items()
    ]


def _no_frame(name: str, known: list[str]) -> click.BadParameter:
    import difflib

    near = difflib.get_close_matches(name.lower(), known, 1)
    meant = f"; did you mean {near[0]}?" if near else ";"
    return click.BadParameter(f"no frame is called {name!r}{meant} frames: {', '.join(known)}")


def _frames_of(logs: tuple[str, ...], folder: Path | None) -> list[dict[str, Any]]:
    from sglogparse._query import frames_of
    from sglogparse._records import RECORD_SCHEMA
    from sglogparse._scan import scan_schemas

    rows = []
    for name, frame in frames_of(logs, scan_schemas(), _cache_in(folder))[1].items():
        # of an event the columns that are its own; of all frames those that hold something in this log
        general = {} if name in ("lines", "unparsed") else RECORD_SCHEMA
        columns = [
            one for one in frame.columns if one not in general and frame[one].null_count() < frame.height
        ]
        if frame.height or name in ("lines", "unparsed"):
            rows.append({"frame": name, "rows": frame.height, "columns": columns})
    return rows


def _cache_in(folder: Path | None) -> Cache | None:
    from sglogparse._cache import Cache

    return None if folder is None else Cache(folder, _note)


@main.command()
@_logs
@_text_or_json
@_show_secrets
def coverage(logs: tuple[str, ...], output_format: str, show_secrets: bool) -> None:
    """Say what the lines of logs are, and which of them nobody can name."""
    from sglogparse import _coverage
    from sglogparse._cli_bar import progress
    from sglogparse._safe import masked
    from sglogparse._source import open_sources
    from sglogparse._stream import read_pieces
    from sglogparse.render.coverage import coverage_json, render_coverage

    sources = open_sources(logs)
    found = _coverage.coverage_of(read_pieces(sources, progress()), sources)
    files = found if show_secrets else masked(found)
    _print(coverage_json(files) if output_format == "json" else render_coverage(files, _width()))


@main.command()
@_logs
@click.option("--mem-fraction-static", "fraction", metavar="F", help="What if: another share for the pools.")
@click.option("--context-length", type=click.IntRange(min=1), help="What if: another context, in tokens.")
@click.option("--max-running-requests", type=click.IntRange(min=1), help="What if: other requests at once.")
@click.option(
    "--kv-cache-dtype",
    type=click.Choice(["bf16", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1"]),
    help="What if: another element type of the KV cache.",
)
@click.option("--tp-size", type=click.IntRange(min=1), help="What if: another number of TP ranks.")
@click.option("--all", "every", is_flag=True, help="Show all ranks.")
@_text_or_json
@_show_secrets
def memory(
    logs: tuple[str, ...],
    fraction: str | None,
    context_length: int | None,
    max_running_requests: int | None,
    kv_cache_dtype: str | None,
    tp_size: int | None,
    every: bool,
    output_format: str,
    show_secrets: bool,
) -> None:
    """Say where the memory of each rank went, and what other arguments would give.

    All sizes are GiB (2^30 bytes), as SGLang's "GB" is. A number with * is inferred from others. The
    options predict tokens, sizes and requests under other arguments, with what is assumed.

    \b
    Exit codes: 0 the log prints device memory
                2 the log could not be read, or the call was wrong
                3 the log does not print what an account needs
    """
    from sglogparse._log import read_log
    from sglogparse._safe import masked
    from sglogparse.ledger.statement import statements
    from sglogparse.ledger.whatif import Changes
    from sglogparse.render.memory import memory_json, render_memory

    changes = Changes(_share(fraction), context_length, max_running_requests, kv_cache_dtype, tp_size)
    found = statements(read_log(logs), changes if changes.given() else None)
    if not show_secrets:
        found = masked(found)
    _print(memory_json(found) if output_format == "json" else render_memory(found, _width(), every=every))
    if not found:
        raise click.exceptions.Exit(3)


def _share(text: str | None) -> Fraction | None:
    """Read a share between 0 and 1, exactly as it is written."""
    if text is None:
        return None
    from fractions import Fraction

    # written out: a short exponent can stand for a number that nothing can hold
    share = Fraction(text) if re.fullmatch(r"[0-9]?\.[0-9]{1,12}", text) else Fraction(0)
    if not 0 < share < 1:
        raise click.BadParameter(
            f"{text!r} is not a number between 0 and 1", param_hint="--mem-fraction-static"
        )
    return share


@main.command()
@_logs
@click.option("--frame", "names", multiple=True, help="The frame to write; all of them when not given.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=str),
    callback=_path,
    help="A file, or a folder for all frames.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice([one[1:] for one in _ENDINGS]),
    default="parquet",
    show_default=True,
    help="The format of the files in a folder.",
)
@_cache_folder
@_show_secrets
def export(
    logs: tuple[str, ...],
    names: tuple[str, ...],
    output: Path,
    kind: str,
    folder: Path | None,
    show_secrets: bool,
) -> None:
    """Write frames to parquet, csv or ndjson.

    With one --frame, OUTPUT is a file whose ending gives the format. Otherwise it is a folder, and each
    frame that has rows becomes a file in it.
    """
    from pathlib import Path

    from sglogparse._export import export as exported
    from sglogparse._safe import masked_frame
    from sglogparse._scan import scan_schemas

    if str(output) == "-":
        raise click.BadParameter(
            "frames are written to a file or a folder; `query` writes to standard output"
        )
    if any(log != "-" and output.absolute() == Path(log).absolute() for log in logs):
        raise click.BadParameter(f"{output}: is one of the logs that are read")
    one_file = len(set(names)) == 1 and output.suffix in _ENDINGS
    if output.suffix and not one_file and not output.is_dir():
        raise click.BadParameter(
            f"{output}: the ending must be one of {', '.join(_ENDINGS)} with one --frame, or a folder"
        )
    known = [*scan_schemas(), "files"]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise _no_frame(unknown[0], known)
    places = {name: output if one_file else output / f"{name}.{kind}" for name in names or known}
    rows = exported(
        _pieces(logs, list(places), _cache_in(folder)),
        places,
        only_filled=not names,
        mask=None if show_secrets else masked_frame,
    )
    if not names and not rows.get("lines"):
        _note("nothing written: the log is empty")
        return
    for name, number in rows.items():
        _note(f"{places[name]}: {number} row{'' if number == 1 else 's'}")


def _pieces(
    logs: tuple[str, ...], names: list[str], cache: Cache | None
) -> Iterator[dict[str, pl.DataFrame]]:
    """Yield frames of the logs, piece by piece; `files` comes last."""
    from sglogparse._query import files_frame, frames_of
    from sglogparse._source import open_sources
    from sglogparse._stream import read_pieces

    wanted = [name for name in names if name != "files"]
    if cache is not None:
        files, frames = frames_of(logs, wanted, cache)
        yield {**frames, "files": files_frame(files)}
        return
    from sglogparse._cli_bar import progress
    from sglogparse._scan import parts_of, read_by_itself

    if "files" not in names and "-" not in logs and all(map(read_by_itself, names)):
        for name in names:
            yield from ({name: part} for part in parts_of(logs, name))
        return
    sources = open_sources(logs)
    for piece in read_pieces(sources, progress()):
        yield {name: getattr(piece, name) for name in wanted}
    yield {"files": files_frame(source.summary() for source in sources)}


def _write(data: bytes, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise QueryError(f"{path}: cannot be written: {error.strerror or error}") from None


@main.command()
@click.argument("arguments", metavar="LOG... SQL", nargs=-1, required=True, type=click.Path(path_type=str))
@click.option(
    "--output-format",
    "kind",
    type=click.Choice(["table", "csv", "json", "ndjson", "parquet"]),
    help="Default: what the ending of --output names; else a table at a terminal, csv otherwise.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=str),
    callback=_path,
    help="Write here instead of standard output.",
)
@_cache_folder
@_show_secrets
def query(
    arguments: tuple[str, ...],
    kind: str | None,
    output: Path | None,
    folder: Path | None,
    show_secrets: bool,
) -> None:
    """Run SQL over the frames of a log.

    \b
    sglogparse query server.log "select avg(gen_throughput) from decode_batch where tp = 0"

    Every frame is a table, and so are `lines`, `unparsed` and `files`; see `sglogparse frames`.
    """
    from pathlib import Path

    from sglogparse._query import FORMATS, encoded, run_query

    if len(arguments) < 2:
        raise click.UsageError("name at least one LOG, and the SQL after it")
    terminal = output is None and sys.stdout.isatty()
    if kind is None:
        ending = output.suffix[1:] if output is not None else ""
        if ending and ending not in FORMATS:
            endings = ", ".join(f".{one}" for one in FORMATS)
            raise click.BadParameter(
                f"{output}: the ending must be one of {endings}, unless --output-format names the format"
            )
        kind = ending if ending in FORMATS else "table" if terminal else "csv"
    if kind == "parquet" and terminal:
        raise click.UsageError("parquet is not for a terminal: name a file with --output")
    *logs, sql = arguments
    if output is not None and any(log != "-" and output.absolute() == Path(log).absolute() for log in logs):
        raise click.BadParameter(f"{output}: is one of the logs that are read")
    table = run_query(logs, sql, show_secrets=show_secrets, cache=_cache_in(folder))
    data = f"{_table(table)}\n".encode() if kind == "table" else encoded(table, kind)
    if output is not None:
        _write(data, output)
    elif terminal or kind == "table":
        from sglogparse._safe import plain

        _print("\n".join(map(plain, data.decode().rstrip("\n").split("\n"))))
    else:
        _print(data)


def _table(table: pl.DataFrame) -> str:
    from sglogparse.render.table import render_frame

    text, notes = render_frame(table, _width())
    for note in notes:
        _note(note)
    return text


@main.command()
@click.argument("code")
def explain(code: str) -> None:
    """Explain a rule, by its code or name, or a cause, by its id.

    \b
    sglogparse explain M001
    sglogparse explain memory.kv_budget

    The letter of a family (M), or the first part of a cause's id (memory), lists what is in it.
    """
    from sglogparse.causes import CAUSE_TITLES, cause_by_id
    from sglogparse.render._families import FAMILIES
    from sglogparse.rules import RULES

    wanted = code.lower()
    if wanted in CAUSE_TITLES:
        cause = cause_by_id(wanted)
        _print(f"{wanted}: {cause.title}\n\n{_filled(cause.doc, min(_width(), 100))}")
        return
    if code.upper() in FAMILIES:
        _list([_rule_row(one) for one in RULES if one.code.startswith(code.upper())], "text")
        return
    members = {one: title for one, title in CAUSE_TITLES.items() if one.startswith(f"{wanted}.")}
    if members:
        _list([{"cause": one, "in a report": title} for one, title in members.items()], "text")
        return
    wanted = wanted.replace("_", "-")
    rule = next((one for one in RULES if wanted in (one.code.lower(), one.name)), None)
    if rule is None:
        near = _near(
            code.lower(), [*(one.code for one in RULES), *(one.name for one in RULES), *CAUSE_TITLES]
        )
        meant = f"; did you mean {' or '.join(near)}?" if near else ";"
        listed = ", ".join(one.code for one in RULES)
        raise click.BadParameter(f"no rule and no cause is called {code!r}{meant} rules: {listed}")
    _print(f"{rule.code} {rule.name} (since {rule.since})\n\n{_filled(rule.doc, min(_width(), 100))}")


def _near(wanted: str, names: list[str]) -> list[str]:
    """Return the names that can be meant: a code with its noughts, what begins so, or else what is alike."""
    import difflib

    number = re.fullmatch(r"([a-z])0*([0-9]{1,3})", wanted)
    code = f"{number[1].upper()}{number[2]:0>3}" if number else None
    found = [one for one in names if one == code]
    found += [one for one in names if wanted and one.lower().startswith(wanted) and one != code]
    return found[:_MEANT] or difflib.get_close_matches(wanted, names, 1)


def _filled(doc: str, width: int) -> str:
    """Wrap each paragraph of a docstring, keeping its indent."""
    from sglogparse.render._wrap import wrap

    out = []
    for indent, lines in groupby(doc.splitlines(), key=lambda line: line[: len(line) - len(line.lstrip())]):
        for blank, part in groupby(lines, key=lambda line: not line.strip()):
            text = " ".join(line.strip() for line in part)
            out += [""] if blank else wrap(text, width, first=indent, rest=indent)
    return "\n".join(out)


@main.command()
@_text_or_json
def rules(output_format: str) -> None:
    """List the rules; as JSON with their families, since when they exist, and their documentation."""
    from sglogparse.render._families import FAMILIES
    from sglogparse.rules import RULES

    rows = [_rule_row(rule) for rule in RULES]
    if output_format == "json":
        more = [
            {"family": FAMILIES[rule.code[0]], "since": rule.since, "documentation": rule.doc}
            for rule in RULES
        ]
        rows = [{**row, **extra} for row, extra in zip(rows, more, strict=True)]
    _list(rows, output_format)


def _rule_row(rule: Rule) -> dict[str, Any]:
    return {"code": rule.code, "name": rule.name, "summary": rule.doc.splitlines()[0]}


main.add_command(_cli_follow.wait)
main.add_command(_cli_follow.watch)
main.add_command(_cli_pieces.metrics)
main.add_command(_cli_pieces.completion)


def _list(rows: list[dict[str, Any]], output_format: str) -> None:
    """Print rows of the same keys, the last of which may be long."""
    from sglogparse.render.table import render_rows

    if output_format == "json":
        import json

        _print(json.dumps(rows, indent=2))
        return
    texts = [[", ".join(one) if isinstance(one, list) else str(one) for one in row.values()] for row in rows]
    _print(render_rows(list(rows[0]), texts, _width()))
