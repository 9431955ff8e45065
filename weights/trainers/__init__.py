"""Checkpoints that the trainers fairseq and OpenNMT-py save: a .pt file with vocabularies in it or next to it.

Both pickle the training's options with the tensors, as an argparse.Namespace or a dict; our parser imports nothing.
"""

from pathlib import Path

from fastattn.spec.checkpoint import Checkpoint
from fastattn.weights.folder import Directory

DESCRIPTION = "a trainer's .pt file: OpenNMT-py, or fairseq with dict.LANGUAGE.txt (the file or its folder)"
# A folder with one of these files is another exporter's.
FOREIGN_FILES = ("config.json", "model.bin", "metadata.json")
# Bytes in a pickle of options: the module of their class, or an option's name where fairseq has a plain dict.
MARKERS = (b"argparse", b"encoder_embed_dim")
# Subfolders, in order, that fairseq's users have; "" is the folder itself.
FOLDERS = ("", "checkpoints/", "data/", "data-bin/")
PREFERRED = ("model.pt", "checkpoint_best.pt", "checkpoint_last.pt")  # in this order, of several checkpoints


def recognize(path: Path) -> bool:
    if path.is_file():
        return path.suffix == ".pt"
    if not path.is_dir() or any((path / name).exists() for name in FOREIGN_FILES):
        return False
    folder = Directory(path)
    name = find_checkpoint(_names(folder))
    return name != "" and any(folder.read(name).obj.find(mark) >= 0 for mark in MARKERS)  # type: ignore[attr-defined]


def read(directory: Directory) -> Checkpoint:
    from fastattn.weights.containers import pytorch
    from fastattn.weights.trainers import fairseq, opennmt

    path = directory.path
    folder, file = (Directory(path.parent), path.name) if path.is_file() else (directory, "")
    names = _names(folder)
    if file and path.parent.name == "checkpoints" and not fairseq.dictionaries(names):
        folder, file = Directory(path.parent.parent), f"{path.parent.name}/{file}"
        names = _names(folder)
    file = file or find_checkpoint(names)
    trainer_file = pytorch.read_trainer_file(folder, file)
    if "vocab" in trainer_file.entries or "opt" in trainer_file.entries:
        return opennmt.read(folder, names, trainer_file)
    return fairseq.read(folder, names, trainer_file)


def find_checkpoint(names: list[str]) -> str:
    """The .pt file to read among a folder's files: the only one, or the first with a PREFERRED name; else ""."""
    checkpoints = [name for name in names if name.endswith(".pt")]
    preferred = (name for file in PREFERRED for name in checkpoints if name.rpartition("/")[2] == file)
    return checkpoints[0] if len(checkpoints) == 1 else next(preferred, "")


def _names(folder: Directory) -> list[str]:
    return [
        subfolder + name
        for subfolder in FOLDERS
        if (folder.path / subfolder).is_dir()
        for name in Directory(folder.path / subfolder).names()
    ]
