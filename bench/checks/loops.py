"""Loops in translations: none over a corpus and over strings that are no language, and the same BLEU."""

import random

from bench.checks import Data, Findings, check
from fastattn import Translator
from fastattn.translation.guarded import LOOP, GuardedTranslation, loops, what_is_wrong

STRINGS = 500
LETTERS = (
    "?!.,;:-",
    "aeiou",
    "BCDFG",
    "0123456789",
    "\U0001f600\U0001f680\u2764",
    "你好吗天",
    "абвгд",
    "αβγ",
    "שלום",
    "กขค",
)


def strings(count: int) -> list[str]:
    """Punctuation, one word, emoji, capitals, other scripts: repeated, mixed, alone, from a fixed seed."""
    rng, words = random.Random(3), ("hello", "NO", "ok", "the", "Wow!", "ha", "river", "42")
    kinds = (
        lambda: "".join(rng.choices(rng.choice(LETTERS), k=rng.randint(1, 40))),
        lambda: " ".join([rng.choice(words)] * rng.randint(1, 12)),
        lambda: " ".join(rng.choices(words, k=rng.randint(1, 12))).upper(),
        lambda: " ".join(
            "".join(rng.choices(rng.choice(LETTERS), k=rng.randint(1, 6))) for _ in range(rng.randint(1, 9))
        ),
    )
    return [rng.choice(kinds)() for _ in range(count)]


@check(
    "loops",
    f"en-pt and zh-en, FLORES dev and {STRINGS} strings that are no language, greedy and by beam: no 1 to 4 words more "
    "than four times running that the text does not have so, BLEU as without the guard",
)
def loops_check(findings: Findings, data: Data) -> None:
    import sacrebleu

    for model, source, target in (("en-pt", "en", "pt"), ("zh-en", "zh", "en")):
        texts = data.flores(source) + strings(STRINGS)
        references, count = data.flores(target), len(data.flores(source))
        with Translator(model) as translator:
            for beam in (1, 2):
                plain = translator.translate(texts, beam_size=beam)
                found = translator.guarded().translate(texts, beam_size=beam, details=True)
                left = [b for b, one in enumerate(found) if what_is_wrong(texts[b], one.text) == LOOP]
                marked = sum(isinstance(one, GuardedTranslation) for one in found)
                without = sum(what_is_wrong(text, one) == LOOP for text, one in zip(texts, plain, strict=True))
                findings.at_most(
                    f"{model}, beam {beam}: loops", len(left), "", 0, f"{without} without, {marked} marked"
                )
                for b in left[:2]:
                    findings.say(f"{texts[b]!r}: {found[b].text[:80]!r} {loops(found[b].text)}")
                guarded = [one.text for one in found[:count]]
                lost = sacrebleu.corpus_bleu(plain[:count], [references]).score
                lost -= sacrebleu.corpus_bleu(guarded, [references]).score
                findings.at_most("BLEU lost", lost, "", 0.0)
