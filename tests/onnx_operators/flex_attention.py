"""ONNX's FlexAttention (preview) by fastattn.attention: score_mod as a function, prob_mod on the weights."""

import numpy as np

import fastattn
from fastattn.ops import cpu as operations
from tests.onnx_operators.cases import Node
from tests.onnx_operators.modifiers import translate


def attend_flexibly(node: Node) -> tuple[np.ndarray, ...]:
    """(Y,); softmax_precision has no counterpart: everything is computed in float32, double inputs too."""
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
    return (sum_values(weights, value.astype(np.float32)).astype(value.dtype),)


def sum_values(weights_BHTS: np.ndarray, value_BGSV: np.ndarray) -> np.ndarray:
    """Values weighted by what a modifier made of the weights: products of their own."""
    B, H, T, S = weights_BHTS.shape
    G, V = value_BGSV.shape[1], value_BGSV.shape[3]
    out_BHTV = np.empty((B, H, T, V), np.float32)
    for b in range(B):
        for g in range(G):
            packed = operations.pack_linear(np.ascontiguousarray(value_BGSV[b, g].T))
            rows = weights_BHTS.reshape(B, G, -1, S)[b, g]
            out_BHTV.reshape(B, G, -1, V)[b, g] = operations.linear(rows, packed)
    return out_BHTV
