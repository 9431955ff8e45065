"""Small ONNX graphs and the sessions that run them, built with onnx.helper and never written to disk."""

from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"  # the fused operators of ONNX Runtime, what its own optimiser makes of transformers
TYPES = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "int64": TensorProto.INT64}


class Graph:
    """Nodes and weights in order of creation; a value is known by its name."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self._inputs: list[Any] = []

    def input(self, name: str, dtype: str, shape: list[Any]) -> str:
        """An input; a dimension that is a str may vary."""
        self._inputs.append(helper.make_tensor_value_info(name, TYPES[dtype], shape))
        return name

    def weight(self, array: np.ndarray) -> str:
        name = f"weight{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """One node; its only output's name."""
        name = f"value{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [name], domain=domain, **attributes))
        return name

    def session(self, output: str, threads: int) -> onnxruntime.InferenceSession:
        """Optimised by ONNX Runtime; ``threads`` share each operator.

        Only one of its fusions is off: a sum before a layer norm, for which its fused operator is the slower by far
        (2048 x 384, one thread: 4.7 ms against 0.7).
        """
        out = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self._nodes, "graph", self._inputs, [out], self._weights)
        imports = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(
            model.SerializeToString(),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers={"SkipLayerNormFusion"},
        )
