"""What modules are made of, without its price at import: frozen dataclasses and regular expressions.

A command imports some hundred classes and patterns, and needs a third of them. `dataclasses.dataclass`
compiles six functions for each class, and `re.compile` a program for each pattern, needed or not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool) -> Callable[[type], type]:
        """Make a class of annotated fields a frozen dataclass whose constructor is compiled when it is used.

        What `dataclasses.field` can say of a field is not known here: such a class takes the standard one.
        """
        assert frozen
        return _record


def _record(cls: type) -> type:
    names = tuple(cls.__annotations__)

    def __init__(self: Any, *values: Any, **named: Any) -> None:  # noqa: ANN401 - whatever the fields are
        made = _constructor(cls, names)
        cls.__init__ = made  # type: ignore[misc]
        made(self, *values, **named)

    own = {
        "__init__": __init__,
        "__eq__": _equals,
        "__hash__": _hash,
        "__repr__": _repr,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
        "__match_args__": names,
        "__dataclass_fields__": _Fields(),
    }
    for name, value in own.items():
        if name not in cls.__dict__ or name == "__hash__":
            setattr(cls, name, value)
    return cls


def _constructor(cls: type, names: tuple[str, ...]) -> Callable[..., None]:
    defaults = {f"_{name}": cls.__dict__[name] for name in names if name in cls.__dict__}
    arguments = ", ".join(f"{name}=_{name}" if f"_{name}" in defaults else name for name in names)
    sets = "".join(f"\n    fields[{name!r}] = {name}" for name in names)
    scope: dict[str, Any] = dict(defaults)
    exec(f"def __init__(self, {arguments}):\n    fields = self.__dict__{sets}", scope)
    made: Callable[..., None] = scope["__init__"]
    return made


class _Fields:
    """The fields as `dataclasses` describes them: made when `replace`, `fields` or `asdict` ask for them."""

    def __get__(self, instance: object, owner: type) -> dict[str, Any]:
        import dataclasses

        missing = object()
        columns: list[Any] = []
        for name, kind in owner.__annotations__.items():
            default = owner.__dict__.get(name, missing)
            told = dataclasses.field() if default is missing else dataclasses.field(default=default)
            columns.append((name, kind, told))
        made = dataclasses.make_dataclass(owner.__name__, columns, init=False, repr=False, eq=False)
        fields: dict[str, Any] = made.__dict__["__dataclass_fields__"]
        type.__setattr__(owner, "__dataclass_fields__", fields)
        return fields


def _values(one: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any record
    return tuple(getattr(one, name) for name in one.__match_args__)


def _equals(one: object, other: object) -> bool:
    return _values(one) == _values(other) if other.__class__ is one.__class__ else NotImplemented


def _hash(one: object) -> int:
    return hash(_values(one))


def _repr(one: Any) -> str:  # noqa: ANN401 - any record
    told = ", ".join(f"{name}={getattr(one, name)!r}" for name in one.__match_args__)
    return f"{type(one).__qualname__}({told})"


def _refuse(one: object, name: str, *_: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


class _Pattern:
    """A pattern that compiles itself when the first of its methods is asked for."""

    def __init__(self, text: str, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a method of re.Pattern
        value = getattr(re.compile(self._text, self._flags), name)
        self.__dict__[name] = value
        return value


def lazy(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern that is compiled when it is first used."""
    return cast("re.Pattern[str]", _Pattern(text, flags))
