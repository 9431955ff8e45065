"""Every architecture as published against rows that transformers computed (goldens/make_architectures.py)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.weights import read
from tests.architectures.case import Case, make_ids, make_types, some_rows
from tests.architectures.cases import GOLDEN_CASES
from tests.architectures.drawing import draw_all
from tests.architectures.encoding import outputs
from tests.architectures.folders import write_folder
from tests.architectures.goldens import read_goldens, write_golden

# What precedes an encoder's tensors in the files of its models with heads, and a tensor of such a head.
HEADED = {
    "bert-0": ("bert.", "cls.predictions.bias"),
    "roberta-0": ("roberta.", "lm_head.bias"),
    "xlm-roberta-0": ("roberta.", "classifier.dense.bias"),
    "camembert-0": ("roberta.", "lm_head.layer_norm.bias"),
    "mpnet-0": ("mpnet.", "lm_head.bias"),
    "distilbert-0": ("distilbert.", "vocab_projector.bias"),
    "electra-0": ("electra.", "discriminator_predictions.dense.bias"),
    "albert-0": ("albert.", "predictions.bias"),
    "modernbert-0": ("model.", "decoder.bias"),
    "nomic-0": ("nomic_bert.", "cls.predictions.bias"),
    "nomic-gpt2-names-0": ("bert.", "cls.predictions.decoder.bias"),
    "new-0": ("new.", "lm_head.decoder.bias"),
    "gte-0": ("gte.", "classifier.bias"),
    "jina-0": ("bert.", "cls.predictions.bias"),
    "qwen3-0": ("model.", "lm_head.weight"),
    "qwen2-0": ("model.", "score.weight"),
    "gemma3-0": ("model.", "lm_head.weight"),
    "t5-0": ("", "decoder.final_layer_norm.weight"),
    "deberta-v2-0": ("deberta.", "cls.predictions.bias"),
}
ROTARY = ("nomic-0", "nomic-gpt2-names-0", "new-0", "gte-0")


@pytest.mark.parametrize("case", GOLDEN_CASES, ids=lambda case: case.name)
def test_outputs_are_the_goldens_and_each_sentence_has_the_same_bits_alone(case: Case, tmp_path: Path) -> None:
    expected = write_golden(case, tmp_path)
    found = np.concatenate([some_rows(output) for output in outputs(tmp_path, case)])
    least = 1e-4 if case.task == "encoder" else 1e-5
    assert np.abs(found - expected).max() <= least * np.abs(expected).max()
    if case.task == "encoder":
        for precision in ("float32", "int8"):
            model: Any = build_model(read(tmp_path), operations, precision)
            ids_B, types_B = make_ids(case), make_types(case)
            rows_ND, starts_B1 = model.encode(ids_B, types_B)
            for b, ids in enumerate(ids_B):
                with operations.use_threads(1):
                    alone_TD, _ = model.encode([ids], None if types_B is None else [types_B[b]])
                np.testing.assert_array_equal(alone_TD, rows_ND[starts_B1[b] : starts_B1[b + 1]])


def test_a_file_with_a_head_holds_the_same_encoder(tmp_path: Path) -> None:
    """Of every architecture, under the prefix that its models with heads have."""
    firsts = [case for case in GOLDEN_CASES if case.name.endswith("-0")]
    assert set(HEADED) == {case.name for case in firsts}
    for case in firsts:
        tensors = draw_all(read_goldens(case)[0], case.seed)
        prefix, head = HEADED[case.name]
        headed = {prefix + name: tensor for name, tensor in tensors.items()} | {head: np.ones(3, np.float32)}
        if "embeddings.word_embeddings.weight" in tensors and case.name not in ROTARY:
            headed[f"{prefix}embeddings.position_ids"] = np.arange(40)[None]  # which old files hold
        found = []
        for name, stored in (("alone", tensors), ("headed", headed)):
            folder = tmp_path / f"{case.name} {name}"
            folder.mkdir()
            found.append(outputs(write_folder(folder, case.config, stored), case))
        for alone_TD, headed_TD in zip(*found, strict=True):
            np.testing.assert_array_equal(headed_TD, alone_TD, err_msg=case.name)
