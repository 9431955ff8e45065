"""A GGUF file's language model -> a Checkpoint, by way of the config.json that the model would have in transformers.

A file has fewer settings than config.json: the other settings are fixed for each architecture, as in llama.cpp.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.printable import counted
from fastattn.spec.architecture import ModelSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.weights.containers.gguf import GGUF, BlockTensor, parse_gguf
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.folder import Directory
from fastattn.weights.gguf.tokenizer import read_text
from fastattn.weights.huggingface.decoders import find_decoder
from fastattn.weights.tensor_mapping import TensorSources, canonical_tensors, main_precision, sources

ROPE_FACTORS = "rope_freqs.weight"
EMBEDDING = "token_embd.weight"
LLAMA3_LENGTH, LLAMA3_SLOW, LLAMA3_FAST = 8192, 1.0, 4.0  # of all models of Llama 3


@dataclass(frozen=True)
class Variant:
    """How files of an architecture differ from Llama's."""

    model_type: str  # transformers' name
    # (the architecture's keys) -> fields of config.json beyond or instead of Llama's
    extra_fields: Callable[[JsonObject], dict[str, Any]] = lambda keys: {}
    interleaved: bool = False  # whether rotary positions rotate neighbouring dimensions of queries and keys together
    epsilon_key: str = "layer_norm_rms_epsilon"  # the key of the norms' epsilon, behind "attention."
    windowed: bool = False  # whether layers may have a window
    partly_rotary: bool = False  # whether rotary positions may rotate only some of a head's dimensions


def _gemma_fields(keys: JsonObject, most_layers: int) -> dict[str, Any]:
    """Gemma's settings. No file has attention's scale; the largest model, of ``most_layers`` layers, has another."""
    heads, width = keys.integer("attention.head_count", minimum=1), keys.integer("embedding_length", minimum=1)
    head_width = keys.integer("attention.key_length", 256, minimum=1)
    scalar = width / heads if keys.integer("block_count") == most_layers else head_width
    return {
        "head_dim": head_width,
        "query_pre_attn_scalar": scalar,
        "sliding_window": keys.integer("attention.sliding_window", 4096, minimum=1),
        "hidden_activation": "gelu_pytorch_tanh",
        "attn_logit_softcapping": keys.number("attn_logit_softcapping", 0.0) or None,
        "final_logit_softcapping": keys.number("final_logit_softcapping", 0.0) or None,
    }


def _gemma2_fields(keys: JsonObject) -> dict[str, Any]:
    defaults = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    settings = _gemma_fields(keys, most_layers=46)
    return settings | {name: settings[name] if keys.has(name) else value for name, value in defaults.items()}


def _gemma3_fields(keys: JsonObject) -> dict[str, Any]:
    local_base = keys.number("rope.freq_base_swa", 10_000.0)
    return _gemma_fields(keys, most_layers=62) | {"rope_local_base_freq": local_base, "sliding_window_pattern": 6}


def _gpt2_fields(keys: JsonObject) -> dict[str, Any]:
    names = {"n_embd": "embedding_length", "n_layer": "block_count", "n_head": "attention.head_count"}
    names |= {"n_inner": "feed_forward_length", "n_positions": "context_length"}
    return {name: keys.integer(key, minimum=1) for name, key in names.items()} | {
        "layer_norm_epsilon": keys.number("attention.layer_norm_epsilon"),
        "activation_function": "gelu_new",
    }


def _gptneox_fields(keys: JsonObject) -> dict[str, Any]:
    heads, width = keys.integer("attention.head_count", minimum=1), keys.integer("embedding_length", minimum=1)
    return {
        "layer_norm_eps": keys.number("attention.layer_norm_epsilon"),
        "rotary_pct": keys.integer("rope.dimension_count", minimum=1) / (width / heads),
        "rotary_emb_base": keys.number("rope.freq_base", 10_000.0),
        "use_parallel_residual": keys.boolean("use_parallel_residual", True),
        "hidden_act": "gelu",
    }


def _phi3_fields(keys: JsonObject) -> dict[str, Any]:
    heads, width = keys.integer("attention.head_count", minimum=1), keys.integer("embedding_length", minimum=1)
    head_width, length_key = max(width // heads, 1), "rope.scaling.original_context_length"
    fields: dict[str, Any] = {"sliding_window": keys.integer("attention.sliding_window", 0) or None}
    fields["partial_rotary_factor"] = keys.integer("rope.dimension_count", head_width, minimum=1) / head_width
    trained_length = keys.integer(length_key, keys.integer("context_length", minimum=1), minimum=1)
    return fields | {"original_max_position_embeddings": trained_length}


# general.architecture -> its variant.
VARIANTS = {
    "llama": Variant("llama", interleaved=True),
    "qwen2": Variant("qwen2"),
    "qwen3": Variant("qwen3"),
    "gemma2": Variant("gemma2", _gemma2_fields, windowed=True),
    "gemma3": Variant("gemma3_text", _gemma3_fields, windowed=True),
    "phi3": Variant("phi3", _phi3_fields, windowed=True, partly_rotary=True),
    "gpt2": Variant("gpt2", _gpt2_fields, epsilon_key="layer_norm_epsilon"),
    "gptneox": Variant("gpt_neox", _gptneox_fields, epsilon_key="layer_norm_epsilon", partly_rotary=True),
    "olmo2": Variant("olmo2"),
    "smollm3": Variant("smollm3", interleaved=True),
    "hunyuan-dense": Variant("hunyuan_v1_dense"),
}
# Key of an architecture -> the value that changes no result; no other value is supported.
NEUTRAL_VALUES = {"expert_count": 0, "rope.scaling.attn_factor": 1.0, "rope.scaling.yarn_attn_factor": 1.0,
                  "rope.scaling.yarn_ext_factor": 1.0, "attention.causal": True, "logit_scale": 1.0,
                  "embedding_scale": 1.0, "residual_scale": 1.0, "attention.scale": 0.0}  # fmt: skip


def make_config(file: GGUF) -> tuple[Variant, JsonObject]:
    """(the file's variant, its config.json); CheckpointError for settings that are not supported."""
    where, metadata = file.metadata.where, file.metadata
    name = metadata.choice("general.architecture", VARIANTS)
    variant, prefix = VARIANTS[name], name + "."
    by_key = {key.removeprefix(prefix): value for key, value in metadata.values.items() if key.startswith(prefix)}
    keys = JsonObject(by_key, f"{where}: {name}")
    neutral = NEUTRAL_VALUES if variant.windowed else NEUTRAL_VALUES | {"attention.sliding_window": 0}
    values = {key: keys.values[key] for key in neutral if keys.has(key)}
    unsupported = [key for key, value in values.items() if not isinstance(value, int | float) or value != neutral[key]]
    if unsupported:
        raise CheckpointError(f"{keys.where}: not supported: {', '.join(unsupported)}")
    if EMBEDDING not in file.tensors or len(file.tensors[EMBEDDING].shape) != 2:
        raise CheckpointError(f"{where}: there should be a matrix {EMBEDDING}")
    heads = keys.integer("attention.head_count", minimum=1)
    config: dict[str, Any] = {
        "model_type": variant.model_type,
        "vocab_size": file.tensors[EMBEDDING].shape[0],
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "hidden_size": keys.integer("embedding_length", minimum=1),
        "num_hidden_layers": keys.integer("block_count", minimum=1),
        "intermediate_size": keys.integer("feed_forward_length", minimum=1),
        "num_attention_heads": heads,
        "num_key_value_heads": keys.integer("attention.head_count_kv", heads, minimum=1),
        "max_position_embeddings": keys.integer("context_length", minimum=1),
        "rms_norm_eps": keys.number(f"attention.{variant.epsilon_key}"),
        "hidden_act": "silu",
        "rope_theta": keys.number("rope.freq_base", 10_000.0),
        "rope_scaling": _rope_scaling(file, keys),
        # Layers have biases where the file's first layer has.
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in file.tensors,
    }
    width = keys.optional_size("attention.key_length")
    if width is not None:
        if keys.integer("attention.value_length", width) != width:
            raise keys.error("attention.value_length", f"that of keys, {width}", keys.values["attention.value_length"])
        config["head_dim"] = width
    head_width = width or config["hidden_size"] // heads
    if not variant.partly_rotary and keys.integer("rope.dimension_count", head_width) != head_width:
        raise keys.error("rope.dimension_count", f"a head's width, {head_width}", keys.values["rope.dimension_count"])
    return variant, JsonObject(config | variant.extra_fields(keys), keys.where)


def _rope_scaling(file: GGUF, keys: JsonObject) -> dict[str, Any] | None:
    """The rope_scaling of transformers; None: positions are not scaled."""
    # Where the file has no type, a factor, perhaps under its old name, means linear scaling.
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 0.0))
    default = "linear" if factor not in (0, 1) else "none"
    rope_type = keys.choice("rope.scaling.type", ("none", "linear", "yarn"), default)
    if ROPE_FACTORS in file.tensors:
        if rope_type != "none":
            raise CheckpointError(f"{keys.where}: {ROPE_FACTORS} and rope.scaling.type {rope_type} are both there")
        return _llama3_scaling(file.tensors[ROPE_FACTORS], keys.number("rope.freq_base", 10_000.0))
    if rope_type == "none":
        return None
    scaling: dict[str, Any] = {"rope_type": rope_type, "factor": factor or keys.number("rope.scaling.factor")}
    if rope_type == "yarn":
        length = keys.integer("rope.scaling.original_context_length", minimum=1)
        scaling["original_max_position_embeddings"] = length
        for field, key in (("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")):
            scaling[field] = keys.number(f"rope.scaling.{key}", 0.0) or None
    return scaling


def _llama3_scaling(tensor: BlockTensor, base: float) -> dict[str, Any]:
    """Llama 3's rope_scaling, from ``tensor``, the factor of each pair of dimensions, which is all that a file has."""
    factors = tensor.vector.astype(np.float64)
    factor = float(factors.max())
    if base > 0 and math.isfinite(factor) and factor >= 1:
        turns = LLAMA3_LENGTH / (2 * math.pi) * base ** -(np.arange(len(factors)) / len(factors))
        unscaled_share = np.clip((turns - LLAMA3_SLOW) / (LLAMA3_FAST - LLAMA3_SLOW), 0, 1)
        if np.allclose(factors, 1 / ((1 - unscaled_share) / factor + unscaled_share), rtol=1e-4):
            scaling = {"rope_type": "llama3", "factor": factor, "low_freq_factor": LLAMA3_SLOW}
            return scaling | {"high_freq_factor": LLAMA3_FAST, "original_max_position_embeddings": LLAMA3_LENGTH}
    raise CheckpointError(f"{tensor.where}: factors of rotary positions should be Llama 3's")


def with_stored_rotation(spec: StackSpec, variant: Variant) -> StackSpec:
    """The stack, whose rotary positions rotate neighbouring dimensions together where the file stores them so."""
    if not variant.interleaved or spec.positions.rotary is None:
        return spec
    rotary = replace(spec.positions.rotary, interleaved=True)
    return replace(spec, positions=replace(spec.positions, rotary=rotary))


# Files of all architectures have these names.
TABLE = {
    "decoder.embedding.weight": sources(EMBEDDING),
    "decoder.positions": sources("position_embd.weight"),
    "decoder.layers.#.self_attention.norm.*": sources("blk.#.attn_norm.*"),
    "decoder.layers.#.self_attention.query_norm.*": sources("blk.#.attn_q_norm.*"),
    "decoder.layers.#.self_attention.key_norm.*": sources("blk.#.attn_k_norm.*"),
    "decoder.layers.#.self_attention.output.*": sources("blk.#.attn_output.*"),
    "decoder.layers.#.self_attention.output_norm.*": sources("blk.#.post_attention_norm.*"),
    "decoder.layers.#.feed_forward.norm.*": sources("blk.#.ffn_norm.*"),
    "decoder.layers.#.feed_forward.inner_linear.*": sources("blk.#.ffn_up.*"),
    "decoder.layers.#.feed_forward.outer.*": sources("blk.#.ffn_down.*"),
    "decoder.layers.#.feed_forward.output_norm.*": sources("blk.#.post_ffw_norm.*"),
    "decoder.final_norm.*": sources("output_norm.*"),
}
# Linear layers whose biases a file may lack, in all layers, though the spec has biases.
LINEAR_LAYERS = ("self_attention.qkv", "self_attention.output", "feed_forward.inner", "feed_forward.inner_linear",
          "feed_forward.outer")  # fmt: skip


def make_table(spec: StackSpec, stored: Mapping[str, BlockTensor]) -> dict[str, TensorSources]:
    """The sources of each of a decoder's tensors."""
    layer, key_width = "decoder.layers.#.", spec.attention.key_width
    table = dict(TABLE)
    has_qkv = "blk.0.attn_qkv.weight" in stored
    names = ["blk.#.attn_qkv.*"] if has_qkv else [f"blk.#.attn_{letter}.*" for letter in "qkv"]
    rows = () if has_qkv else (spec.attention.query_width, key_width, key_width)
    table[layer + "self_attention.qkv.*"] = sources(*names, rows=rows)
    inner_name = "ffn_gate" if spec.feed_forward.gated else "ffn_up"
    table[layer + "feed_forward.inner.*"] = sources(f"blk.#.{inner_name}.*")
    if spec.feed_forward.gated and "blk.0.ffn_gate.weight" not in stored:  # ffn_up has both matrices
        for i, matrix in enumerate(("inner", "inner_linear")):
            table[f"{layer}feed_forward.{matrix}.*"] = sources("blk.#.ffn_up.*", split=(i, 2))
    for linear in LINEAR_LAYERS:
        source = str(table[f"{layer}{linear}.*"].names[0])
        if source.replace("#", "0").replace("*", "bias") not in stored:
            table[f"{layer}{linear}.bias"] = sources(None)
    projection = "output" if "output.weight" in stored else EMBEDDING.removesuffix(".weight")
    return table | {"decoder.projection.*": sources(f"{projection}.*")}


MISFIT = "tensors do not fit the architecture in its metadata"


def read_model(folder: Directory, names: list[str]) -> Checkpoint:
    """The language model in the files ``names``, the first of which has the metadata."""
    file = _join_files([parse_gguf(folder.read(name), folder.where(name)) for name in names])
    where = file.metadata.where
    variant, config = make_config(file)
    spec = with_stored_rotation(find_decoder(config).spec(config), variant)
    stored = {name: tensor for name, tensor in file.tensors.items() if name != ROPE_FACTORS}
    if spec.layers > len(stored):  # refused before the names of so many layers fill memory
        layers, tensor_count = counted(spec.layers, "layer"), counted(len(stored), "tensor")
        raise CheckpointError(f"{where}: there should be {layers}, it has {tensor_count}")
    text = read_text(file.metadata, spec.vocabulary, spec.positions.limit)
    model = ModelSpec("decoder", decoder=spec)
    tensors = canonical_tensors(make_table(spec, stored), model, stored, where, MISFIT)
    precision = main_precision((tensor.precision, len(tensor.data)) for tensor in stored.values())
    details = {"architecture": file.metadata.string("general.architecture")}
    return Checkpoint(model, tensors, text, precision, "gguf", details, tuple(folder.files_read))


def _join_files(files: list[GGUF]) -> GGUF:
    """The ``files`` of a model as one; CheckpointError unless each file states its number and their count."""
    tensors = dict(files[0].tensors)
    for i, file in enumerate(files):
        numbers = file.metadata.integer("split.no", 0), file.metadata.integer("split.count", 1) or 1
        if numbers != (i, len(files)):
            raise file.metadata.error("split.no and split.count", f"{i} and {len(files)}", numbers)
        if i and (repeated := tensors.keys() & file.tensors.keys()):
            raise CheckpointError(f"{file.metadata.where}: {min(repeated)} is in another part too")
        tensors |= file.tensors
    return replace(files[0], tensors=tensors)
