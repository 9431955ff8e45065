"""Listeners of compilations, and why compiled code could not be stored. No compiler is imported."""

from collections.abc import Callable

from fastattn.system.cache_folder import cache_root

_listeners: list[Callable[[str], None]] = []
cache_faults: list[OSError] = []  # of this process, as they happened


def on_compile(listener: Callable[[str], None]) -> None:
    """Call ``listener(name)`` before every kernel that is compiled from scratch, not when it is loaded."""
    _listeners.append(listener)


def notify_of_compiling(name: str) -> None:
    for listener in _listeners:
        listener(name)


def cache_fault() -> str:
    """Why this process could not store compiled code, as a message for the user; "" if it could."""
    if not cache_faults:
        return ""
    reason = cache_faults[0].strerror or cache_faults[0]
    return f"cannot keep kernels in the cache {cache_root()}: {reason}; FASTATTN_CACHE names another folder"
