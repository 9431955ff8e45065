"""The actor to which Ray Data gives blocks: it reads a block from storage, lets a model answer, and writes the output.

Only a short record goes back to the driver; texts never pass through Ray. An actor has several blocks in progress,
whose texts share the model's batches, so that the model never waits for reading, writing or a block's last sentences.
"""

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fastattn._version import VERSION
from fastattn.distributed.extra import import_pyarrow
from fastattn.distributed.formats import read_block
from fastattn.distributed.formats.blocks import BlockRows, CorpusBlock
from fastattn.distributed.job import CorpusJob
from fastattn.distributed.model_source import ModelSource, local_path
from fastattn.distributed.output_folder import OutputFolder, as_file
from fastattn.distributed.storage import public_url
from fastattn.errors import FastattnError, InputError, SearchTimeout, StorageError
from fastattn.ops import check_device
from fastattn.system.records import dataclass


@dataclass
class Answers:
    """columns  name -> pyarrow array, null where there is no text or the text failed
    faults   index of a text -> why the text failed
    tokens   how many tokens a translator produced, or an encoder read (estimated from a sample)
    cut      how many texts were cut, since they were longer than the encoder takes
    """

    columns: dict[str, Any]
    faults: dict[int, str]
    tokens: int
    cut: int = 0


class BlockModel(Protocol):
    """A model with its options.

    outputs    names of the columns that ``answer`` computes
    precision  the model's, never "auto"
    options    the options without those whose value is the default of every model
    layer_weights  how many weights a step goes through; ``processes/choice.py`` asks for it

    A class takes a path, a precision, a number of threads, the first column's name and options, "device" among them. If
    the number of threads is None, the object is only for checking the options, on the CPU.
    """

    outputs: tuple[str, ...]
    precision: str
    options: dict[str, Any]
    layer_weights: int

    def answer(self, texts: Sequence[str | None]) -> Answers: ...


def _device(threads: int | None, options: dict[str, Any]) -> str:
    """Remove "device" from the options and return it; "cpu" if the options are only checked."""
    device = options.pop("device", "cpu")
    check_device(device)
    return "cpu" if threads is None else device


def _non_defaults(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in defaults or value != defaults[name]}


class BlockTranslator:
    """A BlockModel of ``Translator.translate_iter``, whose options it takes.

    Columns: ``output``, the best translation; with num_hypotheses above 1 also "hypotheses", a list of texts; with
    return_scores "score", or "scores", a list.
    """

    # Defaults of the options that have the same default with every checkpoint.
    DEFAULTS: dict[str, Any] = {"device": "cpu", "num_hypotheses": 1, "patience": 1.0} | dict.fromkeys(
        ("target_prefix", "source_lang", "target_lang", "split", "max_input_length", "seed", "timeout")
    )
    DEFAULTS |= dict.fromkeys(("coverage_penalty", "presence_penalty", "frequency_penalty"), 0.0)
    DEFAULTS |= dict.fromkeys(("prefix_bias_beta", "min_alternative_expansion_prob"), 0.0)
    DEFAULTS |= dict.fromkeys(("return_alternatives", "return_end_token", "return_scores", "replace_unknowns"), False)

    def __init__(self, path: Path, precision: str, threads: int | None, output: str, options: Mapping[str, Any]):
        from fastattn.translation.translator import Translator

        self.options, options = _non_defaults(options, self.DEFAULTS), dict(options)
        self._translator = Translator(path, precision, threads, 1, _device(threads, options))
        # Greedy search is faster without scores.
        self._options = {"return_scores": False, **options, "details": True, "return_exceptions": True}
        self._translator.translate_iter((), **self._options)  # checks the options
        self._has_several, self._has_scores = options.get("num_hypotheses", 1) > 1, bool(options.get("return_scores"))
        scores = ["scores" if self._has_several else "score"] * self._has_scores
        self.outputs = (output, *["hypotheses"] * self._has_several, *scores)
        self.precision = self._translator.precision
        self.layer_weights = self._translator.layer_weights

    def answer(self, texts: Sequence[str | None]) -> Answers:
        """Raises FastattnError for an error that is not of one text alone."""
        text_of = {number: text for number, text in enumerate(texts) if text is not None}
        results: list[Any] = [None] * len(texts)
        faults: dict[int, str] = {}
        tokens = 0
        outcomes: Iterator[Any] = self._translator.translate_iter(iter(text_of.values()), **self._options)
        for number, outcome in zip(text_of, outcomes):
            if isinstance(outcome, InputError | SearchTimeout):
                faults[number] = str(outcome)
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                results[number] = outcome
                tokens += sum(len(part.tokens) for part in outcome.parts)
        pa = import_pyarrow()
        columns = [pa.array([result and _encodable(result.text) for result in results], pa.string())]
        if self._has_several:
            lists = [result and [_encodable(text) for text in result.hypotheses] for result in results]
            columns.append(pa.array(lists, pa.list_(pa.string())))
        if self._has_scores:
            scores = [result and (result.scores if self._has_several else result.scores[0]) for result in results]
            columns.append(pa.array(scores, pa.list_(pa.float32()) if self._has_several else pa.float32()))
        return Answers(dict(zip(self.outputs, columns, strict=True)), faults, tokens)


def _encodable(text: str) -> str:
    """A text without halves of surrogate pairs, which byte tokens can make but UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


class BlockEncoder:
    """A BlockModel of ``Encoder.encode``, whose options it takes. Column: ``output``, lists of fixed size."""

    # Values that are the default of every checkpoint; None stands for the checkpoint's own, if it has one.
    DEFAULTS = {"device": "cpu", "long": "truncate", "output_dtype": "float32"} | dict.fromkeys(
        ("task", "prompt_name", "prompt", "normalize_embeddings", "truncate_dim", "pooling")
    )
    _SAMPLED_TEXTS = 64  # texts of a block whose tokens are counted

    def __init__(self, path: Path, precision: str, threads: int | None, output: str, options: Mapping[str, Any]):
        from fastattn.encoders.encoder import Encoder, TokenLimit

        self.options = _non_defaults(options, self.DEFAULTS)
        encode_options = dict(options)
        if encode_options.get("ranges") is not None:
            encode_options["ranges"] = np.asarray(encode_options["ranges"], np.float32)
        self._encoder = Encoder(path, precision, threads, 1, _device(threads, encode_options))
        self._empty_0E = self._encoder.encode([], **encode_options)
        self._options = encode_options
        self._limit = TokenLimit(self._encoder, encode_options)
        self.outputs, self.precision = (output,), self._encoder.precision
        self.layer_weights = self._encoder.layer_weights

    def answer(self, texts: Sequence[str | None]) -> Answers:
        text_of = {number: text for number, text in enumerate(texts) if text is not None}
        refusals: dict[int, str] = {}
        if self._options.get("long", "truncate") != "mean":
            numbers, exceeded = list(text_of), self._limit.exceeded(list(text_of.values()))
            refusals = {numbers[index]: self._limit.refusal(tokens) for index, tokens in exceeded.items()}
        faults = refusals if self._options.get("long") == "error" else {}
        text_of = {number: text for number, text in text_of.items() if number not in faults}
        numbers, encoded_texts, pa = list(text_of), list(text_of.values()), import_pyarrow()
        vectors_BE, is_null_B = self._encoder.encode(encoded_texts, **self._options), np.zeros(len(texts), bool)
        width = self._empty_0E.shape[1]
        if len(numbers) < len(texts):
            encoded_NE, vectors_BE = vectors_BE, np.zeros((len(texts), width), self._empty_0E.dtype)
            vectors_BE[numbers] = encoded_NE
            is_null_B[:] = True
            is_null_B[numbers] = False
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors_BE.reshape(-1)), width, mask=pa.array(is_null_B))
        # Counting the tokens of all texts would take a tenth of the block's time.
        sample = encoded_texts[:: max(1, len(encoded_texts) // self._SAMPLED_TEXTS)]
        tokens = 0
        if characters := sum(map(len, sample)):
            tokens = round(int(self._encoder.count_tokens(sample).sum()) * sum(map(len, encoded_texts)) / characters)
        return Answers({self.outputs[0]: column}, faults, tokens, len(refusals) - len(faults))


BLOCK_MODELS: dict[str, Any] = {"translate": BlockTranslator, "encode": BlockEncoder}


def make_model(
    kind: str, source: ModelSource, precision: str, threads: int, output: str, options: Mapping[str, Any]
) -> BlockModel:
    """The model of an actor's process, which uses at most ``threads`` threads of its host."""
    # By default the tokenizers library starts as many threads as there are CPUs.
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    model: BlockModel = BLOCK_MODELS[kind](local_path(source), precision, threads, output, options)
    return model


BLOCKS_AT_ONCE = 3  # of an actor; with 2, blocks of 1,000 sentences took 10% more CPU, and left 10% of two cores idle
FIRST_FAULTS = 10  # in the record of a block
# Outcomes of a block, or of the start of an actor.
FINISHED, FAILED, STOPPED = "finished", "failed", "stopped"


class BlockWorker:
    """A callable class for ``Dataset.map_batches``: a batch is a block as JSON, the result its outcome as JSON.

    If an actor's model or storage fails, the outcome has the reason, with which the driver ends the job.
    """

    def __init__(self, job: bytes, out: str, model: ModelSource, threads: int):
        self._start_error = None
        self._host = f"{socket.gethostname()}:{os.getpid()}"
        try:
            self._job = CorpusJob.from_json(job, out)
            if self._job.version != VERSION:
                versions = f"has fastattn {VERSION}, the job is of {self._job.version}"
                raise FastattnError(f"host {socket.gethostname()} {versions}")
            self._folder = OutputFolder(out, self._job.form)
            options = dict(self._job.options)
            precision = options.pop("precision")
            self._model = make_model(self._job.kind, model, precision, threads, self._job.outputs[0], options)
        except Exception as error:  # noqa: BLE001  the driver raises it
            self._start_error = _error_text(error)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        return {"outcome": [json.dumps(self._outcome(CorpusBlock(**json.loads(block)))) for block in batch["block"]]}

    def _outcome(self, block: CorpusBlock) -> dict[str, Any]:
        if self._start_error is not None:
            return {"outcome": STOPPED, "block": block.number, "error": self._start_error}
        try:
            record = self._folder.finished_block(block.number) or self._compute(block)
        except StorageError as error:
            return {"outcome": STOPPED, "block": block.number, "error": _error_text(error)}
        except Exception as error:  # noqa: BLE001  only this block fails
            return {"outcome": FAILED, "block": block.number, "error": f"{_error_text(error)} (on {self._host})"}
        return {"outcome": FINISHED, **record}

    def _compute(self, block: CorpusBlock) -> dict[str, Any]:
        start = time.perf_counter()
        rows = read_block(block, self._job.column)
        answers = self._model.answer(rows.texts)
        data = as_file(rows, answers.columns, self._job.form)
        record = _record(block, rows, answers) | {"seconds": time.perf_counter() - start, "host": self._host}
        return self._folder.write_block(block.number, data, record)


def _record(block: CorpusBlock, rows: BlockRows, answers: Answers) -> dict[str, Any]:
    unit = "row" if block.form == "parquet" else "byte"
    faults = rows.faults | {
        number: f"{public_url(block.url)}, {unit} {rows.starts[number]}: {reason}"
        for number, reason in answers.faults.items()
    }
    null_count = sum(text is None for text in rows.texts) - len(rows.faults)
    return {
        "block": block.number,
        **block.location,
        "rows": rows.count,
        "null": null_count,
        "cut": answers.cut,
        "faults": len(faults),
        "fault_at": rows.starts[min(faults)] if faults else 0,
        "first_faults": [reason for _, reason in sorted(faults.items())[:FIRST_FAULTS]],
        "tokens": answers.tokens,
        "input": rows.digest,
        "size": block.size,
    }


def _error_text(error: Exception) -> str:
    return str(error) if isinstance(error, FastattnError) else f"{type(error).__name__}: {error}"
