"""Marian's options: each that is given arrives in the architecture, each left out has Marian's own default."""

from typing import Any

import numpy as np
import pytest

from fastattn.spec.architecture import RecurrenceSpec
from fastattn.weights.marian.model_file import Item
from fastattn.weights.marian.options import MarianArchitecture, read_architecture

TABLES = {"encoder_Wemb": 7, "decoder_Wemb": 9, "Wemb": 11, "Wpos": 30}
ITEMS = {name: Item(name, np.zeros((rows, 1), np.float32)) for name, rows in TABLES.items()}
LEAST: dict[str, Any] = {"type": "transformer", "enc-depth": "2", "dec-depth": "3"}
AVERAGE = {"transformer-decoder-autoreg": "average-attention"}


def read(**options: Any) -> MarianArchitecture:
    stated = {name.replace("_", "-"): value for name, value in options.items()}
    return read_architecture(LEAST | stated, ITEMS, "here")


def found_at(architecture: Any, place: str) -> Any:
    for part in place.split("."):
        architecture = getattr(architecture, part)
    return architecture


# (option, a value, where it arrives, what is there, what is there where it is left out)
@pytest.mark.parametrize(
    "name, value, place, given, left",
    [
        ("dim-emb", "64", "model.encoder.width", 64, 512),
        ("transformer-heads", "4", "model.decoder.attention.heads", 4, 8),
        ("transformer-heads", "4", "model.encoder.attention.head_width", 128, 64),
        ("transformer-dim-ffn", "40", "model.encoder.feed_forward.inner_width", 40, 2048),
        ("transformer-dim-ffn", "40", "model.decoder.feed_forward.inner_width", 40, 2048),
        ("transformer-decoder-dim-ffn", "40", "model.decoder.feed_forward.inner_width", 40, 2048),
        ("transformer-decoder-dim-ffn", "40", "model.encoder.feed_forward.inner_width", 2048, 2048),
        ("transformer-ffn-activation", "gelu", "model.decoder.feed_forward.activation", "gelu_sigmoid", "swish"),
        ("transformer-postprocess", "dar", "model.encoder.norms.kind", "rms", "layer"),
        ("transformer-preprocess", "", "model.encoder.norms.before", False, False),
        ("transformer-postprocess-emb", "nd", "model.encoder.norms.embedding", True, False),
        ("transformer-postprocess-top", "n", "model.decoder.norms.final", True, False),
        ("transformer-train-positions", "true", "model.encoder.positions.kind", "table", "sinusoid"),
        ("transformer-train-position-embeddings", "true", "model.decoder.positions.limit", 30, 0),
        ("transformer-disable-position-embeddings", "true", "model.encoder.positions.kind", "none", "sinusoid"),
        ("transformer-train-positions", "true", "model.encoder.embedding_scale", 1.0, 512**0.5),
        ("transformer-guided-alignment-layer", "2", "model.decoder.alignment.layer", 1, -1),
        ("output-omit-bias", "true", "model.decoder.projection_bias", False, True),
        ("transformer-no-projection", "true", "has_projection", False, True),
        ("tied-embeddings", "true", "tied_output", True, False),
        ("tied-embeddings-src", "true", "tied_source", True, False),
        ("tied-embeddings-src", "true", "model.encoder.vocabulary", 11, 7),
        ("tied-embeddings-all", "true", "tied_output", True, False),
        ("tied-embeddings-all", "true", "model.decoder.vocabulary", 11, 9),
        ("transformer-tied-layers", ["1", "1", "2"], "tied_layers", (1, 1, 2), (1, 2, 3)),
        ("enc-depth", "1", "model.encoder.layers", 1, 2),
    ],
)
def test_an_option(name: str, value: Any, place: str, given: Any, left: Any) -> None:
    for options, expected in (({name: value}, given), ({}, left)):
        assert found_at(read(**options), place) == (
            pytest.approx(expected) if isinstance(expected, float) else expected
        )


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, None),
        ({"transformer-decoder-autoreg": "rnn", "dec-cell": "ssru"}, RecurrenceSpec("ssru")),
        (AVERAGE, RecurrenceSpec("average-attention", 2048, "swish", True)),
        (AVERAGE | {"transformer-dim-aan": "60"}, RecurrenceSpec("average-attention", 60, "swish", True)),
        (AVERAGE | {"transformer-aan-depth": "1"}, RecurrenceSpec("average-attention", 0, "swish", True)),
        (AVERAGE | {"transformer-aan-nogate": "true"}, RecurrenceSpec("average-attention", 2048, "swish", False)),
        (AVERAGE | {"transformer-aan-activation": "relu"}, RecurrenceSpec("average-attention", 2048, "relu", True)),
    ],
)
def test_what_stands_in_for_the_decoders_self_attention(options: dict, expected: RecurrenceSpec | None) -> None:
    assert read(**options).model.decoder.recurrence == expected
