"""Folders of masked language models that tests share, as such and as sentence-transformers' sparse encoders."""

import json
from pathlib import Path
from typing import Any

from tests.classifiers import write_classifier

MASKED = "bert-fill-mask"


def write_masked(folder: Path, name: str = MASKED, **config: Any) -> Path:
    """A golden case's folder; its tokenizer knows w5 to w60 and, of a BERT, [MASK]."""
    return write_classifier(folder, name, **config)


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
