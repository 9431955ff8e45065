"""Encoders as PyTorch modules, which exporters take: (ids, mask) [B, T], int64 -> rows [B, T, D]."""

from pathlib import Path
from typing import Any

import torch
import transformers

from bench.request import silent


class Rows(torch.nn.Module):
    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return self.model(input_ids=input_ids, attention_mask=attention_mask)[0]


def rows_module(folder: Path, attention: str, kind: str = "AutoModel") -> Rows:
    """The folder's model in float32.

    kind       the class of transformers
    attention  one of transformers' implementations; ValueError for one that the model has not
    """
    with silent():
        loaded = getattr(transformers, kind).from_pretrained(folder, dtype=torch.float32, attn_implementation=attention)
    loaded.config.use_cache = False
    return Rows(loaded).eval()
