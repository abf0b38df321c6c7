"""Names that stand for several logs: folders and globs.

folder, glob --> files_in, files_like --> paths, in the order that a person would read them
"""

from __future__ import annotations

import os
import re
from pathlib import Path

#: The last part of a name by which a file is taken for a log, then what rotation appends, then compression.
_LOG = re.compile(
    r"(?:^|[._-])(?:log|logs|txt|out|err|stdout|stderr)(?:[._-][0-9][0-9A-Za-z._-]*)?(?:\.(?:gz|zst|xz|bz2))?"
    r"(?: \([0-9]+\))?$",
    re.IGNORECASE,
)
_ARCHIVE = re.compile(r"\.(?:zip|tar|tgz|tbz2?|txz|tzst|tar\.(?:gz|zst|xz|bz2))$", re.IGNORECASE)
_WILD = re.compile(r"[*?\[]")


def named_as_log(name: str) -> bool:
    """Tell whether a file is called as logs are: `server.log`, `slurm-17.out`, `a.err.2.gz`, `stdout`."""
    return _LOG.search(re.split("[/!]", name)[-1]) is not None


def named_as_archive(name: str) -> bool:
    """Tell whether a file is called as an archive."""
    return _ARCHIVE.search(name) is not None


def is_glob(name: str) -> bool:
    """Tell whether a name has characters that stand for others."""
    return _WILD.search(name) is not None


def files_in(folder: str, failed: list[OSError]) -> list[str]:
    """Return the files in a folder and its folders, but for hidden ones and links to folders.

    `failed` takes the errors of folders that cannot be looked into.
    """
    found = []
    for place, folders, files in os.walk(folder, onerror=failed.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [str(Path(place) / name) for name in files if not name.startswith(".")]
    return sorted(found, key=in_order)


def files_like(pattern: str) -> list[str]:
    """Return what a glob matches, but for hidden files that it does not name; `**` is any folders."""
    path = Path(pattern)
    start = Path(path.anchor)
    shown = [
        str(match)
        for match in start.glob(str(path.relative_to(path.anchor)))
        if not any(_hidden(part) and part not in path.parts for part in match.parts)
    ]
    return sorted(shown, key=in_order)


def _hidden(part: str) -> bool:
    return part.startswith(".") and part.strip(".") != ""


def in_order(name: str) -> list[tuple[str, int]]:
    """Return a key that puts `node10` behind `node2`."""
    return [(text, int(number or 0)) for text, number in re.findall(r"([^0-9]*)([0-9]*)", name)]
