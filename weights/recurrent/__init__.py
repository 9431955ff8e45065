"""Recurrent encoder-decoders: LSTM and GRU networks with attention, whose tensors a mapping file in TOML names.

A folder with ``fastattn.toml`` beside its weights (PyTorch's, safetensors or ONNX) says how it is read; e2k's and
thai2rom's files are known by their names, and OpenNMT-py's checkpoints by their options (``mapping``, ``opennmt``).
"""

from pathlib import Path

from fastattn.spec.checkpoint import Checkpoint
from fastattn.weights.folder import Directory

DESCRIPTION = (
    "recurrent encoder-decoder (weights with fastattn.toml, a mapping; an OpenNMT-py .pt; e2k's or thai2rom's files)"
)
MAPPING = "fastattn.toml"
# A pattern of files' names -> the mapping that reads a folder with one, or the file by itself.
SIGNS = {
    "model-c2k*.safetensors": "e2k",
    "model-p2k*.safetensors": "e2k-phonemes",
    "thai2rom_loader_onnx.json": "thai2rom",
}
# A folder with one of them is another exporter's, whatever else lies there.
OTHERS = ("config.json", "model.bin", "metadata.json")
OPTIONS = b"argparse"  # whose Namespace has OpenNMT-py's options: it stands so in the pickle


def recognize(path: Path) -> bool:
    if path.is_file():
        return path.suffix == ".pt" or _sign([path.name]) != ""
    if (path / MAPPING).exists():
        return True
    if not path.is_dir() or any((path / name).exists() for name in OTHERS):
        return False
    folder = Directory(path)
    names = folder.names()
    return _sign(names) != "" or _is_opennmt(folder, names)


def read(directory: Directory) -> Checkpoint:
    """Read a folder, or one file of weights; raises CheckpointError for what is malformed or not supported."""
    from fastattn.weights.containers.json_file import JsonObject
    from fastattn.weights.recurrent import mapping, opennmt

    path = directory.path
    folder = Directory(path.parent) if path.is_file() else directory
    names = [path.name] if path.is_file() else directory.names()
    if MAPPING in names:
        return mapping.read_mapped(mapping.read_mapping(folder, MAPPING), folder, names)
    if sign := _sign(names):
        values = JsonObject(mapping.shipped(sign), f"{path} as {sign}")
        return mapping.read_mapped(values, folder, names)
    return opennmt.read(folder, next(name for name in names if name.endswith(".pt")))


def _sign(names: list[str]) -> str:
    """The mapping that is known by one of these names; "": none is."""
    return next((mapping for sign, mapping in SIGNS.items() if any(Path(name).match(sign) for name in names)), "")


def _is_opennmt(folder: Directory, names: list[str]) -> bool:
    """Whether a lone .pt file has such options, beside its tensors or what is left of them."""
    found = [name for name in names if name.endswith(".pt")]
    return len(found) == 1 and folder.read(found[0]).obj.find(OPTIONS) >= 0  # type: ignore[attr-defined]
