"""Operations that models, attention on arrays, mechanisms and search compute with: a namespace of them for each device.

``backend(device)`` is the namespace that has the operations of ``fastattn.ops.protocol`` on a device.
"""

from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

import fastattn.system.environment  # noqa: F401  wrong variables are told before anything computes
from fastattn.errors import InputError, check_count, described

if TYPE_CHECKING:
    from fastattn.ops.protocol import Ops

BACKENDS: dict[str, str] = {"cpu": ".cpu"}  # device -> module of its operations, which its first use imports
_loaded: dict[str, "Ops"] = {}


def backend(device: str) -> "Ops":
    """The namespace of operations of a device; InputError for a device that there is not."""
    try:
        return _loaded[device]
    except (KeyError, TypeError):  # TypeError: nothing that could be a name
        return _load(device)


def check_device(device: Any) -> None:
    """InputError for a device that there is not; nothing is imported."""
    if not isinstance(device, str) or device not in BACKENDS:
        raise InputError(f"expected device {' or '.join(map(repr, BACKENDS))}, got {described(device)}")


def _load(device: Any) -> "Ops":
    check_device(device)
    module: Any = import_module(BACKENDS[device], __name__)
    _loaded[device] = module
    return _loaded[device]


def on_threads(ops: "Ops", threads: int | None) -> AbstractContextManager[None]:
    """The most threads of operations inside: ``threads``, or for None as many as outside."""
    return nullcontext() if threads is None else ops.use_threads(check_count("threads", threads))
