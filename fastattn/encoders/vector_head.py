"""From texts and pictures to their vectors: options, windows of long texts, pooling, dense layers, unit length."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from fastattn.encoders.base import LEAST_ROWS, EncodingWorker, plan_batches
from fastattn.errors import CheckpointError, InputError, check_count, check_known, described, warn
from fastattn.loading.loaded_model import LoadedModel
from fastattn.models.encoder import check_finite
from fastattn.ops.protocol import Ops
from fastattn.scheduling.request import Plan
from fastattn.scheduling.scheduler import Scheduler
from fastattn.spec.architecture import ACTIVATIONS
from fastattn.spec.images import PictureSpec
from fastattn.spec.text_spec import LAYER_NORM, NORM_EPSILON, UNIT_LENGTH, EncoderText, check_poolings
from fastattn.system.progress import Progress
from fastattn.vectors.quantized import OUTPUT_DTYPES, checked_ranges, quantize_vectors
from fastattn.vectors.search import SIMILARITIES, unit_length
from fastattn.vision.pictures import load_image, pixel_rows

if TYPE_CHECKING:  # this import loads the tokenizers library
    from fastattn.text.huggingface import HuggingFaceTokenizer

LONG_MODES = ("truncate", "mean", "error")  # how to encode a text of more tokens than the encoder takes
MAX_PICTURES = 64  # pictures whose pixels are in memory at once
# The prompt of a query or document is the checkpoint's prompt of that name, else empty, never the default prompt.
# sentence-transformers 6.2 has code that tries "passage" and "corpus" next for a document, but that code never runs,
# since each model gets a prompt "document" there, perhaps an empty one. Vectors should be the same here.
TASKS = ("query", "document")


class PromptOptions(TypedDict, total=False):
    """The options that choose the prompt of a call; see ``Encoder.encode``."""

    task: str | None
    prompt_name: str | None
    prompt: str | None


class EncodeOptions(PromptOptions, total=False):
    """The options of a call to an Encoder; see ``Encoder.encode``."""

    normalize_embeddings: bool | None
    truncate_dim: int | None
    pooling: str | Sequence[str] | None
    long: str
    output_dtype: str
    ranges: np.ndarray | None


@dataclass(frozen=True)
class VectorOptions:
    """The checked options of one call to an Encoder.

    prompt_rows  how many rows at the beginning, those of the prompt, are not pooled
    pooling      names from ``text_spec.POOLINGS``
    normalize    None: as the checkpoint says
    width        the width of the truncated vectors
    long         one of LONG_MODES
    """

    prompt: str
    prompt_rows: int
    pooling: tuple[str, ...]
    normalize: bool | None
    width: int
    long: str
    output_dtype: str
    ranges_2E: np.ndarray | None


def find_prompt(
    text: EncoderText, prompt_name: str | None = None, prompt: str | None = None, task: str | None = None
) -> str:
    """``prompt`` itself, or the checkpoint's prompt of that name or task, or the checkpoint's default prompt.

    With both a prompt and a name, the prompt is used and a warning says so, as in sentence-transformers. Raises
    InputError for an unknown name or task, and for a prompt that is no str.
    """
    if task is not None:
        check_known("task", task, TASKS)
    if prompt is not None:
        if not isinstance(prompt, str):
            raise InputError(f"prompt must be a str, got {type(prompt).__name__}")
        if prompt_name is not None:
            warn(f"prompt_name {described(prompt_name)} is ignored, since there is a prompt")
        return prompt
    if prompt_name is None:
        name = text.default_prompt if task is None else task
        return "" if name is None else text.prompts.get(name, "")
    if not isinstance(prompt_name, str):
        raise InputError(f"prompt_name must be a str, got {type(prompt_name).__name__}")
    if prompt_name not in text.prompts:
        choices = f"known: {', '.join(text.prompts)}" if text.prompts else "this checkpoint has none"
        raise InputError(f"unknown prompt_name {prompt_name!r}; {choices}; prompt is for a text of your own")
    return text.prompts[prompt_name]


class DenseLayers:
    """The dense layers of an EncoderText, from rows of width ``inputs`` to rows of ``width``.

    bool() is True if a layer has weights, whose shapes then decide both widths.
    """

    def __init__(self, text: EncoderText, inputs: int, loaded: LoadedModel):
        ops, self._find_fault = loaded.ops, loaded.find_fault
        self._layers = [_layer(ops, *layer) for layer in text.dense]
        shapes = [weight.shape for weight, _, _ in text.dense if weight.size]
        self._has_weights = bool(shapes)
        self.inputs = shapes[0][-1] if shapes else inputs
        self.width = shapes[-1][0] if shapes else inputs

    def __bool__(self) -> bool:
        return self._has_weights

    def __call__(self, x_ND: np.ndarray) -> np.ndarray:
        """float32 [N, width]. Raises CheckpointError where the weights give NaN or infinity."""
        for layer in self._layers:
            x_ND = layer(x_ND)
        check_finite(x_ND, self._find_fault)
        return np.asarray(x_ND)


def _layer(ops: Ops, weight: np.ndarray, bias: np.ndarray | None, name: str) -> Callable[[np.ndarray], np.ndarray]:
    if name == UNIT_LENGTH:
        return lambda x_ND: unit_length(np.asarray(x_ND))
    if name == LAYER_NORM:
        return partial(ops.layer_norm, weight_D=weight, bias_D=bias, epsilon=NORM_EPSILON)
    return partial(ops.linear, packed=ops.pack_linear(weight, bias), activation=name)


class TextTooLongError(InputError):
    """A text is longer than the encoder takes; ``number`` is its number among the texts of the call."""

    def __init__(self, number: int, tokens: int, limit: int):
        super().__init__(
            f"text number {number} has {tokens:,} tokens, the model takes {limit:,}; "
            "long='mean' encodes it in parts, long='truncate' cuts it"
        )
        self.number = number


@dataclass(frozen=True)
class Windows:
    """The ids of texts in windows, each no longer than the encoder takes.

    ids_W      the ids of each window, including special tokens and those of the prompt
    starts_B1  where each text's windows start, and where the last text's windows end
    tokens_W   how many tokens of each window are neither special nor the prompt's
    """

    ids_W: list[np.ndarray]
    starts_B1: np.ndarray
    tokens_W: np.ndarray

    def means(self, vectors_WE: np.ndarray) -> np.ndarray:
        """The mean vector of each text's windows, weighted by ``tokens_W``, float32 [B, E]."""
        means_BE = vectors_WE[self.starts_B1[:-1]]
        for b in np.flatnonzero(np.diff(self.starts_B1) > 1):
            windows = slice(self.starts_B1[b], self.starts_B1[b + 1])
            tokens_W1 = self.tokens_W[windows, None].astype(np.float64)
            means_BE[b] = (tokens_W1 * vectors_WE[windows]).sum(axis=0) / tokens_W1.sum()
        return means_BE


class TextVectors:
    """Makes the vectors of texts by settings that ``check_settings`` accepts; ``width`` is the hidden states' width."""

    def __init__(self, text: EncoderText, width: int, tokenizer: "HuggingFaceTokenizer", loaded: LoadedModel):
        self._text, self._width, self._tokenizer = text, width, tokenizer
        self._ops, self._threads = loaded.ops, loaded.threads
        self._dense = DenseLayers(text, width, loaded)

    def options(
        self,
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
    ) -> VectorOptions:
        """The checked options of a call; InputError for wrong values."""
        if not isinstance(normalize_embeddings, bool | np.bool_ | None):
            raise InputError(f"normalize_embeddings must be True, False or None, got {normalize_embeddings!r}")
        check_known("long", long, LONG_MODES)
        check_known("output_dtype", output_dtype, OUTPUT_DTYPES)
        poolings = self._checked_pooling(pooling)
        width = self.width(poolings, truncate_dim)
        prefix = find_prompt(self._text, prompt_name, prompt, task)
        prompt_rows = 0
        if prefix and not self._text.include_prompt:
            ids = self._tokenizer.encode([prefix])[0]
            prompt_rows = len(ids) - (len(ids) > 0 and self._tokenizer.is_special(int(ids[-1])))
        ranges_2E = None if ranges is None else checked_ranges(ranges, width)
        return VectorOptions(prefix, prompt_rows, poolings, normalize_embeddings, width, long, output_dtype, ranges_2E)

    def _untruncated_width(self, pooling: Sequence[str]) -> int:
        """The width of the vectors before they are truncated."""
        return self._dense.width if self._dense else self._width * len(pooling)

    def width(self, pooling: Sequence[str], truncate_dim: int | None = None) -> int:
        """The width of the truncated vectors; ``truncate_dim`` None: as the checkpoint says."""
        limit = self._text.truncate_dim if truncate_dim is None else check_count("truncate_dim", truncate_dim)
        width = self._untruncated_width(pooling)
        return width if limit is None else min(width, limit)

    def _checked_pooling(self, pooling: str | Sequence[str] | None) -> tuple[str, ...]:
        """The names of the poolings, for None the checkpoint's; InputError for unknown names and a wrong width."""
        if pooling is None:
            return self._text.pooling
        if isinstance(pooling, str):
            poolings: tuple[str, ...] = (pooling,)
        elif isinstance(pooling, Sequence) and all(isinstance(mode, str) for mode in pooling):
            poolings = tuple(pooling)
        else:
            raise InputError(f"pooling must be a str or several, got {pooling!r}")
        check_poolings(poolings)
        if self._dense and self._width * len(poolings) != self._dense.inputs:
            raise InputError(
                f"the checkpoint's dense layer takes {self._dense.inputs} values, "
                f"pooling {', '.join(poolings)} gives {self._width * len(poolings)}"
            )
        return poolings

    def _vectors(self, rows_ND: np.ndarray, starts_B1: np.ndarray, options: VectorOptions) -> np.ndarray:
        return self._truncate(self._pool(rows_ND, starts_B1, options), options)

    def _pool(self, rows_ND: np.ndarray, starts_B1: np.ndarray, options: VectorOptions) -> np.ndarray:
        """The vectors of sentences after pooling and dense layers, neither truncated nor of unit length."""
        return self._dense(self._ops.pool(rows_ND, starts_B1, options.pooling, options.prompt_rows))

    def _truncate(self, vectors_BE: np.ndarray, options: VectorOptions) -> np.ndarray:
        """The vectors after truncation, and of unit length where the options or the checkpoint say so."""
        if options.normalize is None and self._text.normalize:
            vectors_BE = unit_length(vectors_BE)
        vectors_BE = vectors_BE[:, : options.width]
        return unit_length(vectors_BE) if options.normalize else vectors_BE

    def check_lengths(self, texts: list[str], options: VectorOptions, first: int = 0) -> None:
        """Raise the TextTooLongError that ``plan`` with the same arguments would raise."""
        if options.long == "error":
            texts = [options.prompt + text for text in texts]
            self._refuse_long(texts, self._tokenizer.encode(texts, self._threads), first)

    def plan(self, texts: list[str], options: VectorOptions, progress: Progress | None = None, first: int = 0) -> Plan:
        """A plan of the texts' vectors_BE; ``first`` is the number by which errors name the first text."""
        if options.prompt:
            texts = [options.prompt + text for text in texts]
        ids_B = self._tokenizer.encode(texts, self._threads)
        windows = None
        if options.long == "error":
            self._refuse_long(texts, ids_B, first)
        elif options.long == "mean":
            windows = self._split_long(texts, ids_B, options.prompt)
        if windows is None:
            make, width = partial(self._vectors, options=options), options.width
            vectors_BE = yield from plan_batches(ids_B, lambda _: make, self._threads, progress, width=width)
        else:
            make, width = partial(self._pool, options=options), self._untruncated_width(options.pooling)
            pooled_WE = yield from plan_batches(windows.ids_W, lambda _: make, self._threads, progress, width=width)
            vectors_BE = self._truncate(windows.means(pooled_WE), options)
        return in_output_dtype(vectors_BE, options)

    def _split_long(self, texts: Sequence[str], ids_B: Sequence[np.ndarray], prompt: str) -> Windows | None:
        """The texts in windows, or None if no text is too long.

        ids_B   the ids of each text, cut to what the encoder takes
        prompt  begins each text; each window begins with the prompt's ids, as far as they are the text's first ids
        Raises InputError if the prompt leaves no room for a text.
        """
        uncut_ids = self._uncut_ids(texts, ids_B)
        if not uncut_ids:
            return None
        prompt_ids = self._tokenizer.encode_whole([prompt])[0] if prompt else np.zeros(0, np.int32)
        windows_B = [[(ids, 0)] for ids in ids_B]  # the mean of a single window does not use its number of tokens
        for b, ids in uncut_ids.items():
            windows_B[b] = self._windows(ids, prompt_ids)
        windows_W = [window for windows in windows_B for window in windows]
        starts_B1 = np.cumsum([0, *map(len, windows_B)])
        return Windows([ids for ids, _ in windows_W], starts_B1, np.array([tokens for _, tokens in windows_W]))

    def _refuse_long(self, texts: Sequence[str], ids_B: Sequence[np.ndarray], first: int) -> None:
        """Raise TextTooLongError for the first text that is too long; ``first`` is the number of ``texts[0]``."""
        for b, ids in self._uncut_ids(texts, ids_B).items():
            limit = self._tokenizer.max_length
            raise TextTooLongError(first + b, len(ids) + limit - self._tokenizer.room, limit)

    def _uncut_ids(self, texts: Sequence[str], ids_B: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
        """{index of a text that was cut: all its ids, without special tokens}."""
        tokenizer = self._tokenizer
        # A text with as many ids was cut, or has just this length.
        candidates = [b for b, ids in enumerate(ids_B) if len(ids) >= tokenizer.max_length]
        whole_ids = tokenizer.encode_whole([texts[b] for b in candidates], self._threads)
        return {b: ids for b, ids in zip(candidates, whole_ids) if len(ids) > tokenizer.room}

    def _windows(self, ids: np.ndarray, prompt_ids: np.ndarray) -> list[tuple[np.ndarray, int]]:
        """(ids, how many of them are neither special nor the prompt's) of the fewest windows that hold a text."""
        tokenizer, most = self._tokenizer, min(len(ids), len(prompt_ids))
        before, after = tokenizer.special_ids
        # A tokenizer may join the prompt's end and the text's beginning in one token, which is then the text's.
        prompt_length = int(np.argmin([*(ids[:most] == prompt_ids[:most]), False]))
        room = tokenizer.room - prompt_length
        if room < 1:
            raise InputError(
                f"a prompt and special tokens of {tokenizer.max_length - room:,} leave no room for the text: "
                f"the model takes {tokenizer.max_length:,}"
            )
        slices = [ids[start : start + room] for start in range(prompt_length, len(ids), room)]
        return [(np.concatenate([before, ids[:prompt_length], part, after]), len(part)) for part in slices]


class PictureVectors:
    """Makes the vectors of pictures by one checkpoint's model; pictures of several callers share passes."""

    def __init__(self, picture_spec: PictureSpec, spec: Any, loaded: LoadedModel):
        self._picture_spec, self._spec, self._ops, self._threads = picture_spec, spec, loaded.ops, loaded.threads
        images, self._find_fault = loaded.model.images, loaded.find_fault
        make_worker = partial(EncodingWorker, images.encode_first if spec.pooling == "cls" else images.encode)
        self._scheduler = Scheduler(make_worker, loaded.threads, loaded.ops.use_threads, 2 * LEAST_ROWS, loaded.threads)
        matrix_ED = picture_spec.projection_ED
        self._projection = None if matrix_ED is None else loaded.ops.pack_linear(matrix_ED)
        self.dimension = spec.width if matrix_ED is None else len(matrix_ED)

    def encode(self, pictures: Iterable[Any], progress: Progress) -> np.ndarray:
        """float32 [pictures, dimension], neither truncated nor of unit length."""
        vectors, numbered_pictures = [np.empty((0, self.dimension), np.float32)], enumerate(pictures)
        while window := list(islice(numbered_pictures, MAX_PICTURES)):
            vectors.append(self.encode_images([load_image(picture, b, self._picture_spec) for b, picture in window]))
            progress.show(f"{window[-1][0] + 1:,} pictures")
        return np.concatenate(vectors)

    def encode_images(self, images: Sequence[np.ndarray]) -> np.ndarray:
        """The vectors of images float32 [3, Y, X], as ``load_image`` makes them."""
        rows = [pixel_rows(image_CYX, self._spec) for image_CYX in images]
        plan = partial(plan_batches, rows, lambda _: self._vectors, self._threads, width=self.dimension)
        vectors_BE: np.ndarray = self._scheduler.run(plan)
        return vectors_BE

    def _vectors(self, rows_ND: np.ndarray, starts_B1: np.ndarray) -> np.ndarray:
        pooled_BD = self._ops.pool(rows_ND, starts_B1, [self._spec.pooling])
        vectors_BE = pooled_BD if self._projection is None else self._ops.linear(pooled_BD, self._projection)
        check_finite(vectors_BE, self._find_fault)
        return np.asarray(vectors_BE)


def in_output_dtype(vectors_BE: np.ndarray, options: VectorOptions) -> np.ndarray:
    """The vectors in the options' ``output_dtype``."""
    if options.output_dtype == "float32":
        return vectors_BE
    return quantize_vectors(vectors_BE, options.output_dtype, options.ranges_2E)


def check_settings(text: EncoderText, width: int) -> None:
    """Raise CheckpointError for unknown or unsuitable settings of an Encoder; ``width`` is the hidden states' width."""
    for settings, purpose, name in (
        (text.sparse, "sparse vectors", "SparseEncoder"),
        (text.multi_vector, "a vector a token", "MultiVectorEncoder"),
    ):
        if settings is not None:
            raise CheckpointError(f"this checkpoint is made for {purpose}: use fastattn.{name}")
    try:
        check_poolings(text.pooling)
    except InputError as error:
        raise CheckpointError(str(error)) from None
    if text.similarity not in SIMILARITIES:
        raise CheckpointError(f"unknown similarity {text.similarity!r}; known: {', '.join(SIMILARITIES)}")
    check_dense(text, width * len(text.pooling))


def check_dense(text: EncoderText, inputs: int) -> None:
    """Raise CheckpointError for dense layers that do not fit rows of width ``inputs``, or an unknown activation."""
    for weight, _, activation in text.dense:
        if activation == UNIT_LENGTH:
            continue
        if activation not in ("none", *ACTIVATIONS, LAYER_NORM):
            raise CheckpointError(f"unknown activation {activation!r}; known: none, {', '.join(ACTIVATIONS)}")
        if weight.shape[-1] != inputs:
            raise CheckpointError(f"a dense layer of {weight.shape[-1]} inputs follows {inputs} outputs")
        inputs = weight.shape[0]
