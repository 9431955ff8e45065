"""The operations that models are built from: the Protocol of a namespace of them. Operations allocate their results.

``fastattn.ops.cpu`` and ``fastattn.ops.reference`` are two such namespaces; ``fastattn.ops.backend`` has that of a
device. A model takes one, and nothing else makes rows or computes on them, so the same model runs on any.
``fastattn.ops.cpu`` documents each operation. An implementation may assume, without checks:

rows        float32 [N, D], C-contiguous, N perhaps 0, made by operations of the same namespace. Nobody else reads more
            of them than length, shape and dtype, except by ``np.asarray(rows)``, which copies them to the host.
tables      rows addressed by number, [M, E] or wider: float32, uint16, the bits of bfloat16, or int8 (``write_rows``)
indices     NumPy arrays, C-contiguous, in range: ids, positions and rows of tables are int32; all others (starts,
            lengths, offsets, seen keys, the rows of ``take_rows``) are int64
parameters  NumPy arrays, the same objects call after call: norms' weights, embedding tables, tables of positions
results     log-probabilities and the ids that they belong to are NumPy arrays
arrays      of callers, which the last operations here take and return, are NumPy's

An operation allocates what it returns. Written in place are the rows of ``round_rows``, ``rotate`` and
``normalize_heads``, the tables of ``write_rows``, ``ssru``, ``running_average`` and ``recur``, and attention's weights;
callers make those tables and weights by ``empty_table`` and ``empty``. No output overlaps an input, except that
``concatenate_rows`` may return its one part.
A row's bits depend on its own sentence alone, whatever the other rows and however many threads run; this does not hold
for the reference, which takes float64 too.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

import numpy as np

from fastattn.ops.attention import (
    Heads,
    KeyIndex,
    PositionBias,
    RaggedBatch,
    ScoreTerms,
    SoftmaxOutputs,
    StridedArrays,
    Visible,
)
from fastattn.ops.images import ImageOps
from fastattn.ops.recurrent import Columns, States
from fastattn.ops.steps import NO_EDITS, Edits, StepRows, SubsetRows
from fastattn.spec.quantized import QuantizedTensor, Tensor

# Each implementation has its own types for weights; a PackedLinear has ``outputs`` and ``inputs``.
PackedLinear: TypeAlias = Any
PackedDistances: TypeAlias = Any
RowLinear: TypeAlias = Any
OutputSubset: TypeAlias = Any


class Ops(ImageOps, Protocol):
    """A namespace of operations: a module, or anything else with these names and signatures."""

    # threads

    def use_threads(self, count: int) -> AbstractContextManager[None]: ...

    def current_threads(self) -> int: ...

    def thread_limit(self) -> int: ...

    def free_memory(self) -> int | None:
        """Bytes that are free on a card, by which batches are sized; None where the host's memory serves."""

    # whole rows

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray: ...

    def as_rows(self, x: np.ndarray) -> np.ndarray:
        """Rows of a caller's array."""

    def take_rows(self, x_ND: np.ndarray, rows_R: np.ndarray) -> np.ndarray: ...

    def concatenate_rows(self, parts: Sequence[np.ndarray]) -> np.ndarray: ...

    def add_rows(self, x_ND: np.ndarray, y_ND: np.ndarray) -> np.ndarray: ...

    def scale_rows(self, x_ND: np.ndarray, factor: float) -> np.ndarray: ...

    def neighbours(self, x_ND: np.ndarray, starts_B1: np.ndarray, before: int, after: int) -> np.ndarray: ...

    def pool(self, rows_ND: np.ndarray, starts_B1: np.ndarray, modes: Sequence[str], skip: int = 0) -> np.ndarray: ...

    def softmax(self, x_NS: np.ndarray) -> np.ndarray: ...

    # linear layers, norms, embeddings, positions

    def pack_linear(
        self, weight_FD: Tensor, bias_F: np.ndarray | None = None, precision: str = "float32"
    ) -> PackedLinear: ...

    def packed_layout(self, precision: str) -> str | None:
        """The name of ``pack_linear``'s layout on this machine, by which files of packed layers are found; None: none.

        With one, a PackedLinear's ``arrays()`` are NumPy arrays by name, of ``packed_shapes``, of which ``packed_of``
        makes it again.
        """

    def packed_shapes(
        self, outputs: int, inputs: int, precision: str, balanced: bool
    ) -> dict[str, tuple[int, ...]]: ...

    def packed_of(self, outputs: int, inputs: int, arrays: dict[str, np.ndarray]) -> PackedLinear: ...

    def linear(
        self,
        x_ND: np.ndarray,
        packed: PackedLinear,
        activation: str = "none",
        residual_NF: np.ndarray | None = None,
        multiply_NF: np.ndarray | None = None,
    ) -> np.ndarray: ...

    def gated(
        self, x_ND: np.ndarray, packed: PackedLinear, gate: PackedLinear, activation: str = "none"
    ) -> np.ndarray: ...

    def layer_norm(
        self,
        x_ND: np.ndarray,
        weight_D: np.ndarray,
        bias_D: np.ndarray | None,
        epsilon: float,
        residual_ND: np.ndarray | None = None,
    ) -> np.ndarray: ...

    def rms_norm(
        self, x_ND: np.ndarray, weight_D: np.ndarray, epsilon: float, residual_ND: np.ndarray | None = None
    ) -> np.ndarray: ...

    def normalize_heads(self, x_NE: np.ndarray, weight_HK: np.ndarray, epsilon: float, column: int = 0) -> None: ...

    def embed(
        self,
        ids_N: np.ndarray,
        table: np.ndarray | QuantizedTensor | PackedLinear,
        scale: float = 1.0,
        positions_N: np.ndarray | None = None,
        position_table_PD: np.ndarray | None = None,
    ) -> np.ndarray: ...

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
    ) -> None: ...

    # attention

    def seen_around(
        self, query_starts_B1: np.ndarray, lengths_B: np.ndarray, offset_B: np.ndarray, before: int, after: int
    ) -> np.ndarray: ...

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
    ) -> np.ndarray: ...

    def pack_distances(
        self, key_LE: np.ndarray | None, query_LE: np.ndarray | None, heads: Heads
    ) -> PackedDistances: ...

    def attention_step(
        self,
        query_NE: np.ndarray,
        key_ME: np.ndarray,
        value_ME: np.ndarray,
        seen: KeyIndex,
        heads: Heads,
        *,
        bias_NHS: np.ndarray | None = None,
        position_bias: PositionBias | None = None,
        weights_NHS: np.ndarray | None = None,
        vector_HK: np.ndarray | None = None,
    ) -> np.ndarray:
        """With a vector scores are v . tanh(q + k) (Bahdanau 2015), and no scale, bias or softcap is used."""

    def average_heads(self, weights: np.ndarray, heads: int) -> np.ndarray: ...

    # tables of the key-value cache, recurrent states

    def empty_table(self, rows: int, width: int, dtype: np.dtype) -> np.ndarray: ...

    def extend_table(self, table_ME: np.ndarray, rows: int) -> np.ndarray: ...

    def gather_table(self, table_ME: np.ndarray, rows_N: np.ndarray, rows: int) -> np.ndarray: ...

    def write_rows(
        self, table_ME: np.ndarray, rows_N: np.ndarray, values_NE: np.ndarray, first_column: int, head_width: int = 0
    ) -> None: ...

    def round_rows(self, values_NE: np.ndarray, first_column: int) -> None: ...

    def ssru(
        self,
        inputs_NE: np.ndarray,
        residual_ND: np.ndarray,
        states_MW: np.ndarray,
        previous_N: np.ndarray,
        rows_N: np.ndarray,
    ) -> np.ndarray: ...

    def running_average(
        self,
        x_ND: np.ndarray,
        states_MW: np.ndarray,
        previous_N: np.ndarray,
        rows_N: np.ndarray,
        positions_N: np.ndarray,
    ) -> np.ndarray: ...

    # recurrent layers

    def gate_rows(self, gates: int, units: int) -> np.ndarray | None:
        """The rows of weights [gates * units, D] in the order in which ``recur`` takes products with them, int64.

        -1: a row of zeros; None: the order that they have. Both the product that makes the inputs and ``recur``'s own
        are packed in that order.
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
        weights    U and its bias of each direction: the first reads forward, the second backward; the rows of both
                   stand side by side in the result
        """

    def join_columns(self, parts: Sequence[Columns]) -> np.ndarray:
        """Rows of all parts side by side."""

    # steps of greedy search, recorded or not

    def recorder(self) -> Any:
        """What records calls of operations, to make them again: see ``fastattn.runtime.recording``; or None."""

    def take_tokens(
        self, rows: StepRows, history_RS: np.ndarray, written_RS: np.ndarray, tokens_M: np.ndarray
    ) -> None: ...

    def pick_tokens(
        self,
        hidden_RD: np.ndarray,
        outputs: PackedLinear | Sequence[OutputSubset] | SubsetRows,
        edits: Edits,
        normalized: bool,
        ends_E: np.ndarray,
        rows: StepRows,
    ) -> None: ...

    # the projection onto the vocabulary, or for each row onto a subset of it

    def pack_rows(self, weight_FD: Tensor, packed: PackedLinear) -> RowLinear: ...

    def select_outputs(self, linear: RowLinear, ids: np.ndarray) -> OutputSubset: ...

    def project_all(
        self, x_RD: np.ndarray, outputs: PackedLinear | Sequence[OutputSubset], edits: Edits = NO_EDITS
    ) -> np.ndarray: ...

    def project_peaks(
        self, x_ND: np.ndarray, starts_B1: np.ndarray, packed: PackedLinear, least: float = 0.0
    ) -> np.ndarray: ...

    def project_top_k(
        self,
        x_RD: np.ndarray,
        outputs: PackedLinear | Sequence[OutputSubset],
        k: int,
        edits: Edits = NO_EDITS,
        normalized: bool = True,
    ) -> tuple[np.ndarray, np.ndarray]: ...

    def log_probs(
        self,
        x_ND: np.ndarray,
        outputs: PackedLinear | Sequence[OutputSubset],
        targets_N: np.ndarray,
        edits: Edits = NO_EDITS,
    ) -> np.ndarray: ...

    # on callers' arrays, which are NumPy's, as the results are; no model needs these

    def as_array(self, array: Any) -> Any:
        """What the caller gave; an array of the device's own memory as a DeviceArray."""

    def on_host(
        self, arrays: StridedArrays, outputs: SoftmaxOutputs
    ) -> AbstractContextManager[tuple[StridedArrays, SoftmaxOutputs]]:
        """The same where the host reads and writes them; what it has written is the device's at the end."""

    def reads_float16(self) -> bool:
        """Whether attention reads arrays of float16, and cache tables of its bits (int16), as they are."""

    def compile_function(self, function: Any, kind: str) -> Any:
        """What operations take for a "score_mod" or "mask_mod"; InputError where it cannot be compiled."""

    def strided_attention(
        self,
        arrays: StridedArrays,
        heads: Heads,
        visible: Visible,
        terms: ScoreTerms,
        outputs: SoftmaxOutputs,
    ) -> int:
        """Attention of arrays where they lie; the number of rows whose scores overflowed, which are NaN or 0 then."""

    def block_states(self, function: Any, shape: tuple[int, int, int, int], block: tuple[int, int]) -> np.ndarray: ...

    def best_keys(
        self,
        query_BTHK: np.ndarray,
        key_BSGK: np.ndarray,
        *,
        seen_BT2: np.ndarray,
        factor: float = 1.0,
        vector_HK: np.ndarray | None = None,
        bias_BHTS: np.ndarray | None = None,
    ) -> np.ndarray: ...

    def local_attention(
        self,
        query_BTHK: np.ndarray,
        key_BSGK: np.ndarray,
        value_BSGV: np.ndarray,
        centre_BTH: np.ndarray,
        windows_BTH2: np.ndarray,
        *,
        scale: float,
        spread: float,
        weights_BHTS: np.ndarray | None = None,
    ) -> np.ndarray: ...

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
    ) -> np.ndarray: ...

    def unit_vectors(self, x: np.ndarray) -> np.ndarray: ...

    def nearest_rows(
        self, queries_QD: np.ndarray, corpus_ND: np.ndarray, k: int, by_length: bool = False, bits: bool = False
    ) -> tuple[np.ndarray, np.ndarray]: ...
