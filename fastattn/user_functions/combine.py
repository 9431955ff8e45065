"""Masks made of masks: plain functions, which kernels compile together with the masks that they call."""

from collections.abc import Callable
from functools import reduce

from fastattn.errors import InputError


def and_masks(*masks: Callable) -> Callable:
    """The ``mask_mod(b, h, t, s)`` that shows the keys that all masks show; without masks, every key."""
    return _combined(masks, "and_masks", _both, lambda b, h, t, s: True)


def or_masks(*masks: Callable) -> Callable:
    """The ``mask_mod(b, h, t, s)`` that shows the keys that any mask shows; without masks, no key."""
    return _combined(masks, "or_masks", _either, lambda b, h, t, s: False)


def _combined(masks: tuple[Callable, ...], name: str, join: Callable, empty: Callable) -> Callable:
    for mask in masks:
        if not callable(mask):
            raise InputError(f"{name}: expected functions (b, h, t, s), got a {type(mask).__name__}")
    return reduce(join, masks) if masks else empty


def _both(first: Callable, second: Callable) -> Callable:
    def mask(b, h, t, s):
        return first(b, h, t, s) & second(b, h, t, s)

    return mask


def _either(first: Callable, second: Callable) -> Callable:
    def mask(b, h, t, s):
        return first(b, h, t, s) | second(b, h, t, s)

    return mask
