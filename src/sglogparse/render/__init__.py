"""Renderers: one file a format, all fed by the same Diagnosis."""

from __future__ import annotations

from collections.abc import Callable

from sglogparse._report import Diagnosis
from sglogparse.render.azure import render_azure
from sglogparse.render.concise import render_concise
from sglogparse.render.github import render_github
from sglogparse.render.gitlab import render_gitlab
from sglogparse.render.json import render_json
from sglogparse.render.jsonl import render_jsonl
from sglogparse.render.junit import render_junit
from sglogparse.render.markdown import render_markdown
from sglogparse.render.sarif import render_sarif
from sglogparse.render.text import render_text

Renderer = Callable[[Diagnosis, int, bool, int | None], str]

#: Output format -> renderer (diagnosis, width of the terminal, colour, exit code) -> text. Not all formats
#: have a width, a colour, or tell the exit code.
FORMATS: dict[str, Renderer] = {
    "text": render_text,
    "concise": render_concise,
    "json": render_json,
    "jsonl": render_jsonl,
    "github": render_github,
    "gitlab": render_gitlab,
    "azure": render_azure,
    "junit": render_junit,
    "sarif": render_sarif,
    "markdown": render_markdown,
}
