"""The command `diagnose`: read, judge, select, print in as many formats as asked for, and exit."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sglogparse import _config
from sglogparse._cli_common import colour, cores, files, logs, note, put, show_secrets, width
from sglogparse._errors import ConfigError

if TYPE_CHECKING:
    from sglogparse._config import Settings
    from sglogparse._report import Diagnosis

#: The widest that the text gets at a terminal, and how wide it is in a file, cells.
_WIDTH = 100


@click.command()
@logs
@click.option(
    "--output-format",
    metavar="FORMAT[:FILE]",
    multiple=True,
    shell_complete=lambda *told: [one for one in _config.FORMATS if one.startswith(told[-1])],
    help=f"{', '.join(_config.FORMATS)}; with :FILE written to a file, else printed. Can be given more than "
    "once, as often with a file as wanted, once without.  [default: text]",
)
@click.option(
    "--select", metavar="CODES", multiple=True, help="Rules that count, by code or beginning: M,P001."
)
@click.option("--extend-select", metavar="CODES", multiple=True, help="Rules that count, too.")
@click.option(
    "--ignore", metavar="CODES", multiple=True, help="Rules that do not count; the longer beginning wins."
)
@click.option(
    "--fail-on",
    type=click.Choice(_config.FAIL_ON),
    help="The least severe finding that makes the exit code 1.  [default: error]",
)
@click.option("--exit-zero/--no-exit-zero", default=None, help="Exit with 0 also where it would be 1 or 3.")
@click.option(
    "--baseline",
    metavar="FILE",
    shell_complete=files,
    help="What is known: it is not shown and does not count.",
)
@click.option("--write-baseline", is_flag=True, help="Write all that is found to the baseline.")
@click.option(
    "--config",
    metavar="FILE",
    shell_complete=files,
    help="Settings; else the nearest sglogparse.toml or pyproject.toml.",
)
@show_secrets
def diagnose(
    logs: tuple[str, ...], config: str | None, write_baseline: bool, show_secrets: bool, **given: object
) -> None:
    """Say what happened, what came first, and what to change.

    \b
    Exit codes: 0 healthy: it serves or stopped in good order, no finding at or above --fail-on;
                  or known: no such finding, and the baseline holds the verdict itself
                1 findings at or above --fail-on
                2 the log could not be read, a file could not be written, or the call was wrong
                3 undecided: no such finding, but the log does not show health either,
                  or a log of a folder or an archive could not be read

    The outcome stays what it is, whatever is not selected: a crash whose rules are all ignored is 3. The
    settings can also stand in a file, [tool.sglogparse] of pyproject.toml or sglogparse.toml, or in variables
    (SGLOGPARSE_FAIL_ON=warning); the command line comes first, then variables, then the file.
    """
    from sglogparse._select import selected, selection_of

    chosen = _settings(given, config)
    _check_paths(logs, chosen)
    if write_baseline and chosen.baseline is None:
        raise click.UsageError("--write-baseline needs --baseline FILE")
    from sglogparse._baseline import baseline_of, read_baseline
    from sglogparse._cli_bar import progress
    from sglogparse._report import Severity
    from sglogparse._safe import masked
    from sglogparse._stream import read_condensed
    from sglogparse.rules import RULES

    selection = selection_of(chosen, (rule.code for rule in RULES))
    known = read_baseline(chosen.baseline) if chosen.baseline and not write_baseline else None
    whole = read_condensed(logs, progress()).diagnose(processes=cores())
    diagnosis = selected(whole, selection, known)
    if chosen.baseline and write_baseline:
        from sglogparse._output import write_whole

        known, text = baseline_of(diagnosis)
        write_whole(text, chosen.baseline)
        note(f"{chosen.baseline}: {_count(known.findings, 'finding')}, {_count(known.verdicts, 'verdict')}")
        diagnosis = selected(whole, selection, known)
        if diagnosis.findings:
            note(f"left out, as it says too little to be known again: {_codes(diagnosis)}")
    code = diagnosis.exit_code(None if chosen.fail_on == "never" else Severity(chosen.fail_on))
    code = 0 if chosen.exit_zero else code
    _render(diagnosis if show_secrets else masked(diagnosis), chosen, code)
    sys.exit(code)


def _count(things: frozenset[str], what: str) -> str:
    return f"{len(things)} {what}{'' if len(things) == 1 else 's'}"


def _codes(diagnosis: Diagnosis) -> str:
    return ", ".join(dict.fromkeys(one.code for one in diagnosis.findings))


def _settings(given: dict[str, object], config: str | None) -> Settings:
    """Return the settings in force; what is wrong with the command line's own is an error of the call."""
    here = Path()
    read: dict[str, Any] = {}
    try:
        for name, value in given.items():
            if value not in (None, ()):
                option = name.replace("_", "-")
                read[name] = _config.SETTINGS[option](value, f"--{option}", here)
        return _config.settings(read, config, os.environ, here)
    except ConfigError as error:
        if str(error).startswith(("--", "only one format")):
            raise click.UsageError(str(error)) from None
        raise


def _check_paths(logs: tuple[str, ...], chosen: Settings) -> None:
    """Refuse to write over what is read, or may be: a file that lies in a folder of logs and is no report."""
    from sglogparse._ours import is_log_of

    if chosen.baseline and is_log_of(chosen.baseline, logs):
        raise click.UsageError(f"{chosen.baseline}: is a log of this call, and no baseline")
    known = _config.real(chosen.baseline) if chosen.baseline else None
    for one in chosen.output_format:
        if one.path is not None and (is_log_of(one.path, logs) or _config.real(one.path) == known):
            raise click.UsageError(f"{one.path}: is read by this call, so no report is written to it")
    summary = _summary(chosen)
    if summary is not None and (is_log_of(summary, logs) or _config.real(summary) == known):
        raise click.UsageError(
            f"{summary}: is read by this call, so no summary is added to it (GITHUB_STEP_SUMMARY names it)"
        )


def _summary(chosen: Settings) -> Path | None:
    """Return the file that GitHub wants the summary of the step in, if the call writes one."""
    named = os.environ.get("GITHUB_STEP_SUMMARY")
    return Path(named) if named and any(one.format == "github" for one in chosen.output_format) else None


def _render(diagnosis: Diagnosis, chosen: Settings, code: int) -> None:
    """Write the reports: those for files first, so that a reader of standard output finds them whole."""
    from sglogparse._output import append, write_whole
    from sglogparse.render import FORMATS

    printed = None
    for one in chosen.output_format:
        render = FORMATS[one.format]
        if one.path is not None:
            write_whole(render(diagnosis, _WIDTH, False, code) + "\n", one.path)
        else:
            printed = render(diagnosis, min(width(), _WIDTH), colour(), code)
    summary = _summary(chosen)
    if summary is not None:
        append(FORMATS["markdown"](diagnosis, _WIDTH, False, code) + "\n\n", summary)
    if printed is not None:
        put(printed)
