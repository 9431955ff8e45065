"""Argos Translate packages: an ``.argosmodel`` archive, or the folder it unpacks to, around a CTranslate2 model."""

import dataclasses
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from fastattn.checkpoint import Checkpoint
from fastattn.errors import CheckpointError
from fastattn.text_spec import TranslationText
from fastattn.weights import ctranslate2
from fastattn.weights.containers.json_file import read_object, shorten
from fastattn.weights.containers.unpacking import check_members
from fastattn.weights.folder import Directory, Folder

DESCRIPTION = "Argos package (.argosmodel, or its folder with metadata.json and model/)"
MOST_MEMBERS = 10_000


def recognise(path: Path) -> bool:
    if path.is_file():
        return path.suffix == ".argosmodel" or zipfile.is_zipfile(path)
    return (path / "metadata.json").exists() and (path / "model").is_dir()


def read(path: Path) -> Checkpoint:
    """Read a package; raises CheckpointError for what is malformed, unsafe or not supported."""
    if path.is_file():
        return _read_package(Archive(path))
    return _read_package(Directory(path))


def _read_package(folder: Folder) -> Checkpoint:
    metadata = read_object(folder, "metadata.json")
    kind = metadata.string("type", "translate")
    if kind != "translate":
        raise CheckpointError(f"{metadata.where}: type should be 'translate', is {shorten(kind)}")
    if metadata.string("target_prefix", ""):
        raise CheckpointError(f"{metadata.where}: target_prefix {metadata.string('target_prefix')!r} is not supported")
    if not folder.contains("sentencepiece.model"):
        if folder.contains("bpe.model"):
            raise CheckpointError(f"{folder.where('bpe.model')}: packages with a subword-nmt model are not supported")
        raise CheckpointError(f"{folder.where('sentencepiece.model')}: no such file")
    checkpoint = ctranslate2.read_folder(folder, "model/")
    text = checkpoint.text
    if not isinstance(text, TranslationText):
        raise CheckpointError(f"{folder.where('model/model.bin')}: should be a translation model, is an encoder alone")
    pieces = bytes(folder.read("sentencepiece.model"))
    checkpoint.text = dataclasses.replace(
        text,
        source_model=pieces,
        target_model=pieces,
        source_language=metadata.string("from_code", ""),
        target_language=metadata.string("to_code", ""),
    )
    checkpoint.format = "argos"
    for name in ("from_name", "to_name", "package_version", "argos_version"):
        if metadata.has(name):
            checkpoint.details[name.replace("_", " ")] = metadata.string(name)
    return checkpoint


class Archive:
    """A Folder inside a zip archive, nothing of which is unpacked to disk.

    The names are those beside metadata.json, which Argos puts into one folder at the top. Refuses archives with too
    many members, members that lie outside, that are given twice, encrypted, or that grow beyond ``check_members``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                entries = archive.infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            raise CheckpointError(f"{path}: not a zip archive: {error}") from None
        if len(entries) > MOST_MEMBERS:
            raise CheckpointError(f"{path}: should have at most {MOST_MEMBERS} members, has {len(entries)}")
        check_members(entries, path.stat().st_size, str(path))
        self.members: dict[str, zipfile.ZipInfo] = {}
        for entry in entries:
            _check_name(path, entry.filename)
            if not entry.is_dir():
                if entry.filename in self.members:
                    raise CheckpointError(f"{path}: member {shorten(entry.filename)} is given twice")
                self.members[entry.filename] = entry
        tops = [name.removesuffix("metadata.json") for name in self.members if _is_metadata(name)]
        self.top = min(tops, key=len, default="")

    @property
    def used(self) -> list[Path]:
        return [self.path]

    def contains(self, name: str) -> bool:
        return self.top + name in self.members

    def where(self, name: str) -> str:
        return f"{self.path}: {self.top}{name}"

    def read(self, name: str) -> memoryview:
        entry = self.members.get(self.top + name)
        if entry is None:
            raise CheckpointError(f"{self.where(name)}: no such member")
        if entry.flag_bits & 1:
            raise CheckpointError(f"{self.where(name)}: is encrypted")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise CheckpointError(f"{self.where(name)}: should be stored or deflated, has type {entry.compress_type}")
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(entry) as stream:
                data = bytearray()
                while len(data) < entry.file_size and (part := stream.read(min(1 << 24, entry.file_size - len(data)))):
                    data += part
                # The checksum is compared when the end is seen.
                over = stream.read(1)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
            raise CheckpointError(f"{self.where(name)}: cannot be unpacked: {error}") from None
        if len(data) != entry.file_size or over:
            raise CheckpointError(f"{self.where(name)}: expected {entry.file_size} bytes, got {len(data)}")
        return memoryview(data)


def _check_name(path: Path, name: str) -> None:
    pure = PurePosixPath(name)
    if not pure.parts or pure.is_absolute() or ".." in pure.parts or "\\" in name or ":" in pure.parts[0]:
        raise CheckpointError(f"{path}: member {shorten(name)} lies outside the archive")


def _is_metadata(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return parts[-1] == "metadata.json" and len(parts) <= 2
