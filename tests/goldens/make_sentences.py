"""Writes what published code makes of two models of the catalog: python -m tests.goldens.make_sentences MINILM SPLADE

minilm.npz          vectors of all-MiniLM-L6-v2 by sentence-transformers
splade_tiny.json    the greatest numbers of splade-tiny by its formula, with torch
"""

import sys

import numpy as np
import sentence_transformers
import torch
import transformers

from tests.goldens.writing import versions, write_arrays, write_json

TEXTS = [
    "", "The cat sits on the mat.", "Übergrößenträger, 日本語 and emoji 🙂 in one   line",
    "Attention is all you need, and a sentence far longer than the limit is cut. " * 30,
]  # fmt: skip
SPARSE_TEXTS = [
    "A man is eating food.", "How many grams of protein should a woman eat a day?",
    "Ação, naïve café, straße; 我们明天去北京开会。 Привет!", "x", "",
    "the quick brown fox jumps over the lazy dog " * 6, "retrieval of passages by learned sparse vectors " * 80,
]  # fmt: skip
KEPT = 12


def minilm(folder: str) -> dict[str, np.ndarray]:
    model = sentence_transformers.SentenceTransformer(folder, device="cpu")
    plain, prompted = model.encode(TEXTS), model.encode(TEXTS[:3], prompt="query: ")
    model.set_pooling_include_prompt(False)
    return {
        "texts": np.array(TEXTS), "plain": plain, "prompted": prompted,
        "prompt_not_pooled": model.encode(TEXTS[:3], prompt="query: "),
        "similarity": model.similarity(plain, plain).numpy(),
    }  # fmt: skip


def splade(folder: str) -> list[dict]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model, found = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval(), []
    for text in SPARSE_TEXTS:
        with torch.inference_mode():
            logits = model(**tokenizer([text], truncation=True, return_tensors="pt")).logits
        vector = torch.log1p(torch.relu(logits)).amax(dim=1)[0]
        numbers, columns = vector.topk(KEPT)
        rounded = [round(number, 7) for number in numbers[numbers > 0].tolist()]
        facts = {"text": text, "columns": columns[numbers > 0].tolist(), "numbers": rounded}
        found.append(facts | {"nonzero": int((vector > 0).sum()), "sum": float(vector.sum(dtype=torch.float64))})
    return found


if __name__ == "__main__":
    write_arrays("minilm", minilm(sys.argv[1]), sentence_transformers, transformers, torch)
    document = {"versions": versions(transformers, torch), "vectors": splade(sys.argv[2])}
    write_json("splade_tiny", document, indent=1)
