"""Argos Translate packages: a CTranslate2 model in an ``.argosmodel`` archive, or in the folder unpacked from one."""

import dataclasses
import zipfile
from pathlib import Path
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import TranslationText
from fastattn.weights import ctranslate2
from fastattn.weights.containers.json_file import read_object, shorten
from fastattn.weights.containers.zip_archive import ZipFolder
from fastattn.weights.folder import Directory, Folder

DESCRIPTION = "Argos package (.argosmodel, or its folder with metadata.json and model/)"
METADATA = "metadata.json"
CODES = ("sentencepiece.model", "bpe.model")  # bpe.model has subword-nmt's codes


def recognize(path: Path) -> bool:
    if path.is_file():
        return path.suffix == ".argosmodel" or zipfile.is_zipfile(path)
    return (path / METADATA).exists() and (path / "model").is_dir()


def read(directory: Directory) -> Checkpoint:
    folder: Folder = ZipFolder(directory.path, METADATA) if directory.path.is_file() else directory
    metadata = read_object(folder, METADATA)
    package_type = metadata.string("type", "translate")
    if package_type != "translate":
        raise CheckpointError(f"{metadata.where}: type should be 'translate', is {shorten(package_type)}")
    codes_name = next((name for name in CODES if folder.contains(name)), "")
    if not codes_name:
        raise CheckpointError(f"{folder.where(CODES[0])}: no such file, nor {CODES[1]}")
    checkpoint = ctranslate2.read(folder, "model/")
    text = checkpoint.text
    if not isinstance(text, TranslationText):
        raise CheckpointError(f"{folder.where('model/model.bin')}: should be a translation model, is an encoder alone")
    text_fields: dict[str, Any] = {"codes": bytes(folder.read(codes_name)), "words": "argos"}
    if codes_name == CODES[0]:
        text_fields = dict.fromkeys(("source_model", "target_model"), text_fields["codes"])
    prefix = metadata.string("target_prefix", "")
    if prefix and prefix not in text.target_vocabulary:
        raise metadata.error("target_prefix", "a token of the target vocabulary", prefix)
    checkpoint.text = dataclasses.replace(
        text,
        source_language=metadata.string("from_code", ""),
        target_language=metadata.string("to_code", ""),
        languages=None,  # a package is for one pair of languages, perhaps chosen by target_prefix
        single_sentences=False,
        decoding=dataclasses.replace(text.decoding, forced_tokens=(prefix,) if prefix else ()),
        **text_fields,
    )
    checkpoint.format = "argos"
    for name in ("from_name", "to_name", "package_version", "argos_version"):
        if metadata.has(name):
            checkpoint.details[name.replace("_", " ")] = metadata.string(name)
    return checkpoint
