"""A decoder, with its output projection; and an encoder-decoder."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TypeAlias

import numpy as np

from fastattn.arguments.steps import NO_EDITS, Edits, StepRows
from fastattn.errors import CheckpointError, InputError, check_known
from fastattn.layers.attention_inputs import CachedRows, Memory, RecordedRows, Rows, WholeRows
from fastattn.layers.key_value_cache import DecoderSizes, KeyValueCache
from fastattn.layers.parameters import Parameters
from fastattn.models.encoder import build_encoder, check_numbers
from fastattn.models.stacks import build_stack
from fastattn.ops.protocol import OutputSubset
from fastattn.spec.checkpoint import Checkpoint, Shortlist

# The precision of cached keys and values -> their dtype; "auto" is bfloat16 if products are narrower than float32.
CACHE_DTYPES = {"auto": None, "float32": np.float32, "bfloat16": np.uint16, "int8": np.int8}
SCALE_BYTES = 4  # of the scale behind each head in int8
Subsets: TypeAlias = Sequence[OutputSubset] | None  # the outputs from which each row chooses; None: all outputs


class OutputProjection:
    """A softmax over ``decoder.projection``.

    restrictable  whether rows may choose from subsets of the outputs, which ``select_outputs`` makes
    precision     of the product; "": the parameters'
    cap           of logits; 0: none
    """

    check = staticmethod(check_numbers)

    def __init__(
        self,
        parameters: Parameters,
        shortlist: Shortlist | None = None,
        restrictable: bool = False,
        precision: str = "",
        cap: float = 0.0,
    ):
        self.ops, self.shortlist, self.cap = parameters.ops, shortlist, cap
        self.projection = parameters.packed("decoder.projection", precision)
        if restrictable:
            weight_VD = parameters.tensor("decoder.projection.weight")
            self._packed_rows = cache(partial(self.ops.pack_rows, weight_VD, self.projection))  # made when first used

    def with_cap(self, edits: Edits) -> Edits:
        """The edits with the cap of logits, which is applied before them."""
        return edits._replace(cap=self.cap)

    def select_outputs(self, ids: np.ndarray) -> OutputSubset:
        """The subset of the outputs with these ids: int32, ascending."""
        return self.ops.select_outputs(self._packed_rows(), ids)

    def top_k(
        self, hidden_RD: np.ndarray, k: int, edits: Edits = NO_EDITS, subsets_R: Subsets = None, normalized: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k most probable next tokens: (log_probs_Rk, ids_Rk), best first.

        normalized  False: logits in place of log-probabilities; only where the edits surely allow k tokens
        Raises CheckpointError where the weights give NaN or infinity.
        """
        outputs = self.projection if subsets_R is None else subsets_R
        log_probs_Rk, ids_Rk = self.ops.project_top_k(hidden_RD, outputs, k, self.with_cap(edits), normalized)
        # A NaN logit makes all its row's log-probabilities NaN; the best logits have NaN only where all are NaN.
        self.check(not (np.isnan(log_probs_Rk) if normalized else ~np.isfinite(log_probs_Rk)).any())
        return log_probs_Rk, ids_Rk

    def all_log_probs(self, hidden_RD: np.ndarray, edits: Edits = NO_EDITS, subsets_R: Subsets = None) -> np.ndarray:
        """log_probs_RV of every next token."""
        outputs = self.projection if subsets_R is None else subsets_R
        return self.ops.project_all(hidden_RD, outputs, self.with_cap(edits))

    def log_probs(
        self, hidden_ND: np.ndarray, targets_N: np.ndarray, edits: Edits = NO_EDITS, subsets_N: Subsets = None
    ) -> np.ndarray:
        """The log-probability of each row's target token."""
        outputs = self.projection if subsets_N is None else subsets_N
        return self.ops.log_probs(hidden_ND, outputs, targets_N, self.with_cap(edits))


class Decoder:
    """A model that is searched, sampled, streamed and scored; from the tensors ``decoder.*``.

    A Decoder has no encoder, but may have a memory. Token ids are int32. A row's results depend on its sequence alone.
    Raises CheckpointError for a checkpoint without a decoder.
    """

    def __init__(self, checkpoint: Checkpoint, parameters: Parameters):
        spec = checkpoint.spec.decoder
        if spec is None:
            raise CheckpointError(f"expected a checkpoint with a decoder, got {checkpoint.spec.kind!r}")
        self.ops, self.width = parameters.ops, spec.width
        self.decoder = build_stack(parameters, "decoder", spec)
        restrictable = checkpoint.shortlist is not None or getattr(checkpoint.input, "vocabulary_map", None) is not None
        precision, cap = self.decoder.projection_precision, self.decoder.output_cap
        self.output = OutputProjection(parameters, checkpoint.shortlist, restrictable, precision, cap)
        dtype = self.decoder.dtype
        self.sizes = DecoderSizes(
            max_positions=spec.max_positions,
            vocabulary=spec.vocabulary,
            layer_weights=self.decoder.layer_weights,
            row_widths=self.decoder.row_widths,
            memory_widths=self.decoder.memory_widths,
            row_dtype=np.dtype(np.uint16) if self.decoder.rounds_rows else dtype,
            dtype=dtype,
            records=self.decoder.records,
            aligns=self.decoder.aligns,
        )

    def set_cache_precision(self, precision: str) -> None:
        """Set the precision, from CACHE_DTYPES, of cached keys and values; int8 has a scale for each head and position.

        Only for a decoder without a memory. Raises InputError for a precision that is unknown or that the device lacks,
        and for a decoder that caches states.
        """
        check_known("cache_precision", precision, tuple(CACHE_DTYPES))
        if precision != "auto":
            dtype, head, widths = np.dtype(CACHE_DTYPES[precision]), self.decoder.head_width, self.decoder.row_widths
            if not head:
                raise InputError("this model keeps no keys and values: leave cache_precision at auto")
            if dtype == np.int8:
                widths = tuple(width // head * (head + SCALE_BYTES) for width in widths)
            self.ops.empty_table(1, 1, dtype)  # raises where the device lacks the dtype
            self.sizes = replace(self.sizes, row_dtype=dtype, row_widths=widths)

    def encode(self, ids_B: Sequence[np.ndarray]) -> Memory:
        """The sources' memory, which has no rows without an encoder."""
        empty_ND = self.ops.empty((0, self.width), self.sizes.dtype)
        return Memory(empty_ND, np.zeros(len(ids_B) + 1, np.int64), [])

    def keep_memory(self, cache: KeyValueCache, rows_N: np.ndarray, memory: Memory) -> None:
        """Write the memory's keys and values to rows ``rows_N`` of the cache's memory pool."""
        for keys_values_ME, keys_values_NE in zip(cache.memory.layers, memory.keys_values):
            # States, of which a sentence has a single row, go to the first of the sentence's rows.
            cached_N = rows_N if len(keys_values_NE) == len(rows_N) else rows_N[memory.starts_B1[:-1]]
            self.ops.write_rows(keys_values_ME, cached_N, keys_values_NE, 0)

    def prefill(
        self,
        tokens_N: np.ndarray,
        starts_B1: np.ndarray,
        memory: Memory | None = None,
        *,
        attention: bool = False,
        cache: KeyValueCache | None = None,
        slots_B: np.ndarray | None = None,
        firsts_B: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """One causal pass over several tokens of each sequence, ragged: (hidden_ND, attention_NS or None).

        Without firsts_B the pass is over whole sequences, with their memory. A cache gets sequence b in slot
        ``slots_B[b]``.
        firsts_B  int64, the position at which each sequence, a chunk, continues its slot's history in the cache (0: the
                  start); chunks attend to the cache, memory included. Chunks have the bits of as many steps, wherever a
                  sequence is cut. A pass over whole sequences has other bits where there is attention, since it adds in
                  another order
        """
        lengths_B = np.diff(starts_B1)
        offsets_B = -starts_B1[:-1] if firsts_B is None else firsts_B - starts_B1[:-1]
        positions_N = (np.arange(len(tokens_N)) + np.repeat(offsets_B, lengths_B)).astype(np.int32)
        bias, written_cache, rows_N, shares_N = self.decoder.bias, None, None, None
        rows: Rows
        if firsts_B is not None:
            assert cache is not None and slots_B is not None
            rows = CachedRows(cache, slots_B, tokens_N, positions_N, bias, lengths_B, attention)
        else:
            if cache is not None and slots_B is not None:
                slots_N = np.repeat(slots_B, lengths_B)
                written_cache, rows_N = cache, cache.append(slots_N, positions_N, tokens_N)
                shares_N = cache.drawn_shares(slots_N, positions_N) if self.decoder.draws else None
            rows = WholeRows(
                self.ops, starts_B1, positions_N, bias, self.decoder.attends, memory, written_cache, rows_N, attention,
                shares_N=shares_N,
            )  # fmt: skip
        return self.decoder(tokens_N, rows), rows.attention_NS

    def states(
        self, tokens_T: np.ndarray, memory: Memory, cross_attentions: list[np.ndarray] | None = None
    ) -> Iterator[np.ndarray]:
        """The rows of one sequence of int32 tokens layer by layer, as ``Stack.states`` yields them.

        cross_attentions  gets the attention of each layer's heads over the memory, [1, heads, T, S]
        """
        starts_B1 = np.array([0, len(tokens_T)], np.int64)
        positions_T = np.arange(len(tokens_T), dtype=np.int32)
        bias, attends = self.decoder.bias, self.decoder.attends
        rows = WholeRows(self.ops, starts_B1, positions_T, bias, attends, memory, cross_attentions=cross_attentions)
        return self.decoder.states(tokens_T, rows)

    def step(
        self,
        cache: KeyValueCache,
        slots_R: np.ndarray,
        tokens_N: np.ndarray,
        positions_N: np.ndarray,
        attention: bool = False,
        counts_R: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """(hidden_ND, attention_NS or None) of a step: one token for each slot, or ``counts_R`` tokens; caches them."""
        counts_R = None if len(tokens_N) == len(slots_R) else counts_R
        rows = CachedRows(cache, slots_R, tokens_N, positions_N, self.decoder.bias, counts_R, attention)
        return self.decoder(tokens_N, rows), rows.attention_NS

    def recordable_step(self, cache: KeyValueCache, rows: StepRows) -> np.ndarray:
        """hidden_RD of a step to be recorded: one token for each row, none the first of its sequence.

        No later run of the recording may have a position beyond the greatest of ``rows``. The caller writes the tables.
        """
        return self.decoder(rows.tokens_R, RecordedRows(cache, rows, self.decoder.bias))


class EncoderDecoder(Decoder):
    """A translation model. Raises CheckpointError for a checkpoint without a decoder that attends to an encoder."""

    def __init__(self, checkpoint: Checkpoint, parameters: Parameters):
        encoder, decoder = checkpoint.spec.encoder, checkpoint.spec.decoder
        if encoder is None or decoder is None or not decoder.cross_attention:
            raise CheckpointError(f"expected an encoder-decoder checkpoint, got {checkpoint.spec.kind!r}")
        self.encoder = build_encoder(parameters, encoder)
        super().__init__(checkpoint, parameters)

    def encode(self, ids_B: Sequence[np.ndarray]) -> Memory:
        """The sentences' memory; raises what ``EncoderStack.encode`` raises."""
        rows_ND, starts_B1, last_BS = self.encoder.encode_to_states(ids_B)
        keys_values = self.decoder.project_memory(rows_ND, last_BS)
        # Keys and values are rounded to bfloat16, as in the cache, unless the memory alone is cached: then steps read
        # little, and BLEU is 0.01 to 0.04 higher without rounding (Firefox, en-pt and pt-en).
        if self.decoder.rounds_rows:
            for keys_values_NE in keys_values:
                self.ops.round_rows(keys_values_NE, 0)
        return Memory(rows_ND, starts_B1, keys_values)
