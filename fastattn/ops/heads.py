"""The layout of attention heads in rows, and the scale and softcap of scores."""

from typing import NamedTuple


class Heads(NamedTuple):
    """The heads of queries, keys and values in rows that may have other columns too.

    query_heads    head h attends to the keys and values of head h // (query_heads // key_heads) (Ainslie 2023)
    width          of a query's and a key's head; ``value_width`` of a value's, 0: the same
    query_column   the column of the first head in a query's row; likewise ``key_column`` and ``value_column``
    scale          multiplies the scores; None: 1 / sqrt(width)
    softcap        a scaled score s becomes softcap * tanh(s / softcap); 0: no cap. Before bias and mask, as Gemma 2
                   (Gemma Team 2024) and FlashAttention have it, and ONNX's Attention since its order was mended: a
                   hidden key stays hidden
    """

    query_heads: int
    key_heads: int
    width: int
    value_width: int = 0
    query_column: int = 0
    key_column: int = 0
    value_column: int = 0
    scale: float | None = None
    softcap: float = 0.0
