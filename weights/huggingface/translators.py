"""Encoder-decoders in Hugging Face directories: config.json, weights and a tokenizer's files -> a Checkpoint."""

from dataclasses import replace
from typing import Any

import numpy as np

from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.quantized import Tensor, equal
from fastattn.weights.containers.json_file import JsonObject, read_object
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.architectures.architecture import architecture_in, refuse
from fastattn.weights.huggingface.architectures.translator import MOST_POSITIONS, SHARED, TranslatorArchitecture
from fastattn.weights.huggingface.encoders import ENCODERS, read_encoder
from fastattn.weights.huggingface.generation import generation_values, never_produced_ids, read_settings
from fastattn.weights.huggingface.weights import MISFIT, as_checkpoint, read_weights
from fastattn.weights.tensor_mapping import canonical_tensors

# model_type that is not supported -> the reason.
UNSUPPORTED = {"nllb-moe": "a mixture of experts", "whisper": "its input is sound, not text"}
# model_type -> a module and the name of a TranslatorArchitecture in it; a module is imported when it is needed.
TRANSLATORS = {
    "bart": "bart.BART",
    "m2m_100": "bart.M2M100",  # NLLB too
    "marian": "bart.MARIAN",
    "mbart": "bart.MBART",
    "mt5": "t5.T5_TRANSLATOR",
    "pegasus": "bart.PEGASUS",
    "t5": "t5.T5_TRANSLATOR",  # flan-T5 and MADLAD too
    "umt5": "t5.T5_TRANSLATOR",
}
# Ends of the names of tensors that are no weights, which old files have.
BUFFERS = (
    ".version",
    ".embed_positions.weights",
    ".embed_positions._float_tensor",
    ".EncDecAttention.relative_attention_bias.weight",  # which no T5 uses
)


def find_translator(config: JsonObject) -> TranslatorArchitecture:
    """The architecture of a config.json; CheckpointError, which lists the known types, for an unknown model_type."""
    architecture: TranslatorArchitecture = architecture_in(TRANSLATORS, config)
    return architecture


def is_translator(config: JsonObject) -> bool:
    """Whether the directory is an encoder-decoder's; a directory of an encoder alone may have the same model_type."""
    model_type = config.string("model_type")
    return model_type in TRANSLATORS and (model_type not in ENCODERS or find_translator(config).names_class(config))


def read_translator(folder: Folder) -> Checkpoint:
    """Read a directory, its weights last, so that ``hub`` can refuse a model before it downloads them.

    Raises CheckpointError if the directory is malformed, incomplete or not supported.
    """
    config = read_object(folder, "config.json")
    architecture = find_translator(config)
    generation = generation_values(folder, config)
    # transformers decodes with the special tokens of generation_config.json, else with those of config.json.
    values = config.values | {name: value for name, value in generation.values.items() if value is not None}
    end_ids = values.get("eos_token_id")
    if isinstance(end_ids, list) and len(end_ids) == 1:
        values["eos_token_id"] = end_ids[0]
    decoding_config = JsonObject(values, config.where)
    if not architecture.names_class(config):
        raise config.error("architectures", f"one of {', '.join(architecture.classes)}", config.values["architectures"])
    refuse(config, quantization_config={}, pruned_heads={})
    spec = architecture.spec(config)
    text = architecture.text(folder, config, decoding_config, spec)
    settings = read_settings(generation, text.target_vocabulary, generation is not config)
    suppressed_ids = never_produced_ids(generation, [decoding_config.integer("eos_token_id")])
    rows = spec.stacks["decoder"].vocabulary
    for number in suppressed_ids:
        if number >= rows:
            raise decoding_config.error("suppress_tokens or one of bad_words_ids", f"an id below {rows}", number)
    if architecture.suppressed_ids is None:
        sequences = (*settings.suppress_sequences, *((number,) for number in suppressed_ids))
        settings, suppressed_ids = replace(settings, suppress_sequences=sequences), []
    else:
        suppressed_ids += architecture.suppressed_ids(decoding_config, spec)
    text = replace(text, decoding=settings)
    stored, where = read_weights(folder)
    if config.string("model_type") in ENCODERS and not any(name.startswith("decoder.") for name in stored):
        return read_encoder(folder)  # some encoders' config.json names the whole model's class
    stored = {name.removeprefix("model."): tensor for name, tensor in stored.items()}
    stored = {name: tensor for name, tensor in stored.items() if not name.endswith(BUFFERS)}
    positions = spec.stacks["encoder"].positions.limit
    if positions > MOST_POSITIONS and any(f"{stack}.embed_positions.weight" not in stored for stack in spec.stacks):
        raise config.error("max_position_embeddings", f"at most {MOST_POSITIONS}", positions)
    _tie(stored, architecture.tied_names(config))
    tensors: dict[str, Any] = canonical_tensors(architecture.table(config, spec), spec, stored, where, MISFIT)
    _tie_equal_tables(tensors)
    if suppressed_ids:
        tensors["decoder.projection.bias"][suppressed_ids] = -np.inf
    return as_checkpoint(folder, config, stored, spec=spec, tensors=tensors, input=text)


def _tie(stored: dict[str, StoredTensor], names: tuple[str, ...]) -> None:
    """Add to ``stored``, in place, those names of a tied tensor that the file lacks, and remove SHARED from it."""
    tied_tensor = next((stored[name] for name in names if name in stored), None)
    for name in names:
        if name != SHARED and tied_tensor is not None:
            stored.setdefault(name, tied_tensor)
    if SHARED in names:
        stored.pop(SHARED, None)


def _tie_equal_tables(tensors: dict[str, Tensor]) -> None:
    """Make embeddings and output layer one array, in place, where a file stores equal values twice."""
    first, *other_names = ("decoder.embedding.weight", "decoder.projection.weight", "encoder.embedding.weight")
    tables = [tensors[first]]
    for name in other_names:
        table_VD = tensors[name]
        tensors[name] = next((table for table in tables if table is table_VD or equal(table, table_VD)), table_VD)
        tables.append(tensors[name])
