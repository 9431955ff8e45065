"""PyTorch's scaled_dot_product_attention of arrays [B, H, T, K]."""

from typing import Any

import torch
import torch.nn.functional as F

from bench.attention_cases import Arrays
from bench.case import Side


def scaled(arrays: Arrays, causal: bool) -> Side:
    query, key, value = map(torch.from_numpy, arrays)

    @torch.inference_mode()
    def run() -> Any:
        return F.scaled_dot_product_attention(query, key, value, is_causal=causal)

    return Side({"": run}, view=lambda out: out.numpy())
