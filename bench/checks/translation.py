"""Translation against CTranslate2: tokens, scores, BLEU."""

import random
from functools import partial
from pathlib import Path

import numpy as np

import fastattn
from bench.checks import Data, Findings, check
from fastattn.weights import download

# The float32 model's scores in CTranslate2's own tests.
PUBLISHED = {
    ("آتزمون", "a t z m o n"): [-0.106023, -0.065410, -0.056002, -0.447953, -0.230714, -0.092184, -0.063463],
    ("آتشيسون", "a c h i s o n"): [
        -0.072660, -0.300309, -0.181187, -0.395671, -0.025631, -0.123466, -0.002034, -0.012639,
    ],
}  # fmt: skip
ALLOWED = {"": 1e-5, "i16": 4e-3, "i8": 2e-2}
FILES = [("v1", ""), ("v1", "i16"), ("v2", ""), ("v2", "i16"), ("v2", "i8")]


@check("aren-scores", "the published scores: 1e-5 (float32), 4e-3 (int16), 2e-2 (int8), binary v1 and v2")
def aren_scores(findings: Findings, data: Data) -> None:
    for version, precision in FILES:
        translator = fastattn.Translator(data.aren(version, precision), "float32")
        worst = 0.0
        for (source, target), expected in PUBLISHED.items():
            log_probs = translator.score_tokens([list(source)], [target.split()])[0].log_probs
            worst = max(worst, float(np.abs(log_probs - np.array(expected)).max()))
        findings.at_most(f"{version} {precision}", worst, "", ALLOWED[precision])


def _peer(path: Path, threads: int = 1):
    import ctranslate2

    return ctranslate2.Translator(str(path), compute_type="float32", inter_threads=1, intra_threads=threads)


def _words(path: Path, count: int, seed: int = 7) -> list[list[str]]:
    letters = [line for line in (path / "source_vocabulary.txt").read_text(encoding="utf-8").splitlines()[3:] if line]
    rng = random.Random(seed)
    return [rng.choices(letters, k=rng.randint(1, 12)) for _ in range(count)]


@check("aren-outputs", "greedy and beam outputs equal CTranslate2's on v1 and v2 in every precision, dequantized")
def aren_outputs(findings: Findings, data: Data) -> None:
    words = [list("باريس"), *_words(data.aren("v2"), 50, seed=8)]
    same, total = 0, 0
    for version, precision in FILES:
        path = data.aren(version, precision)
        ours, theirs = fastattn.Translator(path, "float32"), _peer(path)
        for beam in (1, 4):
            results = ours.translate_tokens(words, beam_size=beam)
            peers = theirs.translate_batch(words, beam_size=beam)
            same += sum(a.tokens == b.hypotheses[0] for a, b in zip(results, peers, strict=True))
            total += len(words)
    findings.at_least("equal outputs", same, f"of {total}", total)


def _equality(findings: Findings, data: Data, beam: int) -> None:
    """Compare fastattn's translations of texts with the peer's translations of their tokens.

    A difference is explained if, to 1e-4, the peer's model scores both outputs the same, or the two first differ where
    two next tokens tie.
    """
    import sacrebleu

    folder = download.resolve("zh-en")
    path, ours = folder / "model", fastattn.Translator(folder, "float32")
    theirs = _peer(path, 2)
    lines, references = data.flores("zh")[:300], data.flores("en")[:300]
    results = ours.translate(lines, beam_size=beam, details=True)
    whole = ours.translate(lines, split="never", beam_size=1, max_decoding_length=1, details=True)
    sources = [line.parts[0].source for line in whole]
    peers = theirs.translate_batch(
        sources, beam_size=beam, max_decoding_length=256, return_scores=True, max_batch_size=32
    )
    split = [i for i, translation in enumerate(results) if len(translation.parts) != 1]
    differing = [i for i in range(300) if i in split or results[i].parts[0].tokens != peers[i].hypotheses[0]]
    unexplained = []
    for i in differing:
        a, b = results[i].parts[0].tokens, peers[i].hypotheses[0]
        scored = theirs.score_batch([sources[i]] * 2, [a, b])
        first = next((t for t, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        totals = [sum(s.log_probs) / len(s.log_probs) for s in scored]
        gap = abs(scored[0].log_probs[first] - scored[1].log_probs[first])
        if min(gap, abs(totals[0] - totals[1])) > 1e-4:
            unexplained.append(f"line {i + 1} (first gap {gap:.1e}, score gap {abs(totals[0] - totals[1]):.1e})")
    detokenized = ["".join(r.hypotheses[0]).replace("\u2581", " ").strip() for r in peers]
    bleu = [sacrebleu.corpus_bleu(texts, [references]).score for texts in ([m.text for m in results], detokenized)]
    findings.at_most("lines that differ", len(differing), "of 300", 3)
    findings.at_most("unexplained", len(unexplained), "differences", 0, "; ".join(unexplained))
    findings.at_most("BLEU", abs(bleu[0] - bleu[1]), "apart", 0.1, f"{bleu[0]:.2f}, theirs {bleu[1]:.2f}")


for _name, _search, _beam in (("greedy", "greedy", 1), ("beam", "beam 4", 4)):
    _claim = f"300 FLORES lines, {_search}: 99% token for token, differences explained, BLEU within 0.1"
    check(f"zh-en-{_name}", _claim)(partial(_equality, beam=_beam))
