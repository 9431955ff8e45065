"""Encoder-decoders of random weights beside transformers and CTranslate2: ids, logits, searches, texts."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.checks import Data, Findings, check
from bench.translator_cases import CASES, PUBLISHED
from bench.translator_models import TranslatorCase, build, make_texts

TEXTS = 30


def compared(findings: Findings, cases: Sequence[TranslatorCase], count: int = TEXTS) -> None:
    """Ids, logits, searches and texts here and in transformers."""
    import transformers

    from bench.translator_comparison import agreement

    texts = make_texts(count, 3)
    findings.say(f"transformers {transformers.__version__}")
    for seed, case in enumerate(cases):
        with tempfile.TemporaryDirectory() as folder:
            build(Path(folder), case, seed)
            found = agreement(Path(folder), case, texts)
        same = min(found.ids, found.greedy, found.beam, found.joined)
        remark = f"ids {found.ids}, greedy {found.greedy}, beam 4 {found.beam}, texts {found.joined}"
        findings.at_least(f"{case.name}:", same, f"of {count} the same", count, remark)
        findings.at_most("logits", found.logits, "of the largest", 1e-4)


@check("translators-transformers", "NLLB, M2M100, mBART, BART, Pegasus, tc-big: three small ones each, as transformers")
def small(findings: Findings, data: Data) -> None:
    compared(findings, CASES)


@check("translators-published", "the same kinds at published sizes with two layers a side: as transformers")
def published(findings: Findings, data: Data) -> None:
    compared(findings, PUBLISHED, 10)


@check(
    "translators-ctranslate2", "their folders of ct2-transformers-converter: CTranslate2's tokens, greedy and beam 4"
)
def ctranslate2(findings: Findings, data: Data) -> None:
    tokens_compared(findings, CASES)


def tokens_compared(findings: Findings, cases: Sequence[TranslatorCase]) -> None:
    """The tokens here and in CTranslate2, of its own folders."""
    from bench.translator_ctranslate2 import converted, tokens_of_both, with_equal_heads

    texts = make_texts(TEXTS, 3)
    for seed, case in enumerate(cases):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "model").mkdir()
            build(Path(folder) / "model", with_equal_heads(case), seed)
            out = converted(Path(folder) / "model", Path(folder) / "converted")
            same: dict[str, Any] = tokens_of_both(out, Path(folder) / "model", case, texts)
        findings.at_least(f"{case.name}:", min(same.values()), f"of {TEXTS} the same", TEXTS, str(same))
