"""Tables by position that grow as longer sequences come."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class GrowingTable(Generic[T]):
    """What ``make`` makes for a number of positions: made anew, for twice as many at least, where more are needed."""

    def __init__(self, make: Callable[[int], T], positions: int):
        self._make, self._made = make, (positions, make(positions))

    def __call__(self, longest: int) -> T:
        """That of at least so many positions."""
        positions, table = self._made
        if longest > positions:
            positions = max(longest, 2 * positions)
            # Assigned at once, so that another thread sees either the old table or the new one.
            self._made = positions, table = positions, self._make(positions)
        return table
