"""HuggingFaceTokenizer against transformers' ids (goldens/make_text.py), its threads, refusals and growth."""

import base64
import json
import os
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, processors

from fastattn.errors import InputError, TokenizerError
from fastattn.text import huggingface
from fastattn.text.huggingface import HuggingFaceTokenizer
from fastattn.text.splitting import split_sentences, split_to_fit
from tests import GOLDENS
from tests.messages import refused
from tests.weights.run_hostile import Steps

GOLDEN = json.loads((GOLDENS / "text_huggingface.json").read_text(encoding="utf-8"))
FILE = json.dumps(GOLDEN["tokenizer"]).encode()


def test_ids_equal_the_peers():
    for limit in [2, 3, 8, 64]:
        tokenizer = HuggingFaceTokenizer(FILE, limit)
        for case_limit, text, ids in GOLDEN["cases"]:
            if case_limit == limit:
                encoded = tokenizer.encode([text])[0]
                assert encoded.dtype == np.int32
                assert encoded.tolist() == ids, text


def test_the_files_own_truncation_and_padding_are_ignored():
    assert GOLDEN["tokenizer"]["truncation"]["max_length"] == 5
    assert GOLDEN["tokenizer"]["padding"] is not None
    lengths = {len(ids) for ids in HuggingFaceTokenizer(FILE, 64).encode(["a", "the garden " * 20])}
    assert lengths == {3, 42}


def library(limit, side="right", strategy="longest_first"):
    """The tokenizers library's own truncation: the oracle of ours."""
    tokenizer = Tokenizer.from_str(FILE.decode())
    tokenizer.no_padding()
    tokenizer.enable_truncation(limit, strategy=strategy, direction=side)
    return tokenizer


TEXTS = sorted({text for _, text, _ in GOLDEN["cases"]})


def test_a_long_text_is_cut_from_a_side():
    for limit in [2, 3, 9, 64]:
        for side in ["right", "left"]:
            peer, tokenizer = library(limit, side), HuggingFaceTokenizer(FILE, limit, truncation_side=side)
            for text, ids in zip(TEXTS, tokenizer.encode(TEXTS), strict=True):
                assert ids.tolist() == peer.encode(text).ids, text


def test_whole_ids():
    tokenizer, unlimited = HuggingFaceTokenizer(FILE, 7), HuggingFaceTokenizer(FILE, 10**6)
    before, after = (ids.tolist() for ids in tokenizer.special_ids)
    assert (before, after, tokenizer.room) == ([2], [3], 5)
    for ids, all_ids in zip(tokenizer.encode_whole(TEXTS), unlimited.encode(TEXTS), strict=True):
        assert ids.dtype == np.int32
        assert before + ids.tolist() + after == all_ids.tolist()


def pair_file(processor):
    tokenizer = Tokenizer.from_str(FILE.decode())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.post_processor = processor
    return tokenizer.to_str().encode()


SPECIAL = [("[CLS]", 2), ("[SEP]", 3)]
PROCESSORS = {
    "bert": processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", SPECIAL),
    "roberta": processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2)),
    "xlnet": processors.TemplateProcessing("$A [SEP] [CLS]:2", "$A [SEP] $B:1 [SEP]:1 [CLS]:2", SPECIAL),
    "sequence": processors.Sequence([processors.ByteLevel(), processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))]),
    "bytes": processors.ByteLevel(),
}
FILES = {name: pair_file(processor) for name, processor in PROCESSORS.items()}


@settings(deadline=None, max_examples=120)
@given(
    name=st.sampled_from(list(PROCESSORS)),
    lengths=st.tuples(*[st.integers(0, 12)] * 2),
    limit=st.integers(4, 15),
    side=st.sampled_from(["right", "left"]),
)
def test_pairs_are_cut_as_the_library_cuts_them(name, lengths, limit, side):
    first, second = (" ".join("abcdefghijklmnopqr"[start : start + length]) for start, length in zip((0, 5), lengths))
    peer = Tokenizer.from_str(FILES[name].decode())
    peer.enable_truncation(limit, strategy="longest_first", direction=side)
    tokenizer = HuggingFaceTokenizer(FILES[name], limit, truncation_side=side)
    (ids,), (types,) = tokenizer.encode_pairs([(first, second)])
    expected = peer.encode(first, second)
    assert (ids.tolist(), types.tolist()) == (expected.ids, expected.type_ids)
    assert ids.dtype == types.dtype == np.int32
    with mock.patch.object(tokenizer, "encode_whole", wraps=tokenizer.encode_whole) as encode:
        lengths = tokenizer.pair_lengths([(first, second)] * 3)
    peer.no_truncation()
    assert lengths == [len(peer.encode(first, second).ids)] * 3
    assert encode.call_args.args[0] == list(dict.fromkeys((first, second))), "each text once"
    peer.enable_truncation(limit, strategy="longest_first", direction=side)
    single = peer.encode(first)
    assert tokenizer.encode([first])[0].tolist() == single.ids
    assert tokenizer.token_types(len(single.ids)).tolist() == single.type_ids


def test_what_leaves_no_room_or_no_text_is_refused():
    for limit in (1, 0, -5):
        with refused(TokenizerError):
            HuggingFaceTokenizer(FILE, limit)
    with refused(InputError, "truncation_side"):
        HuggingFaceTokenizer(FILE, 8, truncation_side="top")
    twice = processors.TemplateProcessing("$A [SEP] $A", None, SPECIAL)
    with refused(TokenizerError):
        HuggingFaceTokenizer(pair_file(twice), 8)
    turned = pair_file(processors.TemplateProcessing("$A", "$B [SEP] $A", SPECIAL))
    for tokenizer in (HuggingFaceTokenizer(turned, 8), HuggingFaceTokenizer(FILES["bert"], 2)):
        with refused(TokenizerError):
            tokenizer.encode_pairs([("a", "b")])


@pytest.mark.parametrize("threads", [1, 2])
def test_offsets_are_of_the_text_as_given(threads, two_threads):
    text = "\U0001f468\u200d\U0001f469 THE  gardenx \u0130a"
    tokenizer = HuggingFaceTokenizer(FILE, 64, lowercase=True)
    spans, other = tokenizer.encode_with_offsets([text, "a"], threads)
    assert spans.ids_T.tolist() == tokenizer.encode([text])[0].tolist()
    assert all(array.dtype == np.int32 for array in spans)
    pieces = [text[start:end] for start, end in spans.offsets_T2.tolist()]
    assert pieces == ["", "\U0001f468\u200d\U0001f469", "THE", "gardenx", "\u0130a", ""]
    assert other.offsets_T2.tolist() == [[0, 0], [0, 1], [0, 0]]


def test_offsets_are_cut_with_their_ids():
    for side in ["right", "left"]:
        tokenizer = HuggingFaceTokenizer(FILE, 5, truncation_side=side)
        (spans,) = tokenizer.encode_with_offsets(["a b c d e"])
        assert spans.ids_T.tolist() == tokenizer.encode(["a b c d e"])[0].tolist()
        first = 0 if side == "right" else 2
        assert spans.offsets_T2.tolist() == [[0, 0], *([2 * i, 2 * i + 1] for i in range(first, first + 3)), [0, 0]]
    (spans,) = HuggingFaceTokenizer(FILES["bytes"], 5).encode_with_offsets([""])  # without special tokens
    assert [array.shape for array in spans] == [(0,), (0, 2)]


def test_lowercase_and_tokens():
    upper, lower = HuggingFaceTokenizer(FILE, int(1e30)), HuggingFaceTokenizer(FILE, 9, lowercase=True)
    assert upper.encode(["THE"])[0].tolist() == [2, 1, 3] and len(upper.encode(["a " * 5000])[0]) == 5002
    assert lower.encode(["THE"])[0].tolist() == upper.encode(["the"])[0].tolist()
    assert (upper.token(2), upper.token(10**6)) == ("[CLS]", None)
    assert upper.vocabulary_size == len(GOLDEN["tokenizer"]["model"]["vocab"])


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.setenv("RAYON_NUM_THREADS", "2")
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)


def test_threads_change_nothing(monkeypatch, two_threads):
    monkeypatch.setattr(huggingface, "BATCH", 4)
    texts = [text for _, text, _ in GOLDEN["cases"]][:11]
    tokenizer = HuggingFaceTokenizer(FILE, 16)
    for encode in (tokenizer.encode, tokenizer.encode_whole):
        alone, pooled = encode(texts), encode(texts, threads=2)
        assert [ids.tolist() for ids in alone] == [ids.tolist() for ids in pooled]
    tokenizer = HuggingFaceTokenizer(FILES["bert"], 9)
    pairs = [("the garden", text) for text in TEXTS]
    alone, pooled = tokenizer.encode_pairs(pairs), tokenizer.encode_pairs(pairs, threads=2)
    for one, other in zip(alone, pooled, strict=True):
        assert [row.tolist() for row in one] == [row.tolist() for row in other]
    assert tokenizer.encode_pairs([]) == ([], [])


def test_the_pool_needs_leave(monkeypatch):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    monkeypatch.setenv("RAYON_NUM_THREADS", "4")
    assert [count for count in range(1, 6) if huggingface._may_use_pool(count)] == [4, 5]
    for leave in ("False", "true"):
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", leave)
        assert huggingface._may_use_pool(4) == (leave == "true")
    monkeypatch.setattr(huggingface, "_IMPORTING_PROCESS", os.getpid() + 1)  # as a forked child sees it
    assert not huggingface._may_use_pool(4)


def test_a_bad_file_is_refused_in_one_line():
    for data in [b"", b"{}", b"[1", b"\xff", b"\x00", FILE[:-30], FILE.replace(b'"WordPiece"', b'"Surprise"')]:
        with pytest.raises(TokenizerError, match=r"^tokenizer\.json: .+$") as caught:
            HuggingFaceTokenizer(data, 8)
        assert "\n" not in str(caught.value)


def test_a_table_that_says_it_is_large_is_refused(monkeypatch):
    table = base64.b64encode((1 << 32 - 1).to_bytes(4, "little") + b"\0" * 20).decode()
    normalizer = {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": table}]}
    data = json.dumps(GOLDEN["tokenizer"] | {"normalizer": normalizer}, ensure_ascii=False)
    for written in (data, data.replace("charsmap", "\\u0063harsmap")):
        with refused(TokenizerError):
            HuggingFaceTokenizer(written.encode(), 8)
    monkeypatch.setattr("fastattn.text.huggingface._check_charsmap_length", lambda pairs: pytest.fail("parsed"))
    HuggingFaceTokenizer(FILE.replace(b'"[UNK]"', b'"\\u005bUNK]"'), 8)  # which has none


def test_what_a_file_lacks_for_a_text_is_a_tokenizer_error():
    words = Tokenizer(models.WordLevel({"known": 0}, unk_token="[UNK]"))  # the unknown token has no id
    tokenizer = HuggingFaceTokenizer(words.to_str().encode(), 8)
    assert tokenizer.encode(["known"])[0].tolist() == [0]
    for texts in (["other"], ["known", "other"]):
        with pytest.raises(TokenizerError, match="UNK"):
            tokenizer.encode(texts, threads=64)


def test_lone_surrogates_and_what_is_no_text_are_refused():
    with refused(InputError, "U+DFFF"):
        HuggingFaceTokenizer(FILE, 8).encode(["fine", "bad \udfff"])
    for pair in (("fine", ["no text"]), ("fine", None)):
        with refused(InputError):
            HuggingFaceTokenizer(FILES["bert"], 8).encode_pairs([pair])


def test_ids_that_no_int32_holds_are_refused():
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "the": 1}, unk_token="[UNK]"))
    file = json.loads(tokenizer.to_str())
    file["model"]["vocab"]["the"] = 1 << 31  # the library itself would write all ids up to it, one by one
    encoder = HuggingFaceTokenizer(json.dumps(file).encode(), 10)
    for encode in (encoder.encode, encoder.encode_whole, lambda texts: encoder.encode_pairs([("a", *texts)])):
        with pytest.raises(TokenizerError, match="ids should be at most 2147483647, 2147483648 is one"):
            encode(["the"])
    tokenizer.post_processor = processors.TemplateProcessing("$A", "$A [SEP] $B", [("[SEP]", 1 << 31)])
    with pytest.raises(TokenizerError, match="the post-processor should give numbers of at most 2147483647"):
        HuggingFaceTokenizer(tokenizer.to_str().encode(), 10).encode_pairs([("a", "b")])


UNITS = (
    "some words here ", "a", ". ", "1. A ", "This is one. ", "so, it; ", '"。"', "\n", " x  ", "J. R. ", "a\u0301",
    "中", "\U0001f600\u200d", "。", "12. ", 'e.g. a, "b" (c). D',
    "\u3002\uff0c", " ", ",", "Mr. A ", '"', "a.b", "!?)", ". a",
)  # fmt: skip
WHOLE = 60_000  # 150 times as long as what fits


def counted(work, text):
    with Steps(float("inf")) as steps:
        work(text)
    return steps.count


def grown(work, unit, size):
    """How many times the steps for a text of ``size`` characters those for four times as many are."""
    return counted(work, (unit * 4 * size)[: 4 * size]) / (500 + counted(work, (unit * size)[:size]))


def test_splitting_takes_no_square_of_a_texts_length():
    for unit in UNITS:
        assert grown(split_sentences, unit, 2_000) < 4.5, unit
        text, measured = (unit * WHOLE)[:WHOLE], []

        def length_of(part, measured=measured):
            measured.append(len(part))
            return 2 + sum(-(-len(word) // 4) for word in part.split())

        assert "".join(split_to_fit(text, length_of, 100)) == text
        assert sum(measured) <= 30 * WHOLE, unit
