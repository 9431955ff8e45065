"""Sessions of ONNX Runtime, and its quantization."""

from pathlib import Path

import onnxruntime


def session(model: bytes | str, threads: int) -> onnxruntime.InferenceSession:
    """Of an .onnx file or its bytes, optimized by ONNX Runtime; ``threads`` share each operator.

    Only one of its fusions is off: a sum before a layer norm, for which its fused operator is the slower by far
    (2048 x 384, one thread: 4.7 ms against 0.7).
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"], disabled_optimizers={"SkipLayerNormFusion"}
    )


def quantized(model: Path) -> None:
    """Quantize the .onnx file dynamically, by ONNX Runtime's own tool: int8 weights with a factor a column.

    Attention too, which then projects in int8.
    """
    from onnx import TensorProto
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        model,
        model,
        op_types_to_quantize=["MatMul", "Attention"],
        per_channel=True,
        weight_type=QuantType.QInt8,
        # the fused operators' types are not known to its inference of shapes
        extra_options={"DefaultTensorType": TensorProto.FLOAT},
    )
