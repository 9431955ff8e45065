"""TokenClassifier: texts in, labelled spans of the texts out, such as named entities and parts of speech.

The labels of tokens become labels of words and of runs of words by the same steps as in transformers' token
classification. B- begins an entity, I- continues it (Ramshaw and Marcus 1995); a label without such a tag continues an
entity of the same label.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fastattn.encoders.base import EncoderBase, plan_batches
from fastattn.encoders.text_classifier import apply_activation
from fastattn.errors import CheckpointError, InputError, check_known, described
from fastattn.scheduling.request import Plan
from fastattn.spec.checkpoint import Checkpoint
from fastattn.system.option_names import TEXTS, explains_options
from fastattn.system.progress import Progress

if TYPE_CHECKING:  # this import loads the tokenizers library
    from fastattn.text.huggingface import TokenSpans

T = TypeVar("T")
AGGREGATIONS = ("none", "simple", "first", "average", "max")


@dataclass(frozen=True)
class Token:
    """A token of a text, whose vocabulary entry or characters are ``word``.

    scores_F    the probabilities of the labels, float32
    start, end  the span of the text, in characters
    index       the token's number among the text's ids
    continues   whether the token belongs to the same word as the token before
    """

    word: str
    scores_F: np.ndarray
    start: int
    end: int
    index: int
    continues: bool


@dataclass(frozen=True)
class Entity:
    """Consecutive tokens with one label, the label's probability, the tokens' span, the first token's index."""

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

    aggregation  one of AGGREGATIONS, see ``TokenClassifier.classify``
    join         makes a text of tokens
    """
    if aggregation in ("none", "simple"):
        entities = [_entity([token], token.scores_F, labels, (token.word,)) for token in tokens]
    else:
        scores_of, words = _WORD_SCORES[aggregation], _runs(tokens, lambda _, token: token.continues)
        entities = [_entity(word, scores_of(word), labels, (join([token.word for token in word]),)) for word in words]
    return entities if aggregation == "none" else [_merged_entity(run) for run in _runs(entities, _continues)]


def _entity(tokens: Sequence[Token], scores_F: np.ndarray, labels: Sequence[str], words: tuple[str, ...]) -> Entity:
    best = int(scores_F.argmax())
    return Entity(labels[best], float(scores_F[best]), words, tokens[0].start, tokens[-1].end, tokens[0].index)


def _runs(items: Iterable[T], continues: Callable[[T, T], bool]) -> list[list[T]]:
    """The items in runs; a run begins at each item that does not continue the item before it."""
    runs: list[list[T]] = []
    for item in items:
        if runs and continues(runs[-1][-1], item):
            runs[-1].append(item)
        else:
            runs.append([item])
    return runs


_WORD_SCORES: dict[str, Callable[[Sequence[Token]], np.ndarray]] = {
    "first": lambda word: word[0].scores_F,
    "average": lambda word: np.mean([token.scores_F for token in word], axis=0),
    "max": lambda word: max(word, key=lambda token: token.scores_F.max()).scores_F,
}


def _without_tag(label: str) -> str:
    return label[2:] if label.startswith(("B-", "I-")) else label


def _continues(previous: Entity, entity: Entity) -> bool:
    return not entity.label.startswith("B-") and _without_tag(entity.label) == _without_tag(previous.label)


def _merged_entity(run: Sequence[Entity]) -> Entity:
    label = run[0].label.split("-", 1)[-1]
    words = tuple(word for entity in run for word in entity.words)
    score = float(np.mean([entity.score for entity in run]))
    return Entity(label, score, words, run[0].start, run[-1].end, run[0].index)


class TokenClassifier(EncoderBase):
    """Labels of the tokens of texts, as transformers' token-classification pipeline gives them.

    precision  of the encoder's products; the head's products are in float32
    Raises CheckpointError for a path without a valid checkpoint of an encoder whose head classifies tokens.
    """

    def _check(self, checkpoint: Checkpoint) -> Checkpoint:
        checkpoint = super()._check(checkpoint)
        head = self._expect_head(checkpoint, "a classifier of tokens")
        if head.rows != "each" or not self._text.labels:
            raise CheckpointError("a classifier of tokens is expected, the checkpoint's head is another")
        return checkpoint

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, in the order of the checkpoint."""
        return self._text.labels

    @explains_options(TEXTS)
    def classify(
        self,
        texts: str | Iterable[str],
        *,
        aggregation: str = "none",
        ignore_labels: Sequence[str] = ("O",),
        show_progress_bar: bool | None = None,
    ) -> list[Any]:
        """The labelled spans of each text, in their order: a list of dicts for each text; one such list for a str.

        A dict has "label", "score" (its probability), "word" (of the tokens), "start" and "end" (in characters: the
        span is text[start:end]); with "none" also "index", the token's number among the text's ids.
        aggregation    a span is a token ("none"); consecutive tokens whose labels are the same without B- and I-, where
                       B- begins a span ("simple"); or consecutive whole words. A word's label is that of its first
                       token ("first"), of the mean of its tokens' probabilities ("average"), or of its most certain
                       token ("max")
        ignore_labels  labels of spans that are left out
        Raises InputError for other values.
        """
        check_known("aggregation", aggregation, AGGREGATIONS)
        if isinstance(ignore_labels, str) or not all(isinstance(label, str) for label in ignore_labels):
            raise InputError(f"ignore_labels must be several str, got {described(ignore_labels)}")
        plan = partial(self._plan, aggregation, frozenset(ignore_labels))
        spans: list[Any] = self._run(plan, texts, show_progress_bar)
        return spans

    def _plan(
        self, aggregation: str, ignored_labels: frozenset[str], texts: list[str], progress: Progress | None
    ) -> Plan:
        threads, tokenizer = self._loaded.threads, self._tokenizer
        spans_B = tokenizer.encode_with_offsets(texts, threads=threads)
        ids_B = [spans.ids_T for spans in spans_B]
        scores_B = yield from plan_batches(ids_B, lambda _: self._scores, threads, progress)
        results: list[list[dict[str, Any]]] = []
        for text, spans, scores_TF in zip(texts, spans_B, scores_B):
            tokens = self._tokens(text, spans, scores_TF)
            results.append([])
            for entity in find_entities(tokens, self.labels, aggregation, tokenizer.join_tokens):
                if entity.label not in ignored_labels:
                    word = entity.words[0] if aggregation == "none" else tokenizer.join_tokens(entity.words)
                    fields = {"label": entity.label, "score": entity.score, "word": word}
                    fields |= {"start": entity.start, "end": entity.end}
                    results[-1].append(fields | ({"index": entity.index} if aggregation == "none" else {}))
        return results

    def _scores(self, rows_ND: np.ndarray, starts_B1: np.ndarray) -> list[np.ndarray]:
        """The probabilities [T, labels] of each sentence's tokens."""
        scores_NF = apply_activation("softmax", self._head(rows_ND, starts_B1))
        starts_B1 = starts_B1 - starts_B1[0]
        return [scores_NF[start:end] for start, end in zip(starts_B1, starts_B1[1:])]

    def _tokens(self, text: str, spans: "TokenSpans", scores_TF: np.ndarray) -> list[Token]:
        """The tokens of the text, without the special tokens around them."""
        tokenizer = self._tokenizer
        before, after = map(len, tokenizer.special_ids)
        unknown, marks_parts = tokenizer.unknown_id, tokenizer.marks_parts
        tokens = []
        for index in range(before, len(spans.ids_T) - after):
            (start, end), token_id = spans.offsets_T2[index].tolist(), int(spans.ids_T[index])
            word, span = tokenizer.token(token_id) or "", text[start:end]
            # transformers' rule: a part's prefix makes the word longer than its span; normalization may change it too
            continues = len(word) != len(span) if marks_parts else start > 0 and " " not in text[start - 1 : start + 1]
            if token_id == unknown:
                word, continues = span, False
            tokens.append(Token(word, scores_TF[index], start, end, index, continues))
        return tokens
