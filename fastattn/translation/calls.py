"""The arguments of calls to a Translator, as a caller gives them and after the checks; the results of calls."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastattn.decoding.options import DecoderOptions, DecodingOptions, DecodingResolver, checkpoint_settings
from fastattn.errors import InputError, check_bool, check_several
from fastattn.system.option_names import SEARCH
from fastattn.system.records import dataclass
from fastattn.text.translation import SPLITS, TranslationTokenizer

if TYPE_CHECKING:
    from fastattn.plot import AttentionPlot

EachText = str | Iterable[str | None] | None  # one value for all texts, or one for each
TokenLists = list[list[str]]


class SearchOptions(DecoderOptions, total=False):
    """The fields of ``DecodingOptions``, as a caller gives them: with texts, or lists of tokens, instead of ids."""

    coverage_penalty: float
    min_decoding_length: int
    max_decoding_length: int | None
    max_length_factor: float | None
    max_input_length: int | None
    disable_unk: bool
    suppress_sequences: Iterable[str] | Iterable[Sequence[str]]
    prefix_bias_beta: float
    return_alternatives: bool
    min_alternative_expansion_prob: float
    shortlist: bool
    return_end_token: bool
    return_scores: bool
    return_attention: bool
    replace_unknowns: bool


class LanguageOptions(SearchOptions, total=False):
    """The options of a call that may name the languages of its texts."""

    source_lang: EachText
    target_lang: EachText


class TextOptions(LanguageOptions, total=False):
    """The options of ``Translator.translate``, but for ``details``."""

    target_prefix: EachText
    split: str | None


class Direction(NamedTuple):
    """A text's languages and its translation's beginning, by the names of the options."""

    target_prefix: str | None = None
    source_lang: str | None = None
    target_lang: str | None = None


class Directions(NamedTuple):
    """The directions of a call's texts.

    shared    the direction of all texts
    per_text  option -> a value for each text; None stands for the shared value
    """

    shared: Direction
    per_text: Mapping[str, Iterable[str | None]]


class TextCall(NamedTuple):
    """The checked options of a call on texts.

    split    a value from ``text.translation.SPLITS``
    details  whether the call returns Translations
    """

    split: str
    decoding: DecodingOptions
    details: bool = False


class OptionResolver:
    """Resolves the options of calls, for one tokenizer and its checkpoint.

    default    the options of a call that sets none
    direction  the languages of a call that names none
    """

    direction = Direction()

    def __init__(self, tokenizer: TranslationTokenizer):
        self._tokenizer, text = tokenizer, tokenizer.text
        names, suggestions = DecodingOptions.__dataclass_fields__, ("details", "split", *Direction._fields)
        of_model = checkpoint_settings(text), len(text.target_vocabulary), tokenizer.known_target_ids
        self._decoding = DecodingResolver(*of_model, names, suggestions, SEARCH)
        self.default = self._decoding.default

    def text_call(self, options: TextOptions | SearchOptions, details: bool = False) -> TextCall:
        """A checked call on texts, whose suppress_sequences are texts too; InputError for an invalid option."""
        search: dict[str, Any] = {**options}
        split = search.pop("split", None)
        decoding = self._resolve(search, self._tokens_of_text)
        if split is None:
            split = "sentences" if self._tokenizer.text.single_sentences else "long"
        elif split not in SPLITS:
            raise InputError(f"unknown split {split!r}; known: {', '.join(SPLITS)}")
        return TextCall(split, decoding, check_details(details, vars(decoding)))

    def take_directions(self, options: Any) -> Directions:
        """Remove the directions from a call's options and return them; InputError for unknown shared languages."""
        values = {name: value for name in Direction._fields if (value := options.pop(name, None)) is not None}
        per_text = {name: check_several(name, value) for name, value in values.items() if not isinstance(value, str)}
        direction = self.direction._replace(**{name: value for name, value in values.items() if name not in per_text})
        if not per_text.keys() - {"target_prefix"}:  # else each text's languages are checked when the text is read
            self._tokenizer.pair(*direction[1:])
        return Directions(direction, per_text)

    def directions(self, texts: Sequence[str], options: Any) -> list[Direction]:
        """``take_directions``, as one direction for each text; InputError if texts and values differ in number."""
        return [direction for _, direction in with_directions(texts, self.take_directions(options))]

    def token_options(self, options: Mapping[str, Any]) -> DecodingOptions:
        """The options of a call on lists of tokens, whose suppress_sequences are lists of tokens too."""
        return self._resolve(options, _checked_tokens)

    def _resolve(self, options: Mapping[str, Any], tokens_of: Callable[[Any], Sequence[str]]) -> DecodingOptions:
        if not options:
            return self.default
        return self._decoding.resolve(options, lambda value: self._tokenizer.known_target_ids(tokens_of(value)))

    def _tokens_of_text(self, text: Any) -> Sequence[str]:
        if not isinstance(text, str):
            raise InputError(f"suppress_sequences should hold texts, got {text!r}")
        return self._tokenizer.target_tokens(text)


def _checked_tokens(tokens: Any) -> Sequence[str]:
    if not isinstance(tokens, list | tuple) or not all(isinstance(token, str) for token in tokens):
        raise InputError(f"suppress_sequences should hold lists of tokens, got {tokens!r}")
    return tokens


def token_lists(name: str, values: Any) -> TokenLists:
    """``values`` as a list of lists of tokens; InputError for anything else."""
    lists: TokenLists = []
    for tokens in check_several(name, values, "a list of lists of tokens"):
        lists.append(list(check_several(f"{name}[{len(lists)}]", tokens, "a list of tokens")))
        invalid = next((token for token in lists[-1] if not isinstance(token, str)), None)
        if invalid is not None:
            raise InputError(f"{name} should hold tokens as str, list {len(lists) - 1} holds {type(invalid).__name__}")
    return lists


def token_prefixes(target_prefix: Any, sources: int) -> TokenLists:
    """The target prefix of each source, [] for None; InputError unless there is one for each source."""
    if target_prefix is None:
        return [[] for _ in range(sources)]
    values = check_several("target_prefix", target_prefix, "a list of lists of tokens")
    prefixes = token_lists("target_prefix", [[] if prefix is None else prefix for prefix in values])
    if len(prefixes) != sources:
        raise InputError(f"target_prefix should hold one prefix for each source: {sources}, not {len(prefixes)}")
    return prefixes


def check_details(details: bool, options: Mapping[str, Any]) -> bool:
    """``details``, checked; if false, InputError for options whose results a text alone would not show."""
    details = check_bool("details", details)
    if not details and options.get("num_hypotheses", 1) != 1:
        raise InputError("num_hypotheses above 1 needs details=True: a text alone shows only the best")
    if not details and options.get("return_attention"):
        raise InputError("return_attention needs details=True: a text alone does not show it")
    return details


def check_file_options(options: Mapping[str, Any], with_scores: bool) -> None:
    """Raise InputError for options that ``translate_file`` cannot take."""
    for name, hint in (
        ("details", "a file has room for texts and scores"),
        ("target_prefix", "name a target_path"),
        ("return_exceptions", "a file is whole or not there"),
    ):
        if name in options:
            raise InputError(f"translate_file takes no {name}: {hint}")
    if with_scores and not options.get("return_scores", True):
        raise InputError("with_scores needs return_scores=True")


def check_stream(options: DecodingOptions) -> None:
    """Raise InputError for options that ``generate_tokens`` cannot take."""
    if not options.is_greedy or options.return_alternatives:
        raise InputError("generate_tokens needs beam_size=1, and neither prefix_bias_beta nor return_alternatives")
    if options.callback is not None:
        raise InputError("generate_tokens takes no callback: it yields what a callback would get")


def with_directions(texts: Iterable[str], directions: Directions) -> Iterator[tuple[str, Direction]]:
    """(text, its direction) of each text; the iterator raises InputError if texts and values differ in number."""
    missing: Any = object()
    for count, (text, *row) in enumerate(zip_longest(texts, *directions.per_text.values(), fillvalue=missing)):
        values = dict(zip(directions.per_text, row))
        for name, value in values.items():
            if (text is missing) != (value is missing):
                fewer, more = ("texts", "values") if text is missing else ("values", "texts")
                raise InputError(f"{name} should be one str, or one for each text: {count} {fewer}, but more {more}")
        yield text, directions.shared._replace(**{name: value for name, value in values.items() if value is not None})


@dataclass(frozen=True)
class TokenTranslation:
    """The translation of one source: hypotheses by rank, best first.

    source             the source's tokens, without added special tokens, cut to max_input_length
    hypotheses         the tokens of each hypothesis, with the end token only if return_end_token is set
    scores             (log-probability - length * word_penalty) / length ** length_penalty, and the coverage penalty
    log_probabilities  of each hypothesis: the sum over ``lengths`` tokens, the end token counted; a prefix counts 0
    attention          with return_attention: of each hypothesis, float32 [the hypothesis' tokens, source tokens]
    """

    source: list[str]
    hypotheses: list[list[str]]
    scores: list[float]
    log_probabilities: list[float]
    lengths: list[int]
    attention: list[np.ndarray] | None = None

    @property
    def tokens(self) -> list[str]:
        """The best hypothesis."""
        return self.hypotheses[0]


@dataclass(frozen=True)
class Translation:
    """A text's translation with its alternatives and scores: what ``translate(..., details=True)`` returns.

    text        the best hypothesis
    hypotheses  the texts by rank, best first; perhaps fewer than num_hypotheses if the length limit ended the search
    scores      of each hypothesis, over all parts, as in TokenTranslation; of a single part, that part's score; 0 if
                nothing was translated
    parts       the lines, sentences or pieces that were translated one by one, with tokens and attention
    """

    text: str
    hypotheses: list[str]
    scores: list[float]
    parts: list[TokenTranslation]


@dataclass(frozen=True)
class ChainedTranslation:
    """A text's translation by way of another language; fields as in Translation, and:

    scores   the sums of both models' scores
    parts    the parts of the second model's translation of ``through[0]``
    through  the text in the intermediate language, for each hypothesis
    first    the first model's translation, which word links need; None if the best hypothesis is not of its best text
    """

    text: str
    hypotheses: list[str]
    scores: list[float]
    parts: list[TokenTranslation]
    through: list[str]
    first: Translation | None = None


@dataclass(frozen=True)
class Score:
    """Forced decoding of one target: its tokens, the end token last, and each token's log-probability (float32)."""

    tokens: list[str]
    log_probs: np.ndarray


@dataclass(frozen=True, eq=False)
class TokenLooks:
    """A source's S tokens, a target's T tokens with the end token, and each head's attention weights, float32.

    Row t of a head has the attention of the state that predicts token t of the target.
    """

    source: list[str]
    target: list[str]
    weights_LHTS: np.ndarray

    def plot(self, title: str | None = None) -> "AttentionPlot":
        """A picture of all layers and heads."""
        from fastattn.plot import plot_attention  # only for a plot

        layers, heads, T, S = self.weights_LHTS.shape
        names = [f"layer {layer}, head {head}" for layer in range(layers) for head in range(heads)]
        weights_HTS = self.weights_LHTS.reshape(layers * heads, T, S)
        return plot_attention(weights_HTS, rows=self.target, columns=self.source, title=title, names=names)


@dataclass(frozen=True)
class ExecutionStats:
    """The work of ``translate_file``, by CTranslate2's names: tokens of the best hypotheses, lines, milliseconds."""

    num_tokens: int
    num_examples: int
    total_time_in_ms: float
