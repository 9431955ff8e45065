"""A property that is computed at its first use, and stored."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property as lazy
else:

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
