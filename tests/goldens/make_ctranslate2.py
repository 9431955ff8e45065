"""Writes what CTranslate2 does with the models of tests/weights/ctranslate2/cases.py (ctranslate2.json), and with those
of tests/weights/marian/cases.py, once its converter has read them (marian.json).

Two things are given that it computes otherwise than Marian: the table of positions, and the epsilon of norms.
"""

import json
import tempfile
from pathlib import Path

from ctranslate2 import TranslationResult, Translator, __version__
from ctranslate2.converters import MarianConverter

from tests import GOLDENS
from tests.weights.ctranslate2 import cases
from tests.weights.marian import cases as marian_cases
from tests.weights.marian import writer


def own(name: str, folder: Path) -> dict:
    translator = opened(cases.build(name, folder))
    sources, prefixes, targets = cases.inputs(name)
    results = []
    for options in cases.OPTIONS:
        chosen = cases.LIMIT | options
        prefix = prefixes if chosen.pop("prefix", False) else cases.start_prefixes(name, len(sources))
        # One sentence at a time: in a batch, the attention of a beam's first token is another sentence's (4.8).
        translated = []
        for number, source in enumerate(sources if cases.comparable(name, options) else []):
            begun = None if prefix is None else [prefix[number]]
            translated += translator.translate_batch([source], target_prefix=begun, return_scores=True, **chosen)
            if chosen.get("use_vmap"):  # the places of one list's ids are looked up for the next, unless it is undone
                translator.translate_batch([sources[0]], target_prefix=prefix and [prefix[0]])
        results.append([present(result, bool(chosen.get("return_attention"))) for result in translated])
    scored = [
        {"tokens": short(one.tokens), "log_probs": rounded(one.log_probs)}
        for one in translator.score_batch(sources, targets, max_batch_size=1)
    ]
    return {"translations": results, "scores": scored}


def marian(name: str, folder: Path) -> dict:
    arrays, options = marian_cases.build(name)
    arrays["Wpos"] = marian_cases.sinusoids(arrays["encoder_l1_self_Wq"].shape[0], 64)
    writer.write(folder, writer.files(arrays, options))
    vocabulary = str(folder / "vocab.yml")
    out = MarianConverter(str(folder / "model.npz"), [vocabulary, vocabulary]).convert(str(folder / "converted"))
    config = json.loads(Path(out, "config.json").read_text())
    Path(out, "config.json").write_text(json.dumps(config | {"layer_norm_epsilon": 1e-6}))
    translator = opened(Path(out))
    sources, targets = marian_cases.inputs()
    translated = translator.translate_batch(
        sources, beam_size=3, max_decoding_length=12, return_scores=True, return_attention=True, max_batch_size=1
    )
    scored = translator.score_batch(sources, targets, max_batch_size=1)
    return {
        "tokens": [" ".join(result.hypotheses[0]) for result in translated],
        "scores": [round(result.scores[0], 6) for result in translated],
        "attention": [attention(result)[0] for result in translated],
        "log_probs": [rounded(score.log_probs) for score in scored],
    }


def opened(folder: Path) -> Translator:
    return Translator(str(folder), compute_type="float32", intra_threads=1)


def short(tokens: list[str]) -> str:
    return " ".join(tokens).replace("▁w", "")


def rounded(numbers: list[float], digits: int = 6) -> list[float]:
    return [round(number, digits) for number in numbers]


def attention(result: TranslationResult) -> list[list[list[float]]]:
    return [[rounded(row, 4) for row in rows] for rows in result.attention]


def present(result: TranslationResult, attended: bool) -> dict:
    shown = {"hypotheses": [short(tokens) for tokens in result.hypotheses], "scores": rounded(result.scores)}
    return shown | ({"attention": attention(result)} if attended else {})


if __name__ == "__main__":
    for file, run, models, split in (
        ("ctranslate2", own, cases.MODELS, '],[{"hyp'),
        ("marian", marian, marian_cases.MODELS, '},"'),
    ):
        golden = {}
        for name in models:
            with tempfile.TemporaryDirectory() as folder:
                golden[name] = run(name, Path(folder))
        made = json.dumps({"made_by": f"ctranslate2 {__version__}", "models": golden}, separators=(",", ":"))
        made = made.replace(split, split.replace(",", ",\n"))
        (GOLDENS / f"{file}.json").write_text(made + "\n", encoding="utf-8")
