"""Encoders of transformers: the pooled last hidden states of random texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import fastattn
from bench.differences import Case, difference
from bench.differences.decoders import ACTIVATIONS, LLAMA, ROPES
from bench.differences.folders import EDITS, FILES, VOCABULARY, config_of, loaded, write_model, write_tokenizer

SIZES = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1}
SIZES |= {"eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
# For model types with settings of other names.
OWN_SIZES: dict[str, dict[str, Any]] = {
    "distilbert": {"vocab_size": VOCABULARY, "dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4}
    | {"pad_token_id": 0, "max_position_embeddings": 64},
    "albert": SIZES | {"embedding_size": 16},
    **dict.fromkeys(
        ("t5", "mt5", "umt5"),
        {"vocab_size": VOCABULARY, "d_model": 32, "d_ff": 48, "num_layers": 2, "num_heads": 4, "d_kv": 8}
        | {"pad_token_id": 0, "eos_token_id": 2, "relative_attention_num_buckets": 8},
    ),
}
FILE = {name: values for name, values in FILES.items() if name in ("container", "stored")}
BERT = {"hidden_act": ACTIVATIONS, "layer_norm_eps": [1e-3, 1e-12], "type_vocab_size": [1, 2], **FILE}
BERT |= {"num_attention_heads": [2, 8], "max_position_embeddings": [40, 48], EDITS + "layer_norm_eps": [1e-5]}
ROTARY = {"rope_parameters": ROPES}
T5 = {"feed_forward_proj": ["relu", "gated-gelu", "gated-silu", "gelu"], "relative_attention_max_distance": [10, 16, 8]}
T5 |= {"relative_attention_num_buckets": [4, 6, 32], "layer_norm_epsilon": [1e-3], "d_kv": [6, 16], **FILE}
CHOICES: dict[str, dict[str, list[Any]]] = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert"), BERT),
    "electra": BERT | {"embedding_size": [16, 32]},
    "distilbert": {"activation": ["gelu", "relu"], "sinusoidal_pos_embds": [True], **FILE},
    "albert": BERT | {"embedding_size": [8, 32], "num_hidden_groups": [2], "inner_group_num": [2]},
    "mpnet": BERT,
    "deberta-v2": BERT
    | {"relative_attention": [True, False], "pos_att_type": [["c2p"], ["p2c"], ["p2c", "c2p"], "c2p|p2c", []]}
    | {"position_buckets": [8, 16, -1], "position_biased_input": [False], "share_att_key": [True, False]}
    | {"norm_rel_ebd": ["layer_norm", "none"], "max_relative_positions": [12, 64, -1], "conv_kernel_size": [3]}
    | {"embedding_size": [16], "type_vocab_size": [0, 2], "conv_act": ["gelu", "tanh"]},
    "modernbert": FILE
    | {"hidden_activation": ACTIVATIONS, "global_attn_every_n_layers": [1, 2], "local_attention": [4, 8, 7]}
    | {"norm_eps": [1e-3], "norm_bias": [True], "attention_bias": [True], "mlp_bias": [True], "num_hidden_layers": [4]},
    "nomic_bert": BERT | ROTARY,
    **dict.fromkeys(("t5", "mt5", "umt5"), T5),
    "qwen2": LLAMA | {"is_causal": [False]},
    "qwen3": LLAMA | {"is_causal": [False], "attention_bias": [True]},
    "gemma3_text": LLAMA
    | {"use_bidirectional_attention": [True], "sliding_window": [6], "query_pre_attn_scalar": [16]},
}
POOLINGS = ("cls", "mean", "max")
LENGTHS = (1, 3, 12, 30)


def make_texts(case: Case, lengths: Sequence[int] = LENGTHS) -> list[str]:
    return [" ".join(f"w{i}" for i in case.rng.integers(5, VOCABULARY, length)) for length in lengths]


def write_encoder(case: Case, folder: Path, model_class: Any, **more: Any) -> None:
    shared = {"head_dim": 8, "num_key_value_heads": 2} if case.base in LLAMAS else {}
    sizes = OWN_SIZES.get(case.base, SIZES | shared)
    config = config_of(case, {**sizes, **more})
    write_model(case, folder, config, model_class)
    write_tokenizer(folder, "<s> $A </s>", "<s> $A </s> $B </s>")


LLAMAS = ("qwen2", "qwen3", "gemma3_text")
HALVES = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}


@torch.no_grad()
def compare(case: Case, folder: Path) -> str:
    model_class = getattr(transformers, HALVES.get(case.base, "AutoModel"))
    write_encoder(case, folder, model_class)
    theirs = loaded(model_class, folder)
    tokenizer, texts = transformers.PreTrainedTokenizerFast.from_pretrained(folder), make_texts(case)
    vectors = fastattn.Encoder(folder, precision="float32", threads=1).encode(texts, pooling=POOLINGS)
    for text, vector in zip(texts, vectors):
        rows_TD = theirs(torch.tensor([tokenizer(text)["input_ids"]])).last_hidden_state[0].double().numpy()
        pooled = np.concatenate([rows_TD[0], rows_TD.mean(0), rows_TD.max(0)])
        if fault := difference(f"vector of {len(rows_TD)} tokens", vector, pooled, 1e-4):
            return fault
    return ""
