"""Classifiers, taggers and predictions of masked tokens: the head's results for random texts and pairs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import fastattn
from bench.differences import Case, difference
from bench.differences.encoders import CHOICES as ENCODERS
from bench.differences.encoders import make_texts, write_encoder
from bench.differences.folders import EDITS, FILES, loaded

CLASSES = {
    "sequence": transformers.AutoModelForSequenceClassification,
    "token": transformers.AutoModelForTokenClassification,
    "masked": transformers.AutoModelForMaskedLM,
}
LABELS = {
    "num_labels": [1, 2, 5],
    "classifier_dropout": [0.3],
    EDITS + "problem_type": ["multi_label_classification", "single_label_classification", "regression"],
}
POOLED = {"classifier_pooling": ["mean", "cls"], "classifier_bias": [True], "classifier_activation": ["gelu", "relu"]}
TIES = {"tie_word_embeddings": [False, True], EDITS + "tie_word_embeddings": [True, False], "head": FILES["head"]}
CHOICES: dict[str, dict[str, list[Any]]] = {
    f"{base} {task}": choices | (TIES if task == "masked" else LABELS) | (POOLED if base == "modernbert" else {})
    for base, choices in ENCODERS.items()
    for task in CLASSES
    if not base.endswith("t5") and not (task == "masked" and base in ("qwen2", "qwen3", "gemma3_text"))
}


@torch.no_grad()
def compare(case: Case, folder: Path) -> str:
    base, task = case.base.split()
    plain = Case(case.kind, base, case.seed, case.chosen)
    write_encoder(plain, folder, CLASSES[task])
    theirs = loaded(CLASSES[task], folder)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)

    def logits(*texts: str) -> np.ndarray:
        ids = tokenizer(*texts, return_token_type_ids=True)
        types = {"token_type_ids": torch.tensor([ids["token_type_ids"]])} if "bert sequence" == case.base else {}
        return theirs(torch.tensor([ids["input_ids"]]), **types).logits[0].double().numpy()

    return COMPARISONS[task](plain, folder, logits)


def _sequence(case: Case, folder: Path, logits: Callable[..., np.ndarray]) -> str:
    texts, problem = make_texts(case), case.chosen.get(EDITS + "problem_type")
    pairs = list(zip(texts, reversed(texts)))
    raw = fastattn.CrossEncoder(folder, precision="float32", threads=1).predict(pairs, activation_fn="none")
    expected = np.array([logits(*pair) for pair in pairs])
    if fault := difference("numbers of pairs", raw.reshape(expected.shape), expected, 1e-4):
        return fault
    results = fastattn.TextClassifier(folder, precision="float32", threads=1).classify(texts)
    for text, named in zip(texts, results):
        numbers = logits(text)
        each = problem == "multi_label_classification" or (len(numbers) == 1 and problem != "regression")
        likely = 1 / (1 + np.exp(-numbers)) if each else np.exp(numbers) / np.exp(numbers).sum()
        likely = numbers if problem == "regression" else likely
        ours = {entry["label"]: entry["score"] for entry in named}
        if fault := difference("scores", [ours[f"LABEL_{i}"] for i in range(len(likely))], likely):
            return fault
    return ""


def _token(case: Case, folder: Path, logits: Callable[..., np.ndarray]) -> str:
    texts = make_texts(case)
    results = fastattn.TokenClassifier(folder, precision="float32", threads=1).classify(texts, ignore_labels=())
    for text, spans in zip(texts, results):
        likely_TF = torch.from_numpy(logits(text)).softmax(-1).numpy()[1:-1]
        if fault := difference("scores of words", [span["score"] for span in spans], likely_TF.max(1)):
            return fault
        if [span["label"] for span in spans] != [f"LABEL_{i}" for i in likely_TF.argmax(1)]:
            return "labels of words differ"
    return ""


def _masked(case: Case, folder: Path, logits: Callable[..., np.ndarray]) -> str:
    texts = [f"{text} <mask> w7" for text in make_texts(case)]
    results = fastattn.MaskedLanguageModel(folder, precision="float32", threads=1).fill(texts)
    for text, tokens in zip(texts, results):
        likely_V = torch.from_numpy(logits(text)[-3]).softmax(-1)
        best = likely_V.topk(5)
        if fault := difference("scores of tokens", [entry["score"] for entry in tokens], best.values):
            return fault
        if fault := difference("scores by id", likely_V[[entry["token"] for entry in tokens]], best.values):
            return fault
    return ""


COMPARISONS = {"sequence": _sequence, "token": _token, "masked": _masked}
