"""Small encoders of every architecture at awkward sizes: config.json as its authors publish it, ids, and what is drawn.

Weights are drawn from their names and shapes (``drawing``), so the goldens and the oracle have the same ones.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

# Model types that no reader knows yet, and what no encoder takes; the tests fail where one of these works.
NOT_YET: set[str] = {
    "token types",
    "alibi",
    "n_embd",  # NomicBERT's configuration by GPT-2's names
    "roberta",
    "xlm-roberta",
    "camembert",
    "mpnet",
    "distilbert",
    "electra",
    "albert",
    "modernbert",
    "nomic_bert",
    "new",
    "gte",
    "qwen2",
    "qwen3",
    "gemma3_text",
    "t5",
    "deberta-v2",
}
VOCABULARY = 61
FIRST_WORD = 5  # ids below are special: padding would shift RoBERTa's positions
TASKS = ("encoder", "sequence-classification", "token-classification", "fill-mask")


@dataclass(frozen=True)
class Case:
    """An architecture at a size.

    config   config.json as published
    task     one of TASKS: which head the files have
    lengths  of the sentences
    types    whether the sentences are pairs, with token types 0 and 1
    golden   whether it is among the goldens
    """

    name: str
    config: dict[str, Any]
    task: str = "encoder"
    lengths: tuple[int, ...] = (1, 2, 13, 37)
    types: bool = False
    golden: bool = False
    seed: int = field(default=0)

    @property
    def model_type(self) -> str:
        return str(self.config["model_type"])

    @property
    def not_yet(self) -> set[str]:
        """What of NOT_YET the case needs; jina-v2's BERT and NomicBERT's old names are by their configurations."""
        needed = {self.model_type, *self.config}
        needed |= {"alibi"} if self.config.get("position_embedding_type") == "alibi" else set()
        needed |= {"token types"} if self.types else set()
        return needed & NOT_YET


def make_ids(case: Case) -> list[np.ndarray]:
    """int32 ids of each sentence, none special."""
    rng = np.random.default_rng(case.seed + 1000)
    spread = VOCABULARY - FIRST_WORD
    return [(FIRST_WORD + rng.random(length) * spread).astype(np.int32) for length in case.lengths]


def make_types(case: Case) -> list[np.ndarray] | None:
    """int32 token types of each sentence: zeros, then ones from about the middle; None for single texts."""
    if not case.types:
        return None
    return [(np.arange(length) * 2 > length).astype(np.int32) for length in case.lengths]


_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 36,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 53,
}
_ONE_LAYER = {"hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 33}
_ODD_HEADS = {"hidden_size": 33, "num_hidden_layers": 2, "num_attention_heads": 11, "intermediate_size": 47}
_LIMIT = (40, 3)  # where there are 40 positions
_LONG = (150, 1, 31)


def _three(
    name: str,
    published: dict[str, Any],
    *changes: dict[str, Any],
    lengths: dict[int, tuple[int, ...]] | None = None,
    types: tuple[int, ...] = (),
    golden: tuple[int, ...] = (0,),
) -> list[Case]:
    """An architecture's cases: its configuration at _SIZES, with each of the changes; the rest by their places."""
    return [
        Case(
            f"{name}-{i}",
            _SIZES | published | change,
            lengths=(lengths or {}).get(i, Case.lengths),
            types=i in types,
            golden=i in golden,
            seed=i,
        )
        for i, change in enumerate(changes)
    ]


_BERT = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_act": "gelu",
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "absolute",
    "pad_token_id": 0,
}
BERT = _three(
    "bert",
    _BERT,
    {},
    _ONE_LAYER | {"hidden_act": "gelu_new", "layer_norm_eps": 1e-5},
    _ODD_HEADS | {"hidden_act": "relu"},
    {"type_vocab_size": 3},
    lengths={2: _LIMIT},
    types=(3,),
    golden=(0, 3),
)

_ROBERTA = _BERT | {
    "architectures": ["RobertaModel"],
    "model_type": "roberta",
    "max_position_embeddings": 42,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
}
ROBERTA = _three("roberta", _ROBERTA, {}, _ONE_LAYER, _ODD_HEADS | {"hidden_act": "relu"}, lengths={2: _LIMIT})
XLM_ROBERTA = _three(
    "xlm-roberta",
    _ROBERTA | {"architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta"},
    _ONE_LAYER,
    {"max_position_embeddings": 152, "hidden_act": "gelu_new"},
    _ODD_HEADS,
    lengths={1: _LONG, 2: _LIMIT},
)
CAMEMBERT = _three(
    "camembert",
    _ROBERTA | {"architectures": ["CamembertModel"], "model_type": "camembert"},
    _ODD_HEADS,
    _ONE_LAYER,
    {"hidden_act": "relu"},
    lengths={2: _LIMIT},
)

_MPNET = {
    "architectures": ["MPNetModel"],
    "model_type": "mpnet",
    "hidden_act": "gelu",
    "max_position_embeddings": 42,
    "relative_attention_num_buckets": 32,
    "layer_norm_eps": 1e-5,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
}
MPNET = _three(
    "mpnet",
    _MPNET,
    {},
    _ONE_LAYER | {"max_position_embeddings": 152},  # farther than 128, from where on all distances share a bucket
    _ODD_HEADS | {"layer_norm_eps": 1e-12, "hidden_act": "gelu_new"},
    lengths={1: _LONG, 2: _LIMIT},
)

_DISTILBERT = {
    "architectures": ["DistilBertModel"],
    "model_type": "distilbert",
    "activation": "gelu",
    "vocab_size": VOCABULARY,
    "dim": 36,
    "n_layers": 3,
    "n_heads": 3,
    "hidden_dim": 53,
    "max_position_embeddings": 40,
    "sinusoidal_pos_embds": False,
    "tie_weights_": True,
    "pad_token_id": 0,
}
DISTILBERT = [
    Case("distilbert-0", _DISTILBERT, golden=True),
    Case("distilbert-1", _DISTILBERT | {"dim": 20, "n_layers": 1, "n_heads": 4, "activation": "relu"}, seed=1),
    Case(
        "distilbert-2",
        _DISTILBERT | {"dim": 33, "n_layers": 2, "n_heads": 11, "sinusoidal_pos_embds": True},
        lengths=_LIMIT,
        seed=2,
    ),
]

_ELECTRA = _BERT | {"architectures": ["ElectraModel"], "model_type": "electra", "embedding_size": 17}
ELECTRA = _three(
    "electra",
    _ELECTRA,
    {},
    _ONE_LAYER | {"embedding_size": 20},  # no projection
    _ODD_HEADS | {"hidden_act": "relu"},
    {"embedding_size": 36},
    lengths={2: _LIMIT},
    types=(3,),
)

_ALBERT = _BERT | {
    "architectures": ["AlbertModel"],
    "model_type": "albert",
    "hidden_act": "gelu_new",
    "embedding_size": 17,
    "num_hidden_groups": 1,
    "inner_group_num": 1,
}
ALBERT = _three(
    "albert",
    _ALBERT,
    {},
    _ONE_LAYER | {"embedding_size": 20, "hidden_act": "gelu"},
    _ODD_HEADS | {"num_hidden_layers": 4, "num_hidden_groups": 2},
    {"num_hidden_layers": 2, "inner_group_num": 2},
    lengths={2: _LIMIT},
    types=(3,),
)

_MODERNBERT = {
    "architectures": ["ModernBertForMaskedLM"],
    "model_type": "modernbert",
    "num_hidden_layers": 5,
    "hidden_activation": "gelu",
    "max_position_embeddings": 200,
    "norm_eps": 1e-5,
    "norm_bias": False,
    "attention_bias": False,
    "mlp_bias": False,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "local_attention": 8,
    "local_rope_theta": 10000.0,
    "position_embedding_type": "absolute",
    "layer_norm_eps": 1e-5,
    "classifier_pooling": "mean",
    "decoder_bias": True,
    "classifier_bias": False,
    "classifier_activation": "gelu",
    "bos_token_id": 2,
    "cls_token_id": 2,
    "eos_token_id": 3,
    "sep_token_id": 3,
    "pad_token_id": 0,
}
MODERNBERT = _three(
    "modernbert",
    _MODERNBERT,
    {},
    {"num_hidden_layers": 1, "norm_bias": True, "attention_bias": True, "mlp_bias": True},
    {"hidden_size": 20, "num_attention_heads": 2, "global_attn_every_n_layers": 2, "local_attention": 128},
    lengths={0: (1, 2, 13, 61), 2: _LONG},
    golden=(0, 1),
)

_NOMIC = {
    "architectures": ["NomicBertModel"],
    "model_type": "nomic_bert",
    "hidden_act": "silu",
    "max_position_embeddings": 200,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
    "pad_token_id": 0,
}
NOMIC = _three(
    "nomic",
    _NOMIC,
    {},
    {"hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2, "layer_norm_eps": 1e-5},
    {"hidden_size": 22, "num_attention_heads": 11, "rope_parameters": {"rope_type": "default", "rope_theta": 77.0}},
    {},
    lengths={1: _LONG},
    types=(3,),
)
# nomic-embed-text-v1.5's own: remote code, named after GPT-2.
_NOMIC_GPT2_NAMES = {
    "activation_function": "swiglu",
    "architectures": ["NomicBertModel"],
    "attn_pdrop": 0.0,
    "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"},
    "causal": False,
    "dense_seq_output": True,
    "embd_pdrop": 0.0,
    "fused_bias_fc": True,
    "fused_dropout_add_ln": True,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-12,
    "max_trained_positions": 2048,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "model_type": "nomic_bert",
    "n_embd": 36,
    "n_head": 3,
    "n_inner": 53,
    "n_layer": 3,
    "n_positions": 200,
    "pad_vocab_size_multiple": 1,
    "parallel_block": False,
    "parallel_block_tied_norm": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "reorder_and_upcast_attn": False,
    "resid_pdrop": 0.0,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
    "summary_activation": None,
    "type_vocab_size": 2,
    "use_cache": True,
    "use_flash_attn": True,
    "use_rms_norm": False,
    "use_xentropy": True,
    "vocab_size": VOCABULARY,
}
NOMIC_GPT2_NAMES = [
    Case("nomic-gpt2-names-0", _NOMIC_GPT2_NAMES, golden=True),
    Case("nomic-gpt2-names-1", _NOMIC_GPT2_NAMES | {"n_embd": 20, "n_layer": 1, "n_head": 2}, lengths=_LONG, seed=1),
]

# gte-base-en-v1.5 and its like: remote code; transformers has the same architecture as "gte".
_NEW = {
    "architectures": ["NewModel"],
    "auto_map": {"AutoConfig": "configuration.NewConfig", "AutoModel": "modeling.NewModel"},
    "model_type": "new",
    "hidden_act": "gelu",
    "max_position_embeddings": 200,
    "type_vocab_size": 0,
    "layer_norm_type": "layer_norm",
    "layer_norm_eps": 1e-12,
    "logn_attention_clip1": False,
    "logn_attention_scale": False,
    "pack_qkv": True,
    "pad_token_id": 0,
    "position_embedding_type": "rope",
    "rope_scaling": {"factor": 2.0, "type": "ntk"},
    "rope_theta": 500000,
    "unpad_inputs": False,
    "use_memory_efficient_attention": False,
}
NEW = _three(
    "new",
    _NEW,
    {},
    {"hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2, "type_vocab_size": 1, "rope_scaling": None},
    {
        "hidden_size": 22,
        "num_attention_heads": 11,
        "rope_theta": 160000,
        "rope_scaling": {"factor": 8.0, "type": "ntk"},
    },
    {"type_vocab_size": 2},
    lengths={1: _LONG},
    types=(3,),
    golden=(0, 1),
)
GTE = _three(
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
    lengths={2: _LONG},
)

# jina-embeddings-v2: remote code, which no transformers has.
_JINA = _BERT | {
    "architectures": ["JinaBertForMaskedLM"],
    "attn_implementation": "torch",
    "auto_map": {"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"},
    "attention_probs_dropout_prob": 0.0,
    "emb_pooler": "mean",
    "feed_forward_type": "geglu",
    "gradient_checkpointing": False,
    "max_position_embeddings": 8192,
    "model_max_length": 8192,
    "position_embedding_type": "alibi",
    "use_cache": True,
}
JINA = _three(
    "jina",
    _JINA,
    {},
    _ONE_LAYER,
    _ODD_HEADS | {"feed_forward_type": "original"},
    _ODD_HEADS | {"feed_forward_type": "reglu"},
    lengths={1: _LONG},
    types=(3,),
)

_QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "hidden_act": "silu",
    "max_position_embeddings": 200,
    "max_window_layers": 3,
    "rms_norm_eps": 1e-6,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "attention_bias": False,
    "sliding_window": None,
    "use_sliding_window": False,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
QWEN3 = _three(
    "qwen3",
    _QWEN3,
    {},
    {"hidden_size": 21, "num_hidden_layers": 1, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 14},
    {"num_key_value_heads": 4, "attention_bias": True, "tie_word_embeddings": False, "rope_theta": 10000},
    lengths={1: _LONG},
)
_QWEN2 = {name: value for name, value in _QWEN3.items() if name not in ("head_dim", "attention_bias")}
QWEN2 = _three(
    "qwen2",
    _QWEN2 | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 40},
    {},
    {"hidden_size": 18, "num_hidden_layers": 1, "num_attention_heads": 3, "num_key_value_heads": 1},
    {"num_key_value_heads": 4, "tie_word_embeddings": False, "rope_theta": 10000},
    lengths={1: _LONG},
)

_GEMMA3 = {
    "architectures": ["Gemma3TextModel"],
    "model_type": "gemma3_text",
    "_sliding_window_pattern": 3,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 14,
    "hidden_activation": "gelu_pytorch_tanh",
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
    "max_position_embeddings": 200,
    "query_pre_attn_scalar": 21,
    "rms_norm_eps": 1e-6,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "sliding_window": 9,
    "attention_bias": False,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "use_bidirectional_attention": True,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
GEMMA3 = _three(
    "gemma3",
    _GEMMA3,
    {},
    {"num_hidden_layers": 1, "layer_types": ["full_attention"], "num_key_value_heads": 1, "hidden_size": 20},
    {"num_key_value_heads": 4, "sliding_window": 12, "hidden_size": 28},
    {"use_bidirectional_attention": False, "sliding_window": 6, "attention_bias": True},
    lengths={1: _LONG},
    golden=(0, 2),
)

_T5 = {
    "architectures": ["T5ForConditionalGeneration"],
    "model_type": "t5",
    "vocab_size": VOCABULARY,
    "d_model": 24,
    "d_kv": 7,
    "d_ff": 31,
    "num_layers": 3,
    "num_heads": 3,
    "feed_forward_proj": "relu",
    "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-6,
    "relative_attention_num_buckets": 32,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
_GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "relative_attention_max_distance": 128}
T5 = [
    Case("t5-0", _T5, golden=True),
    Case("t5-1", _T5 | _GATED | {"num_layers": 1, "d_kv": 16}, lengths=_LONG, golden=True, seed=1),
    Case("t5-2", _T5 | {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20}, seed=2),
]

_DEBERTA = {
    "architectures": ["DebertaV2Model"],
    "model_type": "deberta-v2",
    "hidden_act": "gelu",
    "max_position_embeddings": 160,
    "relative_attention": True,
    "position_buckets": 16,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "layer_norm_eps": 1e-7,
    "max_relative_positions": -1,
    "position_biased_input": False,
    "type_vocab_size": 0,
    "pad_token_id": 0,
}
DEBERTA = _three(
    "deberta-v2",
    _DEBERTA,
    {},
    _ONE_LAYER | {"share_att_key": False, "position_biased_input": True, "type_vocab_size": 2, "position_buckets": 256},
    _ODD_HEADS | {"conv_kernel_size": 3, "conv_act": "gelu"},  # v2's xlarge has the convolution
    {"pos_att_type": "c2p", "norm_rel_ebd": "none", "position_buckets": -1, "max_relative_positions": 30},
    {"position_biased_input": True, "type_vocab_size": 2},
    lengths={0: _LONG},
    types=(4,),
    golden=(0, 2),
)

CASES: list[Case] = [
    *BERT,
    *ROBERTA,
    *XLM_ROBERTA,
    *CAMEMBERT,
    *MPNET,
    *DISTILBERT,
    *ELECTRA,
    *ALBERT,
    *MODERNBERT,
    *NOMIC,
    *NOMIC_GPT2_NAMES,
    *NEW,
    *GTE,
    *JINA,
    *QWEN3,
    *QWEN2,
    *GEMMA3,
    *T5,
    *DEBERTA,
]
GOLDEN_CASES = [case for case in CASES if case.golden]
