"""CTranslate2 directories that are refused, damaged ones among them: each error is one line that names all reasons."""

import json
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from fastattn import weights
from fastattn.errors import CheckpointError
from fastattn.weights.ctranslate2.file import parse
from tests.messages import refused
from tests.weights.ctranslate2 import writer


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def refuse(folder: Path) -> None:
    with refused(CheckpointError, str(folder)):
        weights.read(folder)


FIRST, OTHER = "encoder/layer_0/", "decoder/layer_1/"
SCALE = "encoder/embeddings_0/weight_scale"
# What is in the model, and its changed variables; "*/": of each attention with rotary positions.
REFUSED: list[tuple[dict, dict]] = [
    ({}, {FIRST + "self_attention/relative_position_keys": zeros(9, 4)}),
    ({}, {FIRST + "self_attention/q_norm/gamma": zeros(4)}), ({}, {OTHER + "self_attention/v_norm/gamma": zeros(4)}),
    ({}, {OTHER + "shared_layer_norm/gamma": zeros(16)}), ({}, {FIRST + "pre_feedforward_layer_norm/gamma": zeros(16)}),
    ({}, {OTHER + "external_pre_encoder_attention_layer_norm/gamma": zeros(16)}),
    ({}, {OTHER + "self_attention/memory_kv/weight": zeros(32, 16)}), ({}, {"decoder/project_in/weight": zeros(1)}),
    ({}, {OTHER + "ffn/linear_0/weight_zero": zeros(24, 16)}), ({}, {"encoder/embeddings_1/weight": zeros(23, 16)}),
    ({}, {"decoder/sliding_window": np.int32(9), "decoder/final_logit_softcapping": np.float32(30)}),
    ({}, {OTHER + "layer_scalar": np.float32(0.5)}), ({}, {OTHER + "self_attention/num_heads_kv": np.int32(2)}),
    ({}, {FIRST + "self_attention/queries_scale": np.float32(2)}),
    ({}, {FIRST + "self_attention/rotary_dim": np.int32(0)}), ({}, {"encoder/activation": np.int8(9)}),
    ({}, {"encoder/num_heads": np.int16(0)}), ({}, {"encoder/num_heads": np.int16(99)}),
    ({}, {"encoder/num_heads": np.ones(3, np.float32)}), ({}, {"encoder/scale_embeddings": np.float32(np.nan)}),
    ({}, {"decoder/alignment_layer": np.int16(2)}), ({}, {FIRST + "ffn/linear_0/weight": np.ones((24, 16), np.int32)}),
    ({}, {FIRST + "ffn/linear_1/weight": np.float32(1), FIRST + "ffn/linear_1/bias": None}),
    ({}, {"decoder/embeddings/weight": np.ones(19, np.float32)}),
    ({}, {"decoder/layer_4294967295/ffn/linear_0/bias": np.ones(24, np.float32)}),
    ({}, {"encoder/layer_1/self_attention/linear_1/weight": None, "decoder/layer_0/mystery/weight": zeros(2, 2),
          "decoder/layer_7/ffn/linear_1/bias": zeros(16), "decoder/projection/weight": zeros(18, 16)}),
    ({"rotary": True}, {"*/rotary_scaling_type": np.int8(1)}), ({"rotary": True}, {"*/rotary_dim": np.int32(3)}),
    ({"rotary": True}, {"*/rotary_scaling_type": np.int8(2)}), ({"rotary": True}, {"*/rotary_base": np.float32(-1)}),
    ({"rotary": True}, {"*/max_position_embeddings": np.int32(64), "*/original_max_position_embeddings": np.int32(16)}),
    ({"precision": "int8"}, {SCALE: None}), ({"precision": "int8"}, {SCALE: np.ones(5, np.float32)}),
    ({"precision": "int8"}, {SCALE: np.ones(23, np.int32)}), ({"precision": "int8"}, {SCALE: zeros(23)}),
    ({"precision": "int8"}, {SCALE: np.full(23, 1e-38, np.float32)}),
    ({"precision": "int8"}, {SCALE: np.full(23, np.nan, np.float32)}),
]  # fmt: skip


def test_variables_that_are_refused(tmp_path: Path, rng: np.random.Generator) -> None:
    for number, (shape, changes) in enumerate(REFUSED):
        variables = writer.random_transformer(rng, **{name: shape[name] for name in shape if name != "precision"})
        variables = writer.quantize(variables, "int8") if "precision" in shape else variables
        turned = [name.removesuffix("rotary_dim") for name in variables if name.endswith("/rotary_dim")]
        for name, value in changes.items():
            for place in [scope + name[2:] for scope in turned] if name.startswith("*/") else [name]:
                variables[place] = value
        stored = {name: value for name, value in variables.items() if value is not None}
        with refused(CheckpointError):
            weights.read(writer.write_folder(tmp_path / str(number), stored))


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
        with refused(CheckpointError):
            weights.read(folder)


def test_other_specifications_and_revisions(tmp_path: Path, rng: np.random.Generator) -> None:
    variables = writer.random_transformer(rng)
    refuse(writer.write_folder(tmp_path / "other", variables, spec="WhisperSpec", revision=1))
    refuse(writer.write_folder(tmp_path / "newer", variables, revision=8))
    headless = {name: value for name, value in variables.items() if "num_heads" not in name}
    refuse(writer.write_folder(tmp_path / "headless", headless, version=2, revision=2))


VOCABULARIES = [
    json.dumps(writer.vocabulary(18)), '{"a": 1}', "[1, 2]", '["\\ud800"]',
    json.dumps(["<unk>"] + [str(i) for i in range(18)]),
]  # fmt: skip


def test_files_that_are_missing_or_of_something_else(tmp_path: Path, rng: np.random.Generator) -> None:
    writer.write_folder(tmp_path, writer.random_transformer(rng))
    for content in VOCABULARIES:
        (tmp_path / "target_vocabulary.json").write_text(content)
        refuse(tmp_path)
    (tmp_path / "source_vocabulary.json").unlink()
    refuse(tmp_path)
    (tmp_path / "source_vocabulary.txt").write_bytes(b"ab\n\xff\n")
    refuse(tmp_path)
    (tmp_path / "config.json").unlink()
    refuse(tmp_path)


def test_a_path_that_is_no_checkpoint_names_the_formats(tmp_path: Path) -> None:
    refuse(tmp_path / "absent")
    refuse(tmp_path)
    for names in (["notes.txt"], [f"a{number}" for number in range(8)]):
        for name in names:
            (tmp_path / name).write_text("x")
        refuse(tmp_path)
        (tmp_path / "sub").mkdir(exist_ok=True)
    with refused(CheckpointError, "notes.txt"):
        weights.read(str(tmp_path / "notes.txt"))
    (tmp_path / "model.bin").write_bytes(b"")
    refuse(tmp_path / "model.bin")


SMALL = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b/weight": np.ones((2, 2), np.int8),
    "b/weight_scale": np.ones(2, np.float32),
}


def parse_bytes(data: bytes) -> None:
    parse(memoryview(bytearray(data)), "somewhere/model.bin")


@pytest.mark.parametrize("version", (1, 2, 3, 6))
def test_every_truncation_is_named(version: int) -> None:
    data = writer.model_bytes(SMALL, version=version, aliases={"c": "a"} if version >= 3 else None)
    parse_bytes(data)
    for size in range(len(data)):
        with pytest.raises(CheckpointError, match=r"^somewhere/model\.bin: at byte \d+: .*remain"):
            parse_bytes(data[:size])


def variable(name: bytes = b"a\0", rank: int = 1, dims: tuple[int, ...] = (2,), code: int = 0, size: int = 8) -> bytes:
    head = struct.pack("<H", len(name)) + name + struct.pack(f"<B{len(dims)}I", rank, *dims)
    return head + struct.pack("<BI", code, size)


def model(*variables: bytes, count: int | None = None, tail: bytes = b"\0\0\0\0") -> bytes:
    head = struct.pack("<I", 6) + b"\x02\0S\0" + struct.pack("<I", 1)
    return head + struct.pack("<I", len(variables) if count is None else count) + b"".join(variables) + tail


EIGHT = bytes(8)
BY_WIDTH = writer.model_bytes({"a": np.ones(2, np.float32)}, version=3)  # before version 4 types are
DAMAGED = [
    struct.pack("<II", 7, 0), struct.pack("<II", 0, 0), model(count=0xFFFFFFFF), model(tail=b"\xff\xff\xff\xff"),
    model(tail=bytes(5)), model(variable(b"a" * 1024 + b"\0") + EIGHT), model(variable(b"") + EIGHT),
    model(variable(b"ab") + EIGHT), model(variable(b"a\0\0") + EIGHT), model(variable(b"\xff\0") + EIGHT),
    model(variable(b"a\n\0") + EIGHT), model(variable(rank=9, dims=(1,) * 9) + EIGHT),
    model(variable(dims=(3,)) + EIGHT), model(variable(rank=2, dims=(0xFFFFFFFF, 0xFFFFFFFF)) + EIGHT),
    model(variable(rank=6, dims=(0, *[0xFFFFFFFF] * 5), size=0)), model(variable(code=6) + EIGHT),
    model(variable(dims=(0x3FFFFFFF,), size=0xFFFFFFFC) + EIGHT), model(variable() + EIGHT, variable() + EIGHT),
    model(variable() + EIGHT, tail=struct.pack("<I", 1) + b"\x02\0a\0\x02\0a\0"),
    model(tail=struct.pack("<I", 1) + b"\x02\0c\0\x02\0d\0"),
    BY_WIDTH.replace(struct.pack("<BI", 4, 2), struct.pack("<BI", 8, 1)),
]  # fmt: skip


def test_each_fault_is_named() -> None:
    for data in DAMAGED:
        with refused(CheckpointError, "somewhere/model.bin: "):
            parse_bytes(data)


def complete(path: Path) -> Path:
    writer.write_vocabularies(path, writer.vocabulary(23), writer.vocabulary(19))
    writer.write_config(path)
    return path


def test_stacks_of_different_widths(tmp_path: Path) -> None:
    """Each fits its own attributes, but the decoder would read past the encoder's rows."""
    narrow, wide = (writer.random_transformer(np.random.default_rng(0), width=width) for width in (16, 32))
    variables = {name: value for name, value in narrow.items() if name.startswith("encoder/")}
    variables |= {name: value for name, value in wide.items() if name.startswith("decoder/")}
    refuse(complete(writer.write_model(tmp_path, variables)))


def peak_of_refusal(path: Path) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError):
            weights.read(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_empty_weights_ask_for_no_biases(tmp_path: Path) -> None:
    """Arrays of no bytes may state many rows: each such layer would have got a bias for every row."""
    variables = writer.random_transformer(np.random.default_rng(0), encoder_layers=1)
    variables["encoder/unused"] = np.zeros(500_000, np.int8)
    for i in range(300):
        for name in ("linear_0", "linear_1"):
            variables[f"encoder/layer_{i}/ffn/{name}/weight"] = np.zeros((500_000, 0), np.float32)
    path = complete(writer.write_model(tmp_path, variables))
    assert peak_of_refusal(path) < 4 * (path / "model.bin").stat().st_size + (1 << 20)


def test_text_of_the_wrong_type_is_not_written_out(tmp_path: Path) -> None:
    variables = writer.random_transformer(np.random.default_rng(0))
    writer.write_model(tmp_path, variables | {"unk_token": np.zeros(1_000_000, np.float32)}, version=5)
    writer.write_vocabularies(tmp_path, writer.vocabulary(23), writer.vocabulary(19))
    assert peak_of_refusal(tmp_path) < 1 << 20
