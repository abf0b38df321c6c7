"""JSON that every parser takes, and that no CI runner takes for a command."""

from __future__ import annotations

import json
import re
from typing import Any


def dumps(value: Any, indent: int | None = 2) -> str:  # noqa: ANN401 - whatever JSON holds
    r"""Return a value as ASCII JSON; a lone surrogate, which many parsers refuse, becomes U+FFFD.

    Azure's agent looks for "##vso[" anywhere in a line, so the second of two "#" is written by its number.

    >>> print(dumps(["##vso[x]", "\ud800"], None))
    ["#\u0023vso[x]", "\ufffd"]
    """
    text = json.dumps(value, indent=indent, ensure_ascii=True)
    if "\\ud" in text:  # perhaps: a pair, or a backslash in front of "ud"
        text = json.dumps(_whole(value), indent=indent, ensure_ascii=True)
    return text.replace("##", r"#\u0023")


def _whole(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    if isinstance(value, (list, tuple)):
        return [_whole(one) for one in value]
    if isinstance(value, dict):
        return {_whole(key): _whole(one) for key, one in value.items()}
    return value
