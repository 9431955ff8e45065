"""Little models of several languages, in each way in which a model may be told them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fastattn import Translator
from fastattn.spec.text_spec import LanguageTokens
from tests.models.tiny_models import LETTERS, random_checkpoint, steady_ops
from tests.weights.ctranslate2 import writer

WORDS = ("<unk>", "<s>", "</s>", *LETTERS)
FORMS = {"m2m100": "__{}__", "madlad": "<2{}>", "opus": ">>{}<<"}
CODES = {
    "nllb": ("eng_Latn", "fra_Latn", "zho_Hans"),
    "mbart50": ("en_XX", "fr_XX", "zh_CN"),
    "mbart": ("en_XX", "fr_XX", "zh_CN"),
}


def tokens_of(kind: str) -> dict[str, str]:
    """{code: token} of the languages, English, French and Chinese."""
    return {code: FORMS.get(kind, "{}").format(code) for code in CODES.get(kind, ("en", "fr", "zh"))}


def write_folder(path: Path, kind: str = "", seed: int = 7) -> Path:
    """A CTranslate2 folder of a random model; without a kind it is told no languages."""
    words = [*WORDS[:16], *tokens_of(kind).values()] if kind else list(WORDS)
    rng = np.random.default_rng(seed)
    writer.write_model(path, writer.random_transformer(rng, source_vocabulary=len(words), target_vocabulary=len(words)))
    writer.write_vocabularies(path, words)
    writer.write_config(path, decoder_start_token=None if kind == "mbart" else "</s>")
    return path


def told(languages: LanguageTokens | None, **text: Any) -> Translator:
    """A Translator in memory whose last words are the languages' tokens."""
    checkpoint = random_checkpoint(vocabulary=len(WORDS))
    words = (*WORDS[: -len(languages.tokens)], *languages.tokens.values()) if languages else WORDS
    checkpoint.text = replace(
        checkpoint.text, source_vocabulary=words, target_vocabulary=words, languages=languages, **text
    )
    return Translator.from_checkpoint(checkpoint, ops=steady_ops, threads=1)
