"""Every kernel as a case: ours, the same operation in NumPy (fastattn.reference), PyTorch's, ONNX Runtime's."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from bench.case import OURS, WEIGHT_BYTES, Case, Side, largest_difference, peer
from fastattn import kernels, reference

FLOAT = 4  # bytes
GFLOPS, GBYTES = "GFLOP/s", "GB/s"


def _random(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def _sides(ours: Callable[[ModuleType], Callable[[], Any]], operation: str, *arguments: Any) -> dict[str, Side]:
    """``ours(ops)`` gives the call on a namespace; a peer's module has a function ``operation`` of ``arguments``."""

    def theirs(module: Any) -> Side:
        make = getattr(module, operation, None)
        return make(*arguments) if make else Side(absent="no such operator")

    view = (lambda result: result[0]) if operation == "project_top_k" else np.asarray
    return {
        OURS: Side({"": ours(kernels)}, view=view),
        "NumPy": Side({"": ours(reference)}, view=view),
        "PyTorch": peer(("torch",), "bench.torch_kernels", theirs),
        "ONNX Runtime": peer(("onnx", "onnxruntime"), "bench.onnx_kernels", theirs),
    }


def linear(rows: int, outputs: int, inputs: int, activation: str = "none", precision: str = "float32") -> Case:
    """A product with its bias; an activation goes through the product's epilogue.

    Rows come and go in float32 whatever the precision: rounding or quantising them is part of the work.
    """
    x, weight, bias = _random((rows, inputs), (outputs, inputs), (outputs,))
    weight /= np.float32(inputs**0.5)

    def ours(ops: ModuleType) -> Callable[[], Any]:
        packed = ops.pack_linear(weight, bias, precision)
        return lambda: ops.linear(x, packed, activation)

    flops = 2.0 * rows * outputs * inputs
    moved = FLOAT * (rows * inputs + outputs + rows * outputs) + WEIGHT_BYTES[precision] * outputs * inputs
    name = f"linear {rows} x {inputs} x {outputs}" + (f", {activation}" if activation != "none" else "")
    sides = _sides(ours, "linear", x, weight, bias, activation, precision)
    unit = "GOP/s" if precision == "int8" else GFLOPS
    return Case(name, flops / 1e9, unit, sides, flops, moved, partial(largest_difference, precision=precision))


def attention(batch: int, heads: int, length: int, head_width: int, causal: bool = False, naive: bool = True) -> Case:
    """``naive``: whether NumPy, which stores the scores, takes part. Causal work counts the visible half alone."""
    B, H, T, K = batch, heads, length, head_width
    query, key, value = _random(*[(B, T, H, K)] * 3)
    rows = [array.reshape(B * T, H * K) for array in (query, key, value)]
    starts = np.arange(B + 1) * T

    def ours(ops: ModuleType) -> Callable[[], Any]:
        form = {"heads": H, "key_heads": H, "head_width": K}
        seen_N2 = ops.seen_keys(starts, np.diff(starts), causal) if causal else None
        return lambda: ops.attention(*rows, starts, starts, seen_N2=seen_N2, **form)

    flops = 4.0 * B * H * K * (T * (T + 1) / 2 if causal else T * T)
    name = f"attention ({B}, {H}, {T}, {K})" + (", causal" if causal else "")
    sides = _sides(ours, "attention", query, key, value, causal)
    if not naive:
        sides["NumPy"] = Side(absent="scores too large")
    return Case(name, flops / 1e9, GFLOPS, sides, flops, FLOAT * 4.0 * B * H * T * K)


def attention_step(rows: int, heads: int, length: int, head_width: int) -> Case:
    """A decoding step: each row's query sees its own ``length`` keys and values, found through a table."""
    R, H, S, K = rows, heads, length, head_width
    E = H * K
    query, key_value = _random((R, E), (R * S, 2 * E))
    index = np.random.default_rng(1).permutation(R * S).astype(np.int32).reshape(R, S)
    lengths = np.full(R, S, np.int64)

    def ours(ops: ModuleType) -> Callable[[], Any]:
        form = {"heads": H, "key_heads": H, "head_width": K, "value_column": E}
        return lambda: ops.attention_step(query, key_value, key_value, index, lengths, **form)

    key, value = (key_value[index, column : column + E].reshape(R, S, H, K) for column in (0, E))
    sides = _sides(ours, "attention_step", query.reshape(R, H, K), key, value)
    flops = 4.0 * R * S * E
    return Case(
        f"attention_step ({R}, {H}, {S}, {K})", flops / 1e9, GFLOPS, sides, flops, FLOAT * 2.0 * R * (S + 1) * E
    )


def layer_norm(rows: int, width: int) -> Case:
    """Of x + residual."""
    x, residual, weight, bias = _random((rows, width), (rows, width), (width,), (width,))
    epsilon = 1e-5

    def ours(ops: ModuleType) -> Callable[[], Any]:
        return lambda: ops.layer_norm(x, weight, bias, epsilon, residual)

    moved = FLOAT * 3.0 * rows * width
    sides = _sides(ours, "layer_norm", x, weight, bias, epsilon, residual)
    return Case(f"layer_norm {rows} x {width}", moved / 1e9, GBYTES, sides, None, moved)


def embed(rows: int, vocabulary: int, width: int) -> Case:
    """Rows of a table, scaled, plus rows of a table of positions."""
    rng = np.random.default_rng(0)
    table, position_table = _random((vocabulary, width), (512, width))
    ids, positions = (rng.integers(0, limit, rows).astype(np.int32) for limit in (vocabulary, 512))

    def ours(ops: ModuleType) -> Callable[[], Any]:
        return lambda: ops.embed(ids, table, 2.0, positions, position_table)

    moved = FLOAT * 3.0 * rows * width
    sides = _sides(ours, "embed", ids, table, 2.0, positions, position_table)
    return Case(f"embed {rows} x {vocabulary} x {width}", moved / 1e9, GBYTES, sides, None, moved)


def project_top_k(rows: int, width: int, vocabulary: int, k: int) -> Case:
    """Log-softmax of the projection and its k best."""
    x, weight, bias = _random((rows, width), (vocabulary, width), (vocabulary,))
    weight /= np.float32(width**0.5)

    def ours(ops: ModuleType) -> Callable[[], Any]:
        packed = ops.pack_linear(weight, bias)
        return lambda: ops.project_top_k(x, packed, k)

    flops = 2.0 * rows * width * vocabulary
    moved = FLOAT * (rows * width + (width + 1.0) * vocabulary)
    sides = _sides(ours, "project_top_k", x, weight, bias, k)
    return Case(f"project_top_k {rows} x {width} x {vocabulary}, k {k}", flops / 1e9, GFLOPS, sides, flops, moved)


@dataclass(frozen=True)
class Entry:
    """A case that is built when its turn comes; scaling ones are also run on more than two threads."""

    make: Callable[..., Case]
    size: tuple[Any, ...]
    scaling: bool = False

    def narrow(self, precision: str) -> "Entry | None":
        """The same in another precision, where it has one: only products do."""
        if self.make is not linear:
            return None
        return Entry(linear, (*self.size, "none")[:4] + (precision,), self.scaling)


def entries(all_of_them: list[Entry], precision: str) -> list[Entry]:
    """Those that there are in ``precision``."""
    if precision == "float32":
        return all_of_them
    return [narrow for entry in all_of_them if (narrow := entry.narrow(precision))]


KERNELS = [
    Entry(linear, (1024, 1024, 1024), scaling=True),
    Entry(linear, (96, 1536, 384)),
    Entry(linear, (96, 1536, 384, "gelu")),
    Entry(linear, (1, 8192, 2048)),  # 64 MiB of weights: from memory, not from a cache
    Entry(linear, (4, 8192, 2048)),
    Entry(attention, (8, 12, 512, 64), scaling=True),
    Entry(attention, (1, 12, 2048, 64), scaling=True),
    Entry(attention, (1, 12, 2048, 64, True)),
    Entry(attention, (32, 12, 128, 32)),
    Entry(attention_step, (256, 8, 64, 64)),
    Entry(layer_norm, (2048, 384)),
    Entry(embed, (2048, 30522, 384)),
    Entry(project_top_k, (64, 512, 65000, 1)),
    Entry(project_top_k, (4, 512, 65000, 8)),
]
# The same on next to nothing: all of the harness in a moment.
TOY_KERNELS = [
    Entry(linear, (16, 16, 16), scaling=True),
    Entry(linear, (3, 16, 8, "gelu")),
    Entry(attention, (1, 2, 16, 8), scaling=True),
    Entry(attention_step, (4, 2, 5, 8)),
    Entry(layer_norm, (8, 16)),
    Entry(embed, (8, 30, 16)),
    Entry(project_top_k, (2, 16, 50, 2)),
]
