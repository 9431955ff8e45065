"""Architectures of encoders in Hugging Face directories, a short file each, found by config.json's model_type."""

from importlib import import_module

from fastattn.errors import CheckpointError
from fastattn.weights.containers.json_file import JsonObject, shorten
from fastattn.weights.huggingface.encoders.architecture import Architecture

# model_type -> the module; only the one that is needed is imported.
ENCODERS = {
    "albert": "fastattn.weights.huggingface.encoders.albert",
    "bert": "fastattn.weights.huggingface.encoders.bert",
    "camembert": "fastattn.weights.huggingface.encoders.roberta",
    "deberta-v2": "fastattn.weights.huggingface.encoders.deberta",
    "distilbert": "fastattn.weights.huggingface.encoders.distilbert",
    "electra": "fastattn.weights.huggingface.encoders.electra",
    "gemma3_text": "fastattn.weights.huggingface.encoders.gemma3",
    "gte": "fastattn.weights.huggingface.encoders.gte",
    "modernbert": "fastattn.weights.huggingface.encoders.modernbert",
    "mpnet": "fastattn.weights.huggingface.encoders.mpnet",
    "mt5": "fastattn.weights.huggingface.encoders.t5",
    "new": "fastattn.weights.huggingface.encoders.gte",
    "nomic_bert": "fastattn.weights.huggingface.encoders.nomic",
    "qwen2": "fastattn.weights.huggingface.encoders.qwen",
    "qwen3": "fastattn.weights.huggingface.encoders.qwen",
    "roberta": "fastattn.weights.huggingface.encoders.roberta",
    "t5": "fastattn.weights.huggingface.encoders.t5",
    "xlm-roberta": "fastattn.weights.huggingface.encoders.roberta",
}
JINA = "fastattn.weights.huggingface.encoders.jina"  # which calls itself BERT


def find_architecture(config: JsonObject) -> Architecture:
    """The architecture of a config.json; raises CheckpointError that lists the known ones."""
    kind = config.string("model_type")
    if kind not in ENCODERS:
        raise CheckpointError(
            f"{config.where}: model type {shorten(kind)} is not supported; known: {', '.join(ENCODERS)}"
        )
    is_jina = kind == "bert" and config.values.get("position_embedding_type") == "alibi"
    architecture: Architecture = import_module(JINA if is_jina else ENCODERS[kind]).ARCHITECTURE
    return architecture
