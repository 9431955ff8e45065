"""Gemma 3's text stack (Gemma Team 2025), as EmbeddingGemma has it: norms around each sublayer, local layers."""

from fastattn.spec.architecture import FeedForwardSpec, LocalSpec, NormSpec, PositionSpec, Rotary, StackSpec
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.architecture import (
    SEQUENCE,
    TOKENS,
    Architecture,
    activation,
    count_columns,
    count_layers,
    last_head,
    linear_head,
    local_layers,
    refuse,
    rotary,
)
from fastattn.weights.huggingface.encoders.qwen import IGNORED, llama_table, shared_heads
from fastattn.weights.tensor_mapping import TensorSources, sources

# Its norms multiply by one more than what is stored.
NORMS = {
    "encoder.layers.#.self_attention.norm.*": sources("layers.#.input_layernorm.*", offset=1.0),
    "encoder.layers.#.self_attention.query_norm.*": sources("layers.#.self_attn.q_norm.*", offset=1.0),
    "encoder.layers.#.self_attention.key_norm.*": sources("layers.#.self_attn.k_norm.*", offset=1.0),
    "encoder.layers.#.self_attention.output_norm.*": sources("layers.#.post_attention_layernorm.*", offset=1.0),
    "encoder.layers.#.feed_forward.norm.*": sources("layers.#.pre_feedforward_layernorm.*", offset=1.0),
    "encoder.layers.#.feed_forward.output_norm.*": sources("layers.#.post_feedforward_layernorm.*", offset=1.0),
    "encoder.final_norm.*": sources("norm.*", offset=1.0),
}
HEADS = {SEQUENCE: last_head("score", padding=0), TOKENS: linear_head("each", "score")}


def _spec(config: JsonObject) -> StackSpec:
    refuse(config, attn_logit_softcapping=0)
    layers = count_layers(config)
    width, scalar = count_columns(config), config.number("query_pre_attn_scalar", 256)
    if scalar <= 0:
        raise config.error("query_pre_attn_scalar", "above zero", scalar)
    both_sides = config.boolean("use_bidirectional_attention", False)
    if not both_sides:
        refuse(config, is_causal=True)
    attention = shared_heads(config, 4, 256, head_norms=True, query_scale=scalar**-0.5)
    every, window = (
        config.integer("sliding_window_pattern", 6, minimum=1),
        config.integer("sliding_window", 4096, minimum=1),
    )
    reach = window // 2 if both_sides else window - 1
    near = rotary(config, attention.head_width, 10_000.0, "sliding_attention", "rope_local_base_freq")
    if not config.has("rope_parameters"):  # the old form's settings are of the global layers alone
        near = Rotary(near.width, config.number("rope_local_base_freq", 10_000.0), interleaved=False)
    return StackSpec(
        layers=layers,
        width=width,
        vocabulary=config.integer("vocab_size", minimum=1),
        attention=attention,
        feed_forward=FeedForwardSpec(
            config.integer("intermediate_size", minimum=1),
            activation(config, "hidden_activation", "gelu_pytorch_tanh"),
            gated=True,
        ),
        norms=NormSpec("rms", config.number("rms_norm_eps", 1e-6), output=True),
        positions=PositionSpec(
            "rotary",
            limit=config.integer("max_position_embeddings", minimum=1),
            rotary=rotary(config, attention.head_width, 1_000_000.0, "full_attention"),
        ),
        biases=config.boolean("attention_bias", False),
        embedding_scale=width**0.5,
        causal=not both_sides,
        local=LocalSpec(
            local_layers(config, layers, lambda i: (i + 1) % every != 0),
            before=reach,
            after=reach if both_sides else 0,
            rotary=near,
        ),
    )


def _table(config: JsonObject, spec: StackSpec) -> dict[str, TensorSources]:
    return llama_table(spec) | NORMS


ARCHITECTURE = Architecture(_spec, _table, ("model.",), IGNORED, heads=HEADS)
