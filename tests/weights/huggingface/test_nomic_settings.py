"""NomicBERT's first settings, named after GPT-2's: what each means, and what it is where it is left out."""

from operator import attrgetter
from typing import Any

import pytest

from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.rotary_bert import NOMIC

SIZES = {"n_layer": 2, "n_embd": 24, "n_head": 3, "n_inner": 40, "vocab_size": 50}
TODAY = {"num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40, "vocab_size": 50}


# (setting, a value, where it arrives, what is there, what is there where it is left out)
@pytest.mark.parametrize(
    "name, value, place, given, left",
    [
        ("rotary_emb_base", 1000, "positions.rotary.base", 1000, 10_000),  # as their code has it, not as today's
        ("n_positions", 64, "positions.limit", 64, 2048),
        ("activation_function", "geglu", "feed_forward.activation", "gelu", "swish"),
        ("layer_norm_epsilon", 1e-5, "norms.epsilon", 1e-5, 1e-12),
        ("type_vocab_size", 0, "token_types", 0, 2),
    ],
)
def test_a_setting(name: str, value: Any, place: str, given: Any, left: Any) -> None:
    for config, expected in ((SIZES | {name: value}, given), (SIZES, left)):
        assert attrgetter(place)(NOMIC.spec(JsonObject(config, "config.json"))) == expected


def test_a_scaled_model_goes_as_far_as_it_was_trained() -> None:
    for more, limit in (
        ({"n_positions": 8192}, 8192),
        ({"n_positions": 8192, "rotary_scaling_factor": 2}, 2048),
        ({"n_positions": 8192, "rotary_scaling_factor": 2, "max_trained_positions": 4096}, 4096),
        ({"n_positions": 512, "rotary_scaling_factor": 2}, 512),
    ):
        assert NOMIC.spec(JsonObject(SIZES | more, "config.json")).positions.limit == limit


def test_both_forms_are_one_architecture() -> None:
    first = NOMIC.spec(JsonObject(SIZES | {"rotary_emb_base": 1000}, "config.json"))
    assert first == NOMIC.spec(JsonObject(TODAY, "config.json"))
