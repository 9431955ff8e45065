"""Writes CTranslate2 directories of every binary version, and makes random little Transformers to put in them."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.spec.quantized import QuantizedTensor

# uint16 stands for bfloat16: NumPy has no such type, so its bits are kept.
TYPE_IDS = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4, "uint16": 5}


def write_model(path: Path, variables: Mapping[str, np.ndarray], **options: Any) -> Path:
    """Write ``path/model.bin`` (the folder is made), with the options of model_bytes, and return the folder."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "model.bin").write_bytes(model_bytes(variables, **options))
    return path


def model_bytes(
    variables: Mapping[str, np.ndarray],
    *,
    version: int = 6,
    spec: str = "TransformerSpec",
    revision: int = 7,
    aliases: Mapping[str, str] | None = None,
) -> bytes:
    """The bytes of a model.bin; uint16 arrays are bfloat16 bits."""
    if version < 3 and aliases:
        raise ValueError("binary versions 1 and 2 have no aliases")
    parts = [struct.pack("<I", version)]
    if version >= 2:
        parts += [_string(spec), struct.pack("<I", revision)]
    parts.append(struct.pack("<I", len(variables)))
    for name, value in variables.items():
        value = np.asarray(value)
        parts += [_string(name), struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape)]
        if version >= 4:
            parts.append(struct.pack("<BI", TYPE_IDS[value.dtype.name], value.nbytes))
        else:
            if value.dtype.name not in ("float32", "int16", "int8"):
                raise ValueError(f"binary version {version} cannot hold {value.dtype.name} ({name})")
            parts.append(struct.pack("<BI", value.itemsize, value.size))
        parts.append(value.tobytes())
    if version >= 3:
        parts.append(struct.pack("<I", len(aliases or {})))
        for alias, target in (aliases or {}).items():
            parts += [_string(alias), _string(target)]
    return b"".join(parts)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<H", len(encoded) + 1) + encoded + b"\0"


def write_vocabularies(
    path: Path, source: Sequence[str], target: Sequence[str] | None = None, *, json_files: bool = True
) -> None:
    """Write ``shared_vocabulary`` (no target given) or the source's and the target's, as .json or as .txt."""
    names = {"shared": source} if target is None else {"source": source, "target": target}
    for name, tokens in names.items():
        if json_files:
            text = json.dumps(list(tokens), ensure_ascii=False)
            (path / f"{name}_vocabulary.json").write_text(text, encoding="utf-8")
        else:
            text = "".join(token + "\n" for token in tokens)
            (path / f"{name}_vocabulary.txt").write_text(text, encoding="utf-8", newline="\n")


def write_config(path: Path, **changes: object) -> None:
    """Write ``config.json`` (binary version 6) with the converter's defaults, changed as told."""
    config: dict[str, object] = {
        "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "decoder_start_token": "<s>",
        "add_source_bos": False, "add_source_eos": False, "layer_norm_epsilon": None,
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(config | changes), encoding="utf-8")


def write_folder(path: Path, variables: Mapping[str, np.ndarray], **options: Any) -> Path:
    """A complete folder of version 6 around the variables of random_transformer's default sizes."""
    write_model(path, variables, **options)
    write_vocabularies(path, vocabulary(23), vocabulary(19))
    write_config(path)
    return path


def write_tiny(path: Path) -> Path:
    """A complete folder of a random Transformer whose vocabularies, of 19 words, are the same."""
    write_model(path, random_transformer(np.random.default_rng(3), source_vocabulary=19, target_vocabulary=19))
    write_vocabularies(path, vocabulary(19), vocabulary(19))
    write_config(path)
    return path


def vocabulary(size: int) -> list[str]:
    """``<unk>``, ``<s>``, ``</s>``, then made-up pieces."""
    return (["<unk>", "<s>", "</s>"] + [f"▁w{i}" for i in range(size)])[:size]


def random_transformer(
    rng: np.random.Generator,
    *,
    encoder_layers: int = 2,
    decoder_layers: int = 2,
    width: int = 16,
    heads: int = 4,
    key_heads: int | None = None,
    head_width: int | None = None,
    inner_width: int = 24,
    source_vocabulary: int = 23,
    target_vocabulary: int = 19,
    pre_norm: bool = True,
    activation: int = 0,
    gated: bool = False,
    rms_norm: bool = False,
    biases: bool = True,
    embedding_norm: bool = False,
    position_table: int = 0,
    rotary: bool = False,
    alibi: bool = False,
    relative_buckets: int = 0,
    scale_embeddings: float | bool = True,
    start_from_zero_embedding: bool = False,
) -> dict[str, np.ndarray]:
    """The variables of a TransformerSpec of revision 7 with random float32 values (decoder_layers=0: encoder only)."""
    variables: dict[str, np.ndarray] = {}

    def array(*shape: int) -> np.ndarray:
        return rng.normal(0, shape[-1] ** -0.5, shape).astype(np.float32)

    def norm(name: str) -> None:
        variables[name + "/gamma"] = (1 + 0.1 * rng.normal(size=width)).astype(np.float32)
        if not rms_norm:
            variables[name + "/beta"] = (0.1 * rng.normal(size=width)).astype(np.float32)

    def linear(name: str, outputs: int, inputs: int) -> None:
        variables[name + "/weight"] = array(outputs, inputs)
        if biases:
            variables[name + "/bias"] = (0.1 * rng.normal(size=outputs)).astype(np.float32)

    def attention(name: str, cross: bool) -> None:
        norm(name + "/layer_norm")
        queries = heads * (head_width or width // heads)
        keys = (key_heads or heads) * (head_width or width // heads)
        outputs = (queries, 2 * keys) if cross else (queries + 2 * keys,)
        for i, rows in enumerate(outputs):
            linear(f"{name}/linear_{i}", rows, width)
        linear(f"{name}/linear_{len(outputs)}", width, queries)
        if key_heads:
            variables[name + "/num_heads_kv"] = np.int32(key_heads)
        if head_width:
            variables[name + "/head_dim"] = np.int32(head_width)
        if rotary and not cross:
            variables[name + "/rotary_dim"] = np.int32(0)
            variables[name + "/rotary_interleave"] = np.int8(0)
            variables[name + "/rotary_base"] = np.float32(500.0)
        if relative_buckets and not cross:
            variables[name + "/relative_attention_bias"] = array(relative_buckets, heads)
            variables[name + "/relative_attention_max_distance"] = np.int32(20)

    def stack(prefix: str, layers: int, size: int, embeddings: str) -> None:
        variables[f"{prefix}/{embeddings}/weight"] = array(size, width)
        variables[f"{prefix}/num_heads"] = np.int16(heads)
        variables[f"{prefix}/pre_norm"] = np.int8(pre_norm)
        variables[f"{prefix}/activation"] = np.int8(activation)
        is_flag = isinstance(scale_embeddings, bool)
        variables[f"{prefix}/scale_embeddings"] = (np.int8 if is_flag else np.float32)(scale_embeddings)
        if position_table:
            variables[f"{prefix}/position_encodings/encodings"] = array(position_table, width)
        if embedding_norm:
            norm(f"{prefix}/layernorm_embedding")
        for i in range(layers):
            attention(f"{prefix}/layer_{i}/self_attention", cross=False)
            if prefix == "decoder":
                attention(f"{prefix}/layer_{i}/attention", cross=True)
            norm(f"{prefix}/layer_{i}/ffn/layer_norm")
            linear(f"{prefix}/layer_{i}/ffn/linear_0", inner_width, width)
            if gated:
                linear(f"{prefix}/layer_{i}/ffn/linear_0_noact", inner_width, width)
            linear(f"{prefix}/layer_{i}/ffn/linear_1", width, inner_width)
        if pre_norm:
            norm(f"{prefix}/layer_norm")

    stack("encoder", encoder_layers, source_vocabulary, "embeddings_0")
    if decoder_layers:
        stack("decoder", decoder_layers, target_vocabulary, "embeddings")
        linear("decoder/projection", target_vocabulary, width)
        variables["decoder/alibi"] = np.int8(alibi)
        variables["decoder/alibi_use_positive_positions"] = np.int8(0)
        variables["decoder/scale_alibi"] = np.int8(0)
        variables["decoder/start_from_zero_embedding"] = np.int8(start_from_zero_embedding)
        variables["decoder/alignment_layer"] = np.int16(-1)
        variables["decoder/alignment_heads"] = np.int16(1)
    return variables


def quantize(variables: Mapping[str, np.ndarray], precision: str) -> dict[str, np.ndarray]:
    """Store the weights as a converter would: "int8" by rows, "int16" by tensor, "float16", "bfloat16"."""
    stored: dict[str, np.ndarray] = {}
    for name, value in variables.items():
        value = np.asarray(value)
        if not value.ndim or value.dtype != np.float32:
            stored[name] = value
        elif precision == "float16":
            stored[name] = value.astype(np.float16)
        elif precision == "bfloat16":
            # Rounds half up, which is near enough for a test that decodes what was stored.
            stored[name] = ((np.ascontiguousarray(value).view(np.uint32) + 0x8000) >> 16).astype(np.uint16)
        elif not name.endswith("/weight"):
            stored[name] = value
        elif precision == "int8":
            scale = (127 / np.abs(value).max(axis=1)).astype(np.float32)
            stored[name] = np.rint(value * scale[:, None]).astype(np.int8)
            stored[name + "_scale"] = scale
        elif precision == "int16":
            scale = np.float32(1024 / np.abs(value).max())
            stored[name] = np.rint(value * scale).astype(np.int16)
            stored[name + "_scale"] = np.asarray(scale)
        else:
            raise ValueError(f"unknown precision {precision}")
    return stored


def as_float32(tensors: Mapping[str, np.ndarray | QuantizedTensor]) -> dict[str, np.ndarray]:
    """A checkpoint's tensors, quantized ones as the arrays that they stand for."""
    return {name: x.float32() if isinstance(x, QuantizedTensor) else x for name, x in tensors.items()}


def first_version_names(variables: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same variables under the OpenNMT-tf names of binary version 1, which stored no attributes."""
    renamed = {}
    for name, value in variables.items():
        weight, scale = (name.removesuffix("_scale"), "_scale") if name.endswith("_scale") else (name, "")
        if not np.ndim(value) and not scale:
            continue
        parts = weight.split("/")
        if "decoder" in parts:
            attention = {"self_attention": "masked_multi_head", "attention": "multi_head"}
        else:
            attention = {"self_attention": "multi_head"}
        words = {"layer_norm": "LayerNorm", "linear_0": "conv1d", "projection": "dense", "weight": "kernel"} | attention
        parts = [words.get(part, part.replace("linear_", "conv1d_")) for part in parts]
        text = "/".join(parts).replace("embeddings_0/kernel", "w_embs").replace("embeddings/kernel", "w_embs")
        renamed[f"transformer/{text}{scale}:0"] = value
    return renamed
