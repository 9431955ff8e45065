"""Settings of generation_config.json on a small random MarianMT model: for the tests, and for their goldens' script."""

from typing import Any

from tests.weights.huggingface.marian_cases import CASES, make_config

CASE = CASES["shared"]
PAD = make_config(CASE)["pad_token_id"]
# A search of beams ends as here, and the padding token is no part of the probabilities.
COMMON = {"early_stopping": True, "renormalize_logits": True, "bad_words_ids": [[PAD]], "do_sample": False}
COMMON |= {"pad_token_id": PAD, "decoder_start_token_id": PAD, "eos_token_id": 0, "max_length": 30, "min_length": 0}
SETTINGS: dict[str, dict[str, Any]] = {
    "beams": {"num_beams": 3, "length_penalty": 0.4, "no_repeat_ngram_size": 2},
    "short": {"num_beams": 2, "length_penalty": 1.5, "max_length": 6, "no_repeat_ngram_size": 2},
    "new tokens": {"num_beams": 2, "max_new_tokens": 9, "min_new_tokens": 7, "no_repeat_ngram_size": 2},
    "long": {"num_beams": 4, "min_length": 12, "no_repeat_ngram_size": 2},
    "bad words": {"num_beams": 2, "bad_words_ids": [[PAD], [9], [17, 33], [40, 40]], "no_repeat_ngram_size": 2},
    "forced": {"num_beams": 4, "forced_bos_token_id": 21, "length_penalty": 0.7, "no_repeat_ngram_size": 2},
    "repetition": {"num_beams": 1, "repetition_penalty": 1.7},
    "suppressed": {"num_beams": 1, "suppress_tokens": [20, 33, 51], "no_repeat_ngram_size": 2},
}


def generation_config(name: str) -> dict[str, Any]:
    return COMMON | SETTINGS[name]
