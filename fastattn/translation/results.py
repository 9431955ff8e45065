"""What a Translator returns, made from hypotheses of ids; and a file of it."""

import os
from collections.abc import Iterable
from itertools import chain

import numpy as np

from fastattn.decoding.candidates import normalized
from fastattn.decoding.jobs import Hypothesis
from fastattn.decoding.options import DecodingOptions
from fastattn.system.files import one_line, open_file
from fastattn.system.records import dataclass
from fastattn.text.translation import Line, TranslationTokenizer


@dataclass(frozen=True)
class TokenTranslation:
    """The translation of one source: hypotheses by rank, best first.

    source             its tokens, without added special ones, cut to max_input_length
    hypotheses         the tokens of each, with the end token only if return_end_token is set
    scores             (log-probability - length * word_penalty) / length ** length_penalty, and the coverage penalty
    log_probabilities  each the sum over ``lengths`` tokens, the end token counted; a target prefix counts 0
    attention          if asked for: of each hypothesis, float32 [its tokens, source tokens]
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
    hypotheses  the texts by rank, best first; perhaps fewer than asked for if the length limit ended the search
    scores      of each, as in TokenTranslation, over all parts; 0 if nothing was translated. Of a text in one part it
                is the part's score
    parts       the lines, sentences or pieces that were translated one by one, with tokens and attention
    """

    text: str
    hypotheses: list[str]
    scores: list[float]
    parts: list[TokenTranslation]


@dataclass(frozen=True)
class Score:
    """Forced decoding of one target: its tokens, the end token last, and the log-probability of each (float32)."""

    tokens: list[str]
    log_probs: np.ndarray


@dataclass(frozen=True)
class ExecutionStats:
    """The work of ``translate_file``, by CTranslate2's names: tokens of the best hypotheses, lines, milliseconds."""

    num_tokens: int
    num_examples: int
    total_time_in_ms: float


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


def write_translations(
    results: Iterable[Translation], path: str | os.PathLike[str], with_scores: bool, count: int
) -> tuple[int, int]:
    """Write each hypothesis on a line; returns (tokens of the best hypotheses, translations).

    with_scores  put the score and `` ||| `` before it
    Each translation has ``count`` lines, empty ones where it has fewer hypotheses.
    """
    tokens = examples = 0
    with open_file(path) as output:
        for result in results:
            examples += 1
            for text, score in zip(result.hypotheses, result.scores):
                line = f"{score:g} ||| {one_line(text)}\n" if with_scores else f"{one_line(text)}\n"
                output.write(line.encode("utf-8", "surrogatepass"))
            output.write(b"\n" * (count - len(result.hypotheses)))
            tokens += sum(len(part.tokens) for part in result.parts)
    return tokens, examples
