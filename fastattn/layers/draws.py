"""Random numbers for samples, without a generator's state, so that neither the batch nor the order of threads matters.

A number is a hash of the seed, the sentence, the sample's number and the position (counter-based: Salmon 2011; the
bits are mixed as in SplitMix64, Steele 2014).
"""

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def sample_key(seed: int, sentence: int, hypothesis: int) -> int:
    """The key, of 64 bits, of one sample of a sentence; ``sentence`` is a number below 2**64."""
    bits_1 = _mix(np.array([seed % 2**64], np.uint64))
    for number in (sentence, hypothesis):
        bits_1 = _mix(bits_1 ^ np.uint64(number))
    return int(bits_1[0])


def uniform(keys_R: np.ndarray, positions_R: np.ndarray) -> np.ndarray:
    """A float64 in [0, 1) for each pair of a key, uint64, and a position."""
    return (_mix(keys_R ^ positions_R.astype(np.uint64)) >> np.uint64(11)) * 2.0**-53


def _mix(bits_R: np.ndarray) -> np.ndarray:
    bits_R = bits_R + _GOLDEN
    bits_R = (bits_R ^ (bits_R >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits_R = (bits_R ^ (bits_R >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits_R ^ (bits_R >> np.uint64(31))


def drawn_keys(weights_TS: np.ndarray, shares_T: np.ndarray) -> np.ndarray:
    """The first key of each row at which the running sum of weights exceeds ``shares_T``, below 1, of their total."""
    sums_TS = np.cumsum(weights_TS, axis=1, dtype=np.float64)
    bounds_T = shares_T * sums_TS[:, -1]  # below the total, as shares are below 1
    return np.minimum((sums_TS <= bounds_T[:, None]).sum(axis=1), weights_TS.shape[1] - 1)
