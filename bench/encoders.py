"""Sentence encoders and translators: for each engine and setting a function from texts, tokenizing included."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.convert import converted


class Tokenizer:
    """tokenizer.json through its own library, truncated to the model's limit; batches of similar length."""

    def __init__(self, folder: Path):
        from tokenizers import Tokenizer as Library

        limits = json.loads((folder / "sentence_bert_config.json").read_text(encoding="utf-8"))
        self.library = Library.from_file(str(folder / "tokenizer.json"))
        self.library.no_padding()
        self.library.enable_truncation(limits["max_seq_length"])

    def batches(self, texts: list[str], size: int) -> Iterator[tuple[list[int], list[list[int]]]]:
        """Yield (indices of the texts, their ids)."""
        ids = [encoding.ids for encoding in self.library.encode_batch(texts)]
        order = sorted(range(len(ids)), key=lambda b: -len(ids[b]))
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            yield batch, [ids[b] for b in batch]


Encode = Callable[[list[str]], np.ndarray]
BATCHES = (16, 32, 64)


class Setting(NamedTuple):
    """A setting of an engine to try; empty for an engine that chooses by itself."""

    batch: int = 0
    threads: str = ""

    def __str__(self) -> str:
        return ", ".join(part for part in (f"batches of {self.batch}" if self.batch else "", self.threads) if part)


@dataclass(frozen=True)
class Engine:
    """The function that makes an engine's calls, the libraries it needs besides fastattn, its precisions.

    ``make`` returns no calls if this CPU lacks the precision.
    """

    make: Callable[..., dict[Setting, Any]]
    libraries: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ("float32", "bfloat16", "int8")


def alone(calls: dict[Setting, Any]) -> dict[Setting, Any]:
    """The settings that differ for one text at a time, where the batch size has no effect."""
    return {Setting(0, setting.threads): call for setting, call in calls.items()}


def ours(folder: Path, threads: int, precision: str, cache: Path) -> dict[Setting, Encode]:
    from fastattn import Encoder

    return {Setting(): Encoder(folder, precision, threads).encode}


def naive(folder: Path, threads: int, precision: str, cache: Path) -> dict[Setting, Encode]:
    """The same model on fastattn.ops.reference: NumPy, whose BLAS uses ``threads`` threads."""
    from fastattn import Encoder
    from fastattn.ops import reference
    from fastattn.weights import read

    return {Setting(): Encoder.from_checkpoint(read(folder), precision, threads=1, ops=reference).encode}


def sentence_transformers(folder: Path, threads: int, precision: str, cache: Path) -> dict[Setting, Encode]:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": precision})
    return {Setting(size): partial(model.encode, batch_size=size, show_progress_bar=False) for size in BATCHES}


def encode_batches(
    tokenizer: Tokenizer, size: int, width: int, run: Callable[[list[list[int]]], np.ndarray], workers: int = 1
) -> Encode:
    """MiniLM's pooling of the rows [B, T, D] that ``run`` gives: their mean, scaled to unit length."""

    def encode(texts: list[str]) -> np.ndarray:
        vectors = np.empty((len(texts), width), np.float32)

        def pool(batch: tuple[list[int], list[list[int]]]) -> None:
            numbers, ids = batch
            rows_BTD, lengths_B = run(ids), np.array([len(row) for row in ids])
            seen_BT1 = (np.arange(rows_BTD.shape[1]) < lengths_B[:, None])[:, None].astype(np.float32)
            sums_BD = (seen_BT1 @ rows_BTD)[:, 0]
            vectors[numbers] = sums_BD / np.linalg.norm(sums_BD, axis=1, keepdims=True)

        batches = tokenizer.batches(texts, size)
        if workers == 1:
            list(map(pool, batches))
        else:
            with ThreadPoolExecutor(workers) as executor:
                list(executor.map(pool, batches))
        return vectors

    return encode


def ctranslate2(folder: Path, threads: int, precision: str, cache: Path) -> dict[Setting, Encode]:
    import ctranslate2

    model = converted(folder, cache, "CTranslate2", precision)
    tokenizer, width = Tokenizer(folder), _width(folder)

    def encoders(inter: int, intra: int) -> dict[Setting, Encode]:
        encoder = ctranslate2.Encoder(str(model), compute_type=precision, inter_threads=inter, intra_threads=intra)

        def run(ids: list[list[int]]) -> np.ndarray:
            return np.asarray(encoder.forward_batch(ids).last_hidden_state)

        return {
            Setting(size, f"inter {inter}, intra {intra}"): encode_batches(tokenizer, size, width, run, inter)
            for size in BATCHES
        }

    return {name: call for pair in thread_pairs(threads) for name, call in encoders(*pair).items()}


def thread_pairs(threads: int) -> list[tuple[int, int]]:
    """The two extreme (inter, intra) threads of CTranslate2 whose product is ``threads``."""
    return list(dict.fromkeys([(1, threads), (threads, 1)]))


def onnx_runtime(folder: Path, threads: int, precision: str, cache: Path) -> dict[Setting, Encode]:
    from bench.onnx_session import session

    runner = session(str(converted(folder, cache, "ONNX Runtime", precision)), threads)

    def run(ids: list[list[int]]) -> np.ndarray:
        padded = np.zeros((len(ids), max(map(len, ids))), np.int32)
        for row, sentence in zip(padded, ids, strict=True):
            row[: len(sentence)] = sentence
        return runner.run(None, {"ids": padded, "lengths": np.array([len(s) for s in ids], np.int32)})[0]

    tokenizer, width = Tokenizer(folder), _width(folder)
    return {Setting(size): encode_batches(tokenizer, size, width, run) for size in (8, *BATCHES)}


# OpenVINO's precision hint, without which it may choose bfloat16; an int8 model's graph has its precisions.
OPENVINO_HINTS = {"float32": {"INFERENCE_PRECISION_HINT": "f32"}, "bfloat16": {"INFERENCE_PRECISION_HINT": "bf16"}}


def openvino(folder: Path, threads: int, precision: str, cache: Path) -> dict[Setting, Encode]:
    """All threads share one request at a time."""
    import openvino

    if precision == "bfloat16" and "BF16" not in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        return {}
    model = converted(folder, cache, "OpenVINO", "int8" if precision == "int8" else "float32")
    settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, **OPENVINO_HINTS.get(precision, {})}
    request = openvino.compile_model(model / "model.xml", "CPU", settings).create_infer_request()

    def run(ids: list[list[int]]) -> np.ndarray:
        ids_BT = np.zeros((len(ids), max(map(len, ids))), np.int64)
        mask_BT = np.zeros_like(ids_BT)
        for b, row in enumerate(ids):
            ids_BT[b, : len(row)], mask_BT[b, : len(row)] = row, 1
        return np.array(request.infer([ids_BT, mask_BT])[0])

    tokenizer, width = Tokenizer(folder), _width(folder)
    return {Setting(size): encode_batches(tokenizer, size, width, run) for size in (8, 16, 32)}


def _width(folder: Path) -> int:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))["hidden_size"]


ENCODERS = {  # made of the model's folder, threads, precision and a folder for its copies
    "fastattn": Engine(ours),
    "NumPy": Engine(naive, (), ("float32",)),
    "sentence-transformers": Engine(sentence_transformers, ("sentence_transformers",), ("float32", "bfloat16")),
    "CTranslate2": Engine(ctranslate2, ("ctranslate2", "transformers", "torch"), ("float32", "int8")),
    "ONNX Runtime": Engine(onnx_runtime, ("onnx", "onnxruntime"), ("float32", "int8")),
    "OpenVINO": Engine(openvino, ("openvino", "nncf", "transformers", "torch")),
}


Translate = Callable[[list[str], int], list[str]]


def our_translator(folder: Path, threads: int, precision: str) -> dict[Setting, Translate]:
    from fastattn import Translator

    return {Setting(): _Ours(Translator(folder, precision, threads))}


def naive_translator(folder: Path, threads: int, precision: str) -> dict[Setting, Translate]:
    from fastattn import Translator
    from fastattn.ops import reference
    from fastattn.weights import read

    return {Setting(): _Ours(Translator.from_checkpoint(read(folder), precision, threads=1, ops=reference))}


class _Ours:
    def __init__(self, translator: Any):
        self.translator = translator

    def __call__(self, texts: list[str], beam: int) -> list[str]:
        return self.translator.translate(texts, beam_size=beam)


def ctranslate2_translator(folder: Path, threads: int, precision: str) -> dict[Setting, Translate]:
    import ctranslate2
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))

    def translators(inter: int, intra: int) -> dict[Setting, Translate]:
        engine = ctranslate2.Translator(
            str(folder / "model"), compute_type=precision, inter_threads=inter, intra_threads=intra
        )

        def translate(size: int) -> Translate:
            def run(texts: list[str], beam: int) -> list[str]:
                results = engine.translate_batch(
                    pieces.encode(texts, out_type=str), beam_size=beam, max_batch_size=size, max_decoding_length=256
                )
                return ["".join(result.hypotheses[0]).replace("\u2581", " ").strip() for result in results]

            return run

        return {Setting(size, f"inter {inter}, intra {intra}"): translate(size) for size in BATCHES}

    return {name: call for pair in thread_pairs(threads) for name, call in translators(*pair).items()}


TRANSLATORS = {  # made of the model's folder, threads and precision
    "fastattn": Engine(our_translator),
    "NumPy": Engine(naive_translator, (), ("float32",)),
    "CTranslate2": Engine(ctranslate2_translator, ("ctranslate2", "sentencepiece"), ("float32", "int8")),
}
