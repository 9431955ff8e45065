"""Prompts, texts or ids, to ids within a model's context."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fastattn.errors import InputError
from fastattn.generation.calls import GenerationCall, check_prompt
from fastattn.generation.text import GeneratorTokenizer


class ContextReader:
    """Reads prompts for a model of ``most`` ids, prompt and answer together; 0: no limit.

    first  in its methods: the number of the first prompt, for errors
    """

    def __init__(self, tokenizer: GeneratorTokenizer, most: int, threads: int = 1):
        self._tokenizer, self._most, self.threads = tokenizer, most, threads

    def checked(self, prompts: Iterable[Any], first: int = 0) -> list[str | np.ndarray]:
        """Texts, and ids as int32."""
        vocabulary = self._tokenizer.vocabulary
        return [check_prompt(prompt, number, vocabulary) for number, prompt in enumerate(prompts, first)]

    def ids(self, prompts: Sequence[str | np.ndarray], call: GenerationCall, first: int = 0) -> list[np.ndarray]:
        """int32 ids of each checked prompt."""
        vocabulary = self._tokenizer.vocabulary
        texts = [prompt for prompt in prompts if isinstance(prompt, str)]
        encoded = iter(self._tokenizer.encode(texts, call.special_tokens, self.threads))
        ids = [next(encoded) if isinstance(prompt, str) else prompt for prompt in prompts]
        for number, one in enumerate(ids, first):
            if int(one.max(initial=0)) >= vocabulary:
                raise InputError(f"prompt {number}: the tokenizer gives the id {one.max()}, the model has {vocabulary}")
        return ids

    def read(self, prompts: Sequence[str | np.ndarray], call: GenerationCall, first: int = 0) -> list[np.ndarray]:
        """int32 ids of each checked prompt, at least one, within the context."""
        read = []
        for number, ids in enumerate(self.ids(prompts, call, first), first):
            if not len(ids):
                raise InputError(f"prompt {number} should have at least one token, has none")
            if self._most and call.context == "cut":
                ids = self._cut(ids, max(self._most - call.decoding.limit(0, 0), self._most - self._most // 2))
            elif self._most and len(ids) >= self._most:
                raise InputError(
                    f"prompt {number} has {len(ids)} tokens, and the model's context {self._most} for it and the "
                    'answer; context="cut" cuts its beginning'
                )
            read.append(ids)
        return read

    def read_one(self, call: GenerationCall, number: int, prompt: Any) -> tuple[int, np.ndarray]:
        """(tokens, ids)."""
        (ids,) = self.read(self.checked([prompt], number), call, number)
        return len(ids), ids

    def _cut(self, ids: np.ndarray, most: int) -> np.ndarray:
        """The last ids, behind the special tokens with which texts begin."""
        start = self._tokenizer.start_ids
        if len(ids) <= most:
            return ids
        kept = start if ids[: len(start)].tolist() == start and len(start) < most else []
        return np.concatenate([np.array(kept, np.int32), ids[len(ids) - most + len(kept) :]])
