"""The Transformer encoder (Vaswani 2017, section 3.1) in every variety of a StackSpec, and heads behind it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from fastattn.errors import CheckpointError, InputError
from fastattn.layers.attention_inputs import WholeRows
from fastattn.layers.blocks import Linear, Norm
from fastattn.layers.parameters import Parameters
from fastattn.models.recorded_stack import MOST_ROWS, RecordedStack
from fastattn.models.residual import ResidualEncoder
from fastattn.models.stack import AttentionStack
from fastattn.models.stacks import build_stack
from fastattn.spec.architecture import HeadSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.images import ResidualSpec

# The ``rows`` of a HeadSpec, unless they are "each" -> the pooling that makes one row of a sentence.
POOLINGS = {"first": "cls", "last": "lasttoken", "mean": "mean"}


def check_numbers(are_numbers: bool) -> None:
    """Raise CheckpointError for outputs that are not numbers."""
    if not are_numbers:
        raise CheckpointError("the model's output is not a number: its weights hold NaN or infinity, or overflow")


def check_finite(values: np.ndarray, find_fault: Callable[[], str] = str) -> None:
    """Raise CheckpointError for NaN and infinity; ``find_fault`` returns the name of the tensor at fault, if any."""
    are_finite = bool(np.isfinite(np.asarray(values)).all())
    if not are_finite and (name := find_fault()):
        raise CheckpointError(f"the model's output is not a number: {name} holds NaN or infinity")
    check_numbers(are_finite)


class Head:
    """Layers behind the last hidden states: those of a HeadSpec, from the tensors ``head.*``.

    precision   of the last product; "": that of the model. All other products of the head are in float32
    find_fault  as for ``check_finite``
    """

    find_fault: Callable[[], str] = str

    def __init__(self, parameters: Parameters, spec: HeadSpec, precision: str = "float32"):
        self.ops, self.spec = parameters.ops, spec
        self.inner = Linear(parameters, "head.inner", spec.activation, "float32") if spec.inner_width else None
        self.norm = None if spec.norm is None else Norm(parameters, "head.norm", spec.norm)
        self.output = parameters.packed("head.output", precision)

    def __call__(self, rows_ND: np.ndarray, starts_B1: np.ndarray) -> np.ndarray:
        """outputs_BF of the sentences, or outputs_NF of each of their rows, from the last hidden states.

        starts_B1  where each sentence's rows start, and where the last sentence's rows end
        """
        if self.spec.rows == "each":
            rows_ND = self._own_rows(rows_ND, starts_B1)
        else:
            rows_ND = self.ops.pool(rows_ND, starts_B1, [POOLINGS[self.spec.rows]])
        outputs_NF: np.ndarray = self.ops.linear(self._output_input(rows_ND), self.output)
        check_finite(outputs_NF, self.find_fault)
        return outputs_NF

    def peaks(self, rows_ND: np.ndarray, starts_B1: np.ndarray) -> np.ndarray:
        """peaks_BF: each output's largest number among a sentence's rows, at least 0; only of a head of each row.

        Raises CheckpointError for rows that are not finite, which the largest number might hide.
        """
        input_ND = self._output_input(self._own_rows(rows_ND, starts_B1))
        check_finite(input_ND, self.find_fault)
        return self.ops.project_peaks(input_ND, starts_B1 - starts_B1[0], self.output)

    def top_k(self, rows_ND: np.ndarray, rows_R: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """(log_probs_Rk, ids_Rk): the k most probable outputs of rows ``rows_R``; only of a head of each row."""
        return self.ops.project_top_k(self._output_input(self.ops.take_rows(rows_ND, rows_R)), self.output, k)

    def _own_rows(self, rows_ND: np.ndarray, starts_B1: np.ndarray) -> np.ndarray:
        """The rows of these sentences alone; ``rows_ND`` may have rows of other sentences before and after."""
        first, end = int(starts_B1[0]), int(starts_B1[-1])
        return rows_ND if (first, end) == (0, len(rows_ND)) else self.ops.take_rows(rows_ND, np.arange(first, end))

    def _output_input(self, rows_ND: np.ndarray) -> np.ndarray:
        """The input of the last layer, ``output``."""
        if self.inner is not None:
            rows_ND = self.inner(rows_ND)
        return rows_ND if self.norm is None else self.norm(rows_ND)


# How many rows for each thread go through all layers together: intermediate results stay in L2, and many rows share the
# weights that are read from memory. int8, one Zen 4 core, us a token at 384 rows and at 2,000: MiniLM 70 and 82, zh-en
# 113 and 131; in float32 both numbers of rows take the same time.
CHUNK_ROWS = 384
Arrays: TypeAlias = Sequence[np.ndarray]
Counts: TypeAlias = Sequence[int]
RowsAndStarts: TypeAlias = tuple[np.ndarray, np.ndarray]  # rows_ND of sentences end to end, starts_B1


class EncoderStack:
    """Runs sequences through the stack of ``name.*``.

    narrow  whether attention's products may be in bfloat16
    """

    narrow = False

    def __init__(self, parameters: Parameters, spec: StackSpec, name: str = "encoder"):
        self.ops, self.spec, self.limit = parameters.ops, spec, spec.max_positions
        self.stack, recorder = build_stack(parameters, name, spec), parameters.ops.recorder()
        self._recorded_stack = None
        if isinstance(self.stack, AttentionStack) and recorder is not None:
            self._recorded_stack = RecordedStack(self.stack, recorder)

    def encode(self, ids_B: Arrays, types_B: Arrays | None = None, visible_B: Counts | None = None) -> RowsAndStarts:
        """(rows_ND, starts_B1): the last hidden states of the sentences end to end; ids are int32, one array each.

        Where the stack takes rows in place of ids, each array is [T, width], and there are no types.
        types_B    the token type of each id; None: 0. A model without token types ignores them
        visible_B  how many ids of a sentence all its ids attend to, n: the first n; -n: the last n; None: all ids
        Sentence b has rows starts[b] .. starts[b + 1]. InputError for a sentence longer than the model has positions
        for, and for an id outside the vocabulary.
        """
        rows_ND, starts_B1, _ = self.encode_to_states(ids_B, types_B, visible_B)
        return rows_ND, starts_B1

    def encode_first(
        self, ids_B: Arrays, types_B: Arrays | None = None, visible_B: Counts | None = None
    ) -> RowsAndStarts:
        """The first row of each sentence, none of them empty, as ``encode`` returns it, in float32 bit by bit. In the
        last layer, all other rows get keys and values alone."""
        starts_B1 = _starts(ids_B)
        first_rows = []
        for rows_ND, rows in self._passes(ids_B, starts_B1, types_B, visible_B, first_only=True):
            has_first_rows_only = len(rows_ND) == len(rows.starts_B1) - 1
            first_rows.append(rows_ND if has_first_rows_only else self.ops.take_rows(rows_ND, rows.starts_B1[:-1]))
        return self.ops.concatenate_rows(first_rows), np.arange(len(starts_B1))

    def encode_to_states(
        self, ids_B: Arrays, types_B: Arrays | None = None, visible_B: Counts | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """``encode``, and last_BS: a recurrent stack's states at the ends of the sentences; None for other stacks."""
        starts_B1 = _starts(ids_B)
        passes = list(self._passes(ids_B, starts_B1, types_B, visible_B))
        empty_ND = self.ops.empty((0, self.spec.width), self.stack.dtype)
        rows_ND = self.ops.concatenate_rows([rows_ND for rows_ND, _ in passes] or [empty_ND])
        last_states = [rows.last_BS for _, rows in passes if rows.last_BS is not None]
        return rows_ND, starts_B1, self.ops.concatenate_rows(last_states) if last_states else None

    def _passes(
        self,
        ids_B: Arrays,
        starts_B1: np.ndarray,
        types_B: Arrays | None,
        visible_B: Counts | None,
        first_only: bool = False,
    ) -> Iterator[tuple[np.ndarray, WholeRows]]:
        """Yield (rows_ND, the pass's WholeRows) of each pass over a few sentences."""
        self._check_length(int(np.diff(starts_B1).max(initial=0)))
        chunk, first = CHUNK_ROWS * self.ops.current_threads(), 0
        while first < len(ids_B):
            end = max(first + 1, int(np.searchsorted(starts_B1, starts_B1[first] + chunk, side="right")) - 1)
            if starts_B1[first] < starts_B1[end]:
                ids_N: np.ndarray = np.concatenate(ids_B[first:end]).astype(self.stack.input_dtype, copy=False)
                positions_N = np.concatenate([np.arange(len(ids), dtype=np.int32) for ids in ids_B[first:end]])
                types_N = None if types_B is None else np.concatenate(types_B[first:end]).astype(np.int32, copy=False)
                pass_starts_B1 = starts_B1[first : end + 1] - starts_B1[first]
                pass_visible_B = None if visible_B is None else np.array(visible_B[first:end], np.int64)
                rows = WholeRows(
                    self.ops, pass_starts_B1, positions_N, self.stack.bias, self.stack.causal,
                    types_N=types_N, visible_B=pass_visible_B, narrow=self.narrow, first_only=first_only,
                )  # fmt: skip
                is_short = end - first == 1 and len(ids_N) <= MOST_ROWS and visible_B is None
                run = self._recorded_stack if is_short and self._recorded_stack is not None else self.stack
                yield run(ids_N, rows), rows
            first = end

    def states(self, ids_T: np.ndarray) -> Iterator[np.ndarray]:
        """The rows of one sentence, of at least one int32 id, layer by layer, as ``Stack.states`` yields them.

        InputError for a sentence longer than the model has positions for.
        """
        self._check_length(len(ids_T))
        starts_B1 = np.array([0, len(ids_T)], np.int64)
        positions_T = np.arange(len(ids_T), dtype=np.int32)
        bias, causal = self.stack.bias, self.stack.causal
        return self.stack.states(ids_T, WholeRows(self.ops, starts_B1, positions_T, bias, causal, narrow=self.narrow))

    def _check_length(self, longest: int) -> None:
        if 0 < self.limit < longest:
            raise InputError(f"the model has {self.limit} positions, the sequence needs {longest}")


def _starts(ids_B: Arrays) -> np.ndarray:
    """Where each sentence's rows start, and where the last sentence's rows end."""
    starts_B1 = np.zeros(len(ids_B) + 1, np.int64)
    np.cumsum([len(ids) for ids in ids_B], out=starts_B1[1:])
    return starts_B1


def build_encoder(parameters: Parameters, spec: Any, name: str = "encoder") -> Any:
    """The encoder of ``name.*``: an EncoderStack, or a ResidualEncoder, which has the same methods."""
    return (ResidualEncoder if spec.kind == ResidualSpec.kind else EncoderStack)(parameters, spec, name)


class EncoderModel:
    """An encoder on its own. Raises CheckpointError for a checkpoint without one.

    head    a Head of the last hidden states, or None
    images  the encoder of images, whose inputs are rows of pixels, or None
    """

    def __init__(self, checkpoint: Checkpoint, parameters: Parameters):
        if checkpoint.spec.encoder is None:
            raise CheckpointError(f"expected a checkpoint with an encoder, got {checkpoint.spec.kind!r}")
        self.encoder = build_encoder(parameters, checkpoint.spec.encoder)
        self.encode, images = self.encoder.encode, checkpoint.spec.images
        self.images = None if images is None else build_encoder(parameters, images, "images")
        if checkpoint.pictures is not None:
            self.images = self.images or self.encoder
        if parameters.precision != "float32":  # not in an EncoderDecoder, which might choose other tokens
            for encoder in filter(None, (self.encoder, self.images)):
                encoder.narrow = True
        head = checkpoint.spec.head
        # A head that predicts tokens is as large as several layers of the encoder, so it has the model's precision.
        predicts_tokens = head is not None and head.outputs == checkpoint.spec.encoder.vocabulary
        self.head = None if head is None else Head(parameters, head, "" if predicts_tokens else "float32")
