"""CrossEncoder: scores of pairs as sentence-transformers computes them."""

import json
import shutil
from functools import partial

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from fastattn import CrossEncoder, Encoder, MaskedLanguageModel, TextClassifier
from fastattn.encoders.cross_encoder import PROMPT, encode_in_prompt
from fastattn.encoders.text_classifier import apply_activation
from fastattn.encoders.token_classifier import AGGREGATIONS, Token, TokenClassifier, find_entities
from fastattn.errors import CheckpointError, InputError
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.text.huggingface import HuggingFaceTokenizer
from fastattn.weights import read
from fastattn.weights.native import convert
from tests import GOLDENS
from tests.encoders.classifiers import (
    LABELS,
    RERANKER,
    TOKENS,
    TRANSFORMER,
    _modules,
    by_reference,
    some_pairs,
    some_texts,
    write_classifier,
    write_cross_encoder_files,
    write_json,
    write_masked,
)
from tests.generation.language_models import checkpoint
from tests.goldens.make_reranker import INSTRUCTIONS, PREFIX, SUFFIX
from tests.goldens.make_reranker import PAIRS as ASKED
from tests.loading.caches import empty_cache
from tests.messages import refused
from tests.weights.native.folders import converted

slow = partial(by_reference, CrossEncoder)

PAIRS = some_pairs(7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_classifier(tmp_path_factory.mktemp("reranker"))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def numbers(folder, pair):
    """What the head gives of one pair, step by step."""
    checkpoint = read(folder)
    tokenizer = HuggingFaceTokenizer(checkpoint.text.tokenizer, 40)
    ids_B, types_B = tokenizer.encode_pairs([pair])
    assert set(types_B[0]) == {0, 1}
    model = build_model(checkpoint, reference)
    return model.head(*model.encode(ids_B, types_B))[0]


def test_a_score_for_each_pair(folder):
    encoder = slow(folder)
    scores = encoder.predict(PAIRS)
    assert (scores.shape, scores.dtype) == ((7,), np.float32)
    expected = [numbers(folder, pair)[0] for pair in PAIRS]
    np.testing.assert_allclose(scores, sigmoid(np.array(expected)), rtol=1e-6)
    for name, make in (("none", np.array), ("tanh", np.tanh), ("relu", partial(np.maximum, 0))):
        np.testing.assert_allclose(encoder.predict(PAIRS, activation_fn=name), make(expected), rtol=1e-5)
    for same in (iter(PAIRS), np.array(PAIRS), [list(pair) for pair in PAIRS]):
        assert encoder.predict(same).tolist() == scores.tolist()
    assert encoder.predict([]).shape == (0,) and (encoder.predict(PAIRS, apply_softmax=True) == scores).all()
    assert (encoder.num_labels, encoder.precision, encoder.max_length) == (1, "float32", 40)
    assert encoder.predict(PAIRS[0]).shape == () and encoder.predict(list(PAIRS[0])) == encoder.predict([PAIRS[0]])[0]


def test_activations_of_great_numbers():
    numbers = np.array([[-1e4, 0.0, 3.0, 1e4], [-89.0, 88.0, -2.0, 0.5]], np.float32)
    with np.errstate(over="raise", invalid="raise"):
        likely, most = apply_activation("sigmoid", numbers), apply_activation("softmax", numbers)
    np.testing.assert_allclose(likely[0], [0, 0.5, 1 / (1 + np.exp(-3)), 1], rtol=1e-6)
    np.testing.assert_allclose(likely[1, 0], np.exp(-89.0), rtol=1e-5)
    np.testing.assert_allclose(most[0], [0, 0, 0, 1])
    assert likely.dtype == most.dtype == np.float32


def test_several_labels_get_several_scores(tmp_path):
    encoder = slow(write_classifier(tmp_path, LABELS))
    scores = encoder.predict(PAIRS)
    assert (scores.shape, encoder.num_labels, encoder.predict(PAIRS[0]).shape) == ((7, 3), 3, (3,))
    np.testing.assert_allclose(scores, [numbers(tmp_path, pair) for pair in PAIRS], rtol=1e-5)
    weights = np.exp(scores.astype(np.float64))
    expected = weights / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.predict(PAIRS, apply_softmax=True), expected, rtol=1e-6)
    assert encoder.predict([], apply_softmax=True).shape == (0, 3)


def test_rank_puts_the_best_first(folder, monkeypatch):
    encoder = slow(folder)
    documents = some_texts(9)
    documents[7] = documents[2]
    scores = encoder.predict([("w7 w8", document) for document in documents]).tolist()
    ranked = encoder.rank("w7 w8", documents)
    assert [entry["score"] for entry in ranked] == sorted(scores, reverse=True)
    assert all(entry == {"corpus_id": entry["corpus_id"], "score": scores[entry["corpus_id"]]} for entry in ranked)
    order = [entry["corpus_id"] for entry in ranked]
    assert sorted(order) == list(range(9)) and order.index(7) == order.index(2) + 1
    best = encoder.rank("w7 w8", iter(documents), 3, return_documents=True)
    assert [entry.pop("text") for entry in best] == [documents[i] for i in order[:3]]
    assert best == ranked[:3]
    assert encoder.rank("w7", []) == []
    for wrong in ({"query": 5}, {"documents": "b"}, {"documents": ["b", 5]}, {"top_k": 0}, {"return_documents": "yes"}):
        with refused(InputError, *wrong):
            encoder.rank(**{"query": "a", "documents": ["a"]} | wrong)
    no_numbers = np.array([0.5, np.nan, 0.1, 0.9, np.nan], np.float32)
    monkeypatch.setattr(encoder, "predict", lambda pairs, **how: no_numbers)
    assert [entry["corpus_id"] for entry in encoder.rank("w5", ["w6"] * 5)] == [3, 0, 2, 1, 4]


def test_prompts_come_before_the_first_text(folder, tmp_path):
    encoder = slow(folder)
    assert encoder.predict(("w6", "w7"), prompt="w5 ") == encoder.predict(("w5 w6", "w7"))
    write_classifier(tmp_path)
    settings = {"prompts": {"query": "w9 "}, "default_prompt_name": "query"}
    write_cross_encoder_files(tmp_path, settings)
    encoder = slow(tmp_path)
    assert encoder.prompts == {"query": "w9 "}
    assert encoder.predict(("w6", "w7")) == slow(folder).predict(("w9 w6", "w7"))
    assert encoder.predict(("w6", "w7"), prompt="") == slow(folder).predict(("w6", "w7"))


IDENTITY = "torch.nn.modules.linear.Identity"


def test_what_makes_scores_is_said_in_one_of_three_places(folder, tmp_path):
    raw, usual = slow(folder).predict(PAIRS, activation_fn="none"), slow(folder).predict(PAIRS)
    for config in (
        {"sentence_transformers": {"activation_fn": IDENTITY}},
        {"sbert_ce_default_activation_function": IDENTITY},
    ):
        encoder = slow(write_classifier(tmp_path, RERANKER, **config))
        np.testing.assert_array_equal(encoder.predict(PAIRS), raw)
        np.testing.assert_array_equal(encoder.predict(PAIRS, activation_fn="sigmoid"), usual)
    write_cross_encoder_files(tmp_path, {"activation_fn": "torch.nn.modules.activation.Sigmoid"})
    np.testing.assert_array_equal(slow(tmp_path).predict(PAIRS), usual)
    write_classifier(tmp_path)
    write_cross_encoder_files(tmp_path, {"activation_fn": IDENTITY})
    np.testing.assert_array_equal(slow(tmp_path).predict(PAIRS), raw)
    write_cross_encoder_files(tmp_path, {"activation_fn": "my.own.Function"})  # which is not trusted there either
    np.testing.assert_array_equal(slow(tmp_path).predict(PAIRS), usual)


def test_token_types_are_the_tokenizers_to_give(folder, tmp_path):
    typed = slow(folder).predict(PAIRS)
    write_classifier(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    for change in ({"model_input_names": ["input_ids"]}, {"tokenizer_class": "TokenizersBackend"}):
        path.write_text(json.dumps(config | change), encoding="utf-8")
        assert not read(tmp_path).text.token_types
        assert (slow(tmp_path).predict(PAIRS) != typed).any()
    path.write_text(json.dumps(config | {"model_input_names": ["input_ids", "token_type_ids"]}), encoding="utf-8")
    np.testing.assert_array_equal(slow(tmp_path).predict(PAIRS), typed)


def test_a_converted_folder_scores_the_same(folder, tmp_path):
    convert.write(tmp_path, read(folder), "float32")
    np.testing.assert_array_equal(slow(tmp_path).predict(PAIRS), slow(folder).predict(PAIRS))


def test_the_encoder_of_a_classifier_still_encodes(folder, tmp_path):
    vectors = Encoder.from_checkpoint(read(folder), ops=reference).encode(["w5 w6", "w9"])
    write_classifier(tmp_path)
    write_cross_encoder_files(tmp_path, {})
    again = Encoder.from_checkpoint(read(tmp_path), ops=reference).encode(["w5 w6", "w9"])
    np.testing.assert_array_equal(again, vectors)
    assert vectors.shape == (2, 36)


def test_packed_weights_of_the_head_are_kept(folder, tmp_path, monkeypatch):
    empty_cache(tmp_path, monkeypatch)
    first = CrossEncoder(folder, precision="int8").predict(PAIRS)
    (kept,) = (tmp_path / "packed").iterdir()
    Encoder(folder, precision="int8")
    assert len(list((tmp_path / "packed").iterdir())) == 2  # an Encoder's has no head
    monkeypatch.setattr(operations, "pack_linear", lambda *_: pytest.fail("packed a second time"))
    before = kept.stat().st_ino
    np.testing.assert_array_equal(CrossEncoder(folder, precision="int8").predict(PAIRS), first)
    assert kept.stat().st_ino == before


def test_padding_at_the_end_is_not_the_last_row(tmp_path):
    name = "qwen3-sequence-classification"
    words = " ".join(["w9", "w10", "<|endoftext|>"])  # the padding, which the tokenizer puts at the end too
    found = {}
    for padding in (0, None):
        folder = write_classifier(tmp_path / str(padding), name, pad_token_id=padding)
        encoder = CrossEncoder.from_checkpoint(read(folder), ops=reference)
        found[padding] = [encoder.predict(("w5 w6", text)) for text in ("w9 w10", words)]
    np.testing.assert_array_equal(*found[0])
    assert not np.array_equal(*found[None])


def test_padding_at_the_end_is_seen_by_rows_that_look_both_ways(tmp_path):
    """As in transformers, which takes another row, not another text."""
    # whose padding is the token that ends each text
    checkpoint = read(write_classifier(tmp_path, "gemma3-sequence-classification", pad_token_id=1))
    found = TextClassifier.from_checkpoint(checkpoint, ops=reference).classify(["w9 w10", "w5", "<eos> <eos>", ""])
    ids_B = [np.array(ids, np.int32) for ids in ([2, 9, 10, 1], [2, 5, 1], [2, 1, 1, 1], [2, 1])]
    model = build_model(checkpoint, reference)
    for one, ids, last in zip(found, ids_B, (2, 1, 0, 0), strict=True):
        rows_TD, _ = model.encode([ids])
        logits_F = model.head(rows_TD[last : last + 1], np.array([0, 1]))[0].astype(np.float64)
        expected_F = np.exp(logits_F) / np.exp(logits_F).sum()
        np.testing.assert_allclose(
            sorted((e["score"] for e in one), reverse=True), sorted(expected_F, reverse=True), rtol=1e-5
        )


def test_files_that_say_no_score_are_refused(tmp_path):
    other = {"transformer_task": "feature-extraction", "modality_config": {}, "module_output_name": None}
    for config, settings, transformer in (
        ({"id2label": {"0": "a", "1": "b"}}, None, {}),
        ({}, {"activation_fn": "torch.nn.modules.activation.Softplus"}, {}),
        ({}, {}, {"module_output_name": "token_embeddings"}),
        ({}, {}, other),
    ):
        write_classifier(tmp_path, **config)
        if settings is not None:
            write_cross_encoder_files(tmp_path, settings, **transformer)
        with refused(CheckpointError):
            slow(tmp_path)
    own = converted(read(write_classifier(tmp_path / "theirs")).without_head(), tmp_path / "own", "float32")
    with refused(CheckpointError):
        slow(own)


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDENS / "reranker.npz") as stored:
        return dict(stored)


@pytest.fixture(scope="module")
def qwen(golden, tmp_path_factory):
    qwen = tmp_path_factory.mktemp("reranker")
    for name, content in golden.items():
        if name.endswith(": file"):
            (qwen / name.removesuffix(": file")).write_bytes(content.tobytes())
    return qwen


def test_scores_are_those_of_the_card(golden, qwen):
    encoder = CrossEncoder(qwen)
    assert (encoder.max_length, encoder.num_labels) == (400, 1)
    scores = encoder.predict(ASKED)
    np.testing.assert_allclose(scores, golden["scores"][0], atol=1e-5)
    np.testing.assert_allclose(encoder.predict(ASKED, prompt=INSTRUCTIONS[1]), golden["scores"][1], atol=1e-5)
    assert [encoder.predict(pair) for pair in ASKED] == scores.tolist()
    ranked = encoder.rank(ASKED[0][0], [document for _, document in ASKED])
    assert [entry["score"] for entry in ranked] == sorted((entry["score"] for entry in ranked), reverse=True)
    prompted = encoder._with_prompt(ASKED, encoder.prompts["query"])
    read_ids = encode_in_prompt(prompted, PROMPT, encoder._tokenizer, 1)
    assert [min(count, 400) for count in encoder.count_pair_tokens(ASKED)] == [len(ids) for ids in read_ids]
    again = CrossEncoder(qwen)  # perhaps as it was kept
    assert again.predict(ASKED).tolist() == scores.tolist()
    own = converted(read(qwen), qwen.parent / "own", "float32")
    assert CrossEncoder(own, yes_or_no=True).predict(ASKED).tolist() == scores.tolist()


def test_another_language_model_is_no_reranker(qwen):
    for make in (lambda: CrossEncoder.from_checkpoint(checkpoint()), lambda: TextClassifier(qwen)):
        with refused(CheckpointError):
            make()


def test_a_language_model_that_says_nothing_of_it_is_a_reranker_where_asked(qwen, tmp_path):
    plain = shutil.copytree(qwen, tmp_path / "x" / "y" / "z" / "w" / "chat")
    with refused(CheckpointError, "rerank"):
        CrossEncoder(plain)
    scores = CrossEncoder(plain, yes_or_no=True).predict(ASKED)
    assert scores.tolist() == CrossEncoder(shutil.copytree(plain, tmp_path / "My-ReRanker")).predict(ASKED).tolist()
    with refused(CheckpointError, "rerank"):  # as it was kept
        CrossEncoder(plain)
    with refused(InputError, "yes_or_no"):
        CrossEncoder(plain, yes_or_no=1)


OF_ROLE = 'messages | selectattr("role", "eq", "{}") | map(attribute="content") | first'.format
TEMPLATE = (
    f"{PREFIX}<Instruct>: {{{{ {OF_ROLE('system')} | default('{INSTRUCTIONS[1]}') }}}}\n"
    f"<Query>: {{{{ {OF_ROLE('query')} }}}}\n<Document>: {{{{ {OF_ROLE('document')} }}}}{SUFFIX}{{{{ '' }}}}"
)


def write_modules(folder, plain, tokens, template=TEMPLATE, **top):
    """The folder as sentence-transformers 6 writes it."""
    kind = "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"
    shutil.copytree(plain, folder)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    files = _modules(root=TRANSFORMER, **{"1": kind}) | {
        "1/config.json": {**tokens, "module_input_name": "causal_logits"},
        "config_sentence_transformers.json": {"model_type": "CrossEncoder", **top},
        "sentence_bert_config.json": {"transformer_task": "text-generation", "module_output_name": "causal_logits"},
    }
    return write_json(folder, files)


YES, NO = 257, 258


def test_sentence_transformers_modules_with_their_template(golden, qwen, tmp_path):
    tokens = {"true_token_id": YES, "false_token_id": NO}
    prompts = {"prompts": {"search": INSTRUCTIONS[0]}, "default_prompt_name": "search"}
    encoder = CrossEncoder(write_modules(tmp_path / "a", qwen, tokens, **prompts), "float32")
    np.testing.assert_allclose(encoder.predict(ASKED), golden["scores"][0], atol=1e-5)
    np.testing.assert_allclose(encoder.predict(ASKED, prompt=INSTRUCTIONS[1]), golden["scores"][1], atol=1e-5)
    swapped = {"true_token_id": NO, "false_token_id": YES}
    own = CrossEncoder(write_modules(tmp_path / "b", qwen, swapped), "float32")  # the template's instruction
    np.testing.assert_allclose(1 - own.predict(ASKED), golden["scores"][1], atol=1e-5)


def test_modules_that_are_refused(qwen, tmp_path):
    tokens = {"true_token_id": 1, "false_token_id": 0}
    refusals = (
        ({"true_token_id": YES}, TEMPLATE),
        (tokens | {"true_token_id": 10**9}, TEMPLATE),
        (tokens, ""),
        (tokens, "{{ messages[0].content }}"),
        (tokens, "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"),
    )
    for number, (given, template) in enumerate(refusals):
        with refused(CheckpointError):
            CrossEncoder(write_modules(tmp_path / str(number), qwen, given, template))


of_texts = partial(by_reference, TextClassifier)

TEXTS = ["w5 w6 w7", "", "w40", "w5 " * 60]


def head_numbers(folder):
    """What the head gives of TEXTS, step by step."""
    checkpoint = read(folder)
    ids_B = HuggingFaceTokenizer(checkpoint.text.tokenizer, 40).encode(TEXTS)
    model = build_model(checkpoint, reference)
    return model.head(*model.encode(ids_B)).astype(np.float64)


def scores(found, labels):
    """The scores by text and label, [B, F]."""
    return np.array([[{entry["label"]: entry["score"] for entry in one}[label] for label in labels] for one in found])


def test_labels_are_in_the_order_of_their_probabilities(tmp_path):
    classifier = of_texts(write_classifier(tmp_path, LABELS))
    assert classifier.labels == ("NONE", "PLACE", "PERSON")
    assert (classifier.max_length, classifier.precision) == (40, "float32")
    found = classifier.classify(TEXTS)
    weights = np.exp(head_numbers(tmp_path))
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
    nameless = of_texts(write_classifier(tmp_path, LABELS, id2label=None, num_labels=3))
    assert nameless.labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def softmax(x):
    return np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)


def test_the_problem_says_what_makes_probabilities(tmp_path):
    for name, problem, make in (
        (LABELS, "multi_label_classification", sigmoid),
        (LABELS, "regression", lambda x: x),
        (LABELS, "single_label_classification", softmax),
        (RERANKER, None, sigmoid),
        (RERANKER, "single_label_classification", sigmoid),
        (RERANKER, "regression", lambda x: x),
    ):
        classifier = of_texts(write_classifier(tmp_path, name, problem_type=problem))
        found = scores(classifier.classify(TEXTS), classifier.labels)
        np.testing.assert_allclose(found, make(head_numbers(tmp_path)), rtol=1e-5, err_msg=f"{name} {problem}")


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
    assert classifier.classify(SPANNED) == [[e for e in one if e["label"] != "O"] for one in found]
    grouped = classifier.classify(SPANNED, aggregation="simple", ignore_labels=())
    assert all(set(entity) == {"label", "score", "word", "start", "end"} for one in grouped for entity in one)
    assert {entity["label"] for one in grouped for entity in one} <= {"O", "PER"}


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


def test_each_token_has_its_label_and_tokens_in_a_row_with_one_label_are_one():
    entities = find_entities(tokens(STORY), STORY_LABELS, "none", join)
    expected = [((word,), label, 10 * number, number) for number, (word, label, _, _) in enumerate(STORY, 1)]
    assert [(e.words, e.label, e.start, e.index) for e in entities] == expected
    np.testing.assert_allclose([e.score for e in entities], [score for _, _, score, _ in STORY], rtol=1e-6)
    people = [("PER", "Angela Mer"), ("O", "##kel met"), ("PER", "Anna"), ("PER", "Eva")]
    assert found("simple") == [*people, ("X", "in P"), ("LOC", "##aris")]
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
    write_masked(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        text = (tmp_path / name).read_text(encoding="utf-8").replace("[MASK]", "[NONE]")
        (tmp_path / name).write_text(text.replace("mask_token", "none_token"), encoding="utf-8")
    with refused(CheckpointError, "mask"):
        masked(tmp_path)
