"""Recurrent checkpoints that cannot be read: each is refused in one line that says why."""

import json
from pathlib import Path

import numpy as np
import pytest

from fastattn import weights
from tests.weights.containers.pytorch_writer import pytorch_bytes
from tests.weights.marian import writer as marian
from tests.weights.recurrent import writer
from tests.weights.refusals import refusal

MAPPING = "fastattn.toml"


def saved(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def tutorial(folder: Path, **changes: bytes) -> Path:
    return saved(folder, writer.tutorial_files(writer.tutorial(True), True) | changes)


# What stands at the end of a sound mapping, or in its place -> what is said.
MAPPINGS = {
    b"[text]\ncolour = 3": "text.colour.* is unknown",
    b"[paint]": "'paint' is unknown; known: like, format",
    b"[text": "not TOML: ",
    b"\xff": "not UTF-8 at byte ",
    b"#" * (1 << 16): "should have at most 65536 bytes, has ",
    b"[encoder]\ncell = 'rnn'": "encoder: cell should be one of lstm, gru, gru_reset_before, is 'rnn'",
    b"[encoder]\nunits = 7\nheads = 2": "encoder.heads.* is unknown",
    b"[encoder]\nlayers = ['9']": "units should be at least 1, is 0",
    b"[encoder]\nlayers = []": "none of the arrays is a layer of the encoder",
    b"[encoder]\ncell = 'lstm'": "first states are 6 numbers, the encoder's last ones 8",
    b"[encoder]\ncarries = 1": "encoder.carries should be true or false, is 1",
    b"[encoder]\nfeeds = true": "a recurrent encoder .* feeds nothing back",
    b"[decoder]\nbackward = true": "a recurrent decoder reads forward",
    b"[decoder]\nattention = {score = 'cosine', after = 0}": "unknown score of a recurrent decoder's attention",
    b"[decoder]\nattention = {score = 'multi-head', after = 0, heads = 4}": "attention of 4 heads cannot have",
    b"[decoder]\nattention = 3": "decoder: attention should be an object, is 3",
    b"[decoder]\nreadout = {parts = ['memory']}": "unknown part of a readout 'memory'",
    b"[tensors]\n'encoder.embedding.weight' = 3": "encoder.embedding.weight should be a name, a list of names",
    b"[tensors]\n'encoder.embedding.weight' = {names = 'x', turned = true}": "'turned' is one of names, transposed",
    b"[tensors]\n'encoder.embedding.weight' = {names = 'x', piece = [3, 3]}": "'piece' is the number of a piece",
    b"[decoder]\ninitial = 'bridge'": "tensors: the table has none of decoder.bridge.weight, decoder.bridge",
    b"[tensors]\n'decoder.projection.*' = 'decoder.in.*'": "missing decoder.in.weight",
    b"[files]\n'' = 'other.*'": "files should name the weights; no such file",
    b"[files]\n'' = '../*.pt'": "files should name the weights; no such file",
    b"[text]\nsource = {lines = 'source.txt', metadata = 'x'}": "text: source should have one of lines, json, metadata",
    b"[text]\nsource = {lines = '/etc/hostname'}": "lines should be a file beside the weights, is '/etc/hostname'",
    b"[text]\nsource = {lines = 'words.txt'}": "words.txt: no such file",
    b"[text]\nsource = {lines = 'fastattn.toml'}": "the embedding has 13 rows, the vocabulary ",
    b"[text]\nsource = {metadata = 'x'}": "header says|header length",
    b"[text]\neos_token = '<end>'": "the target vocabulary lacks '<end>'",
    b"[text]\nlowercase = 'yes'": "text.lowercase should be true or false, is 'yes'",
    b"[text]\nsource_model = 'x'": "text.source_model.* is unknown",
    b"[text]\ndecoding = {forced_tokens = ['w1', 'w99']}": "the target vocabulary lacks 'w99'",
    b'format = "a\\nb"': "format should be printable, is ",
    b"unused = 'decoder'": "unused should be a list of strings, is 'decoder'",
    b"unused = []": "unexpected decoder.attention.Va.bias",
}


@pytest.mark.parametrize("change", MAPPINGS)
def test_mappings(tmp_path: Path, change: bytes) -> None:
    tokens = [b'bos_token = "<s>"', b'eos_token = "</s>"', b'decoder_start_token = "<s>"']
    table, _, entries = change.partition(b"\n") if change.startswith(b"[text]") else (b"[text]", b"", b"")
    tokens = [token for token in tokens if token.split()[0] not in entries]
    before = b"" if table != b"[text]" or entries else change
    mapping = b"\n".join([b'like = "pytorch-attention"', before, table, *tokens, entries])
    refusal(tutorial(tmp_path, **{MAPPING: mapping}), MAPPINGS[change])


def test_a_mapping_like_none(tmp_path: Path) -> None:
    refusal(
        tutorial(tmp_path, **{MAPPING: b"like = '../x'"}), "like should be one of captioner, .*, thai2rom, is '../x'"
    )


def test_files_that_fit_twice(tmp_path: Path) -> None:
    refusal(tutorial(tmp_path, **{"model.safetensors": b""}), "several files fit, 'model.pt', 'model.safetensors'")
    (tmp_path / "e2k").mkdir()
    e2k = dict.fromkeys(("model-c2k.safetensors", "model-c2k-turbo.safetensors"), writer.e2k_bytes(writer.e2k()))
    refusal(saved(tmp_path / "e2k", e2k), "several files fit, 'model-c2k-turbo.safetensors', 'model-c2k.safetensors'")
    assert weights.read(tmp_path / "e2k" / "model-c2k.safetensors").format == "e2k"


Files = dict[str, bytes]


def reshaped(name: str, *shape: int) -> Files:
    """The tutorial's files, with a tensor of zeros in place of one."""
    data = pytorch_bytes(writer.tutorial(True) | {name: np.zeros(shape, np.float32)})
    return writer.tutorial_files(writer.tutorial(True), True) | {"model.pt": data}


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
REFUSED: list[tuple[Files, str]] = [
    (reshaped("encoder.gru.weight_hh_l0", 3), "units should be at least|should be"),
    (reshaped("decoder.embedding.weight", 2, 3, 4), "embedding_width should be|should be"),
    (lstm(direction="reverse"), "its LSTM with 'direction' 'reverse' is not supported"),
    (lstm(clip=3), "its LSTM with 'clip' 3 is not supported"),
    (lstm(activations="Relu"), "its LSTM with 'activations' 'Relu' is not supported"),
    (lstm(hidden_size=5), "its LSTM with 'hidden_size' 5 is not supported"),
    (lstm(direction="bidirectional"), r"its LSTM's W should be \[2, 32, 11\], is \[1, 32, 11\]"),
    (lstm("238", "239", "237", "", "", "", "238"), "its LSTM with peepholes is not supported"),
    (lstm("238", "239", "x"), "should be initialisers"),
    (with_node(writer.lstm_node(("",), 8) + FIELD(4, "Softmax")), "arrays do not fit|none of the arrays"),
    (onnx(b""), "should be an ONNX model with one graph, has 0"),
    (onnx(FIELD(7, b"") * 2), "should be an ONNX model with one graph, has 2"),
    (onnx(b"\x3a\xff"), "expected 1 bytes of an integer"),
    (onnx(b"\x3a\x05ab"), "expected 5 bytes of a field, 2 remain"),
    (onnx(b"\x3a" + b"\xff" * 12), "an integer of more than 10 bytes"),
    (onnx(b"\x3b"), "a field of kind 3"),
    (onnx(FIELD(7, FIELD(5, 3))), "a field should be bytes, is the number 3"),
    (onnx(FIELD(7, FIELD(1, writer.lstm_node(("",), 8)) * 2)), "has 2 recurrent nodes, one is supported"),
    (onnx_tensor(FIELD(8, "a\nb")), "a name should be printable"),
    (onnx_tensor(FIELD(2, 1), FIELD(1, 1) * 9), "should have as many floats"),
    (onnx_tensor(FIELD(2, 1), FIELD(1, 0), FIELD(1, 1 << 60)), "should have as many floats"),
    (onnx_tensor(FIELD(2, 1), FIELD(14, 1), FIELD(13, b"x")), "another file"),
    (characters({"<PAD>": 0, "<end>": 2}), "should have each id from 0 to 1 once"),
    (characters({"<PAD>": 0, "<end>": "x"}), "should be an integer"),
    (characters([]), "char_to_ix should be an object"),
    (characters({"<PAD>": 0, "<end>": 1}), "the embedding has 8 rows, the vocabulary 2 tokens"),
    (characters({token: i for i, token in enumerate("abcdefgh")}), "the source vocabulary lacks '<end>'"),
    ({"model-c2k.safetensors": writer.e2k_bytes(writer.e2k(), "ab")}, "the vocabulary 2 tokens"),
    (opennmt(decoder_type="cnn"), "option decoder_type should be 'rnn', is 'cnn'"),
    (opennmt(rnn_type="SRU"), "option rnn_type should be 'LSTM' or 'GRU', is 'SRU'"),
    (opennmt(copy_attn=True), "option copy_attn should be False, is True"),
    (opennmt(global_attention_function="sparsemax"), "option global_attention_function should be 'softmax'"),
    (opennmt(global_attention=["dot"]), "option global_attention should be .*, is a list"),
    (opennmt(dec_layers=0), "option dec_layers should be a number from 1 on"),
    (opennmt(dec_layers=3), "attention after layer 3, but there are 2 layers"),
    (opennmt(dec_layers=1), "arrays do not fit|should be"),
    (opennmt(global_attention="mlp"), "missing|cannot have queries|should be"),
    (opennmt([]), "vocab should be a dict of lists of tokens"),
    (opennmt(BOTH | {"src": 3}), "vocab should have a list of tokens as src"),
    (opennmt(BOTH | {"tgt": writer.WORDS[1:]}), "the embedding has 13 rows, the vocabulary 12 tokens"),
    (opennmt(BOTH | {"decoder_start_token": ""}), "the target vocabulary lacks ''"),
    (opennmt(BOTH | {"decoder_start_token": []}), "decoder_start_token should be a token"),
]


@pytest.mark.parametrize("files, said", REFUSED)
def test_files_that_cannot_be_read(tmp_path: Path, files: Files, said: str) -> None:
    refusal(saved(tmp_path, files), said)


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
