"""Cases of encoders whose positions are in the scores: relative buckets, linear biases, disentangled attention."""

from tests.architectures.absolute import BERT_CONFIG
from tests.architectures.case import LIMIT, LONG, ODD_HEADS, ONE_LAYER, SIZES, VOCABULARY, Case, three

MPNET_CONFIG = {
    "architectures": ["MPNetModel"], "model_type": "mpnet", "hidden_act": "gelu", "max_position_embeddings": 42,
    "relative_attention_num_buckets": 32, "layer_norm_eps": 1e-5, "bos_token_id": 0, "pad_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
MPNET = [
    *three(
        "mpnet",
        MPNET_CONFIG,
        {},
        ONE_LAYER | {"max_position_embeddings": 152},  # farther than 128, from where on all distances share a bucket
        ODD_HEADS | {"layer_norm_eps": 1e-12, "hidden_act": "gelu_new", "pad_token_id": 3},
        lengths={1: LONG, 2: LIMIT},
    ),
    Case("mpnet-3", SIZES | MPNET_CONFIG | {"pad_token_id": 7}, padding=1, golden=True, seed=3),
]

# jina-embeddings-v2: remote code, which no transformers has.
JINA_CONFIG = BERT_CONFIG | {
    "architectures": ["JinaBertForMaskedLM"], "attn_implementation": "torch",
    "auto_map": {"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"},
    "attention_probs_dropout_prob": 0.0, "emb_pooler": "mean", "feed_forward_type": "geglu",
    "gradient_checkpointing": False, "max_position_embeddings": 8192, "model_max_length": 8192,
    "position_embedding_type": "alibi", "use_cache": True,
}  # fmt: skip
JINA = three(
    "jina",
    JINA_CONFIG,
    {},
    ONE_LAYER,
    ODD_HEADS | {"feed_forward_type": "original"},
    ODD_HEADS | {"feed_forward_type": "reglu"},
    lengths={1: LONG},
    types=(3,),
)

T5_CONFIG = {
    "architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "vocab_size": VOCABULARY, "d_model": 24,
    "d_kv": 7, "d_ff": 31, "num_layers": 3, "num_heads": 3, "feed_forward_proj": "relu", "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-6, "relative_attention_num_buckets": 32, "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
_GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "relative_attention_max_distance": 128}
T5 = [
    Case("t5-0", T5_CONFIG, golden=True),
    Case("t5-1", T5_CONFIG | _GATED | {"num_layers": 1, "d_kv": 16}, lengths=LONG, golden=True, seed=1),
    Case("mt5", T5_CONFIG | _GATED | {"architectures": ["MT5EncoderModel"], "model_type": "mt5"}),
    Case("umt5", T5_CONFIG | _GATED | {"architectures": ["UMT5EncoderModel"], "model_type": "umt5"}),
    Case("t5-2", T5_CONFIG | {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20}, seed=2),
]

DEBERTA_CONFIG = {
    "architectures": ["DebertaV2Model"], "model_type": "deberta-v2", "hidden_act": "gelu",
    "max_position_embeddings": 160, "relative_attention": True, "position_buckets": 16, "norm_rel_ebd": "layer_norm",
    "share_att_key": True, "pos_att_type": "p2c|c2p", "layer_norm_eps": 1e-7, "max_relative_positions": -1,
    "position_biased_input": False, "type_vocab_size": 0, "pad_token_id": 0,
}  # fmt: skip
DEBERTA = three(
    "deberta-v2",
    DEBERTA_CONFIG,
    {},
    ONE_LAYER | {"share_att_key": False, "position_biased_input": True, "type_vocab_size": 2, "position_buckets": 256},
    ODD_HEADS | {"conv_kernel_size": 3, "conv_act": "gelu"},  # v2's xlarge has the convolution
    {"pos_att_type": "c2p", "norm_rel_ebd": "none", "position_buckets": -1, "max_relative_positions": 30},
    {"position_biased_input": True, "type_vocab_size": 2},
    ONE_LAYER | {"position_buckets": 256, "max_position_embeddings": 512},  # v3's own, and a text beyond them
    {"embedding_size": 17, "share_att_key": False, "pos_att_type": ["p2c"]},
    {"relative_attention": False, "position_biased_input": True, "norm_rel_ebd": "none"},
    lengths={0: LONG, 5: (600, 1)},
    types=(4,),
    golden=(0, 2, 5, 6),
)
