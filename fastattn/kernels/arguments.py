"""What operations hand to kernels, by name. Nothing here imports Numba."""

from collections import namedtuple
from typing import NamedTuple

import numpy as np


class LinearArrays(NamedTuple):
    """The arrays of a PackedLinear beside its panels."""

    bias: np.ndarray
    factors: np.ndarray
    corrections: np.ndarray
    input_scale: np.ndarray
    input_factors: np.ndarray


class EditedLogits(NamedTuple):
    """Edits, as in ``Edits`` but with empty lists for none, and the logits that are asked for.

    targets_R  int32, or empty
    logits_R   written: the edited logits of these ids, -inf for one not among the outputs
    """

    suppressed_RJ: np.ndarray
    penalized_RJ: np.ndarray
    penalty: np.float32
    targets_R: np.ndarray
    logits_R: np.ndarray


# How the tasks of a product are cut: rows of a task, and into how many blocks the panels.
Blocks = namedtuple("Blocks", "rows columns")
# The k best logits of rows and their ids, float32 and int32 [..., k], best first, then -inf and -1.
BestLists = namedtuple("BestLists", "values ids")
# Rows that are searched; those from the address ``end`` on are read from a copy, since a whole word is read.
Corpus = namedtuple("Corpus", "address rows distance end copied")
# Scores LeakyReLU(target[n] + source[m]); empty: scores are dot products.
NodeTerms = namedtuple("NodeTerms", "target_NH source_MH")
# Scores query[n] . key[m].
NodeDots = namedtuple("NodeDots", "query_NHK key_MHK")
