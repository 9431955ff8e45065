"""ALBERT (Lan 2020): BERT with a narrow embedding, whose layers share their weights in groups."""

from dataclasses import replace

from fastattn.errors import CheckpointError
from fastattn.spec import StackSpec
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.architecture import Architecture, refuse
from fastattn.weights.huggingface.encoders.bert import EMBEDDING, IGNORED, OLD_NORM_ENDS, bert_spec
from fastattn.weights.plan import Part, of

LAYER = "encoder.albert_layer_groups.#.albert_layers.0"
TABLE = EMBEDDING | {
    "encoder.embedding_projection.*": of("encoder.embedding_hidden_mapping_in.*"),
    "encoder.layers.#.self_attention.qkv.*": of(
        f"{LAYER}.attention.query.*", f"{LAYER}.attention.key.*", f"{LAYER}.attention.value.*"
    ),
    "encoder.layers.#.self_attention.output.*": of(f"{LAYER}.attention.dense.*"),
    "encoder.layers.#.self_attention.norm.*": of(f"{LAYER}.attention.LayerNorm.*"),
    "encoder.layers.#.feed_forward.inner.*": of(f"{LAYER}.ffn.*"),
    "encoder.layers.#.feed_forward.outer.*": of(f"{LAYER}.ffn_output.*"),
    "encoder.layers.#.feed_forward.norm.*": of(f"{LAYER}.full_layer_layer_norm.*"),
}


def _spec(config: JsonObject) -> StackSpec:
    refuse(config, inner_group_num=1)
    groups = config.integer("num_hidden_groups", 1, minimum=1)
    stack = bert_spec(config)
    if groups > stack.layers:
        raise CheckpointError(f"{config.where}: {groups} groups of layers are more than the {stack.layers} layers")
    return replace(stack, embedding_width=config.integer("embedding_size", 128, minimum=1))


def _groups(config: JsonObject) -> list[int]:
    """The group that each layer is of."""
    layers, groups = config.integer("num_hidden_layers"), config.integer("num_hidden_groups", 1)
    return [int(i / (layers / groups)) for i in range(layers)]


def _table(config: JsonObject, spec: StackSpec) -> dict[str, Part]:
    return TABLE


ARCHITECTURE = Architecture(
    _spec, _table, ("albert.",), (*IGNORED, "pooler.", "predictions.", "sop_classifier."), _groups, OLD_NORM_ENDS
)
