"""What an Encoder asks its scheduler for: the plan of several texts' vectors."""

from typing import TYPE_CHECKING

import numpy as np

from fastattn.encoding import Batch, split_batches
from fastattn.progress import Progress
from fastattn.scheduling.request import Plan
from fastattn.vector_head import VectorHead, VectorOptions

if TYPE_CHECKING:  # with the tokenizers library, which an import of an Encoder does without
    from fastattn.text.huggingface import HuggingFaceTokenizer


class VectorPlans:
    """Makes plans, for one checkpoint's tokenizer and head and so many threads."""

    def __init__(self, tokenizer: "HuggingFaceTokenizer", head: VectorHead, threads: int):
        self._tokenizer, self._head, self._threads = tokenizer, head, threads

    def plan(self, texts: list[str], options: VectorOptions, progress: Progress | None = None) -> Plan:
        """vectors_BE of the texts."""
        if options.prompt:
            texts = [options.prompt + text for text in texts]
        ids_B = self._tokenizer.encode(texts, self._threads)
        done: list[np.ndarray] = []

        def vectors(rows_ND: np.ndarray, starts_B1: np.ndarray) -> np.ndarray:
            vectors_BE = self._head.vectors(rows_ND, starts_B1, options)
            if progress is not None:
                done.extend(vectors_BE)
                progress.show(f"{len(done):,} of {len(texts):,} texts")
            return vectors_BE

        # Each core takes whole batches, or all cores share each batch.
        batches = split_batches([len(ids) for ids in ids_B], self._threads)
        vectors_BE = np.zeros((len(texts), options.width), np.float32)
        for batch, found_BE in zip(batches, (yield [Batch([ids_B[b] for b in batch], vectors) for batch in batches])):
            vectors_BE[batch] = found_BE
        return vectors_BE
