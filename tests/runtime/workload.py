"""What processes under abuse do, the same results each time."""

import numpy as np

import fastattn
from fastattn import Translator
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.runtime import handle
from fastattn.runtime.threads import TAKEN
from tests.models.encoder_cases import CASES, make_checkpoint, make_ids
from tests.models.tiny_models import random_checkpoint

SOURCES = [[f"▁w{(n * m) % 11}" for m in range(1, 6)] for n in range(30)]


def make_translator() -> Translator:
    return Translator.from_checkpoint(random_checkpoint(seed=5), threads=2)


def translate(translator: Translator) -> list:
    return translator.translate_tokens(SOURCES, beam_size=2, max_decoding_length=4)


class Workload:
    """A translation, an encoding, packing and attention, on two threads."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._translator = make_translator()
        self._encoder, self._ids = build_model(make_checkpoint(CASES[0]), operations), make_ids(CASES[0])
        self._x = rng.standard_normal((300, 64)).astype(np.float32)
        self._weight = rng.standard_normal((200, 64)).astype(np.float32)
        self._query = rng.standard_normal((2, 9, 4, 16)).astype(np.float32)

    def results(self) -> tuple:
        with operations.use_threads(2):
            product = operations.linear(self._x, operations.pack_linear(self._weight))
            vectors = [rows.tobytes() for rows in self._encoder.encode(self._ids)]
            mixed = fastattn.attention(self._query, self._query, self._query)
        return product.tobytes(), vectors, mixed.tobytes(), translate(self._translator)


def pool_fault() -> str:
    """What is wrong with the pool of two threads while nobody works; empty: nothing."""
    if handle._pool._words[TAKEN // 8]:
        return "the pool is taken"
    return "" if len(handle._pool._helpers) == 1 else f"{len(handle._pool._helpers)} helpers"
