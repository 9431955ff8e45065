"""Decoding options, named as in CTranslate2: a call's own come first, then the checkpoint's, then the defaults."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, TypedDict

import numpy as np

from fastattn.errors import CheckpointError, InputError, check_bool, described, warn
from fastattn.spec.text_spec import GeneratorText, SearchRules, TranslationText
from fastattn.system.option_names import NONE, UnknownOptionError, suggest_name


@dataclass(frozen=True)
class Step:
    """A token of a target: what ``DecodingOptions.callback`` gets and ``Translator.generate_tokens`` yields.

    sentence     the number of the token's source, from 0; for a Translator, the number of the text
    part         the number of the part, from 0, if a text was translated in several parts
    hypothesis   the number of the sampled translation that the token continues, from 0
    position     the token's position in the target, from 0; the tokens of a target prefix come first
    token_id, token   the token; the end token is a Step too
    log_probability   given the source and the earlier tokens; 0 for a token of the target prefix
    is_last      whether the token ends the translation
    """

    sentence: int
    part: int
    hypothesis: int
    position: int
    token_id: int
    token: str
    log_probability: float
    is_last: bool


# With a wider beam or more finished hypotheses a step would never end, or memory would run out.
WIDEST_BEAM = 1024
MOST_HYPOTHESES = 1_000_000
LONGEST_TARGET = 1 << 40  # fits int64; no memory holds as many tokens
LONGEST_MIN_LENGTH = 1_000_000  # tokens; no search ends before min_decoding_length, whatever the model chooses
# Checks of ranges, by their words in messages. Beyond 1e4 and 1e30 float32 cannot tell hypotheses apart: their
# log-probabilities vanish beside the penalties, and logits are 0 or infinite.
_RANGES: dict[str, Callable[[Any], bool]] = {
    "greater than 0": lambda value: value > 0,
    "at least 0": lambda value: value >= 0,
    "at most 1": lambda value: value <= 1,
    "less than 1": lambda value: value < 1,
    "from -10000 to 10000": lambda value: abs(value) <= 1e4,
    "from 1e-30 to 1e+30": lambda value: 1e-30 <= value <= 1e30,
}
# The checkpoint's settings of both limits are dropped if a call sets either.
_LENGTH_LIMITS = ("max_decoding_length", "max_length_factor")


def _integer(default: int | None, least: int, most: int | None = None) -> Any:
    """A field for a whole number from ``least`` to ``most`` (None: no bound); also for None, if None is the default."""

    def check(name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise InputError(f"{name} should be a whole number, at least {least}; got {described(value)}")
        if most is not None and int(value) > most:
            raise InputError(f"{name} should be at most {most}, got {described(value)}")

    return field(default=default, metadata={"check": check})


def _number(default: float | None, *ranges: str) -> Any:
    """A field for a finite number within ``ranges``, keys of _RANGES; also for None, if None is the default."""

    def check(name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, Real) or not _is_finite(value):
            raise InputError(f"{name} should be a finite number, got {described(value)}")
        for limit in ranges:
            if not _RANGES[limit](value):
                raise InputError(f"{name} should be {limit}, got {value}")

    return field(default=default, metadata={"check": check})


def _flag(default: bool) -> Any:
    return field(default=default, metadata={"check": check_bool})


@dataclass(frozen=True)
class DecodingOptions:
    """How the target is searched for. Raises InputError for invalid values.

    Names, defaults and limits are those of CTranslate2's ``translate_batch``, with these differences:
    ``max_decoding_length`` (there 256) and ``max_input_length`` (there 1024), so that no text loses its end unnoticed;
    ``shortlist`` (there ``use_vmap``, False), on if the checkpoint is made for it; the list is that of the cut source,
    and always holds the end tokens; ``return_scores`` (there False), since ``details`` shows scores;
    ``seed`` (there one for the whole process); ``timeout`` (not there); and a Step of ``callback`` always has its
    log-probability. Sampling from a beam and returning logits are not supported.
    """

    beam_size: int = _integer(2, 1, WIDEST_BEAM)
    """Hypotheses kept at each step, at most 1024; 1 is greedy search, or sampling."""
    patience: float = _number(1.0, "greater than 0")
    """The search ends with round(beam_size * patience) finished hypotheses (Kasai 2022)."""
    num_hypotheses: int = _integer(1, 1, MOST_HYPOTHESES)
    """Hypotheses returned, best first; at most beam_size * patience, but any number of samples and alternatives."""
    length_penalty: float = _number(1.0)
    """A score is the sum of log-probabilities / length ** length_penalty, the end token counted."""
    word_penalty: float = _number(0.0, "from -10000 to 10000")
    """Subtracted from the log-probability for each token, before the length penalty; below 0 it rewards length."""
    coverage_penalty: float = _number(0.0, "from -10000 to 10000")
    """A score gains this times the sum, over the source tokens, of log(min(attention received, 1)); a weight, 0 for
    none (Wu 2016, section 7)."""
    repetition_penalty: float = _number(1.0, "greater than 0", "from 1e-30 to 1e+30")
    """Logits of tokens already produced are divided by it where they are positive and multiplied by it where negative;
    above 1 discourages them, 1 is none (Keskar 2019, section 4.1)."""
    presence_penalty: float = _number(0.0, "from -10000 to 10000")
    """Subtracted from the logits of tokens already produced, after the repetition penalty; 0 is none. As in vLLM."""
    frequency_penalty: float = _number(0.0, "from -10000 to 10000")
    """Subtracted from a token's logit once for each time that it was produced; 0 is none. As in vLLM."""
    logit_bias: Sequence[tuple[int, float]] = ()
    """(id, what is added to the id's logit before penalties), each id once. An option of a Generator's calls alone."""
    no_repeat_ngram_size: int = _integer(0, 0, LONGEST_TARGET)
    """Never produce an n-gram of this size twice; 0: no such rule (Paulus 2017, section 2.5)."""
    min_decoding_length: int = _integer(1, 0, LONGEST_MIN_LENGTH)
    """The end token is suppressed for this many tokens."""
    max_decoding_length: int | None = _integer(None, 1)
    """The most tokens of a target, its prefix included."""
    max_length_factor: float | None = _number(None, "greater than 0")
    """The most tokens of a target behind its prefix: this times the source tokens, special ones included, rounded up.
    If both limits are None: the greatest of 256, twice the source tokens, and min_decoding_length."""
    max_input_length: int | None = _integer(None, 0)
    """A Translator cuts sources after this many tokens, added special ones included; an end token in the source is
    kept. Each line of a text is cut before it is split into sentences. None or 0: no cut."""
    disable_unk: bool = _flag(False)
    """Never produce the unknown token."""
    suppress_sequences: Sequence[Sequence[int]] = ()
    """Never produce these sequences of tokens. Here they are ids; a Translator takes texts, or lists of tokens in
    ``translate_tokens``. A text stands for its tokens as the tokenizer splits it; the same letters in other tokens may
    still be produced."""
    begin_suppress_tokens: Sequence[int] = ()
    """The target's first token is none of these ids. A checkpoint's setting, no option of calls."""
    rules: SearchRules | None = None
    """Rules of transformers' search; None: CTranslate2's rules. A checkpoint's setting, no option of calls."""
    prefix_bias_beta: float = _number(0.0, "at least 0", "less than 1")
    """0: the target begins with its prefix. Above 0, below 1: the prefix is only favoured, with probabilities (1 -
    beta) p + beta [is the prefix's next token] as long as the beam has followed it (Dabre and Fujita 2019, section
    4.2)."""
    return_alternatives: bool = _flag(False)
    """Return the num_hypotheses most probable tokens after the target prefix, each with its best continuation, the most
    probable token first; a score is the token's log-probability plus the continuation's score. Penalties and suppressed
    sequences look back on the continuation alone."""
    min_alternative_expansion_prob: float = _number(0.0, "at least 0", "at most 1")
    """Alternatives less probable than this, 0 to 1, are left out."""
    shortlist: bool = _flag(True)
    """If the checkpoint has a lexical shortlist, choose only from the words that it lists for the source; a prefix may
    have any words. False: choose from all words, which is the default for a CTranslate2 vocabulary map (vmap.txt), as
    in CTranslate2."""
    end_token: Sequence[int] = ()
    """Tokens that end a hypothesis instead of the checkpoint's end token. Here ids, () for the default; a Translator
    takes a token, an id, or a list of them."""
    return_end_token: bool = _flag(False)
    """Keep the token that ended a hypothesis in its tokens and attention, and in the text, unless it is the
    checkpoint's own."""
    return_scores: bool = _flag(True)
    """False: greedy search skips log-probabilities, which saves time; scores are NaN."""
    return_attention: bool = _flag(False)
    """Return each target token's attention over the source."""
    replace_unknowns: bool = _flag(False)
    """Put the source token with the highest attention in the place of each unknown token."""
    sampling_topk: int = _integer(1, 0, LONGEST_TARGET)
    """With beam_size=1, sample each token from this many most probable ones; 1: take the best; 0: sample from all (Fan
    2018)."""
    sampling_topp: float = _number(1.0, "greater than 0", "at most 1")
    """Sample from the fewest tokens that together reach this probability, 0 to 1 (Holtzman 2019)."""
    sampling_minp: float = _number(0.0, "at least 0", "at most 1")
    """Before sampling_topp, leave out tokens less probable than this times the best one's probability, 0 to 1 (Nguyen
    2025). Both options apply to the probabilities at the temperature, as in vLLM."""
    sampling_temperature: float = _number(1.0, "at least 0")
    """Divides the log-probabilities before sampling: above 1 flattens them, 0 takes the best. Scores are the model's,
    at temperature 1."""
    seed: int | None = _integer(None, 0)
    """A whole number: the same seed, source and prefix give the same samples in any batch, with any threads, so equal
    sentences get equal samples. None: every sentence of every call gets new ones."""
    timeout: float | None = _number(None, "greater than 0")
    """Seconds, above 0, that the search for a text's translation may take, else SearchTimeout is raised; checked
    between steps. Texts that share a step share its time equally, so that a text's own length decides, not its
    neighbours'. None: only the beam and the length limits, which apply to each part of a text, bound a search."""
    callback: Callable[[Step], Any] | None = None
    """Called with a Step for every token of greedy search or sampling, by the calling thread; a true return value ends
    that translation with this token."""

    def __post_init__(self) -> None:
        for name, default, check in _CHECKS:
            value = getattr(self, name)
            if value is not default:
                check(name, value)
        end_ids = self.end_token
        if (
            isinstance(end_ids, str)
            or not isinstance(end_ids, Sequence)
            or not all(isinstance(end_id, Integral) for end_id in end_ids)
        ):
            raise InputError(f"end_token should be ids here, got {end_ids!r}")
        if self.beam_size * self.patience > MOST_HYPOTHESES:
            raise InputError(
                f"beam_size * patience should be at most {MOST_HYPOTHESES}, got {self.beam_size * self.patience:g}"
            )
        if self.max_decoding_length is not None and self.min_decoding_length > self.max_decoding_length:
            raise InputError(
                f"min_decoding_length ({self.min_decoding_length}) is greater than "
                f"max_decoding_length ({self.max_decoding_length})"
            )
        if self.callback is not None and not callable(self.callback):
            raise InputError(f"callback should be a function, got {self.callback!r}")
        has_branches = self.return_alternatives or (self.beam_size == 1 and self.sampling_topk != 1)
        if self.num_hypotheses > (most := self.hypotheses_to_find) and not has_branches:
            raise InputError(f"num_hypotheses ({self.num_hypotheses}) is greater than beam_size * patience ({most})")
        if self.return_alternatives and self.is_biased:
            raise InputError("return_alternatives does not go with prefix_bias_beta")
        if self.sampling_topk != 1 and not self.is_greedy:
            raise InputError("sampling needs beam_size=1 and no prefix_bias_beta")
        if self.callback is not None and (not self.is_greedy or self.return_alternatives):
            raise InputError("callback needs beam_size=1, and neither prefix_bias_beta nor return_alternatives")

    @property
    def is_biased(self) -> bool:
        """Whether target prefixes are favoured instead of imposed."""
        return self.prefix_bias_beta > 0

    @property
    def is_greedy(self) -> bool:
        """Whether a single hypothesis is followed to its end, by the best token or a sampled one."""
        return self.beam_size == 1 and not self.is_biased

    @property
    def needs_log_probs(self) -> bool:
        """Whether log-probabilities are returned, passed to a callback, or needed by the search."""
        return self.return_scores or not self.is_greedy or self.is_sampled or self.callback is not None

    @property
    def is_sampled(self) -> bool:
        return self.sampling_topk != 1 and self.sampling_temperature > 0

    @property
    def longer_is_worse(self) -> bool:
        """Whether another token always lowers a hypothesis' score."""
        return self.length_penalty == 0 and self.coverage_penalty == 0 and self.word_penalty >= 0

    @property
    def needs_attention(self) -> bool:
        """Whether the search has to keep attention."""
        return self.return_attention or self.replace_unknowns or self.coverage_penalty != 0

    @property
    def hypotheses_to_find(self) -> int:
        """How many finished hypotheses end a search: beam_size * patience in float32, rounded half away from zero."""
        return math.floor(float(np.float32(self.beam_size) * np.float32(self.patience)) + 0.5)

    def limit(self, source_length: int, max_positions: int, prefix_length: int = 0) -> int:
        """The most tokens that a sentence may produce, its target prefix among them.

        max_positions  the decoder's own limit, 0 for none
        """
        limit = self.max_decoding_length
        if self.max_length_factor is not None and source_length:
            by_factor = prefix_length + math.ceil(min(self.max_length_factor * source_length, LONGEST_TARGET))
            by_factor = max(by_factor, self.min_decoding_length)
            limit = by_factor if limit is None else min(limit, by_factor)
        if limit is None:
            limit = max(256, 2 * source_length, self.min_decoding_length)
        return min(limit, max_positions or LONGEST_TARGET)


class _Documentation:
    """The docstring of DecodingOptions, with those of its fields, which are read from the source when ``help`` asks."""

    summary = DecodingOptions.__doc__

    def __get__(self, options: object, kind: type) -> str:
        import ast
        import inspect
        import textwrap

        paragraphs = [inspect.cleandoc(self.summary or "")]
        with suppress(OSError):  # there is no source file
            (tree,) = ast.parse(inspect.getsource(DecodingOptions)).body
            for option, text in pairwise(tree.body):  # type: ignore[attr-defined]
                if isinstance(option, ast.AnnAssign) and isinstance(text, ast.Expr):
                    docstring = " ".join(ast.literal_eval(text.value).split())
                    paragraphs.append(f"{ast.unparse(option.target)}: {docstring}")
        return (
            paragraphs[0] + "\n\n" + "\n".join(textwrap.fill(p, 112, subsequent_indent="    ") for p in paragraphs[1:])
        )


DecodingOptions.__doc__ = _Documentation()  # type: ignore[assignment]
_CHECKS = [
    (option.name, option.default, option.metadata["check"]) for option in fields(DecodingOptions) if option.metadata
]
SAMPLING = tuple(name for name, *_ in _CHECKS if name.startswith("sampling_"))


def _is_finite(value: Real) -> bool:
    """Whether a number is finite as a float."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def resolve_options(settings: Mapping[str, Any], options: Mapping[str, Any]) -> DecodingOptions:
    """The options of a call: its own ``options``, else the checkpoint's ``settings``, else the defaults.

    If the call sets no beam_size, the beam is 1 where tokens are sampled, elsewhere no less than the call's
    num_hypotheses. A checkpoint's setting that contradicts the call is dropped: its sampling if the call sets a beam or
    a bias, its length limits if the call sets either. The checkpoint's min_decoding_length is lowered to the call's
    max_decoding_length, and its max_decoding_length raised to the call's min_decoding_length.
    """
    options, dropped_names = dict(options), list[str]()
    if options.get("beam_size", 1) != 1 or options.get("prefix_bias_beta", 0) != 0:
        dropped_names += SAMPLING
    if any(options.get(name) is not None for name in _LENGTH_LIMITS):
        dropped_names += _LENGTH_LIMITS
    defaults = {name: value for name, value in settings.items() if name not in dropped_names}
    if "beam_size" not in options:
        count = options.get("num_hypotheses")
        if (defaults | options).get("sampling_topk", 1) != 1:
            defaults["beam_size"] = 1
        elif not options.get("return_alternatives") and "patience" not in options and isinstance(count, Integral):
            if count <= WIDEST_BEAM:  # DecodingOptions refuses more
                defaults["beam_size"] = max(defaults.get("beam_size", DecodingOptions.beam_size), int(count))
    for name, opposite, max_or_min in (
        ("max_decoding_length", "min_decoding_length", max),
        ("min_decoding_length", "max_decoding_length", min),
    ):
        if isinstance(defaults.get(name), int) and isinstance(options.get(opposite), Integral):
            defaults[name] = max_or_min(defaults[name], int(options[opposite]))
    return DecodingOptions(**defaults | options)


def checkpoint_settings(text: TranslationText | GeneratorText) -> dict[str, Any]:
    """The checkpoint's decoding settings, by option; warns of settings that no search here follows."""
    settings = text.decoding.options()
    if isinstance(text, GeneratorText):
        settings = {"beam_size": 1, "min_decoding_length": 0, **settings, "end_token": text.end_ids}
    elif not text.writes_unknowns:
        settings["disable_unk"] = True
    if isinstance(text, TranslationText) and text.vocabulary_map is not None:
        settings["shortlist"] = False  # CTranslate2's default
    try:
        resolve_options(settings, {})
    except InputError as error:
        raise CheckpointError(f"the checkpoint's own decoding settings cannot be followed: {error}") from None
    if text.decoding.not_followed:
        remarks = "; ".join(text.decoding.not_followed)
        warn(f"the checkpoint's own settings that are not followed: {remarks}")
    return settings


class DecoderOptions(TypedDict, total=False):
    """The options that every class's calls have, named as the fields of ``DecodingOptions``, as a caller gives them."""

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

    settings       the checkpoint's
    vocabulary     the number of ids
    ids_of_tokens  returns the ids of tokens; raises InputError for an unknown token
    names          the options of calls; ``suggestions``: other names that a message may suggest
    foreign_names  another library's name of an option -> what to write here
    field_names    a call's name of an option -> the field of DecodingOptions, where they differ
    default        the options of a call that sets none
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        vocabulary: int,
        ids_of_tokens: Callable[[Sequence[str]], list[int]],
        names: Iterable[str],
        suggestions: Iterable[str],
        foreign_names: Mapping[str, str],
        field_names: Mapping[str, str] = NONE,
    ):
        self.settings, self._vocabulary, self._ids_of_tokens = settings, vocabulary, ids_of_tokens
        self._names, self._suggestions = tuple(names), tuple(suggestions)
        self._foreign_names, self._field_names = foreign_names, field_names
        self.default = resolve_options(settings, {})

    def resolve(self, options: Mapping[str, Any], ids_of: Callable[[Any], Sequence[int]]) -> DecodingOptions:
        """The options of a call; ``ids_of`` returns the ids of one of its suppress_sequences."""
        for name in options:
            if name not in self._names:
                suggestions = (suggestion for suggestion in self._suggestions if suggestion != name)
                hint = suggest_name(name, (*self._names, *suggestions), self._foreign_names)
                raise UnknownOptionError(f"unknown option {name!r}" + (hint or f"; known: {', '.join(self._names)}"))
        values = {self._field_names.get(name, name): value for name, value in options.items()}
        if "suppress_sequences" in values:
            sequences = values["suppress_sequences"] or ()
            if isinstance(sequences, str | bytes | Mapping) or not isinstance(sequences, Iterable):
                raise InputError(f"suppress_sequences should be a list of what to suppress, got {sequences!r}")
            values["suppress_sequences"] = [ids_of(sequence) for sequence in sequences]
        if (end_token := values.pop("end_token", None)) is not None:  # else the checkpoint's
            values["end_token"] = self._end_ids(end_token)
        try:
            return resolve_options(self.settings, values)
        except InputError as error:
            message = str(error)
            for name, field_name in self._field_names.items():
                message = message.replace(field_name, name)
            raise InputError(message) from None

    def _end_ids(self, end_token: Any) -> list[int]:
        tokens = [end_token] if isinstance(end_token, str | Integral) else end_token
        if not isinstance(tokens, Iterable) or isinstance(tokens, bytes | Mapping):
            raise InputError(f"end_token should be a token, an id, or a list of them, got {end_token!r}")
        ids: list[int] = []
        for token in tokens:
            if isinstance(token, str):
                ids += self._ids_of_tokens([token])
            elif isinstance(token, Integral) and not isinstance(token, bool) and 0 <= int(token) < self._vocabulary:
                ids.append(int(token))
            else:
                raise InputError(
                    f"end_token should hold tokens, or ids from 0 to {self._vocabulary - 1}; got {token!r}"
                )
        if not ids:
            raise InputError("end_token should be at least one token")
        return list(dict.fromkeys(ids))
