"""Firefox's translation models by language: Mozilla's list of them, and the folder of one, downloaded and checked.

The list is one JSON file, kept for a day; db/updater.py of github.com/mozilla/translations writes it. Every model goes
from or to English, so any other pair of languages takes two.
"""

import hashlib
import os
import re
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from fastattn.errors import CheckpointError, DownloadError, InputError, warn
from fastattn.system.atomic_files import write_whole
from fastattn.system.cache_folder import A_DAY
from fastattn.system.records import dataclass
from fastattn.text.languages import iso_code, name_of
from fastattn.weights.containers.json_file import JsonObject, parse_json
from fastattn.weights.download.catalog import checkpoints_folder
from fastattn.weights.download.pip_settings import read_settings
from fastattn.weights.download.pull import SOURCE_FILE, Progress, is_offline, placed, source_text
from fastattn.weights.download.transport import Transport, TransportError, without_password

LIST = "https://storage.googleapis.com/moz-fx-translations-data--303e-prod-translations-data/db/models.json"
LIST_FILE, LIST_NAME = "models.json", "firefox-models"
LONGEST_LIST = 32 << 20  # bytes; there are 110 pairs of a kilobyte each
LARGEST_FILE = 1 << 30  # of a model; the list tells the size of the weights, and no other file's
QUALITIES = ("tiny", "base-memory", "base")  # from the fastest to the best
# The list's names of a model's files; it has one vocabulary or two, and perhaps no shortlist.
PARTS = ("model", "lexicalShortlist", "vocab", "srcVocab", "trgVocab")
PLAIN_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,120}\.gz", re.ASCII)
CODE = re.compile(r"[a-z]{2,3}([-_][A-Za-z]{2,8})?", re.ASCII)
HASH = re.compile(r"[0-9a-f]{64}")
_CHUNK = 1 << 18


@dataclass(frozen=True)
class FirefoxFile:
    """A gzipped file of a model. size, sha256: of its contents, where the list tells them."""

    url: str
    size: int | None = None
    sha256: str | None = None

    @property
    def name(self) -> str:
        return PurePosixPath(self.url).name.removesuffix(".gz")


@dataclass(frozen=True)
class FirefoxModel:
    """A model of the list: codes of its languages, its architecture, whether Firefox has released it, its files."""

    source: str
    target: str
    architecture: str
    released: bool
    files: dict[str, FirefoxFile]
    kind = "translation"
    licence = "MPL-2.0"

    @property
    def origin(self) -> str:
        return without_password(self.files["model"].url)

    @property
    def name(self) -> str:
        """``de-en``, as -m and ``pull`` take it."""
        return f"{self.source}-{self.target}"

    @property
    def title(self) -> str:
        return f"Firefox Translations {name_of(self.source)} to {name_of(self.target)} ({self.architecture})"

    @property
    def folder(self) -> Path:
        """The model's folder in the cache, whether it exists yet or not."""
        contents = repr(sorted(self.files.items()))
        digest = hashlib.sha256(contents.encode()).hexdigest()[:8]
        return checkpoints_folder() / f"firefox-{self.name}-{self.architecture}-{digest}"

    @property
    def file_size(self) -> int:
        """Bytes of the weights, unpacked."""
        return self.files["model"].size or 0


def best_model(source: str, target: str, quality: str | None = None) -> FirefoxModel | None:
    """The model that translates from one language to another, by ISO 639-1 codes, or None.

    quality  the preferred architecture, of QUALITIES (None: the best); models that Firefox has released come first
    Raises InputError for an unknown quality, DownloadError where the list cannot be read.
    """
    check_quality(quality)
    rank_of_quality = QUALITIES.index(quality or QUALITIES[-1])

    def rank(model: FirefoxModel) -> tuple[bool, int, int]:
        quality = QUALITIES.index(model.architecture) if model.architecture in QUALITIES else -len(QUALITIES)
        return not model.released, abs(quality - rank_of_quality), -quality

    fitting = (item for item in listed_models() if (iso_code(item.source), iso_code(item.target)) == (source, target))
    return min(fitting, key=rank, default=None)


def check_quality(quality: str | None) -> None:
    """Raise InputError for anything but one of QUALITIES, or None."""
    if quality is not None and quality not in QUALITIES:
        raise InputError(f"quality should be one of {', '.join(QUALITIES)}, is {quality!r}")


def listed_models() -> list[FirefoxModel]:
    """All models of Mozilla's list, or of the list at the address FASTATTN_FIREFOX_MODELS.

    A list older than a day is downloaded again; without the network the one in the cache serves, whatever its age.
    Raises DownloadError where there is none.
    """
    url = os.environ.get("FASTATTN_FIREFOX_MODELS") or LIST
    folder = checkpoints_folder() / f"{LIST_NAME}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"
    stored, age = None, 0.0
    with suppress(OSError, CheckpointError):  # there is none, or it is damaged
        stored, age = _parse((folder / LIST_FILE).read_bytes(), url), time.time() - (folder / LIST_FILE).stat().st_mtime
    if stored is not None and (is_offline() or 0 <= age < A_DAY):
        return stored
    if is_offline():
        raise DownloadError(
            "no list of Firefox's models is kept here, and FASTATTN_OFFLINE forbids the network; when online, run: "
            "fastattn languages"
        )
    try:
        with _opened(Transport(read_settings()), url) as chunks:
            data = b"".join(_bounded(chunks, LONGEST_LIST))
        models = _parse(data, url)
    except (TransportError, CheckpointError, DownloadError) as error:
        reason = error if isinstance(error, DownloadError) else f"cannot read the list of models {url}: {error}"
        if stored is None:
            raise DownloadError(str(reason)) from None
        warn(f"the list of models here is {age / A_DAY:.0f} days old and stays in use: {reason}")
        return stored
    source = f"name: {LIST_NAME}\nwhat: list of models\norigin: {without_password(url)}\n".encode()

    def fill(staging: Path, contents: Path) -> None:
        (contents / SOURCE_FILE).write_bytes(source)

    def write(stream: BinaryIO) -> None:
        stream.write(data)

    try:
        placed(folder, LIST_NAME, len(data), fill)
        write_whole(folder / LIST_FILE, write)
    except (DownloadError, OSError) as error:  # models that are here can be found all the same
        reason = error if isinstance(error, DownloadError) else f"cannot write to {folder}: {error.strerror or error}"
        warn(f"the list of models is not kept: {reason}")
    return models


def _parse(data: bytes, url: str) -> list[FirefoxModel]:
    values = parse_json(data, "the list")
    if not isinstance(values, dict):
        raise CheckpointError("the list should be a JSON object")
    catalog = JsonObject(values, "the list")
    base = catalog.string("baseUrl").rstrip("/")
    if url.startswith("https:") and not base.startswith("https:"):
        raise CheckpointError(f"the list's baseUrl should begin with https:, is {base!r}")
    pairs = catalog.nested("models").values.items()
    if not all(isinstance(entries, list) for _, entries in pairs):
        raise CheckpointError("the list: models should be an object of lists")
    return [model for pair, entries in pairs for entry in entries if (model := _model(entry, pair, base)) is not None]


def _model(values: object, pair: str, base: str) -> FirefoxModel | None:
    """The model of an entry of the list; None for an incomplete entry, which does not spoil the list."""
    try:
        entry = JsonObject(values if isinstance(values, dict) else {}, pair)
        source, target = entry.string("sourceLanguage"), entry.string("targetLanguage")
        files = entry.nested("files")
        files_read = {part: _file(files.nested(part), base) for part in PARTS if files.has(part)}
        architecture, status = entry.string("architecture"), entry.string("releaseStatus", "")
    except CheckpointError:
        return None
    vocabularies = "vocab" in files_read or {"srcVocab", "trgVocab"} <= files_read.keys()
    complete = "model" in files_read and files_read["model"].sha256 is not None and vocabularies
    plain = all(map(CODE.fullmatch, (source, target))) and re.fullmatch(r"[a-z][a-z-]{0,30}", architecture)
    if not complete or not plain or len({file.name for file in files_read.values()}) < len(files_read):
        return None
    return FirefoxModel(source, target, architecture, status.startswith("Release"), files_read)


def _file(entry: JsonObject, base: str) -> FirefoxFile:
    path = PurePosixPath(entry.string("path"))
    if path.is_absolute() or ".." in path.parts or not PLAIN_NAME.fullmatch(path.name):
        raise entry.error("path", "a path of plain names that ends in .gz", str(path))
    sha256 = entry.string("uncompressedHash", "") or None
    if sha256 is not None and not HASH.fullmatch(sha256):
        raise entry.error("uncompressedHash", "a SHA-256", sha256)
    size = entry.optional_size("uncompressedSize")
    if size is not None and size > LARGEST_FILE:
        raise entry.error("uncompressedSize", f"at most {LARGEST_FILE}", size)
    return FirefoxFile(f"{base}/{path}", size, sha256)


def pull_model(model: FirefoxModel, progress: Progress | None = None) -> Path:
    """The folder of a model in the cache, downloaded first if it is missing.

    progress  called with (bytes so far, bytes in all) of the weights
    Raises DownloadError if downloading or checking fails; nothing stays in the cache then.
    """

    def fill(staging: Path, contents: Path) -> None:
        transport = Transport(read_settings())
        for file in model.files.values():
            try:
                _fetch(transport, file, contents / file.name, progress if file is model.files["model"] else None)
            except TransportError as error:
                raise DownloadError(f"cannot fetch {model.name} ({file.url}): {error}") from None
        (contents / "config.yml").write_text(_configuration(model), encoding="utf-8")
        (contents / SOURCE_FILE).write_text(source_text(model, sha256=model.files["model"].sha256), encoding="utf-8")

    option = f"--quality {model.architecture} " if model.architecture in QUALITIES else ""
    return placed(model.folder, model.name, 2 * model.file_size, fill, option)


def _fetch(transport: Transport, file: FirefoxFile, path: Path, progress: Progress | None) -> None:
    limit, size, digest = file.size or LARGEST_FILE, 0, hashlib.sha256()
    with _opened(transport, file.url) as chunks, open(path, "wb") as output:
        for part in _bounded(_gunzipped(chunks), limit):
            output.write(part)
            digest.update(part)
            size += len(part)
            if progress is not None:
                progress(size, file.size or size)
    if file.size not in (None, size):
        raise TransportError(f"expected {file.size} bytes unpacked, got {size}")
    if file.sha256 not in (None, digest.hexdigest()):
        raise TransportError(f"expected SHA-256 {file.sha256}, got {digest.hexdigest()}")


@contextmanager
def _opened(transport: Transport, url: str) -> Iterator[Iterator[bytes]]:
    """The parts of a response's body; TransportError for plain http from a host that is not trusted."""
    if transport.is_secure(url):
        with transport.open(url) as response:
            if transport.is_secure(response.url):
                yield iter(lambda: response.read(_CHUNK), b"")
                return
    raise TransportError("plain http from a host that is not among pip's trusted-host")


def _bounded(parts: Iterable[bytes], limit: int) -> Iterator[bytes]:
    for part in parts:
        limit -= len(part)
        if limit < 0:
            raise TransportError("more bytes than expected")
        yield part


def _gunzipped(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The contents of one gzip file in parts of bounded size, whatever its bytes unpack to."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        for part in parts:
            while part and not unpacker.eof:
                yield unpacker.decompress(part, _CHUNK)
                part = unpacker.unconsumed_tail
            if unpacker.eof and (part or unpacker.unused_data):
                raise TransportError("more behind the gzip file's end")
        while tail := unpacker.decompress(unpacker.unconsumed_tail, _CHUNK):
            yield tail
    except zlib.error as error:
        raise TransportError(f"not gzip: {error}") from None
    if not unpacker.eof:
        raise TransportError("the gzip file ends too early")


def _configuration(model: FirefoxModel) -> str:
    """The config.yml that Bergamot would have for such a model; Firefox has these settings in its code."""
    names = {part: file.name for part, file in model.files.items()}
    source, target = (names.get(part) or names["vocab"] for part in ("srcVocab", "trgVocab"))
    lines = ["relative-paths: true", f"models: [{names['model']}]", f"vocabs: [{source}, {target}]"]
    if "lexicalShortlist" in names:
        lines.append(f"shortlist: [{names['lexicalShortlist']}, false]")
    lines += ["beam-size: 1", "normalize: 1.0", "word-penalty: 0", "max-length-factor: 2.0"]
    return "\n".join([*lines, "gemm-precision: int8shiftAlphaAll", ""])
