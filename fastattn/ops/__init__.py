"""The operations that everything computes with: ``backend(device)`` is the namespace (``ops.protocol``) of a device."""

from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

import fastattn.system.environment  # noqa: F401  wrong variables raise before anything computes
from fastattn.errors import InputError, check_count, described

if TYPE_CHECKING:
    from fastattn.ops.protocol import Ops

# device -> module of its operations, which its first use imports
BACKENDS: dict[str, str] = {"cpu": ".cpu", "cuda": ".cuda"}
_loaded: dict[str, "Ops"] = {}


def backend(device: str) -> "Ops":
    """The operations of a device, or of the best one for "auto"; InputError for a device that does not exist."""
    try:
        return _loaded[device]
    except (KeyError, TypeError):  # TypeError: not hashable
        return _load(device)


def check_device(device: Any) -> None:
    """InputError unless ``device`` is the name of a device; nothing is imported."""
    if not isinstance(device, str) or device not in {*BACKENDS, "auto"}:
        raise InputError(f"expected device {' or '.join(map(repr, (*BACKENDS, 'auto')))}, got {described(device)}")


def _load(device: Any) -> "Ops":
    check_device(device)
    if device == "auto":
        try:
            _loaded[device] = backend("cuda")
        except InputError:
            _loaded[device] = backend("cpu")
        return _loaded[device]
    module: Any = import_module(BACKENDS[device], __name__)
    if device == "cuda":
        module.check_card()
    _loaded[device] = module
    return _loaded[device]


def on_threads(ops: "Ops", threads: int | None) -> AbstractContextManager[None]:
    """A context in which operations use at most so many threads; None: as many as outside."""
    return nullcontext() if threads is None else ops.use_threads(check_count("threads", threads))
