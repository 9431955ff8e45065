"""Sentence splitting: where sentences of FLORES that were joined to paragraphs are cut, beside pysbd."""

import random
from collections.abc import Callable
from pathlib import Path

from bench.checks import Data, Findings, check
from fastattn.text.splitting import split_sentences

TABLE = Path(__file__).parents[2] / "tests" / "text" / "sentences.txt"
MOST, WANTED = 6, 0.98  # items of a paragraph; a share of the places between them


def paragraphs(sentences: list[str], joint: str) -> list[tuple[str, set[int]]]:
    """(a paragraph, where its sentences begin but for the first), from a fixed seed."""
    rng, found, at = random.Random(5), [], 0
    while at < len(sentences):
        chosen = [one.strip() for one in sentences[at : at + rng.randint(2, MOST)]]
        at += len(chosen)
        begins, text = set[int](), chosen[0]
        for one in chosen[1:]:
            text += joint
            begins.add(len(text))
            text += one
        found.append((text, begins))
    return found


def f1(found: list[tuple[set[int], set[int]]]) -> float:
    """Of places that were found and those that are right."""
    common = sum(len(one & other) for one, other in found)
    return 2 * common / max(1, sum(len(one) + len(other) for one, other in found))


def begins_of(text: str, sentences: list[str]) -> set[int]:
    """Where sentences but the first begin in a text, blanks before them left out."""
    begins, at = set(), 0
    for sentence in sentences:
        core = sentence.strip()
        if core and (place := text.find(core, at)) >= 0:
            begins.add(place)
            at = place + len(core)
    return begins - {len(text) - len(text.lstrip())}


@check(
    "sentences-flores",
    f"paragraphs of 2 to {MOST} items of FLORES dev, en, pt and zh: at least {WANTED} of the places found, "
    "F1 not below pysbd's; every ninth item is of several sentences, which F1 takes for mistakes",
)
def flores(findings: Findings, data: Data) -> None:
    import pysbd

    for language, theirs in (("en", "en"), ("pt", "es"), ("zh", "zh")):  # pysbd has no Portuguese: its nearest
        joined = paragraphs(data.flores(language), "" if language == "zh" else " ")
        peer = pysbd.Segmenter(language=theirs, clean=False)
        splitters: dict[str, Callable[[str], list[str]]] = {
            "own": lambda text, language=language: split_sentences(text, language),
            "pysbd": peer.segment,
        }
        found = {
            name: [(begins_of(text, split(text)), begins) for text, begins in joined]
            for name, split in splitters.items()
        }
        scores = {name: f1(pairs) for name, pairs in found.items()}
        hits = sum(len(one & begins) for one, begins in found["own"]) / sum(len(begins) for _, begins in joined)
        findings.at_least(f"{language}: found", hits, "", WANTED)
        findings.at_least("F1", scores["own"], "", scores["pysbd"], "pysbd's")


@check(
    "sentences-table",
    f"200 hard cases made by hand in nine languages: F1 of the places between sentences at least {WANTED}; pysbd "
    "beside it, where it has the language",
)
def table(findings: Findings, data: Data) -> None:
    import pysbd

    own, peer, at_both = [], [], []
    known = pysbd.languages.LANGUAGE_CODES
    for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]:
        language, written = line.split("\t")
        text = written.replace("|", "")
        wanted = begins_of(text, written.split("|"))
        own.append((begins_of(text, split_sentences(text, language)), wanted))
        if language in known:
            at_both.append(own[-1])
            peer.append((begins_of(text, pysbd.Segmenter(language=language, clean=False).segment(text)), wanted))
    findings.at_least("cases", len(own), "", 200)
    findings.at_least("F1", f1(own), "", WANTED)
    findings.at_least(f"of the {len(peer)} in pysbd's languages", f1(at_both), "", f1(peer), "pysbd's")
