"""The options of calls to an Encoder: as given, and as checked with the checkpoint's prompts and poolings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from fastattn.encoders.long_text import LONG
from fastattn.errors import InputError, check_known, described, warn
from fastattn.spec.text_spec import EncoderText
from fastattn.vectors.quantized import check_output_dtype, checked_ranges

if TYPE_CHECKING:  # with the tokenizers library, which an import of an Encoder does without
    from fastattn.encoders.vector_head import VectorHead
    from fastattn.text.huggingface import HuggingFaceTokenizer

# A query or a document has the prompt of that name, none where the checkpoint has none, and never the default one.
# sentence-transformers 6.2 means to try "passage" and "corpus" next for a document, but gives each model a prompt
# "document", an empty one if need be, and so never does. Vectors are to be the same.
TASKS = ("query", "document")


class PromptOptions(TypedDict, total=False):
    """What chooses the prompt of a call; see ``Encoder.encode``."""

    task: str | None
    prompt_name: str | None
    prompt: str | None


class EncodeOptions(PromptOptions, total=False):
    """The options of a call to an Encoder; see ``Encoder.encode``."""

    normalize_embeddings: bool | None
    truncate_dim: int | None
    pooling: str | Sequence[str] | None
    long: str
    output_dtype: str
    ranges: np.ndarray | None


@dataclass(frozen=True)
class VectorOptions:
    """The checked options of one call to an Encoder.

    prompt       put before every text
    prompt_rows  how many first rows, the prompt's, are not pooled
    pooling      names from ``text_spec.POOLINGS``
    normalize    True, False, or None: as the checkpoint says
    width        of the vectors, truncated
    long         how texts that are too long are encoded, from ``long_text.LONG``
    output_dtype, ranges_2E   as ``quantize_vectors`` takes them
    """

    prompt: str
    prompt_rows: int
    pooling: tuple[str, ...]
    normalize: bool | None
    width: int
    long: str
    output_dtype: str
    ranges_2E: np.ndarray | None


class OptionChecker:
    """Makes the VectorOptions of calls, for one checkpoint's text, head and tokenizer."""

    def __init__(self, text: EncoderText, head: "VectorHead", tokenizer: "HuggingFaceTokenizer"):
        self._text, self._head, self._tokenizer = text, head, tokenizer

    def checked(
        self,
        *,
        task: str | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        normalize_embeddings: bool | None = None,
        truncate_dim: int | None = None,
        pooling: str | Sequence[str] | None = None,
        long: str = "truncate",
        output_dtype: str = "float32",
        ranges: np.ndarray | None = None,
    ) -> VectorOptions:
        """The options of a call; InputError for what they cannot be."""
        if not isinstance(normalize_embeddings, bool | np.bool_ | None):
            raise InputError(f"normalize_embeddings must be True, False or None, got {normalize_embeddings!r}")
        check_known("long", long, LONG)
        check_output_dtype(output_dtype)
        modes = self._head.pooling(pooling)
        width = self._head.width(modes, truncate_dim)
        text = find_prompt(self._text, prompt_name, prompt, task)
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

    def _prompt_rows(self, prefix: str) -> int:
        """How many of a text's first rows are the prompt's: its ids, less a special one at the end."""
        if not prefix:
            return 0
        ids = self._tokenizer.encode([prefix])[0]
        return len(ids) - (len(ids) > 0 and self._tokenizer.is_special(int(ids[-1])))


def find_prompt(
    text: EncoderText, prompt_name: str | None = None, prompt: str | None = None, task: str | None = None
) -> str:
    """The ``prompt`` itself, the checkpoint's of that name, that of the task, or else the default one.

    A prompt goes before a name, with a warning, as in sentence-transformers. Raises InputError for a name or a task
    that is not known, and for what is no text.
    """
    if task is not None:
        check_known("task", task, TASKS)
    if prompt is not None:
        if not isinstance(prompt, str):
            raise InputError(f"prompt must be a str, got {type(prompt).__name__}")
        if prompt_name is not None:
            warn(f"prompt_name {described(prompt_name)} is ignored, since there is a prompt")
        return prompt
    if prompt_name is None:
        usual = text.default_prompt if task is None else task
        return "" if usual is None else text.prompts.get(usual, "")
    if not isinstance(prompt_name, str):
        raise InputError(f"prompt_name must be a str, got {type(prompt_name).__name__}")
    if prompt_name not in text.prompts:
        known = f"known: {', '.join(text.prompts)}" if text.prompts else "this checkpoint has none"
        raise InputError(f"unknown prompt_name {prompt_name!r}; {known}; prompt is for a text of your own")
    return text.prompts[prompt_name]
