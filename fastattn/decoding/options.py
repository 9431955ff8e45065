"""What a caller can ask of the search; names, defaults and limits are CTranslate2's."""

import math
from dataclasses import dataclass

import numpy as np

from fastattn.errors import InputError


@dataclass(frozen=True)
class DecodingOptions:
    """How the target is searched for. Raises InputError for values that no search can follow.

    beam_size            how many hypotheses are kept at each step; 1 is greedy search
    patience             the search ends with round(beam_size * patience) finished hypotheses (Kasai 2022)
    num_hypotheses       how many are returned, best first; at most beam_size * patience
    length_penalty       a score is the sum of log-probabilities / length ** length_penalty, the end token counted
    min_decoding_length  the end token is ruled out for so many tokens
    max_decoding_length  tokens, a target prefix included; None: the larger of 256 and twice the source
    disable_unk          never produce the unknown token
    return_attention     keep each target token's attention over the source
    """

    beam_size: int = 2
    patience: float = 1.0
    num_hypotheses: int = 1
    length_penalty: float = 1.0
    min_decoding_length: int = 1
    max_decoding_length: int | None = None
    disable_unk: bool = False
    return_attention: bool = False

    def __post_init__(self) -> None:
        self._check_count("beam_size", 1)
        self._check_count("num_hypotheses", 1)
        self._check_count("min_decoding_length", 0)
        if self.max_decoding_length is not None:
            self._check_count("max_decoding_length", 1)
            if self.min_decoding_length > self.max_decoding_length:
                raise InputError(
                    f"min_decoding_length ({self.min_decoding_length}) is greater than "
                    f"max_decoding_length ({self.max_decoding_length})"
                )
        for name in ("patience", "length_penalty"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise InputError(f"{name} should be a finite number, got {value!r}")
        if self.patience <= 0:
            raise InputError(f"patience should be greater than 0, got {self.patience}")
        if self.num_hypotheses > self.wanted:
            raise InputError(
                f"num_hypotheses ({self.num_hypotheses}) is greater than beam_size * patience ({self.wanted})"
            )

    def _check_count(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{name} should be a whole number, at least {least}; got {value!r}")

    @property
    def wanted(self) -> int:
        """Finished hypotheses that end a sentence: round(beam_size * patience), half away from zero, in float32."""
        return math.floor(float(np.float32(self.beam_size) * np.float32(self.patience)) + 0.5)

    def limit(self, source_length: int, positions: int) -> int:
        """The most tokens that a sentence may produce; ``positions`` is the decoder's own limit, 0 for none."""
        limit = self.max_decoding_length
        if limit is None:
            limit = max(256, 2 * source_length, self.min_decoding_length)
        return min(limit, positions) if positions else limit
