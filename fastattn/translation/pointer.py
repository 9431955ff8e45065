"""PointerNetwork: a sequence of positions in its input."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.search import Job, search_plan
from fastattn.decoding.worker import DecodingService
from fastattn.errors import CheckpointError, InputError, check_several
from fastattn.loading.loaded_model import ModelBase
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.recurrent import RecurrentSpec

END = 0  # a row before the caller's rows: the first input of the decoder, and pointing at it ends the sequence


class Pointing(NamedTuple):
    """The indices of input rows, in the order in which the decoder points at them.

    score  the sum of their log-probabilities and the end's
    """

    rows: list[int]
    score: float


class PointerNetwork(ModelBase):
    """Points at rows of its input, one after another (Vinyals 2015): a hull's corners, an order, a selection.

    path, precision, threads, device  as for a Translator
    A result depends on its own input alone. Raises CheckpointError for a path without a pointer network's checkpoint.
    """

    _width: int
    _most: int

    def _check(self, checkpoint: Checkpoint) -> Checkpoint:
        encoder, decoder = (checkpoint.spec.stacks.get(name) for name in ("encoder", "decoder"))
        if not isinstance(encoder, RecurrentSpec) or not isinstance(decoder, RecurrentSpec) or not decoder.points:
            raise CheckpointError(f"expected a pointer network's checkpoint, got one of {checkpoint.spec.kind!r}")
        self._width, self._most = encoder.embedding_width, decoder.vocabulary - 1
        return checkpoint

    def _prepare(self) -> None:
        loaded = self._loaded
        self._service = DecodingService(loaded.model, END, -1, loaded.threads)

    def point(
        self, inputs: np.ndarray | Sequence[np.ndarray], beam_size: int = 2, num_hypotheses: int = 1
    ) -> list[Pointing] | list[list[Pointing]]:
        """The ``num_hypotheses`` best Pointings for an array [n, width]; for several arrays, a list of such lists.

        beam_size  sequences kept at each step; 1: greedy search
        Raises InputError for arrays of other shapes, longer ones than the model knows, numbers that float32 does not
        hold, and beams of more than half as many sequences as the model has places.
        """
        several = not isinstance(inputs, np.ndarray)
        options = DecodingOptions(
            beam_size=beam_size,
            num_hypotheses=num_hypotheses,
            min_decoding_length=0,
            length_penalty=0.0,  # with a beam of 2, 87% of 1,000 hulls are right; by the mean of a sequence 58%
            max_decoding_length=self._most + 1,
        )
        if beam_size > (self._most + 1) // 2:  # each step needs as many rows besides the end as beams
            raise InputError(f"beam_size should be at most {(self._most + 1) // 2} for this model, is {beam_size}")
        arrays = check_several("inputs", inputs, "an array or several") if several else [inputs]
        sources = [self._source(rows, b) for b, rows in enumerate(arrays)]
        jobs = [Job(source, [END], options=options) for source in sources]
        beams = self._service.scheduler().run(lambda: search_plan(jobs, self._service.model.sizes))
        # a beam wider than the number of sequences is filled up with indices past the input
        results = [
            [
                Pointing((hypothesis.tokens - 1).tolist(), hypothesis.score)
                for hypothesis in beam
                if max(hypothesis.tokens, default=0) < len(source)
            ]
            for beam, source in zip(beams, sources)
        ]
        return results if several else results[0]

    def _source(self, rows: np.ndarray, number: int) -> np.ndarray:
        """The encoder's input, float32: zeros for the end, then the rows."""
        expected = f"from 1 to {self._most} rows of {self._width} finite numbers"
        if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.dtype.kind not in "fiu":
            actual = f"{rows.dtype} {rows.shape}" if isinstance(rows, np.ndarray) else type(rows).__name__
            raise InputError(f"input {number}: expected an array of {expected}, got {actual}")
        if rows.shape[1] != self._width or not 0 < len(rows) <= self._most:
            raise InputError(f"input {number}: expected {expected}, got {len(rows)} rows of {rows.shape[1]}")
        with np.errstate(over="ignore"):  # float64 numbers beyond float32's range become infinite
            read = rows.astype(np.float32)
        if not np.isfinite(read).all():
            raise InputError(f"input {number}: expected {expected}, got NaN or infinity")
        return np.concatenate([np.zeros((1, self._width), np.float32), read])
