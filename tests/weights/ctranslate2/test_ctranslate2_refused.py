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
from tests.weights.ctranslate2 import writer
from tests.weights.refusals import refusal


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


Changes = dict[str, np.ndarray | np.generic | None]
FIRST, OTHER = "encoder/layer_0/", "decoder/layer_1/"
SCALE = "encoder/embeddings_0/weight_scale"
# (what is in the model, its changed variables, what is said); "*/": of each attention with rotary positions
REFUSED: list[tuple[dict, Changes, str]] = [
    ({}, {FIRST + "self_attention/relative_position_keys": zeros(9, 4)}, "relative position representations"),
    ({}, {FIRST + "self_attention/q_norm/gamma": zeros(4)}, "norms of queries and keys"),
    ({}, {OTHER + "external_pre_encoder_attention_layer_norm/gamma": zeros(16)}, "norms around the cross-attention"),
    ({}, {OTHER + "ffn/linear_0/weight_zero": zeros(24, 16)}, "4-bit weights"),
    ({}, {OTHER + "layer_scalar": np.float32(0.5)}, "layer_scalar"),
    ({}, {"encoder/embeddings_1/weight": zeros(23, 16)}, "source features"),
    ({}, {OTHER + "self_attention/num_heads_kv": np.int32(2)}, "num_heads_kv that differs between layers"),
    ({}, {FIRST + "self_attention/queries_scale": np.float32(2)}, "queries_scale that differs between layers"),
    ({}, {FIRST + "self_attention/rotary_dim": np.int32(0)}, "rotary_dim that is not the same in every"),
    ({}, {"encoder/activation": np.int8(9)}, "activation should be one of"),
    ({}, {"encoder/num_heads": np.int16(0)}, "num_heads should be at least 1"),
    ({}, {"encoder/num_heads": np.ones(3, np.float32)}, "should be a single value"),
    ({}, {"encoder/scale_embeddings": np.float32(np.nan)}, "should be a finite number"),
    ({}, {"decoder/alignment_layer": np.int16(2)}, "alignment_layer"),
    ({}, {FIRST + "ffn/linear_0/weight": np.ones((24, 16), np.int32)}, "should hold weights, holds int32"),
    ({}, {FIRST + "ffn/linear_1/weight": np.float32(1), FIRST + "ffn/linear_1/bias": None}, "feed_forward.outer"),
    ({}, {"decoder/embeddings/weight": np.ones(19, np.float32)}, "should have 2 dimensions"),
    ({}, {"decoder/layer_4294967295/ffn/linear_0/bias": np.ones(24, np.float32)}, "unexpected"),
    ({"rotary": True}, {"*/rotary_scaling_type": np.int8(1)}, "su rotary scaling"),
    ({"rotary": True}, {"*/rotary_dim": np.int32(3)}, "even number"),
    ({"rotary": True}, {"*/rotary_base": np.float32(-1)}, "base -1"),
    (
        {"rotary": True},
        {"*/max_position_embeddings": np.int32(64), "*/original_max_position_embeddings": np.int32(16)},
        "scaled by max_position_embeddings",
    ),
    ({"precision": "int8"}, {SCALE: None}, "weight_scale is missing"),
    ({"precision": "int8"}, {SCALE: np.ones(5, np.float32)}, "should be float32 [23] for int8"),
    ({"precision": "int8"}, {SCALE: np.ones(23, np.int32)}, "should be float32 [23] for int8"),
    ({"precision": "int8"}, {SCALE: zeros(23)}, "should be above 1e-30 everywhere"),
    ({"precision": "int8"}, {SCALE: np.full(23, np.nan, np.float32)}, "should be above 1e-30 everywhere"),
]


@pytest.mark.parametrize("options, changes, said", REFUSED)
def test_variables_that_are_refused(
    tmp_path: Path, rng: np.random.Generator, options: dict, changes: Changes, said: str
) -> None:
    shape = {name: value for name, value in options.items() if name != "precision"}
    variables = writer.random_transformer(rng, **shape)
    if "precision" in options:
        variables = writer.quantize(variables, options["precision"])
    turned = [name.removesuffix("rotary_dim") for name in variables if name.endswith("/rotary_dim")]
    for name, value in changes.items():
        for place in [scope + name[2:] for scope in turned] if name.startswith("*/") else [name]:
            variables[place] = value
    stored = {name: value for name, value in variables.items() if value is not None}
    assert said in refusal(writer.write_folder(tmp_path, stored), names_path=False)


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
    folder = writer.write_folder(tmp_path, writer.random_transformer(rng) | extra)
    refusal(folder, "sliding window.*final_logit.*norms of queries and keys")


def test_tensors_missing_extra_and_misshapen_come_in_one_error(tmp_path: Path, rng: np.random.Generator) -> None:
    variables = writer.random_transformer(rng)
    del variables["encoder/layer_1/self_attention/linear_1/weight"]
    variables["decoder/layer_0/mystery/weight"] = np.zeros((2, 2), np.float32)
    variables["decoder/layer_7/ffn/linear_1/bias"] = np.zeros(16, np.float32)
    variables["decoder/projection/weight"] = np.zeros((18, 16), np.float32)
    message = refusal(writer.write_folder(tmp_path, variables))
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


def complete(path: Path) -> Path:
    writer.write_vocabularies(path, writer.vocabulary(23), writer.vocabulary(19))
    writer.write_config(path)
    return path


def test_stacks_of_different_widths(tmp_path: Path) -> None:
    """Each fits its own attributes, but the decoder would read past the encoder's rows."""
    narrow, wide = (writer.random_transformer(np.random.default_rng(0), width=width) for width in (16, 32))
    variables = {name: value for name, value in narrow.items() if name.startswith("encoder/")}
    variables |= {name: value for name, value in wide.items() if name.startswith("decoder/")}
    refusal(
        complete(writer.write_model(tmp_path, variables)),
        r"model\.bin: the decoder takes rows of width 32, the encoder gives 16",
    )


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
