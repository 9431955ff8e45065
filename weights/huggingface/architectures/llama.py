"""Models whose tensors are named as Llama's: Llama, Mistral, Qwen, SmolLM 3, HunYuan, OLMo 2, Phi-3, Gemma.

These models are stacks with rotary positions, gates and shared key heads. Encoders come first, then decoders.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import (
    AttentionSpec,
    FeedForwardSpec,
    LocalSpec,
    NormSpec,
    PositionSpec,
    Rotary,
    StackSpec,
    Stretch,
)
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.architectures.architecture import (
    SEQUENCE,
    TOKENS,
    Architecture,
    activation,
    count_columns,
    count_layers,
    count_positions,
    decoder,
    last_row_head,
    linear_head,
    local_layers,
    refuse,
    rope_parameters,
    rotary,
    trained_length,
)
from fastattn.weights.tensor_mapping import TensorSources, sources

TABLE = {
    "STACK.embedding.weight": sources("embed_tokens.weight"),
    "STACK.layers.#.self_attention.norm.*": sources("layers.#.input_layernorm.*"),
    "STACK.layers.#.self_attention.query_norm.*": sources("layers.#.self_attn.q_norm.*"),
    "STACK.layers.#.self_attention.key_norm.*": sources("layers.#.self_attn.k_norm.*"),
    "STACK.layers.#.self_attention.output.*": sources("layers.#.self_attn.o_proj.*"),
    "STACK.layers.#.feed_forward.norm.*": sources("layers.#.post_attention_layernorm.*"),
    "STACK.layers.#.feed_forward.inner.*": sources("layers.#.mlp.gate_proj.*"),
    "STACK.layers.#.feed_forward.inner_linear.*": sources("layers.#.mlp.up_proj.*"),
    "STACK.layers.#.feed_forward.outer.*": sources("layers.#.mlp.down_proj.*"),
    "STACK.final_norm.*": sources("norm.*"),
}
NO_FEED_FORWARD_BIASES = {
    f"STACK.layers.#.feed_forward.{name}.bias": sources(None) for name in ("inner", "inner_linear", "outer")
}
NO_OUTPUT_BIAS = {"STACK.layers.#.self_attention.output.bias": sources(None)}
IGNORED = ("lm_head.", "score.", "rotary_emb.")
QWEN_HEADS = {SEQUENCE: last_row_head("score"), TOKENS: linear_head("each", "score")}


def shared_heads(
    config: JsonObject, key_heads: int = 0, head_width: int = 0, heads: int | None = None, **fields: Any
) -> AttentionSpec:
    """Attention with perhaps fewer key heads, and heads of any width; ``fields``: further fields of the AttentionSpec.

    key_heads, head_width  defaults; 0, or null in config.json: as many as query heads, and an even share of the width
    heads                  the default number of query heads; None: config.json must have the number
    """
    heads = config.integer("num_attention_heads", heads, minimum=1)
    even_width = max(count_columns(config) // heads, 1)
    default_width = even_width if "head_dim" in config.values else head_width or even_width
    width = count_columns(config, "head_dim", default_width)
    default_heads = heads if "num_key_value_heads" in config.values else key_heads or heads
    key_heads = config.integer("num_key_value_heads", default_heads, minimum=1)
    return AttentionSpec(heads, key_heads, width, **fields)


def llama_stack(
    config: JsonObject,
    attention: AttentionSpec,
    positions: Rotary | None = None,
    act: tuple[str, str] = ("hidden_act", "silu"),
    epsilon: float = 1e-6,
    **fields: Any,
) -> StackSpec:
    """A stack by Llama's names of settings; ``act``: the activation's setting and its default; ``epsilon``: norms'."""
    positions = positions or rotary(config, attention.head_width, 10_000.0)
    inner_width = config.integer("intermediate_size", minimum=1)
    return StackSpec(
        layers=count_layers(config),
        width=count_columns(config),
        vocabulary=count_columns(config, "vocab_size"),
        attention=attention,
        feed_forward=FeedForwardSpec(inner_width, activation(config, *act), gated=True),
        norms=NormSpec("rms", config.number("rms_norm_eps", epsilon)),
        positions=PositionSpec("rotary", count_positions(config), rotary=positions),
        **fields,
    )


def llama_table(spec: StackSpec, feed_biases: bool = False) -> dict[str, TensorSources]:
    """The table of files with Llama's names of tensors; ``feed_biases``: feed-forwards have biases."""
    keys = spec.attention.key_width
    names = (f"layers.#.self_attn.{part}_proj.*" for part in "qkv")
    qkv = sources(*names, rows=(spec.attention.query_width, keys, keys))
    return TABLE | {"STACK.layers.#.self_attention.qkv.*": qkv} | ({} if feed_biases else NO_FEED_FORWARD_BIASES)


# Qwen 3 and Qwen 2 (Yang 2025, 2024): most encoders are causal.
def qwen_stack(config: JsonObject) -> StackSpec:
    refuse(config, use_bidirectional_attention=False)  # transformers ignores the setting, models' own code follows it
    is_qwen2 = config.string("model_type") == "qwen2"
    if config.nested("auto_map").has("AutoModel") and not config.has("is_causal"):  # as gte-Qwen2 has it
        raise CheckpointError(
            f"{config.where}: auto_map names code of the model's own, which may look both ways; is_causal should say so"
        )
    causal = config.boolean("is_causal", True)
    layers, attention = count_layers(config), shared_heads(config, 32, 0 if is_qwen2 else 128, head_norms=not is_qwen2)
    positions = rotary(config, attention.head_width, 10_000.0)
    local = None
    if config.boolean("use_sliding_window", False) and config.values.get("sliding_window", 4096) is not None:
        first_layer = config.integer("max_window_layers", 28)
        window = config.integer("sliding_window", 4096, minimum=1)
        windowed_layers = local_layers(config, layers, lambda i: i >= first_layer)
        # A causal window includes the row itself; a window to both sides is as wide before the row as after it.
        rows_around = (window - 1, 0) if causal else (window, window)
        local = LocalSpec(windowed_layers, *rows_around) if windowed_layers else None
    biases = is_qwen2 or config.boolean("attention_bias", False)
    return llama_stack(config, attention, positions, biases=biases, causal=causal, local=local)


def qwen_table(config: JsonObject, spec: StackSpec) -> dict[str, TensorSources]:
    # Qwen 2 has biases of queries, keys and values alone.
    return llama_table(spec) | ({} if spec.attention.head_norms else NO_OUTPUT_BIAS)


QWEN = Architecture(qwen_stack, qwen_table, ("model.",), IGNORED, heads=QWEN_HEADS)


# The text stack of Gemma 3 and EmbeddingGemma (Gemma Team 2025), and Gemma 2's: norms around sublayers, local layers.
GEMMA_TABLE = TABLE | {
    "STACK.layers.#.self_attention.output_norm.*": sources("layers.#.post_attention_layernorm.*"),
    "STACK.layers.#.feed_forward.norm.*": sources("layers.#.pre_feedforward_layernorm.*"),
    "STACK.layers.#.feed_forward.output_norm.*": sources("layers.#.post_feedforward_layernorm.*"),
}
# Gemma's norms multiply by the stored number plus one.
GEMMA_NORMS = {name: replace(entry, offset=1.0) for name, entry in GEMMA_TABLE.items() if name.endswith("norm.*")}
GEMMA3_HEADS = {SEQUENCE: last_row_head("score", padding=0), TOKENS: linear_head("each", "score")}


def gemma_stack(config: JsonObject, attention: AttentionSpec, positions: Rotary, local: LocalSpec) -> StackSpec:
    """A stack of Gemma 2 or 3."""
    biases = config.boolean("attention_bias", False)
    act = "hidden_activation", "gelu_pytorch_tanh"
    stack = llama_stack(config, attention, positions, act, biases=biases, local=local)
    return replace(stack, norms=replace(stack.norms, output=True), embedding_scale=stack.width**0.5)


def gemma_scale(config: JsonObject) -> float:
    """The factor of attention's scores."""
    scalar = config.number("query_pre_attn_scalar", 256)
    if scalar <= 0:
        raise config.error("query_pre_attn_scalar", "above zero", scalar)
    return float(scalar**-0.5)


def gemma3_stack(config: JsonObject) -> StackSpec:
    refuse(config, attn_logit_softcapping=0)
    layers, bidirectional = count_layers(config), config.boolean("use_bidirectional_attention", False)
    if not bidirectional:
        refuse(config, is_causal=True)
    attention = shared_heads(config, 4, 256, head_norms=True, query_scale=gemma_scale(config))
    interval = config.integer("sliding_window_pattern", 6, minimum=1)
    window = config.integer("sliding_window", 4096, minimum=1)
    rows_before = window // 2 if bidirectional else window - 1
    local_rotary = rotary(config, attention.head_width, 10_000.0, "sliding_attention", "rope_local_base_freq")
    if not config.has("rope_parameters"):  # old settings are those of the global layers alone
        local_rotary = Rotary(local_rotary.width, config.number("rope_local_base_freq", 10_000.0), interleaved=False)
    global_rotary = rotary(config, attention.head_width, 1_000_000.0, "full_attention")
    windowed_layers = local_layers(config, layers, lambda i: (i + 1) % interval != 0)
    local = LocalSpec(windowed_layers, rows_before, rows_before if bidirectional else 0, rotary=local_rotary)
    return replace(gemma_stack(config, attention, global_rotary, local), causal=not bidirectional)


def gemma_table(config: JsonObject, spec: StackSpec) -> dict[str, TensorSources]:
    return llama_table(spec) | GEMMA_NORMS


GEMMA3 = Architecture(gemma3_stack, gemma_table, ("model.",), IGNORED, heads=GEMMA3_HEADS)


# Decoders.
NO_ATTENTION_BIASES = {"STACK.layers.#.self_attention.qkv.bias": sources(None)} | NO_OUTPUT_BIAS
LONGROPE = ("longrope", "su", "yarn")  # names of LongRoPE in Phi-3's files
GREATEST_ALPHA = 1e9  # for heads of 4 dimensions, the power of alpha is then below 1e30


# Llama 2 and 3 (Touvron 2023, Grattafiori 2024), SmolLM 2.
def _has_biases(config: JsonObject) -> bool:
    return config.boolean("attention_bias", False) or config.boolean("mlp_bias", False)


def _llama_table(config: JsonObject, spec: StackSpec) -> dict[str, TensorSources]:
    table = llama_table(spec, config.boolean("mlp_bias", False))
    return table | ({} if config.boolean("attention_bias", False) else NO_ATTENTION_BIASES)


LLAMA = decoder(lambda config: llama_stack(config, shared_heads(config), biases=_has_biases(config)), _llama_table)


# Mistral (Jiang 2023): a window in all layers.
def _mistral_spec(config: JsonObject) -> StackSpec:
    stack = llama_stack(config, shared_heads(config, 8), biases=False)
    return replace(stack, local=_windows_in_all_layers(config, stack.layers, 4096))


def _windows_in_all_layers(config: JsonObject, layers: int, default: int | None) -> LocalSpec | None:
    """Windows of ``sliding_window`` keys; None where the setting is null, windows of ``default`` where it is absent."""
    if not config.has("sliding_window") and (default is None or "sliding_window" in config.values):
        return None
    window = config.integer("sliding_window", default, minimum=1)
    return LocalSpec(tuple(range(layers)), before=window - 1, after=0)


def _llama_table_with(table: dict[str, TensorSources]) -> Callable[[JsonObject, StackSpec], dict[str, TensorSources]]:
    return lambda config, spec: llama_table(spec) | table


MISTRAL = decoder(_mistral_spec, _llama_table_with({}))


# Qwen 2 and 3 (Yang 2024, 2025).
QWEN_DECODER = decoder(lambda config: replace(qwen_stack(config), causal=False), qwen_table)


# SmolLM 3: by default, every fourth layer has no positions.
def _smollm3_spec(config: JsonObject) -> StackSpec:
    layers, attention = count_layers(config), shared_heads(config, 4)
    interval = config.integer("no_rope_layer_interval", 4, minimum=1)
    flags = config.values.get("no_rope_layers") or [int((i + 1) % interval != 0) for i in range(layers)]
    if not isinstance(flags, list) or len(flags) != layers or not all(flag in (0, 1) for flag in flags):
        raise config.error("no_rope_layers", f"0 or 1 for each of {layers} layers", flags)
    layers_without = tuple(i for i, is_rotary in enumerate(flags) if not is_rotary)
    positions = rotary(config, attention.head_width, 2_000_000.0)
    stack = llama_stack(config, attention, positions, biases=_has_biases(config))
    local = None
    if config.boolean("use_sliding_window", False) and config.has("sliding_window"):
        before = config.integer("sliding_window", minimum=1) - 1
        local = LocalSpec(local_layers(config, layers, lambda i: i in layers_without), before, after=0)
    return replace(stack, positions=replace(stack.positions, layers_without=layers_without), local=local)


SMOLLM3 = decoder(_smollm3_spec, _llama_table, tied_by_default=True)


# HunYuan's dense models: norms of heads after positions; the positions' base is raised by a fixed alpha.
def _hunyuan_spec(config: JsonObject) -> StackSpec:
    refuse(config, use_cla=False)
    attention = shared_heads(config, head_norms=True, norms_after_positions=True)
    positions, parameters = rotary(config, attention.head_width, 10_000.0), rope_parameters(config)
    is_dynamic = "dynamic" in (parameters.values.get("rope_type"), parameters.values.get("type"))
    alpha, width = parameters.number("alpha", 0.0) if is_dynamic else 0.0, attention.head_width
    if alpha:  # 0 means none, as in transformers
        if not (0 < alpha < GREATEST_ALPHA and width > 2):
            raise parameters.error("alpha", f"from 0 to {GREATEST_ALPHA:g}, with heads wider than 2", alpha)
        positions = replace(positions, base=positions.base * alpha ** (width / (width - 2)))
    biases = config.boolean("attention_bias", False)
    return llama_stack(config, attention, positions, epsilon=1e-5, biases=biases)


HUNYUAN_NORMS = {
    "STACK.layers.#.self_attention.query_norm.*": sources("layers.#.self_attn.query_layernorm.*"),
    "STACK.layers.#.self_attention.key_norm.*": sources("layers.#.self_attn.key_layernorm.*"),
}
HUNYUAN = decoder(_hunyuan_spec, _llama_table_with(HUNYUAN_NORMS))


# OLMo 2 (2025): norms of sublayers' outputs alone, and norms of the queries and keys of all heads together.
def _olmo2_spec(config: JsonObject) -> StackSpec:
    attention = shared_heads(config, head_norms=True, norms_of_all_heads=True)
    biases = config.boolean("attention_bias", False)
    stack = llama_stack(config, attention, epsilon=1e-5, biases=biases)
    return replace(stack, norms=replace(stack.norms, output=True, input=False))


OLMO2_NORMS = {
    "STACK.layers.#.self_attention.output_norm.*": sources("layers.#.post_attention_layernorm.*"),
    "STACK.layers.#.feed_forward.output_norm.*": sources("layers.#.post_feedforward_layernorm.*"),
}
OLMO2 = decoder(_olmo2_spec, _llama_table_with(OLMO2_NORMS))


# Phi-3 (Abdin 2024): queries, keys and values in one matrix, the two inner layers of feed-forwards in another.
def _phi3_spec(config: JsonObject) -> StackSpec:
    attention, parameters = shared_heads(config), rope_parameters(config)
    is_longrope = parameters.values.get("rope_type", parameters.values.get("type")) in LONGROPE
    settings = {name: value for name, value in config.values.items() if name not in ("rope_parameters", "rope_scaling")}
    without_type = {name: value for name, value in parameters.values.items() if not name.endswith("type")}
    short_config = JsonObject(settings | {"rope_parameters": without_type}, config.where) if is_longrope else config
    positions = rotary(short_config, attention.head_width, 10_000.0, share=1.0)
    stack = llama_stack(config, attention, positions, epsilon=1e-5, biases=False)
    stack = replace(stack, local=_windows_in_all_layers(config, stack.layers, None))
    return replace(stack, positions=_longrope(config, parameters, stack.positions)) if is_longrope else stack


def _longrope(config: JsonObject, parameters: JsonObject, positions: PositionSpec) -> PositionSpec:
    """``positions`` with LongRoPE (Ding 2024) and its short factors: the context ends at the length of training.

    Longer texts have other factors from their first token on: transformers reads the whole prompt again when an answer
    grows beyond that length.
    """
    limit = positions.limit
    length = trained_length(config, parameters)
    factor = parameters.number("factor", limit / length)
    default = math.sqrt(1 + math.log(factor) / math.log(length)) if factor > 1 and length > 1 else 1.0
    size = parameters.number("attention_factor", default)
    divisors = parameters.values.get("short_factor")
    if not isinstance(divisors, list) or not all(type(divisor) in (int, float) for divisor in divisors):
        raise parameters.error("short_factor", "a list of numbers", divisors)
    # LongRoPE has no ramp, and does not use its numbers 1.0 and 2.0.
    stretch = Stretch("longrope", 1.0, length, 1.0, 2.0, size=size, divisors=tuple(map(float, divisors)))
    assert positions.rotary is not None
    return replace(positions, limit=min(limit, length), rotary=replace(positions.rotary, stretch=stretch))


PHI3_TABLE = {
    "STACK.layers.#.self_attention.qkv.*": sources("layers.#.self_attn.qkv_proj.*"),
    "STACK.layers.#.feed_forward.inner.*": sources("layers.#.mlp.gate_up_proj.*", split=(0, 2)),
    "STACK.layers.#.feed_forward.inner_linear.*": sources("layers.#.mlp.gate_up_proj.*", split=(1, 2)),
}
PHI3 = decoder(_phi3_spec, _llama_table_with(PHI3_TABLE))


# Gemma 2 and 3 (Gemma Team 2024, 2025): norms around each sublayer, local layers, capped scores and logits.
def _read_cap(config: JsonObject, name: str, default: float) -> float:
    """The cap ``name``; 0, no cap, where config.json has null."""
    return config.number(name, 0.0 if name in config.values else default)


def _gemma2_spec(config: JsonObject) -> StackSpec:
    refuse(config, use_bidirectional_attention=False)
    layers, softcap = count_layers(config), _read_cap(config, "attn_logit_softcapping", 50.0)
    attention = shared_heads(config, 4, 256, 8, query_scale=gemma_scale(config), softcap=softcap)
    windowed_layers = local_layers(config, layers, lambda i: i % 2 == 0)
    local = LocalSpec(windowed_layers, before=config.integer("sliding_window", 4096, minimum=1) - 1, after=0)
    stack = gemma_stack(config, attention, rotary(config, attention.head_width, 10_000.0), local)
    return replace(stack, output_cap=_read_cap(config, "final_logit_softcapping", 30.0))


GEMMA2 = decoder(_gemma2_spec, gemma_table, tied_by_default=True)


def _gemma3_spec(config: JsonObject) -> StackSpec:
    refuse(config, use_bidirectional_attention=False)
    # Gemma 3's class with images has no cap.
    may_cap = (config.values.get("architectures") or [""])[0] != "Gemma3ForConditionalGeneration"
    cap = _read_cap(config, "final_logit_softcapping", 0.0) if may_cap else 0.0
    return replace(gemma3_stack(config), causal=False, output_cap=cap)


# Of a model that takes images too, the text part alone.
GEMMA3_DECODER = decoder(
    _gemma3_spec,
    gemma_table,
    tied_by_default=True,
    prefixes=("model.", "language_model.", "model."),
    ignored_prefixes=("vision_tower.", "multi_modal_projector."),
)
