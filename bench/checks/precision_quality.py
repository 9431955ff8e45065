"""Quality of int8 and bfloat16: BLEU of translations, sentence vectors and their ranking."""

from functools import partial

import numpy as np

from bench.checks import Data, Findings, check
from bench.checks.encoding import spearman
from bench.timing import library_threads
from bench.translators import TRANSLATORS
from fastattn import Encoder
from fastattn.weights import download


@check(
    "int8-bleu",
    "zh-en, all 997 lines, beam 4: BLEU in int8 at most 0.2 below CTranslate2's int8, at most 0.2 below our float32",
)
def bleu(findings: Findings, data: Data) -> None:
    import sacrebleu

    folder, lines, references = download.resolve("zh-en"), data.flores("zh"), data.flores("en")
    found = {}
    with library_threads(2):
        for name, engine, precision in (
            ("int8", "fastattn", "int8"),
            ("float32", "fastattn", "float32"),
            ("CTranslate2's int8", "CTranslate2", "int8"),
        ):
            # the last setting: each thread translates sentences of its own, in the largest batches
            translate = list(TRANSLATORS[engine].make(folder, 2, precision).values())[-1]
            found[name] = sacrebleu.corpus_bleu(translate(lines, 4), [references]).score
    ours = found.pop("int8")
    for name, score in found.items():
        findings.at_least(f"less {name}:", ours - score, "BLEU", -0.2, f"{ours:.2f}, {score:.2f}")


def _minilm(findings: Findings, data: Data, precision: str, apart: float, alike: float) -> None:
    first, second, scores = data.stsb
    narrow, wide = (
        [encoder.encode(texts) for texts in (first, second)]
        for encoder in (Encoder("minilm", precision), Encoder("minilm", "float32"))
    )
    ranks = [spearman((a * b).sum(1), np.array(scores)) for a, b in (narrow, wide)]
    cosines = np.concatenate([(a * b).sum(1) for a, b in zip(narrow, wide, strict=True)])
    findings.at_most("Spearman apart", abs(ranks[0] - ranks[1]), "", apart, f"{ranks[0]:.5f}, float32 {ranks[1]:.5f}")
    remark = f"mean {cosines.mean():.5f}, {(cosines < alike).sum()} of {len(cosines)} below"
    findings.at_least("least cosine", float(cosines.min()), "", alike, remark)


for _precision, _apart, _alike in (("int8", 0.002, 0.99), ("bfloat16", 0.0005, 0.9995)):
    _claim = f"STS dev: Spearman within {_apart} of float32; cosine to float32 at least {_alike} everywhere"
    check(f"{_precision}-minilm-quality", _claim)(partial(_minilm, precision=_precision, apart=_apart, alike=_alike))
