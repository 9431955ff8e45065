"""Firefox's translation models by language: Mozilla's list of models, and a model's folder, downloaded and checked.

The list is a JSON file, kept for a day, which db/updater.py of github.com/mozilla/translations writes. Every model goes
from or to English, so another pair of languages takes two models.
"""

import hashlib
import os
import re
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from fastattn.errors import CheckpointError, DownloadError, InputError, warn
from fastattn.system.atomic_files import write_whole
from fastattn.system.cache_folder import A_DAY
from fastattn.system.records import dataclass
from fastattn.text.languages import iso_code, name_of
from fastattn.weights.containers.json_file import JsonObject, parse_json
from fastattn.weights.download.catalog import checkpoints_folder
from fastattn.weights.download.pip_settings import read_settings
from fastattn.weights.download.pull import SOURCE_FILE, Progress, ensure_folder, is_offline, source_text
from fastattn.weights.download.transport import Transport, TransportError, without_password

LIST_URL = "https://storage.googleapis.com/moz-fx-translations-data--303e-prod-translations-data/db/models.json"
LIST_FILE, LIST_NAME = "models.json", "firefox-models"
LONGEST_LIST = 32 << 20  # bytes; the list has 110 pairs of a kilobyte each
LARGEST_FILE = 1 << 30  # bytes of a file of a model; the list has only the size of the weights
QUALITIES = ("tiny", "base-memory", "base")  # from the fastest to the best
# The list's names of a model's files; a model has one vocabulary or two, and perhaps no shortlist.
FILE_KEYS = ("model", "lexicalShortlist", "vocab", "srcVocab", "trgVocab")
FILE_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,120}\.gz", re.ASCII)
CODE = re.compile(r"[a-z]{2,3}([-_][A-Za-z]{2,8})?", re.ASCII)
HASH = re.compile(r"[0-9a-f]{64}")
_CHUNK_BYTES = 1 << 18


@dataclass(frozen=True)
class FirefoxFile:
    """A gzipped file of a model; ``size`` and ``sha256`` of the unpacked contents, None where the list lacks them."""

    url: str
    size: int | None = None
    sha256: str | None = None

    @property
    def name(self) -> str:
        return PurePosixPath(self.url).name.removesuffix(".gz")


@dataclass(frozen=True)
class FirefoxModel:
    """A model of the list: its languages' codes, its architecture, whether Firefox has released it, {key: its file}."""

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
        """A name such as ``de-en``, as -m and ``pull`` take it."""
        return f"{self.source}-{self.target}"

    @property
    def title(self) -> str:
        return f"Firefox Translations {name_of(self.source)} to {name_of(self.target)} ({self.architecture})"

    @property
    def folder(self) -> Path:
        """The model's folder in the cache, whether it exists yet or not."""
        digest = hashlib.sha256(repr(sorted(self.files.items())).encode()).hexdigest()[:8]
        return checkpoints_folder() / f"firefox-{self.name}-{self.architecture}-{digest}"

    @property
    def file_size(self) -> int:
        """The bytes of the weights, unpacked."""
        return self.files["model"].size or 0


def best_model(source: str, target: str, quality: str | None = None) -> FirefoxModel | None:
    """The model that translates from ``source`` to ``target``, ISO 639-1 codes, or None.

    quality  the preferred architecture, of QUALITIES (None: the best); models that Firefox has released come first
    Raises InputError for an unknown quality, DownloadError where the list cannot be read.
    """
    check_quality(quality)
    preferred = QUALITIES.index(quality or QUALITIES[-1])

    def rank(model: FirefoxModel) -> tuple[bool, int, int]:
        index = QUALITIES.index(model.architecture) if model.architecture in QUALITIES else -len(QUALITIES)
        return not model.released, abs(index - preferred), -index

    models = (one for one in listed_models() if (iso_code(one.source), iso_code(one.target)) == (source, target))
    return min(models, key=rank, default=None)


def check_quality(quality: str | None) -> None:
    """Raise InputError for anything but one of QUALITIES, or None."""
    if quality is not None and quality not in QUALITIES:
        raise InputError(f"quality should be one of {', '.join(QUALITIES)}, is {quality!r}")


def listed_models() -> list[FirefoxModel]:
    """All models of Mozilla's list, or of the list at the address FASTATTN_FIREFOX_MODELS.

    A list older than a day is downloaded again; without the network, the list in the cache serves, whatever its age.
    Raises DownloadError where there is no list.
    """
    url = os.environ.get("FASTATTN_FIREFOX_MODELS") or LIST_URL
    folder = checkpoints_folder() / f"{LIST_NAME}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"
    cached_models, age = None, 0.0
    with suppress(OSError, CheckpointError):  # the cache has no list, or a damaged one
        age = time.time() - (folder / LIST_FILE).stat().st_mtime
        cached_models = _parse_list((folder / LIST_FILE).read_bytes(), url)
    if cached_models is not None and (is_offline() or 0 <= age < A_DAY):
        return cached_models
    if is_offline():
        raise DownloadError(
            "no list of Firefox's models is kept here, and FASTATTN_OFFLINE forbids the network; when online, run: "
            "fastattn languages"
        )
    try:
        with _open_chunks(Transport(read_settings()), url) as chunks:
            data = b"".join(_limit(chunks, LONGEST_LIST))
        models = _parse_list(data, url)
    except (TransportError, CheckpointError, DownloadError) as error:
        reason = error if isinstance(error, DownloadError) else f"cannot read the list of models {url}: {error}"
        if cached_models is None:
            raise DownloadError(str(reason)) from None
        warn(f"the list of models here is {age / A_DAY:.0f} days old and stays in use: {reason}")
        return cached_models
    source = f"name: {LIST_NAME}\nwhat: list of models\norigin: {without_password(url)}\n".encode()

    def fill(staging: Path, contents: Path) -> None:
        (contents / SOURCE_FILE).write_bytes(source)

    try:
        ensure_folder(folder, LIST_NAME, len(data), fill)
        write_whole(folder / LIST_FILE, lambda stream: stream.write(data))
    except (DownloadError, OSError) as error:  # the list is usable without the cache
        reason = error if isinstance(error, DownloadError) else f"cannot write to {folder}: {error.strerror or error}"
        warn(f"the list of models is not kept: {reason}")
    return models


def _parse_list(data: bytes, url: str) -> list[FirefoxModel]:
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
    return [
        model for pair, entries in pairs for entry in entries if (model := _model_of(entry, pair, base)) is not None
    ]


def _model_of(values: object, pair: str, base: str) -> FirefoxModel | None:
    """The model of an entry of the list; None for an incomplete entry, which does not invalidate the list."""
    try:
        entry = JsonObject(values if isinstance(values, dict) else {}, pair)
        source, target = entry.string("sourceLanguage"), entry.string("targetLanguage")
        entries = entry.nested("files")
        files = {key: _file_of(entries.nested(key), base) for key in FILE_KEYS if entries.has(key)}
        architecture, status = entry.string("architecture"), entry.string("releaseStatus", "")
    except CheckpointError:
        return None
    has_vocabularies = "vocab" in files or {"srcVocab", "trgVocab"} <= files.keys()
    is_complete = "model" in files and files["model"].sha256 is not None and has_vocabularies
    is_named = all(map(CODE.fullmatch, (source, target))) and re.fullmatch(r"[a-z][a-z-]{0,30}", architecture)
    if not is_complete or not is_named or len({file.name for file in files.values()}) < len(files):
        return None
    return FirefoxModel(source, target, architecture, status.startswith("Release"), files)


def _file_of(entry: JsonObject, base: str) -> FirefoxFile:
    path = PurePosixPath(entry.string("path"))
    if path.is_absolute() or ".." in path.parts or not FILE_NAME.fullmatch(path.name):
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

    progress  called with (bytes downloaded, bytes in all) of the weights
    Raises DownloadError if downloading or checking fails, which leaves nothing in the cache.
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
    return ensure_folder(model.folder, model.name, 2 * model.file_size, fill, option)


def _fetch(transport: Transport, file: FirefoxFile, path: Path, progress: Progress | None) -> None:
    limit, size, digest = file.size or LARGEST_FILE, 0, hashlib.sha256()
    with _open_chunks(transport, file.url) as chunks, open(path, "wb") as output:
        for chunk in _limit(_gunzip(chunks), limit):
            output.write(chunk)
            digest.update(chunk)
            size += len(chunk)
            if progress is not None:
                progress(size, file.size or size)
    if file.size not in (None, size):
        raise TransportError(f"expected {file.size} bytes unpacked, got {size}")
    if file.sha256 not in (None, digest.hexdigest()):
        raise TransportError(f"expected SHA-256 {file.sha256}, got {digest.hexdigest()}")


@contextmanager
def _open_chunks(transport: Transport, url: str) -> Iterator[Iterator[bytes]]:
    """The body of a response in chunks; TransportError for plain http from a host that is not trusted."""
    if transport.is_secure(url):
        with transport.open(url) as response:
            if transport.is_secure(response.url):
                yield iter(lambda: response.read(_CHUNK_BYTES), b"")
                return
    raise TransportError("plain http from a host that is not among pip's trusted-host")


def _limit(chunks: Iterable[bytes], limit: int) -> Iterator[bytes]:
    for chunk in chunks:
        limit -= len(chunk)
        if limit < 0:
            raise TransportError("more bytes than expected")
        yield chunk


def _gunzip(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The contents of one gzip file in chunks of at most _CHUNK_BYTES bytes, whatever its bytes unpack to."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        for chunk in chunks:
            while chunk and not unpacker.eof:
                yield unpacker.decompress(chunk, _CHUNK_BYTES)
                chunk = unpacker.unconsumed_tail
            if unpacker.eof and (chunk or unpacker.unused_data):
                raise TransportError("more behind the gzip file's end")
        while tail := unpacker.decompress(unpacker.unconsumed_tail, _CHUNK_BYTES):
            yield tail
    except zlib.error as error:
        raise TransportError(f"not gzip: {error}") from None
    if not unpacker.eof:
        raise TransportError("the gzip file ends too early")


def _configuration(model: FirefoxModel) -> str:
    """The config.yml that Bergamot would have for such a model; Firefox has these settings in its code."""
    names = {key: file.name for key, file in model.files.items()}
    source, target = (names.get(key) or names["vocab"] for key in ("srcVocab", "trgVocab"))
    lines = ["relative-paths: true", f"models: [{names['model']}]", f"vocabs: [{source}, {target}]"]
    if "lexicalShortlist" in names:
        lines.append(f"shortlist: [{names['lexicalShortlist']}, false]")
    lines += ["beam-size: 1", "normalize: 1.0", "word-penalty: 0", "max-length-factor: 2.0"]
    return "\n".join([*lines, "gemm-precision: int8shiftAlphaAll", ""])
