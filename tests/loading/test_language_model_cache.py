"""A language model of blocks, as a generator and as an encoder: each finds what it was packed as, and keeps it."""

from pathlib import Path

import numpy as np
import pytest

from fastattn.encoders.encoder import Encoder
from fastattn.generation.generator import Generator
from tests.weights.gguf import models, writer
from tests.weights.gguf.writer import Value, gguf_bytes

pytestmark = pytest.mark.usefixtures("cache")


def tied_blocks() -> bytes:
    """A model of Q4_1 and Q4_K whose table, of Q6_K, is its projection too."""
    metadata, tensors = models.contents("llama")
    sizes = {"embedding_length": 256, "attention.key_length": 8, "attention.value_length": 8}
    metadata |= {f"llama.{key}": Value("u32", size) for key, size in (sizes | {"feed_forward_length": 256}).items()}
    rng, made = np.random.default_rng(7), {}
    rows = {"attn_k": 8, "attn_v": 8, "attn_q": 16, "token_embd": 64}
    for name, tensor in tensors.items():
        part = name.split(".")[-2]
        if len(tensor.shape) == 1:
            made[name] = writer.stored("F32", np.ones(256))
        elif part == "attn_output":
            made[name] = writer.stored("BF16", rng.standard_normal((256, 16)))
        elif part != "output":
            kind = {"token_embd": "Q6_K", "ffn_up": "Q4_K"}.get(part, "Q4_1")
            made[name] = writer.random_blocks(rng, kind, (rows.get(part, 256), 256), 0.0005)
    return gguf_bytes(metadata, made)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "model.gguf").write_bytes(tied_blocks())
    return tmp_path / "model.gguf"


@pytest.mark.parametrize("precision", ["int4", "int8", "bfloat16"])
def test_the_third_process_reads_nothing(file: Path, reads: list[Path], precision: str) -> None:
    found = [Generator(file, precision).generate(["w1 w2"], max_new_tokens=3) for _ in range(3)]
    assert found[0] == found[1] == found[2] and len(reads) == 2


def test_an_encoder_beside_a_generator(file: Path, reads: list[Path]) -> None:
    """Their layers have other names, so each has its own packed file."""
    for _ in range(3):
        Generator(file, "int4")
        Encoder(file, "int4")
    assert len(reads) == 4


def test_an_encoder_in_int8_is_balanced(file: Path, reads: list[Path]) -> None:
    np.testing.assert_array_equal(*(Encoder(file, "int8").encode(["w1 w2"]) for _ in range(2)))
