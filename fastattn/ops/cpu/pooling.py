"""From a sentence's rows to one vector: the poolings of sentence-transformers (Reimers and Gurevych 2019, section 3).

In NumPy, whose sums over rows are as fast as a loop of ours. Each takes rows_TD and ``skip``, how many first rows (a
prompt's) stay out of it, and returns a vector of D. Where that leaves no row the vector is zero.
"""

from collections.abc import Callable, Sequence

import numpy as np


def _mean_sqrt_len(rows_TD: np.ndarray, skip: int) -> np.ndarray:
    return rows_TD[skip:].sum(axis=0) / rows_TD.dtype.type(np.sqrt(len(rows_TD) - skip))


def _weighted_mean(rows_TD: np.ndarray, skip: int) -> np.ndarray:
    # Muennighoff 2022, equation 2: a row weighs its position, which the prompt's rows still count in.
    weights_T = np.arange(skip + 1, len(rows_TD) + 1).astype(rows_TD.dtype)
    return (rows_TD[skip:] * weights_T[:, None]).sum(axis=0) / weights_T.sum()


POOLINGS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "cls": lambda rows_TD, skip: rows_TD[skip],
    "max": lambda rows_TD, skip: rows_TD[skip:].max(axis=0),
    "mean": lambda rows_TD, skip: rows_TD[skip:].mean(axis=0),
    "mean_sqrt_len": _mean_sqrt_len,
    "mean_sqrt_len_tokens": _mean_sqrt_len,  # the name in sentence-transformers' files
    "weightedmean": _weighted_mean,
    "lasttoken": lambda rows_TD, skip: rows_TD[-1],
}


def pool(rows_ND: np.ndarray, starts_B1: np.ndarray, modes: Sequence[str], skip: int = 0) -> np.ndarray:
    """pooled_BE of a ragged batch, E = D * len(modes): the vectors of several modes side by side.

    skip  how many first rows of every sentence (its prompt's) take no part.
    """
    width = rows_ND.shape[1]
    pooled_BE = np.zeros((len(starts_B1) - 1, width * len(modes)), rows_ND.dtype)
    for b in range(len(pooled_BE)):
        rows_TD = rows_ND[starts_B1[b] : starts_B1[b + 1]]
        if len(rows_TD) > skip:
            for m, mode in enumerate(modes):
                pooled_BE[b, m * width : (m + 1) * width] = POOLINGS[mode](rows_TD, skip)
    return pooled_BE
