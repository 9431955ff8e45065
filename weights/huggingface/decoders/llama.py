"""Decoders whose tensors are named as Llama's: Llama, Mistral, Qwen, SmolLM 3, HunYuan, OLMo 2, Phi-3, Gemma."""

import math
from collections.abc import Callable
from dataclasses import replace

from fastattn.spec.architecture import LocalSpec, PositionSpec, Rotary, StackSpec, Stretch
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders import llama
from fastattn.weights.huggingface.encoders.architecture import (
    count_layers,
    decoder,
    local_layers,
    refuse,
    rope_parameters,
    rotary,
    trained_length,
)
from fastattn.weights.tensor_mapping import TensorSources, sources

NO_BIAS = {"STACK.layers.#.self_attention.qkv.bias": sources(None)} | llama.NO_OUTPUT_BIAS
LONGROPE = ("longrope", "su", "yarn")  # its names in Phi-3's files
GREATEST_ALPHA = 1e9  # its power is below 1e30 for heads of 4 dimensions


# Llama 2 and 3 (Touvron 2023, Grattafiori 2024), SmolLM 2.
def _biases(config: JsonObject) -> bool:
    return config.boolean("attention_bias", False) or config.boolean("mlp_bias", False)


def _llama_spec(config: JsonObject) -> StackSpec:
    attention = llama.shared_heads(config)
    return llama.llama_stack(config, attention, rotary(config, attention.head_width, 10_000.0), biases=_biases(config))


def _llama_table(config: JsonObject, spec: StackSpec) -> dict[str, TensorSources]:
    table = llama.llama_table(spec, config.boolean("mlp_bias", False))
    return table | ({} if config.boolean("attention_bias", False) else NO_BIAS)


LLAMA = decoder(_llama_spec, _llama_table)


# Mistral (Jiang 2023): a window in all layers.
def _mistral_spec(config: JsonObject) -> StackSpec:
    attention = llama.shared_heads(config, 8)
    stack = llama.llama_stack(config, attention, rotary(config, attention.head_width, 10_000.0), biases=False)
    return replace(stack, local=_all_local(config, stack.layers, 4096))


def _all_local(config: JsonObject, layers: int, usual: int | None) -> LocalSpec | None:
    """Windows of ``sliding_window`` keys in all layers; none where it is null, ``usual`` where it is not there."""
    if not config.has("sliding_window") and (usual is None or "sliding_window" in config.values):
        return None
    window = config.integer("sliding_window", usual, minimum=1)
    return LocalSpec(tuple(range(layers)), before=window - 1, after=0)


def _named_as_llama(more: dict[str, TensorSources]) -> Callable[[JsonObject, StackSpec], dict[str, TensorSources]]:
    return lambda config, spec: llama.llama_table(spec) | more


MISTRAL = decoder(_mistral_spec, _named_as_llama({}))


# Qwen 2 and 3 (Yang 2024, 2025).
QWEN = decoder(lambda config: replace(llama.qwen_stack(config), causal=False), llama.qwen_table)


# SmolLM 3: every fourth layer has no positions, as usual.
def _smollm3_spec(config: JsonObject) -> StackSpec:
    layers, attention = count_layers(config), llama.shared_heads(config, 4)
    every = config.integer("no_rope_layer_interval", 4, minimum=1)
    turned = config.values.get("no_rope_layers") or [int((i + 1) % every != 0) for i in range(layers)]
    if not isinstance(turned, list) or len(turned) != layers or not all(turn in (0, 1) for turn in turned):
        raise config.error("no_rope_layers", f"0 or 1 for each of {layers} layers", turned)
    without = tuple(i for i, turn in enumerate(turned) if not turn)
    positions = rotary(config, attention.head_width, 2_000_000.0)
    stack = llama.llama_stack(config, attention, positions, biases=_biases(config))
    local = None
    if config.boolean("use_sliding_window", False) and config.has("sliding_window"):
        before = config.integer("sliding_window", minimum=1) - 1
        local = LocalSpec(local_layers(config, layers, lambda i: i in without), before, after=0)
    return replace(stack, positions=replace(stack.positions, layers_without=without), local=local)


SMOLLM3 = decoder(_smollm3_spec, _llama_table, ties=True)


# HunYuan's dense models: norms of heads after positions, whose base grows by a fixed alpha.
def _hunyuan_spec(config: JsonObject) -> StackSpec:
    refuse(config, use_cla=False)
    attention = llama.shared_heads(config, head_norms=True, norms_after_positions=True)
    positions, parameters = rotary(config, attention.head_width, 10_000.0), rope_parameters(config)
    is_dynamic = "dynamic" in (parameters.values.get("rope_type"), parameters.values.get("type"))
    alpha, width = parameters.number("alpha", 0.0) if is_dynamic else 0.0, attention.head_width
    if alpha:  # 0 is none, as in transformers
        if not (0 < alpha < GREATEST_ALPHA and width > 2):
            raise parameters.error("alpha", f"from 0 to {GREATEST_ALPHA:g}, with heads wider than 2", alpha)
        positions = replace(positions, base=positions.base * alpha ** (width / (width - 2)))
    stack = llama.llama_stack(config, attention, positions, biases=config.boolean("attention_bias", False))
    return replace(stack, norms=replace(stack.norms, epsilon=config.number("rms_norm_eps", 1e-5)))


HUNYUAN_NORMS = {
    "STACK.layers.#.self_attention.query_norm.*": sources("layers.#.self_attn.query_layernorm.*"),
    "STACK.layers.#.self_attention.key_norm.*": sources("layers.#.self_attn.key_layernorm.*"),
}
HUNYUAN = decoder(_hunyuan_spec, _named_as_llama(HUNYUAN_NORMS))


# OLMo 2 (2025): norms of what is added alone, and of all queries and all keys.
def _olmo2_spec(config: JsonObject) -> StackSpec:
    attention = llama.shared_heads(config, head_norms=True, norms_of_all_heads=True)
    biases = config.boolean("attention_bias", False)
    stack = llama.llama_stack(config, attention, rotary(config, attention.head_width, 10_000.0), biases=biases)
    norms = replace(stack.norms, epsilon=config.number("rms_norm_eps", 1e-5), output=True, input=False)
    return replace(stack, norms=norms)


OLMO2_NORMS = {
    "STACK.layers.#.self_attention.output_norm.*": sources("layers.#.post_attention_layernorm.*"),
    "STACK.layers.#.feed_forward.output_norm.*": sources("layers.#.post_feedforward_layernorm.*"),
}
OLMO2 = decoder(_olmo2_spec, _named_as_llama(OLMO2_NORMS))


# Phi-3 (Abdin 2024): queries, keys and values in one matrix, the gate and what it multiplies in another.
def _phi3_spec(config: JsonObject) -> StackSpec:
    attention, parameters = llama.shared_heads(config), rope_parameters(config)
    is_long = parameters.values.get("rope_type", parameters.values.get("type")) in LONGROPE
    plain = {name: value for name, value in config.values.items() if name not in ("rope_parameters", "rope_scaling")}
    turned = {name: value for name, value in parameters.values.items() if not name.endswith("type")}
    stated = JsonObject(plain | {"rope_parameters": turned}, config.where) if is_long else config
    positions = rotary(stated, attention.head_width, 10_000.0, share=1.0)
    stack = llama.llama_stack(config, attention, positions, biases=False)
    norms = replace(stack.norms, epsilon=config.number("rms_norm_eps", 1e-5))
    stack = replace(stack, norms=norms, local=_all_local(config, stack.layers, None))
    return replace(stack, positions=_long(config, parameters, stack.positions, positions)) if is_long else stack


def _long(config: JsonObject, parameters: JsonObject, positions: PositionSpec, rotary: Rotary) -> PositionSpec:
    """LongRoPE (Ding 2024) with its short factors, for texts within the length of training, where the context ends.

    Longer texts have other factors from their first token on: transformers reads the whole prompt again when an answer
    grows beyond the length.
    """
    limit = positions.limit
    length = trained_length(config, parameters)
    factor = parameters.number("factor", limit / length)
    usual = math.sqrt(1 + math.log(factor) / math.log(length)) if factor > 1 and length > 1 else 1.0
    size = parameters.number("attention_factor", usual)
    divisors = parameters.values.get("short_factor")
    if not isinstance(divisors, list) or not all(type(each) in (int, float) for each in divisors):
        raise parameters.error("short_factor", "a list of numbers", divisors)
    # longrope does not use the ramp's numbers
    stretch = Stretch("longrope", 1.0, length, 1.0, 2.0, size=size, divisors=tuple(map(float, divisors)))
    return replace(positions, limit=min(limit, length), rotary=replace(rotary, stretch=stretch))


PHI3_TABLE = {
    "STACK.layers.#.self_attention.qkv.*": sources("layers.#.self_attn.qkv_proj.*"),
    "STACK.layers.#.feed_forward.inner.*": sources("layers.#.mlp.gate_up_proj.*", piece=(0, 2)),
    "STACK.layers.#.feed_forward.inner_linear.*": sources("layers.#.mlp.gate_up_proj.*", piece=(1, 2)),
}
PHI3 = decoder(_phi3_spec, _named_as_llama(PHI3_TABLE))


# Gemma 2 and 3 (Gemma Team 2024, 2025): norms around each sublayer, local layers, capped scores and logits.
def _cap(config: JsonObject, name: str, usual: float) -> float:
    """A cap; 0 (no cap) where it is null."""
    return config.number(name, 0.0 if name in config.values else usual)


def _gemma2_spec(config: JsonObject) -> StackSpec:
    refuse(config, use_bidirectional_attention=False)
    layers, softcap = count_layers(config), _cap(config, "attn_logit_softcapping", 50.0)
    attention = llama.shared_heads(config, 4, 256, 8, query_scale=llama.gemma_scale(config), softcap=softcap)
    sliding = local_layers(config, layers, lambda i: i % 2 == 0)
    local = LocalSpec(sliding, before=config.integer("sliding_window", 4096, minimum=1) - 1, after=0)
    stack = llama.gemma_stack(config, attention, rotary(config, attention.head_width, 10_000.0), local)
    return replace(stack, output_cap=_cap(config, "final_logit_softcapping", 30.0))


GEMMA2 = decoder(_gemma2_spec, llama.gemma_table, ties=True)


def _gemma3_spec(config: JsonObject) -> StackSpec:
    refuse(config, use_bidirectional_attention=False)
    # Gemma 3's class with images has no cap
    caps = (config.values.get("architectures") or [""])[0] != "Gemma3ForConditionalGeneration"
    cap = _cap(config, "final_logit_softcapping", 0.0) if caps else 0.0
    return replace(llama.gemma3_stack(config), causal=False, output_cap=cap)


# Of a model that takes images too, the text part.
GEMMA3 = decoder(
    _gemma3_spec,
    llama.gemma_table,
    ties=True,
    prefixes=("model.", "language_model.", "model."),
    ignored=("vision_tower.", "multi_modal_projector."),
)
