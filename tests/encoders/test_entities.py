"""From tokens' labels to those of runs: tags, words in parts, and what is left alone."""

import numpy as np
import pytest

from fastattn.encoders.token_classifier import Token, find_entities

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "X", "S-PER", "E-PER")
# Token, its label, its score, whether it goes on with a word: "Angela Mer##kel met Anna in P##aris"
STORY = [
    ("Angela", "B-PER", 0.9, False),
    ("Mer", "I-PER", 0.8, False),
    ("##kel", "O", 0.6, True),
    ("met", "O", 0.7, False),
    ("Anna", "B-PER", 0.5, False),
    ("Eva", "B-PER", 0.6, False),
    ("in", "X", 0.6, False),
    ("P", "X", 0.5, False),
    ("##aris", "I-LOC", 0.9, True),
]


def tokens(story: list[tuple[str, str, float, bool]]) -> list[Token]:
    """Each label has its score, the others share the rest; the tokens lie at 10, 20, ..."""
    made = []
    for number, (word, label, score, continues) in enumerate(story, 1):
        scores_F = np.full(len(LABELS), (1 - score) / (len(LABELS) - 1), np.float32)
        scores_F[LABELS.index(label)] = score
        made.append(Token(word, scores_F, 10 * number, 10 * number + len(word), number, continues))
    return made


def join(words: list[str] | tuple[str, ...]) -> str:
    return " ".join(words).replace(" ##", "")


def found(aggregation: str, story: list[tuple[str, str, float, bool]] = STORY) -> list[tuple[str, str]]:
    return [(e.label, join(e.words)) for e in find_entities(tokens(story), LABELS, aggregation, join)]


def test_each_token_has_its_label() -> None:
    entities = find_entities(tokens(STORY), LABELS, "none", join)
    assert [(e.words, e.label, e.start, e.index) for e in entities] == [
        ((word,), label, 10 * number, number) for number, (word, label, _, _) in enumerate(STORY, 1)
    ]
    np.testing.assert_allclose([e.score for e in entities], [score for _, _, score, _ in STORY], rtol=1e-6)


def test_tokens_in_a_row_with_one_label_are_one() -> None:
    assert found("simple") == [
        ("PER", "Angela Mer"),
        ("O", "##kel met"),
        ("PER", "Anna"),
        ("PER", "Eva"),
        ("X", "in P"),
        ("LOC", "##aris"),
    ]
    first = find_entities(tokens(STORY), LABELS, "simple", join)[0]
    assert (first.start, first.end) == (10, 23)
    assert first.score == pytest.approx(0.85)


@pytest.mark.parametrize(
    ("aggregation", "merkel", "paris"),
    [("first", "PER", "X"), ("max", "PER", "LOC"), ("average", "PER", "LOC")],
)
def test_a_word_has_one_label(aggregation: str, merkel: str, paris: str) -> None:
    entities = found(aggregation)
    assert (merkel, "Angela Merkel") in entities
    assert (paris, "Paris" if paris == "LOC" else "in Paris") in entities
    assert ("O", "met") in entities


def test_no_tokens_are_no_entities() -> None:
    for aggregation in ("none", "simple", "first", "average", "max"):
        assert found(aggregation, []) == []


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["I-PER", "I-PER"], ["PER"]),
        (["B-PER", "I-LOC"], ["PER", "LOC"]),
        (["X", "X"], ["X"]),
        (["I-PER", "B-PER", "I-PER"], ["PER", "PER"]),
        (["O", "X", "O"], ["O", "X", "O"]),
        # other prefixes than B- and I- part entities, though the labels are without them
        (["S-PER", "E-PER", "S-PER", "S-PER"], ["PER", "PER", "PER"]),
        (["B-PER", "I-PER", "E-PER"], ["PER", "PER"]),
    ],
)
def test_what_goes_on_and_what_begins(labels: list[str], expected: list[str]) -> None:
    story = [(f"w{i}", label, 0.9, False) for i, label in enumerate(labels)]
    assert [label for label, _ in found("simple", story)] == expected
