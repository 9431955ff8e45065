"""Keys of GGUF metadata: tokenizers against sentencepiece and by hand, and what each optional key means."""

from functools import partial
from operator import attrgetter

import pytest
import sentencepiece
from tokenizers import Tokenizer

from fastattn.errors import CheckpointError
from fastattn.weights.containers.gguf import parse_gguf
from fastattn.weights.gguf.architecture import make_config, with_stored_rotation
from fastattn.weights.gguf.tokenizer import SPLITTINGS, read_text
from fastattn.weights.huggingface.decoders import find_decoder
from tests import GOLDENS
from tests.messages import refused
from tests.weights.gguf import models
from tests.weights.gguf.writer import Value, gguf_bytes

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
SPM = GOLDENS / "text_bpe_bytes.model"
TEXTS = (
    "the quiet garden", " the  quiet   garden ", "", " ", "▁", "gardens, 1234!\n\tcode(x)", "明天会下雨吗？", "नमस्ते",
    "😀 e\u0301 \u00a0x", "quietquietquiet", "THE", "Привет мир", "a<s>b", "</s>",
)  # fmt: skip


def text_of(metadata, rows=100_000):
    values = {key if "." in key else f"tokenizer.ggml.{key}": value for key, value in metadata.items()}
    return read_text(parse_gguf(memoryview(gguf_bytes(values, {})), "x.gguf").metadata, rows, 77)


def tokenizer_of(text):
    return Tokenizer.from_str(text.tokenizer.decode())


def spm_metadata(**changes):
    """What llama.cpp's converter writes of the sentencepiece model."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(SPM))
    ids = range(model.get_piece_size())
    tests = {model.is_byte: BYTE, model.is_control: CONTROL, model.is_unknown: UNKNOWN}
    kinds = [next((kind for test, kind in tests.items() if test(i)), NORMAL) for i in ids]
    scores = Value("f32", [model.get_score(i) for i in ids])
    tokens = [model.id_to_piece(i) for i in ids]
    return {"model": "llama", "tokens": tokens, "scores": scores, "token_type": Value("i32", kinds)} | changes


def test_merges_by_score_are_sentencepiece_s():
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


def test_the_merge_of_the_highest_score_comes_first():
    tokens = ["<unk>", "a", "b", "c", "ab", "bc", "\u2581"]
    for scores, pieces in (((-1.0, -2.0), ["\u2581", "ab", "c"]), ((-2.0, -1.0), ["\u2581", "a", "bc"])):
        metadata = {"model": "llama", "tokens": tokens, "token_type": Value("i32", [UNKNOWN, *[NORMAL] * 6])}
        metadata["scores"] = Value("f32", [0.0, -9, -9, -9, *scores, -9])
        assert tokenizer_of(text_of(metadata)).encode("abc", add_special_tokens=False).tokens == pieces


def test_a_text_without_a_prefix_and_with_an_end():
    ends = {"add_bos_token": Value("bool", False), "add_eos_token": Value("bool", True)}
    tokenizer = tokenizer_of(text_of(spm_metadata(add_space_prefix=Value("bool", False), **ends)))
    ids = tokenizer.encode(" the garden").ids
    assert ids[-1] == 2 and ids[:-1] == tokenizer_of(text_of(spm_metadata())).encode("the garden").ids[1:]
    assert tokenizer.decode(ids) == " the garden"
    assert tokenizer.encode("a", "b").tokens == ["a", "</s>", "b", "</s>"]


# Bytes that stand for themselves, and how a byte-level vocabulary writes the others.
SIGNS = [chr(b) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174 else "" for b in range(256)]
SIGNS = [sign or chr(256 + SIGNS[:b].count("")) for b, sign in enumerate(SIGNS)]


def bytes_metadata(pre, **changes):
    """A vocabulary of bytes, a few merges and tokens of each other kind."""
    merges = ["h e", "Ġ he", "1 2", "l l"]
    made = [merge.replace(" ", "") for merge in merges]
    return {
        "model": "gpt2", "pre": pre, "merges": merges,
        "tokens": [*SIGNS, *made, "Ġhello", "<|im_start|>", "<|im_end|>", " two", "<x>"],
        "token_type": Value("i32", [NORMAL] * 261 + [CONTROL, CONTROL, USER, UNUSED]),
        "bos_token_id": Value("u32", 261), "eos_token_id": Value("u32", 262),
    } | changes  # fmt: skip


@pytest.mark.parametrize("pre", SPLITTINGS)
def test_byte_level_tokenizers_keep_each_byte(pre):
    tokenizer = tokenizer_of(text_of(bytes_metadata(pre)))
    for line in TEXTS:
        composed = line.replace("e\u0301", "é") if SPLITTINGS[pre].nfc else line
        ids = tokenizer.encode(line, add_special_tokens=False).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == composed
    begins = [261] if SPLITTINGS[pre].bos else []
    assert tokenizer.encode("x").ids == [*begins, SIGNS.index("x")]
    whole = ["Ġhello"] if SPLITTINGS[pre].ignore_merges else ["Ġhe", "ll", "o"]
    assert tokenizer.encode(" hello", add_special_tokens=False).tokens == whole
    found = tokenizer.encode("<|im_start|>he two<x>", add_special_tokens=False)
    assert found.tokens == ["<|im_start|>", "he", " two", "<", "x", ">"]
    assert tokenizer.decode(found.ids) == "he two<x>"


# What the published tokenizers' expressions make of texts.
PIECES = [
    ("gpt-2", "It's 1234.5\n\n x", ["It", "'s", " 1234", ".", "5", "\n\n", " x"]), ("smollm", "a²³", ["a", "²", "³"]),
    ("smollm", "It's 123", ["It", "'s", " ", "1", "2", "3"]),
    ("qwen2", "IT'S 123!\n\n x", ["IT", "'S", " ", "1", "2", "3", "!\n\n", " x"]),
    ("llama-bpe", "We'LL (say) 12345", ["We", "'LL", " (", "say", ")", " ", "123", "45"]),
    ("hunyuan-dense", "明天x 12345。カ?", ["明天", "x", " ", "123", "45", "。", "カ", "?"]),
    ("tekken", "camelCase HTTPServer 12", ["camel", "Case", " HTTPServer", " ", "1", "2"]),
]  # fmt: skip


@pytest.mark.parametrize("pre, line, pieces", PIECES)
def test_the_pieces_of_a_text(pre, line, pieces):
    split = tokenizer_of(text_of(bytes_metadata(pre))).pre_tokenizer
    shown = ["".join(SIGNS[byte] for byte in piece.encode()) for piece in pieces]
    assert [piece for piece, _ in split.pre_tokenize_str(line)] == shown


FAULTS = [
    {"model": "bert"}, {"model": "t5"}, {"model": None}, {"pre": "viking"}, {"tokens": Value("u8", 3)}, {"tokens": []},
    {"tokens": ["a", "b", "a"]}, {"tokens": ["a", ""]}, {"tokens": ["a", "b" * 1001]}, {"tokens": ["a"]},
    {"merges": Value("u8", [1])}, {"merges": ["h z"]}, {"merges": ["h e x"]}, {"add_bos_token": "yes"},
    {"tokenizer.chat_template": Value("u8", 1)}, {"bos_token_id": Value("i32", -2)},
    spm_metadata(scores=Value("f32", [float("nan")] * 600)),
    {"model": "llama", "tokens": ["a" * 257], "scores": Value("f32", [0.0]), "token_type": None},
]  # fmt: skip


def test_a_tokenizer_that_is_not_read_is_refused_by_name():
    for changes in FAULTS:
        metadata = {name: value for name, value in (bytes_metadata("gpt-2") | changes).items() if value is not None}
        with refused(CheckpointError, "x.gguf: "):
            text_of(metadata)
    with refused(CheckpointError, "264 rows"):
        text_of(bytes_metadata("gpt-2"), rows=264)
    text_of(bytes_metadata("gpt-2"), rows=265)


def stack_of(name, **changes):
    """What the metadata of a model says with these keys of its architecture changed; None: left out."""
    metadata, tensors = models.contents(name)
    prefix = f"{metadata['general.architecture']}."
    whole = metadata | {prefix + key: value for key, value in changes.items()}
    stated = {key: value for key, value in whole.items() if value is not None}
    form, config = make_config(parse_gguf(memoryview(bytearray(gguf_bytes(stated, tensors))), "x.gguf"))
    return with_stored_rotation(find_decoder(config).spec(config), form)


floats, whole = partial(Value, "f32"), partial(Value, "u32")
BASE, SCALE, STRETCH = "positions.rotary.base", "attention.query_scale", "positions.rotary.stretch"
TURNED = "positions.rotary.scale"
# (model, key, its value, where that arrives, what is there, what is there where the key is left out)
KEYS = [
    ("llama", "rope.freq_base", floats(5e5), BASE, 5e5, 1e4),
    ("llama", "attention.head_count_kv", whole(1), "attention.key_width", 8, 16),
    ("hunyuan-dense", "attention.key_length", whole(16), "attention.head_width", 16, 8),
    ("gemma2", "attention.key_length", whole(16), "attention.head_width", 16, 256),
    ("gemma2", "attention.key_length", whole(16), SCALE, 16**-0.5, 256**-0.5),
    ("gemma2", "attn_logit_softcapping", floats(20), "attention.softcap", 20, 50),
    ("gemma2", "attn_logit_softcapping", floats(0), "attention.softcap", 0, 50),
    ("gemma2", "final_logit_softcapping", floats(20), "output_cap", 20, 30),
    ("gemma2", "attention.sliding_window", whole(4), "local.before", 3, 4095),
    ("gemma3", "final_logit_softcapping", floats(20), "output_cap", 20, 0),
    ("gemma3", "rope.freq_base_swa", floats(777), "local.rotary.base", 777, 1e4),
    ("gemma3", "rope.freq_base", floats(1e6), BASE, 1e6, 1e4),
    ("phi3", "attention.sliding_window", whole(4), "local.before", 3, None),
    ("phi3", "attention.sliding_window", whole(0), "local", None, None),
    ("phi3", "rope.dimension_count", whole(4), "positions.rotary.width", 4, 8),
    ("gptneox", "rope.freq_base", floats(99), BASE, 99, 1e4),
    ("gptneox", "use_parallel_residual", Value("bool", False), "parallel", False, True),
    ("qwen2", "rope.scaling.yarn_beta_fast", floats(16), f"{STRETCH}.fast", 16, 32),
    ("qwen2", "rope.scaling.yarn_beta_fast", floats(0), f"{STRETCH}.fast", 32, 32),
    ("qwen2", "rope.scaling.yarn_beta_slow", floats(2), f"{STRETCH}.slow", 2, 1),
    # A factor without a type is of linear scaling, as in llama.cpp, which knows the older name too.
    ("llama", "rope.scaling.factor", floats(4), TURNED, 4, 1),
    ("llama", "rope.scale_linear", floats(4), TURNED, 4, 1),
    ("llama, biased", "rope.scaling.type", "none", TURNED, 1, 2),
]  # fmt: skip


@pytest.mark.parametrize("name, key, value, place, given, left", KEYS)
def test_an_optional_key(name, key, value, place, given, left):
    for stated, expected in ((value, given), (None, left)):
        found = stack_of(name, **{key: stated})
        for part in place.split("."):
            found = found and getattr(found, part)
        assert found == pytest.approx(expected)


@pytest.mark.parametrize("name, deepest", [("gemma2", 46), ("gemma3", 62)])
def test_attention_s_scale_of_the_largest_gemma(name, deepest):
    """It is of a head's share of the columns, 8, not of a head's own width, 16."""
    for layers, width in ((deepest - 1, 16), (deepest, 8), (deepest + 1, 16)):
        assert attrgetter(SCALE)(stack_of(name, block_count=whole(layers))) == pytest.approx(width**-0.5)


def without(metadata, *names):
    return text_of({key: value for key, value in metadata.items() if key not in names})


def test_a_tokenizer_s_keys_that_are_left_out():
    scores, bytes_ = spm_metadata(), bytes_metadata("gpt-2")
    given = scores | {f"{name}_token_id": whole(i) for name, i in (("bos", 2), ("eos", 1), ("unknown", 3))}
    assert without(given).special_tokens == {"bos_token": "</s>", "eos_token": "<s>", "unk_token": scores["tokens"][3]}
    # Byte-level tokenizers have none but those that are named, nor begin with one unless they say so.
    assert without(bytes_, "bos_token_id", "eos_token_id").special_tokens == {}
    adding = bytes_ | {"add_bos_token": Value("bool", True), "add_eos_token": Value("bool", True)}
    assert tokenizer_of(without(adding)).encode("x").tokens == ["<|im_start|>", "x", "<|im_end|>"]
    # Without kinds all tokens are plain text.
    plain = tokenizer_of(without(bytes_, "token_type")).encode("<|im_start|>").tokens
    assert len(plain) > 1 and tokenizer_of(without(bytes_)).encode("<|im_start|>").tokens == ["<|im_start|>"]
    kinds = Value("i32", [NORMAL] * 265)
    assert without(bytes_, "token_type").tokenizer == without(bytes_ | {"token_type": kinds}).tokenizer


def test_tokens_that_end_an_answer_and_what_a_template_names():
    """The end of a text, of a turn and of a message; an id of -1 or past the vocabulary is none."""
    tokens = [*(f"t{i}" for i in range(9)), "t0t1"]
    bytes_ = bytes_metadata("gpt-2", tokens=tokens, merges=["t0 t1"], token_type=Value("i32", [NORMAL] * 10))
    for ids, expected in (
        ({"eos": 3, "eot": 4, "eom": 5}, (3, 4, 5)),
        ({"eos": 9}, (9,)),
        ({"eos": 10, "eot": -1}, ()),
    ):
        stated = {f"{name}_token_id": Value("i32", i) for name, i in ids.items()}
        assert without(bytes_ | stated, *({"eos_token_id", "bos_token_id"} - stated.keys())).end_ids == expected
    ids = {"eos_token_id": 261, "eot_token_id": 3, "padding_token_id": 900}
    more = {name: Value("u32", number) for name, number in ids.items()} | {"tokenizer.chat_template": "{{ messages }}"}
    text = text_of(bytes_metadata("qwen2", **more))
    special = {"bos_token": "<|im_start|>", "eos_token": "<|im_start|>"}
    found = text.end_ids, text.special_tokens, text.chat_template
    assert found == ((3, 261, 262), special, "{{ messages }}")  # its own two, and <|im_end|>
    both = text_of(bytes_metadata("qwen2", **more, **{"tokenizer.chat_template.tool_use": "{{ tools }}"})).chat_template
    assert both == "{% if tools is not none %}\n{{ tools }}{%+ else %}\n{{ messages }}{%+ endif %}"
