"""Folders of encoders with heads that tests share: drawn weights, words w5 to w60, pairs with token types."""

import json
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from tokenizers import Tokenizer, normalizers

from fastattn.encoders.base import EncoderBase
from fastattn.ops import reference
from fastattn.weights import read
from tests.architectures.case import FIRST_WORD, VOCABULARY, Case
from tests.architectures.cases import CASES
from tests.architectures.drawing import draw_all
from tests.architectures.folders import write_folder
from tests.architectures.goldens import read_goldens
from tests.weights.containers.safetensors_writer import safetensors_bytes

TRANSFORMER = "sentence_transformers.base.modules.transformer.Transformer"
RERANKER, LABELS, TOKENS = (f"bert-{kind}-classification" for kind in ("reranker-sequence", "sequence", "token"))
MASKED = "bert-fill-mask"
# With this class a tokenizer gives token types, in transformers too.
TOKENIZER_CONFIG = {
    "tokenizer_class": "BertTokenizer", "do_lower_case": False, "model_max_length": 40, "pad_token": "[PAD]",
    "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "mask_token": "[MASK]",
}  # fmt: skip


_Kind = TypeVar("_Kind", bound=EncoderBase)


def by_reference(kind: type[_Kind], folder: Path) -> _Kind:
    """One of the folder's checkpoint on the reference operations."""
    return kind.from_checkpoint(read(folder), ops=reference)


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def write_classifier(folder: Path, name: str = RERANKER, **config: Any) -> Path:
    """A golden case's folder; ``config``: what its config.json has beside, or instead."""
    case = case_of(name)
    folder.mkdir(parents=True, exist_ok=True)
    write_folder(folder, case.config | config, draw_all(read_goldens(case)[0], case.seed))
    if case.model_type == "bert":
        (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG), encoding="utf-8")
    return folder


def some_texts(count: int, longest: int = 12, seed: int = 3) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{i}" for i in rng.integers(5, 61, rng.integers(0, longest + 1))) for _ in range(count)]


def some_pairs(count: int, longest: int = 12) -> list[tuple[str, str]]:
    return list(zip(some_texts(count, longest), some_texts(count, longest, seed=4), strict=True))


def write_json(folder: Path, files: dict[str, Any]) -> Path:
    """Name of a file, perhaps in a folder of its own -> its content."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def write_masked(folder: Path, name: str = MASKED, **config: Any) -> Path:
    """A golden case's folder; its tokenizer knows five special tokens, the mask among them, and w5 to w60."""
    write_classifier(folder, name, **config)
    path = str(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    tokenizer.add_special_tokens([tokenizer.id_to_token(i) for i in range(FIRST_WORD)])
    tokenizer.save(path)
    return folder


def _modules(**listed: str) -> dict[str, Any]:
    """{modules.json: its content} of the path of each class; the first lies in the folder itself."""
    return {
        "modules.json": [
            {"idx": i, "name": str(i), "path": "" if i == 0 else path, "type": kind}
            for i, (path, kind) in enumerate(listed.items())
        ]
    }


def write_sparse(folder: Path, top: dict[str, Any] | None = None, **pooling: Any) -> Path:
    """A SparseEncoder's folder; ``top``: of config_sentence_transformers.json, ``pooling``: of SpladePooling."""
    kind = "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling"
    files = _modules(root=TRANSFORMER, **{"1_SpladePooling": kind}) | {
        "1_SpladePooling/config.json": {"pooling_strategy": "max", "activation_function": "relu"} | pooling,
        "sentence_bert_config.json": {"transformer_task": "fill-mask", "module_output_name": "token_embeddings"},
        "config_sentence_transformers.json": {"model_type": "SparseEncoder"} | (top or {}),
    }
    return write_json(write_masked(folder), files)


def write_cross_encoder_files(folder: Path, settings: dict[str, Any], **transformer: Any) -> Path:
    """What sentence-transformers 6 adds to the folder of a CrossEncoder."""
    method = {"method": "forward", "method_output_name": "logits"}
    task = {"transformer_task": "sequence-classification", "modality_config": {"text": method}}
    files = _modules(root=TRANSFORMER) | {
        "sentence_bert_config.json": task | {"module_output_name": "scores"} | transformer,
        "config_sentence_transformers.json": {"model_type": "CrossEncoder"} | settings,
    }
    return write_json(folder, files)


WIDTH, INPUTS = 20, 36
PROMPTS = {"query": "w11 ", "document": "w12 w13 "}
EXPANSION = {"strategy": "fixed", "attend": False, "length": 9, "token": None}
PYLATE = {
    "model_type": "ColBERT", "query_prefix": "[unused0] ", "document_prefix": "[unused1] ", "query_length": 10,
    "document_length": 16, "attend_to_expansion_tokens": True, "similarity_fn_name": "MaxSim",
    "skiplist_words": ["w6", "none"],
}  # fmt: skip
METADATA = {"dim": WIDTH, "doc_maxlen": 14, "query_maxlen": 8, "attend_to_mask_tokens": False, "similarity": "cosine"}


def projection() -> np.ndarray:
    return draw_all({"linear.weight": (WIDTH, INPUTS)}, 3)["linear.weight"]


def _encoder(folder: Path, extra: dict[str, np.ndarray], **config: Any) -> None:
    """A small BERT, a tokenizer of the special tokens, a dot, the markers and words to w60."""

    case = case_of("bert-token-classification")
    shapes = {name: shape for name, shape in read_goldens(case)[0].items() if not name.startswith("classifier.")}
    folder.mkdir(parents=True, exist_ok=True)
    tensors = draw_all(shapes, case.seed) | extra
    write_folder(folder, {**case.config, "architectures": ["BertModel"]} | config, tensors)
    path = folder / "tokenizer.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = values["model"]["vocab"]
    for token, index in (("[unused0]", 58), ("[unused1]", 59), (".", 60)):
        vocabulary = {known: i for known, i in vocabulary.items() if i != index} | {token: index}
    assert len(vocabulary) == VOCABULARY
    values["model"]["vocab"] = vocabulary
    tokenizer = Tokenizer.from_str(json.dumps(values))
    tokenizer.normalizer = normalizers.Lowercase()  # so that markers are found only where they are taken whole
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.save(str(path))
    write_json(folder, {"tokenizer_config.json": TOKENIZER_CONFIG | {"tokenizer_class": "PreTrainedTokenizerFast"}})


def _dense(folder: Path, **names: str) -> None:
    settings = {"in_features": INPUTS, "out_features": WIDTH, "bias": False}
    settings |= {"activation_function": "torch.nn.modules.linear.Identity", **names}
    write_json(folder, {"1_Dense/config.json": settings})
    (folder / "1_Dense/model.safetensors").write_bytes(safetensors_bytes({"linear.weight": projection()}))


def write_today(
    folder: Path, top: dict[str, Any] | None = None, mask: dict[str, Any] | None = None, **own: Any
) -> Path:
    """``top``: of config_sentence_transformers.json, ``mask``: of MultiVectorMask, ``own``: of the transformer."""
    _encoder(folder, {})
    tokens = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    _dense(folder, **tokens)
    base = "sentence_transformers.base.modules"
    listed = {
        "1_Dense": f"{base}.dense.Dense",
        "2_MultiVectorMask": "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
        "3_Normalize": f"{base}.normalize.Normalize",
    }
    files = _modules(root=TRANSFORMER, **listed) | {
        "2_MultiVectorMask/config.json": {"skiplist_words": ["w6", ".", "none"]} | (mask or {}),
        "3_Normalize/config.json": tokens,
        "sentence_bert_config.json": {"query_length": 9, "document_length": 12, "query_expansion": EXPANSION} | own,
        "config_sentence_transformers.json": {"model_type": "MultiVectorEncoder", "prompts": PROMPTS} | (top or {}),
    }
    return write_json(folder, files)


def write_pylate(folder: Path, **top: Any) -> Path:
    """``top``: of config_sentence_transformers.json."""
    _encoder(folder, {})
    _dense(folder)
    listed = {"root": "sentence_transformers.models.Transformer", "1_Dense": "pylate.models.Dense.Dense"}
    files = _modules(**listed) | {
        "sentence_bert_config.json": {"max_seq_length": 15, "do_lower_case": False},
        "config_sentence_transformers.json": PYLATE | top,
    }
    return write_json(folder, files)


def write_original(folder: Path, metadata: dict[str, Any] | None = None, **config: Any) -> Path:
    """``metadata``: of artifact.metadata, ``config``: of config.json."""
    _encoder(folder, {"linear.weight": projection()}, **({"architectures": ["HF_ColBERT"]} | config))
    return write_json(folder, {"artifact.metadata": METADATA | (metadata or {})})
