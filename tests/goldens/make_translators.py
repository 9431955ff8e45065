"""Writes translators.npz: what transformers makes of small encoder-decoders of every kind, and all their files.

Run from the root, in an environment with torch and transformers: python -m tests.goldens.make_translators. Weights are
drawn (tests/architectures/drawing.py), but for one tensor that has sentences end.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

from bench.t5_cases import T5_CASES
from bench.translator_cases import CASES
from bench.translator_comparison import FORCED
from bench.translator_models import Oracle, TranslatorCase, build, calibrate, make_texts
from tests.architectures.drawing import draw_all
from tests.architectures.goldens import TRANSLATORS_FILE
from tests.architectures.oracle import shapes_of
from tests.weights.containers.safetensors_writer import safetensors_bytes

TEXTS = 8


def main() -> None:
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}, numpy {np.__version__}"
    written, told = {"versions": np.array(versions)}, {}
    for case in CASES + T5_CASES:
        if case.name.endswith("-0"):
            with tempfile.TemporaryDirectory() as folder:
                told[case.name] = make(case, Path(folder), written)
    np.savez_compressed(TRANSLATORS_FILE, told=np.frombuffer(json.dumps(told).encode(), np.uint8), **written)


def make(case: TranslatorCase, folder: Path, written: dict[str, np.ndarray]) -> dict:
    build(folder, case)
    tensors = draw_all(shapes_of(folder), 0)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    torch.manual_seed(0)
    name, changed = calibrate(Oracle(folder, case).model, 100)
    tensors[name] = written[f"{case.name} {name}"] = changed
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    oracle, texts = Oracle(folder, case), make_texts(TEXTS, 3)
    ids = oracle.ids(texts)
    target = [oracle.model.generation_config.decoder_start_token_id, *FORCED]
    written[f"{case.name} logits"] = oracle.logits(ids[0], target)[-1]
    for path in sorted(folder.iterdir()):
        if path.name != "model.safetensors":
            written[f"{case.name}/{path.name}"] = np.frombuffer(path.read_bytes(), np.uint8)
    found = {f"beam {beams}": oracle.generate(ids, beams) for beams in (1, 4)}
    texts_of = [oracle.text(row) for row in found["beam 4"]]
    shapes = {theirs: tensor.shape for theirs, tensor in tensors.items() if theirs != name}
    languages = {"source_lang": case.source, "target_lang": case.target} if case.source else {}
    return {
        "shapes": shapes, "texts": texts, "ids": ids, "target": target, "joined": texts_of, "languages": languages,
        "changed": name, **found,
    }  # fmt: skip


if __name__ == "__main__":
    main()
