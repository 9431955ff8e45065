"""Checkpoints as trainers save them, a .pt file with vocabularies in it or around it: fairseq's and OpenNMT-py's.

Both pickle the training's options with the tensors, as an argparse.Namespace or a dict; the parser imports nothing.
"""

from pathlib import Path

from fastattn.spec.checkpoint import Checkpoint
from fastattn.weights.folder import Directory

DESCRIPTION = "a trainer's .pt file: OpenNMT-py, or fairseq with dict.LANGUAGE.txt (the file or its folder)"
# A folder with one of these files is another exporter's.
OTHERS = ("config.json", "model.bin", "metadata.json")
# Text in the pickle: the class of the options, or an option's name where fairseq's are a plain dict.
OPTIONS = (b"argparse", b"encoder_embed_dim")
# The folder's own files come first, then those of fairseq's usual folders in it.
FOLDERS = ("", "checkpoints/", "data/", "data-bin/")
PREFERRED = ("model.pt", "checkpoint_best.pt", "checkpoint_last.pt")  # of several checkpoints the first of these


def recognize(path: Path) -> bool:
    if path.is_file():
        return path.suffix == ".pt"
    if not path.is_dir() or any((path / name).exists() for name in OTHERS):
        return False
    folder = Directory(path)
    name = find_checkpoint(_names(folder))
    return name != "" and any(folder.read(name).obj.find(words) >= 0 for words in OPTIONS)  # type: ignore[attr-defined]


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
    trained = pytorch.read_whole(folder, file)
    if "vocab" in trained.entries or "opt" in trained.entries:
        return opennmt.read(folder, names, trained)
    return fairseq.read(folder, names, trained)


def find_checkpoint(names: list[str]) -> str:
    """The .pt file among a folder's files: the only one, or the first of a usual name; else ""."""
    checkpoints = [name for name in names if name.endswith(".pt")]
    preferred = (name for usual in PREFERRED for name in checkpoints if name.rpartition("/")[2] == usual)
    return checkpoints[0] if len(checkpoints) == 1 else next(preferred, "")


def _names(folder: Directory) -> list[str]:
    return [
        place + name
        for place in FOLDERS
        if (folder.path / place).is_dir()
        for name in Directory(folder.path / place).names()
    ]
