"""What is written for other programs comes back: the same numbers, tokens and architecture."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import PositionSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.positions import sinusoid_table
from fastattn.spec.quantized import QuantizedTensor, as_float32
from fastattn.weights import read
from fastattn.weights.ctranslate2 import convert as ctranslate2
from fastattn.weights.huggingface import convert as huggingface
from tests import GOLDENS
from tests.architectures.cases import GOLDEN_CASES
from tests.architectures.decoders import GOLDEN_DECODERS
from tests.models.tiny_models import VARIETIES, random_checkpoint
from tests.weights.native.folders import translation_model
from tests.weights.sound_files import architecture_files, marian_mt_files, sentence_transformer_files, unpacked

TRAINERS = GOLDENS / "trainers"


def same(found: Checkpoint, expected: Checkpoint) -> None:
    assert found.tensors.keys() == expected.tensors.keys()
    for name, tensor in expected.tensors.items():
        np.testing.assert_array_equal(as_float32(found.tensors[name]), as_float32(tensor), name)


def test_what_is_tied_for_ctranslate2(tmp_path: Path) -> None:
    checkpoint = read(translation_model(tmp_path / "from", tied=True, rms_norm=True, encoder_layers=1))
    (tmp_path / "to").mkdir()
    ctranslate2.write(tmp_path / "to", checkpoint, "float32")
    found = read(tmp_path / "to")
    assert (found.spec, found.text) == (checkpoint.spec, checkpoint.text)
    assert found.tensors["decoder.embedding.weight"] is found.tensors["decoder.projection.weight"]
    same(found, checkpoint)


def test_ctranslate2_int8(tmp_path: Path) -> None:
    """What is int8 keeps its values; what is not is rounded by rows."""
    checkpoint = read(translation_model(tmp_path / "from", "int8"))
    whole = dataclasses.replace(checkpoint, tensors={n: as_float32(t) for n, t in checkpoint.tensors.items()})
    for name, one in (("kept", checkpoint), ("rounded", whole)):
        (tmp_path / name).mkdir()
        ctranslate2.write(tmp_path / name, one, "int8")
        found = read(tmp_path / name)
        assert found.precision == "int8"
        for canonical, tensor in checkpoint.tensors.items():
            if isinstance(tensor, QuantizedTensor):
                np.testing.assert_array_equal(found.tensors[canonical].values_FD, tensor.values_FD)
            np.testing.assert_allclose(as_float32(found.tensors[canonical]), as_float32(tensor), rtol=3e-7)


# What a model of tests/models has besides the usual.
SAYABLE: dict[str, dict] = {
    **{name: VARIETIES[name] for name in ("post-norm", "table", "relative", "relative, each layer's")},
    "fewer key heads": VARIETIES["fewer key heads"],
    "zero start, a quarter of the output": VARIETIES["zero start"] | {"positions": "sinusoid"},
    "output doubled": {"output_scale": 2.0},
    "alignment": {"alignment_layer": 1, "alignment_heads": 2},
    "epsilon": {"norm_epsilon": 3e-4},
    "gated": {"gated": True, "activation": "gelu", "query_scale": 0.75},
}


@pytest.mark.parametrize("name", SAYABLE)
def test_what_ctranslate2_can_say(tmp_path: Path, name: str) -> None:
    checkpoint = random_checkpoint(**SAYABLE[name])
    ctranslate2.write(tmp_path, checkpoint, "float32")
    found = read(tmp_path)
    assert (found.spec, found.text) == (checkpoint.spec, checkpoint.text)
    same(found, checkpoint)


UNSAYABLE = {
    "rotary": "the encoder's positions, the decoder's positions",
    "capped scores": "the encoder's attention, the decoder's attention",
    "average": "no place for decoder.layers.0.average_attention.norm.weight",
    "norms of heads": "no place for encoder.layers.0.self_attention.query_norm.weight",
    "gru alone": "of translators with attention, which this model is not",
}


@pytest.mark.parametrize("name", UNSAYABLE)
def test_what_ctranslate2_cannot_say(tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match=f"^CTranslate2's fo.* {UNSAYABLE[name]}"):
        ctranslate2.write(tmp_path, random_checkpoint(**VARIETIES[name]), "float32")
    assert not list(tmp_path.iterdir())


def test_sinusoids_become_a_table_as_long_as_the_model_counts(tmp_path: Path) -> None:
    for limit, start, rows_there in ((0, 2, ctranslate2.MOST_POSITIONS), (7, 1, 7), (7, 0, 7)):
        folder = tmp_path / f"{limit} {start}"
        folder.mkdir()
        ctranslate2.write(folder, random_checkpoint(max_positions=limit, sinusoid_start=start), "float32")
        found = read(folder)
        assert found.spec.encoder.positions == PositionSpec("table", limit=rows_there)
        table = sinusoid_table(rows_there, 16, start=start)
        np.testing.assert_array_equal(as_float32(found.tensors["decoder.positions"]), table)


def test_rows_without_a_token_get_one_each_for_ctranslate2(tmp_path: Path) -> None:
    checkpoint = random_checkpoint()
    words = (*checkpoint.text.target_vocabulary[:-2], "", "")
    spare = dataclasses.replace(checkpoint.text, source_vocabulary=words, target_vocabulary=words)
    ctranslate2.write(tmp_path, dataclasses.replace(checkpoint, input=spare), "float32")
    found = read(tmp_path).text
    assert found.target_vocabulary == (*words[:-2], "<unused17>", "<unused18>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.bin", "shared_vocabulary.json"]


def test_norms_of_two_epsilons(tmp_path: Path) -> None:
    checkpoint = random_checkpoint()
    decoder = checkpoint.spec.decoder
    norms = dataclasses.replace(decoder.norms, epsilon=1e-3)
    spec = dataclasses.replace(checkpoint.spec, decoder=dataclasses.replace(decoder, norms=norms))
    with pytest.raises(CheckpointError, match="cannot say norms of two epsilons of this model"):
        ctranslate2.write(tmp_path, dataclasses.replace(checkpoint, spec=spec), "float32")


def test_ctranslate2_tells_how_far_it_is(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    ctranslate2.write(tmp_path, random_checkpoint(), "int8", lambda done, total: steps.append((done, total)))
    assert steps == sorted(steps) and steps[-1][0] == steps[-1][1] > 0


def test_a_fairseq_model_for_ctranslate2(tmp_path: Path) -> None:
    """Its positions, which count from 2, become a table; its codes lie beside the model."""
    checkpoint = read(TRAINERS / "fairseq_before")
    ctranslate2.write(tmp_path, checkpoint, "float32")
    found = read(tmp_path)
    assert found.spec.encoder.positions.kind == "table" and found.text.codes == checkpoint.text.codes
    assert found.text.source_vocabulary == checkpoint.text.source_vocabulary


@pytest.mark.parametrize("name", ["shared", "separate"])
def test_marian_for_transformers(tmp_path: Path, name: str) -> None:
    checkpoint = read(unpacked(marian_mt_files(name, "model.safetensors"), tmp_path / "from"))
    (tmp_path / "to").mkdir()
    huggingface.write(tmp_path / "to", checkpoint, "float32")
    found = read(tmp_path / "to")
    assert found.spec == checkpoint.spec
    assert dataclasses.replace(found.text, decoding=checkpoint.text.decoding) == checkpoint.text
    same(found, checkpoint)


# Those whose whole model config.json can say, as it is written here.
WRITTEN = {
    "bert-0", "bert-3", "roberta-0", "roberta-3", "roberta-4", "xlm-roberta-0", "camembert-0", "mpnet-0", "mpnet-3",
    "nomic-0", "nomic-gpt2-names-0", "new-1", "gte-0", "qwen2-0", "qwen3-0", "qwen3-8", "qwen3-9",
    "llama-0", "llama-2", "olmo2-0", "phi3-0",
}  # fmt: skip


@pytest.mark.parametrize("case", [*(case for case in GOLDEN_CASES if case.task == "encoder"), *GOLDEN_DECODERS])
def test_architectures_for_transformers(tmp_path: Path, case) -> None:
    """Either the whole model comes back, or config.json is said not to have what it has."""
    checkpoint = read(unpacked(architecture_files(case), tmp_path / "from"))
    (tmp_path / "to").mkdir()
    if case.name not in WRITTEN:
        with pytest.raises(CheckpointError, match=r"config\.json cannot say the [^\n]* of this model"):
            huggingface.write(tmp_path / "to", checkpoint, "float32")
        return
    huggingface.write(tmp_path / "to", checkpoint, "float32")
    found = read(tmp_path / "to")
    assert found.spec == checkpoint.spec
    same(found, checkpoint)


def test_an_encoder_with_its_pooling(tmp_path: Path) -> None:
    checkpoint = read(unpacked(sentence_transformer_files(), tmp_path / "from"))
    plain = dataclasses.replace(checkpoint, input=dataclasses.replace(checkpoint.text, dense=()))
    (tmp_path / "to").mkdir()
    huggingface.write(tmp_path / "to", plain, "float32")
    found = read(tmp_path / "to")
    assert (found.spec, found.text) == (plain.spec, plain.text)
    with pytest.raises(CheckpointError, match="with a pooling alone"):
        huggingface.write(tmp_path / "to", checkpoint, "float32")


def test_what_cannot_be_said(tmp_path: Path) -> None:
    checkpoint = read(translation_model(tmp_path / "from"))
    with pytest.raises(CheckpointError, match="written as float32 or int8, not as int4"):
        ctranslate2.write(tmp_path, checkpoint, "int4")
    with pytest.raises(CheckpointError, match="written as float32 or bfloat16, not as int8"):
        huggingface.write(tmp_path, checkpoint, "int8")
    decoder = dataclasses.replace(checkpoint.spec.decoder, output_cap=3.0)
    other = dataclasses.replace(checkpoint, spec=dataclasses.replace(checkpoint.spec, decoder=decoder))
    with pytest.raises(CheckpointError, match="CTranslate2's format cannot say the decoder's output cap of this model"):
        ctranslate2.write(tmp_path, other, "float32")
    with pytest.raises(CheckpointError, match="config.json cannot say the .*architectures tried: marian"):
        huggingface.write(tmp_path, other, "float32")
