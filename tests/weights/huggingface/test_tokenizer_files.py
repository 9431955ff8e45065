"""Tokenizers of folders without a tokenizer.json against transformers' (goldens/make_text.py), and faults."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Tokenizer, models, processors

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import PositionSpec
from fastattn.text.huggingface import HuggingFaceTokenizer
from fastattn.weights.containers.json_file import read_object
from fastattn.weights.folder import Directory
from fastattn.weights.huggingface.tokenizer import read_text
from fastattn.weights.huggingface.tokenizer_files import read_spm
from tests import GOLDENS
from tests.messages import refused
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
    spec = SimpleNamespace(vocabulary=rows, positions=PositionSpec("table", limit=limit))
    directory = Directory(folder)
    return read_text(directory, prefix, read_object(directory, prefix + "config.json"), spec, max_length)


BERT = {"config.json": {"model_type": "bert"}}


def tokenizer_of(folder, length=10**6, **options):
    text = text_of(folder, **options)
    return HuggingFaceTokenizer(text.tokenizer, length, text.lowercase, text.truncation_side)


def ids_of(folder, text, **options):
    return tokenizer_of(folder, **options).encode([text])[0].tolist()


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
    assert ids_of(tmp_path, "the garden", prefix="0_Transformer/")[0] == 0


@pytest.mark.parametrize("stated", ["XLMRobertaTokenizer", "XLMRobertaTokenizerFast"])
@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_a_class_that_is_stated_is_followed(file, stated, tmp_path):
    written(tmp_path, files_of("xlm-roberta") | BERT)
    with refused(CheckpointError, "nor vocab.txt of a BertTokenizer"):
        text_of(tmp_path)
    written(tmp_path, {file: {"model_type": "bert", "tokenizer_class": stated}})
    assert tokenizer_of(tmp_path).token(0) == "<s>"


def test_tokenizer_json_wins(tmp_path):
    made = text_of(written(tmp_path, files_of("bert"))).tokenizer
    written(tmp_path, files_of("roberta") | {"tokenizer.json": made, "config.json": {"model_type": "bert"}})
    assert text_of(tmp_path).tokenizer == made


@pytest.mark.parametrize(
    "config, settings, given, expected",
    [
        ({}, {}, None, 64), ({}, {"model_max_length": 1e30}, None, 64), ({}, {"model_max_length": 20}, None, 20),
        ({}, {"model_max_length": 10**30}, None, 64), ({}, {"max_len": 21}, None, 21),
        ({"max_position_embeddings": 40}, {"model_max_length": 50}, None, 40),
        ({"max_position_embeddings": 40}, {"model_max_length": 50}, 60, 60),
        ({"max_position_embeddings": -1}, {}, 70, 64),
    ],
)  # fmt: skip
def test_the_most_ids(config, settings, given, expected, tmp_path):
    files = files_of("bert") | {"config.json": {"model_type": "bert"} | config, "tokenizer_config.json": settings}
    assert text_of(written(tmp_path, files), limit=64, max_length=given).max_length == expected
    if not settings and given is None:
        assert text_of(tmp_path, limit=0).max_length == 2**31 - 1  # no limit of positions


def made_file(folder, name="bert", **changes):
    """The tokenizer.json made of a case's files, as plain data."""
    return json.loads(text_of(written(folder / "made", files_of(name))).tokenizer) | changes


def test_the_side_that_is_cut(tmp_path):
    truncation = {"direction": "Left", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    written(tmp_path, BERT | {"tokenizer.json": made_file(tmp_path, truncation=truncation)})
    for side in ("left", "right"):
        assert text_of(tmp_path).truncation_side == side
        written(tmp_path, {"tokenizer_config.json": {"truncation_side": "right", "padding_side": "left"}})
    written(tmp_path, files_of("bert") | {"tokenizer_config.json": {"truncation_side": "left"}})
    assert text_of(tmp_path).truncation_side == "left"


def test_settings_of_lower_case_and_accents_override_a_bert_normalizer(tmp_path):
    written(tmp_path, BERT | {"tokenizer.json": made_file(tmp_path)})
    lower = ids_of(tmp_path, "THE Gardén")
    written(tmp_path, {"tokenizer_config.json": {"do_lower_case": False, "strip_accents": True}})
    assert ids_of(tmp_path, "THE Gardén") != lower == ids_of(tmp_path, "the gardén")
    written(tmp_path, {"tokenizer_config.json": {"do_lower_case": False, "tokenizer_class": "PreTrainedTokenizerFast"}})
    assert ids_of(tmp_path, "THE Gardén") == lower


def test_special_tokens_without_a_row_are_dropped(tmp_path):
    tokenizer = made_file(tmp_path)
    rows = len(tokenizer["model"]["vocab"])
    added = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"id": rows, "content": "<image>"}
    for special in (True, False):
        tokens = [*tokenizer["added_tokens"], added | {"special": special}]
        written(tmp_path, BERT | {"tokenizer.json": tokenizer | {"added_tokens": tokens}})
        assert rows in ids_of(tmp_path, "<image>", rows=rows + 1)
        with nullcontext() if special else refused(CheckpointError, "<image>", str(rows)):
            assert max(ids_of(tmp_path, "a <image>", rows=rows)) < rows


def stated(**settings):
    return lambda made: {"tokenizer_config.json": settings}


HARMLESS = [
    lambda made: {"vocab.txt": b"x\n", "tokenizer_config.json": {"tokenizer_class": "Own"}},  # further tokens
    lambda made: {}, stated(unk_token="<unk>", pad_token="<p>"),
    stated(cls_token="[CLS]", added_tokens_decoder={"2": {"content": "[CLS]"}}),  # as it is
    lambda made: {"vocab.txt": "\n".join([*made["model"]["vocab"], "more"]).encode()},
    lambda made: {"tokenizer.json": made | {"post_processor": None}},
]  # fmt: skip
DISAGREEING = [
    lambda made: {"vocab.txt": b"[CLS]\n[SEP]\n"},  # of another order
    lambda made: {"tokenizer.json": made | {"added_tokens": [{"id": 7, "content": "[SEP]"}]}},
    stated(added_tokens_decoder={"101": {"content": "[CLS]"}}), stated(sep_token="[MASK]"),
    lambda made: {"tokenizer.json": b"[]"}, stated(truncation_side="top"),
    lambda made: {"tokenizer.json": json.dumps(made).replace('"ids": [3]', '"ids": [5000]').encode()},
]  # fmt: skip


def test_files_that_disagree_or_not(tmp_path):
    made = made_file(tmp_path)
    for number, change in enumerate(HARMLESS + DISAGREEING):
        written(tmp_path / str(number), BERT | {"tokenizer.json": made} | change(made))
        with refused(CheckpointError) if change in DISAGREEING else nullcontext():
            text_of(tmp_path / str(number))


FIRST = [(b"<unk>", 0, UNKNOWN), (b"<s>", 0, CONTROL), (b"</s>", 0, CONTROL)]
FAULTS = [
    ("bert", {"vocab.txt": b"[PAD]\n[CLS]\n[SEP]\n"}), ("mpnet", {"vocab.txt": b"[UNK]\n<s>\n"}),
    ("bert", {"vocab.txt": b"[UNK]\nthe\n[SEP]\n"}), ("bert", {"vocab.txt": b"a\n" * 1001}),
    ("bert", {"vocab.txt": b""}), ("bert", {"vocab.txt": b"a\n\xff\n"}), ("roberta", {"vocab.json": {"a": 1, "b": 1}}),
    ("roberta", {"merges.txt": b"#version: 0.2\nab\n"}), ("roberta", {"merges.txt": "q \u4e00\n".encode()}),
    ("electra", {"added_tokens.json": {"<new>": 999}}), ("bert", {"tokenizer_config.json": {"cls_token": 7}}),
    ("electra", {"added_tokens.json": {"a": "x"}}), ("albert", {"spiece.model": b"abc"}),
    ("xlm-roberta", {"sentencepiece.bpe.model": spm_bytes(FIRST, BPE)}),
    ("t5", {"spiece.model": spm_bytes([*FIRST, *FIRST[:1]])}), ("deberta", {"spm.model": spm_bytes(FIRST[1:])}),
    ("t5", {"spiece.model": spm_bytes([(b"a", float("nan"), NORMAL)])}),
    ("t5", {"spiece.model": spm_bytes([(b"\xff", 0, NORMAL)])}),
    ("xlm-roberta", {"sentencepiece.bpe.model": spm_bytes([*FIRST[:2], (b"a", 0, NORMAL)])}),
    ("t5", {"tokenizer_config.json": {"extra_ids": 10**9}}),
]  # fmt: skip


def test_faults(tmp_path):
    for number, (case, changes) in enumerate(FAULTS):
        with refused(CheckpointError):
            text_of(written(tmp_path / str(number), files_of(case) | changes))


PIECES = [*FIRST, *((word.encode(), -float(i), NORMAL) for i, word in enumerate(("▁a", "b", "c")))]


IDS = [
    ("T5", {}, "<extra_id_0>", 6 + 99), ("T5", {"extra_ids": 3}, "<extra_id_0>", 6 + 2),
    ("Pegasus", {}, "▁a", 103 + 3),  # the first two pieces are the padding and the end
    ("Pegasus", {"offset": 7}, "▁a", 7 + 3), ("Pegasus", {"offset": 7}, "<unk_6>", 8),
    ("MBart", {}, "<mask>", 4 + 3 + 25), ("MBart50", {}, "<mask>", 4 + 3 + 52), ("MBart50", {}, "sl_SI", 4 + 3 + 51),
    ("XLMRoberta", {}, "<mask>", 4 + 3),
]  # fmt: skip


@pytest.mark.parametrize("kind, settings, token, expected", IDS)
def test_ids_that_follow_from_settings(kind, settings, token, expected, tmp_path):
    file = "spiece.model" if kind in ("T5", "Pegasus") else "sentencepiece.bpe.model"
    files = {"tokenizer_config.json": settings | {"tokenizer_class": f"{kind}Tokenizer"}, file: spm_bytes(PIECES)}
    made = Tokenizer.from_str(text_of(written(tmp_path, BERT | files)).tokenizer.decode())
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
    files = BERT | {"vocab.txt": b"[UNK]\nthe\n[SEP]\n", "added_tokens.json": {"[CLS]": 3}}
    assert ids_of(written(tmp_path, files), "the") == [3, 1, 2]


def test_more_pieces_than_rows_or_more_rows_than_any_embedding_has(tmp_path):
    with refused(CheckpointError, "100 rows"):
        text_of(written(tmp_path / "albert", files_of("albert")), rows=100)
    with refused(CheckpointError, "extra_ids"):
        text_of(written(tmp_path, files_of("t5") | {"tokenizer_config.json": {"extra_ids": 10**11}}), rows=10**12)


@pytest.mark.parametrize("processor", [None, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}])
def test_tokens_at_the_ends_that_only_the_settings_want(tmp_path, processor):
    """A file without a template is left as it is, but for a tokenizer of the model's own code, as gte-Qwen2's."""
    made = Tokenizer(models.WordLevel({"<unk>": 0, "the": 1, "<e>": 2, "<b>": 3}, unk_token="<unk>"))
    made.add_special_tokens(["<e>", "<b>"])
    content = json.loads(made.to_str()) | {"post_processor": processor}
    settings = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<e>", "bos_token": "<b>"}
    own = {"auto_map": {"AutoTokenizer": ["tokenization_qwen.Qwen2Tokenizer", None]}}
    eos, both = {"add_eos_token": True}, {"add_eos_token": True, "add_bos_token": True}
    for further, ids in (
        (both, [1]), (eos | {"auto_map": {"AutoModel": "x.Y"}}, [1]), (own, [1]),
        (own | eos | {"add_bos_token": False}, [1, 2]), (own | both, [3, 1, 2]),
        (own | eos | {"eos_token": None}, [1]), (own | eos | {"eos_token": "<of another>"}, [1]),
    ):  # fmt: skip
        files = {"config.json": {"model_type": "qwen2"}, "tokenizer.json": content}
        written(tmp_path, files | {"tokenizer_config.json": settings | further})
        assert ids_of(tmp_path, "the") == ids
    made.post_processor = processors.TemplateProcessing(single="$A <e>", special_tokens=[("<e>", 2)])
    content = json.loads(made.to_str())
    written(tmp_path, {"tokenizer.json": content, "tokenizer_config.json": settings | own | {"add_bos_token": True}})
    assert ids_of(tmp_path, "the") == [1, 2]


def test_a_token_appended_beyond_the_embedding_is_dropped(tmp_path):
    """DeBERTa's mask, in the embedding of a model that was never meant to predict words."""
    written(tmp_path, files_of("deberta"))
    rows = tokenizer_of(tmp_path).vocabulary_size
    assert rows - 1 in ids_of(tmp_path, "[MASK]")
    assert max(ids_of(tmp_path, "[MASK]", rows=rows - 1)) < rows - 1


def test_a_folder_without_any_tokenizer(tmp_path):
    for files in ({}, {"tokenizer.json": b"{"}):
        with refused(CheckpointError, "tokenizer.json"):
            text_of(written(tmp_path, {"config.json": {"model_type": "modernbert"}} | files))
