"""The adapters by the operator's name: from a node to its outputs, in the schema's order."""

from tests.onnx_operators.attention import attend
from tests.onnx_operators.flex_attention import attend_flexibly
from tests.onnx_operators.rows import gelu, layer_normalization, rms_normalization, rotary_embedding, softmax

OPERATORS = {
    "Attention": attend, "FlexAttention": attend_flexibly, "Gelu": gelu, "LayerNormalization": layer_normalization,
    "RMSNormalization": rms_normalization, "RotaryEmbedding": rotary_embedding, "Softmax": softmax,
}  # fmt: skip
