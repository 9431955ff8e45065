"""Encoder: texts in, vectors out."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np

from fastattn.checkpoint import Checkpoint
from fastattn.encode_options import EncodeOptions
from fastattn.errors import InputError, check_bool, check_count, check_text, check_texts
from fastattn.long_text import TextTooLongError
from fastattn.progress import Progress
from fastattn.scheduling.request import Plan, awaited
from fastattn.similarity import similarity, similarity_pairwise
from fastattn.spec import StackSpec
from fastattn.text_model import TextModel
from fastattn.text_spec import EncoderText
from fastattn.vector_head import VectorHead, VectorOptions, check_vectors
from fastattn.vector_plans import VectorPlans

# Texts that encode_iter reads ahead: few at first, so that the first vectors come soon, then enough for batches of
# similar lengths on every core; fewer if they have this many characters together.
FIRST_WINDOW, LAST_WINDOW = 32, 1024
WINDOW_CHARACTERS = 1 << 20


class Encoder(TextModel):
    """Sentence vectors from a checkpoint, as sentence-transformers computes them.

    path       a folder, a name from the catalog, or OWNER/NAME on the Hugging Face hub
    precision  of the matrix products: "float32", "bfloat16", "int8", or "auto" (int8 if the checkpoint holds int8,
               else float32)
    threads    the most threads to use; None: all that the process may use

    A text is cut after ``max_length`` ids, as sentence-transformers does. A vector depends on its own text alone: the
    same bits whatever the other texts and the number of threads. One Encoder may serve several Python threads at once.
    Raises CheckpointError for a path without a valid checkpoint of an encoder.
    """

    def _checked(self, checkpoint: Checkpoint, text: EncoderText, stack: StackSpec) -> Checkpoint:
        check_vectors(text, stack.width)
        return checkpoint.without_head()

    def _prepare(self) -> None:
        encoder = self._encoder
        self._text, self._tokenizer, self._scheduler = encoder.text, encoder.tokenizer, encoder.scheduler
        self._loaded = loaded = encoder.loaded
        self._vectors = VectorHead(encoder.text, encoder.spec.width, loaded.ops)
        self._options = EncodeOptions(encoder.text, self._vectors, self._tokenizer)
        self._plans = VectorPlans(self._tokenizer, self._vectors, loaded.threads)

    @property
    def dimension(self) -> int:
        """The width of a vector."""
        return self._vectors.width(self._text.pooling)

    def encode(
        self,
        texts: str | Iterable[str],
        *,
        task: str | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        normalize_embeddings: bool | None = None,
        truncate_dim: int | None = None,
        pooling: str | Sequence[str] | None = None,
        long: str = "truncate",
        output_dtype: str = "float32",
        ranges: np.ndarray | None = None,
        show_progress_bar: bool | None = None,
        batch_size: int | None = None,
        convert_to_numpy: bool = True,
    ) -> np.ndarray:
        """Vectors of ``texts``: [len(texts), dimension] in their order; [dimension] for a single str.

        prompt_name, prompt   put before every text: a name from the checkpoint's ``prompts``, or a prompt's text,
                              "" for none; by default the checkpoint's default prompt
        task                  "query" or "document": by default the prompt of that name instead, none if it is missing
        normalize_embeddings  True: unit length, also after truncation; None: as the checkpoint says, before truncation
                              only; False: never (sentence-transformers' False is None here)
        truncate_dim          keep this many first dimensions (Matryoshka vectors); None: as the checkpoint says, else
                              all
        pooling               one or several (concatenated) of cls, max, mean, mean_sqrt_len, weightedmean, lasttoken;
                              None: the checkpoint's
        long                  of a text with more than ``max_length`` tokens (see ``count_tokens``): "truncate": the
                              first ones alone; "error": an InputError; "mean": as few windows as hold it, each with
                              the special tokens and the prompt around it, are encoded, and the mean of their vectors
                              after pooling and dense layers, weighted by each one's number of the text's own tokens,
                              is normalized and truncated like any other vector
        output_dtype          "float32", "int8", "uint8", "binary" or "ubinary": see ``quantize_vectors``
        ranges                for int8 and uint8, as there; None: those of these vectors
        show_progress_bar     True: print on stderr how many texts are done, if it is a terminal
        batch_size, convert_to_numpy=True   accepted for sentence-transformers' callers, without effect
        Raises InputError for other values.
        """
        options = self._options.of_call(
            task=task,
            prompt_name=prompt_name,
            prompt=prompt,
            normalize_embeddings=normalize_embeddings,
            truncate_dim=truncate_dim,
            pooling=pooling,
            long=long,
            output_dtype=output_dtype,
            ranges=ranges,
        )
        if batch_size is not None:
            check_count("batch_size", batch_size)
        if not check_bool("convert_to_numpy", convert_to_numpy):
            raise InputError("convert_to_numpy must be True: vectors are NumPy arrays")
        if isinstance(texts, str):
            return self._encoder.run_alone(partial(self._plans.plan, [texts], options))[0]
        with Progress(show_progress_bar is not None and check_bool("show_progress_bar", show_progress_bar)) as progress:
            return self._scheduler.run(partial(self._plans.plan, check_texts("texts", texts), options, progress))

    def encode_query(self, texts: str | Iterable[str], **how: Any) -> np.ndarray:
        """``encode`` with ``task="query"``: texts that are searched with."""
        return self.encode(texts, task="query", **how)

    def encode_document(self, texts: str | Iterable[str], **how: Any) -> np.ndarray:
        """``encode`` with ``task="document"``: texts that are searched for."""
        return self.encode(texts, task="document", **how)

    def submit(
        self,
        texts: str | Iterable[str],
        *,
        task: str | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        normalize_embeddings: bool | None = None,
        truncate_dim: int | None = None,
        pooling: str | Sequence[str] | None = None,
        long: str = "truncate",
        output_dtype: str = "float32",
        ranges: np.ndarray | None = None,
        caller: Hashable = None,
    ) -> "Future[np.ndarray]":
        """A ``concurrent.futures.Future`` of what ``encode`` returns; returns at once.

        Texts of all callers share batches, with the vectors that each has alone. ``cancel()`` drops batches that have
        not begun.
        caller  who asks, any hashable value: callers get equal shares, however much each asks for; None: this thread
        Raises as ``encode`` does, and QueueFullError where too much waits.
        """
        options = self._options.of_call(
            task=task,
            prompt_name=prompt_name,
            prompt=prompt,
            normalize_embeddings=normalize_embeddings,
            truncate_dim=truncate_dim,
            pooling=pooling,
            long=long,
            output_dtype=output_dtype,
            ranges=ranges,
        )
        listed = check_texts("texts", [texts] if isinstance(texts, str) else texts)

        def make_plan() -> Plan:
            vectors_BE = yield from self._plans.plan(listed, options)
            return vectors_BE[0] if isinstance(texts, str) else vectors_BE

        return self._scheduler.submit(make_plan, caller)

    async def encode_async(self, texts: str | Iterable[str], *, caller: Hashable = None, **how: Any) -> np.ndarray:
        """``encode`` for asyncio: ``submit``, awaited. ``caller`` is by default the task."""
        return await awaited(partial(self.submit, texts, **how), caller)

    def encode_iter(
        self,
        texts: Iterable[str],
        *,
        task: str | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        normalize_embeddings: bool | None = None,
        truncate_dim: int | None = None,
        pooling: str | Sequence[str] | None = None,
        long: str = "truncate",
        output_dtype: str = "float32",
        ranges: np.ndarray | None = None,
    ) -> Iterator[np.ndarray]:
        """Yield the vector of each text in order, [dimension], as ``encode`` with the same options.

        Reads at most a thousand texts ahead, so memory is bounded however many there are. An error, of a text or of the
        iterable itself, is raised after the vectors of all texts before it. int8 and uint8 need ``ranges``.
        """
        options = self._options.of_call(
            task=task,
            prompt_name=prompt_name,
            prompt=prompt,
            normalize_embeddings=normalize_embeddings,
            truncate_dim=truncate_dim,
            pooling=pooling,
            long=long,
            output_dtype=output_dtype,
            ranges=ranges,
        )
        if isinstance(texts, str) or not isinstance(texts, Iterable):
            raise InputError(f"texts must be an iterable of str, got {type(texts).__name__}")
        if output_dtype in ("int8", "uint8") and ranges is None:
            raise InputError(f"{output_dtype} needs ranges: vectors are yielded before those of all texts are known")
        return self._encode_windows(texts, options)

    def count_tokens(
        self,
        texts: str | Iterable[str],
        *,
        task: str | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> np.ndarray:
        """How many tokens each text has, uncut, int64 [len(texts)]; [] for a single str.

        Those of the prompt that ``encode`` would put before it, and the special ones, are counted too: a text with more
        than ``max_length`` is too long, and is cut by as many as it has more.
        """
        before = self._options.prompt(task, prompt_name, prompt)
        listed = [before + text for text in check_texts("texts", [texts] if isinstance(texts, str) else texts)]
        tokenizer = self._tokenizer
        special = tokenizer.max_length - tokenizer.room
        counts_B = np.array(
            [len(ids) + special for ids in tokenizer.encode_whole(listed, self._loaded.threads)], np.int64
        )
        return counts_B.reshape(()) if isinstance(texts, str) else counts_B

    def similarity(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """similarity_AB float32 of vectors a [A, D] or [D] and b [B, D] or [D], by the checkpoint's function.

        Cosine or dot product; or the negative Euclidean or Manhattan distance.
        """
        return similarity(a, b, self._text.similarity)

    def similarity_pairwise(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """similarity_N float32 of each vector of a [N, D] or [D] and that of its number in b, as ``similarity``."""
        return similarity_pairwise(a, b, self._text.similarity)

    def _encode_windows(self, texts: Iterable[str], options: VectorOptions) -> Iterator[np.ndarray]:
        numbered = enumerate(texts)
        first, most, failure = 0, FIRST_WINDOW, None
        while failure is None:
            window, failure = _read_window(numbered, most)
            plan = partial(self._plans.plan, options=options, first=first)
            try:
                vectors_BE = self._scheduler.run(partial(plan, window))
            except TextTooLongError as error:
                failure = error
                vectors_BE = self._scheduler.run(partial(plan, window[: error.number - first]))
            # Copies, so that a caller who keeps one vector does not keep its whole window.
            yield from map(np.copy, vectors_BE)
            first, most = first + len(window), min(2 * most, LAST_WINDOW)
        if not isinstance(failure, StopIteration):
            raise failure


def _read_window(numbered: Iterator[tuple[int, str]], most: int) -> tuple[list[str], Exception | None]:
    """(texts to encode together, what ended the reading: StopIteration, an error or None)."""
    window: list[str] = []
    characters = 0
    while len(window) < most and characters < WINDOW_CHARACTERS:
        try:
            number, text = next(numbered)
            window.append(check_text("texts", text, number))
        except Exception as error:  # noqa: BLE001  raised again, after the results before it
            return window, error
        characters += len(text)
    return window, None
