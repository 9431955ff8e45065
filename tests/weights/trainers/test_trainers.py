"""Checkpoints as fairseq and OpenNMT-py save them: what these answer, and what is refused in one line."""

import json
import shutil
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

from fastattn import Translator
from fastattn.weights import read
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.folder import Directory
from tests import GOLDENS
from tests.weights.containers import pytorch_writer as pickles
from tests.weights.recurrent.writer import plain
from tests.weights.refusals import refusal
from tests.weights.trainers.cases import FAIRSEQ, LINES, OPENNMT, dictionary

FOLDER = GOLDENS / "trainers"
ANSWERS = json.loads((FOLDER / "answers.json").read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER / "fairseq_before", tmp_path / "model"))


@pytest.mark.parametrize("name", [*FAIRSEQ, *OPENNMT])
def test_scores_and_tokens(name: str) -> None:
    translator = Translator(FOLDER / name, "float32")
    text = read(FOLDER / name).text
    for answer in ANSWERS[name]["answers"]:
        ids = answer["source"][: -1 if text.add_source_eos else None]  # type: ignore[union-attr]
        source = [text.source_vocabulary[number] for number in ids]  # type: ignore[union-attr]
        target = [text.target_vocabulary[number] for number in answer["target"]]  # type: ignore[union-attr]
        if not source:
            continue
        found = translator.score_tokens([source], [target])[0].log_probs
        np.testing.assert_allclose(found[: len(target)], answer["scores"], atol=2e-5)
        greedy = answer["greedy"] if "greedy" in answer else answer["found"]["1"]["ids"]
        best = translator.translate_tokens([source], beam_size=1, max_decoding_length=10)[0].hypotheses[0]
        assert best == [
            text.target_vocabulary[number] for number in greedy[: len(best)] if number != 2 or "opennmt" in name
        ]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", FAIRSEQ)
def test_texts_become_fairseqs_ids(name: str) -> None:
    from fastattn.text.translation import TranslationTokenizer

    tokenizer = TranslationTokenizer(read(FOLDER / name).text)  # type: ignore[arg-type]
    for line, answer in zip(LINES, ANSWERS[name]["answers"]):
        assert tokenizer.source_ids(tokenizer.source_tokens(line)).tolist() == answer["source"]


def test_what_fairseq_fixes_and_what_its_options_say(folder: Path) -> None:
    from fastattn.weights.containers.pytorch import read_whole
    from fastattn.weights.recurrent.opennmt import known_options
    from fastattn.weights.trainers import fairseq

    checkpoint = read(folder)
    text = checkpoint.text
    assert (text.decoder_start_token, text.add_source_eos, text.words) == ("</s>", True, "")  # type: ignore[union-attr]
    decoding = text.decoding  # type: ignore[union-attr]
    assert (decoding.beam_size, decoding.suppress_sequences) == (5, ((1,),))  # never the padding
    assert decoding.rules is not None and decoding.rules.early_stopping == "true"
    whole = read_whole(Directory(folder), "model.pt")
    given, activations = fairseq._given(whole), {}
    for name in ("relu", "gelu", "gelu_accurate", "gelu_fast", "swish", "tanh"):
        options = known_options(given | {"activation_fn": name}, fairseq.OPTIONS, "")
        stored = fairseq._todays(whole.tensors("model"), options)
        activations[name] = fairseq._stack("encoder", given, options, stored, "").feed_forward.activation
    expected = {"gelu_accurate": "gelu_tanh", "gelu_fast": "gelu_tanh"}
    assert activations == {name: expected.get(name, name) for name in activations}


@pytest.mark.parametrize(
    "given, expected",
    [
        ({"source_lang": "yy", "target_lang": "xx", "data": "bin/en.xx-yy"}, ("yy", "xx")),
        ({"data": "bin/en.xx-yy"}, ("xx", "yy")),
        ({"data": ["bin/en.yy-xx", "more"]}, ("yy", "xx")),
        ({"data": "bin/en-de"}, ("yy", "xx")),  # the only order that fits
        ({}, ("yy", "xx")),
    ],
)
def test_the_languages_of_fairseq(given: dict, expected: tuple[str, str]) -> None:
    from fastattn.weights.trainers import fairseq

    assert fairseq._languages(given, {"xx": ["a"] * 3, "yy": ["a"] * 5}, (5, 3), "") == expected


@pytest.mark.parametrize(
    "changes, place, expected",
    [
        ({}, "positions.kind", "table"),
        ({}, "embedding_scale", 12**0.5),
        ({"position_encoding": False}, "positions.kind", "none"),
        ({"position_encoding": False}, "embedding_scale", 1.0),
        ({"pos_ffn_activation_fn": "gelu"}, "feed_forward.activation", "gelu"),
        ({"layer_norm": "rms"}, "norms.kind", "rms"),
        ({"norm_eps": 1e-3}, "norms.epsilon", 1e-3),
        ({"norm_eps": None}, "norms.epsilon", 1e-6),
        ({"enc_hid_size": None, "hidden_size": 6, "rnn_size": 12}, "width", 6),  # of version 3
        ({"enc_hid_size": None, "rnn_size": 6}, "width", 6),
        ({"enc_hid_size": None, "rnn_size": 6}, "attention.head_width", 2),
    ],
)
def test_options_of_opennmt(changes: dict, place: str, expected: object) -> None:
    from fastattn.weights.containers.pytorch import read_whole
    from fastattn.weights.recurrent.opennmt import known_options
    from fastattn.weights.trainers import opennmt

    (file,) = (path.name for path in (FOLDER / "opennmt_plain").glob("*.pt"))
    stored = read_whole(Directory(FOLDER / "opennmt_plain"), file).tensors("model", "generator")
    given = {name: value for name, value in (OPENNMT["opennmt_plain"] | changes).items() if value is not None}
    options = known_options(given, opennmt.OPTIONS, "")
    stack = opennmt._stack("encoder", given, options, opennmt._todays(stored, options), "")
    assert attrgetter(place)(stack) == expected


def test_shared_embeddings_of_opennmt() -> None:
    from fastattn.weights.trainers import opennmt

    source, target = (opennmt.WORDS.replace("STACK", name) for name in ("encoder", "decoder"))
    stored: dict = {name: StoredTensor("F32", (), memoryview(b""), name) for name in (source, target)}
    for share, decoder, expected in ((True, False, {target: source}), (False, True, {"generator.weight": target})):
        options = {"share_embeddings": share, "share_decoder_embeddings": decoder}
        found = opennmt._todays(dict(stored), options)
        assert {name: one.where for name, one in found.items()} == {source: source, target: target} | expected


def test_embeddings_that_are_one_tensor() -> None:
    tensors = read(FOLDER / "fairseq_shared").tensors
    assert tensors["encoder.embedding.weight"] is tensors["decoder.projection.weight"]
    tensors = read(FOLDER / "opennmt_gated").tensors
    assert tensors["decoder.embedding.weight"] is tensors["decoder.projection.weight"]


def test_fairseqs_own_layout(folder: Path) -> None:
    """The checkpoint in checkpoints/, the data in data/; also by the file."""
    whole = read(folder)
    for name, place in (
        ("model.pt", "checkpoints/checkpoint_best.pt"),
        *((f"dict.{x}.txt",) * 2 for x in ("xx", "yy")),
    ):
        target = folder / (place if place.endswith(".pt") else f"data/{place}")
        target.parent.mkdir(exist_ok=True)
        (folder / name).rename(target)
    (folder / "checkpoints" / "checkpoint_last.pt").write_bytes(b"")
    for path in (folder, folder / "checkpoints" / "checkpoint_best.pt"):
        found = read(path)
        assert (found.spec, found.text, found.format) == (whole.spec, whole.text, "fairseq")


def test_files_of_fairseq_that_do_not_fit(folder: Path) -> None:
    (folder / "bpecodes").rename(folder / "other")
    refusal(folder, r"bpecodes: no such file \(nor code, .*the vocabulary has units of words such as 'lo@@'")
    (folder / "other").rename(folder / "code")
    (folder / "dict.yy.txt").write_text(dictionary(["a", "b"]))
    refusal(folder, r"dict\.yy\.txt: the embedding has 15 rows, the vocabulary 6 tokens")
    (folder / "dict.yy.txt").write_text("a 1\na 2\n")
    refusal(folder, r"dict\.yy\.txt: line 2 should be, once, a token, a space and how often it was seen")
    (folder / "dict.yy.txt").write_bytes(b"\xff 1\n")
    refusal(folder, r"dict\.yy\.txt: not UTF-8")
    (folder / "dict.yy.txt").unlink()
    refusal(folder, "its options do not say its languages: dict.SOURCE.txt and dict.TARGET.txt of 21 and 15 tokens")


def _saved(path: Path, **entries: bytes) -> Path:
    path.write_bytes(pickles.zip_bytes(pickles.pickled(pickles.dict_of(entries)), {}))
    return path


def _options(**options: object) -> bytes:
    return pickles.name("argparse", "Namespace") + b")\x81" + plain(options) + b"b"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"adaptive_input": True}, "option adaptive_input should be False, is True"),
        ({"encoder_langtok": "src"}, "option encoder_langtok should be None or '', is 'src'"),
        ({"decoder_langtok": True}, "option decoder_langtok should be False or None, is True"),
        ({"lang_pairs": "en-de,de-en"}, "option lang_pairs should be None, is 'en-de,de-en'"),
        ({"lang_tok_replacing_bos_eos": True}, "option lang_tok_replacing_bos_eos should be False, is True"),
        ({"activation_fn": "linear"}, "option activation_fn should be 'relu' or"),
        ({}, "encoder_embed_dim should be a number from 1 on"),
        (
            {"encoder_embed_dim": 4, "encoder_attention_heads": 2, "encoder_layers": 1},
            "encoder_ffn_embed_dim should be",
        ),
        (FAIRSEQ["fairseq_before"], "encoder.embed_tokens.weight should be a table"),
    ],
)
def test_options_of_fairseq(tmp_path: Path, options: dict, said: str) -> None:
    refusal(_saved(tmp_path / "model.pt", args=_options(**options), model=plain({})), said)


@pytest.mark.parametrize("entries", [("args",), ("cfg", "model")])
def test_options_in_plain_dicts(tmp_path: Path, entries: tuple[str, ...]) -> None:
    options = plain({"encoder_embed_dim": 4, "adaptive_input": True})
    for entry in entries[:0:-1]:
        options = pickles.dict_of({entry: options})
    _saved(tmp_path / "model.pt", **{entries[0]: options, "model": plain({})})
    refusal(tmp_path, "option adaptive_input should be False, is True")  # so the folder is known to be fairseq's


def test_options_of_the_task_count_too(tmp_path: Path) -> None:
    parts = {"task": plain({"lang_pairs": "en-de"}), "model": plain({"encoder_embed_dim": 4})}
    _saved(tmp_path / "model.pt", cfg=pickles.dict_of(parts), model=plain({}))
    refusal(tmp_path, "option lang_pairs should be None, is 'en-de'")


def test_pickles_that_would_run_something(tmp_path: Path) -> None:
    evil = pickles.call(pickles.name("posix", "system"), pickles.text("touch /tmp/evil"))
    refusal(_saved(tmp_path / "model.pt", args=evil, model=plain({})), "names 'posix.system'.*nothing of it was run")
    opaque = pickles.call(pickles.name("numpy.core.multiarray", "scalar"), pickles.text("x"))
    path = _saved(tmp_path / "model.pt", args=_options(), model=plain({}), best=opaque)
    refusal(path, "encoder_embed_dim should be a number")
    refusal(_saved(path, args=opaque, model=plain({})), "args should hold the options of a training")


def test_old_names_of_fairseq(tmp_path: Path, folder: Path) -> None:
    """Joined projections, numbered norms and a head of another name, as version 0.6 saved them."""
    from fastattn.weights.containers.pytorch import read_whole
    from fastattn.weights.trainers import fairseq

    stored = read_whole(Directory(folder), "model.pt").tensors("model")
    now = fairseq._todays(stored, dict.fromkeys(fairseq.OPTIONS, False))
    old = {name: one for name, one in stored.items() if "_proj." not in name or "out_proj" in name}
    for name in [name for name in stored if ".q_proj." in name]:
        parts = [stored[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
        data = memoryview(bytearray(b"".join(bytes(part.data) for part in parts)))
        shape = (3 * parts[0].shape[0], *parts[0].shape[1:])
        old[name.replace("q_proj.", "in_proj_")] = type(parts[0])("F32", shape, data, "old", None)
    for i, norm in enumerate(("self_attn", "encoder_attn", "final")):
        now_named = f"decoder.layers.0.{norm}_layer_norm"
        old = {name.replace(now_named, f"decoder.layers.0.layer_norms.{i}"): one for name, one in old.items()}
    old["model.decoder.embed_out"] = old.pop("model.decoder.output_projection.weight")
    made = fairseq._todays(old, dict.fromkeys(fairseq.OPTIONS, False))
    assert made.keys() == now.keys()
    for name in now:
        np.testing.assert_array_equal(made[name].float32(), now[name].float32())
