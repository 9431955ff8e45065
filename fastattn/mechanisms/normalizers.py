"""From scores to a result: what becomes of the softmax. Each is a small frozen object, ``attend``'s ``normalizer``."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fastattn.errors import InputError, check_count
from fastattn.mechanisms.arrays import check_integers
from fastattn.mechanisms.softmax import Inputs

Result = tuple[np.ndarray, np.ndarray | None]


@dataclass(frozen=True)
class Soft:
    """The sum of the values, each times its weight (Bahdanau 2015, equation 5): (B, T, H, V)."""

    def wants_weights(self) -> bool:
        return False

    def finish(self, inputs: Inputs, out_BTHV: np.ndarray, weights_BHTS: np.ndarray | None) -> Result:
        return out_BTHV[:, :, 0] if inputs.headless else out_BTHV, weights_BHTS


@dataclass(frozen=True)
class Hard:
    """The value of one key (Xu 2015, section 4.1): (B, T, H, V); the weights become 1 there and 0 elsewhere.

    seed  an integer: the key is drawn by its weight, the same for the same seed and shape; None: the most probable,
          the first of them
    A query that sees no key yields zeros.
    """

    seed: int | None = None

    def wants_weights(self) -> bool:
        return True

    def finish(self, inputs: Inputs, out_BTHV: np.ndarray, weights_BHTS: np.ndarray | None) -> Result:
        assert weights_BHTS is not None
        B, H, T, S = weights_BHTS.shape
        G = inputs.value_BSGV.shape[2]
        shares_BHT = None
        if self.seed is not None:
            seed = int(check_integers("seed", self.seed, (), 0, np.iinfo(np.int64).max))
            shares_BHT = np.random.default_rng(seed).random((B, H, T))
        out_BTHV, hard_BHTS = np.zeros_like(out_BTHV), np.zeros_like(weights_BHTS)
        for b in range(B if S else 0):
            for h in range(H):
                weights_TS = weights_BHTS[b, h]
                place_T = weights_TS.argmax(axis=1) if shares_BHT is None else _drawn(weights_TS, shares_BHT[b, h])
                weight_T = weights_TS[np.arange(T), place_T]
                unknown_T = np.where(np.isnan(weight_T), weight_T, 1)  # NaN is not swallowed
                hard_BHTS[b, h, np.arange(T), place_T] = np.where(weight_T == 0, 0, unknown_T)
                chosen_TV = inputs.value_BSGV[b, place_T, h // (H // G)] * unknown_T[:, None]
                out_BTHV[b, :, h] = np.where(weight_T[:, None] == 0, 0, chosen_TV)
        return Soft().finish(inputs, out_BTHV, hard_BHTS)


def _drawn(weights_TS: np.ndarray, shares_T: np.ndarray) -> np.ndarray:
    """For each row the first key up to which the weights add up to more than its share of them."""
    sums_TS = np.cumsum(weights_TS, axis=1, dtype=np.float64)
    totals_T = sums_TS[:, -1]
    bounds_T = np.minimum(shares_T * totals_T, np.nextafter(totals_T, 0))
    return np.minimum((sums_TS <= bounds_T[:, None]).sum(axis=1), weights_TS.shape[1] - 1)


@dataclass(frozen=True)
class Pointer:
    """The weights: (B, H, T, S), or (B, T, S) without heads; values may be None (Vinyals 2015, equation 3)."""

    def wants_weights(self) -> bool:
        return True

    def finish(self, inputs: Inputs, out_BTHV: np.ndarray, weights_BHTS: np.ndarray | None) -> Result:
        assert weights_BHTS is not None
        return weights_BHTS[:, 0] if inputs.headless else weights_BHTS, weights_BHTS


@dataclass(frozen=True)
class Saliency:
    """Each query's weights as a map of the input, averaged over heads (Xu 2015, figure 2): (B, T, *grid).

    grid  the axes of the input whose places the keys are, such as (rows, columns); their product is S. None: (S,)
    Values may be None.
    """

    grid: tuple[int, ...] | None = None

    def wants_weights(self) -> bool:
        return True

    def finish(self, inputs: Inputs, out_BTHV: np.ndarray, weights_BHTS: np.ndarray | None) -> Result:
        assert weights_BHTS is not None
        B, _, T, S = weights_BHTS.shape
        if not isinstance(self.grid, tuple | list | type(None)):
            raise InputError(f"grid: expected a tuple of axes, got {type(self.grid).__name__}")
        grid = (S,) if self.grid is None else tuple(check_count("grid", axis) for axis in self.grid)
        places = 1
        for axis in grid:
            places *= axis
        if places != S:
            raise InputError(f"grid: expected axes whose product is {S}, the number of keys, got {grid}")
        return weights_BHTS.mean(axis=1).reshape(B, T, *grid), weights_BHTS


Normalizer: TypeAlias = Soft | Hard | Pointer | Saliency
