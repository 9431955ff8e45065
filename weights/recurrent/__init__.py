"""Recurrent encoder-decoders: LSTM and GRU networks with attention, whose tensors a mapping file in TOML names.

``fastattn.toml`` in a folder of weights (PyTorch's, safetensors or ONNX) says how they are read, see ``mapping``. Files
of e2k and thai2rom are recognized by their names, and have mappings in ``mappings/``.
"""

from pathlib import Path

from fastattn.spec.checkpoint import Checkpoint
from fastattn.weights.folder import Directory

DESCRIPTION = "recurrent encoder-decoder (weights with fastattn.toml, a mapping; e2k's or thai2rom's files)"
MAPPING = "fastattn.toml"
# A pattern of a file's name -> the mapping in ``mappings/`` for the file or its folder.
MAPPINGS = {
    "model-c2k*.safetensors": "e2k",
    "model-p2k*.safetensors": "e2k-phonemes",
    "thai2rom_loader_onnx.json": "thai2rom",
}
# A folder with one of these files is another exporter's.
FOREIGN_FILES = ("config.json", "model.bin", "metadata.json")


def recognize(path: Path) -> bool:
    if path.is_file():
        return _mapping_name([path.name]) != ""
    if (path / MAPPING).exists():
        return True
    if not path.is_dir() or any((path / name).exists() for name in FOREIGN_FILES):
        return False
    return _mapping_name(Directory(path).names()) != ""


def read(directory: Directory) -> Checkpoint:
    from fastattn.weights.containers.json_file import JsonObject
    from fastattn.weights.recurrent import mapping

    path = directory.path
    folder = Directory(path.parent) if path.is_file() else directory
    names = [path.name] if path.is_file() else directory.names()
    if MAPPING in names:
        where = folder.where(MAPPING)
        values = JsonObject(mapping.parse(bytes(folder.read(MAPPING)), where), where)
        return mapping.read_by_mapping(values, folder, names)
    name = _mapping_name(names)
    return mapping.read_by_mapping(JsonObject(mapping.shipped_mapping(name), f"{path} as {name}"), folder, names)


def _mapping_name(names: list[str]) -> str:
    """The name of the mapping for a folder with files of these names, or ""."""
    return next((mapping for pattern, mapping in MAPPINGS.items() if any(Path(n).match(pattern) for n in names)), "")
