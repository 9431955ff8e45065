"""Checks of what a spec's fields hold: each raises a CheckpointError of one line."""

from collections.abc import Iterable, Sequence

from fastattn.errors import CheckpointError


def check_known(what: str, name: str, known: Iterable[str]) -> None:
    """Raise a CheckpointError that lists the known names unless ``name`` is one of them."""
    if name not in known:
        raise CheckpointError(f"unknown {what} {name!r}; known: {', '.join(known)}")


def check_counts(least: int, **counts: int) -> None:
    wanted = f"be at least {least}" if least else "not be negative"
    for name, count in counts.items():
        if count < least:
            raise CheckpointError(f"{name} should {wanted}, is {count}")


def check_cap(name: str, cap: float) -> None:
    if not (cap == 0 or 1e-30 < cap < 1e30):
        raise CheckpointError(f"{name} should be 0 or between 1e-30 and 1e30, is {cap:g}")


def check_layers(what: str, numbers: Sequence[int], layers: int) -> None:
    """The layers of those numbers should do ``what``; there are so many."""
    for number in numbers:
        if not 0 <= number < layers:
            raise CheckpointError(f"layer {number} should {what}, but there are {layers} layers")
