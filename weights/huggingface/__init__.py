"""Hugging Face directories: the model_type in config.json says which reader reads the model."""

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
from fastattn.weights.huggingface.translators import TRANSLATORS, UNSUPPORTED, is_translator, read_translator

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
    if folder.contains(ADAPTER):  # an adapter changes the weights of another model
        raise CheckpointError(
            f"{folder.where(ADAPTER)}: this is an adapter (PEFT), no model: merge it into its model "
            "(merge_and_unload) and save that"
        )
    config = read_object(folder, "config.json")
    if images.is_timm(config):
        return images.read_residual(folder)
    model_type = config.string("model_type")
    if reason := UNSUPPORTED.get(model_type):
        raise CheckpointError(f"{config.where}: model type {shorten(model_type)} is not supported: {reason}")
    known_type(config, ENCODER_TYPES if folder.part == "encoder" and model_type not in MODEL_TYPES else MODEL_TYPES)
    if is_translator(config) and not (folder.part == "encoder" and model_type in ENCODERS):
        return read_translator(folder)
    return read_decoder(folder) if is_decoder(config) else MODEL_TYPES[model_type](folder)
