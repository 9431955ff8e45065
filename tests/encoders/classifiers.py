"""Folders of classifiers that tests share: drawn weights, words w5 to w60, pairs with token types."""

import json
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fastattn.encoders.base import EncoderBase
from fastattn.ops import reference
from fastattn.weights import read
from tests.architectures.case import Case
from tests.architectures.cases import CASES
from tests.architectures.drawing import draw_all
from tests.architectures.folders import write_folder
from tests.architectures.goldens import read_goldens

RERANKER, LABELS, TOKENS = (
    "bert-reranker-sequence-classification",
    "bert-sequence-classification",
    "bert-token-classification",
)
# With this class a tokenizer gives token types, in transformers too.
TOKENIZER_CONFIG = {
    "tokenizer_class": "BertTokenizer",
    "do_lower_case": False,
    "model_max_length": 40,
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "unk_token": "[UNK]",
    "mask_token": "[MASK]",
}


_Kind = TypeVar("_Kind", bound=EncoderBase)


def by_reference(kind: type[_Kind], folder: Path) -> _Kind:
    """One of the folder's checkpoint on the reference operations."""
    return kind.from_checkpoint(read(folder), ops=reference)


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def write_classifier(folder: Path, name: str = RERANKER, **config: Any) -> Path:
    """A golden case's folder; ``config``: what its config.json has beside, or instead."""
    case = case_of(name)
    folder.mkdir(parents=True, exist_ok=True)
    write_folder(folder, case.config | config, draw_all(read_goldens(case)[0], case.seed))
    if case.model_type == "bert":
        (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG), encoding="utf-8")
    return folder


def some_texts(count: int, longest: int = 12, seed: int = 3) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{i}" for i in rng.integers(5, 61, rng.integers(0, longest + 1))) for _ in range(count)]


def some_pairs(count: int, longest: int = 12) -> list[tuple[str, str]]:
    return list(zip(some_texts(count, longest), some_texts(count, longest, seed=4), strict=True))
