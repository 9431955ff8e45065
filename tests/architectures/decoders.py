"""Small decoders of every architecture, as ``case.py`` has encoders; their files hold a projection too."""

from dataclasses import replace
from typing import Any

from tests.architectures.case import Case, three

TASK = "decoder"
IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
GROUPED = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10}
ONE = {"hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 4}
LIMIT = 240
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 60,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 50}


def _three(
    kind: str, published: dict[str, Any], *changes: dict[str, Any], golden: tuple[int, ...] = (0,)
) -> list[Case]:
    """The cases of a model type; ``published`` has its class."""
    common = {"model_type": kind, "max_position_embeddings": LIMIT, **IDS}
    return [replace(case, task=TASK) for case in three(kind, common | published, *changes, golden=golden)]


def _without(case: Case, *names: str) -> Case:
    return replace(case, config={name: value for name, value in case.config.items() if name not in names})


GPT2 = [
    _without(
        case, "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings"
    )
    for case in _three(
        "gpt2",
        {"architectures": ["GPT2LMHeadModel"], "n_embd": 36, "n_layer": 3, "n_head": 3, "n_positions": LIMIT},
        {},
        {"n_embd": 33, "n_layer": 1, "n_head": 11, "n_inner": 20, "tie_word_embeddings": False},
        {"n_embd": 20, "n_head": 1, "activation_function": "relu", "layer_norm_epsilon": 1e-3},
    )
]
GPT_NEOX = _three(
    "gpt_neox",
    {
        "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 48, "rotary_pct": 0.25, "rotary_emb_base": 10000,
        "hidden_act": "gelu", "layer_norm_eps": 1e-5, "use_parallel_residual": True, "tie_word_embeddings": False,
    },
    {},
    {"num_attention_heads": 1, "num_hidden_layers": 1, "use_parallel_residual": False, "tie_word_embeddings": True},
    {"hidden_size": 36, "rotary_pct": 0.5, "rope_scaling": {"type": "linear", "factor": 2.0}, "attention_bias": False},
    golden=(0, 2),
)  # fmt: skip
LLAMA_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "rope_scaling": None, "pretraining_tp": 1,
}  # fmt: skip
LLAMA = _three(
    "llama",
    LLAMA_CONFIG,
    {},
    GROUPED | {"rope_scaling": LLAMA3, "rope_theta": 500.0, "attention_bias": True},
    ONE | {"tie_word_embeddings": True, "mlp_bias": True},
    golden=(0, 1, 2),
)
MISTRAL = _three(
    "mistral",
    {"architectures": ["MistralForCausalLM"], "rms_norm_eps": 1e-5, "sliding_window": 9, "tie_word_embeddings": False},
    GROUPED,
    ONE | {"sliding_window": None, "tie_word_embeddings": True},
    {"num_attention_heads": 6, "num_key_value_heads": 3, "sliding_window": 2},
)
QWEN2 = _three(
    "qwen2",
    {"architectures": ["Qwen2ForCausalLM"], "hidden_size": 40, "num_attention_heads": 4, "tie_word_embeddings": True},
    {"num_key_value_heads": 2},
    {"num_key_value_heads": 1, "num_hidden_layers": 1, "tie_word_embeddings": False},
    {"num_key_value_heads": 4, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
)
QWEN3 = _three(
    "qwen3",
    {"architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": True},
    GROUPED,
    ONE | {"attention_bias": True, "tie_word_embeddings": False},
    GROUPED | {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1, "rope_scaling": YARN},
)
GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6, "sliding_window": 9}
GEMMA2 = _three(
    "gemma2",
    GEMMA | GROUPED | {"architectures": ["Gemma2ForCausalLM"], "query_pre_attn_scalar": 21},
    {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 20.0},
    ONE | {"tie_word_embeddings": False},
    {"attn_logit_softcapping": None, "final_logit_softcapping": None, "attention_bias": True, "sliding_window": 20},
)
GEMMA3_LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]
GEMMA3 = _three(
    "gemma3_text",
    GEMMA | GROUPED | {"architectures": ["Gemma3ForCausalLM"], "query_pre_attn_scalar": 21},
    {"layer_types": GEMMA3_LAYERS, "rope_local_base_freq": 5000.0, "rope_theta": 70000.0},
    ONE | {"final_logit_softcapping": 8.0, "tie_word_embeddings": False},
    {"num_hidden_layers": 7, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
)
HUNYUAN = _three(
    "hunyuan_v1_dense",
    {"architectures": ["HunYuanDenseV1ForCausalLM"], "tie_word_embeddings": True, "use_cla": False},
    GROUPED | {"rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}},
    ONE | {"tie_word_embeddings": False},
    GROUPED
    | {"attention_bias": True, "rope_scaling": {"type": "dynamic", "alpha": 3.5, "factor": 1.0}, "rope_theta": 500.0},
)
OLMO2 = _three(
    "olmo2",
    {"architectures": ["Olmo2ForCausalLM"], "tie_word_embeddings": False, "num_attention_heads": 6},
    {"num_key_value_heads": 2},
    {"hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 5, "tie_word_embeddings": True},
    {"attention_bias": True, "rope_scaling": {"rope_type": "linear", "factor": 3.0}, "rms_norm_eps": 1e-3},
)
PHI3 = _three(
    "phi3",
    {"architectures": ["Phi3ForCausalLM"], "hidden_size": 48, "num_attention_heads": 4, "tie_word_embeddings": False},
    {"num_key_value_heads": 2, "original_max_position_embeddings": LIMIT},
    {"num_hidden_layers": 1, "sliding_window": 7, "tie_word_embeddings": True},
    {"partial_rotary_factor": 0.5, "rope_theta": 700.0},
)
# LongRoPE within the length of training, as Phi-3 mini's and, with a part of a head, Phi-4 mini's files have it
LONG = {"type": "longrope", "long_factor": [4.0] * 6, "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 3.0]}
PHI3_LONG = [
    replace(case, name=case.name.replace("-", "-long-"))
    for case in _three(
        "phi3",
        PHI3[0].config | {"original_max_position_embeddings": 120, "rope_scaling": LONG},
        {},
        {"original_max_position_embeddings": 200, "rope_scaling": LONG | {"type": "su", "attention_factor": 1.5}},
        {"partial_rotary_factor": 0.5, "rope_scaling": LONG | {"long_factor": [4] * 3, "short_factor": [1.0, 1.5, 2]}},
        golden=(0, 2),
    )
]
SMOLLM3 = _three(
    "smollm3",
    {"architectures": ["SmolLM3ForCausalLM"], "num_attention_heads": 6, "num_key_value_heads": 2},
    {"num_hidden_layers": 5},
    {"num_hidden_layers": 1, "num_key_value_heads": 6, "attention_bias": True, "tie_word_embeddings": False},
    {"no_rope_layers": [0, 1, 0], "use_sliding_window": True, "sliding_window": 6, "mlp_bias": True},
    golden=(0, 2),
)
DECODER_CASES: list[Case] = [
    *GPT2, *GPT_NEOX, *LLAMA, *MISTRAL, *QWEN2, *QWEN3, *GEMMA2, *GEMMA3, *HUNYUAN, *OLMO2, *PHI3, *PHI3_LONG, *SMOLLM3,
]  # fmt: skip
GOLDEN_DECODERS = [case for case in DECODER_CASES if case.golden]
