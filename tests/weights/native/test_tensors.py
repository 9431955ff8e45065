"""The tensors of fastattn's own folder: those that do not fit are named."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fastattn.errors import CheckpointError
from fastattn.spec.quantized import QuantizedTensor
from fastattn.weights import read
from fastattn.weights.containers.safetensors import NewTensor, read_tensors, write_tensors
from fastattn.weights.folder import Directory
from tests.weights.native.folders import (
    converted,
    edit,
    encoder_model,
    ones,
    rewrite,
    shortlisted,
    translation_model,
)
from tests.weights.refusals import refusal

WEIGHT = "encoder.layers.1.feed_forward.outer.weight"
NOTHING = NewTensor("F32", (1,), lambda: np.zeros(1, np.float32))


@pytest.mark.parametrize(
    "changes, fault",
    [
        ({WEIGHT: None}, f"missing {WEIGHT} [16, 24]; unexpected {WEIGHT}.multiplier [16]"),
        ({f"{WEIGHT}.multiplier": None}, f"{WEIGHT}.multiplier should be there, F32 [16]"),
        ({f"{WEIGHT}.multiplier": ones("F32", 24)}, f"{WEIGHT}.multiplier should be there, F32 [16]"),
        ({f"{WEIGHT}.multiplier": ones("I8", 16)}, f"{WEIGHT}.multiplier should be there, F32 [16]"),
        ({WEIGHT: ones("F32", 16, 24)}, f"unexpected {WEIGHT}.multiplier [16]"),
        ({f"{WEIGHT}.input_scale": ones("F32", 2)}, f"{WEIGHT}.input_scale should be F32 [1]"),
        ({f"{WEIGHT}.input_scale": ones("I8", 1)}, f"{WEIGHT}.input_scale should be F32 [1]"),
        ({f"{WEIGHT}.input_scale": NOTHING}, f"{WEIGHT}: an input scale should be a number from 1e-30"),
        ({f"{WEIGHT}.input_factors": ones("F32", 16)}, f"{WEIGHT}.input_factors should be F32 [24]"),
        ({f"{WEIGHT}.input_factors": ones("I8", 24)}, f"{WEIGHT}.input_factors should be F32 [24]"),
        (
            {f"{WEIGHT}.input_factors": ones("F32", 24), f"{WEIGHT}.input_scale": ones("F32", 1)},
            f"{WEIGHT}: inputs have a scale or factors, not both",
        ),
        ({"encoder.final_norm.weight.input_scale": ones("F32", 1)}, "unexpected encoder.final_norm.weight.input_scale"),
        ({"extra": ones("F32", 2)}, "unexpected extra [2]"),
        ({"encoder.final_norm.weight": ones("I8", 16)}, "encoder.final_norm.weight should be F32 or BF16, is I8"),
        ({"encoder.final_norm.weight": ones("F32", 17)}, "encoder.final_norm.weight should be [16], is [17]"),
    ],
)
def test_tensors_that_do_not_fit_are_named(folder: Path, changes: dict, fault: str) -> None:
    def change(tensors: dict) -> None:
        tensors.update(changes)
        for name in [name for name, tensor in tensors.items() if tensor is None]:
            del tensors[name]

    rewrite(folder, lambda tensors: None)
    read(folder)
    rewrite(folder, change)
    assert fault in refusal(folder)


def test_positions_are_never_int8(tmp_path: Path) -> None:
    """A table of positions is a matrix too, which nothing would read as int8."""
    original = read(translation_model(tmp_path / "model", position_table=12))
    folder = converted(original, tmp_path / "out", "int8")
    assert isinstance(read(folder).tensors["encoder.positions"], np.ndarray)
    rewrite(folder, lambda tensors: tensors.update({"encoder.positions": ones("I8", 12, 16)}))
    assert "encoder.positions should be F32 or BF16, is I8" in refusal(folder)


def test_positions_that_are_tied_to_an_int8_table_are_its_numbers(tmp_path: Path) -> None:
    rows = 19  # of the table of the decoder's embeddings
    folder = converted(read(translation_model(tmp_path / "model", position_table=rows)), tmp_path / "out", "int8")
    rewrite(folder, lambda tensors: tensors.pop("decoder.positions"))
    edit(folder, lambda config: config["tied"].update({"decoder.positions": "decoder.embedding.weight"}))
    tensors = read(folder).tensors
    table = tensors["decoder.embedding.weight"]
    assert isinstance(table, QuantizedTensor)
    np.testing.assert_array_equal(tensors["decoder.positions"], table.float32())


def test_dense_layers_that_do_not_fit_are_named(tmp_path: Path) -> None:
    original = read(encoder_model(tmp_path / "model"))
    for number, (changes, fault) in enumerate(
        (
            ({"dense.0.weight": ones("F32", 5)}, "dense.0.weight should be there, [outputs, inputs]"),
            ({"dense.0.bias": ones("F32", 6)}, "dense.0.bias should be [5], is [6]"),
            ({"dense.1.weight": ones("F32", 5, 5)}, "unexpected dense.1.weight [5, 5]"),
        )
    ):
        folder = converted(original, tmp_path / f"out{number}", "int8")
        rewrite(folder, lambda tensors, changes=changes: tensors.update(changes))
        assert fault in refusal(folder)


@pytest.mark.parametrize(
    "changes, fault",
    [
        ({"shortlist.starts": None}, "shortlist.starts should be there, I32 of one dimension"),
        ({"shortlist.targets": np.zeros(3, np.float32)}, "shortlist.targets should be there, I32 of one dimension"),
        ({"shortlist.always": np.zeros((1, 2), np.int32)}, "shortlist.always should be there, I32 of one dimension"),
        ({"shortlist.starts": np.zeros(23, np.int32)}, "shortlist.starts should hold 24 numbers"),
        ({"shortlist.starts": np.zeros(24, np.int32)}, "the offsets should rise from 0 to 3"),
        ({"shortlist.starts": np.array([0, 3, 2, *[3] * 21], np.int32)}, "the offsets should rise from 0 to 3"),
        ({"shortlist.targets": np.array([5, 19, 7], np.int32)}, "target id 19 is outside the vocabulary of 19 tokens"),
        ({"shortlist.always": np.array([-1], np.int32)}, "target id -1 is outside the vocabulary of 19 tokens"),
    ],
    ids=str,
)
def test_shortlists_that_do_not_fit_are_named(tmp_path: Path, changes: dict, fault: str) -> None:
    path = converted(shortlisted(tmp_path / "model"), tmp_path / "out", "float32")
    arrays = {name: tensor.array() for name, tensor in read_tensors(Directory(path), "model.safetensors").items()}
    arrays = {name: values for name, values in (arrays | changes).items() if values is not None}
    kinds = {"float32": "F32", "int32": "I32"}
    tensors = {
        name: NewTensor(kinds[values.dtype.name], values.shape, partial(np.asarray, values.copy()))
        for name, values in arrays.items()
    }
    (path / "model.safetensors").unlink()
    with (path / "model.safetensors").open("wb") as stream:
        write_tensors(stream, tensors)
    with pytest.raises(CheckpointError) as error:
        read(path)
    assert fault in str(error.value) and "\n" not in str(error.value)


def test_no_vocabulary_but_one_as_large_can_be_copied_to(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="23 source tokens cannot be copied to a target vocabulary of 19"):
        read(converted(shortlisted(tmp_path / "model", copied=True), tmp_path / "out", "int8"))
