"""Decoder-only language models in llama.cpp's GGUF files: a model in one file, or in several named as its parts."""

import re
from pathlib import Path

from fastattn.errors import CheckpointError
from fastattn.spec.checkpoint import Checkpoint
from fastattn.weights.folder import Directory

DESCRIPTION = "GGUF language model (a .gguf file, or a folder with one)"
SUFFIX = ".gguf"
PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
OTHER_SUFFIXES = (".safetensors", ".bin")  # of weights: a folder with such a file is another exporter's


def recognize(path: Path) -> bool:
    if path.is_file():
        return path.suffix == SUFFIX
    names = [file.name for file in path.iterdir()] if path.is_dir() else []
    return any(name.endswith(SUFFIX) for name in names) and not any(name.endswith(OTHER_SUFFIXES) for name in names)


def read(directory: Directory) -> Checkpoint:
    from fastattn.weights.gguf.architecture import read_model

    path = directory.path
    folder = Directory(path.parent) if path.is_file() else directory
    files = [name for name in folder.names() if name.endswith(SUFFIX)]
    name = path.name if path.is_file() else files[0]
    match = PART.fullmatch(name)
    parts = [name]
    if match:
        count = int(match[3])
        parts = [file for file in files if (part := PART.fullmatch(file)) and part[1] == match[1]]
        if parts != [f"{match[1]}-{i + 1:05}-of-{match[3]}{SUFFIX}" for i in range(count)]:
            raise CheckpointError(f"{path}: there should be {count} parts of {match[1]}, there are {len(parts)}")
    if not path.is_file() and len(files) > len(parts):
        raise CheckpointError(f"{path}: several models, {', '.join(map(ascii, files[:4]))}; give one of the files")
    return read_model(folder, parts)
