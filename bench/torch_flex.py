"""PyTorch's FlexAttention (Dong 2024) of arrays [B, H, T, K], which its compiler turns into C++."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from bench.attention_cases import Arrays


def flex(arrays: Arrays, score_mod: Callable | None = None, mask_mod: Callable | None = None) -> Callable[[], Any]:
    """A call of FlexAttention, compiled when first called, for as many threads as PyTorch has now."""
    query, key, value = map(torch.from_numpy, arrays)
    torch.compiler.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    with torch.inference_mode():
        blocks = None
        if mask_mod is not None:
            blocks = create_block_mask(mask_mod, None, None, query.shape[2], key.shape[2], device="cpu")

    @torch.inference_mode()
    def run() -> Any:
        return compiled(query, key, value, score_mod=score_mod, block_mask=blocks)

    return run
