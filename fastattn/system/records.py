"""``dataclass`` and ``lazy``, the cached property, for many small classes.

Python's own dataclass writes the source of six methods for each class, and compiles it, when the class is imported:
0.3 ms, of 35 classes in every start. Here only ``__init__`` is; the others are the same functions for all classes.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
    from functools import cached_property as lazy
else:

    def dataclass(cls: type | None = None, *, frozen: bool = False, eq: bool = True) -> Any:
        """``dataclasses.dataclass`` with these two of its arguments, for a class that inherits no fields."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq)
        cls = dataclasses.dataclass(repr=False, eq=False)(cls)
        cls.__repr__ = _represented
        if eq:
            cls.__eq__ = _is_equal
            cls.__hash__ = _hashed if frozen else None
        if frozen:
            cls.__setattr__, cls.__delattr__ = _set_once, _refuse_to_delete
        return cls

    class lazy:
        """functools.cached_property without its lock.

        Before Python 3.12 that is one for all instances, held while any value is computed: a child that is forked
        meanwhile would wait for it for ever. Two threads that ask at once may both compute; each gets a value that is
        right.
        """

        def __init__(self, compute: Any):
            self._compute, self._name, self.__doc__ = compute, compute.__name__, compute.__doc__

        def __get__(self, instance: Any, owner: type) -> Any:
            if instance is None:
                return self
            # In the instance's own dictionary, where it is found before this: past what a frozen dataclass forbids.
            value = instance.__dict__[self._name] = self._compute(instance)
            return value


def _values(record: Any) -> tuple[Any, ...]:
    return tuple([getattr(record, name) for name in type(record).__dataclass_fields__])


def _is_equal(self: object, other: object) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hashed(self: object) -> int:
    return hash(_values(self))


def _represented(self: object) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self).__dataclass_fields__)  # type: ignore[attr-defined]
    return f"{type(self).__qualname__}({fields})"


def _set_once(self: object, name: str, value: object) -> None:
    """Set a field that has no value yet, as ``__init__`` does; FrozenInstanceError for any other."""
    if name in vars(self) or name not in type(self).__dataclass_fields__:  # type: ignore[attr-defined]
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    vars(self)[name] = value


def _refuse_to_delete(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
