"""Terminology over a corpus: every term comes out as asked, and the rest is as good as without."""

import re

from bench.checks import Data, Findings, check
from fastattn import Translator

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
    wanted = {(term, b) for term in TERMS for b, text in enumerate(texts) if _times(term, text)}
    missed = [
        (term, b)
        for term, b in sorted(wanted)
        if with_terms[b].lower().count(TERMS[term].lower()) < _times(term, texts[b])
    ]
    without = sum(plain[b].lower().count(TERMS[term].lower()) < _times(term, texts[b]) for term, b in wanted)
    findings.at_least("terms", len(TERMS), "", 100)
    findings.at_most("not honoured", len(missed), f"of {len(wanted)} places", 0, f"{without} without the glossary")
    for term, b in missed[:3]:
        findings.say(f"{term}: {with_terms[b]!r}")
    untouched = [b for b, text in enumerate(texts) if not any(_times(term, text) for term in TERMS)]
    changed = sum(plain[b] != with_terms[b] for b in untouched)
    findings.at_most("changed without a term", changed, f"of {len(untouched)}", 0)
    scores = [sacrebleu.corpus_bleu(found, [references]).score for found in (plain, with_terms)]
    findings.at_most("BLEU lost:", scores[0] - scores[1], "", 0.5, f"{scores[0]:.2f} without, {scores[1]:.2f} with")


def _times(term: str, text: str) -> int:
    return len(re.findall(rf"\b{term}\b", text, re.IGNORECASE))
