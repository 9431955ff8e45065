"""What an Encoder asks its scheduler for: the plan of several texts' vectors."""

from functools import partial
from typing import TYPE_CHECKING

from fastattn.encoders.loaded_encoder import plan_batches
from fastattn.encoders.long_text import refuse_long, split_long
from fastattn.encoders.vector_head import VectorHead, VectorOptions
from fastattn.scheduling.request import Plan
from fastattn.system.progress import Progress
from fastattn.vectors.quantized import quantize_vectors

if TYPE_CHECKING:  # with the tokenizers library, which an import of an Encoder does without
    from fastattn.text.huggingface import HuggingFaceTokenizer


class VectorPlans:
    """Makes plans, for one checkpoint's tokenizer and head and so many threads."""

    def __init__(self, tokenizer: "HuggingFaceTokenizer", head: VectorHead, threads: int):
        self._tokenizer, self._head, self._threads = tokenizer, head, threads

    def check(self, texts: list[str], options: VectorOptions, first: int = 0) -> None:
        """Raise the TextTooLongError that ``plan`` would."""
        if options.long == "error":
            texts = [options.prompt + text for text in texts]
            refuse_long(self._tokenizer, texts, self._tokenizer.encode(texts, self._threads), first, self._threads)

    def plan(self, texts: list[str], options: VectorOptions, progress: Progress | None = None, first: int = 0) -> Plan:
        """vectors_BE of the texts; ``first`` is the number of the first one, for errors."""
        if options.prompt:
            texts = [options.prompt + text for text in texts]
        ids_B = self._tokenizer.encode(texts, self._threads)
        windows = None
        if options.long == "error":
            refuse_long(self._tokenizer, texts, ids_B, first, self._threads)
        elif options.long == "mean":
            windows = split_long(self._tokenizer, texts, ids_B, options.prompt, self._threads)
        if windows is None:
            make = partial(self._head.vectors, options=options)
            vectors_BE = yield from plan_batches(ids_B, lambda _: make, options.width, self._threads, progress)
        else:
            make = partial(self._head.pooled, options=options)
            width = self._head.whole_width(options.pooling)
            pooled_WE = yield from plan_batches(windows.ids_W, lambda _: make, width, self._threads, progress)
            vectors_BE = self._head.finished(windows.means(pooled_WE), options)
        if options.output_dtype == "float32":
            return vectors_BE
        return quantize_vectors(vectors_BE, options.output_dtype, options.ranges_2E)
