"""A pointer network against the formula: every sequence of places scored, the best of them found by the beam."""

from itertools import permutations

import numpy as np
import pytest

from fastattn import weights
from fastattn.errors import CheckpointError, InputError
from fastattn.spec.architecture import ModelSpec
from fastattn.spec.checkpoint import ArrayInput, Checkpoint
from fastattn.spec.recurrent import MemoryAttention, Readout, RecurrentSpec
from fastattn.spec.tensors import tensor_shapes
from fastattn.translation.pointer import PointerNetwork
from tests.messages import refused
from tests.models.tiny_models import random_checkpoint
from tests.weights.recurrent.writer import pointer_files

MOST = 31


def checkpoint(cell="lstm"):
    readout = Readout(("hidden", "embedding"))
    encoder = RecurrentSpec(cell, 1, 6, 0, 2, readout=readout)
    decoder = RecurrentSpec(
        cell, 1, 6, MOST + 1, 2, memory=encoder.width, memory_states=encoder.states, initial="encoder", points=True,
        attention=MemoryAttention("additive", 1, width=7), projection_bias=False,
    )  # fmt: skip
    spec, rng = ModelSpec("encoder-decoder", encoder, decoder), np.random.default_rng(3)
    tensors = {name: rng.normal(0, 0.7, shape).astype(np.float32) for name, shape in tensor_shapes(spec).items()}
    tensors["decoder.attention.score.weight"] *= 4
    tensors["decoder.projection.weight"] = np.eye(MOST + 1, dtype=np.float32)
    return Checkpoint(spec, tensors, ArrayInput("NE", (0, 2)))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(t, name, x, h, c):
    gates = sum(
        t[f"{name}.{kind}.weight"] @ value + t[f"{name}.{kind}.bias"] for kind, value in (("input", x), ("state", h))
    )
    enter, forget, new, leave = np.split(gates, 4)
    c = sigmoid(forget) * c + sigmoid(enter) * np.tanh(new)
    return sigmoid(leave) * np.tanh(c), c


def log_probability(t, points, rows):
    """Of pointing at these rows and then at the end, in float64 by Vinyals's equations 2 and 3."""
    read = np.concatenate([np.zeros((1, 2)), points])
    h = c = np.zeros(6)
    encoded = []
    for x in read:
        h, c = lstm(t, "encoder.layers.0", x, h, c)
        encoded.append(np.concatenate([h, x]))
    keys = np.array(encoded) @ t["decoder.attention.key.weight"].T + t["decoder.attention.key.bias"]
    total, x = 0.0, read[0]
    for place in [*(row + 1 for row in rows), 0]:
        h, c = lstm(t, "decoder.layers.0", x, h, c)
        query = t["decoder.attention.query.weight"] @ h + t["decoder.attention.query.bias"]
        scores = np.tanh(keys + query) @ t["decoder.attention.score.weight"][0]
        total += scores[place] - np.log(np.exp(scores).sum())
        x = read[place]
    return total


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_scores_are_the_formulas(precision):
    made = checkpoint()
    exact = {name: tensor.astype(np.float64) for name, tensor in made.tensors.items()}
    points = [np.random.default_rng(seed).uniform(size=(4, 2)) for seed in range(3)]
    with PointerNetwork.from_checkpoint(made, precision) as network:
        for array, found in zip(points, network.point(points, beam_size=16, num_hypotheses=3)):
            assert found == network.point(array, beam_size=16, num_hypotheses=3)
            for pointing in found:
                expected = log_probability(exact, array, pointing.rows)
                assert pointing.score == pytest.approx(expected, abs=1e-5 if precision == "float32" else 0.05)


def test_a_wide_beam_finds_what_trying_all_does():
    made, points = checkpoint(), np.random.default_rng(9).uniform(size=(3, 2))
    exact = {name: tensor.astype(np.float64) for name, tensor in made.tensors.items()}
    with PointerNetwork.from_checkpoint(made, "float32") as network:
        found = network.point(points, beam_size=16, num_hypotheses=16)
    tried = [rows for count in (0, 1, 2) for rows in permutations(range(3), count)]
    assert max(log_probability(exact, points, rows) for rows in tried) <= max(one.score for one in found) + 1e-5


def test_threads_and_company_change_no_bit():
    made, rng = checkpoint(), np.random.default_rng(5)
    points = [rng.uniform(size=(n, 2)) for n in (1, 8, 3, 5, 8, 2)]
    with PointerNetwork.from_checkpoint(made, threads=1) as one, PointerNetwork.from_checkpoint(made, threads=2) as two:
        together = one.point(points)
        assert together == two.point(points) == [two.point(array) for array in points]
        assert all(max(found[0].rows, default=0) < len(x) for found, x in zip(together, points))


def test_what_never_points_to_the_end_points_as_often_as_there_are_places():
    made = checkpoint()
    made.tensors["decoder.attention.key.weight"][:, 6:] = 5
    made.tensors["decoder.attention.key.bias"][:] = -5  # of the end, whose row is zeros
    made.tensors["decoder.attention.score.weight"][:] = 10
    with PointerNetwork.from_checkpoint(made, "float32") as network:
        (found,) = network.point(np.ones((1, 2)), beam_size=1)
    assert found.rows == [0] * (MOST + 1)


def saved(folder, tensors):
    for name, data in pointer_files(tensors).items():
        (folder / name).write_bytes(data)
    return folder


def test_a_folder_with_a_mapping(tmp_path):
    made, points = checkpoint(), np.random.default_rng(7).uniform(size=(5, 2))
    with PointerNetwork(saved(tmp_path, made.tensors)) as read, PointerNetwork.from_checkpoint(made) as original:
        assert read.point(points, num_hypotheses=2) == original.point(points, num_hypotheses=2)
    found = weights.read(tmp_path)
    assert (found.spec, found.input) == (made.spec, made.input)


def test_arrays_that_are_no_pointer_networks(tmp_path):
    for name, wrong in (
        ("decoder.projection.weight", None),
        ("decoder.attention.key.weight", None),
        ("encoder.layers.0.input.weight", np.ones((24, 3), np.float32)),
        ("decoder.layers.0.input.weight", np.ones(24, np.float32)),
    ):
        tensors = {**checkpoint().tensors, name: wrong}
        with refused(CheckpointError):
            PointerNetwork(saved(tmp_path, {key: tensor for key, tensor in tensors.items() if tensor is not None}))


def test_other_inputs_and_options_are_refused():
    arrays = [np.zeros(shape) for shape in ((3, 3), (32, 2), (0, 2), 2)]
    arrays += [np.full((2, 2), np.nan), np.full((2, 2), 1e300), np.array([["a", "b"]])]
    with PointerNetwork.from_checkpoint(checkpoint()) as network:
        for inputs in (*(x for array in arrays for x in (array, [np.zeros((2, 2)), array])), None, 3, "ab"):
            with refused(InputError):
                network.point(inputs)
        for options in ({"beam_size": "4"}, {"beam_size": None}, {"num_hypotheses": 9}):
            with refused(InputError):
                network.point(np.ones((1, 2)), **options)
    with refused(CheckpointError):
        PointerNetwork.from_checkpoint(random_checkpoint())


def test_beams_have_room():
    with PointerNetwork.from_checkpoint(checkpoint()) as network:
        assert len(network.point(np.ones((1, 2)), beam_size=16)) == 1
        found = network.point(np.ones((1, 2)), beam_size=16, num_hypotheses=16)
        assert all(set(one.rows) <= {0} for one in found), "a place that there is not"
        with refused(InputError, "beam_size"):
            network.point(np.ones((1, 2)), beam_size=17)
        (found,) = network.point(np.random.default_rng(2).uniform(size=(MOST, 2)), beam_size=1)  # the longest input
        assert all(0 <= row < MOST for row in found.rows)
