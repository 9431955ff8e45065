"""BERT (Devlin 2019): learned positions, token types, norms after each sublayer."""

from fastattn.spec.architecture import FeedForwardSpec, NormSpec, PositionSpec, StackSpec
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
)
from fastattn.weights.tensor_mapping import sources

LAYERS = {
    "encoder.layers.#.self_attention.qkv.*": sources(
        "encoder.layer.#.attention.self.query.*",
        "encoder.layer.#.attention.self.key.*",
        "encoder.layer.#.attention.self.value.*",
    ),
    "encoder.layers.#.self_attention.output.*": sources("encoder.layer.#.attention.output.dense.*"),
    "encoder.layers.#.self_attention.norm.*": sources("encoder.layer.#.attention.output.LayerNorm.*"),
    "encoder.layers.#.feed_forward.inner.*": sources("encoder.layer.#.intermediate.dense.*"),
    "encoder.layers.#.feed_forward.outer.*": sources("encoder.layer.#.output.dense.*"),
    "encoder.layers.#.feed_forward.norm.*": sources("encoder.layer.#.output.LayerNorm.*"),
}
EMBEDDING = {
    "encoder.embedding.weight": sources("embeddings.word_embeddings.weight"),
    "encoder.embedding_norm.*": sources("embeddings.LayerNorm.*"),
    "encoder.positions": sources("embeddings.position_embeddings.weight"),
    "encoder.token_types": sources("embeddings.token_type_embeddings.weight"),
}
# Tensors that do not affect the last hidden states: buffers, and heads.
IGNORED = ("embeddings.position_ids", "embeddings.token_type_ids", "pooler.", "cls.", "classifier.", "qa_outputs.")
# TensorFlow's names of a norm's weights, which early conversions kept.
OLD_NORM_ENDS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}

PREDICTIONS = masked_head(
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    "cls.predictions.decoder",
    "cls.predictions.bias",
)
HEADS = {
    SEQUENCE: dense_head("first", "pooler.dense", "classifier", "tanh"),
    TOKENS: linear_head("each", "classifier"),
    MASKED: PREDICTIONS,
    "ForPreTraining": PREDICTIONS,
}


def bert_spec(
    config: JsonObject, padding: int = -1, positions: str = "absolute", default_act: str = "gelu"
) -> StackSpec:
    """The stack.

    padding    the id whose position is the row of that number of the table, and the others' follow; -1: there is none
    positions  their name in config.json
    default_act  the activation of the feed-forwards where config.json has none
    """
    refuse(config, position_embedding_type=positions, is_decoder=False, add_cross_attention=False)
    attention = even_heads(config)
    limit = config.integer("max_position_embeddings", minimum=2 + padding) - 1 - padding
    return StackSpec(
        layers=count_layers(config),
        width=config.integer("hidden_size", minimum=1),
        vocabulary=config.integer("vocab_size", minimum=1),
        attention=attention,
        feed_forward=FeedForwardSpec(
            config.integer("intermediate_size", minimum=1), activation(config, default=default_act)
        ),
        norms=NormSpec("layer", config.number("layer_norm_eps", 1e-12), before=False, final=False, embedding=True),
        positions=PositionSpec("table", limit=limit, padding=padding),
        token_types=config.integer("type_vocab_size", 2, minimum=1),
    )


TABLE = fixed(LAYERS | EMBEDDING)
ARCHITECTURE = Architecture(bert_spec, TABLE, ("bert.",), IGNORED, renamed=OLD_NORM_ENDS, heads=HEADS)
