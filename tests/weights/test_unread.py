"""Matrices that are read when they are packed: the numbers of those read at once, a few rows at a time, none twice."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastattn import Translator
from fastattn.kernels.arguments import NR
from fastattn.ops import cpu
from fastattn.spec import quantized
from fastattn.spec.quantized import Tensor, UnreadTensor, as_float32, form_of, unread
from fastattn.spec.rounding import quantize, quantize_groups, round_on_read
from fastattn.system.memory import mapping_of
from fastattn.weights import read
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.native import convert
from fastattn.weights.tensor_mapping import make_tensors, sources
from tests.loading.caches import empty_cache
from tests.weights.containers.safetensors_writer import safetensors_bytes
from tests.weights.huggingface.marian_cases import CASES, write_model
from tests.weights.huggingface.marian_cases import make_tensors as make_marian

ROWS = 3000  # of 64 numbers, more than are read at once


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantized, "NUMBERS_AT_ONCE", 64 * 100)


def model_folder(path: Path) -> Path:
    (path / "marian").mkdir()
    return path / "marian"


def stored(values: np.ndarray, kind: str = "F32") -> StoredTensor:
    return StoredTensor(kind, values.shape, memoryview(bytearray(values.tobytes())), "a")


def noted(tensor: UnreadTensor) -> tuple[UnreadTensor, list[tuple[int, int]]]:
    """The tensor, and the rows that are read of it from now on."""
    seen: list[tuple[int, int]] = []

    def read_rows(first: int, last: int) -> Any:
        seen.append((first, last))
        return tensor.read(first, last)

    return UnreadTensor(tensor.shape, read_rows, tensor.form, tensor.forget), seen


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_rows_of_a_tensor_joined_from_pieces_of_others(kind: str, few_at_once: None) -> None:
    rng = np.random.default_rng(0)
    numbers = [rng.standard_normal((rows, 64), np.float32) for rows in (90, 60)]
    if kind == "F16":
        numbers = [array.astype("<f2") for array in numbers]
    if kind == "BF16":
        numbers = [(array.view(np.uint32) >> 16).astype("<u2") for array in numbers]
    files = {"a": stored(numbers[0], kind), "b": stored(numbers[1], kind)}
    whole = np.concatenate([tensor.float32() for tensor in files.values()])
    parts = {
        "both.weight": sources("a", "b", rows=(90, 60), shape=(150, 64)),
        "piece.weight": sources("a", split=(1, 3), shape=(30, 64)),
        "turned.weight": sources("a", transposed=True, shape=(64, 90)),
    }
    made = make_tensors(parts, files)
    assert all(isinstance(tensor, UnreadTensor) for tensor in made.values())
    found: dict[str, Any] = made
    np.testing.assert_array_equal(found["both.weight"].whole(), whole)
    for first, last in ((0, 0), (10, 20), (80, 110), (90, 91), (149, 150)):
        np.testing.assert_array_equal(found["both.weight"].read(first, last), whole[first:last])
        found["both.weight"].forget(first, last)
    np.testing.assert_array_equal(found["piece.weight"].read(3, 30), whole[33:60])
    np.testing.assert_array_equal(found["turned.weight"].whole(), whole[:90].T)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8", "int4", "int8_groups"])
def test_packing_reads_each_row_once_and_has_the_same_bits(precision: str, few_at_once: None) -> None:
    weight_FD = np.random.default_rng(1).standard_normal((ROWS, 64), np.float32)
    bias_F = np.arange(ROWS, dtype=np.float32)
    tensor, seen = noted(unread(weight_FD))
    packed = cpu.pack_linear(tensor, bias_F, precision)
    assert max(last - first for first, last in seen) <= max(100, 2 * NR)  # so many are 64 * 100 numbers
    assert sum(last - first for first, last in seen) == ROWS
    for panel in range(0, ROWS // NR, 20):  # as it is packed of these rows alone
        rows = slice(panel * NR, (panel + 20) * NR)
        alone = cpu.pack_linear(weight_FD[rows], bias_F[rows], precision).arrays()
        for name, array in packed.arrays().items():
            if name == "panels_PSN":
                array = array[panel : panel + 20]
            elif array.shape == packed.bias.shape:
                array = array[rows]
            np.testing.assert_array_equal(array, alone[name], err_msg=name)


def test_rounding_by_rows_is_that_of_the_whole(few_at_once: None) -> None:
    weight_FD = np.random.default_rng(2).standard_normal((ROWS, 64), np.float32)
    factors_D = np.exp(np.random.default_rng(3).standard_normal(64)).astype(np.float32)
    whole: list[tuple[str, Tensor]] = [
        ("int8", quantize(weight_FD, "a", factors_D)),
        ("int4", quantize_groups(weight_FD, "a")),
    ]
    for form, expected in whole:
        found = round_on_read(weight_FD, form, "a", factors_D)
        assert form_of(found) == form_of(expected) == form and len(found.row_ranges()) > 20
        parts = [as_float32(found.read(first, last)) for first, last in found.row_ranges()]
        np.testing.assert_array_equal(np.concatenate(parts), as_float32(expected))


def test_a_folder_read_later_translates_and_converts_like_one_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_at_once: None
) -> None:
    folder = write_model(model_folder(tmp_path), CASES["shared"])
    later, now = read(folder, later=True), read(folder)
    matrices = {name for name, tensor in later.tensors.items() if isinstance(tensor, UnreadTensor)}
    assert matrices == {name for name in now.tensors if name.endswith(".weight") and len(now.tensors[name].shape) == 2}
    assert all(isinstance(tensor, np.ndarray) for tensor in now.tensors.values())
    for checkpoint in (later, now):  # tied tables stay so
        assert len({id(tensor) for name, tensor in checkpoint.tensors.items() if "embedding.weight" in name}) == 1
    written = []
    for name, checkpoint in (("later", later), ("now", now)):
        (tmp_path / name).mkdir()
        convert.write(tmp_path / name, checkpoint, "int8")
        written.append((tmp_path / name / "model.safetensors").read_bytes())
    assert written[0] == written[1]
    empty_cache(tmp_path / "cache", monkeypatch)
    texts = ["The bridge crosses the river."]
    for precision in ("float32", "int8"):
        expected = Translator.from_checkpoint(now, precision).translate(texts)
        for _ in range(3):  # packs, maps what is packed, reads nothing
            assert Translator(folder, precision).translate(texts) == expected


@pytest.mark.skipif(os.name == "nt", reason="POSIX renames what is mapped")
def test_a_table_of_float16_is_mapped_as_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_model(model_folder(tmp_path), CASES["shared"])
    halves = {name: array.astype(np.float16) for name, array in make_marian(CASES["shared"]).items()}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(halves))
    expected = Translator.from_checkpoint(read(folder), "int8").translate(["The bridge crosses the river."])
    monkeypatch.setattr("fastattn.loading.cache_file.LARGE_BYTES", 1)
    empty_cache(tmp_path / "cache", monkeypatch)
    for _ in range(3):
        translator = Translator(folder, "int8")
        table_VD = translator._loaded.model.encoder.stack.embedding.table
        assert table_VD.dtype == np.float32 and mapping_of(table_VD) is not None
        assert translator.translate(["The bridge crosses the river."]) == expected


def test_a_type_that_no_matrix_has_is_refused_when_a_folder_is_read(tmp_path: Path) -> None:
    folder = write_model(model_folder(tmp_path), CASES["shared"])
    data = bytearray((folder / "model.safetensors").read_bytes())
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header["model.shared.weight"]["dtype"] = "I32"
    text = json.dumps(header, separators=(",", ":")).encode().ljust(length)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    with pytest.raises(Exception, match=r"model\.shared\.weight should be F32, F16 or BF16, is I32"):
        read(folder, later=True)
