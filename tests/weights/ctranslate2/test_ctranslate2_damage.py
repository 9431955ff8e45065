"""Damaged model.bin files: each fault is one clear line, whatever the bytes, and nothing is allocated on their word."""

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from fastattn import weights
from fastattn.errors import CheckpointError
from fastattn.weights.ctranslate2.file import parse
from tests.weights.ctranslate2 import writer
from tests.weights.mutators import damaged_copies
from tests.weights.refusals import refusal

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
DAMAGED = {
    "binary version should be 1 to 6, is 7": struct.pack("<II", 7, 0),
    "binary version should be 1 to 6, is 0": struct.pack("<II", 0, 0),
    "number of variables 4294967295 needs at least": model(count=0xFFFFFFFF),
    "number of aliases 4294967295 needs at least": model(tail=b"\xff\xff\xff\xff"),
    "expected the end of the file, 1 bytes remain": model(tail=bytes(5)),
    "a variable's name should have 1 to 1024 bytes, has 1025": model(variable(b"a" * 1024 + b"\0") + EIGHT),
    "a variable's name should have 1 to 1024 bytes, has 0": model(variable(b"") + EIGHT),
    "should end at its only NUL, is b'ab'": model(variable(b"ab") + EIGHT),
    "should end at its only NUL, is b'a\\x00\\x00'": model(variable(b"a\0\0") + EIGHT),
    "a variable's name should be UTF-8": model(variable(b"\xff\0") + EIGHT),
    "rank of a should be at most 8, is 9": model(variable(rank=9, dims=(1,) * 9) + EIGHT),
    "a of float32 [3] takes 12 bytes, not 8": model(variable(dims=(3,)) + EIGHT),
    "takes 73786976260478468100 bytes, not 8": model(variable(rank=2, dims=(0xFFFFFFFF, 0xFFFFFFFF)) + EIGHT),
    "should be printable, is 'a\\n'": model(variable(b"a\n\0") + EIGHT),
    "a is empty but has dimensions [0, 4294967295": model(variable(rank=6, dims=(0, *[0xFFFFFFFF] * 5), size=0)),
    "type of a should be one of 0 (float32), 1 (int8)": model(variable(code=6) + EIGHT),
    "expected 4294967292 bytes of a, 12 remain": model(variable(dims=(0x3FFFFFFF,), size=0xFFFFFFFC) + EIGHT),
    "variable a is given twice": model(variable() + EIGHT, variable() + EIGHT),
    "alias a is also a variable": model(variable() + EIGHT, tail=struct.pack("<I", 1) + b"\x02\0a\0\x02\0a\0"),
    "alias c stands for d, which is missing": model(tail=struct.pack("<I", 1) + b"\x02\0c\0\x02\0d\0"),
}


@pytest.mark.parametrize("fault", DAMAGED)
def test_each_fault_is_named(fault: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        parse_bytes(DAMAGED[fault])
    assert fault in str(caught.value) and str(caught.value).startswith("somewhere/model.bin: ")
    assert "\n" not in str(caught.value)


def test_versions_before_4_know_items_by_their_width() -> None:
    data = writer.model_bytes({"a": np.ones(2, np.float32)}, version=3)
    with pytest.raises(
        CheckpointError, match=r"type of a should be one of 1 \(int8\), 2 \(int16\), 4 \(float32\), is 8"
    ):
        parse_bytes(data.replace(struct.pack("<BI", 4, 2), struct.pack("<BI", 8, 1)))


@pytest.mark.parametrize(
    ("scale", "fault"),
    [
        (None, "weight_scale is missing"),
        (np.ones(5, np.float32), r"should be float32 \[23\] for int8"),
        (np.ones(23, np.int32), r"should be float32 \[23\] for int8"),
        (np.zeros(23, np.float32), "should be above 1e-30 everywhere"),
        (np.full(23, 1e-38, np.float32), "should be above 1e-30 everywhere"),
        (np.full(23, np.nan, np.float32), "should be above 1e-30 everywhere"),
    ],
)
def test_scales_that_cannot_be(tmp_path: Path, scale: np.ndarray | None, fault: str) -> None:
    stored = writer.quantize(writer.random_transformer(np.random.default_rng(0)), "int8")
    del stored["encoder/embeddings_0/weight_scale"]
    if scale is not None:
        stored["encoder/embeddings_0/weight_scale"] = scale
    refusal(writer.write_model(tmp_path, stored) and complete(tmp_path), fault, names_path=False)


def complete(path: Path) -> Path:
    writer.write_vocabularies(path, writer.vocabulary(23), writer.vocabulary(19))
    writer.write_config(path)
    return path


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("encoder/num_heads", np.ones(3, np.float32), "should be a single value"),
        ("encoder/scale_embeddings", np.float32(np.nan), "should be a finite number"),
        ("encoder/layer_0/ffn/linear_0/weight", np.ones((24, 16), np.int32), "should hold weights, holds int32"),
        ("decoder/embeddings/weight", np.ones(19, np.float32), "should have 2 dimensions"),
        ("decoder/layer_4294967295/ffn/linear_0/bias", np.ones(24, np.float32), "unexpected"),
    ],
)
def test_variables_of_the_wrong_kind(tmp_path: Path, name: str, value: np.ndarray, fault: str) -> None:
    variables = writer.random_transformer(np.random.default_rng(0)) | {name: value}
    refusal(complete(writer.write_model(tmp_path, variables)), fault, names_path=False)


def test_stacks_of_different_widths(tmp_path: Path) -> None:
    """Each fits its own attributes, but the decoder would read past the encoder's rows."""
    narrow, wide = (writer.random_transformer(np.random.default_rng(0), width=width) for width in (16, 32))
    variables = {name: value for name, value in narrow.items() if name.startswith("encoder/")}
    variables |= {name: value for name, value in wide.items() if name.startswith("decoder/")}
    refusal(complete(writer.write_model(tmp_path, variables)), r"model\.bin: .* its own width 32, the encoder gives 16")


def test_a_weight_that_is_a_single_value_and_has_no_bias(tmp_path: Path) -> None:
    variables = writer.random_transformer(np.random.default_rng(0))
    del variables["encoder/layer_0/ffn/linear_1/bias"]
    variables["encoder/layer_0/ffn/linear_1/weight"] = np.float32(1)
    refusal(complete(writer.write_model(tmp_path, variables)), r"linear_1|feed_forward.outer")


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


def tiny_model() -> bytes:
    variables = writer.random_transformer(
        np.random.default_rng(0), encoder_layers=1, decoder_layers=1, width=4, heads=2, inner_width=4,
        source_vocabulary=4, target_vocabulary=4,
    )  # fmt: skip
    del variables["decoder/projection/weight"]
    aliases = {"decoder/projection/weight": "decoder/embeddings/weight"}
    return writer.model_bytes(writer.quantize(variables, "int8"), aliases=aliases)


TINY = tiny_model()


def read_tiny(path: Path, data: bytes) -> None:
    (path / "model.bin").write_bytes(data)
    writer.write_vocabularies(path, writer.vocabulary(4))
    writer.write_config(path)
    weights.read(path)


def test_the_model_to_mutate_is_sound(tmp_path: Path) -> None:
    read_tiny(tmp_path, TINY)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(damaged=damaged_copies(TINY))
def test_mutated_files_load_or_raise_a_checkpoint_error(tmp_path: Path, damaged: bytes) -> None:
    try:
        read_tiny(tmp_path, damaged)
    except CheckpointError as error:
        assert len(str(error).splitlines()) == 1
