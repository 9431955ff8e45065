"""Every architecture as published against rows that transformers computed (goldens/make_architectures.py)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.weights import read
from fastattn.weights.native import convert
from tests import messages
from tests.architectures.case import Case, make_ids, make_types, some_rows
from tests.architectures.cases import GOLDEN_CASES
from tests.architectures.drawing import draw_all
from tests.architectures.folders import write_folder
from tests.architectures.goldens import read_goldens, write_golden
from tests.architectures.outputs import outputs
from tests.weights.native.folders import converted

BY_NAME = {case.name: case for case in GOLDEN_CASES}
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
    for precision in ("float32", "int8") if case.task == "encoder" else ():
        model: Any = build_model(read(tmp_path), operations, precision)
        ids_B, types_B = make_ids(case), make_types(case)
        rows_ND, starts_B1 = model.encode(ids_B, types_B)
        for b, ids in enumerate(ids_B):
            with operations.use_threads(1):
                alone_TD, _ = model.encode([ids], None if types_B is None else [types_B[b]])
            np.testing.assert_array_equal(alone_TD, rows_ND[starts_B1[b] : starts_B1[b + 1]])


def test_a_file_with_a_head_holds_the_same_encoder(tmp_path: Path) -> None:
    """Of every architecture, under the prefix that its models with heads have."""
    assert set(HEADED) == {name for name in BY_NAME if name.endswith("-0")}
    for name, (prefix, head) in HEADED.items():
        case = BY_NAME[name]
        tensors = draw_all(read_goldens(case)[0], case.seed)
        headed = {prefix + name: tensor for name, tensor in tensors.items()} | {head: np.ones(3, np.float32)}
        if "embeddings.word_embeddings.weight" in tensors and name not in ROTARY:
            headed[f"{prefix}embeddings.position_ids"] = np.arange(40)[None]  # which old files hold
        found = []
        for kind, stored in (("alone", tensors), ("headed", headed)):
            folder = tmp_path / f"{name} {kind}"
            folder.mkdir()
            found.append(outputs(write_folder(folder, case.config, stored), case))
        for alone_TD, headed_TD in zip(*found, strict=True):
            np.testing.assert_array_equal(headed_TD, alone_TD, err_msg=name)


@pytest.mark.parametrize("name", ["bert-sequence-classification", "roberta-fill-mask"])
def test_a_head_survives_a_conversion_in_float32(name: str, tmp_path: Path) -> None:
    case, theirs = BY_NAME[name], tmp_path / "theirs"
    theirs.mkdir()
    write_golden(case, theirs)
    original, expected = read(theirs), outputs(theirs, case)
    tied = original.tensors["head.output.weight"] is original.tensors["encoder.embedding.weight"]
    assert tied == (case.task == "fill-mask")
    for precision, least in (("float32", 1.0), ("bfloat16", 0.999), ("int8", 0.98)):
        again = read(converted(original, tmp_path / precision, precision))
        assert (again.spec, again.text) == (original.spec, original.text)
        assert (again.tensors["head.output.weight"] is again.tensors["encoder.embedding.weight"]) == tied
        for tensor in (tensor for tensor in original.tensors if tensor.startswith("head.") and not tied):
            np.testing.assert_array_equal(again.tensors[tensor], original.tensors[tensor])
        for output, wanted in zip(outputs(tmp_path / precision, case), expected, strict=True):
            assert (output * wanted).sum() / np.linalg.norm(output) / np.linalg.norm(wanted) >= least - 1e-6
            assert precision != "float32" or np.array_equal(output, wanted)
    assert convert.weight_bytes(original, "float32") > convert.weight_bytes(original, "int8")


def test_a_head_that_does_not_fit_is_left_out(tmp_path: Path) -> None:
    case = BY_NAME["bert-sequence-classification"]
    for change in (
        {"architectures": ["BertModel"]},
        {"architectures": None},
        {"architectures": [5]},
        {"id2label": None},
        {"id2label": None, "num_labels": 5},
        {"id2label": {"0": "a", "2": "b", "3": "c"}},
        {"id2label": {"0": "a", "1": "b", "2": 3}},
        {"id2label": None, "num_labels": 10**12},
        {"id2label": {}},
        {"id2label": []},
        {"problem_type": "guess"},
        {"sentence_transformers": {"activation_fn": "torch.nn.Fish"}},
    ):
        write_golden(case, tmp_path, change)
        checkpoint = read(tmp_path)
        assert checkpoint.spec.head is None and not checkpoint.text.labels and "\n" not in checkpoint.headless
        messages.check(checkpoint.headless)
        assert not [name for name in checkpoint.tensors if name.startswith("head.")]


def test_settings_that_change_what_is_computed(tmp_path: Path) -> None:
    """Without transformers to compare with."""

    def stack(name: str, **change: Any) -> Any:
        write_golden(BY_NAME[name], tmp_path, change)
        return read(tmp_path).spec.encoder

    assert stack("qwen2-0").causal  # it looks both ways where its settings say so
    assert not stack("qwen2-0", is_causal=False).causal
    assert not stack("qwen2-0", is_causal=False, auto_map={"AutoModel": "code.Model"}).causal
    # MPNet's positions start at 2 whatever the padding is
    assert stack("mpnet-0", pad_token_id=0) == stack("mpnet-0")
    # rotary settings under both their names are read where they agree
    both = {"rope_type": "linear", "factor": 2.0, "rope_theta": 77.0}
    rotary = stack("qwen3-0", rope_scaling=both, rope_parameters=both).positions.rotary
    assert (rotary.scale, rotary.base) == (2.0, 77.0)
    # Nomic's own names have defaults, and its positions end where scaling would begin
    plain = stack("nomic-gpt2-names-0", rotary_emb_base=None, layer_norm_epsilon=None)
    assert (plain.positions.rotary.base, plain.norms.epsilon) == (10_000.0, 1e-12)
    scaled = stack("nomic-gpt2-names-0", rotary_scaling_factor=2, max_trained_positions=50)
    assert scaled.positions.limit == 50
