"""The tensors of a torch.nn.MultiheadAttention, by their names there, as the weights of projections."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.array_attention.arrays import as_float32
from fastattn.errors import InputError, described

PARTS = ("query", "key", "value")
SEPARATE = {part: f"{part[0]}_proj_weight" for part in PARTS}  # where keys or values have a width of their own
KNOWN = {"in_proj_weight", *SEPARATE.values(), "in_proj_bias", "out_proj.weight", "out_proj.bias"}


def read_state(path: Path, prefix: str) -> dict[str, np.ndarray]:
    """The tensors with this prefix of a .safetensors file, or of one that torch.save wrote, float32 by name."""
    from fastattn.weights.containers import pytorch, safetensors
    from fastattn.weights.folder import Directory

    container = safetensors if path.suffix == ".safetensors" else pytorch
    tensors = container.read_tensors(Directory(path.parent), path.name)
    return {name: tensor.float32() for name, tensor in tensors.items() if name.startswith(prefix)}


def projection_weights(state: Mapping[str, Any], prefix: str) -> dict[str, np.ndarray]:
    """The fields of ProjectionWeights that the tensors with this prefix have."""
    for name in state:
        if not isinstance(name, str):
            raise InputError(f"state: expected tensors by name, got one by {described(name)}")
    found = {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}
    if {"bias_k", "bias_v"} & set(found):
        raise InputError(f"state: {prefix}bias_k and bias_v, of add_bias_kv=True, are not supported")
    unknown = sorted(set(found) - KNOWN)
    if unknown:
        raise InputError(f"state: unknown tensors {_listed(prefix, unknown)}; the prefix should be the attention's own")
    inside = ["in_proj_weight"] if "in_proj_weight" in found else list(SEPARATE.values())
    missing = [name for name in (*inside, "out_proj.weight") if name not in found]
    if missing or ("in_proj_weight" in found and set(SEPARATE.values()) & set(found)):
        wanted = "in_proj_weight, or q_proj_weight, k_proj_weight and v_proj_weight, and out_proj.weight"
        raise InputError(f"state: expected {wanted}, got {_listed(prefix, sorted(found)) or 'none of them'}")
    arrays = {name: _float32(prefix + name, value) for name, value in found.items()}
    ends = {"out_proj.weight": "output", "out_proj.bias": "output_bias"}
    made = {field: arrays[name] for name, field in ends.items() if name in arrays}
    if "in_proj_weight" in arrays:
        made |= _thirds(prefix + "in_proj_weight", arrays["in_proj_weight"], 2, "")
    else:
        made |= {part: arrays[name] for part, name in SEPARATE.items()}
    if "in_proj_bias" in arrays:
        made |= _thirds(prefix + "in_proj_bias", arrays["in_proj_bias"], 1, "_bias")
    return made


def _thirds(name: str, array: np.ndarray, axes: int, end: str) -> dict[str, np.ndarray]:
    if array.ndim != axes or len(array) % 3:
        raise InputError(f"state: expected {name} of the rows of queries, keys and values, got shape {array.shape}")
    return {f"{part}{end}": third for part, third in zip(PARTS, np.split(array, 3))}


def _float32(name: str, value: Any) -> np.ndarray:
    """An array, or a tensor of torch's, as float32."""
    if hasattr(value, "detach"):  # one of torch's, perhaps with a gradient, or on another device
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


def _listed(prefix: str, names: list[str]) -> str:
    shown = ", ".join(prefix + name for name in names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")
