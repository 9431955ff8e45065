"""The public Encoder on a tiny model; what surrounds the rows follows sentence-transformers' definitions."""

import contextlib
import json
import os
import signal
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from fastattn.encoders.base import LEAST_ROWS, MOST_ROWS, split_batches
from fastattn.encoders.encoder import Encoder
from fastattn.errors import CheckpointError, InputError, TokenizerError
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.spec.architecture import ModelSpec, PositionSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import LAYER_NORM, EncoderText, TranslationText
from tests.models.encoder_cases import CASES, make_tensors

WORDS = "query : the a cat dog sat ran on under mat log and then some more words here now".split()


def _tokenizer() -> bytes:
    vocabulary = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    return tokenizer.to_str().encode()


SPEC = ModelSpec("encoder", replace(CASES[0].spec, positions=PositionSpec("table", limit=64)))
TEXT = EncoderText(_tokenizer(), max_length=64, normalize=True, prompts={"query": "query : ", "empty": ""})
WIDTH = SPEC.encoder.width
TENSORS = make_tensors(SPEC, 0)


def _encoder(
    ops: ModuleType = reference, threads: int | None = None, precision: str = "auto", **text: object
) -> Encoder:
    return Encoder.from_checkpoint(Checkpoint(SPEC, TENSORS, replace(TEXT, **text)), precision, threads, ops)


def _rows(text: str) -> np.ndarray:
    """The model's rows of one text, its special tokens included."""
    ids = Tokenizer.from_str(_tokenizer().decode()).encode(text).ids
    checkpoint = Checkpoint(SPEC, TENSORS, TEXT)
    return build_model(checkpoint, reference).encode([np.array(ids, np.int32)])[0].astype(np.float64)


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).sum(axis=-1, keepdims=True))


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return _encoder()


@pytest.fixture(scope="module")
def compiled() -> Encoder:
    return _encoder(operations, 2, "float32")


def test_a_str_gives_a_vector_a_list_a_matrix_none_an_empty_one(encoder: Encoder) -> None:
    one, many = encoder.encode("the cat sat"), encoder.encode(["the cat sat", "a dog"])
    assert one.shape == (WIDTH,) and many.shape == (2, WIDTH) and encoder.dimension == WIDTH
    assert one.dtype == many.dtype == np.float32
    np.testing.assert_allclose(one, _unit(_rows("the cat sat").mean(axis=0)), atol=1e-6)
    np.testing.assert_allclose(many[1], _unit(_rows("a dog").mean(axis=0)), atol=1e-6)
    for nothing in ([], (), iter([])):
        assert encoder.encode(nothing).shape == (0, WIDTH)
    assert encoder.encode([], pooling=("cls", "max"), truncate_dim=7).shape == (0, 7)
    assert np.isfinite(encoder.encode(["", "   "])).all()


def test_poolings(encoder: Encoder) -> None:
    text = "the cat sat on some mat"
    rows = _rows(text)
    weights = np.arange(1.0, len(rows) + 1)
    expected = {
        "cls": rows[0],
        "lasttoken": rows[-1],
        "max": rows.max(axis=0),
        "mean": rows.mean(axis=0),
        "mean_sqrt_len": rows.sum(axis=0) / np.sqrt(len(rows)),
        "weightedmean": weights @ rows / weights.sum(),
    }
    for mode, vector in expected.items():
        np.testing.assert_allclose(encoder.encode(text, pooling=mode, normalize_embeddings=False), vector, atol=1e-5)
    both = encoder.encode([text], pooling=["max", "cls"], normalize_embeddings=False)
    np.testing.assert_allclose(both[0], np.concatenate([expected["max"], expected["cls"]]), atol=1e-5)
    assert _encoder(pooling=("mean", "max", "cls")).dimension == 3 * WIDTH


def test_pooling_of_an_empty_sentence_is_zero() -> None:
    rows = np.ones((3, 2), np.float32)
    pooled = operations.pool(rows, np.array([0, 0, 3]), ("mean", "max"), skip=3)
    np.testing.assert_array_equal(pooled, np.zeros((2, 4)))


def test_normalize_and_truncation_come_in_the_order_of_sentence_transformers(encoder: Encoder) -> None:
    raw = _rows("the cat").mean(axis=0)
    np.testing.assert_allclose(encoder.encode("the cat", normalize_embeddings=False), raw, atol=1e-5)
    # The checkpoint's own normalization comes before the cut, the caller's after it.
    np.testing.assert_allclose(encoder.encode("the cat", truncate_dim=5), _unit(raw)[:5], atol=1e-6)
    shortened = encoder.encode("the cat", normalize_embeddings=True, truncate_dim=5)
    np.testing.assert_allclose(shortened, _unit(raw[:5]), atol=1e-6)
    np.testing.assert_allclose(_encoder(normalize=False).encode("the cat"), raw, atol=1e-5)
    assert encoder.encode("the cat", truncate_dim=10**9).shape == (WIDTH,)


def test_dense_layers_follow_the_pooling() -> None:
    rng = np.random.default_rng(0)
    first, bias = rng.standard_normal((6, 2 * WIDTH)).astype(np.float32), rng.standard_normal(6).astype(np.float32)
    second = rng.standard_normal((4, 6)).astype(np.float32)
    encoder = _encoder(pooling=("mean", "cls"), dense=((first, bias, "tanh"), (second, None, "none")), normalize=False)
    rows = _rows("a dog ran")
    expected = second @ np.tanh(first @ np.concatenate([rows.mean(axis=0), rows[0]]) + bias)
    np.testing.assert_allclose(encoder.encode("a dog ran"), expected, atol=1e-4)
    assert encoder.dimension == 4 and encoder.encode([]).shape == (0, 4)
    with pytest.raises(InputError, match=f"takes {2 * WIDTH} values, pooling mean gives {WIDTH}"):
        encoder.encode("a dog ran", pooling="mean")


def test_a_layer_norm_may_follow_the_pooling() -> None:
    rng = np.random.default_rng(0)
    weight, bias = rng.standard_normal((2, WIDTH)).astype(np.float32)
    encoder = _encoder(dense=((weight, bias, LAYER_NORM),), normalize=False)
    x = _rows("a dog ran").mean(axis=0)
    expected = (x - x.mean()) / np.sqrt(x.var() + 1e-5) * weight + bias
    np.testing.assert_allclose(encoder.encode("a dog ran"), expected, atol=1e-5)


def test_vectors_are_truncated_as_the_checkpoint_says_where_the_call_does_not() -> None:
    encoder, whole = _encoder(truncate_dim=5), _encoder()
    assert encoder.dimension == 5
    np.testing.assert_array_equal(encoder.encode("the cat"), whole.encode("the cat", truncate_dim=5))
    np.testing.assert_array_equal(encoder.encode("the cat", truncate_dim=7), whole.encode("the cat", truncate_dim=7))
    texts = ["the cat " * 100, "the"]
    found, expected = encoder.encode(texts, long="mean"), whole.encode(texts, long="mean", truncate_dim=5)
    np.testing.assert_array_equal(found, expected)


def test_long_input_is_cut_at_the_maximum_length() -> None:
    short = _encoder(max_length=6, normalize=False)
    assert short.max_length == 6
    np.testing.assert_allclose(short.encode("the cat sat on the mat"), short.encode("the cat sat on"), atol=1e-6)
    left = _encoder(max_length=6, normalize=False, truncation_side="left")
    np.testing.assert_allclose(left.encode("the cat sat on the mat"), short.encode("sat on the mat"), atol=1e-6)
    # Never more than the model has positions for.
    unbounded = _encoder(max_length=10**30)
    assert unbounded.max_length == 64
    assert np.isfinite(unbounded.encode("the cat " * 100)).all()


def _many_texts(count: int) -> list[str]:
    rng = np.random.default_rng(3)
    return [" ".join(rng.choice(WORDS, rng.integers(0, 30))) for _ in range(count)]


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(0, 3000), max_size=60), threads=st.integers(1, 8))
def test_batches_hold_every_sentence_once_in_bounded_rows(lengths: list[int], threads: int) -> None:
    batches, most = split_batches(lengths, threads), MOST_ROWS
    if threads > 1 and sum(lengths) >= 2 * LEAST_ROWS * threads:  # enough for all, in even shares
        most = min(MOST_ROWS, max(LEAST_ROWS, sum(lengths) // (4 * threads)))
    assert sorted(b for batch in batches for b in batch) == list(range(len(lengths)))
    rows = [sum(lengths[b] for b in batch) for batch in batches]
    assert all(len(batch) == 1 or held <= most for batch, held in zip(batches, rows))
    assert all(held + lengths[after[0]] > most for held, after in zip(rows, batches[1:])), "full, but for the last"


def test_prompts(encoder: Encoder) -> None:
    expected, plain = encoder.encode("query : the cat"), encoder.encode("the cat")
    assert encoder.prompts == {"query": "query : ", "empty": ""}
    assert np.abs(plain - expected).max() > 1e-3
    default = _encoder(default_prompt="query")
    np.testing.assert_array_equal(default.encode("the cat"), expected)
    for one in (encoder, default):
        np.testing.assert_array_equal(one.encode("the cat", prompt_name="query"), expected)
        np.testing.assert_array_equal(one.encode("the cat", prompt="query : "), expected)
        np.testing.assert_array_equal(one.encode("the cat", prompt=""), plain)
        np.testing.assert_array_equal(one.encode("the cat", prompt_name="empty"), plain)
    # A prompt is text and never a name, and goes before one.
    np.testing.assert_array_equal(encoder.encode("the cat", prompt="query"), encoder.encode("querythe cat"))
    with pytest.warns(UserWarning, match="prompt_name 'query' is ignored") as caught:
        found = encoder.encode("the cat", prompt_name="query", prompt="")
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(found, plain)
    with pytest.raises(InputError, match="unknown prompt_name 'query'; this checkpoint has none"):
        _encoder(prompts={}).encode("the cat", prompt_name="query")


def test_a_prompt_that_is_not_pooled() -> None:
    rows = _rows("query : the cat")
    rest, weights = rows[3:], np.arange(4.0, len(rows) + 1)  # without [CLS] query :
    expected = {
        "mean": rest.mean(axis=0),
        "mean_sqrt_len": rest.sum(axis=0) / np.sqrt(len(rest)),
        "max": rest.max(axis=0),
        "cls": rest[0],
        "weightedmean": weights @ rest / weights.sum(),
        "lasttoken": rest[-1],
    }
    for mode, vector in expected.items():
        encoder = _encoder(include_prompt=False, normalize=False, pooling=(mode,))
        np.testing.assert_allclose(encoder.encode("the cat", prompt_name="query"), vector, atol=1e-5, err_msg=mode)


@settings(max_examples=15, deadline=None)
@given(
    texts=st.lists(st.lists(st.sampled_from(WORDS), max_size=20).map(" ".join), min_size=1, max_size=12),
    data=st.data(),
)
def test_order_and_neighbours_change_no_bit(compiled: Encoder, texts: list[str], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(texts))))
    together, shuffled = compiled.encode(texts), compiled.encode([texts[i] for i in order])
    np.testing.assert_array_equal(shuffled, together[order])
    alone = data.draw(st.integers(0, len(texts) - 1))
    np.testing.assert_array_equal(compiled.encode(texts[alone]), together[alone])


def test_no_more_threads_than_asked_for_nor_than_there_may_be() -> None:
    asked: list[int] = []
    counting = SimpleNamespace(**vars(reference))
    counting.thread_limit = lambda: 8
    counting.use_threads = lambda count: asked.append(count) or contextlib.nullcontext()
    for threads in (None, 1, 3, 64):
        _encoder(counting, threads).encode("the cat sat")
    assert asked == [8, 1, 3, 8]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from 3.12 on Python warns of every fork beside threads
def test_a_forked_child_answers(compiled: Encoder) -> None:
    texts = _many_texts(150)
    expected = compiled.encode(texts)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        status = 3
        try:
            same = np.array_equal(compiled.encode(texts), expected) and compiled.encode("a cat").shape == (WIDTH,)
            status = 0 if same else 4
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_checkpoints_that_cannot_be_served() -> None:
    for text, error, message in (
        ({"pooling": ("median",)}, CheckpointError, "unknown pooling 'median'"),
        ({"similarity": "maxsim"}, CheckpointError, "unknown similarity 'maxsim'; known: cosine, dot"),
        ({"dense": ((np.ones((2, WIDTH)), None, "softplus"),)}, CheckpointError, "unknown activation 'softplus'"),
        ({"dense": ((np.ones((2, 5)), None, "none"),)}, CheckpointError, f"5 inputs follows {WIDTH} outputs"),
        ({"tokenizer": b"[]"}, TokenizerError, "tokenizer.json"),
        ({"tokenizer": b"[" * 100_000}, TokenizerError, "tokenizer.json"),
        ({"tokenizer": b'{"added_tokens": [{"id": 1e999, "special": true}]}'}, TokenizerError, "tokenizer.json"),
        ({"tokenizer": json.dumps({"added_tokens": [3]}).encode()}, TokenizerError, "tokenizer.json"),
    ):
        with pytest.raises(error, match=message):
            _encoder(**text)


def test_arguments_of_the_encoder_itself() -> None:
    for stored, asked, runs in (
        ("float32", "auto", "float32"),
        ("int8", "auto", "int8"),
        ("int8", "bfloat16", "bfloat16"),
        ("float32", "intgemm", "int8"),
    ):
        checkpoint = Checkpoint(SPEC, TENSORS, TEXT, precision=stored)
        assert Encoder.from_checkpoint(checkpoint, asked, ops=reference).precision == runs
    with pytest.warns(UserWarning, match="precision 'float16' runs as 'float32'") as told:
        encoder = _encoder(precision="float16")  # as CTranslate2 has it
    assert encoder.precision == "float32" and [warning.filename for warning in told] == [__file__]
    for options, message in (
        ({"precision": "float8"}, "unknown precision 'float8'; known: float32"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"threads": "2"}, "threads must be a whole number, got '2'"),
    ):
        with pytest.raises(InputError, match=message):
            _encoder(**options)
    translation = replace(Checkpoint(SPEC, TENSORS, TEXT), input=TranslationText(("a",), ("a",)))
    with pytest.raises(
        CheckpointError, match="an encoder's checkpoint is expected.*: use Translator, or fastattn translate$"
    ):
        Encoder.from_checkpoint(translation, ops=reference)
