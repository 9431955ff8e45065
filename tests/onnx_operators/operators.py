"""ONNX's operators by fastattn: what each one's inputs and attributes are called there, from a node to its outputs.

softmax_precision has no counterpart: everything is computed in float32, which is at least what the operators ask for.
Operators on rows are those of fastattn.ops.cpu, which take float32 [N, D]. What fastattn does not give is None: scores
before the softmax, and a norm's statistics, of use in training only.
"""

import math

import numpy as np

import fastattn
from fastattn.ops import cpu as operations
from tests.onnx_operators.cases import Node
from tests.onnx_operators.modifiers import translate

PROBABILITIES = 3  # qk_matmul_output_mode


def attend(node: Node) -> tuple[np.ndarray | None, ...]:
    """Attention (opset 25): (Y, present_key, present_value, qk_matmul_output)."""
    query, key, value, attn_mask, past_key, past_value, valid_B = (node.input(i) for i in range(7))
    given, attributes = query, node.attributes
    if given.ndim == 3:
        query = split_heads(query, attributes["q_num_heads"])
        key, value = (split_heads(array, attributes["kv_num_heads"]) for array in (key, value))
    if past_key is not None:
        key, value = np.concatenate((past_key, key), axis=2), np.concatenate((past_value, value), axis=2)
    options = options_of(node, key.shape[2], attn_mask, past_key, valid_B)
    weights = node.wants(3) and attributes.get("qk_matmul_output_mode") == PROBABILITIES
    result = fastattn.attention(query, key, value, layout="BHTK", **options, return_weights=weights)
    out, scores = (result[0], result[1].astype(given.dtype)) if weights else (result, None)
    if given.ndim == 3:
        out = out.transpose(0, 2, 1, 3).reshape(*given.shape[:2], -1)
    return out, key, value, scores


def split_heads(array: np.ndarray, heads: int) -> np.ndarray:
    return array.reshape(*array.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def options_of(node, keys: int, attn_mask, past_key, valid_B) -> dict:
    """The arguments of fastattn.attention that the node's attributes and other inputs are."""
    attributes = node.attributes
    options = {"scale": attributes.get("scale"), "softcap": attributes.get("softcap", 0.0), "lengths": valid_B}
    bounds = [attributes.get(f"{side}_window_size", -1) for side in ("left", "right")]
    window = tuple(None if bound < 0 else bound for bound in bounds)
    if window != (None, None):
        options["window"] = window
    options["causal"] = bool(attributes.get("is_causal", 0))
    if options["causal"] or "window" in options:
        before = 0 if past_key is None else past_key.shape[2]
        options["offset"] = before if valid_B is None else "end"
    if attn_mask is not None:
        # a mask shorter than the keys hides the rest
        hidden = False if attn_mask.dtype == bool else -np.inf
        short = [(0, 0)] * (attn_mask.ndim - 1) + [(0, keys - attn_mask.shape[-1])]
        full = np.pad(attn_mask, short, constant_values=hidden)
        options |= {"mask": full} if full.dtype == bool else {"bias": full.astype(np.float32)}
    return options


def attend_flexibly(node: Node) -> tuple[np.ndarray, ...]:
    """FlexAttention (preview): (Y,), with score_mod as a function and prob_mod on the weights."""
    query, key, value = node.inputs
    shape = (*query.shape[:3], key.shape[2])
    options = {"layout": "BHTK", "scale": node.attributes.get("scale")}
    if "score_mod" in node.attributes:
        options["score_mod"] = translate(node.attributes["score_mod"], shape)
    # float64 is no type of ours
    arrays = [array.astype(np.float32) if array.dtype == np.float64 else array for array in (query, key, value)]
    if "prob_mod" not in node.attributes:
        return (fastattn.attention(*arrays, **options).astype(value.dtype),)
    _, weights = fastattn.attention(*arrays, **options, return_weights=True)
    modify = translate(node.attributes["prob_mod"], shape)
    for place, weight in np.ndenumerate(weights):
        weights[place] = modify(weight, *place)
    every = np.repeat(value.astype(np.float32), query.shape[1] // value.shape[1], axis=1)
    return ((weights @ every).astype(value.dtype),)


def flatten(array: np.ndarray, axis: int) -> np.ndarray:
    """Rows [N, D] of all the axes from ``axis`` on."""
    return np.ascontiguousarray(array).reshape(math.prod(array.shape[:axis]), -1)


def layer_normalization(node: Node) -> tuple[np.ndarray | None, ...]:
    """(Y, Mean, InvStdDev)."""
    x, scale, bias = (node.input(i) for i in range(3))
    axis = node.attributes.get("axis", -1) % x.ndim
    weight_D, bias_D = (None if w is None else np.broadcast_to(w, x.shape[axis:]).ravel() for w in (scale, bias))
    y_ND = operations.layer_norm(flatten(x, axis), weight_D, bias_D, node.attributes.get("epsilon", 1e-5))
    return y_ND.reshape(x.shape), None, None


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
    (x,) = node.inputs
    activation = {b"none": "gelu", b"tanh": "gelu_tanh"}[node.attributes.get("approximate", b"none")]
    one = operations.pack_linear(np.ones((1, 1), np.float32))
    return (operations.linear(flatten(x, x.ndim), one, activation).reshape(x.shape),)


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


# By the operator's name; a module of that name in lower case has the suite's cases.
OPERATORS = {
    "Attention": attend, "FlexAttention": attend_flexibly, "Gelu": gelu, "LayerNormalization": layer_normalization,
    "RMSNormalization": rms_normalization, "RotaryEmbedding": rotary_embedding, "Softmax": softmax,
}  # fmt: skip
