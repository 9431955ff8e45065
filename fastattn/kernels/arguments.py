"""Sizes, codes, marks and named tuples that compiled loops share with the operations that call them. No Numba."""

from collections import namedtuple
from typing import NamedTuple

import numpy as np

from fastattn.simd.target import TARGET
from fastattn.spec.architecture import ACTIVATIONS
from fastattn.spec.recurrent import CELLS

# Products
MR, NR = TARGET.rows, TARGET.columns  # rows of a register tile, columns of a panel
# Panels that few rows take at once, since one panel would leave most accumulators idle: the sums are then independent
# enough to hide the latency of the multiply-add, and memory sees more than one stream.
GROUP = 4
PACKED_COLUMNS = 128  # columns of weights that ``_pack`` transposes at once, whole vectors; NR rows are 8 KB (AVX2)
ACTIVATION_CODES = {name: code for code, name in enumerate(("none", *ACTIVATIONS))}

# Logits
CHUNK = GROUP * NR  # logits that a scan takes at once
# Rows that one task takes through the vocabulary: weights come from memory, so as many rows share them as fit L2.
VOCABULARY_ROWS = 128
# Panels with their own sum of exponentials: 1,024 columns or a little less, so that the order of all sums is the same
# for any number of threads.
SEGMENT = max(1, 1024 // CHUNK) * GROUP
# Rows with the same subset that one task takes: it reads each weight from memory once for all of them.
SUBSET_ROWS = 32
LOWEST = np.float32(np.finfo(np.float32).min)  # in place of -inf, since -inf minus -inf is NaN
TINY = np.finfo(np.float64).tiny

# Search
LEAST_ROWS, MOST_ROWS = 16, 1024  # rows of a block: whole vectors and tiles
LAST_ID = 0xFFFFFFFF  # a heap's item has LAST_ID minus the row's id, so that of equal scores the first row's is greater
EMPTY = np.iinfo(np.int64).min  # an item of a heap that stands for no row

# Recurrent layers
LSTM, GRU, GRU_RESET_BEFORE = range(len(CELLS))  # codes of the cells

# Attention to windows
WINDOW_ROWS = 16  # queries of a task: 5 us and more of windows of 21 keys


class LinearArrays(NamedTuple):
    """The arrays of a PackedLinear beside its panels."""

    bias: np.ndarray
    factors: np.ndarray
    corrections: np.ndarray
    input_scale: np.ndarray
    input_factors: np.ndarray


class EditedLogits(NamedTuple):
    """Edits, as in ``Edits`` but with empty lists for none, and the logits that the caller requests.

    targets_R  ids, int32, or empty
    logits_R   written: the edited logits of these ids, -inf for an id not among the outputs
    """

    suppressed_RJ: np.ndarray
    penalized_RJ: np.ndarray
    penalty: np.float32
    amounts_RJ: np.ndarray
    cap: np.float32
    biased_J: np.ndarray
    biases_J: np.ndarray
    targets_R: np.ndarray
    logits_R: np.ndarray


# A recurrent layer's cell and sizes; the number of parts of the sentences, and of the units in each such part; whether
# a call does one step.
RecurrentForm = namedtuple("RecurrentForm", "cell gates units sentences units_parts by_steps")
# The tasks of a product: their rows, and the number of blocks of panels.
Blocks = namedtuple("Blocks", "rows columns")
PLACES = 4  # positions of a tile of depthwise filters, which reads each weight once for all of them; 8 are slower
# A group of a convolution: its first channel, its channels, its first output, its outputs; adjacent taps of a run,
# positions of a task, the code of the activation.
ConvolutionPart = namedtuple("ConvolutionPart", "channel channels output outputs taps rows activation")
# The k best logits of rows and their ids, float32 and int32 [..., k], best first, then -inf and -1.
BestLists = namedtuple("BestLists", "values ids")
# The rows of a search; a tile reads whole words, so rows from the address ``end`` on are read from a copy, ``copied``.
Corpus = namedtuple("Corpus", "address rows distance end copied")
# Scores LeakyReLU(target[n] + source[m]); empty: scores are dot products.
NodeTerms = namedtuple("NodeTerms", "target_NH source_MH")
# Scores query[n] . key[m].
NodeDots = namedtuple("NodeDots", "query_NHK key_MHK")
