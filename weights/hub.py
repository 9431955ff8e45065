"""Models of the Hugging Face hub: OWNER/NAME -> a folder of its cache, which has the files that are read and no others.

huggingface_hub, which comes with tokenizers, does the work as it does it for everybody: HF_HOME, HF_ENDPOINT, HF_TOKEN,
HF_HUB_OFFLINE and the rest of its settings hold. It is imported only when such a name is given.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fastattn._version import VERSION
from fastattn.errors import CheckpointError, DownloadError

# As the hub has it; a path of two parts may look the same.
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
# A module of sentence-transformers may have a folder of its own.
FOLDER = re.compile(r"(\d+_[A-Za-z]+/)?([\w.-]+)", re.ASCII)
# In the order in which they are preferred: the file, and its shards where NAME.index.json is there in its place.
WEIGHTS = {
    "model.safetensors": re.compile(r"model-\d+-of-\d+\.safetensors"),
    "pytorch_model.bin": re.compile(r"pytorch_model-\d+-of-\d+\.bin"),
    "model.bin": None,
}
INDEX = ".index.json"
OTHERS = re.compile(
    r"README\.md|LICENSE(\.\w+)?|config\.json|generation_config\.json|tokenizer\.json|tokenizer_config\.json"
    r"|vocab\.json|target_vocab\.json|source\.spm|target\.spm|sentencepiece(\.bpe)?\.model"
    r"|(shared|source|source_1|target)_vocabulary\.(json|txt)"
    r"|modules\.json|sentence_[\w-]+_config\.json|config_sentence_transformers\.json",
    re.ASCII,
)


def is_hub_name(name: str) -> bool:
    """Whether a string could be the name of a model on the hub."""
    return NAME.fullmatch(name) is not None and "--" not in name and ".." not in name and not name.endswith(".git")


def fetch(name: str, bars: bool = False) -> Path:
    """The folder of a model in huggingface_hub's cache, brought up to date unless the hub is out of reach.

    bars  show huggingface_hub's own progress
    Raises CheckpointError where there is no such model or nothing that could be read, DownloadError where it cannot
    be had.
    """
    import huggingface_hub
    from huggingface_hub.utils import GatedRepoError, RepositoryNotFoundError

    if _is_offline():
        return _cached(name, "FASTATTN_OFFLINE or HF_HUB_OFFLINE forbids the network")
    endpoint = huggingface_hub.constants.ENDPOINT
    with _bars(bars):
        try:
            info = huggingface_hub.HfApi(library_name="fastattn", library_version=VERSION).model_info(name)
            files = needed(sibling.rfilename for sibling in info.siblings or [])
            if files:
                options: dict[str, Any] = {"library_name": "fastattn", "library_version": VERSION}
                return Path(huggingface_hub.snapshot_download(name, allow_patterns=files, **options))
        except GatedRepoError:
            raise DownloadError(
                f"{name} is gated: accept its terms at {endpoint}/{name}, then log in with a token (HF_TOKEN)"
            ) from None
        except RepositoryNotFoundError:
            raise CheckpointError(
                f"no checkpoint {name!r}: no such path, and no such model at {endpoint} (a private one needs HF_TOKEN)"
            ) from None
        except Exception as error:  # noqa: BLE001  of several libraries' families, which change from version to version
            return _cached(name, f"{endpoint} cannot be read: {_reason(error)}")
    raise CheckpointError(f"{endpoint}/{name} has no weights in a form that is known: {', '.join(WEIGHTS)}")


def needed(files: Iterable[str]) -> list[str]:
    """Those of a model's files that its reader opens; none where weights or config.json are not among them."""
    folders: dict[str, set[str]] = {}
    for file in files:
        match = FOLDER.fullmatch(file)
        if match:
            folders.setdefault(match[1] or "", set()).add(match[2])
    found, weights = [], False
    for folder, names in folders.items():
        chosen = _weights(names)
        weights = weights or bool(chosen)
        found += [folder + name for name in sorted(names) if name in chosen or OTHERS.fullmatch(name)]
    return found if weights and ("config.json" in found or "modules.json" in found) else []


def licence(folder: Path) -> str:
    """What the model's card says at its head, or an empty string."""
    try:
        card = (folder / "README.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    head = re.match(r"\ufeff?---\s*\n(.*?)\n---", card, re.DOTALL)
    found = re.search(r"^license:\s*(\S.*?)\s*$", head[1], re.MULTILINE) if head else None
    return found[1] if found else ""


def _weights(names: set[str]) -> set[str]:
    for name, shards in WEIGHTS.items():
        if name in names:
            return {name}
        if shards is not None and name + INDEX in names:
            return {name + INDEX, *filter(shards.fullmatch, names)}
    return set()


def _is_offline() -> bool:
    from huggingface_hub import constants

    from fastattn.weights.pull import is_offline

    return is_offline() or bool(constants.HF_HUB_OFFLINE)


def _cached(name: str, reason: str) -> Path:
    """The folder that an earlier download left; DownloadError with the ``reason`` for asking where there is none."""
    import huggingface_hub

    with contextlib.suppress(OSError, ValueError):  # LocalEntryNotFoundError is one of them
        found = huggingface_hub.snapshot_download(name, local_files_only=True, allow_patterns=["config.json"])
        files = [Path(root, file).relative_to(found) for root, _, names in os.walk(found) for file in names]
        if needed(file.as_posix() for file in files):
            return Path(found)
    raise DownloadError(
        f"{name} is no path here, not (all of it) in the Hugging Face cache"
        f" ({huggingface_hub.constants.HF_HUB_CACHE}), and {reason}"
    )


def _reason(error: Exception) -> str:
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP {response.status_code}"
    first = str(error).split("\n")[0].split(". ")[0]  # a sentence: others tell what else was tried
    return " ".join(first.split()) or type(error).__name__


@contextlib.contextmanager
def _bars(shown: bool) -> Iterator[None]:
    """Without huggingface_hub's progress bars, unless they are asked for, here or by its own setting."""
    from huggingface_hub import constants
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if shown or constants.HF_HUB_DISABLE_PROGRESS_BARS is not None or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()
