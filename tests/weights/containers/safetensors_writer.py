"""Writes safetensors files, and random little BERT directories and sentence-transformers folders around them."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

# uint16 stands for bfloat16: NumPy has no such type, so its bits are kept.
TYPES = {"float32": "F32", "float16": "F16", "uint16": "BF16", "float64": "F64", "int64": "I64"}


def safetensors_bytes(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> bytes:
    header: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    body = b""
    for name, value in tensors.items():
        value = np.ascontiguousarray(value)
        offsets = [len(body), len(body) + value.nbytes]
        header[name] = {"dtype": TYPES[value.dtype.name], "shape": list(value.shape), "data_offsets": offsets}
        body += value.tobytes()
    return with_header(json.dumps(header).encode(), body)


def with_header(header: bytes, body: bytes) -> bytes:
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + body


def random_bert(
    rng: np.random.Generator,
    *,
    layers: int = 2,
    width: int = 12,
    inner_width: int = 20,
    vocabulary: int = 17,
    positions: int = 9,
    prefix: str = "",
) -> dict[str, np.ndarray]:
    """Tensors of a BertModel by name, float32, with a pooler and position_ids."""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (vocabulary, width),
        "embeddings.position_embeddings.weight": (positions, width),
        "embeddings.token_type_embeddings.weight": (2, width),
        "embeddings.LayerNorm": (width,),
        "pooler.dense": (width, width),
    }
    for i in range(layers):
        layer = f"encoder.layer.{i}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            shapes[f"{layer}.attention.{name}"] = (width, width)
        shapes[f"{layer}.attention.output.LayerNorm"] = (width,)
        shapes[f"{layer}.intermediate.dense"] = (inner_width, width)
        shapes[f"{layer}.output.dense"] = (width, inner_width)
        shapes[f"{layer}.output.LayerNorm"] = (width,)
    tensors: dict[str, np.ndarray] = {}
    for name, shape in shapes.items():
        if name.endswith(".weight"):
            tensors[prefix + name] = rng.normal(size=shape).astype(np.float32)
        else:
            tensors[f"{prefix}{name}.weight"] = rng.normal(size=shape).astype(np.float32)
            tensors[f"{prefix}{name}.bias"] = rng.normal(size=shape[:1]).astype(np.float32)
    tensors[f"{prefix}embeddings.position_ids"] = np.arange(positions, dtype=np.int64)[None]
    return tensors


BERT_CONFIG = {
    "model_type": "bert", "hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 20,
    "vocab_size": 17, "max_position_embeddings": 9, "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
}  # fmt: skip


MEAN_POOLING = {"word_embedding_dimension": 12, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}


def write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def write_bert(path: Path, tensors: Mapping[str, np.ndarray], **changes: object) -> Path:
    """A Hugging Face directory; a config field changed to None is left out."""
    config = {name: value for name, value in (BERT_CONFIG | changes).items() if value is not None}
    write_json(path / "config.json", config)
    write_json(path / "tokenizer.json", {"version": "1.0"})
    (path / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    return path


def write_sentence_transformer(
    path: Path, tensors: Mapping[str, np.ndarray], modules: Mapping[str, dict | None]
) -> Path:
    """A folder of a BERT and these modules: dotted type -> config.json's content (None: no folder at all)."""
    write_bert(path, tensors)
    entries = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for i, (kind, config) in enumerate(modules.items(), 1):
        folder = f"{i}_{kind.rpartition('.')[2]}"
        entries.append({"idx": i, "name": str(i), "path": folder, "type": kind})
        if config is not None:
            write_json(path / folder / "config.json", config)
    write_json(path / "modules.json", entries)
    return path
