"""State dicts of PyTorch as arrays: tensors by name, or a file that has them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.array_attention.arguments import as_float32
from fastattn.errors import InputError, described


def torch_state(state: Mapping[str, Any] | str | os.PathLike[str], prefix: str) -> dict[str, Any]:
    """The tensors whose names begin with the prefix, by the rest of their names, for ``float32_array``.

    state  tensors or arrays by name; or the path of a .safetensors file, or of a file that torch.save wrote
    InputError if ``state`` is no state dict, CheckpointError for a file that is missing or unsound.
    """
    if not isinstance(prefix, str):
        raise InputError(f"prefix: expected the beginning of names, got {type(prefix).__name__}")
    if isinstance(state, (str, os.PathLike)):
        state = _read_file(Path(state))
    if not isinstance(state, Mapping):
        raise InputError(f"state: expected a mapping or a path, got {type(state).__name__}")
    for name in state:
        if not isinstance(name, str):
            raise InputError(f"state: expected tensors by name, got one by {described(name)}")
    return {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}


def _read_file(path: Path) -> Mapping[str, Any]:
    from fastattn.weights.containers import pytorch, safetensors
    from fastattn.weights.folder import map_file

    container = safetensors if path.suffix == ".safetensors" else pytorch
    return container.parse(map_file(path), str(path))


def float32_array(name: str, value: Any) -> np.ndarray:
    """An array, or a tensor of torch or of a file, as float32."""
    if hasattr(value, "float32"):  # a tensor of a file
        stored: np.ndarray = value.float32()
        return stored
    if hasattr(value, "detach"):  # a tensor of torch, perhaps with a gradient, or on another device
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # a tensor of a type or layout that NumPy lacks
        raise InputError(f"state: {name} cannot be read as an array: {error}") from None
    if array.dtype == np.float64:
        with np.errstate(over="ignore"):
            return array.astype(np.float32)
    if array.dtype not in (np.float32, np.float16) and array.dtype.name != "bfloat16":
        raise InputError(f"state: expected {name} of float32, float16, bfloat16 or float64, got {array.dtype}")
    return as_float32(array)


def first_names(prefix: str, names: list[str]) -> str:
    """The first five names, with the prefix, and how many more there are."""
    text = ", ".join(prefix + name for name in names[:5])
    return text + (f" and {len(names) - 5} more" if len(names) > 5 else "")
