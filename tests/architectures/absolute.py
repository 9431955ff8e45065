"""Cases of encoders with a table of positions: BERT and those that are nearly it."""

from tests.architectures.case import LIMIT, LONG, ODD_HEADS, ONE_LAYER, SIZES, VOCABULARY, Case, three

BERT_CONFIG = {
    "architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu", "max_position_embeddings": 40,
    "type_vocab_size": 2, "layer_norm_eps": 1e-12, "position_embedding_type": "absolute", "pad_token_id": 0,
}  # fmt: skip
BERT = three(
    "bert",
    BERT_CONFIG,
    {},
    ONE_LAYER | {"hidden_act": "gelu_new", "layer_norm_eps": 1e-5},
    ODD_HEADS | {"hidden_act": "relu"},
    {"type_vocab_size": 3},
    lengths={2: LIMIT},
    types=(3,),
    golden=(0, 3),
)

ROBERTA_CONFIG = BERT_CONFIG | {
    "architectures": ["RobertaModel"], "model_type": "roberta", "max_position_embeddings": 42, "type_vocab_size": 1,
    "layer_norm_eps": 1e-5, "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
ROBERTA = [
    *three("roberta", ROBERTA_CONFIG, {}, ONE_LAYER, ODD_HEADS | {"hidden_act": "relu"}, lengths={2: LIMIT}),
    Case("roberta-3", SIZES | ROBERTA_CONFIG, padding=1, golden=True, seed=3),
    # whose padding is a word
    Case(
        "roberta-4",
        SIZES | ROBERTA_CONFIG | {"pad_token_id": 9, "max_position_embeddings": 50},
        padding=9,
        golden=True,
        seed=4,
    ),
]
XLM_ROBERTA = three(
    "xlm-roberta",
    ROBERTA_CONFIG | {"architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta"},
    ONE_LAYER,
    {"max_position_embeddings": 152, "hidden_act": "gelu_new"},
    ODD_HEADS,
    lengths={1: LONG, 2: LIMIT},
)
CAMEMBERT = three(
    "camembert",
    ROBERTA_CONFIG | {"architectures": ["CamembertModel"], "model_type": "camembert"},
    ODD_HEADS,
    ONE_LAYER,
    {"hidden_act": "relu"},
    lengths={2: LIMIT},
)

DISTILBERT_CONFIG = {
    "architectures": ["DistilBertModel"], "model_type": "distilbert", "activation": "gelu", "vocab_size": VOCABULARY,
    "dim": 36, "n_layers": 3, "n_heads": 3, "hidden_dim": 53, "max_position_embeddings": 40,
    "sinusoidal_pos_embds": False, "tie_weights_": True, "pad_token_id": 0,
}  # fmt: skip
DISTILBERT = [
    Case("distilbert-0", DISTILBERT_CONFIG, golden=True),
    Case("distilbert-1", DISTILBERT_CONFIG | {"dim": 20, "n_layers": 1, "n_heads": 4, "activation": "relu"}, seed=1),
    Case(
        "distilbert-2",
        DISTILBERT_CONFIG | {"dim": 33, "n_layers": 2, "n_heads": 11, "sinusoidal_pos_embds": True},
        lengths=LIMIT,
        seed=2,
    ),
]

ELECTRA_CONFIG = BERT_CONFIG | {"architectures": ["ElectraModel"], "model_type": "electra", "embedding_size": 17}
ELECTRA = three(
    "electra",
    ELECTRA_CONFIG,
    {},
    ONE_LAYER | {"embedding_size": 20},  # no projection
    ODD_HEADS | {"hidden_act": "relu"},
    {"embedding_size": 36},
    lengths={2: LIMIT},
    types=(3,),
)

ALBERT_CONFIG = BERT_CONFIG | {
    "architectures": ["AlbertModel"],
    "model_type": "albert",
    "hidden_act": "gelu_new",
    "embedding_size": 17,
    "num_hidden_groups": 1,
    "inner_group_num": 1,
}
ALBERT = three(
    "albert",
    ALBERT_CONFIG,
    {},
    ONE_LAYER | {"embedding_size": 20, "hidden_act": "gelu"},
    ODD_HEADS | {"num_hidden_layers": 4, "num_hidden_groups": 2},
    {"num_hidden_layers": 2, "inner_group_num": 2},
    lengths={2: LIMIT},
    types=(3,),
)
