"""Models that people use, as their authors publish them: config.json, pooling, prompts, limits.

Facts are from memory and from documentation, not from the files themselves; ``unsure`` says which are not certain.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.architectures.absolute import ALBERT_CONFIG, BERT_CONFIG, DISTILBERT_CONFIG, ELECTRA_CONFIG, ROBERTA_CONFIG
from tests.architectures.biased import DEBERTA_CONFIG, JINA_CONFIG, MPNET_CONFIG, T5_CONFIG
from tests.architectures.rotary import (
    GEMMA3_CONFIG,
    MODERNBERT_CONFIG,
    NEW_CONFIG,
    NOMIC_GPT2_NAMES_CONFIG,
    QWEN3_CONFIG,
)


@dataclass(frozen=True)
class Published:
    """A published model.

    config      config.json, with its own sizes
    tokenizer   which of ``published_folders.TOKENIZERS`` resembles its own
    max_length  of sentence_bert_config.json
    pooling     None: a cross-encoder
    dense       (inputs, outputs, bias, activation's class) of each layer after pooling
    prompts     of config_sentence_transformers.json
    needs       what an engine must have for it, beside BERT
    unsure      what here may differ from the published files
    """

    name: str
    config: dict[str, Any]
    tokenizer: str = "wordpiece"
    max_length: int = 512
    pooling: str | None = "cls"
    dense: tuple[tuple[int, int, bool, str], ...] = ()
    normalize: bool = True
    prompts: dict[str, str] = field(default_factory=dict)
    needs: str = ""
    unsure: str = ""

    @property
    def layers_name(self) -> str:
        names = ("num_hidden_layers", "num_layers", "n_layers", "n_layer")
        return next(name for name in names if name in self.config)

    @property
    def width(self) -> int:
        names = ("hidden_size", "d_model", "dim", "n_embd")
        return int(next(self.config[name] for name in names if name in self.config))

    @property
    def layers(self) -> int:
        """How many it is built with: enough for every kind of layer it has."""
        return {"modernbert": 4, "gemma3_text": 6}.get(str(self.config["model_type"]), 2)


def _sizes(width: int, layers: int, heads: int, inner: int, vocabulary: int) -> dict[str, Any]:
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "vocab_size": vocabulary,
    }


def _bert(width: int, layers: int, heads: int, vocabulary: int = 30522) -> dict[str, Any]:
    sizes = _sizes(width, layers, heads, 4 * width, vocabulary)
    return BERT_CONFIG | {"max_position_embeddings": 512} | sizes


def _xlm_roberta(width: int, layers: int, heads: int, positions: int) -> dict[str, Any]:
    named = {"architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "max_position_embeddings": positions}
    return ROBERTA_CONFIG | named | _sizes(width, layers, heads, 4 * width, 250002)


def _modernbert(width: int, layers: int, inner: int) -> dict[str, Any]:
    changed = {"local_attention": 128, "max_position_embeddings": 8192, "architectures": ["ModernBertModel"]}
    return MODERNBERT_CONFIG | changed | _sizes(width, layers, 12, inner, 50368)


def _reranker(config: dict[str, Any], architecture: str) -> dict[str, Any]:
    labels = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    return config | {"architectures": [architecture]} | labels


MINILM = {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}
SEARCH = "Represent this sentence for searching relevant passages: "
IDENTITY, TANH = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh"
POSITIONS_FROM_2 = "positions from 2"
ROTARY_GATED = "rotary, gated"
XLMR = {"tokenizer": "unigram", "needs": POSITIONS_FROM_2}
GEMMA_LAYERS = ["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(24)]
GEMMA_PROMPTS = {
    "query": "task: search result | query: ",
    "document": "title: none | text: ",
    "BitextMining": "task: search result | query: ",
    "Clustering": "task: clustering | query: ",
    "Classification": "task: classification | query: ",
    "InstructionRetrieval": "task: code retrieval | query: ",
    "MultilabelClassification": "task: classification | query: ",
    "PairClassification": "task: sentence similarity | query: ",
    "Reranking": "task: search result | query: ",
    "Retrieval": "task: search result | query: ",
    "Retrieval-query": "task: search result | query: ",
    "Retrieval-document": "title: none | text: ",
    "STS": "task: sentence similarity | query: ",
    "Summarization": "task: summarization | query: ",
}
QWEN_PROMPTS = {
    "query": "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:",
    "document": "",
}

ENCODERS = [
    Published("BAAI/bge-small-en-v1.5", _bert(384, 12, 12)),
    Published("BAAI/bge-base-en-v1.5", _bert(768, 12, 12)),
    Published("intfloat/e5-small-v2", _bert(384, 12, 12), pooling="mean"),
    Published(
        "intfloat/multilingual-e5-small",
        _bert(384, 12, 12, 250037),
        "unigram",
        pooling="mean",
        needs="XLM-R's tokenizer around a BERT",
    ),
    Published("intfloat/multilingual-e5-base", _xlm_roberta(768, 12, 12, 514), pooling="mean", **XLMR),
    Published("thenlper/gte-base", _bert(768, 12, 12), pooling="mean", unsure="the Normalize module"),
    Published(
        "Alibaba-NLP/gte-base-en-v1.5",
        NEW_CONFIG | {"max_position_embeddings": 8192} | _sizes(768, 12, 12, 3072, 30528),
        max_length=8192,
        normalize=False,
        needs=f"{ROTARY_GATED}, NTK scaling",
    ),
    Published(
        "mixedbread-ai/mxbai-embed-large-v1",
        _bert(1024, 24, 16),
        normalize=False,
        prompts={"query": SEARCH, "passage": ""},
        unsure="the empty prompt's name",
    ),
    Published("Snowflake/snowflake-arctic-embed-m", _bert(768, 12, 12), prompts={"query": SEARCH}),
    Published("Snowflake/snowflake-arctic-embed-m-v1.5", _bert(768, 12, 12), prompts={"query": SEARCH}),
    Published(
        "Snowflake/snowflake-arctic-embed-m-v2.0",
        NEW_CONFIG
        | {
            "architectures": ["GteModel"],
            "auto_map": {"AutoModel": "modeling_hf_alibaba_nlp_gte.GteModel"},
            "model_type": "gte",
            "max_position_embeddings": 8192,
            "type_vocab_size": 1,
            "rope_scaling": None,
            "rope_theta": 160000,
            "pad_token_id": 1,
        }
        | _sizes(768, 12, 12, 3072, 250048),
        "unigram",
        8192,
        prompts={"query": "query: "},
        needs=ROTARY_GATED,
    ),
    Published(
        "Snowflake/snowflake-arctic-embed-l-v2.0",
        _xlm_roberta(1024, 24, 16, 8194),
        max_length=8192,
        prompts={"query": "query: "},
        **XLMR,
    ),
    Published(
        "sentence-transformers/LaBSE",
        _bert(768, 12, 12, 501153),
        max_length=256,
        dense=((768, 768, True, TANH),),
        needs="a dense layer",
    ),
    Published(
        "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
        _bert(384, 12, 12, 250037),
        "unigram",
        128,
        pooling="mean",
        normalize=False,
        needs="XLM-R's tokenizer around a BERT",
    ),
    Published(
        "sentence-transformers/all-mpnet-base-v2",
        MPNET_CONFIG | {"max_position_embeddings": 514} | _sizes(768, 12, 12, 3072, 30527),
        "mpnet",
        384,
        pooling="mean",
        needs="relative buckets, positions from 2",
    ),
    Published(
        "nomic-ai/nomic-embed-text-v1.5",
        NOMIC_GPT2_NAMES_CONFIG
        | {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": 3072, "n_positions": 8192, "vocab_size": 30528},
        max_length=8192,
        pooling="mean",
        normalize=False,
        needs=f"{ROTARY_GATED}, GPT-2's names",
        unsure="whether prompts are among its files",
    ),
    Published(
        "jinaai/jina-embeddings-v2-small-en",
        JINA_CONFIG | _sizes(512, 4, 8, 2048, 30528),
        max_length=8192,
        pooling="mean",
        normalize=False,
        needs="symmetric ALiBi, gated",
        unsure="whether a Normalize module follows",
    ),
    Published(
        "jinaai/jina-embeddings-v2-base-en",
        JINA_CONFIG | _sizes(768, 12, 12, 3072, 30528),
        max_length=8192,
        pooling="mean",
        normalize=False,
        needs="symmetric ALiBi, gated",
        unsure="whether a Normalize module follows",
    ),
    Published("BAAI/bge-m3", _xlm_roberta(1024, 24, 16, 8194), max_length=8192, **XLMR),
    Published(
        "answerdotai/ModernBERT-base",
        _modernbert(768, 22, 1152) | {"architectures": ["ModernBertForMaskedLM"]},
        "bytes",
        8192,
        pooling="mean",
        normalize=False,
        needs="rotary of two bases, local layers, gated, no biases",
        unsure="not a model of sentences: pooled as sentence-transformers would by default",
    ),
    Published(
        "Alibaba-NLP/gte-modernbert-base",
        _modernbert(768, 22, 1152),
        "bytes",
        8192,
        normalize=False,
        needs="as ModernBERT",
        unsure="the Normalize module",
    ),
    Published(
        "ibm-granite/granite-embedding-english-r2",
        _modernbert(768, 22, 1152),
        "bytes",
        8192,
        needs="as ModernBERT",
        unsure="the Normalize module",
    ),
    Published(
        "google/embeddinggemma-300m",
        GEMMA3_CONFIG
        | {
            "_sliding_window_pattern": 6,
            "layer_types": GEMMA_LAYERS,
            "head_dim": 256,
            "num_key_value_heads": 1,
            "query_pre_attn_scalar": 256,
            "sliding_window": 512,
            "max_position_embeddings": 2048,
        }
        | _sizes(768, 24, 3, 1152, 262144),
        "gemma",
        2048,
        pooling="mean",
        dense=((768, 3072, False, IDENTITY), (3072, 768, False, IDENTITY)),
        prompts=GEMMA_PROMPTS,
        needs="RMS norms of 1 + w, norms of heads, local layers, dense layers",
        unsure="some of the rarer prompts",
    ),
    Published(
        "Qwen/Qwen3-Embedding-0.6B",
        QWEN3_CONFIG
        | {"num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 32768, "max_window_layers": 28}
        | _sizes(1024, 28, 16, 3072, 151669),
        "qwen",
        32768,
        pooling="lasttoken",
        prompts=QWEN_PROMPTS,
        needs="causal, norms of heads, last token",
    ),
    Published(
        "sentence-transformers/all-distilroberta-v1",
        ROBERTA_CONFIG | {"max_position_embeddings": 514} | _sizes(768, 6, 12, 3072, 50265),
        "roberta",
        pooling="mean",
        needs=POSITIONS_FROM_2,
    ),
    Published(
        "sentence-transformers/distiluse-base-multilingual-cased-v2",
        DISTILBERT_CONFIG
        | {"max_position_embeddings": 512, "dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072},
        max_length=128,
        pooling="mean",
        dense=((768, 512, True, TANH),),
        normalize=False,
        needs="DistilBERT's names, a dense layer",
    ),
    Published(
        "sentence-transformers/paraphrase-albert-small-v2",
        ALBERT_CONFIG | {"max_position_embeddings": 512, "embedding_size": 128} | _sizes(768, 6, 12, 3072, 30000),
        "unigram",
        100,
        pooling="mean",
        normalize=False,
        needs="shared layers, a narrow embedding",
        unsure="the tokenizer has [CLS] and [SEP] instead of <s> and </s>",
    ),
    Published(
        "sentence-transformers/gtr-t5-base",
        T5_CONFIG | {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
        "t5",
        pooling="mean",
        dense=((768, 768, False, IDENTITY),),
        needs="T5's encoder, a dense layer",
    ),
]
RERANKERS = [
    Published(
        "cross-encoder/ms-marco-MiniLM-L6-v2",
        _reranker(_bert(384, 6, 12), "BertForSequenceClassification") | MINILM,
        pooling=None,
        needs="pairs with token types",
    ),
    Published(
        "cross-encoder/ms-marco-MiniLM-L12-v2",
        _reranker(_bert(384, 12, 12), "BertForSequenceClassification") | MINILM,
        pooling=None,
        needs="pairs with token types",
    ),
    Published(
        "BAAI/bge-reranker-base",
        _reranker(_xlm_roberta(768, 12, 12, 514), "XLMRobertaForSequenceClassification"),
        pooling=None,
        **XLMR,
    ),
    Published(
        "BAAI/bge-reranker-large",
        _reranker(_xlm_roberta(1024, 24, 16, 514), "XLMRobertaForSequenceClassification"),
        pooling=None,
        **XLMR,
    ),
    Published(
        "BAAI/bge-reranker-v2-m3",
        _reranker(_xlm_roberta(1024, 24, 16, 8194), "XLMRobertaForSequenceClassification"),
        max_length=8192,
        pooling=None,
        **XLMR,
    ),
    Published(
        "Alibaba-NLP/gte-reranker-modernbert-base",
        _reranker(_modernbert(768, 22, 1152), "ModernBertForSequenceClassification"),
        "bytes",
        8192,
        pooling=None,
        needs="as ModernBERT",
    ),
    Published(
        "mixedbread-ai/mxbai-rerank-xsmall-v1",
        _reranker(
            DEBERTA_CONFIG
            | {"max_position_embeddings": 512, "position_buckets": 256}
            | _sizes(384, 12, 6, 1536, 128100),
            "DebertaV2ForSequenceClassification",
        ),
        "deberta",
        pooling=None,
        needs="disentangled attention",
    ),
    Published(
        "cross-encoder/ms-marco-electra-base",
        _reranker(
            ELECTRA_CONFIG | {"max_position_embeddings": 512, "embedding_size": 768} | _sizes(768, 12, 12, 3072, 30522),
            "ElectraForSequenceClassification",
        ),
        pooling=None,
        needs="ELECTRA's names, pairs with token types",
    ),
]
