"""Hugging Face BERT directories and sentence-transformers folders."""

import numpy as np
import pytest

from fastattn.encoders.encoder import Encoder
from fastattn.ops import reference
from fastattn.weights import read
from tests.cli.commands import succeed
from tests.verification.encoder_folders import write_bert as write_encoder
from tests.weights.containers.safetensors_writer import MEAN_POOLING as MEAN
from tests.weights.containers.safetensors_writer import (
    random_bert,
    safetensors_bytes,
    write_bert,
    write_json,
    write_sentence_transformer,
)
from tests.weights.native.folders import converted
from tests.weights.refusals import refuses

POOLING = "sentence_transformers.models.Pooling"
NORMALIZE = "sentence_transformers.models.Normalize"
DENSE = "sentence_transformers.models.Dense"
LAYER_NORM = "sentence_transformers.sentence_transformer.modules.layer_norm.LayerNorm"
OWN, TOP = "sentence_bert_config.json", "config_sentence_transformers.json"


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_old_norm_names(tmp_path, rng):
    tensors = random_bert(rng)
    renamed = {n.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): tensors[n] for n in tensors}
    ours = read(write_bert(tmp_path, renamed)).tensors
    np.testing.assert_array_equal(ours["encoder.embedding_norm.bias"], tensors["embeddings.LayerNorm.bias"])


@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "float64"))
def test_other_float_types(tmp_path, rng, dtype):
    tensors = random_bert(rng)
    kept = tensors["encoder.layer.0.intermediate.dense.weight"]
    expected = kept.astype(dtype).astype("f4") if dtype != "bfloat16" else (kept.view("u4") & 0xFFFF0000).view("f4")
    floats = {name: one for name, one in tensors.items() if one.dtype == np.float32}
    for name, one in floats.items():  # bfloat16 by its bits
        tensors[name] = (one.view("u4") >> 16).astype("u2") if dtype == "bfloat16" else one.astype(dtype)
    checkpoint = read(write_bert(tmp_path, tensors))
    np.testing.assert_array_equal(checkpoint.tensors["encoder.layers.0.feed_forward.inner.weight"], expected)
    assert checkpoint.precision == dtype
    assert {tensor.dtype for tensor in checkpoint.tensors.values()} == {np.dtype("f4")}


def test_shards(tmp_path, rng):
    tensors = random_bert(rng)
    whole = read(write_bert(tmp_path, tensors)).tensors
    (tmp_path / "model.safetensors").unlink()
    index = {name: ("one.safetensors", "two.safetensors")[i % 2] for i, name in enumerate(tensors)}
    for file in set(index.values()):
        held = {name: tensors[name] for name in tensors if index[name] == file}
        (tmp_path / file).write_bytes(safetensors_bytes(held))
    write_json(tmp_path / "model.safetensors.index.json", {"metadata": {}, "weight_map": index})
    for name, value in read(tmp_path).tensors.items():
        np.testing.assert_array_equal(value, whole[name])
    for file in ("../one.safetensors", "two.safetensors"):
        write_json(tmp_path / "model.safetensors.index.json", {"weight_map": index | {next(iter(tensors)): file}})
        refuses(tmp_path)


# What tests/architectures has not of all types.
CONFIGS = [
    {"model_type": "gptj"}, {"model_type": None}, {"num_hidden_layers": 10**9}, {"num_hidden_layers": "2"},
    {"num_hidden_layers": 3}, {"num_hidden_layers": 1}, {"num_attention_heads": 0}, {"layer_norm_eps": "x"},
    {"layer_norm_eps": 10**400}, {"vocab_size": 18},
]  # fmt: skip


def test_configs_that_are_refused(tmp_path, rng):
    for changes in CONFIGS:
        refuses(write_bert(tmp_path, random_bert(rng), **changes))
    for part in (None, "encoder"):  # known types are those that the caller takes, the nearest first
        refuses(write_bert(tmp_path, random_bert(rng), model_type="qwen4"), part=part)
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    refuses(tmp_path)
    (tmp_path / "config.json").unlink()
    refuses(tmp_path)


def test_missing_extra_and_misshapen_tensors_in_one_error(tmp_path, rng):
    tensors = random_bert(rng)
    del tensors["encoder.layer.0.attention.self.key.weight"]
    tensors["lm_head.decoder.weight"] = np.zeros((1, 2), np.float32)
    tensors["encoder.layer.1.output.dense.bias"] = np.zeros(13, np.float32)
    refuses(write_bert(tmp_path, tensors))
    refuses(write_bert(tmp_path, random_bert(rng) | {"embeddings.LayerNorm.bias": np.zeros(12, np.int64)}))


def test_files_that_are_missing_or_of_another_framework(tmp_path, rng):
    write_bert(tmp_path, random_bert(rng))
    for name, other in (("tokenizer.json", "elsewhere"), ("model.safetensors", "tf_model.h5")):
        (tmp_path / name).rename(tmp_path / other)
        refuses(tmp_path)
        (tmp_path / other).rename(tmp_path / name)
    (tmp_path / "model.safetensors").unlink()
    refuses(tmp_path)
    (tmp_path / "model.fp16.safetensors").touch()
    refuses(tmp_path)
    (tmp_path / "config.json").write_text('{"a": 1, "a": 2}')
    refuses(tmp_path)


def test_a_sentence_transformer_with_everything(tmp_path, rng):
    flags = {"word_embedding_dimension": 12, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}
    dense = {"in_features": 24, "out_features": 5, "activation_function": "torch.nn.modules.linear.Identity"}
    path = write_sentence_transformer(
        tmp_path, random_bert(rng), {POOLING: flags | {"include_prompt": False}, DENSE: dense, NORMALIZE: None}
    )
    layer = {"linear.weight": np.zeros((5, 24), np.float32), "linear.bias": np.ones(5, np.float32)}
    (path / "2_Dense" / "model.safetensors").write_bytes(safetensors_bytes(layer))
    modality = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
    transformer = {"max_seq_length": 6, "do_lower_case": True, "modality_config": modality}
    transformer |= {"model_args": {"attn_implementation": "sdpa"}, "processor_kwargs": {"padding_side": "left"}}
    write_json(path / OWN, transformer | {"module_output_name": "token_embeddings"})
    prompts = {"prompts": {"query": "q: ", "document": None}, "default_prompt_name": "query"}
    write_json(path / TOP, prompts | {"similarity_fn_name": "dot", "truncate_dim": 3})
    checkpoint = read(path)
    text = checkpoint.text
    assert checkpoint.format == "sentence-transformers"
    assert (text.max_length, text.lowercase, text.pooling) == (6, True, ("cls", "mean"))
    assert (text.include_prompt, text.normalize, text.similarity) == (False, True, "dot")
    assert (text.prompts, text.default_prompt, text.truncate_dim) == ({"query": "q: ", "document": ""}, "query", 3)
    assert [activation for _, _, activation in text.dense] == ["none"]


NEW_POOLING = "sentence_transformers.sentence_transformer.modules.pooling.Pooling"
FLAGS = {"pooling_mode_weightedmean_tokens": True, "pooling_mode_max_tokens": True}


@pytest.mark.parametrize(
    "kind, config, pooling",
    [
        (POOLING, MEAN, ("mean",)), (POOLING, {}, ("mean",)), (POOLING, FLAGS, ("max", "weightedmean")),
        (NEW_POOLING, {"pooling_mode": "lasttoken"}, ("lasttoken",)),
        (POOLING, {"pooling_mode": ["mean", "cls"], "embedding_dimension": 12}, ("mean", "cls")),
    ],
)  # fmt: skip
def test_pooling_in_old_and_new_words(tmp_path, rng, kind, config, pooling):
    text = read(write_sentence_transformer(tmp_path, random_bert(rng), {kind: config})).text
    assert text.pooling == pooling and not text.normalize


SIZES = {"in_features": 12, "out_features": 2}
MODULES = [
    {}, {NORMALIZE: None, POOLING: MEAN}, {POOLING: MEAN, NORMALIZE: None, LAYER_NORM: {"dimension": 13}},
    {"sentence_transformers.models.CNN": {}}, {"os.Pooling": {}}, {POOLING: {"pooling_mode": "median"}},
    {POOLING: {"pooling_mode": []}}, {POOLING: {"word_embedding_dimension": 13}},
    {POOLING: MEAN, DENSE: SIZES | {"in_features": 13}}, {POOLING: MEAN, DENSE: SIZES | {"use_residual": True}},
    {POOLING: MEAN, NORMALIZE: {"module_input_name": "token_embeddings"}},
    {POOLING: MEAN, DENSE: SIZES | {"activation_function": "evil.Run"}}, {POOLING: None},
]  # fmt: skip
BESIDE = [
    ("modules.json", {}), ("modules.json", [{"type": POOLING, "path": "../x"}]), (OWN, {"max_seq_length": 0}),
    (OWN, {"transformer_task": "text-generation"}), (OWN, {"module_output_name": "x"}),
    (OWN, {"modality_config": {"text": {"method_output_name": "pooler_output"}}}),
    (OWN, {"config_args": {"is_causal": False}}), (OWN, {"processing_kwargs": {"text": {}}}),
    (TOP, {"truncate_dim": 0}), (TOP, {"model_type": "Fish"}), (TOP, {"model_type": "SparseEncoder"}),
    (TOP, {"default_prompt_name": "q"}), (TOP, {"prompts": {"q": 1}}), (TOP, {"similarity_fn_name": "hamming"}),
]  # fmt: skip


def test_modules_and_configs_around_them_that_are_refused(tmp_path, rng):
    for number, modules in enumerate(MODULES):
        refuses(write_sentence_transformer(tmp_path / f"modules{number}", random_bert(rng), modules))
    for number, (file, content) in enumerate(BESIDE):
        path = write_sentence_transformer(tmp_path / f"beside{number}", random_bert(rng), {POOLING: MEAN})
        write_json(path / file, content)
        refuses(path)


def test_dense_weights_that_do_not_fit_or_are_no_tensors(tmp_path, rng):
    path = write_sentence_transformer(tmp_path, random_bert(rng), {POOLING: MEAN, DENSE: SIZES})
    (path / "2_Dense" / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    refuses(path)
    transposed = {"linear.weight": np.zeros((12, 2), np.float32)}
    (path / "2_Dense" / "model.safetensors").write_bytes(safetensors_bytes(transposed))
    refuses(path)


WIDTH = 36
BASE = "sentence_transformers.sentence_transformer.modules"
MODULE_CONFIGS = {
    "Pooling": {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True}, "Dropout": {"dropout": 0.3},
    "Dense": {"in_features": WIDTH, "out_features": 5, "activation_function": "torch.nn.modules.activation.Mish"},
    "LayerNorm": {"dimension": 5}, "Normalize": {},
}  # fmt: skip
PATHS = dict.fromkeys(("Normalize", "Dense"), "sentence_transformers.base.modules")
RNG = np.random.default_rng(5)
WEIGHT_FD, (BIAS_F, GAIN_F, SHIFT_F) = RNG.normal(size=(5, WIDTH)).astype("f4"), RNG.normal(size=(3, 5)).astype("f4")
TENSORS = {
    "Dense": {"linear.weight": WEIGHT_FD, "linear.bias": BIAS_F},
    "LayerNorm": {"norm.weight": GAIN_F, "norm.bias": SHIFT_F},
}


def write_modules(folder, *modules):
    """A BERT's folder with these modules after its transformer."""
    write_encoder(folder)
    entries = [{"path": "", "type": "sentence_transformers.models.Transformer"}]
    for number, kind in enumerate(modules, 1):
        place = f"{number}_{kind}"
        entries.append({"path": place, "type": f"{PATHS.get(kind, BASE)}.{kind}"})
        write_json(folder / place / "config.json", MODULE_CONFIGS[kind])
        if kind in TENSORS:
            (folder / place / "model.safetensors").write_bytes(safetensors_bytes(TENSORS[kind]))
    write_json(folder / "modules.json", [entry | {"idx": i, "name": str(i)} for i, entry in enumerate(entries)])
    return folder


def mish(x):
    return x * np.tanh(np.log1p(np.exp(x)))


STEPS = {
    "Dense": lambda x: mish(WEIGHT_FD @ x + BIAS_F), "Dropout": lambda x: x,
    "Normalize": lambda x: x / np.linalg.norm(x),
    "LayerNorm": lambda x: (x - x.mean()) / np.sqrt(x.var() + 1e-5) * GAIN_F + SHIFT_F,
}  # fmt: skip
ORDERS = [
    "Dropout Normalize Dense LayerNorm", "Dense Dropout LayerNorm Normalize",
    "Normalize Dense Normalize LayerNorm Normalize",
]  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
def test_modules_in_any_order(order, tmp_path):
    modules = order.split()
    plain = Encoder.from_checkpoint(read(write_modules(tmp_path / "plain", "Pooling")), ops=reference)
    expected = plain.encode("w5 w9 w7").astype(np.float64)
    for kind in modules:
        expected = STEPS[kind](expected)
    checkpoint = read(write_modules(tmp_path / "theirs", "Pooling", *modules))
    for one in (checkpoint, read(converted(checkpoint, tmp_path / "ours", "float32"))):
        encoder = Encoder.from_checkpoint(one, ops=reference)
        assert encoder.dimension == 5
        np.testing.assert_allclose(encoder.encode("w5 w9 w7"), expected, atol=1e-5)
    np.testing.assert_allclose(Encoder(tmp_path / "ours").encode("w5 w9 w7"), expected, atol=1e-5)


def test_inspect_names_them(tmp_path):
    told = succeed("inspect", write_modules(tmp_path / "model", "Pooling", "Normalize", "Dense", "LayerNorm"))
    lines = [line.split(maxsplit=1)[1] for line in told.splitlines() if line.startswith("dense")]
    assert lines == ["unit length", "36 to 5, mish", "layer norm"]
