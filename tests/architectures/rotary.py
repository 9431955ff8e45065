"""Cases of encoders with rotary positions."""

from tests.architectures.case import LONG, VOCABULARY, Case, three

MODERNBERT_CONFIG = {
    "architectures": ["ModernBertForMaskedLM"], "model_type": "modernbert", "num_hidden_layers": 5,
    "hidden_activation": "gelu", "max_position_embeddings": 200, "norm_eps": 1e-5, "norm_bias": False,
    "attention_bias": False, "mlp_bias": False, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
    "local_attention": 8, "local_rope_theta": 10000.0, "position_embedding_type": "absolute", "layer_norm_eps": 1e-5,
    "classifier_pooling": "mean", "decoder_bias": True, "classifier_bias": False, "classifier_activation": "gelu",
    "bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3, "pad_token_id": 0,
}  # fmt: skip
MODERNBERT = three(
    "modernbert",
    MODERNBERT_CONFIG,
    {},
    {"num_hidden_layers": 1, "norm_bias": True, "attention_bias": True, "mlp_bias": True},
    {"hidden_size": 20, "num_attention_heads": 2, "global_attn_every_n_layers": 2, "local_attention": 128},
    {"rope_scaling": {"rope_type": "linear", "factor": 4.0}, "local_attention": 7},
    {"partial_rotary_factor": 0.5, "hidden_activation": "mish"},
    lengths={0: (1, 2, 13, 61), 2: LONG},
    golden=(0, 1, 3, 4),
)

NOMIC_CONFIG = {
    "architectures": ["NomicBertModel"], "model_type": "nomic_bert", "hidden_act": "silu",
    "max_position_embeddings": 200, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}, "pad_token_id": 0,
}  # fmt: skip
NOMIC = three(
    "nomic",
    NOMIC_CONFIG,
    {},
    {"hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2, "layer_norm_eps": 1e-5},
    {"hidden_size": 22, "num_attention_heads": 11, "rope_parameters": {"rope_type": "default", "rope_theta": 77.0}},
    {},
    lengths={1: LONG},
    types=(3,),
)
# nomic-embed-text-v1.5's own: remote code, named after GPT-2.
NOMIC_GPT2_NAMES_CONFIG = {
    "activation_function": "swiglu", "architectures": ["NomicBertModel"], "attn_pdrop": 0.0,
    "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"}, "causal": False,
    "dense_seq_output": True, "embd_pdrop": 0.0, "fused_bias_fc": True, "fused_dropout_add_ln": True,
    "initializer_range": 0.02, "layer_norm_epsilon": 1e-12, "max_trained_positions": 2048, "mlp_fc1_bias": False,
    "mlp_fc2_bias": False, "model_type": "nomic_bert", "n_embd": 36, "n_head": 3, "n_inner": 53, "n_layer": 3,
    "n_positions": 200, "pad_vocab_size_multiple": 1, "parallel_block": False, "parallel_block_tied_norm": False,
    "prenorm": False, "qkv_proj_bias": False, "reorder_and_upcast_attn": False, "resid_pdrop": 0.0,
    "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None, "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True,
    "summary_activation": None, "type_vocab_size": 2, "use_cache": True, "use_flash_attn": True, "use_rms_norm": False,
    "use_xentropy": True, "vocab_size": VOCABULARY,
}  # fmt: skip
NOMIC_GPT2_NAMES = [
    Case("nomic-gpt2-names-0", NOMIC_GPT2_NAMES_CONFIG, golden=True),
    Case(
        "nomic-gpt2-names-1", NOMIC_GPT2_NAMES_CONFIG | {"n_embd": 20, "n_layer": 1, "n_head": 2}, lengths=LONG, seed=1
    ),
]

# gte-base-en-v1.5 and its like: remote code; transformers has the same architecture as "gte".
NEW_CONFIG = {
    "architectures": ["NewModel"],
    "auto_map": {"AutoConfig": "configuration.NewConfig", "AutoModel": "modeling.NewModel"}, "model_type": "new",
    "hidden_act": "gelu", "max_position_embeddings": 200, "type_vocab_size": 0, "layer_norm_type": "layer_norm",
    "layer_norm_eps": 1e-12, "logn_attention_clip1": False, "logn_attention_scale": False, "pack_qkv": True,
    "pad_token_id": 0, "position_embedding_type": "rope", "rope_scaling": {"factor": 2.0, "type": "ntk"},
    "rope_theta": 500000, "unpad_inputs": False, "use_memory_efficient_attention": False,
}  # fmt: skip
NEW = three(
    "new",
    NEW_CONFIG,
    {},
    {"hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2, "type_vocab_size": 1, "rope_scaling": None},
    {
        "hidden_size": 22,
        "num_attention_heads": 11,
        "rope_theta": 160000,
        "rope_scaling": {"factor": 8.0, "type": "ntk"},
    },
    {"type_vocab_size": 2},
    lengths={1: LONG},
    types=(3,),
    golden=(0, 1),
)
GTE = three(
    "gte",
    {
        "architectures": ["GteModel"],
        "model_type": "gte",
        "hidden_act": "gelu",
        "max_position_embeddings": 200,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-12,
        "rope_parameters": {"rope_type": "default", "rope_theta": 160000.0},
        "pad_token_id": 1,
    },
    {},
    {"hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2, "type_vocab_size": 0},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 20000.0}},
    lengths={2: LONG},
)

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 60,
}
YARN = {
    "type": "yarn", "factor": 3.0, "original_max_position_embeddings": 40, "beta_fast": 6, "beta_slow": 0.5,
    "mscale": 1.2, "mscale_all_dim": 0.7, "truncate": False,
}  # fmt: skip
QWEN3_CONFIG = {
    "architectures": ["Qwen3Model"], "model_type": "qwen3", "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 10, "hidden_act": "silu", "max_position_embeddings": 200, "max_window_layers": 3, "rms_norm_eps": 1e-6,
    "rope_scaling": None, "rope_theta": 1000000, "attention_bias": False, "sliding_window": None,
    "use_sliding_window": False, "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
QWEN3 = three(
    "qwen3",
    QWEN3_CONFIG,
    {},
    {"hidden_size": 21, "num_hidden_layers": 1, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 14},
    {"num_key_value_heads": 4, "attention_bias": True, "tie_word_embeddings": False, "rope_theta": 10000},
    {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    {"is_causal": False, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 50}, "rope_theta": 9e3},
    {"rope_parameters": LLAMA3, "rope_scaling": None},
    {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}, "hidden_act": "relu2"},
    {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.4}, "rope_scaling": None, "hidden_act": "mish"},
    {"rope_scaling": YARN, "original_max_position_embeddings": 64, "rope_theta": 100.0},
    lengths={1: LONG},
    golden=(0, 3, 4, 5, 6, 7, 8, 9, 10),
)
QWEN2_CONFIG = {name: value for name, value in QWEN3_CONFIG.items() if name not in ("head_dim", "attention_bias")}
QWEN2 = three(
    "qwen2",
    QWEN2_CONFIG | {"architectures": ["Qwen2Model"], "model_type": "qwen2", "hidden_size": 40},
    {},
    {"hidden_size": 18, "num_hidden_layers": 1, "num_attention_heads": 3, "num_key_value_heads": 1},
    {"num_key_value_heads": 4, "tie_word_embeddings": False, "rope_theta": 10000},
    {"is_causal": False},  # gte-Qwen2
    lengths={1: LONG},
    golden=(0, 3),
)

STRETCHED = {"factor": 6.0, "low_freq_factor": 1.0, "high_freq_factor": 2.0, "original_max_position_embeddings": 30}
GEMMA3_CONFIG = {
    "architectures": ["Gemma3TextModel"], "model_type": "gemma3_text", "_sliding_window_pattern": 3,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 14,
    "hidden_activation": "gelu_pytorch_tanh",
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
    "max_position_embeddings": 200, "query_pre_attn_scalar": 21, "rms_norm_eps": 1e-6, "rope_local_base_freq": 10000.0,
    "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": 9, "attention_bias": False,
    "attn_logit_softcapping": None, "final_logit_softcapping": None, "use_bidirectional_attention": True,
    "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip
GEMMA3 = three(
    "gemma3",
    GEMMA3_CONFIG,
    {},
    {"num_hidden_layers": 1, "layer_types": ["full_attention"], "num_key_value_heads": 1, "hidden_size": 20},
    {"num_key_value_heads": 4, "sliding_window": 12, "hidden_size": 28},
    {"use_bidirectional_attention": False, "sliding_window": 6, "attention_bias": True},
    {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},  # of the global layers alone
    {"layer_types": None, "sliding_window_pattern": 2},
    {"rope_scaling": {"rope_type": "llama3", "rope_theta": 200.0} | STRETCHED},  # likewise
    {"rope_parameters": {"full_attention": {"rope_type": "yarn"} | STRETCHED}, "partial_rotary_factor": 1.0},
    {"rope_parameters": {"rope_type": "linear", "rope_theta": 55.0, "factor": 3.0}},  # of no type of layers: not read
    lengths={1: LONG},
    golden=(0, 2, 4, 5, 6, 7),
)
