"""All cases of encoders: an architecture each three times and more, then heads."""

import re
from typing import Any

from tests.architectures.case import LIMIT, LONG, ODD_HEADS, ONE_LAYER, SIZES, TASKS, VOCABULARY, Case, three

BERT_CONFIG = {
    "architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu", "max_position_embeddings": 40,
    "type_vocab_size": 2, "layer_norm_eps": 1e-12, "position_embedding_type": "absolute", "pad_token_id": 0,
}  # fmt: skip
ROBERTA_CONFIG = BERT_CONFIG | {
    "architectures": ["RobertaModel"], "model_type": "roberta", "max_position_embeddings": 42, "type_vocab_size": 1,
    "layer_norm_eps": 1e-5, "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
XLM_ROBERTA_CONFIG = ROBERTA_CONFIG | {"architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta"}
CAMEMBERT_CONFIG = ROBERTA_CONFIG | {"architectures": ["CamembertModel"], "model_type": "camembert"}
DISTILBERT_CONFIG = {
    "architectures": ["DistilBertModel"], "model_type": "distilbert", "activation": "gelu", "vocab_size": VOCABULARY,
    "dim": 36, "n_layers": 3, "n_heads": 3, "hidden_dim": 53, "max_position_embeddings": 40,
    "sinusoidal_pos_embds": False, "tie_weights_": True, "pad_token_id": 0,
}  # fmt: skip
ELECTRA_CONFIG = BERT_CONFIG | {"architectures": ["ElectraModel"], "model_type": "electra", "embedding_size": 17}
ALBERT_CONFIG = BERT_CONFIG | {
    "architectures": ["AlbertModel"], "model_type": "albert", "hidden_act": "gelu_new", "embedding_size": 17,
    "num_hidden_groups": 1, "inner_group_num": 1,
}  # fmt: skip
MPNET_CONFIG = {
    "architectures": ["MPNetModel"], "model_type": "mpnet", "hidden_act": "gelu", "max_position_embeddings": 42,
    "relative_attention_num_buckets": 32, "layer_norm_eps": 1e-5, "bos_token_id": 0, "pad_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
# jina-embeddings-v2: remote code, which no transformers has.
JINA_CONFIG = BERT_CONFIG | {
    "architectures": ["JinaBertForMaskedLM"], "attn_implementation": "torch", "feed_forward_type": "geglu",
    "auto_map": {"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"},
    "max_position_embeddings": 8192, "position_embedding_type": "alibi",
}  # fmt: skip
T5_CONFIG = {
    "architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "vocab_size": VOCABULARY, "d_model": 24,
    "d_kv": 7, "d_ff": 31, "num_layers": 3, "num_heads": 3, "feed_forward_proj": "relu", "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-6, "relative_attention_num_buckets": 32, "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
GATED_T5 = T5_CONFIG | {
    "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "relative_attention_max_distance": 128,
}  # fmt: skip
DEBERTA_CONFIG = {
    "architectures": ["DebertaV2Model"], "model_type": "deberta-v2", "hidden_act": "gelu",
    "max_position_embeddings": 160, "relative_attention": True, "position_buckets": 16, "norm_rel_ebd": "layer_norm",
    "share_att_key": True, "pos_att_type": "p2c|c2p", "layer_norm_eps": 1e-7, "max_relative_positions": -1,
    "position_biased_input": False, "type_vocab_size": 0, "pad_token_id": 0,
}  # fmt: skip
MODERNBERT_CONFIG = {
    "architectures": ["ModernBertForMaskedLM"], "model_type": "modernbert", "num_hidden_layers": 5,
    "hidden_activation": "gelu", "max_position_embeddings": 200, "norm_eps": 1e-5, "norm_bias": False,
    "attention_bias": False, "mlp_bias": False, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
    "local_attention": 8, "local_rope_theta": 10000.0, "position_embedding_type": "absolute", "layer_norm_eps": 1e-5,
    "classifier_pooling": "mean", "decoder_bias": True, "classifier_bias": False, "classifier_activation": "gelu",
    "bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3, "pad_token_id": 0,
}  # fmt: skip
NOMIC_CONFIG = {
    "architectures": ["NomicBertModel"], "model_type": "nomic_bert", "hidden_act": "silu",
    "max_position_embeddings": 200, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}, "pad_token_id": 0,
}  # fmt: skip
# nomic-embed-text-v1.5's own: remote code, named after GPT-2.
NOMIC_GPT2_NAMES_CONFIG = {
    "activation_function": "swiglu", "architectures": ["NomicBertModel"],
    "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"}, "causal": False,
    "layer_norm_epsilon": 1e-12, "max_trained_positions": 2048, "mlp_fc1_bias": False, "mlp_fc2_bias": False,
    "model_type": "nomic_bert", "n_embd": 36, "n_head": 3, "n_inner": 53, "n_layer": 3, "n_positions": 200,
    "parallel_block": False, "prenorm": False, "qkv_proj_bias": False, "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None, "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True,
    "type_vocab_size": 2, "use_rms_norm": False, "vocab_size": VOCABULARY,
}  # fmt: skip
# gte-base-en-v1.5 and its like: remote code; transformers has the same architecture as "gte".
NEW_CONFIG = {
    "architectures": ["NewModel"],
    "auto_map": {"AutoConfig": "configuration.NewConfig", "AutoModel": "modeling.NewModel"}, "model_type": "new",
    "hidden_act": "gelu", "max_position_embeddings": 200, "type_vocab_size": 0, "layer_norm_type": "layer_norm",
    "layer_norm_eps": 1e-12, "logn_attention_scale": False, "pack_qkv": True, "pad_token_id": 0,
    "position_embedding_type": "rope", "rope_scaling": {"factor": 2.0, "type": "ntk"}, "rope_theta": 500000,
}  # fmt: skip
GTE_CONFIG = {
    "architectures": ["GteModel"], "model_type": "gte", "hidden_act": "gelu", "max_position_embeddings": 200,
    "type_vocab_size": 1, "layer_norm_eps": 1e-12, "rope_parameters": {"rope_type": "default", "rope_theta": 160000.0},
    "pad_token_id": 1,
}  # fmt: skip
QWEN3_CONFIG = {
    "architectures": ["Qwen3Model"], "model_type": "qwen3", "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 10, "hidden_act": "silu", "max_position_embeddings": 200, "max_window_layers": 3, "rms_norm_eps": 1e-6,
    "rope_scaling": None, "rope_theta": 1000000, "attention_bias": False, "sliding_window": None,
    "use_sliding_window": False, "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
QWEN2_CONFIG = {name: value for name, value in QWEN3_CONFIG.items() if name not in ("head_dim", "attention_bias")} | {
    "architectures": ["Qwen2Model"], "model_type": "qwen2", "hidden_size": 40,
}  # fmt: skip
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

YARN = {
    "type": "yarn", "factor": 3.0, "original_max_position_embeddings": 40, "beta_fast": 6, "beta_slow": 0.5,
    "mscale": 1.2, "mscale_all_dim": 0.7, "truncate": False,
}  # fmt: skip
YARN_OF_QWEN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 50}
STRETCHED = {"factor": 6.0, "low_freq_factor": 1.0, "high_freq_factor": 2.0, "original_max_position_embeddings": 30}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 1000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 60,
}  # fmt: skip
TWO_HEADS = {"hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2}
ELEVEN_HEADS = {"hidden_size": 22, "num_attention_heads": 11}
MISH, TYPED = {"hidden_act": "mish"}, {"position_biased_input": True, "type_vocab_size": 2}
WINDOW = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}


def _linear(factor: float, **more: Any) -> dict[str, Any]:
    return {"rope_type": "linear", "factor": factor, **more}


ENCODERS = [
    *three(
        "bert", BERT_CONFIG, {}, ONE_LAYER | {"hidden_act": "gelu_new", "layer_norm_eps": 1e-5},
        ODD_HEADS | {"hidden_act": "relu"}, {"type_vocab_size": 3}, lengths={2: LIMIT}, types=(3,), golden=(0, 3),
    ),
    *three(
        "roberta", ROBERTA_CONFIG, {}, ONE_LAYER, ODD_HEADS | {"hidden_act": "relu"}, {},
        {"pad_token_id": 9, "max_position_embeddings": 50},  # whose padding is a word
        lengths={2: LIMIT}, padding={3: 1, 4: 9}, golden=(0, 3, 4),
    ),
    *three(
        "xlm-roberta", XLM_ROBERTA_CONFIG, ONE_LAYER, {"max_position_embeddings": 152, "hidden_act": "gelu_new"},
        ODD_HEADS, lengths={1: LONG, 2: LIMIT},
    ),
    *three("camembert", CAMEMBERT_CONFIG, ODD_HEADS, ONE_LAYER, {"hidden_act": "relu"}, lengths={2: LIMIT}),
    *three(
        "mpnet", MPNET_CONFIG, {},
        ONE_LAYER | {"max_position_embeddings": 152},  # farther than 128, from where on all distances share a bucket
        ODD_HEADS | {"layer_norm_eps": 1e-12, "hidden_act": "gelu_new", "pad_token_id": 3}, {"pad_token_id": 7},
        lengths={1: LONG, 2: LIMIT}, padding={3: 1}, golden=(0, 3),
    ),
    *three(
        "distilbert", DISTILBERT_CONFIG, {}, {"dim": 20, "n_layers": 1, "n_heads": 4, "activation": "relu"},
        {"dim": 33, "n_layers": 2, "n_heads": 11, "sinusoidal_pos_embds": True}, sizes={}, lengths={2: LIMIT},
    ),
    *three(
        "electra", ELECTRA_CONFIG, {}, ONE_LAYER | {"embedding_size": 20},  # no projection
        ODD_HEADS | {"hidden_act": "relu"}, {"embedding_size": 36}, lengths={2: LIMIT}, types=(3,),
    ),
    *three(
        "albert", ALBERT_CONFIG, {}, ONE_LAYER | {"embedding_size": 20, "hidden_act": "gelu"},
        ODD_HEADS | {"num_hidden_layers": 4, "num_hidden_groups": 2}, {"num_hidden_layers": 2, "inner_group_num": 2},
        lengths={2: LIMIT}, types=(3,),
    ),
    *three(
        "modernbert", MODERNBERT_CONFIG, {},
        {"num_hidden_layers": 1, "norm_bias": True, "attention_bias": True, "mlp_bias": True},
        {"hidden_size": 20, "num_attention_heads": 2, "global_attn_every_n_layers": 2, "local_attention": 128},
        {"rope_scaling": _linear(4.0), "local_attention": 7},
        {"partial_rotary_factor": 0.5, "hidden_activation": "mish"},
        lengths={0: (1, 2, 13, 61), 2: LONG}, golden=(0, 1, 3, 4),
    ),
    *three(
        "nomic", NOMIC_CONFIG, {}, TWO_HEADS | {"layer_norm_eps": 1e-5},
        ELEVEN_HEADS | {"rope_parameters": {"rope_type": "default", "rope_theta": 77.0}}, {},
        lengths={1: LONG}, types=(3,),
    ),
    *three(
        "nomic-gpt2-names", NOMIC_GPT2_NAMES_CONFIG, {}, {"n_embd": 20, "n_layer": 1, "n_head": 2},
        sizes={}, lengths={1: LONG},
    ),
    *three(
        "new", NEW_CONFIG, {}, TWO_HEADS | {"type_vocab_size": 1, "rope_scaling": None},
        ELEVEN_HEADS | {"rope_theta": 160000, "rope_scaling": {"factor": 8.0, "type": "ntk"}}, {"type_vocab_size": 2},
        lengths={1: LONG}, types=(3,), golden=(0, 1),
    ),
    *three(
        "gte", GTE_CONFIG, {}, TWO_HEADS | {"type_vocab_size": 0},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 20000.0}}, lengths={2: LONG},
    ),
    *three(
        "jina", JINA_CONFIG, {}, ONE_LAYER, ODD_HEADS | {"feed_forward_type": "original"},
        ODD_HEADS | {"feed_forward_type": "reglu"}, lengths={1: LONG}, types=(3,),
    ),
    *three(
        "qwen3", QWEN3_CONFIG, {},
        {"hidden_size": 21, "num_hidden_layers": 1, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 14},
        {"num_key_value_heads": 4, "attention_bias": True, "tie_word_embeddings": False, "rope_theta": 10000},
        WINDOW,
        {"rope_scaling": _linear(4.0)},
        WINDOW | {"is_causal": False},
        {"rope_scaling": YARN_OF_QWEN, "rope_theta": 9e3},
        {"rope_parameters": LLAMA3, "rope_scaling": None},
        {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}, "hidden_act": "relu2"},
        {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.4}, "rope_scaling": None} | MISH,
        {"rope_scaling": YARN, "original_max_position_embeddings": 64, "rope_theta": 100.0},
        lengths={1: LONG}, golden=(0, 3, 4, 5, 6, 7, 8, 9, 10),
    ),
    *three(
        "qwen2", QWEN2_CONFIG, {},
        {"hidden_size": 18, "num_hidden_layers": 1, "num_attention_heads": 3, "num_key_value_heads": 1},
        {"num_key_value_heads": 4, "tie_word_embeddings": False, "rope_theta": 10000},
        {"is_causal": False},  # gte-Qwen2
        lengths={1: LONG}, golden=(0, 3),
    ),
    *three(
        "gemma3", GEMMA3_CONFIG, {},
        {"num_hidden_layers": 1, "layer_types": ["full_attention"], "num_key_value_heads": 1, "hidden_size": 20},
        {"num_key_value_heads": 4, "sliding_window": 12, "hidden_size": 28},
        {"use_bidirectional_attention": False, "sliding_window": 6, "attention_bias": True},
        {"rope_scaling": _linear(4.0)},  # of the global layers alone
        {"layer_types": None, "sliding_window_pattern": 2},
        {"rope_scaling": {"rope_type": "llama3", "rope_theta": 200.0} | STRETCHED},  # likewise
        {"rope_parameters": {"full_attention": {"rope_type": "yarn"} | STRETCHED}, "partial_rotary_factor": 1.0},
        {"rope_parameters": _linear(3.0, rope_theta=55.0)},  # of no type of layers: not read
        lengths={1: LONG}, golden=(0, 2, 4, 5, 6, 7),
    ),
    Case("t5-0", T5_CONFIG, golden=True),
    Case("t5-1", GATED_T5 | {"num_layers": 1, "d_kv": 16}, lengths=LONG, golden=True, seed=1),
    Case("mt5", GATED_T5 | {"architectures": ["MT5EncoderModel"], "model_type": "mt5"}),
    Case("umt5", GATED_T5 | {"architectures": ["UMT5EncoderModel"], "model_type": "umt5"}),
    Case("t5-2", T5_CONFIG | {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20}, seed=2),
    *three(
        "deberta-v2", DEBERTA_CONFIG, {},
        ONE_LAYER | TYPED | {"share_att_key": False, "position_buckets": 256},
        ODD_HEADS | {"conv_kernel_size": 3, "conv_act": "gelu"},  # v2's xlarge has the convolution
        {"pos_att_type": "c2p", "norm_rel_ebd": "none", "position_buckets": -1, "max_relative_positions": 30},
        TYPED,
        ONE_LAYER | {"position_buckets": 256, "max_position_embeddings": 512},  # v3's own, and a text beyond them
        {"embedding_size": 17, "share_att_key": False, "pos_att_type": ["p2c"]},
        {"relative_attention": False, "position_biased_input": True, "norm_rel_ebd": "none"},
        lengths={0: LONG, 5: (600, 1)}, types=(4,), golden=(0, 2, 5, 6),
    ),
]  # fmt: skip

_SEQUENCE, _TOKENS, _MASK = TASKS[1:]
_CLASS_ENDS = {_SEQUENCE: "ForSequenceClassification", _TOKENS: "ForTokenClassification", _MASK: "ForMaskedLM"}
_LABELS = {"0": "NONE", "1": "PLACE", "2": "PERSON"}
_RERANKER = {"0": "LABEL_0"}
_MORE_LABELS = ({"0": "NO", "1": "YES"}, {str(i): f"LABEL_{i}" for i in range(17)})


def _heads(name: str, published: dict[str, Any], *tasks: str, types: bool = False, labels: Any = None) -> list[Case]:
    """The heads of an architecture at a size of two layers, and at two more sizes; only the first are goldens."""
    found, config = [], published if "dim" in published else SIZES | published
    two = dict.fromkeys({"num_hidden_layers", "n_layers"} & config.keys(), 2)
    for i, task in enumerate(tasks):
        for j, change in enumerate((two, *_sizes(config))):
            own = re.sub("(Model|ForMaskedLM|ForCausalLM)$", _CLASS_ENDS[task], config["architectures"][0])
            change = change | {"architectures": [own]}
            if task != _MASK:
                named = _MORE_LABELS[j - 1] if j else labels or _LABELS
                change |= {"id2label": named, "label2id": {label: int(i) for i, label in named.items()}}
            elif j == 2:
                change |= {"tie_word_embeddings": False}
            whole = f"{name}-{task}-{j}" if j else f"{name}-{task}"
            seed = i + (20 if j else 10)
            found.append(Case(whole, config | change, task, (2, 13), types, golden=not j, seed=seed))
    return found


def _sizes(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Changes to two other sizes, of one layer and of odd heads."""
    if config["model_type"] == "distilbert":
        return [{"dim": 20, "n_layers": 1, "n_heads": 4}, {"dim": 33, "n_layers": 2, "n_heads": 11}]
    changes = [dict(ONE_LAYER), dict(ODD_HEADS)]
    for change, shared, even in zip(changes, (2, 1), (24, 44)):
        if "num_key_value_heads" in config:
            change["num_key_value_heads"] = shared
        if config["model_type"] in ("nomic_bert", "new", "gte", "modernbert"):  # rotary positions turn pairs
            change["hidden_size"] = even
        if "layer_types" in config:
            change["layer_types"] = config["layer_types"][: change["num_hidden_layers"]]
    return changes


_GEMMA_OF_TWO = GEMMA3_CONFIG | {"layer_types": ["sliding_attention", "full_attention"]}
HEADS = [
    *_heads("bert", BERT_CONFIG, _SEQUENCE, _TOKENS, _MASK),
    *_heads("bert-untied", BERT_CONFIG | {"tie_word_embeddings": False}, _MASK),
    *_heads("bert-reranker", BERT_CONFIG, _SEQUENCE, types=True, labels=_RERANKER),
    *_heads("roberta", ROBERTA_CONFIG, _SEQUENCE, _TOKENS, _MASK),
    *_heads("xlm-roberta-reranker", XLM_ROBERTA_CONFIG | ONE_LAYER, _SEQUENCE, labels=_RERANKER),
    *_heads("camembert", CAMEMBERT_CONFIG | ODD_HEADS, _TOKENS),
    *_heads("mpnet", MPNET_CONFIG, _SEQUENCE, _TOKENS, _MASK),
    *_heads("distilbert", DISTILBERT_CONFIG, _SEQUENCE, _TOKENS, _MASK),
    *_heads("electra", ELECTRA_CONFIG, _SEQUENCE, _TOKENS, _MASK),
    *_heads("albert", ALBERT_CONFIG, _SEQUENCE, _TOKENS, _MASK),
    *_heads("modernbert", MODERNBERT_CONFIG, _SEQUENCE, _TOKENS, _MASK),
    *_heads("modernbert-cls", MODERNBERT_CONFIG | {"classifier_pooling": "cls"}, _SEQUENCE, labels=_RERANKER),
    *_heads("nomic", NOMIC_CONFIG, _SEQUENCE, _TOKENS, _MASK),
    *_heads("new", NEW_CONFIG | {"type_vocab_size": 1}, _SEQUENCE, _TOKENS, _MASK),
    *_heads("jina", JINA_CONFIG, _SEQUENCE, labels=_RERANKER),
    *_heads("qwen3", QWEN3_CONFIG, _SEQUENCE, _TOKENS),
    *_heads("gemma3", _GEMMA_OF_TWO, _SEQUENCE),
    *_heads("deberta-v2", DEBERTA_CONFIG, _SEQUENCE, _TOKENS, _MASK),
]
CASES = [*ENCODERS, *HEADS]
GOLDEN_CASES = [case for case in CASES if case.golden]
