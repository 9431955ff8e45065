"""What one child process is asked to measure."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Request:
    """part       of bench.parts.PARTS, and ``item`` what of it where a part takes several processes

    size       "full", "quick" (a minute in all) or "toy" (only that everything works)
    scaling    only what the plot over threads needs
    only       cases whose name contains it
    precision  of the products, on every side that has it
    sentences  how many are translated, or 0: as many as the size says
    engines    the competitors of encoding and translation; all where none is named
    data       a folder of corpora, "" for built-in sentences
    cache      where peers' copies of models are kept
    """

    part: str
    threads: int
    item: str = ""
    size: str = "full"
    scaling: bool = False
    only: str = ""
    precision: str = "float32"
    sentences: int = 0
    engines: tuple[str, ...] = ()
    encoder: str = ""  # folders of the models
    translator: str = ""
    data: str = ""
    cache: str = ""

    def choose(self, full: Any, quick: Any, toy: Any) -> Any:
        return {"full": full, "quick": quick, "toy": toy}[self.size]

    def compares(self, engine: str) -> bool:
        return not self.engines or engine in self.engines

    @property
    def corpora(self) -> Path | None:
        return Path(self.data) if self.data else None

    @property
    def title(self) -> str:
        item = f" {self.item}" if self.item else ""
        return f"{self.part}{item} in {self.precision}, {self.threads} thread{'s'[: self.threads > 1]}"

    as_dict = asdict


def say(message: str) -> None:
    """Progress."""
    print(message, file=sys.stderr, flush=True)
