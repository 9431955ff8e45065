"""Combinations of mask_mods: plain functions, which kernels compile together with the masks that they call."""

from collections.abc import Callable
from functools import reduce

from fastattn.errors import InputError


def and_masks(*masks: Callable) -> Callable:
    """The ``mask_mod(b, h, t, s)`` that shows the keys that all masks show; without masks, every key."""
    return _combine(masks, "and_masks", _and, lambda b, h, t, s: True)


def or_masks(*masks: Callable) -> Callable:
    """The ``mask_mod(b, h, t, s)`` that shows the keys that any mask shows; without masks, no key."""
    return _combine(masks, "or_masks", _or, lambda b, h, t, s: False)


def _combine(masks: tuple[Callable, ...], name: str, join: Callable, default: Callable) -> Callable:
    for mask in masks:
        if not callable(mask):
            raise InputError(f"{name}: expected functions (b, h, t, s), got a {type(mask).__name__}")
    return reduce(join, masks) if masks else default


def _and(first: Callable, second: Callable) -> Callable:
    def mask(b, h, t, s):
        return first(b, h, t, s) & second(b, h, t, s)

    return mask


def _or(first: Callable, second: Callable) -> Callable:
    def mask(b, h, t, s):
        return first(b, h, t, s) | second(b, h, t, s)

    return mask
