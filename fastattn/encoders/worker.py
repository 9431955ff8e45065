"""A worker process of an Encoder; ``processes.child`` imports this module by its name."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from fastattn.encoders.encoder import Encoder
from fastattn.encoders.vector_head import VectorOptions


def serve(path: str, precision: str, device: str, threads: int) -> dict[str, Callable[..., Future]]:
    """From the kind of a message to its function, as ``child.main`` takes them."""
    encoder = Encoder(path, precision, threads, 1, device)

    def vectors(caller: int, texts: list[str], plain: dict[str, Any]) -> Future:
        options = VectorOptions(**{**plain, "pooling": tuple(plain["pooling"])})
        return encoder._scheduler.submit(partial(encoder._vectors.plan, texts, options), caller)

    return {"vectors": vectors}
