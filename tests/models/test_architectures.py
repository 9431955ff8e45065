"""An architecture is added as docs/architecture.md says: here one that the engine has not, a decoder on its own."""

from dataclasses import replace

import numpy as np
import pytest

from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.search import Job
from fastattn.errors import CheckpointError
from fastattn.models.decoder import Decoder
from fastattn.models.kinds import MODELS, build_model
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.spec import architecture as arch
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.tensors import check_tensors, tensor_shapes
from fastattn.spec.text_spec import TranslationText
from tests.decoding.searching import decode, score
from tests.messages import refused
from tests.models import tiny_models as tiny

KIND = "decoder on its own"
SPEC = arch.StackSpec(
    layers=2, width=16, vocabulary=19, attention=arch.AttentionSpec(heads=4, key_heads=2, head_width=5),
    feed_forward=arch.FeedForwardSpec(inner_width=24, activation="swish", gated=True), norms=arch.NormSpec("rms"),
    positions=arch.PositionSpec("table", limit=40), biases=False,
)  # fmt: skip
LOCAL = (None, arch.LocalSpec((0,), before=0, after=0), arch.LocalSpec((0, 1), before=3, after=0))
# What goes with no cross-attention.
ALONE = {
    "plain": SPEC,
    "parallel": replace(SPEC, parallel=True, norms=arch.NormSpec(), biases=True, output_cap=3.0),
    "parallel, local": replace(SPEC, parallel=True, local=arch.LocalSpec((0,), before=3, after=0)),
    "norms of outputs": replace(SPEC, norms=arch.NormSpec("rms", output=True, input=False)),
    "norms around": replace(SPEC, norms=arch.NormSpec("rms", output=True), local=arch.LocalSpec((1,), 5, 0)),
}
NOTHING = np.zeros(0, np.int32)  # a source that there is not


@pytest.fixture(autouse=True)
def added(monkeypatch):
    monkeypatch.setitem(MODELS, KIND, Decoder)


def _checkpoint(dtype=np.float32, stack=SPEC) -> Checkpoint:
    rng, spec, words = np.random.default_rng(5), arch.ModelSpec(KIND, decoder=stack), tiny.vocabulary(SPEC.vocabulary)
    tensors = {}
    for name, shape in tensor_shapes(spec).items():
        drawn = 1 + 0.1 * rng.normal(size=shape) if "norm" in name else rng.normal(0, shape[-1] ** -0.5, shape)
        tensors[name] = (drawn * (3 if name == "decoder.projection.weight" else 1)).astype(dtype)
    check_tensors(spec, tensors, "memory")
    return Checkpoint(spec, tensors, TranslationText(words, words))


def _rms(x_TD, weight_D):
    return x_TD / np.sqrt((x_TD**2).mean(axis=1, keepdims=True) + 1e-5) * weight_D


def _parts(stack, tensors, x_TD, number=0):
    """A block's attention and feed-forward of x_TD, each behind its norms, written out."""
    T, layer = len(x_TD), f"decoder.layers.{number}."
    weights = {name.removeprefix(layer): value for name, value in tensors.items() if name.startswith(layer)}
    seen_TS = np.tri(T, dtype=bool)
    if stack.local is not None and number in stack.local.layers:
        seen_TS &= ~np.tri(T, k=-stack.local.before - 1, dtype=bool)

    def entering(name):
        return _rms(x_TD, weights[f"{name}.norm.weight"]) if stack.norms.input else x_TD

    def leaving(name, y_TD):
        return _rms(y_TD, weights[f"{name}.output_norm.weight"]) if stack.norms.output else y_TD

    heads = (entering("self_attention") @ weights["self_attention.qkv.weight"].T).reshape(T, -1, 5)
    contexts = []
    for head in range(4):
        scores_TS = heads[:, head] @ heads[:, 4 + head // 2].T / np.sqrt(5)
        weights_TS = np.where(seen_TS, np.exp(scores_TS), 0)
        contexts.append(weights_TS @ heads[:, 6 + head // 2] / weights_TS.sum(axis=1, keepdims=True))
    inside_TD = entering("feed_forward")
    inner_TF = inside_TD @ weights["feed_forward.inner.weight"].T
    gated_TF = inner_TF / (1 + np.exp(-inner_TF)) * (inside_TD @ weights["feed_forward.inner_linear.weight"].T)
    attended_TD = np.concatenate(contexts, axis=1) @ weights["self_attention.output.weight"].T
    fed_TD = gated_TF @ weights["feed_forward.outer.weight"].T
    return leaving("self_attention", attended_TD), leaving("feed_forward", fed_TD)


def _formula(stack, tensors, tokens_T):
    """The log-probabilities of the token behind each, written out; nothing of it is the engine's."""
    x_TD = tensors["decoder.embedding.weight"][tokens_T] + tensors["decoder.positions"][: len(tokens_T)]
    for number in range(stack.layers):
        x_TD = x_TD + _parts(stack, tensors, x_TD, number)[0]
        x_TD = x_TD + _parts(stack, tensors, x_TD, number)[1]
    logits_TV = _rms(x_TD, tensors["decoder.final_norm.weight"]) @ tensors["decoder.projection.weight"].T
    return logits_TV - np.log(np.exp(logits_TV).sum(axis=1, keepdims=True))


@pytest.mark.parametrize(("ops", "tolerance"), [(reference, 1e-12), (operations, 1e-5)])
def test_its_log_probabilities_are_the_formulas(ops, tolerance):
    for local in LOCAL:
        stack = replace(SPEC, local=local)
        checkpoint, targets = _checkpoint(np.float64, stack), tiny.random_sources(5, seed=3, shortest=2, longest=30)
        model = build_model(checkpoint if ops is reference else _checkpoint(stack=stack), ops)
        found = score(model, [NOTHING] * 5, targets)
        for target, log_probs_T in zip(targets, found):
            expected_TV = _formula(stack, checkpoint.tensors, target[:-1])
            np.testing.assert_allclose(log_probs_T, expected_TV[np.arange(len(target) - 1), target[1:]], atol=tolerance)


@pytest.mark.parametrize("stack", ALONE.values(), ids=ALONE)
def test_its_steps_chunks_and_passes_agree(stack):
    targets, nothing = tiny.random_sources(4, seed=3, shortest=5, longest=20), [NOTHING] * 4
    for precision, near in (("float32", 1e-5), ("bfloat16", 0.1), ("int8", 0.3)):
        model = build_model(_checkpoint(stack=stack), operations, precision)
        assert not model.sizes.memory_widths and set(model.sizes.row_widths) == {20}
        expected = np.concatenate(tiny.stepped(model, nothing, targets)[0])
        for cut in (1, 4):
            (cache, slots_B, _), hidden = tiny.cached(model, nothing), [[] for _ in targets]
            for first, stop in ((0, cut), (cut, None)):
                parts, firsts_B = [target[first:stop] for target in targets], np.full(4, first)
                rows_ND, _ = model.prefill(
                    np.concatenate(parts), tiny.starts_of(parts), cache=cache, slots_B=slots_B, firsts_B=firsts_B
                )
                for rows, more in zip(hidden, np.split(rows_ND, tiny.starts_of(parts)[1:-1])):
                    rows.extend(more)
            np.testing.assert_array_equal(np.concatenate(hidden), expected)
        whole_ND, _ = model.prefill(np.concatenate(targets), tiny.starts_of(targets))
        np.testing.assert_allclose(whole_ND, expected, atol=near)


@pytest.mark.parametrize("ops", [tiny.steady_ops, operations])
def test_greedy_search_takes_the_formulas_best(ops):
    for local in LOCAL:
        stack = replace(SPEC, local=local)
        checkpoint = _checkpoint(stack=stack)
        prompts = [[tiny.START, *prompt.tolist()] for prompt in tiny.random_sources(9, seed=7, longest=6)]
        options = DecodingOptions(beam_size=1, min_decoding_length=0, max_decoding_length=12)
        jobs = [Job(NOTHING, [tiny.START], prompt[1:]) for prompt in prompts]
        exact = {name: tensor.astype(np.float64) for name, tensor in checkpoint.tensors.items()}
        for prompt, (hypothesis,) in zip(prompts, decode(build_model(checkpoint, ops), jobs, options)):
            tokens = list(prompt)
            while tokens[-1] != tiny.END and len(tokens) - 1 < 12:
                log_probs_V = _formula(stack, exact, np.array(tokens))[-1]
                if options.disable_unk:
                    log_probs_V[tiny.UNK] = -np.inf
                tokens.append(int(log_probs_V.argmax()))
            assert hypothesis.tokens.tolist() == [token for token in tokens[1:] if token != tiny.END]


@pytest.mark.parametrize("stack", ALONE.values(), ids=ALONE)
def test_its_kernels_agree_with_the_reference_and_its_steps_with_its_passes(stack):
    targets = tiny.random_sources(6, seed=3, shortest=5, longest=30)
    exact = build_model(_checkpoint(np.float64, stack), reference)
    model, nothing = build_model(_checkpoint(stack=stack), operations), [NOTHING] * len(targets)
    for found_T, expected_T in zip(score(model, nothing, targets), score(exact, nothing, targets)):
        np.testing.assert_allclose(found_T, expected_T, atol=2e-5)
    hidden_ND, _ = exact.prefill(np.concatenate(targets), tiny.starts_of(targets))
    stepped_ND = np.concatenate(tiny.stepped(exact, nothing, targets)[0])
    np.testing.assert_allclose(stepped_ND, hidden_ND, rtol=1e-10, atol=1e-12)


def test_blocks_are_added_up_as_the_formula_says():
    for change in ({"parallel": True}, {"norms": arch.NormSpec("rms", output=True, input=False)}):
        stack = replace(SPEC, layers=1, **change)
        checkpoint, tokens_T = _checkpoint(np.float64, stack), np.array([1, 7, 5, 9, 3], np.int32)
        before_TD, found_TD, _ = build_model(checkpoint, reference).states(tokens_T, None)
        if stack.parallel:
            expected_TD = before_TD + sum(_parts(stack, checkpoint.tensors, before_TD))
        else:
            between_TD = before_TD + _parts(stack, checkpoint.tensors, before_TD)[0]
            expected_TD = between_TD + _parts(stack, checkpoint.tensors, between_TD)[1]
        np.testing.assert_allclose(found_TD, expected_TD, rtol=1e-10, atol=1e-12)


def test_an_unknown_kind_names_the_known_ones():
    checkpoint = _checkpoint()
    checkpoint.spec = arch.ModelSpec("mamba", decoder=SPEC)
    with refused(CheckpointError, "mamba"):
        build_model(checkpoint, reference)


def test_a_kind_needs_its_stacks():
    checkpoint = tiny.random_checkpoint()
    for kind, stacks in (("encoder-decoder", {"decoder": SPEC}), (KIND, {"encoder": checkpoint.spec.encoder})):
        with refused(CheckpointError, kind):
            build_model(replace(checkpoint, spec=arch.ModelSpec(kind, **stacks)), reference)
