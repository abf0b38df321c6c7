"""How much of a log was recognised, for a terminal and as JSON.

server.log: 112 lines, 2 not recognised (98.2 % named)
  decode_batch   60
  ...
  line 17: what nobody can name
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from sglogparse._coverage import FileCoverage
from sglogparse._safe import plain
from sglogparse.render._json import dumps
from sglogparse.render._wrap import wrap

#: Kinds of a file that are listed; the rest is one row.
_MOST_KINDS = 12


def render_coverage(files: Sequence[FileCoverage], width: int) -> str:
    """Return the coverage of each file, and of all where there are several."""
    out: list[str] = []
    for one in files:
        out += wrap(f"{plain(one.path)}: {_said(one.lines, one.unparsed)}", width)
        out += _kinds(one.families)
        for example in one.examples:
            like = f" (and {example.like_it - 1} like it)" if example.like_it > 1 else ""
            out += wrap(
                f"line {example.line}{like}: {plain(example.text.strip())}", width, first="  ", most=1
            )
        out.append("")
    if len(files) > 1:
        total: Counter[str] = Counter()
        for one in files:
            total.update(one.families)
        lines, unparsed = sum(one.lines for one in files), sum(one.unparsed for one in files)
        mean = sum(one.share for one in files) / len(files)
        out += wrap(
            f"{len(files)} files: {_said(lines, unparsed)}; {_percent(mean)} a file on average", width
        )
        out += [*_kinds(dict(total.most_common())), ""]
    return "\n".join(out[:-1])


def _said(lines: int, unparsed: int) -> str:
    count = "1 line" if lines == 1 else f"{lines} lines"
    if not lines:
        return "empty"
    if not unparsed:
        return f"{count}, all of them recognised"
    return f"{count}, {unparsed} not recognised ({_percent(1 - unparsed / lines)} named)"


def _percent(share: float) -> str:
    """Return a share in percent; what is not whole never looks whole."""
    return f"{min(100 * share, 99.9) if share < 1 else 100:.1f} %"


def _kinds(families: Mapping[str, int]) -> list[str]:
    rows = list(families.items())
    shown = rows[:_MOST_KINDS]
    rest = rows[_MOST_KINDS:]
    if rest:
        shown.append((f"{len(rest)} other kinds", sum(number for _, number in rest)))
    size = max((len(kind) for kind, _ in shown), default=0)
    digits = max((len(str(number)) for _, number in shown), default=0)
    return [f"  {kind.ljust(size)}  {str(number).rjust(digits)}" for kind, number in shown]


def coverage_json(files: Sequence[FileCoverage]) -> str:
    """Return the coverage as JSON; the keys of a file are those of FileCoverage."""
    rows = [
        {
            "path": one.path,
            "lines": one.lines,
            "unparsed": one.unparsed,
            "families": dict(one.families),
            "examples": [
                {"line": example.line, "text": example.text, "like_it": example.like_it}
                for example in one.examples
            ],
        }
        for one in files
    ]
    return dumps({"schema": "sglogparse/coverage/1", "files": rows})
