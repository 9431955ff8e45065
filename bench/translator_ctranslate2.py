"""Folders that CTranslate2's converter makes of Hugging Face's, here and in CTranslate2."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import ctranslate2
from ctranslate2.converters import TransformersConverter
from transformers import T5Tokenizer

from bench.translator_models import Oracle, TranslatorCase, write_json
from fastattn import Translator

LONGEST = 24


def with_equal_heads(case: TranslatorCase) -> TranslatorCase:
    """The case with as many heads in both stacks: the converter's folders name one number."""
    heads = case.config.get("encoder_attention_heads")
    return replace(case, config=case.config | {"decoder_attention_heads": heads}) if heads else case


# What published files say, and the converter asks for: norms before sublayers, a norm of the embedding.
PUBLISHED = {"bart": (False, True), "mbart": (True, True), "pegasus": (True, False)}


def converted(folder: Path, out: Path, precision: str | None = None) -> Path:
    """The converter's folder of one that transformers has saved, which is completed for it."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    before, embedding = PUBLISHED.get(config["model_type"], (False, False))
    kind = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))["tokenizer_class"]
    write_json(
        folder / "config.json",
        config | {"normalize_before": before, "normalize_embedding": embedding, "tokenizer_class": kind},
    )
    if kind == "T5Tokenizer":  # or UMT5's is not found
        T5Tokenizer.from_pretrained(folder).save_pretrained(folder)
    TransformersConverter(str(folder)).convert(str(out), quantization=precision, force=True)
    return out


def tokens_of_both(out: Path, folder: Path, case: TranslatorCase, texts: Sequence[str]) -> dict[str, int]:
    """How many of the texts have the same tokens in greedy search and with a beam."""
    oracle = Oracle(folder, case)
    sources = [oracle.tokenizer.convert_ids_to_tokens(ids) for ids in oracle.ids(texts)]
    token = f"__{case.target}__" if case.tokenizer == "m2m100" else case.target
    prefixes = [[token] if token and not case.prefix else [] for _ in texts]
    theirs, ours, same = ctranslate2.Translator(str(out)), Translator(out), {}
    for name, beams in (("greedy", 1), ("beam 4", 4)):
        expected = theirs.translate_batch(
            sources, target_prefix=prefixes, beam_size=beams, max_decoding_length=LONGEST, min_decoding_length=0
        )
        found = ours.translate_tokens(
            sources, prefixes, beam_size=beams, max_decoding_length=LONGEST, min_decoding_length=0
        )
        same[name] = sum(one.tokens == other.hypotheses[0] for one, other in zip(found, expected))
    return same
