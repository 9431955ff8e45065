"""Tensors that are tied by config.json: one where a file has one of them, two where it has two that differ."""

from pathlib import Path

import numpy as np
import pytest

from fastattn.spec.checkpoint import Checkpoint
from fastattn.weights import read
from tests.architectures.cases import CASES
from tests.architectures.decoders import GOLDEN_DECODERS
from tests.architectures.drawing import draw_all
from tests.architectures.folders import write_folder
from tests.architectures.goldens import read_goldens

EMBEDDINGS = {
    "llama-0": ("model.embed_tokens.weight", "lm_head.weight"),
    "gemma2-0": ("model.embed_tokens.weight", "lm_head.weight"),
    "gpt2-0": ("transformer.wte.weight", "lm_head.weight"),
    "roberta-fill-mask": ("roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight"),
    "t5-0": ("shared.weight", "encoder.embed_tokens.weight"),
}


def tied_tensors(checkpoint: Checkpoint, name: str) -> tuple[np.ndarray, np.ndarray]:
    kind = "decoder" if checkpoint.spec.decoder else "encoder"
    other = {"decoder": "decoder.projection.weight", "encoder": "head.output.weight"}[kind]
    embedding = checkpoint.tensors[f"{kind}.embedding.weight"]
    return embedding, checkpoint.tensors.get(other, embedding)


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_a_tensor_of_its_own_is_kept_beside_a_tied_config(name: str, tmp_path: Path) -> None:
    case = next(case for case in (*GOLDEN_DECODERS, *CASES) if case.name == name)
    tensors = draw_all(read_goldens(case)[0], case.seed)
    embedding, other = EMBEDDINGS[name]
    table_VD = tensors.pop(embedding, tensors.pop(other, None))
    tensors = {theirs: tensor for theirs, tensor in tensors.items() if theirs not in (embedding, other)}
    own_VD = table_VD[::-1].copy()
    config = case.config | {"tie_word_embeddings": True}
    # what the file holds -> (the embedding, the tensor tied to it)
    files = {
        "the embedding": ({embedding: table_VD}, (table_VD, table_VD)),
        "the other": ({other: own_VD}, (own_VD, own_VD)),
        "both, equal": ({embedding: table_VD, other: table_VD.copy()}, (table_VD, table_VD)),
        "both": ({embedding: table_VD, other: own_VD}, (table_VD, own_VD)),
    }
    for holds, (pair, expected) in files.items():
        (tmp_path / holds).mkdir()
        found = tied_tensors(read(write_folder(tmp_path / holds, config, tensors | pair)), name)
        expected = (own_VD, own_VD) if name == "t5-0" and holds == "both" else expected  # it looks at the encoder's
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])
        assert (found[0] is found[1]) == (expected[0] is expected[1])


def test_a_bias_of_its_own_is_kept(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "roberta-fill-mask")
    tensors = draw_all(read_goldens(case)[0], case.seed)
    own_V = tensors["lm_head.bias"][::-1].copy()
    checkpoint = read(write_folder(tmp_path, case.config, tensors | {"lm_head.decoder.bias": own_V}))
    np.testing.assert_array_equal(checkpoint.tensors["head.output.bias"], own_V)
