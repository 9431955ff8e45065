"""Decoders that look back without attention: their steps by hand, and the same bits in any company."""

import numpy as np
import pytest

from fastattn.ops import cpu as operations
from fastattn.ops import reference
from tests.decoding.searching import check_scores, search, tokens_of
from tests.models.pairs import pairs
from tests.models.tiny_models import VARIETIES, full_pass, random_checkpoint, random_model, random_sources, stepped

RECURRENT = ("recurrent", "recurrent pre-norm", "average", "average pre-norm", "plain average")
PRECISIONS = ("float32", "bfloat16", "int8")


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _norm(x_D, tensors, name):
    centred_D = x_D - x_D.mean()
    scaled_D = centred_D / np.sqrt((centred_D**2).mean() + 1e-5)
    return scaled_D * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]


def _product(x_D, tensors, name):
    return tensors[f"{name}.weight"] @ x_D + tensors[f"{name}.bias"]


def _ssru(x_TD, tensors, spec):
    """Kim 2019, equations 1 to 3 with the reset gate left out, token by token."""
    name, cell_D, out = "decoder.layers.1.ssru", np.zeros(spec.width), []
    for x_D in x_TD:
        inside_D = _norm(x_D, tensors, f"{name}.norm") if spec.norms.before else x_D
        value_D, forget_D = np.split(_product(inside_D, tensors, f"{name}.input"), 2)
        cell_D = _sigmoid(forget_D) * cell_D + (1 - _sigmoid(forget_D)) * value_D
        y_D = x_D + np.maximum(cell_D, 0)
        out.append(y_D if spec.norms.before else _norm(y_D, tensors, f"{name}.norm"))
    return np.array(out)


def _average(x_TD, tensors, spec):
    """Zhang 2018 as Marian has it: the gates see the input and the average apart."""
    name, out = "decoder.layers.1.average_attention", []
    for t, x_D in enumerate(x_TD):
        y_D = x_TD[: t + 1].mean(axis=0)
        if spec.norms.before:
            y_D = _norm(y_D, tensors, f"{name}.norm")
        if spec.recurrence.inner_width:
            inner_F = _product(y_D, tensors, f"{name}.inner")
            y_D = _product(inner_F * _sigmoid(inner_F), tensors, f"{name}.outer")
        if spec.recurrence.gates:
            input_gate_D = _sigmoid(_product(x_D, tensors, f"{name}.input_gate"))
            y_D = input_gate_D * x_D + _sigmoid(_product(y_D, tensors, f"{name}.forget_gate")) * y_D
        out.append(x_D + y_D if spec.norms.before else _norm(x_D + y_D, tensors, f"{name}.norm"))
    return np.array(out)


class _Positions:
    """One sequence of T rows, whose states are kept in float64."""

    def __init__(self, length, width):
        self.table_TD = np.zeros((length, width))
        self.positions_N = np.arange(length, dtype=np.int32)

    def states(self, layer, x_TD):
        assert layer == 1 and x_TD.shape == self.table_TD.shape
        return self.table_TD, self.positions_N - np.int32(1), self.positions_N


@pytest.mark.parametrize("variety", RECURRENT)
def test_a_layer_is_the_formula_by_hand(variety):
    checkpoint = random_checkpoint(seed=3, dtype=np.float64, **VARIETIES[variety])
    model = random_model(seed=3, dtype=np.float64, **VARIETIES[variety])
    spec = checkpoint.spec.decoder
    x_TD = np.random.default_rng(0).normal(size=(9, spec.width))
    by_hand = _ssru if spec.recurrence.kind == "ssru" else _average
    rows = _Positions(9, spec.width)
    found_TD = model.decoder.blocks[1].mixer(x_TD, rows)
    expected_TD = by_hand(x_TD, checkpoint.tensors, spec)
    np.testing.assert_allclose(found_TD, expected_TD, rtol=1e-12, atol=1e-12)
    assert np.abs(expected_TD[5:] - by_hand(x_TD[5:], checkpoint.tensors, spec)).max() > 1e-3, "the past should matter"


@pytest.mark.parametrize(("variety", "precision", "prefill"), pairs(RECURRENT, PRECISIONS, [0, 3]))
def test_a_cached_step_has_the_bits_of_the_full_pass(variety, precision, prefill):
    model = random_model(seed=1, ops=operations, precision=precision, **VARIETIES[variety])
    sources, targets = random_sources(5, seed=2), random_sources(5, seed=3, shortest=3, longest=37)
    # attention_step and attention differ in their last bits, so the cross-attention is left with one key to see
    sources = [source[:1] for source in sources]
    hidden_ND, _, starts_B1 = full_pass(model, sources, targets)
    hidden, _ = stepped(model, sources, targets, prefill)
    np.testing.assert_array_equal(np.concatenate(hidden), hidden_ND)


def test_an_empty_sequence_takes_nothing_from_its_neighbours():
    model = random_model(seed=1, ops=operations, **VARIETIES["recurrent"])
    sources = random_sources(4, seed=2)
    targets = [np.array(ids, np.int32) for ids in ([3, 4], [], [5, 6, 7], [])]
    hidden_ND, _, _ = full_pass(model, sources, targets)
    alone_ND, _, _ = full_pass(model, sources[2:3], targets[2:3])
    np.testing.assert_array_equal(hidden_ND[2:], alone_ND)


@pytest.mark.parametrize("variety", RECURRENT)
def test_beams_score_as_a_full_pass_does(variety):
    check_scores(random_model(seed=9, dtype=np.float64, sharpness=4.0, **VARIETIES[variety]))


def test_a_state_takes_the_room_of_a_row_and_not_of_keys_and_values():
    recurrent, attending = random_model(**VARIETIES["recurrent"]), random_model()
    assert (set(recurrent.sizes.row_widths), set(recurrent.sizes.memory_widths)) == ({16}, {32})
    assert (set(attending.sizes.row_widths), set(attending.sizes.memory_widths)) == ({32}, {32})


def test_the_reference_decodes_recurrent_models_too():
    sources = random_sources(5, seed=3)
    for variety in RECURRENT:
        one, other = (
            search(random_model(4, ops, **VARIETIES[variety]), sources, beam_size=2) for ops in (reference, operations)
        )
        assert tokens_of(one) == tokens_of(other)
