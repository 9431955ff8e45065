"""Linear layers: y = activation(x W' + b) * multiply + residual; a block of threads computes a tile of y.

A tile's rows of x and of W go through shared memory, a slab of SLAB words of 32 bits at a time, and its sums stay in
the threads' registers until they are outputs. A word is a float32, two bfloat16, which tensor cores multiply, or four
int8, whose sums are exact. Every sum has one order, whatever the tile, so a row's bits do not depend on other
rows. The output layer (``project``) and the search compute their products by ``tile_product`` too.
"""

import math
from collections import namedtuple
from functools import cache
from typing import Any

import numpy as np
from numba import cuda, float32, int32, uint32

from fastattn.errors import InputError
from fastattn.ops.cuda import card
from fastattn.ops.cuda.card import MICRO, SIDE, THREADS, TILE, device
from fastattn.ops.cuda.instructions import GROUPS, QUAD, WARP, WARPS, block_max, block_sum, dp4a, mma, multiply_add
from fastattn.spec.quantized import QuantizedTensor, Tensor, as_float32, unread
from fastattn.spec.rounding import bfloat16_bits, quantize

SLAB = min(16, THREADS)  # words of the inner dimension that are in shared memory at a time
FEW_ROWS = 2 * SIDE  # up to so many rows are cut into tiles of fewer rows, so that there are enough blocks
_WORDS = {"float32": float32, "bfloat16": uint32, "int8": int32, "integers": int32, "bits": int32}
ZERO, HALF, ONE, MAX_INT8, CUBIC = float32(0), float32(0.5), float32(1), float32(127), float32(0.044715)

# A linear layer: a row of stored words and a bias for each output; the factors of int8's sums, else empty; the ids of
# the outputs that are computed, or empty for all.
Weights = namedtuple("Weights", "words_FW bias_F factors_F ids_C")
# Rows in words of a layer's precision, and what an integer 1 of int8 stands for in each row.
WordRows = namedtuple("WordRows", "words_NW factors_N")
# Factors of the outputs and a residual that is added to them, each perhaps empty, and the result, which is written.
Target = namedtuple("Target", "multiply_NF residual_NF y_NF")


class CardLinear:
    """Weights and bias of a linear layer on the card.

    stored_FE        float32, uint16 (the bits of bfloat16) or int8 in whole words: zeros beyond ``inputs``
    input_scale      int8: the static scale that turns rows into int8; 0: 127 / max |x| of each row
    input_factors_D  int8: multiply rows before they become int8; empty: none
    """

    def __init__(self, weight_FD: Tensor, bias_F: np.ndarray | None, precision: str):
        self.precision, self.outputs, self.inputs = precision, int(weight_FD.shape[0]), int(weight_FD.shape[1])
        self.input_scale, input_factors_D, factors_F = 0.0, None, None
        if precision == "int8":
            if not isinstance(weight_FD, QuantizedTensor):
                weight_FD = quantize(as_float32(weight_FD), "a linear layer")
            stored_FD, factors_F = weight_FD.values_FD, weight_FD.multipliers_F
            self.input_scale, input_factors_D = weight_FD.input_scale or 0.0, weight_FD.input_factors_D
        else:
            plain_FD = as_float32(weight_FD)
            stored_FD = bfloat16_bits(plain_FD) if precision == "bfloat16" else plain_FD
        padding = -self.inputs % (4 // stored_FD.itemsize)
        self.stored_FE = card.upload(np.pad(stored_FD, ((0, 0), (0, padding))) if padding else stored_FD)
        self.input_factors_D = card.optional(input_factors_D, 1)
        bias_F = card.upload(np.zeros(self.outputs, np.float32) if bias_F is None else bias_F)
        words_FW = card.upload(self.stored_FE.view(np.dtype(_WORDS[precision].name)))
        self.weights = Weights(words_FW, bias_F, card.optional(factors_F, 1), card.no_array(1, np.int32))


def pack_linear(weight_FD: Tensor, bias_F: np.ndarray | None = None, precision: str = "float32") -> CardLinear:
    if precision == "int4":
        raise InputError('precision "int4" is the CPU\'s alone; on a card ask for "int8" or "bfloat16"')
    return CardLinear(unread(weight_FD).whole(), bias_F, precision)


@device
def _round_to_int8(value):
    """The nearest integer, ties to even, within +-127; some integer for NaN."""
    value = min(value, MAX_INT8) if value > -MAX_INT8 else -MAX_INT8
    return int32(value + float32(12582912) - float32(12582912))  # 1.5 * 2**23, whose neighbours are integers


@card.kernel
def _quantize_rows(x_ND, input_factors_D, input_scale, words_NW, factors_N):
    shared_T = cuda.shared.array(THREADS, float32)
    n, t = cuda.blockIdx.x, cuda.threadIdx.x
    D = x_ND.shape[1]
    peak, fault = ZERO, ZERO
    for d in range(t, D, THREADS):
        value = x_ND[n, d] * input_factors_D[d] if len(input_factors_D) > 0 else x_ND[n, d]
        peak = max(peak, abs(value))
        fault += value * ZERO  # NaN where the value is not finite
    peak, fault = block_max(peak, shared_T), block_sum(fault, shared_T)
    if input_scale > ZERO:
        scale, step = input_scale, ONE / input_scale
    else:
        scale, step = MAX_INT8 / peak if peak > ZERO else ZERO, peak / MAX_INT8
    for w in range(t, words_NW.shape[1], THREADS):
        word = int32(0)
        for d in range(4 * w, min(4 * w + 4, D)):
            value = x_ND[n, d] * input_factors_D[d] if len(input_factors_D) > 0 else x_ND[n, d]
            byte = _round_to_int8(value * scale)
            word |= (byte if d % 4 == 3 else byte & int32(255)) << int32(8 * (d % 4))
        words_NW[n, w] = word
    if t == 0:
        factors_N[n] = step + fault


@device
def nearest_bfloat16(bits):
    """The upper half of a float32's bits, rounded to the nearest, ties to even; NaN stays NaN."""
    if bits & 0x7FFFFFFF > 0x7F800000:
        return bits >> 16 | 0x40
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16


@card.kernel
def _round_rows(bits_ND, words_NW):
    n, D = cuda.blockIdx.x, bits_ND.shape[1]
    for w in range(cuda.threadIdx.x, words_NW.shape[1], THREADS):
        word = nearest_bfloat16(int(bits_ND[n, 2 * w]))
        if 2 * w + 1 < D:
            word |= nearest_bfloat16(int(bits_ND[n, 2 * w + 1])) << 16
        words_NW[n, w] = word


def stage(x_ND: Any, packed: CardLinear) -> WordRows:
    """Rows in the words that the layer multiplies."""
    x_ND, N, words_FW = card.upload(x_ND), len(x_ND), packed.weights.words_FW
    if packed.precision == "float32":
        return WordRows(x_ND, card.no_array(1))
    rows = WordRows(card.empty((N, words_FW.shape[1]), words_FW.dtype), card.empty((N,), np.float32))
    if packed.precision == "bfloat16":
        card.launch(_round_rows, N, card.upload(x_ND.view(np.uint32)), rows.words_NW)
    else:
        card.launch(_quantize_rows, N, x_ND, packed.input_factors_D, np.float32(packed.input_scale), *rows)
    return rows


def tile_shape(precision: str, few: bool) -> tuple[int, int, int]:
    """(rows of a tile, which has TILE columns; a thread's rows and columns of it), for few rows or for many."""
    if precision == "bfloat16":
        warp_rows = 1 if few else max(1, WARPS // 2)  # warps along a tile's rows
        return warp_rows * 2 * GROUPS, 2, 2 * TILE * warp_rows // (WARPS * GROUPS)
    thread_rows = 1 if few else MICRO
    return SIDE * thread_rows, thread_rows, MICRO


# How two words change a sum: by their products, or for bits by minus the number of bits that differ.
_STEPS = {
    "float32": multiply_add,
    "int8": dp4a,
    "integers": device(lambda a, b, total: total + a * b),
    "bits": device(lambda a, b, total: total - cuda.popc(a ^ b)),
}


def _cuda_core_functions(precision, few):
    """(position, accumulate) of CUDA cores: where a thread's sum i, j lies in the tile; add a slab's products to sums.

    A thread's rows and columns are SIDE apart, so neighbouring threads have neighbouring columns.
    """
    (_, THREAD_ROWS, THREAD_COLUMNS), word, step = tile_shape(precision, few), _WORDS[precision], _STEPS[precision]

    @device
    def position(i, j):
        return cuda.threadIdx.x // SIDE + i * SIDE, cuda.threadIdx.x % SIDE + j * SIDE

    @device
    def accumulate(x_RW, w_CW, sums):
        r, c = cuda.threadIdx.x // SIDE, cuda.threadIdx.x % SIDE
        column_J = cuda.local.array(THREAD_COLUMNS, word)
        for w in range(SLAB):
            for j in range(THREAD_COLUMNS):
                column_J[j] = w_CW[c + j * SIDE, w]
            for i in range(THREAD_ROWS):
                value = x_RW[r + i * SIDE, w]
                for j in range(THREAD_COLUMNS):
                    sums[i, j] = step(value, column_J[j], sums[i, j])

    return position, accumulate


def _tensor_core_functions(few):
    """(position, accumulate) of tensor cores, by products of 2 GROUPS rows and GROUPS columns; see ``instructions``."""
    rows, _, thread_columns = tile_shape("bfloat16", few)
    WARP_ROWS, WARP_COLUMNS = rows // (2 * GROUPS), thread_columns // 2 * GROUPS

    @device
    def corner():
        """The first row and column of a thread's warp, the thread's group, and its position in the group."""
        warp, lane = cuda.threadIdx.x // WARP, cuda.threadIdx.x % WARP
        return warp % WARP_ROWS * 2 * GROUPS, warp // WARP_ROWS * WARP_COLUMNS, lane // QUAD, lane % QUAD

    @device
    def position(i, j):
        r, c, group, quad = corner()
        return r + i * GROUPS + group, c + j // 2 * GROUPS + 2 * quad + j % 2

    @device
    def accumulate(x_RW, w_CW, sums):
        row, column, group, quad = corner()
        r, c = row + group, column + group
        for start in range(0, SLAB, 2 * QUAD):
            w, v = start + quad, start + quad + QUAD
            a = x_RW[r, w], x_RW[r + GROUPS, w], x_RW[r, v], x_RW[r + GROUPS, v]
            for j in range(0, 2 * (WARP_COLUMNS // GROUPS), 2):
                b = w_CW[c + j // 2 * GROUPS, w], w_CW[c + j // 2 * GROUPS, v]
                d = mma(a, b, (sums[0, j], sums[0, j + 1], sums[1, j], sums[1, j + 1]))
                sums[0, j], sums[0, j + 1], sums[1, j], sums[1, j + 1] = d

    return position, accumulate


@device
def output_of(c, weights):
    """The id of output c among those that are computed."""
    return weights.ids_C[c] if len(weights.ids_C) > 0 else c


@device
def affine(total, n, c, rows, weights):
    """x W' + b, from the tile's sum."""
    f = output_of(c, weights)
    if len(weights.factors_F) > 0:
        return multiply_add(float32(total), rows.factors_N[n] * weights.factors_F[f], weights.bias_F[f])
    return float32(total) + weights.bias_F[f]


@cache
def tile_product(precision: str, few: bool, finish: Any) -> Any:
    """The device function compute(rows, weights, first, end, column, stop, target), which all threads of a block call.

    For a tile's rows n, from ``first`` to below ``end``, and outputs c, from ``column`` to below ``stop``, it calls the
    device function finish(sum, n, c, r, s, (rows, weights, target)); r and s are the sum's row and column in the tile.
    With weights.ids_C, c is an index of that array.
    """
    ROWS, THREAD_ROWS, THREAD_COLUMNS = tile_shape(precision, few)
    word, by_tensor_cores = _WORDS[precision], precision == "bfloat16"
    position, accumulate = _tensor_core_functions(few) if by_tensor_cores else _cuda_core_functions(precision, few)
    sum_type = float32 if by_tensor_cores else word
    PITCH = SLAB + (4 if by_tensor_cores else 1)  # so that threads of a warp read from different banks
    STEP = THREADS // SLAB  # rows of a slab that are loaded at once
    ROW_LOADS, COLUMN_LOADS = ROWS // STEP, TILE // STEP

    @device
    def compute(rows, weights, first, end, column, stop, target):
        x_RW = cuda.shared.array((ROWS, PITCH), word)
        w_CW = cuda.shared.array((TILE, PITCH), word)
        outputs_I = cuda.local.array(COLUMN_LOADS, int32)
        sums = cuda.local.array((THREAD_ROWS, THREAD_COLUMNS), sum_type)
        r, w = cuda.threadIdx.x // SLAB, cuda.threadIdx.x % SLAB
        for i in range(COLUMN_LOADS):
            c = column + r + i * STEP
            outputs_I[i] = -1
            if c < stop:
                outputs_I[i] = output_of(c, weights)
        for i in range(THREAD_ROWS):
            for j in range(THREAD_COLUMNS):
                sums[i, j] = sum_type(0)
        for start in range(0, weights.words_FW.shape[1], SLAB):
            inside = start + w < weights.words_FW.shape[1]
            for i in range(ROW_LOADS):
                n = first + r + i * STEP
                x_RW[r + i * STEP, w] = word(rows.words_NW[n, start + w]) if inside and n < end else word(0)
            for i in range(COLUMN_LOADS):
                f = outputs_I[i]
                w_CW[r + i * STEP, w] = word(weights.words_FW[f, start + w]) if inside and f >= 0 else word(0)
            cuda.syncthreads()
            accumulate(x_RW, w_CW, sums)
            cuda.syncthreads()
        for i in range(THREAD_ROWS):
            for j in range(THREAD_COLUMNS):
                tile_row, tile_column = position(i, j)
                n, c = first + tile_row, column + tile_column
                if n < end and c < stop:
                    finish(sums[i, j], n, c, tile_row, tile_column, (rows, weights, target))

    return compute


relu = device(lambda x: ZERO if x < ZERO else x)  # so NaN stays
exp_minus_abs = device(lambda x: math.exp(-abs(x)))  # cannot overflow
sigmoid = device(lambda x: (exp_minus_abs(x) if x < ZERO else ONE) / (ONE + exp_minus_abs(x)))
# Mish's tanh(ln(1 + e^x)) = u / (u + 2) with u = e^x (e^x + 2); it is 1 in float32 from x = 20 on.
ratio = device(lambda u: u / (u + float32(2)))
power = device(lambda x: math.exp(float32(20) if x > float32(20) else x))
ACTIVATIONS = {
    "none": device(lambda x: x),
    "relu": relu,
    "gelu": device(lambda x: HALF * x * (ONE + math.erf(x * float32(0.70710678)))),
    "gelu_tanh": device(lambda x: HALF * x * (ONE + math.tanh(float32(0.79788456) * (x + CUBIC * (x * x * x))))),
    "gelu_sigmoid": device(lambda x: x * sigmoid(float32(1.702) * x)),
    "swish": device(lambda x: x * sigmoid(x)),
    "tanh": device(lambda x: math.tanh(x)),
    "sigmoid": sigmoid,
    "relu_squared": device(lambda x: relu(x) * relu(x)),
    "mish": device(lambda x: x * ratio(power(x) * (power(x) + float32(2)))),
}


@cache
def _linear_kernel(precision, few, activation):
    activate, (ROWS, *_) = ACTIVATIONS[activation], tile_shape(precision, few)

    @device
    def finish(total, n, f, r, s, arguments):
        rows, weights, (multiply_NF, residual_NF, y_NF) = arguments
        y = activate(affine(total, n, f, rows, weights))
        if len(multiply_NF) > 0:
            y *= multiply_NF[n, f]
        y_NF[n, f] = y + residual_NF[n, f] if len(residual_NF) > 0 else y

    compute = tile_product(precision, few, finish)

    @card.kernel_of(precision, few, activation)
    def _linear(rows, weights, target):
        N, F = target.y_NF.shape
        compute(rows, weights, cuda.blockIdx.x * ROWS, N, cuda.blockIdx.y * TILE, F, target)

    return _linear


def linear(
    x_ND: np.ndarray,
    packed: CardLinear,
    activation: str = "none",
    residual_NF: np.ndarray | None = None,
    multiply_NF: np.ndarray | None = None,
) -> np.ndarray:
    N, F, precision, few = len(x_ND), packed.outputs, packed.precision, len(x_ND) <= FEW_ROWS
    target = Target(card.optional(multiply_NF, 2), card.optional(residual_NF, 2), card.empty((N, F), np.float32))
    rows, *_ = tile_shape(precision, few)
    blocks = -(-N // rows), -(-F // TILE)
    card.launch(_linear_kernel(precision, few, activation), blocks, stage(x_ND, packed), packed.weights, target)
    return target.y_NF


def gated(x_ND: np.ndarray, packed: CardLinear, gate: CardLinear, activation: str = "none") -> np.ndarray:
    return linear(x_ND, packed, activation, multiply_NF=linear(x_ND, gate))
