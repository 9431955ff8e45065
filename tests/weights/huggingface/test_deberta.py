"""DeBERTa-v2 directories: settings, names of tensors, and what is refused; the rows are tests/architectures'."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastattn import weights
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.spec.architecture import Convolution, Disentangled, ModelSpec
from fastattn.spec.tensors import tensor_shapes
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.deberta import DEBERTA
from fastattn.weights.tensor_mapping import map_tensors
from tests.architectures.biased import DEBERTA_CONFIG
from tests.architectures.case import SIZES
from tests.architectures.drawing import draw_all
from tests.architectures.folders import write_folder
from tests.weights.native.folders import converted
from tests.weights.refusals import refusal

Tensors = dict[str, np.ndarray]


def _config(**changes: Any) -> dict[str, Any]:
    return SIZES | DEBERTA_CONFIG | changes


def _tensors(config: dict[str, Any], prefix: str = "") -> Tensors:
    """Drawn weights under the names that the reader asks for; tests/architectures has those that transformers gives."""
    values = JsonObject(config, "config.json")
    spec = DEBERTA.spec(values)
    parts = map_tensors(DEBERTA.table(values, spec), ModelSpec("encoder", spec))
    return draw_all({prefix + name: shape for part in parts.values() for name, shape in part.source_shapes.items()}, 0)


def _write(folder: Path, config: dict[str, Any], tensors: Tensors) -> Path:
    folder.mkdir()
    return write_folder(folder, config, tensors)


def _rows(folder: Path) -> np.ndarray:
    rows_ND, _ = build_model(weights.read(folder), operations).encode([np.arange(5, 30, dtype=np.int32)])
    return np.asarray(rows_ND)


def test_settings_of_v3(tmp_path: Path) -> None:
    config = _config()
    checkpoint = weights.read(write_folder(tmp_path, config, _tensors(config)))
    spec = checkpoint.spec.encoder
    assert spec is not None and spec.convolution is None and spec.token_types == 0 == spec.embedding_width
    assert spec.positions.disentangled == Disentangled(shared=True, norm=True)
    assert (spec.positions.buckets, spec.positions.max_distance, spec.positions.limit) == (16, 160, 0)
    assert spec.attention.query_scale == pytest.approx((12 * 3) ** -0.5)
    assert checkpoint.text.max_length == 160  # what it was trained for; the tokenizer says nothing
    assert set(checkpoint.tensors) == set(tensor_shapes(checkpoint.spec))


@pytest.mark.parametrize(
    ("stated", "form"),
    [
        ("c2p", Disentangled(to_content=False)),
        (["p2c"], Disentangled(to_position=False)),
        ("P2C | c2p", Disentangled()),
    ],
)
def test_terms_of_the_score(stated: object, form: Disentangled) -> None:
    config = _config(pos_att_type=stated, share_att_key=False, norm_rel_ebd="none", conv_kernel_size=3)
    spec = DEBERTA.spec(JsonObject(config, "config.json"))
    assert spec.positions.disentangled == form and spec.convolution == Convolution(3, "tanh")


def test_plain_positions_where_attention_is_not_relative(tmp_path: Path) -> None:
    config = _config(relative_attention=False, position_biased_input=True, pos_att_type=None)
    spec = weights.read(write_folder(tmp_path, config, _tensors(config))).spec.encoder
    assert spec is not None and (spec.positions.kind, spec.positions.limit) == ("table", 160)


def test_a_head_beside_it_and_tensors_without_use_change_nothing(tmp_path: Path) -> None:
    config = _config()
    plain = _write(tmp_path / "plain", config, _tensors(config))
    named = {f"deberta.{name}": value for name, value in _tensors(config).items()}
    unused = (
        "deberta.embeddings.position_embeddings.weight",
        "deberta.embeddings.position_ids",
        "pooler.dense.weight",
        "classifier.bias",
        "cls.predictions.bias",
        "lm_predictions.lm_head.dense.weight",
        "mask_predictions.LayerNorm.weight",
    )
    headed = _write(tmp_path / "headed", config, named | draw_all(dict.fromkeys(unused, (4, 36)), 1))
    np.testing.assert_array_equal(_rows(headed), _rows(plain))


@pytest.mark.parametrize("changes", [{}, {"conv_kernel_size": 3, "embedding_size": 20, "share_att_key": False}])
def test_its_own_folder_gives_the_same_bits(tmp_path: Path, changes: dict[str, Any]) -> None:
    config = _config(**changes)
    theirs = _write(tmp_path / "theirs", config, _tensors(config))
    own = converted(weights.read(theirs), tmp_path / "own", "float32")
    np.testing.assert_array_equal(_rows(own), _rows(theirs))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pos_att_type": "c2p|p2p"}, "pos_att_type should be of 'c2p' and 'p2c', is 'c2p|p2p'"),
        ({"pos_att_type": ["c2p", 3]}, "pos_att_type should be of"),
        ({"pos_att_type": {"c2p": 1}}, "pos_att_type should be of"),
        ({"conv_kernel_size": 4}, "as many rows before as after, which a width of 4 is not"),
        ({"conv_kernel_size": 3, "conv_groups": 2}, "not supported: conv_groups 2"),
        ({"conv_kernel_size": 3, "conv_act": "prelu"}, "conv_act should be one of"),
        ({"attention_head_size": 7}, "not supported: attention_head_size 7"),
        ({"position_buckets": 1}, "at least 2 buckets"),
        ({"position_buckets": 400}, "half of them below it, got distance 160 and 400 buckets"),
        ({"max_relative_positions": 10**400}, "max_distance should be at most 2147483647"),
        ({"hidden_size": 3 * 10**400}, "hidden_size should be at most 1048576"),
        ({"position_buckets": 18}, "encoder.rel_embeddings.weight should be [36, 36], is [32, 36]"),
        ({"norm_rel_ebd": "none"}, "unexpected encoder.LayerNorm.weight"),
    ],
)
def test_what_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    folder = write_folder(tmp_path, _config() | changes, _tensors(_config()))
    assert message in refusal(folder, names_path=False)
