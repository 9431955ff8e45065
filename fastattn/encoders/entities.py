"""From the labels of tokens to those of words and of runs of words: transformers' token classification, step by step.

B- begins an entity, I- goes on with it (Ramshaw and Marcus 1995); a label without such a tag goes on with the same one
before it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

AGGREGATIONS = ("none", "simple", "first", "average", "max")


@dataclass(frozen=True)
class Token:
    """A token of a text, or several that are one.

    scores_F    the probabilities of the labels, float32
    start, end  its place in the text, in characters
    index       its number among the text's ids
    continues   whether it belongs to the word of the token before it
    """

    word: str
    scores_F: np.ndarray
    start: int
    end: int
    index: int
    continues: bool


@dataclass(frozen=True)
class Entity:
    """Some tokens in a row with one label, whose probability is the score."""

    label: str
    score: float
    words: tuple[str, ...]
    start: int
    end: int
    index: int


def find_entities(
    tokens: Sequence[Token], labels: Sequence[str], aggregation: str, join: Callable[[Sequence[str]], str]
) -> list[Entity]:
    """The entities of a text's tokens.

    aggregation  from AGGREGATIONS: "none": each token; "simple": runs of tokens with the same label; others: runs of
                 words, each of which has the label of its first token, the one of its tokens' mean probabilities, or
                 that of its most certain token
    join         tokens to text
    """
    if aggregation in ("none", "simple"):
        each = [_entity([token], token.scores_F, labels, (token.word,)) for token in tokens]
    else:
        choose = _WORD_SCORES[aggregation]
        words = _words(tokens)
        each = [_entity(word, choose(word), labels, (join([token.word for token in word]),)) for word in words]
    return each if aggregation == "none" else [_joined(run) for run in _runs(each)]


def _entity(tokens: Sequence[Token], scores_F: np.ndarray, labels: Sequence[str], words: tuple[str, ...]) -> Entity:
    best = int(scores_F.argmax())
    return Entity(labels[best], float(scores_F[best]), words, tokens[0].start, tokens[-1].end, tokens[0].index)


def _words(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    word: list[Token] = []
    for token in tokens:
        if word and not token.continues:
            yield word
            word = []
        word.append(token)
    if word:
        yield word


_WORD_SCORES: dict[str, Callable[[Sequence[Token]], np.ndarray]] = {
    "first": lambda word: word[0].scores_F,
    "average": lambda word: np.mean([token.scores_F for token in word], axis=0),
    "max": lambda word: max(word, key=lambda token: token.scores_F.max()).scores_F,
}


def _runs(entities: Sequence[Entity]) -> Iterator[list[Entity]]:
    """Entities in a row of the same kind, the first of which alone may begin one."""
    run: list[Entity] = []
    for entity in entities:
        begins, kind = _tag(entity.label)
        if run and (begins or kind != _tag(run[-1].label)[1]):
            yield run
            run = []
        run.append(entity)
    if run:
        yield run


def _tag(label: str) -> tuple[bool, str]:
    """(whether the label begins an entity, the entity's kind)."""
    return label.startswith("B-"), label[2:] if label.startswith(("B-", "I-")) else label


def _joined(run: Sequence[Entity]) -> Entity:
    label = run[0].label.partition("-")
    words = tuple(word for entity in run for word in entity.words)
    score = float(np.mean([entity.score for entity in run]))
    return Entity(label[2] if label[1] else label[0], score, words, run[0].start, run[-1].end, run[0].index)
