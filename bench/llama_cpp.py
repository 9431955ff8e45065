"""llama.cpp by its Python package: greedy answers of one sequence or of several side by side, log-probabilities."""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 512


class LlamaCpp:
    """A GGUF file's model. Its own sampler is left out: the argmax of its logits is taken here, as it takes it.

    flash  False: attention in other steps, with float32 between them: what llama.cpp differs from itself by
    """

    def __init__(self, path: Path, threads: int, sequences: int = 1, context: int = 2048, flash: bool = True):
        import llama_cpp

        self.library: Any = llama_cpp
        llama_cpp.llama_backend_init()
        silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
        self._silent = silent  # which C calls as long as it lives
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        wanted = llama_cpp.llama_context_default_params()
        wanted.n_ctx, wanted.n_batch, wanted.n_ubatch, wanted.n_seq_max = sequences * context, BATCH, BATCH, sequences
        wanted.n_threads = wanted.n_threads_batch = threads
        if not flash:
            wanted.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context = llama_cpp.llama_init_from_model(self.model, wanted)
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.words = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self._vocabulary = vocabulary
        self._batch = llama_cpp.llama_batch_init(max(BATCH, sequences), 0, 1)

    def ids(self, text: str, special: bool = False) -> list[int]:
        """The tokens of a text, with those that the file adds."""
        data = text.encode()
        room = (self.library.llama_token * (len(data) + 8))()
        count = self.library.llama_tokenize(self._vocabulary, data, len(data), room, len(room), True, special)
        return list(room[:count])

    def run(self, tokens: Sequence[int], places: Sequence[tuple[int, int]], wanted: Sequence[bool]) -> None:
        """One pass over tokens at (sequence, position); logits of those that are wanted."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, (token, (sequence, position), is_wanted) in enumerate(zip(tokens, places, wanted)):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, is_wanted
        if self.library.llama_decode(self.context, batch):
            raise RuntimeError("llama_decode failed")

    def clear(self) -> None:
        self.library.llama_memory_clear(self.library.llama_get_memory(self.context), True)

    def logits(self, row: int) -> np.ndarray:
        """Of a row of the last pass."""
        return np.ctypeslib.as_array(self.library.llama_get_logits_ith(self.context, row), (self.words,))

    def read(self, prompt: Sequence[int], sequence: int = 0) -> int:
        """The most probable token behind a prompt, which goes through in passes of at most BATCH tokens."""
        for first in range(0, len(prompt), BATCH):
            part = prompt[first : first + BATCH]
            last = [False] * (len(part) - 1) + [first + BATCH >= len(prompt)]
            self.run(part, [(sequence, first + i) for i in range(len(part))], last)
        return int(self.logits(len(part) - 1).argmax())

    def answer(self, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
        """The next ``count`` tokens of each prompt, the prompts one after the other, the steps together."""
        self.clear()
        found = [[self.read(prompt, number)] for number, prompt in enumerate(prompts)]
        for step in range(1, count):
            places = [(number, len(prompt) + step - 1) for number, prompt in enumerate(prompts)]
            self.run([one[-1] for one in found], places, [True] * len(found))
            for row, one in enumerate(found):
                one.append(int(self.logits(row).argmax()))
        return found

    def gap(self, tokens: Sequence[int], other: int) -> float:
        """How far the best token behind at most BATCH others has its logit above another one's."""
        self.clear()
        best = self.read(tokens)
        row = self.logits(len(tokens) - 1)
        return float(row[best] - row[other])

    def log_probs(self, tokens: Sequence[int]) -> np.ndarray:
        """Of each token behind the first."""
        self.clear()
        found: list[float] = []
        for first in range(0, len(tokens) - 1, BATCH):
            part = tokens[first : min(first + BATCH, len(tokens) - 1)]
            self.run(part, [(0, first + i) for i in range(len(part))], [True] * len(part))
            for i in range(len(part)):
                row = self.logits(i).astype(np.float64)
                found.append(row[tokens[first + i + 1]] - np.logaddexp.reduce(row))
        return np.array(found)
