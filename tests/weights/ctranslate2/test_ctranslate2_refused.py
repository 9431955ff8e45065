"""CTranslate2 directories that are refused: each for a reason that its error names, all reasons in one error."""

import json
from pathlib import Path

import numpy as np
import pytest

from fastattn import weights
from fastattn.errors import CheckpointError
from tests.weights.ctranslate2 import writer
from tests.weights.refusals import refusal


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


REFUSED = {
    "relative position representations": {"encoder/layer_0/self_attention/relative_position_keys": (9, 4)},
    "norms of queries and keys": {"encoder/layer_0/self_attention/q_norm/gamma": (4,)},
    "norms of values": {"decoder/layer_0/self_attention/v_norm/gamma": (4,)},
    "parallel residual connections": {"decoder/layer_0/shared_layer_norm/gamma": (16,)},
    "norms before and after each block": {"encoder/layer_0/pre_feedforward_layer_norm/gamma": (16,)},
    "norms around the cross-attention": {"decoder/layer_0/external_pre_encoder_attention_layer_norm/gamma": (16,)},
    "self-attention merged with cross-attention": {"decoder/layer_0/self_attention/memory_kv/weight": (32, 16)},
    "a projection after the embedding": {"decoder/project_in/weight": (16, 16)},
    "4-bit weights": {"decoder/layer_0/ffn/linear_0/weight_zero": (24, 16)},
    "sliding window attention": {"decoder/sliding_window": np.int32(9)},
    "final_logit_softcapping": {"decoder/final_logit_softcapping": np.float32(30)},
    "layer_scalar": {"decoder/layer_0/layer_scalar": np.float32(0.5)},
    "source features": {"encoder/embeddings_1/weight": (23, 16)},
    "num_heads_kv that differs between layers": {"decoder/layer_1/self_attention/num_heads_kv": np.int32(2)},
    "queries_scale that differs between layers": {"encoder/layer_1/self_attention/queries_scale": np.float32(2)},
    "rotary_dim that is not the same in every": {"encoder/layer_1/self_attention/rotary_dim": np.int32(0)},
    "activation should be one of": {"encoder/activation": np.int8(9)},
    "num_heads should be at least 1": {"encoder/num_heads": np.int16(0)},
    "heads of width": {"encoder/num_heads": np.int16(99)},
    "alignment_layer": {"decoder/alignment_layer": np.int16(2)},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_a_spec_cannot_say_is_refused_by_name(tmp_path: Path, rng: np.random.Generator, reason: str) -> None:
    extra = {
        name: np.zeros(value, np.float32) if isinstance(value, tuple) else value
        for name, value in REFUSED[reason].items()
    }
    writer.write_folder(tmp_path, writer.random_transformer(rng) | extra)
    with pytest.raises(CheckpointError) as caught:
        weights.read(tmp_path)
    assert reason in str(caught.value) and str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"rotary_scaling_type": np.int8(1)}, "su rotary scaling"),
        ({"rotary_scaling_type": np.int8(2)}, "llama3 rotary scaling"),
        ({"rotary_dim": np.int32(3)}, "even number"),
        ({"rotary_base": np.float32(-1)}, "base -1"),
        (
            {"max_position_embeddings": np.int32(64), "original_max_position_embeddings": np.int32(16)},
            "scaled by max_position_embeddings",
        ),
    ],
)
def test_rotary_positions_that_are_refused(
    tmp_path: Path, rng: np.random.Generator, attributes: dict, reason: str
) -> None:
    variables = writer.random_transformer(rng, rotary=True)
    for name in list(variables):
        if name.endswith("rotary_dim"):
            variables |= {name.replace("rotary_dim", key): value for key, value in attributes.items()}
    refusal(writer.write_folder(tmp_path, variables), reason)


@pytest.mark.parametrize(("buckets", "distance", "read"), [(8, 5, True), (8, 4, False), (4, 3, True), (3, 9, False)])
def test_relative_buckets_go_beyond_those_of_one_key_each(
    tmp_path: Path, rng: np.random.Generator, buckets: int, distance: int, read: bool
) -> None:
    variables = writer.random_transformer(rng, relative_buckets=buckets)
    for name in list(variables):
        if name.endswith("relative_attention_bias"):
            variables[name] = variables[name.split("/")[0] + "/layer_0/self_attention/relative_attention_bias"]
        elif name.endswith("relative_attention_max_distance"):
            variables[name] = np.int32(distance)
    folder = writer.write_folder(tmp_path, variables)
    if read:
        assert weights.read(folder).spec.encoder.positions.max_distance == distance
    else:
        refusal(folder, f"exceed half of them, they are {buckets} and {distance}")


def test_all_reasons_come_in_one_error(tmp_path: Path, rng: np.random.Generator) -> None:
    extra = {"decoder/sliding_window": np.int32(4), "decoder/final_logit_softcapping": np.float32(5)}
    extra["encoder/layer_0/self_attention/k_norm/gamma"] = np.zeros(4, np.float32)
    writer.write_folder(tmp_path, writer.random_transformer(rng) | extra)
    with pytest.raises(CheckpointError, match="sliding window.*final_logit.*norms of queries and keys") as caught:
        weights.read(tmp_path)
    assert len(str(caught.value).splitlines()) == 1


def test_tensors_missing_extra_and_misshapen_come_in_one_error(tmp_path: Path, rng: np.random.Generator) -> None:
    variables = writer.random_transformer(rng)
    del variables["encoder/layer_1/self_attention/linear_1/weight"]
    variables["decoder/layer_0/mystery/weight"] = np.zeros((2, 2), np.float32)
    variables["decoder/layer_7/ffn/linear_1/bias"] = np.zeros(16, np.float32)
    variables["decoder/projection/weight"] = np.zeros((18, 16), np.float32)
    with pytest.raises(CheckpointError) as caught:
        weights.read(writer.write_folder(tmp_path, variables))
    message = str(caught.value)
    for part in (
        "missing encoder.layers.1.self_attention.output.weight",
        "unexpected decoder/layer_0/mystery/weight [2, 2]",
        "unexpected decoder.layers.7.feed_forward.outer.bias",
        "decoder.projection.weight should be [19, 16], is [18, 16]",
    ):
        assert part in message


@pytest.mark.parametrize("spec", ("WhisperSpec", "TransformerDecoderSpec", "Wav2Vec2Spec"))
def test_other_specifications_are_refused_by_name(tmp_path: Path, rng: np.random.Generator, spec: str) -> None:
    writer.write_folder(tmp_path, writer.random_transformer(rng), spec=spec, revision=1)
    refusal(tmp_path, f"{spec} models are not supported; supported: .*TransformerSpec")


def test_newer_revisions_and_lost_heads_are_refused(tmp_path: Path, rng: np.random.Generator) -> None:
    refusal(
        writer.write_folder(tmp_path / "newer", writer.random_transformer(rng), revision=8),
        "revision should be 1 to 7, is 8",
    )
    variables = {name: value for name, value in writer.random_transformer(rng).items() if "num_heads" not in name}
    refusal(
        writer.write_folder(tmp_path / "headless", variables, version=2, revision=2), "does not say its number of heads"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (json.dumps(writer.vocabulary(18)), "embedding has 19 rows, the vocabulary 18 tokens"),
        ('{"a": 1}', "should hold a list of strings"),
        ("[1, 2]", "should hold a list of strings"),
        ('["\\ud800"]', "should hold a list of strings"),
        ("[" * 100_000, "not JSON"),
        (json.dumps(["<unk>"] + [str(i) for i in range(18)]), "lacks '</s>'"),
    ],
)
def test_vocabularies_that_are_refused(tmp_path: Path, rng: np.random.Generator, content: str, reason: str) -> None:
    writer.write_folder(tmp_path, writer.random_transformer(rng))
    (tmp_path / "target_vocabulary.json").write_text(content)
    refusal(tmp_path, reason)


def test_files_that_are_missing_or_not_utf8(tmp_path: Path, rng: np.random.Generator) -> None:
    writer.write_folder(tmp_path, writer.random_transformer(rng))
    (tmp_path / "source_vocabulary.json").unlink()
    refusal(tmp_path, r"source_vocabulary\.json .*no such file")
    (tmp_path / "source_vocabulary.txt").write_bytes(b"ab\n\xff\n")
    refusal(tmp_path, "not UTF-8 at byte 3")
    (tmp_path / "config.json").unlink()
    refusal(tmp_path, r"config\.json: missing")


def test_a_path_that_is_no_checkpoint_names_the_formats(tmp_path: Path) -> None:
    refusal(tmp_path / "absent", r"no such file or folder; expected one of: .*CTranslate2.*Hugging Face")
    refusal(tmp_path, "the folder is empty")
    (tmp_path / "notes.txt").write_text("x")
    refusal(tmp_path, r"found 'notes\.txt'")
    (tmp_path / "sub").mkdir()
    refusal(tmp_path, r"found 'notes\.txt', 'sub/'$")
    for number in range(8):
        (tmp_path / f"a{number}").write_text("x")
    refusal(tmp_path, r"found 'a0', .*'a7' and 2 more$")
    refusal(str(tmp_path / "notes.txt"), "Argos")
    (tmp_path / "model.bin").write_bytes(b"")
    refusal(tmp_path / "model.bin", "give its folder")
