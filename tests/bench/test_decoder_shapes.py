"""Files of published shapes: their vocabularies, and that what is written is read."""

from dataclasses import replace

import pytest

from bench import decoder_shapes
from fastattn.weights import read


def test_tokens_are_distinct_and_made_by_their_merges():
    tokens, merges = decoder_shapes._vocabulary(70_000)
    assert len(set(tokens)) == len(tokens) == 70_000
    known = set(tokens)
    assert all(known.issuperset([*merge.split(" "), merge.replace(" ", "")]) for merge in merges)


@pytest.mark.parametrize("shape", [decoder_shapes.QWEN3, decoder_shapes.HY_MT], ids=lambda shape: shape.name)
def test_a_written_file_is_read(shape, tmp_path, monkeypatch):
    pytest.importorskip("gguf")
    monkeypatch.setattr(decoder_shapes, "cache_root", lambda: tmp_path)
    small = replace(shape, layers=2, width=256, heads=2, key_heads=1, inner=256, words=300)
    checkpoint = read(small.path)
    assert checkpoint.precision == "int4" and checkpoint.spec.decoder.layers == 2
    assert checkpoint.spec.decoder.vocabulary == 300
