"""The files of Marian folders: containers, quantized weights, vocabularies and configurations, sound ones."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastattn import weights
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.quantized import QuantizedTensor
from fastattn.weights.marian import model_file
from fastattn.weights.marian.yml import parse_options, parse_vocabulary
from tests.text.spm_bytes import CONTROL, NORMAL, UNKNOWN, spm_bytes
from tests.weights.ctranslate2.writer import as_float32
from tests.weights.marian import writer

RECURRENT = {"transformer_decoder_autoreg": "rnn", "dec_cell": "ssru"}


def read(path: Path, arrays: writer.Arrays, options: dict, model: str = "model.npz", **config: object) -> Checkpoint:
    return weights.read(writer.write(path, writer.files(arrays, options, model, **config)))


def assert_same(found: Checkpoint, expected: Checkpoint) -> None:
    assert found.spec == expected.spec and set(found.tensors) == set(expected.tensors)
    values = as_float32(expected.tensors)
    for name, tensor in as_float32(found.tensors).items():
        np.testing.assert_array_equal(tensor, values[name], err_msg=name)


def test_a_bin_holds_what_the_npz_holds(tmp_path: Path) -> None:
    arrays, options = writer.random_model(1, **RECURRENT)
    npz, bin_ = read(tmp_path / "npz", arrays, options), read(tmp_path / "bin", arrays, options, "model.bin")
    assert_same(bin_, npz)
    assert npz.format == bin_.format == "marian" and npz.precision == bin_.precision == "float32"
    assert npz.details["Marian version"] == "v1.11.0 f00d 2022-02-08"
    assert [path.name for path in npz.files] == ["config.yml", "model.npz", "vocab.yml"]
    text = npz.text
    assert text.source_vocabulary is text.target_vocabulary and text.source_vocabulary == tuple(writer.vocabulary())
    assert (text.eos_token, text.unk_token, text.add_source_eos, text.add_source_bos) == ("</s>", "<unk>", True, False)
    assert text.source_model is None


@pytest.mark.parametrize(("written", "layer"), [("last", -1), (1, 0), (2, 1)])
def test_the_layer_whose_attention_is_an_alignment(tmp_path: Path, written: object, layer: int) -> None:
    arrays, options = writer.random_model(1, transformer_guided_alignment_layer=written)
    spec = read(tmp_path, arrays, options).spec
    assert spec.decoder.alignment.layer == layer


@pytest.mark.parametrize(
    ("stated", "written"), [({}, False), ({"allow-unk": True}, True), ({"allow-unk": False}, False)]
)
def test_unknown_words_are_written_where_the_configuration_allows_them(
    tmp_path: Path, stated: dict[str, bool], written: bool
) -> None:
    arrays, options = writer.random_model(1)
    assert read(tmp_path, arrays, options, **stated).text.writes_unknowns == written


def test_a_deflated_npz_and_float16(tmp_path: Path) -> None:
    arrays, options = writer.random_model(1)
    half = {name: array.astype(np.float16) for name, array in arrays.items()}
    rounded = {name: array.astype(np.float32) for name, array in half.items()}
    expected = read(tmp_path / "float32", rounded, options)
    files = writer.files(half, options)
    stored = half | {"special:model.yml": writer.settings(options)}
    deflated = files | {"model.npz": writer.npz_bytes(stored, zipfile.ZIP_DEFLATED)}
    for name, contents in {
        "stored": files,
        "deflated": deflated,
        "bin": writer.files(half, options, "model.bin"),
    }.items():
        found = weights.read(writer.write(tmp_path / name, contents))
        assert_same(found, expected)
        assert found.precision == "float16"


def test_tied_tensors_are_one_object(tmp_path: Path) -> None:
    tied = read(tmp_path / "all", *writer.random_model(1)).tensors
    assert tied["encoder.embedding.weight"] is tied["decoder.embedding.weight"] is tied["decoder.projection.weight"]
    source = read(
        tmp_path / "src", *writer.random_model(1, tied_embeddings_all=False, tied_embeddings_src=True)
    ).tensors
    assert source["encoder.embedding.weight"] is source["decoder.embedding.weight"]
    assert source["decoder.projection.weight"] is not source["decoder.embedding.weight"]
    target = read(tmp_path / "trg", *writer.random_model(1, tied_embeddings_all=False, tied_embeddings=True)).tensors
    assert target["decoder.projection.weight"] is target["decoder.embedding.weight"]
    assert target["encoder.embedding.weight"] is not target["decoder.embedding.weight"]
    layers = read(tmp_path / "layers", *writer.random_model(1, transformer_tied_layers=[1, 1])).tensors
    for name, tensor in layers.items():
        if name.startswith("decoder.layers.0."):
            assert layers[name.replace("layers.0.", "layers.1.")] is tensor


def test_an_old_models_untransposed_projection(tmp_path: Path) -> None:
    arrays, options = writer.random_model(1, tied_embeddings_all=False)
    expected = read(tmp_path / "Wt", arrays, options)
    arrays["decoder_ff_logit_out_W"] = np.ascontiguousarray(arrays.pop("decoder_ff_logit_out_Wt").T)
    assert_same(read(tmp_path / "W", arrays, options), expected)


@pytest.mark.parametrize("intgemm", (writer.BROWSERMT, writer.MARIAN))
@pytest.mark.parametrize("tied", (True, False))
def test_int8_matrices_keep_their_numbers(intgemm: int, tied: bool, tmp_path: Path) -> None:
    arrays, options = writer.random_model(2, tied_embeddings_all=tied, **RECURRENT)
    rounded = dict(arrays)
    for name in arrays:
        if writer.is_quantized(name, intgemm):
            values, scale = writer.quantize(arrays[name])
            rounded[name] = values * (np.float32(1) / scale)
    found = read(tmp_path / "int8", arrays, options, "model.bin", intgemm=intgemm)
    assert found.precision == "int8"
    assert_same(found, read(tmp_path / "float32", rounded, options))
    # marian-dev leaves embeddings in float32, and what is untied is a matrix like others.
    kept = {name for name, tensor in found.tensors.items() if isinstance(tensor, QuantizedTensor)}
    assert all(found.tensors[name].input_scale is None for name in kept)
    matrices = {name for name, tensor in found.tensors.items() if len(tensor.shape) == 2}
    embeddings = {name for name in matrices if "embedding" in name or (tied and "projection" in name)}
    assert kept == matrices - (set() if intgemm == writer.BROWSERMT else embeddings)


@pytest.mark.parametrize(
    "asked, used",
    [("int8shiftAlphaAll", True), ("int8Alpha", True), ("int8shift", False), ("float32", False)]
    + [({}, True), ({"int8shiftAlphaAll": True}, True), ({"int8shift": True}, False)],
)
def test_scales_of_inputs(asked: Any, used: bool, tmp_path: Path) -> None:
    """Of a precision, none, or an older way to ask for one."""
    arrays, options = writer.random_model(2, **RECURRENT)
    stored = writer.with_alphas(arrays)
    config = asked if isinstance(asked, dict) else {"gemm_precision": asked}
    tensors = read(tmp_path, stored, options, "model.bin", intgemm=writer.BROWSERMT, **config).tensors
    for name, alpha in {
        "encoder.layers.0.self_attention.qkv.weight": "encoder_l1_self_Wk",
        "decoder.layers.1.ssru.input.weight": "decoder_l2_rnn_Wf",
        "decoder.layers.1.cross_attention.query.weight": "decoder_l2_context_Wq",
        "decoder.projection.weight": "none",
    }.items():
        tensor = tensors[name]
        assert isinstance(tensor, QuantizedTensor)
        assert tensor.input_scale == (stored[alpha + "_QuantMultA"].item() if used else None)


def test_spm_vocabularies(tmp_path: Path) -> None:
    pieces = 0
    for size in (64, 200):
        arrays, options = writer.random_model(1, size, dim_vocabs=[size, size])
        contents = writer.files(arrays, options, vocabs=["vocab.spm", "vocab.spm"]) | {"vocab.spm": _spm(64)}
        text = weights.read(writer.write(tmp_path / str(size), contents)).text
        assert text.source_vocabulary is text.target_vocabulary and text.source_model == text.target_model == _spm(64)
        assert text.source_vocabulary[:3] == ("</s>", "<unk>", "▁p2") and len(text.source_vocabulary) == size
        pieces = len([token for token in text.source_vocabulary if token])
    assert pieces == 64


def _spm(count: int) -> bytes:
    """A .spm of that many pieces, with Marian's ids of the special ones."""
    special = [("</s>", 0.0, CONTROL), ("<unk>", -1.0, UNKNOWN)]
    return spm_bytes([*special, *((f"▁p{i}", -float(i), NORMAL) for i in range(2, count))])


def test_two_vocabularies_and_files_of_opus_mt(tmp_path: Path) -> None:
    arrays, options = writer.random_model(1, tied_embeddings_all=False, dim_vocabs=[40, 40])
    contents = writer.files(arrays, options, vocabs=["a.yml", "b.yml"])
    contents["decoder.yml"] = contents.pop("config.yml")
    contents |= {"source.spm": _spm(20), "target.spm": _spm(30)}
    contents |= {"a.yml": contents.pop("vocab.yml"), "b.yml": writer.vocabulary_bytes(["eos", "UNK", "x", "y"])}
    text = weights.read(writer.write(tmp_path, contents)).text
    assert text.source_vocabulary == tuple(writer.vocabulary())
    assert text.target_vocabulary == ("</s>", "<unk>", "x", "y", *[""] * 36)
    assert (text.source_model, text.target_model) == (_spm(20), _spm(30))


def test_a_larger_vocabulary_is_cut(tmp_path: Path) -> None:
    contents = writer.files(*writer.random_model(1)) | {"vocab.yml": writer.vocabulary_bytes(writer.vocabulary(100))}
    assert weights.read(writer.write(tmp_path, contents)).text.target_vocabulary == tuple(writer.vocabulary(40))


def test_vocabulary_lines() -> None:
    lines = '"</s>": 0\n<unk>: 1\n▁the: 2\n":": 3\n"\\"": 4\n"\\x01": 5\n? "long"\n: 6\n'
    lines += (
        "''':': 7\n'''''': 8\n:: 9\n#: 10\n\"\\u2581x\": 11\r\n\\: 12\na: b: 13\n\"\\ud83d\\ude00\": 14\n\n\u2028: 15\n"
    )
    tokens = parse_vocabulary(lines.encode(), "w")
    expected = [
        "</s>", "<unk>", "▁the", ":", '"', "\x01", "long", "':", "''", ":", "#", "▁x", "\\", "a: b", "😀", "\u2028",
    ]  # fmt: skip
    assert tokens == dict(enumerate(expected))
    assert parse_vocabulary(json.dumps({"a": 1, "b\n": 0}).encode(), "w") == {1: "a", 0: "b\n"}


def test_options_as_they_may_be_spelled() -> None:
    text = """\
# a comment
a: "x # y"  # another
b: 'it''s'
c: ~
d:
  - 1
  - "2"  # two
e:
f: [a, "b, c", 3]
g: []
h: ""
i: a#b
j:    0.5 # no
k:
- x
---
l: "[MASK]\\t\\u00e9"
"""
    expected = {
        "a": "x # y", "b": "it's", "c": None, "d": ["1", "2"], "e": None, "f": ["a", "b, c", "3"], "g": [], "h": "",
        "i": "a#b", "j": "0.5", "k": ["x"], "l": "[MASK]\té",
    }  # fmt: skip
    assert parse_options(text.encode(), "w") == parse_options(text.replace("\n", "\r\n").encode(), "w") == expected


def test_configurations_by_their_names(tmp_path: Path) -> None:
    arrays, options = writer.random_model(1)
    for number, name in enumerate(("config.bergamot.yml", "decoder.yml", "model.npz.decoder.yml", "config.yaml")):
        contents = writer.files(arrays, options)
        contents[name] = contents.pop("config.yml")
        assert weights.read(writer.write(tmp_path / str(number), contents)).format == "marian"
    # Beside others, those that tools write by themselves come first.
    both = writer.files(arrays, options) | {"config.other.yml": b"models: [nothing.npz]"}
    assert weights.read(writer.write(tmp_path / "both", both)).format == "marian"


def test_without_a_configuration(tmp_path: Path) -> None:
    arrays, options = writer.random_model(1)
    contents = writer.files(arrays, options)
    del contents["config.yml"]
    expected = weights.read(writer.write(tmp_path / "one", contents)).text
    tokens = contents.pop("vocab.yml")
    two = contents | {"srcvocab.xy.yml": tokens, "trgvocab.xy.yml": tokens, "model.npz.optimizer.npz": b"other"}
    assert weights.read(writer.write(tmp_path / "two", two)).text == expected
    trained = contents | {"words.yml": tokens, "model.npz.yml": b"type: transformer\nvocabs:\n  - /data/words.yml\n"}
    assert weights.read(writer.write(tmp_path / "trained", trained)).text == expected


def test_paths_of_a_configuration(tmp_path: Path) -> None:
    contents = writer.files(*writer.random_model(1))
    elsewhere = {"config.yml": b"models:\n - /home/them/model.npz\nvocabs:\n - ../vocab.yml\n"}
    assert weights.read(writer.write(tmp_path / "elsewhere", contents | elsewhere)).format == "marian"
    config = (
        b"relative-paths: true\nmodels: [./model.npz]\nvocabs: [./vocab.yml]\nbeam-size: 6\nmax-length-factor: 2.5\n"
    )
    found = weights.read(writer.write(tmp_path / "here", contents | {"config.yml": config}))
    assert (found.text.decoding.beam_size, found.text.decoding.max_length_factor) == (6, 2.5)


def test_languages(tmp_path: Path) -> None:
    arrays, options = writer.random_model(1)
    contents = writer.files(arrays, options, "model.enpt.intgemm.alphas.bin")
    information = {"shortName": "de-fr-tiny", "modelName": "German-French", "type": "tiny", "version": 2.0}
    told = contents | {"model_info.json": json.dumps(information).encode()}
    for name, files, expected in (("told", told, ("de", "fr")), ("named", contents, ("en", "pt"))):
        found = weights.read(writer.write(tmp_path / name, files))
        assert (found.text.source_language, found.text.target_language) == expected
    assert weights.read(tmp_path / "told").details["model name"] == "German-French"


def test_a_shortlist_is_read_with_the_vocabularies(tmp_path: Path) -> None:
    arrays, options = writer.random_model(1)
    contents = writer.files(arrays, options, shortlist=["lex.txt", 100, 100, 0])
    contents["lex.txt"] = "▁w5 ▁w1 0.9\n▁w6 ▁w1 0.1\n".encode()
    shortlist = weights.read(writer.write(tmp_path, contents)).shortlist
    assert shortlist.copied
    assert shortlist.targets.tolist() == [7, 8] and shortlist.starts_V1[3] == 0 and shortlist.starts_V1[4] == 2
    assert read(tmp_path / "none", arrays, options, shortlist=False).shortlist is None


def test_other_folders_are_not_taken(tmp_path: Path) -> None:
    assert not weights.marian.recognize(tmp_path) and not weights.marian.recognize(tmp_path / "nothing")
    npz = writer.npz_bytes({"x": np.zeros(3, np.float32)})
    for name, other in {"1": "config.json", "2": "model.bin"}.items():
        folder = writer.write(tmp_path / name, {"vectors.npz": npz, other: b"{}"})
        assert not weights.marian.recognize(folder)
    for name, contents in {"npz": {"m.npz": npz}, "bin": {"model.bin": writer.bin_bytes({})}}.items():
        assert weights.marian.recognize(writer.write(tmp_path / name, contents))


def test_weights_are_not_copied_where_they_need_not_be(tmp_path: Path) -> None:
    arrays, options = writer.random_model(2)
    stored = arrays | {"special:model.yml": writer.settings(options)}
    data = memoryview(bytearray(writer.bin_bytes(stored, writer.BROWSERMT)))
    items = model_file.parse_bin(data, "w")
    everything = np.frombuffer(data, np.uint8)
    for name in ("encoder_l1_ffn_W1", "encoder_l1_ffn_b1"):
        item = items[name]
        held = item.columns.values_FD if isinstance(item.columns, QuantizedTensor) else item.vector
        assert np.shares_memory(held, everything), name
    assert np.shares_memory(items["Wemb"].rows.values_FD, everything)
    npz = memoryview(bytearray(writer.npz_bytes(stored)))
    assert np.shares_memory(model_file.parse_npz(npz, "w")["Wemb"].array, np.frombuffer(npz, np.uint8))
