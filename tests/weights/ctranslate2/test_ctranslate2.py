"""CTranslate2 directories of every version, type and variety, written here and read back."""

import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from fastattn import weights
from fastattn.spec.architecture import Alibi, PositionSpec, Rotary
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.quantized import QuantizedTensor
from tests.weights.ctranslate2 import writer
from tests.weights.refusals import refusal

PRECISIONS = ("float32", "float16", "bfloat16", "int8", "int16")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def assert_same(checkpoint: Checkpoint, variables: dict, tolerance: float = 0.0) -> None:
    """The canonical tensors hold the written variables (a few of each kind, and the count)."""
    tensors = writer.as_float32(checkpoint.tensors)
    for canonical, written in {
        "encoder.embedding.weight": "encoder/embeddings_0/weight",
        "encoder.layers.1.self_attention.qkv.weight": "encoder/layer_1/self_attention/linear_0/weight",
        "decoder.embedding.weight": "decoder/embeddings/weight",
        "decoder.layers.0.cross_attention.key_value.weight": "decoder/layer_0/attention/linear_1/weight",
        "decoder.projection.weight": "decoder/projection/weight",
    }.items():
        np.testing.assert_allclose(tensors[canonical], variables[written], rtol=0, atol=tolerance)
    assert len(tensors) == sum(np.ndim(value) > 0 for value in variables.values())
    for tensor in tensors.values():
        assert tensor.dtype == np.float32 and tensor.flags.c_contiguous and tensor.flags.aligned


# Binary versions 1 to 3 had no 16-bit floats.
@pytest.mark.parametrize(
    ("version", "precision"),
    [(v, p) for v in range(1, 7) for p in PRECISIONS if v >= 4 or p not in ("float16", "bfloat16")],
)
def test_every_version_and_type_reads_back(
    tmp_path: Path, rng: np.random.Generator, version: int, precision: str
) -> None:
    variables = writer.random_transformer(rng, heads=8)
    stored = variables if precision == "float32" else writer.quantize(variables, precision)
    revision, spec = 7, "TransformerSpec"
    if version < 3:
        # Revisions 1 and 2 stored no attributes; revision 1 had other names.
        revision, spec = version, "TransformerBase"
        stored = {name: value for name, value in stored.items() if np.ndim(value) or name.endswith("_scale")}
        if version == 1:
            stored = writer.first_version_names(stored)
    writer.write_folder(tmp_path, stored, version=version, spec=spec, revision=revision)
    if version < 6:
        (tmp_path / "config.json").unlink()
    checkpoint = weights.read(tmp_path)
    tolerance = {"float32": 0.0, "float16": 2e-3, "bfloat16": 2e-2, "int8": 2e-2, "int16": 2e-3}[precision]
    assert_same(checkpoint, variables, tolerance)
    assert checkpoint.precision == precision
    assert checkpoint.format == "ctranslate2"
    assert checkpoint.spec.encoder.attention.heads == 8
    assert checkpoint.details["binary version"] == str(version)


@pytest.mark.parametrize("precision", ("int8", "int16"))
def test_dequantization_multiplies_by_the_reciprocal(tmp_path: Path, rng: np.random.Generator, precision: str) -> None:
    stored = writer.quantize(writer.random_transformer(rng), precision)
    name = "encoder/layer_0/ffn/linear_0/weight"
    reciprocal = np.float32(1) / stored[name + "_scale"]
    expected = stored[name].astype(np.float32) * (reciprocal[:, None] if precision == "int8" else reciprocal)
    tensors = writer.as_float32(weights.read(writer.write_folder(tmp_path, stored)).tensors)
    np.testing.assert_array_equal(tensors["encoder.layers.0.feed_forward.inner.weight"], expected)


def test_int8_matrices_stay_views_of_the_file(tmp_path: Path, rng: np.random.Generator) -> None:
    """And only they: nothing of their size is allocated, and they outlive the file's name."""
    stored = writer.quantize(writer.random_transformer(rng, width=256, inner_width=1024), "int8")
    writer.write_folder(tmp_path, stored)
    size = (tmp_path / "model.bin").stat().st_size
    assert size > 3e6
    weights.read(tmp_path)  # imports
    tracemalloc.start()
    try:
        tensors = weights.read(tmp_path).tensors
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size / 4
    gc.collect()
    (tmp_path / "model.bin").unlink()
    for name, tensor in tensors.items():
        matrix = name.endswith(".weight") and "norm" not in name
        assert isinstance(tensor, QuantizedTensor) == matrix, name
    outer = tensors["decoder.layers.1.feed_forward.outer.weight"]
    np.testing.assert_array_equal(outer.values_FD, stored["decoder/layer_1/ffn/linear_1/weight"])
    assert (outer.ndim, outer.size) == (2, 256 * 1024)


def test_int16_without_a_scale_has_the_global_one(tmp_path: Path, rng: np.random.Generator) -> None:
    stored = writer.random_transformer(rng)
    stored["decoder/projection/weight"] = rng.integers(-900, 900, (19, 16)).astype(np.int16)
    tensors = weights.read(writer.write_folder(tmp_path, stored)).tensors
    np.testing.assert_allclose(
        tensors["decoder.projection.weight"], stored["decoder/projection/weight"] / 1000, rtol=1e-6
    )


@pytest.mark.parametrize("precision", ("float32", "int8"))
def test_an_alias_is_the_same_array(tmp_path: Path, rng: np.random.Generator, precision: str) -> None:
    variables = writer.random_transformer(rng, source_vocabulary=19)
    for tied in ("encoder/embeddings_0/weight", "decoder/projection/weight"):
        del variables[tied]
    stored = variables if precision == "float32" else writer.quantize(variables, precision)
    aliases = dict.fromkeys(("decoder/projection/weight", "encoder/embeddings_0/weight"), "decoder/embeddings/weight")
    writer.write_model(tmp_path, stored, aliases=aliases)
    writer.write_vocabularies(tmp_path, writer.vocabulary(19))
    writer.write_config(tmp_path)
    checkpoint = weights.read(tmp_path)
    tensors = checkpoint.tensors
    assert tensors["decoder.projection.weight"] is tensors["decoder.embedding.weight"]
    assert tensors["encoder.embedding.weight"] is tensors["decoder.embedding.weight"]
    text = checkpoint.text
    assert text.source_vocabulary is text.target_vocabulary


def test_revisions_before_5_share_attributes_between_stacks(tmp_path: Path, rng: np.random.Generator) -> None:
    variables = writer.random_transformer(rng, pre_norm=False, activation=2, heads=4)
    shared = {name.split("/")[1] for name in variables if np.ndim(variables[name]) == 0 and name.count("/") == 1}
    kept = {name: value for name, value in variables.items() if not (np.ndim(value) == 0 and name.count("/") == 1)}
    kept |= {name: variables[f"decoder/{name}"] for name in shared & {"num_heads", "pre_norm", "activation"}}
    spec = weights.read(writer.write_folder(tmp_path, kept, version=4, revision=4)).spec
    for stack in (spec.encoder, spec.decoder):
        assert (stack.attention.heads, stack.feed_forward.activation) == (4, "swish")
        assert (stack.norms.before, stack.norms.final) == (False, False)


def test_what_attributes_say_that_no_golden_model_has(tmp_path: Path, rng: np.random.Generator) -> None:
    """Heads that are not as wide together as a row, of mT5 and MADLAD without saying so; rotary pairs, flags, ALiBi."""
    variables = writer.random_transformer(
        rng, heads=3, head_width=6, scale_embeddings=False, rms_norm=True, rotary=True
    )
    plain = {name: value for name, value in variables.items() if not name.endswith("/head_dim")}
    plain |= {name: np.int32(2) for name in plain if name.endswith("/rotary_dim")}
    for stack in weights.read(writer.write_folder(tmp_path / "rotary", plain)).spec.stacks.values():
        assert (stack.attention.heads, stack.attention.head_width, stack.embedding_scale) == (3, 6, 1.0)
        assert (stack.norms.epsilon, stack.positions.rotary) == (1e-6, Rotary(2, 500.0, interleaved=False))
    variables = writer.random_transformer(rng, alibi=True) | {"decoder/scale_alibi": np.int8(1)}
    encoder, decoder = weights.read(writer.write_folder(tmp_path / "alibi", variables)).spec.stacks.values()
    assert encoder.positions.kind == "sinusoid" and encoder.norms.epsilon == 1e-5
    assert decoder.positions == PositionSpec("alibi", alibi=Alibi(positive_positions=False, scaled=True))


def test_missing_biases_become_zeros_where_others_have_one(tmp_path: Path, rng: np.random.Generator) -> None:
    variables = writer.random_transformer(rng)
    del variables["encoder/layer_1/ffn/linear_0/bias"]
    tensors = weights.read(writer.write_folder(tmp_path, variables)).tensors
    np.testing.assert_array_equal(tensors["encoder.layers.1.feed_forward.inner.bias"], np.zeros(24, np.float32))


def test_rms_norms_around_one_are_folded(tmp_path: Path, rng: np.random.Generator) -> None:
    variables = writer.random_transformer(rng, rms_norm=True)
    gamma = variables["decoder/layer_norm/gamma"]
    variables["decoder/layer_norm/layer_norm_use_residual"] = np.int8(1)
    tensors = weights.read(writer.write_folder(tmp_path, variables)).tensors
    np.testing.assert_array_equal(tensors["decoder.final_norm.weight"], gamma + np.float32(1))


def test_special_tokens_and_sentencepiece_files(tmp_path: Path, rng: np.random.Generator) -> None:
    writer.write_folder(tmp_path, writer.random_transformer(rng))
    writer.write_config(tmp_path, decoder_start_token=None, add_source_bos=True, add_source_eos=True)
    (tmp_path / "source.spm").write_bytes(b"source")
    (tmp_path / "target.spm").write_bytes(b"target")
    text = weights.read(tmp_path).text
    assert (text.decoder_start_token, text.add_source_bos, text.add_source_eos) == (None, True, True)
    assert (text.source_model, text.target_model) == (b"source", b"target")
    assert text.source_vocabulary == tuple(writer.vocabulary(23))
    assert len(text.target_vocabulary) == 19


@pytest.mark.parametrize(
    ("attributes", "start"),
    [
        ({}, "<s>"),
        ({"with_target_bos": 0}, "</s>"),
        ({"with_source_bos": 1, "with_source_eos": 1}, "<s>"),
        ({"user_decoder_start_tokens": 1}, None),
    ],
)
def test_old_versions_keep_special_tokens_in_attributes(
    tmp_path: Path, rng: np.random.Generator, attributes: dict[str, int], start: str | None
) -> None:
    variables = writer.random_transformer(rng) | {name: np.int8(value) for name, value in attributes.items()}
    variables["unk_token"] = np.frombuffer("▁w3".encode(), np.int8)
    text = weights.read(writer.write_folder(tmp_path, variables, version=5)).text
    assert text.decoder_start_token == start
    assert (text.add_source_bos, text.add_source_eos) == (bool(attributes.get("with_source_bos")),) * 2
    assert text.unk_token == "▁w3"


def test_text_vocabularies_keep_carriage_returns_unless_all_lines_have_one(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    writer.write_folder(tmp_path, writer.random_transformer(rng))
    tokens = writer.vocabulary(19)
    for file in tmp_path.glob("*_vocabulary.json"):
        file.unlink()
    (tmp_path / "target_vocabulary.txt").write_bytes("".join(token + "\r\n" for token in tokens).encode())
    mixed = [*writer.vocabulary(22), "x\r"]
    (tmp_path / "source_vocabulary.txt").write_bytes("\n".join(mixed).encode())
    text = weights.read(tmp_path).text
    assert text.target_vocabulary == tuple(tokens)
    assert text.source_vocabulary == tuple(mixed)


def test_unk_is_appended_where_a_vocabulary_lacks_it(tmp_path: Path, rng: np.random.Generator) -> None:
    writer.write_folder(tmp_path, writer.random_transformer(rng))
    writer.write_vocabularies(tmp_path, writer.vocabulary(23), writer.vocabulary(19)[1:], json_files=True)
    text = weights.read(tmp_path).text
    assert text.target_vocabulary[-1] == "<unk>" and text.target_vocabulary[0] == "<s>"


def test_an_encoder_alone_folds_its_token_types(tmp_path: Path, rng: np.random.Generator) -> None:
    variables = writer.random_transformer(
        rng, decoder_layers=0, pre_norm=False, position_table=12, embedding_norm=True, scale_embeddings=2.0
    )
    types = rng.normal(size=(2, 16)).astype(np.float32)
    positions = variables["encoder/position_encodings/encodings"]
    variables["encoder/embeddings_1/weight"] = types
    variables["encoder/embeddings_merge"] = np.int8(1)
    variables["pooler_dense/weight"] = rng.normal(size=(16, 16)).astype(np.float32)
    variables["pooler_activation"] = np.int8(5)
    writer.write_model(tmp_path, variables, spec="TransformerEncoderSpec", revision=1)
    writer.write_config(tmp_path, layer_norm_epsilon=1e-12)
    refusal(tmp_path, r"tokenizer\.json: missing")
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 9}')
    checkpoint = weights.read(tmp_path)
    assert checkpoint.spec.kind == "encoder" and checkpoint.spec.decoder is None
    np.testing.assert_array_equal(checkpoint.tensors["encoder.positions"], positions + 2 * types[0])
    assert (checkpoint.text.tokenizer, checkpoint.text.max_length) == (b"{}", 9)
