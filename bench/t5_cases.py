"""T5's family to compare with transformers: three small models of every kind, and published ones with few layers."""

from bench.translator_cases import EARLY, LATE, NEVER, PENALTIES, cases

T5 = {
    "d_model": 36, "d_kv": 7, "d_ff": 53, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 5,
    "feed_forward_proj": "relu", "initializer_factor": 2.0,
}  # fmt: skip
GATED = T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
T5_ONE_LAYER = {
    "d_model": 20, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 4, "d_kv": 8, "tie_word_embeddings": True,
    "relative_attention_num_buckets": 9, "relative_attention_max_distance": 17,
}  # fmt: skip
T5_ODD = {"d_model": 33, "num_heads": 3, "relative_attention_num_buckets": 7, "relative_attention_max_distance": 11}
TASKS = {
    f"translation_en_to_{code}": {"prefix": f"translate English to {name}: ", "max_length": 300, "num_beams": 4}
    for code, name in {"de": "German", "fr": "French", "ro": "Romanian"}.items()
}
GERMAN = {"source": "en", "target": "de", "prefix": "translate English to German: "}
TO_GERMAN = {"source": "en", "target": "de", "prefix": "<2de> "}
PLAIN = {"max_length": 20, "num_beams": 4}
EARLY_T5 = EARLY | {"forced_eos_token_id": 1}
SILU = {"feed_forward_proj": "gated-silu"}
T5_CASES = [
    *cases("t5", "T5", (T5 | {"task_specific_params": TASKS}, LATE), rows=140, **GERMAN),
    *cases("t5-plain", "T5", (T5 | T5_ONE_LAYER, LATE), (T5 | T5_ODD, NEVER), tokenizer="t5"),
    *cases(
        "flan-t5", "T5", (GATED, EARLY_T5), (GATED | T5_ONE_LAYER, PENALTIES), (GATED | T5_ODD, LATE), tokenizer="t5"
    ),
    *cases(
        "mt5", "MT5", (GATED, PLAIN), (GATED | T5_ONE_LAYER, NEVER), (GATED | T5_ODD | SILU, EARLY_T5), tokenizer="t5"
    ),
    *cases(
        "umt5", "UMT5", (GATED, PLAIN), (GATED | T5_ONE_LAYER, EARLY_T5), (GATED | T5_ODD, PENALTIES), tokenizer="t5"
    ),
    *cases(
        "madlad",
        "T5",
        (GATED | {"initializer_factor": 1.5}, NEVER),
        (GATED | T5_ONE_LAYER, LATE),
        (GATED | T5_ODD, PENALTIES),
        **TO_GERMAN,
    ),
]
T5_SMALL = {
    "task_specific_params": TASKS, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 2, "num_heads": 8,
    "initializer_factor": 1.0, "feed_forward_proj": "relu",
}  # fmt: skip
T5_BASE = T5_SMALL | {"d_model": 768, "num_heads": 12, "feed_forward_proj": "gated-gelu"}
MT5_SMALL = T5_SMALL | {"d_ff": 1024, "num_heads": 6, "feed_forward_proj": "gated-gelu"}
MADLAD = T5_BASE | {"d_model": 1024, "d_kv": 128, "d_ff": 8192, "num_heads": 16}
# The published sizes but for the number of layers.
T5_PUBLISHED = [
    *cases("t5-small", "T5", (T5_SMALL, LATE), rows=32_128, tokenizer="t5", **GERMAN),
    *cases("flan-t5-base", "T5", (GATED | T5_BASE, PLAIN), rows=32_128, tokenizer="t5"),
    *cases("mt5-small", "MT5", (GATED | MT5_SMALL, PLAIN), rows=250_112, tokenizer="t5"),
    *cases("umt5-small", "UMT5", (GATED | MT5_SMALL, PLAIN), rows=256_384, tokenizer="t5"),
    *cases("madlad400-3b", "T5", (GATED | MADLAD, PLAIN), rows=256_000, tokenizer="madlad", **TO_GERMAN),
]
