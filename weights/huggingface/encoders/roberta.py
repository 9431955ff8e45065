"""RoBERTa (Liu 2019), XLM-R (Conneau 2020), CamemBERT: BERT whose positions start after the padding id."""

from fastattn.spec.architecture import StackSpec
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.architecture import (
    MASKED,
    SEQUENCE,
    TOKENS,
    Architecture,
    dense_head,
    linear_head,
    masked_head,
)
from fastattn.weights.huggingface.encoders.bert import EMBEDDING, IGNORED, LAYERS, OLD_NORM_ENDS, bert_spec
from fastattn.weights.tensor_mapping import TensorSources, sources

HEADS = {
    SEQUENCE: dense_head("first", "classifier.dense", "classifier.out_proj", "tanh"),
    TOKENS: linear_head("each", "classifier"),
    MASKED: masked_head("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias", "gelu"),
}


def _spec(config: JsonObject) -> StackSpec:
    return bert_spec(config, config.integer("pad_token_id", 1))


def _table(config: JsonObject, spec: StackSpec) -> dict[str, TensorSources]:
    positions = sources("embeddings.position_embeddings.weight", skip=spec.positions.padding)
    return LAYERS | EMBEDDING | {"encoder.positions": positions}


ARCHITECTURE = Architecture(_spec, _table, ("roberta.",), (*IGNORED, "lm_head."), renamed=OLD_NORM_ENDS, heads=HEADS)
