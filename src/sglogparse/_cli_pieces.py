"""Commands that other programs use: `metrics` for Prometheus, `completion` for shells."""

from __future__ import annotations

from pathlib import Path

import click

from sglogparse._cli_common import logs, note, put, show_secrets
from sglogparse._config import real


@click.command()
@logs
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=str),
    help="Write here, whole or not at all, instead of standard output.",
)
@show_secrets
def metrics(logs: tuple[str, ...], output: str | None, show_secrets: bool) -> None:
    """Write what batch lines say as OpenMetrics: throughput, queue, KV usage, per log and rank.

    \b
    sglogparse metrics server.log -o /var/lib/node_exporter/sglang.prom

    The text ends with # EOF; the textfile collector of Prometheus' node exporter reads it, too. Distributions
    are over the lines of the log, as quantiles, sum and count. What a log does not print has no sample.
    """
    from sglogparse import _metrics
    from sglogparse._output import write_whole
    from sglogparse._safe import masked
    from sglogparse.render.openmetrics import render_openmetrics

    if output is not None and any(log != "-" and real(Path(log)) == real(Path(output)) for log in logs):
        raise click.UsageError(f"{output}: is read by this call, so nothing is written to it")
    found = tuple(_metrics.metrics(logs))
    text = render_openmetrics(found if show_secrets else masked(found))
    if output is None:
        put(text)
        return
    write_whole(f"{text}\n", Path(output))
    count = sum(len(one.samples) for one in found)
    note(f"{output}: {count} sample{'' if count == 1 else 's'}")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what a shell reads to complete commands, options and files.

    \b
    bash: eval "$(sglogparse completion bash)"                                   in ~/.bashrc
    zsh:  eval "$(sglogparse completion zsh)"                                    in ~/.zshrc
    fish: sglogparse completion fish > ~/.config/fish/completions/sglogparse.fish
    """
    from click.shell_completion import ShellComplete, get_completion_class

    root = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    assert kind is not None
    # not the class's own `source`: that of bash looks for a bash and complains about its version
    put(ShellComplete.source(kind(root, {}, "sglogparse", "_SGLOGPARSE_COMPLETE")))
