"""Calls to a Generator: options, as a caller writes them and as they are checked; results."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fastattn.decoding.options import SAMPLING, DecoderOptions, DecodingOptions, DecodingResolver, checkpoint_settings
from fastattn.errors import InputError, check_bool, check_count, check_known, check_several, check_text, described
from fastattn.generation.text import GeneratorTokenizer
from fastattn.spec.text_spec import GeneratorText
from fastattn.system.option_names import GENERATION
from fastattn.system.records import dataclass
from fastattn.text.constraints import Constraint, Constraints

Prompt: TypeAlias = str | Sequence[int]  # a text, or ids
CONTEXTS = ("refuse", "cut")
MOST_STOPS, LONGEST_STOP = 64, 1024  # stop strings, and characters of each: every token is compared with all of them
MOST_TOPS = 100  # an answer keeps them for each of its tokens
MOST_BIAS = 10_000  # beside which float32 keeps differences of logits of a thousandth


class GenerationSearch(DecoderOptions, total=False):
    """The options that are fields of ``DecodingOptions``; ``Generator.generate`` documents the differences."""

    min_new_tokens: int
    max_new_tokens: int | None
    suppress_sequences: Iterable[str]


class GenerationOptions(GenerationSearch, total=False):
    """The options of ``Generator.generate``, but for ``details``."""

    stop: str | Iterable[str]
    context: str
    special_tokens: bool
    return_log_probs: bool
    top_log_probs: int
    logit_bias: Mapping[int, float]
    regex: str | None
    json_schema: dict[str, Any] | str | None
    speculate: Any
    messages: Iterable[Any]
    template_variables: dict[str, Any]


class GenerationCall(NamedTuple):
    """The checked options of a call."""

    decoding: DecodingOptions
    stop: tuple[str, ...] = ()
    context: str = "refuse"
    special_tokens: bool = True
    return_log_probs: bool = False
    top_log_probs: int = 0
    details: bool = False
    constraint: Constraint | None = None
    speculate: Any = None


_FLAGS = ("special_tokens", "return_log_probs")
_FIELD_NAMES = {"max_new_tokens": "max_decoding_length", "min_new_tokens": "min_decoding_length"}


class GenerationResolver:
    """Resolves the options of calls, for one tokenizer and its checkpoint."""

    def __init__(self, text: GeneratorText, tokenizer: GeneratorTokenizer):
        self._tokenizer = tokenizer
        names, other_names = GenerationSearch.__annotations__, (*GenerationOptions.__annotations__, "details")
        model_arguments = checkpoint_settings(text), tokenizer.vocabulary, tokenizer.ids_of_tokens
        self._decoding = DecodingResolver(*model_arguments, names, other_names, GENERATION, _FIELD_NAMES)
        self.default = self._decoding.default
        self._constraints = Constraints(text.tokenizer, tokenizer.vocabulary)

    def call(self, options: GenerationOptions, details: bool = False) -> GenerationCall:
        """A checked call; InputError for invalid options."""
        search_options: dict[str, Any] = {**options}
        pop = search_options.pop
        stop = _checked_stop(pop("stop", ()))
        own_options = {name: pop(name) for name in ("context", "top_log_probs", *_FLAGS) if name in search_options}
        call = GenerationCall(self.default, stop, **own_options, details=details)
        check_known("context", call.context, CONTEXTS)
        bias = _checked_bias(pop("logit_bias", {}), self._tokenizer.vocabulary)
        regex, json_schema, draft = pop("regex", None), pop("json_schema", None), self._draft_of(pop("speculate", None))
        for name in (*_FLAGS, "details"):
            check_bool(name, getattr(call, name))
        if call.top_log_probs != 0 and check_count("top_log_probs", call.top_log_probs) > MOST_TOPS:
            raise InputError(f"top_log_probs should be at most {MOST_TOPS}, got {described(call.top_log_probs)}")
        if call.top_log_probs and not call.return_log_probs:
            raise InputError("top_log_probs needs return_log_probs=True")
        if not search_options.keys().isdisjoint(SAMPLING) and self.default.sampling_topk == 1:
            search_options.setdefault("sampling_topk", 0)
        decoding = self._decoding.resolve(search_options, self._ids_of_text)
        if draft is not None and not decoding.is_greedy:
            raise InputError("speculate needs beam_size=1")
        if not details and decoding.num_hypotheses > 1:
            raise InputError("num_hypotheses above 1 needs details=True: a text alone shows only the best")
        if not details and call.return_log_probs:
            raise InputError("return_log_probs needs details=True: a text alone does not show them")
        if draft is not None and call.top_log_probs:
            raise InputError("speculate goes with no top_log_probs: a step of several tokens lists no others")
        decoding = replace(decoding, return_end_token=True, return_scores=details, logit_bias=bias)
        constraint = self._constraints.constraint(regex, json_schema, decoding.end_token)
        if draft is not None and constraint is not None:
            raise InputError("speculate goes with no regex and no json_schema: what may come is not what is proposed")
        return call._replace(decoding=decoding, constraint=constraint, speculate=draft)

    def _draft_of(self, speculate: Any) -> Any:
        """``Job.speculate`` from a call's ``speculate``; InputError for an invalid value."""
        tokenizer = getattr(speculate, "_tokenizer", None)
        if not isinstance(tokenizer, GeneratorTokenizer):
            if speculate is not None:
                check_known("speculate", speculate, ("prompt",))
            return speculate
        if not tokenizer.agrees(self._tokenizer):
            raise InputError("speculate: the draft model's vocabulary should be the model's, is another")
        return speculate._service.model

    def _ids_of_text(self, text: Any) -> Sequence[int]:
        ids: list[int] = self._tokenizer.encode([check_text("suppress_sequences", text)], False)[0].tolist()
        return ids


def _checked_stop(stop: Any) -> tuple[str, ...]:
    strings = (stop,) if isinstance(stop, str) else tuple(check_several("stop", stop))
    for string in strings:
        if not check_text("stop", string):
            raise InputError("stop should hold texts that are not empty")
        if len(string) > LONGEST_STOP:
            raise InputError(f"stop should hold texts of at most {LONGEST_STOP} characters, got one of {len(string)}")
    if len(strings) > MOST_STOPS:
        raise InputError(f"stop should hold at most {MOST_STOPS} texts, got {len(strings)}")
    return strings


def _checked_bias(bias: Any, size: int) -> tuple[tuple[int, float], ...]:
    pairs = bias.items() if isinstance(bias, Mapping) else [(-1, bias)]
    if all(isinstance(z, int | float | np.number) and abs(z) <= MOST_BIAS and n in range(size) for n, z in pairs):
        return tuple(sorted((int(n), float(z)) for n, z in pairs if z))
    raise InputError(f"logit_bias should map ids below {size} to numbers within +-{MOST_BIAS}, got {described(bias)}")


@dataclass(frozen=True)
class Generation:
    """A model's answer to a prompt: what ``generate(..., details=True)`` returns.

    text           the answer, without special tokens, up to the stop string that ended it
    tokens         the answer's ids, without the end token; ids of a stop string are among them
    score          log-probability / length ** length_penalty, of the whole answer, the end token counted
    finish_reason  "stop": an end token, a stop string or the callback; "length": max_new_tokens, or the context
    prompt_length  how many ids of the prompt the model has read
    log_probs      with return_log_probs: float32, one for each of ``tokens``
    top_log_probs  with this option, for each of ``tokens``: id -> log-probability of the most probable ids in its place
    proposed, accepted  with ``speculate``: how many tokens were proposed, and how many of these are in the answer
    alternatives   the other answers, best first, where num_hypotheses is above 1
    cached_tokens  how many ids of the prompt other prompts had read; no part of what the answer is compared by
    """

    text: str
    tokens: list[int]
    score: float
    finish_reason: str
    prompt_length: int
    log_probs: np.ndarray | None = None
    alternatives: "tuple[Generation, ...]" = ()
    proposed: int = 0
    accepted: int = 0
    cached_tokens: int = field(default=0, compare=False)
    top_log_probs: Sequence[dict[int, float]] = ()


@dataclass(frozen=True)
class TextScore:
    """How probable a text is: its ids; of each id but the first the log-probability, float32, and ``top_log_probs``."""

    tokens: list[int]
    log_probs: np.ndarray
    top_log_probs: Sequence[dict[int, float]] = ()

    @property
    def perplexity(self) -> float:
        """exp of the mean of -log-probability; NaN for a text of fewer than two tokens."""
        return float(np.exp(-self.log_probs.mean(dtype=np.float64))) if len(self.log_probs) else float("nan")
