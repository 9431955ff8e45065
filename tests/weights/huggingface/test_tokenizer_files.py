"""Tokenizers of folders without a tokenizer.json against transformers' (goldens/make_tokenizers.py), and faults."""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer, models, processors

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import AttentionSpec, FeedForwardSpec, NormSpec, PositionSpec, StackSpec
from fastattn.text.huggingface import HuggingFaceTokenizer
from fastattn.weights.containers.json_file import read_object
from fastattn.weights.folder import Directory
from fastattn.weights.huggingface.sentencepiece_files import read_spm
from fastattn.weights.huggingface.tokenizer import read_text
from tests import GOLDENS
from tests.text.spm_bytes import BPE, CONTROL, NORMAL, UNKNOWN, spm_bytes

with np.load(GOLDENS / "tokenizers.npz") as file:
    GOLDEN = dict(file)
DESCRIBED = json.loads(GOLDEN["described"].tobytes())
CASES, TEXTS = DESCRIBED["cases"], DESCRIBED["texts"]
UNIGRAM = "text_unigram.model"
ROWS = 1000


def files_of(name):
    """The files of a case, by name."""
    config, settings, further, kind = CASES[name]
    described = {"config.json": config, "tokenizer_config.json": settings} | further
    files = {file: json.dumps(content).encode() for file, content in described.items()}
    if kind == UNIGRAM:
        return files | {"sentencepiece.bpe.model": (GOLDENS / UNIGRAM).read_bytes()}
    start = f"{kind}/"
    names = [key for key in GOLDEN if key.startswith(start) and "." in key]
    return files | {key.removeprefix(start): GOLDEN[key].tobytes() for key in names}


def written(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


def text_of(folder, rows=ROWS, prefix="", limit=512, max_length=None):
    spec = StackSpec(
        layers=1,
        width=8,
        vocabulary=rows,
        attention=AttentionSpec(1, key_heads=1, head_width=8),
        feed_forward=FeedForwardSpec(8, "gelu"),
        norms=NormSpec("layer", 1e-12, before=False, final=False, embedding=True),
        positions=PositionSpec("table", limit=limit),
    )
    directory = Directory(folder)
    return read_text(directory, prefix, read_object(directory, prefix + "config.json"), spec, max_length)


def tokenizer_of(folder, length=10**6, **options):
    text = text_of(folder, **options)
    return HuggingFaceTokenizer(text.tokenizer, length, text.lowercase, text.truncation_side)


@pytest.mark.parametrize("name", CASES)
def test_ids_types_and_places_equal_transformers(name, tmp_path):
    tokenizer = tokenizer_of(written(tmp_path, files_of(name)))
    single, pairs = np.cumsum(GOLDEN[f"{name}/lengths"], axis=0)[:-1].T
    golden = {key: GOLDEN[f"{name}/{key}"] for key in ("ids", "offsets", "pair_ids", "pair_types")}
    spans = tokenizer.encode_with_offsets(TEXTS)
    pair_ids, pair_types = tokenizer.encode_pairs([(text, DESCRIBED["second"]) for text in TEXTS])
    for b, text in enumerate(TEXTS):
        assert spans[b].ids_T.tolist() == np.split(golden["ids"], single)[b].tolist(), text
        assert spans[b].offsets_T2.tolist() == np.split(golden["offsets"], single)[b].tolist(), text
        if "llama" in CASES[name]:  # whose model takes no pairs
            continue
        assert pair_ids[b].tolist() == np.split(golden["pair_ids"], pairs)[b].tolist(), text
        assert pair_types[b].tolist() == np.split(golden["pair_types"], pairs)[b].tolist(), text


def test_files_may_lie_above_the_module(tmp_path):
    files = files_of("xlm-roberta")
    spm = files.pop("sentencepiece.bpe.model")
    written(tmp_path, {f"0_Transformer/{name}": content for name, content in files.items()})
    written(tmp_path, {"sentencepiece.bpe.model": spm})
    assert tokenizer_of(tmp_path, prefix="0_Transformer/").encode(["the garden"])[0][0] == 0


@pytest.mark.parametrize("stated", ["XLMRobertaTokenizer", "XLMRobertaTokenizerFast"])
@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_a_class_that_is_stated_is_followed(file, stated, tmp_path):
    files = files_of("xlm-roberta") | {"config.json": {"model_type": "bert"}}
    written(tmp_path, files)
    with pytest.raises(CheckpointError, match=r"no such file, nor vocab\.txt of a BertTokenizer"):
        text_of(tmp_path)
    written(tmp_path, {file: {"model_type": "bert", "tokenizer_class": stated}})
    assert tokenizer_of(tmp_path).token(0) == "<s>"


def test_tokenizer_json_wins(tmp_path):
    made = text_of(written(tmp_path, files_of("bert"))).tokenizer
    written(tmp_path, files_of("roberta") | {"tokenizer.json": made, "config.json": {"model_type": "bert"}})
    assert text_of(tmp_path).tokenizer == made


def test_settings(tmp_path):
    written(tmp_path, files_of("bert") | {"tokenizer_config.json": {"truncation_side": "left", "padding_side": "left"}})
    text = text_of(tmp_path)
    assert (text.truncation_side, text.max_length, text.pooling) == ("left", 512, ("mean",))
    tokenizer = HuggingFaceTokenizer(text.tokenizer, 5, truncation_side=text.truncation_side)
    ids = tokenizer.encode_whole(["the quiet garden river bridge window"])[0]
    assert tokenizer.encode(["the quiet garden river bridge window"])[0].tolist() == [2, *ids[-3:].tolist(), 3]


@pytest.mark.parametrize(
    "config, settings, given, expected",
    [
        ({}, {}, None, 64),
        ({}, {"model_max_length": 1e30}, None, 64),
        ({}, {"model_max_length": 20}, None, 20),
        ({}, {"max_len": 21}, None, 21),
        ({"max_position_embeddings": 40}, {"model_max_length": 50}, None, 40),
        ({"max_position_embeddings": 40}, {"model_max_length": 50}, 60, 60),
        ({"max_position_embeddings": -1}, {}, 70, 64),
    ],
)
def test_the_most_ids(config, settings, given, expected, tmp_path):
    files = files_of("bert") | {"config.json": {"model_type": "bert"} | config, "tokenizer_config.json": settings}
    assert text_of(written(tmp_path, files), limit=64, max_length=given).max_length == expected


def test_no_limit_of_positions(tmp_path):
    assert text_of(written(tmp_path, files_of("bert")), limit=0).max_length == 2**31 - 1


def made_file(folder, name="bert", **changes):
    """The tokenizer.json made of a case's files, as plain data."""
    return json.loads(text_of(written(folder / "made", files_of(name))).tokenizer) | changes


def test_the_side_of_the_files_own_truncation(tmp_path):
    truncation = {"direction": "Left", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    written(
        tmp_path, {"config.json": {"model_type": "bert"}, "tokenizer.json": made_file(tmp_path, truncation=truncation)}
    )
    assert text_of(tmp_path).truncation_side == "left"
    written(tmp_path, {"tokenizer_config.json": {"truncation_side": "right"}})
    assert text_of(tmp_path).truncation_side == "right"


def test_settings_of_lower_case_and_accents_override_a_bert_normalizer(tmp_path):
    written(tmp_path, {"config.json": {"model_type": "bert"}, "tokenizer.json": made_file(tmp_path)})
    lower = tokenizer_of(tmp_path).encode(["THE Gardén"])[0].tolist()
    written(tmp_path, {"tokenizer_config.json": {"do_lower_case": False, "strip_accents": True}})
    cased = tokenizer_of(tmp_path)
    assert cased.encode(["THE Gardén"])[0].tolist() != lower
    assert cased.encode(["the gardén"])[0].tolist() == lower
    written(tmp_path, {"tokenizer_config.json": {"do_lower_case": False, "tokenizer_class": "PreTrainedTokenizerFast"}})
    assert tokenizer_of(tmp_path).encode(["THE Gardén"])[0].tolist() == lower


def test_special_tokens_without_a_row_are_dropped(tmp_path):
    tokenizer = made_file(tmp_path)
    rows = len(tokenizer["model"]["vocab"])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer["added_tokens"].append({"id": rows, "content": "<image>"} | flags)
    written(tmp_path, {"config.json": {"model_type": "bert"}, "tokenizer.json": tokenizer})
    assert tokenizer_of(tmp_path, rows=rows + 1).encode_whole(["<image>"])[0].tolist() == [rows]
    ids = tokenizer_of(tmp_path, rows=rows).encode_whole(["a <image>"])[0]
    assert len(ids) > 1 and max(ids) < rows
    flags["special"] = False
    tokenizer["added_tokens"][-1] |= flags
    written(tmp_path, {"tokenizer.json": tokenizer})
    with pytest.raises(CheckpointError, match=rf"'<image>' has the id {rows}, but the embedding has {rows} rows"):
        text_of(tmp_path, rows=rows)


HARMLESS = {
    "further tokens": lambda made: {"vocab.txt": b"x\n", "tokenizer_config.json": {"tokenizer_class": "Own"}},
    "a padded vocabulary": lambda made: {},
    "another unknown token": lambda made: {"tokenizer_config.json": {"unk_token": "<unk>", "pad_token": "<p>"}},
    "stated as it is": lambda made: {
        "tokenizer_config.json": {"cls_token": "[CLS]", "added_tokens_decoder": {"2": {"content": "[CLS]"}}}
    },
    "a longer vocab.txt": lambda made: {"vocab.txt": "\n".join([*made["model"]["vocab"], "more"]).encode()},
    "no special tokens": lambda made: {"tokenizer.json": made | {"post_processor": None}},
}


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_differences(name, tmp_path):
    made = made_file(tmp_path)
    files = {"config.json": {"model_type": "bert"}, "tokenizer.json": made}
    text_of(written(tmp_path, files | HARMLESS[name](made)))


DISAGREEING = {
    "a vocabulary of another order": (
        lambda made: {"vocab.txt": b"[CLS]\n[SEP]\n"},
        r"tokenizer\.json: puts '\[CLS\]' around a text as id 2, in .*vocab\.txt it is 0$",
    ),
    "its own vocabulary": (
        lambda made: {"tokenizer.json": made | {"added_tokens": [{"id": 7, "content": "[SEP]"}]}},
        r"puts '\[SEP\]' around a text as id 3, in .*tokenizer\.json it is 7$",
    ),
    "stated ids": (
        lambda made: {"tokenizer_config.json": {"added_tokens_decoder": {"101": {"content": "[CLS]"}}}},
        r"puts '\[CLS\]' around a text as id 2, in .*tokenizer_config\.json it is 101$",
    ),
    "another separator": (
        lambda made: {"tokenizer_config.json": {"sep_token": "[MASK]"}},
        r"puts '\[CLS\]', '\[SEP\]' around a text, but in .*tokenizer_config\.json the sep_token is '\[MASK\]'$",
    ),
    "a list": (lambda made: {"tokenizer.json": b"[]"}, r"tokenizer\.json: should hold a JSON object, holds \[\]$"),
    "no JSON": (lambda made: {"tokenizer.json": b"{"}, r"tokenizer\.json: not JSON: .+$"),
    "a side": (
        lambda made: {"tokenizer_config.json": {"truncation_side": "top"}},
        r"truncation_side should be one of right, left, is 'top'$",
    ),
    "a special token without a row": (
        lambda made: {"tokenizer.json": json.dumps(made).replace('"ids": [3]', '"ids": [5000]').encode()},
        r"tokenizer\.json: '\[SEP\]' has the id 5000, but the embedding has 1000 rows$",
    ),
}


@pytest.mark.parametrize("name", DISAGREEING)
def test_files_that_disagree(name, tmp_path):
    made = made_file(tmp_path)
    changes, message = DISAGREEING[name]
    written(tmp_path, {"config.json": {"model_type": "bert"}, "tokenizer.json": made} | changes(made))
    with pytest.raises(CheckpointError, match=message) as caught:
        text_of(tmp_path)
    assert "\n" not in str(caught.value)


FIRST = [(b"<unk>", 0, UNKNOWN), (b"<s>", 0, CONTROL), (b"</s>", 0, CONTROL)]
FAULTS = {
    "no unknown token": ("bert", {"vocab.txt": b"[PAD]\n[CLS]\n[SEP]\n"}, r"vocab\.txt: lacks the unk_token '\[UNK\]'"),
    "no separator": ("mpnet", {"vocab.txt": b"[UNK]\n<s>\n"}, r"vocab\.txt: lacks the sep_token '</s>'"),
    "lines": ("bert", {"vocab.txt": b"a\n" * 1001}, r"vocab\.txt: 1001 tokens, but the embedding has 1000 rows"),
    "nothing": ("bert", {"vocab.txt": b""}, r"vocab\.txt: lacks the unk_token '\[UNK\]'"),
    "UTF-8": ("bert", {"vocab.txt": b"a\n\xff\n"}, r"vocab\.txt: not UTF-8 at byte 2"),
    "an id twice": ("roberta", {"vocab.json": {"a": 1, "b": 1}}, r"vocab\.json: 'a' and 'b' have the same id 1"),
    "an id without a row": ("roberta", {"vocab.json": {"a": 1000}}, r"'a' should have an id below 1000, has 1000"),
    "no id": ("roberta", {"vocab.json": {"a": True}}, r"'a' should have an id below 1000, has True"),
    "merges": (
        "roberta",
        {"merges.txt": b"#version: 0.2\nab\n"},
        r"merges\.txt: line 2 should be two tokens of .*'ab'",
    ),
    "merges of none": ("roberta", {"merges.txt": "q \u4e00\n".encode()}, r"merges\.txt: line 1 should be two tokens"),
    "a token's id": (
        "electra",
        {"added_tokens.json": {"<new>": 999}},
        r"'<new>' has the id 999, by the vocabulary it is",
    ),
    "a token": (
        "bert",
        {"tokenizer_config.json": {"cls_token": 7}},
        r"a token should be a string, or an object .* is 7",
    ),
    "an id in words": ("electra", {"added_tokens.json": {"a": "x"}}, r"the id of an added token should be a number"),
    "no protocol buffer": ("albert", {"spiece.model": b"abc"}, r"spiece\.model: sentencepiece model: "),
    "BPE": (
        "xlm-roberta",
        {"sentencepiece.bpe.model": spm_bytes(FIRST, BPE)},
        r"model: a sentencepiece model of unigrams is",
    ),
    "a piece twice": (
        "t5",
        {"spiece.model": spm_bytes([*FIRST, *FIRST[:1]])},
        r"model: the piece '<unk>' is there twice",
    ),
    "no unknown piece": ("deberta", {"spm.model": spm_bytes(FIRST[1:])}, r"spm\.model: no unknown piece"),
    "a score": ("t5", {"spiece.model": spm_bytes([(b"a", float("nan"), NORMAL)])}, r"the piece 'a' has the score nan"),
    "a piece of bytes": (
        "t5",
        {"spiece.model": spm_bytes([(b"\xff", 0, NORMAL)])},
        r"spiece\.model: a piece is not UTF-8",
    ),
    "normal pieces first": (
        "xlm-roberta",
        {"sentencepiece.bpe.model": spm_bytes([*FIRST[:2], (b"a", 0, NORMAL)])},
        r"the first three pieces should be unknown and control pieces",
    ),
    "extra ids": (
        "t5",
        {"tokenizer_config.json": {"extra_ids": 10**9}},
        r"extra_ids should be at most \d+, the embedding's",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name, tmp_path):
    case, changes, message = FAULTS[name]
    written(tmp_path, files_of(case) | changes)
    with pytest.raises(CheckpointError, match=message) as caught:
        text_of(tmp_path)
    assert "\n" not in str(caught.value)


PIECES = [*FIRST, *((word.encode(), -float(i), NORMAL) for i, word in enumerate(("▁a", "b", "c")))]


@pytest.mark.parametrize(
    "kind, file, settings, token, expected",
    [
        ("T5Tokenizer", "spiece.model", {}, "<extra_id_0>", 6 + 99),
        ("T5Tokenizer", "spiece.model", {"extra_ids": 3}, "<extra_id_0>", 6 + 2),
        ("PegasusTokenizer", "spiece.model", {}, "▁a", 103 + 3),  # the first two pieces are the padding and the end
        ("PegasusTokenizer", "spiece.model", {"offset": 7}, "▁a", 7 + 3),
        ("PegasusTokenizer", "spiece.model", {"offset": 7}, "<unk_6>", 8),
        ("MBartTokenizer", "sentencepiece.bpe.model", {}, "<mask>", 4 + 3 + 25),
        ("MBart50Tokenizer", "sentencepiece.bpe.model", {}, "<mask>", 4 + 3 + 52),
        ("MBart50Tokenizer", "sentencepiece.bpe.model", {}, "sl_SI", 4 + 3 + 51),
        ("XLMRobertaTokenizer", "sentencepiece.bpe.model", {}, "<mask>", 4 + 3),
    ],
)
def test_ids_that_follow_from_settings(kind, file, settings, token, expected, tmp_path):
    settings = settings | {"tokenizer_class": kind}
    files = {"config.json": {"model_type": "bert"}, "tokenizer_config.json": settings, file: spm_bytes(PIECES)}
    made = Tokenizer.from_str(text_of(written(tmp_path, files)).tokenizer.decode())
    assert made.token_to_id(token) == expected


def test_pieces_in_any_form_of_their_message(tmp_path):
    """Long ones, without a type, and with their fields in another order."""
    normal = (b"garden" * 30, -1.0, NORMAL)
    pieces = [spm_bytes([piece])[:-4] for piece in [*FIRST, normal]]
    pieces.append(b"\x0a\x0a\x0a\x03the\x15\0\0\0\xc0")
    pieces.append(b"\x0a\x0d\x15\0\0\0\xc0\x18\x01\x0a\x04more")
    written(tmp_path, {"model.spm": b"".join(pieces)})
    spm = read_spm(Directory(tmp_path), "model.spm", 10)
    assert spm.pieces[3:] == [("garden" * 30, -1.0), ("the", -2.0), ("more", -2.0)]
    assert spm.types == [UNKNOWN, CONTROL, CONTROL, NORMAL, NORMAL, NORMAL]


def test_special_tokens_that_were_added_to_the_vocabulary(tmp_path):
    files = {"config.json": {"model_type": "bert"}, "vocab.txt": b"[UNK]\nthe\n[SEP]\n"}
    written(tmp_path, files)
    with pytest.raises(CheckpointError, match=r"vocab\.txt: lacks the cls_token '\[CLS\]'"):
        text_of(tmp_path)
    written(tmp_path, {"added_tokens.json": {"[CLS]": 3}})
    assert tokenizer_of(tmp_path).encode(["the"])[0].tolist() == [3, 1, 2]


def test_more_pieces_than_rows(tmp_path):
    with pytest.raises(CheckpointError, match=r"more pieces than the embedding's 100 rows"):
        text_of(written(tmp_path, files_of("albert")), rows=100)


def test_an_embedding_that_claims_more_rows_than_any_has_makes_no_tokens(tmp_path):
    written(tmp_path, files_of("t5") | {"tokenizer_config.json": {"extra_ids": 10**11}})
    with pytest.raises(CheckpointError, match="extra_ids should be at most 65536"):
        text_of(tmp_path, rows=10**12)


@pytest.mark.parametrize("processor", [None, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}])
def test_tokens_at_the_ends_that_only_the_settings_want(tmp_path, processor):
    """A file without a template is left as it is, but for a tokenizer of the model's own code, as gte-Qwen2's."""
    made = Tokenizer(models.WordLevel({"<unk>": 0, "the": 1, "<e>": 2, "<b>": 3}, unk_token="<unk>"))
    made.add_special_tokens(["<e>", "<b>"])
    content = json.loads(made.to_str()) | {"post_processor": processor}
    settings = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<e>", "bos_token": "<b>"}
    own = {"auto_map": {"AutoTokenizer": ["tokenization_qwen.Qwen2Tokenizer", None]}}
    for further, ids in (
        ({"add_eos_token": True, "add_bos_token": True}, [1]),
        ({"add_eos_token": True, "auto_map": {"AutoModel": "x.Y"}}, [1]),
        (own, [1]),
        (own | {"add_eos_token": True, "add_bos_token": False}, [1, 2]),
        (own | {"add_eos_token": True, "add_bos_token": True}, [3, 1, 2]),
        (own | {"add_eos_token": True, "eos_token": None}, [1]),
        (own | {"add_eos_token": True, "eos_token": "<of another>"}, [1]),
    ):
        files = {"config.json": {"model_type": "qwen2"}, "tokenizer.json": content}
        written(tmp_path, files | {"tokenizer_config.json": settings | further})
        assert tokenizer_of(tmp_path).encode(["the"])[0].tolist() == ids
    content["post_processor"] = json.loads(
        str(processors.TemplateProcessing(single="$A <e>", special_tokens=[("<e>", 2)]).__getstate__(), "utf-8")
    )
    written(tmp_path, {"tokenizer.json": content, "tokenizer_config.json": settings | own | {"add_bos_token": True}})
    assert tokenizer_of(tmp_path).encode(["the"])[0].tolist() == [1, 2]


def test_a_token_appended_beyond_the_embedding_is_dropped(tmp_path):
    """DeBERTa's mask, in the embedding of a model that was never meant to predict words."""
    written(tmp_path, files_of("deberta"))
    rows = tokenizer_of(tmp_path).vocabulary_size
    assert tokenizer_of(tmp_path).encode_whole(["[MASK]"])[0].tolist() == [rows - 1]
    assert tokenizer_of(tmp_path, rows=rows - 1).encode_whole(["[MASK]"])[0].max() < rows - 1


def test_a_folder_without_any_tokenizer(tmp_path):
    written(tmp_path, {"config.json": {"model_type": "modernbert"}})
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: no such file; save the model with a fast tokenizer$"):
        text_of(tmp_path)
