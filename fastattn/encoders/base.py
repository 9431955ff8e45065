"""The base of all encoder classes, and batches of sentences, which share passes of the model with other callers'."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fastattn.errors import CheckpointError, InputError, check_bool, check_count, check_texts
from fastattn.loading.loaded_model import ModelBase, wrong_model_error
from fastattn.models.encoder import Head
from fastattn.scheduling.request import Plan, Ticket
from fastattn.scheduling.scheduler import Scheduler
from fastattn.scheduling.state import WorkerSlot
from fastattn.spec.architecture import HeadSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import EncoderText
from fastattn.system.progress import Progress

if TYPE_CHECKING:
    from fastattn.text.huggingface import TextToken

# Rows of a pass: few enough to bound memory and for the cores to finish together, enough for matrix products at full
# speed. From 256 to 4096 rows the speed differs by less than its noise (MiniLM, two cores).
MOST_ROWS, LEAST_ROWS = 1024, 256

# From the last hidden states of a batch, (rows_ND, starts_B1), to one result for each text of the batch.
ResultMaker: TypeAlias = Callable[[np.ndarray, np.ndarray], Sequence[Any] | np.ndarray]
MakerForBatch: TypeAlias = Callable[[list[int]], ResultMaker]


class EncoderBase(ModelBase):
    """Base of all encoder classes: loading and running.

    A result depends on its own text alone: the same bits whatever the other texts and the number of threads. One object
    may serve several Python threads at once. A text of more than ``max_length`` ids is cut. Where a call takes
    ``show_progress_bar``, True prints how many texts are done on stderr, if stderr is a terminal.
    """

    _checkpoint_part = "encoder"

    def _check(self, checkpoint: Checkpoint) -> Checkpoint:
        checkpoint = checkpoint.as_encoder()
        text, spec = checkpoint.text, checkpoint.spec.encoder
        if not isinstance(text, EncoderText):
            raise wrong_model_error("an encoder's", checkpoint)
        if spec is None or checkpoint.spec.decoder is not None:
            raise CheckpointError(f"expected an encoder's checkpoint, got {checkpoint.spec.kind!r}")
        self._text: EncoderText = text
        self._spec: StackSpec = spec
        return checkpoint

    def _prepare(self) -> None:
        loaded, text, limit = self._loaded, self._text, self._spec.max_positions
        if loaded.model.head is not None:
            loaded.model.head.find_fault = loaded.find_fault
        make_worker = partial(EncodingWorker, loaded.model.encode)
        self._scheduler = Scheduler(make_worker, loaded.threads, loaded.ops.use_threads, 2 * LEAST_ROWS, loaded.threads)
        from fastattn.text.huggingface import HuggingFaceTokenizer  # needs the tokenizers library

        max_length = min(text.max_length, limit) if limit else text.max_length
        self._tokenizer = HuggingFaceTokenizer(text.tokenizer, max_length, text.lowercase, text.truncation_side)

    @property
    def max_length(self) -> int:
        """The most ids of a text, special ones included; longer texts are cut."""
        return self._tokenizer.max_length

    def tokenize(self, text: str, *, special_tokens: bool = True) -> "list[TextToken]":
        """The tokens of the whole text; the special tokens that the model adds stand for no characters of it."""
        return self._tokenizer.whole_tokens(text, special_tokens)

    @property
    def prompts(self) -> dict[str, str]:
        """The checkpoint's prompts by name."""
        return dict(self._text.prompts)

    @property
    def _head(self) -> Head:
        head: Head = self._loaded.model.head
        return head

    def _expect_head(self, checkpoint: Checkpoint, expectation: str) -> HeadSpec:
        """The checkpoint's head; CheckpointError, which says what is expected, if there is no head."""
        head = checkpoint.spec.head
        if head is None:
            raise CheckpointError(f"{expectation} is expected: {checkpoint.headless or 'the checkpoint has no head'}")
        return head

    def _expect_predictions(self, checkpoint: Checkpoint, expectation: str) -> None:
        """Raise CheckpointError unless the head gives a number for each token of the vocabulary."""
        head = self._expect_head(checkpoint, expectation)
        if head.rows != "each" or self._text.labels or head.outputs != self._spec.vocabulary:
            raise CheckpointError(f"{expectation} is expected: the checkpoint's head does not predict tokens")

    def _run(
        self,
        make_plan: Callable[[list[str], Progress | None], Plan],
        texts: str | Iterable[str],
        show_progress_bar: bool | None = None,
    ) -> Any:
        """The plan's results of the texts, in their order; for a str the result of that text."""
        if isinstance(texts, str):
            return self._run_alone(partial(make_plan, [texts], None))[0]
        text_list = check_texts("texts", texts)
        with progress_bar(show_progress_bar) as progress:
            return self._scheduler.run(partial(make_plan, text_list, progress))

    def _run_alone(self, make_plan: Callable[[], Plan]) -> Any:
        """The result of a plan of little work, which the calling thread does without a worker."""
        model = self._loaded.model

        def encode(batches: list[EncodingBatch]) -> list[Any]:
            return [batch.make_results(*model.encode(batch.ids_B, batch.types_B, batch.visible_B)) for batch in batches]

        return self._scheduler.run_alone(make_plan, encode)


def progress_bar(show: bool | None) -> Progress:
    """The Progress of a call with ``show_progress_bar``; InputError unless it is True, False or None."""
    return Progress(show is not None and check_bool("show_progress_bar", show))


def check_ignored_options(batch_size: int | None, convert_to_numpy: bool, results: str) -> None:
    """Raise InputError for wrong values of those options of sentence-transformers that have no effect here."""
    if batch_size is not None:
        check_count("batch_size", batch_size)
    if not check_bool("convert_to_numpy", convert_to_numpy):
        raise InputError(f"convert_to_numpy must be True: {results} are NumPy arrays")


class EncodingBatch:
    """Sentences of one caller; the batch's result is what ``make_results`` returns.

    ids_B         int32, one array a sentence
    make_results  gets the rows of a pass, and as starts_B1 where the batch's sentences begin and the last one ends
    types_B       the token types of the ids; None: all 0
    visible_B     for each sentence n or -n: its ids attend to its first or its last n ids alone; None: to all ids
    Either all batches of a model have types_B or none has; the same holds for visible_B.
    """

    def __init__(
        self,
        ids_B: Sequence[np.ndarray],
        make_results: ResultMaker,
        types_B: Sequence[np.ndarray] | None = None,
        visible_B: Sequence[int] | None = None,
    ):
        self.ids_B, self.make_results, self.types_B, self.visible_B = ids_B, make_results, types_B, visible_B
        self.weight = self.length = sum(map(len, ids_B))  # a Scheduler reads both


class EncodingWorker:
    """Encodes waiting batches, as many together as fit into a pass, by the ``encode`` of an ``EncoderStack``."""

    def __init__(self, encode: Callable[..., tuple[np.ndarray, np.ndarray]], slot: WorkerSlot):
        self.encode, self.slot = encode, slot

    def advance(self) -> bool:
        """Encode the next waiting batches in a pass; False if no batch waits."""
        rows = 0

        def has_room(ticket: Ticket, newcomer: bool) -> bool:
            nonlocal rows
            rows_before, rows = rows, rows + ticket.job.weight
            return not rows_before or rows <= MOST_ROWS

        tickets = self.slot.take(has_room)
        if not tickets:
            return False
        rows_ND, starts_B1 = self.encode(*(_join(tickets, name) for name in ("ids_B", "types_B", "visible_B")))
        begin = 0  # the number of a batch's first sentence
        for ticket in tickets:
            end = begin + len(ticket.job.ids_B)
            self.slot.finish(ticket, ticket.job.make_results(rows_ND, starts_B1[begin : end + 1]))
            begin = end
        return True

    def drop(self) -> None:
        """Do nothing: between two passes no batch is in progress."""


def _join(tickets: Sequence[Ticket], name: str) -> Any:
    """The attribute ``name`` of all tickets' batches, end to end; None where the attribute is None."""
    if getattr(tickets[0].job, name) is None:
        return None
    return [value for ticket in tickets for value in getattr(ticket.job, name)]


def split_batches(lengths: Sequence[int], threads: int) -> list[list[int]]:
    """Batches of a bounded number of rows, each as the numbers of its sentences; the longest sentences come first.

    Sentences of similar length share a batch, so that the cores' shares are even. With too little work for batches on
    every core, all cores share each batch; otherwise each core takes whole batches.
    """
    total_rows, max_rows = sum(lengths), MOST_ROWS
    if threads > 1 and total_rows >= 2 * LEAST_ROWS * threads:
        max_rows = min(MOST_ROWS, max(LEAST_ROWS, total_rows // (4 * threads)))
    batches, rows = list[list[int]](), 0
    for b in sorted(range(len(lengths)), key=lambda b: -lengths[b]):
        if not batches or rows + lengths[b] > max_rows:
            batches.append([])
            rows = 0
        batches[-1].append(b)
        rows += lengths[b]
    return batches


def plan_batches(
    ids_B: Sequence[np.ndarray],
    maker_for: MakerForBatch,
    threads: int,
    progress: Progress | None = None,
    *,
    width: int | None = None,
    types_B: Sequence[np.ndarray] | None = None,
    visible_B: Sequence[int] | None = None,
    noun: str = "texts",
) -> Plan:
    """A plan of the sentences' results, in their order: float32 [B, width]; without a width a list of any objects.

    maker_for           from the numbers of a batch's sentences to the function that makes their results
    types_B, visible_B  as in EncodingBatch
    noun                what progress calls the sentences
    """
    done_count = 0

    def batch_of(numbers: list[int]) -> EncodingBatch:
        make_results = maker_for(numbers)

        def make_and_count(rows_ND: np.ndarray, starts_B1: np.ndarray) -> Sequence[Any] | np.ndarray:
            nonlocal done_count
            results = make_results(rows_ND, starts_B1)
            if progress is not None:
                done_count += len(numbers)
                progress.show(f"{done_count:,} of {len(ids_B):,} {noun}")
            return results

        types = None if types_B is None else [types_B[b] for b in numbers]
        visible = None if visible_B is None else [visible_B[b] for b in numbers]
        return EncodingBatch([ids_B[b] for b in numbers], make_and_count, types, visible)

    batches = split_batches([len(ids) for ids in ids_B], threads)
    batch_results = yield [batch_of(numbers) for numbers in batches]
    if width is None:
        result_of = dict(zip(chain(*batches), chain(*batch_results)))
        return [result_of[b] for b in range(len(ids_B))]
    results_BE = np.zeros((len(ids_B), width), np.float32)
    for numbers, results in zip(batches, batch_results):
        results_BE[numbers] = results
    return results_BE
