"""``read`` returns the Checkpoint that files of any known format hold. Installed as ``fastattn.weights``."""

if __name__ != "fastattn.weights":
    raise ImportError("import this package as fastattn.weights (install fastattn first: pip install -e .)")

import contextlib
import math
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.quantized import in_memory
from fastattn.system.cache_folder import cache_root, mark_used
from fastattn.weights.folder import Directory, FilePending, check_memory, file_type

# Each exporter has a DESCRIPTION, recognize(path) and read(folder), which raises CheckpointError where a checkpoint is
# malformed, incomplete or not supported. They are tried in this order: a sentence-transformers folder is a Hugging Face
# directory with more files, fastattn's own format has files of the same names, PyTorch's files and Argos's are both zip
# archives. An exporter is imported when it is tried: all imports together take 15 ms.
EXPORTERS: dict[str, Callable[[], Any]] = {
    "fastattn": lambda: import_module("fastattn.weights.native"),
    "sentence-transformers": lambda: import_module("fastattn.weights.huggingface.sentence_transformers"),
    "recurrent": lambda: import_module("fastattn.weights.recurrent"),
    "trainers": lambda: import_module("fastattn.weights.trainers"),
    "argos": lambda: import_module("fastattn.weights.ctranslate2.argos"),
    "marian": lambda: import_module("fastattn.weights.marian"),
    "ctranslate2": lambda: import_module("fastattn.weights.ctranslate2"),
    "gguf": lambda: import_module("fastattn.weights.gguf"),
    "huggingface": lambda: import_module("fastattn.weights.huggingface"),
}


def read(path: str | Path, part: str = "", later: bool = False) -> Checkpoint:
    """Read a checkpoint in any format: a folder, or an .argosmodel, .gguf or .pt file.

    part   which part of the model to read, as ``Folder.part``
    later  whether weight matrices may be UnreadTensors, which are read when they are needed
    Raises CheckpointError for a missing path, an unknown format, a malformed file, an unsupported architecture.
    """
    from fastattn.spec.tensors import check_tensors  # not at the top: a start from the cache does not need it

    path = Path(os.path.expanduser(path))  # Path.expanduser raises where there is no such user, or no home
    if path.parent == cache_root() / "checkpoints":
        mark_used(path)
    try:
        exporter = _exporter_of(path, EXPORTERS)
        if exporter is not None:
            checkpoint = exporter.read(Directory(path, part=part))
            check_tensors(checkpoint.spec, checkpoint.tensors, str(path))
            _check_sharing(checkpoint, path)
            if later:
                return checkpoint
            tensors = checkpoint.tensors
            loaded = {id(tensor): in_memory(tensor) for tensor in tensors.values()}  # tied tensors stay tied
            return replace(checkpoint, tensors={name: loaded[id(tensor)] for name, tensor in tensors.items()})
        raise CheckpointError(_unrecognized_message(path))
    except OSError as error:
        check_memory(error, path)
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from None


def check(path: Path, pending_files: Collection[str]) -> None:
    """Raise the error that ``read`` would raise before it opens one of ``pending_files``, not downloaded yet.

    Only fastattn's own and Hugging Face's folders are checked: other formats say little outside their weights.
    """
    exporter = _exporter_of(path, ("fastattn", "sentence-transformers", "huggingface"))
    if exporter is not None:
        with contextlib.suppress(FilePending):
            exporter.read(Directory(path, pending_files))


def _exporter_of(path: Path, names: Iterable[str]) -> Any:
    """The first of the exporters ``names`` that recognizes the path, or None."""
    return next((module for name in names if (module := EXPORTERS[name]()).recognize(path)), None)


def _check_sharing(checkpoint: Checkpoint, path: Path) -> None:
    """Raise CheckpointError where tensors share so many bytes of the files that packing each would fill the disk."""
    from fastattn.weights.containers.zip_archive import MOST_SHARING, SMALLEST_SUSPECT

    size = sum(file.stat().st_size for file in checkpoint.files)
    total = sum(math.prod(tensor.shape) for tensor in checkpoint.tensors.values())
    if total > max(SMALLEST_SUSPECT, MOST_SHARING * size):
        raise CheckpointError(f"{path}: its tensors have {total} numbers, more than {MOST_SHARING} for each byte there")


def _unrecognized_message(path: Path) -> str:
    """The error message for a path that no exporter recognizes."""
    formats = "; ".join(load().DESCRIPTION for load in EXPORTERS.values())
    if not path.exists():
        return f"{path}: no such file or folder; expected one of: {formats}"
    kind = file_type(path)
    if kind not in ("file", "folder"):
        return f"{path}: a {kind}, not a checkpoint; expected one of: {formats}"
    if kind == "folder":
        names = sorted(entry.name + "/" * entry.is_dir() for entry in path.iterdir())
        count = f" and {len(names) - 8} more" if len(names) > 8 else ""
        contents = f"found {', '.join(map(ascii, names[:8]))}{count}" if names else "the folder is empty"
        return f"{path}: not a checkpoint of a known format; expected one of: {formats}; {contents}"
    hint = "; give its folder, not the file" if path.name in ("model.bin", "model.safetensors", "config.json") else ""
    return f"{path}: not a checkpoint of a known format; expected one of: {formats}{hint}"
