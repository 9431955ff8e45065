"""From prompts to ids, and from an answer's ids to text: as a whole, or piece by piece as tokens come."""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from fastattn.decoding.options import Step
from fastattn.decoding.search import Hypothesis, Job, StopRule, timeout_error
from fastattn.errors import InputError
from fastattn.spec.text_spec import GeneratorText
from fastattn.text.huggingface import HuggingFaceTokenizer

MOST_IDS = 2**31 - 1  # the tokenizer has no limit of its own, since ContextReader refuses or cuts long prompts
# A token's text depends on at most so many tokens before it: a character has four bytes at most.
DECODING_CONTEXT = 4
INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # stands for a character some of whose bytes are missing
_HIDDEN_BYTES = [*range(33), *range(127, 161), 173]  # in GPT-2's tokens they are the characters from 256 on


class GeneratorTokenizer:
    """The tokenizer of a language model; ``vocabulary``: how many ids the model has."""

    def __init__(self, text: GeneratorText, vocabulary: int):
        self._tokenizer, self.vocabulary = HuggingFaceTokenizer(text.tokenizer, MOST_IDS), vocabulary
        start_ids, _ = self._tokenizer.special_ids
        self.start_ids: list[int] = start_ids.tolist()
        self.token = self._tokenizer.token

    def agrees(self, other: "GeneratorTokenizer") -> bool:
        """Whether ids that both models have mean the same tokens; one model may have more ids, for padding."""
        vocabulary = min(self.vocabulary, other.vocabulary)
        return self._tokenizer.fingerprint(vocabulary) == other._tokenizer.fingerprint(vocabulary)

    def encode(self, texts: Sequence[str], special_tokens: bool, threads: int = 1) -> list[np.ndarray]:
        """int32 ids of each text, with the tokenizer's own special tokens around the text, or without."""
        encode: Callable[..., list[np.ndarray]] = self._tokenizer.encode
        return (encode if special_tokens else self._tokenizer.encode_whole)(texts, threads)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens."""
        return self._tokenizer.decode(ids, skip_special=True)

    def token_text(self, index: int) -> str:
        """The text of a token, or the name of one without text; bytes of no whole character are lone surrogates."""
        name, text = self.token(index) or "", self.continuation([index], [index])  # a text's first space may be lost
        if INCOMPLETE not in text or max(map(ord, name)) >= 256 + len(_HIDDEN_BYTES):
            return text or name
        codes = [int(name[3:5], 16)] if re.fullmatch("<0x[0-9A-F]{2}>", name) else map(ord, name)
        data = bytes(code if code < 256 else _HIDDEN_BYTES[code - 256] for code in codes)
        return data.decode(errors="surrogateescape")

    def continuation(self, context: Sequence[int], ids: Sequence[int]) -> str:
        """The text that ``ids`` add to the text of ``context``, the ids before them."""
        head, whole = self.decode(context), self.decode([*context, *ids])
        return whole[len(head) :] if whole.startswith(head) else self.decode(ids)

    def ids_of_tokens(self, tokens: Sequence[str]) -> list[int]:
        """The ids of tokens; InputError for a token that the vocabulary lacks."""
        ids = [self._tokenizer.index(token) for token in tokens]
        if None in ids:
            raise InputError(f"the vocabulary has no token {tokens[ids.index(None)]!r}")
        return [index for index in ids if index is not None]


class AnswerText:
    """The text of one prompt's answer, which ends before the first stop string.

    stop     the rule that ends the search at a stop string; None if there are no stop strings
    context  the prompt's last ids, which decide how the answer's first ids read
    """

    def __init__(self, tokenizer: GeneratorTokenizer, prompt: np.ndarray, strings: Sequence[str]):
        self.tokenizer, self.strings = tokenizer, strings
        # A context that begins within a character would give some tokenizers no text: longer ones are tried.
        contexts = (prompt[-count:].tolist() for count in range(DECODING_CONTEXT, 2 * DECODING_CONTEXT))
        self.context: list[int] = next((ids for ids in contexts if INCOMPLETE not in tokenizer.decode(ids)), [])
        # Each token but the special ones, which add no text, adds at least a byte: so the window holds a stop string.
        window = max((len(string.encode()) for string in strings), default=0) + 2 * DECODING_CONTEXT
        self.stop = StopRule(window, self._is_ended) if strings else None

    def _is_ended(self, ids: Sequence[int]) -> bool:
        assert self.stop is not None
        if len(ids) < self.stop.window:  # the whole answer
            return self.text_before_stop(self.tokenizer.continuation(self.context, ids)) is not None
        texts = (self.tokenizer.decode(ids[first:]) for first in range(DECODING_CONTEXT))
        text = next((text for text in texts if not text.startswith(INCOMPLETE)), "")  # begins with a whole character
        return self.text_before_stop(text or self.tokenizer.decode(ids)) is not None

    def text_before_stop(self, text: str) -> str | None:
        """The text before the first stop string; None if the text has no stop string."""
        positions = [position for position in map(text.find, self.strings) if position >= 0]
        return text[: min(positions)] if positions else None

    def text(self, ids: Sequence[int]) -> tuple[str, bool]:
        """(the text of the answer's ids, whether a stop string ended it)."""
        text = self.tokenizer.continuation(self.context, ids)
        cut_text = self.text_before_stop(text)
        return (text, False) if cut_text is None else (cut_text, True)


class TextStream:
    """An answer's text in pieces that join to the whole: no incomplete characters, no parts of a stop string."""

    def __init__(self, answer: AnswerText):
        self._answer, self._ids = answer, list(answer.context)
        # Ids from _undecoded on have no text yet: they are decoded together with those from _context on.
        self._context, self._undecoded = 0, len(self._ids)
        self._pending, self._is_over = "", False

    def add(self, token: int) -> str:
        """The piece that the answer's next id completes, or ""."""
        self._ids.append(token)
        piece = self._new_text()
        if piece and not piece.endswith(INCOMPLETE):
            self._context, self._undecoded = self._undecoded, len(self._ids)
            return self._release(piece)
        return ""

    def end(self) -> str:
        piece = self._release(self._new_text())
        pending, self._pending = ("" if self._is_over else self._pending), ""
        return piece + pending

    def _new_text(self) -> str:
        decode = self._answer.tokenizer.decode
        return decode(self._ids[self._context :])[len(decode(self._ids[self._context : self._undecoded])) :]

    def _release(self, piece: str) -> str:
        """Add a piece to the pending text; returns the text before a stop string, or before what may begin one."""
        if self._is_over:
            return ""
        self._pending += piece
        cut_text = self._answer.text_before_stop(self._pending)
        if cut_text is not None:
            self._is_over = True
            return cut_text
        end = len(self._pending) - max((_overlap(self._pending, string) for string in self._answer.strings), default=0)
        text, self._pending = self._pending[:end], self._pending[end:]
        return text


class RunningAnswer:
    """The text of an answer in pieces, while it is computed.

    request     the Future of the job's hypotheses, of which there is one
    hypothesis  this hypothesis, after ``end``
    """

    hypothesis: Hypothesis

    def __init__(self, job: Job, answer: AnswerText, request: "Future[Any]"):
        self.job, self.answer, self.request = job, answer, request
        self._stream, self._position = TextStream(answer), 0

    def piece(self, step: Step) -> str:
        """The piece that a step completes, or ""."""
        if step.position < self._position:  # a repeated step: the search began again after an error or interrupt
            return ""
        self._position += 1
        return "" if step.token_id in self.job.options.end_token else self._stream.add(step.token_id)

    def end(self) -> str:
        """The last piece; raises the request's error, or SearchTimeout."""
        hypotheses = self.request.result()[0]
        if not hypotheses:
            raise timeout_error(self.job.options)
        (self.hypothesis,) = hypotheses
        return self._stream.end()


def _overlap(text: str, string: str) -> int:
    """How many of the text's last characters are the string's first ones."""
    return next((n for n in range(min(len(text), len(string) - 1), 0, -1) if text.endswith(string[:n])), 0)
