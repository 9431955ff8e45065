"""How a model reaches the hosts that compute with it: by its path, by its name, or through Ray's object store.

Every host checks the digest of the model's files: another model under the same name is an error, not another
translation.
"""

import hashlib
import os
import socket
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.distributed.extra import import_ray
from fastattn.errors import CheckpointError, check_known
from fastattn.system.atomic_files import begin_folder, discard, make_folder
from fastattn.system.cache_folder import cache_root
from fastattn.system.records import dataclass
from fastattn.weights import download

REACHES = ("path", "name", "store")
MOST_FILES = 250  # a folder with more files is no checkpoint's folder
_SOURCE_NAME = "SOURCE.txt"  # this file says where a checkpoint is from, and does not belong to the checkpoint


@dataclass(frozen=True)
class ModelSource:
    """name             the user's name for the model
    path             of the model's folder or file, on the host where the job began
    digest           of the model's files: SHA-256, hex
    reach            one of REACHES
    is_folder        whether the path is a folder
    store_reference  for "store": Ray's reference to {name of a file: uint8 array}
    """

    name: str
    path: str
    digest: str
    reach: str
    is_folder: bool
    store_reference: Any = None


def files_of(path: Path) -> dict[str, Path]:
    """Name with forward slashes -> file, for all files of a checkpoint, which is a folder or one file."""
    if not path.is_dir():
        return {path.name: path}
    files = {}
    for folder, folders, names in os.walk(path, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            file = Path(folder) / name
            if name != _SOURCE_NAME and not name.startswith("."):
                files[file.relative_to(path).as_posix()] = file
        if len(files) > MOST_FILES:
            raise CheckpointError(f"{path}: expected a checkpoint's folder, found more than {MOST_FILES} files in it")
    return dict(sorted(files.items()))


def digest_of(path: Path) -> str:
    """SHA-256, hex, of a checkpoint's files and their names. Raises CheckpointError if a file cannot be read."""
    digest = hashlib.sha256()
    for name, file in files_of(path).items():
        try:
            with file.open("rb") as stream:
                file_digest = hashlib.sha256()
                while content := stream.read(1 << 20):
                    file_digest.update(content)
        except OSError as error:
            raise CheckpointError(f"{file}: cannot be read: {error.strerror or error}") from None
        # If the checkpoint is one file, its name does not count.
        digest.update(f"{name if path.is_dir() else ''}\n{file_digest.hexdigest()}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def mapped_files(path: Path) -> dict[str, np.ndarray]:
    """Name -> the file's bytes, uint8, memory-mapped, for each file of a checkpoint."""
    bytes_of_files = {}
    for name, file in files_of(path).items():
        is_empty = not file.stat().st_size  # an empty file cannot be mapped
        bytes_of_files[name] = np.zeros(0, np.uint8) if is_empty else np.memmap(file, np.uint8, "r").view(np.ndarray)
    return bytes_of_files


def check_reach(reach: str | None) -> None:
    """Raise InputError unless ``reach`` is one of REACHES or None, the default."""
    if reach is not None:
        check_known("way of a model to the hosts", reach, REACHES)


def source_of(name: str, path: Path, digest: str, reach: str) -> ModelSource:
    """The source of a model; for "store", the model's files are put into Ray's object store."""
    store_reference = import_ray().put(mapped_files(path)) if reach == "store" else None
    return ModelSource(name, str(path), digest, reach, path.is_dir(), store_reference)


def local_path(source: ModelSource) -> Path:
    """The path of the model on this host. Raises CheckpointError if the model is missing, or another model is there."""
    if source.reach == "store":
        return _unpacked_path(source)
    host = socket.gethostname()
    try:
        path = download.resolve(source.path if source.reach == "path" else source.name)
    except CheckpointError as error:
        raise CheckpointError(f"on host {host}: {error}") from None
    if (digest := digest_of(path)) != source.digest:
        digests = f"SHA-256 {digest[:12]}, expected {source.digest[:12]}"
        raise CheckpointError(f"on host {host}: {path} is another model ({digests})")
    return path


def _unpacked_path(source: ModelSource) -> Path:
    """The folder or file of a shipped model in the cache, where this process unpacks the model if it is missing."""
    folder = cache_root() / "checkpoints" / f"shipped-{source.digest[:8]}"
    if not folder.is_dir():
        _unpack(source, folder)
    path = folder
    if not source.is_folder:  # a file's name may differ from host to host, so only its contents count
        path = next((file for file in sorted(folder.iterdir()) if file.name != _SOURCE_NAME), folder)
    if digest_of(path) != source.digest:
        raise CheckpointError(f"{path}: not the model that was shipped; delete the folder, so that it is shipped anew")
    return path


def _unpack(source: ModelSource, folder: Path) -> None:
    make_folder(folder.parent)
    lock, partial_folder = begin_folder(str(folder.parent / f".pull-shipped~{source.digest[:8]}."))
    try:
        for name, content in import_ray().get(source.store_reference).items():
            file = Path(partial_folder) / name
            if not file.resolve().is_relative_to(Path(partial_folder).resolve()):
                raise CheckpointError(f"{name!r} is not a path inside the checkpoint")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(memoryview(content))
        (Path(partial_folder) / _SOURCE_NAME).write_text(f"{source.name}, shipped to this host\n", encoding="utf-8")
        try:
            os.rename(partial_folder, folder)
        except OSError:
            if not folder.is_dir():  # another process may have been first
                raise
    finally:
        discard(partial_folder)
        if lock >= 0:
            os.close(lock)
