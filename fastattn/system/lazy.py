"""A property that is computed at its first use, and stored."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

_T = TypeVar("_T")


class lazy(Generic[_T]):
    """functools.cached_property without its lock.

    Before Python 3.12 that is one for all instances, held while any value is computed: a child that is forked meanwhile
    would wait for it for ever. Two threads that ask at once may both compute; each gets a value that is right.
    """

    def __init__(self, compute: Callable[[Any], _T]):
        self._compute, self._name, self.__doc__ = compute, compute.__name__, compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> "lazy[_T]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> _T: ...
    def __get__(self, instance: object | None, owner: type) -> "_T | lazy[_T]":
        if instance is None:
            return self
        # In the instance's own dictionary, where it is found before this: past what a frozen dataclass forbids.
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
