"""How the heads of an attention lie in rows, and what a product of a query and a key becomes before all else."""

from typing import NamedTuple


class Heads(NamedTuple):
    """Of queries, keys and values: rows that may hold other columns beside these heads.

    query_heads    head h attends to the keys and values of head h // (query_heads // key_heads) (Ainslie 2023)
    width          of a query's and a key's head; ``value_width`` of a value's, 0: the same
    query_column   where the first head begins in a query's row; ``key_column``, ``value_column`` in theirs
    scale          of the scores; None: 1 / sqrt(width)
    softcap        a scaled score s becomes softcap * tanh(s / softcap); 0: it stays. Before bias and mask, as Gemma 2
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
