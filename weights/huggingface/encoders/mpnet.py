"""MPNet (Song 2020): BERT with a relative bias, shared by the layers, beside its learned positions."""

from dataclasses import replace

from fastattn.spec.architecture import StackSpec
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.architecture import Architecture, fixed, refuse
from fastattn.weights.huggingface.encoders.bert import EMBEDDING, IGNORED, LAYERS, OLD_NORM_ENDS, bert_spec
from fastattn.weights.huggingface.encoders.roberta import HEADS
from fastattn.weights.tensor_mapping import sources

PADDING = 1  # whatever config.json says: transformers does not ask it
ATTENTION = {
    "encoder.layers.#.self_attention.qkv.*": sources(
        "encoder.layer.#.attention.attn.q.*", "encoder.layer.#.attention.attn.k.*", "encoder.layer.#.attention.attn.v.*"
    ),
    "encoder.layers.#.self_attention.output.*": sources("encoder.layer.#.attention.attn.o.*"),
    "encoder.layers.#.self_attention.norm.*": sources("encoder.layer.#.attention.LayerNorm.*"),
    "encoder.relative_bias": sources("encoder.relative_attention_bias.weight"),
    "encoder.positions": sources("embeddings.position_embeddings.weight", skip=PADDING),
}


def _spec(config: JsonObject) -> StackSpec:
    refuse(config, relative_attention_num_buckets=32)  # transformers uses 32 whatever it says
    stack = bert_spec(config, PADDING)
    positions = replace(stack.positions, kind="relative", learned=True, buckets=32, max_distance=128)
    return replace(stack, positions=positions, token_types=0)


TABLE = fixed(LAYERS | EMBEDDING | ATTENTION)
ARCHITECTURE = Architecture(_spec, TABLE, ("mpnet.",), (*IGNORED, "lm_head."), renamed=OLD_NORM_ENDS, heads=HEADS)
