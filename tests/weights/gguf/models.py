"""The small models of gguf_models.npz, as llama.cpp's converter wrote them."""

from functools import cache

import numpy as np

from fastattn.weights.containers.gguf import parse_gguf
from tests import GOLDENS
from tests.weights.gguf import writer
from tests.weights.gguf.writer import Stored, Value, gguf_bytes

FILE = GOLDENS / "gguf_models.npz"


@cache
def goldens() -> dict[str, np.ndarray]:
    with np.load(FILE) as stored:
        return dict(stored)


def names() -> list[str]:
    return [name.removesuffix(": file") for name in goldens() if name.endswith(": file")]


def file(name: str) -> bytes:
    return goldens()[f"{name}: file"].tobytes()


def expected(name: str) -> tuple[np.ndarray, np.ndarray]:
    """(ids, log-probabilities after the last ones of them), by transformers."""
    return goldens()[f"{name}: ids"], goldens()[f"{name}: log probs"]


def contents(name: str) -> tuple[dict[str, object], dict[str, Stored]]:
    """The metadata and tensors of a model's file, for the writer."""
    read = parse_gguf(memoryview(file(name)), name)
    kinds = {bool: "bool", int: "u32", float: "f32", np.ndarray: "i32", str: "", list: ""}
    values = {}
    for key, value in read.metadata.values.items():
        kind = kinds[type(value)]
        values[key] = Value(kind, value.tolist() if kind == "i32" else value) if kind else value
    tensors = {key: Stored(0, one.shape, bytes(one.data)) for key, one in read.tensors.items()}
    return values, tensors


def of_blocks(table: str = "Q4_1", width: int = 32, scale: float = 0.02, **kinds: str) -> bytes:
    """A model that is mostly of blocks of 4 bits, at random.

    table  the type of the embedding, which is the projection too if it is another
    kinds  of other parts; attn_v is of Q8_0
    """
    metadata, tensors = contents("llama")
    sizes = {"embedding_length": width, "attention.key_length": 8, "attention.value_length": 8}
    sizes |= {"feed_forward_length": width, "rope.dimension_count": 8}
    metadata |= {f"llama.{key}": Value("u32", size) for key, size in sizes.items()}
    rng, kinds = np.random.default_rng(7), {"attn_v": "Q8_0", "token_embd": table} | kinds
    rows = {"attn_k": 8, "attn_v": 8, "attn_q": 16, "token_embd": 64, "output": 64}
    made: dict[str, Stored] = {}
    for name, tensor in tensors.items():
        part = name.split(".")[-2]
        if len(tensor.shape) == 1:
            made[name] = writer.stored("F32", np.ones(width))
        elif part == "attn_output":
            made[name] = writer.stored("BF16", rng.standard_normal((width, 16)))
        elif part != "output" or table == "Q4_1":
            made[name] = writer.random_blocks(rng, kinds.get(part, "Q4_1"), (rows.get(part, width), width), scale)
    return gguf_bytes(metadata, made)
