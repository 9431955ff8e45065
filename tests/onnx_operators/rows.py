"""ONNX's operators on rows by the operations of fastattn.ops.cpu, which take float32 [N, D]."""

import math

import numpy as np

from fastattn.ops import cpu as operations
from tests.onnx_operators.cases import Node


def flatten(array: np.ndarray, axis: int) -> np.ndarray:
    """Rows [N, D] of all the axes from ``axis`` on."""
    return np.ascontiguousarray(array).reshape(math.prod(array.shape[:axis]), -1)


def layer_normalization(node: Node) -> tuple[np.ndarray, ...]:
    """(Y, Mean, InvStdDev). The statistics, of use in training only, are no operation's: they are NumPy's."""
    x, scale, bias = (node.input(i) for i in range(3))
    axis, epsilon = node.attributes.get("axis", -1) % x.ndim, node.attributes.get("epsilon", 1e-5)
    x_ND, normalized = flatten(x, axis), x.shape[axis:]
    weight_D, bias_D = (None if w is None else np.broadcast_to(w, normalized).ravel() for w in (scale, bias))
    y_ND = operations.layer_norm(x_ND, weight_D, bias_D, epsilon)
    kept = (*x.shape[:axis], *[1] * len(normalized))
    inverse = 1 / np.sqrt(x_ND.var(axis=1) + np.float32(epsilon))
    return y_ND.reshape(x.shape), x_ND.mean(axis=1).reshape(kept), inverse.reshape(kept)


def rms_normalization(node: Node) -> tuple[np.ndarray, ...]:
    x, scale = node.inputs
    axis = node.attributes.get("axis", -1) % x.ndim
    weight_D = np.broadcast_to(scale, x.shape[axis:]).ravel()
    y_ND = operations.rms_norm(flatten(x, axis), weight_D, node.attributes.get("epsilon", 1e-5))
    return (y_ND.reshape(x.shape),)


def softmax(node: Node) -> tuple[np.ndarray, ...]:
    """Any axis: it is moved to the end and back."""
    x = np.moveaxis(node.inputs[0], node.attributes.get("axis", -1), -1)
    y = operations.softmax(flatten(x, x.ndim - 1)).reshape(x.shape)
    return (np.moveaxis(y, -1, node.attributes.get("axis", -1)),)


def gelu(node: Node) -> tuple[np.ndarray, ...]:
    """Activations are the end of a product: here of one with 1."""
    activation = {b"none": "gelu", b"tanh": "gelu_tanh"}[node.attributes.get("approximate", b"none")]
    one = operations.pack_linear(np.ones((1, 1), np.float32))
    return (
        operations.linear(flatten(node.inputs[0], node.inputs[0].ndim), one, activation).reshape(node.inputs[0].shape),
    )


def rotary_embedding(node: Node) -> tuple[np.ndarray, ...]:
    """Heads lie side by side in a row; without position ids each row has angles of its own, the table's next row."""
    x, cos, sin, position_ids = (node.input(i) for i in range(4))
    rows = x.transpose(0, 2, 1, 3) if x.ndim == 4 else x
    heads = x.shape[1] if x.ndim == 4 else node.attributes["num_heads"]
    x_NE = np.array(rows, np.float32, order="C").reshape(rows.shape[0] * rows.shape[1], -1)
    positions_N = np.arange(len(x_NE)) if position_ids is None else position_ids.ravel()
    tables = (table.reshape(-1, table.shape[-1]) for table in (cos, sin))
    interleaved = bool(node.attributes.get("interleaved", 0))
    operations.rotate(x_NE, positions_N.astype(np.int32), *tables, 0, heads, x_NE.shape[1] // heads, interleaved)
    y = x_NE.reshape(rows.shape)
    return (y.transpose(0, 2, 1, 3) if x.ndim == 4 else y,)
