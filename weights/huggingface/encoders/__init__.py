"""Architectures of encoders in Hugging Face directories, a short file each, found by config.json's model_type."""

from importlib import import_module

from fastattn.errors import CheckpointError
from fastattn.weights.containers.json_file import JsonObject, shorten
from fastattn.weights.huggingface.encoders.architecture import Architecture

# model_type -> the module; only the one that is needed is imported.
ENCODERS = {
    "bert": "fastattn.weights.huggingface.encoders.bert",
    "camembert": "fastattn.weights.huggingface.encoders.roberta",
    "deberta-v2": "fastattn.weights.huggingface.encoders.deberta",
    "roberta": "fastattn.weights.huggingface.encoders.roberta",
    "xlm-roberta": "fastattn.weights.huggingface.encoders.roberta",
}


def find_architecture(config: JsonObject) -> Architecture:
    """The architecture of a config.json; raises CheckpointError that lists the known ones."""
    kind = config.string("model_type")
    if kind not in ENCODERS:
        raise CheckpointError(
            f"{config.where}: model type {shorten(kind)} is not supported; known: {', '.join(ENCODERS)}"
        )
    architecture: Architecture = import_module(ENCODERS[kind]).ARCHITECTURE
    return architecture
