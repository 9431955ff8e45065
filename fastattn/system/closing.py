"""Base class of models that can be closed: processes end, memory is freed, and later uses raise an error."""

from typing import TYPE_CHECKING, Any, TypeVar

from fastattn.errors import FastattnError

_Self = TypeVar("_Self", bound="Closable")


class Closable:
    """Base of models that hold memory or processes until they are closed: ``with Translator(path) as translator:``.

    All that it has is let go, so that a use afterwards finds nothing, and says why.
    """

    _crew: Any = None

    def close(self) -> None:
        """End the worker processes, if there are any, and free the memory; again, it does nothing.

        The processes are gone when it returns, and calls that they were at raise FastattnError. Other calls in progress
        end as ever. Later ones raise FastattnError.
        """
        if "_closed" not in self.__dict__:
            crew = self._crew
            self.__dict__ = {"_closed": frozenset(self.__dict__)}
            if crew is not None:
                crew.close()

    def __enter__(self: _Self) -> _Self:
        if "_closed" in self.__dict__:
            raise self._error()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _error(self) -> FastattnError:
        return FastattnError(f"this {type(self).__name__} is closed")

    if not TYPE_CHECKING:  # which would know of no attribute any more whether it is there

        def __getattr__(self, name: str) -> Any:
            if name in self.__dict__.get("_closed", ()):
                raise self._error()
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
