"""Which release printed a log: the set of its ServerArgs fields tells.

data/server_args.json lists, release by release, the fields that came and went (read from the wheels on PyPI;
later "post" releases count as the release they follow).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib.resources import files

#: Share of the arguments that may differ from a release's for it to be named: builds between two releases.
_FAR = 0.1


@cache
def _fields() -> tuple[tuple[str, frozenset[str]], ...]:
    steps = json.loads((files("sglogparse") / "data" / "server_args.json").read_text(encoding="utf-8"))
    known: set[str] = set()
    releases = []
    for step in steps:
        known = (known | set(step["added"])) - set(step["removed"])
        releases.append((step["release"], frozenset(known)))
    return tuple(releases)


def version_window(arguments: Iterable[str], *, cut: bool) -> str | None:
    """Return the releases whose arguments are these: "0.5.9", "0.4.2..0.4.3", or the nearest and how near.

    Of a list that was cut, the arguments before the cut must all be known to the release. None without
    arguments, and when no release comes near (a list that somebody shortened, another program's).

    >>> version_window(["model_path", "tp_size", "context_length"], cut=True)
    '0.1.17..0.5.23'
    """
    return _window(frozenset(arguments), cut)


@lru_cache(maxsize=256)
def _window(printed: frozenset[str], cut: bool) -> str | None:
    if not printed:
        return None
    distances = [
        (len(printed - known) if cut else len(printed ^ known), release) for release, known in _fields()
    ]
    least = min(distance for distance, _ in distances)
    if least > _FAR * len(printed):
        return None
    nearest = [release for distance, release in distances if distance == least]
    window = nearest[0] if len(nearest) == 1 else f"{nearest[0]}..{nearest[-1]}"
    return window if least == 0 else f"near {window} ({least} argument{'s' if least > 1 else ''} differ)"


def release_range(window: str | None) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the oldest and the newest release of a window as numbers; None when it is not known.

    >>> release_range("near 0.5.9 (2 arguments differ)"), release_range("0.4.2..0.4.3")
    (((0, 5, 9), (0, 5, 9)), ((0, 4, 2), (0, 4, 3)))
    """
    found = re.findall(r"[0-9]+(?:\.[0-9]+)+", window or "")
    ends = [tuple(int(part) for part in one.split(".")) for one in found]
    return (ends[0], ends[-1]) if ends else None
