"""A backend of the tests: the reference operations under another name, which counts their calls."""

from collections import Counter
from typing import Any

from fastattn.ops import reference

calls: Counter[str] = Counter()


def __getattr__(name: str) -> Any:
    operation = getattr(reference, name)

    def counted(*arguments: Any, **options: Any) -> Any:
        calls[name] += 1
        return operation(*arguments, **options)

    return counted
