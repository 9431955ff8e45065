"""What tests would leave in the cache: packed weights, most of them of random models, and models shipped to a host."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LEFT = ("packed/*", "checkpoints/shipped-*")


@contextmanager
def none_added(cache: Path) -> Iterator[None]:
    """What is added meanwhile goes at the end."""
    before = set(_left(cache))
    try:
        yield
    finally:
        for path in _left(cache):
            if path in before:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _left(cache: Path) -> Iterator[Path]:
    for pattern in _LEFT:
        yield from cache.glob(pattern)
