"""TokenClassifier: texts in, labelled spans of them out: named entities, parts of speech."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fastattn.encoders.entities import AGGREGATIONS, Token, find_entities
from fastattn.encoders.loaded_encoder import plan_each
from fastattn.encoders.text_head import activated
from fastattn.encoders.text_model import TextModel
from fastattn.errors import CheckpointError, InputError, described
from fastattn.scheduling.request import Plan
from fastattn.spec.architecture import StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import EncoderText
from fastattn.system.option_names import TEXTS, explains_options
from fastattn.system.progress import Progress

if TYPE_CHECKING:  # with the tokenizers library, which an import does without
    from fastattn.text.huggingface import TokenSpans


class TokenClassifier(TextModel):
    """Labels of the tokens of texts, as transformers' token-classification pipeline gives them.

    path, precision, threads   as those of Encoder; the head's products are in float32
    A text of more than ``max_length`` ids is cut. A text's labels depend on it alone: the same bits whatever the other
    texts and the number of threads. One TokenClassifier may serve several Python threads at once.
    Raises CheckpointError for a path without a valid checkpoint of an encoder with such a head.
    """

    def _checked(self, checkpoint: Checkpoint, text: EncoderText, stack: StackSpec) -> Checkpoint:
        head = checkpoint.spec.head
        if head is None:
            why = checkpoint.headless or "the checkpoint has no head"
            raise CheckpointError(f"a classifier of tokens is expected: {why}")
        if head.rows != "each" or not text.labels:
            raise CheckpointError("a classifier of tokens is expected, the checkpoint's head is another")
        return checkpoint

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, in the order of the checkpoint."""
        return self._encoder.text.labels

    @explains_options(TEXTS)
    def classify(
        self,
        texts: str | Iterable[str],
        *,
        aggregation: str = "none",
        ignore_labels: Sequence[str] = ("O",),
        show_progress_bar: bool | None = None,
    ) -> list[Any]:
        """The labelled spans of each text, in its order: a list of dicts of each; one such list for a str.

        A dict has "label", "score" (its probability), "word" (of the tokens), "start" and "end" (in characters: the
        span is text[start:end]); with "none" also "index", the token's number among the text's ids.
        aggregation        "none": each token. "simple": tokens in a row with the same label, after B- and I- are taken
                           from it; B- begins a span. "first", "average", "max": whole words in a row, each with the
                           label of its first token, that of the mean of its tokens' probabilities, or that of its most
                           certain token
        ignore_labels      are left out
        show_progress_bar  True: print on stderr how many texts are done, if it is a terminal
        Raises InputError for other values.
        """
        if aggregation not in AGGREGATIONS:
            raise InputError(f"unknown aggregation {described(aggregation)}; known: {', '.join(AGGREGATIONS)}")
        if isinstance(ignore_labels, str) or not all(isinstance(label, str) for label in ignore_labels):
            raise InputError(f"ignore_labels must be several str, got {described(ignore_labels)}")
        plan = partial(self._plan, aggregation, frozenset(ignore_labels))
        found = self._run(plan, texts, show_progress_bar)
        return found[0] if isinstance(texts, str) else found

    def _plan(self, aggregation: str, ignored: frozenset[str], texts: list[str], progress: Progress | None) -> Plan:
        """The spans of each text."""
        threads, tokenizer = self._encoder.loaded.threads, self._encoder.tokenizer
        spans_B = tokenizer.encode_with_offsets(texts, threads=threads)
        scores_B = yield from plan_each([spans.ids_T for spans in spans_B], lambda _: self._scores, threads, progress)
        found = []
        for text, spans, scores_TF in zip(texts, spans_B, scores_B):
            entities = find_entities(
                self._tokens(text, spans, scores_TF), self.labels, aggregation, tokenizer.join_tokens
            )
            found.append(
                [
                    {
                        "label": entity.label,
                        "score": entity.score,
                        "word": tokenizer.join_tokens(entity.words) if aggregation != "none" else entity.words[0],
                        "start": entity.start,
                        "end": entity.end,
                        **({"index": entity.index} if aggregation == "none" else {}),
                    }
                    for entity in entities
                    if entity.label not in ignored
                ]
            )
        return found

    def _scores(self, rows_ND: np.ndarray, starts_B1: np.ndarray) -> list[np.ndarray]:
        """The probabilities [T, labels] of each sentence's tokens."""
        scores_NF = activated("softmax", self._head(rows_ND, starts_B1))
        starts_B1 = starts_B1 - starts_B1[0]
        return [scores_NF[start:end] for start, end in zip(starts_B1, starts_B1[1:])]

    def _tokens(self, text: str, spans: "TokenSpans", scores_TF: np.ndarray) -> list[Token]:
        """The text's own tokens, without the special ones around it."""
        tokenizer = self._encoder.tokenizer
        before, after = map(len, tokenizer.special_ids)
        unknown, marks_parts = tokenizer.unknown, tokenizer.marks_parts
        tokens = []
        for index in range(before, len(spans.ids_T) - after):
            (start, end), one = spans.offsets_T2[index].tolist(), int(spans.ids_T[index])
            word, there = tokenizer.token(one) or "", text[start:end]
            # transformers' rule: a part's prefix makes it longer than its place, as any change by normalization does
            continues = len(word) != len(there) if marks_parts else start > 0 and " " not in text[start - 1 : start + 1]
            if one == unknown:
                word, continues = there, False
            tokens.append(Token(word, scores_TF[index], start, end, index, continues))
        return tokens
