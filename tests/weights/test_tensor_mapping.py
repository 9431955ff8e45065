"""The mapping of tensors: what an entry makes of arrays, what is copied, and a report of all that does not fit."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import ModelSpec
from fastattn.spec.quantized import QuantizedTensor
from fastattn.spec.tensors import tensor_shapes
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.ctranslate2.file import Variable
from fastattn.weights.marian.model_file import Item
from fastattn.weights.native import MULTIPLIER, SavedTensor
from fastattn.weights.tensor_mapping import (
    FirstRow,
    TensorSources,
    canonical_sources,
    check_sources,
    identity,
    make_tensors,
    map_tensors,
    sources,
    zeros,
)
from tests.models.tiny_models import random_checkpoint


@dataclass(frozen=True)
class Plain:
    stored: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    @property
    def vector(self) -> np.ndarray:
        return self.stored.reshape(-1)

    def matrix(self, transposed: bool) -> np.ndarray:
        return self.stored.T if transposed else self.stored


def counting(*shape: int, start: int = 0) -> Plain:
    return Plain(np.arange(start, start + np.prod(shape), dtype=np.float32).reshape(shape))


def int8(rows: int, columns: int, multiplier: float) -> Item:
    stored = np.arange(rows * columns, dtype=np.int8).reshape(rows, columns)
    return Item("here", stored, np.float32(multiplier))


A, B = counting(2, 3), counting(2, 3, start=10)
ROW = counting(4, 3, start=100)
VECTOR = counting(2, start=7)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (sources("a", shape=(2, 3)), A.stored),
        (sources("a", "b", shape=(4, 3)), np.concatenate([A.stored, B.stored])),
        (sources("a", "b", transposed=True, shape=(6, 2)), np.concatenate([A.stored.T, B.stored.T])),
        (sources("a", offset=1.0, shape=(2, 3)), A.stored + 1),
        (sources("a", added_row=FirstRow("row", 4), shape=(2, 3)), A.stored + ROW.stored[0]),
        (sources("a", added_row=FirstRow("row", 4, scale=0.5), shape=(2, 3)), A.stored + ROW.stored[0] / 2),
        (sources("v", shape=(2,)), VECTOR.stored),
        (sources(None, "v", shape=(4,)), np.array([0, 0, 7, 8])),
        (sources("flat", flat=True, shape=(3,)), np.arange(3)),
        (sources("nothing", default=zeros, shape=(2, 3)), np.zeros((2, 3))),
        (sources("a", default=zeros, shape=(2, 3)), A.stored),
        (sources(default=identity, shape=(3, 3)), np.eye(3)),
    ],
)
def test_what_an_entry_makes_of_arrays(part: TensorSources, expected: np.ndarray) -> None:
    everything = {"a": A, "b": B, "row": ROW, "v": VECTOR, "flat": counting(1, 3)}
    stored = {name: array for name, array in everything.items() if name in part.source_shapes}
    check_sources({"x.weight": part}, stored, "here", "misfit")
    (made,) = make_tensors({"x.weight": part}, stored).values()
    np.testing.assert_array_equal(made, expected)
    assert made.dtype == np.float32 and made.shape == part.shape


def test_a_vector_is_no_row_unless_it_may_be_one() -> None:
    stored = {"row": counting(1, 3), "matrix": Plain(np.zeros((1, 2, 3), np.float32))}
    check_sources({"x": sources("row", flat=True, shape=(3,))}, {"row": stored["row"]}, "here", "misfit")
    parts = {"x": sources("row", shape=(3,)), "y": sources("matrix", flat=True, shape=(2, 3))}
    with pytest.raises(
        CheckpointError, match=r"row should be \[3\], is \[1, 3\]; matrix should be \[2, 3\], is \[1, 2, 3\]"
    ):
        check_sources(parts, stored, "here", "misfit")


def test_int8_stays_so_where_all_that_is_joined_is_int8_and_a_weight() -> None:
    stored = {"a": int8(2, 3, 0.5), "b": int8(2, 3, 2.0), "f": A}
    parts = {
        "both.weight": sources("a", "b", shape=(4, 3)),
        "turned.weight": sources("a", transposed=True, shape=(3, 2)),
        "mixed.weight": sources("a", "f", shape=(4, 3)),
        "a.weight": sources("a", shape=(2, 3)),
        "positions": sources("a", shape=(2, 3)),
    }
    made = make_tensors(parts, stored)
    both, transposed = made["both.weight"], made["turned.weight"]
    assert isinstance(both, QuantizedTensor) and both.multipliers_F.tolist() == [0.5, 0.5, 2, 2]
    assert both.values_FD.tolist() == [[0, 1, 2], [3, 4, 5]] * 2
    assert isinstance(transposed, QuantizedTensor) and transposed.values_FD.tolist() == [[0, 3], [1, 4], [2, 5]]
    half = np.arange(6, dtype=np.float32).reshape(2, 3) / 2
    np.testing.assert_array_equal(made["mixed.weight"], np.concatenate([half, A.stored]))
    np.testing.assert_array_equal(made["positions"], half)


def test_an_array_is_not_copied_and_made_once_whatever_its_names() -> None:
    stored = {"a": A, "alias": A, "b": B, "q": int8(2, 3, 0.5)}
    names = {"one": "a", "two": "alias", "other": "b"}
    parts = {f"{ours}.weight": sources(theirs, shape=(2, 3)) for ours, theirs in names.items()}
    parts |= {f"joined{i}.weight": sources("a", "b", shape=(4, 3)) for i in range(2)} | {
        "q.weight": sources("q", shape=(2, 3))
    }
    made = make_tensors(parts, stored)
    assert made["one.weight"] is A.stored and made["other.weight"] is B.stored
    assert made["one.weight"] is made["two.weight"] and made["joined0.weight"] is made["joined1.weight"]
    quantized = made["q.weight"]
    assert isinstance(quantized, QuantizedTensor) and np.shares_memory(quantized.values_FD, stored["q"].array)


BYTES = np.arange(6, dtype=np.int8)
FLOATS = memoryview(np.arange(6, dtype=np.float32).tobytes())
MULTIPLIERS = StoredTensor("F32", (2,), memoryview(np.full(2, 0.5, np.float32).tobytes()), "m")
SAVED_INT8 = StoredTensor("I8", (2, 3), memoryview(BYTES.tobytes()), "i")
CONTAINERS = {
    "safetensors": StoredTensor("F32", (2, 3), FLOATS, "s"),
    "bfloat16": StoredTensor("BF16", (2, 3), memoryview((A.stored.view(np.uint32) >> 16).astype("<u2").tobytes()), "b"),
    "ctranslate2": Variable("v", "float32", A.stored),
    "marian": Item("i", A.stored),
    "fastattn": SavedTensor(StoredTensor("F32", (2, 3), FLOATS, "s")),
}
INT8 = {
    "ctranslate2": Variable("v", "int8", BYTES.reshape(2, 3), Variable("v_scale", "float32", np.full(2, 2, "<f4"))),
    "marian": Item("i", BYTES.reshape(2, 3), np.float32(0.5)),
    "fastattn": SavedTensor(SAVED_INT8, {MULTIPLIER: MULTIPLIERS}),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_containers_arrays_can_be_read_and_turned(name: str) -> None:
    array = CONTAINERS[name]
    assert array.shape == (2, 3)
    np.testing.assert_array_equal(array.vector, np.arange(6))
    np.testing.assert_array_equal(array.matrix(transposed=False), A.stored)
    transposed = array.matrix(transposed=True)
    assert isinstance(transposed, np.ndarray) and transposed.flags.c_contiguous
    np.testing.assert_array_equal(transposed, A.stored.T)


@pytest.mark.parametrize("name", INT8)
def test_every_containers_int8_stays_so(name: str) -> None:
    kept, transposed = INT8[name].matrix(transposed=False), INT8[name].matrix(transposed=True)
    assert isinstance(kept, QuantizedTensor)
    np.testing.assert_array_equal(kept.float32(), A.stored / 2)
    np.testing.assert_array_equal(
        transposed.float32() if isinstance(transposed, QuantizedTensor) else transposed, A.stored.T / 2
    )


def model(**changes) -> ModelSpec:
    return random_checkpoint(**changes).spec


def test_signs_are_filled_in_and_the_nearest_key_is_taken() -> None:
    table = {
        "STACK.embedding.weight": sources("STACK-words"),
        "encoder.embedding.weight": sources("source"),
        "STACK.layers.#.self_attention.qkv.*": sources("STACK-#-q-*", "STACK-#-k-*", "STACK-#-v-*", ends=("w", "b")),
        "STACK.layers.#.self_attention.qkv.bias": sources("STACK-bias-#"),
        "STACK.layers.#.self_attention.norm.*": sources("#/*"),
    }
    spec = model()
    rest = {re.sub(r"\d", "#", name): sources("rest") for name in tensor_shapes(spec)}
    told = ("embedding.weight", "self_attention.qkv.", "self_attention.norm.")
    rest = {name: entry for name, entry in rest.items() if not any(part in name for part in told)}
    parts = map_tensors(table | rest, spec, {"encoder": (1, 2), "decoder": (7, 7)})
    assert parts["encoder.embedding.weight"].names == ("source",)
    assert parts["decoder.embedding.weight"].names == ("decoder-words",)
    qkv = parts["decoder.layers.1.self_attention.qkv.weight"]
    assert qkv.source_shapes == dict.fromkeys(("decoder-7-q-w", "decoder-7-k-w", "decoder-7-v-w"), (16, 16))
    assert parts["encoder.layers.1.self_attention.qkv.bias"].source_shapes == {"encoder-bias-2": (48,)}
    assert parts["encoder.layers.0.self_attention.norm.bias"].names == ("1/bias",)
    assert list(parts) == list(tensor_shapes(spec))


def test_a_table_without_a_tensor_that_a_model_has_is_at_fault() -> None:
    with pytest.raises(LookupError, match=r"none of encoder.embedding.weight, encoder.embedding.\*, STACK.embedding.w"):
        map_tensors({}, model())


def test_a_report_tells_of_each_kind_and_ends(tmp_path: Path) -> None:
    """Of files with thousands of arrays too, whose names may have any length."""
    parts = canonical_sources(model(layers=30))
    fitting = {name: Plain(np.zeros(part.shape, np.float32)) for name, part in parts.items()}
    stored: dict = {f"strange{'e' * 10_000}{i}": counting(2, 3) for i in range(5000)}
    stored |= {name: counting(1, 1, 1) for name in list(fitting)[100:200]} | dict(list(fitting.items())[200:])
    with pytest.raises(CheckpointError) as caught:
        check_sources(parts, stored, "here", "tensors do not fit")
    message = str(caught.value)
    assert message.startswith("here: tensors do not fit: missing encoder.embedding.weight [19, 16]; missing")
    for part in ("and 80 more missing; unexpected strange", "and 4980 more unexpected; encoder.", "80 more misshapen"):
        assert part in message
    assert len(message) < 20_000
