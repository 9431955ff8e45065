"""Conversations in the place of prompts, by the checkpoint's chat template."""

from collections.abc import Callable
from functools import partial
from typing import Any

from fastattn.errors import InputError
from fastattn.spec.text_spec import GeneratorText
from fastattn.system.records import lazy
from fastattn.text.chat import ChatTemplate


class Conversations:
    """Makes prompts of one model's conversations."""

    def __init__(self, text: GeneratorText):
        self.source, self._special_tokens = text.chat_template, text.special_tokens

    @lazy
    def template(self) -> ChatTemplate:
        """Raises InputError for a checkpoint without one, CheckpointError for one that is none."""
        if not self.source:
            raise InputError("the checkpoint has no chat template: give prompts, not messages")
        return ChatTemplate(self.source, self._special_tokens)

    def asked(self, prompts: Any, options: Any) -> tuple[Any, Any]:
        """(prompts, options) of a call, which may have ``messages`` instead of prompts, and ``template_variables``.

        A template writes the special tokens itself, so that none are added but if they are asked for.
        """
        messages, render, rest = self._split(prompts, options)
        if messages is None:
            return prompts, rest
        several = isinstance(messages, list | tuple) and bool(messages) and isinstance(messages[0], list | tuple)
        rendered = [render(each) for each in (messages if several else [messages])]
        return rendered if several else rendered[0], rest

    def each(self, prompts: Any, options: Any) -> tuple[Any, Callable[[Any], Any], Any]:
        """(prompts, what is made of each, options) of a call with an iterable of prompts or of conversations."""
        messages, render, rest = self._split(prompts, options)
        return prompts if messages is None else messages, render, rest

    def _split(self, prompts: Any, options: Any) -> tuple[Any, Callable[[Any], Any], Any]:
        """(messages, or None where there are prompts; what renders a conversation; the other options)."""
        messages, variables = options.get("messages"), options.get("template_variables")
        rest = {name: value for name, value in options.items() if name not in ("messages", "template_variables")}
        if (messages is None) == (prompts is None):
            raise InputError("give either prompts or messages")
        if messages is None:
            if variables is not None:
                raise InputError("template_variables need messages")
            return None, lambda prompt: prompt, rest
        if not isinstance(variables, dict | None):
            raise InputError(f"template_variables should be a dict, got {type(variables).__name__}")
        return messages, partial(self.template.render, **variables or {}), {"special_tokens": False, **rest}
