"""A worker process of an Encoder; ``processes.child`` imports this module by its name."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from fastattn.encoders.encoder import Encoder
from fastattn.encoders.vector_head import VectorOptions


def serve(path: str, precision: str, device: str, threads: int) -> dict[str, Callable[..., Future]]:
    """{kind of a message: the function that answers the message}, for ``child.main``."""
    encoder = Encoder(path, precision, threads, 1, device)

    def vectors(caller: int, texts: list[str], options: dict[str, Any]) -> Future:
        vector_options = VectorOptions(**{**options, "pooling": tuple(options["pooling"])})
        return encoder._scheduler.submit(partial(encoder._text_vectors.plan, texts, vector_options), caller)

    return {"vectors": vectors}
