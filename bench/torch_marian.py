"""A checkpoint of Marian's architecture, such as zh-en, as transformers' MarianMTModel."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.spec.checkpoint import Checkpoint
from fastattn.weights import read

# transformers' names of linear layers and norms -> fastattn's; one of fastattn's may join the rows of several.
NAMES = {"self_attn_layer_norm": "self_attention.norm", "encoder_attn_layer_norm": "cross_attention.norm"}
NAMES |= {"fc1": "feed_forward.inner", "fc2": "feed_forward.outer", "final_layer_norm": "feed_forward.norm"}
NAMES |= {"self_attn.out_proj": "self_attention.output", "encoder_attn.out_proj": "cross_attention.output"}
NAMES |= {"encoder_attn.q_proj": "cross_attention.query"}
PARTS = {f"self_attn.{name}_proj": ("self_attention.qkv", part) for part, name in enumerate("qkv")}
PARTS |= {f"encoder_attn.{name}_proj": ("cross_attention.key_value", part) for part, name in enumerate("kv")}


def module(checkpoint: Checkpoint) -> Any:
    """The model, on the CPU in float32. Decoders start from the token after the vocabulary's last."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    stack, start = checkpoint.spec.encoder, checkpoint.spec.decoder.vocabulary
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {
            "layers": stack.layers,
            "attention_heads": stack.attention.heads,
            "ffn_dim": stack.feed_forward.inner_width,
        }.items()
    }
    config = MarianConfig(
        vocab_size=start + 1, decoder_vocab_size=start + 1, d_model=stack.width, **sides,
        activation_function=stack.feed_forward.activation, max_position_embeddings=stack.positions.limit,
        scale_embedding=stack.embedding_scale != 1, share_encoder_decoder_embeddings=False, tie_word_embeddings=False,
        pad_token_id=start, decoder_start_token_id=start, forced_eos_token_id=None,
        eos_token_id=checkpoint.input.target_vocabulary.index(checkpoint.input.eos_token), dropout=0.0,
    )  # fmt: skip
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        for name, place in model.state_dict().items():
            tensor = torch.from_numpy(np.array(_tensor(checkpoint, name), np.float32))
            place.reshape(-1)[: tensor.numel()] = tensor.reshape(-1)  # the last row is that of the start token
            place.reshape(-1)[tensor.numel() :] = -np.inf if name == "final_logits_bias" else 0
    return model


def _tensor(checkpoint: Checkpoint, name: str) -> Any:
    words = name.removeprefix("model.").split(".")
    if words[0] in ("final_logits_bias", "lm_head", "shared"):
        ours = {"final_logits_bias": "decoder.projection.bias", "lm_head": "decoder.projection.weight"}
        return _numbers(checkpoint, ours.get(words[0], "encoder.embedding.weight"))
    if words[1] == "layers":
        layer, kind, theirs = ".".join(words[:3]), words[-1], ".".join(words[3:-1])
        if theirs in PARTS:
            ours, part = PARTS[theirs]
            whole = _numbers(checkpoint, f"{layer}.{ours}.{kind}")
            return whole[part * checkpoint.spec.encoder.width :][: checkpoint.spec.encoder.width]
        return _numbers(checkpoint, f"{layer}.{NAMES[theirs]}.{kind}")
    return _numbers(checkpoint, f"{words[0]}.{'positions' if words[1] == 'embed_positions' else 'embedding.weight'}")


def _numbers(checkpoint: Checkpoint, name: str) -> Any:
    tensor = checkpoint.tensors[name]
    return tensor.float32() if hasattr(tensor, "float32") else tensor


def translator(folder: Path, device: str, dtype: str) -> Callable[[list[str]], list[str]]:
    """Greedy search of all texts in one batch."""
    import sentencepiece
    import torch

    checkpoint = read(folder)
    model, text = module(checkpoint).to(device, getattr(torch, dtype)), checkpoint.input
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    ids, padding = {word: i for i, word in enumerate(text.source_vocabulary)}, model.config.pad_token_id
    ends = [ids[text.eos_token]] * text.add_source_eos

    @torch.inference_mode()
    def translate(texts: list[str]) -> list[str]:
        rows = [[ids.get(piece, ids[text.unk_token]) for piece in pieces.encode(line, out_type=str)] for line in texts]
        longest = max(map(len, rows)) + len(ends)
        inputs = torch.tensor([[*row, *ends] + [padding] * (longest - len(row) - len(ends)) for row in rows])
        inputs = inputs.to(device)
        outputs = model.generate(
            input_ids=inputs, attention_mask=inputs != padding, num_beams=1, do_sample=False, max_new_tokens=256
        )
        special = {padding, model.config.eos_token_id}
        words = [[text.target_vocabulary[i] for i in row if i not in special] for row in outputs.tolist()]
        return ["".join(row).replace("\u2581", " ").strip() for row in words]

    return translate
