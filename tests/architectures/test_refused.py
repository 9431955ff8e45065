"""Configurations that would be computed otherwise than their authors do: one line says which setting it is."""

import math
from pathlib import Path
from typing import Any

from fastattn.weights import read
from tests.architectures.cases import GOLDEN_CASES
from tests.architectures.goldens import write_golden
from tests.weights.refusals import refusal

HUGE = 10**400
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("bert-0", {"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key'"),
    ("bert-0", {"is_decoder": True}, "is_decoder True"),
    ("bert-0", {"hidden_act": "leaky_relu"}, "hidden_act should be one of"),
    ("bert-0", {"num_attention_heads": 5}, "hidden_size 36 is not a multiple of num_attention_heads 5"),
    ("gemma3-0", {"use_bidirectional_attention": False, "is_causal": False}, "is_causal False"),
    ("qwen3-0", {"auto_map": {"AutoModel": "code.Model"}}, "auto_map names code of the model's own"),
    (
        "qwen3-0",
        {"rope_parameters": {"rope_theta": 1e6}, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        "rope_parameters and rope_scaling are both there, and differ",
    ),
    ("nomic-gpt2-names-0", {"rotary_emb_scale_base": 512}, "rotary_emb_scale_base 512"),
    ("nomic-gpt2-names-0", {"scale_attn_weights": False}, "scale_attn_weights False"),
    ("nomic-gpt2-names-0", {"moe_every_n_layers": 2}, "moe_every_n_layers 2"),
    ("mpnet-0", {"relative_attention_num_buckets": 40}, "relative_attention_num_buckets 40"),
    ("modernbert-0", {"layer_types": ["full_attention"]}, "layer_types should be"),
    ("modernbert-0", {"rope_scaling": {"type": "longrope", "factor": 2.0}}, "type should be one of default, linear"),
    ("nomic-gpt2-names-0", {"rotary_emb_interleaved": True}, "rotary_emb_interleaved True"),
    ("nomic-gpt2-names-0", {"rotary_emb_fraction": 0.5}, "rotary_emb_fraction 0.5"),
    ("nomic-gpt2-names-0", {"prenorm": True}, "prenorm True"),
    ("nomic-gpt2-names-0", {"activation_function": "relu"}, "activation_function should be one of"),
    ("new-0", {"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.6}}, "mixed_b 0.6"),
    ("new-0", {"rope_scaling": {"type": "ntk", "factor": 0}}, "factor should be above zero"),
    ("new-0", {"logn_attention_scale": True}, "logn_attention_scale True"),
    ("new-0", {"layer_norm_type": "rms_norm"}, "layer_norm_type 'rms_norm'"),
    ("jina-0", {"feed_forward_type": "swiglu"}, "feed_forward_type should be one of"),
    (
        "jina-0",
        {"auto_map": {"AutoModel": "jinaai/jina-bert-v2-qk-post-norm--modeling_bert.JinaBertModel"}},
        "not supported: norms of queries and keys, by 'jinaai/jina-bert-v2-qk-post-norm",
    ),
    ("qwen3-0", {"rope_scaling": {"rope_type": "su", "factor": 4.0}}, "rope_type should be one of default, linear"),
    ("qwen3-0", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor is missing"),
    ("qwen3-0", {"rope_scaling": {"rope_type": "yarn", "factor": 0}}, "numbers above zero and below 1e30"),
    ("qwen3-0", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 0.5}}, "turns 1 and 0.5"),
    ("qwen3-0", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}, "rope_theta": 1.0}, "a base above 1"),
    (
        "qwen3-0",
        {"rope_scaling": {"rope_type": "yarn", "factor": math.e**10, "mscale": 1.0, "mscale_all_dim": -1.0}},
        "size 0",
    ),
    (
        "qwen3-0",
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}},
        "partial_rotary_factor should be 1 with rope_type linear",
    ),
    ("qwen3-0", {"head_dim": 9}, "heads of an even width, got 9"),
    ("qwen3-0", {"use_bidirectional_attention": True}, "use_bidirectional_attention True"),
    ("gemma3-0", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping 50.0"),
    ("gemma3-0", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar should be above zero"),
    ("bert-0", {"type_vocab_size": 17}, "token_types should be at most 16, is 17"),
    ("t5-0", {"relative_attention_max_distance": HUGE}, "max_distance should be at most"),
    ("gemma3-0", {"hidden_size": HUGE}, "hidden_size should be at most"),
    ("gemma3-0", {"query_pre_attn_scalar": 1e-320}, "the scores' scale should be below 1e30"),
    ("gemma3-0", {"sliding_window": HUGE}, "local layers should reach at most"),
    ("gemma3-0", {"rope_scaling": {"type": "linear", "factor": 1e-320}}, "a base and a scale above zero"),
    ("modernbert-0", {"local_attention": HUGE}, "local layers should reach at most"),
    ("qwen3-0", {"head_dim": HUGE}, "head_dim should be at most"),
    ("nomic-gpt2-names-0", {"rotary_emb_base": -3}, "a base and a scale above zero"),
    ("t5-0", {"feed_forward_proj": "gated-prelu"}, "feed_forward_proj should be one of"),
]


def test_a_setting_that_is_not_followed_is_named(tmp_path: Path) -> None:
    for name, change, message in REFUSED:
        case = next(case for case in GOLDEN_CASES if case.name == name)
        write_golden(case, tmp_path, change)
        assert message in refusal(tmp_path, names_path=False)


def test_nomics_scaled_rotary_positions_end_where_scaling_would_begin(tmp_path: Path) -> None:
    case = next(case for case in GOLDEN_CASES if case.name == "nomic-gpt2-names-0")
    write_golden(case, tmp_path, {"rotary_scaling_factor": 2, "max_trained_positions": 50})
    encoder = read(tmp_path).spec.encoder
    assert encoder is not None and encoder.positions.limit == 50
