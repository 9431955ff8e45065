"""Matrix products with their epilogues."""

from typing import Any

import numpy as np

from bench.operations.table import FLOAT, GFLOPS, GOPS, WEIGHT_BYTES, Arrays, Operation, Problem, Size, Work, normal
from fastattn.spec.architecture import ACTIVATIONS

MATRIX_SIZES = (
    (0, 8, 8),
    (1, 1, 1),
    (1, 7, 13),
    (2, 16, 1),
    (3, 8, 16),
    (5, 31, 17),
    (6, 64, 15),
    (13, 33, 47),
    (16, 64, 48),
    (17, 65, 49),
    (31, 128, 97),
    (64, 127, 100),
    (129, 257, 131),
)

# Whole groups of inputs; rows and outputs around the widths of tiles, of column blocks and of panels taken together.
INT4_SIZES = (
    *((0, 32, 8), (1, 32, 1), (2, 64, 16), (3, 32, 193), (4, 96, 17), (5, 32, 47), (7, 64, 48), (11, 96, 49)),
    *((12, 32, 31), (13, 64, 33), (31, 128, 97), (64, 128, 100), (129, 256, 131)),
)


def linear(
    rows: int,
    inputs: int,
    outputs: int,
    activation: str = "none",
    bias: bool = True,
    extras: bool = False,
    gated: bool = False,
    precision: str = "float32",
) -> Problem:
    """Rows are float32 at every precision: the work includes rounding or quantizing them.

    extras  multiply the result by a factor and add it to a residual
    gated   instead multiply it by another product of the same rows
    """
    rng = np.random.default_rng(rows * 7919 + inputs * 31 + outputs)
    arrays = {"x": normal(rng, rows, inputs), "weight": normal(rng, outputs, inputs) / np.float32(inputs) ** 0.5}
    if bias:
        arrays["bias"] = normal(rng, outputs)
    if extras:
        arrays["residual"], arrays["multiply"] = normal(rng, rows, outputs), normal(rng, rows, outputs)
    if gated:
        arrays["gate"], arrays["gate_bias"] = (
            normal(rng, outputs, inputs) / np.float32(inputs) ** 0.5,
            normal(rng, outputs),
        )

    def bind(ops: Any, a: Arrays) -> Any:
        packed = ops.pack_linear(a["weight"], a.get("bias"), precision)
        if gated:
            gate = ops.pack_linear(a["gate"], a["gate_bias"], precision)
            return lambda: (ops.gated(a["x"], packed, gate, activation),)
        return lambda: (ops.linear(a["x"], packed, activation, a.get("residual"), a.get("multiply")),)

    products = 2 if gated else 1
    moved = FLOAT * (rows * inputs + outputs + rows * outputs) + products * WEIGHT_BYTES[precision] * outputs * inputs
    return Problem(
        f"linear-{rows}x{inputs}x{outputs}-{activation}-{bias}-{extras}-{gated}-{precision}",
        "linear",
        arrays,
        bind,
        {"activation": activation, "precision": precision},
        work=Work(
            f"linear {rows} x {inputs} x {outputs}"
            + (f", {activation}" if activation != "none" else "")
            + ", gated" * gated,
            moved,
            2.0 * products * rows * outputs * inputs,
            GOPS if precision in ("int8", "int4") else GFLOPS,
        ),
    )


TABLE = {
    "linear": Operation(
        linear,
        awkward=[
            *(Size(*size) for size in MATRIX_SIZES),
            *(Size(*size, bias=False, extras=True) for size in MATRIX_SIZES[1::3]),
            *(Size(*size, activation="gelu", gated=True) for size in MATRIX_SIZES[1::2]),
            *(Size(7, 19, 37, activation, extras=extras) for activation in ACTIVATIONS for extras in (False, True)),
            *(Size(*size, precision="int4") for size in INT4_SIZES),
            *(Size(*size, "swish", bias=False, extras=True, precision="int4") for size in INT4_SIZES[1::3]),
            *(Size(*size, "swish", gated=True, precision="int4") for size in INT4_SIZES[1::2]),
        ],
        large=[
            Size(1024, 1024, 1024, scaling=True),
            Size(96, 384, 1536),
            Size(96, 384, 1536, "gelu"),
            Size(1, 2048, 8192),  # 64 MiB of weights: from memory, not from a cache
            Size(4, 2048, 8192),
        ],
        toy=[Size(16, 32, 16, scaling=True), Size(3, 32, 16, "gelu")],
        precisions=("float32", "bfloat16", "int8", "int4"),
    )
}
