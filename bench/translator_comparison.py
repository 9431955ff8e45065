"""An encoder-decoder's folder here and in transformers or CTranslate2: ids, logits, greedy and beam search, texts."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.translator_models import Oracle, TranslatorCase, write_json
from fastattn import Translator
from fastattn.spec.text_spec import TranslationText
from fastattn.text.translation import TranslationTokenizer
from fastattn.weights import read

FORCED = (5, 6, 7, 8)  # a target whose logits are compared


class Agreement(NamedTuple):
    """How many texts have equal results on both sides; logits: the largest difference relative to the largest."""

    texts: int
    ids: int
    logits: float
    greedy: int
    beam: int
    joined: int

    @property
    def whole(self) -> bool:
        return {self.ids, self.greedy, self.beam, self.joined} == {self.texts} and self.logits <= 1e-4


def logits_of(translator: Translator, source: Sequence[int], target: Sequence[int]) -> np.ndarray:
    """Logits [T, V] after each prefix of the target's ids."""
    model: Any = translator._service.model
    ids, starts = np.array(target, np.int32), np.array([0, len(target)], np.int64)
    hidden_TD, _ = model.prefill(ids, starts, model.encode([np.array(source, np.int32)]))
    return np.asarray(model.output.all_log_probs(hidden_TD))


def log_softmax(logits_TV: np.ndarray) -> np.ndarray:
    shifted_TV = logits_TV - logits_TV.max(axis=1, keepdims=True)
    return np.asarray(shifted_TV - np.log(np.exp(shifted_TV).sum(axis=1, keepdims=True)))


def agreement(folder: Path, case: TranslatorCase, texts: Sequence[str]) -> Agreement:
    oracle, checkpoint = Oracle(folder, case), read(folder)
    text = checkpoint.text
    assert isinstance(text, TranslationText)
    languages: dict[str, Any] = {"source_lang": case.source, "target_lang": case.target} if case.source else {}
    tokenizer, translator = TranslationTokenizer(text), Translator.from_checkpoint(checkpoint)
    pair = tokenizer.pair(*languages.values())
    ours = [tokenizer.source_ids(tokenizer.surrounded_tokens(line, pair)).tolist() for line in texts]
    theirs = oracle.ids(texts)
    target = [oracle.model.generation_config.decoder_start_token_id, *FORCED]
    logits_TV = oracle.logits(theirs[0], target)
    if case.tokenizer == "marian":
        logits_TV[:, oracle.model.config.pad_token_id] = -np.inf
    here_TV, there_TV = logits_of(translator, theirs[0], target), log_softmax(logits_TV)
    is_finite = np.isfinite(there_TV)
    difference = float(np.abs(here_TV[is_finite] - there_TV[is_finite]).max() / np.abs(logits_TV[is_finite]).max())
    same, joined = [], 0
    for beams in (1, 4):
        results = translator.translate(list(texts), details=True, beam_size=beams, split="never", **languages)
        expected = oracle.generate(theirs, beams)
        tokens = [[text.target_vocabulary[index] for index in row] for row in expected]
        ours_BT = [[token for part in result.parts for token in part.tokens] for result in results]
        same.append(sum(map(list.__eq__, ours_BT, tokens)))
        # slow tokenizers join special tokens and rows without a token in another way
        plain = [not any(not token or token.startswith(("__", "<")) for token in row) for row in tokens]
        triples = zip(results, expected, plain)
        joined = sum(not is_plain or result.text == oracle.text(row) for result, row, is_plain in triples)
    return Agreement(len(texts), sum(a == b for a, b in zip(ours, theirs)), difference, *same, joined=joined)


LONGEST = 24


def with_equal_heads(case: TranslatorCase) -> TranslatorCase:
    """The case with as many heads in both stacks: the converter's folders have one number of heads."""
    heads = case.config.get("encoder_attention_heads")
    return replace(case, config=case.config | {"decoder_attention_heads": heads}) if heads else case


# The converter requires what published files say: norms before sublayers, a norm of the embedding.
NORMS = {"bart": (False, True), "mbart": (True, True), "pegasus": (True, False)}


def converted(folder: Path, out: Path) -> Path:
    """The converter's folder of a folder that transformers saved and this function completes."""
    from ctranslate2.converters import TransformersConverter
    from transformers import T5Tokenizer

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    before, embedding = NORMS.get(config["model_type"], (False, False))
    kind = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))["tokenizer_class"]
    write_json(
        folder / "config.json",
        config | {"normalize_before": before, "normalize_embedding": embedding, "tokenizer_class": kind},
    )
    if kind == "T5Tokenizer":  # else UMT5's is not found
        T5Tokenizer.from_pretrained(folder).save_pretrained(folder)
    TransformersConverter(str(folder)).convert(str(out), force=True)
    return out


def tokens_of_both(out: Path, folder: Path, case: TranslatorCase, texts: Sequence[str]) -> dict[str, int]:
    """How many texts have the same tokens in greedy search, and with a beam."""
    import ctranslate2

    oracle = Oracle(folder, case)
    sources = [oracle.tokenizer.convert_ids_to_tokens(ids) for ids in oracle.ids(texts)]
    token = f"__{case.target}__" if case.tokenizer == "m2m100" else case.target
    prefixes = [[token] if token and not case.prefix else [] for _ in texts]
    theirs, ours, same = ctranslate2.Translator(str(out)), Translator(out), {}
    for name, beams in (("greedy", 1), ("beam 4", 4)):
        expected = theirs.translate_batch(
            sources, target_prefix=prefixes, beam_size=beams, max_decoding_length=LONGEST, min_decoding_length=0
        )
        results = ours.translate_tokens(
            sources, prefixes, beam_size=beams, max_decoding_length=LONGEST, min_decoding_length=0
        )
        same[name] = sum(result.tokens == peer.hypotheses[0] for result, peer in zip(results, expected))
    return same
