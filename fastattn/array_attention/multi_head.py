"""Multi-head attention with its projections (Vaswani 2017): fastattn.multi_head_attention and MultiHeadAttention."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np

from fastattn.array_attention.arguments import MAX_HEAD_WIDTH, check_dtype
from fastattn.array_attention.attention import LayerOptions, attention
from fastattn.array_attention.torch_state import first_names, float32_array, torch_state
from fastattn.errors import InputError, check_count, described
from fastattn.ops import backend, on_threads
from fastattn.ops.protocol import PackedLinear
from fastattn.system.option_names import LAYER, explains_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

PRECISIONS = ("float32", "bfloat16", "int8")


class ProjectionWeights(NamedTuple):
    """The matrices [outputs, inputs] of the four projections, and biases [outputs] or None; float32.

    query (H K, D), key (G K, M), value (G V, M), output (D', H V), with the heads side by side: H query heads, G key
    heads, K and V the widths of a key and a value; x is D wide, the memory M wide. Projected rows are x W' + b, as in
    torch.nn.Linear.
    """

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    output: np.ndarray
    query_bias: np.ndarray | None = None
    key_bias: np.ndarray | None = None
    value_bias: np.ndarray | None = None
    output_bias: np.ndarray | None = None


class MultiHeadAttention:
    """Multi-head attention whose weights are packed once: y = mha(x), or mha(x, memory).

    heads      H, the number of query heads, each of which has 1 / H of the rows of ``weights.query``. ``weights.key``
               has as many heads of the same width, or fewer, which adjacent query heads share (Ainslie 2023)
    precision  of the products with weights: "float32", "bfloat16" or "int8" (rows rounded by their own scales)
    device     where attention is computed: "cpu", "cuda" or "auto"
    InputError for weights that do not fit.
    """

    def __init__(self, weights: ProjectionWeights, heads: int, precision: str = "float32", device: str = "cpu"):
        self._ops, self.device = backend(device), device
        self._packed: dict[tuple[str, ...], PackedLinear] = {}  # names of projections -> their weights as one layer
        if precision not in PRECISIONS:
            raise InputError(f"precision: expected {', '.join(PRECISIONS)}, got {described(precision)}")
        self.weights, self.precision = _checked_weights(weights, precision), precision
        self.heads, self.key_heads, self.head_width, self.value_width = _head_counts_and_widths(self.weights, heads)

    @classmethod
    def from_torch(
        cls,
        state: Mapping[str, Any] | str | os.PathLike[str],
        heads: int,
        prefix: str = "",
        precision: str = "float32",
        device: str = "cpu",
    ) -> MultiHeadAttention:
        """The attention of a torch.nn.MultiheadAttention with ``heads`` heads, from its state dict or a file with it.

        state   tensors or arrays by name; or the path of a .safetensors file, or of a file that torch.save wrote
        prefix  beginning of names, such as "encoder.layers.0.self_attn."; all tensors with it belong to the attention
        torch returns weights averaged over heads, ``return_weights`` those of each head. torch's ``key_padding_mask``
        becomes ``mask=~key_padding_mask[:, None, None]``; torch's boolean ``attn_mask`` hides keys where it is True.
        InputError for tensors that are missing, misshapen or of unsupported options: add_bias_kv, keys and values of
        different widths; CheckpointError for a file that is missing or unsound. No code in a file is run.
        """
        return cls(ProjectionWeights(**projection_weights(state, prefix)), heads, precision, device)

    def __repr__(self) -> str:
        (_, D), M = self.weights.query.shape, self.weights.key.shape[1]
        heads = f"{self.heads} heads of {self.head_width}, {self.key_heads} of keys"
        return f"MultiHeadAttention({heads}, {D} wide, memory {M}, {self.precision})"

    @overload
    def __call__(
        self,
        x: np.ndarray,
        memory: np.ndarray | None = None,
        *,
        return_weights: Literal[False] = ...,
        return_logsumexp: Literal[False] = ...,
        **options: Unpack[LayerOptions],
    ) -> np.ndarray: ...

    @overload
    def __call__(
        self,
        x: np.ndarray,
        memory: np.ndarray | None = None,
        *,
        return_weights: bool = ...,
        return_logsumexp: bool = ...,
        **options: Unpack[LayerOptions],
    ) -> np.ndarray | tuple[np.ndarray, ...]: ...

    @explains_options(LAYER, LayerOptions)
    def __call__(
        self,
        x: np.ndarray,
        memory: np.ndarray | None = None,
        *,
        return_weights: bool = False,
        return_logsumexp: bool = False,
        **options: Any,
    ) -> np.ndarray | tuple[np.ndarray, ...]:
        """Attention of x (B, T, D) to a memory (B, S, M), or to x itself: (B, T, D'). All arrays are float32.

        Options as in ``attention``, but for ``layout`` and ``out``; with ``return_weights`` or ``return_logsumexp`` a
        tuple, as from ``attention``. InputError for arguments that do not fit.
        """
        _check_rows("x", x, None, self.weights.query.shape[1])
        if memory is not None:
            _check_rows("memory", memory, len(x), self.weights.key.shape[1])
        elif self.weights.key.shape[1] != x.shape[2]:
            raise InputError(f"memory: expected one, since keys are made of rows {self.weights.key.shape[1]} wide")
        options |= {"return_weights": return_weights, "return_logsumexp": return_logsumexp, "device": self.device}
        with on_threads(self._ops, options.get("threads")):
            result = attention(*self._project(x, memory), **options)
            context, *extras = result if isinstance(result, tuple) else (result,)
            y = self._linear(context.reshape(*x.shape[:2], self.heads * self.value_width), "output")
        return (y, *extras) if extras else y

    def _project(self, x: np.ndarray, memory: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Queries, keys and values with four axes: views of columns of one product, or of two with a memory."""
        H, G, K, V = self.heads, self.key_heads, self.head_width, self.value_width
        if memory is None:
            rows = self._linear(x, "query", "key", "value")
            queries, keys_values = rows[..., : H * K], rows[..., H * K :]
        else:
            queries, keys_values = self._linear(x, "query"), self._linear(memory, "key", "value")
        return (
            queries.reshape(*queries.shape[:2], H, K),
            keys_values[..., : G * K].reshape(*keys_values.shape[:2], G, K),
            keys_values[..., G * K :].reshape(*keys_values.shape[:2], G, V),
        )

    def _linear(self, x: np.ndarray, *names: str) -> np.ndarray:
        """The named projections of x, side by side; the first call packs their weights as one layer."""
        if names not in self._packed:
            matrices = [getattr(self.weights, name) for name in names]
            biases = [getattr(self.weights, f"{name}_bias") for name in names]
            biases = [np.zeros(len(w), np.float32) if b is None else b for w, b in zip(matrices, biases)]
            weights = np.concatenate(matrices), np.concatenate(biases)
            self._packed[names] = self._ops.pack_linear(*weights, self.precision)
        rows, packed = self._ops.as_rows(x).reshape(x.shape[0] * x.shape[1], x.shape[2]), self._packed[names]
        return np.asarray(self._ops.linear(rows, packed)).reshape(*x.shape[:2], packed.outputs)


@overload
def multi_head_attention(
    x: np.ndarray,
    memory: np.ndarray | None = None,
    *,
    weights: ProjectionWeights,
    heads: int,
    precision: str = ...,
    device: str = ...,
    return_weights: Literal[False] = ...,
    return_logsumexp: Literal[False] = ...,
    **options: Unpack[LayerOptions],
) -> np.ndarray: ...


@overload
def multi_head_attention(
    x: np.ndarray,
    memory: np.ndarray | None = None,
    *,
    weights: ProjectionWeights,
    heads: int,
    precision: str = ...,
    device: str = ...,
    return_weights: bool = ...,
    return_logsumexp: bool = ...,
    **options: Unpack[LayerOptions],
) -> np.ndarray | tuple[np.ndarray, ...]: ...


def multi_head_attention(
    x: np.ndarray,
    memory: np.ndarray | None = None,
    *,
    weights: ProjectionWeights,
    heads: int,
    precision: str = "float32",
    device: str = "cpu",
    **options: Any,
) -> np.ndarray | tuple[np.ndarray, ...]:
    """``MultiHeadAttention(weights, heads, precision, device)(x, memory, **options)``, packed at every call."""
    return MultiHeadAttention(weights, heads, precision, device)(x, memory, **options)


def _check_rows(name: str, array: Any, batch: int | None, width: int) -> None:
    check_dtype(name, array, np.float32)
    if array.ndim != 3 or array.shape[2] != width or batch not in (None, len(array)):
        expected = f"({'batch' if batch is None else batch}, positions, {width})"
        raise InputError(f"{name}: expected shape {expected}, got {array.shape}")


def _checked_weights(weights: Any, precision: str) -> ProjectionWeights:
    """The weights; InputError for wrong types, or shapes that do not fit each other."""
    if not isinstance(weights, ProjectionWeights):
        raise InputError(f"weights: expected ProjectionWeights, got {type(weights).__name__}")
    for name, array in weights._asdict().items():
        if array is None and name.endswith("_bias"):
            continue
        check_dtype(f"weights.{name}", array, np.float32)
        if name.endswith("_bias"):
            outputs = len(getattr(weights, name.removesuffix("_bias")))
            if array.shape != (outputs,):
                raise InputError(f"weights.{name}: expected shape ({outputs},), got {array.shape}")
        elif array.ndim != 2 or not array.size:
            raise InputError(f"weights.{name}: expected a matrix (outputs, inputs), got shape {array.shape}")
        elif precision == "int8" and not np.isfinite(array).all():
            raise InputError(f"weights.{name}: expected finite numbers, which int8 can hold")
    if weights.value.shape[1] != weights.key.shape[1]:
        expected, got = weights.key.shape[1], weights.value.shape[1]
        raise InputError(f"weights.value: expected {expected} columns, as the keys have, got {got}")
    return weights


def _head_counts_and_widths(weights: ProjectionWeights, heads: Any) -> tuple[int, int, int, int]:
    """(query heads, key heads, widths of keys and values)."""
    H, outputs = check_count("heads", heads), len(weights.query)
    if outputs % H or outputs // H > MAX_HEAD_WIDTH:
        raise InputError(f"heads: expected a number that divides the {outputs} columns of queries, got {described(H)}")
    K = outputs // H
    G = len(weights.key) // K
    if not G or len(weights.key) % K or H % G:
        got = f"{len(weights.key)} columns"
        raise InputError(f"weights.key: expected heads of {K} columns, of a number that divides {H}, got {got}")
    if len(weights.value) % G or len(weights.value) // G > MAX_HEAD_WIDTH:
        raise InputError(f"weights.value: expected columns of {G} heads, as the keys have, got {len(weights.value)}")
    V = len(weights.value) // G
    if weights.output.shape[1] != H * V:
        raise InputError(f"weights.output: expected {H * V} columns, {H} heads of {V}, got {weights.output.shape[1]}")
    return H, G, K, V


PROJECTIONS = ("query", "key", "value")
SEPARATE_NAMES = {name: f"{name[0]}_proj_weight" for name in PROJECTIONS}  # if keys or values have a width of their own
KNOWN_NAMES = {"in_proj_weight", *SEPARATE_NAMES.values(), "in_proj_bias", "out_proj.weight", "out_proj.bias"}


def projection_weights(state: Mapping[str, Any] | str | os.PathLike[str], prefix: str) -> dict[str, np.ndarray]:
    """The fields of ``ProjectionWeights``, from the tensors with this prefix."""
    tensors = torch_state(state, prefix)
    if {"bias_k", "bias_v"} & set(tensors):
        raise InputError(f"state: {prefix}bias_k and bias_v, of add_bias_kv=True, are not supported")
    unknown = sorted(set(tensors) - KNOWN_NAMES)
    if unknown:
        names = first_names(prefix, unknown)
        raise InputError(f"state: unknown tensors {names}; the prefix should be the attention's own")
    projections = ["in_proj_weight"] if "in_proj_weight" in tensors else list(SEPARATE_NAMES.values())
    missing = [name for name in (*projections, "out_proj.weight") if name not in tensors]
    if missing or ("in_proj_weight" in tensors and set(SEPARATE_NAMES.values()) & set(tensors)):
        expected = "in_proj_weight, or q_proj_weight, k_proj_weight and v_proj_weight, and out_proj.weight"
        raise InputError(f"state: expected {expected}, got {first_names(prefix, sorted(tensors)) or 'none of them'}")
    arrays = {name: float32_array(prefix + name, value) for name, value in tensors.items()}
    output_fields = {"out_proj.weight": "output", "out_proj.bias": "output_bias"}
    fields = {field: arrays[name] for name, field in output_fields.items() if name in arrays}
    if "in_proj_weight" in arrays:
        fields |= _split_into_projections(prefix + "in_proj_weight", arrays["in_proj_weight"], 2, "")
    else:
        fields |= {projection: arrays[name] for projection, name in SEPARATE_NAMES.items()}
    if "in_proj_bias" in arrays:
        fields |= _split_into_projections(prefix + "in_proj_bias", arrays["in_proj_bias"], 1, "_bias")
    return fields


def _split_into_projections(name: str, array: np.ndarray, axes: int, suffix: str) -> dict[str, np.ndarray]:
    if array.ndim != axes or len(array) % 3:
        raise InputError(f"state: expected {name} of the rows of queries, keys and values, got shape {array.shape}")
    return {f"{projection}{suffix}": third for projection, third in zip(PROJECTIONS, np.split(array, 3))}
