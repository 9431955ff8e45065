"""Scores: how well a query and a key agree. Each is a small frozen object that ``attend`` takes as ``score``.

Additive and Graph have kernels of their own. All others are dot products of changed queries and keys: see ``Product``.
Parameters are float32; weights are (D, K), which all heads share, or (H, D, K), and vectors likewise.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from fastattn.array_attention.arguments import MAX_HEAD_WIDTH
from fastattn.errors import InputError
from fastattn.mechanisms.arrays import check_float32, check_number, per_head, project, vector_per_head
from fastattn.ops.protocol import Ops


class Product(NamedTuple):
    """A score as dot products: cap(scale q . k) + bias, of queries (B, T, H, K) and keys (B, S, G, K)."""

    query_BTHK: np.ndarray
    key_BSGK: np.ndarray
    scale: float = 1.0
    softcap: float = 0.0
    bias: np.ndarray | None = None


def _check_same_width(query_BTHK: np.ndarray, key_BSGK: np.ndarray) -> None:
    if query_BTHK.shape[3] != key_BSGK.shape[3]:
        raise InputError(f"key: expected the query's width {query_BTHK.shape[3]}, got {key_BSGK.shape[3]}")


@dataclass(frozen=True)
class Dot:
    """q . k (Luong 2015, equation 8, dot)."""

    def product(self, ops: Ops, query_BTHK: np.ndarray, key_BSGK: np.ndarray) -> Product:
        _check_same_width(query_BTHK, key_BSGK)
        return Product(query_BTHK, key_BSGK)


@dataclass(frozen=True, eq=False)
class ScaledDot:
    """cap(scale q . k) + bias (Vaswani 2017, equation 1).

    scale    None: 1 / sqrt(K)
    softcap  a score s becomes softcap tanh(s / softcap) (Gemma Team 2024); 0 or None: no cap
    bias     float32, broadcast to (B, H, T, S): ``alibi_bias`` (Press 2022), ``t5_bias`` (Raffel 2020), any other
    """

    scale: float | None = None
    softcap: float | None = 0.0
    bias: np.ndarray | None = None

    def product(self, ops: Ops, query_BTHK: np.ndarray, key_BSGK: np.ndarray) -> Product:
        _check_same_width(query_BTHK, key_BSGK)
        scale = max(query_BTHK.shape[3], 1) ** -0.5 if self.scale is None else check_number("scale", self.scale)
        softcap = 0.0 if self.softcap is None else check_number("softcap", self.softcap, 0)
        return Product(query_BTHK, key_BSGK, scale, softcap, self.bias)


@dataclass(frozen=True)
class Content:
    """sharpness cos(q, k) (Graves 2014, equations 5 and 6): 0 where q or k is zero.

    sharpness  Graves' beta, a number from 0 on
    """

    sharpness: float = 1.0

    def product(self, ops: Ops, query_BTHK: np.ndarray, key_BSGK: np.ndarray) -> Product:
        _check_same_width(query_BTHK, key_BSGK)
        scale = check_number("sharpness", self.sharpness, 0)
        return Product(ops.unit_vectors(query_BTHK), ops.unit_vectors(key_BSGK), scale)


@dataclass(frozen=True, eq=False)
class General:
    """q W k, bilinear (Luong 2015, equation 8, general), of queries of width Q and keys of width K.

    weight  (Q, K), which all heads share, or (H, Q, K)
    """

    weight: np.ndarray

    def product(self, ops: Ops, query_BTHK: np.ndarray, key_BSGK: np.ndarray) -> Product:
        weight = check_float32("weight", self.weight, "(Q, K)", "(H, Q, K)")
        if weight.shape[-1] != (K := key_BSGK.shape[3]):
            raise InputError(f"weight: expected a last axis of {K}, the key's width, got {weight.shape}")
        return Product(project(ops, query_BTHK, "weight", np.ascontiguousarray(weight.swapaxes(-1, -2))), key_BSGK)


@dataclass(frozen=True, eq=False)
class Location:
    """W q, a score for each position, whatever the key there: keys may be None (Luong 2015, equation 8, location).

    weight  (L, K), or (H, L, K): a row for each of L positions, at least as many as there are keys
    """

    weight: np.ndarray

    def product(self, ops: Ops, query_BTHK: np.ndarray, key_BSGK: np.ndarray) -> Product:
        (B, _, H, K), (S, G) = query_BTHK.shape, key_BSGK.shape[1:3]
        weight_HLK = per_head("weight", self.weight, H, "L", "K")
        if weight_HLK.shape[2] != K or weight_HLK.shape[1] < S:
            raise InputError(f"weight: expected at least {S} rows of {K}, got {weight_HLK.shape[1:]}")
        if G != H:
            raise InputError(f"value: expected {H} heads, as many as in the query, got {G}")
        rows_SHK = weight_HLK[:, :S].transpose(1, 0, 2)
        return Product(query_BTHK, np.ascontiguousarray(np.broadcast_to(rows_SHK, (B, S, H, K))))


@dataclass(frozen=True, eq=False)
class Additive:
    """v . tanh(W q + U k + b), also called concat (Bahdanau 2015, section A.1.2; Luong 2015, equation 8, concat).

    query_weight, key_weight  W (D, Q) and U (D, K), or (H, D, ...); they may be the halves of one matrix for [q; k]
    vector  v (D,), or (H, D);  bias  b likewise, or None
    """

    query_weight: np.ndarray
    key_weight: np.ndarray
    vector: np.ndarray
    bias: np.ndarray | None = None

    def project(
        self, ops: Ops, query_BTHK: np.ndarray, key_BSGK: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """W q + b (B, T, H, D), U k (B, S, H or G, D), v (H, D)."""
        H = query_BTHK.shape[2]
        query_BTHD = project(ops, query_BTHK, "query_weight", self.query_weight)
        if np.ndim(self.key_weight) == 3 and key_BSGK.shape[2] != H:
            key_BSGK = np.repeat(key_BSGK, H // key_BSGK.shape[2], axis=2)
        key_BSGD = project(ops, key_BSGK, "key_weight", self.key_weight)
        D = query_BTHD.shape[3]
        if D > MAX_HEAD_WIDTH:
            raise InputError(f"query_weight: expected at most {MAX_HEAD_WIDTH} rows, got {D}")
        if key_BSGD.shape[3] != D:
            raise InputError(f"key_weight: expected {D} rows, as many as in query_weight, got {key_BSGD.shape[3]}")
        vector_HD = vector_per_head("vector", self.vector, H, D, "a row of query_weight")
        if self.bias is not None:
            query_BTHD = query_BTHD + vector_per_head("bias", self.bias, H, D, "a row of query_weight")
        return query_BTHD, key_BSGD, vector_HD


@dataclass(frozen=True, eq=False)
class Graph:
    """LeakyReLU(a . [q; k]) (Velickovic 2018, equation 3), of projected queries and keys, W h.

    vector  a (2 K,), or (H, 2 K): first the query's half, then the key's
    slope   of the LeakyReLU below zero
    """

    vector: np.ndarray
    slope: float = 0.2

    def terms(self, ops: Ops, query_BTHK: np.ndarray, key_BSGK: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """The two terms of the sum a . [q; k], (B, T, H) and (B, S, H), and the slope."""
        _check_same_width(query_BTHK, key_BSGK)
        H, K = query_BTHK.shape[2:]
        vector_HK2 = vector_per_head("vector", self.vector, H, 2 * K, "of a query and a key")
        key_BSHK = np.repeat(key_BSGK, H // key_BSGK.shape[2], axis=2)
        halves = (np.ascontiguousarray(half[:, None]) for half in (vector_HK2[:, :K], vector_HK2[:, K:]))
        target, source = (project(ops, x, "vector", half)[..., 0] for x, half in zip((query_BTHK, key_BSHK), halves))
        return target, source, check_number("slope", self.slope)

    def product(self, ops: Ops, query_BTHK: np.ndarray, key_BSGK: np.ndarray) -> Product:
        """The score as a bias beside products that are zero: for keys that are not a graph's neighbours alone."""
        target_BTH, source_BSH, slope = self.terms(ops, query_BTHK, key_BSGK)
        (B, T, H), S = target_BTH.shape, source_BSH.shape[1]
        bias_BHTS, scaled_TS = np.empty((B, H, T, S), np.float32), np.empty((T, S), np.float32)
        choose = np.maximum if slope <= 1 else np.minimum  # of x and slope x: the LeakyReLU
        for b, h in np.ndindex(B, H):
            bias_TS = np.add(target_BTH[b, :, h, None], source_BSH[b, :, h], out=bias_BHTS[b, h])
            choose(bias_TS, np.multiply(bias_TS, np.float32(slope), out=scaled_TS), out=bias_TS)
        zero_query, zero_key = (np.zeros((*x.shape[:3], 1), np.float32) for x in (query_BTHK, key_BSGK))
        return Product(zero_query, zero_key, bias=bias_BHTS)


Score: TypeAlias = Dot | ScaledDot | Content | General | Location | Additive | Graph
