"""Linear layers: y = activation(x W' + b) * multiply + residual, a block of threads a tile of y.

A tile's rows of x and of W go through shared memory, a slab of SLAB words of 32 bits at a time, and its sums stay in
the threads' registers until they are outputs. A word is a float32, two bfloat16, which tensor cores multiply, or four
int8, whose sums are exact. Every sum has one order, whatever the tile, so a row's bits do not depend on the others.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, float32, int32, uint32

from fastattn.ops.cuda import card
from fastattn.ops.cuda.blocks import block_max, block_sum
from fastattn.ops.cuda.card import MICRO, SIDE, THREADS, TILE
from fastattn.ops.cuda.instructions import GROUPS, QUAD, WARP, WARPS, dp4a, mma, multiply_add
from fastattn.spec.quantized import QuantizedTensor, Tensor
from fastattn.spec.rounding import bfloat16_bits, quantize

SLAB = min(16, THREADS)  # words of the inner dimension that are in shared memory at once
FEW = 2 * SIDE  # so many rows have low tiles, so that there are blocks enough
_DTYPES = {"float32": float32, "bfloat16": uint32, "int8": int32}
_ONE, _HALF = float32(1), float32(0.5)


class Weights(NamedTuple):
    """Of a linear layer, for kernels.

    words_FW   a row an output, as it is stored
    bias_F     float32
    factors_F  int8: float32, of the sums; else empty
    ids_C      the outputs that are wanted, int32; empty: all
    """

    words_FW: Any
    bias_F: Any
    factors_F: Any
    ids_C: Any


class Rows(NamedTuple):
    """Rows in the words of a layer's precision; factors_N: float32, int8's, else empty."""

    words_NW: Any
    factors_N: Any


class CardLinear:
    """Weights and bias of a linear layer on the card.

    stored_FE    float32, uint16 (the bits of bfloat16) or int8, whole words: zeros beyond ``inputs``
    weights      their words, and the arrays beside them
    input_scale  int8: the static scale that turns rows into int8; 0: 127 / max |x| of each row
    input_factors_D  int8: multiply rows before that; empty: none
    """

    def __init__(self, weight_FD: Tensor, bias_F: np.ndarray | None, precision: str):
        self.precision, (self.outputs, self.inputs) = precision, weight_FD.shape
        self.input_scale, input_factors_D, factors_F = 0.0, None, None
        if precision == "int8":
            if not isinstance(weight_FD, QuantizedTensor):
                weight_FD = quantize(weight_FD, "a linear layer")
            stored_FD, factors_F = weight_FD.values_FD, weight_FD.multipliers_F
            self.input_scale, input_factors_D = weight_FD.input_scale or 0.0, weight_FD.input_factors_D
        else:
            plain = weight_FD.float32() if isinstance(weight_FD, QuantizedTensor) else weight_FD
            stored_FD = bfloat16_bits(plain) if precision == "bfloat16" else np.asarray(plain, np.float32)
        missing = -self.inputs % (4 // stored_FD.itemsize)
        self.stored_FE = card.upload(np.pad(stored_FD, ((0, 0), (0, missing))) if missing else stored_FD)
        self.input_factors_D = card.optional(input_factors_D, 1)
        bias_F = np.zeros(self.outputs, np.float32) if bias_F is None else bias_F
        words_FW = card.upload(self.stored_FE.view(np.dtype(_DTYPES[precision].name)))
        ids_C = card.optional(None, 1, np.int32)
        self.weights = Weights(words_FW, card.upload(bias_F), card.optional(factors_F, 1), ids_C)

    def stored_rows(self) -> tuple[Any, Any]:
        """(table [outputs, inputs or a few zeros more], multipliers of its rows: empty unless it is int8), to embed."""
        return self.stored_FE, self.weights.factors_F


def pack_linear(weight_FD: Tensor, bias_F: np.ndarray | None = None, precision: str = "float32") -> CardLinear:
    """A copy on the card of float32 or quantized weights [outputs, inputs] and bias [outputs] (none: zero)."""
    return CardLinear(weight_FD, bias_F, precision)


def packed_layout(precision: str) -> None:
    """None: packed layers are not kept in files."""


def packed_shapes(outputs: int, inputs: int, precision: str, balanced: bool) -> dict[str, tuple[int, ...]]:
    """The shapes of a packed layer's arrays in a file: there are none."""
    return {}


def packed_of(outputs: int, inputs: int, arrays: dict[str, np.ndarray]) -> CardLinear:
    """A packed layer of the arrays of a file: there is none."""
    raise NotImplementedError


# Rows in the precision of the weights


@cuda.jit(device=True)
def _rounded(value):
    """The nearest integer, ties to even, within +-127; some integer for NaN."""
    value = value if value > float32(-127) else float32(-127)
    value = value if value < float32(127) else float32(127)
    return int32(value + float32(12582912) - float32(12582912))  # 1.5 * 2**23, whose neighbours are integers


@cuda.jit
def _quantize_rows(x_ND, input_factors_D, input_scale, words_NW, factors_N):
    shared_T = cuda.shared.array(THREADS, float32)
    n, t = cuda.blockIdx.x, cuda.threadIdx.x
    D = x_ND.shape[1]
    peak, fault = float32(0), float32(0)
    for d in range(t, D, THREADS):
        value = x_ND[n, d]
        if len(input_factors_D) > 0:
            value *= input_factors_D[d]
        peak = max(peak, abs(value))
        fault += value * float32(0)  # NaN where the value is not finite
    peak, fault = block_max(peak, shared_T), block_sum(fault, shared_T)
    scale, step = input_scale, _ONE / input_scale if input_scale > float32(0) else peak / float32(127)
    if input_scale == float32(0) and peak > float32(0):
        scale = float32(127) / peak
    for w in range(t, words_NW.shape[1], THREADS):
        word = int32(0)
        for d in range(4 * w, min(4 * w + 4, D)):
            value = x_ND[n, d]
            if len(input_factors_D) > 0:
                value *= input_factors_D[d]
            byte = _rounded(value * scale)
            word |= (byte if d % 4 == 3 else byte & int32(255)) << int32(8 * (d % 4))
        words_NW[n, w] = word
    if t == 0:
        factors_N[n] = step + fault


@cuda.jit(device=True)
def _bfloat16(bits):
    """The upper half of a float32's bits, rounded to the nearest, ties to even; NaN stays NaN."""
    if bits & 0x7FFFFFFF > 0x7F800000:
        return bits >> 16 | 0x40
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16


@cuda.jit
def _round_rows(bits_ND, words_NW):
    n, t = cuda.blockIdx.x, cuda.threadIdx.x
    D = bits_ND.shape[1]
    for w in range(t, words_NW.shape[1], THREADS):
        word = _bfloat16(int(bits_ND[n, 2 * w]))
        if 2 * w + 1 < D:
            word |= _bfloat16(int(bits_ND[n, 2 * w + 1])) << 16
        words_NW[n, w] = word


def staged(x_ND: Any, packed: CardLinear) -> Rows:
    """Rows as the layer multiplies them."""
    x_ND, N, words = card.upload(x_ND), len(x_ND), packed.weights.words_FW
    if packed.precision == "float32":
        return Rows(x_ND, card.optional(None, 1))
    rows = Rows(card.empty((N, words.shape[1]), words.dtype), card.empty((N,), np.float32))
    if packed.precision == "bfloat16":
        card.launch(_round_rows, N, card.upload(x_ND.view(np.uint32)), rows.words_NW)
    else:
        card.launch(_quantize_rows, N, x_ND, packed.input_factors_D, np.float32(packed.input_scale), *rows)
    return rows


# Products of a tile


class Tile(NamedTuple):
    """A tile of ``rows`` by TILE, and a thread's part of it: device functions, and the type of its sums [down, across].

    multiply   (rows, weights, first, end, column, stop, sums): add to sums the products of rows from ``first`` on,
               below ``end``, with the wanted outputs from ``column`` on, below ``stop``
    row, column  (number): where in the tile a thread's sums of that number are
    """

    rows: int
    down: int
    across: int
    dtype: Any
    multiply: Any
    row: Any
    column: Any


@lru_cache(maxsize=None)
def tile_for(precision: str, few: bool) -> Tile:
    """The tile for few rows, or for many."""
    if precision == "bfloat16":
        high = 1 if few else max(1, WARPS // 2)  # warps above each other
        wide = WARPS // high
        down, across, rows, pad, dtype = 2, 2 * TILE // (wide * GROUPS), high * 2 * GROUPS, 4, float32
        row, column, accumulate = _by_warps(high, across)
    else:
        down, across, pad, dtype = 1 if few else MICRO, MICRO, 1, _DTYPES[precision]
        rows, (row, column, accumulate) = SIDE * down, _by_threads(precision, down, across)
    return Tile(rows, down, across, dtype, _by_slabs(_DTYPES[precision], rows, pad, accumulate), row, column)


def _by_slabs(word, ROWS, padding, accumulate):
    """Slabs of both operands through shared memory; the padding lets threads of a warp read from different banks."""
    PITCH, STEP = SLAB + padding, THREADS // SLAB  # STEP rows of a slab are loaded at once
    ROW_LOADS, COLUMN_LOADS = ROWS // STEP, TILE // STEP

    @cuda.jit(device=True)
    def multiply(rows, weights, first, end, column, stop, sums):
        x_RW = cuda.shared.array((ROWS, PITCH), word)
        w_CW = cuda.shared.array((TILE, PITCH), word)
        r, w = cuda.threadIdx.x // SLAB, cuda.threadIdx.x % SLAB
        outputs_I = cuda.local.array(COLUMN_LOADS, int32)
        for i in range(COLUMN_LOADS):
            c = column + r + i * STEP
            outputs_I[i] = -1
            if c < stop:
                outputs_I[i] = weights.ids_C[c] if len(weights.ids_C) > 0 else c
        for start in range(0, weights.words_FW.shape[1], SLAB):
            inside = start + w < weights.words_FW.shape[1]
            for i in range(ROW_LOADS):
                n, value = first + r + i * STEP, word(0)
                if inside and n < end:
                    value = rows.words_NW[n, start + w]
                x_RW[r + i * STEP, w] = value
            for i in range(COLUMN_LOADS):
                value = word(0)
                if inside and outputs_I[i] >= 0:
                    value = weights.words_FW[outputs_I[i], start + w]
                w_CW[r + i * STEP, w] = value
            cuda.syncthreads()
            accumulate(x_RW, w_CW, sums)
            cuda.syncthreads()

    return multiply


def _by_threads(precision, DOWN, ACROSS):
    """CUDA cores: a thread's rows and columns are SIDE apart, so that neighbouring threads have neighbouring columns."""
    step, word = dp4a if precision == "int8" else multiply_add, _DTYPES[precision]

    @cuda.jit(device=True)
    def row(i):
        return cuda.threadIdx.x // SIDE + i * SIDE

    @cuda.jit(device=True)
    def column(j):
        return cuda.threadIdx.x % SIDE + j * SIDE

    @cuda.jit(device=True)
    def accumulate(x_RW, w_CW, sums):
        r, c = cuda.threadIdx.x // SIDE, cuda.threadIdx.x % SIDE
        column_J = cuda.local.array(ACROSS, word)
        for w in range(SLAB):
            for j in range(ACROSS):
                column_J[j] = w_CW[c + j * SIDE, w]
            for i in range(DOWN):
                value = x_RW[r + i * SIDE, w]
                for j in range(ACROSS):
                    sums[i, j] = step(value, column_J[j], sums[i, j])

    return row, column, accumulate


def _by_warps(HIGH, ACROSS):
    """Tensor cores: a warp has 2 GROUPS rows and ACROSS // 2 products of GROUPS columns; see ``instructions``."""

    @cuda.jit(device=True)
    def row(i):
        warp, lane = cuda.threadIdx.x // WARP, cuda.threadIdx.x % WARP
        return (warp % HIGH * 2 + i) * GROUPS + lane // QUAD

    @cuda.jit(device=True)
    def column(j):
        warp, lane = cuda.threadIdx.x // WARP, cuda.threadIdx.x % WARP
        return (warp // HIGH * (ACROSS // 2) + j // 2) * GROUPS + lane % QUAD * 2 + j % 2

    @cuda.jit(device=True)
    def accumulate(x_RW, w_CW, sums):
        warp, lane = cuda.threadIdx.x // WARP, cuda.threadIdx.x % WARP
        group, place = lane // QUAD, lane % QUAD
        r, c = warp % HIGH * 2 * GROUPS + group, warp // HIGH * (ACROSS // 2) * GROUPS + group
        for start in range(0, SLAB, 2 * QUAD):
            w, v = start + place, start + place + QUAD
            a = x_RW[r, w], x_RW[r + GROUPS, w], x_RW[r, v], x_RW[r + GROUPS, v]
            for j in range(0, ACROSS, 2):
                f = c + j // 2 * GROUPS
                total = sums[0, j], sums[0, j + 1], sums[1, j], sums[1, j + 1]
                sums[0, j], sums[0, j + 1], sums[1, j], sums[1, j + 1] = mma(a, (w_CW[f, w], w_CW[f, v]), total)

    return row, column, accumulate


@cuda.jit(device=True)
def output_of(total, n, f, rows, weights):
    """x W' + b of row n and output f, of their sum of products."""
    if len(weights.factors_F) > 0:
        return multiply_add(float32(total), rows.factors_N[n] * weights.factors_F[f], weights.bias_F[f])
    return float32(total) + weights.bias_F[f]


# Activations


@cuda.jit(device=True)
def _none(x):
    return x


@cuda.jit(device=True)
def _relu(x):
    return float32(0) if x < float32(0) else x  # so NaN stays


@cuda.jit(device=True)
def _sigmoid(x):
    small = math.exp(-abs(x))  # which cannot overflow
    return (small if x < float32(0) else _ONE) / (_ONE + small)


@cuda.jit(device=True)
def _gelu(x):
    return _HALF * x * (_ONE + math.erf(x * float32(0.70710678)))


@cuda.jit(device=True)
def _gelu_tanh(x):
    return _HALF * x * (_ONE + math.tanh(float32(0.79788456) * (x + float32(0.044715) * x * x * x)))


@cuda.jit(device=True)
def _gelu_sigmoid(x):
    return x * _sigmoid(float32(1.702) * x)


@cuda.jit(device=True)
def _swish(x):
    return x * _sigmoid(x)


@cuda.jit(device=True)
def _tanh(x):
    return math.tanh(x)


@cuda.jit(device=True)
def _relu_squared(x):
    above = _relu(x)
    return above * above


@cuda.jit(device=True)
def _mish(x):
    """x tanh(ln(1 + e^x)), a quotient of polynomials in e^x; beyond 20 it is x."""
    power = math.exp(float32(20) if x > float32(20) else x)
    above = power * (power + float32(2))
    return x * (above / (above + float32(2)))


ACTIVATIONS = {
    "none": _none,
    "relu": _relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "gelu_sigmoid": _gelu_sigmoid,
    "swish": _swish,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "relu_squared": _relu_squared,
    "mish": _mish,
}


@lru_cache(maxsize=None)
def _linear_kernel(precision, few, activation):
    ROWS, DOWN, ACROSS, dtype, multiply, tile_row, tile_column = tile_for(precision, few)
    activate = ACTIVATIONS[activation]

    @cuda.jit
    def _linear(rows, weights, multiply_NF, residual_NF, y_NF):
        N, F = y_NF.shape
        first, left = cuda.blockIdx.x * ROWS, cuda.blockIdx.y * TILE
        sums = cuda.local.array((DOWN, ACROSS), dtype)
        for i in range(DOWN):
            for j in range(ACROSS):
                sums[i, j] = dtype(0)
        multiply(rows, weights, first, N, left, F, sums)
        for i in range(DOWN):
            for j in range(ACROSS):
                n, f = first + tile_row(i), left + tile_column(j)
                if n < N and f < F:
                    y = activate(output_of(sums[i, j], n, f, rows, weights))
                    if len(multiply_NF) > 0:
                        y *= multiply_NF[n, f]
                    if len(residual_NF) > 0:
                        y += residual_NF[n, f]
                    y_NF[n, f] = y

    return _linear


def linear(
    x_ND: np.ndarray,
    packed: CardLinear,
    activation: str = "none",
    residual_NF: np.ndarray | None = None,
    multiply_NF: np.ndarray | None = None,
) -> np.ndarray:
    """activation(x W' + b) * multiply + residual, float32 [N, outputs]; the residual is added last."""
    N, F, few = len(x_ND), packed.outputs, len(x_ND) <= FEW
    y_NF = card.empty((N, F), np.float32)
    blocks = -(-N // tile_for(packed.precision, few).rows), -(-F // TILE)
    more = card.optional(multiply_NF, 2), card.optional(residual_NF, 2)
    card.launch(
        _linear_kernel(packed.precision, few, activation), blocks, staged(x_ND, packed), packed.weights, *more, y_NF
    )
    return y_NF


def gated(x_ND: np.ndarray, packed: CardLinear, gate: CardLinear, activation: str = "none") -> np.ndarray:
    """activation(x W' + b) * (x V' + c), float32 [N, outputs] (Shazeer 2020); the gate's are V and c."""
    return linear(x_ND, packed, activation, multiply_NF=linear(x_ND, gate))
