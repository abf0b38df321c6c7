"""Waiting, on a terminal: how far the ranks are, and in the end the fate, with the diagnosis if there is one.

ready after 3 min 12 s: server.log:812 says so                                    the fate
timed out after 15 min 00 s: TP3 is behind, in weights, for 11 min 04 s; ahead: TP0-TP2, ...
crashed, during KV cache set-up; ...                                              as `diagnose` prints it
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rich.text import Text

from sglogparse._safe import plain
from sglogparse._vitals import span
from sglogparse._wait import End, Fate, lag_words, stage_words
from sglogparse.render._json import dumps
from sglogparse.render._wrap import wrap
from sglogparse.render.github import command
from sglogparse.render.github import render_github as diagnosis_for_github
from sglogparse.render.markdown import markdown_text, render_markdown
from sglogparse.render.text import render_text

if TYPE_CHECKING:
    from sglogparse._wait import Wait

SCHEMA = "sglogparse/wait/1"
#: Ends that the diagnosis tells by itself.
TOLD = (End.CRASHED, End.STOPPED)
#: Rows of ranks that are shown at once, at the most.
_STAGES = 8


def render_fate(fate: Fate, width: int = 80, colour: bool = False) -> str:
    """Return the fate for a person, wrapped at a width; a crash as `diagnose` prints it."""
    told = "" if fate.diagnosis is None else render_text(fate.diagnosis, width, colour)
    if fate.end in TOLD and told:
        return told
    head = f"{fate.end.value} after {span(fate.waited)}: {fate.summary}"
    lines = wrap(plain(head), width, rest="  ")
    if fate.lag is not None and (words := lag_words(fate.lag)) not in fate.summary:
        lines += wrap(plain(words), width, rest="  ")
    for note in fate.notes:
        lines += wrap(plain(note), width, rest="  ")
    return "\n".join([*lines, "", told] if told else lines)


def render_github(fate: Fate) -> str:
    """Return workflow commands of GitHub Actions: the fate, and what the log tells; nothing when it is ready.

    A fate that the log does not tell, as that of a process which is gone, is an annotation of its own.
    """
    if fate.end is End.READY:
        return ""
    told = "" if fate.diagnosis is None else diagnosis_for_github(fate.diagnosis)
    if fate.end in TOLD and told:
        return told
    lag = [] if fate.lag is None or (words := lag_words(fate.lag)) in fate.summary else [words]
    said = [f"{fate.end.value} after {span(fate.waited)}: {fate.summary}", *lag, *fate.notes]
    head = command("error", {"title": f"sglogparse: {fate.end.value}"}, said)
    return f"{head}\n{told}" if told else head


def render_summary(fate: Fate) -> str:
    """Return what the summary of a step says of the fate, in Markdown."""
    told = [] if fate.diagnosis is None else [render_markdown(fate.diagnosis)]
    if fate.end not in TOLD or not told:
        head = f"### sglogparse: {fate.end.value} after {span(fate.waited)}: {markdown_text(fate.summary)}"
        told = [head, *map(markdown_text, fate.notes), *told]
    return "\n\n".join(told)


def render_json(fate: Fate) -> str:
    """Return the fate for a program."""
    lag = fate.lag
    found = {
        "schema": SCHEMA,
        "fate": fate.end.value,
        "exit_code": fate.exit_code,
        "summary": fate.summary,
        "waited_s": round(fate.waited, 3),
        "behind": None
        if lag is None
        else {
            "ranks": list(lag.ranks),
            "phase": lag.words,
            "for_s": lag.lasts,
            "ahead": list(lag.peers),
            "ahead_took_s": lag.took,
        },
        "notes": list(fate.notes),
        "diagnosis": None if fate.diagnosis is None else fate.diagnosis.as_dict(),
    }
    return dumps(found)


def progress_view(wait: Wait, width: int) -> Text:
    """Return what waiting shows at the moment, in a few lines of a terminal."""
    tail = wait.follower.tail
    read = f"{wait.follower.lines} lines" if tail.exists else "not there yet"
    heads = [f"{wait.name}: {read}", f"waiting for {span(wait.waited)} of {span(wait.timeout)}"]
    if wait.quiet >= 1 and wait.follower.lines:
        heads.append(f"last line {span(wait.quiet)} ago")
    view = Text(no_wrap=True, overflow="ellipsis")
    view.append("\n".join(wrap(plain("; ".join(heads)), width, rest="  ", most=2)), "bold")
    stages, lag = wait.progress.stages(), wait.progress.lag()
    for number, stage in enumerate(stages[:_STAGES]):
        lasts = "" if stage.lasts is None else f"  {span(stage.lasts)}"
        late = lag is not None and stage.words == lag.words and number < len(stages) - 1
        took = (
            f", the others took {span(lag.took)}" if late and lag is not None and lag.took is not None else ""
        )
        text = f"{stage_words(stage)}{lasts}{took}"
        view.append("\n")
        view.append(
            "\n".join(wrap(plain(text), width, first="  ", rest="    ", most=2)), "yellow" if late else ""
        )
    if len(stages) > _STAGES:
        view.append(f"\n  (+{len(stages) - _STAGES} more)")
    bar = wait.bar
    if bar is not None and wait.progress.ready is None:
        view.append("\n")
        view.append("\n".join(wrap(plain(bar), width, first="  ", most=1)), "dim")
    return view


def progress_line(wait: Wait) -> str:
    """Return how far the ranks are in one line, for a log of a job."""
    stages = [stage_words(stage) for stage in wait.progress.stages()[:_STAGES]]
    return plain(f"{span(wait.waited)}: {'; '.join(stages) or wait.stands()}")


def masked_fate(fate: Fate) -> Fate:
    """Return a fate with the secrets masked in its texts."""
    from sglogparse._safe import mask_secrets, masked

    return replace(
        fate,
        summary=mask_secrets(fate.summary),
        notes=tuple(mask_secrets(note) for note in fate.notes),
        diagnosis=masked(fate.diagnosis),
    )
