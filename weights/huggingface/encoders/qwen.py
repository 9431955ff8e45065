"""Qwen 3 and Qwen 2 (Yang 2025, 2024) as encoders: mostly causal, rotary positions, gates, shared key heads."""

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import AttentionSpec, FeedForwardSpec, LocalSpec, NormSpec, PositionSpec, StackSpec
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
from fastattn.weights.tensor_mapping import TensorSources, sources

TABLE = {
    "encoder.embedding.weight": sources("embed_tokens.weight"),
    "encoder.layers.#.self_attention.norm.*": sources("layers.#.input_layernorm.*"),
    "encoder.layers.#.self_attention.query_norm.*": sources("layers.#.self_attn.q_norm.*"),
    "encoder.layers.#.self_attention.key_norm.*": sources("layers.#.self_attn.k_norm.*"),
    "encoder.layers.#.self_attention.output.*": sources("layers.#.self_attn.o_proj.*"),
    "encoder.layers.#.feed_forward.norm.*": sources("layers.#.post_attention_layernorm.*"),
    "encoder.layers.#.feed_forward.inner.*": sources("layers.#.mlp.gate_proj.*"),
    "encoder.layers.#.feed_forward.inner_linear.*": sources("layers.#.mlp.up_proj.*"),
    "encoder.layers.#.feed_forward.outer.*": sources("layers.#.mlp.down_proj.*"),
    "encoder.final_norm.*": sources("norm.*"),
}
# Biases are attention's alone.
NO_BIASES = {f"encoder.layers.#.feed_forward.{name}.bias": sources(None) for name in ("inner", "inner_linear", "outer")}
NO_OUTPUT_BIAS = {"encoder.layers.#.self_attention.output.bias": sources(None)}
IGNORED = ("lm_head.", "score.", "rotary_emb.")
HEADS = {SEQUENCE: last_head("score"), TOKENS: linear_head("each", "score")}


def shared_heads(
    config: JsonObject, key_heads: int, head_width: int, head_norms: bool, query_scale: float | None = None
) -> AttentionSpec:
    """Attention whose key heads may be fewer, and as wide as config.json says.

    key_heads, head_width  where config.json does not name them; where they are null, as many as the others, and what
                           these share evenly; 0: likewise
    """
    heads = config.integer("num_attention_heads", minimum=1)
    even = max(count_columns(config) // heads, 1)
    width = count_columns(config, "head_dim", even if "head_dim" in config.values else head_width or even)
    key_heads = config.integer(
        "num_key_value_heads", heads if "num_key_value_heads" in config.values else key_heads, minimum=1
    )
    return AttentionSpec(heads, key_heads, width, query_scale, head_norms)


def llama_table(spec: StackSpec) -> dict[str, TensorSources]:
    """The table of files that name their tensors as Llama's do."""
    keys = spec.attention.key_width
    names = (f"layers.#.self_attn.{part}_proj.*" for part in "qkv")
    qkv = sources(*names, rows=(spec.attention.query_width, keys, keys))
    return TABLE | {"encoder.layers.#.self_attention.qkv.*": qkv} | (NO_BIASES if spec.biases else {})


def _is_causal(config: JsonObject) -> bool:
    """Whether config.json says so; a model with its own code, as gte-Qwen2's, may look both ways and not say so."""
    if config.nested("auto_map").has("AutoModel") and not config.has("is_causal"):
        raise CheckpointError(
            f"{config.where}: auto_map names code of the model's own, which may look both ways; is_causal should say so"
        )
    return config.boolean("is_causal", True)


def _spec(config: JsonObject) -> StackSpec:
    refuse(config, use_bidirectional_attention=False)  # which transformers ignores, and remote code follows
    second, causal = config.string("model_type") == "qwen2", _is_causal(config)
    layers, attention = count_layers(config), shared_heads(config, 32, 0 if second else 128, head_norms=not second)
    local: tuple[int, ...] = ()
    window = 0
    if config.boolean("use_sliding_window", False) and config.values.get("sliding_window", 4096) is not None:
        full, window = config.integer("max_window_layers", 28), config.integer("sliding_window", 4096, minimum=1)
        local = local_layers(config, layers, lambda i: i >= full)
    return StackSpec(
        layers=layers,
        width=config.integer("hidden_size", minimum=1),
        vocabulary=config.integer("vocab_size", minimum=1),
        attention=attention,
        feed_forward=FeedForwardSpec(
            config.integer("intermediate_size", minimum=1), activation(config, default="silu"), gated=True
        ),
        norms=NormSpec("rms", config.number("rms_norm_eps", 1e-6)),
        positions=PositionSpec(
            "rotary",
            limit=config.integer("max_position_embeddings", minimum=1),
            rotary=rotary(config, attention.head_width, 10_000.0),
        ),
        biases=second or config.boolean("attention_bias", False),
        causal=causal,
        local=_local(local, window, causal),
    )


def _local(layers: tuple[int, ...], window: int, causal: bool) -> LocalSpec | None:
    """A causal window includes the row itself; one to both sides is as wide before it and as wide after it."""
    if not layers:
        return None
    return LocalSpec(layers, before=window - 1, after=0) if causal else LocalSpec(layers, before=window, after=window)


def _table(config: JsonObject, spec: StackSpec) -> dict[str, TensorSources]:
    # Qwen 2 has biases of queries, keys and values.
    return llama_table(spec) | (NO_OUTPUT_BIAS if spec.biases and not spec.attention.head_norms else {})


ARCHITECTURE = Architecture(_spec, _table, ("model.",), IGNORED, heads=HEADS)
