"""NomicBERT (Nussbaum 2024): rotary positions, token types, gates, norms after each sublayer, no biases but theirs."""

from fastattn.spec.architecture import FeedForwardSpec, NormSpec, PositionSpec, Rotary, StackSpec
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.architecture import (
    MASKED,
    SEQUENCE,
    TOKENS,
    Architecture,
    activation,
    count_layers,
    dense_head,
    even_heads,
    fixed,
    linear_head,
    masked_head,
    refuse,
    rotary,
)
from fastattn.weights.tensor_mapping import sources

TABLE = {
    "encoder.embedding.weight": sources("embeddings.word_embeddings.weight"),
    "encoder.token_types": sources("embeddings.token_type_embeddings.weight"),
    "encoder.embedding_norm.*": sources("emb_ln.*"),
    "encoder.layers.#.self_attention.qkv.*": sources("encoder.layers.#.attn.Wqkv.*"),
    "encoder.layers.#.self_attention.output.*": sources("encoder.layers.#.attn.out_proj.*"),
    "encoder.layers.#.self_attention.norm.*": sources("encoder.layers.#.norm1.*"),
    "encoder.layers.#.feed_forward.inner.*": sources("encoder.layers.#.mlp.fc12.*"),
    "encoder.layers.#.feed_forward.inner_linear.*": sources("encoder.layers.#.mlp.fc11.*"),
    "encoder.layers.#.feed_forward.outer.*": sources("encoder.layers.#.mlp.fc2.*"),
    "encoder.layers.#.feed_forward.norm.*": sources("encoder.layers.#.norm2.*"),
}
IGNORED = ("pooler.", "cls.", "classifier.", "lm_head.")
# Its first files name their settings after GPT-2; each has a form that transformers gave it since.
GATES = {"swiglu": "silu", "geglu": "gelu"}

TRANSFORM = "cls.predictions.transform"
HEADS = {
    SEQUENCE: dense_head("first", "pooler.dense", "classifier", "tanh"),
    TOKENS: linear_head("each", "classifier"),
    MASKED: masked_head(
        f"{TRANSFORM}.dense",
        f"{TRANSFORM}.layer_norm",
        "cls.predictions.decoder",
        "cls.predictions.bias",
    ),
}


def _spec(config: JsonObject) -> StackSpec:
    return _first_spec(config) if config.has("n_embd") else _current_spec(config)


def _current_spec(config: JsonObject) -> StackSpec:
    attention = even_heads(config)
    return _stack(
        config,
        ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size"),
        activation(config, default="silu"),
        config.number("layer_norm_eps", 1e-12),
        rotary(config, attention.head_width, 1000.0),
        config.integer("max_position_embeddings", 2048, minimum=1),
    )


def _first_spec(config: JsonObject) -> StackSpec:
    refuse(
        config,
        prenorm=False,
        parallel_block=False,
        causal=False,
        use_rms_norm=False,
        qkv_proj_bias=False,
        mlp_fc1_bias=False,
        mlp_fc2_bias=False,
        rotary_emb_fraction=1.0,
        rotary_emb_interleaved=False,
        rotary_emb_scale_base=None,
        scale_attn_by_inverse_layer_idx=False,
        scale_attn_weights=True,
        moe_every_n_layers=0,
    )
    gate = config.choice("activation_function", GATES, "swiglu")
    attention = even_heads(config, "n_embd", "n_head")
    base = config.number("rotary_emb_base", 10_000.0)
    limit = config.integer("n_positions", 2048, minimum=1)
    if config.has("rotary_scaling_factor"):  # beyond this length, the base would change with the text's length
        limit = min(limit, config.integer("max_trained_positions", 2048, minimum=1))
    return _stack(
        config,
        ("n_layer", "n_embd", "n_head", "n_inner"),
        "swish" if gate == "swiglu" else "gelu",
        config.number("layer_norm_epsilon", 1e-12),
        Rotary(attention.head_width, base, interleaved=False),
        limit,
    )


def _stack(
    config: JsonObject, names: tuple[str, str, str, str], gate: str, epsilon: float, turned: Rotary, limit: int
) -> StackSpec:
    """``names`` of the numbers of layers, of columns, of heads and of the inner columns."""
    layers, width, heads, inner = names
    return StackSpec(
        layers=count_layers(config, layers),
        width=config.integer(width, minimum=1),
        vocabulary=config.integer("vocab_size", minimum=1),
        attention=even_heads(config, width, heads),
        feed_forward=FeedForwardSpec(config.integer(inner, minimum=1), gate, gated=True),
        norms=NormSpec("layer", epsilon, before=False, final=False, embedding=True),
        positions=PositionSpec("rotary", limit=limit, rotary=turned),
        token_types=config.integer("type_vocab_size", 2, minimum=0),
        biases=False,
    )


ARCHITECTURE = Architecture(_spec, fixed(TABLE), ("nomic_bert.", "bert."), IGNORED, heads=HEADS)
