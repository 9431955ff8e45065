"""Models of the Hugging Face hub: OWNER/NAME -> a folder of the hub's cache, with only the files that are read.

huggingface_hub downloads files, with all its settings: HF_HOME, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE and others. It is
imported only for a name of the hub.
"""

import contextlib
import logging
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastattn._version import VERSION
from fastattn.errors import CheckpointError, DownloadError, FastattnError
from fastattn.printable import printable, without_secrets
from fastattn.weights import check
from fastattn.weights.folder import Directory
from fastattn.weights.marian import INFORMATION, find_files
from fastattn.weights.marian.config import CONFIGURATION, MODEL, VOCABULARY

# A name on the hub; a path of two parts may look the same.
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
# A file at the top, in the folder of a module of sentence-transformers, or in the folder of chat templates.
FILE_PATH = re.compile(r"(\d+_[A-Za-z]+/|additional_chat_templates/)?([\w.-]+)", re.ASCII)
# File of weights, in order of preference -> pattern of its shards, which replace it if NAME.index.json is there.
WEIGHTS = {
    "model.safetensors": re.compile(r"model-\d+-of-(\d{1,9})\.safetensors", re.ASCII),
    "pytorch_model.bin": re.compile(r"pytorch_model-\d+-of-(\d{1,9})\.bin", re.ASCII),
    "model.bin": None,
}
INDEX = ".index.json"
CARDS = r"README\.md|LICENSE(\.\w+)?"
# The files beside the weights that readers open.
SMALL_FILES = re.compile(
    rf"{CARDS}|(adapter_)?config\.json|generation_config\.json|tokenizer\.json|tokenizer_config\.json"
    r"|vocab\.json|target_vocab\.json|source\.spm|target\.spm|sentencepiece(\.bpe)?\.model"
    r"|chat_template\.jinja|tool_use\.jinja|special_tokens_map\.json|added_tokens\.json|vocab\.txt|merges\.txt|spiece\.model|spm\.model"
    r"|tokenizer\.model|(shared|source|source_1|target)_vocabulary\.(json|txt)|vmap\.txt"
    r"|modules\.json|sentence_[\w-]+_config\.json|config_sentence_transformers\.json|artifact\.metadata",
    re.ASCII,
)
# A file in a repository's top folder; below, the small files of Marian, which name other files.
FILE_NAME = re.compile(r"[\w.+-]+", re.ASCII)
MARIAN_FILES = re.compile(rf"{CARDS}|{CONFIGURATION.pattern}|.+\.npz\.yml|{re.escape(INFORMATION)}", re.ASCII)
ARGOS_PACKAGE = re.compile(r"[\w.-]+\.argosmodel", re.ASCII)
ANSWER_SECONDS = 30.0  # to wait for the list of a model's files; by default, huggingface_hub waits for ever
KNOWN_WEIGHTS = (
    f"{', '.join(WEIGHTS)}, a Marian model (.npz, or model*.bin with its config.yml or decoder.yml), one .argosmodel"
)


def is_hub_name(name: str) -> bool:
    """Whether a string could be the name of a model on the hub."""
    return NAME.fullmatch(name) is not None and "--" not in name and ".." not in name and not name.endswith(".git")


def fetch(name: str, bars: bool = False) -> Path:
    """The folder of a model in huggingface_hub's cache, brought up to date unless the hub is out of reach.

    bars  whether huggingface_hub shows its progress bars
    Raises CheckpointError for an unknown model or format, DownloadError if the download fails.
    """
    has_cache = any(os.environ.get(variable) for variable in ("HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"))
    if not has_cache and os.path.expanduser("~").startswith("~"):  # huggingface_hub would use a folder named "~" here
        raise DownloadError(f"{name} needs a place to be kept, and this user has no home folder; HF_HOME names one")
    import huggingface_hub
    from huggingface_hub.utils import GatedRepoError, RepositoryNotFoundError

    variable = _offline_variable()
    if variable:
        return _cached_folder(name, f"{variable} forbids the network; when online, run: fastattn pull {name}")
    endpoint = without_secrets(huggingface_hub.constants.ENDPOINT)
    with _progress_bars(bars), _escaped_log():
        try:
            info = _model_info(name)
            files = select_files(sibling.rfilename for sibling in info.siblings or [])
            if files:
                return _download(name, files, info.sha)
        except FastattnError:
            raise
        except GatedRepoError:
            raise DownloadError(
                f"{name} is gated: accept its terms at {endpoint}/{name}, then log in with a token (HF_TOKEN)"
            ) from None
        except RepositoryNotFoundError:
            raise CheckpointError(
                f"no checkpoint {name!r}: no such path, and no such model at {endpoint} (a private one needs HF_TOKEN)"
            ) from None
        except Exception as error:  # noqa: BLE001  several libraries' errors, whose classes change with versions
            return _cached_folder(name, f"{endpoint} cannot be read: {_reason(error)}")
    raise CheckpointError(f"{endpoint}/{name} has no weights in a form that is known: {KNOWN_WEIGHTS}")


def _model_info(name: str) -> Any:
    """The hub's description of a model. A busy hub is asked again; huggingface_hub repeats only requests for files."""
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    from fastattn.weights.download.transport import seconds_to_retry  # not at the top: it imports the network's modules

    api = huggingface_hub.HfApi(library_name="fastattn", library_version=VERSION)
    attempt = 0
    while True:
        try:
            return api.model_info(name, timeout=ANSWER_SECONDS)
        except HfHubHTTPError as error:
            response = error.response
            wait = seconds_to_retry(attempt, response.status_code, response.headers.get("Retry-After"))
            if wait is None:
                raise
        time.sleep(wait)
        attempt += 1


@dataclass(frozen=True)
class NeededFiles:
    """The files of a model that its reader opens."""

    format: str  # "huggingface" (readers open ``small_files`` before ``weights``), "ctranslate2", "marian" or "argos"
    small_files: list[str]  # files that describe the model and its tokenizer
    weights: list[str]  # large files; of a Marian model all files that ``small_files`` may name


def select_files(files: Iterable[str]) -> NeededFiles | None:
    """The files of a repository that a reader opens; None if weights or their description are missing."""
    names = sorted(files)
    top_files = [name for name in names if FILE_NAME.fullmatch(name)]
    packages = [name for name in top_files if ARGOS_PACKAGE.fullmatch(name)]
    needed_files = _huggingface_files(names)
    if needed_files is None and _is_marian(top_files):
        small_files = [name for name in top_files if MARIAN_FILES.fullmatch(name)]
        if not any(map(CONFIGURATION.fullmatch, small_files)):  # then vocabularies define the model
            small_files += filter(VOCABULARY.fullmatch, top_files)
        needed_files = NeededFiles("marian", small_files, [name for name in top_files if name not in small_files])
    if needed_files is None and len(packages) == 1:
        cards = [name for name in top_files if re.fullmatch(CARDS, name)]
        needed_files = NeededFiles("argos", cards, packages)
    return needed_files


def _huggingface_files(files: list[str]) -> NeededFiles | None:
    """``select_files`` for folders of Hugging Face, sentence-transformers, fastattn and CTranslate2."""
    folders: dict[str, set[str]] = {}
    for file in files:
        match = FILE_PATH.fullmatch(file)
        if match:
            folders.setdefault(match[1] or "", set()).add(match[2])
    small_files, weights = list[str](), list[str]()
    for folder, names in folders.items():
        weight_files = _weight_files(names)
        weights += [folder + name for name in sorted(weight_files) if not name.endswith(INDEX)]
        small_files += [folder + name for name in sorted(names & weight_files) if name.endswith(INDEX)]
        small_files += [folder + name for name in sorted(names) if SMALL_FILES.fullmatch(name)]
    if not weights or not {"config.json", "modules.json"} & set(small_files):
        return None
    return NeededFiles("ctranslate2" if "model.bin" in weights else "huggingface", small_files, weights)


def _weight_files(names: set[str]) -> set[str]:
    """The name of a file of weights, or the names of all its shards and their index; empty if there are none."""
    for name, pattern in WEIGHTS.items():
        if name in names:
            return {name}
        shards = [match for match in map(pattern.fullmatch, names) if match] if pattern is not None else []
        if name + INDEX in names and shards and len(shards) == int(shards[0][1]):
            return {name + INDEX, *(match[0] for match in shards)}
    return set()


def _is_marian(names: list[str]) -> bool:
    models = [name for name in names if MODEL.fullmatch(name)]
    if any(map(CONFIGURATION.fullmatch, names)):
        return bool(models)
    return any(name.endswith(".npz") for name in models) and any(map(VOCABULARY.fullmatch, names))


def _download(name: str, files: NeededFiles, commit: str | None) -> Path:
    """Download the small files first, so that readers can refuse a model before its weights are downloaded.

    All files are of one commit, even if the repository changes meanwhile.
    """
    import huggingface_hub

    def fetch_files(names: list[str]) -> Path:
        return Path(
            huggingface_hub.snapshot_download(
                name, revision=commit, allow_patterns=names, library_name="fastattn", library_version=VERSION
            )
        )

    weights = files.weights
    cached_paths = (huggingface_hub.try_to_load_from_cache(name, weight, revision=commit) for weight in weights)
    if files.format == "marian":
        folder = fetch_files(files.small_files)
        weights = [file for file in find_files(Directory(folder, weights)) if file not in files.small_files]
    elif files.format == "huggingface" and not all(isinstance(path, str) for path in cached_paths):
        check(fetch_files(files.small_files), weights)
    folder = fetch_files(files.small_files + weights)
    if commit is not None:
        _note_commit(folder, commit)
    return folder / weights[0] if files.format == "argos" else folder


def _note_commit(folder: Path, commit: str) -> None:
    """Record in the cache that the branch main is at the commit, as downloads by branch do, for offline lookups."""
    branch_file = folder.parents[1] / "refs" / "main"
    with contextlib.suppress(OSError):  # a read-only cache
        if not branch_file.is_file() or branch_file.read_text(encoding="ascii") != commit:
            branch_file.parent.mkdir(exist_ok=True)
            branch_file.write_text(commit, encoding="ascii")


def licence(folder: Path) -> str:
    """The licence in the header of the model's card, or an empty string."""
    try:
        card = (folder / "README.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    head = re.match(r"\ufeff?---\s*\n(.*?)\n---", card, re.DOTALL)
    match = re.search(r"^license:\s*(\S.*?)\s*$", head[1], re.MULTILINE) if head else None
    return match[1] if match else ""


def _offline_variable() -> str:
    """The variable that forbids the network, or an empty string."""
    from huggingface_hub import constants

    from fastattn.weights.download.pull import is_offline

    if is_offline():
        return "FASTATTN_OFFLINE"
    if not constants.HF_HUB_OFFLINE:
        return ""
    return "TRANSFORMERS_OFFLINE" if not os.environ.get("HF_HUB_OFFLINE") else "HF_HUB_OFFLINE"


def _cached_folder(name: str, reason: str) -> Path:
    """The folder of an earlier download; DownloadError, which gives the ``reason``, if there is none."""
    import huggingface_hub

    with contextlib.suppress(OSError, ValueError, CheckpointError):  # one of these is a base of LocalEntryNotFoundError
        folder = Path(huggingface_hub.snapshot_download(name, local_files_only=True, allow_patterns=["config.json"]))
        paths = [Path(root, file).relative_to(folder) for root, _, names in os.walk(folder) for file in names]
        files = select_files(file.as_posix() for file in paths)
        if files and files.format == "argos":
            return folder / files.weights[0]
        if files and (files.format != "marian" or find_files(Directory(folder))):  # raises if a file is missing
            return folder
    raise DownloadError(
        f"{name} is no path here, the Hugging Face cache ({huggingface_hub.constants.HF_HUB_CACHE}) does not hold the "
        f"whole of it, and {reason}"
    )


def _reason(error: Exception) -> str:
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP {response.status_code}"
    sentence = str(error).split("\n")[0].split(". ")[0]  # later sentences say what else huggingface_hub tried
    return " ".join(sentence.split()) or type(error).__name__


@contextlib.contextmanager
def _escaped_log() -> Iterator[None]:
    """Inside the block, control characters in huggingface_hub's log, which quotes servers, are escaped."""
    from huggingface_hub import HfApi  # noqa: F401  this import makes the library's handler

    def escape(record: logging.LogRecord) -> bool:
        record.msg, record.args = printable(record.getMessage()), ()
        return True

    handlers = logging.getLogger("huggingface_hub").handlers[:]
    for handler in handlers:
        handler.addFilter(escape)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(escape)


@contextlib.contextmanager
def _progress_bars(are_shown: bool) -> Iterator[None]:
    """Inside the block, huggingface_hub shows no progress bars, unless ``are_shown`` or its setting says otherwise."""
    from huggingface_hub import constants
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if are_shown or constants.HF_HUB_DISABLE_PROGRESS_BARS is not None or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()
