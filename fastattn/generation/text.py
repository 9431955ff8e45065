"""Prompts to ids, and an answer's ids to text: whole, up to a stop string, or piece by piece as tokens come."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from fastattn.decoding.options import Step
from fastattn.decoding.search import Hypothesis, Job, StopRule, timeout_error
from fastattn.errors import InputError
from fastattn.spec.text_spec import GeneratorText
from fastattn.text.huggingface import HuggingFaceTokenizer

LONGEST = 2**31 - 1  # ids: no limit of the tokenizer's, since ContextReader refuses or cuts long prompts
# So many tokens before others decide how these read: a character has four bytes at most.
CONTEXT = 4
HALF = "\N{REPLACEMENT CHARACTER}"  # stands for a character some of whose bytes are missing


class GeneratorTokenizer:
    """The tokenizer of a language model with this many ids."""

    def __init__(self, text: GeneratorText, vocabulary: int):
        self._tokenizer, self.vocabulary = HuggingFaceTokenizer(text.tokenizer, LONGEST), vocabulary
        before, _ = self._tokenizer.special_ids
        self.start_ids: list[int] = before.tolist()
        self.token = self._tokenizer.token

    def agrees(self, other: "GeneratorTokenizer") -> bool:
        """Whether ids that both models have mean the same tokens; one model may have more rows, padding."""
        rows = min(self.vocabulary, other.vocabulary)
        return self._tokenizer.fingerprint(rows) == other._tokenizer.fingerprint(rows)

    def encode(self, texts: Sequence[str], special_tokens: bool, threads: int = 1) -> list[np.ndarray]:
        """int32 ids of each text, with the tokenizer's own special tokens around it or without."""
        encode: Callable[..., list[np.ndarray]] = self._tokenizer.encode
        return (encode if special_tokens else self._tokenizer.encode_whole)(texts, threads)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens."""
        return self._tokenizer.decode(ids, skip_special=True)

    def continuation(self, before: Sequence[int], ids: Sequence[int]) -> str:
        """The text that ``ids`` add to that of the ids before them."""
        head, whole = self.decode(before), self.decode([*before, *ids])
        return whole[len(head) :] if whole.startswith(head) else self.decode(ids)

    def ids_of_tokens(self, tokens: Sequence[str]) -> list[int]:
        """The ids of tokens; InputError for one that the vocabulary lacks."""
        ids = [self._tokenizer.index(token) for token in tokens]
        if None in ids:
            raise InputError(f"the vocabulary has no token {tokens[ids.index(None)]!r}")
        return [index for index in ids if index is not None]


class AnswerText:
    """The text of one prompt's answer, which ends before the first of some strings.

    stop  the rule that ends the search there; None without strings
    """

    def __init__(self, tokenizer: GeneratorTokenizer, prompt: np.ndarray, strings: Sequence[str]):
        self.tokenizer, self.strings = tokenizer, strings
        # Some decoders give no text for bytes that begin within a character.
        last = (prompt[-count:].tolist() for count in range(CONTEXT, 2 * CONTEXT))
        self.before: list[int] = next((before for before in last if HALF not in tokenizer.decode(before)), [])
        # Each token adds a byte at least; special tokens add nothing.
        tokens = max((len(string.encode()) for string in strings), default=0) + 2 * CONTEXT
        self.stop = StopRule(tokens, self._is_over) if strings else None

    def _is_over(self, ids: Sequence[int]) -> bool:
        assert self.stop is not None
        if len(ids) < self.stop.window:  # all of the answer
            return self.cut(self.tokenizer.continuation(self.before, ids)) is not None
        texts = (self.tokenizer.decode(ids[first:]) for first in range(CONTEXT))
        text = next((text for text in texts if not text.startswith(HALF)), "")  # from a whole character on
        return self.cut(text or self.tokenizer.decode(ids)) is not None

    def cut(self, text: str) -> str | None:
        """The text before the first string in it; None: there is none."""
        places = [at for at in map(text.find, self.strings) if at >= 0]
        return text[: min(places)] if places else None

    def text(self, ids: Sequence[int]) -> tuple[str, bool]:
        """(the text of the answer's ids, whether a string ended it)."""
        text = self.tokenizer.continuation(self.before, ids)
        cut = self.cut(text)
        return (text, False) if cut is None else (cut, True)


class TextStream:
    """An answer's text in pieces that join to the whole: no half characters, no parts of a stop string."""

    def __init__(self, answer: AnswerText):
        self._answer, self._ids = answer, list(answer.before)
        self._first, self._shown = 0, len(self._ids)  # ids from the first are decoded anew; those until shown are out
        self._pending = ""
        self._over = False

    def add(self, token: int) -> str:
        """The piece that the answer's next id completes, or ""."""
        self._ids.append(token)
        piece = self._new()
        if piece and not piece.endswith(HALF):
            self._first, self._shown = self._shown, len(self._ids)
            return self._release(piece)
        return ""

    def end(self) -> str:
        """The last piece."""
        piece = self._release(self._new())
        pending, self._pending = ("" if self._over else self._pending), ""
        return piece + pending

    def _new(self) -> str:
        decode = self._answer.tokenizer.decode
        return decode(self._ids[self._first :])[len(decode(self._ids[self._first : self._shown])) :]

    def _release(self, piece: str) -> str:
        """The text so far, without an end that may begin a stop string."""
        if self._over:
            return ""
        self._pending += piece
        cut = self._answer.cut(self._pending)
        if cut is not None:
            self._over = True
            return cut
        at = len(self._pending) - max((_overlap(self._pending, string) for string in self._answer.strings), default=0)
        released, self._pending = self._pending[:at], self._pending[at:]
        return released


class RunningAnswer:
    """The text of an answer in pieces, while it is computed.

    request     the Future of the job's hypotheses: one
    hypothesis  its result, after ``end``
    """

    hypothesis: Hypothesis

    def __init__(self, job: Job, answer: AnswerText, request: "Future[Any]"):
        self.job, self.answer, self.request = job, answer, request
        self._stream, self._position = TextStream(answer), 0

    def piece(self, step: Step) -> str:
        """The piece that a step completes, or ""."""
        if step.position < self._position:  # told again: another's fault, or an interrupt, had the search begin anew
            return ""
        self._position += 1
        return "" if step.token_id in self.job.options.end_token else self._stream.add(step.token_id)

    def end(self) -> str:
        """The last piece; raises what ended the request, or SearchTimeout."""
        hypotheses = self.request.result()[0]
        if not hypotheses:
            raise timeout_error(self.job.options)
        (self.hypothesis,) = hypotheses
        return self._stream.end()


def _overlap(text: str, string: str) -> int:
    """How many of the text's last characters are the string's first ones."""
    return next((n for n in range(min(len(text), len(string) - 1), 0, -1) if text.endswith(string[:n])), 0)
