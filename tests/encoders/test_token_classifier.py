"""TokenClassifier: spans of the text as it is given, with the labels that transformers' pipeline gives them."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from fastattn.encoders.token_classifier import AGGREGATIONS, TokenClassifier
from fastattn.errors import CheckpointError, InputError
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.weights import read
from tests.encoders.classifiers import LABELS, TOKENS, some_texts, write_classifier

TAGS = {"0": "O", "1": "B-PER", "2": "I-PER"}
PIECES = ("an", "##na", "##s", "é", "meets", "in", "bern", ",", "b", "##e", "##rn", "münchen", "x")
TEXTS = ["Anna  meets Ännas, in BERN", "", "x 我 é, anna", "anna in bern " * 30, "bern[SEP]annas"]
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def wordpiece() -> str:
    """A tokenizer.json that puts words into lower case without accents and cuts them into PIECES."""
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *PIECES])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(list(SPECIAL))
    return str(tokenizer.to_str())


def byte_level() -> str:
    """One whose tokens are bytes: no prefix marks the parts of words."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[:56]
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return str(tokenizer.to_str())


def write(folder: Path, tokenizer: str = "") -> Path:
    write_classifier(folder, TOKENS, id2label=TAGS, label2id={tag: int(i) for i, tag in TAGS.items()})
    (folder / "tokenizer.json").write_text(tokenizer or wordpiece(), encoding="utf-8")
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    kind = "PreTrainedTokenizerFast" if tokenizer else "BertTokenizer"
    config |= {"tokenizer_class": kind, "do_lower_case": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def slow(folder: Path) -> TokenClassifier:
    return TokenClassifier.from_checkpoint(read(folder), ops=reference)


def test_spans_are_of_the_text_as_it_is_given(tmp_path: Path) -> None:
    classifier = slow(write(tmp_path))
    assert classifier.labels == ("O", "B-PER", "I-PER")
    found = classifier.classify(TEXTS, ignore_labels=())
    assert [(e["word"], TEXTS[0][e["start"] : e["end"]]) for e in found[0]] == [
        *[("an", "An"), ("##na", "na"), ("meets", "meets"), ("an", "Än"), ("##na", "na"), ("##s", "s"), (",", ",")],
        *[("in", "in"), ("bern", "BERN")],
    ]
    assert [e["index"] for e in found[0]] == list(range(1, 10))
    assert [e["word"] for e in found[2]] == ["x", "我", "é", ",", "an", "##na"]
    assert found[1] == [] and len(found[3]) == 38
    assert found[4][1]["word"] == "[SEP]"
    for one in found:
        assert all(set(entity) == {"label", "score", "word", "start", "end", "index"} for entity in one)
    grouped = classifier.classify(TEXTS, aggregation="simple", ignore_labels=())
    assert all(set(entity) == {"label", "score", "word", "start", "end"} for one in grouped for entity in one)
    assert {entity["label"] for one in grouped for entity in one} <= {"O", "PER"}


def test_labels_are_left_out(tmp_path: Path) -> None:
    classifier = slow(write(tmp_path))
    found = classifier.classify(TEXTS, ignore_labels=())
    assert classifier.classify(TEXTS) == [[e for e in one if e["label"] != "O"] for one in found]
    assert classifier.classify(TEXTS, ignore_labels=["I-PER", "B-PER", "O"]) == [[]] * len(TEXTS)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_neighbours_and_threads_change_no_bit(precision: str, tmp_path: Path) -> None:
    checkpoint, texts = read(write_classifier(tmp_path, TOKENS)), some_texts(80)
    classifier = TokenClassifier.from_checkpoint(checkpoint, precision, ops=operations)
    found = classifier.classify(texts)
    assert sum(map(len, found)) > 80
    assert classifier.classify(texts[::-1]) == found[::-1]
    assert classifier.classify(texts[7]) == found[7]
    assert TokenClassifier.from_checkpoint(checkpoint, precision, 1, operations).classify(texts) == found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"texts": 5}, "texts must be a str or several, got int"),
        (
            {"texts": ["a"], "aggregation": "last"},
            "unknown aggregation 'last'; known: none, simple, first, average, max",
        ),
        ({"texts": ["a"], "ignore_labels": "O"}, "ignore_labels must be several str, got 'O'"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        slow(write(tmp_path)).classify(**arguments)


def test_other_heads_are_refused(tmp_path: Path) -> None:
    for name, config, message in (
        (LABELS, {}, "the checkpoint's head is another"),
        (TOKENS, {"architectures": None}, "a classifier of tokens is expected: .* architectures should name"),
        ("bert-fill-mask", {}, "the checkpoint's head is another"),
    ):
        with pytest.raises(CheckpointError, match=message):
            slow(write_classifier(tmp_path / message[:5], name, **config))


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("tokenizer", ["", byte_level()], ids=["wordpiece", "bytes"])
def test_spans_are_those_of_transformers(tokenizer: str, aggregation: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = write(tmp_path, tokenizer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = transformers.pipeline(
            "token-classification", model=str(folder), aggregation_strategy=aggregation, device="cpu"
        )
        expected = [peer(text) for text in TEXTS]
    for found, wanted in zip(slow(folder).classify(TEXTS, aggregation=aggregation), expected, strict=True):
        assert [{**entity, "score": 0} for entity in found] == [
            {("label" if "entity" in name else name): value for name, value in {**entity, "score": 0}.items()}
            for entity in wanted
        ]
        np.testing.assert_allclose([e["score"] for e in found], [e["score"] for e in wanted], atol=1e-5)
