"""Encoder-decoders to compare with transformers: three small ones of every kind, and published ones with few layers."""

from typing import Any

from bench.translator_models import TranslatorCase

WIDE = {
    "d_model": 36, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 3, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 53, "decoder_ffn_dim": 47, "max_position_embeddings": 64, "init_std": 0.5,
}  # fmt: skip
ONE_LAYER = WIDE | {
    "d_model": 20, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 5,
    "encoder_ffn_dim": 33, "decoder_ffn_dim": 29, "tie_word_embeddings": False,
}  # fmt: skip
ODD = WIDE | {
    "d_model": 33, "encoder_layers": 2, "encoder_attention_heads": 11, "decoder_attention_heads": 3,
    "activation_function": "swish",
}  # fmt: skip
# The published models' searches, and further settings.
EARLY = {"max_length": 24, "num_beams": 4, "early_stopping": True, "forced_eos_token_id": 2}
LATE = {"max_length": 22, "num_beams": 4, "length_penalty": 0.6, "no_repeat_ngram_size": 3}
NEVER = {"max_length": 20, "num_beams": 4, "early_stopping": "never", "min_length": 5, "bad_words_ids": [[7], [12, 13]]}
SUMMARY = EARLY | {"length_penalty": 2.0, "min_length": 8, "no_repeat_ngram_size": 3}
PENALTIES = {"max_length": 21, "num_beams": 4, "repetition_penalty": 1.3, "suppress_tokens": [9, 30, 31]}
SHORT = {"max_length": 7, "num_beams": 4, "length_penalty": 0.8, "forced_eos_token_id": 1}
TC_BIG = {"max_length": 24, "num_beams": 4, "forced_eos_token_id": 82, "renormalize_logits": True}


def cases(
    name: str, model_class: str, *cases: tuple[dict[str, Any], dict[str, Any]], tokenizer: str = "", **more: Any
) -> list[TranslatorCase]:
    """Cases of one kind, each a config.json and a generation_config.json."""
    return [
        TranslatorCase(f"{name}-{i}", f"{model_class}ForConditionalGeneration", tokenizer or name, *case, **more)
        for i, case in enumerate(cases)
    ]


SCALED = {"scale_embedding": True, "activation_function": "relu"}
ENGLISH_FRENCH = {"source": "eng_Latn", "target": "fra_Latn"}
MARIAN = {"scale_embedding": True, "activation_function": "relu"}
CASES = [
    *cases(
        "m2m100", "M2M100", (WIDE | SCALED, EARLY), (ONE_LAYER | SCALED, LATE), (ODD, NEVER), source="en", target="fr"
    ),
    *cases("nllb", "M2M100", (WIDE | SCALED, LATE), (ONE_LAYER, PENALTIES), (ODD | SCALED, EARLY), **ENGLISH_FRENCH),
    *cases(
        "legacy", "M2M100", (WIDE | SCALED, NEVER), tokenizer="nllb", settings={"legacy_behaviour": True},
        source="zho_Hans", target="deu_Latn",
    ),
    *cases("mbart", "MBart", (WIDE, EARLY), (ONE_LAYER, LATE), (ODD, PENALTIES), source="en_XX", target="ro_RO"),
    *cases("mbart50", "MBart", (WIDE, EARLY), (ONE_LAYER, NEVER), (ODD, LATE), source="en_XX", target="uk_UA"),
    *cases("bart", "Bart", (WIDE, SUMMARY), (ONE_LAYER, NEVER), (ODD | {"scale_embedding": True}, PENALTIES)),
    *cases("pegasus", "Pegasus", (WIDE | SCALED, SHORT), (ONE_LAYER, LATE), (ODD, NEVER | {"forced_eos_token_id": 1})),
    TranslatorCase("tc-big-0", "MarianMTModel", "marian", WIDE | MARIAN, TC_BIG),
    TranslatorCase("tc-big-1", "MarianMTModel", "marian", ONE_LAYER | MARIAN, TC_BIG | {"early_stopping": True}),
    TranslatorCase("tc-big-2", "MarianMTModel", "marian", ODD, TC_BIG | {"no_repeat_ngram_size": 2, "max_length": 9}),
]  # fmt: skip
LARGE = {
    "d_model": 1024, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 16,
    "decoder_attention_heads": 16, "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096, "max_position_embeddings": 1024,
    "init_std": 0.04,
}  # fmt: skip
NLLB = LARGE | SCALED
# The published sizes, except the number of layers, and the published search.
PUBLISHED = [
    *cases("nllb", "M2M100", (NLLB, {"max_length": 24}), rows=256_206, **ENGLISH_FRENCH),
    *cases(
        "nllb", "M2M100", (NLLB | {"encoder_ffn_dim": 8192, "decoder_ffn_dim": 8192}, {"max_length": 24}),
        rows=256_206, **ENGLISH_FRENCH,
    ),
    *cases(
        "m2m100", "M2M100", (NLLB, {"max_length": 24, "num_beams": 5, "early_stopping": True}), rows=128_112,
        source="en", target="fr",
    ),
    *cases(
        "mbart50", "MBart", (LARGE | {"scale_embedding": True, "activation_function": "relu"}, EARLY), rows=250_054,
        source="en_XX", target="uk_UA",
    ),
    TranslatorCase("tc-big", "MarianMTModel", "marian", NLLB, TC_BIG, rows=53_017),
    *cases("bart", "Bart", (LARGE | {"activation_function": "gelu"}, SUMMARY), rows=50_264),
    *cases("pegasus", "Pegasus", (NLLB | {"max_position_embeddings": 512}, SHORT), rows=96_103),
]  # fmt: skip


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
LONG = {"max_length": 24, "num_beams": 4, "min_length": 4, "length_penalty": 2.0, "no_repeat_ngram_size": 2}
EARLY_T5 = EARLY | {"forced_eos_token_id": 1}
SILU = {"feed_forward_proj": "gated-silu"}
T5_CASES = [
    *cases("t5", "T5", (T5 | {"task_specific_params": TASKS}, LONG), rows=140, **GERMAN),
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
# The published sizes, except the number of layers.
T5_PUBLISHED = [
    *cases("t5-small", "T5", (T5_SMALL, LATE), rows=32_128, tokenizer="t5", **GERMAN),
    *cases("flan-t5-base", "T5", (GATED | T5_BASE, PLAIN), rows=32_128, tokenizer="t5"),
    *cases("mt5-small", "MT5", (GATED | MT5_SMALL, PLAIN), rows=250_112, tokenizer="t5"),
    *cases("umt5-small", "UMT5", (GATED | MT5_SMALL, PLAIN), rows=256_384, tokenizer="t5"),
    *cases("madlad400-3b", "T5", (GATED | MADLAD, PLAIN), rows=256_000, tokenizer="madlad", **TO_GERMAN),
]
