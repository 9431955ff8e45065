"""From prompts, which are texts, ids or conversations, to ids within a model's context."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np

from fastattn.errors import InputError
from fastattn.generation.calls import GenerationCall
from fastattn.generation.text import GeneratorTokenizer
from fastattn.spec.text_spec import GeneratorText
from fastattn.system.records import lazy
from fastattn.text.chat import ChatTemplate


def is_one_prompt(prompts: Any) -> bool:
    """Whether ``prompts`` is a single prompt: a text, or a list of whole numbers."""
    if isinstance(prompts, np.ndarray):
        return prompts.ndim == 1 and prompts.dtype.kind in "iu"
    return isinstance(prompts, str) or (isinstance(prompts, list | tuple) and bool(prompts) and _are_ids(prompts))


def _are_ids(ids: Sequence[Any]) -> bool:
    return all(isinstance(number, Integral) and not isinstance(number, bool) for number in ids)


def check_prompt(prompt: Any, number: int, vocabulary: int) -> str | np.ndarray:
    """The prompt, with ids as int32; InputError for anything but a text or ids of the vocabulary."""
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list | tuple | np.ndarray) or not _are_ids(list(prompt)):
        raise InputError(f"prompt {number} should be a str, or a list of token ids, is {type(prompt).__name__}")
    wrong_id = next((index for index in prompt if not 0 <= index < vocabulary), None)
    if wrong_id is not None:
        raise InputError(f"prompt {number} should hold ids from 0 to {vocabulary - 1}, holds {wrong_id}")
    return np.array(prompt, np.int32)


class ContextReader:
    """Reads prompts for a model.

    context  the most ids of a prompt and its answer together; 0: no limit
    first    an argument of the methods: the number of the first prompt, for errors
    """

    def __init__(self, tokenizer: GeneratorTokenizer, context: int, threads: int = 1):
        self._tokenizer, self._context, self.threads = tokenizer, context, threads

    def check(self, prompts: Iterable[Any], first: int = 0) -> list[str | np.ndarray]:
        """The prompts: texts as they are, ids as int32; InputError for an invalid prompt."""
        vocabulary = self._tokenizer.vocabulary
        return [check_prompt(prompt, number, vocabulary) for number, prompt in enumerate(prompts, first)]

    def ids(self, prompts: Sequence[str | np.ndarray], call: GenerationCall, first: int = 0) -> list[np.ndarray]:
        """int32 ids of each checked prompt."""
        vocabulary = self._tokenizer.vocabulary
        texts = [prompt for prompt in prompts if isinstance(prompt, str)]
        text_ids = iter(self._tokenizer.encode(texts, call.special_tokens, self.threads))
        ids_B = [next(text_ids) if isinstance(prompt, str) else prompt for prompt in prompts]
        for number, ids in enumerate(ids_B, first):
            if int(ids.max(initial=0)) >= vocabulary:
                raise InputError(f"prompt {number}: the tokenizer gives the id {ids.max()}, the model has {vocabulary}")
        return ids_B

    def read(self, prompts: Sequence[str | np.ndarray], call: GenerationCall, first: int = 0) -> list[np.ndarray]:
        """int32 ids of each checked prompt, at least one, within the context."""
        ids_B = []
        for number, ids in enumerate(self.ids(prompts, call, first), first):
            if not len(ids):
                raise InputError(f"prompt {number} should have at least one token, has none")
            if self._context and call.context == "cut":
                ids = self._cut(ids, self._context - min(call.decoding.limit(0, 0), self._context // 2))
            elif self._context and len(ids) >= self._context:
                raise InputError(
                    f"prompt {number} has {len(ids)} tokens, and the model's context {self._context} for it and the "
                    'answer; context="cut" cuts its beginning'
                )
            ids_B.append(ids)
        return ids_B

    def read_one(self, call: GenerationCall, number: int, prompt: Any) -> tuple[int, np.ndarray]:
        """(how many ids the prompt has, its ids)."""
        (ids,) = self.read(self.check([prompt], number), call, number)
        return len(ids), ids

    def _cut(self, ids: np.ndarray, count: int) -> np.ndarray:
        """At most ``count`` ids: the special tokens at the beginning, if there are any, and the last ids."""
        start_ids = self._tokenizer.start_ids
        if len(ids) <= count:
            return ids
        if ids[: len(start_ids)].tolist() != start_ids or len(start_ids) >= count:
            start_ids = []
        return np.concatenate([np.array(start_ids, np.int32), ids[len(ids) - count + len(start_ids) :]])


class Conversations:
    """Makes prompts of conversations, by the chat template of one model."""

    def __init__(self, text: GeneratorText):
        self.template_source, self._special_tokens = text.chat_template, text.special_tokens

    @lazy
    def template(self) -> ChatTemplate:
        """Raises InputError for a checkpoint without a template, CheckpointError for an invalid template."""
        if not self.template_source:
            raise InputError("the checkpoint has no chat template: give prompts, not messages")
        return ChatTemplate(self.template_source, self._special_tokens)

    def take_messages(self, prompts: Any, options: Any) -> tuple[Any, Callable[[Any], Any] | None, Any]:
        """(prompts, None, options) of a call; with messages: (conversations, function that renders one, options).

        A template writes the special tokens itself, so the tokenizer adds none unless the call has special_tokens=True.
        """
        options = dict(options)
        messages, variables = options.pop("messages", None), options.pop("template_variables", None)
        if (messages is None) == (prompts is None):
            raise InputError("give either prompts or messages")
        if messages is None:
            if variables is not None:
                raise InputError("template_variables need messages")
            return prompts, None, options
        if not isinstance(variables, dict | None):
            raise InputError(f"template_variables should be a dict, got {type(variables).__name__}")
        return messages, partial(self.template.render, **variables or {}), {"special_tokens": False, **options}

    def render(self, prompts: Any, options: Any) -> tuple[Any, Any]:
        """(prompts, options) of a call, with prompts made of its ``messages``."""
        prompts, render, options = self.take_messages(prompts, options)
        if render is None:
            return prompts, options
        if isinstance(prompts, list | tuple) and prompts and isinstance(prompts[0], list | tuple):
            return [render(messages) for messages in prompts], options
        return render(prompts), options
