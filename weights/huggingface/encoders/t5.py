"""The encoders of T5 (Raffel 2020), mT5, UMT5: relative buckets instead of positions, no biases, no scaled scores."""

from fastattn.spec.architecture import AttentionSpec, FeedForwardSpec, NormSpec, PositionSpec, StackSpec
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.architecture import Architecture, count_columns, count_layers
from fastattn.weights.huggingface.weights import ACTIVATIONS
from fastattn.weights.tensor_mapping import TensorSources, sources

BLOCK = "STACK.block.#.layer"
BIAS = f"{BLOCK}.0.SelfAttention.relative_attention_bias.weight"
TABLE = {
    "STACK.relative_bias": sources(BIAS.replace("#", "0")),
    "STACK.layers.#.self_attention.relative_bias": sources(BIAS),
    "STACK.layers.#.self_attention.norm.*": sources(f"{BLOCK}.0.layer_norm.*"),
    "STACK.layers.#.self_attention.qkv.*": sources(*(f"{BLOCK}.0.SelfAttention.{part}.*" for part in "qkv")),
    "STACK.layers.#.self_attention.output.*": sources(f"{BLOCK}.0.SelfAttention.o.*"),
    "STACK.final_norm.*": sources("STACK.final_layer_norm.*"),
}


def feed_forward_sources(gated: bool, stack: str = "encoder", number: int = 1) -> dict[str, TensorSources]:
    """The sources of a stack's feed-forwards, the sublayers with this number."""
    canonical, stored = f"{stack}.layers.#.feed_forward", f"{stack}.block.#.layer.{number}"
    return {
        f"{canonical}.norm.*": sources(f"{stored}.layer_norm.*"),
        f"{canonical}.inner.*": sources(f"{stored}.DenseReluDense.{'wi_0' if gated else 'wi'}.*"),
        f"{canonical}.inner_linear.*": sources(f"{stored}.DenseReluDense.wi_1.*"),
        f"{canonical}.outer.*": sources(f"{stored}.DenseReluDense.wo.*"),
    }


def t5_stack(config: JsonObject) -> StackSpec:
    heads, head_width = config.integer("num_heads", minimum=1), config.integer("d_kv", minimum=1)
    name = config.string("feed_forward_proj", "relu" if config.string("model_type") == "t5" else "gated-gelu")
    # T5's "gated-gelu" is the tanh form.
    act = "gelu_new" if name == "gated-gelu" else name.removeprefix("gated-")
    if act not in ACTIVATIONS:
        raise config.error("feed_forward_proj", f"one of {', '.join(ACTIVATIONS)}, perhaps after gated-", name)
    inner = config.integer("d_ff", minimum=1)
    return StackSpec(
        layers=count_layers(config, "num_layers"),
        width=count_columns(config, "d_model"),
        vocabulary=config.integer("vocab_size", minimum=1),
        attention=AttentionSpec(heads, heads, head_width, query_scale=1.0),
        feed_forward=FeedForwardSpec(inner, ACTIVATIONS[act], name.startswith("gated-")),
        norms=NormSpec("rms", config.number("layer_norm_epsilon", 1e-6)),
        positions=PositionSpec(
            "relative",
            buckets=config.integer("relative_attention_num_buckets", 32, minimum=1),
            max_distance=config.integer("relative_attention_max_distance", 128, minimum=1),
            of_each_layer=config.string("model_type") == "umt5",
        ),
        biases=False,
    )


def _table(config: JsonObject, spec: StackSpec) -> dict[str, TensorSources]:
    embedding = {"encoder.embedding.weight": sources("encoder.embed_tokens.weight")}
    return TABLE | embedding | feed_forward_sources(spec.feed_forward.gated)


T5 = Architecture(
    t5_stack,
    _table,
    ("transformer.",),
    ("shared.", "decoder.", "lm_head.", "classification_head."),
    tied=lambda config: {"encoder.embed_tokens.weight": "shared.weight"},
)
