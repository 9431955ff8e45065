"""A setting that is left out has the value that its source gives it: goldens/make_defaults.py."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastattn.errors import CheckpointError
from fastattn.spec.text_spec import EncoderText, MultiVectorText
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.folder import Directory
from fastattn.weights.huggingface.decoders import DECODERS, find_decoder
from fastattn.weights.huggingface.encoders import ENCODERS, find_architecture, read_labels
from fastattn.weights.huggingface.sentence_transformers import READERS
from tests import GOLDENS
from tests.weights.containers.safetensors_writer import safetensors_bytes, write_json

DEFAULTS = json.loads((GOLDENS / "defaults.json").read_text(encoding="utf-8"))
CONFIGS: dict[str, dict[str, Any]] = DEFAULTS["configs"]
TEXT = EncoderText(b"", 9)
NOT_THERE = {"new"}  # the code of its authors, which is no package
# Settings without which a config.json is refused, though transformers has a size for them.
REFUSED = {
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("max_position_embeddings", "model_type", "dim", "hidden_dim", "n_heads", "n_layers"),
    *("d_model", "d_kv", "d_ff", "num_layers", "num_heads"),
}

HEADS = ("num_attention_heads", "n_heads", "num_heads")
# Settings on which it depends whether others are asked for: the switches are no defaults, and stay.
SWITCHES = {"use_sliding_window", "use_bidirectional_attention", "relative_attention", "conv_kernel_size"}
SWITCHES |= {"pos_att_type"}
WINDOW = {"use_sliding_window": True, "sliding_window": 4096, "layer_types": None, "num_hidden_layers": 40}
CHANGED: dict[str, dict[str, Any]] = {
    "qwen2": WINDOW,
    "qwen3": WINDOW,
    "gemma3_text": {"layer_types": None, "use_bidirectional_attention": True},
    "modernbert": {"layer_types": None},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p"], "conv_kernel_size": 3},
}


class Asked(dict[str, Any]):
    """Settings, and the names of those that were asked for."""

    def __init__(self, values: dict[str, Any]):
        super().__init__(values)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


def described(values: dict[str, Any]) -> list[Any]:
    """All that is read of a config.json: the stack, the tables of tensors, each head, its labels."""
    config = JsonObject(values, "config.json")
    architecture = find_architecture(config)
    spec = architecture.spec(config)
    found: list[Any] = [spec, architecture.table(config, spec), architecture.unused_prefixes(config)]
    for name, head in architecture.heads.items():
        found += [head.spec(config, spec, 2), head.table(config, spec)]
        config.values["architectures"] = [name]
        found.append(read_labels(config, architecture.heads, TEXT))
    return found


def without_one(values: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The settings without each of them, and without each within them."""
    for name, value in values.items():
        yield name, {other: kept for other, kept in values.items() if other != name}
        if name == "rope_parameters":
            for inner, less in without_one(value):
                yield f"{name}.{inner}", values | {name: less}
            for kind, inside in value.items():
                for inner, less in without_one(inside) if isinstance(inside, dict) else ():
                    yield f"{name}.{kind}.{inner}", values | {name: value | {kind: less}}


def check(describe: Callable[[dict[str, Any]], list[Any]], stated: dict[str, Any], kept: set[str], known: Any) -> None:
    """Without any setting but those that are kept, the same is read, or it is refused as one of the known ones."""
    expected = describe(dict(stated))
    for name, values in without_one(stated):
        if name not in kept:
            try:
                assert describe(dict(values)) == expected, name
            except CheckpointError as error:
                assert name in str(error) and name in known, name


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_setting_that_is_left_out(kind: str) -> None:
    """Of other heads too, so that a default that is computed is not the constant by chance."""
    values = CONFIGS[kind]
    factors = dict.fromkeys(("hidden_size", "d_model", "dim"), 4) | dict.fromkeys(HEADS, 2)
    larger = {name: factors[name] * values[name] for name in factors if name in values}
    for change in ({}, larger, CHANGED.get(kind, {})):
        stated = values | change
        check(
            described, stated, {name for name in SWITCHES & stated.keys() if stated[name] != values.get(name)}, REFUSED
        )


@pytest.mark.parametrize("kind", DEFAULTS["decoders"])
def test_a_decoders_setting_that_is_left_out(kind: str) -> None:
    check(described_decoder, DEFAULTS["decoders"][kind], set(), REFUSED | {"n_embd", "n_head", "n_layer"})


def described_decoder(values: dict[str, Any]) -> list[Any]:
    config = JsonObject(dict(values), "config.json")
    architecture = find_decoder(config)
    spec = architecture.spec(config)
    return [spec, architecture.table(config, spec)]


# What fastattn asks for and transformers' classes do not list: what they take beside, older names, and what would be
# refused.
OTHER_NAMES = {
    *("rope_scaling", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings"),
    *("global_rope_theta", "local_rope_theta", "rope_local_base_freq"),
    *("global_attn_every_n_layers", "sliding_window_pattern"),
    *("position_embedding_type", "is_decoder", "add_cross_attention", "is_causal", "auto_map"),
    *("use_bidirectional_attention", "layer_norm_type", "pack_qkv", "logn_attention_scale", "use_rms_norm"),
    *("conv_groups", "attention_head_size", "conv_kernel_size", "conv_act", "max_relative_positions", "n_embd"),
    *("position_buckets", "norm_rel_ebd", "share_att_key", "embedding_size", "num_labels", "pooler_hidden_act"),
    *("tie_word_embeddings", "type_vocab_size", "head_dim", "sentence_transformers"),
    "sbert_ce_default_activation_function",
}


def test_every_setting_that_is_asked_for_is_among_them() -> None:
    assert CONFIGS.keys() | NOT_THERE == ENCODERS.keys()
    assert DEFAULTS["decoders"].keys() | {"gemma3"} == DECODERS.keys()  # which has a text's configuration within
    for kind, values in CONFIGS.items():
        asked = Asked(values)
        described(asked)
        assert asked.names - values.keys() - {"architectures"} <= OTHER_NAMES, kind


def read_module(folder: Path, name: str, values: dict[str, Any]) -> tuple[EncoderText, int]:
    write_json(folder / "config.json", values)
    tensors = {"linear.weight": np.ones((5, 6), np.float32)}
    if values.get("bias", True):
        tensors["linear.bias"] = np.zeros(5, np.float32)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    text = replace(TEXT, multi_vector=MultiVectorText()) if name == "MultiVectorMask" else TEXT
    found, width = READERS[name](Directory(folder), "", text, 6)
    return replace(found, dense=tuple(act for *_, act in found.dense)), width  # type: ignore[arg-type]


def test_a_modules_setting_that_is_left_out(tmp_path: Path) -> None:
    for name in ("Dense", "MultiVectorMask", "Normalize", "Pooling", "SpladePooling"):
        values = DEFAULTS["modules"][name]
        if name == "Dense":
            values = values | {"in_features": 6, "out_features": 5}
        expected = read_module(tmp_path, name, values)
        for left, others in without_one(values):
            if left not in ("in_features", "out_features"):
                assert read_module(tmp_path, name, others) == expected, left
