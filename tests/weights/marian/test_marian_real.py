"""zh-en, which is a Marian in CTranslate2's form, written as a Marian again: the same translations."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from fastattn import weights
from fastattn.spec.architecture import PositionSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import TranslationText
from fastattn.translation.translator import Translator
from tests.weights.ctranslate2.writer import as_float32
from tests.weights.marian import writer

TEXTS = ["我们明天去北京开会。", "他昨天买了三本书，今天已经读完了两本。", "这座桥是1998年建成的。"]
PARTS = {"self_attention": "self", "cross_attention": "context", "feed_forward": "ffn"}


def as_marian(checkpoint: Checkpoint) -> tuple[writer.Arrays, dict[str, object]]:
    """(arrays, options); the positions are Marian's own, sinusoids, whatever the checkpoint's are."""
    spec = checkpoint.spec.decoder
    assert spec is not None
    arrays: writer.Arrays = {}
    for name, value in as_float32(checkpoint.tensors).items():
        match = re.fullmatch(r"(encoder|decoder)\.layers\.(\d+)\.(\w+)\.(\w+)\.(weight|bias)", name)
        if match is None:
            continue
        stack, number, block, part, end = match.groups()
        theirs = f"{stack}_l{int(number) + 1}_{PARTS[block]}"
        if part == "norm":
            middle = "ffn" if block == "feed_forward" else "Wo"
            arrays[f"{theirs}_{middle}_ln_{'scale' if end == 'weight' else 'bias'}"] = value[None]
            continue
        letters = {"qkv": "qkv", "query": "q", "key_value": "kv", "output": "o", "inner": "1", "outer": "2"}[part]
        for letter, rows in zip(letters, np.split(value, len(letters)), strict=True):
            linear = rows.T if end == "weight" else rows[None]
            arrays[f"{theirs}_{'W' if end == 'weight' else 'b'}{letter}"] = np.ascontiguousarray(linear)
    tensors = as_float32(checkpoint.tensors)
    arrays["Wemb"] = tensors["decoder.projection.weight"]
    arrays["decoder_ff_logit_out_b"] = tensors["decoder.projection.bias"][None]
    options = {
        "dim-emb": spec.width,
        "transformer-heads": spec.attention.heads,
        "transformer-dim-ffn": spec.feed_forward.inner_width,
    }
    options |= {"enc-depth": checkpoint.spec.encoder.layers, "dec-depth": spec.layers, "dim-vocabs": [0, 0]}
    return arrays, writer.OPTIONS | options


@pytest.mark.slow
@pytest.mark.parametrize("model", ("model.npz", "model.bin"))
def test_zh_en_as_a_marian_translates_as_from_ctranslate2s_form(pulled, model: str, tmp_path: Path) -> None:
    original = weights.read(pulled("zh-en"))
    text = original.text
    assert isinstance(text, TranslationText) and text.source_model is not None
    arrays, options = as_marian(original)
    contents = writer.files(arrays, options, model, vocabs=["vocab.json", "vocab.json"])
    contents |= {"source.spm": text.source_model, "target.spm": text.source_model}
    contents["vocab.json"] = writer.vocabulary_json(text.source_vocabulary)
    found = weights.read(writer.write(tmp_path, contents))
    # What CTranslate2 leaves of Marian's own: its table of positions and its epsilon are others.
    stacks = {
        name: dataclasses.replace(
            stack,
            positions=PositionSpec("sinusoid", start=0),
            norms=dataclasses.replace(stack.norms, epsilon=1e-6),
        )
        for name, stack in original.spec.stacks.items()
    }
    assert found.spec == dataclasses.replace(original.spec, **stacks)
    expected = as_float32(original.tensors)
    for name, tensor in as_float32(found.tensors).items():
        np.testing.assert_array_equal(tensor, expected[name], err_msg=name)
    del expected, arrays, contents
    translations = Translator(tmp_path, precision="float32").translate(TEXTS, beam_size=2)
    assert translations == Translator(pulled("zh-en"), precision="float32").translate(TEXTS, beam_size=2)
