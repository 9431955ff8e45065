"""ELECTRA (Clark 2020): BERT whose embedding may be narrower."""

from dataclasses import replace

from fastattn.spec.architecture import StackSpec
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.architecture import (
    MASKED,
    SEQUENCE,
    TOKENS,
    Architecture,
    dense_head,
    fixed,
    linear_head,
    masked_head,
)
from fastattn.weights.huggingface.encoders.bert import EMBEDDING, IGNORED, LAYERS, OLD_NORM_ENDS, bert_spec
from fastattn.weights.tensor_mapping import sources

TABLE = fixed(LAYERS | EMBEDDING | {"encoder.embedding_projection.*": sources("embeddings_project.*")})
HEAD_NAMES = ("discriminator_predictions.", "generator_predictions.", "generator_lm_head.")
HEADS = {
    SEQUENCE: dense_head("first", "classifier.dense", "classifier.out_proj", "gelu"),
    TOKENS: linear_head("each", "classifier"),
    MASKED: masked_head(
        "generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head", act="gelu"
    ),
}


def _spec(config: JsonObject) -> StackSpec:
    stack = bert_spec(config)
    width = config.integer("embedding_size", 128, minimum=1)
    return replace(stack, embedding_width=0 if width == stack.width else width)


ARCHITECTURE = Architecture(_spec, TABLE, ("electra.",), (*IGNORED, *HEAD_NAMES), renamed=OLD_NORM_ENDS, heads=HEADS)
