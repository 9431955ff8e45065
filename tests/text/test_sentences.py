"""Sentence splitting on cases made by hand: F1 of the places between sentences, in all and of each language."""

from pathlib import Path

from fastattn.text.splitting import split_sentences

CASES = [
    line.split("\t") for line in Path(__file__).with_name("sentences.txt").read_text(encoding="utf-8").splitlines()[1:]
]
LANGUAGES = sorted({language for language, _ in CASES})


def places(parts: list[str]) -> set[int]:
    """Where sentences end, blanks left out."""
    found, at = set(), 0
    for part in parts[:-1]:
        at += len("".join(part.split()))
        found.add(at)
    return found


def f1(cases: list[list[str]]) -> tuple[float, list[str]]:
    """(F1, the texts that are split otherwise)."""
    common = total = 0
    wrong = []
    for language, text in cases:
        wanted, whole = places(text.split("|")), text.replace("|", "")
        parts = split_sentences(whole, language)
        assert "".join(parts) == whole
        found = places(parts)
        common, total = common + len(wanted & found), total + len(wanted) + len(found)
        wrong += [f"{text}  ->  {'|'.join(parts)}"] * (wanted != found)
    return 2 * common / total, wrong


def test_there_are_two_hundred_of_eight_languages():
    assert len(CASES) >= 200 and len(LANGUAGES) >= 8


def test_in_all():
    score, wrong = f1(CASES)
    assert score >= 0.98, "\n".join([f"{score:.4f}", *wrong])


def test_of_a_language():
    for language in LANGUAGES:
        score, wrong = f1([case for case in CASES if case[0] == language])
        assert score >= 0.95, "\n".join([f"{score:.4f}", *wrong])
