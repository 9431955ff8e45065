"""SmolLM2 in llama.cpp."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastattn.weights import download

BATCH = 512


class LlamaCpp:
    """The catalog's smollm2 in llama.cpp. The next token is the argmax of the logits, as in its sampler.

    flash  False: attention in separate steps with float32 between them, which shows llama.cpp's own differences
    """

    def __init__(self, threads: int = 1, context: int = 2048, flash: bool = True):
        import llama_cpp

        self._library: Any = llama_cpp
        llama_cpp.llama_backend_init()
        self._silent = llama_cpp.llama_log_callback(lambda level, text, data: None)  # C keeps a pointer to it
        llama_cpp.llama_log_set(self._silent, ctypes.c_void_p(0))
        (path,) = download.resolve("smollm2").glob("*.gguf")
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch, settings.n_seq_max = context, BATCH, BATCH, 1
        settings.n_threads = settings.n_threads_batch = threads
        if not flash:
            settings.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self._context = llama_cpp.llama_init_from_model(self._model, settings)
        self._vocabulary = llama_cpp.llama_model_get_vocab(self._model)
        self._words = llama_cpp.llama_vocab_n_tokens(self._vocabulary)
        self._batch = llama_cpp.llama_batch_init(BATCH, 0, 1)

    def ids(self, text: str) -> list[int]:
        data = text.encode()
        room = (self._library.llama_token * (len(data) + 8))()
        count = self._library.llama_tokenize(self._vocabulary, data, len(data), room, len(room), True, False)
        return list(room[:count])

    def _clear(self) -> None:
        self._library.llama_memory_clear(self._library.llama_get_memory(self._context), True)

    def _run(self, tokens: Sequence[int], start: int, every: bool = False) -> None:
        """Run one pass over tokens from a position on, for the logits of all of them or of the last."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, start + i, 1
            batch.seq_id[i][0], batch.logits[i] = 0, every or i == len(tokens) - 1
        if self._library.llama_decode(self._context, batch):
            raise RuntimeError("llama_decode failed")

    def _logits(self, row: int) -> np.ndarray:
        """The logits of a row of the last pass."""
        return np.ctypeslib.as_array(self._library.llama_get_logits_ith(self._context, row), (self._words,))

    def _read(self, prompt: Sequence[int]) -> np.ndarray:
        """The logits after a prompt, which is read in passes of at most BATCH tokens."""
        self._clear()
        for first in range(0, len(prompt), BATCH):
            part = prompt[first : first + BATCH]
            self._run(part, first)
        return self._logits(len(part) - 1)

    def answers(self, prompts: Sequence[str], count: int) -> list[list[int]]:
        """The next ``count`` tokens of each prompt."""
        answers = []
        for ids in map(self.ids, prompts):
            answer = [int(self._read(ids).argmax())]
            for position in range(len(ids), len(ids) + count - 1):
                self._run(answer[-1:], position)
                answer.append(int(self._logits(0).argmax()))
            answers.append(answer)
        return answers

    def gap(self, tokens: Sequence[int], token: int) -> float:
        """By how much the best logit after the tokens exceeds that of a token."""
        logits = self._read(tokens)
        return float(logits.max() - logits[token])

    def log_probs(self, tokens: Sequence[int]) -> np.ndarray:
        """The log-probability of each token after the first."""
        self._clear()
        values: list[float] = []
        for first in range(0, len(tokens) - 1, BATCH):
            part = tokens[first : min(first + BATCH, len(tokens) - 1)]
            self._run(part, first, every=True)
            for i in range(len(part)):
                row = self._logits(i).astype(np.float64)
                values.append(row[tokens[first + i + 1]] - np.logaddexp.reduce(row))
        return np.array(values)
