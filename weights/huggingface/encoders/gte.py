"""gte v1.5's NewModel, transformers' GTE (Zhang 2024): rotary positions, gates, norms after each sublayer."""

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

GATES_AND_INNER = "encoder.layer.#.mlp.up_gate_proj.weight"
TABLE = {
    "encoder.embedding.weight": sources("embeddings.word_embeddings.weight"),
    "encoder.token_types": sources("embeddings.token_type_embeddings.weight"),
    "encoder.embedding_norm.*": sources("embeddings.LayerNorm.*"),
    "encoder.layers.#.self_attention.qkv.*": sources("encoder.layer.#.attention.qkv_proj.*"),
    "encoder.layers.#.self_attention.output.*": sources("encoder.layer.#.attention.o_proj.*"),
    "encoder.layers.#.self_attention.norm.*": sources("encoder.layer.#.attn_ln.*"),
    "encoder.layers.#.feed_forward.inner.weight": sources(GATES_AND_INNER, piece=(1, 2)),
    "encoder.layers.#.feed_forward.inner_linear.weight": sources(GATES_AND_INNER, piece=(0, 2)),
    "encoder.layers.#.feed_forward.inner.bias": sources(None),
    "encoder.layers.#.feed_forward.inner_linear.bias": sources(None),
    "encoder.layers.#.feed_forward.outer.*": sources("encoder.layer.#.mlp.down_proj.*"),
    "encoder.layers.#.feed_forward.norm.*": sources("encoder.layer.#.mlp_ln.*"),
}
IGNORED = ("pooler.", "lm_head.", "classifier.", "rotary_emb.", "embeddings.rotary_emb.")

HEADS = {
    SEQUENCE: dense_head("first", "pooler.dense", "classifier", "tanh"),
    TOKENS: linear_head("each", "classifier"),
    MASKED: masked_head("lm_head.dense", "lm_head.norm", "lm_head.decoder", act="gelu"),
}


def _spec(config: JsonObject) -> StackSpec:
    refuse(
        config,
        position_embedding_type="rope",
        layer_norm_type="layer_norm",
        pack_qkv=True,
        logn_attention_scale=False,
        use_rms_norm=False,
    )
    attention = even_heads(config)
    return StackSpec(
        layers=count_layers(config),
        width=config.integer("hidden_size", minimum=1),
        vocabulary=config.integer("vocab_size", minimum=1),
        attention=attention,
        feed_forward=FeedForwardSpec(config.integer("intermediate_size", minimum=1), activation(config), gated=True),
        norms=NormSpec("layer", config.number("layer_norm_eps", 1e-12), before=False, final=False, embedding=True),
        positions=PositionSpec(
            "rotary",
            limit=config.integer("max_position_embeddings", minimum=1),
            rotary=_rotary(config, attention.head_width),
        ),
        token_types=config.integer("type_vocab_size", 1, minimum=0),
    )


def _rotary(config: JsonObject, width: int) -> Rotary:
    scaling = config.nested("rope_scaling")
    if scaling.string("type", "default") != "ntk":
        default = 160_000.0 if config.string("model_type") == "gte" else 10_000.0
        return rotary(config, width, default)
    refuse(scaling, mixed_b=None)
    # Its authors' NTK scaling: a base so many times as large, all angles smaller by a root of the factor.
    factor = scaling.number("factor")
    if factor <= 0:
        raise scaling.error("factor", "above zero", factor)
    base = config.number("rope_theta", 10_000.0)
    return Rotary(width, base * factor, interleaved=False, scale=factor ** (2 / width))


ARCHITECTURE = Architecture(_spec, fixed(TABLE), ("new.", "gte."), IGNORED, heads=HEADS)
