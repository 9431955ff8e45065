"""ModernBERT (Warner 2024): rotary positions of two bases, local layers between global ones, gates, norms before."""

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import FeedForwardSpec, HeadSpec, LocalSpec, NormSpec, PositionSpec, StackSpec
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.architecture import (
    MASKED,
    SEQUENCE,
    TOKENS,
    Architecture,
    HeadSource,
    activation,
    count_layers,
    even_heads,
    fixed,
    local_layers,
    rotary,
    tied_output,
)
from fastattn.weights.tensor_mapping import TensorSources, sources

TABLE = {
    "encoder.embedding.weight": sources("embeddings.tok_embeddings.weight"),
    "encoder.embedding_norm.*": sources("embeddings.norm.*"),
    "encoder.layers.#.self_attention.norm.*": sources("layers.#.attn_norm.*"),
    "encoder.layers.#.self_attention.qkv.*": sources("layers.#.attn.Wqkv.*"),
    "encoder.layers.#.self_attention.output.*": sources("layers.#.attn.Wo.*"),
    "encoder.layers.#.feed_forward.norm.*": sources("layers.#.mlp_norm.*"),
    "encoder.layers.#.feed_forward.inner.*": sources("layers.#.mlp.Wi.*", piece=(0, 2)),
    "encoder.layers.#.feed_forward.inner_linear.*": sources("layers.#.mlp.Wi.*", piece=(1, 2)),
    "encoder.layers.#.feed_forward.outer.*": sources("layers.#.mlp.Wo.*"),
    "encoder.final_norm.*": sources("final_norm.*"),
}


def _spec(config: JsonObject) -> StackSpec:
    layers, attention = count_layers(config), even_heads(config)
    inner = config.integer("intermediate_size", minimum=1)
    biases = [config.boolean(name, False) for name in ("attention_bias", "mlp_bias")]
    if biases[0] != biases[1]:
        raise CheckpointError(f"{config.where}: attention_bias and mlp_bias should be equal, are {biases}")
    every = config.integer("global_attn_every_n_layers", 3, minimum=1)
    window = config.integer("local_attention", 128, minimum=0) // 2
    width = attention.head_width
    return StackSpec(
        layers=layers,
        width=config.integer("hidden_size", minimum=1),
        vocabulary=config.integer("vocab_size", minimum=1),
        attention=attention,
        feed_forward=FeedForwardSpec(inner, activation(config, "hidden_activation"), gated=True),
        norms=NormSpec(
            "layer", config.number("norm_eps", 1e-5), config.boolean("norm_bias", False), embedding=True, first=False
        ),
        positions=PositionSpec(
            "rotary",
            limit=config.integer("max_position_embeddings", minimum=1),
            rotary=rotary(config, width, 160_000.0, "full_attention", "global_rope_theta"),
        ),
        biases=biases[0],
        local=LocalSpec(
            local_layers(config, layers, lambda i: i % every != 0),
            before=window,
            after=window,
            rotary=rotary(config, width, 10_000.0, "sliding_attention", "local_rope_theta"),
        ),
    )


def _head(config: JsonObject, rows: str, outputs: int, bias: bool = True) -> HeadSpec:
    norms = NormSpec("layer", config.number("norm_eps", 1e-5), config.boolean("norm_bias", False))
    return HeadSpec(
        rows,
        outputs,
        bias,
        config.integer("hidden_size", minimum=1),
        config.boolean("classifier_bias", False),
        activation(config, "classifier_activation"),
        norms,
    )


def _sequence_head(config: JsonObject, spec: StackSpec, labels: int) -> HeadSpec:
    pooling = config.string("classifier_pooling", "cls")
    if pooling not in ("cls", "mean"):
        raise config.error("classifier_pooling", "'cls' or 'mean'", pooling)
    return _head(config, "first" if pooling == "cls" else "mean", labels)


def _token_head(config: JsonObject, spec: StackSpec, labels: int) -> HeadSpec:
    return _head(config, "each", labels)


def _masked_head(config: JsonObject, spec: StackSpec, labels: int) -> HeadSpec:
    return _head(config, "each", spec.vocabulary, config.boolean("decoder_bias", True))


def _masked_table(config: JsonObject, spec: StackSpec) -> dict[str, TensorSources]:
    return HEAD | tied_output(config, "decoder", "decoder.bias", "embeddings.tok_embeddings")


HEAD = {
    "head.inner.*": sources("head.dense.*"),
    "head.norm.*": sources("head.norm.*"),
    "head.output.*": sources("classifier.*"),
}
HEADS = {
    SEQUENCE: HeadSource(_sequence_head, fixed(HEAD)),
    TOKENS: HeadSource(_token_head, fixed(HEAD)),
    MASKED: HeadSource(_masked_head, _masked_table, labelled=False),
}
ARCHITECTURE = Architecture(_spec, fixed(TABLE), ("model.",), ("head.", "decoder.", "classifier."), heads=HEADS)
