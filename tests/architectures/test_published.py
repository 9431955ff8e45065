"""Models that people use, as their authors publish them, against sentence-transformers.

Pooling, prompts and cutting included; all is from memory and from documentation, not from the files themselves. A model
has few layers, few words and drawn weights; its folder has the form of the years in which these models appeared.
"""

import shutil
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from fastattn import CrossEncoder, Encoder
from fastattn.weights import read
from tests import ROOT
from tests.architectures import cases as known
from tests.architectures import oracle
from tests.architectures.case import Case
from tests.architectures.drawing import draw, draw_all
from tests.architectures.folders import BERT_LIKE, GEMMA_LIKE, ROBERTA_LIKE, T5_LIKE
from tests.weights.containers.safetensors_writer import safetensors_bytes, write_json

pytestmark = pytest.mark.slow

VOCABULARY = 1000
IDENTITY, TANH = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh"


@dataclass(frozen=True)
class Published:
    """A published model.

    config      config.json, with its own sizes
    tokenizer   which of TOKENIZERS resembles its own
    max_length  of sentence_bert_config.json
    pooling     None: a cross-encoder
    dense       (inputs, outputs, bias, activation's class) of each layer after pooling
    prompts     of config_sentence_transformers.json
    """

    name: str
    config: dict[str, Any]
    tokenizer: str = "bert"
    max_length: int = 512
    pooling: str | None = "cls"
    dense: tuple[tuple[int, int, bool, str], ...] = ()
    normalize: bool = True
    prompts: dict[str, str] = field(default_factory=dict)

    @property
    def width(self) -> int:
        names = ("hidden_size", "d_model", "dim", "n_embd")
        return int(next(self.config[name] for name in names if name in self.config))

    @property
    def case(self) -> Case:
        """With few words, and layers enough for every kind of layer that it has."""
        layers = {"modernbert": 4, "gemma3_text": 6}.get(str(self.config["model_type"]), 2)
        names = {"num_hidden_layers", "num_layers", "n_layers", "n_layer"} & self.config.keys()
        config = self.config | dict.fromkeys(names, layers) | {"vocab_size": VOCABULARY}
        if "layer_types" in config:
            config["layer_types"] = config["layer_types"][:layers]
        return Case(self.name, config, "sequence-classification" if self.pooling is None else "encoder")


def _sizes(width: int, layers: int, heads: int, inner: int, words: int) -> dict[str, Any]:
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    return dict(zip(names, (width, layers, heads, inner, words)))


def _bert(width: int, layers: int, heads: int, words: int = 30522) -> dict[str, Any]:
    return known.BERT_CONFIG | {"max_position_embeddings": 512} | _sizes(width, layers, heads, 4 * width, words)


def _xlm_roberta(width: int, layers: int, heads: int, positions: int) -> dict[str, Any]:
    sizes = _sizes(width, layers, heads, 4 * width, 250002)
    return known.XLM_ROBERTA_CONFIG | {"max_position_embeddings": positions} | sizes


def _jina(width: int, layers: int, heads: int) -> dict[str, Any]:
    return known.JINA_CONFIG | _sizes(width, layers, heads, 4 * width, 30528)


def _reranker(config: dict[str, Any], architecture: str) -> dict[str, Any]:
    labels = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    return config | {"architectures": [f"{architecture}ForSequenceClassification"]} | labels


MINILM = {"sbert_ce_default_activation_function": IDENTITY}
MODERNBERT = known.MODERNBERT_CONFIG | _sizes(768, 22, 12, 1152, 50368) | {
    "local_attention": 128, "max_position_embeddings": 8192, "architectures": ["ModernBertModel"],
}  # fmt: skip
ARCTIC = known.NEW_CONFIG | _sizes(768, 12, 12, 3072, 250048) | {
    "architectures": ["GteModel"], "auto_map": {"AutoModel": "modeling_hf_alibaba_nlp_gte.GteModel"},
    "model_type": "gte", "max_position_embeddings": 8192, "type_vocab_size": 1, "rope_scaling": None,
    "rope_theta": 160000, "pad_token_id": 1,
}  # fmt: skip
NOMIC = known.NOMIC_GPT2_NAMES_CONFIG | {
    "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": 3072, "n_positions": 8192, "vocab_size": 30528,
}  # fmt: skip
GEMMA = known.GEMMA3_CONFIG | _sizes(768, 24, 3, 1152, 262144) | {
    "_sliding_window_pattern": 6, "head_dim": 256, "num_key_value_heads": 1, "query_pre_attn_scalar": 256,
    "layer_types": ["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(24)],
    "sliding_window": 512, "max_position_embeddings": 2048,
}  # fmt: skip
QWEN = known.QWEN3_CONFIG | _sizes(1024, 28, 16, 3072, 151669) | {
    "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 32768, "max_window_layers": 28,
}  # fmt: skip
DEBERTA = known.DEBERTA_CONFIG | _sizes(384, 12, 6, 1536, 128100) | {
    "max_position_embeddings": 512, "position_buckets": 256,
}  # fmt: skip
MPNET = known.MPNET_CONFIG | {"max_position_embeddings": 514} | _sizes(768, 12, 12, 3072, 30527)
ALBERT = known.ALBERT_CONFIG | _sizes(768, 6, 12, 3072, 30000) | {"max_position_embeddings": 512, "embedding_size": 128}
ELECTRA = known.ELECTRA_CONFIG | _sizes(768, 12, 12, 3072, 30522) | {
    "max_position_embeddings": 512, "embedding_size": 768,
}  # fmt: skip
DISTILBERT = known.DISTILBERT_CONFIG | {
    "max_position_embeddings": 512, "dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072,
}  # fmt: skip
DISTILROBERTA = known.ROBERTA_CONFIG | {"max_position_embeddings": 514} | _sizes(768, 6, 12, 3072, 50265)
T5 = known.T5_CONFIG | {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
SEARCH = {"query": "Represent this sentence for searching relevant passages: "}
QWEN_TASK = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
GEMMA_TASKS = {
    "search result": ("query", "BitextMining", "Reranking", "Retrieval", "Retrieval-query"),
    "clustering": ("Clustering",), "classification": ("Classification", "MultilabelClassification"),
    "code retrieval": ("InstructionRetrieval",), "sentence similarity": ("PairClassification", "STS"),
    "summarization": ("Summarization",),
}  # fmt: skip
GEMMA_PROMPTS = {name: f"task: {task} | query: " for task, names in GEMMA_TASKS.items() for name in names}
GEMMA_PROMPTS |= dict.fromkeys(("document", "Retrieval-document"), "title: none | text: ")
MEAN: dict[str, Any] = {"pooling": "mean"}
RAW = MEAN | {"normalize": False}
QUERY = {"prompts": {"query": "query: "}}

ENCODERS = [
    Published("BAAI/bge-small-en-v1.5", _bert(384, 12, 12)),
    Published("BAAI/bge-base-en-v1.5", _bert(768, 12, 12)),
    Published("intfloat/e5-small-v2", _bert(384, 12, 12), **MEAN),
    Published("intfloat/multilingual-e5-small", _bert(384, 12, 12, 250037), "xlmr", **MEAN),
    Published("intfloat/multilingual-e5-base", _xlm_roberta(768, 12, 12, 514), "xlmr", **MEAN),
    Published("thenlper/gte-base", _bert(768, 12, 12), **MEAN),
    Published(
        "Alibaba-NLP/gte-base-en-v1.5",
        known.NEW_CONFIG | {"max_position_embeddings": 8192} | _sizes(768, 12, 12, 3072, 30528),
        max_length=8192, normalize=False,
    ),
    Published(
        "mixedbread-ai/mxbai-embed-large-v1", _bert(1024, 24, 16), normalize=False, prompts=SEARCH | {"passage": ""}
    ),
    Published("Snowflake/snowflake-arctic-embed-m", _bert(768, 12, 12), prompts=SEARCH),
    Published("Snowflake/snowflake-arctic-embed-m-v1.5", _bert(768, 12, 12), prompts=SEARCH),
    Published("Snowflake/snowflake-arctic-embed-m-v2.0", ARCTIC, "xlmr", 8192, **QUERY),
    Published("Snowflake/snowflake-arctic-embed-l-v2.0", _xlm_roberta(1024, 24, 16, 8194), "xlmr", 8192, **QUERY),
    Published(
        "sentence-transformers/LaBSE", _bert(768, 12, 12, 501153), max_length=256, dense=((768, 768, True, TANH),)
    ),
    Published(
        "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2", _bert(384, 12, 12, 250037), "xlmr", 128, **RAW
    ),
    Published("sentence-transformers/all-mpnet-base-v2", MPNET, "xlmr", 384, **MEAN),
    Published("nomic-ai/nomic-embed-text-v1.5", NOMIC, max_length=8192, **RAW),
    Published("jinaai/jina-embeddings-v2-small-en", _jina(512, 4, 8), max_length=8192, **RAW),
    Published("jinaai/jina-embeddings-v2-base-en", _jina(768, 12, 12), max_length=8192, **RAW),
    Published("BAAI/bge-m3", _xlm_roberta(1024, 24, 16, 8194), "xlmr", 8192),
    # not a model of sentences: pooled as sentence-transformers would by default
    Published(
        "answerdotai/ModernBERT-base", MODERNBERT | {"architectures": ["ModernBertForMaskedLM"]}, "modern", 8192, **RAW
    ),
    Published("Alibaba-NLP/gte-modernbert-base", MODERNBERT, "modern", 8192, normalize=False),
    Published("ibm-granite/granite-embedding-english-r2", MODERNBERT, "modern", 8192),
    Published(
        "google/embeddinggemma-300m", GEMMA, "gemma", 2048, "mean",
        dense=((768, 3072, False, IDENTITY), (3072, 768, False, IDENTITY)), prompts=GEMMA_PROMPTS,
    ),
    Published(
        "Qwen/Qwen3-Embedding-0.6B", QWEN, "qwen", 32768, "lasttoken", prompts={"query": QWEN_TASK, "document": ""}
    ),
    Published("sentence-transformers/all-distilroberta-v1", DISTILROBERTA, "roberta", **MEAN),
    Published(
        "sentence-transformers/distiluse-base-multilingual-cased-v2", DISTILBERT, max_length=128,
        dense=((768, 512, True, TANH),), **RAW,
    ),
    Published("sentence-transformers/paraphrase-albert-small-v2", ALBERT, max_length=100, **RAW),
    Published("sentence-transformers/gtr-t5-base", T5, "t5", dense=((768, 768, False, IDENTITY),), **MEAN),
]  # fmt: skip
RERANKERS = [
    Published(f"{name}", _reranker(config, architecture), *more, pooling=None)
    for name, config, architecture, *more in (
        ("cross-encoder/ms-marco-MiniLM-L6-v2", _bert(384, 6, 12) | MINILM, "Bert"),
        ("cross-encoder/ms-marco-MiniLM-L12-v2", _bert(384, 12, 12) | MINILM, "Bert"),
        ("BAAI/bge-reranker-base", _xlm_roberta(768, 12, 12, 514), "XLMRoberta", "xlmr"),
        ("BAAI/bge-reranker-large", _xlm_roberta(1024, 24, 16, 514), "XLMRoberta", "xlmr"),
        ("BAAI/bge-reranker-v2-m3", _xlm_roberta(1024, 24, 16, 8194), "XLMRoberta", "xlmr", 8192),
        ("Alibaba-NLP/gte-reranker-modernbert-base", MODERNBERT, "ModernBert", "modern", 8192),
        ("mixedbread-ai/mxbai-rerank-xsmall-v1", DEBERTA, "DebertaV2"),
        ("cross-encoder/ms-marco-electra-base", ELECTRA, "Electra"),
    )
]

ROLES_OF_BERT = {"cls": 2, "sep": 3, "pad": 0, "unk": 1}
ROLES_OF_ROBERTA = {"cls": 0, "sep": 2, "pad": 1, "unk": 3}
END = "<|endoftext|>"
# Name -> the special tokens, what surrounds a text and a pair, and which tokens tokenizer_config.json names.
TOKENIZERS: dict[str, tuple[Any, ...]] = {
    "bert": (*BERT_LIKE, ROLES_OF_BERT),
    "modern": (BERT_LIKE[0], "[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", ROLES_OF_BERT),
    "roberta": (*ROBERTA_LIKE, ROLES_OF_ROBERTA),
    "xlmr": (*ROBERTA_LIKE, ROLES_OF_ROBERTA),
    "t5": (*T5_LIKE, {"eos": 1, "pad": 0, "unk": 2}),
    "qwen": ((END, "<|im_start|>", "<|im_end|>"), f"$A {END}", f"$A:0 {END} $B:1 {END}", {"pad": 0, "eos": 2}),
    "gemma": (*GEMMA_LIKE[:2], "<bos> $A <eos> <bos> $B <eos>", {"bos": 2, "eos": 1, "pad": 0, "unk": 3}),
}


def tokenizer_of(name: str) -> tuple[Tokenizer, dict[str, Any]]:
    """Pairs of bytes learned from README.md, and what tokenizer_config.json says; algorithms are the library's."""
    special, single, pair, roles = TOKENIZERS[name]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer, tokenizer.decoder = normalizers.NFC(), decoders.ByteLevel()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet, trained = pre_tokenizers.ByteLevel.alphabet(), {"special_tokens": list(special), "show_progress": False}
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, **trained)
    tokenizer.train_from_iterator((ROOT / "README.md").read_text(encoding="utf-8").splitlines(), trainer)
    around = [(token, tokenizer.token_to_id(token)) for token in special if token in single]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=around)
    if name == "roberta":
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    said = {f"{role}_token": special[i] for role, i in roles.items()}
    said |= {} if name == "bert" else {"model_input_names": ["input_ids", "attention_mask"]}
    return tokenizer, said | ({"padding_side": "left"} if name == "qwen" else {})


def write(published: Published, folder: Path) -> None:
    """The folder as its authors saved it."""
    case = published.case
    folder.mkdir(parents=True)
    if "feed_forward_type" in case.config:
        tensors = draw_all(oracle.jina_shapes(case.config, case.task), case.seed)
        (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    else:
        oracle.save(case, oracle.as_transformers_has_it(case.config), folder)
    write_json(folder / "config.json", case.config)
    tokenizer, said = tokenizer_of(published.tokenizer)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    said |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": published.max_length}
    write_json(folder / "tokenizer_config.json", said)
    if published.pooling is None:
        return
    modules = ["Transformer", "Pooling", *["Dense"] * len(published.dense), *["Normalize"] * published.normalize]
    entries = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" * bool(i), "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(modules)
    ]
    write_json(folder / "modules.json", entries)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": published.max_length, "do_lower_case": False})
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    pooling = {f"pooling_mode_{mode}": mode.partition("_")[0] == published.pooling for mode in modes}
    pooling["pooling_mode_mean_sqrt_len_tokens"] = False
    pooling |= {"word_embedding_dimension": published.width, "include_prompt": True}
    write_json(folder / "1_Pooling" / "config.json", pooling)
    for i, (inputs, outputs, bias, activation) in enumerate(published.dense, 2):
        layer = {"in_features": inputs, "out_features": outputs, "bias": bias, "activation_function": activation}
        write_json(folder / f"{i}_Dense" / "config.json", layer)
        shapes = {"linear.weight": (outputs, inputs)} | ({"linear.bias": (outputs,)} if bias else {})
        drawn = {name: draw(f"{i}.{name}", shape, 0) for name, shape in shapes.items()}
        (folder / f"{i}_Dense" / "model.safetensors").write_bytes(safetensors_bytes(drawn))
    if published.prompts:
        said = {"prompts": published.prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"}
        write_json(folder / "config_sentence_transformers.json", said)


TEXTS = [
    "",
    "a",
    "Attention is all you need.",
    "Übergrößenträger, 日本語 and emoji 🙂 in one   line; CAPITALS too",
    "A sentence vector engine that people use should read the models that people use. " * 4,
    "Far longer than most limits, so that it is cut where the model says: one two three four five six seven. " * 40,
]
PAIRS = [("how many legs has a spider?", text) for text in TEXTS]


def both(encode: Any, prompt_name: str | None) -> np.ndarray:
    """The vectors of the texts, without a prompt and with it."""
    return np.concatenate([encode(TEXTS), encode(TEXTS, prompt_name=prompt_name)])


def theirs(published: Published, folder: Path, prompt_name: str | None) -> np.ndarray:
    """The vectors from sentence-transformers, which saves its model beside the folder."""
    from sentence_transformers import SentenceTransformer

    config = oracle.as_transformers_has_it(published.case.config)
    if config != published.case.config:
        folder = Path(shutil.copytree(folder, folder.with_name("known")))
        write_json(folder / "config.json", config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SentenceTransformer(str(folder), device="cpu")
        model.save(str(folder.with_name("saved")), create_model_card=False)
        return both(model.encode, prompt_name)


def check_vectors(published: Published, folders: list[Path], prompt_name: str | None, expected: np.ndarray) -> None:
    for folder in folders:
        found = both(Encoder.from_checkpoint(read(folder)).encode, prompt_name)  # which keeps no packed weights
        assert found.shape == expected.shape
        norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
        assert ((found.astype(np.float64) * expected).sum(axis=1) / norms).min() > 0.99999, folder
        assert np.abs(found - expected).max() / np.abs(expected).max() < 1e-4, folder


def named(published: list[Published], jina: bool = False) -> Any:
    chosen = [one for one in published if one.name.startswith("jina") == jina]
    return pytest.mark.parametrize("published", chosen, ids=lambda published: published.name)


@named(ENCODERS)
def test_vectors_are_those_of_sentence_transformers(published: Published, tmp_path: Path) -> None:
    """As published, and as sentence-transformers saves the model today."""
    pytest.importorskip("sentence_transformers")
    write(published, tmp_path / "published")
    name = "query" if "query" in published.prompts else None
    expected = theirs(published, tmp_path / "published", name)
    check_vectors(published, [tmp_path / "published", tmp_path / "saved"], name, expected)


@named(ENCODERS, jina=True)
def test_vectors_of_jina_are_the_formulas(published: Published, tmp_path: Path) -> None:
    write(published, tmp_path / "published")
    case = published.case
    model = oracle.JinaBert(case.config, draw_all(oracle.jina_shapes(case.config, case.task), case.seed))
    tokenizer = Tokenizer.from_file(str(tmp_path / "published" / "tokenizer.json"))
    expected = np.stack([model.rows(np.array(tokenizer.encode(text).ids), None).mean(axis=0) for text in TEXTS])
    check_vectors(published, [tmp_path / "published"], None, np.concatenate([expected, expected]))


@named(RERANKERS)
def test_scores_are_those_of_sentence_transformers(published: Published, tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    write(published, tmp_path / "published")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = sentence_transformers.CrossEncoder(str(tmp_path / "published"), device="cpu")
        model.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
        expected = model.predict(PAIRS)
    for name in ("published", "saved"):
        assert np.abs(CrossEncoder.from_checkpoint(read(tmp_path / name)).predict(PAIRS) - expected).max() < 1e-5, name
