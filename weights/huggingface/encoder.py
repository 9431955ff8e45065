"""Encoders in Hugging Face directories: config.json, weights and a tokenizer -> a Checkpoint."""

import dataclasses

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.printable import counted
from fastattn.spec.architecture import ModelSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import EncoderText
from fastattn.weights.containers.json_file import JsonObject, read_object
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.encoders import find_architecture
from fastattn.weights.huggingface.encoders.architecture import Architecture
from fastattn.weights.huggingface.head import read_head, read_labels
from fastattn.weights.huggingface.token_vectors import PROJECTION, complete, is_original, read_original
from fastattn.weights.huggingface.tokenizer import read_text
from fastattn.weights.huggingface.weights import MISFIT, read_weights, stored_precision
from fastattn.weights.tensor_mapping import check_sources, make_tensors, map_tensors


def read_encoder(folder: Folder, prefix: str = "", max_length: int | None = None) -> Checkpoint:
    """Read the encoder whose files' names begin with ``prefix``; with mean pooling, without normalization.

    max_length  instead of the tokenizer's
    """
    config = read_object(folder, prefix + "config.json")
    spec, text = describe_encoder(folder, prefix, config, max_length)
    if is_original(config):
        text = complete(read_original(folder, prefix, text), config.where)
    return read_described(folder, prefix, config, spec, text)


def describe_encoder(
    folder: Folder, prefix: str, config: JsonObject, max_length: int | None = None
) -> tuple[StackSpec, EncoderText]:
    """(spec, text) of ``read_encoder``, without its weights, which may not be downloaded yet (``hub``)."""
    spec = find_architecture(config).spec(config)
    return spec, read_text(folder, prefix, config, spec, max_length)


def read_described(folder: Folder, prefix: str, config: JsonObject, spec: StackSpec, text: EncoderText) -> Checkpoint:
    """The encoder of ``describe_encoder``, perhaps with another text, with its weights, and its head if it has one."""
    architecture = find_architecture(config)
    stored, where = read_weights(folder, prefix)
    stored = _named_as_today(stored, architecture, config)
    if is_original(config) and text.multi_vector is not None:
        text = dataclasses.replace(text, dense=((_projection(stored, spec, where), None, "none"),))
    own = {name: tensor for name, tensor in stored.items() if architecture.needs(name, config)}
    # More layers than tensors are refused before their names fill memory; some share theirs.
    if spec.layers > len(own) and architecture.numbers is None:
        raise CheckpointError(
            f"{config.where}: there should be {counted(spec.layers, 'layer')}, but {where} has "
            f"{counted(len(own), 'tensor')}"
        )
    model = ModelSpec("encoder", spec)
    numbers = None if architecture.numbers is None else {"encoder": architecture.numbers(config)}
    parts = map_tensors(architecture.table(config, spec), model, numbers)
    check_sources(parts, own, where, MISFIT)
    headless = ""
    try:
        head, head_parts = read_head(config, architecture.heads, spec, stored, where)
        text = read_labels(config, architecture.heads, text)
    except CheckpointError as error:  # the encoder may be all that is wanted
        headless = str(error)
    else:
        model, parts = dataclasses.replace(model, head=head), parts | head_parts
    return Checkpoint(
        spec=model,
        tensors=make_tensors(parts, stored),
        input=text,
        precision=stored_precision(stored),
        format="huggingface",
        details={"model type": config.string("model_type")},
        files=tuple(folder.used),
        headless=headless,
    )


def _projection(stored: dict[str, StoredTensor], spec: StackSpec, where: str) -> np.ndarray:
    """The matrix after a ColBERT's encoder, taken out of ``stored``."""
    tensor = stored.pop(PROJECTION, None)
    if tensor is None or len(tensor.shape) != 2 or tensor.shape[1] != spec.width:
        found = "missing" if tensor is None else list(tensor.shape)
        raise CheckpointError(f"{where}: {PROJECTION} should be [outputs, {spec.width}], is {found}")
    return tensor.float32()


def _named_as_today(
    stored: dict[str, StoredTensor], architecture: Architecture, config: JsonObject
) -> dict[str, StoredTensor]:
    """The tensors by current names."""
    named: dict[str, StoredTensor] = {}
    for theirs, tensor in stored.items():
        name = architecture.current_name(theirs)
        if name in named and architecture.needs(name, config):
            raise CheckpointError(f"{tensor.where}: {name} is given twice, with and without a prefix or an old name")
        named[name] = tensor
    for name, twin in architecture.twins.items():
        if twin in named:
            named.setdefault(name, named.pop(twin))
    return named
