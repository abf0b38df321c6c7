"""The commands that follow a log while it is written: `wait` and `watch`.

They are apart from the others because they run until something happens: the loops are here, what they look at
is in `_wait` and `_watch`. Like `_cli` they print and exit; nothing is imported before a command needs it.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from sglogparse._cli_common import colour, hush, put, width

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

    from sglogparse._wait import Fate, Wait
    from sglogparse._watch import Told, Watch

#: How often what a terminal shows is drawn anew, s.
_DRAW = 1.0
#: After how long without news a line says that waiting goes on, s: CI ends jobs that say nothing for long.
_REMIND = 300.0
#: Exit code of a process that was asked to end (128 + SIGTERM).
_TERMINATED = 143

_show_secrets = click.option("--show-secrets", is_flag=True, help="Do not mask keys, tokens and passwords.")


@click.command()
@click.argument("log", metavar="LOG", type=click.Path(path_type=str))
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, max=1e9),
    default=900,
    show_default=True,
    help="The longest to wait.",
)
@click.option(
    "--pid", metavar="PID", type=click.IntRange(min=1), help="The server's process: it must not end."
)
@click.option("--url", metavar="URL", help="Ready as soon as this answers 200, e.g. .../health.")
@click.option("-q", "--quiet", is_flag=True, help="Show nothing on standard error while waiting.")
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="For a person, for a program, or as annotations of a job.",
)
@_show_secrets
def wait(
    log: str,
    timeout: float,
    pid: int | None,
    url: str | None,
    quiet: bool,
    output_format: str,
    show_secrets: bool,
) -> None:
    """Wait until a starting server is ready or has crashed, by its log.

    LOG need not exist yet, and can be rotated or truncated; - is standard input. It can be a pipe, for whose
    writer the shell does not wait: sglogparse wait <(kubectl logs -f POD). Returns at the moment the fate
    is known, with the diagnosis where there is one to make.

    \b
    Exit codes: 0 ready
                1 crashed, was stopped, or its process is gone
                2 the log could not be read, or the call was wrong
                3 timed out, hung, or the log ended: who is behind, where, for how long
    """
    from pathlib import Path

    from sglogparse._ours import is_log_of
    from sglogparse._output import append
    from sglogparse._safe import plain
    from sglogparse._wait import Probe, Process, Wait
    from sglogparse.render.wait import (
        TOLD,
        masked_fate,
        render_fate,
        render_github,
        render_json,
        render_summary,
    )

    if math.isnan(timeout):
        raise click.BadParameter("--timeout must be a number of seconds")
    _check_url(url)
    named = os.environ.get("GITHUB_STEP_SUMMARY") if output_format == "github" else None
    summary = Path(named) if named else None
    if summary is not None and is_log_of(summary, (log,)):
        raise click.UsageError(f"{summary}: is read by this call, so no summary is added to it")
    probe = None if url is None else Probe(url)
    waiting = Wait(log, timeout, None if pid is None else Process(pid), probe)
    with _ended_by(lambda: sys.exit(_TERMINATED)) as check:
        if probe is not None:
            probe.start()
        fate = _wait(waiting, check, quiet=quiet)
    waiting.follower.tail.close()
    shown = fate if show_secrets else masked_fate(fate)
    if output_format == "text":
        put(render_fate(shown, min(width(), 100), colour()))
    elif output_format == "json":
        put(render_json(shown))
    elif fate.exit_code:
        if summary is not None:
            append(f"{render_summary(shown)}\n\n", summary)
        put(render_github(shown))
    if fate.end in TOLD and fate.notes and output_format == "text" and not quiet:
        _unheard(lambda: click.echo("\n".join(map(plain, shown.notes)), err=True))
    raise click.exceptions.Exit(fate.exit_code)


def _check_url(url: str | None) -> None:
    """Refuse what cannot be asked."""
    if url is None:
        return
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, an address that is none
        known = False
    if not known or any(ord(char) <= 32 or ord(char) > 126 for char in url):
        raise click.BadParameter("--url must be http://HOST[:PORT]/PATH or https://...")
    if parts.username is not None or parts.password is not None:
        raise click.BadParameter("--url cannot have a user or a password in it")


def _wait(waiting: Wait, check: Callable[[], None], *, quiet: bool) -> Fate:
    from sglogparse._safe import plain
    from sglogparse._wait import rehearse
    from sglogparse.render.text import render_text
    from sglogparse.render.wait import progress_line, progress_view

    terminal = not quiet and _is_terminal(sys.stderr)
    with _live(sys.stderr, terminal) as live:
        drawn, told, at, ready, noted = -math.inf, "", waiting.begun, False, quiet
        while (fate := waiting.step()) is None:
            check()
            now = time.monotonic()
            if not noted and waiting.node is not None:
                noted = True
                _unheard(lambda: click.echo(f"{plain(waiting.name)}: {waiting.node}", err=True))
            if live is not None and now - drawn >= _DRAW:
                drawn = now
                _unheard(lambda: _draw(live, progress_view(waiting, width())))
            elif not terminal and not quiet and not waiting.follower.tail.behind:
                stage = waiting.progress.least()
                if stage != told or now - at >= _REMIND:
                    told, at = stage, now
                    _unheard(lambda: click.echo(progress_line(waiting), err=True))
            if not ready and waiting.idle:
                ready = bool(render_text(rehearse()))
            time.sleep(waiting.pause)
    return fate


@click.command()
@click.argument("log", metavar="LOG", type=click.Path(path_type=str))
@click.option(
    "--interval",
    metavar="SECONDS",
    type=click.FloatRange(min=0.1, max=1e6),
    default=10,
    show_default=True,
    help="From one line to the next, where the output is no terminal.",
)
@_show_secrets
def watch(log: str, interval: float, show_secrets: bool) -> None:
    """Show how a server does, by its log, and what is found in it, until Ctrl-C.

    Throughput, requests, KV usage and retractions, by rank where they differ; each finding once, as it comes.

    \b
    Exit codes: as those of `diagnose` for the log up to then; 2 the log could not be read
    """
    from sglogparse._watch import Watch

    if math.isnan(interval):
        raise click.BadParameter("--interval must be a number of seconds")
    watching = Watch(log)
    screen = _Screen(watching, interval, show_secrets=show_secrets)
    try:
        with _ended_by(_interrupt) as check, screen:
            while not watching.ended:
                check()
                screen.show(watching.step())
                time.sleep(watching.pause)
    except KeyboardInterrupt:
        pass
    except OSError:  # nobody reads it any more, or the terminal is gone
        screen.hush()
    with _ended_by(lambda: sys.exit(_TERMINATED)) as check:
        screen.end()
        check()
    watching.follower.tail.close()
    diagnosis = watching.diagnosis
    raise click.exceptions.Exit(3 if diagnosis is None else diagnosis.exit_code())


class _Screen:
    """Where watching is shown: a terminal that is drawn anew, or line by line."""

    def __init__(self, watching: Watch, interval: float, *, show_secrets: bool) -> None:
        self._watch, self._interval, self._show_secrets = watching, interval, show_secrets
        self._context = _live(sys.stdout, _is_terminal(sys.stdout))
        self._live: Live | None = None
        self._drawn = -math.inf
        self._next = time.monotonic() + interval
        self._idle = False
        self._gone = False

    def __enter__(self) -> _Screen:
        self._live = self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:  # noqa: ANN401 - what Python hands over
        self._context.__exit__(*error)
        self._live = None

    def show(self, told: list[Told]) -> None:
        """Show what was found, and how the server does when it is time for that."""
        from sglogparse.render.watch import load_line, load_view, told_line

        for one in told:
            line = told_line(one, show_secrets=self._show_secrets)
            self._put(line.text, line.style)
        now = time.monotonic()
        if self._live is not None:
            if now - self._drawn >= _DRAW:
                self._drawn = now
                _draw(self._live, load_view(self._watch, width()))
        elif now >= self._next:
            self._next = now + self._interval
            idle = not self._watch.batches
            if not (idle and self._idle):  # that nothing happens is said once
                self._put(f"{time.strftime('%H:%M:%S')} {load_line(self._watch)}", "")
            self._idle = idle and bool(self._watch.loads)

    def end(self) -> None:
        """Show what the last lines have brought, and how the server stands."""
        from sglogparse.render.watch import load_line

        told = self._watch.finish()
        if self._gone:
            return
        try:
            self.show(told)
            if self._watch.batches:
                self._put(f"{time.strftime('%H:%M:%S')} {load_line(self._watch)}", "")
        except OSError:
            self.hush()

    def hush(self) -> None:
        """Show nothing any more: nobody reads it."""
        self._gone = True
        if sys.stdout is not None:
            hush(sys.stdout)

    def _put(self, text: str, style: str) -> None:
        if self._live is None:
            if sys.stdout is not None:
                sys.stdout.write(f"{text}\n")
                sys.stdout.flush()
            return
        from rich.text import Text

        from sglogparse.render._wrap import wrap

        shown = Text("\n".join(wrap(text, width(), rest="  ")), style)
        self._live.console.print(shown, soft_wrap=True, highlight=False)


# ------------------------------------------------------------------ terminals and signals


def _is_terminal(stream: Any) -> bool:  # noqa: ANN401 - a stream, or None where it is closed
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def _live(stream: Any, terminal: bool) -> AbstractContextManager[Live | None]:  # noqa: ANN401 - a stream
    """Return a place on a terminal that is drawn anew; nothing where there is no terminal."""
    if not terminal:
        return nullcontext()
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream, legacy_windows=False)
    return Live(
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        vertical_overflow="crop",
    )


def _draw(live: Live, view: Text) -> None:
    live.update(view, refresh=True)


def _unheard(say: Callable[[], None]) -> None:
    """Write to standard error; that nobody reads it any more is no reason to wait no longer."""
    if sys.stderr is None:
        return
    try:
        say()
    except OSError:
        hush(sys.stderr)


def _interrupt() -> None:
    raise KeyboardInterrupt


@contextmanager
def _ended_by(end: Callable[[], object]) -> Iterator[Callable[[], None]]:
    """Let SIGTERM end what is done in good order, as Ctrl-C does: terminals get back what they were.

    Yields what is to be called between two steps: an exception within one could be taken for another's. A
    second signal does not wait for the end of a step.
    """
    come = threading.Event()

    def check() -> None:
        if come.is_set():
            end()

    def terminated(*_: object) -> None:
        check()
        come.set()

    if threading.current_thread() is not threading.main_thread():
        yield check
        return
    before = signal.signal(signal.SIGTERM, terminated)
    try:
        yield check
    finally:
        signal.signal(signal.SIGTERM, before)
