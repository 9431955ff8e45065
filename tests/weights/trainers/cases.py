"""Small Transformers as fairseq and OpenNMT-py describe them: what make_trainers.py builds, and tests read."""

from collections.abc import Iterable

# Units of words by CODES, and some that no text makes.
WORDS = ("low", "lo@@", "w@@", "er", "new", "n@@", "e@@", "w", "s@@", "t", "est", "wid@@", "i@@", "d", ",", "a", "ß")
TARGET = ("kalo", "ka@@", "lo", "mi@@", "mina", "a", "b", "c@@", "d", "e@@", ".")
CODES = "#version: 0.2\nl o\nlo w</w>\ne r</w>\ne s\nes t</w>\nn e\nne w</w>\nw i\nwi d\n"
LINES = ("low lower", "newest widest , a", "  new\u00a0low  ", "x lowest ß er", "wider a a a a", "")


def dictionary(words: Iterable[str]) -> str:
    """The text of fairseq's dict.LANGUAGE.txt."""
    return "".join(f"{word} {99 - i}\n" for i, word in enumerate(words))


def _fairseq(width: int, heads: int, layers: int, inner: int, **options: object) -> dict[str, object]:
    sizes = {"embed_dim": width, "attention_heads": heads, "layers": layers, "ffn_embed_dim": inner}
    stacks = {f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in sizes.items()}
    return stacks | {"max_source_positions": 60, "max_target_positions": 60} | options


FAIRSEQ = {
    "fairseq_before": _fairseq(
        12, 3, 2, 20, encoder_normalize_before=True, decoder_normalize_before=True,
        share_decoder_input_output_embed=True,
    ),
    "fairseq_after": _fairseq(
        8, 2, 1, 10, encoder_learned_pos=True, decoder_learned_pos=True, layernorm_embedding=True, activation_fn="gelu"
    ),
    "fairseq_shared": _fairseq(
        8, 4, 1, 6, share_all_embeddings=True, share_decoder_input_output_embed=True, no_scale_embedding=True,
        decoder_normalize_before=True, no_decoder_final_norm=True, activation_fn="gelu_accurate",
    ),
}  # fmt: skip


def _opennmt(**options: object) -> dict[str, object]:
    common: dict[str, object] = {
        "model_type": "text", "model_task": "seq2seq", "encoder_type": "transformer", "decoder_type": "transformer",
        "enc_layers": 2, "dec_layers": 1, "enc_hid_size": 12, "dec_hid_size": 12, "src_word_vec_size": 12,
        "tgt_word_vec_size": 12, "heads": 3, "transformer_ff": 10, "dropout": [0.1], "attention_dropout": [0.1],
        "position_encoding": True, "position_encoding_type": "SinusoidalInterleaved", "max_relative_positions": 0,
        "relative_positions_buckets": 0, "pos_ffn_activation_fn": "relu", "add_qkvbias": False, "num_kv": 0,
        "add_ffnbias": True, "parallel_residual": False, "shared_layer_norm": False, "layer_norm": "standard",
        "norm_eps": 1e-6, "use_ckpting": [], "world_size": 1, "parallel_mode": "data_parallel",
        "rotary_interleave": True, "rotary_theta": 10000, "rotary_dim": 0, "share_embeddings": False,
        "share_decoder_embeddings": False, "copy_attn": False, "self_attn_type": "scaled-dot", "aan_useffn": False,
        "full_context_alignment": False, "alignment_layer": -3, "alignment_heads": 0, "sliding_window": 0,
        "num_experts": 0, "num_experts_per_tok": 2, "feat_merge": "concat", "feat_vec_exponent": 0.7,
        "feat_vec_size": -1, "freeze_word_vecs_enc": False, "freeze_word_vecs_dec": False, "n_src_feats": 0,
        "quant_layers": [], "lora_layers": [], "optim": "adam",
}  # fmt: skip
    return common | options


OPENNMT = {
    "opennmt_plain": _opennmt(),
    "opennmt_gated": _opennmt(
        position_encoding_type="SinusoidalConcat", pos_ffn_activation_fn="silu", layer_norm="rms", add_qkvbias=True,
        add_ffnbias=False, share_embeddings=True, share_decoder_embeddings=True, norm_eps=1e-5,
    ),
}  # fmt: skip
