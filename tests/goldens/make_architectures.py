"""Writes what transformers computes of the golden cases of tests/architectures/, whose weights are drawn.

architectures.npz, decoders.npz    rows and logits, and of decoders continuations too
translators.npz                    small encoder-decoders of every kind, and all their files but the weights; one tensor
                                   is not drawn, so that sentences end
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

from bench.translator_cases import CASES, T5_CASES
from bench.translator_comparison import FORCED
from bench.translator_models import Oracle, TranslatorCase, build, calibrate, make_texts
from tests.architectures import oracle
from tests.architectures.case import Case, some_rows
from tests.architectures.cases import GOLDEN_CASES
from tests.architectures.decoders import GOLDEN_DECODERS, TASK
from tests.architectures.drawing import draw_all
from tests.architectures.goldens import pack_shapes
from tests.goldens.writing import bytes_of, write_arrays
from tests.weights.containers.safetensors_writer import safetensors_bytes

TEXTS = 8


def write(name: str, cases: list[Case]) -> None:
    written, shapes = {}, {}
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            outputs = oracle.make(case, Path(folder))
            shapes[case.name] = oracle.shapes_of(Path(folder))
            if case.task == TASK:
                written[f"{case.name} tokens"] = oracle.continuations(case, Path(folder)).astype(np.uint8)
        written[case.name] = np.concatenate([some_rows(output) for output in outputs]).astype(np.float32)
    write_arrays(name, {"shapes": pack_shapes(shapes), **written}, transformers, torch)


def translator(case: TranslatorCase, folder: Path, written: dict[str, np.ndarray]) -> dict:
    build(folder, case)
    tensors = draw_all(oracle.shapes_of(folder), 0)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    torch.manual_seed(0)
    name, changed = calibrate(Oracle(folder, case).model, 100)
    tensors[name] = written[f"{case.name} {name}"] = changed
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    peer, texts = Oracle(folder, case), make_texts(TEXTS, 3)
    ids = peer.ids(texts)
    target = [peer.model.generation_config.decoder_start_token_id, *FORCED]
    written[f"{case.name} logits"] = peer.logits(ids[0], target)[-1]
    for path in sorted(folder.iterdir()):
        if path.name != "model.safetensors":
            written[f"{case.name}/{path.name}"] = np.frombuffer(path.read_bytes(), np.uint8)
    found = {f"beam {beams}": peer.generate(ids, beams) for beams in (1, 4)}
    return {
        "shapes": {theirs: tensor.shape for theirs, tensor in tensors.items() if theirs != name}, "texts": texts,
        "ids": ids, "target": target, "joined": [peer.text(row) for row in found["beam 4"]],
        "languages": {"source_lang": case.source, "target_lang": case.target} if case.source else {}, "changed": name,
        **found,
    }  # fmt: skip


if __name__ == "__main__":
    write("architectures", GOLDEN_CASES)
    write("decoders", GOLDEN_DECODERS)
    written, told = {}, {}
    for case in CASES + T5_CASES:
        if case.name.endswith("-0"):
            with tempfile.TemporaryDirectory() as folder:
                told[case.name] = translator(case, Path(folder), written)
    write_arrays("translators", {"told": bytes_of(told), **written}, transformers, torch)
