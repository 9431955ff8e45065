"""From scores (B, H, T, S) to a result."""

import numpy as np

from fastattn.ops.reference.attention import softmax_in_place


def weights(scores_BHTS: np.ndarray, mask: np.ndarray | bool = True) -> np.ndarray:
    """The softmax over the keys that ``mask`` shows; zeros where it shows none."""
    return softmax_in_place(np.where(mask, scores_BHTS, -np.inf))


def soft(weights_BHTS: np.ndarray, value_BSHV: np.ndarray) -> np.ndarray:
    return (weights_BHTS @ value_BSHV.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)


def hard(weights_BHTS: np.ndarray, value_BSHV: np.ndarray) -> np.ndarray:
    """The value of the most probable key."""
    one_hot = np.arange(weights_BHTS.shape[3]) == weights_BHTS.argmax(axis=-1)[..., None]
    return soft((one_hot & (weights_BHTS > 0)).astype(value_BSHV.dtype), value_BSHV)


def saliency(weights_BHTS: np.ndarray, grid: tuple[int, ...]) -> np.ndarray:
    B, _, T, _ = weights_BHTS.shape
    return weights_BHTS.mean(axis=1).reshape(B, T, *grid)
