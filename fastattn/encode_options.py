"""The options of one call to an Encoder: those given, checked, and the checkpoint's prompts and poolings."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fastattn.errors import InputError
from fastattn.text_spec import EncoderText
from fastattn.vector_head import VectorHead, VectorOptions

if TYPE_CHECKING:  # with the tokenizers library, which an import of an Encoder does without
    from fastattn.text.huggingface import HuggingFaceTokenizer


class EncodeOptions:
    """Makes the VectorOptions of calls, for one checkpoint's text, head and tokenizer."""

    def __init__(self, text: EncoderText, head: VectorHead, tokenizer: "HuggingFaceTokenizer"):
        self._text, self._head, self._tokenizer = text, head, tokenizer

    def of_call(
        self,
        prompt_name: str | None,
        prompt: str | None,
        normalize: bool | None,
        truncate_dim: int | None,
        pooling: str | Sequence[str] | None,
    ) -> VectorOptions:
        """The options of a call with these arguments of ``Encoder.encode``; InputError for what they cannot be."""
        if not isinstance(normalize, bool | np.bool_ | None):
            raise InputError(f"normalize_embeddings must be True, False or None, got {normalize!r}")
        modes = self._head.pooling(pooling)
        width = self._head.width(modes, truncate_dim)
        text = self.prompt(prompt_name, prompt)
        return VectorOptions(text, 0 if self._text.include_prompt else self._prompt_rows(text), modes, normalize, width)

    def prompt(self, name: str | None, prompt: str | None) -> str:
        """What is put before every text: the prompt of that name, that text, or for neither the default one."""
        if name is not None and prompt is not None:
            raise InputError("give prompt or prompt_name, not both")
        if prompt is not None:
            if not isinstance(prompt, str):
                raise InputError(f"prompt must be a str, got {type(prompt).__name__}")
            return prompt
        prompts = self._text.prompts
        if name is None:
            default = self._text.default_prompt
            return "" if default is None else prompts.get(default, "")
        if not isinstance(name, str):
            raise InputError(f"prompt_name must be a str, got {type(name).__name__}")
        if name not in prompts:
            known = f"known: {', '.join(prompts)}" if prompts else "this checkpoint has none"
            raise InputError(f"unknown prompt_name {name!r}; {known}; prompt is for a text of your own")
        return prompts[name]

    def _prompt_rows(self, prefix: str) -> int:
        """How many of a text's first rows are the prompt's: its ids, less a special one at the end."""
        if not prefix:
            return 0
        ids = self._tokenizer.encode([prefix])[0]
        return len(ids) - (len(ids) > 0 and self._tokenizer.is_special(int(ids[-1])))
