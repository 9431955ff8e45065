"""Tokenizers of GGUF metadata: against sentencepiece, and by hand; what is not read is refused by name."""

import json

import pytest
import sentencepiece
from tokenizers import Tokenizer

from fastattn.errors import CheckpointError
from fastattn.spec.text_spec import GeneratorText
from fastattn.weights.containers.gguf import parse_gguf
from fastattn.weights.gguf.tokenizer import SPLITTINGS, read_text
from tests import GOLDENS
from tests.weights.gguf.writer import Value, gguf_bytes

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
SPM = GOLDENS / "text_bpe_bytes.model"
TEXTS = (
    "the quiet garden", " the  quiet   garden ", "", " ", "▁", "gardens, 1234!\n\tcode(x)", "明天会下雨吗？", "नमस्ते",
    "😀 e\u0301 \u00a0x", "quietquietquiet", "THE", "Привет мир", "a<s>b", "</s>",
)  # fmt: skip


def text_of(metadata: dict[str, object], rows: int = 100_000) -> GeneratorText:
    values = {key if "." in key else f"tokenizer.ggml.{key}": value for key, value in metadata.items()}
    return read_text(parse_gguf(memoryview(gguf_bytes(values, {})), "x.gguf").metadata, rows, 77)


def tokenizer_of(text: GeneratorText) -> Tokenizer:
    return Tokenizer.from_str(text.tokenizer.decode())


def spm_metadata(**changes: object) -> dict[str, object]:
    """What llama.cpp's converter writes of the sentencepiece model."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(SPM))
    ids = range(model.get_piece_size())
    kinds = [
        BYTE if model.is_byte(i) else CONTROL if model.is_control(i) else UNKNOWN if model.is_unknown(i) else NORMAL
        for i in ids
    ]
    return {
        "model": "llama",
        "tokens": [model.id_to_piece(i) for i in ids],
        "scores": Value("f32", [model.get_score(i) for i in ids]),
        "token_type": Value("i32", kinds),
    } | changes


def test_merges_by_score_are_sentencepiece_s() -> None:
    model = sentencepiece.SentencePieceProcessor(model_file=str(SPM))
    text = text_of(spm_metadata())
    tokenizer = tokenizer_of(text)
    for line in TEXTS:
        if "s>" in line:  # which sentencepiece takes for text
            continue
        ids = tokenizer.encode(line).ids
        assert ids == [1, *model.encode(line)], line
        assert tokenizer.decode(ids) == model.decode(model.encode(line)) == line.replace("▁", " "), line
    assert tokenizer.encode("a<s>b").tokens == ["<s>", *model.encode("a", out_type=str), "<s>", "▁b"]
    assert tokenizer.decode([0, *ids]) == tokenizer.decode(ids)  # <unk> is special too
    assert (text.end_ids, text.max_length, text.chat_template) == ((2,), 77, "")
    assert text.special_tokens == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def test_the_merge_of_the_highest_score_comes_first() -> None:
    tokens = ["<unk>", "a", "b", "c", "ab", "bc", "\u2581"]
    for scores, pieces in (((-1.0, -2.0), ["\u2581", "ab", "c"]), ((-2.0, -1.0), ["\u2581", "a", "bc"])):
        metadata: dict[str, object] = {"model": "llama", "tokens": tokens}
        metadata["scores"] = Value("f32", [0.0, -9, -9, -9, *scores, -9])
        metadata["token_type"] = Value("i32", [UNKNOWN, *[NORMAL] * 6])
        assert tokenizer_of(text_of(metadata)).encode("abc", add_special_tokens=False).tokens == pieces


def test_a_text_without_a_prefix_and_with_an_end() -> None:
    ends = {"add_bos_token": Value("bool", False), "add_eos_token": Value("bool", True)}
    tokenizer = tokenizer_of(text_of(spm_metadata(add_space_prefix=Value("bool", False), **ends)))
    ids = tokenizer.encode(" the garden").ids
    assert ids[-1] == 2 and ids[:-1] == tokenizer_of(text_of(spm_metadata())).encode("the garden").ids[1:]
    assert tokenizer.decode(ids) == " the garden"
    assert tokenizer.encode("a", "b").tokens == ["a", "</s>", "b", "</s>"]


# Bytes that stand for themselves, and how a byte-level vocabulary writes the others.
SIGNS = [chr(b) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174 else "" for b in range(256)]
SIGNS = [sign or chr(256 + SIGNS[:b].count("")) for b, sign in enumerate(SIGNS)]


def bytes_metadata(pre: str, **changes: object) -> dict[str, object]:
    """A vocabulary of bytes, a few merges and tokens of each other kind."""
    merges = ["h e", "Ġ he", "1 2", "l l"]
    tokens = [
        *SIGNS,
        *(merge.replace(" ", "") for merge in merges),
        "Ġhello",
        "<|im_start|>",
        "<|im_end|>",
        " two",
        "<x>",
    ]
    kinds = [NORMAL] * 261 + [CONTROL, CONTROL, USER, UNUSED]
    return {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "merges": merges,
        "token_type": Value("i32", kinds),
        "bos_token_id": Value("u32", 261),
        "eos_token_id": Value("u32", 262),
    } | changes


@pytest.mark.parametrize("pre", SPLITTINGS)
def test_byte_level_tokenizers_keep_each_byte(pre: str) -> None:
    tokenizer = tokenizer_of(text_of(bytes_metadata(pre)))
    for line in TEXTS:
        composed = line.replace("e\u0301", "é") if SPLITTINGS[pre].nfc else line
        ids = tokenizer.encode(line, add_special_tokens=False).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == composed
    begins = [261] if SPLITTINGS[pre].bos else []
    assert tokenizer.encode("x").ids == [*begins, SIGNS.index("x")]
    whole = ["Ġhello"] if SPLITTINGS[pre].whole else ["Ġhe", "ll", "o"]
    assert tokenizer.encode(" hello", add_special_tokens=False).tokens == whole
    found = tokenizer.encode("<|im_start|>he two<x>", add_special_tokens=False)
    assert found.tokens == ["<|im_start|>", "he", " two", "<", "x", ">"]
    assert tokenizer.decode(found.ids) == "he two<x>"


# What the published tokenizers' expressions make of texts.
PIECES = {
    "gpt-2": {"It's 1234.5\n\n x": ["It", "'s", " 1234", ".", "5", "\n\n", " x"]},
    "smollm": {"It's 123": ["It", "'s", " ", "1", "2", "3"], "a²³": ["a", "²", "³"]},
    "qwen2": {"IT'S 123!\n\n x": ["IT", "'S", " ", "1", "2", "3", "!\n\n", " x"]},
    "llama-bpe": {"We'LL (say) 12345": ["We", "'LL", " (", "say", ")", " ", "123", "45"]},
    "hunyuan-dense": {"明天x 12345。カ?": ["明天", "x", " ", "123", "45", "。", "カ", "?"]},
    "tekken": {"camelCase HTTPServer 12": ["camel", "Case", " HTTPServer", " ", "1", "2"]},
}


@pytest.mark.parametrize("pre", PIECES)
def test_the_pieces_of_a_text(pre: str) -> None:
    split = tokenizer_of(text_of(bytes_metadata(pre))).pre_tokenizer
    for line, pieces in PIECES[pre].items():
        shown = ["".join(SIGNS[byte] for byte in piece.encode()) for piece in pieces]
        assert [piece for piece, _ in split.pre_tokenize_str(line)] == shown


def test_what_ends_an_answer_and_what_a_template_names() -> None:
    more = {
        "eos_token_id": Value("u32", 261),
        "eot_token_id": Value("u32", 3),
        "padding_token_id": Value("u32", 900),
        "tokenizer.chat_template": "{{ messages }}",
    }
    text = text_of(bytes_metadata("qwen2", **more))
    assert text.end_ids == (3, 261, 262)  # its own two, and <|im_end|>
    assert text.special_tokens == {"bos_token": "<|im_start|>", "eos_token": "<|im_start|>"}
    assert text.chat_template == "{{ messages }}"


def strange(name: str, value: object, **more: object) -> dict[str, object]:
    return bytes_metadata("gpt-2") | {name: value} | more


FAULTS: dict[str, dict[str, object]] = {
    "tokenizer.ggml.model should be one of gpt2, llama, is 'bert'": strange("model", "bert"),
    "tokenizer.ggml.model should be one of gpt2, llama, is 't5'": strange("model", "t5"),
    "tokenizer.ggml.model is missing": {"pre": "gpt-2"},
    "tokenizer.ggml.pre should be one of gpt-2, ": strange("pre", "viking"),
    "tokenizer.ggml.tokens should be a list of texts, is 3": strange("tokens", Value("u8", 3)),
    "tokenizer.ggml.tokens should be a list of texts, is []": strange("tokens", []),
    "the token 'a' is given twice": strange("tokens", ["a", "b", "a"]),
    "tokens should have from 1 to 1000 characters": strange("tokens", ["a", ""]),
    "tokens should have from 1 to": strange("tokens", ["a", "b" * 1001]),
    "tokenizer.ggml.token_type should be 1 finite numbers": strange("tokens", ["a"]),
    "tokenizer.ggml.merges should be a list of texts": strange("merges", Value("u8", [1])),
    "a merge should be two tokens that make a third, is 'h z'": strange("merges", ["h z"]),
    "a merge should be two tokens that make a third, is 'h e x'": strange("merges", ["h e x"]),
    "tokenizer.ggml.scores should be 600 finite numbers": spm_metadata(scores=Value("f32", [float("nan")] * 600)),
    "1 tokens should have at most 256 characters and 16 merges": {
        "model": "llama", "tokens": ["a" * 257], "scores": Value("f32", [0.0]),
    },
    "tokenizer.ggml.add_bos_token should be true or false": strange("add_bos_token", "yes"),
    "tokenizer.chat_template should be a string": strange("tokenizer.chat_template", Value("u8", 1)),
    "tokenizer.ggml.bos_token_id should be an integer of at least -1": strange("bos_token_id", Value("i32", -2)),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_tokenizer_that_is_not_read_is_refused_by_name(fault: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        text_of(FAULTS[fault])
    assert str(caught.value).startswith("x.gguf: ") and fault in str(caught.value)


def test_more_tokens_than_rows() -> None:
    with pytest.raises(CheckpointError, match="265 tokens, but the embedding has 264 rows"):
        text_of(bytes_metadata("gpt-2"), rows=264)
    vocabulary = json.loads(text_of(bytes_metadata("gpt-2"), 265).tokenizer)["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(265))
