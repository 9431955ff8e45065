"""Hugging Face directories: config.json names the kind of model, and so its reader."""

from collections.abc import Callable
from pathlib import Path

from fastattn.errors import CheckpointError
from fastattn.spec.checkpoint import Checkpoint
from fastattn.weights.containers.json_file import read_object, shorten
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface import images
from fastattn.weights.huggingface.architectures.architecture import known_type
from fastattn.weights.huggingface.decoders import DECODERS, is_decoder, read_decoder
from fastattn.weights.huggingface.encoders import ENCODERS, read_encoder
from fastattn.weights.huggingface.translators import REFUSED, TRANSLATORS, is_translator, read_translator

DESCRIPTION = (
    "Hugging Face directory of an encoder, a language model or an encoder-decoder (config.json, weights, a tokenizer)"
)
ENCODER_TYPES: dict[str, Callable[[Folder], Checkpoint]] = {
    **dict.fromkeys(ENCODERS, read_encoder),
    "clip": images.read_clip,
    "vit": images.read_vit,
}
MODEL_TYPES = {**dict.fromkeys(DECODERS, read_decoder), **dict.fromkeys(TRANSLATORS, read_translator), **ENCODER_TYPES}
ADAPTER = "adapter_config.json"


def recognize(path: Path) -> bool:
    return (path / "config.json").exists() or (path / ADAPTER).exists()


def read(folder: Folder) -> Checkpoint:
    if folder.contains(ADAPTER):  # transformers would read the model that it names, and change its weights
        raise CheckpointError(
            f"{folder.where(ADAPTER)}: this is an adapter (PEFT), no model: merge it into its model "
            "(merge_and_unload) and save that"
        )
    config = read_object(folder, "config.json")
    if images.is_residual(config):
        return images.read_residual(folder)
    kind = config.string("model_type")
    if kind in REFUSED:
        raise CheckpointError(f"{config.where}: model type {shorten(kind)} is not supported: {REFUSED[kind]}")
    known_type(config, ENCODER_TYPES if folder.part == "encoder" and kind not in MODEL_TYPES else MODEL_TYPES)
    if is_translator(config) and not (folder.part == "encoder" and kind in ENCODERS):
        return read_translator(folder)
    return read_decoder(folder) if is_decoder(config) else MODEL_TYPES[kind](folder)
