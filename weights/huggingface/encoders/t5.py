"""The encoder of T5 and mT5 (Raffel 2020): relative buckets instead of positions, no biases, no scaled scores."""

from fastattn.spec.architecture import AttentionSpec, FeedForwardSpec, NormSpec, PositionSpec, StackSpec
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.architecture import Architecture, count_layers
from fastattn.weights.huggingface.weights import ACTIVATIONS
from fastattn.weights.tensor_mapping import TensorSources, sources

BLOCK = "encoder.block.#.layer"
TABLE = {
    "encoder.embedding.weight": sources("shared.weight"),
    "encoder.relative_bias": sources("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
    "encoder.layers.#.self_attention.norm.*": sources(f"{BLOCK}.0.layer_norm.*"),
    "encoder.layers.#.self_attention.qkv.*": sources(
        f"{BLOCK}.0.SelfAttention.q.*", f"{BLOCK}.0.SelfAttention.k.*", f"{BLOCK}.0.SelfAttention.v.*"
    ),
    "encoder.layers.#.self_attention.output.*": sources(f"{BLOCK}.0.SelfAttention.o.*"),
    "encoder.layers.#.feed_forward.norm.*": sources(f"{BLOCK}.1.layer_norm.*"),
    "encoder.layers.#.feed_forward.outer.*": sources(f"{BLOCK}.1.DenseReluDense.wo.*"),
    "encoder.final_norm.*": sources("encoder.final_layer_norm.*"),
}
PLAIN = {"encoder.layers.#.feed_forward.inner.*": sources(f"{BLOCK}.1.DenseReluDense.wi.*")}
GATED = {
    "encoder.layers.#.feed_forward.inner.*": sources(f"{BLOCK}.1.DenseReluDense.wi_0.*"),
    "encoder.layers.#.feed_forward.inner_linear.*": sources(f"{BLOCK}.1.DenseReluDense.wi_1.*"),
}


def _spec(config: JsonObject) -> StackSpec:
    heads, head_width = config.integer("num_heads", minimum=1), config.integer("d_kv", minimum=1)
    return StackSpec(
        layers=count_layers(config, "num_layers"),
        width=config.integer("d_model", minimum=1),
        vocabulary=config.integer("vocab_size", minimum=1),
        attention=AttentionSpec(heads, heads, head_width, query_scale=1.0),
        feed_forward=_feed_forward(config),
        norms=NormSpec("rms", config.number("layer_norm_epsilon", 1e-6)),
        positions=PositionSpec(
            "relative",
            buckets=config.integer("relative_attention_num_buckets", 32, minimum=1),
            max_distance=config.integer("relative_attention_max_distance", 128, minimum=1),
        ),
        biases=False,
    )


def _feed_forward(config: JsonObject) -> FeedForwardSpec:
    name = config.string("feed_forward_proj", "gated-gelu" if config.string("model_type") == "mt5" else "relu")
    gated, theirs = name.startswith("gated-"), name.removeprefix("gated-")
    # By their gated gelu they mean the tanh form.
    theirs = "gelu_new" if name == "gated-gelu" else theirs
    if theirs not in ACTIVATIONS:
        raise config.error("feed_forward_proj", f"one of {', '.join(ACTIVATIONS)}, perhaps after gated-", name)
    return FeedForwardSpec(config.integer("d_ff", minimum=1), ACTIVATIONS[theirs], gated)


def _table(config: JsonObject, spec: StackSpec) -> dict[str, TensorSources]:
    return TABLE | (GATED if spec.feed_forward.gated else PLAIN)


T5 = Architecture(
    _spec,
    _table,
    ("transformer.",),
    ("decoder.", "lm_head.", "classification_head."),
    twins={"shared.weight": "encoder.embed_tokens.weight"},
)
