"""Encoders from folders, one little and one real: as sentence-transformers computes them, and in fewer bits."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from fastattn.encoders.encoder import Encoder
from fastattn.errors import CheckpointError
from fastattn.ops import cpu as operations
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import EncoderText
from fastattn.weights import read
from tests import GOLDENS
from tests.encoders.classifiers import write_json
from tests.encoders.test_encoder import SPEC, TENSORS, TEXT, WIDTH, _encoder, _many_texts


def _write_folder(folder: Path) -> None:
    """The tiny model as sentence-transformers saves one."""
    spec, layers = SPEC.encoder, range(SPEC.encoder.layers)
    names = {"encoder.embedding_norm": "embeddings.LayerNorm"}
    stored = {
        "embeddings.word_embeddings.weight": TENSORS["encoder.embedding.weight"],
        "embeddings.position_embeddings.weight": TENSORS["encoder.positions"] - 1,
        "embeddings.token_type_embeddings.weight": np.ones((2, WIDTH), np.float32),
    }
    for i in layers:
        ours, theirs = f"encoder.layers.{i}", f"encoder.layer.{i}"
        names |= {
            f"{ours}.self_attention.output": f"{theirs}.attention.output.dense",
            f"{ours}.self_attention.norm": f"{theirs}.attention.output.LayerNorm",
            f"{ours}.feed_forward.inner": f"{theirs}.intermediate.dense",
            f"{ours}.feed_forward.outer": f"{theirs}.output.dense",
            f"{ours}.feed_forward.norm": f"{theirs}.output.LayerNorm",
        }
        for kind in ("weight", "bias"):
            thirds = np.split(TENSORS[f"{ours}.self_attention.qkv.{kind}"], 3)
            for part, third in zip(("query", "key", "value"), thirds):
                stored[f"{theirs}.attention.self.{part}.{kind}"] = third.copy()
    stored |= {f"{new}.{kind}": TENSORS[f"{old}.{kind}"] for old, new in names.items() for kind in ("weight", "bias")}
    save_file(stored, folder / "model.safetensors")
    (folder / "tokenizer.json").write_bytes(TEXT.tokenizer)
    config = {
        "model_type": "bert",
        "hidden_size": WIDTH,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.attention.heads,
        "intermediate_size": spec.feed_forward.inner_width,
        "vocab_size": spec.vocabulary,
        "max_position_embeddings": spec.positions.limit,
    }
    modules = [
        {"type": "sentence_transformers.models.Transformer", "path": ""},
        {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
        {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"},
    ]
    files = {
        "config.json": config,
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": 32},
        "1_Pooling/config.json": {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True},
        "config_sentence_transformers.json": {"prompts": TEXT.prompts, "similarity_fn_name": "dot"},
    }
    write_json(folder, files)


def test_a_folder_of_sentence_transformers(tmp_path: Path) -> None:
    _write_folder(tmp_path)
    compiled = _encoder(operations)
    texts = ["", *_many_texts(5)]
    for path in (tmp_path, str(tmp_path)):
        encoder = Encoder(path, threads=1)
        assert encoder.dimension == WIDTH and encoder.max_length == 32
        np.testing.assert_allclose(encoder.encode(texts), compiled.encode(texts), atol=1e-6)
        query = compiled.encode(texts, prompt_name="query")
        np.testing.assert_allclose(encoder.encode(texts, prompt_name="query"), query, atol=1e-6)
    vectors = 2 * compiled.encode(texts)
    np.testing.assert_allclose(np.diag(encoder.similarity(vectors, vectors)), 4, rtol=1e-5)


def test_minilm_as_sentence_transformers_computes_it(pulled: Callable[[str], Path]) -> None:
    encoder = Encoder(pulled("minilm"))
    assert (encoder.dimension, encoder.max_length) == (384, 256)
    with np.load(GOLDENS / "minilm.npz") as goldens:
        texts = goldens["texts"].tolist()
        vectors = encoder.encode(texts)
        np.testing.assert_allclose(vectors, goldens["plain"], atol=2e-6)
        np.testing.assert_allclose(encoder.encode(texts[:3], prompt="query: "), goldens["prompted"], atol=2e-6)
        np.testing.assert_allclose(encoder.similarity(vectors, vectors), goldens["similarity"], atol=5e-6)
        excluded = goldens["prompt_not_pooled"]
    checkpoint = read(pulled("minilm"))
    assert isinstance(checkpoint.text, EncoderText)
    checkpoint.text = replace(checkpoint.text, include_prompt=False)
    encoder = Encoder.from_checkpoint(checkpoint)
    np.testing.assert_allclose(encoder.encode(texts[:3], prompt="query: "), excluded, atol=2e-6)


# Precisions ------------------------------------------------------------------------------------------------------

# 72 sentences, and what makes them long.
SENTENCES = [
    f"{subject} {action}{place}{rest}"
    for (subject, rest), action, place in product(
        (
            ("A man", "."),
            ("The two children next door", ", although nobody had asked them to and it was getting late already."),
            ("My sister's doctor", " on Monday, 14 March 2022, at 9:30."),
            ("Nobody", "?"),
            ("The committee that was elected last year by the members of the union", "!"),
            ("She", " again and again, until in the end the neighbours complained about the noise."),
        ),
        ("eats fresh bread", "is repairing a radio", "sold 250 shares"),
        ("", " in the park", " at the railway station in Zürich", " for free"),
    )
]  # fmt: skip


def test_minilm_in_fewer_bits_gives_nearly_its_vectors(pulled: Callable[[str], Path]) -> None:
    exact = Encoder(pulled("minilm"), "float32").encode(SENTENCES)
    others = exact @ exact.T
    np.fill_diagonal(others, -1)
    for precision, least in (("bfloat16", 0.9995), ("int8", 0.99)):
        vectors = Encoder(pulled("minilm"), precision).encode(SENTENCES)
        cosines = (vectors * exact).sum(axis=1)
        assert least <= cosines.min() < 1 - 1e-6, "as near as that, yet not the same"
        assert (cosines > others.max(axis=1)).all(), "nearer than the sentences are to each other"
        single = Encoder(pulled("minilm"), precision, threads=1)
        np.testing.assert_array_equal(single.encode(SENTENCES[::-7]), vectors[::-7])
        np.testing.assert_array_equal(single.encode(SENTENCES[50]), vectors[50])


def test_auto_of_float32_is_float32() -> None:
    texts = _many_texts(3)
    vectors = {p: _encoder(operations, precision=p).encode(texts) for p in ("auto", "float32", "bfloat16", "int8")}
    np.testing.assert_array_equal(vectors["auto"], vectors["float32"])
    for precision, atol in (("bfloat16", 0.02), ("int8", 0.05)):
        assert 1e-5 < np.abs(vectors[precision] - vectors["float32"]).max() < atol


def test_weights_that_are_no_numbers_cannot_be_int8() -> None:
    wrong = TENSORS["encoder.layers.0.feed_forward.outer.weight"].copy()
    wrong[3, 4] = np.nan
    tensors = {**TENSORS, "encoder.layers.0.feed_forward.outer.weight": wrong}
    with pytest.raises(CheckpointError, match="values that are not finite; int8 cannot hold them"):
        Encoder.from_checkpoint(Checkpoint(SPEC, tensors, TEXT), "int8")
