"""Recurrent nodes of ONNX files are read as the ONNX project's own reference runs them."""

import numpy as np
import pytest

from fastattn.errors import CheckpointError
from fastattn.ops import reference
from fastattn.spec.recurrent import CELLS
from fastattn.weights.containers.onnx import parse
from tests.kernels.recurrent_cases import DrawnStack, run

onnx = pytest.importorskip("onnx")
evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator

UNITS, INPUTS, LENGTH = 7, 5, 6
NODES = {"lstm": ("LSTM", {}), "gru": ("GRU", {"linear_before_reset": 1}), "gru_reset_before": ("GRU", {})}


def model(cell: str, **more: object):
    """A graph of one node."""
    rng, rows = np.random.default_rng(3), CELLS[cell][0] * UNITS
    shapes = {"W": (1, rows, INPUTS), "R": (1, rows, UNITS), "B": (1, 2 * rows)}
    arrays = [onnx.numpy_helper.from_array(rng.normal(size=shapes[n]).astype(np.float32), n) for n in shapes]
    operation, attributes = NODES[cell]
    node = onnx.helper.make_node(operation, ["x", *shapes], ["y"], hidden_size=UNITS, **attributes, **more)
    kind = onnx.TensorProto.FLOAT
    x = onnx.helper.make_tensor_value_info("x", kind, (LENGTH, 1, INPUTS))
    y = onnx.helper.make_tensor_value_info("y", kind, (LENGTH, 1, 1, UNITS))
    return onnx.helper.make_model(onnx.helper.make_graph([node], "one", [x], [y], arrays))


@pytest.mark.parametrize("cell", NODES)
def test_a_node_is_its_cell(cell: str) -> None:
    made, x_ND = model(cell), np.random.default_rng(4).normal(size=(LENGTH, INPUTS)).astype(np.float32)
    with np.errstate(invalid="ignore"):  # OpenBLAS may compute with what lies behind a small matrix, and drop it
        (expected,) = evaluator(made).run(None, {"x": x_ND[:, None]})
    tensors = parse(memoryview(made.SerializeToString()), "model.onnx")
    named = {name.removeprefix(f"{cell}.").removesuffix("_l0"): one.float32() for name, one in tensors.items()}
    found, _ = run(reference, DrawnStack(cell, UNITS, 1, (LENGTH,), x_ND, [[named]]))
    np.testing.assert_allclose(found, expected.reshape(LENGTH, UNITS), rtol=0, atol=1e-6)


@pytest.mark.parametrize("cell", ["gru", "gru_reset_before"])
def test_a_gru_with_more_to_it_is_refused(cell: str) -> None:
    with pytest.raises(CheckpointError, match="^model.onnx: its GRU with 'clip' '' is not supported$"):
        parse(memoryview(model(cell, clip=2.0).SerializeToString()), "model.onnx")
