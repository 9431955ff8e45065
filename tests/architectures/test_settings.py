"""Settings of published configurations that change what is computed, without transformers to compare with."""

from pathlib import Path
from typing import Any

from fastattn.spec.architecture import StackSpec
from fastattn.weights import read
from tests.architectures.cases import GOLDEN_CASES
from tests.architectures.goldens import write_golden


def stack_of(name: str, change: dict[str, Any], folder: Path) -> StackSpec:
    case = next(case for case in GOLDEN_CASES if case.name == name)
    write_golden(case, folder, change)
    encoder = read(folder).spec.encoder
    assert encoder is not None
    return encoder


def test_qwen_looks_both_ways_where_its_settings_say_so(tmp_path: Path) -> None:
    for change, causal in (
        ({}, True),
        ({"is_causal": False}, False),
        ({"is_causal": False, "auto_map": {"AutoModel": "code.Model"}}, False),
    ):
        assert stack_of("qwen2-0", change, tmp_path).causal is causal


def test_mpnets_positions_start_at_2_whatever_the_padding_id(tmp_path: Path) -> None:
    usual = stack_of("mpnet-0", {}, tmp_path)
    assert stack_of("mpnet-0", {"pad_token_id": 0}, tmp_path) == usual


def test_rotary_settings_under_both_their_names_are_read_where_they_agree(tmp_path: Path) -> None:
    both = {"rope_type": "linear", "factor": 2.0, "rope_theta": 77.0}
    positions = stack_of("qwen3-0", {"rope_scaling": both, "rope_parameters": both}, tmp_path).positions
    assert positions.rotary is not None and (positions.rotary.scale, positions.rotary.base) == (2.0, 77.0)


def test_nomics_own_names_have_defaults(tmp_path: Path) -> None:
    left_out = {"rotary_emb_base": None, "layer_norm_epsilon": None}
    stack = stack_of("nomic-gpt2-names-0", left_out, tmp_path)
    assert stack.positions.rotary is not None
    assert (stack.positions.rotary.base, stack.norms.epsilon) == (10_000.0, 1e-12)
