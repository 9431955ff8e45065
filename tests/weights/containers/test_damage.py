"""A few bytes of any container damaged: it is refused in a line that names it, or read."""

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.errors import CheckpointError
from fastattn.weights.containers import gguf, onnx, pytorch, safetensors
from fastattn.weights.ctranslate2 import file
from fastattn.weights.marian import model_file
from tests.weights.containers.pytorch_writer import pytorch_bytes
from tests.weights.containers.safetensors_writer import safetensors_bytes
from tests.weights.ctranslate2 import writer as ctranslate2_writer
from tests.weights.gguf.writer import Stored, Value, gguf_bytes, random_blocks
from tests.weights.marian import writer as marian_writer
from tests.weights.mutators import damaged_copies
from tests.weights.recurrent.writer import onnx_bytes

RNG = np.random.default_rng(1)
ARRAYS = {"a": np.ones((2, 3), np.float32), "b": np.ones(4, np.float16), "c": np.ones(0, np.float32)}
MATRICES = {"a_W": RNG.normal(size=(2, 3)).astype(np.float32), "b": np.ones((1, 4), np.float32)}
GGUF = {"a": "text", "b": Value("i32", [1, 2]), "c": ["x", "y"]}
BLOCKS = {"a": random_blocks(RNG, "Q6_K", (1, 256)), "b": Stored(0, (2,), bytes(8))}
CELL = {"lstm.weight_ih_l0": (8, 3), "lstm.weight_hh_l0": (8, 2), "lstm.bias_ih_l0": (8,), "lstm.bias_hh_l0": (8,)}
INT8 = ctranslate2_writer.quantize({"a/weight": MATRICES["a_W"], "b": ARRAYS["a"]}, "int8")
SOUND: dict[str, tuple[bytes, Callable]] = {
    "safetensors": (safetensors_bytes(ARRAYS), safetensors.parse),
    "pytorch": (pytorch_bytes(ARRAYS), pytorch.parse),
    "pytorch stream": (pytorch_bytes(ARRAYS, "stream"), pytorch.parse),
    "onnx": (onnx_bytes({name: np.ones(shape, np.float32) for name, shape in CELL.items()}, ("",)), onnx.parse),
    "gguf": (gguf_bytes(GGUF, BLOCKS), lambda data, where: gguf.parse_gguf(data, where).tensors),
    "ctranslate2": (
        ctranslate2_writer.model_bytes(INT8, aliases={"c": "b"}), lambda data, where: file.parse(data, where).variables
    ),
    "marian npz": (marian_writer.npz_bytes(MATRICES), model_file.parse_npz),
    "marian bin": (marian_writer.bin_bytes(MATRICES, marian_writer.MARIAN), model_file.parse_bin),
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_bytes(name: str, data: st.DataObject) -> None:
    sound, parse = SOUND[name]
    damaged = memoryview(bytearray(data.draw(damaged_copies(sound))))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zipfile's, of names given twice
            tensors = parse(damaged, "x")
        for tensor in tensors.values():
            if name != "ctranslate2":  # its scales are linked by the architecture
                assert tensor.vector.dtype == np.float32
    except CheckpointError as error:
        assert str(error).startswith("x: ") and "\n" not in str(error)


def test_what_is_damaged_is_sound() -> None:
    assert all(parse(memoryview(bytearray(sound)), "x") for sound, parse in SOUND.values())
