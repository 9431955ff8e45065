"""The cache's packed weights, most of them of random models, that tests leave behind."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def none_added(cache: Path) -> Iterator[None]:
    """What is added meanwhile goes at the end."""
    folder = cache / "packed"
    before = {path.name for path in folder.glob("*")}
    try:
        yield
    finally:
        for path in folder.glob("*"):
            if path.name not in before:
                path.unlink(missing_ok=True)
