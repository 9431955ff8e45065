"""Architectures of encoders in Hugging Face directories, a file for each family, found by config.json's model_type."""

from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.architecture import Architecture, found_in

# model_type -> a module and its Architecture; only the one that is needed is imported.
ENCODERS = {
    "albert": "bert.ALBERT",
    "bert": "bert.BERT",
    "camembert": "bert.ROBERTA",
    "deberta-v2": "deberta.DEBERTA",
    "distilbert": "bert.DISTILBERT",
    "electra": "bert.ELECTRA",
    "gemma3_text": "llama.GEMMA3",
    "gte": "rotary_bert.GTE",
    "modernbert": "rotary_bert.MODERNBERT",
    "mpnet": "bert.MPNET",
    "mt5": "t5.T5",
    "new": "rotary_bert.GTE",
    "nomic_bert": "rotary_bert.NOMIC",
    "qwen2": "llama.QWEN",
    "qwen3": "llama.QWEN",
    "roberta": "bert.ROBERTA",
    "t5": "t5.T5",
    "umt5": "t5.T5",
    "xlm-roberta": "bert.ROBERTA",
}
JINA = "bert.JINA"  # which calls itself BERT


def find_architecture(config: JsonObject) -> Architecture:
    """The architecture of a config.json; raises CheckpointError that lists the known ones."""
    is_jina = config.values.get("model_type") == "bert" and config.values.get("position_embedding_type") == "alibi"
    architecture: Architecture = found_in(ENCODERS | ({"bert": JINA} if is_jina else {}), config, __name__)
    return architecture
