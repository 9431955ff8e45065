"""Encoders as PyTorch modules, which exporters take: (ids, mask) [B, T], int64 -> rows [B, T, D]."""

from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from bench.request import silent
from fastattn.layers.attention import alibi_slopes


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


class JinaBert(nn.Module):
    """jina-embeddings-v2's BERT, which its authors publish as remote code and transformers does not have.

    With linear biases to both sides of each position (Günther 2023), added to the scores of PyTorch's own attention,
    and gated feed-forwards. Its tensors have the published names.
    """

    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width, inner = config["hidden_size"], config["intermediate_size"]
        self.heads, self.layers = config["num_attention_heads"], config["num_hidden_layers"]
        self.register_buffer("slopes_H", torch.from_numpy(alibi_slopes(self.heads)).float(), persistent=False)
        shapes = {
            "embeddings.word_embeddings": nn.Embedding(config["vocab_size"], width),
            "embeddings.token_type_embeddings": nn.Embedding(config["type_vocab_size"], width),
            "embeddings.LayerNorm": nn.LayerNorm(width, 1e-12),
        }
        for i in range(self.layers):
            layer = f"encoder.layer.{i}"
            for name in ("self.query", "self.key", "self.value", "output.dense"):
                shapes[f"{layer}.attention.{name}"] = nn.Linear(width, width)
            shapes[f"{layer}.attention.output.LayerNorm"] = nn.LayerNorm(width, 1e-12)
            shapes[f"{layer}.mlp.gated_layers"] = nn.Linear(width, 2 * inner, bias=False)
            shapes[f"{layer}.mlp.wo"] = nn.Linear(inner, width)
            shapes[f"{layer}.mlp.layernorm"] = nn.LayerNorm(width, 1e-12)
        self.parts = nn.ModuleDict({name.replace(".", "/"): part for name, part in shapes.items()})

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """The last hidden states [B, T, D]."""
        types_1D = self._part("embeddings.token_type_embeddings").weight[:1]
        x_BTD = self._part("embeddings.LayerNorm")(self._part("embeddings.word_embeddings")(input_ids) + types_1D)
        place_T = torch.arange(input_ids.shape[1])
        distance_TT = (place_T[:, None] - place_T).abs().float()
        hidden_B11T = (1.0 - attention_mask.float())[:, None, None] * -1e30
        bias_BHTT = hidden_B11T - self.slopes_H[:, None, None] * distance_TT
        for i in range(self.layers):
            x_BTD = self._block(f"encoder.layer.{i}", x_BTD, bias_BHTT)
        return x_BTD

    def _block(self, layer: str, x_BTD: torch.Tensor, bias_BHTT: torch.Tensor) -> torch.Tensor:
        heads_BHTK = (
            self._part(f"{layer}.attention.self.{name}")(x_BTD).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        seen_BTD = scaled_dot_product_attention(*heads_BHTK, attn_mask=bias_BHTT).transpose(1, 2).flatten(2)
        output_BTD = self._part(f"{layer}.attention.output.dense")(seen_BTD)
        x_BTD = self._part(f"{layer}.attention.output.LayerNorm")(x_BTD + output_BTD)
        gate_BTF, rest_BTF = self._part(f"{layer}.mlp.gated_layers")(x_BTD).chunk(2, 2)
        outer_BTD = self._part(f"{layer}.mlp.wo")(gelu(gate_BTF) * rest_BTF)
        return self._part(f"{layer}.mlp.layernorm")(x_BTD + outer_BTD)

    def _part(self, name: str) -> Any:
        return self.parts[name.replace(".", "/")]

    def save(self, folder: Path) -> None:
        named = {name.removeprefix("parts.").replace("/", "."): x for name, x in self.state_dict().items()}
        save_file(named, folder / "model.safetensors")

    def load(self, folder: Path) -> "JinaBert":
        named = load_file(folder / "model.safetensors")
        places = {name.removeprefix("parts.").replace("/", "."): name for name in self.state_dict()}
        self.load_state_dict({places[name]: x for name, x in named.items()})
        return self
