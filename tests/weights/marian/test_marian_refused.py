"""Marian folders that are damaged, or of models that are not supported: one line each that says what is wrong."""

import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fastattn import weights
from fastattn.errors import CheckpointError
from fastattn.weights.marian.yml import parse_options
from tests.weights.forked import run_forked
from tests.weights.marian import writer
from tests.weights.refusals import refusal

ARRAYS, OPTIONS = writer.random_model(1)
STORED = ARRAYS | {"special:model.yml": writer.settings(OPTIONS)}


def refusal_of(path: Path, arrays: writer.Arrays = ARRAYS, **changes: object) -> str:
    options = OPTIONS | {name.replace("_", "-"): value for name, value in changes.items()}
    return refusal(writer.write(path, writer.files(arrays, options)))


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"type": "s2s"}, "type 's2s' is not supported; supported: transformer"),
        ({"right_left": True}, "right-left 'true'"),
        ({"transformer_preprocess": "n"}, "transformer-preprocess 'n' with transformer-postprocess 'dan'"),
        ({"transformer_postprocess": "dhn"}, "transformer-preprocess '' with transformer-postprocess 'dhn'"),
        ({"transformer_postprocess_emb": "r"}, "transformer-postprocess-emb 'r' with layer norms in each block"),
        ({"transformer_postprocess_top": "a"}, "transformer-postprocess-top 'a'"),
        ({"transformer_ffn_activation": "elu"}, "transformer-ffn-activation 'elu' (known: relu, swish, gelu, sigmoid)"),
        ({"transformer_ffn_depth": 3}, "feed-forward layers of other depths than 2 (3, in the decoder 3)"),
        ({"transformer_decoder_autoreg": "rnn"}, "dec-cell 'gru' (known: ssru)"),
        ({"transformer_decoder_autoreg": "lstm"}, "transformer-decoder-autoreg 'lstm' (known: self-attention, rnn,"),
        ({"transformer_decoder_autoreg": "average-attention", "transformer_aan_depth": 3}, "transformer-aan-depth 3"),
        ({"transformer_tied_layers": [1, 2, 3]}, "transformer-tied-layers should be 2 numbers from 1"),
        ({"transformer_guided_alignment_layer": 3}, "transformer-guided-alignment-layer '3' of 2"),
        ({"transformer_heads": 3}, "dim-emb 16 is not a multiple of transformer-heads 3"),
        ({"dim_vocabs": [40, 39]}, "dim-vocabs says '39', Wemb has 40 rows"),
        ({"enc_depth": 10**9 - 1}, "enc-depth is 999999999, but there are"),
        ({"enc_depth": "two"}, "enc-depth should be a whole number of at least 1, is 'two'"),
        ({"skip": [1, 2], "ulr": "maybe"}, "ulr 'maybe'"),
        ({"transformer_moe_experts": 4}, "option transformer-moe-experts is not known"),
    ],
)
def test_options(changes: dict, reason: str, tmp_path: Path) -> None:
    assert reason in refusal_of(tmp_path, **changes)


def test_all_reasons_are_told_at_once(tmp_path: Path) -> None:
    message = refusal_of(tmp_path, right_left=True, transformer_pool=True, new_option=1, transformer_no_bias=True)
    for reason in ("right-left", "transformer-pool", "option new-option is not known", "transformer-no-bias"):
        assert reason in message


def test_norms_before_blocks_of_old_versions(tmp_path: Path) -> None:
    changes = {"transformer_preprocess": "n", "transformer_postprocess": "da", "transformer_postprocess_top": "n"}
    arrays, options = writer.random_model(1, version="v1.9.56 94aeaa46 2021-04-28", **changes)
    message = refusal(writer.write(tmp_path / "old", writer.files(arrays, options)))
    assert "norms before each block as Marian before 1.11 had them" in message
    for version in ("v1.11.0 a 2022-02-08", "v2.0.1", "unknown"):
        path = writer.write(tmp_path / version[:5], writer.files(arrays, options | {"version": version}))
        assert weights.read(path).format == "marian"


def test_recurrent_decoders_with_more_in_them(tmp_path: Path) -> None:
    changes = {"transformer_decoder_autoreg": "rnn", "dec_cell": "ssru", "layer_normalization": True}
    message = refusal_of(tmp_path, transformer_rnn_projection=True, **changes)
    assert "layer-normalization in a recurrent decoder; transformer-rnn-projection" in message


def test_arrays_that_do_not_fit_are_named_all_at_once(tmp_path: Path) -> None:
    arrays = dict(ARRAYS)
    del arrays["encoder_l1_self_Wq"]
    arrays |= {"Wpos": np.zeros((4, 16), np.float32), "decoder_l2_ffn_b1": np.zeros((1, 5), np.float32)}
    arrays["Wemb_QuantMultA"] = np.ones((1, 1), np.float32)
    message = refusal_of(tmp_path, arrays)
    for reason in (
        "missing encoder_l1_self_Wq [16, 16]",
        "unexpected Wpos [4, 16]",
        "decoder_l2_ffn_b1 should be [24], is [1, 5]",
    ):
        assert reason in message
    assert "QuantMultA" not in message
    deep = ARRAYS | {"decoder_l1_ffn_W1": ARRAYS["decoder_l1_ffn_W1"][None]}
    assert "decoder_l1_ffn_W1 should be [16, 24], is [1, 16, 24]" in refusal_of(tmp_path / "deep", deep)
    assert "missing Wpos" in refusal_of(tmp_path / "trained", transformer_train_position_embeddings=True)


def test_scales_of_inputs_that_are_wrong(tmp_path: Path) -> None:
    def message(name: str, changes: writer.Arrays, *lost: str) -> str:
        arrays = {name: array for name, array in writer.with_alphas(ARRAYS).items() if name not in lost} | changes
        config = {"gemm_precision": "int8shiftAlphaAll", "intgemm": writer.BROWSERMT}
        return refusal(writer.write(tmp_path / name, writer.files(arrays, OPTIONS, "model.bin", **config)))

    alpha = "encoder_l1_self_Wk_QuantMultA"
    assert f"missing {alpha}, a scale of inputs" in message("lost", {}, alpha)
    assert "missing none_QuantMultA or Wemb_QuantMultA" in message("tied", {}, "none_QuantMultA")
    assert "should be one number, the same for all" in message("other", {alpha: np.full((1, 1), 3, np.float32)})
    assert "should be one number" in message("two", {"none_QuantMultA": np.ones((1, 2), np.float32)})
    zero = {"decoder_l1_ffn_W1_QuantMultA": np.zeros((1, 1), np.float32)}
    assert "should be from 1e-30 to 1e30, is 0.0" in message("zero", zero)


@pytest.mark.parametrize(
    "config, reason",
    [
        ({"models": ["model.npz", "other.npz"]}, "models should be one, are 2"),
        ({"models": "missing.npz"}, "no such file, but the configuration names it"),
        ({"vocabs": ["a", "b", "c"]}, "vocabs should be the source's and the target's, are 3"),
        ({"vocabs": ["../vocab.yml"]}, "'../vocab.yml' lies outside the folder"),
        ({"vocabs": [".."], "relative_paths": False}, "'..' lies outside the folder"),
        ({"gemm_precision": "int4"}, "gemm-precision 'int4' (known: float32, int16, int8"),
        ({"shortlist": ["lex.bin", 50, 50]}, "shortlist ['lex.bin', '50', '50']; the numbers behind"),
        ({"no_spm_encode": True, "clip_gemm": 2, "strange": 1}, "no-spm-encode 'true'; clip-gemm '2'; option strange"),
        ({"relative_paths": "perhaps"}, "relative-paths should be true or false, is 'perhaps'"),
    ],
)
def test_configurations(config: dict, reason: str, tmp_path: Path) -> None:
    assert reason in refusal(writer.write(tmp_path, writer.files(ARRAYS, OPTIONS, **config)))


def test_folders_that_leave_a_choice(tmp_path: Path) -> None:
    contents = writer.files(ARRAYS, OPTIONS)
    two = {f"config.{name}.yml": contents["config.yml"] for name in "ab"}
    bare = {name: content for name, content in contents.items() if name != "config.yml"}
    for name, files, reason in (
        ("configurations", bare | two, "several configurations, 'config.a.yml', 'config.b.yml'; keep one"),
        ("models", bare | {"b.npz": b""}, "there should be one model; found 'b.npz', 'model.npz'"),
        ("vocabularies", bare | {"vocab.b.yml": b""}, "found 'vocab.b.yml', 'vocab.yml'"),
        ("none", {"model.npz": contents["model.npz"]}, "found none"),
    ):
        assert reason in refusal(writer.write(tmp_path / name, files))


def test_vocabularies(tmp_path: Path) -> None:
    for number, (name, content, reason) in enumerate(
        [
            ("v.fsv", b"", "factored vocabularies are not supported"),
            ("v.txt", b"</s>", "vocabularies of this kind are not supported"),
            ("v.yml", b"</s>: 0\nx\n", "line 2: should be 'token: id', is 'x'"),
            ("v.yml", b"</s>: 0\nx: 0\n", "line 2: id 0 is given twice"),
            ("v.yml", b"</s>: 0\nx\xff: 1\n", "line 2: not UTF-8 at byte 1"),
            ("v.yml", b"</s>: 0\n" + b"x" * 100_000, "line 2: has 100000 bytes, more than 65536"),
            ("v.json", b'{"a": -1}', "should hold a JSON object of tokens and their ids"),
            ("v.json", b'{"a": 1, "b": 1}', "two tokens have the same id"),
            ("v.spm", b"nothing", "sentencepiece model"),
        ]
    ):
        files = writer.files(ARRAYS, OPTIONS, vocabs=[name, name]) | {name: content}
        assert reason in refusal(writer.write(tmp_path / str(number), files))


@pytest.mark.parametrize(
    "text, reason",
    [
        ("a: {x: 1}", "line 1: should be one value or a list"),
        ("a: 1\nb:\n  c: 1", "line 3: should be 'name: value' or '- value'"),
        ("a: &x 1", "should be one value"),
        ("a: [x,,y]", "should be a list"),
        ('a: [x, "y]', "should be a list"),
        ("a: 1\n- b", "line 2: should be 'name: value'"),
        ("a: 1\na: 2", "line 2: a is given twice"),
        ("a: b: c", "should be one value"),
        ('a: "\\q"', "an escape that YAML does not know"),
        ('a: "\\ud800"', "an escape that YAML does not know"),
    ],
)
def test_yaml_beyond_what_marian_writes(text: str, reason: str) -> None:
    with pytest.raises(CheckpointError, match="^w: line") as raised:
        parse_options(text.encode(), "w")
    assert reason in str(raised.value)


# In a process of its own, which can be ended: what takes the square of such a line's length would take many minutes.
LONG_LINES = """
from fastattn.errors import CheckpointError
from fastattn.weights.marian import yml

yml.LONGEST_LINE = 1 << 30
def refuse(parse, data):
    try: parse(data, "w")
    except CheckpointError: return
    raise SystemExit(f"was read: {data[:20]}")

for start, end in (("a: x", "y: z"), ("a: [x", "[]"), ("a: [", '"'), ('a: "', ""), ("a: '" + "''" * 10, "'x")):
    for middle in (" ", "\\t", " #x", "''", "' ", "\\\\x", '\\\\"', '\\\\" ', "x, ", "]"):
        refuse(yml.parse_options, f"{start}{middle * (200_000 // len(middle))}{end}\\n-".encode())
refuse(yml.parse_vocabulary, b"x" + b" " * 200_000 + b": 1" + b" :" * 100_000)
"""


def test_long_lines_take_no_long_time() -> None:
    done = run_forked("-c", LONG_LINES, timeout=120)
    assert done.returncode == 0, done.stderr


def bin_folder(path: Path, data: bytes) -> Path:
    return writer.write(path, writer.files(ARRAYS, OPTIONS, "m.bin") | {"m.bin": data})


def test_damaged_bins(tmp_path: Path) -> None:
    whole = writer.bin_bytes(STORED, writer.BROWSERMT)
    count = len(STORED)
    names_at = 16 + 32 * count
    for number, (data, reason) in enumerate(
        [
            (b"", "expected 8 bytes of version, 0 remain"),
            (whole[:300], "bytes of headers, 284 remain (is the file complete?)"),
            (whole[:-1], "is the file complete?"),
            (whole + b"\0", "expected the end of the file, 1 bytes remain"),
            (struct.pack("<Q", 2) + whole[8:], "is encrypted; only who has the key can read it"),
            (struct.pack("<Q", 3) + whole[8:], "not a Marian .bin: its version should be 1, is 3"),
            (whole[:8] + struct.pack("<Q", 1 << 60) + whole[16:], "bytes of headers"),
            (whole[:16] + struct.pack("<Q", 1) + whole[24:], "a name should have 2 to 1024 bytes with its NUL, has 1"),
            (whole[:32] + struct.pack("<Q", 9) + whole[40:], "rank of"),
            (whole[:names_at] + b"\n" + whole[names_at + 1 :], "a name should be printable"),
            (whole[:40] + struct.pack("<Q", 1 << 62) + whole[48:], "remain (is the file complete?)"),
        ]
    ):
        assert reason in refusal(bin_folder(tmp_path / str(number), data))


def test_bins_with_wrong_fields(tmp_path: Path) -> None:
    def message(name: str, **changes: np.ndarray) -> str:
        return refusal(bin_folder(tmp_path / name, writer.bin_bytes(STORED | changes, writer.BROWSERMT)))

    zero = np.zeros((16, 16), np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        assert "should have a scale from 1e-30 to 1e+30, has inf" in message("scale", encoder_l1_self_Wq=zero)
    text = message("type", encoder_l1_self_bq=np.zeros((1, 16), np.int16), encoder_l1_self_bk=np.zeros(16, np.int16))
    assert "types that are not supported: int16 (encoder_l1_self_bq and 1 more); supported:" in text
    assert "encoder_l1_self_bq should be one of float32, float16, is int8" in message(
        "bias", encoder_l1_self_bq=np.zeros((1, 16), np.int8)
    )
    assert "special:model.yml should be text in int8" in refusal(
        bin_folder(tmp_path / "yml", writer.bin_bytes(ARRAYS | {"special:model.yml": np.zeros(4, np.float32)}))
    )
    assert "special:model.yml is missing" in refusal(bin_folder(tmp_path / "none", writer.bin_bytes(ARRAYS)))


@pytest.mark.parametrize(
    "kind, name",
    [(0x11001, "intgemm8avx2"), (0x13001, "intgemm8avx512vnni"), (0x1801, "packed8avx2"), (0x802, "packed16")]
    + [(0x77, "type 0x77")],
)
def test_bins_packed_for_one_kind_of_cpu(kind: int, name: str, tmp_path: Path) -> None:
    data = bytearray(writer.bin_bytes(STORED, writer.MARIAN))
    for at in range(16, 16 + 32 * len(STORED), 32):
        if data[at + 8 : at + 16] == struct.pack("<Q", writer.MARIAN):
            data[at + 8 : at + 16] = struct.pack("<Q", kind)
    message = refusal(bin_folder(tmp_path, bytes(data)))
    assert f"not supported: {name} (encoder_l1_self_Wq and 31 more); supported: float32, float16, and int8" in message


def test_a_name_that_is_given_twice(tmp_path: Path) -> None:
    old, new = b"encoder_l1_self_Wk", b"encoder_l1_self_Wq"
    data = writer.bin_bytes(STORED).replace(old + b"\0", new + b"\0")
    assert "encoder_l1_self_Wq is given twice" in refusal(bin_folder(tmp_path / "bin", data))
    data = writer.npz_bytes(STORED).replace(old + b".npy", new + b".npy")
    assert "encoder_l1_self_Wq is given twice" in refusal(npz_folder(tmp_path / "npz", data))


def npz_folder(path: Path, data: bytes) -> Path:
    return writer.write(path, writer.files(ARRAYS, OPTIONS) | {"model.npz": data})


def test_damaged_npzs(tmp_path: Path) -> None:
    whole, packed = writer.npz_bytes(STORED), writer.npz_bytes(STORED, zipfile.ZIP_DEFLATED)
    middle = whole.index(ARRAYS["decoder_l1_ffn_W1"].tobytes())
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    in_packed = packed.index(b"decoder_l1_ffn_W1.npy") + 50
    for name, (data, reason) in {
        "empty": (b"", "not an .npz archive, or not a whole one"),
        "cut": (whole[:-30], "not an .npz archive, or not a whole one"),
        "flipped": (flipped, "decoder_l1_ffn_W1: its size or its checksum does not match"),
        "packed": (packed[:in_packed] + b"\xff" * 9 + packed[in_packed + 9 :], "decoder_l1_ffn_W1: "),
    }.items():
        assert reason in refusal(npz_folder(tmp_path / name, data))


def test_npz_members_that_are_no_arrays_of_numbers(tmp_path: Path) -> None:
    def message(name: str, content: bytes, member: str = "encoder_l1_self_bq.npy") -> str:
        path = tmp_path / name
        npz_folder(path, writer.npz_bytes({name: array for name, array in STORED.items() if name + ".npy" != member}))
        with zipfile.ZipFile(path / "model.npz", "a") as archive:
            archive.writestr(member, content)
        return refusal(path)

    def npy(descr: str = "<f4", order: str = "False", shape: str = "(1, 16)", count: int = 64) -> bytes:
        header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
        return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + bytes(count)

    assert "not a .npy array of version 1 or 2" in message("text", b"abc")
    assert "not a .npy header that is known" in message("pickle", npy().replace(b"'<f4'", b"'|O'  "))
    assert "is |b1" in message("bool", npy("|b1"))
    assert "is <f8" in message("double", npy("<f8", count=128))
    assert "not a .npy header that is known" in message("big", npy(">f4"))
    assert "is <f4 in Fortran's order" in message("fortran", npy(order="True"))
    assert "f4 of shape [1, 17] does not take 64 bytes" in message("size", npy(shape="(1, 17)"))
    assert "dimensions of at least 1" in message("zero", npy(shape="(0, 16)"))
    assert "does not take 64 bytes" in message("huge", npy(shape="(1, 999999999999999999999)"))
    assert "not a .npy header that is known" in message("code", npy(shape="(1, __import__('os'))"))
    assert "should be a printable name with .npy" in message("other", b"", "readme.txt")
