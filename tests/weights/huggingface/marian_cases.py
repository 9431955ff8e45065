"""Small random MarianMT models in Hugging Face directories: for the tests, and for the script of their goldens."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests import GOLDENS
from tests.weights.containers.safetensors_writer import safetensors_bytes

SPM = {"source.spm": GOLDENS / "text_unigram.model", "target.spm": GOLDENS / "text_bpe.model"}
TEXTS = [
    "The quiet teacher opens a window near the river.", ">>pt<< The bridge crosses the river.",
    ">>hi<< no such language", "今天我在花园看见老师，很喜欢。", "a literal </s typed, and 12 ancient lanterns",
    "नमस्ते दुनिया",
]  # fmt: skip
# What is forced on the decoder: ids by their place among those of ordinary pieces.
FORCED = [5, 17, 8, 40, 40, 3]


@dataclass(frozen=True)
class MarianCase:
    """``separate``: two vocabularies and embeddings; ``stored``: random positions and a head of its own in the file."""

    seed: int
    separate: bool = False
    stored: bool = False
    end: float = 6.0
    config: dict[str, Any] = field(default_factory=dict)


CASES = {
    "shared": MarianCase(5, end=7.0),
    "separate": MarianCase(
        2, separate=True, end=11.0,
        config={
            "activation_function": "relu", "scale_embedding": False, "encoder_layers": 1, "encoder_attention_heads": 2,
            "decoder_ffn_dim": 36,
        },
    ),
    "stored": MarianCase(3, stored=True, config={"activation_function": "gelu", "tie_word_embeddings": False}),
}  # fmt: skip


def _pieces(name: str, count: int) -> list[str]:
    """Pieces of a .spm without its special ones."""
    from fastattn.text.sentencepiece import SentencePiece  # the script that makes the goldens has it too

    ordinary = [piece for piece in SentencePiece(SPM[name].read_bytes()).vocabulary if not piece.startswith("<")]
    return ordinary[:count]


def make_vocabularies(case: MarianCase) -> tuple[dict[str, int], dict[str, int]]:
    """vocab.json and target_vocab.json, or vocab.json twice; the padding token has the same id in both."""
    source, target = _pieces("source.spm", 80), _pieces("target.spm", 60)
    special = ["</s>", "<unk>", ">>pt<<"]
    if not case.separate:
        tokens = [*special, *dict.fromkeys(source + target), "<pad>"]
        shared = {token: i for i, token in enumerate(tokens)}
        return shared, shared
    of_source = {token: i for i, token in enumerate([*special, *source, "<pad>"])}
    longer = _pieces("target.spm", 100)
    pad = of_source["<pad>"]
    of_target = [*special[:2], *longer[: pad - 2], "<pad>", *longer[pad - 2 :]]
    return of_source, {token: i for i, token in enumerate(of_target)}


def make_config(case: MarianCase) -> dict[str, Any]:
    source, target = make_vocabularies(case)
    pad = source["<pad>"]
    return {
        "model_type": "marian", "architectures": ["MarianMTModel"], "vocab_size": len(source),
        "decoder_vocab_size": len(target), "d_model": 16, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
        "activation_function": "swish", "scale_embedding": True, "max_position_embeddings": 40,
        "share_encoder_decoder_embeddings": not case.separate, "tie_word_embeddings": True, "is_encoder_decoder": True,
        "pad_token_id": pad, "decoder_start_token_id": pad, "bad_words_ids": [[pad]], "eos_token_id": 0,
        "bos_token_id": 0, "forced_eos_token_id": 0, "normalize_before": False, "normalize_embedding": False,
        "static_position_embeddings": True, "num_beams": 6,
        "early_stopping": True, "renormalize_logits": True,
    } | case.config  # fmt: skip


def make_tensors(case: MarianCase) -> dict[str, np.ndarray]:
    """By transformers' names, float32; the padding token's embedding is zero, as in converted models."""
    rng, config = np.random.default_rng(case.seed), make_config(case)
    width, pad = config["d_model"], config["pad_token_id"]
    tensors: dict[str, np.ndarray] = {}
    for stack, blocks in (("encoder", ("self_attn",)), ("decoder", ("self_attn", "encoder_attn"))):
        inner, shapes = config[f"{stack}_ffn_dim"], {}
        for block in blocks:
            shapes |= {f"{block}.{part}_proj": (width, width) for part in ("q", "k", "v", "out")}
            shapes[f"{block}_layer_norm"] = (width,)
        shapes |= {"fc1": (inner, width), "fc2": (width, inner), "final_layer_norm": (width,)}
        for i in range(config[f"{stack}_layers"]):
            layer = f"model.{stack}.layers.{i}"
            for name, shape in shapes.items():
                (mean, scale), of_bias = ((0, 1.5 * shape[1] ** -0.5), 0.3) if shape[1:] else ((1, 0.2), 0.2)
                tensors[f"{layer}.{name}.weight"] = rng.normal(mean, scale, shape)
                tensors[f"{layer}.{name}.bias"] = rng.normal(0, of_bias, shape[0])
    # So that probabilities are far apart, and a token is not followed by itself for ever.
    tensors[f"{layer}.final_layer_norm.weight"] *= -4
    spread = 0.25 if config["scale_embedding"] else 0.5
    names = ["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"]
    for name, rows in zip(names, (config["vocab_size"], config["decoder_vocab_size"])):
        tensors[name] = rng.normal(0, spread, (rows, width))
        tensors[name][pad] = 0
    if not case.separate:
        tensors["model.shared.weight"] = tensors.pop(names[0])
        del tensors[names[1]]
    if case.stored:  # under each name that it has
        tensors |= dict.fromkeys(names, tensors["model.shared.weight"])
    target = config["decoder_vocab_size"]
    tensors["final_logits_bias"] = rng.normal(0, 0.5, (1, target))
    tensors["final_logits_bias"][0, 0] += case.end  # so that sentences end
    tensors["final_logits_bias"][0, pad] = 8  # were it not ruled out, it would come
    if case.stored:
        for stack in ("encoder", "decoder"):
            shape = config["max_position_embeddings"], width
            tensors[f"model.{stack}.embed_positions.weight"] = rng.normal(0, 0.5, shape)
        tensors["lm_head.weight"] = rng.normal(0, spread, (target, width))
    return {name: value.astype(np.float32) for name, value in tensors.items()}


def write_files(folder: Path, case: MarianCase, **changes: Any) -> Path:
    """A directory without weights; a field of config.json that is changed to None is left out."""
    source, target = make_vocabularies(case)
    config = {name: value for name, value in (make_config(case) | changes).items() if value is not None}
    tokenizer = {"separate_vocabs": case.separate, "source_lang": "en", "target_lang": "pt", "model_max_length": 512}
    contents = {"config.json": config, "vocab.json": source, "tokenizer_config.json": tokenizer}
    if case.separate:
        contents["target_vocab.json"] = target
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    for name, path in SPM.items():
        (folder / name).write_bytes(path.read_bytes())
    return folder


def write_model(folder: Path, case: MarianCase, **changes: Any) -> Path:
    """The whole directory, as safetensors."""
    write_files(folder, case, **changes)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(make_tensors(case)))
    return folder


def forced_ids(case: MarianCase) -> list[int]:
    """The decoder's input: its start token, then ordinary pieces."""
    return [make_config(case)["decoder_start_token_id"], *(3 + place for place in FORCED)]
