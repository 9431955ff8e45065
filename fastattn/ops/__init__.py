"""The operations of each device: ``backend(device)`` returns its namespace, which ``ops.protocol`` describes."""

from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

import fastattn.system.environment  # noqa: F401  raises for wrong variables before any computation
from fastattn.errors import InputError, check_count, described

if TYPE_CHECKING:
    from fastattn.ops.protocol import Ops

# By device: the module of its operations, which is imported when the device is first used.
BACKENDS: dict[str, str] = {"cpu": ".cpu", "cuda": ".cuda"}
_backends: dict[str, "Ops"] = {}


def backend(device: str) -> "Ops":
    """The operations of a device, or for "auto" of the best device; InputError for a device that does not exist."""
    try:
        return _backends[device]
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
            _backends[device] = backend("cuda")
        except InputError:
            _backends[device] = backend("cpu")
        return _backends[device]
    module: Any = import_module(BACKENDS[device], __name__)
    if device == "cuda":
        module.check_card()
    _backends[device] = module
    return _backends[device]


def on_threads(ops: "Ops", threads: int | None) -> AbstractContextManager[None]:
    """A context in which operations use at most ``threads`` threads; None: the limit stays as it is."""
    return nullcontext() if threads is None else ops.use_threads(check_count("threads", threads))
