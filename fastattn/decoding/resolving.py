"""Options of calls as callers give them, with tokens in words of theirs: checked, and with ids."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, TypedDict

from fastattn.decoding.options import DecodingOptions, Step, resolve_options
from fastattn.errors import InputError
from fastattn.system.option_names import NONE, UnknownOptionError, what_was_meant


class DecoderOptions(TypedDict, total=False):
    """Fields of ``DecodingOptions`` that calls of all kinds have by these names, as a caller gives them."""

    beam_size: int
    patience: float
    num_hypotheses: int
    length_penalty: float
    word_penalty: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    no_repeat_ngram_size: int
    end_token: str | int | Iterable[str | int] | None
    sampling_topk: int
    sampling_topp: float
    sampling_minp: float
    sampling_temperature: float
    seed: int | None
    timeout: float | None
    callback: Callable[[Step], Any] | None


class DecodingResolver:
    """Resolves the DecodingOptions of calls, for one tokenizer and its checkpoint.

    settings    the checkpoint's own
    vocabulary  the number of ids
    known_ids   the ids of tokens; raises for one that there is not
    names       the options that calls may have; ``beside``: others that a message may suggest
    foreign     by other libraries' names, what to write here
    renamed     fields of DecodingOptions by their names in calls, where these are others
    default     the options of a call that gives none
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        vocabulary: int,
        known_ids: Callable[[Sequence[str]], list[int]],
        names: Iterable[str],
        beside: Iterable[str],
        foreign: Mapping[str, str],
        renamed: Mapping[str, str] = NONE,
    ):
        self.settings, self._vocabulary, self._known_ids = settings, vocabulary, known_ids
        self._names, self._beside, self._foreign, self._renamed = tuple(names), tuple(beside), foreign, renamed
        self.default = resolve_options(settings, {})

    def resolve(self, options: Mapping[str, Any], ids_of: Callable[[Any], Sequence[int]]) -> DecodingOptions:
        """The options of a call; ``ids_of``: the ids of one of its suppress_sequences."""
        unknown = [name for name in options if name not in self._names]
        if unknown:
            others = (name for name in self._beside if name != unknown[0])
            meant = what_was_meant(unknown[0], (*self._names, *others), self._foreign)
            raise UnknownOptionError(f"unknown option {unknown[0]!r}" + (meant or f"; known: {', '.join(self._names)}"))
        sequences = options.get("suppress_sequences") or ()
        if isinstance(sequences, str | bytes | Mapping) or not isinstance(sequences, Iterable):
            raise InputError(f"suppress_sequences should be a list of what to suppress, got {sequences!r}")
        chosen: dict[str, Any] = {}
        if "suppress_sequences" in options:
            chosen["suppress_sequences"] = [ids_of(each) for each in sequences]
        if "end_token" in options:
            chosen["end_token"] = end_ids(options["end_token"], self._known_ids, self._vocabulary)
        given = {self._renamed.get(name, name): value for name, value in {**options, **chosen}.items()}
        if given.get("end_token", True) == []:  # the checkpoint's
            del given["end_token"]
        try:
            return resolve_options(self.settings, given)
        except InputError as error:
            message = str(error)
            for name, field in self._renamed.items():
                message = message.replace(field, name)
            raise InputError(message) from None


def end_ids(end_token: Any, known_ids: Callable[[Sequence[str]], list[int]], vocabulary: int) -> list[int]:
    """The ids of a token, an id, or a list of them; [] for None. ``known_ids`` raises for an unknown token."""
    if end_token is None:
        return []
    listed = [end_token] if isinstance(end_token, str | Integral) else end_token
    if not isinstance(listed, Iterable) or isinstance(listed, bytes | Mapping):
        raise InputError(f"end_token should be a token, an id, or a list of them, got {end_token!r}")
    ids: list[int] = []
    for token in listed:
        if isinstance(token, str):
            ids += known_ids([token])
        elif isinstance(token, Integral) and not isinstance(token, bool) and 0 <= int(token) < vocabulary:
            ids.append(int(token))
        else:
            raise InputError(f"end_token should hold tokens, or ids from 0 to {vocabulary - 1}; got {token!r}")
    if not ids:
        raise InputError("end_token should be at least one token")
    return list(dict.fromkeys(ids))
