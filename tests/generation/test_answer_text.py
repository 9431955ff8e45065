"""The text of answers whose tokenizer falls back to bytes, a token each, as Llama 2's does."""

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models

from fastattn.generation.text import AnswerText, GeneratorTokenizer, TextStream
from fastattn.spec.text_spec import GeneratorText

TOKENS = ["<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁the", "▁a"]
THE, A = 258, 259


def ids_of(text):
    return [2 + byte for byte in text.encode()]


@pytest.fixture(scope="module")
def tokenizer():
    made = Tokenizer(models.BPE({token: n for n, token in enumerate(TOKENS)}, [], byte_fallback=True))
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    made.decoder = decoders.Sequence(parts)
    made.add_special_tokens([AddedToken(token, special=True) for token in TOKENS[:2]])
    return GeneratorTokenizer(GeneratorText(made.to_str().encode(), 0, (1,)), len(TOKENS))


def test_an_answer_keeps_its_first_space(tokenizer):
    for prompt in ["é", "你", "你é", "é你", "你你", "😀你", "é😀", "你" * 5, "aé"]:
        answer = AnswerText(tokenizer, np.array([0, *ids_of(prompt)], np.int32), ())
        assert answer.text([THE, A])[0] == " the a"
        stream = TextStream(answer)
        assert "".join([*map(stream.add, [THE, A]), stream.end()]) == " the a"


@pytest.mark.parametrize(
    "ids, strings, text",
    [
        ([A, THE], ["e", "h"], " a t"),  # both in the last token
        ([A, THE], ["h", "e"], " a t"),
        ([A, THE], ["t", " the", "a t"], " "),  # one that begins in a token before
        ([A, THE], ["hen"], " a the"),  # as far as the answer goes
        ([A, THE], ["a theme", "then", "e!"], " a the"),
        ([A, THE, *ids_of("é")[:1]], ["e\N{REPLACEMENT CHARACTER}!"], " a the\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_an_answer_ends_before_the_first_of_its_strings_or_has_all_its_text(tokenizer, ids, strings, text):
    answer = AnswerText(tokenizer, np.array([0, *ids_of("é")], np.int32), strings)
    stream = TextStream(answer)
    assert answer.text(ids)[0] == "".join([*map(stream.add, ids), stream.end()]) == text


def test_a_stop_string_is_found_behind_a_run_of_bytes(tokenizer):
    for before in range(20):
        for run in ("é", "你", "😀"):
            answer = AnswerText(tokenizer, np.array([0], np.int32), ["好吗"])
            ids = [THE] * (before % 4) + ids_of(run * before + "好吗")
            for n in range(1, len(ids) + 1):
                assert answer.stop.found(ids[max(0, n - answer.stop.tokens) : n]) == (n == len(ids))
