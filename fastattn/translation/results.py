"""What a Translator returns, and a file of it."""

import os
from collections.abc import Iterable

import numpy as np

from fastattn.system.files import one_line, open_file
from fastattn.system.records import dataclass


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
