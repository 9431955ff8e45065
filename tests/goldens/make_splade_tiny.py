"""Writes splade_tiny.json: the greatest numbers of the catalog's splade-tiny by its published formula, with torch.

Run in an environment with transformers: python -m tests.goldens.make_splade_tiny FOLDER
"""

import json
import sys
from pathlib import Path

import torch
import transformers

TEXTS = [
    "A man is eating food.",
    "How many grams of protein should a woman eat a day?",
    "Ação, naïve café, straße; 我们明天去北京开会。 Привет!",
    "x",
    "",
    "the quick brown fox jumps over the lazy dog " * 6,
    "retrieval of passages by learned sparse vectors " * 80,
]
KEPT = 12


def main() -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
    model = transformers.AutoModelForMaskedLM.from_pretrained(sys.argv[1]).eval()
    vectors = []
    for text in TEXTS:
        with torch.inference_mode():
            logits = model(**tokenizer([text], truncation=True, return_tensors="pt")).logits
        vector = torch.log1p(torch.relu(logits)).amax(dim=1)[0]
        numbers, columns = vector.topk(KEPT)
        vectors.append(
            {
                "text": text,
                "columns": columns[numbers > 0].tolist(),
                "numbers": [round(number, 7) for number in numbers[numbers > 0].tolist()],
                "nonzero": int((vector > 0).sum()),
                "sum": float(vector.sum(dtype=torch.float64)),
            }
        )
    versions = [f"{module.__name__} {module.__version__}" for module in (transformers, torch)]
    document = {"versions": ", ".join(versions), "vectors": vectors}
    Path(__file__).with_name("splade_tiny.json").write_text(json.dumps(document, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
