"""The Protocol of a namespace of operations, from which models are built; each device has its own namespace.

The modules ``fastattn.ops.cpu``, ``reference`` and ``cuda`` are namespaces; ``fastattn.ops.backend`` finds a device's.
A model takes a namespace as an argument, and only the namespace's operations make or compute rows, so the same model
runs on any device. Where an implementation differs, its docstring says so. Operations check nothing; they may assume:

rows        float32 [N, D], C-contiguous, N perhaps 0, made by operations of the same namespace. All other code reads
            only their length, shape and dtype, or copies them to the host by ``np.asarray(rows)``.
tables      rows addressed by number, [M, E] or wider: float32, uint16, the bits of bfloat16, or int8 (``write_rows``)
indices     NumPy arrays, C-contiguous, in range: ids, positions and rows of tables are int32; all others (starts,
            lengths, offsets, seen keys, the rows of ``take_rows``) are int64
parameters  NumPy arrays that are the same objects in every call: norms' weights, tables of embeddings and positions
results     log-probabilities and the ids that they belong to are NumPy arrays
arrays      of callers, which the last operations of ``Ops`` take and return, are NumPy arrays or DeviceArrays; all
            other arrays are C-contiguous, and float32 unless an operation says otherwise

An operation allocates its result. Written in place are the rows of ``round_rows``, ``rotate`` and ``normalize_heads``,
the tables of ``write_rows``, ``ssru``, ``running_average`` and ``recur``, and attention's weights; callers make tables
by ``empty_table`` and weights by ``empty``. No output overlaps an input, except that ``concatenate_rows`` may return
its one part.
A row's bits depend on its own sentence alone, not on other rows or the number of threads; the reference does not
promise this, and takes float64 too.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

import numpy as np

from fastattn.arguments.attention import (
    Heads,
    KeyIndex,
    KeyMask,
    PositionBias,
    RaggedBatch,
    ScoreTerms,
    SoftmaxOutputs,
    StridedArrays,
)
from fastattn.arguments.images import PixelGrid, Window
from fastattn.arguments.recurrent import Columns, States
from fastattn.arguments.steps import NO_EDITS, Edits, StepRows, SubsetRows
from fastattn.spec.quantized import QuantizedTensor, Tensor

# Each implementation has its own types for weights; its PackedLinear has ``outputs`` and ``inputs``.
PackedLinear: TypeAlias = Any
PackedDistances: TypeAlias = Any
RowLinear: TypeAlias = Any
OutputSubset: TypeAlias = Any


class ImageOps(Protocol):
    """Operations on images, whose pixels are rows; the channels are last.

    So a 1x1 convolution is ``linear``, the mean of an image is ``pool``, and patches are a transformer's rows.
    """

    def convolve(
        self,
        x_ND: np.ndarray,
        grid: PixelGrid,
        window: Window,
        groups: Sequence[Any],
        activation: str = "none",
        residual_NF: np.ndarray | None = None,
    ) -> np.ndarray:
        """activation(W * x + b + residual), float32 [rows of the window's grid, outputs of all groups].

        groups  a linear layer for each group of channels, all of one size and precision; its inputs are the group's
                channels of the first tap, then those of the second tap, and so on
        """

    def convolve_depthwise(
        self,
        x_ND: np.ndarray,
        grid: PixelGrid,
        window: Window,
        weight_TD: np.ndarray,
        bias_D: np.ndarray | None = None,
        activation: str = "none",
        residual_ND: np.ndarray | None = None,
    ) -> np.ndarray:
        """activation(W * x + b + residual) with one filter a channel, float32 [rows of the window's grid, D]."""

    def pool_windows(self, x_ND: np.ndarray, grid: PixelGrid, window: Window, mode: str) -> np.ndarray:
        """The "max", "mean" or "mean_inside" of each window; only "mean" counts the zeros of the padding."""

    def pool_areas(self, x_ND: np.ndarray, grid: PixelGrid, out: PixelGrid, mode: str) -> np.ndarray:
        """The "max" or "mean" of each area of ``out``; areas cut an image into equal parts, which may overlap."""

    def sample_pixels(self, x_ND: np.ndarray, grid: PixelGrid, points_BP2: np.ndarray, border: str) -> np.ndarray:
        """Bilinear samples of each image at points (y, x), float32, in pixels from the first pixel's centre: [B P, D].

        border  the values outside the image: "zeros", or those of the nearest "edge"
        """

    def gate_pixels(
        self,
        x_ND: np.ndarray,
        grid: PixelGrid,
        channels_BD: np.ndarray | None = None,
        pixels_N1: np.ndarray | None = None,
        offset: float = 0.0,
    ) -> np.ndarray:
        """x * (gate + offset): a pixel's gate is that of its channel in the image, its own, or the product of both."""


class Ops(ImageOps, Protocol):
    """A namespace of operations: a module, or anything else with these names and signatures."""

    # threads

    def use_threads(self, count: int) -> AbstractContextManager[None]:
        """A context in which operations use ``count`` threads."""

    def current_threads(self) -> int:
        """The number of threads that the operations use."""

    def thread_limit(self) -> int:
        """The greatest number of threads that ``use_threads`` takes."""

    def free_memory(self) -> int | None:
        """The free bytes of a card, by which batches are sized; None where rows lie in the host's memory."""

    # whole rows

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array, C-contiguous, whose values are arbitrary."""

    def as_rows(self, x: np.ndarray) -> np.ndarray:
        """A caller's array as rows, C-contiguous and aligned; copied only if the array is not so already."""

    def take_rows(self, x_ND: np.ndarray, rows_R: np.ndarray) -> np.ndarray:
        """x_RD: row r of the result is row rows_R[r] of x; ``rows_R`` is int64, and numbers may repeat."""

    def concatenate_rows(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """The rows of all parts, at least one, end to end; a single part is returned itself."""

    def add_rows(self, x_ND: np.ndarray, y_ND: np.ndarray) -> np.ndarray:
        """x + y, float32."""

    def scale_rows(self, x_ND: np.ndarray, factor: float) -> np.ndarray:
        """x * factor."""

    def neighbours(self, x_ND: np.ndarray, starts_B1: np.ndarray, before: int, after: int) -> np.ndarray:
        """[N, (before + 1 + after) D]: each row between its neighbours, side by side; zeros beyond its sentence."""

    def pool(self, rows_ND: np.ndarray, starts_B1: np.ndarray, modes: Sequence[str], skip: int = 0) -> np.ndarray:
        """pooled_BE of a ragged batch, E = D * len(modes): the vectors of all ``modes`` side by side.

        skip  how many rows at the beginning of every sentence, those of a prompt, are left out
        """

    def softmax(self, x_NS: np.ndarray) -> np.ndarray:
        """e**x divided by its sum along the row (Bridle 1990); float32 [N, S], C-contiguous.

        -inf yields 0, and a row of -inf alone zeros; a row with NaN or +inf becomes NaN.
        """

    # linear layers, norms, embeddings, positions

    def pack_linear(
        self, weight_FD: Tensor, bias_F: np.ndarray | None = None, precision: str = "float32"
    ) -> PackedLinear:
        """Pack float32 or quantized weights [outputs, inputs] and bias [outputs] (None: zeros); see spec.PRECISIONS.

        int8 and int4 keep weights that have that quantization already, and quantize all others. int4 and int8_groups
        need whole groups of 32 inputs.
        """

    def packed_layout(self, precision: str) -> str | None:
        """The name of ``pack_linear``'s layout on this machine, part of the names of cached files; None: not cached.

        If cached, PackedLinear.arrays() returns NumPy arrays by name, in the shapes of ``packed_shapes``, from which
        ``packed_of`` makes the layer again.
        """

    def packed_shapes(self, outputs: int, inputs: int, precision: str, balanced: bool) -> dict[str, tuple[int, ...]]:
        """The shapes of a PackedLinear's arrays; ``balanced``: with input factors."""

    def packed_of(self, outputs: int, inputs: int, arrays: dict[str, np.ndarray]) -> PackedLinear:
        """The PackedLinear with these ``arrays``."""

    def linear(
        self,
        x_ND: np.ndarray,
        packed: PackedLinear,
        activation: str = "none",
        residual_NF: np.ndarray | None = None,
        multiply_NF: np.ndarray | None = None,
    ) -> np.ndarray:
        """activation(x W' + b) * multiply + residual, float32 [N, outputs]; the residual is added last.

        All inputs are float32 and C-contiguous.
        """

    def gated(self, x_ND: np.ndarray, packed: PackedLinear, gate: PackedLinear, activation: str = "none") -> np.ndarray:
        """activation(x W' + b) * (x V' + c), float32 [N, outputs] (Shazeer 2020), with the bits of two ``linear``.

        V and c are the weights and bias of the gate, in W's size and precision.
        """

    def layer_norm(
        self,
        x_ND: np.ndarray,
        weight_D: np.ndarray,
        bias_D: np.ndarray | None,
        epsilon: float,
        residual_ND: np.ndarray | None = None,
    ) -> np.ndarray:
        """Layer normalization (Ba 2016) of x + residual, the variance in a second pass; float32 [N, D]."""

    def rms_norm(
        self, x_ND: np.ndarray, weight_D: np.ndarray, epsilon: float, residual_ND: np.ndarray | None = None
    ) -> np.ndarray:
        """Root mean square normalization (Zhang and Sennrich 2019) of x + residual; float32 [N, D]."""

    def normalize_heads(self, x_NE: np.ndarray, weight_HK: np.ndarray, epsilon: float, column: int = 0) -> None:
        """``rms_norm`` of each of a row's H heads of width K from ``column`` on, in place; float32."""

    def embed(
        self,
        ids_N: np.ndarray,
        table: np.ndarray | QuantizedTensor | PackedLinear,
        scale: float = 1.0,
        positions_N: np.ndarray | None = None,
        position_table_PD: np.ndarray | None = None,
    ) -> np.ndarray:
        """table[ids] * scale + position_table[positions], float32 [N, D]; the id -1 stands for a row of zeros.

        table           [V, D], or the packed weights (float32, int8 or int8_groups) of a linear layer with the same
                        matrix: reading a token's column there takes microseconds, a separate table V D numbers
        ids, positions  int32; the caller has checked that they are inside their tables
        """

    def rotate(
        self,
        x_NE: np.ndarray,
        positions_N: np.ndarray,
        cos_PK2: np.ndarray,
        sin_PK2: np.ndarray,
        column: int,
        heads: int,
        head_width: int,
        interleaved: bool,
    ) -> None:
        """Turn, in place, ``heads`` heads of ``head_width`` from ``column`` on by the angles of their rows' positions.

        cos_PK2, sin_PK2  tables by position, float32; the first 2 K2 columns of a head turn, further columns stay.
        interleaved       pairs are neighbours (0, 1), (2, 3), ...; else (0, K2), (1, K2 + 1), ...
        positions_N       int32.
        """

    # attention

    def seen_around(
        self, query_starts_B1: np.ndarray, lengths_B: np.ndarray, offset_B: np.ndarray, before: int, after: int
    ) -> np.ndarray:
        """seen_N2 int64 for a RaggedBatch: each query's first key and the stop of its keys, within its sentence.

        Query t sees keys t + offset - before to t + offset + after; a negative ``before`` or ``after`` sets no bound.
        All numbers and their sums are int64.
        """

    def attention(
        self,
        query_NE: np.ndarray,
        key_ME: np.ndarray,
        value_ME: np.ndarray,
        batch: RaggedBatch,
        heads: Heads,
        *,
        bias_BHTS: np.ndarray | None = None,
        position_bias: PositionBias | None = None,
        distances: PackedDistances | None = None,
        weights_BHTS: np.ndarray | None = None,
    ) -> np.ndarray:
        """Multi-head attention (Vaswani 2017) over a ragged batch: out_NF float32, F = query heads * value width.

        Head h of query row n is query[n, query_column + h K : + K].
        bias_BHTS      added after the scale; axes of length one are broadcast; -inf hides a key
        position_bias  added too; a query's position is its index in its sentence
        distances      of ``pack_distances``: disentangled attention (He 2021); query and key heads are equally many
        weights_BHTS   if not None, written: the softmax weights, 0 for a hidden key
        A query that sees no key yields zeros.
        """

    def pack_distances(self, key_LE: np.ndarray | None, query_LE: np.ndarray | None, heads: Heads) -> PackedDistances:
        """Pack the rows of distances of disentangled attention (He 2021, section 3.1) for ``attention``.

        key_LE    [L, H K], L odd: the product of query t with row L // 2 + s - t is added to its product with key s.
                  Farther positions share the first row or the last; None: nothing is added
        query_LE  likewise: the product of key s with row L // 2 + s - t is added
        """

    def attention_step(
        self,
        query_NE: np.ndarray,
        key_ME: np.ndarray,
        value_ME: np.ndarray,
        key_index: KeyIndex,
        heads: Heads,
        *,
        bias_NHS: np.ndarray | None = None,
        position_bias: PositionBias | None = None,
        weights_NHS: np.ndarray | None = None,
        vector_HK: np.ndarray | None = None,
    ) -> np.ndarray:
        """Attention over tables of keys and values, where a query sees the rows of ``key_index``; out_NF float32.

        A step has one query for each row of the index. A chunk of a prefill has several, with ascending stops, and each
        has the same bits as in a step.
        bias_NHS       added after the scale; axes N and H of length one are broadcast; -inf hides a key
        position_bias  added too; a query's position is that of the last key before its stop
        weights_NHS    if not None, written: the softmax weights, 0 for a hidden key
        vector_HK      scores are v . tanh(q + k) (Bahdanau 2015), without scale and softcap
        A query that sees no key yields zeros. A step is fastest if queries with the same keys are adjacent. Keys and
        values have one head width: float32, uint16, the bits of bfloat16, or int8 as ``write_rows`` writes it.
        """

    def average_heads(self, weights: np.ndarray, heads: int) -> np.ndarray:
        """The mean of the first ``heads`` heads of weights [B, H, T, S] or [R, H, S]: float32 [B, T, S] or [R, S]."""

    # tables of the key-value cache, recurrent states

    def empty_table(self, rows: int, width: int, dtype: np.dtype) -> np.ndarray:
        """A table [rows, W], C-contiguous, with W at least ``width``; its values are arbitrary."""

    def extend_table(self, table_ME: np.ndarray, rows: int) -> np.ndarray:
        """A table of ``rows`` rows, which begins with all rows of this table."""

    def gather_table(self, table_ME: np.ndarray, rows_N: np.ndarray, rows: int) -> np.ndarray:
        """A table of ``rows`` rows, which begins with the rows ``rows_N`` of this table."""

    def write_rows(
        self, table_ME: np.ndarray, rows_N: np.ndarray, values_NE: np.ndarray, first_column: int, head_width: int = 0
    ) -> None:
        """Copy row n of the values, from ``first_column`` on, to the start of the table's row rows_N[n].

        table_ME   written. float32; or uint16, the bits of the nearest bfloat16; or, on targets that convert float16,
                   int16, the bits of the nearest float16; or int8: each head of ``head_width`` values as multiples of
                   a float32 scale behind the head, which is its greatest magnitude / 127
        rows_N     int32, inside the table and all different
        """

    def round_rows(self, values_NE: np.ndarray, first_column: int) -> None:
        """Round values from ``first_column`` on to the nearest bfloat16, in place."""

    def ssru(
        self,
        inputs_NE: np.ndarray,
        residual_ND: np.ndarray,
        states_MW: np.ndarray,
        previous_N: np.ndarray,
        rows_N: np.ndarray,
    ) -> np.ndarray:
        """relu(c) + residual of a simpler simple recurrent unit (Kim 2019), c = s(f) c' + (1 - s(f)) x; float32 [N, D].

        inputs_NE   [N, 2 D]: x, then f; s is the sigmoid
        states_MW   W >= D; c' of row n is the state ``previous_N[n]``, or zeros where that is -1; c is written to the
                    state ``rows_N[n]``. ``previous_N`` and ``rows_N`` are int32. A row follows the row it continues
        """

    def running_average(
        self,
        x_ND: np.ndarray,
        states_MW: np.ndarray,
        previous_N: np.ndarray,
        rows_N: np.ndarray,
        positions_N: np.ndarray,
    ) -> np.ndarray:
        """Each row's average with all rows before it in its sentence (Zhang 2018); float32 [N, D].

        states_MW    W >= D: the sums, which are read and written like the states of ``ssru``
        positions_N  int32: how many rows come before
        """

    # recurrent layers

    def gate_rows(self, gates: int, units: int) -> np.ndarray | None:
        """The order, int64, in which ``recur`` needs the rows of weights [gates * units, D]; None: unchanged.

        -1 stands for a row of zeros. The layer that makes the inputs is packed in that order, like ``recur``'s weights.
        """

    def recur(
        self,
        inputs_NE: np.ndarray,
        weights: Sequence[PackedLinear],
        cell: str,
        units: int,
        starts_B1: np.ndarray,
        states: States,
    ) -> np.ndarray:
        """hidden_NH of a recurrent layer (``spec.recurrent`` CELLS): sentence b is rows starts[b] to starts[b + 1].

        inputs_NE  W x + b of each direction, side by side
        weights    U and its bias for each direction: the first reads forward, the second backward; the directions'
                   results lie side by side
        """

    def join_columns(self, parts: Sequence[Columns]) -> np.ndarray:
        """The rows of all parts side by side."""

    # steps of greedy search, recorded or not

    def recorder(self) -> Any:
        """A recorder of operations' calls, which repeats them (``fastattn.runtime.recording``), or None."""

    def take_tokens(self, rows: StepRows, history_RS: np.ndarray, written_RS: np.ndarray, tokens_M: np.ndarray) -> None:
        """Make each running row's chosen token its next input, at the next position, in a fresh row of the cache.

        history_RS, written_RS, tokens_M  the cache's ``written_tables`` (``layers.key_value_cache``), int32, written
        """

    def pick_tokens(
        self,
        hidden_RD: np.ndarray,
        outputs: PackedLinear | Sequence[OutputSubset] | SubsetRows,
        edits: Edits,
        normalized: bool,
        ends_E: np.ndarray,
        rows: StepRows,
    ) -> None:
        """Choose the best next token of each running row, as ``project_top_k`` does, and add its score to ``scores_R``.

        ends_E  int32: the tokens that end a row; a row ends at its limit of tokens too
        """

    # the projection onto the vocabulary, or for each row onto a subset of it

    def pack_rows(self, weight_FD: Tensor, packed: PackedLinear) -> RowLinear:
        """The weights of ``packed`` by rows: ``weight_FD`` itself if it lies by rows of whole vectors, else a copy."""

    def select_outputs(self, linear: RowLinear, ids: np.ndarray) -> OutputSubset:
        """The outputs ``ids``: int32, ascending, at least one, all in range."""

    def project_all(
        self, x_RD: np.ndarray, outputs: PackedLinear | Sequence[OutputSubset], edits: Edits = NO_EDITS
    ) -> np.ndarray:
        """All log-probabilities, float32 [R, V], -inf outside a row's subset: the only operation that stores them."""

    def project_peaks(
        self, x_ND: np.ndarray, starts_B1: np.ndarray, packed: PackedLinear, least: float = 0.0
    ) -> np.ndarray:
        """Each sentence's maxima of x W' + b, no less than ``least``: float32 [B, outputs].

        starts_B1  the first row of each sentence, and N
        """

    def project_top_k(
        self,
        x_RD: np.ndarray,
        outputs: PackedLinear | Sequence[OutputSubset],
        k: int,
        edits: Edits = NO_EDITS,
        normalized: bool = True,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best log-probabilities float32 [R, k] and their ids int32 [R, k], best first, ties to the lower id.

        normalized  False: the results are logits, which saves an exponential for each logit
        Where fewer than k ids can be chosen, -inf and -1 fill the row.
        """

    def log_probs(
        self,
        x_ND: np.ndarray,
        outputs: PackedLinear | Sequence[OutputSubset],
        targets_N: np.ndarray,
        edits: Edits = NO_EDITS,
    ) -> np.ndarray:
        """The log-probability of one target id (int32, inside the vocabulary) a row; float32 [N].

        -inf for a target outside the row's subset.
        """

    # operations on callers' arrays, which no model needs

    def as_array(self, array: Any) -> Any:
        """The caller's array itself, or an array in the device's own memory as a DeviceArray."""

    def on_host(
        self, arrays: StridedArrays, outputs: SoftmaxOutputs
    ) -> AbstractContextManager[tuple[StridedArrays, SoftmaxOutputs]]:
        """A context with copies in the host's memory; at its end the results are copied to the device."""

    def reads_float16(self) -> bool:
        """Whether attention reads arrays of float16, and cache tables of float16's bits (int16), as they are."""

    def compile_function(self, function: Any, kind: str) -> Any:
        """Compile a user's "score_mod" or "mask_mod" for operations; InputError where it cannot be compiled."""

    def strided_attention(
        self, arrays: StridedArrays, heads: Heads, key_mask: KeyMask, terms: ScoreTerms, outputs: SoftmaxOutputs
    ) -> int:
        """Attention on callers' arrays in place; returns how many rows are NaN or 0 because their scores overflowed."""

    def block_states(self, function: Any, shape: tuple[int, int, int, int], block: tuple[int, int]) -> np.ndarray:
        """states_BHTS uint8 of blocks (queries, keys) of masks [B, H, T, S]; ``function`` is a compiled mask_mod."""

    def best_keys(
        self,
        query_BTHK: np.ndarray,
        key_BSGK: np.ndarray,
        *,
        seen_BT2: np.ndarray,
        factor: float = 1.0,
        vector_HK: np.ndarray | None = None,
        bias_BHTS: np.ndarray | None = None,
    ) -> np.ndarray:
        """The key of each query's greatest score, int64 (B, H, T), the first of equal scores; -1 where it sees none.

        Scores are factor q . k, or, with a vector, v . tanh(q + k); plus the bias. NaN is never the greatest.
        seen_BT2  the first key that each query sees, and the stop; ``bias_BHTS`` is that of ``attention``
        """

    def local_attention(
        self,
        query_BTHK: np.ndarray,
        key_BSGK: np.ndarray,
        value_BSGV: np.ndarray,
        centre_BTH: np.ndarray,
        windows_BTH2: np.ndarray,
        *,
        scale: float,
        decay: float,
        weights_BHTS: np.ndarray | None = None,
    ) -> np.ndarray:
        """out_BTHV: a softmax of scale q k over a window of keys, times exp(-(s - centre)**2 decay), times the values.

        windows_BTH2  int64: the first key and the stop of each query's window, from 0 to S
        decay         1 / (2 sigma**2); 0: no Gaussian
        weights_BHTS  if not None, written: the weights, 0 outside the window
        A query with an empty window yields zeros. Arrays are float32 and C-contiguous.
        """

    def graph_attention(
        self,
        value_MHV: np.ndarray,
        starts_N1: np.ndarray,
        indices_E: np.ndarray,
        *,
        terms: tuple[np.ndarray, np.ndarray] | None = None,
        dots: tuple[np.ndarray, np.ndarray] | None = None,
        factor: float,
        weights_EH: np.ndarray | None = None,
    ) -> np.ndarray:
        """out_NHV: node n's softmax over its neighbours indices[starts[n]:starts[n + 1]], and their weighted values.

        terms       (target_NH, source_MH): scores are LeakyReLU(target[n] + source[m]), of slope ``factor`` below zero
        dots        (query_NHK, key_MHK): scores are factor query[n] . key[m]; either terms or dots are given
        weights_EH  if not None, written: each neighbour's weight
        A node without neighbours yields zeros. Arrays are float32, starts and indices int64, all C-contiguous.
        """

    def unit_vectors(self, x: np.ndarray) -> np.ndarray:
        """Vectors along the last axis divided by their length; zeros stay. No length of a finite vector overflows."""

    def nearest_rows(
        self, queries_QD: np.ndarray, corpus_ND: np.ndarray, k: int, by_length: bool = False, bits: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """(scores_Qk float32, ids_Qk int64): of each query, the ``k`` rows with the greatest scores, best first.

        queries_QD, corpus_ND  of one dtype, float32, int8 or uint8, or queries of float32 with a corpus of float16; the
                               corpus has N < 2**32 rows, each of adjacent numbers, at any stride
        k                      1 to N
        by_length              divide dot products by the row's length, at least 1e-12
        bits                   the score is minus the number of bits that differ, not a dot product
        Equal scores are in the order of ids. NaN is no score: -inf and -1 fill a row with fewer than k. Integers
        are summed and compared exactly up to D = 32,768.
        """
