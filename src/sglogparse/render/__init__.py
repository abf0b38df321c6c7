"""Renderers: one file a format, all fed by the same Diagnosis."""

from __future__ import annotations

from collections.abc import Callable

from sglogparse._report import Diagnosis
from sglogparse.render.json import render_json
from sglogparse.render.text import render_text

#: Output format -> renderer (diagnosis, width of the terminal, colour) -> text.
FORMATS: dict[str, Callable[[Diagnosis, int, bool], str]] = {"text": render_text, "json": render_json}
