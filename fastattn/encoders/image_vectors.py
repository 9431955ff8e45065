"""Vectors of pictures."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from fastattn.encoders.base import LEAST_ROWS, EncodingWorker, plan_batches
from fastattn.loading.loaded_model import LoadedModel
from fastattn.models.encoder import check_finite
from fastattn.scheduling.scheduler import Scheduler
from fastattn.spec.images import PictureSpec
from fastattn.system.progress import Progress
from fastattn.vision.pictures import load_image, pixel_rows

WINDOW = 64  # pictures whose pixels are in memory at once


class PictureVectors:
    """Makes the vectors of pictures, for one checkpoint's model; pictures of all callers share passes."""

    def __init__(self, pictures: PictureSpec, spec: Any, loaded: LoadedModel):
        self._pictures, self._spec, self._ops, self._threads = pictures, spec, loaded.ops, loaded.threads
        images = loaded.model.images
        worker = partial(EncodingWorker, images.encode_first if spec.pooling == "cls" else images.encode)
        self._scheduler = Scheduler(worker, loaded.threads, loaded.ops.use_threads, 2 * LEAST_ROWS, loaded.threads)
        matrix_ED = pictures.projection_ED
        self._projection = None if matrix_ED is None else loaded.ops.pack_linear(matrix_ED)
        self.dimension = spec.width if matrix_ED is None else len(matrix_ED)

    def encode(self, pictures: Iterable[Any], progress: Progress) -> np.ndarray:
        """float32 [pictures, dimension], neither truncated nor of unit length."""
        parts, numbered = [np.empty((0, self.dimension), np.float32)], enumerate(pictures)
        while window := list(islice(numbered, WINDOW)):
            parts.append(self.of_images([load_image(picture, number, self._pictures) for number, picture in window]))
            progress.show(f"{window[-1][0] + 1:,} pictures")
        return np.concatenate(parts)

    def of_images(self, images: Sequence[np.ndarray]) -> np.ndarray:
        """``encode`` of what ``prepare`` has made."""
        rows = [pixel_rows(image_CYX, self._spec) for image_CYX in images]
        plan = partial(plan_batches, rows, lambda _: self._vectors, self._threads, width=self.dimension)
        found_BE: np.ndarray = self._scheduler.run(plan)
        return found_BE

    def _vectors(self, rows_ND: np.ndarray, starts_B1: np.ndarray) -> np.ndarray:
        pooled_BD = self._ops.pool(rows_ND, starts_B1, [self._spec.pooling])
        vectors_BE = pooled_BD if self._projection is None else self._ops.linear(pooled_BD, self._projection)
        check_finite(vectors_BE)
        return np.asarray(vectors_BE)
