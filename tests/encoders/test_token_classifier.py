"""TokenClassifier: spans of texts, labelled as by transformers' pipeline; from tokens' labels to those of runs."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from fastattn.encoders.token_classifier import AGGREGATIONS, Token, TokenClassifier, find_entities
from tests.encoders.classifiers import TOKENS, by_reference, write_classifier

slow = partial(by_reference, TokenClassifier)

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


@pytest.mark.filterwarnings("ignore")  # theirs
def test_spans_are_those_of_transformers(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    for kind, tokenizer in (("pieces", ""), ("bytes", byte_level())):
        classifier = slow(folder := write(tmp_path / kind, tokenizer))
        for aggregation in AGGREGATIONS:
            peer = transformers.pipeline(
                "token-classification", model=str(folder), aggregation_strategy=aggregation, device="cpu"
            )
            for found, wanted in zip(
                classifier.classify(TEXTS, aggregation=aggregation), map(peer, TEXTS), strict=True
            ):
                assert [{**entity, "score": 0} for entity in found] == [
                    {("label" if "entity" in name else name): value for name, value in {**entity, "score": 0}.items()}
                    for entity in wanted
                ]
                np.testing.assert_allclose([e["score"] for e in found], [e["score"] for e in wanted], atol=1e-5)


STORY_LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "X", "S-PER", "E-PER")
# Token, its label, its score, whether it goes on with a word: "Angela Mer##kel met Anna in P##aris"
STORY = [
    ("Angela", "B-PER", 0.9, False),
    ("Mer", "I-PER", 0.8, False),
    ("##kel", "O", 0.6, True),
    ("met", "O", 0.7, False),
    ("Anna", "B-PER", 0.5, False),
    ("Eva", "B-PER", 0.6, False),
    ("in", "X", 0.6, False),
    ("P", "X", 0.5, False),
    ("##aris", "I-LOC", 0.9, True),
]


def tokens(story: list[tuple[str, str, float, bool]]) -> list[Token]:
    """Each label has its score, the others share the rest; the tokens lie at 10, 20, ..."""
    made = []
    for number, (word, label, score, continues) in enumerate(story, 1):
        scores_F = np.full(len(STORY_LABELS), (1 - score) / (len(STORY_LABELS) - 1), np.float32)
        scores_F[STORY_LABELS.index(label)] = score
        made.append(Token(word, scores_F, 10 * number, 10 * number + len(word), number, continues))
    return made


def join(words: list[str] | tuple[str, ...]) -> str:
    return " ".join(words).replace(" ##", "")


def found(aggregation: str, story: list[tuple[str, str, float, bool]] = STORY) -> list[tuple[str, str]]:
    return [(e.label, join(e.words)) for e in find_entities(tokens(story), STORY_LABELS, aggregation, join)]


def test_each_token_has_its_label() -> None:
    entities = find_entities(tokens(STORY), STORY_LABELS, "none", join)
    assert [(e.words, e.label, e.start, e.index) for e in entities] == [
        ((word,), label, 10 * number, number) for number, (word, label, _, _) in enumerate(STORY, 1)
    ]
    np.testing.assert_allclose([e.score for e in entities], [score for _, _, score, _ in STORY], rtol=1e-6)


def test_tokens_in_a_row_with_one_label_are_one() -> None:
    assert found("simple") == [
        ("PER", "Angela Mer"),
        ("O", "##kel met"),
        ("PER", "Anna"),
        ("PER", "Eva"),
        ("X", "in P"),
        ("LOC", "##aris"),
    ]
    first = find_entities(tokens(STORY), STORY_LABELS, "simple", join)[0]
    assert (first.start, first.end) == (10, 23)
    assert first.score == pytest.approx(0.85)


def test_a_word_has_one_label() -> None:
    for aggregation, paris in (("first", ("X", "in Paris")), ("max", ("LOC", "Paris")), ("average", ("LOC", "Paris"))):
        entities = found(aggregation)
        assert {("PER", "Angela Merkel"), ("O", "met"), paris} <= {*entities}, aggregation
    word = [
        Token(text, np.array(scores, np.float32), 0, 1, 1, text == "##b")
        for text, scores in (("a", [0.6, 0.4, 0]), ("##b", [0.0, 0.55, 0.45]))
    ]
    for aggregation, label, score in (("first", "A", 0.6), ("average", "B", 0.475), ("max", "A", 0.6)):
        (entity,) = find_entities(word, ("A", "B", "C"), aggregation, join)
        assert (entity.label, entity.words, entity.score) == (label, ("ab",), pytest.approx(score)), aggregation
    assert [found(aggregation, []) for aggregation in AGGREGATIONS] == [[]] * len(AGGREGATIONS)


def test_what_goes_on_and_what_begins() -> None:
    for labels, expected in (
        (["I-PER", "I-PER"], ["PER"]),
        (["B-PER", "I-LOC"], ["PER", "LOC"]),
        (["X", "X"], ["X"]),
        (["I-PER", "B-PER", "I-PER"], ["PER", "PER"]),
        (["O", "X", "O"], ["O", "X", "O"]),
        # other prefixes than B- and I- part entities, though the labels are without them
        (["S-PER", "E-PER", "S-PER", "S-PER"], ["PER", "PER", "PER"]),
        (["B-PER", "I-PER", "E-PER"], ["PER", "PER"]),
    ):
        story = [(f"w{i}", label, 0.9, False) for i, label in enumerate(labels)]
        assert [label for label, _ in found("simple", story)] == expected, labels
