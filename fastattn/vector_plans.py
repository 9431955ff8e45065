"""What an Encoder asks its scheduler for: the plan of several texts' vectors."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fastattn.encoding import Batch, split_batches
from fastattn.long_text import refuse_long, split_long
from fastattn.progress import Progress
from fastattn.quantized_vectors import quantize_vectors
from fastattn.scheduling.request import Plan
from fastattn.vector_head import VectorHead, VectorOptions

if TYPE_CHECKING:  # with the tokenizers library, which an import of an Encoder does without
    from fastattn.text.huggingface import HuggingFaceTokenizer


class VectorPlans:
    """Makes plans, for one checkpoint's tokenizer and head and so many threads."""

    def __init__(self, tokenizer: "HuggingFaceTokenizer", head: VectorHead, threads: int):
        self._tokenizer, self._head, self._threads = tokenizer, head, threads

    def plan(self, texts: list[str], options: VectorOptions, progress: Progress | None = None, first: int = 0) -> Plan:
        """vectors_BE of the texts; ``first`` is the number of the first one, for errors."""
        if options.prompt:
            texts = [options.prompt + text for text in texts]
        ids_B = self._tokenizer.encode(texts, self._threads)
        windows = None
        if options.long == "error":
            refuse_long(self._tokenizer, texts, ids_B, first, self._threads)
        elif options.long == "mean":
            windows = split_long(self._tokenizer, texts, ids_B, options.prompt, self._threads)
        if windows is None:
            make = partial(self._head.vectors, options=options)
            vectors_BE = yield from self._vectors(ids_B, make, options.width, progress)
        else:
            make = partial(self._head.pooled, options=options)
            pooled_WE = yield from self._vectors(windows.ids_W, make, self._head.width(options.pooling), progress)
            vectors_BE = self._head.finished(windows.means(pooled_WE), options)
        if options.output_dtype == "float32":
            return vectors_BE
        return quantize_vectors(vectors_BE, options.output_dtype, options.ranges_2E)

    def _vectors(
        self,
        ids_B: list[np.ndarray],
        make: Callable[[np.ndarray, np.ndarray], np.ndarray],
        width: int,
        progress: Progress | None,
    ) -> Plan:
        """What ``make`` makes of the hidden states of all ids, as a Batch has it, float32 [B, width]."""
        done: list[np.ndarray] = []

        def vectors(rows_ND: np.ndarray, starts_B1: np.ndarray) -> np.ndarray:
            vectors_BE = make(rows_ND, starts_B1)
            if progress is not None:
                done.extend(vectors_BE)
                progress.show(f"{len(done):,} of {len(ids_B):,} texts")
            return vectors_BE

        # Each core takes whole batches, or all cores share each batch.
        batches = split_batches([len(ids) for ids in ids_B], self._threads)
        vectors_BE = np.zeros((len(ids_B), width), np.float32)
        for batch, found_BE in zip(batches, (yield [Batch([ids_B[b] for b in batch], vectors) for batch in batches])):
            vectors_BE[batch] = found_BE
        return vectors_BE
