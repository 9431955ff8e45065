"""The pictures of docs/attention.md, made by the mechanisms themselves: ``python -m bench gallery [FOLDER]``."""

from collections.abc import Callable
from pathlib import Path

from bench.gallery import masks, weights

PICTURES: dict[str, Callable[[], str]] = {**weights.PICTURES, **masks.PICTURES}


def write(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, draw in PICTURES.items():
        path = folder / f"{name}.svg"
        path.write_text(draw(), encoding="utf-8", newline="\n")
        paths.append(path)
    return paths
