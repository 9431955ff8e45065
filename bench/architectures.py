"""Sentence encoders of today at their published sizes: few layers, a small vocabulary, random weights by transformers.

What a layer costs depends on its sizes, so two layers, or as many as a pattern of layers needs, stand for all.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors

os.environ.setdefault("HF_HUB_OFFLINE", "1")
VOCABULARY = 4000
RERANKER = "AutoModelForSequenceClassification"
SPECIAL = ("[PAD]", "[NOTHING]", "[CLS]", "[SEP]", "[UNK]")  # 1 would shift RoBERTa's positions: no text has it


@dataclass(frozen=True)
class Architecture:
    """A model's sizes.

    config     as transformers has it, where it differs from the defaults of its class
    kind       the class of transformers; "JinaBert": ours in PyTorch, which transformers does not have; RERANKER: one
               that gives a pair of texts a score
    optimizer  the model type by which ONNX Runtime's transformer optimizer knows the graph; "": it does not
    """

    name: str
    config: dict[str, Any]
    kind: str = "AutoModel"
    optimizer: str = ""

    @property
    def heads(self) -> int:
        return int(
            next(
                self.config[field] for field in ("num_attention_heads", "n_heads", "num_heads") if field in self.config
            )
        )

    @property
    def width(self) -> int:
        return int(next(self.config[field] for field in ("hidden_size", "dim", "d_model") if field in self.config))


def _sizes(width: int, heads: int, inner: int, layers: int = 2, positions: int = 514) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "max_position_embeddings": positions,
    }


_SMALL, _BASE = _sizes(384, 12, 1536), _sizes(768, 12, 3072)
_DISTILBERT = {"dim": 768, "n_heads": 12, "hidden_dim": 3072, "n_layers": 2, "max_position_embeddings": 512}
_ALBERT = {"embedding_size": 128, "hidden_act": "gelu_new"}
_MODERNBERT = {f"{name}_token_id": 0 for name in ("pad", "bos", "eos", "cls", "sep")}
_JINA = {"feed_forward_type": "geglu", "position_embedding_type": "alibi", "hidden_act": "gelu", "type_vocab_size": 2}
_QWEN = {"num_key_value_heads": 8, "head_dim": 128}
_GEMMA = {
    "num_key_value_heads": 1,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "sliding_window": 512,
    "use_bidirectional_attention": True,
    "layer_types": ["sliding_attention", "full_attention"],
}
_T5 = {"vocab_size": VOCABULARY, "d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 2, "num_heads": 12}
_DEBERTA = {
    "relative_attention": True,
    "position_buckets": 256,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}
_TABLE: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("minilm-l6", "bert", _SMALL, "AutoModel", "bert"),
    ("bge-base", "bert", _BASE, "AutoModel", "bert"),
    ("multilingual-e5-small", "xlm-roberta", _SMALL, "AutoModel", "bert"),
    ("mpnet-base", "mpnet", _BASE, "AutoModel", "bert"),
    ("distilbert-base", "distilbert", {"vocab_size": VOCABULARY} | _DISTILBERT, "AutoModel", "bert"),
    ("electra-base", "electra", _BASE | {"embedding_size": 768}, "AutoModel", "bert"),
    ("albert-base", "albert", _BASE | _ALBERT, "AutoModel", "bert"),
    # layer 0 sees everything, 1 and 2 their surroundings
    ("modernbert-base", "modernbert", _sizes(768, 12, 1152, 3, 8192) | _MODERNBERT, "AutoModel", ""),
    ("nomic-v1.5", "nomic_bert", _sizes(768, 12, 3072, 2, 2048) | {"hidden_act": "silu"}, "AutoModel", ""),
    ("gte-base-v1.5", "gte", _sizes(768, 12, 3072, 2, 8192), "AutoModel", ""),
    ("jina-v2-base", "bert", _sizes(768, 12, 3072, 2, 8192) | _JINA, "JinaBert", ""),
    ("qwen3-0.6b", "qwen3", _sizes(1024, 16, 3072, 2, 32768) | _QWEN, "AutoModel", ""),
    ("gemma3-300m", "gemma3_text", _sizes(768, 3, 1152, 2, 2048) | _GEMMA, "AutoModel", ""),
    ("t5-base", "t5", _T5, "T5EncoderModel", ""),
    ("deberta-v3-base", "deberta-v2", _BASE | _DEBERTA, "AutoModel", ""),
]
ARCHITECTURES = {
    name: Architecture(name, {"model_type": model_type} | config, kind, optimizer)
    for name, model_type, config, kind, optimizer in _TABLE
}
RERANKERS = {
    "minilm-l6": Architecture("minilm-l6", {"model_type": "bert", "num_labels": 1} | _SMALL, RERANKER, "bert"),
    "bge-base": Architecture("bge-base", {"model_type": "xlm-roberta", "num_labels": 1} | _BASE, RERANKER, "bert"),
}


def write(architecture: Architecture, folder: Path) -> None:
    """A folder of transformers; sentence-transformers' for an encoder: mean pooling, vectors of unit length."""
    import torch

    torch.manual_seed(0)
    if architecture.kind == "JinaBert":
        from bench.torch_encoders import JinaBert

        (folder / "config.json").write_text(json.dumps(architecture.config), encoding="utf-8")
        JinaBert(architecture.config).save(folder)
    else:
        import transformers

        config = transformers.AutoConfig.for_model(**architecture.config)
        kind = getattr(transformers, architecture.kind)
        (kind.from_config if architecture.kind.startswith("Auto") else kind)(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(_tokenizer(), encoding="utf-8")
    limit = {"max_seq_length": 8192}
    (folder / "sentence_bert_config.json").write_text(json.dumps(limit), encoding="utf-8")
    if architecture.kind == RERANKER:
        return
    modules = "Transformer", "Pooling", "Normalize"
    listed = [
        {"idx": i, "name": str(i), "path": f"{i}_{name}" if i else "", "type": f"sentence_transformers.models.{name}"}
        for i, name in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(listed), encoding="utf-8")
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": architecture.width, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")


def _tokenizer() -> str:
    """Words w5, w6, ... between [CLS] and [SEP]; pairs are of one type, so that no model needs types."""
    words = [*SPECIAL, *(f"w{i}" for i in range(len(SPECIAL), VOCABULARY))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:0 [SEP]:0",
        special_tokens=[(name, SPECIAL.index(name)) for name in ("[CLS]", "[SEP]")],
    )
    return str(tokenizer.to_str())


def make_texts(count: int, tokens: int) -> list[str]:
    """Random texts of so many tokens each, [CLS] and [SEP] among them."""
    words_BT = np.random.default_rng(0).integers(len(SPECIAL), VOCABULARY, (count, tokens - 2))
    return [" ".join(f"w{word}" for word in words) for words in words_BT]
