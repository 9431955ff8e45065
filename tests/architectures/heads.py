"""Cases of heads: what classifies a text or its tokens, and what predicts masked ones."""

import re
from dataclasses import replace
from typing import Any

from tests.architectures.absolute import (
    ALBERT_CONFIG,
    BERT_CONFIG,
    CAMEMBERT,
    DISTILBERT_CONFIG,
    ELECTRA_CONFIG,
    ROBERTA_CONFIG,
    XLM_ROBERTA,
)
from tests.architectures.biased import DEBERTA_CONFIG, JINA_CONFIG, MPNET_CONFIG
from tests.architectures.case import ODD_HEADS, ONE_LAYER, SIZES, TASKS, Case
from tests.architectures.rotary import GEMMA3_CONFIG, MODERNBERT_CONFIG, NEW_CONFIG, NOMIC_CONFIG, QWEN3_CONFIG

_LABELS = {"0": "NONE", "1": "PLACE", "2": "PERSON"}
_RERANKER = {"0": "LABEL_0"}
_MORE_LABELS = ({"0": "NO", "1": "YES"}, {str(i): f"LABEL_{i}" for i in range(17)})


def _heads(
    name: str, config: dict[str, Any], *tasks: str, types: bool = False, labels: dict[str, str] | None = None
) -> list[Case]:
    """The heads of an architecture at a size of two layers, and at two more sizes; only the first are goldens."""
    two = {field: 2 for field in ("num_hidden_layers", "n_layers", "n_layer", "num_layers") if field in config}
    found = []
    for i, task in enumerate(tasks):
        common = _named(config, task) | _labelled(task, labels or _LABELS)
        first = Case(
            f"{name}-{task}", config | two | common, task, lengths=(2, 13), types=types, golden=True, seed=10 + i
        )
        found.append(first)
        for j, change in enumerate(_sizes(config)):
            more = change | _named(config, task) | _labelled(task, _MORE_LABELS[j])
            if task == _MASK and j:
                more |= {"tie_word_embeddings": False}
            found.append(replace(first, name=f"{first.name}-{j + 1}", config=config | more, golden=False, seed=20 + i))
    return found


def _sizes(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Changes to two other sizes, of one layer and of odd heads."""
    if config["model_type"] == "distilbert":
        return [{"dim": 20, "n_layers": 1, "n_heads": 4}, {"dim": 33, "n_layers": 2, "n_heads": 11}]
    shared = "num_key_value_heads" in config
    changes = [ONE_LAYER | ({"num_key_value_heads": 2} if shared else {})]
    changes.append(ODD_HEADS | ({"num_key_value_heads": 1} if shared else {}))
    if config["model_type"] in ("nomic_bert", "new", "gte", "modernbert"):  # rotary positions turn pairs
        changes = [change | {"hidden_size": width} for change, width in zip(changes, (24, 44))]
    if "layer_types" in config:
        changes = [change | {"layer_types": config["layer_types"][: change["num_hidden_layers"]]} for change in changes]
    return changes


def _labelled(task: str, labels: dict[str, str]) -> dict[str, Any]:
    """A masked-token head has no labels."""
    return {} if task == _MASK else {"id2label": labels, "label2id": {label: int(i) for i, label in labels.items()}}


def _named(config: dict[str, Any], task: str) -> dict[str, Any]:
    """The class of the task in place of the encoder's."""
    return {"architectures": [re.sub("(Model|ForMaskedLM|ForCausalLM)$", CLASS_ENDS[task], config["architectures"][0])]}


_SEQUENCE, _TOKENS, _MASK = TASKS[1:]
CLASS_ENDS = {_SEQUENCE: "ForSequenceClassification", _TOKENS: "ForTokenClassification", _MASK: "ForMaskedLM"}
HEADS = [
    *_heads("bert", SIZES | BERT_CONFIG, _SEQUENCE, _TOKENS, _MASK),
    *_heads("bert-untied", SIZES | BERT_CONFIG | {"tie_word_embeddings": False}, _MASK),
    *_heads("bert-reranker", SIZES | BERT_CONFIG, _SEQUENCE, types=True, labels=_RERANKER),
    *_heads("roberta", SIZES | ROBERTA_CONFIG, _SEQUENCE, _TOKENS, _MASK),
    *_heads("xlm-roberta-reranker", SIZES | XLM_ROBERTA[0].config, _SEQUENCE, labels=_RERANKER),
    *_heads("camembert", SIZES | CAMEMBERT[0].config, _TOKENS),
    *_heads("mpnet", SIZES | MPNET_CONFIG, _SEQUENCE, _TOKENS, _MASK),
    *_heads("distilbert", DISTILBERT_CONFIG, _SEQUENCE, _TOKENS, _MASK),
    *_heads("electra", SIZES | ELECTRA_CONFIG, _SEQUENCE, _TOKENS, _MASK),
    *_heads("albert", SIZES | ALBERT_CONFIG, _SEQUENCE, _TOKENS, _MASK),
    *_heads("modernbert", SIZES | MODERNBERT_CONFIG, _SEQUENCE, _TOKENS, _MASK),
    *_heads("modernbert-cls", SIZES | MODERNBERT_CONFIG | {"classifier_pooling": "cls"}, _SEQUENCE, labels=_RERANKER),
    *_heads("nomic", SIZES | NOMIC_CONFIG, _SEQUENCE, _TOKENS, _MASK),
    *_heads("new", SIZES | NEW_CONFIG | {"type_vocab_size": 1}, _SEQUENCE, _TOKENS, _MASK),
    *_heads("jina", SIZES | JINA_CONFIG, _SEQUENCE, labels=_RERANKER),
    *_heads("qwen3", SIZES | QWEN3_CONFIG, _SEQUENCE, _TOKENS),
    *_heads("gemma3", SIZES | GEMMA3_CONFIG | {"layer_types": ["sliding_attention", "full_attention"]}, _SEQUENCE),
    *_heads("deberta-v2", SIZES | DEBERTA_CONFIG, _SEQUENCE, _TOKENS, _MASK),
]
