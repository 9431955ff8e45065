"""Translation against CTranslate2: tokens, scores, every option, BLEU."""

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
            found = translator.score_tokens([list(source)], [target.split()])[0].log_probs
            worst = max(worst, float(np.abs(found - np.array(expected)).max()))
        findings.at_most(f"{version} {precision}", worst, "", ALLOWED[precision])


def _peer(path: Path, threads: int = 1):
    import ctranslate2

    return ctranslate2.Translator(str(path), compute_type="float32", inter_threads=1, intra_threads=threads)


def _words(path: Path, count: int, seed: int = 7) -> list[list[str]]:
    letters = [line for line in (path / "source_vocabulary.txt").read_text(encoding="utf-8").splitlines()[3:] if line]
    rng = random.Random(seed)
    return [rng.choices(letters, k=rng.randint(1, 12)) for _ in range(count)]


OPTIONS: dict[str, dict] = {
    "greedy": {"beam_size": 1},
    "beam 4": {"beam_size": 4},
    "beam 2": {"beam_size": 2},
    "beam 10": {"beam_size": 10},
    "patience 2": {"beam_size": 4, "patience": 2.0},
    "patience 0.5": {"beam_size": 4, "patience": 0.5},
    "3 hypotheses": {"beam_size": 4, "num_hypotheses": 3},
    "length penalty 0": {"beam_size": 4, "length_penalty": 0.0},
    "length penalty 0, 4 hypotheses": {"beam_size": 4, "length_penalty": 0.0, "num_hypotheses": 4},
    "length penalty 0.6": {"beam_size": 4, "length_penalty": 0.6},
    "at least 9": {"beam_size": 4, "min_decoding_length": 9},
    "at least 9, greedy": {"beam_size": 1, "min_decoding_length": 9},
    "at most 4": {"beam_size": 4, "max_decoding_length": 4},
    "no unknowns": {"beam_size": 4, "disable_unk": True},
    "no unknowns, greedy": {"beam_size": 1, "disable_unk": True},
    "prefix": {"beam_size": 4, "target_prefix": ["a", "l"]},
    "prefix, greedy": {"beam_size": 1, "target_prefix": ["a", "l"]},
    "prefix, 3 hypotheses": {"beam_size": 4, "target_prefix": ["b"], "num_hypotheses": 3},
    "attention": {"beam_size": 4, "return_attention": True},
    "attention, greedy": {"beam_size": 1, "return_attention": True},
    "coverage penalty": {"beam_size": 4, "coverage_penalty": 0.4, "num_hypotheses": 3},
    "coverage penalty, greedy": {"beam_size": 1, "coverage_penalty": 0.4, "return_attention": True},
    "coverage penalty, length penalty 0": {"beam_size": 4, "coverage_penalty": 0.2, "length_penalty": 0.0},
    "repetition penalty": {"beam_size": 4, "repetition_penalty": 1.5},
    "repetition penalty, greedy": {"beam_size": 1, "repetition_penalty": 3.0},
    "repetition reward": {"beam_size": 4, "repetition_penalty": 0.7, "max_decoding_length": 30},
    "no token twice": {"beam_size": 4, "no_repeat_ngram_size": 1},
    "no two tokens twice, greedy": {"beam_size": 1, "no_repeat_ngram_size": 2, "min_decoding_length": 9},
    "no three tokens twice": {"beam_size": 4, "no_repeat_ngram_size": 3, "min_decoding_length": 14},
    "suppressed": {"beam_size": 4, "suppress_sequences": [["a", "l"], ["e"], ["o", "u", "n"]]},
    "suppressed, greedy": {"beam_size": 1, "suppress_sequences": [["a"], ["i", "n"]]},
    "prefix wished for": {"beam_size": 4, "prefix_bias_beta": 0.3, "target_prefix": ["a", "l", "i"]},
    "prefix wished for strongly": {"beam_size": 2, "prefix_bias_beta": 0.95, "target_prefix": ["b", "a", "r", "a"]},
    "prefix wished for, beam 1": {"beam_size": 1, "prefix_bias_beta": 0.5, "target_prefix": ["m", "o"]},
    "alternatives": {"beam_size": 4, "return_alternatives": True, "num_hypotheses": 5},
    "alternatives, greedy, prefix": {
        "beam_size": 1, "return_alternatives": True, "num_hypotheses": 4, "target_prefix": ["a", "l"],
    },
    "probable alternatives": {
        "beam_size": 2, "return_alternatives": True, "num_hypotheses": 10, "min_alternative_expansion_prob": 0.001,
    },
    "unknowns replaced": {"beam_size": 4, "replace_unknowns": True, "repetition_penalty": 8.0},
    "unknowns replaced, prefix": {"beam_size": 1, "replace_unknowns": True, "target_prefix": ["a", "<unk>"]},
    "much at once": {
        "beam_size": 5, "num_hypotheses": 5, "coverage_penalty": 0.3, "length_penalty": 0.8, "repetition_penalty": 1.2,
        "no_repeat_ngram_size": 2, "suppress_sequences": [["a", "r"]], "disable_unk": True, "patience": 1.5,
        "target_prefix": ["a"], "min_decoding_length": 5,
    },
    "alternatives, much at once": {
        "beam_size": 3, "return_alternatives": True, "num_hypotheses": 4, "repetition_penalty": 1.3,
        "no_repeat_ngram_size": 2, "suppress_sequences": [["a"], ["i", "n"]], "target_prefix": ["b"],
        "length_penalty": 0.7, "disable_unk": True, "min_decoding_length": 4,
    },
    # Not with a beam: to the peer the alternatives are a batch, in which its attention is another sentence's.
    "alternatives, coverage penalty": {
        "beam_size": 1, "return_alternatives": True, "num_hypotheses": 3, "coverage_penalty": 0.5,
        "return_attention": True, "target_prefix": ["b", "a"],
    },
    "alternatives where there is room for one token": {
        "beam_size": 3, "return_alternatives": True, "num_hypotheses": 3, "target_prefix": ["b"],
        "max_decoding_length": 2,
    },
    "prefix wished for, much at once": {
        "beam_size": 4, "prefix_bias_beta": 0.4, "target_prefix": ["a", "a", "a"], "repetition_penalty": 1.3,
        "no_repeat_ngram_size": 2, "suppress_sequences": [["a", "l"]], "num_hypotheses": 4, "coverage_penalty": 0.1,
    },
}  # fmt: skip
# Options that use attention: in a batch the peer's beam uses other sentences'; alone, that of forced decoding.
NEED_ATTENTION = {"return_attention", "coverage_penalty", "replace_unknowns"}


def _compare(mine, other, options: dict) -> tuple[bool, float]:
    """(whether all hypotheses are equal, the largest difference of scores and attention)."""
    equal, worst = True, 0.0
    for one, two in zip(mine, other, strict=True):
        equal &= one.hypotheses == two.hypotheses
        if one.hypotheses == two.hypotheses:
            worst = max([worst, *(abs(a - b) for a, b in zip(one.scores, two.scores, strict=True))])
            if options.get("return_attention"):
                for a, b in zip(one.attention, two.attention, strict=True):
                    worst = max(worst, float(np.abs(np.array(a) - np.array(b)).max(initial=0)))
    return equal, worst


@check("aren-options", "every decoding option gives CTranslate2's hypotheses and scores (1e-4) for 50 random words")
def aren_options(findings: Findings, data: Data) -> None:
    path = data.aren("v2")
    ours, theirs = fastattn.Translator(path, "float32"), _peer(path)
    words = _words(path, 50)
    different, worst = [], 0.0
    for name, options in OPTIONS.items():
        options = dict(options)
        prefix = options.pop("target_prefix", None)
        prefixes = [prefix] * len(words) if prefix else None
        peers_options = {"max_decoding_length": 256, **options}
        mine = ours.translate_tokens(words, prefixes, **options)
        size = 1 if NEED_ATTENTION & set(options) else len(words)
        other = [
            result
            for b in range(0, len(words), size)
            for result in theirs.translate_batch(
                words[b : b + size],
                target_prefix=prefixes[b : b + size] if prefixes else None,
                return_scores=True,
                **peers_options,
            )
        ]
        equal, difference = _compare(mine, other, options)
        worst = max(worst, difference)
        if not equal:
            different.append(name)
    findings.at_most("options that differ", len(different), f"of {len(OPTIONS)}", 0, ", ".join(different))
    findings.at_most("largest difference", worst, "", 1e-4)


@check("aren-outputs", "greedy and beam outputs equal CTranslate2's on v1 and v2 in every precision, dequantized")
def aren_outputs(findings: Findings, data: Data) -> None:
    words = [list("باريس"), *_words(data.aren("v2"), 50, seed=8)]
    same, total = 0, 0
    for version, precision in FILES:
        path = data.aren(version, precision)
        ours, theirs = fastattn.Translator(path, "float32"), _peer(path)
        for beam in (1, 4):
            mine = ours.translate_tokens(words, beam_size=beam)
            other = theirs.translate_batch(words, beam_size=beam)
            same += sum(a.tokens == b.hypotheses[0] for a, b in zip(mine, other, strict=True))
            total += len(words)
    findings.at_least("equal outputs", same, f"of {total}", total)


def _equality(findings: Findings, data: Data, beam: int) -> None:
    """Our translations of texts, as for a user, against the peer's of tokens.

    A difference is explained if, to 1e-4, the peer's model gives our output and the peer's the same score, or the two
    first differ where two next tokens tie.
    """
    import sacrebleu

    folder = download.resolve("zh-en")
    path, ours = folder / "model", fastattn.Translator(folder, "float32")
    theirs = _peer(path, 2)
    lines, references = data.flores("zh")[:300], data.flores("en")[:300]
    mine = ours.translate(lines, beam_size=beam, details=True)
    whole = ours.translate(lines, split="never", beam_size=1, max_decoding_length=1, details=True)
    sources = [line.parts[0].source for line in whole]
    other = theirs.translate_batch(
        sources, beam_size=beam, max_decoding_length=256, return_scores=True, max_batch_size=32
    )
    split = [i for i, translation in enumerate(mine) if len(translation.parts) != 1]
    differing = [i for i in range(300) if i in split or mine[i].parts[0].tokens != other[i].hypotheses[0]]
    unexplained = []
    for i in differing:
        a, b = mine[i].parts[0].tokens, other[i].hypotheses[0]
        found = theirs.score_batch([sources[i]] * 2, [a, b])
        first = next((t for t, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        totals = [sum(s.log_probs) / len(s.log_probs) for s in found]
        gap = abs(found[0].log_probs[first] - found[1].log_probs[first])
        if min(gap, abs(totals[0] - totals[1])) > 1e-4:
            unexplained.append(f"line {i + 1} (first gap {gap:.1e}, score gap {abs(totals[0] - totals[1]):.1e})")
    detokenized = ["".join(r.hypotheses[0]).replace("\u2581", " ").strip() for r in other]
    bleu = [sacrebleu.corpus_bleu(texts, [references]).score for texts in ([m.text for m in mine], detokenized)]
    findings.at_most("lines that differ", len(differing), "of 300", 3)
    findings.at_most("unexplained", len(unexplained), "differences", 0, "; ".join(unexplained))
    findings.at_most("BLEU", abs(bleu[0] - bleu[1]), "apart", 0.1, f"{bleu[0]:.2f}, theirs {bleu[1]:.2f}")


for _name, _search, _beam in (("greedy", "greedy", 1), ("beam", "beam 4", 4)):
    _claim = f"300 FLORES lines, {_search}: 99% token for token, differences explained, BLEU within 0.1"
    check(f"zh-en-{_name}", _claim)(partial(_equality, beam=_beam))
