"""Search: every score, and a stable sort."""

import numpy as np


def nearest_rows(
    queries_QD: np.ndarray, corpus_ND: np.ndarray, k: int, by_length: bool = False, bits: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    if bits:
        differing_QND = queries_QD.view(np.uint8)[:, None] ^ corpus_ND.view(np.uint8)[None]
        scores_QN = -np.unpackbits(differing_QND, axis=2).sum(axis=2, dtype=np.int64)
    else:
        kind = np.int64 if corpus_ND.dtype.kind in "iu" else corpus_ND.dtype
        scores_QN = queries_QD.astype(kind) @ corpus_ND.astype(kind).T
    if by_length:
        lengths_N = np.sqrt(np.square(corpus_ND.astype(scores_QN.dtype)).sum(axis=1))
        scores_QN = scores_QN / np.maximum(lengths_N, lengths_N.dtype.type(1e-12))
    ids_Qk = np.argsort(-scores_QN, axis=1, kind="stable")[:, :k]  # NaN comes last
    scores_Qk = np.take_along_axis(scores_QN, ids_Qk, axis=1)
    absent_Qk = np.isnan(scores_Qk)
    scores_Qk = np.where(absent_Qk, -np.inf, scores_Qk).astype(np.result_type(np.float32, corpus_ND.dtype))
    return scores_Qk, np.where(absent_Qk, -1, ids_Qk)
