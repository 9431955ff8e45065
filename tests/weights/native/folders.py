"""Folders of models as fastattn writes them, what is done to them, and how they are refused."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.spec.checkpoint import Checkpoint, Shortlist
from fastattn.weights import read
from fastattn.weights.containers.safetensors import NewTensor, parse, write_tensors
from fastattn.weights.folder import map_file
from fastattn.weights.native import convert
from tests.weights.ctranslate2 import writer
from tests.weights.sound_files import sentence_transformer_files


def translation_model(path: Path, precision: str = "float32", tied: bool = False, **shape: Any) -> Path:
    """A CTranslate2 folder; ``tied``: the projection is the target's embedding."""
    variables = writer.random_transformer(np.random.default_rng(5), **shape)
    if precision != "float32":
        variables = writer.quantize(variables, precision)
    aliases = {}
    if tied:
        for name in [name for name in variables if name.startswith("decoder/projection/weight")]:
            del variables[name]
            aliases[name] = name.replace("projection", "embeddings")
    writer.write_model(path, variables, aliases=aliases)
    writer.write_vocabularies(path, writer.vocabulary(23), writer.vocabulary(19))
    writer.write_config(path, decoder_start_token=None, add_source_eos=True)
    for name, content in (("source.spm", b"pieces"), ("target.spm", b"other pieces")):
        (path / name).write_bytes(content)
    return path


def encoder_model(path: Path) -> Path:
    """A sentence-transformers folder with a dense layer, prompts and all."""
    for name, content in sentence_transformer_files().items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def converted(checkpoint: Checkpoint, path: Path, precision: str) -> Path:
    path.mkdir()
    convert.write(path, checkpoint, precision)
    return path


def shortlisted(path: Path, copied: bool = False) -> Checkpoint:
    """A translation model whose source words add the target words 5 and 6, 7, nothing ..."""
    arrays = (np.array(ids, np.int32) for ids in ([0, 3], [0, 2, 3, *[3] * 21], [5, 6, 7]))
    return dataclasses.replace(read(translation_model(path)), shortlist=Shortlist(*arrays, copied=copied))


def edit(folder: Path, change: Any) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    change(config)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def set_field(folder: Path, place: Sequence[str], value: object) -> None:
    """One field of config.json, at the end of these names."""

    def change(config: Any) -> None:
        for name in place[:-1]:
            config = config[name]
        config[place[-1]] = value

    edit(folder, change)


def rewrite(folder: Path, changes: Mapping[str, NewTensor | None]) -> None:
    """Change the tensors of a folder's file; None: it goes."""
    kinds = {"F32": "<f4", "BF16": "<u2", "I8": "i1", "I32": "<i4", "U8": "u1", "F16": "<f2"}
    tensors: dict[str, Any] = {}
    for name, tensor in parse(map_file(folder / "model.safetensors"), "").items():
        values = np.frombuffer(bytes(tensor.data), kinds[tensor.dtype]).reshape(tensor.shape)
        tensors[name] = stored(values, tensor.dtype)
    with (folder / "changed").open("wb") as stream:
        write_tensors(stream, {name: tensor for name, tensor in (tensors | changes).items() if tensor is not None})
    (folder / "changed").replace(folder / "model.safetensors")


def stored(values: np.ndarray, kind: str = "") -> NewTensor:
    return NewTensor(kind or {"float32": "F32", "int32": "I32"}[values.dtype.name], values.shape, lambda: values)


def filled(kind: str, *shape: int) -> NewTensor:
    return stored(np.ones(shape, {"F32": "f4", "I8": "i1", "F16": "f2"}[kind]), kind)
