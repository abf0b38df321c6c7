"""What the compiler made of the grammars, kept in the package, so that a command need not compile them.

    grammars/*.lark --> (docs/generate.py) --> data/plan.json: digest of the texts, plan, family patterns
    a command: digests of the texts = the stored ones --> the stored plan, else the compiler

It is keyed by the text of the grammars and of the compiler: after a change of either it is not used.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import json
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglogparse._compiler import (
    Bag,
    EventPlan,
    Fixed,
    Header,
    Item,
    Plan,
    Wrapper,
    openings,
)
from sglogparse._grammar import grammar_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lark import Lark

    from sglogparse._compiler import Openings

#: Where the plan is kept.
PLAN_FILE = Path(__file__).parent / "data" / "plan.json"
#: What has made it.
_COMPILER = Path(__file__).parent / "_compiler.py"


def digest(text: str) -> str:
    """Return what a stored plan is keyed by."""
    return sha256(text.encode()).hexdigest()


def stored_plan(text: str) -> Plan | None:
    """Return the stored plan of a grammar's text; None when what is stored is that of another text."""
    stored = _stored()
    return _plan(stored["plan"]) if stored.get("digest") == digest(text) else None


def stored_patterns(text: str, *starts: str) -> tuple[dict[str, str], ...] | None:
    """Return the stored patterns of the alternatives of rules; None when they are those of another text."""
    found: dict[str, dict[str, str]] | None = _stored().get("patterns", {}).get(digest(text))
    return tuple(found[start] for start in starts) if found else None


def stored_openings(pattern: str) -> Openings | None:
    """Return how a text of a pattern can begin, as `openings` does."""
    known: dict[str, list[str] | None] = _stored().get("openings", {})
    if pattern not in known:
        return openings(pattern)
    found = known[pattern]
    return None if found is None else tuple(map(tuple, found))


@cache
def _stored() -> dict[str, Any]:
    try:
        stored: dict[str, Any] = json.loads(PLAN_FILE.read_text(encoding="utf-8"))
        compiler = digest(_COMPILER.read_text(encoding="utf-8"))
    except FileNotFoundError:  # before it is written for the first time, and where only bytecode is installed
        return {}
    return stored if stored.get("compiler") == compiler else {}


#: The grammars that Lark reads in production, with its options for them.
PARSERS: dict[str, dict[str, Any]] = {
    "server_args.lark": {"start": "value", "maybe_placeholders": False},
    "traceback.lark": {"start": "block", "lexer": "basic"},
}


def parser(grammar: str) -> Lark:
    """Return Lark's LALR parser of one of PARSERS: with the stored tables of its text, else with new ones."""
    import lark

    stored = _stored().get("parsers", {}).get(digest(grammar_text(grammar)))
    if stored is None or stored["lark"] != lark.__version__:
        return new_parser(grammar)
    return lark.Lark.load(io.BytesIO(base64.b64decode(stored["tables"])))


def new_parser(grammar: str) -> Lark:
    """Return Lark's LALR parser of one of PARSERS, with tables that are made now."""
    from lark import Lark

    return Lark(grammar_text(grammar), parser="lalr", **PARSERS[grammar])


def tables(grammar: str) -> dict[str, str]:
    """Return the tables of a parser as they are stored, with the release of Lark that can read them."""
    import lark

    buffer = io.BytesIO()
    new_parser(grammar).save(buffer)
    return {"lark": lark.__version__, "tables": base64.b64encode(buffer.getvalue()).decode()}


def encoded(text: str, plan: Plan, patterns: Mapping[str, Mapping[str, dict[str, str]]], *others: str) -> str:
    """Return the text of the file: a plan, and by grammar text the patterns of rules, and parsers' tables.

    With those of the plan's wrappers it has the openings of these patterns, and of others.
    """
    opened = [
        pattern for rules in patterns.values() for found in rules.values() for pattern in found.values()
    ]
    opened += [*(one.pattern for one in plan.wrappers), *others]
    return json.dumps(
        {
            "compiler": digest(_COMPILER.read_text(encoding="utf-8")),
            "parsers": {digest(grammar_text(one)): tables(one) for one in PARSERS},
            "openings": {pattern: openings(pattern) for pattern in opened},
            "digest": digest(text),
            "plan": {
                "header": plan.header,
                "header_groups": plan.header_groups,
                "headers": [dataclasses.asdict(one) for one in plan.headers],
                "location": dataclasses.asdict(plan.location) if plan.location else None,
                "wrappers": [dataclasses.asdict(one) for one in plan.wrappers],
                "tags": plan.tags,
                "types": plan.types,
                "events": [dataclasses.asdict(one) for one in plan.events],
            },
            "patterns": {digest(one): dict(rules) for one, rules in patterns.items()},
        },
        separators=(",", ":"),
    )


def _plan(stored: Mapping[str, Any]) -> Plan:
    return Plan(
        events=tuple(_event(one) for one in stored["events"]),
        header=stored["header"],
        header_groups=stored["header_groups"],
        headers=tuple(_tupled(Header, one) for one in stored["headers"]),
        location=_tupled(Header, stored["location"]) if stored["location"] else None,
        wrappers=tuple(_tupled(Wrapper, one) for one in stored["wrappers"]),
        tags=stored["tags"],
        types=stored["types"],
    )


def _event(stored: dict[str, Any]) -> EventPlan:
    wordings = tuple(
        _tupled(Bag, {**one, "items": tuple(_tupled(Item, item) for item in one["items"])})
        if "items" in one
        else _tupled(Fixed, one)
        for one in stored["wordings"]
    )
    return EventPlan(**{**stored, "wordings": wordings})


def _tupled(kind: Any, stored: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any of the classes of a plan
    """Return an object from its fields: what was a tuple is a list in JSON."""
    return kind(**{name: tuple(one) if isinstance(one, list) else one for name, one in stored.items()})
