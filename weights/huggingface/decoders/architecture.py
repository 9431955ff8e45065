"""The description of a decoder's architecture: an Architecture with a projection, tied to the embedding or not."""

from collections.abc import Callable, Mapping

from fastattn.spec.architecture import StackSpec
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders import architecture
from fastattn.weights.huggingface.encoders.architecture import Architecture
from fastattn.weights.tensor_mapping import TensorSources, sources


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
        return {**table(config, stack), "decoder.projection.weight": sources("lm_head.weight")}

    # Llama's and GPT-NeoX's masks and frequencies, which old files hold
    buffers = (".rotary_emb.inv_freq", ".attention.bias", ".masked_bias")
    ties = architecture.tied({"lm_head.weight": embedding}, tied)
    fields = {"prefixes": (prefix,), "tied": ties, "buffers": buffers} | more
    return Architecture(spec, whole_table, **fields)  # type: ignore[arg-type]
