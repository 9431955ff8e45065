"""Recurrent checkpoints that cannot be read: each is refused in one line that says why."""

import json
from pathlib import Path

import numpy as np

from fastattn import weights
from fastattn.errors import CheckpointError
from tests.messages import refused
from tests.weights.containers.pytorch_writer import pytorch_bytes
from tests.weights.marian import writer as marian
from tests.weights.recurrent import writer
from tests.weights.refusals import refusal

MAPPING = "fastattn.toml"
Files = dict[str, bytes]
TUTORIAL = writer.tutorial_files(writer.tutorial(True), True)


def saved(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


# What stands at the end of a sound mapping, or in its place.
MAPPINGS = [
    b"[text]\ncolour = 3", b"[paint]", b"\xff", b"#" * (1 << 16), b"[encoder]\ncell = 'rnn'",
    b"[encoder]\nunits = 7\nheads = 2", b"[encoder]\nlayers = 1000000000", b"[encoder]\nlayers = ['9']",
    b"[encoder]\nlayers = []", b"[encoder]\ncell = 'lstm'", b"[encoder]\ncarries = 1", b"[encoder]\nmemory = 4",
    b"[encoder]\nfeeds = true", b"[decoder]\nbackward = true", b"[decoder]\nattention = {score = 'cosine', after = 0}",
    b"[decoder]\nattention = {score = 'multi-head', after = 0, heads = 4}", b"[decoder]\nattention = 3",
    b"[decoder]\nreadout = {parts = ['memory']}", b"[tensors]\n'encoder.embedding.weight' = 3",
    b"[tensors]\n'encoder.embedding.weight' = []",
    b"[tensors]\n'encoder.embedding.weight' = {names = 'x', turned = true}",
    b"[tensors]\n'encoder.embedding.weight' = {names = 'x', piece = [3, 3]}", b"[decoder]\ninitial = 'bridge'",
    b"[tensors]\n'decoder.projection.*' = 'decoder.in.*'", b"[files]\n'' = 'other.*'", b"[files]\n'' = '../*.pt'",
    b"[files]\n'' = 3", b"[text]\nsource = {}", b"[text]\nsource = {lines = 'source.txt', metadata = 'x'}",
    b"[text]\nsource = {lines = '/etc/hostname'}", b"[text]\nsource = {lines = 'words.txt'}",
    b"[text]\nsource = {lines = 'fastattn.toml'}", b"[text]\nsource = {metadata = 'x'}", b"[text]\neos_token = '<end>'",
    b"[text]\nlowercase = 'yes'", b"[text]\nsource_model = 'x'", b"[text]\ndecoding = {beam_size = 'x'}",
    b"[text]\ndecoding = {forced_tokens = ['w1', 'w99']}", b'format = "a\\nb"', b"unused = 'decoder'", b"unused = []",
]  # fmt: skip


def refuse(folder: Path, files: Files) -> None:
    folder.mkdir(exist_ok=True)
    with refused(CheckpointError):
        weights.read(saved(folder, files))


def test_mappings(tmp_path: Path) -> None:
    for number, change in enumerate(MAPPINGS):
        tokens = [b'bos_token = "<s>"', b'eos_token = "</s>"', b'decoder_start_token = "<s>"']
        table, _, entries = change.partition(b"\n") if change.startswith(b"[text]") else (b"[text]", b"", b"")
        tokens = [token for token in tokens if token.split()[0] not in entries]
        before = b"" if table != b"[text]" or entries else change
        mapping = b"\n".join([b'like = "pytorch-attention"', before, table, *tokens, entries])
        refuse(tmp_path / str(number), TUTORIAL | {MAPPING: mapping})
    refuse(tmp_path / "like", TUTORIAL | {MAPPING: b"like = '../x'"})
    for mapping in (b"[text", b"x = " + b"[" * 50_000):  # in the words of the reader of TOML
        refusal(saved(tmp_path / "like", {MAPPING: mapping}), "not TOML: ")


def test_files_that_fit_twice(tmp_path: Path) -> None:
    refuse(tmp_path / "two", TUTORIAL | {"model.safetensors": b""})
    e2k = dict.fromkeys(("model-c2k.safetensors", "model-c2k-turbo.safetensors"), writer.e2k_bytes(writer.e2k()))
    refuse(tmp_path / "e2k", e2k)
    assert weights.read(tmp_path / "e2k" / "model-c2k.safetensors").format == "e2k"


def reshaped(name: str, *shape: int) -> Files:
    """The tutorial's files, with a tensor of zeros in place of one."""
    data = pytorch_bytes(writer.tutorial(True) | {name: np.zeros(shape, np.float32)})
    return TUTORIAL | {"model.pt": data}


def with_node(node: bytes) -> Files:
    """thai2rom's files, with another node in the decoder's graph."""
    net = writer.thai2rom()
    own = {name.removeprefix("decoder."): value for name, value in net.items() if name.startswith("decoder.")}
    return writer.thai2rom_files(net) | {"thai2rom_decoder.onnx": writer.onnx_bytes(own, ("",), node=node)}


def lstm(*names: str, **damage: object) -> Files:
    return with_node(writer.lstm_node(("",), 8, *[names] if names else [], **damage))


def onnx(data: bytes) -> Files:
    return writer.thai2rom_files(writer.thai2rom()) | {"thai2rom_encoder.onnx": data}


def onnx_tensor(*fields: bytes) -> Files:
    return onnx(writer.field(7, writer.field(5, b"".join(fields))))


def characters(table: object) -> Files:
    """thai2rom's files, with another table of the source's characters."""
    data = json.dumps(writer.THAI | {"char_to_ix": table}).encode()
    return writer.thai2rom_files(writer.thai2rom()) | {"thai2rom_loader_onnx.json": data}


def opennmt(vocab: object = None, **options: object) -> Files:
    given = writer.opennmt_options("LSTM", "general", True, True) | options
    vocabularies = [] if vocab is None else [vocab]
    return {"model.pt": writer.opennmt_bytes(writer.opennmt("LSTM", "general", True, True), given, *vocabularies)}


BOTH = {"src": writer.WORDS, "tgt": writer.WORDS}
FIELD = writer.field
REFUSED: list[Files] = [
    reshaped("encoder.gru.weight_hh_l0", 3), reshaped("decoder.embedding.weight", 2, 3, 4), lstm(direction="reverse"),
    lstm(layout=1), lstm(input_forget=1), lstm(clip=3), lstm(activations="Relu"), lstm(hidden_size=5),
    lstm(direction="bidirectional"), lstm("238", "239", "237", "", "", "", "238"), lstm("238", "239"),
    lstm("238", "239", "x"), with_node(writer.lstm_node(("",), 8) + FIELD(4, "Softmax")), onnx(b""),
    onnx(FIELD(7, b"") * 2), onnx(FIELD(7, 3)), onnx(b"\x3a\xff"), onnx(b"\x3a\x05ab"), onnx(b"\x3a" + b"\xff" * 12),
    onnx(b"\x3b"), onnx(FIELD(7, FIELD(5, 3))), onnx(FIELD(7, FIELD(1, writer.lstm_node(("",), 8)) * 2)),
    onnx_tensor(FIELD(8, "a\nb")), onnx_tensor(FIELD(2, 1), FIELD(1, 9)), onnx_tensor(FIELD(2, 1), FIELD(1, 1) * 9),
    onnx_tensor(FIELD(2, 1), FIELD(1, 0), FIELD(1, 1 << 60)), onnx_tensor(FIELD(2, 1), FIELD(14, 1), FIELD(13, b"x")),
    characters({"<PAD>": 0, "<end>": 2}), characters({"<PAD>": 0, "<end>": "x"}), characters([]),
    characters({"<PAD>": 0, "<end>": 1}), characters({token: i for i, token in enumerate("abcdefgh")}),
    {"model-c2k.safetensors": writer.e2k_bytes(writer.e2k(), "ab")}, opennmt(encoder_type="cnn"),
    opennmt(decoder_type="cnn"), opennmt(rnn_type="SRU"), opennmt(copy_attn=True), opennmt(bridge=True),
    opennmt(coverage_attn=True), opennmt(context_gate="both"), opennmt(global_attention_function="sparsemax"),
    opennmt(global_attention=["dot"]), opennmt(dec_layers=0), opennmt(dec_layers=3), opennmt(dec_layers=1),
    opennmt(global_attention="mlp"), opennmt([]), opennmt(BOTH | {"src": 3}), opennmt(BOTH | {"tgt": [1]}),
    opennmt(BOTH | {"tgt": writer.WORDS[1:]}), opennmt(BOTH | {"decoder_start_token": ""}),
    opennmt(BOTH | {"decoder_start_token": []}),
]  # fmt: skip


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for number, files in enumerate(REFUSED):
        refuse(tmp_path / str(number), files)


def test_a_pytorch_file_of_another_kind(tmp_path: Path) -> None:
    said = "args should hold the options of a training"
    path = saved(tmp_path, {"model.pt": pytorch_bytes(writer.tutorial(True))})
    refusal(path / "model.pt", said)
    refusal(path, "not a checkpoint of a known format.*'model.pt'")
    saved(tmp_path, {"model.pt": writer.opennmt_files("LSTM", "dot", False, False)["model_step_7.pt"][:-99]})
    refusal(path, "model.pt: not a sound zip archive")
    (tmp_path / "second.pt").write_bytes(b"")
    refusal(path, "model.pt: not a sound zip archive")  # the usual name
    (tmp_path / "model.pt").rename(tmp_path / "first.pt")
    refusal(path, "not a checkpoint of a known format")


def test_a_folder_of_others_with_a_pytorch_file(tmp_path: Path) -> None:
    arrays, options = marian.random_model()
    marian.write(tmp_path, marian.files(arrays, options))
    saved(tmp_path, {"optimizer.pt": pytorch_bytes(writer.tutorial(True))})
    assert weights.read(tmp_path).format == "marian"
    (tmp_path / "argos").mkdir()
    files = {"en_de.argosmodel": b"PK", "optimizer.pt": pytorch_bytes(writer.tutorial(True))}
    refusal(saved(tmp_path / "argos", files), "not a checkpoint of a known format.*'en_de.argosmodel', 'optimizer.pt'")
