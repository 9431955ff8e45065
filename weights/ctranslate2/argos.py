"""Argos Translate packages: a CTranslate2 model in an ``.argosmodel`` archive, or in the folder unpacked from it."""

import dataclasses
import zipfile
from pathlib import Path

from fastattn.errors import CheckpointError
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import TranslationText
from fastattn.weights import ctranslate2
from fastattn.weights.containers.json_file import read_object, shorten
from fastattn.weights.containers.zip_archive import ZipFolder
from fastattn.weights.folder import Directory, Folder

DESCRIPTION = "Argos package (.argosmodel, or its folder with metadata.json and model/)"
METADATA = "metadata.json"


def recognize(path: Path) -> bool:
    if path.is_file():
        return path.suffix == ".argosmodel" or zipfile.is_zipfile(path)
    return (path / METADATA).exists() and (path / "model").is_dir()


def read(directory: Directory) -> Checkpoint:
    """Read a package; raises CheckpointError if it is malformed, unsafe or not supported."""
    folder: Folder = ZipFolder(directory.path, METADATA) if directory.path.is_file() else directory
    metadata = read_object(folder, METADATA)
    kind = metadata.string("type", "translate")
    if kind != "translate":
        raise CheckpointError(f"{metadata.where}: type should be 'translate', is {shorten(kind)}")
    if metadata.string("target_prefix", ""):
        raise CheckpointError(f"{metadata.where}: target_prefix {metadata.string('target_prefix')!r} is not supported")
    if not folder.contains("sentencepiece.model"):
        if folder.contains("bpe.model"):
            raise CheckpointError(f"{folder.where('bpe.model')}: packages with a subword-nmt model are not supported")
        raise CheckpointError(f"{folder.where('sentencepiece.model')}: no such file")
    checkpoint = ctranslate2.read(folder, "model/")
    text = checkpoint.text
    if not isinstance(text, TranslationText):
        raise CheckpointError(f"{folder.where('model/model.bin')}: should be a translation model, is an encoder alone")
    pieces = bytes(folder.read("sentencepiece.model"))
    checkpoint.text = dataclasses.replace(
        text,
        source_model=pieces,
        target_model=pieces,
        source_language=metadata.string("from_code", ""),
        target_language=metadata.string("to_code", ""),
    )
    checkpoint.format = "argos"
    for name in ("from_name", "to_name", "package_version", "argos_version"):
        if metadata.has(name):
            checkpoint.details[name.replace("_", " ")] = metadata.string(name)
    return checkpoint
