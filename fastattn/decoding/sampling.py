"""Sampling tokens: random numbers as a function of their purpose, and the choice by them.

There is no generator with a state: the number for a token is a hash of the seed, the sentence, the sample's number and
the position (counter-based: Salmon 2011; the mixing is SplitMix64's, Steele 2014). So neither the batch nor the order
of threads matters.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def sentence_key(source: np.ndarray, start: Sequence[int], number: int = 0) -> int:
    """A 64-bit hash of the ids of a sentence's source, and of its target's start token and prefix.

    ``number`` distinguishes equal sentences.
    """
    content = np.concatenate([[len(source)], source, start]).astype("<i8").tobytes()
    salt = number.to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8, salt=salt).digest(), "little")


def uniform(
    seed: int | np.ndarray, keys_R: np.ndarray, hypotheses_R: np.ndarray, positions_R: np.ndarray
) -> np.ndarray:
    """float64 in [0, 1), one for each of (seed, key, hypothesis, position), uint64; seed may be one for all."""
    bits_R = _mixed(np.broadcast_to(np.uint64(seed), keys_R.shape))
    for values_R in (keys_R, hypotheses_R, positions_R):
        bits_R = _mixed(bits_R ^ values_R.astype(np.uint64))
    return (bits_R >> np.uint64(11)) * 2.0**-53


def _mixed(bits_R: np.ndarray) -> np.ndarray:
    bits_R = bits_R + _GOLDEN
    bits_R = (bits_R ^ (bits_R >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits_R = (bits_R ^ (bits_R >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits_R ^ (bits_R >> np.uint64(31))


def draw(log_probs_Rk: np.ndarray, uniform_R: np.ndarray, temperature: float, top_p: float) -> np.ndarray:
    """columns_R int64, sampled from softmax(log_probs / temperature).

    top_p  keeps the most probable columns, up to and with the one that makes their sum reach it (Holtzman 2019)
    """
    columns_R = np.zeros(len(log_probs_Rk), np.int64)
    for r, row_k in enumerate(log_probs_Rk):  # one by one, so that a row's bits depend on no other
        best = row_k.max()
        if np.isneginf(best):
            continue
        with np.errstate(over="ignore"):  # the smallest temperatures leave only the best
            weights_k = np.exp((row_k.astype(np.float64) - best) / temperature)
        if top_p < 1:
            order_k = np.argsort(-weights_k, kind="stable")
            before_k = np.cumsum(weights_k[order_k]) - weights_k[order_k]
            weights_k[order_k[before_k >= top_p * weights_k.sum()]] = 0
        sums_k = np.cumsum(weights_k)
        # The product may round up to the whole sum: then the last column of any weight is taken.
        last = np.searchsorted(sums_k, sums_k[-1], side="left")
        columns_R[r] = min(np.searchsorted(sums_k, uniform_R[r] * sums_k[-1], side="right"), last)
    return columns_R
