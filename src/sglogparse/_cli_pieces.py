"""Commands that other programs use: `metrics` for Prometheus, `completion` for shells."""

from __future__ import annotations

from pathlib import Path

import click

from sglogparse._cli_common import logs, note, put, show_secrets


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
    from sglogparse._ours import is_log_of
    from sglogparse._output import write_whole
    from sglogparse._safe import masked
    from sglogparse.render.openmetrics import render_openmetrics

    if output is not None and is_log_of(Path(output), logs):
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
    put(_SCRIPTS[shell])


# What click asks the program, and what it answers, is click's own; the scripts are not. Those of click give
# no value behind "--option=", or put it in the place of the whole word, and in fish end a help at its comma.

_BASH = """\
_sglogparse_completion() {
    local IFS=$'\\n' response completion kind value number
    local words=()
    # bash parts words at "=" and ":"; what is behind them is the value of an option
    for ((number = 0; number <= COMP_CWORD; number++)); do
        case ${COMP_WORDS[number]} in
            = | :) if ((number == COMP_CWORD)); then words+=(""); fi ;;
            *) words+=("${COMP_WORDS[number]}") ;;
        esac
    done
    response=$(COMP_WORDS="${words[*]}" COMP_CWORD=$((${#words[@]} - 1)) \\
        _SGLOGPARSE_COMPLETE=bash_complete "$1")
    COMPREPLY=()
    for completion in $response; do
        IFS=, read -r kind value <<< "$completion"
        case $kind in
            dir) compopt -o dirnames 2> /dev/null ;;
            file) compopt -o default 2> /dev/null ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done
}

# releases before 4.4 sort, and know no compopt
complete -o nosort -F _sglogparse_completion sglogparse 2> /dev/null ||
    complete -o default -F _sglogparse_completion sglogparse"""

_ZSH = """\
#compdef sglogparse

_sglogparse_completion() {
    local -a told plain response
    local kind key help

    (( $+commands[sglogparse] )) || return 1
    response=("${(@f)$(COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT - 1)) \\
        _SGLOGPARSE_COMPLETE=zsh_complete sglogparse)}")
    # of --option=value the value alone is completed
    if [[ $PREFIX == --*=* ]]; then compset -P '*='; fi
    for kind key help in $response; do
        case $kind in
            dir) _path_files -/ ;;
            file) _path_files -f ;;
            plain) if [[ $help == _ ]]; then plain+=("$key"); else told+=("$key:$help"); fi ;;
        esac
    done
    if (( $#told )); then _describe -V unsorted told; fi
    if (( $#plain )); then compadd -V unsorted -a plain; fi
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _sglogparse_completion "$@"
else
    compdef _sglogparse_completion sglogparse
fi"""

_FISH = """\
function _sglogparse_completion
    set -l word (commandline -t)
    set -l response (env _SGLOGPARSE_COMPLETE=fish_complete COMP_WORDS=(commandline -cp | string collect) \\
        COMP_CWORD=(string collect -- $word) sglogparse)
    # of --option=value the value alone is completed
    set -l before (string match -r -- '^--[^=]+=' $word; or echo)
    for completion in $response
        set -l told (string split -m 1 , -- $completion)
        switch $told[1]
            case dir
                printf '%s\\n' $before(__fish_complete_directories $told[2])
            case file
                printf '%s\\n' $before(__fish_complete_path $told[2])
            case plain
                printf '%s\\n' $before$told[2]
        end
    end
end

complete --no-files --command sglogparse --arguments '(_sglogparse_completion)'"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
