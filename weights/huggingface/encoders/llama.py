"""Stacks whose tensors are named as Llama's: rotary positions, gates, shared key heads; encoders made of them."""

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
)
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.architecture import (
    SEQUENCE,
    TOKENS,
    Architecture,
    activation,
    count_columns,
    count_layers,
    count_positions,
    last_head,
    linear_head,
    local_layers,
    refuse,
    rotary,
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
NO_BIASES = {f"STACK.layers.#.feed_forward.{name}.bias": sources(None) for name in ("inner", "inner_linear", "outer")}
NO_OUTPUT_BIAS = {"STACK.layers.#.self_attention.output.bias": sources(None)}
IGNORED = ("lm_head.", "score.", "rotary_emb.")
QWEN_HEADS = {SEQUENCE: last_head("score"), TOKENS: linear_head("each", "score")}


def shared_heads(
    config: JsonObject, key_heads: int = 0, head_width: int = 0, heads: int | None = None, **more: Any
) -> AttentionSpec:
    """Attention with perhaps fewer key heads, and heads of any width; ``more``: further fields of the AttentionSpec.

    key_heads, head_width  defaults; 0, or null in config.json: as many as query heads, and an even share of the width
    heads                  the default number of query heads; None: config.json has to name it
    """
    heads = config.integer("num_attention_heads", heads, minimum=1)
    even = max(count_columns(config) // heads, 1)
    width = count_columns(config, "head_dim", even if "head_dim" in config.values else head_width or even)
    key_heads = config.integer(
        "num_key_value_heads", heads if "num_key_value_heads" in config.values else key_heads or heads, minimum=1
    )
    return AttentionSpec(heads, key_heads, width, **more)


def llama_stack(
    config: JsonObject,
    attention: AttentionSpec,
    positions: Rotary,
    act: tuple[str, str] = ("hidden_act", "silu"),
    **parts: Any,
) -> StackSpec:
    """A stack by Llama's names of sizes; ``act``: the activation's name in config.json and its default."""
    inner = config.integer("intermediate_size", minimum=1)
    return StackSpec(
        layers=count_layers(config),
        width=count_columns(config),
        vocabulary=count_columns(config, "vocab_size"),
        attention=attention,
        feed_forward=FeedForwardSpec(inner, activation(config, *act), gated=True),
        norms=NormSpec("rms", config.number("rms_norm_eps", 1e-6)),
        positions=PositionSpec("rotary", count_positions(config), rotary=positions),
        **parts,
    )


def llama_table(spec: StackSpec, feed_biases: bool = False) -> dict[str, TensorSources]:
    """The table of files with Llama's names of tensors; ``feed_biases``: feed-forwards have biases."""
    keys = spec.attention.key_width
    names = (f"layers.#.self_attn.{part}_proj.*" for part in "qkv")
    qkv = sources(*names, rows=(spec.attention.query_width, keys, keys))
    return TABLE | {"STACK.layers.#.self_attention.qkv.*": qkv} | ({} if feed_biases else NO_BIASES)


# Qwen 3 and Qwen 2 (Yang 2025, 2024): as encoders mostly causal.
def qwen_stack(config: JsonObject) -> StackSpec:
    refuse(config, use_bidirectional_attention=False)  # which transformers ignores, and remote code follows
    second = config.string("model_type") == "qwen2"
    if config.nested("auto_map").has("AutoModel") and not config.has("is_causal"):  # as gte-Qwen2's
        raise CheckpointError(
            f"{config.where}: auto_map names code of the model's own, which may look both ways; is_causal should say so"
        )
    causal = config.boolean("is_causal", True)
    layers, attention = count_layers(config), shared_heads(config, 32, 0 if second else 128, head_norms=not second)
    positions = rotary(config, attention.head_width, 10_000.0)
    local = None
    if config.boolean("use_sliding_window", False) and config.values.get("sliding_window", 4096) is not None:
        full, window = config.integer("max_window_layers", 28), config.integer("sliding_window", 4096, minimum=1)
        sliding = local_layers(config, layers, lambda i: i >= full)
        # a causal window includes the row itself; one to both sides is as wide before it and as wide after it
        reach = (window - 1, 0) if causal else (window, window)
        local = LocalSpec(sliding, *reach) if sliding else None
    biases = second or config.boolean("attention_bias", False)
    return llama_stack(config, attention, positions, biases=biases, causal=causal, local=local)


def qwen_table(config: JsonObject, spec: StackSpec) -> dict[str, TensorSources]:
    # Qwen 2 has biases of queries, keys and values.
    return llama_table(spec) | ({} if spec.attention.head_norms else NO_OUTPUT_BIAS)


QWEN = Architecture(qwen_stack, qwen_table, ("model.",), IGNORED, heads=QWEN_HEADS)


# Gemma 3's text stack (Gemma Team 2025), as EmbeddingGemma has it, and Gemma 2's: norms around each sublayer, local
# layers.
GEMMA_TABLE = TABLE | {
    "STACK.layers.#.self_attention.output_norm.*": sources("layers.#.post_attention_layernorm.*"),
    "STACK.layers.#.feed_forward.norm.*": sources("layers.#.pre_feedforward_layernorm.*"),
    "STACK.layers.#.feed_forward.output_norm.*": sources("layers.#.post_feedforward_layernorm.*"),
}
# Their norms multiply by one more than what is stored.
GEMMA_NORMS = {name: replace(part, offset=1.0) for name, part in GEMMA_TABLE.items() if name.endswith("norm.*")}
GEMMA3_HEADS = {SEQUENCE: last_head("score", padding=0), TOKENS: linear_head("each", "score")}


def gemma_stack(config: JsonObject, attention: AttentionSpec, positions: Rotary, local: LocalSpec) -> StackSpec:
    """A stack of Gemma 2 or 3."""
    biases = config.boolean("attention_bias", False)
    act = "hidden_activation", "gelu_pytorch_tanh"
    stack = llama_stack(config, attention, positions, act, biases=biases, local=local)
    return replace(stack, norms=replace(stack.norms, output=True), embedding_scale=stack.width**0.5)


def gemma_scale(config: JsonObject) -> float:
    """The factor of the attention's scores."""
    scalar = config.number("query_pre_attn_scalar", 256)
    if scalar <= 0:
        raise config.error("query_pre_attn_scalar", "above zero", scalar)
    return float(scalar**-0.5)


def gemma3_stack(config: JsonObject) -> StackSpec:
    refuse(config, attn_logit_softcapping=0)
    layers, both_sides = count_layers(config), config.boolean("use_bidirectional_attention", False)
    if not both_sides:
        refuse(config, is_causal=True)
    attention = shared_heads(config, 4, 256, head_norms=True, query_scale=gemma_scale(config))
    every = config.integer("sliding_window_pattern", 6, minimum=1)
    window = config.integer("sliding_window", 4096, minimum=1)
    reach = window // 2 if both_sides else window - 1
    near = rotary(config, attention.head_width, 10_000.0, "sliding_attention", "rope_local_base_freq")
    if not config.has("rope_parameters"):  # the old form's settings are of the global layers alone
        near = Rotary(near.width, config.number("rope_local_base_freq", 10_000.0), interleaved=False)
    far = rotary(config, attention.head_width, 1_000_000.0, "full_attention")
    sliding = local_layers(config, layers, lambda i: (i + 1) % every != 0)
    local = LocalSpec(sliding, before=reach, after=reach if both_sides else 0, rotary=near)
    return replace(gemma_stack(config, attention, far, local), causal=not both_sides)


def gemma_table(config: JsonObject, spec: StackSpec) -> dict[str, TensorSources]:
    return llama_table(spec) | GEMMA_NORMS


GEMMA3 = Architecture(gemma3_stack, gemma_table, ("model.",), IGNORED, heads=GEMMA3_HEADS)
