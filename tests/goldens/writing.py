"""How the scripts of this folder write: each is run from the root, python -m tests.goldens.make_NAME, where the
frameworks that it imports are installed, which is nowhere else."""

import json
from types import ModuleType

import numpy as np

from tests import GOLDENS


def versions(*frameworks: ModuleType) -> str:
    return ", ".join(f"{framework.__name__} {framework.__version__}" for framework in frameworks)


def bytes_of(value: object) -> np.ndarray:
    """Plain data as the bytes of its JSON, for an archive of arrays."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def write_arrays(name: str, arrays: dict[str, np.ndarray], *frameworks: ModuleType) -> None:
    made = {"versions": np.array(versions(np, *frameworks))}
    np.savez_compressed(GOLDENS / f"{name}.npz", **made, **arrays)


def write_json(name: str, value: object, **layout: object) -> None:
    (GOLDENS / f"{name}.json").write_text(json.dumps(value, **layout) + "\n", encoding="utf-8")
