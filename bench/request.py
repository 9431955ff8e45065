"""The request to a child process: what to measure; progress, and silence."""

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Request:
    """part       of bench.orchestra.PARTS; ``item`` is a piece of it if the part takes several processes

    size       "full", "quick" (a minute in all) or "toy" (only a test that everything works)
    scaling    only the cases that the plot over threads needs
    only       only cases whose name contains this
    precision  of the products, for every side that has it
    sentences  number of sentences to translate; 0: by the size
    engines    the engines for encoding and translation; all if empty
    data       a folder of corpora, "" for built-in sentences
    cache      the folder for peers' copies of models
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
    light: str = ""
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
    print(message, file=sys.stderr, flush=True)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Without the warnings and progress of exporters and quantizers of other libraries."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
