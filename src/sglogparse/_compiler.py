r"""The compiled reader: grammar rules become literal gates and anchored patterns for polars.

A rule without recursion is a regular language. The trees are taken before Lark expands the EBNF, so that
options and repeats are still there:

    rule tree --> wordings --> Fixed: one anchored pattern with a group a field
                          \--> Bag:   head, items in any order, end; its patterns come from the shapes seen

    line --> head (first characters) --> candidate rules --> starts_with gate --> pattern --> typed columns

The patterns are ASCII, anchored at both ends, and mean the same to Python's re and to Rust's regex.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from sglogparse._errors import GrammarError
from sglogparse._grammar import LINE_GRAMMARS, docs_of, grammar_text, terminal_bases

if TYPE_CHECKING:
    from lark import Tree
    from lark.load_grammar import Definition

FieldType = Literal["int", "float", "bool", "str"]

#: Characters of a range that are listed one by one, at the most.
_WIDEST_RANGE = 256
#: Rules whose text is taken as one group; their distinct values are read one by one.
_OPAQUE = frozenset({"tags"})

#: Fields of the header that records do not keep: a group less is a faster pattern.
_UNUSED = frozenset({"source_file", "source_line"})


@dataclass(frozen=True)
class Item:
    """An entry of a bag: `literal` is its text before the field, empty for one that starts with a field."""

    literal: str
    #: what its first terminal matches: a text that has it is this entry or none
    start: str
    pattern: str
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Fixed:
    """A wording whose fields stand in a fixed order."""

    prefixes: tuple[str, ...]
    #: longer prefixes of the rule's other wordings: a line that has one of them is theirs, whatever follows
    rivals: tuple[str, ...]
    pattern: str
    #: group name -> field name; a field that stands in two places of a wording has two groups
    groups: dict[str, str]


@dataclass(frozen=True)
class Bag:
    """A wording whose items come in any order: head item (separator item)* end."""

    prefixes: tuple[str, ...]
    rivals: tuple[str, ...]
    head: str
    separator: str
    items: tuple[Item, ...]
    end: str
    #: groups of the head
    groups: dict[str, str]

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the fields that its items can hold."""
        return tuple(name for item in self.items for name in item.fields)

    def shape(self, text: str) -> tuple[str, dict[str, str]] | None:
        """Return the pattern of one line's order of items, with its groups; None when the bag refuses it."""
        head = re.compile(self.head).match(text)
        if head is None:
            return None
        parts, groups, seen = [self.head], dict(self.groups), set(self.groups.values())
        position = head.end()
        while True:
            found = self._item_at(text, position)
            if found is None:
                return None
            item, match = found
            if item.fields == ("extra",):
                group = f"extra__{len(parts)}"
                body = _extra_body(match[0])
                parts.append(f"(?P<{group}>{body})")
                groups[group] = "extra"
            else:
                if seen & set(item.fields):
                    return None
                seen |= set(item.fields)
                parts.append(item.pattern)
                groups |= {name: name for name in item.fields}
            position = match.end()
            if text.startswith(self.separator, position):
                position += len(self.separator)
                parts.append(_escape(self.separator))
            elif re.fullmatch(self.end, text[position:]):
                # an unknown entry has taken all but a comma, so another line's full stop is not its end
                parts.append(_escape(text[position:]) if item.fields == ("extra",) else self.end)
                return "^" + "".join(parts) + "$", groups
            else:
                return None

    def _item_at(self, text: str, position: int) -> tuple[Item, re.Match[str]] | None:
        # As Lark's lexer does: the longest literal wins, then terminals by priority; none is given back.
        keyed = [item for item in self.items if item.literal and text.startswith(item.literal, position)]
        item = max(keyed, key=lambda one: len(one.literal), default=None) or next(
            (one for one in self.items if not one.literal and re.compile(one.start).match(text, position)),
            None,
        )
        match = re.compile(item.pattern).match(text, position) if item else None
        return (item, match) if item and match else None


@dataclass(frozen=True, eq=False)
class EventPlan:
    """All that the bulk reader needs to know of one event."""

    name: str
    doc: str
    wordings: tuple[Fixed | Bag, ...]
    fields: dict[str, FieldType]


@dataclass(frozen=True)
class Header:
    """A dialect of the header, or the location that can end it: its first words, and its pattern.

    The pattern is anchored at the start only. A location has one of its own, since few lines have one and a
    pattern that can end in two places is read by a slower engine.
    """

    prefixes: tuple[str, ...]
    pattern: str
    groups: dict[str, str]
    #: whether a location can follow
    located: bool = False


@dataclass(frozen=True)
class Wrapper:
    """What can stand before a line: its pattern, anchored at the start, all of it the group `wrapper`."""

    name: str
    pattern: str
    groups: dict[str, str]
    #: it looks like nothing else, and needs no evidence
    certain: bool


@dataclass(frozen=True, eq=False)
class Plan:
    """The vocabulary: events in the order in which readers try them, and the header."""

    events: tuple[EventPlan, ...]
    header: str
    header_groups: dict[str, str]
    #: the dialects of the header one by one, capturing only what records keep
    headers: tuple[Header, ...]
    #: what can end a header of a dialect that is `located`
    location: Header | None
    #: what can stand before a line, in the order in which it is tried
    wrappers: tuple[Wrapper, ...]
    tags: dict[str, str]
    #: terminal names by field, from which the types follow
    types: dict[str, FieldType] = field(default_factory=dict)


@cache
def compiled_plan() -> Plan:
    """Return the plan of the line grammars: the stored one, or a new one after a change of theirs."""
    from sglogparse._stored import stored_plan

    text = grammar_text(*LINE_GRAMMARS)
    return stored_plan(text) or compile_grammar(text)


def compile_grammar(text: str) -> Plan:
    """Compile a grammar that has the rules `event`, `header` and `tag`.

    Raises GrammarError for a rule that cannot be compiled: recursion, or a wording without a literal start.
    """
    return _Compiler(text).plan()


def definitions_of(text: str) -> dict[str, Definition]:
    """Return the rules and terminals of a grammar by name, as Lark has them before it expands the EBNF."""
    from lark.load_grammar import GrammarBuilder

    builder = GrammarBuilder(global_keep_all_tokens=False, import_paths=[])
    builder.load_grammar(text, "<sglogparse>")
    return dict(builder._definitions)


def rule_patterns(text: str, *starts: str) -> list[dict[str, str]]:
    """Return, for each of `starts` and each rule that it lists, the pattern of a text that begins like it.

    Raises GrammarError as compile_grammar does.
    """
    compiler = _Compiler(text)
    rules = compiler.definitions
    return [
        {
            name: "^" + compiler.pattern(rules[name].tree, None, (name,))
            for name in _rule_names(rules[start].tree)
        }
        for start in starts
    ]


#: How a text can begin, each as the characters that can stand at its first places; "" is its end.
Openings = tuple[tuple[str, ...], ...]
#: Characters of a beginning that are told, and beginnings of one pattern that are told apart.
_OPENING, _MOST_OPENINGS = 3, 64
#: How a part can begin, and whether that is all of the part.
_Begun = set[tuple[tuple[str, ...], bool]]


def openings(pattern: str) -> Openings | None:
    """Return how a text that matches can begin; None where that cannot be listed.

    >>> openings("^(?:ab|[c-e]+)x")
    (('a', 'b', 'x'), ('cde', 'cde', 'cde'), ('cde', 'cde', 'x'), ('cde', 'x'))
    """
    parsed = re._parser.parse(pattern)
    for length in range(_OPENING, 0, -1):
        found = sorted({opening for opening, _ in _begun(parsed, length)})
        if () in found:
            return None
        if len(found) <= _MOST_OPENINGS:
            break
    return tuple(found)


def _begun(parts: Iterable[tuple[Any, Any]], length: int) -> _Begun:
    """Return how a text of a parsed pattern can begin, up to some characters."""
    found: _Begun = {((), True)}
    for part in parts:
        if not any(whole for _, whole in found):
            break
        found = _behind(found, _begins(part, length), length)
    return found


def _begins(part: tuple[Any, Any], length: int) -> _Begun:
    operator, value = str(part[0]), part[1]
    characters: str | None = None
    if operator == "AT":
        # nothing stands at the end of a text
        return {(("",), False)} if str(value).startswith("AT_END") else {((), True)}
    if operator == "LITERAL":
        characters = chr(value)
    elif operator == "IN":
        characters = _class(value)
    elif operator == "SUBPATTERN" and not (value[1] or value[2]):  # without flags
        return _begun(value[-1], length)
    elif operator == "BRANCH":
        return {one for branch in value[1] for one in _begun(branch, length)}
    elif operator in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, item = value
        last: _Begun = {((), True)}
        found = set(last) if least == 0 else set()
        for count in range(1, min(most, length) + 1):
            last = _behind(last, _begun(item, length), length)
            found |= last if count >= least else set()
        # of more repeats than are looked at it is known how the first ones begin
        return found or {(opening, False) for opening, _ in last}
    return {((), False)} if characters is None else {((characters,), True)}


def _behind(found: _Begun, more: _Begun, length: int) -> _Begun:
    """Return how a text can begin that goes on, where its beginning is not all, with another part."""
    both: _Begun = set()
    for opening, whole in found:
        for rest, to_its_end in more if whole else (((), False),):
            longer = (opening + rest)[:length]
            both.add((longer, whole and to_its_end and len(longer) < length))
    return both


def _class(items: Iterable[tuple[Any, Any]]) -> str | None:
    """Return the characters of a class; None for a negated one, or one that is named."""
    found: set[str] = set()
    for operator, value in items:
        if str(operator) == "LITERAL":
            found.add(chr(value))
        elif str(operator) == "RANGE" and value[1] - value[0] < _WIDEST_RANGE:
            found |= {chr(code) for code in range(value[0], value[1] + 1)}
        else:
            return None
    return "".join(sorted(found))


class _Compiler:
    """Walks the EBNF trees of a grammar. One instance compiles one grammar."""

    def __init__(self, text: str) -> None:
        self.definitions = definitions_of(text)
        self._docs = docs_of(text)
        bases = terminal_bases(text)
        self._types: dict[str, FieldType] = {
            name.lower(): _field_type(bases.get(name, name))
            for name, definition in self.definitions.items()
            if definition.is_term
        }

    def plan(self) -> Plan:
        events = tuple(self._event(name) for name in _rule_names(self.definitions["event"].tree))
        groups: dict[str, str] = {}
        header = self.pattern(self.definitions["header"].tree, groups, ("header",))
        tags = {}
        for alternative in _alternatives(self.definitions["tag"].tree):
            literal, name = _children(alternative)
            tags[_literal_text(literal) or ""] = (_symbol(name) or "").lower()
        headers = tuple(map(self._header, _alternatives(self.definitions["header"].tree)))
        ending = self.definitions.get("location")
        location = self._dialect("location", _children(ending.tree)) if ending else None
        wrappers = (*self._wrappers("certain"), *self._wrappers("likely"))
        pattern = "^(?:" + header + ")"
        return Plan(events, pattern, groups, headers, location, wrappers, tags, self._types)

    def _wrappers(self, kind: str) -> Iterator[Wrapper]:
        """Yield the wrappers that a rule lists; a grammar need not have any."""
        rule = self.definitions.get(kind)
        for name in _rule_names(rule.tree) if rule else ():
            groups: dict[str, str] = {}
            pattern = self.pattern(self.definitions[name].tree, groups, (name,))
            yield Wrapper(name, f"^(?P<wrapper>{pattern})", groups, kind == "certain")

    def _header(self, tree: Tree[object]) -> Header:
        children = _children(tree)
        located = children[-1].data == "expr"
        return self._dialect("header", children[:-1] if located else children, located=located)

    def _dialect(self, rule: str, trees: list[Tree[object]], *, located: bool = False) -> Header:
        """Return the pattern of a header or of its end, with groups for the fields that records keep."""
        groups: dict[str, str] = {}
        pattern = "".join(self.pattern(tree, groups, (rule,)) for tree in trees)
        for unused in _UNUSED & set(groups):
            pattern = pattern.replace(f"(?P<{unused}>", "(?:")
            del groups[unused]
        return Header(self._starts(trees), f"^(?P<header>{pattern})", groups, located)

    def _event(self, name: str) -> EventPlan:
        trees = list(_alternatives(self.definitions[name].tree))
        starts = [self._prefixes(name, _children(tree)) for tree in trees]
        wordings = tuple(
            self._wording(name, tree, prefixes, _rivals(prefixes, starts))
            for tree, prefixes in zip(trees, starts, strict=True)
        )
        fields: dict[str, FieldType] = {}
        for wording in wordings:
            names = list(wording.groups.values()) + (list(wording.fields) if isinstance(wording, Bag) else [])
            fields |= {one: self._types[one] for one in names}
        return EventPlan(name, self._docs.get(name, ""), wordings, fields)

    def _wording(
        self, name: str, tree: Tree[object], prefixes: tuple[str, ...], rivals: tuple[str, ...]
    ) -> Fixed | Bag:
        children = _children(tree)
        star = next((i for i, child in enumerate(children) if _is_star(child)), None)
        groups: dict[str, str] = {}
        if star is None:
            pattern = "".join(self.pattern(child, groups, (name,)) for child in children)
            return Fixed(prefixes, rivals, f"^{pattern}$", groups)
        separator, item = _children(_children(children[star])[0])
        rule = _symbol(item)
        if rule is None or _symbol(children[star - 1]) != rule:
            raise GrammarError(f"grammar rule {name}: a repeat must have the form `item (separator item)*`")
        head = "".join(self.pattern(child, groups, (name,)) for child in children[: star - 1])
        end = "".join(self.pattern(child, groups, (name,)) for child in children[star + 1 :])
        items = tuple(
            self._item(rule, alternative) for alternative in _alternatives(self.definitions[rule].tree)
        )
        return Bag(prefixes, rivals, head, _literal_text(separator) or "", items, end, groups)

    def _item(self, rule: str, tree: Tree[object]) -> Item:
        groups: dict[str, str] = {}
        children = _children(tree)
        pattern = "".join(self.pattern(child, groups, (rule,)) for child in children)
        start = self.pattern(children[0], None, (rule,))
        return Item(_literal_text(children[0]) or "", start, pattern, tuple(groups.values()))

    def _prefixes(self, rule: str, trees: list[Tree[object]]) -> tuple[str, ...]:
        """Return the literals with which a wording can start: its literal, or the words of a terminal."""
        starts = self._starts(trees)
        if not starts:
            raise GrammarError(f"grammar rule {rule}: a wording must start with a literal")
        return starts

    def _starts(self, trees: list[Tree[object]]) -> tuple[str, ...]:
        """Return the literals with which a sequence can start; none where it starts with another pattern."""
        first = next(iter(trees), None)
        literal = _literal_text(first) if first else None
        if literal is not None:
            return (literal,)
        name = _symbol(first) if first else None
        words = self._terminal(name).split("|") if name and self.definitions[name].is_term else []
        if not all(re.fullmatch(r"[A-Za-z0-9_ -]+", word) for word in words):
            return ()
        more = (_literal_text(trees[1]) if len(trees) > 1 else None) or ""
        return tuple(word + more for word in words)

    def pattern(self, tree: Tree[object], groups: dict[str, str] | None, path: tuple[str, ...]) -> str:
        """Return the pattern of a tree, adding its groups; with `groups` None nothing is captured."""
        data = str(tree.data)
        if data in ("expansions", "alias"):
            options = [self.pattern(child, groups, path) for child in _alternatives(tree)]
            return _one_of(options) if len(options) > 1 else options[0]
        if data == "expansion":
            return "".join(self.pattern(child, groups, path) for child in _alternatives(tree))
        if data == "maybe":
            return "(?:" + "".join(self.pattern(child, groups, path) for child in _alternatives(tree)) + ")?"
        if data == "expr":
            inner, operator = next(_alternatives(tree)), str(tree.children[1])
            if operator == "?" or groups is None:
                return "(?:" + self.pattern(inner, groups, path) + ")" + operator
            raise GrammarError(f"grammar rule {path[0]}: a repeat of fields cannot be compiled here")
        if data != "value":
            raise GrammarError(f"grammar rule {path[0]}: `{data}` cannot be compiled")
        literal = _literal_text(tree)
        return _escape(literal) if literal is not None else self._named(_symbol(tree), groups, path)

    def _named(self, name: str | None, groups: dict[str, str] | None, path: tuple[str, ...]) -> str:
        if name is None:
            raise GrammarError(f"grammar rule {path[0]}: a pattern must be a named terminal")
        definition = self.definitions[name]
        if name in path:
            raise GrammarError(f"grammar rule {name} is recursive and cannot be compiled")
        if definition.is_term:
            body, name = self._terminal(name), name.lower()
        elif name in _OPAQUE:
            body = self.pattern(definition.tree, None, (*path, name))
        else:
            return self.pattern(definition.tree, groups, (*path, name))
        if groups is None:
            return f"(?:{body})"
        group = name if name not in groups else f"{name}__{len(groups)}"
        groups[group] = name
        return f"(?P<{group}>{body})"

    def _terminal(self, name: str) -> str:
        """Return the pattern of a terminal (Lark has put the pattern in place of a reference already)."""
        values = list(self.definitions[name].tree.iter_subtrees_topdown())
        raw = next((text for value in values if (text := _literal(value)) is not None), "")
        if (
            sum(value.data == "value" for value in values) > 2
            or not raw.startswith("/")
            or not raw.endswith("/")
        ):
            raise GrammarError(
                f"grammar terminal {name} must be one /pattern/ without flags, or another terminal"
            )
        return raw[1:-1].replace("\\/", "/")


def _one_of(options: list[str]) -> str:
    """Return a pattern for one of several; what all of them end with in a group of its own is written once.

    A pattern much smaller than the one that repeats it stays within what the fastest engine takes.
    """
    parts = [option.partition("(?:") for option in options]
    ends = {end for _, _, end in parts}
    if len(ends) > 1 or "" in ends:
        return "(?:" + "|".join(options) + ")"
    return "(?:" + "|".join(head for head, _, _ in parts) + ")(?:" + ends.pop()


def _escape(text: str) -> str:
    """Escape a literal for a pattern: only what both regex engines treat as special."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)


def _extra_body(text: str) -> str:
    """Return the pattern of an entry that no release we know prints, so that other lines' entries share it.

    What is left open is the value alone: no literal and no other terminal of a bag can begin with what stays.
    """
    key, colon, _ = text.partition(": ")
    return _escape(key + colon) + "[^,]+" if colon else re.sub("[0-9]+", "[0-9]+", _escape(text))


def _rivals(prefixes: tuple[str, ...], starts: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the prefixes that are longer than, and begin with, one of `prefixes`."""
    others = dict.fromkeys(other for start in starts for other in start if other not in prefixes)
    return tuple(other for other in others if other.startswith(prefixes))


def _field_type(base: str) -> FieldType:
    """Return the type of a field by the name of the terminal it refers to (or by its own)."""
    types: dict[str, FieldType] = {"INT": "int", "FLOAT": "float", "BOOL": "bool"}
    return types.get(base.partition("_")[0], "str")


def _children(tree: Tree[object]) -> list[Tree[object]]:
    """Return the subtrees, looking through groups of one."""
    from lark import Tree

    children = [child for child in tree.children if isinstance(child, Tree)]
    if len(children) == 1 and tree.data == "expansions":
        return _children(children[0]) if children[0].data == "expansion" else children
    return children


def _alternatives(tree: Tree[object]) -> Iterator[Tree[object]]:
    from lark import Tree

    for child in tree.children:
        if isinstance(child, Tree):
            yield child


def _rule_names(tree: Tree[object]) -> list[str]:
    """Return the rules that are alternatives of a rule; those of an %extend come first."""
    names: list[str] = []
    for child in _alternatives(tree):
        name = _symbol(child)
        names += [name] if name else _rule_names(child)
    return names


def _symbol(tree: Tree[object]) -> str | None:
    """Return the name of the rule or terminal that a value refers to."""
    from lark.grammar import Symbol

    child = tree.children[0] if tree.data == "value" else None
    return child.name if isinstance(child, Symbol) else None


def _literal(tree: Tree[object]) -> str | None:
    from lark import Tree

    child = tree.children[0] if tree.data == "value" else None
    if isinstance(child, Tree) and child.data == "literal":
        return str(child.children[0])
    return None


def _literal_text(tree: Tree[object]) -> str | None:
    """Return the text of a string literal."""
    raw = _literal(tree)
    if raw is None or not raw.startswith('"'):
        return None
    return raw[1:-1].replace('\\"', '"').replace("\\\\", "\\")


def _is_star(tree: Tree[object]) -> bool:
    return tree.data == "expr" and str(tree.children[1]) == "*"
