"""Every operation of the engine in plain NumPy: the oracle of the tests and the naive side of the benchmark.

Same names and signatures as ``fastattn.kernels``; a model takes either namespace. The arithmetic runs in the
dtype of the inputs, so that float64 inputs give a float64 oracle. Nothing is checked here beyond what NumPy checks.
Attention lies in a file of its own, ``reference_attention``.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from fastattn.reference_attention import attention, attention_step, rotate, softmax  # noqa: F401  operations too
from fastattn.rounding import as_floats, bfloat16_bits, quantize
from fastattn.spec import QuantizedTensor, Tensor

_SQRT_HALF = math.sqrt(0.5)
_exact_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function: math.erf for float64; for float32 Abramowitz and Stegun 7.1.26, 1.5e-7 absolute.

    math.erf costs about 100 ns an element, which would make the naive side of the benchmark look slower than it is.
    """
    if x.dtype != np.float32:
        return np.asarray(_exact_erf(x)).astype(x.dtype)
    size = np.abs(x)
    t = 1 / (1 + np.float32(0.3275911) * size)
    series = t * np.float32(1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series += np.float32(coefficient)
        series *= t
    np.square(size, out=size)
    np.negative(size, out=size)
    series *= np.exp(size, out=size)
    return np.copysign(1 - series, x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))  # of -|x|, so that nothing overflows
    return np.where(x < 0, small, 1) / (1 + small)


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + erf(x * x.dtype.type(_SQRT_HALF)))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))


_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "gelu_sigmoid": lambda x: x * _sigmoid(1.702 * x),
    "swish": lambda x: x * _sigmoid(x),
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
}


class PackedLinear:
    """The weights of a linear layer; here simply the arrays themselves, and how the rows are rounded for them."""

    def __init__(self, weight_FD: np.ndarray, bias_F: np.ndarray | None, stage: Callable = lambda x_ND: x_ND):
        self.weight_FD = weight_FD
        self.bias_F = bias_F
        self.stage = stage
        self.outputs, self.inputs = weight_FD.shape


def round_to_bfloat16(x: np.ndarray) -> np.ndarray:
    """The nearest bfloat16, ties to even, in the dtype of x; NaN stays NaN."""
    return (bfloat16_bits(x).astype(np.uint32) << 16).view(np.float32).astype(x.dtype)


def quantise_rows(
    x_ND: np.ndarray, input_scale: float | None = None, input_factors_D: np.ndarray | None = None
) -> np.ndarray:
    """Rows rounded to 127 steps of their largest magnitude, or of 1 / input_scale each, in the dtype of x.

    With factors, it is the rows times them that are rounded.
    """
    if input_factors_D is not None:
        return quantise_rows(x_ND.astype(np.float32) * input_factors_D).astype(x_ND.dtype) / input_factors_D
    if input_scale is not None:
        scale = np.float32(input_scale)
        return np.clip(np.rint(x_ND.astype(np.float32) * scale), -127, 127).astype(x_ND.dtype) * (1 / scale)
    quantised = quantize(x_ND.astype(np.float32), "a row")
    return quantised.values_FD * quantised.multipliers_F[:, None].astype(x_ND.dtype)


def pack_linear(weight_FD: Tensor, bias_F: np.ndarray | None = None, precision: str = "float32") -> PackedLinear:
    """The weights in the form that ``linear`` and ``project_top_k`` take, rounded as ``precision`` says."""
    inputs: dict[str, Any] = {}
    if precision == "int8" and not isinstance(weight_FD, QuantizedTensor):
        weight_FD = quantize(weight_FD, "a linear layer")
    if isinstance(weight_FD, QuantizedTensor):
        inputs = {"input_scale": weight_FD.input_scale, "input_factors_D": weight_FD.input_factors_D}
        weight_FD = weight_FD.float32()
    if precision == "bfloat16":
        return PackedLinear(round_to_bfloat16(weight_FD), bias_F, round_to_bfloat16)
    if precision == "int8":
        return PackedLinear(weight_FD, bias_F, partial(quantise_rows, **inputs))
    return PackedLinear(weight_FD, bias_F)


def linear(
    x_ND: np.ndarray,
    packed: PackedLinear,
    activation: str = "none",
    residual_NF: np.ndarray | None = None,
    multiply_NF: np.ndarray | None = None,
) -> np.ndarray:
    """activation(x W' + b) * multiply + residual."""
    y_NF = packed.stage(x_ND) @ packed.weight_FD.T
    if packed.bias_F is not None:
        y_NF += packed.bias_F
    y_NF = _ACTIVATIONS[activation](y_NF)
    if multiply_NF is not None:
        y_NF *= multiply_NF
    if residual_NF is not None:
        y_NF += residual_NF
    return y_NF


def layer_norm(
    x_ND: np.ndarray,
    weight_D: np.ndarray,
    bias_D: np.ndarray | None,
    epsilon: float,
    residual_ND: np.ndarray | None = None,
) -> np.ndarray:
    """Layer normalisation (Ba 2016) of x + residual; the variance is taken in a second pass."""
    if residual_ND is not None:
        x_ND = x_ND + residual_ND
    y_ND = x_ND - x_ND.mean(axis=1, keepdims=True)
    variance_N1 = np.square(y_ND).mean(axis=1, keepdims=True)
    y_ND /= np.sqrt(variance_N1 + epsilon)
    y_ND *= weight_D
    if bias_D is not None:
        y_ND += bias_D
    return y_ND


def rms_norm(
    x_ND: np.ndarray, weight_D: np.ndarray, epsilon: float, residual_ND: np.ndarray | None = None
) -> np.ndarray:
    """Root mean square normalisation (Zhang and Sennrich 2019) of x + residual."""
    if residual_ND is not None:
        x_ND = x_ND + residual_ND
    y_ND = x_ND / np.sqrt(np.square(x_ND).mean(axis=1, keepdims=True) + epsilon)
    y_ND *= weight_D
    return y_ND


def embed(
    ids_N: np.ndarray,
    table: Tensor | PackedLinear,
    scale: float = 1.0,
    positions_N: np.ndarray | None = None,
    position_table_PD: np.ndarray | None = None,
) -> np.ndarray:
    """table[ids] * scale + position_table[positions]; the id -1 stands for a row of zeros.

    table  [V, D], or the weights of the linear layer that is tied to it.
    """
    if isinstance(table, QuantizedTensor):
        x_ND = QuantizedTensor(table.values_FD[ids_N], table.multipliers_F[ids_N]).float32()
    else:
        x_ND = (table.weight_FD if isinstance(table, PackedLinear) else table)[ids_N]
    x_ND[ids_N < 0] = 0
    if scale != 1.0:
        x_ND *= scale
    if position_table_PD is not None:
        x_ND += position_table_PD[positions_N]
    return x_ND


def write_rows(table_ME: np.ndarray, rows_N: np.ndarray, values_NE: np.ndarray, first_column: int) -> None:
    """Row n of the values, from ``first_column`` on, becomes row rows_N[n] of the table; in uint16 as bfloat16."""
    values_NE = values_NE[:, first_column:]
    table_ME[rows_N, : values_NE.shape[1]] = bfloat16_bits(values_NE) if table_ME.dtype == np.uint16 else values_NE


def round_rows(values_NE: np.ndarray, first_column: int) -> None:
    """The values from ``first_column`` on become the nearest bfloat16, in place."""
    values_NE[:, first_column:] = as_floats(bfloat16_bits(values_NE[:, first_column:]))


def ssru(
    inputs_NE: np.ndarray,
    residual_ND: np.ndarray,
    states_MW: np.ndarray,
    previous_N: np.ndarray,
    rows_N: np.ndarray,
) -> np.ndarray:
    """relu(c) + residual of a simpler simple recurrent unit (Kim 2019), c = s(f) c' + (1 - s(f)) x, a row at a time.

    inputs_NE  x, then f, of which s is the sigmoid.
    states_MW  W >= D; c' is the row ``previous_N[n]``, or zeros where that is -1; c is written to ``rows_N[n]``.
    """
    D = residual_ND.shape[1]
    y_ND = np.empty_like(residual_ND)
    for n, (previous, row) in enumerate(zip(previous_N, rows_N)):
        forget_D = _sigmoid(inputs_NE[n, D:])
        before_D = states_MW[previous, :D] if previous >= 0 else np.zeros_like(forget_D)
        states_MW[row, :D] = forget_D * before_D + (1 - forget_D) * inputs_NE[n, :D]
        y_ND[n] = np.maximum(states_MW[row, :D], 0) + residual_ND[n]
    return y_ND


def running_average(
    x_ND: np.ndarray, states_MW: np.ndarray, previous_N: np.ndarray, rows_N: np.ndarray, positions_N: np.ndarray
) -> np.ndarray:
    """The average of each row and the ``positions_N`` before it (Zhang 2018); their sums are states as in ``ssru``."""
    D = x_ND.shape[1]
    y_ND = np.empty_like(x_ND)
    for n, (previous, row) in enumerate(zip(previous_N, rows_N)):
        states_MW[row, :D] = x_ND[n] + (states_MW[previous, :D] if previous >= 0 else 0)
        y_ND[n] = states_MW[row, :D] / x_ND.dtype.type(positions_N[n] + 1)
    return y_ND


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-softmax over the last axis, in place; a row of nothing but -inf stays so."""
    top = logits.max(axis=-1, keepdims=True)
    top[np.isneginf(top)] = 0
    logits -= top
    total = np.exp(logits).sum(axis=-1, keepdims=True)
    total[total == 0] = 1
    logits -= np.log(total)
    return logits


def project_all(
    x_RD: np.ndarray,
    packed: PackedLinear,
    suppressed_RJ: np.ndarray | None = None,
    penalised_RJ: np.ndarray | None = None,
    penalty: float = 1.0,
) -> np.ndarray:
    """Log-softmax of x W' + b over all outputs: log_probs_RV.

    penalised_RJ   ids, each once a row and padded with -1, whose logits are divided by ``penalty`` where they are
                   positive and multiplied by it where negative (Keskar 2019, section 4.1).
    suppressed_RJ  ids, padded with -1, whose logits count as -inf before the softmax.
    """
    return log_softmax(_logits(x_RD, packed, suppressed_RJ, penalised_RJ, penalty))


def _logits(
    x_RD: np.ndarray,
    packed: PackedLinear,
    suppressed_RJ: np.ndarray | None,
    penalised_RJ: np.ndarray | None,
    penalty: float,
) -> np.ndarray:
    logits_RV = linear(x_RD, packed)
    if penalised_RJ is not None:
        rows, ids = _listed(penalised_RJ)
        before = logits_RV[rows, ids]
        factor = logits_RV.dtype.type(penalty)
        logits_RV[rows, ids] = np.where(before < 0, before * factor, before / factor)
    if suppressed_RJ is not None:
        logits_RV[_listed(suppressed_RJ)] = -np.inf
    return logits_RV


def _listed(ids_RJ: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows, ids) of what is not padding."""
    rows, columns = np.nonzero(ids_RJ >= 0)
    return rows, ids_RJ[rows, columns]


def project_top_k(
    x_RD: np.ndarray,
    packed: PackedLinear,
    k: int,
    suppressed_RJ: np.ndarray | None = None,
    penalised_RJ: np.ndarray | None = None,
    penalty: float = 1.0,
    normalised: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """The k most probable of ``project_all``: (log_probs_Rk, ids_Rk int32), best first, ties to the lower id.

    Not ``normalised``: their logits in place of log-probabilities.
    """
    logits_RV = _logits(x_RD, packed, suppressed_RJ, penalised_RJ, penalty)
    return _best(log_softmax(logits_RV) if normalised else logits_RV, k)


def _best(log_probs_RV: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    ids_Rk = np.empty((len(log_probs_RV), k), np.int32)
    for r, row_V in enumerate(log_probs_RV):
        # argpartition alone would break ties by chance.
        least = np.partition(row_V, len(row_V) - k)[len(row_V) - k]
        candidates = np.flatnonzero(row_V >= least)
        ids_Rk[r] = candidates[np.argsort(-row_V[candidates], kind="stable")[:k]]
    return np.take_along_axis(log_probs_RV, ids_Rk.astype(np.int64), axis=1), ids_Rk


def log_probs(
    x_ND: np.ndarray,
    packed: PackedLinear,
    targets_N: np.ndarray,
    suppressed_NJ: np.ndarray | None = None,
    penalised_NJ: np.ndarray | None = None,
    penalty: float = 1.0,
) -> np.ndarray:
    """``project_all`` at one target id a row."""
    log_probs_NV = project_all(x_ND, packed, suppressed_NJ, penalised_NJ, penalty)
    return log_probs_NV[np.arange(len(log_probs_NV)), targets_N]


class Picked:
    """Some outputs of a linear layer, from which a row chooses; ids int32, rising."""

    def __init__(self, linear: PackedLinear, ids: np.ndarray):
        self.linear, self.ids = linear, ids


def pack_rows(weight_FD: Tensor, packed: PackedLinear) -> PackedLinear:
    """The weights that ``packed`` was made of, for ``pick``."""
    return packed


def pick(linear: PackedLinear, ids: np.ndarray) -> Picked:
    """The outputs ``ids`` of the layer."""
    return Picked(linear, ids)


def picked_all(
    x_RD: np.ndarray,
    picked_R: Sequence[Picked],
    suppressed_RJ: np.ndarray | None = None,
    penalised_RJ: np.ndarray | None = None,
    penalty: float = 1.0,
) -> np.ndarray:
    """``project_all`` of rows that choose from the outputs picked for each: the logits of all others are -inf."""
    return log_softmax(_picked_logits(x_RD, picked_R, suppressed_RJ, penalised_RJ, penalty))


def _picked_logits(x_RD: np.ndarray, picked_R: Sequence[Picked], *edits: Any) -> np.ndarray:
    logits_RV = _logits(x_RD, picked_R[0].linear, *edits)
    for logits_V, picked in zip(logits_RV, picked_R):
        others = np.ones(len(logits_V), bool)
        others[picked.ids] = False
        logits_V[others] = -np.inf
    return logits_RV


def picked_top_k(
    x_RD: np.ndarray,
    picked_R: Sequence[Picked],
    k: int,
    suppressed_RJ: np.ndarray | None = None,
    penalised_RJ: np.ndarray | None = None,
    penalty: float = 1.0,
    normalised: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """The k most probable of ``picked_all``, as ``project_top_k`` gives them."""
    logits_RV = _picked_logits(x_RD, picked_R, suppressed_RJ, penalised_RJ, penalty)
    return _best(log_softmax(logits_RV) if normalised else logits_RV, k)


def picked_log_probs(
    x_RD: np.ndarray,
    picked_R: Sequence[Picked],
    targets_R: np.ndarray,
    suppressed_RJ: np.ndarray | None = None,
    penalised_RJ: np.ndarray | None = None,
    penalty: float = 1.0,
) -> np.ndarray:
    """``picked_all`` at one target id a row."""
    log_probs_RV = picked_all(x_RD, picked_R, suppressed_RJ, penalised_RJ, penalty)
    return log_probs_RV[np.arange(len(log_probs_RV)), targets_R]


@contextmanager
def use_threads(threads: int) -> Iterator[None]:
    """Changes nothing: the threads of NumPy's matrix products are its own affair."""
    yield


def current_threads() -> int:
    """How many threads the operations use, as far as they know."""
    return 1


def thread_limit() -> int:
    """How many threads this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
