"""Models without text or attention are entries of tables: a recurrent encoder-decoder, an encoder of images."""

from itertools import product

import numpy as np
import pytest

from fastattn import Encoder, Translator
from fastattn.cli.inspect import model_facts
from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.search import Job
from fastattn.errors import CheckpointError
from fastattn.loading.loaded_model import load_model
from fastattn.models import stacks
from fastattn.models.kinds import MODELS, build_model
from fastattn.ops import cpu, reference
from fastattn.spec import tensors
from fastattn.spec.architecture import ModelSpec
from fastattn.spec.checkpoint import ArrayInput, Checkpoint, IdsInput
from fastattn.spec.text_spec import TranslationText
from tests.decoding.searching import decode, score
from tests.messages import refused
from tests.models import toys
from tests.models.encoder_cases import make_tensors
from tests.models.tiny_models import BASE, END, START, random_sources, stack_spec, vocabulary


@pytest.fixture(autouse=True)
def added(monkeypatch):
    for kind, stack in {"toy-recurrent": toys.RecurrentStack, "toy-patches": toys.PatchStack}.items():
        monkeypatch.setitem(tensors.STACKS, kind, toys.SHAPES[kind])
        monkeypatch.setitem(stacks.STACKS, kind, stack)
    monkeypatch.setitem(MODELS, "toy-image", toys.ImageModel)


def recurrent_checkpoint(given=None) -> Checkpoint:
    words, Spec = vocabulary(19), toys.RecurrentSpec
    spec = ModelSpec("encoder-decoder", Spec(8, 19), Spec(8, 19, cross_attention=True))
    return Checkpoint(spec, make_tensors(spec, 3), given or TranslationText(words, words))


def log_probs_by_hand(weights, source, target):
    """log_probs_TV after each token of the target, written out."""
    encoder, decoder = (
        {name.split(".")[1]: value.astype(np.float64) for name, value in weights.items() if name.startswith(stack)}
        for stack in ("encoder", "decoder")
    )
    state_D, rows = np.zeros(8), []
    for token in source:
        state_D = np.tanh(encoder["input"] @ encoder["embedding"][token] + encoder["state"] @ state_D)
        rows.append(state_D)
    memory_SD, state_D, found = np.array(rows), np.zeros(8), []
    for token in target:
        scores_S = np.tanh(decoder["query"] @ state_D + memory_SD @ decoder["key"].T) @ decoder["score"][0]
        weight_S = np.exp(scores_S) / np.exp(scores_S).sum()
        x_D = decoder["input"] @ decoder["embedding"][token] + decoder["context"] @ (weight_S @ memory_SD)
        state_D = np.tanh(x_D + decoder["state"] @ state_D)
        logits_V = decoder["projection"] @ state_D
        found.append(logits_V - np.log(np.exp(logits_V).sum()))
    return np.array(found)


@pytest.mark.parametrize("ops", [cpu, reference])
@pytest.mark.parametrize("beam", [1, 3])
def test_a_recurrent_model_translates_as_its_formula_says(ops, beam):
    checkpoint, sources = recurrent_checkpoint(IdsInput()), random_sources(7, seed=2)
    model = build_model(checkpoint, ops)
    options = DecodingOptions(beam_size=beam, num_hypotheses=beam, min_decoding_length=0, max_decoding_length=9)
    jobs = [Job(source, [START], [5, 6][: b % 3]) for b, source in enumerate(sources)]
    for job, hypotheses in zip(jobs, decode(model, jobs, options, threads=2)):
        for hypothesis in hypotheses:
            target = [START, *hypothesis.tokens] + [END] * (hypothesis.length - len(hypothesis.tokens))
            expected_TV = log_probs_by_hand(checkpoint.tensors, job.source, target[:-1])
            expected_T = expected_TV[np.arange(len(target) - 1), target[1:]]
            assert hypothesis.log_probability == pytest.approx(expected_T[len(job.prefix) :].sum(), rel=1e-4)
            np.testing.assert_allclose(*score(model, [job.source], [np.array(target, np.int32)]), expected_T, atol=1e-5)
            if beam == 1:
                best = expected_TV[len(job.prefix) :].argmax(axis=1)
                assert target[1 + len(job.prefix) :] == best.tolist()


def test_a_translator_of_a_recurrent_model():
    translator = Translator.from_checkpoint(recurrent_checkpoint())
    results = translator.translate(["▁w1 ▁w2", "▁w3"], beam_size=2, max_decoding_length=9)
    assert len(results) == 2 and all(results)


def image_checkpoint() -> Checkpoint:
    stack = stack_spec(**BASE | {"vocabulary": 0, "positions": "table", "max_positions": 30})
    spec = ModelSpec("toy-image", toys.PatchSpec(**vars(stack)))
    return Checkpoint(spec, make_tensors(spec, 4), ArrayInput("HWC", (0, 0, 3)))


@pytest.mark.parametrize("ops", [cpu, reference])
def test_an_image_becomes_the_vector_that_its_patches_would_as_words(ops):
    rng, checkpoint = np.random.default_rng(1), image_checkpoint()
    images = [rng.random((12, 8, 3), np.float32), rng.random((20, 24, 3), np.float32)]
    found_BD = build_model(checkpoint, ops).vectors(images)
    for image_HWC, found_D in zip(images, found_BD):
        corners = product(range(0, len(image_HWC), 4), range(0, image_HWC.shape[1], 4))
        cut = [image_HWC[y : y + 4, x : x + 4].ravel() for y, x in corners]
        table_PD = np.array(cut) @ checkpoint.tensors["encoder.patches.weight"].T
        sizes = BASE | {"vocabulary": len(cut), "positions": "table", "max_positions": 30}
        words = ModelSpec("encoder", stack_spec(**sizes))
        plain = Checkpoint(words, {**checkpoint.tensors, "encoder.embedding.weight": table_PD}, IdsInput())
        rows_PD, _ = build_model(plain, ops).encode([np.arange(len(cut), dtype=np.int32)])
        np.testing.assert_allclose(found_D, rows_PD.mean(axis=0), atol=1e-5)
    with refused(CheckpointError):
        Encoder.from_checkpoint(checkpoint)


def test_models_of_other_kinds_are_described():
    assert dict(model_facts(image_checkpoint()))["input"] == "an array HxWxC"
    described = dict(model_facts(recurrent_checkpoint(IdsInput())))
    assert described["encoder"] == "toy-recurrent, 1 layer, width 8" and described["input"] == "token ids"


def test_int8_without_layers_or_tokens_to_balance():
    """Loading looks for layers behind norms, and runs the encoder on random tokens: here it has none."""
    translator = Translator.from_checkpoint(recurrent_checkpoint(), "int8")
    assert translator.precision == "int8" and translator.translate("▁w1 ▁w2", max_decoding_length=9)
    checkpoint, images = image_checkpoint(), [np.random.default_rng(1).random((12, 8, 3), np.float32)]
    exact, rounded = (load_model(checkpoint, name, 1, cpu, None).model.vectors(images) for name in ("float32", "int8"))
    np.testing.assert_allclose(rounded, exact, atol=0.1)
    assert (rounded != exact).any()


def test_what_no_table_has():
    spec = ModelSpec("encoder", type("LatticeSpec", (toys.RecurrentSpec,), {"kind": "lattice"})(8, 19))
    for build in (lambda: tensors.tensor_shapes(spec), lambda: build_model(Checkpoint(spec, {}, IdsInput()), cpu)):
        with refused(CheckpointError, "lattice"):
            build()
    with refused(CheckpointError):
        Translator.from_checkpoint(recurrent_checkpoint(IdsInput()))
