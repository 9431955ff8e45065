"""Recurrent encoder-decoders against their twins, which are the papers' formulas; and the promises of every model."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

from fastattn.decoding.options import DecodingOptions
from fastattn.layers.draws import drawn_keys
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.ops.reference.project import log_softmax
from tests.decoding.searching import (
    check_company,
    check_scores,
    improbable,
    little_room,
    naive_beam,
    plain,
    score,
    search,
    tokens_of,
)
from tests.models.pairs import pairs
from tests.models.recurrent_varieties import RECURRENT, Twin, recurrent_checkpoint, recurrent_model, sigmoid, twin
from tests.models.tiny_models import (
    END,
    START,
    VARIETIES,
    full_pass,
    random_checkpoint,
    random_model,
    random_sources,
    stepped,
)

DEVICES = {"reference": (reference, np.float64, 1e-11), "cpu": (operations, np.float32, 1e-5)}
varieties = pytest.mark.parametrize("variety", RECURRENT)


def _check(model, variety, dtype, sequences, found, allowance, done=0):
    """Of each sequence the rows, and the weights of the tokens behind those that are done."""
    oracle = twin(variety, dtype=dtype)
    for sequence, (hidden_TD, weights_TS) in zip(sequences, found, strict=True):
        logits_TV, expected_TS = oracle.decode(*sequence)
        found_TV = model.output.all_log_probs(np.ascontiguousarray(hidden_TD))
        # logits are of some tens
        np.testing.assert_allclose(found_TV, log_softmax(logits_TV), rtol=0, atol=10 * allowance)
        if len(weights_TS):
            np.testing.assert_allclose(weights_TS, expected_TS[done:], rtol=0, atol=allowance)


@varieties
def test_a_pass_is_the_twin_s(variety):
    sources, targets = random_sources(6, seed=2), random_sources(6, seed=3, longest=14)
    for ops, dtype, allowance in DEVICES.values():
        model = recurrent_model(variety, ops=ops, dtype=dtype)
        attends = model.decoder.attention is not None
        hidden_ND, attention_NS, starts_B1 = full_pass(model, sources, targets, attends)
        found = [
            (hidden_ND[start:stop], attention_NS[start:stop, : len(source)] if attends else ())
            for source, start, stop in zip(sources, starts_B1, starts_B1[1:])
        ]
        _check(model, variety, dtype, zip(sources, targets), found, allowance)


@pytest.mark.parametrize(("variety", "device", "begins"), pairs(RECURRENT, DEVICES, [(0, 0), (3, 0), (0, 2)]))
def test_steps_are_the_twin_s(variety, device, begins):
    prefill, apart = begins
    ops, dtype, allowance = DEVICES[device]
    sources, targets = random_sources(5, seed=4), random_sources(5, seed=5, shortest=3, longest=14)
    model = recurrent_model(variety, ops=ops, dtype=dtype)
    found = zip(*stepped(model, sources, targets, prefill, model.decoder.attention is not None, apart))
    _check(model, variety, dtype, zip(sources, targets), found, allowance, prefill)


@pytest.mark.parametrize(("variety", "device", "searched"), pairs(RECURRENT, DEVICES, [(1, ()), (4, ()), (4, (7, 9))]))
def test_searches_find_what_brute_force_finds(variety, device, searched):
    beam, prefix = searched[0], list(searched[1])
    ops, dtype, _ = DEVICES[device]
    options = {"beam_size": beam, "num_hypotheses": beam, "max_decoding_length": 7}
    sources, oracle = random_sources(3, seed=12), twin(variety, dtype=dtype)

    def log_probs(source, tokens, suppressed):
        logits_TV, _ = oracle.decode(source, tokens)
        logits_TV[-1, list(suppressed)] = -np.inf
        return log_softmax(logits_TV[-1:])[0]

    results = search(recurrent_model(variety, ops=ops, dtype=dtype), sources, [prefix] * 3, **options)
    for source, hypotheses in zip(sources, results):
        expected = naive_beam(log_probs, source, DecodingOptions(**options), prefix)
        assert [h.tokens.tolist() for h in hypotheses] == [tokens for tokens, _ in expected]
        np.testing.assert_allclose([h.score for h in hypotheses], [value for _, value in expected], rtol=1e-4)


@varieties
def test_beams_score_as_a_full_pass_does(variety):
    source, target = random_sources(1, seed=6)[0], np.array([START, 7, 9, 3, END], np.int32)
    for ops, dtype, _ in DEVICES.values():
        model = recurrent_model(variety, ops=ops, dtype=dtype)
        check_scores(model)
        logits_TV, _ = twin(variety, dtype=dtype).decode(source, target[:-1])
        expected_T = log_softmax(logits_TV)[np.arange(4), target[1:]]
        np.testing.assert_allclose(score(model, [source], [target])[0], expected_T, atol=1e-4)


@varieties
def test_lower_precisions_are_near(variety):
    sources, targets = random_sources(20, seed=1, longest=30), random_sources(20, seed=2, longest=30)

    def log_probs(precision):
        return np.concatenate(score(recurrent_model(variety, ops=operations, precision=precision), sources, targets))

    exact = log_probs("float32")
    for precision in ("bfloat16", "int8"):
        assert 1e-3 < np.abs(log_probs(precision) - exact).mean() < 0.25, precision


SEARCHED = pairs(RECURRENT, ["float32", "int8"], [1, 4], [1, 2])


@pytest.mark.parametrize(("variety", "precision", "beam", "threads"), SEARCHED)
def test_company_and_threads_change_no_bit(variety, precision, beam, threads):
    model = recurrent_model(variety, ops=operations, precision=precision)
    check_company(model, [3, 0, 4, 1, 5, 2], 6, beam, 2, threads)


DRAWING = {"beam_size": 1, "sampling_topk": 0, "return_attention": True}
DRAWING |= dict.fromkeys(("min_decoding_length", "max_decoding_length"), 2)


def test_samples_of_hard_attention_follow_its_law():
    """The place, the token and the place behind it, each given those before (Xu 2015, section 4.1)."""
    checkpoint, source = recurrent_checkpoint("hard"), random_sources(1, seed=31)[0]
    checkpoint.tensors["decoder.projection.weight"] *= 0.3
    checkpoint.tensors["decoder.attention.key.weight"] *= 16
    model, oracle = build_model(checkpoint, operations, "float32"), Twin(checkpoint.spec, checkpoint.tensors)
    (found,) = search(model, [source], num_hypotheses=3000, seed=3, **DRAWING)
    counts = Counter((*h.attention_TS.argmax(axis=1).tolist(), int(h.tokens[0])) for h in found)
    assert all((np.sort(h.attention_TS)[:, :-1] == 0).all() and (h.attention_TS.max(axis=1) == 1).all() for h in found)
    law = {}
    for first, token in product(range(len(source)), range(model.sizes.vocabulary)):
        oracle.drawn, oracle.laws = [first, 0], []
        logits_TV, _ = oracle.decode(source, [START, token])
        logits_TV[:, END] = -np.inf
        both = oracle.laws[0][first] * np.exp(log_softmax(logits_TV[:1])[0, token])
        law |= {(first, second, token): both * share for second, share in enumerate(oracle.laws[1])}
    assert sum(law.values()) == pytest.approx(1) and sum(share > 0.002 for share in law.values()) > 50
    assert not improbable([counts[case] for case in law], list(law.values()))
    assert improbable([counts[case] for case in law], [law[second, first, token] for first, second, token in law])
    oracle.drawn, case = list(found[0].attention_TS.argmax(axis=1)), found[0].tokens.tolist()
    logits_TV, _ = oracle.decode(source, [START, case[0]])
    logits_TV[:, END] = -np.inf
    expected = log_softmax(logits_TV)[[0, 1], case].sum()
    assert found[0].log_probability == pytest.approx(expected, abs=1e-4)


def test_a_drawn_key_is_the_first_that_reaches_more_than_its_share():
    """So none without a weight is drawn, whatever lies before and behind those that have one."""
    shares_T = np.array([0, 0.2499, 0.25, 0.7499, 0.75, 1 - 2.0**-53])
    weights_TS = np.repeat(np.float32([[0, 1, 0, 2, 1, 0]]), len(shares_T), axis=0)
    assert drawn_keys(weights_TS, shares_T).tolist() == [1, 1, 3, 3, 4, 4]


def test_samples_of_hard_attention_are_their_seed_s_in_any_company(monkeypatch):
    model, sources = recurrent_model("hard", ops=operations), random_sources(6, seed=8)
    options = DRAWING | {"max_decoding_length": 8, "num_hypotheses": 3}
    alone = [plain(search(model, [source], [[5, 6]], seed=4, **options))[0] for source in sources]
    little_room(monkeypatch, 2, CACHE_ROWS=60)
    for threads in (1, 2):
        together = search(model, sources[::-1], [[5, 6]] * 6, threads, seed=4, **options)
        assert plain(together) == alone[::-1]
    assert plain(search(model, sources, [[5, 6]] * 6, seed=5, **options)) != alone
    assert len({hypothesis[-1] for hypothesis in alone[0]}) > 1, "the start is each sample's own"


def test_the_search_is_no_repetition():
    """The comparisons above are of sequences that differ, or they would say little."""
    for variety in RECURRENT:
        sources = random_sources(8, seed=12)
        found = tokens_of(search(recurrent_model(variety), sources, max_decoding_length=7))
        assert len({tuple(tokens) for (tokens,) in found}) > 4, variety


GATED = ("recurrent", "recurrent pre-norm", "average", "average pre-norm", "plain average")
PRECISIONS = ("float32", "bfloat16", "int8")


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
        cell_D = sigmoid(forget_D) * cell_D + (1 - sigmoid(forget_D)) * value_D
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
            y_D = _product(inner_F * sigmoid(inner_F), tensors, f"{name}.outer")
        if spec.recurrence.gates:
            input_gate_D = sigmoid(_product(x_D, tensors, f"{name}.input_gate"))
            y_D = input_gate_D * x_D + sigmoid(_product(y_D, tensors, f"{name}.forget_gate")) * y_D
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


@pytest.mark.parametrize("variety", GATED)
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


@pytest.mark.parametrize(("variety", "precision", "prefill"), pairs(GATED, PRECISIONS, [0, 3]))
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


@pytest.mark.parametrize("variety", GATED)
def test_beams_of_gated_layers_score_as_a_full_pass_does(variety):
    check_scores(random_model(seed=9, dtype=np.float64, sharpness=4.0, **VARIETIES[variety]))


def test_a_state_takes_the_room_of_a_row_and_not_of_keys_and_values():
    recurrent, attending = random_model(**VARIETIES["recurrent"]), random_model()
    assert (set(recurrent.sizes.row_widths), set(recurrent.sizes.memory_widths)) == ({16}, {32})
    assert (set(attending.sizes.row_widths), set(attending.sizes.memory_widths)) == ({32}, {32})


def test_the_reference_decodes_recurrent_models_too():
    for variety in GATED:
        models = (random_model(4, ops, **VARIETIES[variety]) for ops in (reference, operations))
        one, other = (search(model, random_sources(5, seed=3), beam_size=2) for model in models)
        assert tokens_of(one) == tokens_of(other)
