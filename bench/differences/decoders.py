"""Language models of transformers: the log-probabilities of random tokens."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

import fastattn
from bench.differences import Case, difference
from bench.differences.folders import ABSENT, EDITS, FILES, VOCABULARY, config_of, loaded, write_model, write_tokenizer

SIZES = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
SIZES |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
GPT2 |= {"bos_token_id": 1, "eos_token_id": 2}
OWN_SIZES = {"gpt2": GPT2, "hunyuan_v1_dense": SIZES | {"head_dim": 8}}
ACTIVATIONS = ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "quick_gelu", "relu2", "tanh", "mish", "sigmoid"]
BASE = {"rope_theta": 1e4}
ROPES: list[dict[str, Any]] = [
    {"rope_type": "default", "rope_theta": 500.0},
    {"rope_type": "linear", "factor": 2.5, **BASE},
    {"rope_type": "dynamic", "factor": 2.0, **BASE},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, **BASE},
    {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16, "beta_slow": 2, "attention_factor": 1.3, **BASE},
    {"rope_type": "yarn", "factor": 3.0, "mscale": 0.7, "mscale_all_dim": 0.4, "truncate": False, **BASE},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **BASE}
    | {"original_max_position_embeddings": 16},
]
LLAMA = {
    "num_key_value_heads": [1, 4],
    "head_dim": [6, 16],
    "hidden_act": ACTIVATIONS,
    "rms_norm_eps": [1e-3],
    "tie_word_embeddings": [True, False],
    "rope_parameters": ROPES,
    EDITS + "tie_word_embeddings": [ABSENT, True, False],
    EDITS + "max_position_embeddings": [ABSENT],
    **FILES,
}
BIASES = {"attention_bias": [True], "mlp_bias": [True]}
WINDOW = {"sliding_window": [5, None]}
GEMMA = {"query_pre_attn_scalar": [16, 100], "sliding_window": [6], "final_logit_softcapping": [5.0, None]}
GEMMA |= {"hidden_activation": ACTIVATIONS, "layer_types": [["full_attention"] * 2, ["sliding_attention"] * 2]}
CHOICES: dict[str, dict[str, list[Any]]] = {
    "llama": LLAMA | BIASES,
    "mistral": LLAMA | WINDOW,
    "qwen2": LLAMA | {"use_sliding_window": [True], "sliding_window": [4], "max_window_layers": [0, 1]},
    "qwen3": LLAMA | {"attention_bias": [True], "use_sliding_window": [True], "sliding_window": [4]},
    "smollm3": LLAMA | BIASES | {"no_rope_layers": [[1, 0], [0, 0]], "no_rope_layer_interval": [2, 1]},
    "olmo2": LLAMA | {"attention_bias": [True]},
    "hunyuan_v1_dense": LLAMA | {"attention_bias": [True]},
    "phi3": LLAMA | WINDOW | {"partial_rotary_factor": [0.5, 1.0]},
    "gemma2": LLAMA | GEMMA | {"attn_logit_softcapping": [3.0, None]},
    "gemma3_text": LLAMA | GEMMA,
    "gpt2": {
        "n_inner": [40], "activation_function": ACTIVATIONS, "layer_norm_epsilon": [1e-3],
        "tie_word_embeddings": [False],
        "scale_attn_weights": [False], "scale_attn_by_inverse_layer_idx": [True], "reorder_and_upcast_attn": [True],
        **FILES,
    },
    "gpt_neox": {
        "rotary_pct": [0.5, 1.0, 0.3, 0.15], "use_parallel_residual": [False], "attention_bias": [False],
        "hidden_act": ACTIVATIONS, "layer_norm_eps": [1e-3], "tie_word_embeddings": [True],
        EDITS + "max_position_embeddings": [ABSENT], **FILES,
    },
}  # fmt: skip


def compare(case: Case, folder: Path) -> str:
    config = config_of(case, OWN_SIZES.get(case.base, SIZES))
    write_model(case, folder, config, AutoModelForCausalLM)
    write_tokenizer(folder, "<s> $A", "<s> $A $B")
    theirs = loaded(AutoModelForCausalLM, folder)
    texts = [case.rng.integers(5, VOCABULARY, length) for length in (2, 11, 40)]
    results = fastattn.Generator(folder, precision="float32", threads=1).score(texts, special_tokens=False)
    return next(filter(None, (_difference(theirs, text, result.log_probs) for text, result in zip(texts, results))), "")


@torch.no_grad()
def _difference(theirs: Any, text: np.ndarray, ours: np.ndarray) -> str:
    ids = torch.from_numpy(text)[None]
    logits = theirs(ids).logits[0].double()
    expected = logits.log_softmax(-1)[range(len(text) - 1), ids[0, 1:]]
    return difference("log-probability", ours, expected, 1e-4 * max(1.0, float(logits.abs().max())))
