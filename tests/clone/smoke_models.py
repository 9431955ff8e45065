"""Writes two tiny random models, and what the reference operations make of some text, with the fastattn installed here.

python smoke_models.py FOLDER     makes FOLDER/translator, FOLDER/encoder and FOLDER/expected.json
"""

import dataclasses
import json
import sys
from pathlib import Path

from fastattn import Encoder, Translator
from fastattn.ops import reference
from fastattn.spec.text_spec import EncoderText
from fastattn.weights.native import convert
from tests.models.encoder_cases import CASES, make_checkpoint
from tests.models.tiny_models import random_checkpoint, vocabulary

TEXT = "▁w1 ▁w2 ▁w3"
LENGTH = 6


def main(folder: Path) -> None:
    translation = random_checkpoint()
    words = {word: number for number, word in enumerate(vocabulary(CASES[0].spec.vocabulary))}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"}
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}
    text = EncoderText(tokenizer=json.dumps(tokenizer).encode(), max_length=32)
    encoder = dataclasses.replace(make_checkpoint(CASES[0]), input=text)
    for name, checkpoint in (("translator", translation), ("encoder", encoder)):
        (folder / name).mkdir()
        convert.write(folder / name, checkpoint, "float32")
    line = Translator.from_checkpoint(translation, ops=reference).translate(
        TEXT, beam_size=2, max_decoding_length=LENGTH
    )
    vector = Encoder.from_checkpoint(encoder, ops=reference).encode(TEXT)
    expected = {"text": TEXT, "length": LENGTH, "translation": line, "vector": vector.ravel().tolist()}
    (folder / "expected.json").write_text(json.dumps(expected), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
