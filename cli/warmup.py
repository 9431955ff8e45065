"""``fastattn warmup``: compiles all kernels ahead of time."""

import json
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from fastattn.cli.printing import Compilation, Progress
from fastattn.errors import FastattnError
from fastattn.printable import counted
from fastattn.spec.architecture import (
    AttentionSpec,
    FeedForwardSpec,
    HeadSpec,
    LocalSpec,
    ModelSpec,
    NormSpec,
    PositionSpec,
    RecurrenceSpec,
    Rotary,
    StackSpec,
)
from fastattn.spec.recurrent import MemoryAttention, Readout, RecurrentSpec

if TYPE_CHECKING:
    from fastattn.spec.checkpoint import Checkpoint


@click.command(
    epilog="""\b
Examples:
  fastattn warmup
  FASTATTN_CACHE=/data/fastattn fastattn warmup   e.g. for an image

\b
Without it the first translation or encoding compiles the kernels it needs.
Kernels are compiled once for a CPU, Numba and fastattn version, and kept in
the cache folder.
"""
)
def warmup() -> None:
    """Compile all kernels for this machine now."""
    start = time.monotonic()
    with Progress() as progress:
        compilation = Compilation(progress)
        from fastattn.runtime import compiling
        from fastattn.runtime.threads import thread_limit

        processes = min(thread_limit(), _MOST_PROCESSES)
        program = "from fastattn.cli.warmup import run_jobs; run_jobs({}, {})"
        compiling.programs[:] = [program.format(number, processes) for number in range(1, processes)]
        earlier = _count_kept()
        run_jobs(0, processes)
    if compiling.cache_fault():
        raise FastattnError("no kernel was kept: the next run will compile again")
    report = f"{counted(_count_kept() - earlier, 'kernel')} compiled in {time.monotonic() - start:.1f} s"
    click.echo(report if compilation.kernels else "all was compiled")


def _count_kept() -> int:
    """The number of compiled variants of kernels in the cache folder."""
    from fastattn.runtime.handle import cache_folder

    return len(list(cache_folder().glob("*-*[0-9a-f]")))  # not an unfinished file's name, nor a claim's


def run_jobs(number: int, processes: int) -> None:
    """Run all jobs in the order of process ``number`` of several: neighbours work towards each other.

    A process that finds a kernel compiled loads it, so together the processes compile each kernel once.
    """
    jobs = _jobs()
    first = len(jobs) * (number + number % 2) // processes
    jobs = jobs[first:] + jobs[:first]
    for job in reversed(jobs) if number % 2 else jobs:
        job()


def _jobs() -> list[Callable[[], Any]]:
    """Small models and operations that together run every kernel, in each precision."""
    with_norms: dict[str, Any] = {
        "attention": AttentionSpec(heads=2, key_heads=1, head_width=32, head_norms=True),
        "norms": NormSpec("rms", output=True),
        "positions": PositionSpec("rotary", limit=_WORDS, rotary=Rotary(width=32, interleaved=False)),
        "local": LocalSpec((0,), before=64, after=64),
        "feed_forward": FeedForwardSpec(inner_width=64, gated=True),
    }
    disentangled: dict[str, Any] = {"positions": PositionSpec("disentangled", max_distance=_WORDS)}
    jobs = [partial(_encode, precision, variety) for precision in _PRECISIONS for variety in ({}, with_norms)]
    jobs += [partial(job, precision) for precision in _PRECISIONS for job in (_predict, _generate)]
    jobs.append(partial(_encode, "float32", disentangled))
    rotary_positions = PositionSpec("rotary", limit=_WORDS, rotary=Rotary(width=8))
    rotary = {"positions": rotary_positions, "norms": NormSpec("rms", final=False)}
    jobs += [
        partial(_translate_by_stacks, "float32", {}),
        partial(_translate_by_stacks, "bfloat16", {}),
        partial(_translate_by_stacks, "int8", {}, quantized=True),
        partial(_translate_by_stacks, "float32", rotary, quantized=True, recurrence="ssru"),
        partial(_translate_by_stacks, "bfloat16", {}, recurrence="average-attention"),
    ]
    # The LSTM has additive attention, feeds its readout back and begins from a bridge; the GRU does none of these.
    additive, readout = MemoryAttention("additive", 1, width=64), Readout(("context", "hidden"), 64, "tanh")
    heads = MemoryAttention("multi-head", 0, width=64, heads=2)
    lstm = _recurrent("lstm", attention=additive, readout=readout, feeds=True, initial="bridge")
    gru = _recurrent("gru", attention=heads, initial="encoder")
    jobs += [partial(_translate, stacks, p) for p, stacks in product(("float32", "bfloat16", "int8"), (lstm, gru))]
    return [*jobs, _search, _convolve]


def _encode(precision: str, variety: dict[str, Any]) -> None:
    from fastattn.encoders.encoder import Encoder

    Encoder.from_checkpoint(_encoder_checkpoint(**variety), precision).encode("word " * _WORDS)


def _predict(precision: str) -> None:
    from fastattn.encoders.masked_language_model import MaskedLanguageModel
    from fastattn.encoders.sparse_encoder import SparseEncoder

    checkpoint = _encoder_checkpoint(predicts=True)
    SparseEncoder.from_checkpoint(checkpoint, precision).encode("word " * _WORDS)
    MaskedLanguageModel.from_checkpoint(checkpoint, precision).fill("[MASK]")


def _generate(precision: str) -> None:
    from fastattn.generation.generator import Generator

    generator = Generator.from_checkpoint(_generator_checkpoint(), precision)
    for options in ({}, {"beam_size": 2}, {"sampling_temperature": 1.0}):
        generator.generate("word " * _WORDS, max_new_tokens=4, **options)
    generator.score("word " * 3)


def _translate_by_stacks(precision: str, variety: Any, quantized: bool = False, recurrence: str = "") -> None:
    import dataclasses

    changes: dict[str, Any] = {"cross_attention": True}  # from the encoder's stack to the decoder's
    if recurrence:  # a decoder with a recurrence takes no rotary positions
        changes |= {"positions": PositionSpec("none", limit=_WORDS), "recurrence": RecurrenceSpec(recurrence)}
    stacks = _stack(**variety), dataclasses.replace(_stack(**variety), **changes)
    _translate(stacks, precision, quantized)


def _translate(stacks: tuple[Any, Any], precision: str, quantized: bool = False) -> None:
    from fastattn.translation.translator import Translator

    translator = Translator.from_checkpoint(_translation_checkpoint(stacks, quantized), precision)
    for shortlist, beam_size in product((True, False), (1, 2)):
        options: dict[str, Any] = {"beam_size": beam_size, "shortlist": shortlist}
        translator.translate("word", min_decoding_length=2, max_decoding_length=6, **options)
    translator.score(["word"], ["word"])


def _search() -> None:
    """Search vectors of each type."""
    import numpy as np

    from fastattn.vectors.search import semantic_search

    for dtype, function in ((np.float32, "dot"), (np.int8, "dot"), (np.uint8, "dot"), (np.uint8, "hamming")):
        vectors_ND = np.ones((1, 8), dtype)
        semantic_search(vectors_ND, vectors_ND, 1, function)


def _convolve() -> None:
    """Run each operation on images, and convolutions in each precision and shape."""
    import numpy as np

    from fastattn.arguments.images import PixelGrid, Window
    from fastattn.ops import cpu as operations

    grid, x_ND, filters_TD = PixelGrid(1, 2, 2), np.ones((4, 32), np.float32), np.ones((9, 32), np.float32)
    window, point = Window((3, 3), padding=(1, 1)), Window((1, 1))
    convolutions = ("float32", point), ("float32", window), ("bfloat16", window), ("int8", window), ("int4", window)
    for precision, shape in convolutions:
        weight_FD = np.ones((32, 32 * shape.size[0] * shape.size[1]), np.float32)
        operations.convolve(x_ND, grid, shape, [operations.pack_linear(weight_FD, None, precision)])
    operations.convolve_depthwise(x_ND, grid, window, filters_TD)
    operations.pool_windows(x_ND, grid, window, "max")
    operations.sample_pixels(x_ND, grid, np.zeros((1, 1, 2), np.float32), "edge")
    operations.gate_pixels(x_ND, grid)


def _stack(**variety: Any) -> StackSpec:
    parts: dict[str, Any] = {
        "attention": AttentionSpec(heads=2, key_heads=2, head_width=32),
        "feed_forward": FeedForwardSpec(inner_width=64),
        "norms": NormSpec(before=False, final=False),
        "positions": PositionSpec("table", limit=_WORDS),
    }
    return StackSpec(layers=1, width=64, vocabulary=len(_PIECES), **parts | variety)


def _recurrent(cell: str, **decoder: Any) -> tuple[RecurrentSpec, RecurrentSpec]:
    """The specs of a recurrent encoder and of a decoder that reads its output."""
    layer: dict[str, Any] = {"cell": cell, "layers": 1, "units": 64, "vocabulary": len(_PIECES), "embedding_width": 64}
    encoder = RecurrentSpec(**layer, backward=True)
    return encoder, RecurrentSpec(**layer, **decoder, memory=encoder.width, memory_states=encoder.states)


_PRECISIONS = "float32", "bfloat16", "int8", "int4"
_MOST_PROCESSES = 4  # each takes 250 MB; more would wait for each other
# Words of a text: enough for kernels to share the work among threads, too few for a batch on each thread.
_WORDS = 512
_PIECES = ("<unk>", "<s>", "</s>", "▁word")


def _encoder_checkpoint(predicts: bool = False, **variety: Any) -> "Checkpoint":
    """An encoder's checkpoint; ``predicts``: with a head that predicts tokens."""
    from fastattn.spec.text_spec import EncoderText

    text = EncoderText(tokenizer=_tokenizer(), max_length=_WORDS, mask_token="[MASK]")
    gelu = FeedForwardSpec(inner_width=64, activation="gelu")
    norms = NormSpec(before=False, final=False, embedding=True)
    stack = _stack(**{"feed_forward": gelu, "norms": norms} | variety)
    head = HeadSpec("each", stack.vocabulary, inner_width=64, activation="gelu", norm=NormSpec()) if predicts else None
    return _checkpoint(ModelSpec("encoder", stack, head=head), text)


def _generator_checkpoint() -> "Checkpoint":
    from fastattn.spec.text_spec import GeneratorText

    variety: dict[str, Any] = {
        "attention": AttentionSpec(heads=2, key_heads=1, head_width=32),
        "norms": NormSpec("rms"),
        "positions": PositionSpec("rotary"),
        "feed_forward": FeedForwardSpec(inner_width=64, activation="swish", gated=True),
    }
    return _checkpoint(ModelSpec("decoder", decoder=_stack(**variety)), GeneratorText(_tokenizer()))


def _tokenizer() -> bytes:
    model = {"type": "WordLevel", "vocab": {"<unk>": 0, "word": 1, "[MASK]": 2}, "unk_token": "<unk>"}
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}
    return json.dumps(tokenizer).encode()


def _translation_checkpoint(stacks: Iterable[Any], quantized: bool = False) -> "Checkpoint":
    import dataclasses

    import numpy as np

    from fastattn.spec.checkpoint import Shortlist
    from fastattn.spec.text_spec import TranslationText

    checkpoint = _checkpoint(ModelSpec("encoder-decoder", *stacks), TranslationText(_PIECES, _PIECES), quantized)
    ids = np.arange(len(_PIECES), dtype=np.int32)
    return dataclasses.replace(checkpoint, shortlist=Shortlist(ids, np.zeros(len(_PIECES) + 1, np.int32), ids[:0]))


def _checkpoint(spec: Any, text: Any, quantized: bool = False) -> "Checkpoint":
    """A checkpoint whose weights are all 1, matrices int8 if ``quantized``: compiling needs only types and shapes."""
    import numpy as np

    from fastattn.spec.checkpoint import Checkpoint
    from fastattn.spec.quantized import QuantizedTensor
    from fastattn.spec.tensors import tensor_shapes

    tensors: dict[str, Any] = {}
    for name, shape in tensor_shapes(spec).items():
        tensors[name] = np.ones(shape, np.float32)
        if quantized and len(shape) == 2 and name.endswith(".weight"):
            tensors[name] = QuantizedTensor(np.ones(shape, np.int8), np.ones(shape[0], np.float32))
    return Checkpoint(spec, tensors, text)
