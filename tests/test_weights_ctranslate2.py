"""CTranslate2 directories of every version, type and variety, written here and read back."""

import gc
import json
import tracemalloc
from pathlib import Path

import ctranslate2_writer as writer
import numpy as np
import pytest

from fastattn import weights
from fastattn.errors import CheckpointError
from fastattn.spec import Alibi, Checkpoint, EncoderText, QuantizedTensor, Rotary, TranslationText

PRECISIONS = ("float32", "float16", "bfloat16", "int8", "int16")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def write(path: Path, variables: dict, **options: object) -> Path:
    """A complete directory of version 6 around the variables of random_transformer's default sizes."""
    writer.write_model(path, variables, **options)  # type: ignore[arg-type]
    writer.write_vocabularies(path, writer.vocabulary(23), writer.vocabulary(19))
    writer.write_config(path)
    return path


def read_text(path: Path) -> TranslationText:
    text = weights.read(path).text
    assert isinstance(text, TranslationText)
    return text


def assert_same(checkpoint: Checkpoint, variables: dict, tolerance: float = 0.0) -> None:
    """The canonical tensors hold the written variables (a few of each kind, and the count)."""
    tensors = writer.as_float32(checkpoint.tensors)
    for canonical, written in {
        "encoder.embedding.weight": "encoder/embeddings_0/weight",
        "encoder.layers.1.self_attention.qkv.weight": "encoder/layer_1/self_attention/linear_0/weight",
        "encoder.layers.0.self_attention.output.bias": "encoder/layer_0/self_attention/linear_1/bias",
        "encoder.layers.0.feed_forward.outer.weight": "encoder/layer_0/ffn/linear_1/weight",
        "encoder.final_norm.bias": "encoder/layer_norm/beta",
        "decoder.embedding.weight": "decoder/embeddings/weight",
        "decoder.layers.1.cross_attention.norm.weight": "decoder/layer_1/attention/layer_norm/gamma",
        "decoder.layers.1.cross_attention.query.weight": "decoder/layer_1/attention/linear_0/weight",
        "decoder.layers.0.cross_attention.key_value.weight": "decoder/layer_0/attention/linear_1/weight",
        "decoder.layers.0.cross_attention.output.bias": "decoder/layer_0/attention/linear_2/bias",
        "decoder.layers.0.feed_forward.inner.weight": "decoder/layer_0/ffn/linear_0/weight",
        "decoder.layers.0.feed_forward.norm.bias": "decoder/layer_0/ffn/layer_norm/beta",
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
    write(tmp_path, stored, version=version, spec=spec, revision=revision)
    if version < 6:
        (tmp_path / "config.json").unlink()
    checkpoint = weights.read(tmp_path)
    tolerance = {"float32": 0.0, "float16": 2e-3, "bfloat16": 2e-2, "int8": 2e-2, "int16": 2e-3}[precision]
    assert_same(checkpoint, variables, tolerance)
    assert checkpoint.precision == precision
    assert checkpoint.format == "ctranslate2"
    assert checkpoint.spec.encoder.heads == 8
    assert checkpoint.details["binary version"] == str(version)


@pytest.mark.parametrize("precision", ("int8", "int16"))
def test_dequantisation_multiplies_by_the_reciprocal(tmp_path: Path, rng: np.random.Generator, precision: str) -> None:
    stored = writer.quantize(writer.random_transformer(rng), precision)
    name = "encoder/layer_0/ffn/linear_0/weight"
    reciprocal = np.float32(1) / stored[name + "_scale"]
    expected = stored[name].astype(np.float32) * (reciprocal[:, None] if precision == "int8" else reciprocal)
    tensors = writer.as_float32(weights.read(write(tmp_path, stored)).tensors)
    np.testing.assert_array_equal(tensors["encoder.layers.0.feed_forward.inner.weight"], expected)


def test_int8_matrices_stay_views_of_the_file(tmp_path: Path, rng: np.random.Generator) -> None:
    """And only they: nothing of their size is allocated, and they outlive the file's name."""
    stored = writer.quantize(writer.random_transformer(rng, width=256, inner_width=1024), "int8")
    write(tmp_path, stored)
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
    tensors = weights.read(write(tmp_path, stored)).tensors
    np.testing.assert_allclose(
        tensors["decoder.projection.weight"], stored["decoder/projection/weight"] / 1000, rtol=1e-6
    )


def test_bfloat16_keeps_the_upper_half_of_each_float(tmp_path: Path, rng: np.random.Generator) -> None:
    stored = writer.random_transformer(rng)
    bits = rng.integers(0x3C00, 0x3F80, (19,)).astype(np.uint16)
    stored["decoder/projection/bias"] = bits
    tensors = weights.read(write(tmp_path, stored)).tensors
    np.testing.assert_array_equal(tensors["decoder.projection.bias"].view(np.uint32), bits.astype(np.uint32) << 16)


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
    assert isinstance(text, TranslationText)
    assert text.source_vocabulary is text.target_vocabulary


def test_revisions_before_5_share_attributes_between_stacks(tmp_path: Path, rng: np.random.Generator) -> None:
    variables = writer.random_transformer(rng, pre_norm=False, activation=2, heads=4)
    shared = {name.split("/")[1] for name in variables if np.ndim(variables[name]) == 0 and name.count("/") == 1}
    kept = {name: value for name, value in variables.items() if not (np.ndim(value) == 0 and name.count("/") == 1)}
    kept |= {name: variables[f"decoder/{name}"] for name in shared & {"num_heads", "pre_norm", "activation"}}
    spec = weights.read(write(tmp_path, kept, version=4, revision=4)).spec
    for stack in (spec.encoder, spec.decoder):
        assert stack is not None
        assert (stack.heads, stack.pre_norm, stack.activation, stack.final_norm) == (4, False, "swish", False)


def test_every_variety_is_honoured(tmp_path: Path, rng: np.random.Generator) -> None:
    variables = writer.random_transformer(
        rng, key_heads=2, head_width=3, gated=True, rms_norm=True, biases=False, embedding_norm=True, activation=1,
        rotary=True, scale_embeddings=False, start_from_zero_embedding=True,
    )  # fmt: skip
    for name in list(variables):
        if name.endswith("self_attention/rotary_dim"):
            variables[name] = np.int32(2)
    variables["decoder/scale_outputs"] = np.float32(0.25)
    variables["decoder/alignment_layer"] = np.int16(1)
    variables["decoder/alignment_heads"] = np.int16(3)
    checkpoint = weights.read(write(tmp_path, variables))
    encoder, decoder = checkpoint.spec.encoder, checkpoint.spec.decoder
    assert decoder is not None
    for stack in (encoder, decoder):
        assert (stack.heads, stack.key_heads, stack.head_width) == (4, 2, 3)
        assert (stack.gated, stack.norm, stack.norm_epsilon, stack.biases) == (True, "rms", 1e-6, False)
        assert (stack.embedding_norm, stack.activation, stack.embedding_scale) == (True, "gelu_tanh", 1.0)
        assert stack.positions == "rotary"
        assert stack.rotary == Rotary(width=2, base=500.0, interleaved=False)
    assert (decoder.start_from_zero_embedding, encoder.start_from_zero_embedding) == (True, False)
    assert (decoder.output_scale, decoder.alignment_layer, decoder.alignment_heads) == (0.25, 1, 3)
    assert decoder.cross_attention and not decoder.projection_bias


def test_relative_biases_alibi_tables_and_scales(tmp_path: Path, rng: np.random.Generator) -> None:
    variables = writer.random_transformer(rng, relative_buckets=8, scale_embeddings=2.5)
    for name in list(variables):
        if name.endswith("relative_attention_bias"):
            variables[name] = variables[name.split("/")[0] + "/layer_0/self_attention/relative_attention_bias"]
    scopes = {name.rsplit("/", 1)[0] for name in variables if "attention/" in name and "linear_0" in name}
    variables |= {scope.rsplit("/", 1)[0] + "/queries_scale": np.float32(1) for scope in scopes}
    relative = weights.read(write(tmp_path / "relative", variables))
    assert relative.spec.encoder.positions == "relative"
    assert (relative.spec.encoder.relative_buckets, relative.spec.encoder.relative_max_distance) == (8, 20)
    assert relative.spec.encoder.query_scale == 1.0 and relative.spec.encoder.embedding_scale == 2.5
    assert relative.tensors["decoder.relative_bias"].shape == (8, 4)

    variables = writer.random_transformer(rng, alibi=True)
    variables["decoder/scale_alibi"] = np.int8(1)
    alibi = weights.read(write(tmp_path / "alibi", variables)).spec
    assert alibi.decoder is not None
    assert (alibi.encoder.positions, alibi.decoder.positions) == ("sinusoid", "alibi")
    assert alibi.decoder.alibi == Alibi(positive_positions=False, scaled=True)

    table = weights.read(write(tmp_path / "table", writer.random_transformer(rng, position_table=31, pre_norm=False)))
    assert (table.spec.encoder.positions, table.spec.encoder.max_positions) == ("table", 31)
    assert table.spec.encoder.embedding_scale == 4.0 and not table.spec.encoder.final_norm
    assert table.tensors["encoder.positions"].shape == (31, 16)


def test_missing_biases_become_zeros_where_others_have_one(tmp_path: Path, rng: np.random.Generator) -> None:
    variables = writer.random_transformer(rng)
    del variables["encoder/layer_1/ffn/linear_0/bias"]
    tensors = weights.read(write(tmp_path, variables)).tensors
    np.testing.assert_array_equal(tensors["encoder.layers.1.feed_forward.inner.bias"], np.zeros(24, np.float32))


def test_rms_norms_around_one_are_folded(tmp_path: Path, rng: np.random.Generator) -> None:
    variables = writer.random_transformer(rng, rms_norm=True)
    gamma = variables["decoder/layer_norm/gamma"]
    variables["decoder/layer_norm/layer_norm_use_residual"] = np.int8(1)
    tensors = weights.read(write(tmp_path, variables)).tensors
    np.testing.assert_array_equal(tensors["decoder.final_norm.weight"], gamma + np.float32(1))


def test_epsilon_from_the_config(tmp_path: Path, rng: np.random.Generator) -> None:
    write(tmp_path, writer.random_transformer(rng))
    assert weights.read(tmp_path).spec.encoder.norm_epsilon == 1e-5
    writer.write_config(tmp_path, layer_norm_epsilon=3e-4)
    assert weights.read(tmp_path).spec.encoder.norm_epsilon == 3e-4


def test_special_tokens_and_sentencepiece_files(tmp_path: Path, rng: np.random.Generator) -> None:
    write(tmp_path, writer.random_transformer(rng))
    writer.write_config(tmp_path, decoder_start_token=None, add_source_bos=True, add_source_eos=True)
    (tmp_path / "source.spm").write_bytes(b"source")
    (tmp_path / "target.spm").write_bytes(b"target")
    text = read_text(tmp_path)
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
    text = read_text(write(tmp_path, variables, version=5))
    assert text.decoder_start_token == start
    assert (text.add_source_bos, text.add_source_eos) == (bool(attributes.get("with_source_bos")),) * 2
    assert text.unk_token == "▁w3"


def test_text_vocabularies_keep_carriage_returns_unless_all_lines_have_one(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    write(tmp_path, writer.random_transformer(rng))
    tokens = writer.vocabulary(19)
    for file in tmp_path.glob("*_vocabulary.json"):
        file.unlink()
    (tmp_path / "target_vocabulary.txt").write_bytes("".join(token + "\r\n" for token in tokens).encode())
    mixed = [*writer.vocabulary(22), "x\r"]
    (tmp_path / "source_vocabulary.txt").write_bytes("\n".join(mixed).encode())
    text = read_text(tmp_path)
    assert text.target_vocabulary == tuple(tokens)
    assert text.source_vocabulary == tuple(mixed)


def test_unk_is_appended_where_a_vocabulary_lacks_it(tmp_path: Path, rng: np.random.Generator) -> None:
    write(tmp_path, writer.random_transformer(rng))
    writer.write_vocabularies(tmp_path, writer.vocabulary(23), writer.vocabulary(19)[1:], json_files=True)
    text = read_text(tmp_path)
    assert text.target_vocabulary[-1] == "<unk>" and text.target_vocabulary[0] == "<s>"


def test_an_encoder_alone_folds_its_token_types(tmp_path: Path, rng: np.random.Generator) -> None:
    variables = writer.random_transformer(
        rng, decoder_layers=0, pre_norm=False, position_table=12, embedding_norm=True, scale_embeddings=False
    )
    types = rng.normal(size=(2, 16)).astype(np.float32)
    positions = variables["encoder/position_encodings/encodings"]
    variables["encoder/embeddings_1/weight"] = types
    variables["encoder/embeddings_merge"] = np.int8(1)
    variables["pooler_dense/weight"] = rng.normal(size=(16, 16)).astype(np.float32)
    variables["pooler_activation"] = np.int8(5)
    writer.write_model(tmp_path, variables, spec="TransformerEncoderSpec", revision=1)
    writer.write_config(tmp_path, layer_norm_epsilon=1e-12)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: missing"):
        weights.read(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 9}')
    checkpoint = weights.read(tmp_path)
    assert checkpoint.spec.kind == "encoder" and checkpoint.spec.decoder is None
    np.testing.assert_array_equal(checkpoint.tensors["encoder.positions"], positions + types[0])
    assert isinstance(checkpoint.text, EncoderText)
    assert (checkpoint.text.tokenizer, checkpoint.text.max_length) == (b"{}", 9)


REFUSED = {
    "relative position representations": {"encoder/layer_0/self_attention/relative_position_keys": (9, 4)},
    "norms of queries and keys": {"encoder/layer_0/self_attention/q_norm/gamma": (4,)},
    "norms of values": {"decoder/layer_0/self_attention/v_norm/gamma": (4,)},
    "parallel residual connections": {"decoder/layer_0/shared_layer_norm/gamma": (16,)},
    "norms before and after each block": {"encoder/layer_0/pre_feedforward_layer_norm/gamma": (16,)},
    "norms around the cross-attention": {"decoder/layer_0/external_pre_encoder_attention_layer_norm/gamma": (16,)},
    "self-attention merged with cross-attention": {"decoder/layer_0/self_attention/memory_kv/weight": (32, 16)},
    "a projection after the embedding": {"decoder/project_in/weight": (16, 16)},
    "4-bit weights": {"decoder/layer_0/ffn/linear_0/weight_zero": (24, 16)},
    "sliding window attention": {"decoder/sliding_window": np.int32(9)},
    "final_logit_softcapping": {"decoder/final_logit_softcapping": np.float32(30)},
    "layer_scalar": {"decoder/layer_0/layer_scalar": np.float32(0.5)},
    "source features": {"encoder/embeddings_1/weight": (23, 16)},
    "num_heads_kv that differs between layers": {"decoder/layer_1/self_attention/num_heads_kv": np.int32(2)},
    "queries_scale that differs between layers": {"encoder/layer_1/self_attention/queries_scale": np.float32(2)},
    "rotary_dim that is not the same in every": {"encoder/layer_1/self_attention/rotary_dim": np.int32(0)},
    "activation should be one of": {"encoder/activation": np.int8(9)},
    "num_heads should be at least 1": {"encoder/num_heads": np.int16(0)},
    "heads of width": {"encoder/num_heads": np.int16(99)},
    "alignment_layer": {"decoder/alignment_layer": np.int16(2)},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_a_spec_cannot_say_is_refused_by_name(tmp_path: Path, rng: np.random.Generator, reason: str) -> None:
    extra = {
        name: np.zeros(value, np.float32) if isinstance(value, tuple) else value
        for name, value in REFUSED[reason].items()
    }
    write(tmp_path, writer.random_transformer(rng) | extra)
    with pytest.raises(CheckpointError) as caught:
        weights.read(tmp_path)
    assert reason in str(caught.value) and str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"rotary_scaling_type": np.int8(1)}, "su rotary scaling"),
        ({"rotary_scaling_type": np.int8(2)}, "llama3 rotary scaling"),
        ({"rotary_dim": np.int32(3)}, "even number"),
        ({"rotary_base": np.float32(-1)}, "base -1"),
        (
            {"max_position_embeddings": np.int32(64), "original_max_position_embeddings": np.int32(16)},
            "scaled by max_position_embeddings",
        ),
    ],
)
def test_rotary_positions_that_are_refused(
    tmp_path: Path, rng: np.random.Generator, attributes: dict, reason: str
) -> None:
    variables = writer.random_transformer(rng, rotary=True)
    for name in list(variables):
        if name.endswith("rotary_dim"):
            variables |= {name.replace("rotary_dim", key): value for key, value in attributes.items()}
    with pytest.raises(CheckpointError, match=reason):
        weights.read(write(tmp_path, variables))


def test_all_reasons_come_in_one_error(tmp_path: Path, rng: np.random.Generator) -> None:
    extra = {"decoder/sliding_window": np.int32(4), "decoder/final_logit_softcapping": np.float32(5)}
    extra["encoder/layer_0/self_attention/k_norm/gamma"] = np.zeros(4, np.float32)
    write(tmp_path, writer.random_transformer(rng) | extra)
    with pytest.raises(CheckpointError, match="sliding window.*final_logit.*norms of queries and keys") as caught:
        weights.read(tmp_path)
    assert len(str(caught.value).splitlines()) == 1


def test_tensors_missing_extra_and_misshapen_come_in_one_error(tmp_path: Path, rng: np.random.Generator) -> None:
    variables = writer.random_transformer(rng)
    del variables["encoder/layer_1/self_attention/linear_1/weight"]
    variables["decoder/layer_0/mystery/weight"] = np.zeros((2, 2), np.float32)
    variables["decoder/layer_7/ffn/linear_1/bias"] = np.zeros(16, np.float32)
    variables["decoder/projection/weight"] = np.zeros((18, 16), np.float32)
    with pytest.raises(CheckpointError) as caught:
        weights.read(write(tmp_path, variables))
    message = str(caught.value)
    for part in (
        "missing encoder.layers.1.self_attention.output.weight",
        "unexpected decoder/layer_0/mystery/weight [2, 2]",
        "unexpected decoder.layers.7.feed_forward.outer.bias",
        "decoder.projection.weight should be [19, 16], is [18, 16]",
    ):
        assert part in message


@pytest.mark.parametrize("spec", ("WhisperSpec", "TransformerDecoderSpec", "Wav2Vec2Spec"))
def test_other_specifications_are_refused_by_name(tmp_path: Path, rng: np.random.Generator, spec: str) -> None:
    write(tmp_path, writer.random_transformer(rng), spec=spec, revision=1)
    with pytest.raises(CheckpointError, match=f"{spec} models are not supported; supported: .*TransformerSpec"):
        weights.read(tmp_path)


def test_newer_revisions_and_lost_heads_are_refused(tmp_path: Path, rng: np.random.Generator) -> None:
    with pytest.raises(CheckpointError, match="revision should be 1 to 7, is 8"):
        weights.read(write(tmp_path / "newer", writer.random_transformer(rng), revision=8))
    variables = {name: value for name, value in writer.random_transformer(rng).items() if "num_heads" not in name}
    with pytest.raises(CheckpointError, match="does not say its number of heads"):
        weights.read(write(tmp_path / "headless", variables, version=2, revision=2))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (json.dumps(writer.vocabulary(18)), "embedding has 19 rows, the vocabulary 18 tokens"),
        ('{"a": 1}', "should hold a list of strings"),
        ("[1, 2]", "should hold a list of strings"),
        ('["\\ud800"]', "should hold a list of strings"),
        ("[" * 100_000, "not JSON"),
        (json.dumps(["<unk>"] + [str(i) for i in range(18)]), "lacks '</s>'"),
    ],
)
def test_vocabularies_that_are_refused(tmp_path: Path, rng: np.random.Generator, content: str, reason: str) -> None:
    write(tmp_path, writer.random_transformer(rng))
    (tmp_path / "target_vocabulary.json").write_text(content)
    with pytest.raises(CheckpointError, match=reason):
        weights.read(tmp_path)


def test_files_that_are_missing_or_not_utf8(tmp_path: Path, rng: np.random.Generator) -> None:
    write(tmp_path, writer.random_transformer(rng))
    (tmp_path / "source_vocabulary.json").unlink()
    with pytest.raises(CheckpointError, match=r"source_vocabulary\.json .*no such file"):
        weights.read(tmp_path)
    (tmp_path / "source_vocabulary.txt").write_bytes(b"ab\n\xff\n")
    with pytest.raises(CheckpointError, match="not UTF-8 at byte 3"):
        weights.read(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json: missing"):
        weights.read(tmp_path)


def test_a_path_that_is_no_checkpoint_names_the_formats(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no such file or folder; expected one of: .*CTranslate2.*Hugging Face"):
        weights.read(tmp_path / "absent")
    with pytest.raises(CheckpointError, match="the folder is empty"):
        weights.read(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(CheckpointError, match=r"found 'notes\.txt'"):
        weights.read(tmp_path)
    with pytest.raises(CheckpointError, match="Argos"):
        weights.read(str(tmp_path / "notes.txt"))
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(CheckpointError, match="give its folder"):
        weights.read(tmp_path / "model.bin")
