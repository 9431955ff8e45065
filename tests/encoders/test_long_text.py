"""Encoder: texts with more tokens than it takes, cut, refused or encoded in windows."""

import re

import numpy as np
import pytest

from fastattn.encoders.encoder import FIRST_WINDOW
from fastattn.errors import InputError
from fastattn.ops import cpu as operations
from tests.encoders.test_encoder import SPEC, WIDTH, WORDS, _encoder, _many_texts, _unit

LIMIT = 8  # [CLS], six tokens, [SEP]
SIXTEEN = " ".join(WORDS[2:18])


@pytest.fixture(scope="module")
def encoder():
    return _encoder(max_length=LIMIT)


@pytest.fixture(scope="module")
def compiled():
    return _encoder(operations, 2, "int8", max_length=LIMIT)


def _raw(text, **options):
    """The vector of a text that fits, before any normalization, in float64."""
    return _encoder(max_length=64, **options).encode(text, normalize_embeddings=False).astype(np.float64)


def test_the_mean_of_windows_weighted_by_their_tokens(encoder):
    words = SIXTEEN.split()
    parts = [" ".join(words[start : start + 6]) for start in (0, 6, 12)]
    mean = (6 * _raw(parts[0]) + 6 * _raw(parts[1]) + 4 * _raw(parts[2])) / 16
    np.testing.assert_allclose(encoder.encode(SIXTEEN, long="mean"), _unit(mean), atol=1e-6)
    raw = encoder.encode([SIXTEEN], long="mean", normalize_embeddings=False)
    np.testing.assert_allclose(raw, [mean], atol=1e-5)
    short = encoder.encode(SIXTEEN, long="mean", truncate_dim=5)
    np.testing.assert_allclose(short, _unit(mean)[:5], atol=1e-6)
    short = encoder.encode(SIXTEEN, long="mean", truncate_dim=5, normalize_embeddings=True)
    np.testing.assert_allclose(short, _unit(mean[:5]), atol=1e-6)
    assert np.abs(encoder.encode(SIXTEEN) - _unit(mean)).max() > 1e-3


def test_windows_pass_through_poolings_and_dense_layers():
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((5, 2 * WIDTH)).astype(np.float32)
    how = {"pooling": ("max", "cls"), "dense": ((weight, None, "tanh"),), "normalize": False}
    words = SIXTEEN.split()
    mean = (6 * _raw(" ".join(words[:6]), **how) + 2 * _raw(" ".join(words[6:8]), **how)) / 8
    found = _encoder(max_length=LIMIT, **how).encode(" ".join(words[:8]), long="mean")
    np.testing.assert_allclose(found, mean, atol=1e-5)


def test_every_window_begins_with_the_prompt():
    words = SIXTEEN.split()[:10]
    parts = [" ".join(words[start : start + 4]) for start in (0, 4, 8)]  # "query :" takes two places
    for included in (True, False):
        encoder = _encoder(max_length=LIMIT, include_prompt=included)
        wide = _encoder(max_length=64, include_prompt=included)
        raws = [wide.encode(part, prompt_name="query", normalize_embeddings=False).astype(np.float64) for part in parts]
        mean = (4 * raws[0] + 4 * raws[1] + 2 * raws[2]) / 10
        found = encoder.encode_query([" ".join(words), "the cat"], long="mean")
        np.testing.assert_allclose(found[0], _unit(mean), atol=1e-6)
        np.testing.assert_allclose(found[1], encoder.encode_query("the cat"), atol=1e-6)


def test_a_prompt_whose_end_the_text_begins_in_another_token(encoder):
    """ "on" and "under" are tokens, "onunder" is an unknown one: the windows begin with what both begin with, "the"."""
    words = " ".join(WORDS[2:12])
    found = encoder.encode(f"under {words}", prompt="the on", long="mean", normalize_embeddings=False)
    ids = f"onunder {words}".split()
    parts = [" ".join(["the", *ids[start : start + 5]]) for start in (0, 5, 10)]
    mean = (5 * _raw(parts[0]) + 5 * _raw(parts[1]) + _raw(parts[2])) / 11
    np.testing.assert_allclose(found, mean, atol=1e-5)


def test_a_prompt_that_leaves_no_room(encoder):
    for length in (6, 7, 30):
        prompt = "the " * length
        with pytest.raises(InputError, match=rf"a prompt and special tokens of {length + 2} leave no room .* takes 8"):
            encoder.encode("a cat", prompt=prompt, long="mean")
    with pytest.raises(InputError, match="text number 0 has 10 tokens, the model takes 8"):
        encoder.encode("a cat", prompt="the " * 6, long="error")
    assert encoder.encode("a cat", prompt="the " * 5, long="mean").shape == (WIDTH,)


def test_texts_that_fit_keep_their_bits(compiled):
    texts = [*_many_texts(60), " ".join(WORDS[:6]), " ".join(WORDS[:7]), ""]
    fits = compiled.count_tokens(texts) <= LIMIT
    assert fits.any() and not fits.all() and fits[60] and not fits[61]
    cut, mean = compiled.encode(texts), compiled.encode(texts, long="mean")
    np.testing.assert_array_equal(mean[fits], cut[fits])
    assert (np.abs(mean - cut).max(axis=1) > 1e-3)[~fits].all()
    for options in ({"truncate_dim": 7}, {"normalize_embeddings": False}, {"pooling": ("cls", "max")}):
        cut, mean = compiled.encode(texts, **options), compiled.encode(texts, long="mean", **options)
        np.testing.assert_array_equal(mean[fits], cut[fits])
    short = [text for text, fit in zip(texts, fits, strict=True) if fit]
    for long in ("mean", "error"):
        np.testing.assert_array_equal(compiled.encode(short, long=long), compiled.encode(short))


def test_neighbours_and_ways_of_asking_change_no_bit(compiled):
    texts = _many_texts(FIRST_WINDOW + 30)
    expected = compiled.encode(texts, long="mean")
    np.testing.assert_array_equal([compiled.encode(text, long="mean") for text in texts], expected)
    np.testing.assert_array_equal(list(compiled.encode_iter(texts, long="mean")), expected)
    np.testing.assert_array_equal(compiled.submit(texts[::-1], long="mean").result(), expected[::-1])
    one = _encoder(operations, 1, compiled.precision, max_length=LIMIT)
    np.testing.assert_array_equal(one.encode(texts, long="mean"), expected)
    bits = compiled.encode(texts, long="mean", output_dtype="ubinary")
    np.testing.assert_array_equal(bits, np.packbits(expected > 0, axis=1))


def test_counts_are_of_whole_texts_with_prompts_and_special_tokens(encoder):
    texts = ["", "the cat", SIXTEEN, "the " * 1000]
    counts = encoder.count_tokens(texts)
    assert counts.dtype == np.int64
    np.testing.assert_array_equal(counts, [2, 4, 18, 1002])
    for how in ({"task": "query"}, {"prompt_name": "query"}, {"prompt": "query : "}):
        np.testing.assert_array_equal(encoder.count_tokens(iter(texts), **how), counts + 2)
    np.testing.assert_array_equal(_encoder(default_prompt="query").count_tokens(texts), counts + 2)
    assert encoder.count_tokens("the cat").shape == () and encoder.count_tokens("the cat") == 4
    assert encoder.count_tokens([]).shape == (0,)
    unbounded = _encoder(max_length=10**30)
    assert unbounded.max_length == SPEC.encoder.positions.limit
    np.testing.assert_array_equal(unbounded.count_tokens(texts), counts)


TOO_LONG = "text number {} has 18 tokens, the model takes 8; long='mean' encodes it in parts, long='truncate' cuts it"


def test_long_texts_are_refused_by_their_number(encoder):
    texts = ["the cat", *["a"] * (FIRST_WINDOW + 10), SIXTEEN, "a dog", SIXTEEN]
    number = texts.index(SIXTEEN)
    for call in (encoder.encode, lambda texts, long: encoder.submit(texts, long=long).result()):
        with pytest.raises(InputError, match=re.escape(TOO_LONG.format(number))):
            call(texts, long="error")
    with pytest.raises(InputError, match=re.escape(TOO_LONG.format(0))):
        encoder.encode(SIXTEEN, long="error")


def test_the_vectors_before_a_refused_text_come_first(compiled):
    for number in (0, 3, FIRST_WINDOW - 1, FIRST_WINDOW, FIRST_WINDOW + 7):
        texts = [" ".join(WORDS[n : n + n % 6]) for n in range(number + 3)]
        vectors = compiled.encode_iter([*texts[:number], SIXTEEN, *texts[number:], SIXTEEN], long="error")
        found = [next(vectors) for _ in range(number)]
        np.testing.assert_array_equal(np.reshape(found, (number, WIDTH)), compiled.encode(texts)[:number])
        with pytest.raises(InputError, match=re.escape(TOO_LONG.format(number))):
            next(vectors)
        with pytest.raises(StopIteration):
            next(vectors)
