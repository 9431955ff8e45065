"""GGUF files of published decoders' shapes with random weights: speed does not depend on their values.

Their types are those that llama.cpp's own quantizer gives a model with tied embeddings, Q4_K for the layers and Q6_K
for the embedding; their vocabulary is as large as the model's, and so are its merges.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.system.cache_folder import cache_root
from fastattn.weights import download

# Block types by numbers in a block: bytes of a block, and where its float16 scales are with the value for each.
_BLOCK = 256
_TYPES = {"Q4_K": (144, {0: 1e-4, 2: 7.5e-4}), "Q6_K": (210, {208: 1.5e-5})}
CONTEXT = 8192


@dataclass(frozen=True)
class Shape:
    """A decoder with gated feed-forward layers and tied embeddings.

    type  transformers' name of the architecture
    form  that of GGUF; "": the file is the catalog's, of real weights
    pre   how GGUF files call its tokenizer
    """

    name: str
    type: str
    layers: int
    width: int
    heads: int
    key_heads: int
    inner: int
    words: int
    form: str = ""
    pre: str = ""
    base: float = 1e4
    head: int = 128

    @property
    def path(self) -> Path:
        if not self.form:
            (file,) = download.resolve(self.name).glob("*.gguf")
            return file
        path = cache_root() / "bench" / f"{self.name}-Q4_K.gguf"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(self, path)
        return path

    def config(self) -> Any:
        from transformers import AutoConfig

        return AutoConfig.for_model(
            self.type,
            vocab_size=self.words,
            hidden_size=self.width,
            intermediate_size=self.inner,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.key_heads,
            head_dim=self.head,
            rms_norm_eps=1e-6,
            rope_theta=self.base,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
        )


SMOLLM2 = Shape("smollm2", "llama", 30, 576, 9, 3, 1536, 49_152, base=1e5, head=64)
QWEN3 = Shape("qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 3072, 151_936, "qwen3", "qwen2", 1e6)
HY_MT = Shape("hy-mt-1.8b", "hunyuan_v1_dense", 32, 2048, 16, 4, 6144, 120_818, "hunyuan-dense", "hunyuan-dense")


def _write(shape: Shape, path: Path) -> None:
    from gguf import GGMLQuantizationType, GGUFWriter

    writer = GGUFWriter(path.with_suffix(".part"), shape.form)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_heads)
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(shape.base)
    tokens, merges = _vocabulary(shape.words)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(shape.pre)
    writer.add_token_list(tokens)
    writer.add_token_types([1] * len(tokens))
    writer.add_token_merges(merges)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)
    rng, query, key = np.random.default_rng(0), shape.head * shape.heads, shape.head * shape.key_heads

    def add(name: str, rows: int, columns: int, kind: str = "Q4_K") -> None:
        size, scales = _TYPES[kind]
        blocks = rng.integers(0, 256, (rows * columns // _BLOCK, size), np.uint8)
        for place, scale in scales.items():
            blocks[:, place : place + 2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
        writer.add_tensor(name, blocks.reshape(rows, -1), raw_dtype=GGMLQuantizationType[kind])

    def norm(name: str, width: int) -> None:
        writer.add_tensor(name, np.ones(width, np.float32))

    add("token_embd.weight", shape.words, shape.width, "Q6_K")
    norm("output_norm.weight", shape.width)
    for i in range(shape.layers):
        layer = f"blk.{i}."
        for name, rows, columns in (
            ("attn_q", query, shape.width),
            ("attn_k", key, shape.width),
            ("attn_v", key, shape.width),
            ("attn_output", shape.width, query),
            ("ffn_gate", shape.inner, shape.width),
            ("ffn_up", shape.inner, shape.width),
            ("ffn_down", shape.width, shape.inner),
        ):
            add(f"{layer}{name}.weight", rows, columns)
        for name in ("attn_norm", "ffn_norm"):
            norm(f"{layer}{name}.weight", shape.width)
        for name in ("attn_q_norm", "attn_k_norm"):
            norm(f"{layer}{name}.weight", shape.head)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.with_suffix(".part").rename(path)


def _vocabulary(words: int) -> tuple[list[str], list[str]]:
    """All bytes, then pairs of two tokens; (tokens, merges)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = (chr(256 + n) for n in range(256 - len(printable)))
    tokens = [chr(byte) if byte in printable else next(hidden) for byte in range(256)]
    pairs = [(first, second) for first in tokens for second in tokens]
    pairs += [(one + two, third) for one, two in pairs[:1000] for third in tokens]
    chosen = pairs[: words - len(tokens)]
    return tokens + [first + second for first, second in chosen], [f"{first} {second}" for first, second in chosen]
