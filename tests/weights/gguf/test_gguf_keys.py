"""Optional keys of a GGUF file's metadata: each given arrives in the architecture, each left out has its default."""

from functools import partial
from operator import attrgetter

import pytest

from fastattn import weights
from fastattn.weights.containers.gguf import parse_gguf
from fastattn.weights.gguf.architecture import as_stored, make_config
from fastattn.weights.huggingface.decoders import find_decoder
from tests.weights.gguf import models
from tests.weights.gguf.test_gguf_tokenizer import NORMAL, bytes_metadata, spm_metadata, text_of, tokenizer_of
from tests.weights.gguf.writer import Value, gguf_bytes


def stack_of(name, **changes):
    """What the metadata of a model says with these keys of its architecture changed; None: left out."""
    metadata, tensors = models.contents(name)
    prefix = f"{metadata['general.architecture']}."
    whole = metadata | {prefix + key: value for key, value in changes.items()}
    stated = {key: value for key, value in whole.items() if value is not None}
    form, config = make_config(parse_gguf(memoryview(bytearray(gguf_bytes(stated, tensors))), "x.gguf"))
    return as_stored(find_decoder(config).spec(config), form)


floats, whole = partial(Value, "f32"), partial(Value, "u32")


BASE, SCALE = "positions.rotary.base", "attention.query_scale"
# (model, key, its value, where that arrives, what is there, what is there where the key is left out)
KEYS = [
    ("llama", "rope.freq_base", floats(5e5), BASE, 5e5, 1e4),
    ("llama", "attention.head_count_kv", whole(1), "attention.key_width", 8, 16),
    ("llama", "rope.dimension_count", whole(8), "positions.rotary.width", 8, 8),
    ("hunyuan-dense", "attention.key_length", whole(16), "attention.head_width", 16, 8),
    ("mistral", "attention.value_length", whole(16), "attention.head_width", 16, 16),
    ("gemma2", "attention.key_length", whole(16), "attention.head_width", 16, 256),
    ("gemma2", "attention.key_length", whole(16), SCALE, 16**-0.5, 256**-0.5),
    ("gemma2", "attn_logit_softcapping", floats(20), "attention.softcap", 20, 50),
    ("gemma2", "attn_logit_softcapping", floats(0), "attention.softcap", 0, 50),
    ("gemma2", "final_logit_softcapping", floats(20), "output_cap", 20, 30),
    ("gemma2", "attention.sliding_window", whole(4), "local.before", 3, 4095),
    ("gemma3", "final_logit_softcapping", floats(20), "output_cap", 20, 0),
    ("gemma3", "attention.sliding_window", whole(4), "local.before", 3, 4095),
    ("gemma3", "rope.freq_base_swa", floats(777), "local.rotary.base", 777, 1e4),
    ("gemma3", "rope.freq_base", floats(1e6), BASE, 1e6, 1e4),
    ("phi3", "attention.sliding_window", whole(4), "local.before", 3, None),
    ("phi3", "attention.sliding_window", whole(0), "local", None, None),
    ("phi3", "rope.dimension_count", whole(4), "positions.rotary.width", 4, 8),
    ("gptneox", "rope.freq_base", floats(99), BASE, 99, 1e4),
    ("gptneox", "use_parallel_residual", Value("bool", False), "parallel", False, True),
]  # fmt: skip


@pytest.mark.parametrize("name, key, value, place, given, left", KEYS)
def test_an_optional_key(name, key, value, place, given, left):
    for stated, expected in ((value, given), (None, left)):
        found = stack_of(name, **{key: stated})
        for part in place.split("."):
            found = found and getattr(found, part)
        assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    "fast, slow, expected",
    [(None, None, (32, 1)), (16, None, (16, 1)), (None, 2, (32, 2)), (16, 2, (16, 2)), (0, 0, (32, 1))],
)
def test_turns_of_yarn(tmp_path, fast, slow, expected):
    metadata, tensors = models.contents("qwen2")
    turns = {"fast": fast, "slow": slow}.items()
    metadata |= {f"qwen2.rope.scaling.yarn_beta_{name}": floats(n) for name, n in turns if n is not None}
    (tmp_path / "m.gguf").write_bytes(gguf_bytes(metadata, tensors))
    stretch = weights.read(tmp_path).spec.decoder.positions.rotary.stretch
    assert (stretch.kind, stretch.factor, stretch.length) == ("yarn", 4, 8)
    assert (stretch.fast, stretch.slow) == expected


@pytest.mark.parametrize("name, deepest", [("gemma2", 46), ("gemma3", 62)])
def test_attention_s_scale_of_the_largest_gemma(name, deepest):
    """It is of a head's share of the columns, 8, not of a head's own width, 16."""
    for layers, width in ((deepest - 1, 16), (deepest, 8), (deepest + 1, 16)):
        assert attrgetter(SCALE)(stack_of(name, block_count=whole(layers))) == pytest.approx(width**-0.5)


def without(metadata, *names):
    return text_of({key: value for key, value in metadata.items() if key not in names})


def test_a_tokenizer_s_keys_that_are_left_out():
    scores, bytes_ = spm_metadata(), bytes_metadata("gpt-2")
    # Sentencepiece's special tokens have their usual ids, and texts begin with the beginning token.
    text = without(scores)
    assert text.special_tokens == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    assert tokenizer_of(text).encode("a").ids[0] == 1 and text.end_ids == (2,)
    given = scores | {f"{name}_token_id": whole(i) for name, i in (("bos", 2), ("eos", 1), ("unknown", 3))}
    assert without(given).special_tokens == {"bos_token": "</s>", "eos_token": "<s>", "unk_token": scores["tokens"][3]}
    # Byte-level tokenizers have none but those that are named, nor begin with one unless they say so.
    assert without(bytes_, "bos_token_id", "eos_token_id").special_tokens == {}
    assert tokenizer_of(without(bytes_)).encode("x").tokens == ["x"]
    adding = bytes_ | {"add_bos_token": Value("bool", True), "add_eos_token": Value("bool", True)}
    assert tokenizer_of(without(adding)).encode("x").tokens == ["<|im_start|>", "x", "<|im_end|>"]
    # Without kinds all tokens are plain text.
    plain = tokenizer_of(without(bytes_, "token_type")).encode("<|im_start|>").tokens
    assert len(plain) > 1 and tokenizer_of(without(bytes_)).encode("<|im_start|>").tokens == ["<|im_start|>"]
    kinds = Value("i32", [NORMAL] * 265)
    assert without(bytes_, "token_type").tokenizer == without(bytes_ | {"token_type": kinds}).tokenizer


def test_tokens_that_end_an_answer():
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
