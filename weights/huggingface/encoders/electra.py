"""ELECTRA (Clark 2020): BERT whose embedding may be narrower."""

from dataclasses import replace

from fastattn.spec import StackSpec
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.architecture import Architecture
from fastattn.weights.huggingface.encoders.bert import EMBEDDING, IGNORED, LAYERS, OLD_NORM_ENDS, bert_spec
from fastattn.weights.plan import Part, of

HEADS = ("discriminator_predictions.", "generator_predictions.", "generator_lm_head.")


def _spec(config: JsonObject) -> StackSpec:
    stack = bert_spec(config)
    width = config.integer("embedding_size", stack.width, minimum=1)
    return replace(stack, embedding_width=0 if width == stack.width else width)


def _table(config: JsonObject, spec: StackSpec) -> dict[str, Part]:
    return LAYERS | EMBEDDING | {"encoder.embedding_projection.*": of("embeddings_project.*")}


ARCHITECTURE = Architecture(_spec, _table, ("electra.",), (*IGNORED, *HEADS), renamed=OLD_NORM_ENDS)
