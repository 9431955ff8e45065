"""GPT-2's scales of attention, GPT-NeoX's odd rotary widths, and decoders that do not say their length or their end."""

import json
from pathlib import Path

import numpy as np
import pytest

from fastattn.spec.architecture import Rotary
from fastattn.weights import read
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.decoders import find_decoder
from tests.architectures.decoders import GOLDEN_DECODERS
from tests.architectures.drawing import draw_all
from tests.architectures.folders import write_folder
from tests.architectures.goldens import read_goldens
from tests.architectures.outputs import load, pass_logits, step_logits

CASES = {case.name: case for case in GOLDEN_DECODERS}


@pytest.mark.parametrize("whole", [False, True])
def test_scales_of_gpt2_are_those_of_other_queries(whole: bool, tmp_path: Path) -> None:
    """A score divided by the layer's number, or not scaled, is that of queries so much smaller, or larger."""
    case = CASES["gpt2-0"]
    tensors = draw_all(read_goldens(case)[0], case.seed)
    width, heads = case.config["n_embd"], case.config["n_head"]
    plain = dict(tensors)
    for layer in range(case.config["n_layer"]):
        factor = (1 if whole else (width // heads) ** 0.5) / (layer + 1)
        for name in (f"transformer.h.{layer}.attn.c_attn.{end}" for end in ("weight", "bias")):
            plain[name] = tensors[name].copy()
            plain[name][..., :width] *= np.float32(factor)
    scaled = case.config | {"scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": whole}
    models = []
    for folder, config, held in (("a", scaled, tensors), ("b", case.config, plain)):
        (tmp_path / folder).mkdir()
        models.append(load(write_folder(tmp_path / folder, config, held)))
    for logits in (pass_logits, step_logits):
        for found, expected in zip(*(logits(model, case) for model in models)):
            np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def stack_of(name: str, **changes: object):
    config = JsonObject({**CASES[name].config, **changes}, "config.json")
    absent = {field: value for field, value in config.values.items() if value is not ...}
    return find_decoder(config).spec(JsonObject(absent, "config.json"))


def test_an_odd_rotary_width_turns_one_dimension_more() -> None:
    """By the exponents of the odd width: 9 dimensions of 16 have the frequencies base^(-2i / 9) of 5 pairs."""
    stack = stack_of("gpt_neox-0", hidden_size=32, num_attention_heads=2, rotary_pct=0.6, rotary_emb_base=10_000)
    rotary = stack.positions.rotary
    assert rotary.width == 10
    i = np.arange(5)
    np.testing.assert_allclose(rotary.base ** (-2 * i / 10), 10_000.0 ** (-2 * i / 9), rtol=1e-12)
    assert stack_of("gpt_neox-0", hidden_size=32, num_attention_heads=2, rotary_pct=0.5).positions.rotary == Rotary(
        8, 10_000.0, interleaved=False
    )


@pytest.mark.parametrize(
    "name, positions",
    {"llama-0": 2048, "gpt_neox-0": 2048, "gemma2-0": 8192, "gemma3_text-0": 131_072, "phi3-0": 4096}.items(),
)
def test_a_length_that_is_not_stated_is_transformers(name: str, positions: int) -> None:
    assert stack_of(name, max_position_embeddings=...).max_positions == positions


def test_a_generation_config_without_an_end_has_none(tmp_path: Path) -> None:
    """Whatever config.json says, as in transformers; config.json counts where there is no such file."""
    case = CASES["llama-0"]
    write_folder(tmp_path, case.config | {"eos_token_id": 2}, draw_all(read_goldens(case)[0], case.seed))
    found = [read(tmp_path).text.end_ids]
    for generation in ({}, {"eos_token_id": None}, {"eos_token_id": 7}, {"eos_token_id": [7, 2]}):
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
        found.append(read(tmp_path).text.end_ids)
    assert found == [(2,), (), (), (7,), (7, 2)]
