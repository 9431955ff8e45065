"""What other libraries call the options of attention, and what each is here.

Of PyTorch, flash-attention, xformers, FlashInfer, Hugging Face, JAX and ONNX.
"""

_WINDOW, _MASK = (
    "window=(left, right), None for no bound",
    "mask where it is bool, True is seen; bias where it is float",
)
_TYPE = "left out: it is the arrays' own, computed in float32"
_WEIGHTS, _LOGARITHM, _SHAPES = "return_weights", "return_logsumexp", "left out: the shapes show it"

ATTENTION = {
    "is_causal": "causal",
    "attn_mask": _MASK,
    "attention_mask": _MASK,
    "attn_bias": "bias, or causal=True",
    "key_padding_mask": "mask=~key_padding_mask[:, None, None], or lengths",
    "alibi_slopes": "a score_mod: score - slopes[h] * abs(t - s)",
    "softmax_scale": "scale",
    "sm_scale": "scale",
    "scaling": "scale",
    "logits_soft_cap": "softcap",
    "soft_cap": "softcap",
    "window_size": _WINDOW,
    "sliding_window": _WINDOW,
    "local_window_size": _WINDOW,
    "left_window_size": _WINDOW,
    "right_window_size": _WINDOW,
    "s_aux": "sinks",
    "learnable_sink": "sinks",
    "cu_seqlens_q": "query_starts of attention_ragged",
    "cu_seqlens_k": "key_starts of attention_ragged",
    "max_seqlen_q": _SHAPES,
    "max_seqlen_k": _SHAPES,
    "cache_seqlens": 'lengths, with causal also offset="end"',
    "nonpad_kv_seqlen": 'lengths, with causal also offset="end"',
    "key_value_seq_lengths": "lengths",
    "block_table": "KVCache, which keeps its own",
    "past_key": "KVCache",
    "past_value": "KVCache",
    "enable_gqa": _SHAPES,
    "q_num_heads": _SHAPES,
    "kv_num_heads": _SHAPES,
    "return_attn_probs": _WEIGHTS,
    "need_weights": _WEIGHTS,
    "output_attentions": _WEIGHTS,
    "average_attn_weights": "return_weights, then weights.mean(axis=1)",
    "return_lse": _LOGARITHM,
    "return_softmax_lse": _LOGARITHM,
    "return_aux": _LOGARITHM,
    "dropout": "left out: nothing is dropped",
    "dropout_p": "left out: nothing is dropped",
    "p": "left out: nothing is dropped",
    "deterministic": "left out: it always is",
    "kernel_options": "left out",
    "num_splits": "left out",
    "backend": "left out",
    "dtype": _TYPE,
    "compute_type": _TYPE,
    "softmax_precision": _TYPE,
    "precision": _TYPE,
    "num_threads": "threads",
    "intra_threads": "threads",
}
LAYER = ATTENTION | {"device": "device, an option of the class"}
ALWAYS_CAUSAL = "left out: steps always are"
STEPS = LAYER | {
    "causal": ALWAYS_CAUSAL,
    "is_causal": ALWAYS_CAUSAL,
    "offset": "left out: queries are the last positions",
    "cache_seqlens": "left out: the cache knows its lengths",
    "mask": "bias, -inf where a key is hidden",
}
