"""Vectors by worker processes, as an Encoder uses them; ``worker.py`` is what runs in such a process."""

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from fastattn.encoders.vector_head import VectorOptions, in_output_dtype
from fastattn.processes.choice import Sharing
from fastattn.processes.pool import Chunk, ProcessPool, plan_chunks, pool_scheduler, stream_results
from fastattn.scheduling.request import Plan
from fastattn.system.progress import Progress


class EncodingProcesses:
    """Processes that encode; ``scheduler`` runs the plans that ``plan`` makes.

    path, precision, device  arguments of each process's Encoder
    With ``long="error"`` the caller has refused texts that are too long; the processes get "truncate" instead.
    """

    def __init__(self, sharing: Sharing, path: Path, precision: str, device: str = "cpu"):
        self.least_texts = sharing.least_texts
        arguments = [f"{__package__}.worker", os.path.abspath(path), precision, device, sharing.threads]
        self._pool = ProcessPool(sharing.processes, arguments)
        self.scheduler = pool_scheduler(self._pool)
        self.start, self.close = self._pool.start, self._pool.close

    def plan(self, texts: list[str], options: VectorOptions, progress: Progress | None = None) -> Plan:
        """vectors_BE of the texts."""
        done_count = 0

        def make_chunk(numbers: list[int]) -> Chunk:
            def count_and_show() -> None:
                nonlocal done_count
                done_count += len(numbers)
                if progress is not None:
                    progress.show(f"{done_count:,} of {len(texts):,} texts")

            return replace(_chunk([texts[b] for b in numbers], options), on_done=count_and_show)

        vectors_B = yield from plan_chunks([len(text) for text in texts], self._pool.count, make_chunk)
        vectors_BE = np.array(vectors_B, np.float32).reshape(len(texts), options.width)
        return in_output_dtype(vectors_BE, options)

    def stream(self, texts: Iterator[tuple[int, str]], options: VectorOptions) -> Iterator[np.ndarray]:
        """The vector of each text; ``texts`` gives (length, text)."""
        for vector_E in stream_results(self.scheduler, self._pool.count, texts, partial(_chunk, options=options)):
            # A copy, so that a caller who keeps one vector does not keep its whole chunk.
            yield vector_E.copy() if options.output_dtype == "float32" else in_output_dtype(vector_E[None], options)[0]


def _chunk(texts: list[str], options: VectorOptions) -> Chunk:
    fields = {**vars(options), "long": "mean" if options.long == "mean" else "truncate"}
    fields |= {"output_dtype": "float32", "ranges_2E": None}  # this process quantizes
    return Chunk("vectors", [texts, fields], len(texts), sum(map(len, texts)))
