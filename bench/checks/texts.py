"""Alignment, judged by the error rate of Och and Ney (2003) with all links sure, and terms of translations."""

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
    """A pair of sentences, and the links between their words, counted as in Pharaoh's format."""

    source: str
    target: str
    links: set[str]


def linked(model: str) -> list[Linked]:
    pairs = []
    for line in PAIRS.read_text(encoding="utf-8").splitlines():
        if line.startswith(model + "\t"):
            _, source, target, links = line.split("\t")
            spans = [
                WordLink(source_span, target_span)
                for link in links.split()
                for source_span in _spans(source, link.partition("=")[0])
                for target_span in _spans(target, link.partition("=")[2])
            ]
            pairs.append(Linked(source, target, set(pharaoh(source, target, spans).split())))
    return pairs


def _spans(text: str, words: str) -> list[tuple[int, int]]:
    spans = []
    for word in words.split("+"):
        word, _, number = word.partition("/")
        edge = "" if is_spaceless(word[0]) else r"\b"
        places = [match.span() for match in re.finditer(f"{edge}{re.escape(word)}{edge}", text, re.IGNORECASE)]
        spans.append(places[int(number or 1) - 1])
    return spans


@check(
    "alignment",
    f"60 sentence pairs with links made by hand, en-pt and zh-en: an alignment error rate of at most {MOST_ERRORS}; "
    "pt-en behind en-pt keeps the order of its composed links",
)
def alignment(findings: Findings, data: Data) -> None:
    for model in ("en-pt", "zh-en"):
        pairs = linked(model)
        with Translator(model) as translator:
            predicted = [set(_found(translator, pair).split()) for pair in pairs]
        findings.at_least(f"{model}:", len(pairs), "pairs", 30)
        common = sum(len(pair.links & guess) for pair, guess in zip(pairs, predicted, strict=True))
        counted = sum(len(pair.links) + len(guess) for pair, guess in zip(pairs, predicted, strict=True))
        findings.at_most("error rate", 1 - 2 * common / counted, "", MOST_ERRORS)
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
    """The links of the attention when the model is forced to write the pair's translation."""
    answer = translator.translate(pair.source, details=True, return_attention=True, target_prefix=pair.target)
    links = [
        link
        for link in word_links(pair.source, answer)
        if any(map(str.isalnum, pair.source[slice(*link.source)]))
        and link.target[1] <= len(pair.target)
        and any(map(str.isalnum, answer.text[slice(*link.target)]))
    ]
    return pharaoh(pair.source, pair.target, links)


# Nouns of news and of travel, with translations that a Portuguese editor would ask for.
TERMS = dict(
    pair.split("=")
    for pair in (
        "government=governo, president=presidente, war=guerra, city=cidade, country=país, police=polícia, water=água, "
        "team=time, game=jogo, river=rio, island=ilha, animal=animal, child=criança, hospital=hospital, doctor=médico, "
        "army=exército, election=eleição, law=lei, language=idioma, music=música, film=filme, book=livro, "
        "school=escola, university=universidade, student=aluno, teacher=professor, airport=aeroporto, flight=voo, "
        "train=trem, "
        "station=estação, road=rodovia, bridge=ponte, mountain=montanha, forest=floresta, sea=mar, ocean=oceano, "
        "beach=praia, weather=clima, storm=tempestade, earthquake=terremoto, fire=fogo, food=comida, meat=carne, "
        "fish=peixe, bird=pássaro, dog=cão, cat=gato, horse=cavalo, tree=árvore, flower=flor, sun=sol, moon=lua, "
        "planet=planeta, earth=terra, scientist=cientista, computer=computador, internet=internet, telephone=telefone, "
        "newspaper=jornal, television=televisão, company=companhia, market=mercado, money=dinheiro, price=preço, "
        "bank=banco, church=igreja, castle=castelo, museum=museu, hotel=hotel, restaurant=restaurante, "
        "kitchen=cozinha, house=casa, door=porta, window=janela, family=família, mother=mãe, father=pai, friend=amigo, "
        "man=homem, king=rei, queen=rainha, emperor=imperador, century=século, week=semana, month=mês, morning=manhã, "
        "woman=mulher, night=noite, blood=sangue, heart=coração, brain=cérebro, disease=doença, vaccine=vacina, "
        "virus=vírus, "
        "energy=energia, oil=petróleo, gas=gás, metal=metal, gold=ouro, iron=ferro"
    ).split(", ")
)


@check(
    "glossary",
    "FLORES dev en-pt with a glossary of 100 terms: each comes out as often as it goes in, BLEU within 0.5 of the run "
    "without",
)
def glossary(findings: Findings, data: Data) -> None:
    import sacrebleu

    texts, references = data.flores("en"), data.flores("pt")
    with Translator("en-pt") as translator:
        plain = translator.translate(texts)
        with_terms = translator.with_glossary(TERMS).translate(texts)
    places = {(term, b) for term in TERMS for b, text in enumerate(texts) if _occurrences(term, text)}
    missed = [
        (term, b)
        for term, b in sorted(places)
        if with_terms[b].lower().count(TERMS[term].lower()) < _occurrences(term, texts[b])
    ]
    without = sum(plain[b].lower().count(TERMS[term].lower()) < _occurrences(term, texts[b]) for term, b in places)
    findings.at_least("terms", len(TERMS), "", 100)
    findings.at_most("not honoured", len(missed), f"of {len(places)} places", 0, f"{without} without the glossary")
    for term, b in missed[:3]:
        findings.say(f"{term}: {with_terms[b]!r}")
    untouched = [b for b, text in enumerate(texts) if not any(_occurrences(term, text) for term in TERMS)]
    changed = sum(plain[b] != with_terms[b] for b in untouched)
    findings.at_most("changed without a term", changed, f"of {len(untouched)}", 0)
    scores = [sacrebleu.corpus_bleu(translations, [references]).score for translations in (plain, with_terms)]
    findings.at_most("BLEU lost:", scores[0] - scores[1], "", 0.5, f"{scores[0]:.2f} without, {scores[1]:.2f} with")


def _occurrences(term: str, text: str) -> int:
    return len(re.findall(rf"\b{term}\b", text, re.IGNORECASE))
