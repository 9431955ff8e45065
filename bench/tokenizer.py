"""A sentence encoder's tokenizer for the engines that have none."""

import json
from collections.abc import Iterator
from pathlib import Path


class Tokenizer:
    """tokenizer.json through its own library, truncated to the model's limit; batches of similar length."""

    def __init__(self, folder: Path):
        from tokenizers import Tokenizer as Library

        limits = json.loads((folder / "sentence_bert_config.json").read_text(encoding="utf-8"))
        self.library = Library.from_file(str(folder / "tokenizer.json"))
        self.library.no_padding()
        self.library.enable_truncation(limits["max_seq_length"])

    def batches(self, texts: list[str], size: int) -> Iterator[tuple[list[int], list[list[int]]]]:
        """Yield (indices of the texts, their ids)."""
        ids = [encoding.ids for encoding in self.library.encode_batch(texts)]
        order = sorted(range(len(ids)), key=lambda b: -len(ids[b]))
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            yield chosen, [ids[b] for b in chosen]
