"""Architectures of decoders in Hugging Face directories, a file for each family, found by config.json's model_type."""

from collections.abc import Callable, Mapping
from importlib import import_module

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import StackSpec
from fastattn.weights.containers.json_file import JsonObject, shorten
from fastattn.weights.huggingface.encoders.architecture import Architecture
from fastattn.weights.tensor_mapping import TensorSources, sources

# model_type -> a module and its Architecture; only the one that is needed is imported.
DECODERS = {
    "gemma2": "gemma.GEMMA2",
    "gemma3": "gemma.GEMMA3",
    "gemma3_text": "gemma.GEMMA3",
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
    kind = config.string("model_type")
    if kind not in DECODERS:
        raise CheckpointError(
            f"{config.where}: model type {shorten(kind)} is not supported; known: {', '.join(DECODERS)}"
        )
    module, name = DECODERS[kind].split(".")
    architecture: Architecture = getattr(import_module(f"{__name__}.{module}"), name)
    return architecture


def decoder(
    spec: Callable[[JsonObject], StackSpec],
    table: Callable[[JsonObject, StackSpec], Mapping[str, TensorSources]],
    embedding: str = "embed_tokens.weight",
    tied: bool = False,
    prefix: str = "model.",
    **more: object,
) -> Architecture:
    """The Architecture of a decoder, whose projection ``lm_head`` is tied to its embedding where config.json says so.

    embedding  the name of its table
    tied       where config.json does not say it
    """

    def whole_table(config: JsonObject, stack: StackSpec) -> Mapping[str, TensorSources]:
        name = embedding if _is_tied(config, tied) else "lm_head.weight"
        return {**table(config, stack), "decoder.projection.weight": sources(name)}

    def unused(config: JsonObject) -> tuple[str, ...]:
        return ("lm_head.",) if _is_tied(config, tied) else ()

    # Llama's and GPT-NeoX's masks and frequencies, which old files hold
    buffers = (".rotary_emb.inv_freq", ".attention.bias", ".masked_bias")
    fields = {"prefixes": (prefix,), "unused": unused, "buffers": buffers} | more
    return Architecture(spec, whole_table, **fields)  # type: ignore[arg-type]


def _is_tied(config: JsonObject, tied: bool) -> bool:
    return config.boolean("tie_word_embeddings", tied)
