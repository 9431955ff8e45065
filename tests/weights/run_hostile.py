"""Reads one hostile file as the package would, in a process of its own with little memory and a count of its steps.

    python -m tests.weights.run_hostile READER PATH STEPS [TEXT]

TEXT is a file that a tokenizer is given. While these are read the process may take as many bytes as they have, and
MEMORY, over what it has; and Python code FLOOR steps, and STEPS for each byte of them, a step being a line or a call of
a built-in function. STEPS of 0 counts none. Prints "done", or the error of one line that it ended in; whatever else
comes is a fault, and a traceback.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from fastattn.errors import FastattnError
from fastattn.spec.text_spec import TranslationText
from fastattn.text.huggingface import HuggingFaceTokenizer
from fastattn.text.sentencepiece import SentencePiece
from fastattn.text.translation import VocabularyMap
from fastattn.weights.containers import pytorch, safetensors
from fastattn.weights.containers.shortlist import read_shortlist
from fastattn.weights.ctranslate2.file import parse as parse_ctranslate2
from fastattn.weights.download.package_index import PackageIndex
from fastattn.weights.download.pip_settings import PipSettings
from fastattn.weights.folder import Directory, map_file
from fastattn.weights.gguf.architecture import read_model
from fastattn.weights.marian.model_file import parse_npz

MEMORY = 200 << 20
FLOOR = 200_000


class Steps:
    """Counts lines and calls of built-in functions; raises AssertionError past ``most``."""

    def __init__(self, most: float) -> None:
        self.count, self.most = 0, most

    def __enter__(self) -> "Steps":
        sys.setprofile(self._on_call)
        sys.settrace(self._on_line)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        sys.setprofile(None)

    def _on_call(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "c_call":
            self._step()

    def _on_line(self, frame: FrameType, event: str, argument: object) -> Any:
        self._step()
        return self._on_line

    def _step(self) -> None:
        self.count += 1
        if self.count > self.most:
            self.__exit__()
            raise AssertionError(f"more than {self.most:,.0f} steps")


def limit_memory(more: int) -> None:
    """Have the system refuse more memory than that over what the process has; nothing where it cannot."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[5])
    except (ImportError, OSError):  # not Linux
        return
    most = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _spm(path: Path, text: str) -> None:
    model = SentencePiece(path.read_bytes())
    model.pieces(text)


def _vocabulary_map(path: Path, text: str) -> None:
    tokens = ("<unk>", "</s>", "a", "b")
    held = TranslationText(tokens, tokens, "<unk>", "</s>", vocabulary_map=path.read_bytes())
    VocabularyMap(held, {token: index for index, token in enumerate(tokens)}).candidates(text.split())


def _page(path: Path, text: str) -> None:
    """A page of links, and the lookup of one of its files."""
    settings = PipSettings(find_links=(str(path),), no_index=True)
    failures: list[str] = []
    found = list(PackageIndex(settings).find("project", "wanted.zip", failures))
    if failures:
        raise FastattnError("; ".join(failures))
    assert len(found) == 1


def _float32(tensors: dict[str, safetensors.StoredTensor]) -> None:
    for tensor in tensors.values():
        tensor.array() if tensor.dtype == "I8" else tensor.float32()


READERS: dict[str, Callable[[Path, str], object]] = {
    "ctranslate2": lambda path, text: parse_ctranslate2(map_file(path), str(path)),
    "gguf": lambda path, text: read_model(Directory(path.parent), [path.name]),
    "marian npz": lambda path, text: parse_npz(map_file(path), str(path)),
    "page": _page,
    "pytorch": lambda path, text: _float32(pytorch.parse(map_file(path), str(path))),
    "safetensors": lambda path, text: _float32(safetensors.parse(map_file(path), str(path))),
    "shortlist": lambda path, text: read_shortlist(Directory(path.parent), path.name, ("<unk>",), ("<unk>",), False),
    "spm": _spm,
    "tokenizer": lambda path, text: HuggingFaceTokenizer(path.read_bytes(), 512).encode([text]),
    "vocabulary map": _vocabulary_map,
}


def main() -> int:
    reader, path, steps = READERS[sys.argv[1]], Path(sys.argv[2]), int(sys.argv[3])
    text = Path(sys.argv[4]).read_text("utf-8") if len(sys.argv) > 4 else ""
    size = path.stat().st_size + len(text)
    limit_memory(MEMORY + size)
    outcome = "done"
    try:
        if steps:
            with Steps(FLOOR + steps * size):
                reader(path, text)
        else:
            reader(path, text)
    except FastattnError as error:
        outcome = f"{type(error).__name__}: {error}"
        assert len(outcome.splitlines()) == 1, outcome
    sys.stdout.write(outcome + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
