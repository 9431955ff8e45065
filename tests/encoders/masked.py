"""Folders of masked language models that tests share, as such and as sentence-transformers' sparse encoders."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tests.architectures.case import FIRST_WORD
from tests.encoders.classifiers import write_classifier

MASKED = "bert-fill-mask"


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
    (folder / "1_SpladePooling").mkdir()
    for name, content in {
        "modules.json": listed,
        "1_SpladePooling/config.json": {"pooling_strategy": "max", "activation_function": "relu"} | pooling,
        "sentence_bert_config.json": {"transformer_task": "fill-mask", "module_output_name": "token_embeddings"},
        "config_sentence_transformers.json": {"model_type": "SparseEncoder"} | (top or {}),
    }.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder
