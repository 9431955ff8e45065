"""The options of one call to a Translator: those given, with tokens as ids, and the checkpoint's settings."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.resolve import checkpoint_settings, resolve_options
from fastattn.errors import InputError
from fastattn.system.option_names import SEARCH, UnknownOptionError, what_was_meant
from fastattn.text.translation import SPLITS, TranslationTokenizer
from fastattn.translation.arguments import end_ids


class CallOptions:
    """Makes the DecodingOptions of calls, for one tokenizer and its checkpoint."""

    def __init__(self, tokenizer: TranslationTokenizer):
        self._tokenizer, self._settings = tokenizer, checkpoint_settings(tokenizer.text)
        self._default = resolve_options(self._settings, {})

    def default(self) -> DecodingOptions:
        """The options of a call that gives none."""
        return self._default

    def split(self, split: str | None) -> str:
        """``split``, or the default for the checkpoint's kind; InputError for an unknown one."""
        if split is None:
            return "sentences" if self._tokenizer.text.single_sentences else "long"
        if split not in SPLITS:
            raise InputError(f"unknown split {split!r}; known: {', '.join(SPLITS)}")
        return split

    def of_texts(self, options: Mapping[str, Any]) -> DecodingOptions:
        """The options of a call on texts, whose suppress_sequences are texts too."""
        return self._resolved(options, self._tokens_of_text)

    def of_tokens(self, options: Mapping[str, Any]) -> DecodingOptions:
        """The options of a call on lists of tokens, whose suppress_sequences are lists of tokens too."""
        return self._resolved(options, _checked_tokens)

    def _resolved(self, options: Mapping[str, Any], tokens_of: Callable[[Any], Sequence[str]]) -> DecodingOptions:
        if not options:
            return self._default
        known = DecodingOptions.__dataclass_fields__
        unknown = [name for name in options if name not in known]
        if unknown:
            meant = what_was_meant(unknown[0], (*known, "details", "split", "target_prefix"), SEARCH)
            raise UnknownOptionError(f"unknown option {unknown[0]!r}" + (meant or f"; known: {', '.join(known)}"))
        sequences = options.get("suppress_sequences") or ()
        if isinstance(sequences, str | bytes | Mapping) or not isinstance(sequences, Iterable):
            raise InputError(f"suppress_sequences should be a list of what to suppress, got {sequences!r}")
        chosen: dict[str, Any] = {}
        if "suppress_sequences" in options:
            chosen["suppress_sequences"] = [self._tokenizer.known_target_ids(tokens_of(each)) for each in sequences]
        if "end_token" in options:
            vocabulary = len(self._tokenizer.text.target_vocabulary)
            chosen["end_token"] = end_ids(options["end_token"], self._tokenizer.known_target_ids, vocabulary)
        return resolve_options(self._settings, {**options, **chosen})

    def _tokens_of_text(self, text: Any) -> Sequence[str]:
        if not isinstance(text, str):
            raise InputError(f"suppress_sequences should hold texts, got {text!r}")
        return self._tokenizer.target_tokens(text)


def _checked_tokens(tokens: Any) -> Sequence[str]:
    if not isinstance(tokens, list | tuple) or not all(isinstance(token, str) for token in tokens):
        raise InputError(f"suppress_sequences should hold lists of tokens, got {tokens!r}")
    return tokens
