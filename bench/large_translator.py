"""A translator of NLLB-1.3B's shape with random weights, in the folder that transformers would write for Marian's.

Speed and memory do not depend on the values, nor on the names of the tensors.
"""

import json
import math
from pathlib import Path

import numpy as np

from bench.machine import ROOT
from fastattn.weights.containers.safetensors import NewTensor, write_tensors

WIDTH, INNER, LAYERS, HEADS, WORDS = 1024, 8192, 24, 16, 256_206
_DRAWN = 1 << 22  # numbers, again and again


def write(folder: Path, layers: int = LAYERS) -> Path:
    """Write the folder: 5.5 GB of float32."""
    folder.mkdir()
    shapes: dict[str, tuple[int, ...]] = {"model.shared.weight": (WORDS, WIDTH), "final_logits_bias": (1, WORDS)}

    def linear(name: str, rows: int, columns: int) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (rows, columns), (rows,)

    for stack, blocks in (("encoder", ("self_attn",)), ("decoder", ("self_attn", "encoder_attn"))):
        for i in range(layers):
            layer = f"model.{stack}.layers.{i}"
            for block in blocks:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    linear(f"{layer}.{block}.{part}", WIDTH, WIDTH)
                shapes |= dict.fromkeys((f"{layer}.{block}_layer_norm.{end}" for end in ("weight", "bias")), (WIDTH,))
            linear(f"{layer}.fc1", INNER, WIDTH)
            linear(f"{layer}.fc2", WIDTH, INNER)
            shapes |= dict.fromkeys((f"{layer}.final_layer_norm.{end}" for end in ("weight", "bias")), (WIDTH,))
    numbers = np.random.default_rng(0).standard_normal(_DRAWN, np.float32) * np.float32(0.03)

    def tensor(shape: tuple[int, ...]) -> NewTensor:
        size = math.prod(shape)
        return NewTensor(
            "F32", shape, lambda: (numbers[: min(_DRAWN, size - first)] for first in range(0, size, _DRAWN))
        )

    with open(folder / "model.safetensors", "xb") as stream:
        write_tensors(stream, {name: tensor(shape) for name, shape in shapes.items()})
    words = ["</s>", "<unk>", *(f"word{i}" for i in range(WORDS - 3)), "<pad>"]
    pad = WORDS - 1
    config = {
        "model_type": "marian", "architectures": ["MarianMTModel"], "vocab_size": WORDS, "decoder_vocab_size": WORDS,
        "d_model": WIDTH, "encoder_layers": layers, "decoder_layers": layers, "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS, "encoder_ffn_dim": INNER, "decoder_ffn_dim": INNER,
        "activation_function": "relu", "scale_embedding": True, "max_position_embeddings": 512,
        "share_encoder_decoder_embeddings": True, "tie_word_embeddings": True, "is_encoder_decoder": True,
        "pad_token_id": pad, "decoder_start_token_id": pad, "bad_words_ids": [[pad]], "eos_token_id": 0,
        "bos_token_id": 0, "forced_eos_token_id": 0, "normalize_before": False, "normalize_embedding": False,
        "static_position_embeddings": True, "num_beams": 1,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes((ROOT / "tests" / "goldens" / "text_unigram.model").read_bytes())
    return folder
