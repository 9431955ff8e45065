"""The GGUF file: what the gguf package makes of blocks, to the bit; what it writes; each fault by name."""

import struct

import numpy as np
import pytest

from fastattn.errors import CheckpointError
from fastattn.spec.quantized import Int4Tensor, UnreadTensor
from fastattn.weights.containers.gguf import NUMBERS_AT_ONCE, BlockTensor, parse_gguf
from tests import GOLDENS
from tests.messages import refused
from tests.weights.gguf import writer
from tests.weights.gguf.writer import Stored, Value, gguf_bytes


def parse(data: bytes) -> dict[str, BlockTensor]:
    return parse_gguf(memoryview(bytearray(data)), "x.gguf").tensors


@pytest.mark.parametrize("kind", writer.TENSOR_KINDS)
def test_blocks_become_the_numbers_of_the_gguf_package(kind: str) -> None:
    with np.load(GOLDENS / "gguf.npz") as goldens:
        blocks, numbers = goldens[f"{kind} blocks"], goldens[f"{kind} numbers"]
    tensor = parse(gguf_bytes({}, {"a": Stored(writer.TENSOR_KINDS[kind][0], numbers.shape, blocks.tobytes())}))["a"]
    assert (tensor.dtype, tensor.shape) == (kind, numbers.shape)
    assert tensor.float32().dtype == np.float32
    assert np.array_equal(tensor.float32().view(np.uint32), numbers.view(np.uint32))
    assert np.array_equal(tensor.matrix(transposed=True), numbers.T)
    assert np.array_equal(tensor.vector, numbers.reshape(-1))


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q4_K"])
def test_four_bits_with_scales_and_minima_of_32_columns(kind: str) -> None:
    tensor = parse(gguf_bytes({}, {"a": writer.random_blocks(np.random.default_rng(4), kind, (3, 512))}))["a"]
    matrix, whole = tensor.matrix(), tensor.float32()
    assert isinstance(matrix, Int4Tensor) and tensor.precision == "int4"
    assert np.array_equal(matrix.float32(), whole)
    half = matrix.half()
    assert half.scales_FG.dtype == half.minima_FG.dtype == np.float16
    greatest = np.abs(matrix.minima_FG.astype(np.float32)).max() + 15 * matrix.scales_FG.astype(np.float32).max()
    assert np.abs(half.float32() - whole).max() <= (greatest * 2.0**-11 if kind == "Q4_K" else 0)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_K"])
def test_four_bits_whose_minima_float16_cannot_hold(kind: str) -> None:
    tensor = parse(gguf_bytes({}, {"a": writer.random_blocks(np.random.default_rng(4), kind, (3, 512), 1e4)}))["a"]
    matrix = tensor.matrix()
    assert isinstance(matrix, UnreadTensor) and matrix.form == "blocks" and np.isfinite(matrix.float32()).all()
    assert np.array_equal(matrix.float32(), tensor.float32())


@pytest.mark.parametrize("kind", ["Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0"])
def test_other_blocks_become_float32_when_that_is_asked_for(kind: str) -> None:
    tensor = parse(gguf_bytes({}, {"a": writer.random_blocks(np.random.default_rng(4), kind, (3, 512))}))["a"]
    matrix = tensor.matrix()
    assert isinstance(matrix, UnreadTensor) and matrix.form == "blocks"
    assert (matrix.shape, matrix.size) == ((3, 512), 1536)
    assert np.array_equal(matrix.float32(), tensor.float32()) and tensor.precision == "int8"
    assert np.array_equal(matrix.take(np.array([2, -1])), np.stack([tensor.float32()[2], np.zeros(512, np.float32)]))


def test_a_tensor_of_many_blocks_is_that_of_its_parts() -> None:
    stored = writer.random_blocks(np.random.default_rng(5), "Q8_0", (3, NUMBERS_AT_ONCE // 2 + 32))
    whole = parse(gguf_bytes({}, {"a": stored}))["a"].float32()
    half = len(stored.data) // 3
    for i in range(3):
        row = Stored(stored.kind, (1, stored.shape[1]), stored.data[i * half : (i + 1) * half])
        assert np.array_equal(parse(gguf_bytes({}, {"a": row}))["a"].float32()[0], whole[i])


def test_a_file_of_the_gguf_package() -> None:
    with np.load(GOLDENS / "gguf.npz") as goldens:
        data, numbers = goldens["written"], goldens["Q4_1 numbers"]
    file = parse_gguf(memoryview(data), "x.gguf")
    numbers_there = file.metadata.values.pop("some.numbers")
    assert numbers_there.tolist() == [1.5, -2.0]
    assert file.metadata.values == {
        "general.architecture": "llama", "general.alignment": 64, "a.text": "naïve 明天",
        "a.list": ["one", "", "three"], "a.truth": True, "a.count": 1 << 40,
    }  # fmt: skip
    assert np.array_equal(file.tensors["floats"].matrix(), np.arange(6, dtype=np.float32).reshape(2, 3))
    assert np.shares_memory(file.tensors["floats"].matrix(), data)
    assert np.array_equal(file.tensors["blocks"].float32(), numbers)


@pytest.mark.parametrize("version", [2, 3])
def test_values_of_every_type(version: int) -> None:
    numbers = {"u8": 255, "i8": -128, "u16": 65535, "i16": -9, "u32": 1 << 31, "i32": -5, "f32": 0.5, "bool": True}
    numbers |= {"u64": 1 << 63, "i64": -(1 << 62), "f64": 0.1}
    metadata = {kind: Value(kind, number) for kind, number in numbers.items()}
    metadata |= {f"{kind} list": Value(kind, [number] * 3) for kind, number in numbers.items()}
    metadata |= {"no numbers": Value("i64", []), "no texts": [], "texts": ["a", "", "明天"], "text": ""}
    found = parse_gguf(memoryview(bytearray(gguf_bytes(metadata, {}, version=version))), "x").metadata.values
    assert list(found) == list(metadata)
    for kind, number in numbers.items():
        assert found[kind] == number and type(found[kind]) is type(number)
        assert found[f"{kind} list"].tolist() == [number] * 3
    assert len(found["no numbers"]) == 0
    assert [found[name] for name in ("no texts", "texts", "text")] == [[], ["a", "", "明天"], ""]


def keyed(value: bytes, key: str = "a") -> bytes:
    """A file of one key whose value is these bytes."""
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + writer.text(key) + value


def listed(kind: int, count: int, more: bytes = b"") -> bytes:
    return keyed(struct.pack("<IIQ", 9, kind, count) + more)


def tensor(kind: int = 0, shape: tuple[int, ...] = (2,), size: int = 8, offset: int | None = None) -> bytes:
    return gguf_bytes({}, {"a": Stored(kind, shape, bytes(size), offset)})


PAIR = Stored(0, (2,), bytes(8))
HUGE = 2**64 - 1
DAMAGED = [
    b"GGU", b"PK\3\4" + bytes(40), b"GGUF" + struct.pack("<I", 1) + bytes(40),
    b"GGUF" + struct.pack("<I", 4) + bytes(40), b"GGUF" + struct.pack(">I", 3) + bytes(40),
    b"GGUF" + struct.pack("<I", 3), gguf_bytes({}, {}, counts=(0, HUGE)), gguf_bytes({}, {}, counts=(HUGE, 0)),
    gguf_bytes({}, {}, counts=(0, 9)), gguf_bytes({}, {}, counts=(9, 0)),
    b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, HUGE) + bytes(20),
    gguf_bytes({"a": "1"}, {}, counts=(0, 2)).rstrip(b"\0") + writer.text("a") + writer.value_bytes("2"),
    gguf_bytes({"a\n": "1"}, {}), gguf_bytes({"": "1"}, {}), gguf_bytes({"a": b"\xff"}, {}),
    b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + writer.text(b"\xff") + bytes(20), keyed(struct.pack("<I", 13) + bytes(8)),
    keyed(struct.pack("<IB", 7, 2)), listed(8, HUGE), listed(8, 2, writer.text("") + struct.pack("<Q", HUGE)),
    listed(8, 1, struct.pack("<Q", 5) + b"abc"), listed(0, HUGE), listed(10, HUGE // 8 + 1),
    listed(9, 1, struct.pack("<IQ", 0, 0)), gguf_bytes({"general.alignment": Value("u32", 48)}, {}),
    gguf_bytes({"general.alignment": Value("u32", 0)}, {}),
    gguf_bytes({}, {"a": PAIR, "b": PAIR}).replace(writer.text("b"), writer.text("a")), tensor(shape=(1, 1, 1, 1, 2)),
    tensor(shape=()), tensor(shape=(0, 3), size=0), tensor(23), tensor(77), tensor(2, (4, 8), 18),
    tensor(shape=(HUGE, HUGE)), tensor(shape=(4,)), tensor(offset=64), tensor(offset=4),
    gguf_bytes({}, {"a": PAIR, "b": PAIR._replace(offset=0)}),
]  # fmt: skip


def test_each_fault_of_a_gguf_file_is_named() -> None:
    for data in DAMAGED:
        with refused(CheckpointError, "x.gguf: "):
            parse(data)
