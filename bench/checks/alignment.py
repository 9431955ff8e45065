"""Word alignment against links made by hand: the alignment error rate (Och and Ney 2003), all links being sure."""

import re
from pathlib import Path
from typing import NamedTuple

from bench.checks import Data, Findings, check
from fastattn import Translator
from fastattn.text.translation import is_spaceless
from fastattn.translation.alignment import WordLink, pharaoh, word_links

PAIRS = Path(__file__).parents[1] / "links.txt"
MOST_ERRORS = 0.25


class Linked(NamedTuple):
    """A pair of sentences, and which of what Pharaoh's form counts is linked."""

    source: str
    target: str
    links: set[str]


def linked(model: str) -> list[Linked]:
    """The pairs of a model's languages."""
    found = []
    for line in PAIRS.read_text(encoding="utf-8").splitlines():
        if line.startswith(model + "\t"):
            _, source, target, links = line.split("\t")
            spans = [
                WordLink(one, other)
                for link in links.split()
                for one in _spans(source, link.partition("=")[0])
                for other in _spans(target, link.partition("=")[2])
            ]
            found.append(Linked(source, target, set(pharaoh(source, target, spans).split())))
    return found


def _spans(text: str, words: str) -> list[tuple[int, int]]:
    spans = []
    for word in words.split("+"):
        word, _, number = word.partition("/")
        edge = "" if is_spaceless(word[0]) else r"\b"
        places = [match.span() for match in re.finditer(f"{edge}{re.escape(word)}{edge}", text, re.IGNORECASE)]
        spans.append(places[int(number or 1) - 1])
    return spans


def error_rate(pairs: list[Linked], found: list[set[str]]) -> float:
    common = sum(len(pair.links & one) for pair, one in zip(pairs, found, strict=True))
    return 1 - 2 * common / sum(len(pair.links) + len(one) for pair, one in zip(pairs, found, strict=True))


@check(
    "alignment",
    f"60 sentence pairs with links made by hand, en-pt and zh-en: an alignment error rate of at most {MOST_ERRORS}; "
    "pt-en behind en-pt keeps the order of its composed links",
)
def alignment(findings: Findings, data: Data) -> None:
    for model in ("en-pt", "zh-en"):
        pairs = linked(model)
        with Translator(model) as translator:
            found = [set(_found(translator, pair).split()) for pair in pairs]
        findings.at_least(f"{model}:", len(pairs), "pairs", 30)
        findings.at_most("error rate", error_rate(pairs, found), "", MOST_ERRORS)
    with Translator("pt-en") as first, Translator("en-pt") as second:
        chain = Translator.chain(first, second)
        texts = [pair.target for pair in linked("en-pt")]
        same = total = 0
        for text, answer in zip(texts, chain.translate(texts, details=True, return_attention=True)):
            links = list(word_links(text, answer))
            words = {text[slice(*link.source)].lower() == answer.text[slice(*link.target)].lower() for link in links}
            both = [link for link in links if text[slice(*link.source)] in answer.text.split()]
            same += sum(text[slice(*link.source)] == answer.text[slice(*link.target)] for link in both)
            total += len(both) * bool(words)
    findings.at_least("pt to en to pt: words that come back linked to themselves", same / total, f"of {total}", 0.9)


def _found(translator: Translator, pair: Linked) -> str:
    """What the attention links when the model is made to write the pair's translation."""
    answer = translator.translate(pair.source, details=True, return_attention=True, target_prefix=pair.target)
    links = [
        link
        for link in word_links(pair.source, answer)
        if any(map(str.isalnum, pair.source[slice(*link.source)]))
        and link.target[1] <= len(pair.target)
        and any(map(str.isalnum, answer.text[slice(*link.target)]))
    ]
    return pharaoh(pair.source, pair.target, links)
