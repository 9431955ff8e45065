"""The small examples of the pictures: words whose vectors are made so that it is known which belong together."""

import numpy as np

SOURCE = "we meet in Berlin tomorrow morning .".split()
TARGET = "wir treffen uns morgen früh in Berlin .".split()
MEANT = [0, 1, 1, 4, 5, 2, 3, 6]  # the place in SOURCE of what each word of TARGET translates
SENTENCE = "the cat sat down because it was tired".split()
LOOKED_AT = [1, 1, 1, 2, 2, 1, 7, 5]  # the place in SENTENCE that each word depends on
WIDTH = 16


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def words(places: list[int], seed: int, noise: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    """(queries (1, T, K), keys (1, S, K)): random keys, and for each query the key of its place, blurred."""
    key_SK = normal(seed, max(places) + 1, WIDTH)
    query_TK = key_SK[places] + np.float32(noise) * normal(seed + 100, len(places), WIDTH)
    return query_TK[None], key_SK[None]


def translation() -> tuple[np.ndarray, np.ndarray]:
    return words(MEANT, seed=1)


def sentence() -> tuple[np.ndarray, np.ndarray]:
    return words(LOOKED_AT, seed=2)


def even(T: int, S: int) -> tuple[np.ndarray, np.ndarray]:
    """Queries and keys whose scores differ little: what shows is which keys are seen."""
    return normal(3, 1, T, WIDTH) / 8, normal(4, 1, S, WIDTH) / 8
