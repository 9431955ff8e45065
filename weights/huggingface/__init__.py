"""Hugging Face directories: config.json says which model it is, and so who reads it."""

from collections.abc import Callable
from pathlib import Path

from fastattn.errors import CheckpointError
from fastattn.spec.checkpoint import Checkpoint
from fastattn.weights.containers.json_file import read_object, shorten
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface import images
from fastattn.weights.huggingface.decoder import is_decoder, read_decoder
from fastattn.weights.huggingface.decoders import DECODERS
from fastattn.weights.huggingface.encoder import read_encoder
from fastattn.weights.huggingface.encoders import ENCODERS
from fastattn.weights.huggingface.families import known_type
from fastattn.weights.huggingface.residual import is_residual, read_residual
from fastattn.weights.huggingface.translator import is_translator, read_translator
from fastattn.weights.huggingface.translators import REFUSED, TRANSLATORS

DESCRIPTION = (
    "Hugging Face directory of an encoder, a language model or an encoder-decoder (config.json, weights, a tokenizer)"
)
MODEL_TYPES: dict[str, Callable[[Folder], Checkpoint]] = {
    **dict.fromkeys(ENCODERS, read_encoder),
    **dict.fromkeys(sorted(DECODERS.keys() - ENCODERS.keys()), read_decoder),
    **dict.fromkeys(sorted(TRANSLATORS.keys() - ENCODERS.keys()), read_translator),
    "clip": images.read_clip,
    "vit": images.read_vit,
}


def recognize(path: Path) -> bool:
    return (path / "config.json").exists()


def read(folder: Folder) -> Checkpoint:
    """Read a directory; raises CheckpointError for a model type that is not known, and for what its reader refuses."""
    config = read_object(folder, "config.json")
    if is_residual(config):
        return read_residual(folder)
    kind = config.string("model_type")
    if kind in REFUSED:
        raise CheckpointError(f"{config.where}: model type {shorten(kind)} is not supported: {REFUSED[kind]}")
    known_type(config, MODEL_TYPES)
    if is_translator(config) and not (folder.part == "encoder" and kind in ENCODERS):
        return read_translator(folder)
    return read_decoder(folder) if is_decoder(config) else MODEL_TYPES[kind](folder)
