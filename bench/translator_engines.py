"""Published shapes with random weights in transformers, CTranslate2 and here: tokens in, targets of one length.

``python -m bench.translator_engines ENGINE PRECISION`` translates a batch with NLLB-600M's shape on one thread and
prints the process's largest memory in bytes.
"""

import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.translator_cases import NLLB, T5
from bench.translator_models import TranslatorCase, build
from fastattn.system.cache_folder import cache_root

NLLB_600M = TranslatorCase(
    "nllb-600M", "M2M100ForConditionalGeneration", "nllb", NLLB | {"encoder_layers": 12, "decoder_layers": 12},
    {"max_length": 200}, source="eng_Latn", target="fra_Latn", rows=256_206,
)  # fmt: skip
SIZES = {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_decoder_layers": 12, "num_heads": 12}
T5_BASE = TranslatorCase(
    "t5-base", "T5ForConditionalGeneration", "t5", T5 | SIZES | {"initializer_factor": 1.0}, {"max_length": 200},
    rows=32_128,
)  # fmt: skip
Translate = Callable[[Sequence[list[str]], int, int], list[list[str]]]  # (sources, beam size, a target's tokens)


def folder(case: TranslatorCase, form: str) -> Path:
    """The model as "transformers" has it, or CTranslate2's folder in "float32" or "int8"; made where it is missing."""
    made = cache_root() / "bench" / case.name / form
    if not made.exists():
        part = made.with_name(f"{form}.part")
        part.mkdir(parents=True)
        if form == "transformers":
            build(part, case)
        else:
            from bench.translator_comparison import converted

            converted(folder(case, "transformers"), part, form)
        part.rename(made)
    return made


def _vocabulary(case: TranslatorCase) -> Any:
    from fastattn.weights import read

    return read(folder(case, "transformers")).text.source_vocabulary  # type: ignore[union-attr]


def make_sources(case: TranslatorCase, count: int, shortest: int, longest: int) -> list[list[str]]:
    """Random tokens, so many at least and at most, between the language, if there is one, and the end."""
    known, rng = [token for token in _vocabulary(case)[4:] if token][:100], np.random.default_rng(3)
    language = [case.source] if case.source else []
    lengths = rng.integers(shortest, longest + 1, count)
    return [[*language, *rng.choice(known, length).tolist(), "</s>"] for length in lengths]


def _prefixes(case: TranslatorCase, sources: Sequence[list[str]]) -> list[list[str]] | None:
    return [[case.target]] * len(sources) if case.target else None


def ours(case: TranslatorCase, precision: str, threads: int) -> Translate:
    from fastattn import Translator

    translator = Translator(folder(case, precision), precision, threads, 1)

    def translate(sources: Sequence[list[str]], beam: int, tokens: int) -> list[list[str]]:
        lengths = {"min_decoding_length": tokens, "max_decoding_length": tokens}
        found = translator.translate_tokens(sources, _prefixes(case, sources), beam_size=beam, **lengths)
        return [one.tokens for one in found]

    return translate


def ctranslate2(case: TranslatorCase, precision: str, threads: int) -> Translate:
    import ctranslate2

    translator = ctranslate2.Translator(str(folder(case, precision)), compute_type=precision, intra_threads=threads)

    def translate(sources: Sequence[list[str]], beam: int, tokens: int) -> list[list[str]]:
        lengths = {"min_decoding_length": tokens, "max_decoding_length": tokens}
        prefixes = _prefixes(case, sources)
        found = translator.translate_batch(list(sources), target_prefix=prefixes, beam_size=beam, **lengths)
        return [one.hypotheses[0] for one in found]

    return translate


def transformers(case: TranslatorCase, precision: str, threads: int) -> Translate:
    """In float32; its threads are torch's."""
    import torch
    import transformers

    vocabulary, model_class = _vocabulary(case), getattr(transformers, case.model_class)
    ids = {token: index for index, token in enumerate(vocabulary)}
    model: Any = model_class.from_pretrained(folder(case, "transformers"), dtype=torch.float32).eval()
    forced = {"forced_bos_token_id": ids[case.target]} if case.target else {}

    @torch.inference_mode()
    def translate(sources: Sequence[list[str]], beam: int, tokens: int) -> list[list[str]]:
        longest = max(map(len, sources))
        rows = [[ids[token] for token in source] + [-1] * (longest - len(source)) for source in sources]
        given = torch.tensor(rows)
        found = model.generate(
            input_ids=given.clamp(min=model.config.pad_token_id), attention_mask=(given >= 0).long(), num_beams=beam,
            do_sample=False, min_new_tokens=tokens, max_new_tokens=tokens, **forced,
        )  # fmt: skip
        return [[vocabulary[index] for index in row[1:]] for row in found.tolist()]

    return translate


ENGINES = {"fastattn": ours, "CTranslate2": ctranslate2, "transformers": transformers}

if __name__ == "__main__":
    ENGINES[sys.argv[1]](NLLB_600M, sys.argv[2], 1)(make_sources(NLLB_600M, 32, 10, 10), 4, 6)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
