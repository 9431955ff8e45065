"""ALBERT (Lan 2020): BERT with a narrow embedding, whose layers share their weights in groups."""

from dataclasses import replace

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import StackSpec
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.architecture import (
    MASKED,
    MOST_LAYERS,
    SEQUENCE,
    TOKENS,
    Architecture,
    count_layers,
    dense_head,
    fixed,
    linear_head,
    masked_head,
)
from fastattn.weights.huggingface.encoders.bert import EMBEDDING, IGNORED, OLD_NORM_ENDS, bert_spec
from fastattn.weights.tensor_mapping import sources

LAYER = "encoder.albert_layer_groups.#"  # a group and one of its layers
TABLE = EMBEDDING | {
    "encoder.embedding_projection.*": sources("encoder.embedding_hidden_mapping_in.*"),
    "encoder.layers.#.self_attention.qkv.*": sources(
        f"{LAYER}.attention.query.*", f"{LAYER}.attention.key.*", f"{LAYER}.attention.value.*"
    ),
    "encoder.layers.#.self_attention.output.*": sources(f"{LAYER}.attention.dense.*"),
    "encoder.layers.#.self_attention.norm.*": sources(f"{LAYER}.attention.LayerNorm.*"),
    "encoder.layers.#.feed_forward.inner.*": sources(f"{LAYER}.ffn.*"),
    "encoder.layers.#.feed_forward.outer.*": sources(f"{LAYER}.ffn_output.*"),
    "encoder.layers.#.feed_forward.norm.*": sources(f"{LAYER}.full_layer_layer_norm.*"),
}

PREDICTIONS = masked_head("predictions.dense", "predictions.LayerNorm", "predictions.decoder", "predictions.bias")
HEADS = {
    SEQUENCE: dense_head("first", "pooler", "classifier", "tanh"),
    TOKENS: linear_head("each", "classifier"),
    MASKED: PREDICTIONS,
    "ForPreTraining": PREDICTIONS,
}


def _spec(config: JsonObject) -> StackSpec:
    stack = bert_spec(config, default_act="gelu_new")
    layers, groups, inner = _counts(config)
    if groups > layers or layers * inner > MOST_LAYERS:
        raise CheckpointError(f"{config.where}: {layers} layers of {inner} each cannot share {groups} groups")
    width = config.integer("embedding_size", 128, minimum=1)
    return replace(stack, layers=layers * inner, embedding_width=width)


def _counts(config: JsonObject) -> tuple[int, int, int]:
    """Layers, groups, and how many blocks each layer is."""
    groups, inner = (config.integer(name, 1, minimum=1) for name in ("num_hidden_groups", "inner_group_num"))
    return count_layers(config), groups, inner


def _groups(config: JsonObject) -> list[str]:
    """The group of each block, and which it is there."""
    layers, groups, inner = _counts(config)
    return [f"{int(i / (layers / groups))}.albert_layers.{j}" for i in range(layers) for j in range(inner)]


IGNORED_HERE = (*IGNORED, "pooler.", "predictions.", "sop_classifier.")
ARCHITECTURE = Architecture(_spec, fixed(TABLE), ("albert.",), IGNORED_HERE, _groups, OLD_NORM_ENDS, HEADS)
