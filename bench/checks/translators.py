"""Encoder-decoders of random weights against transformers and CTranslate2: ids, logits, searches, texts."""

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.checks import Data, Findings, check
from bench.translator_cases import CASES, PUBLISHED, T5_CASES, T5_PUBLISHED
from bench.translator_models import TranslatorCase, build, make_texts

TEXTS = 30


def compared(findings: Findings, data: Data, cases: Sequence[TranslatorCase], count: int = TEXTS) -> None:
    import transformers

    from bench.translator_comparison import agreement

    texts = make_texts(count, 3)
    findings.say(f"transformers {transformers.__version__}")
    for seed, case in enumerate(cases):
        with tempfile.TemporaryDirectory() as folder:
            build(Path(folder), case, seed)
            result = agreement(Path(folder), case, texts)
        same = min(result.ids, result.greedy, result.beam, result.joined)
        remark = f"ids {result.ids}, greedy {result.greedy}, beam 4 {result.beam}, texts {result.joined}"
        findings.at_least(f"{case.name}:", same, f"of {count} the same", count, remark)
        findings.at_most("logits", result.logits, "of the largest", 1e-4)


def tokens_compared(findings: Findings, data: Data, cases: Sequence[TranslatorCase]) -> None:
    from bench.translator_comparison import converted, tokens_of_both, with_equal_heads

    texts = make_texts(TEXTS, 3)
    for seed, case in enumerate(cases):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "model").mkdir()
            build(Path(folder) / "model", with_equal_heads(case), seed)
            out = converted(Path(folder) / "model", Path(folder) / "converted")
            same: dict[str, Any] = tokens_of_both(out, Path(folder) / "model", case, texts)
        findings.at_least(f"{case.name}:", min(same.values()), f"of {TEXTS} the same", TEXTS, str(same))


KINDS = "T5, flan-T5, mT5, UMT5 and MADLAD-400"
FOLDERS = "folders of ct2-transformers-converter: CTranslate2's tokens, greedy and beam 4"
for _name, _kinds, _small, _published in (
    ("translators", "NLLB, M2M100, mBART, BART, Pegasus, tc-big", CASES, PUBLISHED),
    ("t5", KINDS, T5_CASES, T5_PUBLISHED),
):
    check(f"{_name}-transformers", f"{_kinds}: three small ones each, as transformers")(partial(compared, cases=_small))
    check(f"{_name}-published", f"{_kinds} at published sizes with two layers a side: as transformers")(
        partial(compared, cases=_published, count=10)
    )
    check(f"{_name}-ctranslate2", f"{_kinds}, {FOLDERS}")(partial(tokens_compared, cases=_small))
