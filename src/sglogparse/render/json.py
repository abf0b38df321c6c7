"""The report as one JSON object (schema sglogparse/diagnosis/1)."""

from __future__ import annotations

import json

from sglogparse._report import Diagnosis


def render_json(diagnosis: Diagnosis, width: int = 0, colour: bool = False) -> str:
    """Return the object, indented; width and colour mean nothing here."""
    del width, colour
    return json.dumps(diagnosis.as_dict(), indent=2, ensure_ascii=True)
