"""TextClassifier: labels and probabilities as transformers' pipeline gives them."""

import json
from functools import partial
from itertools import product

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from fastattn import MaskedLanguageModel, TextClassifier
from fastattn.encoders.token_classifier import AGGREGATIONS, Token, TokenClassifier, find_entities
from fastattn.errors import CheckpointError
from fastattn.models.kinds import build_model
from fastattn.ops import reference
from fastattn.text.huggingface import HuggingFaceTokenizer
from fastattn.weights import read
from tests.architectures.cases import GOLDEN_CASES
from tests.encoders.classifiers import LABELS, MASKED, RERANKER, TOKENS, by_reference, write_classifier, write_masked

slow = partial(by_reference, TextClassifier)

TEXTS = ["w5 w6 w7", "", "w40", "w5 " * 60]


def numbers(folder):
    """What the head gives of TEXTS, step by step."""
    checkpoint = read(folder)
    ids_B = HuggingFaceTokenizer(checkpoint.text.tokenizer, 40).encode(TEXTS)
    model = build_model(checkpoint, reference)
    return model.head(*model.encode(ids_B)).astype(np.float64)


def scores(found, labels):
    """The scores by text and label, [B, F]."""
    return np.array([[{entry["label"]: entry["score"] for entry in one}[label] for label in labels] for one in found])


def test_labels_are_in_the_order_of_their_probabilities(tmp_path):
    classifier = slow(write_classifier(tmp_path, LABELS))
    assert classifier.labels == ("NONE", "PLACE", "PERSON")
    assert (classifier.max_length, classifier.precision) == (40, "float32")
    found = classifier.classify(TEXTS)
    weights = np.exp(numbers(tmp_path))
    expected = weights / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(scores(found, classifier.labels), expected, rtol=1e-5)
    for one in found:
        assert [entry["score"] for entry in one] == sorted((entry["score"] for entry in one), reverse=True)
    assert classifier.classify(TEXTS, top_k=2) == [one[:2] for one in found]
    pairs = [(TEXTS[0], TEXTS[1])]
    assert classifier.classify(pairs, top_k=2) == [one[:2] for one in classifier.classify(pairs)]
    assert [entry["label"] for entry in classifier.classify(TEXTS[0])] == [entry["label"] for entry in found[0]]
    assert classifier.classify(iter(TEXTS)) == found
    assert classifier.classify([]) == []


def test_labels_without_names_have_numbers(tmp_path):
    classifier = slow(write_classifier(tmp_path, LABELS, id2label=None, num_labels=3))
    assert classifier.labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def softmax(x):
    return np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_the_problem_says_what_makes_probabilities(tmp_path):
    for name, problem, make in (
        (LABELS, "multi_label_classification", sigmoid),
        (LABELS, "regression", lambda x: x),
        (LABELS, "single_label_classification", softmax),
        (RERANKER, None, sigmoid),
        (RERANKER, "single_label_classification", sigmoid),
        (RERANKER, "regression", lambda x: x),
    ):
        classifier = slow(write_classifier(tmp_path, name, problem_type=problem))
        found = scores(classifier.classify(TEXTS), classifier.labels)
        np.testing.assert_allclose(found, make(numbers(tmp_path)), rtol=1e-5, err_msg=f"{name} {problem}")


@pytest.mark.filterwarnings("ignore")  # theirs
def test_labels_are_those_of_transformers(tmp_path):
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    for name, problem in product((LABELS, RERANKER), (None, "multi_label_classification", "regression")):
        folder = write_classifier(tmp_path / f"{name} {problem}", name, problem_type=problem)
        peer, classifier = transformers.pipeline("text-classification", model=str(folder), device="cpu"), slow(folder)
        for text, found in zip(TEXTS, classifier.classify(TEXTS)):
            expected = peer([text], top_k=None, truncation=True)[0]
            assert [entry["label"] for entry in found] == [entry["label"] for entry in expected]
            np.testing.assert_allclose([e["score"] for e in found], [e["score"] for e in expected], atol=1e-5)


tagger = partial(by_reference, TokenClassifier)

TAGS = {"0": "O", "1": "B-PER", "2": "I-PER"}
PIECES = ("an", "##na", "##s", "é", "meets", "in", "bern", ",", "b", "##e", "##rn", "münchen", "x")
SPANNED = ["Anna  meets Ännas, in BERN", "", "x 我 é, anna", "anna in bern " * 30, "bern[SEP]annas"]
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def file_of(model, tokens, pre_tokenizer, decoder, normalizer=None):
    """A tokenizer.json of SPECIAL and other tokens."""
    tokenizer = Tokenizer(model({token: i for i, token in enumerate([*SPECIAL, *tokens])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoder
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(list(SPECIAL))
    return str(tokenizer.to_str())


def wordpiece():
    """One that puts words into lower case without accents and cuts them into PIECES."""
    before, after = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    return file_of(models.WordPiece, PIECES, before, after, normalizers.BertNormalizer())


def byte_level():
    """One whose tokens are bytes: no prefix marks the parts of words."""
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet())[:56]
    model = partial(models.BPE, merges=[])
    return file_of(model, tokens, pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel())


def write(folder, tokenizer=""):
    write_classifier(folder, TOKENS, id2label=TAGS, label2id={tag: int(i) for i, tag in TAGS.items()})
    (folder / "tokenizer.json").write_text(tokenizer or wordpiece(), encoding="utf-8")
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    kind = "PreTrainedTokenizerFast" if tokenizer else "BertTokenizer"
    config |= {"tokenizer_class": kind, "do_lower_case": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def test_spans_are_of_the_text_as_it_is_given(tmp_path):
    classifier = tagger(write(tmp_path))
    assert classifier.labels == ("O", "B-PER", "I-PER")
    found = classifier.classify(SPANNED, ignore_labels=())
    assert [(e["word"], SPANNED[0][e["start"] : e["end"]]) for e in found[0]] == [
        *[("an", "An"), ("##na", "na"), ("meets", "meets"), ("an", "Än"), ("##na", "na"), ("##s", "s"), (",", ",")],
        *[("in", "in"), ("bern", "BERN")],
    ]
    assert [e["index"] for e in found[0]] == list(range(1, 10))
    assert [e["word"] for e in found[2]] == ["x", "我", "é", ",", "an", "##na"]
    assert found[1] == [] and len(found[3]) == 38
    assert found[4][1]["word"] == "[SEP]"
    for one in found:
        assert all(set(entity) == {"label", "score", "word", "start", "end", "index"} for entity in one)
    grouped = classifier.classify(SPANNED, aggregation="simple", ignore_labels=())
    assert all(set(entity) == {"label", "score", "word", "start", "end"} for one in grouped for entity in one)
    assert {entity["label"] for one in grouped for entity in one} <= {"O", "PER"}


def test_labels_are_left_out(tmp_path):
    classifier = tagger(write(tmp_path))
    found = classifier.classify(SPANNED, ignore_labels=())
    assert classifier.classify(SPANNED) == [[e for e in one if e["label"] != "O"] for one in found]
    assert classifier.classify(SPANNED, ignore_labels=["I-PER", "B-PER", "O"]) == [[]] * len(SPANNED)


@pytest.mark.filterwarnings("ignore")  # theirs
def test_spans_are_those_of_transformers(tmp_path):
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    for kind, tokenizer in (("pieces", ""), ("bytes", byte_level())):
        classifier = tagger(folder := write(tmp_path / kind, tokenizer))
        for aggregation in AGGREGATIONS:
            peer = transformers.pipeline(
                "token-classification", model=str(folder), aggregation_strategy=aggregation, device="cpu"
            )
            for found, wanted in zip(
                classifier.classify(SPANNED, aggregation=aggregation), map(peer, SPANNED), strict=True
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


def tokens(story):
    """Each label has its score, the others share the rest; the tokens lie at 10, 20, ..."""
    made = []
    for number, (word, label, score, continues) in enumerate(story, 1):
        scores_F = np.full(len(STORY_LABELS), (1 - score) / (len(STORY_LABELS) - 1), np.float32)
        scores_F[STORY_LABELS.index(label)] = score
        made.append(Token(word, scores_F, 10 * number, 10 * number + len(word), number, continues))
    return made


def join(words):
    return " ".join(words).replace(" ##", "")


def found(aggregation, story=STORY):
    return [(e.label, join(e.words)) for e in find_entities(tokens(story), STORY_LABELS, aggregation, join)]


def test_each_token_has_its_label():
    entities = find_entities(tokens(STORY), STORY_LABELS, "none", join)
    assert [(e.words, e.label, e.start, e.index) for e in entities] == [
        ((word,), label, 10 * number, number) for number, (word, label, _, _) in enumerate(STORY, 1)
    ]
    np.testing.assert_allclose([e.score for e in entities], [score for _, _, score, _ in STORY], rtol=1e-6)


def test_tokens_in_a_row_with_one_label_are_one():
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


def test_a_word_has_one_label():
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


def test_what_goes_on_and_what_begins():
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


masked = partial(by_reference, MaskedLanguageModel)

# without the one that transformers takes the code of from elsewhere
CASES_OF_MASKS = [case.name for case in GOLDEN_CASES if case.task == "fill-mask" and case.model_type != "new"]


def test_tokens_are_the_most_probable(tmp_path):
    model = masked(write_masked(tmp_path))
    assert (model.mask_token, model.max_length) == ("[MASK]", 40)
    found = model.fill("w5 [MASK] w7", top_k=3)
    plain = build_model(read(tmp_path), reference)
    logits_TV = plain.head(*plain.encode([np.array([2, 5, 4, 7, 3], np.int32)])).astype(np.float64)
    likely = np.exp(logits_TV[2]) / np.exp(logits_TV[2]).sum()
    best = np.argsort(-likely)[:3]
    assert [entry["token"] for entry in found] == best.tolist()
    np.testing.assert_allclose([entry["score"] for entry in found], likely[best], rtol=1e-4)
    for entry in found:
        assert entry["token_str"] == model._tokenizer.token(entry["token"])
        if entry["token"] >= 5:
            assert entry["sequence"] == f"w5 {entry['token_str']} w7"
    whole = model.fill("w5 [MASK] w7", top_k=1000)
    assert len(whole) == 61 and sum(entry["score"] for entry in whole) == pytest.approx(1)


def test_several_masks_are_predicted_one_by_one(tmp_path):
    model = MaskedLanguageModel.from_checkpoint(read(write_masked(tmp_path)))
    texts = ["[MASK] w8 [MASK]", "w9 [MASK]"]
    found = model.fill(texts)
    assert [len(masks) for masks in found] == [2, 5]
    for mask, place in zip(found[0], (1, 3)):
        for entry in mask:
            words = ["[CLS]", "[MASK]", "w8", "[MASK]", "[SEP]"]
            words[place] = entry["token_str"]
            assert entry["sequence"] == " ".join(words)
    assert model.fill(texts[0]) == found[0]
    assert model.fill(iter(texts)) == found


def test_a_tokenizer_without_a_mask_is_refused(tmp_path):
    write_masked(tmp_path / "unmasked")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        path = tmp_path / "unmasked" / name
        path.write_text(path.read_text(encoding="utf-8").replace("[MASK]", "[NONE]"), encoding="utf-8")
    config = tmp_path / "unmasked" / "tokenizer_config.json"
    config.write_text(config.read_text(encoding="utf-8").replace("mask_token", "none_token"), encoding="utf-8")
    with pytest.raises(CheckpointError, match="a masked language model is expected: the tokenizer has no mask token"):
        masked(tmp_path / "unmasked")


@pytest.mark.filterwarnings("ignore")  # theirs
def test_tokens_are_those_of_transformers(tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    for name in CASES_OF_MASKS:
        folder = write_masked(tmp_path / name, name)
        model = masked(folder)
        text = f"w5 {model.mask_token} w7"
        if name == MASKED:
            found = transformers.pipeline("fill-mask", model=str(folder), device="cpu")(text)
            assert [{**entry, "score": 0} for entry in model.fill(text)] == [{**entry, "score": 0} for entry in found]
            np.testing.assert_allclose([e["score"] for e in model.fill(text)], [e["score"] for e in found], atol=1e-5)
        peer = transformers.AutoModelForMaskedLM.from_pretrained(str(folder)).eval()
        (ids,) = model._tokenizer.encode([text])
        with torch.inference_mode():
            logits_V = peer(torch.tensor(ids[None].astype(np.int64))).logits[0, list(ids).index(model._mask)]
        likely = torch.softmax(logits_V, -1).numpy()
        for entry in model.fill(text, top_k=10):
            assert entry["score"] == pytest.approx(float(likely[entry["token"]]), abs=1e-5), name
