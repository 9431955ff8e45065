"""Checkpoints as fairseq and OpenNMT-py save them: what these answer, and what is refused in one line."""

import json
import shutil
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

from fastattn import Translator
from fastattn.text.translation import TranslationTokenizer
from fastattn.weights import read
from fastattn.weights.containers.pytorch import read_trainer_file
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.folder import Directory
from fastattn.weights.trainers import fairseq, opennmt
from fastattn.weights.trainers.files import checked_options
from tests import GOLDENS
from tests.weights.containers import pytorch_writer as pickles
from tests.weights.recurrent.writer import plain
from tests.weights.refusals import refuses
from tests.weights.trainers.cases import FAIRSEQ, LINES, OPENNMT, dictionary

FOLDER = GOLDENS / "trainers"
ANSWERS = json.loads((FOLDER / "answers.json").read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(FOLDER / "fairseq_before", tmp_path / "model"))


@pytest.mark.parametrize("name", [*FAIRSEQ, *OPENNMT])
def test_scores_and_tokens(name):
    translator, text = Translator(FOLDER / name, "float32"), read(FOLDER / name).text
    for answer in ANSWERS[name]["answers"]:
        source = [text.source_vocabulary[i] for i in answer["source"][: -1 if text.add_source_eos else None]]
        target = [text.target_vocabulary[i] for i in answer["target"]]
        if not source:
            continue
        found = translator.score_tokens([source], [target])[0].log_probs
        np.testing.assert_allclose(found[: len(target)], answer["scores"], atol=2e-5)
        best = translator.translate_tokens([source], beam_size=1, max_decoding_length=10)[0].hypotheses[0]
        shown = [text.target_vocabulary[i] for i in answer["greedy"][: len(best)] if i != 2 or "opennmt" in name]
        assert best == shown


@pytest.mark.parametrize("name", FAIRSEQ)
def test_texts_become_fairseqs_ids(name):
    tokenizer = TranslationTokenizer(read(FOLDER / name).text)
    for line, answer in zip(LINES, ANSWERS[name]["answers"]):
        assert tokenizer.source_ids(tokenizer.source_tokens(line)).tolist() == answer["source"]


def test_what_fairseq_fixes_and_what_its_options_say(folder):
    text, decoding = read(folder).text, read(folder).text.decoding
    assert (text.decoder_start_token, text.add_source_eos, text.words) == ("</s>", True, "")
    assert (decoding.beam_size, decoding.rules.early_stopping) == (5, "true")
    assert decoding.suppress_sequences == ((1,),)  # never the padding
    whole = read_trainer_file(Directory(folder), "model.pt")
    given = fairseq._training_options(whole)
    for name, expected in (("gelu_fast", "gelu_tanh"), ("swish", "swish"), ("tanh", "tanh")):  # others: the answers
        options = checked_options(given | {"activation_fn": name}, fairseq.OPTIONS, "")
        stack = fairseq._read_stack(
            "encoder", given, options, fairseq._rename_tensors(whole.tensors("model"), options), ""
        )
        assert stack.feed_forward.activation == expected


def test_the_languages_of_fairseq():
    for given, expected in (
        ({"source_lang": "yy", "target_lang": "xx", "data": "bin/en.xx-yy"}, ("yy", "xx")),
        ({"data": "bin/en.xx-yy"}, ("xx", "yy")), ({"data": ["bin/en.yy-xx", "more"]}, ("yy", "xx")),
        ({"data": "bin/en-de"}, ("yy", "xx")), ({}, ("yy", "xx")),  # the only order that fits
    ):  # fmt: skip
        assert fairseq._find_languages(given, {"xx": ["a"] * 3, "yy": ["a"] * 5}, (5, 3), "") == expected


# Those that the answers do not show.
STATED = [
    ({"position_encoding": False}, {"positions.kind": "none", "embedding_scale": 1.0}),
    ({"pos_ffn_activation_fn": "gelu"}, {"feed_forward.activation": "gelu"}),
    ({"norm_eps": None}, {"norms.epsilon": 1e-6}),
    ({"enc_hid_size": None, "hidden_size": 6, "rnn_size": 12}, {"width": 6}),  # of version 3
    ({"enc_hid_size": None, "rnn_size": 6}, {"width": 6, "attention.head_width": 2}),
]  # fmt: skip


@pytest.mark.parametrize("changes, expected", STATED)
def test_options_of_opennmt(changes, expected):
    stored = read_trainer_file(Directory(FOLDER / "opennmt_plain"), "model_step_3.pt").tensors("model", "generator")
    given = {name: value for name, value in (OPENNMT["opennmt_plain"] | changes).items() if value is not None}
    options = checked_options(given, opennmt.OPTIONS, "")
    stack = opennmt._read_stack("encoder", given, options, opennmt._normalize_tensors(stored, options), "")
    assert {place: attrgetter(place)(stack) for place in expected} == expected


def test_shared_embeddings_of_opennmt():
    source, target = (opennmt.WORDS.replace("STACK", name) for name in ("encoder", "decoder"))
    stored = {name: StoredTensor("F32", (), memoryview(b""), name) for name in (source, target)}
    for share, decoder, expected in ((True, False, {target: source}), (False, True, {"generator.weight": target})):
        options = {"share_embeddings": share, "share_decoder_embeddings": decoder}
        found = opennmt._normalize_tensors(dict(stored), options)
        assert {name: one.where for name, one in found.items()} == {source: source, target: target} | expected


def test_fairseqs_own_layout(folder):
    """The checkpoint in checkpoints/, the data in data/; also by the file."""
    whole = read(folder)
    places = {f"dict.{x}.txt": f"data/dict.{x}.txt" for x in ("xx", "yy")}
    for name, place in (places | {"model.pt": "checkpoints/checkpoint_best.pt"}).items():
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / name).rename(folder / place)
    (folder / "checkpoints" / "checkpoint_last.pt").write_bytes(b"")
    for path in (folder, folder / "checkpoints" / "checkpoint_best.pt"):
        found = read(path)
        assert (found.spec, found.text, found.format) == (whole.spec, whole.text, "fairseq")


def test_files_of_fairseq_that_do_not_fit(folder):
    (folder / "bpecodes").rename(folder / "other")
    refuses(folder)
    (folder / "other").rename(folder / "code")
    for content in (dictionary(["a", "b"]).encode(), b"a 1\na 2\n", b"\xff 1\n"):
        (folder / "dict.yy.txt").write_bytes(content)
        refuses(folder)
    (folder / "dict.yy.txt").unlink()
    refuses(folder)


def _saved(path, **entries):
    path.write_bytes(pickles.zip_bytes(pickles.pickled(pickles.dict_of(entries)), {}))
    return path


def _options(**options):
    return pickles.name("argparse", "Namespace") + b")\x81" + plain(options) + b"b"


SMALL = {"encoder_embed_dim": 4, "encoder_attention_heads": 2, "encoder_layers": 1}
OPTIONS = [
    {"adaptive_input": True}, {"encoder_langtok": "src"}, {"decoder_langtok": True}, {"lang_pairs": "en-de,de-en"},
    {"lang_tok_replacing_bos_eos": True}, {"activation_fn": "linear"}, {}, SMALL, FAIRSEQ["fairseq_before"],
]  # fmt: skip


def test_options_of_fairseq(tmp_path):
    path = tmp_path / "model.pt"
    for options in OPTIONS:
        refuses(_saved(path, args=_options(**options), model=plain({})))
    # Those of version 0.10, of the task too; so the folder is known to be fairseq's.
    width, pairs = {"encoder_embed_dim": 4}, plain({"lang_pairs": "en-de"})
    refused_option = plain(width | {"adaptive_input": True})
    cfgs = ({"model": refused_option}, {"model": plain(width), "task": pairs})
    for entries in ({"args": refused_option}, *({"cfg": pickles.dict_of(cfg)} for cfg in cfgs)):
        refuses(_saved(path, **entries, model=plain({})).parent)
    evil = pickles.call(pickles.name("posix", "system"), pickles.text("touch /tmp/evil"))
    opaque = pickles.call(pickles.name("numpy.core.multiarray", "scalar"), pickles.text("x"))
    for entries in ({"args": evil}, {"args": _options(), "best": opaque}, {"args": opaque}):
        refuses(_saved(path, **entries, model=plain({})))


def test_old_names_of_fairseq(tmp_path, folder):
    """Joined projections, numbered norms and a head of another name, as version 0.6 saved them."""
    stored = read_trainer_file(Directory(folder), "model.pt").tensors("model")
    now = fairseq._rename_tensors(stored, dict.fromkeys(fairseq.OPTIONS, False))
    old = {name: one for name, one in stored.items() if "_proj." not in name or "out_proj" in name}
    for name in [name for name in stored if ".q_proj." in name]:
        parts = [stored[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
        data = memoryview(bytearray(b"".join(bytes(part.data) for part in parts)))
        shape = (3 * parts[0].shape[0], *parts[0].shape[1:])
        old[name.replace("q_proj.", "in_proj_")] = type(parts[0])("F32", shape, data, "old", None)
    layer = "decoder.layers.0."
    for i, norm in enumerate(("self_attn", "encoder_attn", "final")):
        old = {name.replace(f"{layer}{norm}_layer_norm", f"{layer}layer_norms.{i}"): old[name] for name in old}
    old["model.decoder.embed_out"] = old.pop("model.decoder.output_projection.weight")
    made = fairseq._rename_tensors(old, dict.fromkeys(fairseq.OPTIONS, False))
    made, now = ({name: one.float32().tolist() for name, one in tensors.items()} for tensors in (made, now))
    assert made == now
