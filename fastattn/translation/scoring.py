"""What a Translator makes of given translations: the log-probability of each token."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, overload

import numpy as np

from fastattn.decoding.search import AttentionMaps
from fastattn.decoding.worker import DecodingService
from fastattn.errors import InputError, check_texts, without_errors
from fastattn.loading.loaded_model import ModelBase
from fastattn.scheduling.request import Plan
from fastattn.system.records import dataclass
from fastattn.text.translation import TranslationTokenizer
from fastattn.translation.calls import Beside, EachText, OptionResolver, Score, beside_each
from fastattn.translation.pipeline import Pipeline

if TYPE_CHECKING:
    from fastattn.plot import AttentionPlot


@dataclass(frozen=True, eq=False)
class TokenLooks:
    """A source's S tokens, a target's T with its end, and weights_LHTS, float32: what each layer's heads look at.

    Row t is of the state that tells token t of the target.
    """

    source: list[str]
    target: list[str]
    weights_LHTS: np.ndarray

    def plot(self, title: str | None = None) -> "AttentionPlot":
        """A picture of all layers and heads."""
        from fastattn.plot import plot_attention  # for who asks for one

        layers, heads, T, S = self.weights_LHTS.shape
        names = [f"layer {layer}, head {head}" for layer in range(layers) for head in range(heads)]
        weights_HTS = self.weights_LHTS.reshape(layers * heads, T, S)
        return plot_attention(weights_HTS, rows=self.target, columns=self.source, title=title, names=names)


class ScoringTranslator(ModelBase):
    """The base of Translator: its scores of given translations."""

    _resolver: OptionResolver
    _tokenizer: TranslationTokenizer
    _pipeline: Pipeline
    _service: DecodingService

    @overload
    def score(  # type: ignore[overload-overlap]  # a str is Iterable[str]
        self, source: str, target: str, source_lang: str | None = ..., target_lang: str | None = ...
    ) -> Score: ...
    @overload
    def score(
        self, source: Iterable[str], target: Iterable[str], source_lang: EachText = ..., target_lang: EachText = ...
    ) -> list[Score]: ...

    def score(
        self,
        source: str | Iterable[str],
        target: str | Iterable[str],
        source_lang: EachText = None,
        target_lang: EachText = None,
    ) -> Score | list[Score]:
        """The model's log-probability of each token of a given translation, the end token included.

        Two texts give a Score, two lists of texts a list of them. Nothing is split: text that is longer than the model
        has positions for is an InputError. source_lang, target_lang: as in ``translate``.
        """
        if isinstance(source, str) != isinstance(target, str):
            raise InputError("score should be given two texts, or two lists of texts")
        sources = [source] if isinstance(source, str) else check_texts("source", source)
        targets = [target] if isinstance(target, str) else check_texts("target", target)
        besides = beside_each(sources, self._resolver.beside({"source_lang": source_lang, "target_lang": target_lang}))
        pairs = [self._pipeline.check_text(text, beside) for text, beside in zip(sources, besides)]
        tokens = [self._tokenizer.surrounded_tokens(text, pair) for text, pair in zip(sources, pairs)]
        scores = self._scored(tokens, [self._tokenizer.target_tokens(text) for text in targets], besides)
        return scores[0] if isinstance(source, str) else scores

    def looks(
        self, text: str, translation: str, source_lang: str | None = None, target_lang: str | None = None
    ) -> "TokenLooks":
        """What each head of each layer of the decoder looks at while it writes a given translation, nothing split.

        source_lang, target_lang: as in ``translate``. Raises InputError for decoders whose layers have no heads, such
        as recurrent ones.
        """
        beside = self._resolver.beside({"source_lang": source_lang, "target_lang": target_lang})
        pair = self._pipeline.check_text(text, beside_each([text], beside)[0])
        tokenizer, vocabularies = self._tokenizer, self._tokenizer.text
        source_ids = tokenizer.source_ids(tokenizer.surrounded_tokens(text, pair))
        ids = np.array(tokenizer.target_ids(tokenizer.target_tokens(translation), pair), np.int32)
        if not text.strip() or not translation.strip():
            raise InputError("what is looked at needs a text and its translation, neither of them empty")

        def plan() -> Plan:
            return (yield [AttentionMaps(source_ids, ids)])

        (looks_LHTS,) = self._service.scheduler().run(plan)
        if not looks_LHTS.size:
            raise InputError("this model's decoder has no heads that look at the source")
        rows = [vocabularies.target_vocabulary[number] for number in [*ids[1:].tolist(), tokenizer.end_id]]
        return TokenLooks([vocabularies.source_vocabulary[number] for number in source_ids.tolist()], rows, looks_LHTS)

    def score_tokens(self, sources: Iterable[Sequence[str]], targets: Iterable[Sequence[str]]) -> list[Score]:
        """``score`` of tokens instead of texts; the end token is added to each target.

        For an empty source the model does not run, and every token scores 0.
        """
        return self._scored(sources, targets)

    def _scored(
        self, sources: Iterable[Sequence[str]], targets: Iterable[Sequence[str]], besides: Sequence[Beside] = ()
    ) -> list[Score]:
        read = (*self._pipeline.read_pairs(sources, targets), besides)
        if pool := self._pool_for(len(read[0])):
            return without_errors(pool.scheduler.run(partial(pool.plan_scores, *read)))
        return self._service.scheduler().run(partial(self._pipeline.plan_scores, *read))
