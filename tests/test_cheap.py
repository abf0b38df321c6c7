"""Classes and patterns that cost nothing to import behave as the standard ones do."""

import dataclasses
import re

import pytest

from sglogparse import _cheap


@_cheap.dataclass(frozen=True)
class Cheap:
    """A point."""

    x: int
    name: str | None = None

    @property
    def twice(self) -> int:
        return 2 * self.x


@dataclasses.dataclass(frozen=True)
class Standard:
    """A point."""

    x: int
    name: str | None = None


def test_it_is_made_compared_and_shown_as_a_dataclass():
    one = Cheap(3, name="a")
    assert (one.x, one.name, one.twice, Cheap(4).name) == (3, "a", 6, None)
    assert one == Cheap(3, "a") != Cheap(3)
    assert one != Standard(3, "a")
    assert hash(one) == hash(Cheap(x=3, name="a"))
    assert repr(one).endswith(repr(Standard(3, "a")).removeprefix("Standard"))
    match one:
        case Cheap(x, name):
            assert (x, name) == (3, "a")


def test_what_dataclasses_do_with_it():
    one = Cheap(3)
    assert dataclasses.is_dataclass(one)
    assert dataclasses.is_dataclass(Cheap)
    assert dataclasses.replace(one, name="b") == Cheap(3, "b")
    assert dataclasses.asdict(one) == dataclasses.asdict(Standard(3))
    assert [(field.name, field.default) for field in dataclasses.fields(Cheap)] == [
        (field.name, field.default) for field in dataclasses.fields(Standard)
    ]


def test_it_is_frozen_and_wants_its_fields():
    one = Cheap(3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.x = 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.x
    for arguments in ((), (1, "a", 2)):
        with pytest.raises(TypeError, match="argument"):
            Cheap(*arguments)
    with pytest.raises(TypeError, match="unexpected keyword"):
        Cheap(1, colour="red")


def test_a_pattern_is_compiled_when_it_is_used():
    found = _cheap.lazy("(?P<digits>[0-9]+)", re.IGNORECASE)
    broken = _cheap.lazy("(")
    assert found.search("a12")["digits"] == "12"
    assert found.findall("1 2") == ["1", "2"]
    assert (found.pattern, found.sub("#", "a1"), found.flags & re.IGNORECASE) == (
        "(?P<digits>[0-9]+)",
        "a#",
        re.IGNORECASE,
    )
    with pytest.raises(re.error):
        broken.search("a")
