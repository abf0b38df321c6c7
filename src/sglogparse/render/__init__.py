"""Renderers: one file a format, all fed by the same Diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module

from sglogparse._report import Diagnosis

Renderer = Callable[[Diagnosis, int, bool, int | None], str]

_NAMES = (
    "text", "concise", "json", "jsonl", "github", "gitlab", "azure", "junit", "sarif", "markdown"
)  # fmt: skip


class _Formats(Mapping[str, Renderer]):
    """Renderers by the name of their format, imported when they are asked for."""

    def __getitem__(self, name: str) -> Renderer:
        if name not in _NAMES:
            raise KeyError(name)
        renderer: Renderer = getattr(import_module(f"sglogparse.render.{name}"), f"render_{name}")
        return renderer

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


#: Output format -> renderer (diagnosis, width of the terminal, colour, exit code) -> text. Not all formats
#: have a width, a colour, or tell the exit code.
FORMATS: Mapping[str, Renderer] = _Formats()
