"""Small ONNX graphs, built with onnx.helper."""

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"  # ONNX Runtime's fused operators, which its optimizer uses for transformers
TYPES = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "int64": TensorProto.INT64}


class Graph:
    """Nodes and weights in order of creation; values are identified by name."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self._inputs: list[Any] = []

    def input(self, name: str, dtype: str, shape: list[Any]) -> str:
        """Add an input; a dimension that is a str is variable."""
        self._inputs.append(helper.make_tensor_value_info(name, TYPES[dtype], shape))
        return name

    def weight(self, array: np.ndarray) -> str:
        name = f"weight{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node; returns the name of its only output."""
        name = f"value{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [name], domain=domain, **attributes))
        return name

    def model(self, output: str, opset: int = 20) -> bytes:
        """The graph that computes ``output``, as an .onnx file."""
        out = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self._nodes, "graph", self._inputs, [out], self._weights)
        imports = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
