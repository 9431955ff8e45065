"""Architectures of decoders in Hugging Face directories, a file for each family, found by config.json's model_type."""

from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.architecture import Architecture, found_in

# model_type -> a module and its Architecture; only the one that is needed is imported.
DECODERS = {
    "gemma2": "llama.GEMMA2",
    "gemma3": "llama.GEMMA3",
    "gemma3_text": "llama.GEMMA3",
    "gpt2": "gpt.GPT2",
    "gpt_neox": "gpt.GPT_NEOX",
    "hunyuan_v1_dense": "llama.HUNYUAN",
    "llama": "llama.LLAMA",
    "mistral": "llama.MISTRAL",
    "olmo2": "llama.OLMO2",
    "phi3": "llama.PHI3",
    "qwen2": "llama.QWEN",
    "qwen3": "llama.QWEN",
    "smollm3": "llama.SMOLLM3",
}
# Ends of the names of classes that have the projection too.
CLASSES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")


def find_decoder(config: JsonObject) -> Architecture:
    """The architecture of a config.json, or of as much; raises CheckpointError that lists the known ones."""
    architecture: Architecture = found_in(DECODERS, config, __name__)
    return architecture
