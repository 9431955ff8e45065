"""Forms of attention that have a function of scores or masks, and what else says the same.

The functions are made from what they capture, so that PyTorch's FlexAttention takes them too, with its own tensors.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

WINDOW, CAP, DOCUMENTS = 256, 30.0, 8


def alibi(slopes: Any) -> Callable:
    """A bias of each head by distance (Press 2022)."""
    return lambda score, b, h, t, s: score + slopes[h] * (s - t)


def capped(tanh: Callable) -> Callable:
    return lambda score, b, h, t, s: CAP * tanh(score / CAP)


def causal(b: Any, h: Any, t: Any, s: Any) -> Any:
    return s <= t


def within(b: Any, h: Any, t: Any, s: Any) -> Any:
    return (s <= t) & (t - s <= WINDOW)


def same_document(document: Any) -> Callable:
    return lambda b, h, t, s: document[t] == document[s]


@dataclass
class Form:
    """function   its options of fastattn.attention with a function
    make       makes that function of what it captures; None: it captures nothing
    captured   an array, or np.tanh
    others     {name: options that say the same}
    """

    kind: str  # score_mod or mask_mod
    make: Callable
    captured: Any = None
    others: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def function(self) -> Callable:
        return self.make if self.captured is None else self.make(self.captured)

    @property
    def options(self) -> dict[str, Any]:
        return {self.kind: self.function}


def slopes(heads: int) -> np.ndarray:
    return (2.0 ** (-8.0 * np.arange(1, heads + 1) / heads)).astype(np.float32)


def forms(heads: int, length: int) -> dict[str, Form]:
    places = np.arange(length, dtype=np.float32)
    slopes_H = slopes(heads)
    document_T = np.sort(np.random.default_rng(0).integers(0, DOCUMENTS, length)).astype(np.int32)
    bias_HTS = slopes_H[:, None, None] * (places - places[:, None])
    return {
        "ALiBi": Form("score_mod", alibi, slopes_H, {"bias array": {"bias": bias_HTS}}),
        "soft cap": Form("score_mod", capped, np.tanh, {"softcap": {"softcap": CAP}}),
        "causal": Form("mask_mod", causal, None, {"causal": {"causal": True}}),
        "window": Form("mask_mod", within, None, {"window": {"window": (WINDOW, 0)}}),
        "documents": Form("mask_mod", same_document, document_T, {"mask": {"mask": document_T[:, None] == document_T}}),
    }
