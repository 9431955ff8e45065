"""tests/goldens/architectures.npz and decoders.npz: rows of golden cases, names and shapes of their tensors."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests import GOLDENS
from tests.architectures.case import Case
from tests.architectures.decoders import TASK
from tests.architectures.drawing import draw_all
from tests.architectures.folders import write_folder
from tests.weights.containers.safetensors_writer import safetensors_bytes

FILE, DECODERS_FILE = GOLDENS / "architectures.npz", GOLDENS / "decoders.npz"
TRANSLATORS_FILE = GOLDENS / "translators.npz"
Shapes = dict[str, tuple[int, ...]]


def pack_shapes(shapes: dict[str, Shapes]) -> np.ndarray:
    """The shapes of each case's tensors as the bytes of a JSON."""
    return np.frombuffer(json.dumps(shapes).encode(), np.uint8)


@cache
def _stored(file: Path) -> dict[str, np.ndarray]:
    """An archive's arrays."""
    with np.load(file) as goldens:
        return dict(goldens)


@cache
def _shapes(file: Path) -> dict[str, Shapes]:
    return {
        name: {tensor: tuple(shape) for tensor, shape in shapes.items()}
        for name, shapes in json.loads(_stored(file)["shapes"].tobytes()).items()
    }


def read_goldens(case: Case) -> tuple[Shapes, np.ndarray]:
    """(shapes of the tensors by name, rows that ``some_rows`` keeps of each sentence, end to end)."""
    file = DECODERS_FILE if case.task == TASK else FILE
    return dict(_shapes(file)[case.name]), _stored(file)[case.name]


def read_continuations(case: Case) -> np.ndarray:
    """tokens_BT of a decoder's case."""
    return _stored(DECODERS_FILE)[f"{case.name} tokens"]


def write_golden(case: Case, folder: Path, change: dict[str, Any] | None = None) -> np.ndarray:
    """Write the case's folder, with another configuration perhaps; returns its rows."""
    shapes, expected = read_goldens(case)
    write_folder(folder, case.config | (change or {}), draw_all(shapes, case.seed))
    return expected


@cache
def translators() -> dict[str, dict[str, Any]]:
    """name -> what goldens/make_architectures.py tells of an encoder-decoder."""
    told: dict[str, dict[str, Any]] = json.loads(_stored(TRANSLATORS_FILE)["told"].tobytes())
    return told


def translator_logits(name: str) -> np.ndarray:
    """A golden encoder-decoder's logits [V] behind the target that is told."""
    return _stored(TRANSLATORS_FILE)[f"{name} logits"]


def write_translator(name: str, folder: Path) -> Path:
    """Write the folder of a golden encoder-decoder."""
    told, stored = translators()[name], _stored(TRANSLATORS_FILE)
    tensors = draw_all({theirs: tuple(shape) for theirs, shape in told["shapes"].items()}, 0)
    folder.mkdir(parents=True, exist_ok=True)
    tensors[told["changed"]] = stored[f"{name} {told['changed']}"]
    for key, content in stored.items():
        if key.startswith(f"{name}/"):
            (folder / key.partition("/")[2]).write_bytes(content.tobytes())
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    return folder
