"""Recurrent layers: PyTorch's numbers, and the same bits whatever the batch, the threads and the calls."""

import numpy as np
import pytest

from bench.operations.table import normal, starts_of
from fastattn.arguments.recurrent import States
from fastattn.kernels.arguments import MR, NR
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.runtime import recording
from fastattn.spec.quantized import take
from fastattn.spec.recurrent import CELLS
from tests import ROOT
from tests.kernels.recurrent_cases import NUMBER, draw, run

PRECISIONS = ("float32", "bfloat16", "int8")
# Rounding a state to the next step of int8 or bfloat16 changes what follows by as much, here and there.
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2, "int8": 4e-2}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_stacks_are_those_of_pytorch(precision: str) -> None:
    for seed in range(NUMBER):
        stack = draw(seed)
        with np.load(ROOT / "tests/goldens/recurrent.npz") as golden:
            expected = golden[f"rows_{seed}"], golden[f"states_{seed}"]
        oracle = run(reference, stack, precision)
        for found, own, theirs in zip(run(operations, stack, precision), oracle, expected, strict=True):
            if precision == "float32":
                np.testing.assert_allclose(found, theirs, rtol=0, atol=1e-5)
            np.testing.assert_allclose(found, own, rtol=0, atol=TOLERANCE[precision])


class Layer:
    """One layer of two directions, packed, with states to go on from in the first rows of its table."""

    def __init__(self, cell: str, precision: str, units: int, directions: int = 2, sentences: int = 40):
        gates, parts = CELLS[cell]
        rng = np.random.default_rng(units)
        self.cell, self.units, self.states = cell, units, directions * units
        order_F = operations.gate_rows(gates, units)
        self.weights = [
            operations.pack_linear(
                take(normal(rng, gates * units, units) / np.float32(units) ** 0.5, order_F),
                take(normal(rng, gates * units), order_F),
                precision,
            )
            for _ in range(directions)
        ]
        self.inputs, self.rng = directions * len(order_F), rng
        self.table_MW = normal(rng, 2 * sentences, parts * self.states)

    def __call__(self, inputs_NE, lengths, previous_B, table_MW=None):
        """(rows, last states) of sentences."""
        before_MW, B = self.table_MW if table_MW is None else table_MW, len(lengths)
        after_MW, rows_B = np.full((B, self.table_MW.shape[1]), np.nan, np.float32), np.arange(B, dtype=np.int32)
        places = States(before_MW, np.asarray(previous_B, np.int32), after_MW, rows_B, 0, self.states)
        starts_B1 = starts_of(tuple(lengths))
        return operations.recur(inputs_NE, self.weights, self.cell, self.units, starts_B1, places), after_MW


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(("units", "directions"), [(5, 2), (NR + 3, 2), (5 * NR, 2), (5 * NR, 1)])
def test_a_sentence_does_not_depend_on_the_others_or_the_threads(
    units: int, directions: int, cell: str, precision: str
) -> None:
    layer = Layer(cell, precision, units, directions)
    lengths = [3, 0, 1, 9, 9, 2, 1] + [4] * (2 * MR + 1)
    starts, previous = starts_of(tuple(lengths)), layer.rng.integers(-1, 9, len(lengths))
    inputs_NE = normal(layer.rng, int(starts[-1]), layer.inputs)
    with operations.use_threads(1):
        rows, states = layer(inputs_NE, lengths, previous)
    with operations.use_threads(2):
        for one, other in zip(layer(inputs_NE, lengths, previous), (rows, states), strict=True):
            np.testing.assert_array_equal(one, other)
        for b, length in enumerate(lengths):
            mine = slice(starts[b], starts[b + 1])
            alone, state = layer(inputs_NE[mine], [length], previous[b : b + 1])
            np.testing.assert_array_equal(alone, rows[mine])
            np.testing.assert_array_equal(state[0], states[b])


@pytest.mark.parametrize("is_recorded", [True, False])
def test_threads_share_the_steps_of_one_sentence(is_recorded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, run = [], recording.run_program
    monkeypatch.setattr(recording, "run_program", lambda *given: calls.append(given) or run(*given))
    if not is_recorded:  # as where only Numba's public interface compiles
        monkeypatch.setattr(recording.StepRecorder, "record", lambda self, function: None)
    layer, T = Layer("lstm", "float32", 240 // NR * NR, directions=1), 7  # enough for two, whatever a panel has
    inputs_NE = normal(layer.rng, T, layer.inputs)
    with operations.use_threads(1):
        expected = layer(inputs_NE, [T], [3])
    assert not calls
    with operations.use_threads(2):
        for found, own in zip(layer(inputs_NE, [T], [3]), expected, strict=True):
            np.testing.assert_array_equal(found, own)
    assert len(calls) == is_recorded


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("cell", CELLS)
def test_steps_have_the_bits_of_whole_sentences(cell: str, precision: str) -> None:
    for sentences in (1, 2, MR + 1):
        layer, T = Layer(cell, precision, NR + 5, directions=1), 4
        inputs_BTE = normal(layer.rng, sentences, T, layer.inputs)
        previous = np.arange(-1, sentences - 1)
        rows, states = layer(inputs_BTE.reshape(-1, layer.inputs), [T] * sentences, previous)
        table = None
        for t in range(T):
            inputs_NE = np.ascontiguousarray(inputs_BTE[:, t])
            step, table = layer(inputs_NE, [1] * sentences, previous if t == 0 else np.arange(sentences), table)
            np.testing.assert_array_equal(step, rows.reshape(sentences, T, -1)[:, t])
        np.testing.assert_array_equal(table, states)


def test_no_state_has_the_bits_of_a_state_of_zeros() -> None:
    for cell in CELLS:
        for precision in PRECISIONS:
            layer, lengths = Layer(cell, precision, NR + 5), [3, 1, 5]
            layer.table_MW[0] = 0
            inputs_NE = normal(layer.rng, sum(lengths), layer.inputs)
            expected = layer(inputs_NE, lengths, [0, 0, 0])
            for previous in ([-1, -1, -1], [-1, 0, -1]):
                for found, own in zip(layer(inputs_NE, lengths, previous), expected, strict=True):
                    np.testing.assert_array_equal(found, own)


def test_states_of_bfloat16_go_on_as_float32() -> None:
    layer = Layer("lstm", "float32", 21)
    inputs_NE, bits = normal(layer.rng, 3, layer.inputs), (layer.table_MW.view(np.uint32) >> 16).astype(np.uint16)
    rounded = (bits.astype(np.uint32) << 16).view(np.float32)
    for found, own in zip(*(layer(inputs_NE, [2, 1], [4, 2], table) for table in (bits, rounded)), strict=True):
        np.testing.assert_array_equal(found, own)


def test_nan_stays_in_its_sentence() -> None:
    layer = Layer("lstm", "int8", NR)
    inputs_NE = normal(layer.rng, 6, layer.inputs)
    expected, _ = layer(inputs_NE, [2, 2, 2], [-1] * 3)
    inputs_NE[2, 0] = np.nan
    found, _ = layer(inputs_NE, [2, 2, 2], [-1] * 3)
    np.testing.assert_array_equal(found[[0, 1, 4, 5]], expected[[0, 1, 4, 5]])
    assert np.isnan(found[2:4]).any()
