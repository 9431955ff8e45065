"""Encoder: texts in, vectors out."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fastattn.encoders.base import EncoderBase, check_ignored_options, plan_batches, progress_bar
from fastattn.encoders.vector_head import (
    EncodeOptions,
    PictureVectors,
    PromptOptions,
    TextTooLongError,
    TextVectors,
    VectorOptions,
    check_settings,
    find_prompt,
)
from fastattn.errors import InputError, check_bool, check_count, check_several, check_text, check_texts
from fastattn.loading.loaded_model import wrong_model_error
from fastattn.processes.choice import Sharing
from fastattn.scheduling.request import Plan, await_result, read_ahead
from fastattn.scheduling.scheduler import Scheduler
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.images import PatchSpec, PictureSpec, ResidualSpec
from fastattn.system.option_names import TEXTS, Unpack, explains_options
from fastattn.system.progress import Progress
from fastattn.vectors.search import similarity, similarity_pairwise, unit_length
from fastattn.vision.pictures import is_picture

if TYPE_CHECKING:
    from fastattn.encoders.worker_processes import EncodingProcesses

# The texts of a window, which encode_iter reads ahead: few at first, so that the first vectors come soon, later enough
# for batches of similar lengths on every core. A window ends earlier where its texts have WINDOW_CHARACTERS.
FIRST_WINDOW, LAST_WINDOW = 32, 1024
WINDOW_CHARACTERS = 1 << 20
NumberedTexts = Iterator[tuple[int, str]]


class Encoder(EncoderBase):
    """Sentence vectors from a checkpoint, as sentence-transformers computes them.

    Raises CheckpointError for a path without a valid checkpoint of an encoder.
    """

    _takes_processes = True

    def _check(self, checkpoint: Checkpoint) -> Checkpoint:
        self._image_spec, spec = checkpoint.pictures, checkpoint.spec.encoder
        self._image_stack, self._takes_texts = checkpoint.spec.images, not isinstance(spec, PatchSpec | ResidualSpec)
        if not self._takes_texts:
            if checkpoint.spec.decoder is not None:
                raise wrong_model_error("an encoder's", checkpoint)
            self._image_stack = spec
            return checkpoint
        checkpoint = super()._check(checkpoint)
        check_settings(self._text, self._spec.width)
        return checkpoint.without_head()

    def _prepare(self) -> None:
        if self._image_spec is not None:
            self._picture_vectors = PictureVectors(self._image_spec, self._image_stack, self._loaded)
        if self._takes_texts:
            super()._prepare()
            self._text_vectors = TextVectors(self._text, self._spec.width, self._tokenizer, self._loaded)

    @property
    def max_length(self) -> int:
        """The most ids of a text, special ones included; longer texts are cut."""
        self._expect_input("texts", self._takes_texts)
        return super().max_length

    @property
    def prompts(self) -> dict[str, str]:
        """The checkpoint's prompts by name."""
        return super().prompts if self._takes_texts else {}

    def _expect_input(self, noun: str, is_taken: bool) -> None:
        if not is_taken:
            raise InputError(f"this model takes no {noun}: see Encoder.encode{'' if noun == 'pictures' else '_images'}")

    def _vector_options(self, **options: Any) -> VectorOptions:
        self._expect_input("texts", self._takes_texts)
        return self._text_vectors.options(**options)

    def _make_pool(self, folder: Path, precision: str, device: str, sharing: Sharing) -> "EncodingProcesses":
        from fastattn.encoders.worker_processes import EncodingProcesses

        return EncodingProcesses(sharing, folder, precision, device)

    @property
    def dimension(self) -> int:
        """The width of a vector."""
        return self._text_vectors.width(self._text.pooling) if self._takes_texts else self._picture_vectors.dimension

    @property
    def layer_weights(self) -> int:
        """About how many weights the layers have, for ``processes.choice``."""
        if not self._takes_texts:
            return 0  # work on pictures is not shared among processes
        stack = self._spec
        return stack.layers * stack.width * (2 * stack.feed_forward.inner_width + 4 * stack.attention.query_width)

    @explains_options(TEXTS, EncodeOptions)
    def encode(
        self,
        texts: str | Iterable[str],
        *,
        show_progress_bar: bool | None = None,
        batch_size: int | None = None,
        convert_to_numpy: bool = True,
        **options: "Unpack[EncodeOptions]",
    ) -> np.ndarray:
        """Vectors of ``texts``: [len(texts), dimension] in their order; [dimension] for a single str.

        prompt_name, prompt   put before every text: the checkpoint's prompt of that name (see ``prompts``), or a text
                              of your own, which wins over a name, "" for none; None: the checkpoint's default prompt
        task                  "query" or "document": the default is the prompt of that name, "" if there is none
        normalize_embeddings  True: unit length, also after truncation; None: as the checkpoint says, before truncation
                              only; False: never (sentence-transformers' False is None here)
        truncate_dim          keep this many first dimensions (Matryoshka vectors); None: as the checkpoint says, else
                              all
        pooling               one or several (concatenated) of cls, max, mean, mean_sqrt_len, weightedmean, lasttoken;
                              None: the checkpoint's
        long                  a text of more than ``max_length`` tokens (see ``count_tokens``) is cut ("truncate", the
                              default), an InputError ("error"), or encoded in as few windows as hold it ("mean"), each
                              with the special tokens and the prompt around it. The mean of the windows' vectors after
                              pooling and dense layers, weighted by how many tokens of the text each window has, is
                              normalized and truncated like any other vector
        output_dtype, ranges  see ``quantize_vectors``; ranges None: the ranges of the vectors that are returned
        batch_size, convert_to_numpy=True   accepted for sentence-transformers' callers, without effect
        Raises InputError for other values.
        """
        checked_options = self._vector_options(**options)
        check_ignored_options(batch_size, convert_to_numpy, "vectors")
        if isinstance(texts, str):
            if self._pool_for(1) is None:
                return self._run_alone(partial(self._text_vectors.plan, [texts], checked_options))[0]
            scheduler, plan = self._plan_for([texts], checked_options)
            return scheduler.run(plan)[0]
        with progress_bar(show_progress_bar) as progress:
            scheduler, plan = self._plan_for(check_texts("texts", texts), checked_options)
            return scheduler.run(partial(plan, progress=progress))

    def encode_query(self, texts: str | Iterable[str], **options: Any) -> np.ndarray:
        """``encode`` with ``task="query"``, for the texts of queries."""
        return self.encode(texts, task="query", **options)

    def encode_document(self, texts: str | Iterable[str], **options: Any) -> np.ndarray:
        """``encode`` with ``task="document"``, for the texts among which a query searches."""
        return self.encode(texts, task="document", **options)

    @explains_options(TEXTS, EncodeOptions)
    def submit(
        self, texts: str | Iterable[str], *, caller: Hashable = None, **options: "Unpack[EncodeOptions]"
    ) -> "Future[np.ndarray]":
        """A ``concurrent.futures.Future`` of what ``encode`` returns; returns at once.

        Texts of all callers share passes; each has the vector that it has alone. ``cancel()`` drops batches that have
        not begun. The exit of the process ends unfinished work, and a forked child does none of it.
        caller  any hashable value: callers get equal shares, however much each submits; None: this thread
        Raises as ``encode`` does, and QueueFullError where too much waits. The future raises for a text that is too
        long.
        """
        checked_options = self._vector_options(**options)
        text_list = check_texts("texts", [texts] if isinstance(texts, str) else texts)
        scheduler, plan_vectors = self._plan_for(text_list, checked_options)

        def make_plan() -> Plan:
            vectors_BE = yield from plan_vectors()
            return vectors_BE[0] if isinstance(texts, str) else vectors_BE

        return scheduler.submit(make_plan, caller)

    async def encode_async(self, texts: str | Iterable[str], *, caller: Hashable = None, **options: Any) -> np.ndarray:
        """``encode`` for asyncio: ``submit``, awaited. ``caller`` is by default the task."""
        return await await_result(partial(self.submit, texts, **options), caller)

    @explains_options(TEXTS, EncodeOptions)
    def encode_iter(self, texts: Iterable[str], **options: "Unpack[EncodeOptions]") -> Iterator[np.ndarray]:
        """Yield the vector of each text in order, [dimension], as ``encode`` with the same options makes it.

        It reads at most a thousand texts ahead, so memory is bounded however many texts there are. An error, of a text
        or of the iterable itself, is raised after the vectors of all texts before it. int8 and uint8 need ``ranges``.
        """
        checked_options = self._vector_options(**options)
        check_several("texts", texts, "an iterable of str")
        output_dtype = checked_options.output_dtype
        if output_dtype in ("int8", "uint8") and checked_options.ranges_2E is None:
            raise InputError(f"{output_dtype} needs ranges: vectors are yielded before those of all texts are known")
        if self._pool is not None:
            return self._encode_in_processes(self._pool, texts, checked_options)
        return self._encode_windows(enumerate(texts), checked_options)

    def encode_images(
        self,
        images: Any,
        *,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        show_progress_bar: bool | None = None,
    ) -> np.ndarray:
        """Vectors of pictures, by a model that takes pictures (ViT, CLIP): [pictures, dimension]; [dimension] for one.

        images  a path, an image of Pillow, an array of uint8 [Y, X, 3] or [Y, X]; or an iterable of such pictures. They
                are turned, resized, cropped and scaled as the checkpoint says
        CLIP's vectors of pictures and of texts compare (``similarity``); a ViT's vector is its row for the whole image.
        Raises InputError for anything but a sound picture of at most 67 million pixels.
        """
        self._expect_input("pictures", self._image_spec is not None)
        width = self.dimension if truncate_dim is None else check_count("truncate_dim", truncate_dim)
        normalize, is_single = check_bool("normalize_embeddings", normalize_embeddings), is_picture(images)
        with progress_bar(show_progress_bar) as progress:
            pictures = [images] if is_single else check_several("images", images, "a picture or several")
            vectors_BE = self._picture_vectors.encode(pictures, progress)[:, :width]
        vectors_BE = unit_length(vectors_BE) if normalize else vectors_BE
        return vectors_BE[0] if is_single else vectors_BE

    @property
    def image_spec(self) -> PictureSpec:
        """How a picture becomes an image; InputError for a model that takes texts alone."""
        self._expect_input("pictures", self._image_spec is not None)
        return cast(PictureSpec, self._image_spec)

    def image_changes(self, image_CYX: np.ndarray) -> Callable[[list[np.ndarray]], np.ndarray]:
        """For ``vision.saliency``: a function from variants of an image to 1 - cosine(vector of each, of the image)."""
        (vector_E,) = unit_length(self._picture_vectors.encode_images([image_CYX]))

        def changes(images: list[np.ndarray]) -> np.ndarray:
            return np.asarray(1 - unit_length(self._picture_vectors.encode_images(images)) @ vector_E, np.float32)

        return changes

    @explains_options(TEXTS, PromptOptions)
    def count_tokens(self, texts: str | Iterable[str], **options: "Unpack[PromptOptions]") -> np.ndarray:
        """How many tokens each whole text has, int64 [len(texts)]; [] for a single str.

        The prompt that ``encode`` would put before the text and the special tokens count too. ``encode`` cuts the
        tokens beyond ``max_length``.
        """
        self._expect_input("texts", self._takes_texts)
        prompt = find_prompt(self._text, **options)
        prompted_texts = [prompt + text for text in check_texts("texts", [texts] if isinstance(texts, str) else texts)]
        tokenizer = self._tokenizer
        special_count = tokenizer.max_length - tokenizer.room
        ids_B = tokenizer.encode_whole(prompted_texts, self._loaded.threads)
        counts_B = np.array([len(ids) + special_count for ids in ids_B], np.int64)
        return counts_B.reshape(()) if isinstance(texts, str) else counts_B

    @explains_options(TEXTS)
    def encode_tokens(self, texts: str | Iterable[str]) -> Any:
        """float32 [T, width] of each text: the last hidden state of each of its tokens, special ones included.

        A list in the texts' order; one array for a str. A text that is longer than the model reads is cut.
        """
        self._expect_input("texts", self._takes_texts)

        def split_rows(rows_ND: np.ndarray, starts_B1: np.ndarray) -> list[np.ndarray]:
            bounds = zip(starts_B1.tolist(), starts_B1.tolist()[1:])
            return [np.array(self._loaded.ops.take_rows(rows_ND, np.arange(*start_end))) for start_end in bounds]

        def plan(texts: list[str], progress: Progress | None) -> Plan:
            ids_B = self._tokenizer.encode(texts, self._loaded.threads)
            return (yield from plan_batches(ids_B, lambda numbers: split_rows, self._loaded.threads, progress))

        return self._run(plan, texts)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, without special tokens; InputError for a number outside the vocabulary."""
        for number in ids:
            if not 0 <= number < self._tokenizer.vocabulary_size:
                raise InputError(f"token ids should be below {self._tokenizer.vocabulary_size}, got {number}")
        return self._tokenizer.decode(ids, skip_special=True)

    def similarity(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """similarity_AB float32 of vectors a [A, D] or [D] and b [B, D] or [D], by the checkpoint's function.

        Cosine or dot product; or the negative Euclidean or Manhattan distance.
        """
        return similarity(a, b, self._text.similarity if self._takes_texts else "cosine")

    def similarity_pairwise(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """similarity_N float32 of each vector of a [N, D] or [D] with the vector of the same number in b."""
        return similarity_pairwise(a, b, self._text.similarity if self._takes_texts else "cosine")

    def _plan_for(self, texts: list[str], options: VectorOptions) -> tuple[Scheduler, Callable[..., Plan]]:
        """(the scheduler, the function from a Progress to the plan) of the texts' vectors."""
        pool = self._pool_for(len(texts))
        if pool is None:
            return self._scheduler, partial(self._text_vectors.plan, texts, options)

        def plan(progress: Progress | None = None) -> Plan:
            self._text_vectors.check_lengths(texts, options)
            return (yield from pool.plan(texts, options, progress))

        return pool.scheduler, plan

    def _encode_in_processes(
        self, pool: "EncodingProcesses", texts: Iterable[str], options: VectorOptions
    ) -> Iterator[np.ndarray]:
        """``encode_iter`` by worker processes; this process encodes the first texts: a short call may have no more."""
        numbered_texts = enumerate(texts)
        yield from self._encode_windows(islice(numbered_texts, pool.least_texts - 1), options)
        yield from pool.stream(self._checked_texts(numbered_texts, options), options)

    def _checked_texts(self, numbered_texts: NumberedTexts, options: VectorOptions) -> Iterator[tuple[int, str]]:
        """(length, text) of each text; raises what ``TextVectors.check_lengths`` raises."""
        for number, text in numbered_texts:
            self._text_vectors.check_lengths([check_text("texts", text, number)], options, number)
            yield len(text), text

    def _encode_windows(self, numbered_texts: NumberedTexts, options: VectorOptions) -> Iterator[np.ndarray]:
        first, size, failure = 0, FIRST_WINDOW, None
        sized_texts = ((len(check_text("texts", text, number)), text) for number, text in numbered_texts)
        while failure is None:
            window, _, failure = read_ahead(sized_texts, WINDOW_CHARACTERS, size)
            plan = partial(self._text_vectors.plan, options=options, first=first)
            try:
                vectors_BE = self._scheduler.run(partial(plan, window))
            except TextTooLongError as error:
                failure = error
                vectors_BE = self._scheduler.run(partial(plan, window[: error.number - first]))
            # Copies, so that a caller who keeps one vector does not keep its whole window.
            yield from map(np.copy, vectors_BE)
            first, size = first + len(window), min(2 * size, LAST_WINDOW)
        if not isinstance(failure, StopIteration):
            raise failure


class TokenLimit:
    """Compares the numbers of tokens of texts with an encoder's ``max_length``.

    options  options of ``Encoder.encode``, of which those that choose a prompt matter
    """

    def __init__(self, encoder: Encoder, options: Mapping[str, Any]):
        self.max_length = encoder.max_length
        self._prompt_options = {name: options[name] for name in ("task", "prompt_name", "prompt") if name in options}
        self._encoder = encoder
        # A token is at least one byte of the text, except where a normalizer writes a character out as several.
        self._max_bytes = self.max_length - int(encoder.count_tokens("", **self._prompt_options))

    def may_exceed(self, text: str) -> bool:
        """Whether the text has so many bytes that its tokens have to be counted."""
        return len(text.encode()) > self._max_bytes

    def exceeded(self, texts: Sequence[str]) -> dict[int, int]:
        """{index of a text with too many tokens: how many tokens it has}."""
        indices = [index for index, text in enumerate(texts) if self.may_exceed(text)]
        counts = self._encoder.count_tokens([texts[index] for index in indices], **self._prompt_options)
        return {index: count for index, count in zip(indices, counts.tolist(), strict=True) if count > self.max_length}

    def refusal(self, tokens: int) -> str:
        return f"{tokens:,} tokens, the model takes {self.max_length:,}"
