"""The options of one call to an Encoder: those given, checked, and the checkpoint's prompts and poolings."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fastattn.encoders.long_text import LONG
from fastattn.encoders.prompts import find_prompt
from fastattn.encoders.vector_head import VectorHead, VectorOptions
from fastattn.errors import InputError, check_known
from fastattn.spec.text_spec import EncoderText
from fastattn.vectors.quantized import check_output_dtype, checked_ranges

if TYPE_CHECKING:  # with the tokenizers library, which an import of an Encoder does without
    from fastattn.text.huggingface import HuggingFaceTokenizer


class EncodeOptions:
    """Makes the VectorOptions of calls, for one checkpoint's text, head and tokenizer."""

    def __init__(self, text: EncoderText, head: VectorHead, tokenizer: "HuggingFaceTokenizer"):
        self._text, self._head, self._tokenizer = text, head, tokenizer

    def of_call(
        self,
        *,
        task: str | None,
        prompt_name: str | None,
        prompt: str | None,
        normalize_embeddings: bool | None,
        truncate_dim: int | None,
        pooling: str | Sequence[str] | None,
        long: str,
        output_dtype: str,
        ranges: np.ndarray | None,
    ) -> VectorOptions:
        """The options of a call with these arguments of ``Encoder.encode``; InputError for what they cannot be."""
        if not isinstance(normalize_embeddings, bool | np.bool_ | None):
            raise InputError(f"normalize_embeddings must be True, False or None, got {normalize_embeddings!r}")
        check_known("long", long, LONG)
        check_output_dtype(output_dtype)
        modes = self._head.pooling(pooling)
        width = self._head.width(modes, truncate_dim)
        text = self.prompt(task, prompt_name, prompt)
        return VectorOptions(
            text,
            0 if self._text.include_prompt else self._prompt_rows(text),
            modes,
            normalize_embeddings,
            width,
            long,
            output_dtype,
            None if ranges is None else checked_ranges(ranges, width),
        )

    def prompt(self, task: str | None, name: str | None, prompt: str | None) -> str:
        """What is put before every text, see ``find_prompt``."""
        return find_prompt(self._text, name, prompt, task)

    def _prompt_rows(self, prefix: str) -> int:
        """How many of a text's first rows are the prompt's: its ids, less a special one at the end."""
        if not prefix:
            return 0
        ids = self._tokenizer.encode([prefix])[0]
        return len(ids) - (len(ids) > 0 and self._tokenizer.is_special(int(ids[-1])))
