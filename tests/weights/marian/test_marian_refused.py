"""Marian folders that are damaged, or of models that are not supported: one line each that says what is wrong."""

import io
import struct
import zipfile
from pathlib import Path

import numpy as np

from fastattn import weights
from fastattn.errors import CheckpointError
from fastattn.weights.marian.yml import parse_options
from tests.messages import refused
from tests.weights.forked import run_forked
from tests.weights.marian import writer

ARRAYS, OPTIONS = writer.random_model(1)
STORED = ARRAYS | {"special:model.yml": writer.settings(OPTIONS)}


def refuse(folder: Path, files: dict[str, bytes]) -> None:
    writer.write(folder, files)
    with refused(CheckpointError, str(folder)):
        weights.read(folder)


def refuse_options(folder: Path, arrays: writer.Arrays = ARRAYS, **changes: object) -> None:
    options = OPTIONS | {name.replace("_", "-"): value for name, value in changes.items()}
    refuse(folder, writer.files(arrays, options))


CHANGES: list[dict[str, object]] = [
    {"type": "s2s"}, {"right_left": True}, {"transformer_preprocess": "n"}, {"transformer_postprocess": "dhn"},
    {"transformer_postprocess_emb": "r"}, {"transformer_postprocess_top": "a"}, {"transformer_ffn_activation": "elu"},
    {"transformer_ffn_depth": 3}, {"transformer_decoder_autoreg": "rnn"}, {"transformer_decoder_autoreg": "lstm"},
    {"transformer_decoder_autoreg": "average-attention", "transformer_aan_depth": 3},
    {"transformer_decoder_autoreg": "rnn", "dec_cell": "ssru", "layer_normalization": True,
     "transformer_rnn_projection": True},
    {"transformer_tied_layers": [1, 2, 3]}, {"transformer_tied_layers": [0, 1]},
    {"transformer_guided_alignment_layer": 3}, {"transformer_heads": 3}, {"dim_vocabs": [40, 39]},
    {"enc_depth": 10**9 - 1}, {"enc_depth": "two"}, {"dec_depth": 0}, {"skip": [1, 2], "ulr": "maybe"},
    {"lemma_dim_emb": 8}, {"transformer_train_position_embeddings": True},
    {"right_left": True, "transformer_pool": True, "new_option": 1, "transformer_no_bias": True},
]  # fmt: skip


def test_options(tmp_path: Path) -> None:
    for number, changes in enumerate(CHANGES):
        refuse_options(tmp_path / str(number), **changes)


def test_norms_before_blocks_of_old_versions(tmp_path: Path) -> None:
    changes = {"transformer_preprocess": "n", "transformer_postprocess": "da", "transformer_postprocess_top": "n"}
    arrays, options = writer.random_model(1, version="v1.9.56 94aeaa46 2021-04-28", **changes)
    refuse(tmp_path / "old", writer.files(arrays, options))
    for version in ("v1.11.0 a 2022-02-08", "v2.0.1", "unknown"):
        path = writer.write(tmp_path / version[:5], writer.files(arrays, options | {"version": version}))
        assert weights.read(path).format == "marian"


def test_arrays_that_do_not_fit_are_named_all_at_once(tmp_path: Path) -> None:
    arrays = dict(ARRAYS)
    del arrays["encoder_l1_self_Wq"]
    arrays |= {"Wpos": np.zeros((4, 16), np.float32), "decoder_l2_ffn_b1": np.zeros((1, 5), np.float32)}
    arrays["Wemb_QuantMultA"] = np.ones((1, 1), np.float32)
    refuse_options(tmp_path, arrays)
    refuse_options(tmp_path / "deep", ARRAYS | {"decoder_l1_ffn_W1": ARRAYS["decoder_l1_ffn_W1"][None]})


def test_scales_of_inputs_that_are_wrong(tmp_path: Path) -> None:
    alpha, zero = "encoder_l1_self_Wk_QuantMultA", np.zeros((1, 1), np.float32)
    for number, changes in enumerate(
        [
            {alpha: None}, {"none_QuantMultA": None}, {alpha: zero + 3}, {"none_QuantMultA": np.ones((1, 2), "<f4")},
            {"decoder_l1_ffn_W1_QuantMultA": zero},
        ]
    ):  # fmt: skip
        arrays = {name: a for name, a in (writer.with_alphas(ARRAYS) | changes).items() if a is not None}
        config = {"gemm_precision": "int8shiftAlphaAll", "intgemm": writer.BROWSERMT}
        refuse(tmp_path / str(number), writer.files(arrays, OPTIONS, "model.bin", **config))


CONFIGURATIONS: list[dict[str, object]] = [
    {"models": ["model.npz", "other.npz"]}, {"models": "missing.npz"}, {"vocabs": ["a", "b", "c"]},
    {"vocabs": ["../vocab.yml"]}, {"vocabs": ["/etc/passwd"]}, {"vocabs": ["C:/vocab.yml"]},
    {"vocabs": [".."], "relative_paths": False}, {"gemm_precision": "int4"}, {"shortlist": ["lex.bin", 50, 50]},
    {"no_spm_encode": True, "clip_gemm": 2, "strange": 1}, {"relative_paths": "perhaps"},
]  # fmt: skip


def test_configurations(tmp_path: Path) -> None:
    for number, config in enumerate(CONFIGURATIONS):
        refuse(tmp_path / str(number), writer.files(ARRAYS, OPTIONS, **config))


def test_folders_that_leave_a_choice(tmp_path: Path) -> None:
    contents = writer.files(ARRAYS, OPTIONS)
    configuration = contents.pop("config.yml")
    refuse(tmp_path / "0", contents | {f"config.{name}.yml": configuration for name in "ab"})
    refuse(tmp_path / "1", contents | {"b.npz": b""})
    refuse(tmp_path / "2", contents | {"vocab.b.yml": b""})
    refuse(tmp_path / "3", {"model.npz": contents["model.npz"]})


VOCABULARIES = [
    ("v.fsv", b""), ("v.txt", b"</s>"), ("v.yml", b"x: 0\n<unk>: 1"), ("v.yml", b"</s>: 0\nx\n"),
    ("v.yml", b"</s>: 0\nx: 0\n"), ("v.yml", b"</s>: 0\nx\xff: 1\n"), ("v.yml", b"</s>: 0\n" + b"x" * 100_000),
    ("v.json", b'{"a": -1}'), ("v.json", b'{"a": 1, "b": 1}'), ("v.spm", b"nothing"),
]  # fmt: skip


def test_vocabularies(tmp_path: Path) -> None:
    for number, (name, content) in enumerate(VOCABULARIES):
        refuse(tmp_path / str(number), writer.files(ARRAYS, OPTIONS, vocabs=[name, name]) | {name: content})


YAML = [
    "a: {x: 1}", "a: 1\nb:\n  c: 1", "a: &x 1", 'a: "x', "a: [x", "a: [x,,y]", "a: [x, [y]]", 'a: [x, "y]', "a: |\n  x",
    "- x", "a: 1\n- b", "a: 1\na: 2", "a: b: c", 'a: "\\q"', 'a: "\\ud800"', 'a: "\\U00110000"',
]  # fmt: skip


def test_yaml_beyond_what_marian_writes() -> None:
    for text in YAML:
        with refused(CheckpointError, "w: line"):
            parse_options(text.encode(), "w")


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


def bin_files(data: bytes) -> dict[str, bytes]:
    return writer.files(ARRAYS, OPTIONS, "m.bin") | {"m.bin": data}


def test_damaged_bins(tmp_path: Path) -> None:
    whole = writer.bin_bytes(STORED, writer.BROWSERMT)

    def put(place: int, value: bytes) -> bytes:
        return whole[:place] + value + whole[place + len(value) :]

    damaged = [b"", whole[:300], whole[:-1], whole + b"\0", put(16 + 32 * len(STORED), b"\n")]
    numbers = [(0, 2), (0, 3), (8, 1 << 60), (16, 1), (32, 9), (40, 1 << 62)]
    for number, data in enumerate(damaged + [put(place, struct.pack("<Q", value)) for place, value in numbers]):
        refuse(tmp_path / str(number), bin_files(data))


def test_bins_with_wrong_fields(tmp_path: Path) -> None:
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = writer.bin_bytes(STORED | {"encoder_l1_self_Wq": np.zeros((16, 16), np.float32)}, writer.BROWSERMT)
    int16 = {"encoder_l1_self_bq": np.zeros((1, 16), np.int16), "encoder_l1_self_bk": np.zeros(16, np.int16)}
    refuse(tmp_path / "scale", bin_files(scale))
    refuse(tmp_path / "types", bin_files(writer.bin_bytes(STORED | int16, writer.BROWSERMT)))
    refuse(tmp_path / "bias", bin_files(writer.bin_bytes(STORED | {"encoder_l1_self_bq": np.zeros((1, 16), np.int8)})))
    refuse(tmp_path / "yml", bin_files(writer.bin_bytes(ARRAYS | {"special:model.yml": np.zeros(4, np.float32)})))
    refuse(tmp_path / "none", bin_files(writer.bin_bytes(ARRAYS)))


def test_bins_packed_for_one_kind_of_cpu(tmp_path: Path) -> None:
    for kind in (0x11001, 0x13001, 0x1801, 0x802, 0x77):
        data = bytearray(writer.bin_bytes(STORED, writer.MARIAN))
        for at in range(16, 16 + 32 * len(STORED), 32):
            if data[at + 8 : at + 16] == struct.pack("<Q", writer.MARIAN):
                data[at + 8 : at + 16] = struct.pack("<Q", kind)
        refuse(tmp_path / str(kind), bin_files(bytes(data)))


def npz_files(data: bytes) -> dict[str, bytes]:
    return writer.files(ARRAYS, OPTIONS) | {"model.npz": data}


def test_a_name_that_is_given_twice(tmp_path: Path) -> None:
    old, new = b"encoder_l1_self_Wk", b"encoder_l1_self_Wq"
    refuse(tmp_path / "bin", bin_files(writer.bin_bytes(STORED).replace(old + b"\0", new + b"\0")))
    refuse(tmp_path / "npz", npz_files(writer.npz_bytes(STORED).replace(old + b".npy", new + b".npy")))


def test_damaged_npzs(tmp_path: Path) -> None:
    whole, packed = writer.npz_bytes(STORED), writer.npz_bytes(STORED, zipfile.ZIP_DEFLATED)
    middle = whole.index(ARRAYS["decoder_l1_ffn_W1"].tobytes())
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    begin = packed.index(b"decoder_l1_ffn_W1.npy") + len("decoder_l1_ffn_W1.npy")
    damaged = [b"", whole[:-30], flipped, packed[:begin] + b"\xff" + packed[begin + 1 :]]  # no kind of block
    for number, data in enumerate(damaged):
        refuse(tmp_path / str(number), npz_files(data))


def npy(descr: str = "<f4", order: str = "False", shape: str = "(1, 16)", count: int = 64) -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + bytes(count)


def test_npz_members_that_are_no_arrays_of_numbers(tmp_path: Path) -> None:
    members = [
        b"abc", npy().replace(b"'<f4'", b"'|O'  "), npy("|b1"), npy("<f8", count=128), npy(">f4"), npy(order="True"),
        npy(shape="(1, 17)"), npy(shape="(0, 16)"), npy(shape="(1, 999999999999999999999)"),
        npy(shape="(1, __import__('os'))"),
    ]  # fmt: skip
    for number, content in enumerate([*members, b""]):
        name = "encoder_l1_self_bq.npy" if content else "readme.txt"
        others = {other: array for other, array in STORED.items() if f"{other}.npy" != name}
        stream = io.BytesIO(writer.npz_bytes(others))
        with zipfile.ZipFile(stream, "a") as archive:
            archive.writestr(name, content)
        refuse(tmp_path / str(number), npz_files(stream.getvalue()))
