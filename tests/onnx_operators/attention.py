"""ONNX's Attention (opset 25) by fastattn.attention: what the operator's inputs and attributes are called there.

softmax_precision has no counterpart: everything is computed in float32, which is at least what the operator asks for.
"""

import numpy as np

import fastattn
from fastattn.ops import cpu as operations
from tests.onnx_operators.cases import Node

RAW, CAPPED, BIASED, PROBABILITIES = range(4)  # qk_matmul_output_mode


def attend(node: Node) -> tuple[np.ndarray | None, ...]:
    """(Y, present_key, present_value, qk_matmul_output), the last None if it is not wanted."""
    query, key, value, attn_mask, past_key, past_value, valid_B = (node.input(i) for i in range(7))
    given, attributes = query, node.attributes
    if given.ndim == 3:
        query = split_heads(query, attributes["q_num_heads"])
        key, value = (split_heads(array, attributes["kv_num_heads"]) for array in (key, value))
    if past_key is not None:
        key, value = np.concatenate((past_key, key), axis=2), np.concatenate((past_value, value), axis=2)
    options = options_of(node, key.shape[2], attn_mask, past_key, valid_B)
    mode = attributes.get("qk_matmul_output_mode", RAW)
    weights = node.wants(3) and mode == PROBABILITIES
    result = fastattn.attention(query, key, value, layout="BHTK", **options, return_weights=weights)
    out, scores = result if weights else (result, None)
    if node.wants(3) and scores is None:
        scores = scores_of(query.astype(np.float32), key.astype(np.float32), mode, options)
    out = join_heads(out) if given.ndim == 3 else out
    return out, key, value, None if scores is None else scores.astype(given.dtype)


def split_heads(array: np.ndarray, heads: int) -> np.ndarray:
    return array.reshape(*array.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def join_heads(array: np.ndarray) -> np.ndarray:
    return array.transpose(0, 2, 1, 3).reshape(array.shape[0], array.shape[2], -1)


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


def scores_of(query_BHTK: np.ndarray, key_BGSK: np.ndarray, mode: int, options: dict) -> np.ndarray:
    """Scores before the softmax, float32 [B, H, T, S], which attention never stores: products of their own."""
    B, H, T, K = query_BHTK.shape
    G, S = key_BGSK.shape[1:3]
    scale = K**-0.5 if options["scale"] is None else options["scale"]
    softcap = options["softcap"] if mode != RAW else 0.0
    rows = np.ascontiguousarray(query_BHTK).reshape(B, G, -1, K)
    scores_BHTS = np.empty((B, H, T, S), np.float32)
    for b in range(B):
        for g in range(G):
            packed = operations.pack_linear(np.ascontiguousarray(key_BGSK[b, g]))
            scaled = operations.scale_rows(rows[b, g], scale / (softcap or 1))
            product = operations.linear(scaled, packed, "tanh" if softcap else "none")
            capped = operations.scale_rows(product, softcap or 1)
            scores_BHTS.reshape(B, G, -1, S)[b, g] = capped
    return scores_BHTS if mode != BIASED else scores_BHTS + bias_of((B, H, T, S), options)


def bias_of(shape: tuple[int, int, int, int], options: dict) -> np.ndarray:
    """What is added to the scores, with -inf wherever a query does not see a key; float32."""
    B, _, T, S = shape
    t, s = np.arange(T)[:, None], np.arange(S)
    offset = options.get("offset", 0)
    p = t + np.broadcast_to(options["lengths"] - T if offset == "end" else offset, B).reshape(B, 1, 1, 1)
    left, right = options.get("window", (None, None))
    seen = np.broadcast_to(options.get("mask", True), shape)
    seen = seen & (s <= p) if options["causal"] else seen
    seen = seen if left is None else seen & (p - left <= s)
    seen = seen if right is None else seen & (s <= p + right)
    if options["lengths"] is not None:
        seen = seen & (s < options["lengths"].reshape(B, 1, 1, 1))
    return np.where(seen, np.broadcast_to(options.get("bias", np.float32(0)), shape), np.float32(-np.inf))
