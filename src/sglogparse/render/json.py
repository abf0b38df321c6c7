"""The report as one JSON object (schema sglogparse/diagnosis/1)."""

from __future__ import annotations

from sglogparse._report import Diagnosis
from sglogparse.render._json import dumps


def render_json(
    diagnosis: Diagnosis, width: int = 0, colour: bool = False, exit_code: int | None = None
) -> str:
    """Return the object, indented; width and colour mean nothing here."""
    return dumps(diagnosis.as_dict())
