"""Small decoders of every architecture, as ``cases.py`` has encoders; their files hold a projection too."""

from dataclasses import replace
from typing import Any

from tests.architectures.case import SIZES, Case, three

TASK = "decoder"
GROUPED = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10}
ONE = {"hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 4}
OLD_LINEAR = {"type": "linear", "factor": 2.0}
TIED, UNTIED = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}
LIMIT = 240
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 60,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 50}


def _three(
    kind: str, architecture: str, published: dict[str, Any], *changes: dict[str, Any], **rest: Any
) -> list[Case]:
    """The cases of a model type."""
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "vocab_size": SIZES["vocab_size"]}
    common = {"architectures": [architecture], "model_type": kind} | ids
    if kind != "gpt2":  # which has other names
        common = SIZES | common | {"max_position_embeddings": LIMIT}
    return three(kind, common | published, *changes, sizes={}, task=TASK, **rest)


def _rotary(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_scaling": {"rope_type": kind, **more}}


def _dynamic(alpha: float) -> dict[str, Any]:
    return {"rope_scaling": {"type": "dynamic", "alpha": alpha, "factor": 1.0}}


GEMMA = GROUPED | {
    "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6, "sliding_window": 9, "query_pre_attn_scalar": 21,
}  # fmt: skip
GEMMA2 = _three(
    "gemma2", "Gemma2ForCausalLM", GEMMA,
    {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 20.0},
    ONE | UNTIED,
    {"attn_logit_softcapping": None, "final_logit_softcapping": None, "attention_bias": True, "sliding_window": 20},
)  # fmt: skip
PHI3 = {"hidden_size": 48, "num_attention_heads": 4} | UNTIED
# LongRoPE within the length of training, as Phi-3 mini's and, with a part of a head, Phi-4 mini's files have it
LONG = {"type": "longrope", "long_factor": [4.0] * 6, "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 3.0]}
SHORT = {"long_factor": [4] * 3, "short_factor": [1.0, 1.5, 2]}
PHI3_LONG = PHI3 | {"num_key_value_heads": 2, "original_max_position_embeddings": 120, "rope_scaling": LONG}
DECODER_CASES: list[Case] = [
    *_three(
        "gpt2", "GPT2LMHeadModel", {"n_embd": 36, "n_layer": 3, "n_head": 3, "n_positions": LIMIT}, {},
        {"n_embd": 33, "n_layer": 1, "n_head": 11, "n_inner": 20} | UNTIED,
        {"n_embd": 20, "n_head": 1, "activation_function": "relu", "layer_norm_epsilon": 1e-3},
    ),
    *_three(
        "gpt_neox", "GPTNeoXForCausalLM", UNTIED | {
            "hidden_size": 48, "rotary_pct": 0.25, "rotary_emb_base": 10000, "hidden_act": "gelu",
            "layer_norm_eps": 1e-5, "use_parallel_residual": True,
        }, {}, TIED | {"num_attention_heads": 1, "num_hidden_layers": 1, "use_parallel_residual": False},
        {"hidden_size": 36, "rotary_pct": 0.5, "attention_bias": False, "rope_scaling": OLD_LINEAR},
        golden=(0, 2),
    ),
    *_three(
        "llama", "LlamaForCausalLM", UNTIED | {
            "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "attention_bias": False,
            "mlp_bias": False, "rope_scaling": None, "pretraining_tp": 1,
        }, {}, GROUPED | {"rope_scaling": LLAMA3, "rope_theta": 500.0, "attention_bias": True},
        ONE | TIED | {"mlp_bias": True}, golden=(0, 1, 2),
    ),
    *_three(
        "mistral", "MistralForCausalLM", UNTIED | {"rms_norm_eps": 1e-5, "sliding_window": 9}, GROUPED,
        ONE | TIED | {"sliding_window": None},
        {"num_attention_heads": 6, "num_key_value_heads": 3, "sliding_window": 2},
    ),
    *_three(
        "qwen2", "Qwen2ForCausalLM", TIED | {"hidden_size": 40, "num_attention_heads": 4}, {"num_key_value_heads": 2},
        UNTIED | {"num_key_value_heads": 1, "num_hidden_layers": 1},
        {"num_key_value_heads": 4, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    *_three(
        "qwen3", "Qwen3ForCausalLM", TIED, GROUPED, ONE | UNTIED | {"attention_bias": True},
        GROUPED | {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1, "rope_scaling": YARN},
    ),
    *GEMMA2,
    *_three(
        "gemma3_text", "Gemma3ForCausalLM", GEMMA, {
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_local_base_freq": 5000.0, "rope_theta": 70000.0,
        }, ONE | UNTIED | {"final_logit_softcapping": 8.0}, {"num_hidden_layers": 7} | _rotary("linear", factor=8.0),
    ),
    *_three(
        "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", TIED | {"use_cla": False}, GROUPED | _dynamic(1000.0),
        ONE | UNTIED, GROUPED | _dynamic(3.5) | {"attention_bias": True, "rope_theta": 500.0},
    ),
    *_three(
        "olmo2", "Olmo2ForCausalLM", UNTIED | {"num_attention_heads": 6}, {"num_key_value_heads": 2},
        TIED | {"hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 5},
        _rotary("linear", factor=3.0) | {"attention_bias": True, "rms_norm_eps": 1e-3},
    ),
    *_three(
        "phi3", "Phi3ForCausalLM", PHI3, {"num_key_value_heads": 2, "original_max_position_embeddings": LIMIT},
        TIED | {"num_hidden_layers": 1, "sliding_window": 7}, {"partial_rotary_factor": 0.5, "rope_theta": 700.0},
    ),
    *(
        replace(case, name=case.name.replace("-", "-long-"))
        for case in _three(
            "phi3", "Phi3ForCausalLM", PHI3_LONG, {},
            {"original_max_position_embeddings": 200, "rope_scaling": LONG | {"type": "su", "attention_factor": 1.5}},
            {"partial_rotary_factor": 0.5, "rope_scaling": LONG | SHORT}, golden=(0, 2),
        )
    ),
    *_three(
        "smollm3", "SmolLM3ForCausalLM", {"num_attention_heads": 6, "num_key_value_heads": 2},
        {"num_hidden_layers": 5}, UNTIED | {"num_hidden_layers": 1, "num_key_value_heads": 6, "attention_bias": True},
        {"no_rope_layers": [0, 1, 0], "use_sliding_window": True, "sliding_window": 6, "mlp_bias": True},
        golden=(0, 2),
    ),
]  # fmt: skip
GOLDEN_DECODERS = [case for case in DECODER_CASES if case.golden]
