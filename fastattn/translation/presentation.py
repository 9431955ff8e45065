"""From hypotheses of ids to results: tokens, texts joined from their parts, scores."""

from itertools import chain

import numpy as np

from fastattn.decoding.jobs import Hypothesis
from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.search import normalized
from fastattn.text.translation import Line, TranslationTokenizer
from fastattn.translation.results import TokenTranslation, Translation


class Presentation:
    """Presents one model's results; ``max_positions`` is its decoder's limit, 0 for none."""

    def __init__(self, tokenizer: TranslationTokenizer, max_positions: int):
        self._tokenizer = tokenizer
        self._max_positions = max_positions

    def join(self, lines: list[Line], translated: list[list[TokenTranslation]], rank: int) -> str:
        texts = []
        for line, parts in zip(lines, translated):
            sentences = [self._tokenizer.join(part.hypotheses[rank]) for part in parts]
            texts.append((self._tokenizer.join_sentences(sentences) if sentences else line.untranslated) + line.end)
        return "".join(texts)

    def detail(
        self, lines: list[Line], translated: list[list[TokenTranslation]], options: DecodingOptions
    ) -> Translation:
        parts = list(chain.from_iterable(translated))
        ranks = range(min((len(part.hypotheses) for part in parts), default=options.num_hypotheses))
        hypotheses = [self.join(lines, translated, rank) for rank in ranks]
        if len(parts) == 1:
            scores = parts[0].scores
        else:
            scores = [_total_score(parts, rank, options) for rank in ranks]
        return Translation(hypotheses[0], hypotheses, scores, parts)

    def tokens(self, source: list[str], hypotheses: list[Hypothesis], options: DecodingOptions) -> TokenTranslation:
        first, forced = int(self._tokenizer.text.add_source_bos), self._tokenizer.forced
        attention = [
            np.ascontiguousarray(h.attention_TS[forced:, first : first + len(source)])
            for h in hypotheses
            if h.attention_TS is not None
        ]
        tokens = [self._tokenizer.target_surfaces(hypothesis.tokens[forced:]) for hypothesis in hypotheses]
        if options.replace_unknowns:
            unknown = self._tokenizer.text.unk_token
            for surfaces, attention_TS in zip(tokens, attention):
                for t, surface in enumerate(surfaces):
                    if surface == unknown:
                        surfaces[t] = source[int(attention_TS[t].argmax())]
        return TokenTranslation(
            source,
            tokens,
            [hypothesis.score for hypothesis in hypotheses],
            [hypothesis.log_probability for hypothesis in hypotheses],
            [hypothesis.length for hypothesis in hypotheses],
            attention if options.return_attention else None,
        )

    def empty(self, source: list[str], start: list[int], options: DecodingOptions) -> TokenTranslation:
        """The translation of an empty source: the target prefix alone."""
        count = options.num_hypotheses
        last = 1 + options.limit(0, self._max_positions)
        tokens = self._tokenizer.target_surfaces(start[1 + self._tokenizer.forced : last])
        attention = [np.zeros((len(tokens), len(source)), np.float32)] * count if options.return_attention else None
        return TokenTranslation(source, [tokens] * count, [0.0] * count, [0.0] * count, [0] * count, attention)


def _total_score(parts: list[TokenTranslation], rank: int, options: DecodingOptions) -> float:
    length = sum(part.lengths[rank] for part in parts)
    log_probability = sum(part.log_probabilities[rank] for part in parts)
    return normalized(log_probability, length, options.length_penalty, options.word_penalty)
