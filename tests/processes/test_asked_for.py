"""Worker processes compute as their class was asked to."""

from pathlib import Path

import pytest

from fastattn import ops
from fastattn.encoders.cross_encoder import CrossEncoder
from fastattn.encoders.encoder import Encoder
from fastattn.errors import FastattnError, InputError
from fastattn.spec.checkpoint import Checkpoint
from fastattn.translation.translator import Translator
from fastattn.weights.native import convert
from tests.encoders.test_encoder import SPEC, TENSORS, TEXT
from tests.models.tiny_models import random_checkpoint


def test_a_class_that_has_none_says_so() -> None:
    with pytest.raises(InputError, match="^CrossEncoder computes in this process alone: processes should be 1 or None"):
        CrossEncoder("nowhere", processes=2)


@pytest.mark.parametrize("made_of", [Translator, Encoder])
def test_in_the_precision_and_on_the_device(
    made_of: type[Translator] | type[Encoder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device, which only this program knows, is theirs too: they say that they have none of that name."""
    monkeypatch.setitem(ops.BACKENDS, "another", "fastattn.ops.cpu")
    monkeypatch.setattr(ops, "_loaded", {})
    checkpoint = random_checkpoint(21) if made_of is Translator else Checkpoint(SPEC, TENSORS, TEXT)
    convert.write(tmp_path, checkpoint, "float32")
    with made_of(tmp_path, "int8", threads=1, processes=2, device="another") as made:
        assert made._pool is not None
        assert made._pool._pool._arguments[1:] == [str(tmp_path), "int8", "another", 1]
        call = made.translate if isinstance(made, Translator) else made.encode
        with pytest.raises(FastattnError, match="^expected device 'cpu' or 'cuda' or 'auto', got 'another'$"):
            call(["w1 w2", "w3"])
