"""Encoders of every variety on the kernels and on the reference; tests/architectures has transformers' rows."""

import math
import threading
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.errors import InputError
from fastattn.layers.parameters import Parameters
from fastattn.models.encoder import Head
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.runtime.recording import StepRecorder
from fastattn.spec import architecture as arch
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.tensors import head_shapes
from tests.messages import refused
from tests.models.encoder_cases import CASES, EncoderCase, make_checkpoint
from tests.models.tiny_models import stack_spec

OPS = {"kernels": operations, "reference": reference}


@pytest.fixture(params=OPS, scope="module")
def ops(request: pytest.FixtureRequest) -> ModuleType:
    return OPS[request.param]


def _stack(positions: str, pre_norm: bool, **more: Any) -> arch.StackSpec:
    keywords: dict[str, Any] = {
        "layers": 2, "width": 20, "heads": 4, "key_heads": 4 if positions == "disentangled" else 2, "head_width": 6,
        "inner_width": 33, "vocabulary": 50, "activation": "swish" if pre_norm else "gelu", "gated": pre_norm,
        "norm": "rms" if pre_norm else "layer", "pre_norm": pre_norm, "final_norm": pre_norm,
        "embedding_norm": not pre_norm, "embedding_scale": 20**0.5, "positions": positions,
        "max_positions": 32 if positions == "table" else 0, "relative_buckets": 8, "relative_max_distance": 10,
    }  # fmt: skip
    own: dict[str, Any] = {
        "rotary": arch.Rotary(4, interleaved=pre_norm), "alibi": arch.Alibi(scaled=pre_norm),
        "disentangled": arch.Disentangled(shared=pre_norm, norm=pre_norm),
    }  # fmt: skip
    keywords |= {positions: own[positions]} if positions in own else {}
    return stack_spec(**(keywords | more))


LOCAL = arch.LocalSpec((1, 2), before=4, after=3, rotary=arch.Rotary(6, base=100.0))
TO_CONTENT = arch.Disentangled(to_position=False)
LEARNED: dict[str, Any] = {"learned_positions": True, "max_positions": 32}
VARIETIES = {f"{where}-{norm}": _stack(where, norm) for where in arch.POSITIONS for norm in (False, True)} | {
    "local": _stack("rotary", True, layers=3, local=LOCAL, first_norm=False, embedding_norm=True),
    "causal-head-norms": _stack("rotary", True, causal=True, head_norms=True),
    "causal-local": _stack("none", False, layers=3, causal=True, local=arch.LocalSpec((0, 2), 5, 9)),
    "output-norms": _stack("rotary", True, head_norms=True, output_norms=True),
    "typed": _stack("table", False, token_types=3),
    "typed-alone": _stack("alibi", False, token_types=2, alibi=arch.Alibi(symmetric=True)),
    "relative-learned": _stack("relative", False, **LEARNED),
    "narrow-embedding": _stack("table", False, embedding_width=7, token_types=2),
    "narrow-before-norm": _stack("table", False, embedding_width=7, norm_after_projection=True),
    "distances-alone": _stack("disentangled", False, relative_buckets=0, disentangled=TO_CONTENT),
    "distances-learned": _stack("disentangled", False, disentangled=arch.Disentangled(to_content=False), **LEARNED),
    "convolution": _stack("disentangled", False, convolution=arch.Convolution(5, "gelu")),
    **{case.name: case.spec for case in CASES if case.spec.vocabulary >= 50 and case.spec.width < 80},
}


def _checkpoint(spec: arch.StackSpec) -> Checkpoint:
    return make_checkpoint(EncoderCase("variety", spec))


def _sentences(lengths: list[int], vocabulary: int = 50) -> list[np.ndarray]:
    return [np.random.default_rng(n).integers(0, vocabulary, n).astype(np.int32) for n in lengths]


@pytest.mark.parametrize("spec", VARIETIES.values(), ids=VARIETIES)
def test_kernels_agree_with_the_reference(spec: arch.StackSpec) -> None:
    checkpoint, ids_B = _checkpoint(spec), _sentences([5, 0, 17, 1])
    oracle = replace(checkpoint, tensors={name: x.astype(np.float64) for name, x in checkpoint.tensors.items()})
    expected_ND, expected_starts_B1 = build_model(oracle, reference).encode(ids_B)
    rows_ND, starts_B1 = build_model(checkpoint, operations).encode(ids_B)
    np.testing.assert_array_equal(starts_B1, expected_starts_B1)
    assert expected_ND.dtype == np.float64 and rows_ND.dtype == np.float32
    assert np.abs(rows_ND - expected_ND).max() <= 1e-5 * np.abs(expected_ND).max()
    ids_B = _sentences([5, 0, 17, 1, 9, 30])
    exact_ND, _ = build_model(checkpoint, reference).encode(ids_B)
    scale = np.abs(exact_ND).mean()
    for precision in ("bfloat16", "int8"):
        oracle_ND, _ = build_model(checkpoint, reference, precision).encode(ids_B)
        rows_ND, _ = build_model(checkpoint, operations, precision).encode(ids_B)
        differences_ND, rounding_ND = np.abs(rows_ND - oracle_ND), np.abs(oracle_ND - exact_ND)
        # but for the rare value that two roundings of float32 put on either side of a step
        assert np.median(differences_ND) < 1e-5 * scale and differences_ND.mean() < rounding_ND.mean() / 8
        assert 1e-4 * scale < rounding_ND.mean() < 0.1 * scale


@pytest.fixture(scope="module", params=["float32", "bfloat16", "int8"])
def models(request: pytest.FixtureRequest) -> list[Any]:
    return [build_model(_checkpoint(spec), operations, request.param) for spec in VARIETIES.values()]


@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(0, 30), min_size=1, max_size=6), data=st.data())
def test_a_sentence_has_the_same_bits_whatever_its_neighbours(models: Any, lengths: list[int], data: Any) -> None:
    model = data.draw(st.sampled_from(models))
    order = data.draw(st.permutations(range(len(lengths))))
    ids_B = _sentences(lengths)
    rows_ND, starts_B1 = model.encode([ids_B[b] for b in order])
    for place, b in enumerate(order):
        with operations.use_threads(1):
            alone_TD, _ = model.encode([ids_B[b]])
        np.testing.assert_array_equal(rows_ND[starts_B1[place] : starts_B1[place + 1]], alone_TD)


@pytest.mark.parametrize("spec", VARIETIES.values(), ids=VARIETIES)
def test_states_and_first_rows_have_the_bits_of_a_whole_pass(spec: arch.StackSpec) -> None:
    model, ids_B = build_model(_checkpoint(spec), operations), _sentences([5, 17, 1, 30])
    states, (rows_ND, _) = list(model.encoder.states(ids_B[1])), model.encode(ids_B[1:2])
    assert len(states) == 1 + spec.layers + 1
    np.testing.assert_array_equal(states[-1], rows_ND)
    assert all(np.abs(a - b).max() > 0.01 for a, b in zip(states[: spec.layers], states[1:]))  # none is written over
    if not spec.norms.final:
        assert states[-1] is states[-2]
    for ops in OPS.values():
        model = build_model(_checkpoint(spec), ops)
        rows_ND, starts_B1 = model.encode(ids_B)
        first_BD, first_B1 = model.encoder.encode_first(ids_B)
        np.testing.assert_array_equal(first_B1, np.arange(5))
        difference = np.abs(first_BD - rows_ND[starts_B1[:-1]]).max()
        assert difference == 0 if ops is operations else difference < 1e-5


@pytest.mark.parametrize("spec", VARIETIES.values(), ids=VARIETIES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_a_recorded_pass_has_the_bits_of_the_layers(spec: arch.StackSpec, precision: str) -> None:
    """A length's first two sequences go through the layers, further ones through recorded calls."""
    encoder = build_model(_checkpoint(spec), operations, precision).encoder
    ids_B = [
        np.random.default_rng(seed).integers(0, 47, length) for seed, length in enumerate([9, 5, 9, 9, 1, 5, 9, 5])
    ]
    rows_ND, starts_B1 = encoder.encode(ids_B)  # a batch is not recorded
    layers_only = build_model(_checkpoint(spec), operations, precision).encoder
    layers_only._recorded_stack = None
    for b, ids in enumerate(ids_B):
        np.testing.assert_array_equal(encoder.encode([ids])[0], rows_ND[starts_B1[b] : starts_B1[b + 1]])
        np.testing.assert_array_equal(encoder.encode_first([ids])[0], layers_only.encode_first([ids])[0])
    passes = encoder._recorded_stack._passes
    assert {(length, first_only) for length, _, first_only in passes} == {(9, False), (9, True), (5, False), (5, True)}
    is_recordable = spec.convolution is None and spec.output_scale == 1.0
    assert all((recorded is not None) == is_recordable for recorded in passes.values())


def test_recorded_passes_of_several_threads_keep_apart() -> None:
    encoder = build_model(_checkpoint(VARIETIES["rotary-True"]), operations, "int8").encoder
    ids_B = _sentences([20, 30, 20, 30])
    expected = [encoder.encode([ids])[0] for ids in ids_B for _ in range(2)][::2]
    wrong: list[int] = []

    def repeat(b: int) -> None:
        wrong.extend(b for _ in range(300) if not np.array_equal(encoder.encode([ids_B[b]])[0], expected[b]))

    threads = [threading.Thread(target=repeat, args=(b,)) for b in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and all(encoder._recorded_stack._passes.values())


def test_programs_wait_while_numbas_threads_run_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, ids_B = build_model(_checkpoint(VARIETIES["rotary-True"]), operations).encoder, _sentences([9])
    expected_ND = [encoder.encode(ids_B)[0] for _ in range(3)][0]
    (recorded,) = encoder._recorded_stack._passes.values()
    recorded.input_ND.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        encoder.encode(ids_B)
    monkeypatch.setattr(StepRecorder, "is_usable", False)
    np.testing.assert_array_equal(encoder.encode(ids_B)[0], expected_ND)


@pytest.mark.parametrize("place", [0, -1])
def test_layers_that_read_what_a_kernel_wrote_are_not_recorded(place: int) -> None:
    encoder = build_model(_checkpoint(VARIETIES["rotary-True"]), operations).encoder
    sublayers = encoder.stack._sublayers
    sublayer = sublayers[place]
    sublayers[place] = lambda x_ND, rows: sublayer(x_ND, rows) + np.float32(1)
    rows = [encoder.encode(_sentences([9]))[0] for _ in range(4)]
    assert all(np.array_equal(rows[0], other) for other in rows) and not any(encoder._recorded_stack._passes.values())


def test_what_comes_behind_the_seen_ids_changes_nothing_before(ops: ModuleType) -> None:
    """All attend to the first ids alone, so these have the rows of a sentence that ends there."""
    model, ids_B = build_model(_checkpoint(VARIETIES["rotary-True"]), ops), _sentences([9, 4, 17])
    visible_B = [5, 4, 11]
    rows_ND, starts_B1 = model.encode(ids_B, visible_B=visible_B)
    expected_ND, _ = model.encode([ids[:n] for ids, n in zip(ids_B, visible_B)])
    found = [rows_ND[start : start + n] for start, n in zip(starts_B1, visible_B)]
    np.testing.assert_allclose(np.concatenate(found), expected_ND, atol=1e-5)


def test_no_sentences_and_empty_ones(ops: ModuleType) -> None:
    model = build_model(_checkpoint(VARIETIES["none-False"]), ops)
    for ids_B in ([], [np.zeros(0, np.int32)] * 3):
        rows_ND, starts_B1 = model.encode(ids_B)
        assert rows_ND.shape == (0, 20)
        np.testing.assert_array_equal(starts_B1, np.zeros(len(ids_B) + 1))


def test_what_the_model_cannot_take_is_an_input_error() -> None:
    model, long = build_model(_checkpoint(VARIETIES["table-False"]), reference), _sentences([33])
    for call, *arguments in (
        (model.encode, long),
        (model.encoder.states, long[0]),
        (model.encode, [np.array([1, 50], np.int32)]),
        (model.encode, [np.array([1, -2], np.int32)]),
    ):
        with refused(InputError):
            call(*arguments)


WIDTH = 19
STARTS_B1 = np.array([0, 3, 4, 11], np.int64)
UNBIASED = arch.NormSpec("layer", 1e-5, biases=False)
HEADS = {
    "one layer": arch.HeadSpec("first", 5),
    "no bias": arch.HeadSpec("last", 1, bias=False),
    "each row": arch.HeadSpec("each", 7),
    "tanh": arch.HeadSpec("mean", 2, inner_width=WIDTH),
    "a norm": arch.HeadSpec("each", 40, inner_width=11, activation="gelu", norm=arch.NormSpec("layer", 1e-12)),
    "a norm without biases": arch.HeadSpec("mean", 3, True, 23, False, "relu", UNBIASED),
    "a root mean square norm": arch.HeadSpec("last", 3, True, 8, True, "sigmoid", arch.NormSpec("rms", 1e-6)),
}
ACTIVATIONS = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2,
}


def by_formula(spec: arch.HeadSpec, tensors: dict[str, np.ndarray], rows_ND: np.ndarray) -> np.ndarray:
    take: Any = {"first": lambda rows: rows[:1], "last": lambda rows: rows[-1:], "each": lambda rows: rows}
    take["mean"] = lambda rows: rows.mean(axis=0, keepdims=True)
    x = np.concatenate([take[spec.rows](rows) for rows in np.split(rows_ND, STARTS_B1[1:-1])]).astype(np.float64)
    if spec.inner_width:
        x = ACTIVATIONS[spec.activation](x @ tensors["head.inner.weight"].T + tensors.get("head.inner.bias", 0))
    if spec.norm is not None:
        x = x - x.mean(axis=1, keepdims=True) * (spec.norm.kind == "layer")
        x = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + spec.norm.epsilon)
        x = x * tensors["head.norm.weight"] + tensors.get("head.norm.bias", 0)
    return x @ tensors["head.output.weight"].T + tensors.get("head.output.bias", 0)


@pytest.mark.parametrize("variety", HEADS)
def test_a_head_is_its_formula(variety: str) -> None:
    spec, rng = HEADS[variety], np.random.default_rng(1)
    tensors = {name: rng.normal(size=shape).astype(np.float32) for name, shape in head_shapes(spec, WIDTH).items()}
    rows_ND = np.random.default_rng(2).normal(size=(11, WIDTH)).astype(np.float32)
    for ops in OPS.values():
        for precision in ("float32", "int8"):  # of the encoder: the head's is float32
            found = Head(Parameters(tensors, ops, precision), spec)(rows_ND, STARTS_B1)
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, by_formula(spec, tensors, rows_ND), atol=1e-4)
