"""Small encoders of every architecture at awkward sizes: config.json as its authors publish it, ids, and what is drawn.

Weights are drawn from their names and shapes (``drawing``), so the goldens and the oracle have the same ones.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

VOCABULARY = 61
FIRST_WORD = 5  # ids below are special: padding shifts RoBERTa's positions
TASKS = ("encoder", "sequence-classification", "token-classification", "fill-mask")


@dataclass(frozen=True)
class Case:
    """An architecture at a size.

    config   config.json as published
    task     one of TASKS: which head the files have
    lengths  of the sentences
    types    whether the sentences are pairs, with token types 0 and 1
    golden   whether it is among the goldens
    padding  an id that every third place has; None: ids are drawn, none special
    """

    name: str
    config: dict[str, Any]
    task: str = "encoder"
    lengths: tuple[int, ...] = (1, 2, 13, 37)
    types: bool = False
    golden: bool = False
    seed: int = 0
    padding: int | None = None

    @property
    def model_type(self) -> str:
        return str(self.config["model_type"])


def make_ids(case: Case) -> list[np.ndarray]:
    """int32 ids of each sentence."""
    rng = np.random.default_rng(case.seed + 1000)
    spread = VOCABULARY - FIRST_WORD
    ids_B = [(FIRST_WORD + rng.random(length) * spread).astype(np.int32) for length in case.lengths]
    for ids in ids_B if case.padding is not None else ():
        ids[::3] = case.padding
    return ids_B


def make_types(case: Case) -> list[np.ndarray] | None:
    """int32 token types of each sentence: zeros, then ones from about the middle; None for single texts."""
    if not case.types:
        return None
    return [(np.arange(length) * 2 > length).astype(np.int32) for length in case.lengths]


SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 36,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 53,
}
ONE_LAYER = {"hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 33}
ODD_HEADS = {"hidden_size": 33, "num_hidden_layers": 2, "num_attention_heads": 11, "intermediate_size": 47}
LIMIT = (40, 3)  # where there are 40 positions
LONG = (150, 1, 31)


def three(
    name: str,
    published: dict[str, Any],
    *changes: dict[str, Any],
    sizes: dict[str, Any] = SIZES,
    lengths: dict[int, tuple[int, ...]] | None = None,
    padding: dict[int, int] | None = None,
    types: tuple[int, ...] = (),
    golden: tuple[int, ...] = (0,),
    task: str = "encoder",
) -> list[Case]:
    """An architecture's cases: its configuration at its sizes, with each of the changes; the rest by their places."""
    padded, long = padding or {}, lengths or {}
    return [
        Case(
            f"{name}-{i}", sizes | published | change, task, long.get(i, Case.lengths), i in types, i in golden, i,
            padded.get(i),
        )
        for i, change in enumerate(changes)
    ]  # fmt: skip


def some_rows(output: np.ndarray) -> np.ndarray:
    """The rows of a sentence's output that the goldens hold: the first, the middle, the last; logits are one row."""
    return output[None] if output.ndim == 1 else output[sorted({0, len(output) // 2, len(output) - 1})]
