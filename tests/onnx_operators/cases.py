"""The ONNX project's own node tests of the operators that fastattn has, as the ``onnx`` package makes them.

Each is one node with its inputs, the outputs that are expected, and tolerances. The ``_expanded`` twins, which spell an
operator out in elementary ones, are left out.
"""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case import node as suite

# The number of cases in onnx 1.23, by operators: a suite of fewer tests would pass by having lost them.
COUNTS = {
    "Attention": 93, "FlexAttention": 11, "Gelu": 4, "LayerNormalization": 19, "RMSNormalization": 19,
    "RotaryEmbedding": 8, "Softmax": 7,
}  # fmt: skip


@dataclass(frozen=True)
class Node:
    """A node's operator with its inputs, None for one that is left out, and the names of its outputs, "" likewise."""

    operator: str
    inputs: tuple[np.ndarray | None, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]

    def input(self, index: int) -> np.ndarray | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def wants(self, index: int) -> bool:
        return index < len(self.outputs) and self.outputs[index] != ""


@dataclass(frozen=True)
class Case:
    """``expected`` has the outputs that the node names, in their order."""

    name: str
    node: Node
    expected: tuple[np.ndarray, ...]
    rtol: float
    atol: float


def collect() -> Iterator[Case]:
    """Every case of the operators in COUNTS. Importing a module of the suite adds its cases to the suite's list."""
    for operator in COUNTS:
        importlib.import_module(f"{suite.__name__}.{operator.lower()}")
    for case in suite._NodeTestCases:
        (proto, *others) = case.model.graph.node
        if others or proto.op_type not in COUNTS or "_expanded" in case.name:
            continue
        ((inputs, expected),) = case.data_sets
        given = iter(inputs)
        node = Node(
            proto.op_type,
            tuple(next(given) if name else None for name in proto.input),
            tuple(proto.output),
            {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in proto.attribute},
        )
        yield Case(case.name, node, tuple(expected), case.rtol, case.atol)
