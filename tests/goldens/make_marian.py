"""Make marian.json: what CTranslate2 does with the models of weights/marian/cases.py, once its converter has read them.

Two things it computes otherwise than Marian are put right: the table of positions is given, and the norms' epsilon.
Run from the repository's root where ctranslate2, numpy and yaml are installed: python -m tests.goldens.make_marian
"""

import json
import tempfile
from pathlib import Path

import ctranslate2
from ctranslate2.converters import MarianConverter

from tests.weights.marian import cases, writer


def run(name: str, folder: Path) -> dict:
    arrays, options = cases.build(name)
    arrays["Wpos"] = cases.sinusoids(arrays["encoder_l1_self_Wq"].shape[0], 64)
    writer.write(folder, writer.files(arrays, options))
    vocabulary = str(folder / "vocab.yml")
    out = MarianConverter(str(folder / "model.npz"), [vocabulary, vocabulary]).convert(str(folder / "converted"))
    config = json.loads(Path(out, "config.json").read_text())
    Path(out, "config.json").write_text(json.dumps(config | {"layer_norm_epsilon": 1e-6}))
    translator = ctranslate2.Translator(out, compute_type="float32", intra_threads=1)
    sources, targets = cases.inputs()
    translated = translator.translate_batch(
        sources, beam_size=3, max_decoding_length=12, return_scores=True, return_attention=True, max_batch_size=1
    )
    scored = translator.score_batch(sources, targets, max_batch_size=1)
    return {
        "tokens": [" ".join(result.hypotheses[0]) for result in translated],
        "scores": [round(result.scores[0], 6) for result in translated],
        "attention": [[[round(x, 4) for x in row] for row in result.attention[0]] for result in translated],
        "log_probs": [[round(x, 6) for x in score.log_probs] for score in scored],
    }


if __name__ == "__main__":
    golden = {}
    for name in cases.MODELS:
        with tempfile.TemporaryDirectory() as folder:
            golden[name] = run(name, Path(folder))
    made = {"made_by": f"ctranslate2 {ctranslate2.__version__}", "models": golden}
    lines = json.dumps(made, separators=(",", ":")).replace('},"', '},\n"')
    Path(__file__).with_name("marian.json").write_text(lines + "\n", encoding="utf-8")
