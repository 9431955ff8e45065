"""Translation engines: for each engine and setting a function from texts and a beam size to texts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.encoders import BATCHES, Engine, Setting, thread_pairs

Translate = Callable[[list[str], int], list[str]]


def ours(folder: Path, threads: int, precision: str) -> dict[Setting, Translate]:
    from fastattn import Translator

    return _ours(Translator(folder, precision, threads))


def naive(folder: Path, threads: int, precision: str) -> dict[Setting, Translate]:
    """The same model on fastattn.ops.reference: NumPy, whose BLAS uses ``threads`` threads."""
    from fastattn import Translator
    from fastattn.ops import reference
    from fastattn.weights import read

    return _ours(Translator.from_checkpoint(read(folder), precision, threads=1, ops=reference))


class _Ours:
    """A Translator as a function."""

    def __init__(self, translator: Any):
        self.translator = translator

    def __call__(self, texts: list[str], beam: int) -> list[str]:
        return self.translator.translate(texts, beam_size=beam)


def _ours(translator: Any) -> dict[Setting, Translate]:
    return {Setting(): _Ours(translator)}


def ctranslate2(folder: Path, threads: int, precision: str) -> dict[Setting, Translate]:
    """CTranslate2 with sentencepiece before and after it, for several batch sizes and inter and intra threads."""
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


Make = Callable[[Path, int, str], dict[Setting, Translate]]  # (the model's folder, threads, precision)
TRANSLATORS: dict[str, Engine[Make]] = {
    "fastattn": Engine(ours),
    "NumPy": Engine(naive, (), ("float32",)),
    "CTranslate2": Engine(ctranslate2, ("ctranslate2", "sentencepiece"), ("float32", "int8")),
}
