"""Folders of encoders with heads that tests share: drawn weights, words w5 to w60, pairs with token types."""

import json
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from tokenizers import Tokenizer

from fastattn.encoders.base import EncoderBase
from fastattn.ops import reference
from fastattn.weights import read
from tests.architectures.case import FIRST_WORD, Case
from tests.architectures.cases import CASES
from tests.architectures.drawing import draw_all
from tests.architectures.folders import write_folder
from tests.architectures.goldens import read_goldens

RERANKER, LABELS, TOKENS = (
    "bert-reranker-sequence-classification",
    "bert-sequence-classification",
    "bert-token-classification",
)
MASKED = "bert-fill-mask"
# With this class a tokenizer gives token types, in transformers too.
TOKENIZER_CONFIG = {
    "tokenizer_class": "BertTokenizer", "do_lower_case": False, "model_max_length": 40, "pad_token": "[PAD]",
    "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "mask_token": "[MASK]",
}  # fmt: skip


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


def write_json(folder: Path, files: dict[str, Any]) -> Path:
    """Name of a file, perhaps in a folder of its own -> its content."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def write_masked(folder: Path, name: str = MASKED, **config: Any) -> Path:
    """A golden case's folder; its tokenizer knows five special tokens, the mask among them, and w5 to w60."""
    write_classifier(folder, name, **config)
    path = str(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    tokenizer.add_special_tokens([tokenizer.id_to_token(i) for i in range(FIRST_WORD)])
    tokenizer.save(path)
    return folder


def write_sparse(folder: Path, top: dict[str, Any] | None = None, **pooling: Any) -> Path:
    """A SparseEncoder's folder; ``top``: of config_sentence_transformers.json, ``pooling``: of SpladePooling."""
    write_masked(folder)
    modules = {
        "": "sentence_transformers.base.modules.transformer.Transformer",
        "1_SpladePooling": "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling",
    }
    listed = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(modules.items())]
    files = {
        "modules.json": listed,
        "1_SpladePooling/config.json": {"pooling_strategy": "max", "activation_function": "relu"} | pooling,
        "sentence_bert_config.json": {"transformer_task": "fill-mask", "module_output_name": "token_embeddings"},
        "config_sentence_transformers.json": {"model_type": "SparseEncoder"} | (top or {}),
    }
    return write_json(folder, files)


def write_cross_encoder_files(folder: Path, settings: dict[str, Any], **transformer: Any) -> Path:
    """What sentence-transformers 6 adds to the folder of a CrossEncoder."""
    module = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
    files: dict[str, Any] = {
        "modules.json": [module],
        "sentence_bert_config.json": {
            "transformer_task": "sequence-classification",
            "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
            "module_output_name": "scores",
        }
        | transformer,
        "config_sentence_transformers.json": {"model_type": "CrossEncoder"} | settings,
    }
    return write_json(folder, files)
