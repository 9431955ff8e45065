"""Recurrent encoder-decoders: LSTM and GRU networks with attention, whose tensors a mapping file in TOML names.

``fastattn.toml`` in a folder of weights (PyTorch's, safetensors or ONNX) says how they are read; e2k's and thai2rom's
files are known by their names (``mapping``).
"""

from pathlib import Path

from fastattn.spec.checkpoint import Checkpoint
from fastattn.weights.folder import Directory

DESCRIPTION = "recurrent encoder-decoder (weights with fastattn.toml, a mapping; e2k's or thai2rom's files)"
MAPPING = "fastattn.toml"
# A pattern of files' names -> the mapping that reads a folder with one, or the file by itself.
SIGNS = {
    "model-c2k*.safetensors": "e2k",
    "model-p2k*.safetensors": "e2k-phonemes",
    "thai2rom_loader_onnx.json": "thai2rom",
}
# A folder with one of these files is another exporter's.
OTHERS = ("config.json", "model.bin", "metadata.json")


def recognize(path: Path) -> bool:
    if path.is_file():
        return _sign([path.name]) != ""
    if (path / MAPPING).exists():
        return True
    if not path.is_dir() or any((path / name).exists() for name in OTHERS):
        return False
    return _sign(Directory(path).names()) != ""


def read(directory: Directory) -> Checkpoint:
    from fastattn.weights.containers.json_file import JsonObject
    from fastattn.weights.recurrent import mapping

    path = directory.path
    folder = Directory(path.parent) if path.is_file() else directory
    names = [path.name] if path.is_file() else directory.names()
    if MAPPING in names:
        where = folder.where(MAPPING)
        values = JsonObject(mapping.parse(bytes(folder.read(MAPPING)), where), where)
        return mapping.read_mapped(values, folder, names)
    sign = _sign(names)
    return mapping.read_mapped(JsonObject(mapping.shipped(sign), f"{path} as {sign}"), folder, names)


def _sign(names: list[str]) -> str:
    """The mapping that one of these names belongs to, or ""."""
    return next((mapping for sign, mapping in SIGNS.items() if any(Path(name).match(sign) for name in names)), "")
