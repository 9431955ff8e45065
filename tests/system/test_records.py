"""Classes of plain data: what Python's own dataclass makes of the same fields, theirs do too."""

import copy
import dataclasses
from dataclasses import field
from typing import Any

import pytest

from fastattn.spec import architecture as spec
from fastattn.spec import text_spec
from fastattn.system import records

# As if only the type checker's meaning of the name counted: mypy takes it for Python's own.
record: Any = records.dataclass


def fields_of(cls: type) -> type:
    cls.__annotations__ = {"a": int, "b": str, "c": list, "d": float, "e": int}
    cls.b, cls.c, cls.d, cls.e = (
        "x",
        field(default_factory=list),
        field(default=2.0, compare=False),
        field(default=3, kw_only=True),
    )  # type: ignore[attr-defined]
    return cls


def both(**options: bool) -> tuple[Any, Any]:
    """Python's class of these fields, and one made here, of the same name."""

    class Ours:
        pass

    class Theirs:
        pass

    Ours.__qualname__ = Theirs.__qualname__ = Ours.__name__ = Theirs.__name__ = "Thing"
    return dataclasses.dataclass(**options)(fields_of(Theirs)), record(**options)(fields_of(Ours))


ARGUMENTS: list[Any] = [((1,), {}), ((1, "y", [4], 5.0), {}), ((), {"a": 1, "e": 9}), ((1,), {"d": 1.0, "c": [7]})]
WRONG: list[Any] = [((), {}), ((1, "y", [], 1.0, 3), {}), ((1,), {"a": 2}), ((1,), {"z": 2}), ((), {"b": "y"})]


@pytest.mark.parametrize("options", [{}, {"frozen": True}, {"eq": False}, {"frozen": True, "eq": False}])
def test_objects_are_those_of_a_dataclass(options: dict[str, bool]) -> None:
    theirs, ours = both(**options)
    for given, named in ARGUMENTS:
        one, other = ours(*given, **copy.deepcopy(named)), theirs(*given, **copy.deepcopy(named))
        assert vars(one) == vars(other)
        assert repr(one).endswith("Thing(" + repr(other).partition("Thing(")[2])
        assert dataclasses.asdict(one) == dataclasses.asdict(other)
        again = dataclasses.replace(one, b="z")
        assert type(again) is ours and vars(again) == vars(one) | {"b": "z"}
        assert (one == ours(*given, **named)) is (other == theirs(*given, **named)) and one != other
        assert (one == again) is False
        assert [thing == dataclasses.replace(thing, d=9.0) for thing in (one, other)] == [options.get("eq", True)] * 2
        assert vars(copy.copy(one)) == vars(one)
        assert (ours.__hash__ is None) is (theirs.__hash__ is None)
    for given, named in WRONG:
        for cls in (theirs, ours):
            with pytest.raises(TypeError):
                cls(*given, **named)
    assert ours(1).c is not ours(1).c, "a factory makes one for each"
    if options.get("frozen"):
        for act in (lambda: setattr(ours(1), "a", 2), lambda: delattr(ours(1), "a")):
            with pytest.raises(dataclasses.FrozenInstanceError):
                act()


def test_fields_are_those_of_a_dataclass() -> None:
    theirs, ours = both(frozen=True)
    assert dataclasses.is_dataclass(ours) and ours.__match_args__ == theirs.__match_args__
    for one, other in zip(dataclasses.fields(ours), dataclasses.fields(theirs), strict=True):
        for name in ("name", "type", "default", "default_factory", "init", "repr", "compare", "kw_only"):
            assert getattr(one, name) == getattr(other, name)
    assert ours.b == theirs.b and ours.e == theirs.e and not hasattr(ours, "c")


def test_no_class_of_specs_is_compiled_when_it_is_imported() -> None:
    """A `dataclass` there that is Python's own would be."""
    for module in (spec, text_spec):
        found = [
            value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__
        ]
        assert len(found) > 4 and all(vars(one)["__init__"].__module__ == "fastattn.system.records" for one in found)


def test_a_class_without_fields_of_its_own_has_those_that_it_inherits() -> None:
    @record(frozen=True)
    class Point:
        x: int
        y: int = 2

    class Named(Point):
        pass

    one = Named(1)
    assert repr(one).endswith("Named(x=1, y=2)") and one == Named(1, 2) != Named(2) and one != Point(1) and one != 1
    assert hash(one) == hash(Named(1, 2)) and len({one, Named(1), copy.deepcopy(one)}) == 1
    assert [field.name for field in dataclasses.fields(one)] == ["x", "y"] and dataclasses.replace(one, y=2) == one
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.x = 2
