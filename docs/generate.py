"""Write what follows from the grammars, the rules and the commands: reference pages, the compiled plan.

python docs/generate.py            writes docs/*.md, docs/sglogparse.1, src/sglogparse/data/plan.json
python docs/generate.py --check    exits with 1 when one of them is stale
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from manual import manual_page

from sglogparse._cli import main as command_line
from sglogparse._compiler import compile_grammar, compiled_plan, rule_patterns
from sglogparse._families import families
from sglogparse._grammar import LINE_GRAMMARS, docs, grammar_text, samples
from sglogparse._log import column_docs, frame_schemas
from sglogparse._records import RECORD_SCHEMA
from sglogparse._stored import PLAN_FILE, encoded
from sglogparse._wrappers import OWN_PATTERNS
from sglogparse.causes import CAUSES
from sglogparse.rules import RULES

HERE = Path(__file__).parent


def frames_page() -> Iterator[str]:
    """Yield the lines of the page on frames."""
    yield "# Frames"
    yield ""
    yield "Written by docs/generate.py from the grammar; do not edit."
    yield ""
    yield "Every frame begins with the columns of the record:"
    yield ""
    yield from _columns("message", list(RECORD_SCHEMA))
    schemas = frame_schemas()
    events = {event.name for event in compiled_plan().events}
    for name, schema in schemas.items():
        own = [column for column in schema if column not in RECORD_SCHEMA]
        yield ""
        yield f"## {name}"
        yield ""
        if name in events:
            yield docs()[name]
            yield ""
            yield "| releases | wording |"
            yield "|---|---|"
            for sample in samples()[name]:
                text = sample.text.replace("|", "\\|")
                yield f"| {sample.releases} | `{text}` |"
            yield ""
        else:
            yield _OTHER[name]
            yield ""
        if own:
            yield from _columns(name, own)
        else:
            yield "No columns of its own."


_OTHER = {
    "message": "A record that no event rule takes: it has SGLang's header, and its text is kept.",
    "traceback": "A block: a Python traceback, with its chain of causes. One row a block.",
    "carried": "What carried a line (a container runtime, an orchestrator, a harness), one row a line; "
    "`file` and `line` name it, and the other columns of the record stand in `lines`.",
    "foreign": "A line of other software, or of a shell, named by its form; families.md lists the families.",
    "faults": "What blocks say of failures: exceptions, native stacks, dumps, asserts. "
    "One row a fault, which counts those that are equal to it; its lines are in blocks.",
    "stack_frames": "The frames of Python's stacks in the `traceback` frame, one row a frame.",
    "server_arg": "The arguments of each `server_args` line, one row an argument.",
}


def _columns(frame: str, names: list[str]) -> Iterator[str]:
    meanings, schema = column_docs(frame), frame_schemas()[frame]
    yield "| column | type | meaning |"
    yield "|---|---|---|"
    for name in names:
        yield f"| {name} | {schema[name]} | {meanings[name]} |"


def families_page() -> Iterator[str]:
    """Yield the lines of the page on the families of foreign lines."""
    yield "# Families"
    yield ""
    yield "Written by docs/generate.py from the grammar; do not edit."
    yield ""
    yield "Whose a line is that has no header of SGLang, no event rule and no block. `lines.kind` holds the"
    yield "name of the family, the frame `foreign` the line. In the order in which they are tried:"
    for family in families():
        yield ""
        yield f"## {family.name}"
        yield ""
        yield family.doc
        if family.samples:
            yield ""
            yield "| software | sample |"
            yield "|---|---|"
        for sample in family.samples:
            text = sample.text.replace("|", "\\|").replace("\t", " ")
            yield f"| {sample.releases} | " + (f"`` {text} ``" if "`" in text else f"`{text}`") + " |"


def rules_page() -> Iterator[str]:
    """Yield the lines of the page on rules."""
    yield "# Rules"
    yield ""
    yield "Written by docs/generate.py from the rules; do not edit. `sglogparse explain CODE` prints it too."
    for rule in RULES:
        yield ""
        yield f"## {rule.code} {rule.name}"
        yield ""
        for line in rule.doc.splitlines():
            heading = bool(line) and not line.startswith(" ") and line.endswith(":")
            yield f"**{line[:-1]}**" if heading else line.strip()
            if heading:
                yield ""
        yield ""
        yield f"Since {rule.since}."


def causes_page() -> Iterator[str]:
    """Yield the lines of the page on causes."""
    yield "# Causes"
    yield ""
    yield "Written by docs/generate.py from the knowledge base (src/sglogparse/causes); do not edit."
    yield "`sglogparse explain CAUSE` prints an entry. A report names a cause with a word for how sure it is:"
    yield "certain (the words mean nothing else, and no other cause comes near), likely, or possible."
    for cause in CAUSES:
        yield ""
        yield f"## {cause.id}"
        yield ""
        yield f"In a report: {cause.title}."
        for line in cause.doc.splitlines():
            heading = bool(line) and not line.startswith(" ")
            if heading:
                yield ""
            if line:
                yield f"**{line[:-1]}**" if heading else line.strip()
            if heading:
                yield ""


def plan() -> str:
    """Return what the compiler makes of the grammars, as it is stored."""
    text, foreign = grammar_text(*LINE_GRAMMARS), grammar_text("families.lark")
    starts = ("family", "more")
    patterns = {foreign: dict(zip(starts, rule_patterns(foreign, *starts), strict=True))}
    return encoded(text, compile_grammar(text), patterns, *OWN_PATTERNS)


def _compared(text: str) -> object:
    """Return what must be equal: of parsers' tables, which differ from run to run, only whose they are."""
    if not text.startswith("{"):
        return text
    stored = json.loads(text)
    return {**stored, "parsers": sorted(stored["parsers"])}


def main() -> int:
    """Write the files, or check them."""
    stale = []
    pages = {
        "frames.md": frames_page(),
        "families.md": families_page(),
        "rules.md": rules_page(),
        "causes.md": causes_page(),
        "sglogparse.1": manual_page(command_line),
    }
    texts = {HERE / name: "\n".join(lines) + "\n" for name, lines in pages.items()}
    for path, text in {PLAN_FILE: plan(), **texts}.items():
        if "--check" in sys.argv:
            if not path.exists() or _compared(path.read_text(encoding="utf-8")) != _compared(text):
                stale.append(path.name)
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"stale: {', '.join(stale)}; run python docs/generate.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
