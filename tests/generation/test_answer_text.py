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


def test_a_stop_string_is_found_behind_a_run_of_bytes(tokenizer):
    for before in range(20):
        for run in ("é", "你", "😀"):
            answer = AnswerText(tokenizer, np.array([0], np.int32), ["好吗"])
            ids = [THE] * (before % 4) + ids_of(run * before + "好吗")
            for n in range(1, len(ids) + 1):
                assert answer.stop.found(ids[max(0, n - answer.stop.tokens) : n]) == (n == len(ids))
