"""NLLB-600M's shape with random weights in transformers, CTranslate2 and here: tokens in, targets of one length.

``python -m bench.nllb ENGINE PRECISION THREADS`` translates a batch and prints the process's largest memory in bytes.
"""

import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.translator_cases import NLLB
from bench.translator_models import TranslatorCase, build
from fastattn.system.cache_folder import cache_root

CASE = TranslatorCase(
    "nllb", "M2M100ForConditionalGeneration", "nllb", NLLB | {"encoder_layers": 12, "decoder_layers": 12},
    {"max_length": 200}, source="eng_Latn", target="fra_Latn", rows=256_206,
)  # fmt: skip
SOURCE, TARGET = 12, 6  # tokens, the languages' and the end among them
Translate = Callable[[Sequence[list[str]], int], list[list[str]]]  # (sources, beam size) -> targets without language


def folder(form: str) -> Path:
    """The model as "transformers" has it, or CTranslate2's folder in "float32" or "int8"; made where it is missing."""
    made = cache_root() / "bench" / "nllb-600M" / form
    if not made.exists():
        part = made.with_name(f"{form}.part")
        part.mkdir(parents=True)
        if form == "transformers":
            build(part, CASE)
        else:
            from bench.translator_comparison import converted

            converted(folder("transformers"), part, form)
        part.rename(made)
    return made


def sources(count: int) -> list[list[str]]:
    from fastattn.weights import read

    known = [token for token in read(folder("transformers")).text.source_vocabulary[4:] if token][:100]  # type: ignore[union-attr]
    rng = np.random.default_rng(3)
    return [[CASE.source, *rng.choice(known, SOURCE - 2).tolist(), "</s>"] for _ in range(count)]


def ours(precision: str, threads: int) -> Translate:
    from fastattn import Translator

    translator = Translator(folder("transformers" if precision == "float32" else "int8"), precision, threads, 1)

    def translate(given: Sequence[list[str]], beam: int) -> list[list[str]]:
        length = {"min_decoding_length": TARGET, "max_decoding_length": TARGET}
        prefixes = [[CASE.target]] * len(given)
        return [one.tokens[1:] for one in translator.translate_tokens(given, prefixes, beam_size=beam, **length)]

    return translate


def ctranslate2(precision: str, threads: int) -> Translate:
    import ctranslate2

    translator = ctranslate2.Translator(str(folder(precision)), compute_type=precision, intra_threads=threads)

    def translate(given: Sequence[list[str]], beam: int) -> list[list[str]]:
        found = translator.translate_batch(
            list(given), target_prefix=[[CASE.target]] * len(given), beam_size=beam,
            min_decoding_length=TARGET, max_decoding_length=TARGET,
        )  # fmt: skip
        return [one.hypotheses[0][1:] for one in found]

    return translate


def transformers(precision: str, threads: int) -> Translate:
    import torch
    from transformers import M2M100ForConditionalGeneration

    from fastattn.weights import read

    assert precision == "float32"
    torch.set_num_threads(threads)
    vocabulary = read(folder("transformers")).text.source_vocabulary  # type: ignore[union-attr]
    ids = {token: index for index, token in enumerate(vocabulary)}
    model: Any = M2M100ForConditionalGeneration.from_pretrained(folder("transformers"), dtype=torch.float32).eval()

    def translate(given: Sequence[list[str]], beam: int) -> list[list[str]]:
        rows = torch.tensor([[ids[token] for token in source] for source in given])
        with torch.inference_mode():
            found = model.generate(
                input_ids=rows, attention_mask=torch.ones_like(rows), forced_bos_token_id=ids[CASE.target],
                num_beams=beam, do_sample=False, min_new_tokens=TARGET, max_new_tokens=TARGET,
            )  # fmt: skip
        return [[vocabulary[index] for index in row[2:]] for row in found.tolist()]

    return translate


ENGINES = {"fastattn": ours, "CTranslate2": ctranslate2, "transformers": transformers}

if __name__ == "__main__":
    ENGINES[sys.argv[1]](sys.argv[2], int(sys.argv[3]))(sources(32), 4)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
