"""DistilBERT (Sanh 2019): BERT without token types, by names of its own."""

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
)
from fastattn.weights.huggingface.encoders.bert import EMBEDDING
from fastattn.weights.tensor_mapping import sources

LAYERS = {
    "encoder.layers.#.self_attention.qkv.*": sources(
        "transformer.layer.#.attention.q_lin.*",
        "transformer.layer.#.attention.k_lin.*",
        "transformer.layer.#.attention.v_lin.*",
    ),
    "encoder.layers.#.self_attention.output.*": sources("transformer.layer.#.attention.out_lin.*"),
    "encoder.layers.#.self_attention.norm.*": sources("transformer.layer.#.sa_layer_norm.*"),
    "encoder.layers.#.feed_forward.inner.*": sources("transformer.layer.#.ffn.lin1.*"),
    "encoder.layers.#.feed_forward.outer.*": sources("transformer.layer.#.ffn.lin2.*"),
    "encoder.layers.#.feed_forward.norm.*": sources("transformer.layer.#.output_layer_norm.*"),
}
# Sinusoids are stored like learned positions.
IGNORED = ("embeddings.position_ids", "pre_classifier.", "classifier.", "qa_outputs.", "vocab_")

HEADS = {
    SEQUENCE: dense_head("first", "pre_classifier", "classifier", "relu"),
    TOKENS: linear_head("each", "classifier"),
    MASKED: masked_head("vocab_transform", "vocab_layer_norm", "vocab_projector"),
}


def _spec(config: JsonObject) -> StackSpec:
    return StackSpec(
        layers=count_layers(config, "n_layers"),
        width=config.integer("dim", minimum=1),
        vocabulary=config.integer("vocab_size", minimum=1),
        attention=even_heads(config, "dim", "n_heads"),
        feed_forward=FeedForwardSpec(config.integer("hidden_dim", minimum=1), activation(config, "activation")),
        norms=NormSpec("layer", 1e-12, before=False, final=False, embedding=True),
        positions=PositionSpec("table", limit=config.integer("max_position_embeddings", minimum=1)),
    )


ARCHITECTURE = Architecture(_spec, fixed(LAYERS | EMBEDDING), ("distilbert.",), IGNORED, heads=HEADS)
