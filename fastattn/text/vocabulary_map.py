"""CTranslate2's vocabulary map, ``vmap.txt``: which target tokens the n-grams of a source make likely.

A line is an n-gram of source tokens with spaces between them, a tab, and target tokens with spaces between them. The
line of the empty n-gram lists what every sentence may choose; of an n-gram that is there twice the last line counts.
(CTranslate2, src/vocabulary_map.cc.)
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.text_spec import TranslationText

NAME = "vmap.txt"
# Tokens. Maps are made of phrases of four or so; every stretch of a source up to the longest is looked up.
LONGEST_NGRAM = 64


class VocabularyMap:
    """The map of a model whose target tokens have these ids. Raises CheckpointError for a line of another form."""

    def __init__(self, text: TranslationText, target_ids: Mapping[str, int]):
        assert text.vocabulary_map is not None
        self._ids, self._unknown = target_ids, target_ids[text.unk_token]
        self._targets: dict[tuple[str, ...], str] = {}
        # What is not UTF-8 is part of no token.
        lines = text.vocabulary_map.decode("utf-8", "surrogateescape").split("\n")
        for number, line in enumerate(lines if lines[-1] else lines[:-1], start=1):
            source, *targets = line.removesuffix("\r").split("\t")
            if len(targets) != 1:
                raise CheckpointError(f"{NAME}: line {number} should be source tokens, one tab and target tokens")
            ngram = tuple(source.split(" "))
            if len(ngram) > LONGEST_NGRAM:
                raise CheckpointError(
                    f"{NAME}: line {number} has {len(ngram)} source tokens, more than {LONGEST_NGRAM}"
                )
            self._targets[ngram] = targets[0]
        self._longest = max(map(len, self._targets), default=0)
        special = (text.unk_token, text.bos_token, text.eos_token)
        self._always = {target_ids.get(token, self._unknown) for token in special} | self._listed(("",))

    def candidates(self, tokens: Sequence[str]) -> np.ndarray:
        """The ids that a sentence with these source tokens may choose: int32, ascending."""
        # Each once, however often it is there: its line may be as long as the file.
        ngrams = {
            ngram
            for start in range(len(tokens))
            for end in range(start + 1, min(start + self._longest, len(tokens)) + 1)
            if (ngram := tuple(tokens[start:end])) in self._targets
        }
        found = set(self._always)
        for ngram in ngrams:
            found |= self._listed(ngram)
        return np.array(sorted(found), np.int32)

    def _listed(self, ngram: tuple[str, ...]) -> set[int]:
        """The ids on the n-gram's line; a token outside the vocabulary stands for the unknown one."""
        targets = self._targets.get(ngram)
        if not targets:
            return set()
        tokens = targets.removesuffix(" ").split(" ")
        return {self._ids.get(token, self._unknown) for token in tokens}
