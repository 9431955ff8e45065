"""Make ctranslate2.json: what CTranslate2 does with the models of tests/weights/ctranslate2/cases.py.

Run from the repository's root where ctranslate2 and numpy are installed: python -m tests.goldens.make_ctranslate2
"""

import json
import tempfile
from pathlib import Path

import ctranslate2

from tests.weights.ctranslate2 import cases


def run(name: str, folder: Path) -> dict:
    translator = ctranslate2.Translator(str(cases.build(name, folder / name)), compute_type="float32", intra_threads=1)
    sources, prefixes, targets = cases.inputs(name)
    results = []
    for options in cases.OPTIONS:
        if not cases.comparable(name, options):
            results.append([])
            continue
        chosen = cases.LIMIT | options
        prefix = prefixes if chosen.pop("prefix", False) else cases.start_prefixes(name, len(sources))
        # One sentence at a time: in a batch, the attention of a beam's first token is another sentence's (4.8).
        translated = []
        for number, source in enumerate(sources):
            begun = None if prefix is None else [prefix[number]]
            translated += translator.translate_batch([source], target_prefix=begun, return_scores=True, **chosen)
            if chosen.get("use_vmap"):  # the places of one list's ids are looked up for the next, unless it is undone
                translator.translate_batch([sources[0]], target_prefix=prefix and [prefix[0]])
        results.append([present(result, chosen) for result in translated])
    scored = translator.score_batch(sources, targets, max_batch_size=1)
    return {
        "translations": results,
        "scores": [{"tokens": short(s.tokens), "log_probs": [round(x, 6) for x in s.log_probs]} for s in scored],
    }


def short(tokens: list[str]) -> str:
    return " ".join(tokens).replace("▁w", "")


def present(result: ctranslate2.TranslationResult, options: dict) -> dict:
    shown = {
        "hypotheses": [short(tokens) for tokens in result.hypotheses],
        "scores": [round(score, 6) for score in result.scores],
    }
    if options.get("return_attention"):
        shown["attention"] = [[[round(x, 4) for x in row] for row in rows] for rows in result.attention]
    return shown


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        golden = {name: run(name, Path(folder)) for name in cases.MODELS}
    made = {"made_by": f"ctranslate2 {ctranslate2.__version__}", "models": golden}
    lines = json.dumps(made, separators=(",", ":")).replace('],[{"hyp', '],\n[{"hyp')
    Path(__file__).with_name("ctranslate2.json").write_text(lines + "\n", encoding="utf-8")
