"""Hugging Face BERT directories and sentence-transformers folders."""

import json
from pathlib import Path

import numpy as np
import pytest

from fastattn import weights
from fastattn.spec.text_spec import EncoderText
from tests.weights.containers.safetensors_writer import MEAN_POOLING as MEAN
from tests.weights.containers.safetensors_writer import (
    random_bert,
    safetensors_bytes,
    write_bert,
    write_json,
    write_sentence_transformer,
)
from tests.weights.refusals import refusal

POOLING = "sentence_transformers.models.Pooling"
NORMALIZE = "sentence_transformers.models.Normalize"
DENSE = "sentence_transformers.models.Dense"
LAYER_NORM = "sentence_transformers.sentence_transformer.modules.layer_norm.LayerNorm"
OWN, TOP = "sentence_bert_config.json", "config_sentence_transformers.json"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def read_text(path: Path) -> EncoderText:
    text = weights.read(path).text
    assert isinstance(text, EncoderText)
    return text


@pytest.mark.parametrize("prefix", ("", "bert."))
def test_bert_by_its_canonical_names(tmp_path: Path, rng: np.random.Generator, prefix: str) -> None:
    tensors = random_bert(rng, prefix=prefix)
    if prefix:
        tensors["cls.predictions.bias"] = np.zeros(17, np.float32)
    checkpoint = weights.read(write_bert(tmp_path, tensors, hidden_act="gelu_new", layer_norm_eps=1e-7))
    bare = {name.removeprefix(prefix): value for name, value in tensors.items()}
    ours = checkpoint.tensors
    joined = [bare[f"encoder.layer.1.attention.self.{name}.weight"] for name in ("query", "key", "value")]
    np.testing.assert_array_equal(ours["encoder.layers.1.self_attention.qkv.weight"], np.concatenate(joined))
    for canonical, name in {
        "encoder.embedding.weight": "embeddings.word_embeddings.weight",
        "encoder.positions": "embeddings.position_embeddings.weight",
        "encoder.token_types": "embeddings.token_type_embeddings.weight",
        "encoder.embedding_norm.bias": "embeddings.LayerNorm.bias",
        "encoder.layers.0.self_attention.output.weight": "encoder.layer.0.attention.output.dense.weight",
        "encoder.layers.0.self_attention.norm.weight": "encoder.layer.0.attention.output.LayerNorm.weight",
        "encoder.layers.1.feed_forward.inner.bias": "encoder.layer.1.intermediate.dense.bias",
        "encoder.layers.1.feed_forward.outer.weight": "encoder.layer.1.output.dense.weight",
        "encoder.layers.1.feed_forward.norm.bias": "encoder.layer.1.output.LayerNorm.bias",
    }.items():
        np.testing.assert_array_equal(ours[canonical], bare[name])
    spec = checkpoint.spec.encoder
    assert (checkpoint.spec.kind, spec.layers, spec.attention.heads, spec.attention.head_width) == ("encoder", 2, 3, 4)
    assert (spec.feed_forward.activation, spec.norms.epsilon, spec.norms.before) == ("gelu_tanh", 1e-7, False)
    assert (spec.positions.kind, spec.positions.limit, spec.embedding_scale) == ("table", 9, 1.0)
    text = checkpoint.text
    assert isinstance(text, EncoderText)
    assert (text.pooling, text.normalize, text.max_length) == (("mean",), False, 9)
    assert json.loads(text.tokenizer) == {"version": "1.0"}


def test_old_norm_names(tmp_path: Path, rng: np.random.Generator) -> None:
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    tensors = random_bert(rng)
    renamed = {name: value for name, value in tensors.items() if "LayerNorm" not in name}
    for name, value in tensors.items():
        for new, former in old.items():
            if name.endswith(new):
                renamed[name.removesuffix(new) + former] = value
    ours = weights.read(write_bert(tmp_path, renamed)).tensors
    np.testing.assert_array_equal(ours["encoder.embedding_norm.bias"], tensors["embeddings.LayerNorm.bias"])


@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "float64"))
def test_other_float_types(tmp_path: Path, rng: np.random.Generator, dtype: str) -> None:
    tensors = random_bert(rng)
    name = "encoder.layer.0.intermediate.dense.weight"
    stored, expected = dict(tensors), {}
    for key, value in tensors.items():
        if value.dtype != np.float32:
            continue
        if dtype == "bfloat16":
            stored[key] = (value.view(np.uint32) >> 16).astype(np.uint16)
            expected[key] = (value.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        else:
            stored[key] = value.astype(dtype)
            expected[key] = stored[key].astype(np.float32)
    checkpoint = weights.read(write_bert(tmp_path, stored))
    np.testing.assert_array_equal(checkpoint.tensors["encoder.layers.0.feed_forward.inner.weight"], expected[name])
    assert checkpoint.precision == dtype
    assert all(tensor.dtype == np.float32 for tensor in checkpoint.tensors.values())


def test_shards(tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = random_bert(rng)
    whole = weights.read(write_bert(tmp_path, tensors)).tensors
    (tmp_path / "model.safetensors").unlink()
    parts = {"one.safetensors": {}, "two.safetensors": {}}  # type: dict[str, dict[str, np.ndarray]]
    for i, (name, value) in enumerate(tensors.items()):
        parts[("one.safetensors", "two.safetensors")[i % 2]][name] = value
    for file, held in parts.items():
        (tmp_path / file).write_bytes(safetensors_bytes(held))
    index = {name: file for file, held in parts.items() for name in held}
    write_json(tmp_path / "model.safetensors.index.json", {"metadata": {}, "weight_map": index})
    for name, value in weights.read(tmp_path).tensors.items():
        np.testing.assert_array_equal(value, whole[name])
    for file, fault in {"../one.safetensors": "in a .safetensors file here", "two.safetensors": "lacks"}.items():
        write_json(tmp_path / "model.safetensors.index.json", {"weight_map": index | {next(iter(tensors)): file}})
        refusal(tmp_path, fault)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"model_type": "gptj"}, "model type 'gptj' is not supported; known: albert, "),
        ({"model_type": None}, "model_type is missing"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key'"),
        ({"is_decoder": True, "add_cross_attention": True}, "is_decoder True; add_cross_attention True"),
        ({"hidden_act": "prelu"}, "hidden_act should be one of gelu, .*, is 'prelu'"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers should be at most 1024, is 1000000000"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers should be an integer of at least 1, is '2'"),
        ({"num_attention_heads": 5}, "hidden_size 12 is not a multiple of num_attention_heads 5"),
        ({"num_attention_heads": 0}, "num_attention_heads should be an integer of at least 1"),
        ({"layer_norm_eps": "x"}, "layer_norm_eps should be a finite number"),
        ({"layer_norm_eps": 10**400}, "layer_norm_eps should be a finite number"),
        ({"num_hidden_layers": 3}, "missing encoder.layer.2.attention.self.query.weight .12, 12."),
        ({"num_hidden_layers": 1}, "unexpected encoder.layer.1.attention.self.query.weight"),
        ({"vocab_size": 18}, r"embeddings.word_embeddings.weight should be \[18, 12\], is \[17, 12\]"),
    ],
)
def test_configs_that_are_refused(tmp_path: Path, rng: np.random.Generator, changes: dict, fault: str) -> None:
    refusal(write_bert(tmp_path, random_bert(rng), **changes), fault)


def test_missing_extra_and_misshapen_tensors_in_one_error(tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = random_bert(rng)
    del tensors["encoder.layer.0.attention.self.key.weight"]
    tensors["lm_head.decoder.weight"] = np.zeros((1, 2), np.float32)
    tensors["encoder.layer.1.output.dense.bias"] = np.zeros(13, np.float32)
    message = refusal(write_bert(tmp_path, tensors))
    for part in (
        "missing encoder.layer.0.attention.self.key.weight [12, 12]",
        "unexpected lm_head.decoder.weight [1, 2]",
        "encoder.layer.1.output.dense.bias should be [12], is [13]",
    ):
        assert part in message


def test_integers_are_no_weights(tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = random_bert(rng) | {"embeddings.LayerNorm.bias": np.zeros(12, np.int64)}
    refusal(write_bert(tmp_path, tensors), "should be F32, F16 or BF16, is I64")


def test_files_that_are_missing_or_of_another_framework(tmp_path: Path, rng: np.random.Generator) -> None:
    write_bert(tmp_path, random_bert(rng))
    (tmp_path / "tokenizer.json").rename(tmp_path / "elsewhere")
    refusal(tmp_path, r"tokenizer\.json: no such file")
    (tmp_path / "elsewhere").rename(tmp_path / "tokenizer.json")
    (tmp_path / "model.safetensors").rename(tmp_path / "tf_model.h5")
    refusal(tmp_path, r"tf_model\.h5: not supported; save the model as safetensors")
    (tmp_path / "tf_model.h5").unlink()
    refusal(tmp_path, r"model\.safetensors: no such file")
    (tmp_path / "config.json").write_text('{"a": 1, "a": 2}')
    refusal(tmp_path, "'a' is given twice")


def test_the_length_is_the_tokenizers_but_never_beyond_the_positions(tmp_path: Path, rng: np.random.Generator) -> None:
    write_bert(tmp_path, random_bert(rng))
    for stated, length in ((7, 7), (1000000000000000019884624838656, 9), (1e30, 9)):
        write_json(tmp_path / "tokenizer_config.json", {"model_max_length": stated})
        assert read_text(tmp_path).max_length == length


def test_a_sentence_transformer_with_everything(tmp_path: Path, rng: np.random.Generator) -> None:
    flags = {"word_embedding_dimension": 12, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}
    dense = {"in_features": 24, "out_features": 5, "activation_function": "torch.nn.modules.linear.Identity"}
    path = write_sentence_transformer(
        tmp_path, random_bert(rng), {POOLING: flags | {"include_prompt": False}, DENSE: dense, NORMALIZE: None}
    )
    layer = {"linear.weight": rng.normal(size=(5, 24)).astype(np.float32), "linear.bias": np.ones(5, np.float32)}
    (path / "2_Dense" / "model.safetensors").write_bytes(safetensors_bytes(layer))
    modality = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
    transformer = {"max_seq_length": 6, "do_lower_case": True, "modality_config": modality}
    transformer |= {"model_args": {"attn_implementation": "sdpa"}, "processor_kwargs": {"padding_side": "left"}}
    write_json(path / OWN, transformer | {"module_output_name": "token_embeddings"})
    prompts = {"prompts": {"query": "q: ", "document": None}, "default_prompt_name": "query"}
    write_json(path / TOP, prompts | {"similarity_fn_name": "dot", "truncate_dim": 3})
    checkpoint = weights.read(path)
    text = checkpoint.text
    assert isinstance(text, EncoderText)
    assert checkpoint.format == "sentence-transformers"
    assert (text.max_length, text.lowercase, text.pooling) == (6, True, ("cls", "mean"))
    assert (text.include_prompt, text.normalize, text.similarity) == (False, True, "dot")
    assert (text.prompts, text.default_prompt, text.truncate_dim) == ({"query": "q: ", "document": ""}, "query", 3)
    ((weight, bias, activation),) = text.dense
    np.testing.assert_array_equal(weight, layer["linear.weight"])
    assert bias is not None and bias.tolist() == [1] * 5 and activation == "none"


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        (MEAN, ("mean",)),
        ({}, ("mean",)),
        ({"pooling_mode": "lasttoken"}, ("lasttoken",)),
        ({"pooling_mode": ["mean", "cls"], "embedding_dimension": 12}, ("mean", "cls")),
        ({"pooling_mode_max_tokens": True, "pooling_mode_weightedmean_tokens": True}, ("max", "weightedmean")),
    ],
)
@pytest.mark.parametrize("kind", (POOLING, "sentence_transformers.sentence_transformer.modules.pooling.Pooling"))
def test_pooling_in_old_and_new_words(
    tmp_path: Path, rng: np.random.Generator, kind: str, config: dict, pooling: tuple[str, ...]
) -> None:
    text = read_text(write_sentence_transformer(tmp_path, random_bert(rng), {kind: config}))
    assert text.pooling == pooling and not text.normalize


@pytest.mark.parametrize(
    ("modules", "fault"),
    [
        ({}, "modules should be Transformer, Pooling"),
        ({NORMALIZE: None, POOLING: MEAN}, "they are Transformer, Normalize, Pooling"),
        (
            {POOLING: MEAN, NORMALIZE: None, LAYER_NORM: {"dimension": 13}},
            "dimension should be 12, what the module befo",
        ),
        ({"sentence_transformers.models.CNN": {}}, "module 'sentence_transformers.models.CNN' is not supported"),
        ({"os.Pooling": {}}, "module 'os.Pooling' is not supported; supported: Transformer, Pooling"),
        ({POOLING: {"pooling_mode": "median"}}, "pooling_mode should be one or more of cls, max, mean"),
        ({POOLING: {"pooling_mode": []}}, "pooling_mode should be one or more of"),
        (
            {POOLING: {"word_embedding_dimension": 13}},
            "word_embedding_dimension should be the encoder's width 12, is 13",
        ),
        ({POOLING: MEAN, DENSE: {"in_features": 13, "out_features": 2}}, "in_features should be 12"),
        ({POOLING: MEAN, DENSE: {"in_features": 12, "out_features": 2, "use_residual": True}}, "use_residual is not"),
        ({POOLING: MEAN, NORMALIZE: {"module_input_name": "token_embeddings"}}, "module_input_name should be"),
        (
            {POOLING: MEAN, DENSE: {"in_features": 12, "out_features": 2, "activation_function": "evil.Run"}},
            "activation_function should be one of torch",
        ),
        ({POOLING: None}, r"1_Pooling.config\.json: no such file"),
    ],
)
def test_modules_that_are_refused(tmp_path: Path, rng: np.random.Generator, modules: dict, fault: str) -> None:
    refusal(write_sentence_transformer(tmp_path, random_bert(rng), modules), fault)


@pytest.mark.parametrize(
    ("file", "content", "fault"),
    [
        ("modules.json", {}, "should hold a list of objects"),
        ("modules.json", [{"type": POOLING, "path": "../x"}], "path should be a folder below this one"),
        (OWN, {"max_seq_length": 0}, "max_seq_length should be an integer of at least 1"),
        (OWN, {"transformer_task": "text-generation"}, "transformer_task 'text-generation' is not"),
        (OWN, {"module_output_name": "x"}, "module_output_name should be 'token_embeddings'"),
        (
            OWN,
            {"modality_config": {"text": {"method_output_name": "pooler_output"}}},
            "method_output_name should be 'last_hidden_state'",
        ),
        (OWN, {"config_args": {"is_causal": False}}, "config_args: 'is_causal' is not supported"),
        (OWN, {"processing_kwargs": {"text": {}}}, "processing_kwargs: 'text' is not supported"),
        (TOP, {"truncate_dim": 0}, "truncate_dim should be an integer of at least 1"),
        (TOP, {"model_type": "Fish"}, "is 'Fish'"),
        (TOP, {"model_type": "SparseEncoder"}, "that predicts tokens, SpladePooling; they"),
        (TOP, {"default_prompt_name": "q"}, "default_prompt_name should be one of"),
        (TOP, {"prompts": {"q": 1}}, "prompts should be strings by name"),
        (TOP, {"similarity_fn_name": "hamming"}, "similarity_fn_name should be one of"),
    ],
)
def test_configs_around_modules_that_are_refused(
    tmp_path: Path, rng: np.random.Generator, file: str, content: object, fault: str
) -> None:
    path = write_sentence_transformer(tmp_path, random_bert(rng), {POOLING: MEAN})
    write_json(path / file, content)
    refusal(path, fault)


def test_dense_weights_that_do_not_fit_or_are_no_tensors(tmp_path: Path, rng: np.random.Generator) -> None:
    dense = {"in_features": 12, "out_features": 2}
    path = write_sentence_transformer(tmp_path, random_bert(rng), {POOLING: MEAN, DENSE: dense})
    (path / "2_Dense" / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    refusal(path, r"pytorch_model\.bin: its pickle lacks an operand")
    (path / "2_Dense" / "model.safetensors").write_bytes(
        safetensors_bytes({"linear.weight": np.zeros((12, 2), np.float32)})
    )
    refusal(path, r"should be linear.bias \[2\], linear.weight \[2, 12\], are linear.weight")
