"""Checkpoints that the trainers fairseq and OpenNMT-py save: a .pt file with vocabularies in it or next to it.

Both pickle the training's options with the tensors, as an argparse.Namespace or a dict; our parser imports nothing.
"""

from pathlib import Path

from fastattn.spec.checkpoint import Checkpoint
from fastattn.weights.folder import Directory
from fastattn.weights.recurrent import FOREIGN_FILES

DESCRIPTION = "a trainer's .pt file: OpenNMT-py, or fairseq with dict.LANGUAGE.txt (the file or its folder)"
# Bytes in a pickle of options: the module of their class, or an option's name where fairseq has a plain dict.
MARKERS = (b"argparse", b"encoder_embed_dim")
# Where fairseq's users have their files, in the order of search; "" is the folder itself.
FOLDERS = ("", "checkpoints/", "data/", "data-bin/")
PREFERRED_NAMES = ("model.pt", "checkpoint_best.pt", "checkpoint_last.pt")  # of several checkpoints, the best first


def recognize(path: Path) -> bool:
    if path.is_file():
        return path.suffix == ".pt"
    if not path.is_dir() or any((path / name).exists() for name in FOREIGN_FILES):
        return False
    folder = Directory(path)
    name = find_checkpoint(_file_names(folder))
    return name != "" and any(folder.read(name).obj.find(mark) >= 0 for mark in MARKERS)  # type: ignore[attr-defined]


def read(directory: Directory) -> Checkpoint:
    from fastattn.weights.containers import pytorch
    from fastattn.weights.trainers import fairseq, opennmt

    path = directory.path
    folder, file = (Directory(path.parent), path.name) if path.is_file() else (directory, "")
    names = _file_names(folder)
    if file and path.parent.name == "checkpoints" and not fairseq.find_dictionaries(names):
        folder, file = Directory(path.parent.parent), f"{path.parent.name}/{file}"
        names = _file_names(folder)
    file = file or find_checkpoint(names)
    trainer_file = pytorch.read_trainer_file(folder, file)
    if "vocab" in trainer_file.entries or "opt" in trainer_file.entries:
        return opennmt.read(folder, names, trainer_file)
    return fairseq.read(folder, names, trainer_file)


def find_checkpoint(names: list[str]) -> str:
    """The .pt file to read among a folder's files: the only one, or the first by PREFERRED_NAMES; else ""."""
    checkpoints = [name for name in names if name.endswith(".pt")]
    preferred_files = (name for file in PREFERRED_NAMES for name in checkpoints if name.rpartition("/")[2] == file)
    return checkpoints[0] if len(checkpoints) == 1 else next(preferred_files, "")


def _file_names(folder: Directory) -> list[str]:
    subfolders = [subfolder for subfolder in FOLDERS if (folder.path / subfolder).is_dir()]
    return [subfolder + name for subfolder in subfolders for name in Directory(folder.path / subfolder).names()]
